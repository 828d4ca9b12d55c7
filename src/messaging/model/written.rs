//! What became of writes.

use super::told::Told;
use super::{Model, Timer};
use crate::messaging::ids::Kind;
use crate::messaging::output::{WriteDone, WriteError};

/// A write that the API server refused for good is tried again after this long.
const REFUSED_WRITE_RETRY_MS: u64 = 60_000;

impl Model {
    pub(super) fn apply_written(&mut self, done: &WriteDone) {
        let key = &done.key;
        let retry = self.now.mono_ms + REFUSED_WRITE_RETRY_MS;
        let timer = match done.kind {
            Kind::RouterConfig => {
                let Some(config) = self.configs.get_mut(key) else { return };
                settle_write(&mut config.told, done);
                self.dirty_configs.insert(key.clone());
                self.stale_configs.insert(key.clone());
                Timer::Config(key.clone())
            }
            Kind::AddressSpace => {
                let Some(space) = self.spaces.get_mut(key) else { return };
                let guarded = space.told.finalizer;
                settle_write(&mut space.told, done);
                if space.told.finalizer != guarded {
                    self.mark_addresses_of(key);
                }
                self.dirty_spaces.insert(key.clone());
                self.stale_spaces.insert(key.clone());
                Timer::Space(key.clone())
            }
            Kind::Address => {
                let Some(address) = self.addresses.get_mut(key) else { return };
                settle_write(&mut address.told, done);
                self.dirty_addresses.insert(key.clone());
                Timer::Address(key.clone())
            }
        };
        if matches!(done.result, Err(WriteError::Refused(_))) {
            self.wake_at(retry, timer);
        }
    }
}

fn settle_write<S: PartialEq + Clone>(told: &mut Told<S>, done: &WriteDone) {
    match done.result {
        Ok(version) => {
            told.written(done.seq, version);
        }
        Err(_) => told.failed(done.seq),
    }
}
