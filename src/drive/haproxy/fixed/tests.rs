//! What the files say, whatever processes and masters do.

use std::time::Duration;

use super::*;
use crate::edge::model::tests::support::config;

const OLD: Process = (7, 100);
const NEW: Process = (8, 200);

fn layout() -> Layout {
    Layout::new("/d")
}

fn with(threads: u16) -> Arc<RouterConfig> {
    let mut config = config();
    config.tuning.threads = Some(threads);
    Arc::new(config)
}

fn part(threads: u16) -> FixedPart {
    FixedPart::of(&with(threads), &layout())
}

fn refusal() -> ReloadError {
    ReloadError::Refused(
        "[NOTICE]   (5) : x\n[ALERT]    (51) : config : no (52) room\n[ALERT] (51) : end.\n".to_owned(),
    )
}

/// Threads 1 run, and 2 are wanted.
fn outdated() -> Fixed {
    let mut fixed = Fixed::new(layout(), &with(1), Some(part(1)));
    assert!(!fixed.found(OLD, part(1).mark()) && !fixed.is_outdated());
    fixed.want(&with(2), vec!["edge.tuning.threads"]);
    fixed
}

fn refuse(fixed: &mut Fixed, error: &ReloadError) -> Arc<str> {
    let (before, _) = fixed.begin();
    fixed.refused(before, error, &Limits::default(), &Jitter::seeded(1))
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_nobody_looked_is_loaded_once() {
    let limits = Limits::default();
    let mut fixed = Fixed::new(layout(), &with(2), Some(part(1)));
    assert_eq!(*fixed.files(), part(1), "as they were, until a process has taken others");
    assert!(!fixed.found(OLD, part(1).mark()));
    assert_eq!(fixed.reload_at(&limits), Some(Instant::now()));
    let (_, reasons) = fixed.begin();
    assert_eq!((reasons, fixed.files()), (vec![OUTDATED], Arc::new(part(2))));
    fixed.loaded();
    // The old one may answer once more.
    assert!(!fixed.found(OLD, part(1).mark()) && fixed.is_outdated());
    assert!(!fixed.found(NEW, part(2).mark()));
    assert_eq!((fixed.reload_at(&limits), fixed.lacks()), (None, None));
    // One whose files are somebody else's says something else, before and after.
    let mut foreign = Fixed::new(layout(), &with(2), None);
    foreign.found(OLD, None);
    assert!(foreign.is_outdated());
    foreign.begin();
    foreign.loaded();
    foreign.found(NEW, None);
    assert!(!foreign.is_outdated(), "no second one follows");
    foreign.want(&with(3), vec!["edge.tuning.threads"]);
    assert!(foreign.is_outdated());
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_while_something_else_is_loaded_is_loaded_next() {
    let mut fixed = outdated();
    fixed.begin();
    fixed.loaded();
    fixed.want(&with(3), vec!["edge.tuning.threads"]);
    assert!(!fixed.found(NEW, part(2).mark()) && fixed.is_outdated());
    let (_, reasons) = fixed.begin();
    assert_eq!((reasons, fixed.files()), (vec!["edge.tuning.threads"], Arc::new(part(3))));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_taken_back_told_and_tried_again_after_waits_that_double() {
    let limits = Limits::default();
    let mut fixed = outdated();
    assert_eq!(fixed.lacks().as_deref(), Some("it is to be reloaded for edge.tuning.threads"));
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(&*refuse(&mut fixed, &refusal()), "config : no room; end.");
        assert_eq!(*fixed.files(), part(1));
        let again = fixed.reload_at(&limits).unwrap();
        waits.push(again - Instant::now());
        // Who is far behind is started from what was taken.
        let (_, reasons) = fixed.begin();
        assert_eq!((reasons, fixed.files()), (vec![BEHIND], Arc::new(part(1))));
        tokio::time::sleep_until(again).await;
    }
    assert!(waits[0] >= limits.reload && waits[0] <= 2 * limits.reload, "{waits:?}");
    assert!(waits[7] >= limits.reload_longest / 2 && waits[7] <= limits.reload_longest, "{waits:?}");
    let lacks = fixed.lacks().unwrap();
    assert_eq!(&*lacks, "it goes on as it was: the reload for edge.tuning.threads failed: config : no room; end.");
    // Another wish has another chance, and the old one back needs none.
    fixed.want(&with(3), vec!["edge.tuning.threads"]);
    assert!(fixed.is_untried());
    fixed.want(&with(1), vec!["edge.tuning.threads"]);
    assert_eq!((fixed.lacks(), fixed.reload_at(&limits)), (None, None));
    // What was undone is no reason for what comes then.
    let mut other = (*with(1)).clone();
    other.tuning.timeout_client_ms = 1;
    fixed.want(&Arc::new(other), vec!["edge.tuning.timeoutClient"]);
    fixed.want(&with(2), vec!["edge.tuning.threads", "edge.tuning.timeoutClient"]);
    assert!(fixed.lacks().unwrap().contains("for edge.tuning.threads failed"), "refused before");
}

#[tokio::test(start_paused = true)]
async fn only_where_nobody_of_ours_listens_is_asked_for_room() {
    let at = |stats: u16, addresses: &[&str]| {
        let mut config = config();
        config.listeners.stats = stats;
        config.listeners.addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(config)
    };
    let asked = |before: &Arc<RouterConfig>, after: &Arc<RouterConfig>| {
        let mut fixed = Fixed::new(layout(), before, None);
        fixed.found(OLD, FixedPart::of(before, &layout()).mark());
        fixed.want(after, Vec::new());
        let (before, _) = fixed.begin();
        fixed.new_binds(&before).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(asked(&at(0, &[]), &at(9000, &[])), "0.0.0.0:9000");
    assert_eq!(
        asked(&at(9000, &[]), &at(0, &["10.0.0.1", "fd00::1"])),
        "10.0.0.1:0 10.0.0.1:0 [fd00::1]:0 [fd00::1]:0"
    );
    // Of one that says something else nobody knows where it listens.
    let mut fixed = Fixed::new(layout(), &at(0, &[]), None);
    fixed.found(OLD, None);
    fixed.want(&at(9000, &[]), Vec::new());
    let (before, _) = fixed.begin();
    assert!(fixed.new_binds(&before).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_process_says_counts_more_than_what_a_master_said() {
    let mut fixed = outdated();
    refuse(&mut fixed, &ReloadError::TimedOut);
    assert_eq!(*fixed.files(), part(1));
    assert!(fixed.found(NEW, part(2).mark()), "it was loaded after all: the files are to say so");
    assert_eq!((fixed.files(), fixed.lacks()), (Arc::new(part(2)), None));
    // Where there is never a master, who starts it anew is to have what is wanted.
    let mut fixed = outdated();
    let unreachable = ReloadError::Unreachable("no such file".to_owned());
    for files in [part(1), part(1), part(2)] {
        refuse(&mut fixed, &unreachable);
        assert_eq!(*fixed.files(), files);
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_there_is_no_process_the_files_are_those_that_one_took_for_a_while() {
    let limits = Limits::default();
    // Nobody took these: others may be better.
    let mut fixed = Fixed::new(layout(), &with(1), None);
    assert!(!fixed.unreachable(&limits));
    fixed.want(&with(2), vec!["edge.tuning.threads"]);
    assert!(fixed.unreachable(&limits));
    assert_eq!(*fixed.files(), part(2));
    let mut fixed = outdated();
    assert!(!fixed.unreachable(&limits));
    tokio::time::sleep(limits.reload).await;
    assert!(fixed.unreachable(&limits));
    assert_eq!(*fixed.files(), part(2));
    // Never what was refused.
    let mut fixed = outdated();
    refuse(&mut fixed, &refusal());
    fixed.unreachable(&limits);
    tokio::time::sleep(2 * limits.reload).await;
    assert!(!fixed.unreachable(&limits));
    assert_eq!(*fixed.files(), part(1));
}
