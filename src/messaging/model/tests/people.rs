//! What people do to objects of the test world.

use super::world::{World, key};
use crate::messaging::ids::Kind;
use crate::messaging::input::{Address, AddressSpace, Input, RouterConfig};

impl World {
    /// Changes a live object as `kubectl apply` would (generation and version rise).
    pub fn change(&mut self, name: &str, edit: impl FnOnce(&mut Address)) {
        self.version += 1;
        let version = self.version;
        let Some(address) = self.addresses.get_mut(&key(name)) else { return };
        edit(address);
        (address.meta.version, address.meta.generation) = (version, address.meta.generation + 1);
        let address = address.clone();
        self.input(Input::Address(Box::new(address)));
    }

    /// Changes a space as `kubectl apply` would.
    pub fn change_space(&mut self, name: &str, edit: impl FnOnce(&mut AddressSpace)) {
        self.version += 1;
        let version = self.version;
        let Some(space) = self.spaces.get_mut(&key(name)) else { return };
        edit(space);
        (space.meta.version, space.meta.generation) = (version, space.meta.generation + 1);
        let space = space.clone();
        self.input(Input::AddressSpace(Box::new(space)));
    }

    pub fn change_config(&mut self, edit: impl FnOnce(&mut RouterConfig)) {
        self.version += 1;
        let version = self.version;
        let Some(config) = self.configs.get_mut(&key("rc")) else { return };
        edit(config);
        (config.meta.version, config.meta.generation) = (version, config.meta.generation + 1);
        let config = config.clone();
        self.input(Input::RouterConfig(Box::new(config)));
    }

    /// `kubectl delete addr`.
    pub fn delete(&mut self, name: &str) {
        self.version += 1;
        let version = self.version;
        let Some(address) = self.addresses.get_mut(&key(name)) else { return };
        if !address.meta.finalizer {
            return self.vanish(name);
        }
        (address.meta.deleting, address.meta.version) = (true, version);
        address.meta.generation += 1;
        let address = address.clone();
        self.input(Input::Address(Box::new(address)));
    }

    pub fn delete_space(&mut self, name: &str) {
        self.version += 1;
        let version = self.version;
        let Some(space) = self.spaces.get_mut(&key(name)) else { return };
        (space.meta.deleting, space.meta.version) = (true, version);
        let space = space.clone();
        self.input(Input::AddressSpace(Box::new(space)));
    }

    pub fn delete_config(&mut self, name: &str) {
        self.version += 1;
        let version = self.version;
        let Some(config) = self.configs.get_mut(&key(name)) else { return };
        (config.meta.deleting, config.meta.version) = (true, version);
        let config = config.clone();
        self.input(Input::RouterConfig(Box::new(config)));
    }

    /// The RouterConfig is gone from the API server, whatever finalizers it had.
    pub fn lose_config(&mut self, name: &str) -> RouterConfig {
        let lost = self.configs.remove(&key(name)).unwrap();
        self.input(Input::Vanished(Kind::RouterConfig, key(name)));
        lost
    }

    /// A RouterConfig that was lost is made again.
    pub fn make_config_again(&mut self, mut config: RouterConfig) {
        self.version += 1;
        (config.meta.version, config.meta.uid) = (self.version, format!("uid-{}", self.version).into());
        config.status = Default::default();
        self.configs.insert(config.meta.key.clone(), config.clone());
        self.input(Input::RouterConfig(Box::new(config)));
    }

    /// The object is gone from the API server, whatever finalizers it had.
    pub fn vanish(&mut self, name: &str) {
        self.addresses.remove(&key(name));
        self.input(Input::Vanished(Kind::Address, key(name)));
    }
}
