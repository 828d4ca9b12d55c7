//! Routers that are the endpoints of a Service: which those are, and what is said when they cannot be found.

use super::state::ConfigState;
use super::{Model, Timer};
use crate::messaging::endpoints::{Endpoints, ServiceRef, Trouble};
use crate::messaging::ids::Key;
use crate::messaging::input;

/// How far the routers of a RouterConfig are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Found {
    /// Nobody has told yet: what is driven stays so.
    #[default]
    Unknown,
    /// They are known, but for this.
    Known(Option<Trouble>),
}

/// What is to be said of that.
pub(super) enum Said<'a> {
    /// Nothing yet.
    Unknown,
    /// Nothing is wrong.
    Fine,
    /// This.
    Trouble(&'a Trouble),
}

impl Model {
    pub(super) fn apply_endpoints(&mut self, service: Key, endpoints: Endpoints) {
        if let Some(configs) = self.configs_of_service.get(&service) {
            self.dirty_configs.extend(configs.iter().cloned());
        }
        self.endpoints.insert(service, endpoints);
    }

    /// A RouterConfig names this Service now.
    pub(super) fn name_service(&mut self, config: &Key, reference: Option<&ServiceRef>) {
        if let Some(reference) = reference {
            self.configs_of_service.entry(reference.service.clone()).or_default().insert(config.clone());
        }
    }

    /// A RouterConfig names this Service no more: where nobody else does, it is forgotten, since nobody follows it.
    pub(super) fn unname_service(&mut self, config: &Key, reference: Option<&ServiceRef>) {
        let Some(service) = reference.map(|reference| &reference.service) else { return };
        let Some(configs) = self.configs_of_service.get_mut(service) else { return };
        configs.remove(config);
        if configs.is_empty() {
            self.configs_of_service.remove(service);
            self.endpoints.remove(service);
        }
    }

    /// The routers that a RouterConfig has now; none while that is not known. Marks who has to say something else of it.
    pub(super) fn find_routers(&mut self, key: &Key) -> Option<Vec<input::Router>> {
        let config = self.configs.get(key)?;
        let (routers, found) = match &config.obj.router_service {
            None => (Some(config.obj.routers.clone()), Found::Known(None)),
            Some(reference) => match self.endpoints.get(&reference.service) {
                None => (None, Found::Unknown),
                Some(endpoints) => {
                    let (routers, trouble) = reference.routers(endpoints);
                    (Some(routers), Found::Known(trouble))
                }
            },
        };
        let patience = config.since_ms + self.timing.configuring_ms;
        if matches!(found, Found::Known(Some(_))) && patience > self.now.mono_ms {
            self.wake_at(patience, Timer::Config(key.clone()));
        }
        let config = self.configs.get_mut(key)?;
        let due = patience <= self.now.mono_ms;
        if (&config.found, config.found_due) != (&found, due) {
            (config.found, config.found_due) = (found, due);
            if let Some(spaces) = self.spaces_of_config.get(key) {
                let spaces = spaces.iter().filter(|key| self.spaces.get(*key).is_some_and(|s| s.obj.standard));
                self.stale_spaces.extend(spaces.cloned());
            }
        }
        routers
    }

    /// What is to be said of it: a Service that was made with its RouterConfig has a second to get endpoints.
    pub(super) fn said_of_routers<'a>(&self, config: &'a ConfigState) -> Said<'a> {
        match &config.found {
            Found::Unknown => Said::Unknown,
            Found::Known(None) => Said::Fine,
            Found::Known(Some(_)) if !config.found_due && config.told.latest().ready.is_none() => Said::Unknown,
            Found::Known(Some(trouble)) => Said::Trouble(trouble),
        }
    }
}
