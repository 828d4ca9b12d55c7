//! The Lease by which one replica leads: who holds it may write statuses and drive brokers.
//!
//! Changes carry the `resourceVersion` that was read, so that of two candidates one wins. Whether a holder is gone is
//! judged by our own monotonic clock since we last saw the Lease change, never by comparing wall clocks. The permit
//! is counted from before a renewal was sent: when it runs out, nobody else can have begun.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::meter::Meter;
use super::readiness::Readiness;
use super::sources::Closed;
use crate::engine::clock::Clock;
use crate::engine::jitter::Jitter;
use crate::engine::permit::Granter;
use crate::engine::stop::Stop;

/// Everything the keeper of the Lease works with.
pub struct LeaseKeeper<I> {
    /// For the Lease.
    pub client: Client,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are: unique among all processes, also over restarts.
    pub identity: String,
    /// For how long a silent holder keeps it.
    pub duration: Duration,
    /// What it grants.
    pub granter: Granter,
    /// Where it is told whether we lead.
    pub inputs: mpsc::Sender<I>,
    /// How.
    pub as_input: fn(bool) -> I,
    /// For the times that people read.
    pub clock: Arc<dyn Clock>,
    /// It is not taken before everything is read.
    pub readiness: Readiness,
    /// Spreads candidates.
    pub jitter: Jitter,
    /// Counts.
    pub meter: Arc<dyn Meter>,
    /// Give it back and end.
    pub release: Stop,
}

/// A Lease as last seen.
struct Held {
    lease: Lease,
    /// Before the request was sent that made us its holder.
    since: Instant,
}

/// Another's Lease as last seen.
struct Seen {
    version: Option<String>,
    at: Instant,
    /// Before it was last asked for: whoever changes it is there after that.
    asked: Instant,
}

impl<I: Send> LeaseKeeper<I> {
    /// Runs until released, or until nobody takes inputs.
    ///
    /// # Errors
    /// Then.
    pub async fn run(self) -> Result<(), Closed> {
        tokio::select! {
            biased;
            () = self.release.requested() => return Ok(()),
            () = self.readiness.all_synced() => {}
        }
        // Told from the side, so that a busy model never holds up a renewal.
        let mut news: VecDeque<bool> = VecDeque::new();
        let mut seen: Option<Seen> = None;
        loop {
            if let Some(held) = self.attempt(&mut seen).await {
                self.announce(true, &mut news);
                let released = self.lead(held, &mut news).await?;
                self.announce(false, &mut news);
                seen = None;
                if released {
                    return Ok(());
                }
            }
            let pause = self.jitter.spread(self.duration.min(Duration::from_secs(10)) / 5);
            if self.pause(Instant::now() + pause, &mut news).await? {
                return Ok(());
            }
        }
    }

    fn announce(&self, leads: bool, news: &mut VecDeque<bool>) {
        tracing::info!(leads, identity = self.identity, "leadership");
        self.meter.leading(leads);
        news.push_back(leads);
    }

