# Ends what its parent started once the parent is gone, however it went: standard input is a pipe from the parent, and
# its end is the signal. Lines: "guard PID", "release PID", "folder PATH", "gone PATH".
trap '' HUP INT QUIT TERM
declare -A began folders

# The start time of a process tells it from a later one with the same number.
start_of() {
  local stat
  read -r stat 2> /dev/null < "/proc/$1/stat" || return
  set -- ${stat##*) }
  start=${20}
}

while read -r word value; do
  case $word in
    guard) start='' ; start_of "$value" ; began[$value]=$start ;;
    release) unset "began[$value]" ;;
    folder) folders[$value]=1 ;;
    gone) unset "folders[$value]" ;;
  esac
done

for pid in "${!began[@]}"; do
  start=''
  start_of "$pid"
  if [[ -n $start && $start == "${began[$pid]}" ]]; then kill -KILL -- "-$pid"; fi
done 2> /dev/null
# A process that is being ended may still make a file.
for folder in "${!folders[@]}"; do
  for _ in {1..50}; do
    rm -rf -- "$folder" 2> /dev/null
    [[ -e $folder ]] || break
    sleep 0.1
  done
done
