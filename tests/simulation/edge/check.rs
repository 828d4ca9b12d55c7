//! What must hold when everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use serde::de::DeserializeOwned;
use serde_json::Value;
use waystation::api;
use waystation::cluster::edge::convert;
use waystation::edge::ids::{Key, Kind};
use waystation::edge::input::{Input, Meta, Secret};
use waystation::edge::model::{DEFAULT_CERTIFICATE, Model};
use waystation::edge::render::{self, FixedPart};
use waystation::edge::wanted::{Slot, Value as Held};
use waystation_kit::haproxy_core::{Files, Parser, Worker};

use super::objects::{CONFIG, config_id, fallback};
use super::world::World;
use crate::api::store::{Plural, condition, generation};

fn read<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap()
}

/// A model that was just built from what is there.
fn fresh(world: &World) -> Model {
    let mut model = Model::new(Key::new(CONFIG.0, CONFIG.1));
    let all = |plural| world.api.all(plural).map(|(_, object)| &**object);
    let config: api::RouterConfig = read(world.api.get(&config_id()).unwrap());
    model.apply(Input::RouterConfig(Arc::new(convert::router_config(&config).unwrap())));
    for object in all(Plural::IngressClasses) {
        model.apply(Input::IngressClass(Arc::new(convert::ingress_class(&read::<IngressClass>(object)))));
    }
    for object in all(Plural::Namespaces) {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect();
        model.apply(Input::Namespace(object["metadata"]["name"].as_str().unwrap().into(), Arc::new(labels)));
    }
    for object in all(Plural::Ingresses) {
        model.apply(Input::Ingress(Arc::new(convert::ingress(&read::<Ingress>(object)))));
    }
    for object in all(Plural::Services) {
        model.apply(Input::Service(Arc::new(convert::service(&read::<core::Service>(object)))));
    }
    for object in all(Plural::EndpointSlices) {
        model.apply(Input::EndpointSlice(Arc::new(convert::endpoint_slice(&read::<EndpointSlice>(object)))));
    }
    for object in all(Plural::Secrets) {
        let secret: core::Secret = read(object);
        let name = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = Key::new(name(&secret.metadata.namespace), name(&secret.metadata.name));
        let data = secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k.into(), v.0.into())).collect();
        let meta = Meta { key, uid: name(&secret.metadata.uid).into(), created_s: 0 };
        model.apply(Input::Secret(Arc::new(Secret { meta, data })));
    }
    for kind in Kind::ALL {
        model.apply(Input::Synced(kind));
    }
    loop {
        let settled = model.settle();
        let asked: Vec<(Key, bool)> = settled.secrets.into_iter().filter(|(_, now)| *now).collect();
        let names: Vec<(Arc<str>, bool)> = settled.names.into_iter().filter(|(_, now)| *now).collect();
        if asked.is_empty() && names.is_empty() {
            return model;
        }
        for (key, _) in asked {
            let id = crate::api::store::Id::new(Plural::Secrets, &key.namespace, &key.name);
            if world.api.get(&id).is_none() {
                model.apply(Input::Vanished(Kind::Secret, key));
            }
        }
        for (name, _) in names {
            model.apply(Input::Resolved(name, [].into()));
        }
    }
}

/// Everything is what a model built from what is there says.
pub fn agreement(world: &mut World) {
    let model = fresh(world);
    let mut wanted = model.wanted().clone();
    if wanted.get(&Slot::Certificate(DEFAULT_CERTIFICATE.into())).is_none() {
        wanted.set(Slot::Certificate(DEFAULT_CERTIFICATE.into()), Some(Held::Sealed(fallback().into())));
    }
    let config = model.configured().unwrap();
    let mut wrong = Vec::new();
    for (index, machine) in world.machines.iter().enumerate() {
        let fixed = FixedPart::of(config, &machine.layout);
        let files: Files = render::files(&fixed, &wanted, &machine.layout)
            .into_iter()
            .map(|file| (file.path, file.contents.into()))
            .collect();
        let differing = |(path, text): &(&String, &Arc<str>)| machine.files.get(*path) != Some(*text);
        for (path, _) in files.iter().filter(differing) {
            wrong.push(format!("machine {index}: {path} is not what it must be"));
        }
        // Of one that was not written to its end, the next attempt takes away what is left; no folder has others.
        let is_part = |path: &str| path.ends_with(".part") && path.matches('/').count() == 2;
        for path in machine.files.keys().filter(|path| !files.contains_key(*path) && !is_part(path)) {
            wrong.push(format!("machine {index}: {path} is left over"));
        }
        let expected = Parser::default().start(&files, machine.layout.dir(), (0, 0), &BTreeSet::new());
        match (&machine.worker, expected) {
            (Some(worker), Ok(expected)) => {
                if let Some(what) = differs(worker, &expected) {
                    wrong.push(format!("machine {index}: {what}"));
                }
            }
            (None, _) => wrong.push(format!("machine {index}: HAProxy does not run")),
            (_, Err(why)) => wrong.push(format!("HAProxy starts from no files that are as they must be: {why}")),
        }
    }
    wrong.extend(statuses(world, &model));
    world.saw("comparison");
    let (backends, routes) = wanted.slots().keys().fold((0, 0), |(b, r), slot| match slot {
        Slot::Backend(_) => (b + 1, r),
        Slot::Map(map, _) if map.routes() => (b, r + 1),
        _ => (b, r),
    });
    for (count, what) in [(backends, "backends compared"), (routes, "routes compared")] {
        *world.seen.entry(what.to_owned()).or_default() += count;
    }
    wrong.into_iter().for_each(|what| world.violated(what));
}