    /// Waits, tells the news meanwhile; true: released.
    async fn pause(&self, until: Instant, news: &mut VecDeque<bool>) -> Result<bool, Closed> {
        loop {
            let told = async {
                match news.front() {
                    Some(_) => self.inputs.reserve().await.map_err(|_| Closed),
                    None => {
                        self.inputs.closed().await;
                        Err(Closed)
                    }
                }
            };
            let room = tokio::select! {
                biased;
                () = self.release.requested() => return Ok(true),
                room = told => room?,
                () = sleep_until(until) => return Ok(false),
            };
            if let Some(leads) = news.pop_front() {
                room.send((self.as_input)(leads));
            }
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn deadline(&self) -> Duration {
        (self.duration / 3).min(Duration::from_secs(10))
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Option<u16>> {
        match timeout(self.deadline(), call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Error::Api(status))) => {
                if !matches!(status.code, 404 | 409) {
                    tracing::warn!(code = status.code, message = status.message, "the Lease could not be reached");
                }
                Err(Some(status.code))
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the Lease could not be reached");
                Err(None)
            }
            Err(_) => {
                tracing::warn!("the Lease could not be reached in time");
                Err(None)
            }
        }
    }

    /// Takes the Lease if nobody holds it.
    async fn attempt(&self, seen: &mut Option<Seen>) -> Option<Held> {
        let leases = self.leases();
        let asked = Instant::now();
        let mut lease = match self.call(leases.get_opt(&self.name)).await.ok()? {
            Some(lease) => lease,
            None => {
                let since = Instant::now();
                let lease = Lease {
                    metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                    spec: Some(self.claim(&LeaseSpec::default())),
                };
                let lease = self.call(leases.create(&PostParams::default(), &lease)).await.ok()?;
                return Some(Held { lease, since });
            }
        };
        let now = Instant::now();
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let version = lease.metadata.resource_version.clone();
        let unchanged = match seen {
            Some(seen) if seen.version == version => {
                seen.asked = asked;
                now - seen.at
            }
            _ => {
                let before = seen.replace(Seen { version, at: now, asked });
                if let Some(before) = before.filter(|_| holder != self.identity) {
                    self.granter.had_elsewhere(before.asked);
                }
                Duration::ZERO
            }
        };
        let theirs = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let expired = unchanged >= self.duration.max(Duration::from_secs(theirs));
        // Ours: the answer of a claim got lost.
        if !holder.is_empty() && holder != self.identity && !expired {
            return None;
        }
        lease.spec = Some(self.claim(&spec));
        lease.metadata.managed_fields = None;
        let since = Instant::now();
        let lease = self.call(leases.replace(&self.name, &PostParams::default(), &lease)).await.ok()?;
        Some(Held { lease, since })
    }

    fn now(&self) -> Option<MicroTime> {
        Timestamp::from_microsecond(self.clock.unix_micros()).ok().map(MicroTime)
    }

    fn claim(&self, before: &LeaseSpec) -> LeaseSpec {
        let transitions = before.lease_transitions.unwrap_or_default();
        let ours = before.holder_identity.as_deref() == Some(&self.identity);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            // Rounded up: who reads it must not begin before we have ended.
            lease_duration_seconds: Some(i32::try_from(self.duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)),
            acquire_time: if ours { before.acquire_time.clone() } else { self.now() },
            renew_time: self.now(),
            lease_transitions: Some(if ours { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }

    /// What is left to us of a Lease renewed at `since`: a little less than to others.
    fn until(&self, since: Instant) -> Instant {
        since + self.duration - self.duration / 20
    }

    /// Leads, renewing, until the Lease is lost (false) or released (true).
    async fn lead(&self, mut held: Held, news: &mut VecDeque<bool>) -> Result<bool, Closed> {
        self.granter.grant(self.until(held.since));
        let mut next = held.since + self.duration / 3;
        loop {
            let until = self.until(held.since);
            if self.pause(next.min(until), news).await? {
                // Nobody of ours may send any more when others may begin.
                self.granter.revoke();
                self.give_back(held.lease).await;
                return Ok(true);
            }
            if Instant::now() >= until {
                tracing::warn!("the Lease could not be renewed in time");
                self.granter.revoke();
                return Ok(false);
            }
            let since = Instant::now();
            let mut lease = held.lease.clone();
            lease.spec = Some(self.claim(&lease.spec.take().unwrap_or_default()));
            lease.metadata.managed_fields = None;
            // No longer than the permit lasts: when it runs out is said by us, not by a hung server.
            let (leases, params) = (self.leases(), PostParams::default());
            let renewal = self.call(leases.replace(&self.name, &params, &lease));
            let renewed = timeout(until - since, renewal).await.unwrap_or(Err(None));
            match renewed {
                Ok(lease) => {
                    held = Held { lease, since };
                    self.granter.grant(self.until(since));
                    next = since + self.duration / 3;
                }
                // Another's write, or one of ours whose answer got lost.
                Err(Some(404 | 409)) => match self.call(self.leases().get_opt(&self.name)).await {
                    Ok(Some(lease)) if self.is_ours(&lease) => {
                        held.lease = lease;
                        next = Instant::now();
                    }
                    Ok(_) => {
                        tracing::warn!("the Lease was taken by another");
                        self.granter.revoke();
                        return Ok(false);
                    }
                    Err(_) => next = self.soon(),
                },
                Err(_) => next = self.soon(),
            }
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&self.identity)
    }

    fn soon(&self) -> Instant {
        Instant::now() + self.jitter.spread(self.duration / 15)
    }

    async fn give_back(&self, mut lease: Lease) {
        let mut spec = lease.spec.take().unwrap_or_default();
        spec.holder_identity = None;
        spec.renew_time = self.now();
        lease.spec = Some(spec);
        lease.metadata.managed_fields = None;
        if self.call(self.leases().replace(&self.name, &PostParams::default(), &lease)).await.is_err() {
            tracing::warn!("the Lease could not be given back; it runs out by itself");
        }
    }
}

#[cfg(test)]
mod tests;
