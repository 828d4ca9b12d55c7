//! The files as a second copy: they follow what is acknowledged, and a HAProxy that is started from them serves it.
//!
//! What changes is gathered for some milliseconds and written as one, stores before what refers to them and removals
//! last, so that HAProxy starts from what it finds at every moment in between. What fails stays to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use super::disk::{Disk, DiskError, Work};
use crate::edge::model::DEFAULT_CERTIFICATE;
use crate::edge::render::{self, File, FixedPart, Layout, file_of, is_written, shard_of};
use crate::edge::wanted::{Slot, Value, Wanted};
use crate::maps::Fixed;

/// The files of one HAProxy.
pub struct Files {
    layout: Layout,
    disk: Arc<dyn Disk>,
    /// Checksums of what was written.
    sums: BTreeMap<String, u64>,
    /// Backends of each part.
    shards: BTreeMap<u64, BTreeSet<Arc<str>>>,
    /// A slot of each file that is to be written.
    dirty: BTreeMap<String, Slot>,
    /// Whether the first, complete write is done.
    complete: bool,
}

/// What is being written.
pub struct Commit {
    /// The work; it goes on by itself.
    pub work: Work<()>,
    written: Vec<(String, Option<u64>)>,
    slots: BTreeMap<String, Slot>,
}

/// What a write brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Files that have other contents now.
    pub changed: usize,
    /// Certificates among them.
    pub certificates: Vec<Arc<str>>,
}

fn sum(contents: &str) -> u64 {
    Fixed.hash_one(contents)
}

impl Files {
    /// Nothing is written yet.
    pub fn new(layout: Layout, disk: Arc<dyn Disk>) -> Self {
        Self { layout, disk, sums: BTreeMap::new(), shards: BTreeMap::new(), dirty: BTreeMap::new(), complete: false }
    }

    /// Whether all files were written once.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Whether something is to be written.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Marks the files of all that has changed since the last time.
    pub fn note(&mut self, held: &mut Wanted) {
        for change in held.take_changes() {
            if let Slot::Backend(name) = &change.slot {
                let shard = self.shards.entry(shard_of(name)).or_default();
                if change.after.is_some() {
                    shard.insert(Arc::clone(name));
                } else {
                    shard.remove(name);
                }
            }
            self.dirty.insert(file_of(&change.slot, &self.layout), change.slot);
        }
    }

