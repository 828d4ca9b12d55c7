//! How one job is carried out on a session: which requests, in which order, and what their refusals mean.
//!
//! Every wish is a state, so each request may find its work done already: a process that died between any two of them
//! is made good by the next job of the slot. Nothing is taken away that does not carry our owner's mark.

mod caller;
mod claims;
mod links;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

pub use caller::Caller;
pub use claims::Claims;

use super::connectors::Connectors;
use super::link::{Answer, CallError, Request};
use super::memory::{Memory, Stray, without_credentials};
use super::names::Names;
use super::ops::{self, Credentials, Shown};
use super::watch::Watch;
use crate::drive::amqp::Secret;
use crate::engine::permit::Permit;
use crate::messaging::ids::{Key, Slot};
use crate::messaging::router::{Abilities, AutoLink, Done, Entity, Entry, Job, RouterLink as Report, Wish};

/// Names that conflict: somebody else may be at work in the same place, but not forever.
const TRIES: usize = 3;

/// Looks a connector's user and password up.
pub trait Secrets: Send + Sync {
    /// `username` and `password` of a Secret, where it has both.
    fn credentials(&self, secret: &Key) -> Option<(String, Secret)>;
}

/// Why a job was not answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Halt {
    /// The router's words, for the object.
    Refused(String),
    /// The session is of no use any more.
    Dead(String),
}

impl From<CallError> for Halt {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotFound | CallError::Refused(_) => Self::Refused(error.to_string()),
            CallError::Lost(_) | CallError::TimedOut => Self::Dead(error.to_string()),
        }
    }
}

/// With which credentials a connector was made, if any: no router shows it.
pub type Login = Option<(Key, u64)>;

/// Those of the connectors to brokers, by broker. Kept for as long as the drive lives.
pub type Logins = Mutex<BTreeMap<Arc<str>, Login>>;

/// What a carrier works with, of its drive.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// What entities are called.
    pub names: &'a Names,
    /// Whether anything may be sent.
    pub permit: &'a Permit,
    /// For the answer to a command.
    pub deadline: Duration,
    /// See [`Logins`].
    pub logins: &'a Logins,
    /// For connectors.
    pub secrets: &'a dyn Secrets,
    /// Of what slots are known by.
    pub seed: u64,
}

/// Carries jobs out on one session, and holds what is known of the router during it.
pub struct Carrier<'a> {
    pub(super) means: Means<'a>,
    pub(super) caller: Caller<'a>,
    pub(super) abilities: Abilities,
    pub(super) claims: Claims,
    pub(super) connectors: Connectors,
    pub(super) watch: Watch,
    memory: Mutex<Memory>,
    /// Whether all of the router was read once.
    read: watch::Sender<bool>,
    /// Jobs that wait for that.
    parked: AtomicUsize,
    reports: mpsc::UnboundedSender<Report>,
}

impl<'a> Carrier<'a> {
    /// On the session that `caller` calls. What is found out besides the answers to jobs goes to `reports`.
    pub fn new(means: Means<'a>, caller: Caller<'a>, reports: mpsc::UnboundedSender<Report>) -> Self {
        Self {
            abilities: caller.abilities(),
            claims: Claims::default(),
            connectors: Connectors::default(),
            watch: Watch::default(),
            memory: Mutex::new(Memory::new(means.seed)),
            read: watch::channel(false).0,
            parked: AtomicUsize::new(0),
            means,
            caller,
            reports,
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, report: Report) {
        // Nobody listens once the session ends.
        let _ = self.reports.send(report);
    }

    /// What it calls the session by.
    pub fn caller(&self) -> &Caller<'a> {
        &self.caller
    }

    /// Waits until all of the router was read once.
    pub(super) async fn was_read(&self) {
        // The sender is our own.
        let _ = self.read.subscribe().wait_for(|read| *read).await;
    }