/// In what a process is not as the other.
fn differs(is: &Worker, expected: &Worker) -> Option<String> {
    fn of<T: PartialEq + Debug>(what: &str, is: &T, expected: &T) -> Option<String> {
        (is != expected).then(|| format!("{what}: it has {is:?}, wanted {expected:?}"))
    }
    let backends = |worker: &Worker| -> BTreeMap<String, (String, bool)> {
        worker.backends.iter().map(|(name, b)| (name.clone(), (b.class.clone(), b.published))).collect()
    };
    let servers = |worker: &Worker| -> BTreeMap<String, String> {
        let all = worker.backends.iter().flat_map(|(name, b)| b.servers.iter().map(move |s| (name, s)));
        let text = |s: &waystation_kit::haproxy_core::Server| {
            format!("{}:{} {} {} {:?} {}", s.address, s.port, s.weight, s.maxconn, s.admin, s.keywords)
        };
        all.map(|(name, (server, s))| (format!("{name}/{server}"), text(s))).collect()
    };
    let maps = |worker: &Worker| -> BTreeMap<String, Vec<(String, String)>> {
        let sorted = |path: &str, entries: &[(String, String)]| {
            let mut entries = entries.to_vec();
            // Of these the order counts.
            if !path.ends_with("/regex.map") && !path.ends_with("/rewrite-regex.map") {
                entries.sort();
            }
            entries
        };
        worker.maps.iter().map(|(path, map)| (path.clone(), sorted(path, &map.entries))).collect()
    };
    let lists = |worker: &Worker| -> BTreeSet<(String, String, Vec<String>, Vec<String>)> {
        let all = worker.lists.iter().flat_map(|(path, list)| list.lines.iter().map(move |line| (path, line)));
        all.map(|(p, l)| (p.clone(), l.certificate.clone(), l.options.clone(), l.hosts.clone())).collect()
    };
    let lines = |worker: &Worker| worker.lists.values().map(|list| list.lines.len()).sum::<usize>();
    // With both of them open one is to be shut.
    let open = |worker: &Worker, name: &str| worker.frontends.get(name).copied().flatten() == Some(true);
    let looks = |worker: &Worker| (open(worker, "_https"), open(worker, "_sni"));
    // One that was left out at the start cannot be opened: the longer way does as well.
    let left_out = is.frontends.get("_https") == Some(&None);
    let front = if open(expected, "_https") && !left_out { (true, false) } else { (false, true) };
    of("what it was started from", &is.description, &expected.description)
        .or_else(|| of("frontends", &looks(is), &front))
        .or_else(|| of("backends", &backends(is), &backends(expected)))
        .or_else(|| of("servers", &servers(is), &servers(expected)))
        .or_else(|| maps(is).into_iter().find_map(|(path, map)| of(&path, &map, &maps(expected)[&path])))
        .or_else(|| of("certificates", &is.certificates, &expected.certificates))
        .or_else(|| of("CAs", &is.authorities, &expected.authorities))
        .or_else(|| of("lists", &lists(is), &lists(expected)))
        .or_else(|| of("lines", &lines(is), &lines(expected)))
}

/// The RouterConfig names its edges, which all serve; Ingresses say where they are served, and no others do.
fn statuses(world: &World, model: &Model) -> Vec<String> {
    let mut wrong = Vec::new();
    let config = world.api.get(&config_id()).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let edges = config["status"]["edges"].as_array().cloned().unwrap_or_default();
    let told: Vec<String> =
        edges.iter().map(|edge| format!("{} {}", text(&edge["name"]), text(&edge["state"]))).collect();
    let is: Vec<String> = (0..world.machines.len()).map(|index| format!("edge-{index} Serving")).collect();
    if told != is {
        wrong.push(format!("status.edges says {edges:?}, but there are {is:?}"));
    }
    let ready = condition(config, "Ready");
    let now = generation(config);
    if ready.is_none_or(|ready| ready["status"] != "True" || ready["observedGeneration"] != now) {
        wrong.push(format!("the RouterConfig of generation {now} says {ready:?}"));
    }
    let served: BTreeSet<String> = model.served().map(ToString::to_string).collect();
    let publish = &config["spec"]["edge"]["publish"]["addresses"];
    for (id, ingress) in world.api.all(Plural::Ingresses) {
        let told = ingress["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        let told: Vec<Value> = told.iter().map(|entry| entry["ip"].clone()).collect();
        let is = served.contains(&format!("{}/{}", id.namespace, id.name));
        let right = if is { Value::from(told.clone()) == *publish } else { told.is_empty() };
        if !right {
            wrong.push(format!("Ingress {}/{} says {told:?}; served: {is}", id.namespace, id.name));
        }
    }
    wrong
}

/// What was done so far: statuses and commands, and files as they are.
pub fn counts(world: &World) -> (u64, Vec<u64>, Vec<Files>) {
    let commands = world.machines.iter().map(|machine| machine.commands).collect();
    (world.statuses(), commands, world.machines.iter().map(|machine| machine.files.clone()).collect())
}

/// Nobody has done anything since then.
pub fn peace(world: &mut World, before: &(u64, Vec<u64>, Vec<Files>)) {
    let after = counts(world);
    if after.0 != before.0 {
        world.violated(format!("{} statuses were written though nothing happened", after.0 - before.0));
    }
    if after.1 != before.1 {
        world.violated(format!("commands were sent though nothing happened: {:?}, then {:?}", before.1, after.1));
    }
    if after.2 != before.2 {
        world.violated("files were written though nothing happened".to_owned());
    }
}
