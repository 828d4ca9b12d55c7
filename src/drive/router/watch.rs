//! Looks after auto-links that were active once, or never were: now and then all of them are asked for, those that
//! are not active although their connection is are made anew, and what stays so is told.
//!
//! Asking for all costs a router time that grows with the square of their number, so that it is done at most 1 % of
//! the time. Only links that are not active are remembered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::carry::{Carrier, Halt, text};
use super::link::Type;
use super::ops::link_slot;
use super::read::{by_position, pages};
use crate::engine::jitter::doubling;
use crate::messaging::ids::Slot;
use crate::messaging::remote::in_words;
use crate::messaging::router::{AutoLink, Direction, Entity, RouterLink as Report};

const ATTRIBUTES: &[&str] =
    &["name", "address", "operStatus", "lastError", "direction", "connection", "externalAddress"];
/// The least time between two looks at all links.
const PERIOD: Duration = Duration::from_secs(10);
/// Time between the looks for one second of looking.
const SHARE: u32 = 100;
/// A look was asked for: it waits until nobody asks any more, but no longer than [`PERIOD`].
const QUIET: Duration = Duration::from_secs(1);
/// Pages that are asked for at a time: others have work for the router, too.
const PAGES: usize = 8;
/// For a page, behind a router's other work.
const DEADLINE: Duration = Duration::from_secs(60);
/// Links that are made anew after one look, and of those at a time.
const RENEWALS: usize = 100;
const AT_A_TIME: usize = 10;
/// Between two renewals of one link: doubles.
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Looks after which a link that is not active is told, renewed or not.
const PATIENCE: u32 = 2;

/// The links of one router that are not active.
#[derive(Debug, Default)]
pub struct Watch {
    troubles: Mutex<Troubles>,
    soon: Notify,
}

#[derive(Debug, Default)]
struct Troubles {
    links: BTreeMap<Slot, BTreeMap<AutoLink, Trouble>>,
    /// What was told of a slot.
    told: BTreeMap<Slot, Arc<str>>,
}

#[derive(Debug)]
struct Trouble {
    words: Arc<str>,
    /// Whether the router itself says that it failed, and not that it is under way.
    failed: bool,
    looks: u32,
    renewals: u32,
    /// It is not made anew before.
    next: Instant,
}

impl Trouble {
    fn new(words: Arc<str>) -> Self {
        Self { words, failed: false, looks: 0, renewals: 0, next: Instant::now() }
    }

    fn stays(&self) -> bool {
        self.renewals > 0 || self.looks >= PATIENCE
    }
}

impl Watch {
    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status of a link, and its trouble in words for people.
    pub(super) fn words(link: &AutoLink, get: impl Fn(&str) -> Option<Value>) -> (String, Arc<str>) {
        let status = text(get("operStatus")).unwrap_or_else(|| "unknown".to_owned());
        let way = match link.direction {
            Direction::In => "from",
            Direction::Out => "to",
        };
        let way = format!("link {way} {}", in_words(&link.broker));
        // It stays there when the link is active again.
        let words = match text(get("lastError")).filter(|error| !error.is_empty()) {
            // Between two attempts it fails, and during one it attaches: that is no news.
            Some(error) if status == "attaching" => format!("{way} is failed: {error}"),
            Some(error) if status != "active" => format!("{way} is {status}: {error}"),
            _ => format!("{way} is {status}"),
        };
        (status, words.into())
    }

    /// Asks for a look at all links soon.
    pub fn soon(&self) {
        self.soon.notify_one();
    }

    /// These links of the slot are not active, and whoever asked for them was told so.
    pub(super) fn note(&self, slot: &Slot, troubled: Vec<(AutoLink, Arc<str>)>) {
        let mut troubles = self.troubles();
        let Some((_, first)) = troubled.first() else { return };
        troubles.told.insert(slot.clone(), Arc::clone(first));
        let links = troubles.links.entry(slot.clone()).or_default();
        for (link, words) in troubled {
            links.insert(link, Trouble::new(words));
        }
    }

