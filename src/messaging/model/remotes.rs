//! Connectors of spaces: which remote hosts the routers are led to, which of several is used, and what is told of each.
//!
//! A connector stands for itself: nothing about it makes its space, or an Address, less ready. What a RouterConfig does not
//! allow (any more) is not connected to, whatever was before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::apply::remove_from;
use super::routes::{RouteClaim, RouteSay};
use super::state::{ConfigState, Refusal, Route, SpaceState};
use super::{Known, Model, Timer};
use crate::messaging::broker::Class;
use crate::messaging::ids::{Key, Slot};
use crate::messaging::reason;
use crate::messaging::remote::{ConnectorSpec, Row, about, connection, of_connection, refused};
use crate::messaging::router::{Connector, Entry, Remote, connector_of, connector_slot, fence_slot};

/// Routers that are named in a message.
const NAMED: usize = 3;

/// One connector of a space.
#[derive(Debug, Default)]
pub(super) struct RemoteState {
    /// Which of its hosts is in use.
    at: usize,
    /// Since when no router reaches that one.
    down_ms: Option<u64>,
    /// The routers are to have it.
    pub held: bool,
    /// Its Secret was not heard of yet: what routers have of it stays.
    awaited: bool,
    /// Why they are not.
    pub trouble: Option<Refusal>,
    /// Since when that is so.
    since_ms: u64,
    /// Addresses that begin with its name and stand, or once did: only these can keep it from having the name.
    pub standing: BTreeSet<Key>,
}

/// What is to be said of a connector or a forwarder.
pub(super) enum RowSay {
    /// What was said before.
    Keep,
    /// The same, until this monotonic millisecond.
    Until(u64),
    /// This.
    Say(bool, &'static str, Arc<str>),
}

/// What became of looking at the spec.
enum Wanted {
    Hold(Box<Entry>),
    Refuse(Refusal),
    Await,
}

impl Model {
    /// Makes the routers hold the connectors of a space, as far as they may have them.
    pub(super) fn hold_remotes(&mut self, key: &Key) {
        let Some(space) = self.spaces.get(key).filter(|s| !s.foreign) else { return };
        if space.obj.connectors.is_empty() && space.remotes.is_empty() {
            return;
        }
        let config = space.obj.config.clone();
        let ends = space.obj.meta.deleting && !self.members.contains_key(key);
        let wanted = space.obj.standard && space.ever_accepted && self.configs.contains_key(&config) && !ends;
        let specs = if wanted { space.obj.connectors.clone() } else { Vec::new() };
        let gone: Vec<Arc<str>> =
            space.remotes.keys().filter(|name| !specs.iter().any(|spec| spec.name == **name)).cloned().collect();
        let spared = gone.iter().any(|name| space.remotes.get(name).is_some_and(|remote| remote.awaited));
        for name in gone {
            self.clear_route(&Route { config: config.clone(), slot: slot_of(key, &name) }, Class::Change);
            if let Some(space) = self.spaces.get_mut(key) {
                space.remotes.remove(&name);
            }
            self.mark_forwarders(key, &name);
        }
        self.compare_spared(spared, &config);
        for spec in &specs {
            self.hold_remote(key, &config, spec);
        }
    }

    /// A space is gone, and its connectors with it.
    pub(super) fn drop_remotes(&mut self, key: &Key) {
        let Some(space) = self.spaces.get_mut(key).filter(|space| !space.foreign) else { return };
        let (config, remotes) = (space.obj.config.clone(), std::mem::take(&mut space.remotes));
        for name in remotes.keys() {
            self.clear_route(&Route { config: config.clone(), slot: slot_of(key, name) }, Class::Change);
        }
        self.compare_spared(remotes.values().any(|remote| remote.awaited), &config);
    }

    /// What routers have from before this process was left alone while a Secret was waited for (`spared`), and nobody
    /// waits any more.
    fn compare_spared(&mut self, spared: bool, config: &Key) {
        if spared {
            self.compare_routers(config);
        }
    }

