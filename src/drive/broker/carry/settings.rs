//! Address settings: what is in force is read, and only a difference is written.

use serde_json::{Map, Value};

use super::mark::Claim;
use super::{Carrier, Halt};
use crate::drive::broker::ops;
use crate::messaging::broker::{Done, Entry, Settings, is_ground};

impl Carrier<'_> {
    /// What is in force for the entry's address, where that is not what it wants. Reading is cheap, writing is not.
    pub(super) async fn settings_differ(&self, entry: &Entry) -> Result<Option<Map<String, Value>>, Halt> {
        let Some(settings) = &entry.settings else { return Ok(None) };
        let base = self.base(&entry.address).await?;
        let in_force = match is_ground(&entry.address) {
            true => base.clone(),
            false => ops::parse_settings(&self.call(ops::read_settings(&entry.address)).await?),
        };
        Ok((!ops::differing(settings, &in_force, &base).is_empty()).then_some(in_force))
    }

    /// Passes on what became of making something. Where that was refused, what was `before` its settings were put is in
    /// force again: they may be for what somebody else has.
    pub(super) async fn or_take_back(
        &self,
        entry: &Entry,
        before: Option<&Map<String, Value>>,
        made: Result<(), Halt>,
    ) -> Result<(), Halt> {
        let (Err(Halt::Refused(_)), Some(before)) = (&made, before) else { return made };
        let base = self.base(&entry.address).await?;
        let back = match ops::same_in_force(before, &base) {
            true => ops::remove_settings(&entry.address),
            false => ops::restore_settings(&entry.address, before, &base),
        };
        match self.call(back).await {
            Err(Halt::Dead(reason)) => Err(Halt::Dead(reason)),
            _ => made,
        }
    }

    pub(super) async fn put_settings(&self, entry: &Entry) -> Result<(), Halt> {
        let Some(settings) = &entry.settings else { return Ok(()) };
        if is_ground(&entry.address) {
            self.memory().base.remove(prefix_of(&entry.address));
        } else if entry.ground.is_some() && *settings == Settings::default() {
            // What the space's settings say is all that it wants.
            return self.call(ops::remove_settings(&entry.address)).await.map(|_| ());
        }
        let echo = self.call(ops::put_settings(&entry.address, settings)).await?;
        ops::check_echo(settings, &echo).map_err(|missed| {
            Halt::Refused(format!("the broker did not take these settings as they were given: {}", missed.join(", ")))
        })
    }

    pub(super) async fn verify(&self, entry: &Entry) -> Result<Done, Halt> {
        if entry.queue.is_none() && entry.settings.is_some() {
            match self.claim(&entry.address).await? {
                Claim::Ours => {}
                // From before there were marks: where nobody else has anything on it, it is ours.
                Claim::Nobodys if self.anothers_on(&entry.address, false).await?.is_none() => {
                    self.mark(&entry.address).await?;
                }
                // From then, too, and another was first to mark it: it is left as it is.
                Claim::Nobodys | Claim::Anothers(_) => return Ok(Done::Held),
            }
        }
        if self.settings_differ(entry).await?.is_none() {
            return Ok(Done::Held);
        }
        self.put_settings(entry).await?;
        Ok(Done::Repaired)
    }

    /// What is in force for a name beside the address that has no settings of its own.
    pub(super) async fn base(&self, address: &str) -> Result<Map<String, Value>, Halt> {
        let prefix = prefix_of(address);
        // One asks, the others wait for what it finds.
        let _asking = self.asking.lock().await;
        let known = self.memory().base.get(prefix).cloned();
        if let Some(base) = known {
            return Ok(base);
        }
        let answer = self.call(ops::read_settings(&format!("{prefix}waystation-has-no-such-address"))).await?;
        let base = ops::parse_settings(&answer);
        self.memory().base.insert(prefix.to_owned(), base.clone());
        Ok(base)
    }
}

/// What an address shares with the other names of its space.
pub(super) fn prefix_of(address: &str) -> &str {
    address.split_once('/').map_or("", |(space, _)| &address[..=space.len()])
}
