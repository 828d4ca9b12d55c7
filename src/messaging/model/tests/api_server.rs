//! The API server of the test world: it stores what the model writes, and tells of it.

use super::world::World;
use crate::messaging::ids::*;
use crate::messaging::input::*;
use crate::messaging::output::*;

impl World {
    pub(super) fn write(&mut self, write: Write) {
        self.version += 1;
        let version = self.version;
        let name = write.key.name.to_string();
        let result = self.store(&write, version, &name);
        let done = WriteDone { kind: write.kind, key: write.key.clone(), seq: write.seq, result };
        self.input(Input::Written(done));
        self.echo(write.kind, &write.key);
    }

    fn store(&mut self, write: &Write, version: u64, name: &str) -> Result<u64, WriteError> {
        let meta = match write.kind {
            Kind::Address => self.addresses.get_mut(&write.key).map(|a| &mut a.meta),
            Kind::AddressSpace => self.spaces.get_mut(&write.key).map(|s| &mut s.meta),
            Kind::RouterConfig => self.configs.get_mut(&write.key).map(|c| &mut c.meta),
        };
        let Some(meta) = meta.filter(|m| m.uid == write.uid) else { return Err(WriteError::Gone) };
        meta.version = version;
        if let Some(change) = write.finalizer {
            meta.finalizer = change == FinalizerChange::Add;
            self.finalizer_writes += 1;
        }
        if let Some(status) = &write.status {
            *self.status_writes.entry(name.to_owned()).or_default() += 1;
            match status {
                Status::Address(s) => self.addresses.get_mut(&write.key).unwrap().status = (**s).clone(),
                Status::AddressSpace(s) => self.spaces.get_mut(&write.key).unwrap().status = (**s).clone(),
                Status::RouterConfig(s) => self.configs.get_mut(&write.key).unwrap().status = (**s).clone(),
            }
        }
        Ok(version)
    }

    /// The watch event of a write; without a finalizer a deleted object is gone.
    fn echo(&mut self, kind: Kind, key: &Key) {
        let input = match kind {
            Kind::Address => self.addresses.get(key).cloned().map(|a| (a.meta.clone(), Input::Address(Box::new(a)))),
            Kind::AddressSpace => {
                self.spaces.get(key).cloned().map(|s| (s.meta.clone(), Input::AddressSpace(Box::new(s))))
            }
            Kind::RouterConfig => {
                self.configs.get(key).cloned().map(|c| (c.meta.clone(), Input::RouterConfig(Box::new(c))))
            }
        };
        let Some((meta, input)) = input else { return };
        if meta.deleting && !meta.finalizer && meta.others.is_none() {
            match kind {
                Kind::Address => drop(self.addresses.remove(key)),
                Kind::AddressSpace => drop(self.spaces.remove(key)),
                Kind::RouterConfig => drop(self.configs.remove(key)),
            }
            self.input(Input::Vanished(kind, key.clone()));
        } else {
            self.input(input);
        }
    }
}