    /// The slot consists of these now; what is not among them is forgotten.
    pub(super) fn retain(&self, slot: &Slot, entities: &[Entity]) {
        let mut troubles = self.troubles();
        let is_wanted = |link: &AutoLink| entities.iter().any(|entity| *entity == Entity::AutoLink(link.clone()));
        let left = match troubles.links.get_mut(slot) {
            Some(links) => {
                links.retain(|link, _| is_wanted(link));
                !links.is_empty()
            }
            None => false,
        };
        if !left {
            troubles.links.remove(slot);
            // Whoever had it changed is told what is now.
            troubles.told.remove(slot);
        }
    }

    /// What was told of the slot's links and still holds.
    pub(super) fn told(&self, slot: &Slot) -> Option<Arc<str>> {
        self.troubles().told.get(slot).cloned()
    }

    /// What has changed since it was told.
    fn news(&self) -> Vec<(Slot, Option<Arc<str>>)> {
        let mut troubles = self.troubles();
        let Troubles { links, told } = &mut *troubles;
        links.retain(|_, links| !links.is_empty());
        let over: Vec<Slot> = told.keys().filter(|slot| !links.contains_key(*slot)).cloned().collect();
        let mut news = Vec::new();
        for slot in over {
            told.remove(&slot);
            news.push((slot, None));
        }
        for (slot, links) in links.iter() {
            let Some(trouble) = links.values().find(|trouble| trouble.stays()) else { continue };
            if told.get(slot) != Some(&trouble.words) {
                told.insert(slot.clone(), Arc::clone(&trouble.words));
                news.push((slot.clone(), Some(Arc::clone(&trouble.words))));
            }
        }
        news
    }

    /// Links that are to be made anew now.
    fn due(&self) -> Vec<(Slot, AutoLink)> {
        let now = Instant::now();
        let troubles = self.troubles();
        let all =
            troubles.links.iter().flat_map(|(slot, links)| links.iter().map(move |(link, how)| (slot, link, how)));
        let due = all.filter(|(.., how)| how.next <= now && (how.failed || how.looks >= PATIENCE));
        due.map(|(slot, link, _)| (slot.clone(), link.clone())).take(RENEWALS).collect()
    }

    /// Whether a link is not active that may yet become so, and is told of if it does not.
    fn undecided(&self) -> bool {
        let Troubles { links, told } = &*self.troubles();
        let untold = links.iter().filter(|(slot, _)| !told.contains_key(*slot));
        untold.flat_map(|(_, links)| links.values()).any(|trouble| !trouble.stays())
    }

    fn edit(&self, slot: &Slot, link: &AutoLink, edit: impl FnOnce(&mut Trouble) -> bool) {
        let mut troubles = self.troubles();
        let Some(links) = troubles.links.get_mut(slot) else { return };
        let keep = links.get_mut(link).is_none_or(edit);
        if !keep {
            links.remove(link);
        }
    }
}

