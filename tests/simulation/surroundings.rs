//! The operator's world, as its API server sees it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::api::service::Target;
use crate::api::store::{Plural, Store};
use crate::api::{Deed, Surroundings};
use crate::lies::Lie;
use crate::random::Random;
use crate::world::World;

impl Surroundings for World {
    fn api(&mut self) -> &mut Store {
        &mut self.api
    }

    fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn note(&mut self, line: &str) {
        World::note(self, line);
    }

    fn api_is_down(&self) -> bool {
        World::api_is_down(self)
    }

    fn failing(&self) -> u64 {
        self.faults.api
    }

    fn trouble(&mut self, seconds: u64) {
        World::trouble(self, seconds);
    }

    fn api_latency(&mut self) -> Duration {
        World::api_latency(self)
    }

    fn watch_delay(&mut self) -> Duration {
        World::watch_delay(self)
    }

    fn stalled_until(&self, replica: usize) -> Instant {
        World::stalled_until(self, replica)
    }

    fn cuts(&self) -> u64 {
        self.cuts
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
}
