//! What is wanted, and what of it is acknowledged.
//!
//! Invariant: `held` is what the process has acknowledged, `pending` all that differs from what is wanted; what is
//! wanted is the one with the other put over it. So one full copy serves both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::order::Batch;
use crate::edge::input::RouterConfig;
use crate::edge::model::DEFAULT_CERTIFICATE;
use crate::edge::order;
use crate::edge::render::Layout;
use crate::edge::runtime::compare::{Difference, Held, compare};
use crate::edge::runtime::show::Info;
use crate::edge::wanted::{Change, MapName, Slot, Value, Wanted};

/// Seconds by which two clocks of one machine, and a start and its files, may be apart.
const SLACK_S: u64 = 3;

/// What is wanted and what is held.
pub(super) struct Ledger {
    held: Wanted,
    pending: BTreeMap<Slot, Change>,
    /// What was refused, by the value's fingerprint; none: to go. Not asked for again until something else is wanted.
    refused: BTreeMap<Slot, Option<u64>>,
    /// Of the newest batch.
    generation: u64,
    config: Option<Arc<RouterConfig>>,
    /// Serves hosts without a certificate where nobody names one.
    fallback: Arc<str>,
    certificates: Certificates,
}

/// Which contents of certificates a process is known to have: they cannot be read.
#[derive(Default)]
struct Certificates {
    /// When the file of one was last written with other contents, seconds since 1970. A process that started after
    /// that has read them.
    written: BTreeMap<Arc<str>, u64>,
    /// The process that commands went to (its number and start), and what it was told.
    process: Option<(u32, u64)>,
    told: BTreeSet<Arc<str>>,
}

impl Ledger {
    pub fn new(fallback: Arc<str>) -> Self {
        let mut held = Wanted::default();
        // Begins to follow: what changes is what files are written for.
        held.take_changes();
        Self {
            held,
            pending: BTreeMap::new(),
            refused: BTreeMap::new(),
            generation: 0,
            config: None,
            fallback,
            certificates: Certificates::default(),
        }
    }

    /// What is acknowledged.
    pub fn held(&mut self) -> &mut Wanted {
        &mut self.held
    }

    /// What files are written by; none before the first batch.
    pub fn config(&self) -> Option<&Arc<RouterConfig>> {
        self.config.as_ref()
    }

    /// The number of the newest batch.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes in what is wanted from now on.
    pub fn take(&mut self, batch: Batch) {
        if self.config.is_none() {
            let value = Some(Value::Sealed(Arc::clone(&self.fallback)));
            self.want(Slot::Certificate(DEFAULT_CERTIFICATE.into()), value);
        }
        for Change { slot, after, .. } in batch.changes {
            let is_default = matches!(&slot, Slot::Certificate(name) if **name == *DEFAULT_CERTIFICATE);
            let after = after.or_else(|| is_default.then(|| Value::Sealed(Arc::clone(&self.fallback))));
            self.want(slot, after);
        }
        self.generation = batch.generation;
        self.config = Some(batch.config);
    }

    fn want(&mut self, slot: Slot, after: Option<Value>) {
        if self.refused.get(&slot).is_some_and(|refused| after.as_ref().map(Value::fingerprint) != *refused) {
            self.refused.remove(&slot);
        }
        match self.pending.get_mut(&slot) {
            Some(change) => {
                change.after = after;
                if change.before == change.after {
                    let change = self.pending.remove(&slot);
                    self.held.set(slot, change.and_then(|change| change.after));
                }
            }
            None => {
                let before = self.held.get(&slot).cloned();
                if before != after {
                    self.pending.insert(slot.clone(), Change { slot, before, after });
                }
            }
        }
    }

    /// What is to be carried out, in order.
    pub fn changes(&self) -> Vec<Change> {
        order::ordered(self.pending.values().filter(|change| !self.is_refused(change)).cloned().collect())
    }

    /// Whether anything is to be carried out.
    pub fn is_settled(&self) -> bool {
        self.pending.values().all(|change| self.is_refused(change))
    }