    fn hold_remote(&mut self, key: &Key, config: &Key, spec: &ConnectorSpec) {
        let now = self.now.mono_ms;
        let known = self.spaces.get(key).is_some_and(|space| space.remotes.contains_key(&spec.name));
        let new = (!known).then(|| self.standing_under(key, &spec.name));
        let Some(space) = self.spaces.get_mut(key) else { return };
        let told = space.told.latest().connectors.iter().find(|row| row.name == spec.name);
        let (known, in_use) = (told.is_some(), told.and_then(|row| row.host.clone()));
        let ready = told.is_some_and(|row| row.ready);
        let guarded = space.told.finalizer;
        let standing = new.unwrap_or_default();
        let state = space.remotes.entry(spec.name.clone()).or_insert_with(|| {
            let at = spec.hosts.iter().position(|host| Some(host.shown()) == in_use).unwrap_or_default();
            RemoteState { at, since_ms: now, standing, ..RemoteState::default() }
        });
        state.at = state.at.min(spec.hosts.len() - 1);
        if !guarded && !state.held {
            return;
        }
        self.fail_over(key, config, spec);
        let wanted = self.wanted_remote(key, config, spec, ready);
        let patience = spec.credentials.as_ref().and_then(|secret| self.patience(secret));
        if let Some(due) = patience.filter(|_| !matches!(wanted, Wanted::Refuse(_))) {
            self.wake_at(due, Timer::Space(key.clone()));
        }
        let Some(state) = self.spaces.get_mut(key).and_then(|space| space.remotes.get_mut(&spec.name)) else { return };
        let before = (state.held, state.trouble.clone());
        let spared = std::mem::replace(&mut state.awaited, matches!(wanted, Wanted::Await));
        let route = Route { config: config.clone(), slot: slot_of(key, &spec.name) };
        match wanted {
            Wanted::Await => {}
            Wanted::Hold(entry) => {
                (state.held, state.trouble) = (true, None);
                let claim = RouteClaim {
                    tenant: key.clone(),
                    holder: None,
                    entry: entry.into(),
                    generation: 0,
                    in_force: known,
                };
                self.hold_route(&route, claim);
            }
            Wanted::Refuse(refusal) => {
                // After a restart, what routers have of it was left alone meanwhile.
                let left = spared && ready && !state.held;
                (state.held, state.trouble) = (false, Some(refusal));
                self.clear_route(&route, Class::Change);
                if left {
                    self.compare_routers(config);
                }
            }
        }
        let Some(state) = self.spaces.get_mut(key).and_then(|space| space.remotes.get_mut(&spec.name)) else { return };
        if (state.held, state.trouble.clone()) != before {
            state.since_ms = now;
            self.mark_forwarders(key, &spec.name);
            self.mark_beginning(key, &spec.name);
        }
    }

    /// Where no router reaches the host in use, the next one is tried.
    fn fail_over(&mut self, key: &Key, config: &Key, spec: &ConnectorSpec) {
        let Some(config) = self.configs.get(config) else { return };
        let links = links(config, &connection(key, &spec.name));
        let held = self.spaces.get(key).and_then(|space| space.remotes.get(&spec.name)).is_some_and(|state| state.held);
        // What is not to be connected has no host that could be better.
        let down = held
            && spec.hosts.len() > 1
            && !links.is_empty()
            && links.iter().all(|(_, link)| matches!(link, Some(Some(_))));
        let (now, patience) = (self.now.mono_ms, 2 * self.timing.outage_ms);
        let Some(state) = self.spaces.get_mut(key).and_then(|space| space.remotes.get_mut(&spec.name)) else { return };
        if !down {
            state.down_ms = None;
            return;
        }
        let since = *state.down_ms.get_or_insert(now);
        let due = if since + patience <= now {
            state.at = (state.at + 1) % spec.hosts.len();
            state.down_ms = Some(now);
            now + patience
        } else {
            since + patience
        };
        self.wake_at(due, Timer::Space(key.clone()));
    }

    /// Until when the connections are kept of those who log in by a Secret that is missing.
    fn patience(&self, secret: &Key) -> Option<u64> {
        let known = self.secrets.get(secret).filter(|known| known.now.is_none())?;
        Some(known.missing_ms + self.timing.secret_ms).filter(|due| *due > self.now.mono_ms)
    }