    /// Jobs that hold no place in the window.
    pub fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// Takes in what was read, in place of what was known before; what is known of `newer` slots stays as it is.
    /// Tells in which of them something was found that nobody wishes.
    pub fn learn<'s>(&self, mut read: Memory, newer: impl Iterator<Item = &'s Slot>) -> Vec<(Slot, Vec<Entity>)> {
        let mut left = Vec::new();
        let mut memory = self.memory();
        for slot in newer {
            let known = memory.shape(slot);
            let known = known.as_deref().unwrap_or_default();
            let found = read.shape(slot);
            let found = found.as_deref().unwrap_or_default();
            let more: Vec<Entity> = found.iter().filter(|entity| !known.contains(entity)).cloned().collect();
            if !more.is_empty() || !read.strays(slot).is_empty() {
                left.push((slot.clone(), more));
            }
            read.set(slot, known.to_vec());
        }
        *memory = read;
        drop(memory);
        self.read.send_replace(true);
        left
    }

    /// Carries one job out.
    ///
    /// # Errors
    /// With the reason, when the session is of no use any more; whether the job was carried out is unknown then.
    pub async fn carry_out(&self, job: &Job) -> Result<Result<Done, String>, String> {
        let done = match &job.wish {
            Wish::Hold(entry) => self.hold(job, entry).await.map(|trouble| Done::Held { trouble }),
            Wish::Gone => self.gone(&job.slot).await.map(|()| Done::Gone),
        };
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(Halt::Refused(words)) => Ok(Err(words)),
            Err(Halt::Dead(reason)) => Err(reason),
        }
    }

    // === Hold ===

    async fn hold(&self, job: &Job, entry: &Entry) -> Result<Option<Arc<str>>, Halt> {
        let slot = &job.slot;
        if let Some(lacks) = entry.lacks(self.abilities) {
            return Err(Halt::Refused(format!("this router has no {lacks}")));
        }
        let claim = self.claims.claim(slot).await;
        let made = self.make(slot, entry).await?;
        self.watch.retain(slot, &made.wanted);
        drop(claim);
        if made.links.is_empty() {
            return Ok(self.watch.told(slot));
        }
        if job.class == crate::messaging::broker::Class::Repair {
            // Asking for each by itself would double the work of a refill: the next look at all of them tells.
            self.watch.soon();
            return Ok(None);
        }
        let troubled = self.until_active(slot, made.links).await?;
        let words = troubled.first().map(|(_, words)| Arc::clone(words));
        self.watch.note(slot, troubled);
        Ok(words)
    }

    async fn make(&self, slot: &Slot, entry: &Entry) -> Result<Made, Halt> {
        let wanted = entry.entities();
        let (there, strays) = self.known(slot);
        let anew = self.is_anew(&wanted) || self.was_interrupted(&wanted, &there);
        let same = |one: &Entity, other: &Entity| !anew && *one == without_credentials(other);
        let (kept, excess): (Vec<Entity>, Vec<Entity>) =
            there.into_iter().partition(|there| wanted.iter().any(|wanted| same(there, wanted)));
        let missing: Vec<&Entity> =
            wanted.iter().filter(|wanted| !kept.iter().any(|kept| same(kept, wanted))).collect();
        let mut made = Made { links: Vec::new(), wanted: Vec::new() };
        if !(excess.is_empty() && missing.is_empty() && strays.is_empty()) {
            let credentials = self.credentials(&wanted)?;
            self.may_send().await;
            let connection = missing.iter().find_map(|entity| match entity {
                Entity::Connector(connector) => Some(connector.broker.clone()),
                _ => None,
            });
            if let Some(connection) = &connection {
                self.connectors.leaves(connection);
            }
            let going = self.send_deletes(slot, &excess, &strays);
            let coming: Vec<_> =
                missing.iter().map(|entity| self.send(ops::create(self.names(), slot, entity, &credentials))).collect();
            for gone in join_all(going).await {
                gone_or_never_there(gone)?;
            }
            self.memory().forget_strays(slot);
            let mut refusal = None;
            let mut came = Vec::new();
            for (entity, answer) in missing.iter().zip(join_all(coming).await) {
                match self.made(slot, entity, &credentials, answer).await {
                    Ok(()) => came.push((*entity).clone()),
                    Err(Halt::Refused(words)) => refusal = refusal.or(Some(words)),
                    Err(dead) => return Err(dead),
                }
            }
            if let Some(words) = refusal {
                if let Some(connection) = &connection {
                    self.connectors.stays(connection);
                }
                self.may_send().await;
                for gone in join_all(self.send_deletes(slot, &came, &[])).await {
                    gone_or_never_there(gone)?;
                }
                self.watch.retain(slot, &kept);
                self.memory().set(slot, kept);
                return Err(Halt::Refused(words));
            }
            made.links = came.iter().filter_map(auto_link).collect();
            for connector in came.iter().filter_map(|entity| match entity {
                Entity::Connector(connector) => Some(connector),
                _ => None,
            }) {
                self.logins().insert(connector.broker.clone(), connector.credentials.clone());
                self.connectors.made(&connector.broker);
            }
        }
        self.memory().set(slot, wanted.clone());
        made.wanted = wanted;
        Ok(made)
    }

    /// What came of a CREATE. Where the name is taken, what has it decides.
    async fn made(
        &self,
        slot: &Slot,
        entity: &Entity,
        credentials: &Credentials,
        mut answer: Result<Answer, CallError>,
    ) -> Result<(), Halt> {
        let (of, name) = (ops::type_of(entity), self.names().name(slot, entity));
        for _ in 0..TRIES {
            match answer {
                Ok(_) => return Ok(()),
                Err(CallError::Refused(words)) if ops::is_name_conflict(&words) => {}
                Err(CallError::Refused(words)) => return Err(Halt::Refused(without_password(words, credentials))),
                Err(error) => return Err(error.into()),
            }
            // In the router's own words both entities are shown whole, passwords too.
            let words = format!("the name {name} is taken");
            self.may_send().await;
            match self.send(ops::read(of, name.clone())).await {
                Ok(Answer::Entity(attributes)) => {
                    let shown = ops::shown(self.names(), of, |attribute| attributes.get(attribute).cloned());
                    // With which credentials a connector was made is not to be seen: only one of ours is sure.
                    let sure = !matches!(entity, Entity::Connector(connector) if connector.credentials.is_some());
                    match shown {
                        Some((_, Shown::Known(_, there))) if sure && there == without_credentials(entity) => {
                            return Ok(());
                        }
                        // Cut names may be the same within one space, if somebody is after that.
                        Some((_, Shown::Known(other, _) | Shown::Stray(other))) if other != *slot => {
                            return Err(Halt::Refused(words));
                        }
                        Some(_) => {
                            self.may_send().await;
                            gone_or_never_there(self.send(ops::delete(of, name.clone())).await)?;
                        }
                        None => return Err(Halt::Refused(words)),
                    }
                }
                // Gone meanwhile.
                Err(CallError::NotFound) => {}
                Ok(_) => return Err(Halt::Refused(words)),
                Err(error) => return Err(error.into()),
            }
            self.may_send().await;
            answer = self.send(ops::create(self.names(), slot, entity, credentials)).await;
        }
        match answer {
            Ok(_) => Ok(()),
            Err(CallError::Refused(_)) => Err(Halt::Refused(format!("the name {name} is taken again and again"))),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a connector must be made anew although it looks the same: it logs in with other credentials.
    fn is_anew(&self, wanted: &[Entity]) -> bool {
        wanted.iter().any(|entity| match entity {
            Entity::Connector(connector) => match self.logins().get(&connector.broker) {
                Some(made_with) => *made_with != connector.credentials,
                // It was made by a process before this one. One that is up has logged in.
                None => {
                    connector.relogin || connector.credentials.is_some() && !self.connectors.is_up(&connector.broker)
                }
            },
            _ => false,
        })
    }

    /// Whether a connector may log in by what is no longer wanted though it is up: what belongs to it is not all there,
    /// as when the process that was making it anew has ended.
    fn was_interrupted(&self, wanted: &[Entity], there: &[Entity]) -> bool {
        let unsure = wanted.iter().any(|entity| match entity {
            Entity::Connector(connector) => {
                connector.credentials.is_some() && !self.logins().contains_key(&connector.broker)
            }
            _ => false,
        });
        unsure && wanted.iter().any(|entity| !there.contains(&without_credentials(entity)))
    }

    fn credentials(&self, wanted: &[Entity]) -> Result<Credentials, Halt> {
        let secret = wanted.iter().find_map(|entity| match entity {
            Entity::Connector(connector) => connector.credentials.as_ref(),
            _ => None,
        });
        let Some((key, _)) = secret else { return Ok(None) };
        match self.means.secrets.credentials(key) {
            None => Err(Halt::Refused(format!("Secret {key} has no username and password"))),
            found => Ok(found),
        }
    }

    // === Gone ===

    async fn gone(&self, slot: &Slot) -> Result<(), Halt> {
        if !*self.read.borrow() {
            // What there is to take away is not known yet.
            self.parked.fetch_add(1, Ordering::Relaxed);
            self.was_read().await;
            self.parked.fetch_sub(1, Ordering::Relaxed);
        }
        let _claim = self.claims.claim(slot).await;
        let (there, strays) = self.known(slot);
        self.take_away(slot, &there, &strays).await?;
        let mut memory = self.memory();
        memory.forget_strays(slot);
        memory.set(slot, Vec::new());
        drop(memory);
        self.watch.retain(slot, &[]);
        for entity in &there {
            if let Entity::Connector(connector) = entity {
                self.logins().remove(&connector.broker);
                self.connectors.gone(&connector.broker);
            }
        }
        Ok(())
    }

    /// Takes away what was found in a slot and is not known to be wished.
    ///
    /// # Errors
    /// With the reason, when the session is of no use any more.
    pub async fn tidy(&self, slot: &Slot, found: &[Entity]) -> Result<(), String> {
        let _claim = self.claims.claim(slot).await;
        let (there, strays) = self.known(slot);
        let names: Vec<String> = there.iter().map(|entity| self.names().name(slot, entity)).collect();
        let more: Vec<Entity> =
            found.iter().filter(|found| !names.contains(&self.names().name(slot, found))).cloned().collect();
        match self.take_away(slot, &more, &strays).await {
            Err(Halt::Dead(reason)) => Err(reason),
            // What is still there is seen by the next read.
            Err(Halt::Refused(_)) => Ok(()),
            Ok(()) => {
                self.memory().forget_strays(slot);
                Ok(())
            }
        }
    }

    async fn take_away(&self, slot: &Slot, entities: &[Entity], strays: &[Stray]) -> Result<(), Halt> {
        if entities.is_empty() && strays.is_empty() {
            return Ok(());
        }
        self.may_send().await;
        for gone in join_all(self.send_deletes(slot, entities, strays)).await {
            gone_or_never_there(gone)?;
        }
        Ok(())
    }

    // === Sending ===

    fn known(&self, slot: &Slot) -> (Vec<Entity>, Vec<Stray>) {
        let memory = self.memory();
        let there = memory.shape(slot).map(|shape| shape.to_vec()).unwrap_or_default();
        (there, memory.strays(slot).to_vec())
    }

    fn logins(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Login>> {
        self.means.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn names(&self) -> &'a Names {
        self.means.names
    }

    /// Waits for the permit, and for a place in the window.
    pub(super) async fn may_send(&self) {
        self.caller.turn().await;
        self.means.permit.granted(self.means.deadline).await;
    }

    /// Sends at once, before the future is polled: the order of calls is the order on the router.
    pub(super) fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, CallError>> {
        self.caller.send(request, self.means.deadline).boxed()
    }

    /// Sends the removals of all these, the last made first.
    fn send_deletes(
        &self,
        slot: &Slot,
        entities: &[Entity],
        strays: &[Stray],
    ) -> Vec<BoxFuture<'_, Result<Answer, CallError>>> {
        let strays = strays.iter().map(|(of, name)| ops::delete(*of, name.clone()));
        let entities = entities.iter().rev();
        let ours = entities.map(|entity| ops::delete(ops::type_of(entity), self.names().name(slot, entity)));
        strays.chain(ours).map(|request| self.send(request)).collect()
    }
}

struct Made {
    /// Links that were not there before.
    links: Vec<AutoLink>,
    /// All that is there now.
    wanted: Vec<Entity>,
}

fn auto_link(entity: &Entity) -> Option<AutoLink> {
    match entity {
        Entity::AutoLink(link) => Some(link.clone()),
        _ => None,
    }
}

fn without_password(words: String, credentials: &Credentials) -> String {
    match credentials {
        Some((_, password)) if !password.reveal().is_empty() => words.replace(password.reveal(), "***"),
        _ => words,
    }
}

fn gone_or_never_there(answer: Result<Answer, CallError>) -> Result<(), Halt> {
    match answer {
        Ok(_) | Err(CallError::NotFound) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The text of an attribute.
pub(super) fn text(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}