    /// Whether it was refused, or refers to a store that was.
    fn is_refused(&self, change: &Change) -> bool {
        let refused = |change: &Change| {
            let refused = self.refused.get(&change.slot);
            refused.is_some_and(|refused| change.after.as_ref().map(Value::fingerprint) == *refused)
        };
        !self.refused.is_empty() && (refused(change) || self.lacks(change).any(refused))
    }

    /// Stores that it refers to and that are yet to come.
    fn lacks(&self, change: &Change) -> impl Iterator<Item = &Change> {
        let missing = stores_of(change.after.as_ref()).into_iter().filter(|store| self.held.get(store).is_none());
        missing.filter_map(|store| self.pending.get(&store))
    }

    /// What is wanted there.
    pub fn wanted(&self, slot: &Slot) -> Option<&Value> {
        match self.pending.get(slot) {
            Some(change) => change.after.as_ref(),
            None => self.held.get(slot),
        }
    }

    /// What is wanted in maps that are written as a whole, without what was refused.
    pub fn wanted_maps(&self, maps: &BTreeSet<MapName>) -> Wanted {
        let mut out = Wanted::default();
        for map in maps {
            for (key, value) in self.held.map(*map) {
                out.set(Slot::Map(*map, Arc::clone(key)), Some(Value::Text(Arc::clone(value))));
            }
        }
        for change in self.pending.values() {
            if matches!(&change.slot, Slot::Map(map, _) if maps.contains(map)) && !self.is_refused(change) {
                out.set(change.slot.clone(), change.after.clone());
            }
        }
        out
    }

    /// It is carried out.
    pub fn acknowledged(&mut self, slot: &Slot) {
        let Some(change) = self.pending.remove(slot) else { return };
        if let Slot::Certificate(name) = slot {
            self.certificates.told.insert(Arc::clone(name));
        }
        self.held.set(change.slot, change.after);
    }

    /// It is refused: the fingerprint of what was, unless nothing was wanted there. What refers to a store that is yet to
    /// come is no more refused than that: it is judged when the store is there.
    pub fn refused(&mut self, slot: &Slot) -> Option<u64> {
        let change = self.pending.get(slot).filter(|change| self.lacks(change).next().is_none())?;
        let fingerprint = change.after.as_ref().map(Value::fingerprint);
        self.refused.insert(slot.clone(), fingerprint);
        if fingerprint.is_none() {
            // What would not go has no place in files.
            self.held.set(slot.clone(), None);
        }
        fingerprint
    }

    /// What was refused is asked for again.
    pub fn forget_refusals(&mut self) {
        self.refused.clear();
    }

    /// A map was written as a whole, as it is wanted.
    pub fn map_written(&mut self, map: MapName) {
        let of_map = |slot: &&Slot| matches!(slot, Slot::Map(name, _) if *name == map);
        let slots: Vec<Slot> = self.pending.keys().filter(of_map).cloned().collect();
        for slot in slots
            .iter()
            .filter(|slot| !self.pending.get(slot).is_some_and(|change| self.is_refused(change)))
            .collect::<Vec<_>>()
        {
            self.acknowledged(slot);
        }
    }

    /// The file of a certificate has other contents since then.
    pub fn certificate_written(&mut self, name: &str, now_s: u64) {
        self.certificates.written.insert(name.into(), now_s);
    }

    /// As if what is wanted were held, for files that a process is started from; how much that is. Not what nobody has
    /// tried yet and a tenant wrote: one certificate or pattern that HAProxy refuses would keep it from starting. Those
    /// of `trusted` were tried before.
    pub fn assume(&mut self, trusted: &BTreeSet<Slot>) -> usize {
        let mut count = 0;
        // Stores come before what refers to them in the order of slots.
        for (slot, mut change) in std::mem::take(&mut self.pending) {
            let safe = trusted.contains(&slot) || self.is_safe(&change);
            if safe && !self.is_refused(&change) {
                count += 1;
                self.held.set(slot, change.after);
            } else {
                // Every process names that one, and starts from no files without it.
                let is_default = matches!(&slot, Slot::Certificate(name) if **name == *DEFAULT_CERTIFICATE);
                if is_default && self.held.get(&slot).is_none() {
                    change.before = Some(Value::Sealed(Arc::clone(&self.fallback)));
                    self.held.set(slot.clone(), change.before.clone());
                }
                self.pending.insert(slot, change);
            }
        }
        count
    }

