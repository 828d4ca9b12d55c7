//! What there is to see of a router at work: itself, its connections, links and addresses.

use std::collections::{BTreeMap, HashMap};

use serde_amqp::Value;

use super::auto_links::Bound;
use super::entities::Entities;
use super::value::{empty, number, text};
use super::{Answer, Core, Flavour, OperStatus, Request};

/// Columns and their values; those that are missing are null.
pub type Row = BTreeMap<&'static str, Value>;

/// What is there, told by whoever moves messages.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    connections: Entities<Row>,
    links: Entities<Row>,
    /// Route-container connections by connector and by container.
    up: HashMap<Bound, usize>,
}

impl Live {
    pub(super) fn is_up(&self, bound: &Bound) -> bool {
        self.up.contains_key(bound)
    }
}

const ROUTER: &[&str] = &[
    "name",
    "identity",
    "id",
    "type",
    "mode",
    "area",
    "version",
    "metadata",
    "addrCount",
    "linkCount",
    "nodeCount",
    "linkRouteCount",
    "autoLinkCount",
    "connectionCount",
    "presettledDeliveries",
    "droppedPresettledDeliveries",
    "acceptedDeliveries",
    "rejectedDeliveries",
    "releasedDeliveries",
    "modifiedDeliveries",
    "deliveriesDelayed1Sec",
    "deliveriesDelayed10Sec",
    "deliveriesStuck",
    "deliveriesIngress",
    "deliveriesEgress",
    "deliveriesTransit",
    "deliveriesIngressRouteContainer",
    "deliveriesEgressRouteContainer",
    "deliveriesRedirectedToFallback",
    "linksBlocked",
    "uptimeSeconds",
    "memoryUsage",
    "workerThreads",
];
const CONNECTION: &[&str] = &[
    "name",
    "identity",
    "host",
    "role",
    "protocol",
    "dir",
    "container",
    "sasl",
    "isAuthenticated",
    "user",
    "isEncrypted",
    "sslProto",
    "sslCipher",
    "properties",
    "sslSsf",
    "tenant",
    "type",
    "ssl",
    "opened",
    "active",
    "adminStatus",
    "operStatus",
    "uptimeSeconds",
    "lastDlvSeconds",
    "enableProtocolTrace",
];
const LINK: &[&str] = &[
    "name",
    "identity",
    "type",
    "linkName",
    "linkType",
    "linkDir",
    "owningAddr",
    "capacity",
    "peer",
    "undeliveredCount",
    "unsettledCount",
    "deliveryCount",
    "connectionId",
    "adminStatus",
    "operStatus",
    "presettledCount",
    "droppedPresettledCount",
    "acceptedCount",
    "rejectedCount",
    "releasedCount",
    "modifiedCount",
    "deliveriesDelayed1Sec",
    "deliveriesDelayed10Sec",
    "deliveriesStuck",
    "ingressHistogram",
    "priority",
    "settleRate",
    "creditAvailable",
    "zeroCreditSeconds",
];
const ADDRESS: &[&str] = &[
    "name",
    "identity",
    "type",
    "key",
    "distribution",
    "inProcess",
    "subscriberCount",
    "remoteCount",
    "containerCount",
    "remoteHostRouters",
    "deliveriesIngress",
    "deliveriesEgress",
    "deliveriesTransit",
    "deliveriesToContainer",
    "deliveriesFromContainer",
    "deliveriesEgressRouteContainer",
    "deliveriesIngressRouteContainer",
    "transitOutstanding",
    "trackedDeliveries",
    "priority",
    "deliveriesRedirectedToFallback",
];