    /// Begins to write what is marked.
    pub fn commit(&mut self, fixed: &FixedPart, held: &Wanted) -> Commit {
        let (mut stores, mut sections, mut lists, mut removed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let slots = std::mem::take(&mut self.dirty);
        let mut written = Vec::new();
        for (path, slot) in &slots {
            let contents = match (slot, held.get(slot)) {
                (Slot::Authority(_) | Slot::Certificate(_) | Slot::Users(_), Some(Value::Sealed(text))) => {
                    text.to_string()
                }
                (Slot::Authority(_) | Slot::Certificate(_) | Slot::Users(_), _) => {
                    removed.push(path.clone());
                    written.push((path.clone(), None));
                    continue;
                }
                (Slot::Backend(name) | Slot::Server(name, _), _) => {
                    let number = shard_of(name);
                    let contents = self.shard(held, number);
                    if !is_written(number, &contents) {
                        removed.push(path.clone());
                        written.push((path.clone(), None));
                        continue;
                    }
                    contents
                }
                (Slot::CrtList(_), _) => render::crt_list(held, &self.layout),
                (Slot::Map(map, _), _) => render::map(held, *map),
                (Slot::Front, front) => fixed.config(front.is_some()),
            };
            let sum = sum(&contents);
            if self.sums.get(path) == Some(&sum) {
                continue;
            }
            written.push((path.clone(), Some(sum)));
            let file = File { path: path.clone(), contents };
            match slot {
                Slot::Backend(_) | Slot::Server(..) => sections.push(file),
                Slot::Map(..) | Slot::CrtList(_) | Slot::Front => lists.push(file),
                _ => stores.push(file),
            }
        }
        let all = stores.into_iter().chain(sections).chain(lists).collect();
        self.last_first(&mut removed);
        Commit { work: self.disk.write(all, removed), written, slots }
    }

    /// The write has ended.
    ///
    /// # Errors
    /// The disk's words; what was to be written stays marked.
    pub fn committed(&mut self, commit: Commit, result: Result<(), DiskError>) -> Result<Written, DiskError> {
        let Commit { written, slots, .. } = commit;
        if let Err(error) = result {
            for (path, _) in &written {
                // Some may have been written: nobody knows which.
                self.sums.remove(path);
            }
            for (path, slot) in slots {
                self.dirty.entry(path).or_insert(slot);
            }
            return Err(error);
        }
        let mut out = Written { changed: written.len(), certificates: Vec::new() };
        for (path, sum) in written {
            if let Some(Slot::Certificate(name)) = slots.get(&path) {
                out.certificates.push(Arc::clone(name));
            }
            match sum {
                Some(sum) => self.sums.insert(path, sum),
                None => self.sums.remove(&path),
            };
        }
        Ok(out)
    }

    /// Writes everything whose contents differ from what is there, and removes what is foreign. Also what is marked.
    ///
    /// # Errors
    /// The disk's words.
    pub async fn write_all(&mut self, fixed: &FixedPart, held: &mut Wanted) -> Result<Written, DiskError> {
        self.note(held);
        // What is cut off is written again as a whole: some of it may be there.
        self.complete = false;
        let files = render::files(fixed, held, &self.layout);
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        let there = self.disk.read(paths.clone()).await?;
        let mut sums = BTreeMap::new();
        let mut changed = Vec::new();
        for (file, there) in files.into_iter().zip(there) {
            sums.insert(file.path.clone(), sum(&file.contents));
            if there.as_deref() != Some(&*file.contents) {
                changed.push(file);
            }
        }
        let mut removed = Vec::new();
        for folder in ["certs", "authorities", "users", "backends", "maps"] {
            let found = self.disk.list(format!("{}/{folder}", self.layout.dir())).await?;
            let default = self.layout.certificate(DEFAULT_CERTIFICATE);
            removed.extend(found.into_iter().filter(|path| !sums.contains_key(path) && *path != default));
        }
        // As in a commit: the fixed part and what it includes come last but for removals.
        changed.sort_by_key(|file| self.rank(&file.path));
        self.last_first(&mut removed);
        let out = Written {
            changed: changed.len() + removed.len(),
            certificates: changed.iter().filter_map(|file| self.certificate(&file.path)).collect(),
        };
        self.disk.write(changed, removed).await?;
        self.sums = sums;
        self.dirty.clear();
        self.complete = true;
        Ok(out)
    }

    /// The fixed part that is there.
    ///
    /// # Errors
    /// The disk's words.
    pub async fn fixed(&self) -> Result<Option<FixedPart>, DiskError> {
        let there = self.disk.read(FixedPart::paths(&self.layout).into()).await?;
        Ok(FixedPart::read(&there, &self.layout))
    }

    /// Which of these the files say already: they were tried before.
    ///
    /// # Errors
    /// The disk's words.
    pub async fn tried(&self, untried: Vec<(Slot, Value)>) -> Result<BTreeSet<Slot>, DiskError> {
        let paths: BTreeSet<String> = untried.iter().map(|(slot, _)| file_of(slot, &self.layout)).collect();
        let paths: Vec<String> = paths.into_iter().collect();
        let there = self.disk.read(paths.clone()).await?;
        let there: BTreeMap<String, Option<String>> = paths.into_iter().zip(there).collect();
        let lines: BTreeMap<&String, BTreeSet<&str>> =
            there.iter().map(|(path, text)| (path, text.iter().flat_map(|text| text.lines()).collect())).collect();
        let said = |slot: &Slot, value: &Value| {
            let path = file_of(slot, &self.layout);
            match (slot, value) {
                (_, Value::Sealed(wanted)) => there.get(&path).and_then(Option::as_deref) == Some(&**wanted),
                (Slot::Map(_, key), Value::Text(text)) => {
                    lines.get(&path).is_some_and(|lines| lines.contains(format!("{key} {text}").as_str()))
                }
                _ => false,
            }
        };
        Ok(untried.iter().filter(|(slot, value)| said(slot, value)).map(|(slot, _)| slot.clone()).collect())
    }

    /// Reads the files and marks those that are not what was written. How many there are.
    ///
    /// # Errors
    /// The disk's words.
    pub async fn verify(&mut self, held: &Wanted) -> Result<usize, DiskError> {
        let paths: Vec<String> = self.sums.keys().cloned().collect();
        let there = self.disk.read(paths.clone()).await?;
        let differs = |path: &String, there: &Option<String>| there.as_deref().map(sum).as_ref() != self.sums.get(path);
        let wrong: BTreeSet<String> =
            paths.into_iter().zip(there).filter(|(path, there)| differs(path, there)).map(|(path, _)| path).collect();
        if !wrong.is_empty() {
            for slot in held.slots().keys() {
                let path = file_of(slot, &self.layout);
                if wrong.contains(&path) {
                    self.dirty.insert(path, slot.clone());
                }
            }
            for path in &wrong {
                self.sums.remove(path);
            }
            // Files without a slot of their own are written with everything.
            self.complete &= wrong.iter().all(|path| self.dirty.contains_key(path));
        }
        Ok(wrong.len())
    }

    /// One part, without a walk over all backends.
    fn shard(&self, held: &Wanted, number: u64) -> String {
        let mut out = String::new();
        for name in self.shards.get(&number).into_iter().flatten() {
            if let Some(Value::Backend(class)) = held.get(&Slot::Backend(Arc::clone(name))) {
                render::section(held, name, *class, &self.layout, &mut out);
            }
        }
        out
    }

    fn certificate(&self, path: &str) -> Option<Arc<str>> {
        let rest = path.strip_prefix(self.layout.dir())?.strip_prefix("/certs/")?;
        rest.strip_suffix(".pem").map(Arc::from)
    }

    /// What refers goes before what it refers to.
    fn last_first(&self, removed: &mut [String]) {
        removed.sort_by_key(|path| std::cmp::Reverse(self.rank(path)));
    }

    fn rank(&self, path: &str) -> u8 {
        let rest = path.strip_prefix(self.layout.dir()).unwrap_or(path);
        match rest.split('/').nth(1) {
            Some("certs" | "authorities" | "users") => 0,
            Some("backends") => 1,
            Some("maps") => 2,
            _ if rest == "/haproxy.cfg" => 4,
            _ => 3,
        }
    }
}

#[cfg(test)]
mod tests;