    /// How much [`Self::assume`] would take.
    pub fn assumable(&self) -> usize {
        self.pending.values().filter(|change| self.is_safe(change) && !self.is_refused(change)).count()
    }

    fn is_safe(&self, change: &Change) -> bool {
        match (&change.slot, &change.after) {
            // A store goes after what refers to it, which may have to stay.
            (Slot::Authority(_) | Slot::Certificate(_), None) => false,
            (_, None) => true,
            (Slot::Authority(_), _) => false,
            (Slot::Certificate(_), Some(Value::Sealed(pem))) => *pem == self.fallback,
            (Slot::Map(map, _), _) => !map.ordered(),
            (_, after) => stores_of(after.as_ref()).iter().all(|store| self.held.get(store).is_some()),
        }
    }

    /// What is wanted, not held, and may only be assumed where it was tried before.
    pub fn untried(&self) -> Vec<(Slot, Value)> {
        let tried = |slot: &Slot| {
            matches!(slot, Slot::Authority(_) | Slot::Certificate(_))
                || matches!(slot, Slot::Map(map, _) if map.ordered())
        };
        let pending = self.pending.values().filter(|change| tried(&change.slot));
        pending.filter_map(|change| Some((change.slot.clone(), change.after.clone()?))).collect()
    }

    /// What is to be done so that a process that holds this holds what is wanted; the changes are pending then.
    pub fn compare(&mut self, process: &Held, info: &Info, layout: &Layout) -> Difference {
        let id = (info.pid, info.started_s);
        let mut uncertain: BTreeSet<Arc<str>> = BTreeSet::new();
        for slot in self.pending.keys() {
            if let Slot::Certificate(name) = slot {
                // Told, perhaps, and not answered.
                uncertain.insert(Arc::clone(name));
                self.certificates.told.remove(name);
            }
        }
        if self.certificates.process != Some(id) {
            // What another process refused this one is asked.
            self.refused.clear();
            self.certificates.process = Some(id);
            self.certificates.told.clear();
        }
        let Certificates { written, told, .. } = &self.certificates;
        let unread = written.iter().filter(|(name, at)| **at + SLACK_S >= info.started_s && !told.contains(*name));
        uncertain.extend(unread.map(|(name, _)| Arc::clone(name)));
        // All that is wanted counts, also what was refused: it is filtered where it is carried out.
        for (slot, change) in std::mem::take(&mut self.pending) {
            self.held.set(slot, change.after);
        }
        let found = compare(process, &self.held, &uncertain, layout);
        for change in &found.changes {
            // What files say until it is carried out. What a process says of a server or a certificate is not all
            // that it is, and what is foreign has no place in files.
            let is = match (&change.slot, &change.before, &change.after) {
                (_, _, None) => None,
                (Slot::Server(..) | Slot::Certificate(_) | Slot::Authority(_), Some(_), after) => after.clone(),
                (_, before, _) => before.clone(),
            };
            self.held.set(change.slot.clone(), is);
            self.pending.insert(change.slot.clone(), change.clone());
        }
        found
    }
}