    /// `ready`: it was told to be connected.
    fn wanted_remote(&self, key: &Key, config: &Key, spec: &ConnectorSpec, ready: bool) -> Wanted {
        let refuse = |reason, message: String| Wanted::Refuse((reason, message.into()));
        let (Some(config), Some(space)) = (self.configs.get(config), self.spaces.get(key)) else {
            return Wanted::Await;
        };
        let name = &config.obj.meta.key;
        let Some(rules) = &config.obj.connectors else {
            return refuse(
                reason::CONNECTORS_NOT_ALLOWED,
                format!(
                    "RouterConfig {name} lets spaces have no connectors: ask its owner for \
                     spec.messaging.routers.connectors"
                ),
            );
        };
        let brokers = config.obj.brokers.iter();
        let brokers = brokers.flat_map(|b| [Some(&*b.host), b.router_host.as_deref()]).flatten();
        let own: Vec<&str> = brokers.chain(config.routers.targets.values().map(|r| &*r.spec.host)).collect();
        if let Some(why) = spec.hosts.iter().find_map(|host| refused(rules, &host.host, own.iter().copied())) {
            return refuse(
                reason::HOST_NOT_ALLOWED,
                format!(
                    "RouterConfig {name} does not allow it: {why}; name another, or ask its owner for \
                     spec.messaging.routers.connectors.allowedHosts"
                ),
            );
        }
        if let Some(profile) = spec.ssl_profile.as_ref().filter(|profile| !rules.profiles.contains(*profile)) {
            return refuse(
                reason::SSL_PROFILE_NOT_ALLOWED,
                format!(
                    "RouterConfig {name} does not allow sslProfile {profile}: name one of {:?}, or ask its owner for \
                     spec.messaging.routers.connectors.sslProfiles",
                    rules.profiles
                ),
            );
        }
        if let Some(address) = self.taken_by(key, &spec.name) {
            return refuse(
                reason::NAME_TAKEN,
                format!(
                    "Address {address} of the space begins with {}, as all its addresses would: choose another name, or \
                     delete the Address",
                    spec.name
                ),
            );
        }
        let credentials = match &spec.credentials {
            None => None,
            Some(secret) => match self.secrets.get(secret) {
                None => return Wanted::Await,
                Some(Known { now: Some(revision), .. }) => Some((secret.clone(), *revision)),
                Some(known) if ready && self.patience(secret).is_some() => match known.last {
                    Some(revision) => Some((secret.clone(), revision)),
                    None => return Wanted::Await,
                },
                Some(_) => {
                    let message = format!("Secret {secret} is missing: create it with the keys username and password");
                    return refuse(reason::SECRET_NOT_FOUND, message);
                }
            },
        };
        let at = space.remotes.get(&spec.name).map_or(0, |state| state.at);
        let Some(host) = spec.hosts.get(at) else { return Wanted::Await };
        let strip: Arc<str> = format!("{}{}/", space.prefix, spec.name).into();
        let mut patterns: Vec<Arc<str>> = spec.patterns.iter().map(|p| format!("{strip}{p}").into()).collect();
        patterns.sort_unstable();
        let connector = Connector {
            broker: connection(key, &spec.name),
            host: host.host.clone(),
            port: host.port,
            ssl_profile: spec.ssl_profile.clone(),
            credentials,
            relogin: false,
            remote: Some(Remote { idle_s: spec.idle_s, max_frame: spec.max_frame }),
        };
        Wanted::Hold(Box::new(Entry::Remote { connector, patterns: patterns.into(), strip }))
    }

    /// Makes the routers keep remote hosts off, wherever spaces may have connectors.
    pub(super) fn hold_fence(&mut self, key: &Key) {
        let Some(config) = self.configs.get(key) else { return };
        let route = Route { config: key.clone(), slot: fence_slot() };
        if config.obj.connectors.is_none() || config.routers.targets.is_empty() {
            self.clear_route(&route, Class::Change);
            return;
        }
        let entry = Arc::new(Entry::Fence);
        let claim = RouteClaim { tenant: key.clone(), holder: None, entry, generation: 0, in_force: false };
        self.hold_route(&route, claim);
    }