impl Carrier<'_> {
    /// Looks after the links until the session is of no use any more; says why. Begins once the router was read.
    pub async fn keep_links(&self) -> String {
        self.was_read().await;
        // A look takes part of the time only: when the last one allows the next.
        let mut allowed = Instant::now() + QUIET;
        let mut next = allowed + PERIOD;
        let mut asked: Option<Instant> = None;
        let (mut looks, mut looked) = (0, false);
        loop {
            tokio::select! {
                biased;
                () = self.watch.soon.notified() => {
                    let now = Instant::now();
                    let latest = *asked.get_or_insert(now) + PERIOD;
                    next = (now + QUIET).min(latest).max(allowed);
                    continue;
                }
                () = sleep_until(next) => {}
            }
            let began = Instant::now();
            asked = None;
            if self.memory().links() > 0 {
                match self.look_at_links().await {
                    Ok(()) => {}
                    Err(Halt::Dead(reason)) => return reason,
                    Err(Halt::Refused(words)) => tracing::warn!(words, "a router does not show its links"),
                }
            }
            allowed = Instant::now() + (began.elapsed() * SHARE).max(PERIOD);
            next = allowed;
            match self.mend_links().await {
                Ok(()) => {}
                Err(Halt::Dead(reason)) => return reason,
                Err(Halt::Refused(words)) => tracing::warn!(words, "a link cannot be mended"),
            }
            looks += 1;
            if !looked && (looks >= PATIENCE || !self.watch.undecided()) {
                looked = true;
                self.tell(Report::Looked);
            }
        }
    }

    async fn look_at_links(&self) -> Result<(), Halt> {
        let mut ill = Vec::new();
        pages(&self.caller, Type::AutoLink, ATTRIBUTES, PAGES, DEADLINE, |row| {
            let get = |attribute: &str| by_position(ATTRIBUTES, &row, attribute);
            let Some(name) = text(get("name")) else { return };
            let Some(slot) = link_slot(self.names(), &name, |attribute| text(get(attribute))) else { return };
            let active = text(get("operStatus")).as_deref() == Some("active");
            if active && !self.watch.troubles().links.contains_key(&slot) {
                return;
            }
            let Some(link) = self.link_of(&slot, &name) else { return };
            if active {
                self.watch.edit(&slot, &link, |_| false);
            } else {
                let (status, words) = Watch::words(&link, get);
                let told_why = text(get("lastError")).is_some_and(|error| !error.is_empty());
                ill.push((slot, link, status, words, told_why));
            }
        })
        .await?;
        if ill.is_empty() {
            return Ok(());
        }
        // A connection may have gone since it was looked at; its links went with it.
        self.look_at_connectors().await?;
        for (slot, link, status, words, told_why) in ill {
            // Somebody is at work on it, and tells; or it is its connector's matter.
            if self.claims.is_claimed(&slot) || !self.connectors.is_up(&link.broker) {
                continue;
            }
            let known = self.memory().shape(&slot).is_some_and(|shape| shape.contains(&Entity::AutoLink(link.clone())));
            if !known {
                continue;
            }
            let mut troubles = self.watch.troubles();
            let links = troubles.links.entry(slot).or_default();
            let trouble = links.entry(link).or_insert_with(|| Trouble::new(Arc::clone(&words)));
            // One that was made anew says nothing yet: why it failed before still holds.
            if told_why || status != "attaching" {
                trouble.words = words;
            }
            trouble.failed = status == "failed";
            trouble.looks += 1;
        }
        Ok(())
    }

    /// The auto-link of this name in a slot that is known to have it.
    fn link_of(&self, slot: &Slot, name: &str) -> Option<AutoLink> {
        let shape = self.memory().shape(slot)?;
        let named = shape.iter().find(|entity| self.names().name(slot, entity) == name)?;
        match named {
            Entity::AutoLink(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// Makes anew what is due, and tells what has changed.
    async fn mend_links(&self) -> Result<(), Halt> {
        let mut due = self.watch.due();
        due.retain(|(_, link)| self.connectors.is_up(&link.broker));
        let mut mended = stream::iter(due.into_iter().map(|(slot, link)| async move {
            let words = match self.renew(&slot, &link).await {
                Ok(false) => return Ok(()),
                Ok(true) => {
                    let troubled = self.until_active(&slot, vec![link.clone()]).await?;
                    troubled.into_iter().next().map(|(_, words)| words)
                }
                Err(Halt::Refused(words)) => Some(words.into()),
                Err(dead) => return Err(dead),
            };
            self.watch.edit(&slot, &link, |trouble| {
                let Some(words) = words else { return false };
                trouble.words = words;
                trouble.next = Instant::now() + doubling(FIRST_WAIT, LONGEST_WAIT, trouble.renewals);
                trouble.renewals += 1;
                true
            });
            Ok(())
        }))
        .buffer_unordered(AT_A_TIME);
        while let Some(result) = mended.next().await {
            result?;
        }
        let news = self.watch.news();
        if !news.is_empty() {
            self.tell(Report::Links(news));
        }
        Ok(())
    }
}