/// Certificates and authorities that a value refers to.
fn stores_of(value: Option<&Value>) -> Vec<Slot> {
    let certificate = |name: &Arc<str>| Slot::Certificate(Arc::clone(name));
    let authority = |name: &Arc<str>| Slot::Authority(Arc::clone(name));
    match value {
        Some(Value::CrtLine(line)) => {
            let client = line.client.as_ref().map(|(name, _)| authority(name));
            std::iter::once(certificate(&line.certificate)).chain(client).collect()
        }
        Some(Value::Server(server)) => {
            let tls = server.link.tls.iter();
            tls.flat_map(|tls| {
                tls.authority.as_ref().map(authority).into_iter().chain(tls.certificate.as_ref().map(certificate))
            })
            .collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::edge::class::Class;
    use crate::edge::model::tests::support::config;
    use crate::edge::wanted::CrtLine;

    fn text(text: &str) -> Option<Value> {
        Some(Value::Text(text.into()))
    }

    fn slot(key: &str) -> Slot {
        Slot::Map(MapName::Hosts, key.into())
    }

    fn change(key: &str, after: Option<Value>) -> Change {
        // What was before is not what counts: the ledger knows.
        Change { slot: slot(key), before: text("nonsense"), after }
    }

    fn batch(generation: u64, changes: Vec<Change>) -> Batch {
        Batch { generation, changes, config: Arc::new(config()), reload: Vec::new() }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new("PEM".into());
        ledger.take(batch(1, vec![change("a", text("1")), change("b", text("2"))]));
        ledger
    }

    fn pending(ledger: &Ledger) -> Vec<(Slot, Option<Value>, Option<Value>)> {
        ledger.changes().into_iter().map(|c| (c.slot, c.before, c.after)).collect()
    }

    #[test]
    fn what_is_acknowledged_is_held_and_what_is_undone_vanishes() {
        let mut ledger = ledger();
        ledger.acknowledged(&Slot::Certificate(DEFAULT_CERTIFICATE.into()));
        ledger.acknowledged(&slot("a"));
        assert_eq!(pending(&ledger), [(slot("b"), None, text("2"))]);
        ledger.take(batch(2, vec![change("a", text("3")), change("b", None)]));
        assert_eq!(pending(&ledger), [(slot("a"), text("1"), text("3"))]);
        assert_eq!(ledger.wanted(&slot("a")), text("3").as_ref());
        ledger.take(batch(3, vec![change("a", text("1"))]));
        assert!(ledger.is_settled());
        assert_eq!(ledger.held().get(&slot("a")), text("1").as_ref());
        assert_eq!(ledger.held().get(&slot("b")), None);
    }

    #[test]
    fn what_is_refused_is_not_asked_for_again_until_something_else_is_wanted() {
        let mut ledger = ledger();
        ledger.acknowledged(&Slot::Certificate(DEFAULT_CERTIFICATE.into()));
        ledger.acknowledged(&slot("a"));
        assert_eq!(ledger.refused(&slot("b")), text("2").map(|v| v.fingerprint()));
        assert!(ledger.is_settled());
        assert_eq!(ledger.held().get(&slot("b")), None);
        ledger.take(batch(2, vec![change("b", text("2"))]));
        assert!(ledger.is_settled());
        ledger.take(batch(3, vec![change("b", text("4"))]));
        assert_eq!(pending(&ledger), [(slot("b"), None, text("4"))]);
    }

    #[test]
    fn what_is_refused_for_want_of_a_certificate_is_asked_for_again_with_the_next() {
        let mut ledger = ledger();
        let (certificate, line) = (Slot::Certificate("c".into()), Slot::CrtList("h.com".into()));
        let to_it = Some(Value::CrtLine(Arc::new(CrtLine { certificate: "c".into(), client: None })));
        let sealed = |text: &str| Some(Value::Sealed(text.into()));
        let of = |slot: &Slot, after| Change { slot: slot.clone(), before: None, after };
        ledger.take(batch(2, vec![of(&certificate, sealed("BAD")), of(&line, to_it.clone())]));
        let lacks = |ledger: &Ledger, slot: &Slot| ledger.lacks(&ledger.pending[slot]).next().is_some();
        ledger.refused(&certificate);
        assert!(lacks(&ledger, &line) && !lacks(&ledger, &certificate));
        ledger.refused(&line);
        let asked = |ledger: &Ledger| pending(ledger).into_iter().any(|(slot, ..)| slot == line);
        assert!(!asked(&ledger));
        ledger.take(batch(3, vec![of(&certificate, sealed("GOOD"))]));
        assert!(asked(&ledger));
        ledger.acknowledged(&certificate);
        // Whatever is said of it now is its own matter.
        assert!(!lacks(&ledger, &line));
    }

    #[test]
    fn what_is_refused_before_its_certificate_is_there_is_asked_for_again_when_that_is() {
        let mut ledger = ledger();
        let (certificate, line) = (Slot::Certificate("c".into()), Slot::CrtList("h.com".into()));
        let to_it = Some(Value::CrtLine(Arc::new(CrtLine { certificate: "c".into(), client: None })));
        let of = |slot: &Slot, after| Change { slot: slot.clone(), before: None, after };
        let sealed = Some(Value::Sealed("GOOD".into()));
        ledger.take(batch(2, vec![of(&certificate, sealed), of(&line, to_it)]));
        // Nobody knows yet what became of the certificate.
        assert_eq!(ledger.refused(&line), None);
        ledger.acknowledged(&certificate);
        assert!(pending(&ledger).into_iter().any(|(slot, ..)| slot == line));
        // Now it is judged by itself.
        assert!(ledger.refused(&line).is_some());
        assert!(!pending(&ledger).into_iter().any(|(slot, ..)| slot == line));
    }

    #[test]
    fn files_of_a_first_start_have_a_default_certificate_whatever_is_named_for_it() {
        let mut ledger = Ledger::new("PEM".into());
        let slot = Slot::Certificate(DEFAULT_CERTIFICATE.into());
        let named = Change { slot: slot.clone(), before: None, after: Some(Value::Sealed("NAMED".into())) };
        ledger.take(batch(1, vec![named]));
        ledger.assume(&BTreeSet::new());
        assert_eq!(ledger.held().get(&slot), Some(&Value::Sealed("PEM".into())));
        assert_eq!(ledger.wanted(&slot), Some(&Value::Sealed("NAMED".into())));
    }

    #[test]
    fn what_is_refused_to_go_is_not_asked_for_again_either() {
        let mut ledger = ledger();
        for slot in [Slot::Certificate(DEFAULT_CERTIFICATE.into()), slot("a"), slot("b")] {
            ledger.acknowledged(&slot);
        }
        ledger.take(batch(2, vec![change("b", None)]));
        assert_eq!(ledger.refused(&slot("b")), None);
        assert!(ledger.is_settled() && ledger.changes().is_empty());
        ledger.take(batch(3, vec![change("b", text("4"))]));
        assert_eq!(pending(&ledger), [(slot("b"), text("2"), text("4"))]);
    }

    #[test]
    fn a_process_is_compared_with_what_is_wanted_and_not_with_what_was_said_before() {
        let layout = Layout::new("/d");
        let mut ledger = ledger();
        let info = |pid, started_s| Info { pid, started_s, ..Info::default() };
        let backend = Slot::Backend("n:s:80".into());
        ledger.take(batch(
            2,
            vec![Change { slot: backend.clone(), before: None, after: Some(Value::Backend(Class::DEFAULT)) }],
        ));
        let mut process = Held::default();
        process.maps.insert(MapName::Hosts, vec![("b".into(), "old".into()), ("x".into(), "foreign".into())]);
        process.certificates.push(layout.certificate(DEFAULT_CERTIFICATE));
        // Nobody has acknowledged its contents, and it was asked for.
        let found = ledger.compare(&process, &info(7, 100), &layout);
        assert_eq!(found.changes.len(), 5);
        assert!(pending(&ledger).contains(&(slot("b"), text("old"), text("2"))));
        assert_eq!(ledger.held().get(&slot("x")), None);
        assert_eq!(ledger.held().get(&slot("b")), text("old").as_ref());
        for change in ledger.changes() {
            ledger.acknowledged(&change.slot);
        }
        process.maps.insert(MapName::Hosts, vec![("a".into(), "1".into()), ("b".into(), "2".into())]);
        process.backends.push("n:s:80".into());
        assert_eq!(ledger.compare(&process, &info(7, 100), &layout).changes, []);
        // Another process, which started after its file was written.
        ledger.certificate_written(DEFAULT_CERTIFICATE, 100);
        assert_eq!(ledger.compare(&process, &info(8, 104), &layout).changes, []);
        // And one that may have read the old one.
        ledger.certificate_written(DEFAULT_CERTIFICATE, 200);
        let found = ledger.compare(&process, &info(9, 200), &layout);
        assert_eq!(found.changes.len(), 1);
        let name = Slot::Certificate(DEFAULT_CERTIFICATE.into());
        assert_eq!(ledger.held().get(&name), Some(&Value::Sealed("PEM".into())));
        ledger.acknowledged(&name);
        assert_eq!(ledger.compare(&process, &info(9, 200), &layout).changes, []);
    }
}