    // === Secrets ===

    /// A Secret that nobody names any more is not followed.
    pub(super) fn forget_secret(&mut self, secret: &Key) {
        if !self.configs_of_secret.contains_key(secret) && !self.spaces_of_secret.contains_key(secret) {
            self.secrets.remove(secret);
        }
    }

    /// The Secrets of a space's connectors are these now.
    pub(super) fn name_secrets(&mut self, space: &Key, before: &[ConnectorSpec], after: &[ConnectorSpec]) {
        for secret in after.iter().filter_map(|connector| connector.credentials.as_ref()) {
            self.spaces_of_secret.entry(secret.clone()).or_default().insert(space.clone());
        }
        let named = |secret: &Key| after.iter().any(|connector| connector.credentials.as_ref() == Some(secret));
        for secret in before.iter().filter_map(|connector| connector.credentials.as_ref()).filter(|s| !named(s)) {
            remove_from(&mut self.spaces_of_secret, secret, space);
            self.forget_secret(secret);
        }
    }

    // === What comes back ===

    /// A slot of routers was answered, or is gone.
    pub(super) fn remote_moved(&mut self, slot: &Slot) {
        if let Some((space, _)) = connector_of(slot).and_then(of_connection) {
            self.dirty_spaces.insert(space);
        }
    }

    /// A connection to a remote host came up or went down.
    pub(super) fn remote_turned(&mut self, connection: &str) {
        let Some((space, connector)) = of_connection(connection) else { return };
        self.mark_forwarders(&space, connector);
        self.dirty_spaces.insert(space);
    }

    /// Whether something about a remote host that a router of `config` has may be wanted by somebody who is not known
    /// well enough.
    pub(super) fn spares(&self, config: &Key, slot: &str) -> Option<bool> {
        let (space, connector) = about(slot)?;
        let state = self.spaces.get(&space).filter(|state| state.obj.config == *config);
        let meant = |name: &str| connector.is_none_or(|connector| connector == name);
        let mut remotes = state.into_iter().flat_map(|state| &state.remotes);
        let awaited = remotes.any(|(name, remote)| remote.awaited && meant(name));
        Some(awaited || self.undecodable_in.contains_key(&space.namespace))
    }

    /// Whether routers have nothing left of the connectors of a space that is deleted.
    pub(super) fn remotes_gone(&self, key: &Key) -> bool {
        let Some(space) = self.spaces.get(key) else { return true };
        let Some(config) = self.configs.get(&space.obj.config) else { return true };
        space.obj.connectors.iter().all(|spec| !config.routers.slots.contains_key(&slot_of(key, &spec.name)))
    }

    // === What is told ===

    /// What the status says of the connectors, and when that may change by itself.
    pub(super) fn connector_rows(&self, space: &SpaceState) -> (Vec<Row>, Option<u64>) {
        let told = &space.told.latest().connectors;
        if space.obj.connectors.is_empty() {
            return (Vec::new(), None);
        }
        let mut wake: Option<u64> = None;
        let mut rows: Vec<Row> = Vec::new();
        for spec in &space.obj.connectors {
            let before = told.iter().find(|row| row.name == spec.name);
            let state = space.remotes.get(&spec.name);
            let say = state.map_or(RowSay::Keep, |state| self.say_of_connector(space, spec, state, before));
            match say {
                RowSay::Say(ready, reason, message) => {
                    let host = state.filter(|_| spec.hosts.len() > 1).and_then(|state| spec.hosts.get(state.at));
                    let host = host.map(|host| host.shown());
                    rows.push(Row { name: spec.name.clone(), ready, reason, message, host });
                }
                RowSay::Keep => rows.extend(before.cloned()),
                RowSay::Until(due) => {
                    wake = wake.into_iter().chain([due]).min();
                    rows.extend(before.cloned());
                }
            }
        }
        rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        (rows, wake)
    }

