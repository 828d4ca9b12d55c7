//! What routers must hold for connectors and forwarders, and what statuses must say of them, from the API's JSON and the
//! hosts alone.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{SECRET, config_of_space};
use crate::api::store::{Id, Plural, deleting};
use crate::check::{Scene, canonical, is_true, name_of, spoilt};
use crate::plan::Cause;
use crate::router::Router;
use crate::router::remote::{connection, works};
use crate::router::things::Thing;
use crate::run::{host_of, text};
use crate::world::World;

/// What must come of a connector.
#[derive(Debug, PartialEq)]
enum Verdict {
    Held,
    Refused(&'static str),
    /// It depends on what is past.
    Unsure,
}

fn rows<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether these rules let a connector lead to a host.
fn allows(rules: &Value, host: &str) -> bool {
    match rows(rules, "allowedHosts") {
        // Nobody's own machine, and no broker or router of ours, has a name that ends so.
        [] => host.ends_with(".example"),
        allowed => allowed.iter().any(|rule| match text(rule).strip_prefix('*') {
            Some(domain) => host.ends_with(domain),
            None => text(rule) == host,
        }),
    }
}

fn ends(forwarder: &Value) -> (&str, &str) {
    text(&forwarder["remoteAddress"]).split_once('/').unwrap_or_default()
}

fn index_of(space: &Value) -> usize {
    config_of_space((text(&space["metadata"]["namespace"]), text(&space["metadata"]["name"])))
}

impl Scene<'_> {
    /// Whether something in the namespace cannot be read: what is about it is not known then.
    fn is_blurred(&self, namespace: &str) -> bool {
        self.addresses.iter().any(|(id, address)| id.namespace == namespace && spoilt(address))
    }

    fn verdict(&self, space: &Value, connector: &Value) -> Verdict {
        let namespace = text(&space["metadata"]["namespace"]);
        let Some(config) = self.config(index_of(space)).filter(|config| !deleting(config)) else {
            return Verdict::Unsure;
        };
        if !is_true(space, "Accepted") || deleting(space) || self.is_blurred(namespace) {
            return Verdict::Unsure;
        }
        let rules = &config["spec"]["messaging"]["routers"]["connectors"];
        if rules.is_null() {
            return Verdict::Refused("ConnectorsNotAllowed");
        }
        if !rows(connector, "endpointHosts").iter().all(|host| allows(rules, text(&host["host"]))) {
            return Verdict::Refused("HostNotAllowed");
        }
        let profile = &connector["tls"]["sslProfile"];
        if !profile.is_null() && !rows(rules, "sslProfiles").contains(profile) {
            return Verdict::Refused("SslProfileNotAllowed");
        }
        let mut unsure = false;
        for address in self.beginning_with(space, text(&connector["name"])) {
            if is_true(address, "Accepted") && !deleting(address) {
                return Verdict::Refused("NameTaken");
            }
            let before = deleting(address) || !rows(&address["status"], "brokers").is_empty();
            unsure |= before || crate::check::reason(address, "Ready") != "DuplicateAddress";
        }
        if unsure {
            return Verdict::Unsure;
        }
        let secret = &connector["credentials"]["secretName"];
        if !secret.is_null() && self.world.api.get(&Id::new(Plural::Secrets, namespace, SECRET)).is_none() {
            return Verdict::Refused("SecretNotFound");
        }
        Verdict::Held
    }

