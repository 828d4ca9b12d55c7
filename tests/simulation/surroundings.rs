//! The operator's world, as its API server sees it.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde_json::Value;

use crate::api::service::Target;
use crate::api::store::Plural;
use crate::api::{Deed, Surroundings};
use crate::lies::Lie;
use crate::stage::Stage;
use crate::world::World;

impl Deref for World {
    type Target = Stage<Lie>;

    fn deref(&self) -> &Self::Target {
        &self.stage
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.stage
    }
}

impl Surroundings for World {
    type Lie = Lie;

    fn failing(&self) -> u64 {
        self.faults.api
    }

    fn api_latency(&mut self) -> Duration {
        World::api_latency(self)
    }

    fn watch_delay(&mut self) -> Duration {
        World::watch_delay(self)
    }

    fn note_sender(&mut self, identity: &str, target: Option<&Target>) {
        World::note_sender(self, identity, target);
    }

    fn wrote(&mut self, target: Option<&Target>, body: &Value, ok: bool, changed: bool) {
        World::wrote(self, target, body, ok, changed);
    }

    fn told(&mut self, _: &Value) {
        self.events += 1;
    }

    fn omits(&mut self, deed: Deed) -> bool {
        match deed {
            Deed::Make(Plural::Services) => self.lies(Lie::PhantomService),
            Deed::Compare => self.lies(Lie::BlindLease),
            Deed::Finalize => self.lies(Lie::ForgottenFinalizer),
            Deed::Status(Plural::Addresses) => self.lies_once(Lie::DroppedStatus),
            Deed::Tell(Plural::Addresses) => self.lies_once(Lie::LostEvent),
            Deed::Tell(Plural::EndpointSlices) => self.lies(Lie::LostSlice),
            _ => false,
        }
    }

    fn shows(&mut self, plural: Plural, object: &Value) -> Option<Value> {
        // There must be something to move already.
        if plural != Plural::RouterConfigs || self.settled.is_empty() || !self.lies(Lie::FalseDrain) {
            return None;
        }
        let mut other = object.clone();
        other["spec"]["messaging"]["brokers"]["external"]["hosts"][0]["drain"] = true.into();
        Some(other)
    }
}