    fn say_of_connector(
        &self,
        space: &SpaceState,
        spec: &ConnectorSpec,
        state: &RemoteState,
        before: Option<&Row>,
    ) -> RowSay {
        let known = before.is_some();
        let was = |reason| before.filter(|row| row.reason == reason).map(|row| row.message.clone());
        let soon = state.since_ms + self.timing.configuring_ms;
        let key = &space.obj.meta.key;
        if let Some((reason, message)) = &state.trouble {
            // What it needs may be on its way.
            let missing = *reason == reason::SECRET_NOT_FOUND && !known;
            return if missing {
                self.later(soon, reason, message)
            } else {
                RowSay::Say(false, reason, message.clone())
            };
        }
        let Some(config) = self.configs.get(&space.obj.config).filter(|_| state.held) else { return RowSay::Keep };
        let route = Route { config: space.obj.config.clone(), slot: slot_of(key, &spec.name) };
        let outage = state.since_ms + self.timing.outage_ms;
        match self.route_say(&route) {
            RouteSay::Refused(words) => RowSay::Say(false, reason::ROUTER_REFUSED, words),
            // Which router is named depends on which of them serve.
            RouteSay::Unsupported(words) => {
                let why = reason::NOT_SUPPORTED_BY_ROUTER;
                RowSay::Say(false, why, was(why).unwrap_or(words))
            }
            RouteSay::NoRouter if known => RowSay::Keep,
            RouteSay::NoRouter => self.later(outage, reason::NO_ROUTER_SERVING, &"no router serves".into()),
            RouteSay::Waiting if known => RowSay::Keep,
            RouteSay::Waiting => self.later(soon, reason::CONNECTING, &"is being connected".into()),
            RouteSay::Held | RouteSay::CutOff(_) | RouteSay::Failed(_) => {
                let links = links(config, &connection(key, &spec.name));
                let down = links.iter().filter_map(|(router, link)| {
                    let why = link.as_ref()?.as_ref()?;
                    Some(format!("router {router}: {why}"))
                });
                let down: Vec<String> = down.collect();
                if !down.is_empty() {
                    let more = down.len().saturating_sub(NAMED);
                    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                    let words = format!("{}{more}", down[..down.len().min(NAMED)].join("; "));
                    // A router that is away, or has not told yet, is none of its trouble.
                    let all = config.routers.targets.values().all(|router| router.line.serving())
                        && links.iter().all(|(_, link)| link.is_some());
                    let kept = was(reason::NOT_CONNECTED).filter(|_| !all);
                    return RowSay::Say(false, reason::NOT_CONNECTED, kept.unwrap_or_else(|| words.into()));
                }
                if links.iter().any(|(_, link)| link.is_none()) {
                    return if known {
                        RowSay::Keep
                    } else {
                        self.later(soon, reason::CONNECTING, &"is being connected".into())
                    };
                }
                let lost =
                    spec.credentials.as_ref().filter(|s| matches!(self.secrets.get(*s), Some(Known { now: None, .. })));
                let note = lost.map(|secret| {
                    let seconds = self.timing.secret_ms / 1_000;
                    format!("Secret {secret} is missing: what it held last is in use for {seconds} s more")
                });
                RowSay::Say(true, reason::CONNECTED, note.unwrap_or_default().into())
            }
        }
    }

    pub(super) fn later(&self, due: u64, reason: &'static str, message: &Arc<str>) -> RowSay {
        if due > self.now.mono_ms { RowSay::Until(due) } else { RowSay::Say(false, reason, message.clone()) }
    }
}

/// How the routers that serve are connected: none while one has not told, else why it is not.
type Links<'a> = Vec<(&'a Arc<str>, Option<&'a Option<Arc<str>>>)>;

fn links<'a>(config: &'a ConfigState, connection: &str) -> Links<'a> {
    let serving = config.routers.targets.iter().filter(|(_, router)| router.line.serving());
    serving.map(|(name, router)| (name, router.connectors.get(connection))).collect()
}

fn slot_of(space: &Key, connector: &str) -> Slot {
    connector_slot(&connection(space, connector))
}

/// Connectors by name.
pub(super) type Remotes = BTreeMap<Arc<str>, RemoteState>;