    /// Addresses of a space that a connector of this name would have.
    fn beginning_with<'a>(&'a self, space: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
        let here = |address: &Value| {
            address["metadata"]["namespace"] == space["metadata"]["namespace"]
                && address["spec"]["addressSpace"] == space["metadata"]["name"]
        };
        let addresses = self.addresses.iter().map(|(_, address)| &**address).filter(move |address| here(address));
        addresses.filter(move |address| canonical(&name_of(address)).split('.').next() == Some(name))
    }

    /// Whether a connector has the address that this one wants.
    pub fn connector_has(&self, address: &Value) -> bool {
        let name = canonical(&name_of(address));
        let first = name.split('.').next();
        let space = self.space_of(address);
        space.is_some_and(|space| rows(&space["spec"], "connectors").iter().any(|c| c["name"].as_str() == first))
    }

    fn id_of(space: &Value, connector: &Value) -> String {
        let metadata = &space["metadata"];
        connection(text(&metadata["namespace"]), text(&metadata["name"]), text(&connector["name"]))
    }

    /// The spaces of a RouterConfig that have routers.
    fn spaces_of(&self, index: usize) -> impl Iterator<Item = &Value> {
        let spaces = self.world.api.all(Plural::AddressSpaces).map(|(_, space)| &**space);
        spaces.filter(move |space| space["spec"]["type"] == "standard" && index_of(space) == index)
    }

    fn connector_of<'a>(&'a self, address: &Value, name: &str) -> Option<(&'a Value, &'a Value)> {
        let space = self.space_of(address)?;
        Some((&**space, rows(&space["spec"], "connectors").iter().find(|connector| connector["name"] == name)?))
    }

    /// What each router of a RouterConfig must hold for the sake of remote hosts.
    pub fn remotes_wanted(&self, index: usize) -> BTreeSet<Thing> {
        let mut wanted = BTreeSet::new();
        let rules = self.config(index).map(|config| &config["spec"]["messaging"]["routers"]["connectors"]);
        if !self.world.remotes.policies || rules.is_none_or(|rules| !rules.is_object()) {
            return wanted;
        }
        wanted.insert(Thing::Fence);
        for space in self.spaces_of(index) {
            for connector in rows(&space["spec"], "connectors") {
                if self.verdict(space, connector) == Verdict::Held {
                    self.put_connector(space, connector, &mut wanted);
                }
            }
        }
        for (_, address) in &self.addresses {
            if is_true(address, "Ready") && !deleting(address) && !spoilt(address) && self.is_standard(address) {
                self.put_forwarders(index, address, &mut wanted);
            }
        }
        wanted
    }

    fn put_connector(&self, space: &Value, connector: &Value, wanted: &mut BTreeSet<Thing>) {
        let (connection, namespace) = (Self::id_of(space, connector), text(&space["metadata"]["namespace"]));
        let told = rows(&space["status"], "connectors").iter().find(|row| row["name"] == connector["name"]);
        let shown = |host: &Value| format!("{}:{}", text(&host["host"]), host["port"]);
        let hosts: Vec<String> = rows(connector, "endpointHosts").iter().map(shown).collect();
        // Which one of several is in use is told; that it is one of them is looked at with the status.
        let in_use = told.and_then(|row| row["host"].as_str()).filter(|_| hosts.len() > 1);
        let secret = !connector["credentials"].is_null();
        wanted.insert(Thing::Remote {
            connection: connection.clone(),
            to: in_use.map_or_else(|| hosts[0].clone(), str::to_owned),
            password: secret.then(|| self.world.remotes.password(namespace)),
        });
        let before = format!(
            "{}{}/",
            self.world.prefix((namespace, text(&space["metadata"]["name"]))),
            text(&connector["name"])
        );
        for address in rows(connector, "addresses") {
            let shown = text(&address["pattern"]);
            for out in [false, true] {
                let (pattern, shown) = (format!("{before}{shown}"), shown.to_owned());
                wanted.insert(Thing::Via { pattern, shown, out, connection: connection.clone() });
            }
        }
    }

    fn put_forwarders(&self, index: usize, address: &Value, wanted: &mut BTreeSet<Thing>) {
        let slot = self.world.slot(address);
        for forwarder in rows(&address["spec"], "forwarders") {
            let (name, remote) = ends(forwarder);
            let Some((space, connector)) = self.connector_of(address, name) else { continue };
            if index_of(space) != index || self.verdict(space, connector) != Verdict::Held {
                continue;
            }
            let (connection, remote) = (Self::id_of(space, connector), remote.to_owned());
            if address["spec"]["type"] == "queue" {
                let out = forwarder["direction"] == "out";
                wanted.insert(Thing::Forward { address: slot.clone(), out, connection, remote });
                continue;
            }
            let topic = self.really(address, text(&address["spec"]["topic"]));
            for on in rows(&address["status"], "brokers") {
                wanted.insert(Thing::Tap {
                    broker: host_of(text(&on["name"])),
                    from: format!("{topic}::{slot}"),
                    connection: connection.clone(),
                    to: remote.clone(),
                });
            }
        }
    }

    /// Whether it cannot be told if a router of this RouterConfig must have something.
    pub fn is_excused(&self, index: usize, thing: &Thing) -> bool {
        let (connection, slot) = match thing {
            Thing::Remote { connection, .. } | Thing::Via { connection, .. } => (connection, None),
            Thing::Forward { connection, address, .. } => (connection, Some(address.as_str())),
            Thing::Tap { connection, from, .. } => (connection, from.split_once("::").map(|(_, slot)| slot)),
            _ => return false,
        };
        let Some((space, connector)) = connection.split_once('>') else { return false };
        let Some((namespace, space)) = space.split_once('.') else { return false };
        if self.is_blurred(namespace) {
            return true;
        }
        // Who begins to lead may not know that a connection is open by a password of before; that takes half a minute.
        let remotes = &self.world.remotes;
        let old = remotes.unsteady || self.world.started_us + 30_000_000 > remotes.rotated_us;
        let space = self.world.api.get(&Id::new(Plural::AddressSpaces, namespace, space));
        let Some(space) = space.filter(|space| index_of(space) == index) else { return false };
        let connector = rows(&space["spec"], "connectors").iter().find(|c| c["name"] == connector);
        // That it shall have no login any more is not found out ever.
        let bare = connector.is_some_and(|connector| connector["credentials"].is_null());
        if matches!(thing, Thing::Remote { .. }) && old && self.is_there(index, connection, bare) {
            return true;
        }
        if connector.is_some_and(|connector| self.verdict(space, connector) == Verdict::Unsure) {
            return true;
        }
        // Of an Address that is not Ready, what was before may be in force; of one that goes, only what leads out.
        let out = !matches!(thing, Thing::Forward { out: false, .. });
        let holds = |address: &Value| (out && deleting(address)) || (!deleting(address) && !is_true(address, "Ready"));
        let claims = |slot| self.addresses.iter().map(|(_, a)| a).filter(move |a| self.world.slot(a) == slot);
        slot.is_some_and(|slot| {
            claims(slot).any(|a| holds(a)) && !claims(slot).any(|a| is_true(a, "Ready") && !deleting(a))
        })
    }

    fn all_routers(&self, index: usize) -> Vec<&Router> {
        self.config(index).map(|config| self.routers_of(config).map(|(_, router)| router).collect()).unwrap_or_default()
    }

    /// Whether every router has this connection.
    fn is_open(&self, index: usize, connection: &str) -> bool {
        self.is_there(index, connection, false)
    }

    /// Whether every router has this connection, open unless that does not matter.
    fn is_there(&self, index: usize, connection: &str, shut: bool) -> bool {
        let there = |open: Option<&bool>| open.is_some_and(|open| *open || shut);
        self.all_routers(index).iter().all(|router| there(router.connections(index).get(connection)))
    }

    /// What statuses say of connectors and forwarders, and that no remote host can use a router.
    pub fn check_remotes(&self, found: &mut Vec<String>) {
        if !self.world.remotes.on {
            return;
        }
        for (host, router) in &self.world.routers {
            found.extend(router.exposed.iter().map(|far| format!("router {host}: {far} may use everything on it")));
        }
        for (id, space) in self.world.api.all(Plural::AddressSpaces) {
            if !is_true(space, "Accepted") || deleting(space) || self.is_blurred(&id.namespace) {
                continue;
            }
            let name = format!("AddressSpace {}/{}", id.namespace, id.name);
            let told = rows(&space["status"], "connectors");
            let asked = rows(&space["spec"], "connectors");
            for row in told.iter().filter(|row| !asked.iter().any(|connector| connector["name"] == row["name"])) {
                found.push(format!("{name}: tells of a connector that it has not: {row}"));
            }
            for connector in asked.iter().filter(|_| space["spec"]["type"] == "standard") {
                let row = told.iter().find(|row| row["name"] == connector["name"]);
                if let Err(wrong) = self.check_connector(space, connector, row) {
                    found.push(format!("{name}: {wrong}, and it tells {row:?} of {connector}"));
                }
            }
        }
        for (id, address) in &self.addresses {
            let fine = is_true(address, "Ready") && !deleting(address) && !spoilt(address);
            let space = self.space_of(address).filter(|space| is_true(space, "Accepted") && !deleting(space));
            if !fine || space.is_none() || self.is_blurred(&id.namespace) {
                continue;
            }
            let told = rows(&address["status"], "forwarders");
            let asked = rows(&address["spec"], "forwarders");
            for row in told.iter().filter(|row| !asked.iter().any(|forwarder| forwarder["name"] == row["name"])) {
                found
                    .push(format!("Address {}/{}: tells of a forwarder that it has not: {row}", id.namespace, id.name));
            }
            for forwarder in asked {
                let row = told.iter().find(|row| row["name"] == forwarder["name"]);
                if let Err(wrong) = self.check_forwarder(address, forwarder, row) {
                    found.push(format!(
                        "Address {}/{}: {wrong}, and it tells {row:?} of {forwarder}",
                        id.namespace, id.name
                    ));
                }
            }
        }
    }

    fn check_connector(&self, space: &Value, connector: &Value, row: Option<&Value>) -> Result<(), String> {
        let index = index_of(space);
        let expected = match self.verdict(space, connector) {
            Verdict::Unsure => return Ok(()),
            Verdict::Refused(reason) => reason,
            Verdict::Held if !self.world.remotes.policies => "NotSupportedByRouter",
            Verdict::Held if self.is_open(index, &Self::id_of(space, connector)) => "Connected",
            Verdict::Held => "NotConnected",
        };
        let Some(row) = row else { return Err(format!("nothing is told of what is {expected}")) };
        if row["reason"] != expected || (row["ready"] == true) != (expected == "Connected") {
            return Err(format!("it is {expected}"));
        }
        if let Some(host) = row["host"].as_str() {
            let hosts = rows(connector, "endpointHosts");
            if hosts.len() < 2
                || !hosts.iter().any(|other| host == format!("{}:{}", text(&other["host"]), other["port"]))
            {
                return Err(format!("{host} is none of its several hosts"));
            }
        }
        Ok(())
    }

    fn check_forwarder(&self, address: &Value, forwarder: &Value, row: Option<&Value>) -> Result<(), String> {
        let told = row.map(|row| text(&row["reason"])).unwrap_or_default();
        let one_of = |expected: &[&str]| match expected.contains(&told) {
            true => Ok(()),
            false => Err(format!("it is {}", expected.join(" or "))),
        };
        if row.is_some_and(|row| (row["ready"] == true) != (told == "Active")) {
            return Err("is ready for no reason".to_owned());
        }
        if !self.is_standard(address) {
            return one_of(&["NoRouters"]);
        }
        let (name, remote) = ends(forwarder);
        let Some((space, connector)) = self.connector_of(address, name) else { return one_of(&["ConnectorNotFound"]) };
        match self.verdict(space, connector) {
            Verdict::Unsure => return Ok(()),
            // What worked before is told of as it was: what is wrong is told once, of the connector.
            Verdict::Refused(_) => return one_of(&["ConnectorNotReady", "Active"]),
            Verdict::Held if !self.world.remotes.policies => {
                return one_of(&["NotSupportedByRouter"]);
            }
            Verdict::Held => {}
        }
        let (index, connection) = (index_of(space), Self::id_of(space, connector));
        if !self.is_open(index, &connection) {
            return one_of(&["ConnectorNotReady", "Active", "LinkFailed"]);
        }
        let (out, slot) = (forwarder["direction"] == "out", self.world.slot(address));
        let all = self.all_routers(index);
        let links: Vec<_> = all.iter().map(|router| router.forwards(&connection, out, &slot, remote)).collect();
        if links.iter().all(|link| link.is_some_and(works)) { one_of(&["Active"]) } else { one_of(&["LinkFailed"]) }
    }

    /// What it was good for to look.
    pub fn remotes_seen(&self) -> Vec<String> {
        let told = |of: &Value, field: &str, what: &str| -> Vec<String> {
            rows(&of["status"], field).iter().map(|row| format!("{what} {}", text(&row["reason"]))).collect()
        };
        let spaces = self.world.api.all(Plural::AddressSpaces);
        let connectors = spaces.flat_map(|(_, space)| told(space, "connectors", "connector"));
        let forwarders = self.addresses.iter().flat_map(|(_, address)| told(address, "forwarders", "forwarder"));
        connectors.chain(forwarders).collect()
    }
}