impl Core {
    pub(super) fn call_live(&mut self, kind: &str, request: &Request) -> Option<Answer> {
        let show = |columns: &'static [&'static str], rows: &Entities<Row>| {
            Some(rows.query(request, columns, |_, row, name| row.get(name).cloned().unwrap_or_default()))
        };
        match (kind, request.operation.as_str()) {
            ("router", "QUERY") => show(ROUTER, &one(self.router_row())),
            ("router", "READ") => Some(Answer::new(403, "Forbidden", Value::Null)),
            ("connection", "QUERY") => show(CONNECTION, &self.live.connections),
            ("connection", "READ") => Some(self.read_connection(request)),
            ("connection", "DELETE") => Some(Answer::new(403, "Forbidden", empty())),
            ("connection", "UPDATE") => Some(Answer::new(400, "Bad Request", empty())),
            ("router.link", "QUERY") => show(LINK, &self.live.links),
            ("router.address", "QUERY") => {
                let mut rows = Entities::default();
                for (position, row) in (1..).zip(self.address_rows()) {
                    rows.insert(position, None, row);
                }
                show(ADDRESS, &rows)
            }
            ("router.address", "READ") => Some(Answer::new(404, "Not Found", empty())),
            // The rest is forgotten, as UPDATE is for the core's own types.
            _ => None,
        }
    }

    fn read_connection(&self, request: &Request) -> Answer {
        if request.identity.is_none() {
            return Answer::new(400, "Name not supported. Identity required", empty());
        }
        let found = self.live.connections.find(request).map(|identity| self.live.connections.get(identity));
        match found {
            Ok(row) => {
                let row = row.cloned().unwrap_or_default();
                let shown = super::entities::whole(CONNECTION, |name| row.get(name).cloned().unwrap_or_default());
                Answer::new(200, "OK", shown)
            }
            Err(missing) => missing,
        }
    }

    fn router_row(&self) -> Row {
        let old = self.flavour == Flavour::Qdrouterd;
        let count = |count: usize| if old { number(count as u64) } else { Value::Null };
        Row::from([
            ("name", text(&self.id)),
            ("identity", text("1")),
            ("id", text(&self.id)),
            ("type", Value::String(format!("{}.router", self.flavour.prefix()))),
            ("mode", text("interior")),
            ("area", text("0")),
            ("version", text(if old { "1.19.0" } else { "3.5.1" })),
            ("addrCount", count(self.address_rows().len())),
            ("linkCount", count(self.live.links.len())),
            ("nodeCount", count(0)),
            ("linkRouteCount", count(self.link_routes.len())),
            ("autoLinkCount", count(self.auto_links.len())),
            ("connectionCount", count(self.live.connections.len())),
            ("uptimeSeconds", Value::Uint(0)),
            ("workerThreads", Value::Int(4)),
        ])
    }

    /// Addresses that links or auto-links are on.
    fn address_rows(&self) -> Vec<Row> {
        let mut subscribers: BTreeMap<String, u32> = BTreeMap::from([("L$management".to_owned(), 0)]);
        for (_, link) in self.auto_links.iter() {
            let key = format!("M{}{}", link.phase, link.address);
            let receives = link.direction == super::Direction::Out && link.status == OperStatus::Active;
            *subscribers.entry(key).or_default() += u32::from(receives);
        }
        for (_, link) in self.live.links.iter() {
            let Some(Value::String(key)) = link.get("owningAddr") else { continue };
            let receives = link.get("linkDir") == Some(&Value::from("out"));
            *subscribers.entry(key.clone()).or_default() += u32::from(receives);
        }
        subscribers.into_iter().map(|(key, subscribers)| self.address_row(&key, subscribers)).collect()
    }

    fn address_row(&self, key: &str, subscribers: u32) -> Row {
        let multicast = key.get(2..).is_some_and(|address| self.treatment(address).multicast);
        Row::from([
            ("name", text(key)),
            ("identity", text(key)),
            ("type", Value::String(format!("{}.router.address", self.flavour.prefix()))),
            ("key", text(key)),
            ("distribution", text(if multicast { "multicast" } else { "balanced" })),
            ("inProcess", Value::Uint(u32::from(key == "L$management"))),
            ("subscriberCount", Value::Uint(subscribers)),
            ("remoteCount", Value::Uint(0)),
            ("containerCount", Value::Uint(0)),
            ("remoteHostRouters", Value::List(Vec::new())),
            ("priority", Value::Int(-1)),
        ])
    }

    /// Shows a connection; `None` takes it away.
    pub fn show_connection(&mut self, identity: u64, row: Option<Row>) {
        show(&mut self.live.connections, identity, row, format!("{}.connection", self.flavour.prefix()));
    }

    /// Shows a link of a client; `None` takes it away.
    pub fn show_link(&mut self, identity: u64, row: Option<Row>) {
        show(&mut self.live.links, identity, row, format!("{}.router.link", self.flavour.prefix()));
    }

    /// Says that a route-container connection to this container is there: its link routes are active, its auto-links
    /// attach. The auto-links' identities.
    pub fn container_up(&mut self, bound: &Bound) -> Vec<u64> {
        *self.live.up.entry(bound.clone()).or_default() += 1;
        self.set_link_routes(bound, true);
        let links = self.auto_links_of(bound);
        for link in &links {
            self.set_auto_link(*link, OperStatus::Attaching, None);
        }
        links
    }

    /// Says that it is there no more: all its links are inactive. The auto-links' identities.
    pub fn container_down(&mut self, bound: &Bound) -> Vec<u64> {
        if let Some(count) = self.live.up.get_mut(bound) {
            *count -= 1;
            if *count == 0 {
                self.live.up.remove(bound);
            }
        }
        self.set_link_routes(bound, self.live.is_up(bound));
        let links = self.auto_links_of(bound);
        for link in &links {
            self.set_auto_link(*link, OperStatus::Inactive, None);
        }
        links
    }
}

fn show(rows: &mut Entities<Row>, identity: u64, row: Option<Row>, kind: String) {
    rows.remove(identity, None);
    if let Some(mut row) = row {
        row.insert("identity", Value::String(identity.to_string()));
        row.insert("type", Value::String(kind));
        rows.insert(identity, None, row);
    }
}

fn one(row: Row) -> Entities<Row> {
    let mut rows = Entities::default();
    rows.insert(1, None, row);
    rows
}
