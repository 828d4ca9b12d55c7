//! Endpoints of spaces: the Services that lead to their routers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::store::{Id, Plural, deleting};
use crate::check::{Scene, is_true};
use crate::plan::{Action, Name};
use crate::run::text;
use crate::slices;
use crate::world::World;

const SPACE_LABEL: &str = "waystation.dev/address-space";

fn endpoints(which: usize) -> Value {
    match which {
        0 => json!([]),
        1 => json!([{ "name": "in", "service": "amqp", "expose": "cluster" }]),
        _ => json!([
            { "name": "in", "service": "amqp", "expose": "cluster" },
            { "name": "out", "service": "amqp", "expose": "loadBalancer" },
        ]),
    }
}

/// What people do.
pub fn act(world: &mut World, action: &Action) {
    match action {
        Action::Endpoints(name, which) => expose(world, *name, *which),
        Action::ServiceByHand { pick, change } => {
            let children =
                [Plural::Services, Plural::EndpointSlices].into_iter().flat_map(|plural| world.api.all(plural));
            let ours = children.filter(|(_, child)| child["metadata"]["labels"].get(SPACE_LABEL).is_some());
            let ours: Vec<Id> = ours.map(|(id, _)| id.clone()).collect();
            let Some(id) = ours.get(*pick as usize % ours.len().max(1)) else { return };
            if !*change {
                world.delete(id);
            } else if id.plural == Plural::Services {
                world.change(id, |service| service["spec"]["type"] = "NodePort".into());
            } else {
                world.change(id, |slice| slice["endpoints"] = json!([]));
            }
        }
        _ => {}
    }
}

fn expose(world: &mut World, name: Name, which: usize) {
    let id = Id::new(Plural::AddressSpaces, name.0, name.1);
    if world.api.get(&id).is_some_and(|space| space["spec"]["type"] == "standard") {
        world.change(&id, |space| space["spec"]["endpoints"] = endpoints(which));
    }
}

impl Scene<'_> {
    /// Services lead to the routers, and there are no others.
    pub fn check_services(&self, found: &mut Vec<String>) {
        for (id, space) in self.world.api.all(Plural::AddressSpaces) {
            let fine = is_true(space, "Accepted") && is_true(space, "Ready") && !deleting(space);
            if !fine || space["spec"]["type"] != "standard" {
                continue;
            }
            let name = format!("AddressSpace {}/{}", id.namespace, id.name);
            let index = (0..2).find(|index| {
                self.config(*index).is_some_and(|c| c["metadata"]["name"] == space["spec"]["routerConfigRef"]["name"])
            });
            let Some(config) = index.and_then(|index| self.config(index)) else { continue };
            let to: BTreeSet<&str> = slices::routers_of(self.world, config).into_iter().map(|(_, at)| at).collect();
            let mut wanted = BTreeSet::new();
            for endpoint in space["spec"]["endpoints"].as_array().into_iter().flatten() {
                let service = format!("{}-{}", id.name, text(&endpoint["name"]));
                if let Err(wrong) = self.check_service(&id.namespace, &service, endpoint, &to) {
                    found.push(format!("{name}: Service {service}: {wrong}"));
                }
                let mut rows = space["status"]["endpoints"].as_array().into_iter().flatten();
                let row = rows.find(|row| row["name"] == endpoint["name"]);
                let told = row.is_some_and(|row| row["host"] == format!("{service}.{}.svc", id.namespace).as_str());
                if endpoint["expose"] == "cluster" && !told {
                    found.push(format!("{name}: tells of {row:?} for {service}"));
                }
                wanted.insert(service);
            }
            let of = |child: &Value| child["metadata"]["labels"][SPACE_LABEL] == id.name.as_str();
            let services = self.world.api.all(Plural::Services).filter(|(child, _)| child.namespace == id.namespace);
            for (child, _) in services.filter(|(child, service)| of(service) && !wanted.contains(&child.name)) {
                found.push(format!("{name}: Service {} is left over", child.name));
            }
        }
    }

    fn check_service(&self, namespace: &str, name: &str, endpoint: &Value, to: &BTreeSet<&str>) -> Result<(), String> {
        let service = self.world.api.get(&Id::new(Plural::Services, namespace, name)).ok_or("is missing")?;
        let kind = if endpoint["expose"] == "cluster" { "ClusterIP" } else { "LoadBalancer" };
        let (has, port) = (text(&service["spec"]["type"]), &service["spec"]["ports"][0]["port"]);
        if has != kind || *port != 5672 {
            return Err(format!("is of type {has} and not {kind}, with port {port}"));
        }
        let of = |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name;
        let slices =
            self.world.api.all(Plural::EndpointSlices).filter(|(id, slice)| id.namespace == namespace && of(slice));
        let endpoints = slices.filter_map(|(_, slice)| slice["endpoints"].as_array()).flatten();
        let leads: BTreeSet<&str> = endpoints.map(|endpoint| text(&endpoint["addresses"][0])).collect();
        if leads != *to { Err(format!("leads to {leads:?} and not to {to:?}")) } else { Ok(()) }
    }
}