impl World {
    /// How many connectors and forwarders say that they are not ready, and how many connectors there are.
    pub fn count_connectors(&self) -> (usize, usize) {
        let spaces = self.api.all(Plural::AddressSpaces).map(|(_, space)| space);
        let all: Vec<bool> = spaces
            .flat_map(|space| rows(&space["status"], "connectors").iter().map(|row| row["ready"] == true))
            .collect();
        let addresses = self.api.all(Plural::Addresses).flat_map(|(_, address)| rows(&address["status"], "forwarders"));
        let unready = addresses.filter(|row| row["ready"] != true).count();
        (all.iter().filter(|ready| !**ready).count() + unready, all.len())
    }

    /// Whether a forwarder's link fails. A router that begins anew tells that of it only after a while, and until then
    /// it is as good as any.
    pub fn has_failing_forwarders(&self) -> bool {
        let mut all = self.api.all(Plural::Addresses).flat_map(|(_, address)| rows(&address["status"], "forwarders"));
        all.any(|row| row["reason"] == "LinkFailed")
    }

    /// One cause was looked at by itself, and cost AddressSpace writes.
    pub fn judge_far_writes(&mut self, cause: Cause, writes: usize) {
        if !self.remotes.on {
            return;
        }
        let (unready, all) = self.remotes.counted;
        let most = match cause {
            // Every ten seconds of thirty, since routers turn one by one, and their words with them; and that it came back.
            Cause::FarOutage => all * 5,
            // Those that could not log in may now.
            Cause::FarRotation => unready,
            _ => return,
        };
        if writes > most {
            self.violated(format!(
                "{cause:?} cost {writes} AddressSpace writes with {all} connectors, {unready} not ready"
            ));
        }
    }
}
