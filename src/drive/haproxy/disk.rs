//! The seam between the drive and the files, and a folder that is one.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::edge::render::File;

/// Why files were not written. Texts carry paths, never contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {words}")]
pub struct DiskError {
    /// The file.
    pub path: String,
    /// The system's words.
    pub words: String,
}

impl DiskError {
    fn new(path: &str, error: &io::Error) -> Self {
        Self { path: path.to_owned(), words: error.to_string() }
    }
}

/// Work that goes on by itself once it is asked for.
pub type Work<T> = BoxFuture<'static, Result<T, DiskError>>;

/// Where files are.
pub trait Disk: Send + Sync {
    /// Writes files in that order, then removes others, and sees to it that all of that lasts. Each file is there
    /// whole, old or new, at every moment; nobody but its owner may read it. Ends at the first failure.
    fn write(&self, files: Vec<File>, removed: Vec<String>) -> Work<()>;

    /// Contents of files; `None` for those that are not there.
    fn read(&self, paths: Vec<String>) -> Work<Vec<Option<String>>>;

    /// Paths of the files in a folder; none where there is no folder. Left-overs of writes that were cut off are removed.
    fn list(&self, folder: String) -> Work<Vec<String>>;
}

/// The machine's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Folder;

/// What a file is called until it is whole.
const PART: &str = ".part";

fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T, DiskError> + Send + 'static) -> Work<T> {
    let task = tokio::task::spawn_blocking(work);
    async move {
        match task.await {
            Ok(result) => result,
            // Not the disk's fault: all ends.
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(DiskError { path: "files".to_owned(), words: "the work was cut off".to_owned() }),
        }
    }
    .boxed()
}

impl Disk for Folder {
    fn write(&self, files: Vec<File>, removed: Vec<String>) -> Work<()> {
        run(move || {
            let mut folders = std::collections::BTreeSet::new();
            for file in &files {
                let path = Path::new(&file.path);
                if let Some(folder) = path.parent()
                    && folders.insert(folder.to_owned())
                {
                    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
                    made.map_err(|error| DiskError::new(&file.path, &error))?;
                }
                replace(path, file.contents.as_bytes()).map_err(|error| DiskError::new(&file.path, &error))?;
            }
            for path in &removed {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(DiskError::new(path, &error)),
                    _ => folders.extend(Path::new(path).parent().map(Path::to_owned)),
                }
            }
            for folder in folders.iter().filter(|folder| folder.exists()) {
                let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
                synced.map_err(|error| DiskError::new(&folder.display().to_string(), &error))?;
            }
            Ok(())
        })
    }

    fn read(&self, paths: Vec<String>) -> Work<Vec<Option<String>>> {
        run(move || {
            let read = |path: &String| match fs::read(path) {
                // What is not text is not what was written.
                Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(DiskError::new(path, &error)),
            };
            paths.iter().map(read).collect()
        })
    }

    fn list(&self, folder: String) -> Work<Vec<String>> {
        run(move || {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(DiskError::new(&folder, &error)),
            };
            let mut paths = Vec::new();
            for entry in entries {
                let path = entry.map_err(|error| DiskError::new(&folder, &error))?.path().display().to_string();
                if path.ends_with(PART) {
                    fs::remove_file(&path).map_err(|error| DiskError::new(&path, &error))?;
                } else {
                    paths.push(path);
                }
            }
            paths.sort();
            Ok(paths)
        })
    }
}

fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(PART);
    let write = || {
        // One that was left over may be somebody else's to read.
        if let Err(error) = fs::remove_file(&part)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    let written = write();
    if written.is_err() {
        // A full disk needs the room.
        let _ = fs::remove_file(&part);
    }
    written
}
