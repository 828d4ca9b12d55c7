//! What people do to objects, and what happens to machines.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::machine::reload;
use super::objects::{self, DEFAULT_SECRET, config_id, mark};
use super::plan::{Action, Name};
use super::world::{Alarm, Shared, World};
use crate::api::lock;
use crate::api::store::{Id, Plural};

fn id(plural: Plural, name: Name) -> Id {
    Id::new(plural, name.0, name.1)
}

impl World {
    /// Makes an object, or gives it this spec; what belongs to it otherwise stays.
    pub fn put(&mut self, id: &Id, body: Value) {
        let done = if self.api.get(id).is_none() {
            self.api.create(id, &body).is_ok()
        } else {
            let keep = |object: &mut Value| {
                for (key, value) in body.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata") {
                    object[key] = value.clone();
                }
                if let Some(annotations) = body["metadata"].get("annotations") {
                    object["metadata"]["annotations"] = annotations.clone();
                }
            };
            self.api.update(id, keep).is_ok()
        };
        self.note(&format!("people put {}/{}/{}: {done}", id.plural.as_str(), id.namespace, id.name));
    }

    fn change(&mut self, id: &Id, change: impl FnOnce(&mut Value)) {
        let done = self.api.update(id, change).is_ok();
        self.note(&format!("people change {}/{}/{}: {done}", id.plural.as_str(), id.namespace, id.name));
    }

    fn delete(&mut self, id: &Id) {
        let done = self.api.delete(id).is_ok();
        self.note(&format!("people delete {}/{}/{}: {done}", id.plural.as_str(), id.namespace, id.name));
    }

    fn edge(&mut self, change: impl FnOnce(&mut Value)) {
        self.change(&config_id(), |config| change(&mut config["spec"]["edge"]));
    }

    /// Somebody spoils a file.
    fn litter(&mut self, index: usize, pick: u64) {
        let machine = &mut self.machines[index];
        if !machine.has_files() {
            return;
        }
        let among: Vec<String> =
            machine.files.keys().filter(|path| path.contains("/maps/") || path.contains("/certs")).cloned().collect();
        let path = among[usize::try_from(pick).unwrap() % among.len()].clone();
        machine.files.insert(path.clone(), "spoilt\n".into());
        machine.drifted = true;
        self.note(&format!("machine {index}: somebody spoils {path}"));
        self.saw("a spoilt file");
    }

    /// Somebody takes something away from the process.
    fn drift(&mut self, index: usize, pick: u64) {
        let machine = &mut self.machines[index];
        let Some(worker) = &mut machine.worker else { return };
        let pick = usize::try_from(pick).unwrap();
        let servers: Vec<String> = worker
            .backends
            .iter()
            .filter(|(_, backend)| !backend.fixed)
            .flat_map(|(name, backend)| backend.servers.keys().map(move |server| format!("{name}/{server}")))
            .collect();
        let keys: Vec<(String, String)> = worker
            .maps
            .iter()
            .flat_map(|(path, map)| map.entries.iter().map(move |(key, _)| (path.clone(), key.clone())))
            .collect();
        let commands = match (pick % 2, servers.is_empty(), keys.is_empty()) {
            (0, false, _) => {
                let server = &servers[pick / 2 % servers.len()];
                vec![format!("set server {server} state maint\n"), format!("del server {server}\n")]
            }
            (_, _, false) => {
                let (path, key) = &keys[pick / 2 % keys.len()];
                vec![format!("del map {path} {}\n", waystation::edge::runtime::command::word(key))]
            }
            _ => return,
        };
        machine.drifted = true;
        for command in commands {
            worker.ask(&command);
            machine.commands += 1;
        }
        self.note(&format!("machine {index}: somebody changes the process"));
        self.saw("a change by hand");
    }
}

/// Of actions that take no time.
pub fn act(world: &Shared, action: &Action) {
    let mut locked = lock(world);
    let w = &mut *locked;
    let until = |ms: &u64| Instant::now() + Duration::from_millis(*ms);
    match action {
        Action::PutIngress { name, class, host, paths, secret, options } => {
            w.put(&id(Plural::Ingresses, *name), objects::ingress(class, host, paths, *secret, options));
        }
        Action::DeleteIngress(name) => w.delete(&id(Plural::Ingresses, *name)),
        Action::PutService(name, options) => w.put(&id(Plural::Services, *name), objects::service(*name, options)),
        Action::DeleteService(name) => w.delete(&id(Plural::Services, *name)),
        Action::PutSlice { name, service, endpoints } => {
            w.put(&id(Plural::EndpointSlices, *name), objects::slice(service, endpoints));
        }
        Action::DeleteSlice(name) => w.delete(&id(Plural::EndpointSlices, *name)),
        Action::PutSecret(name, number) => w.put(&id(Plural::Secrets, *name), objects::secret(*number)),
        Action::DeleteSecret(name) => w.delete(&id(Plural::Secrets, *name)),
        Action::PutClass(ours) => w.put(&Id::new(Plural::IngressClasses, "", "second"), objects::class(*ours)),
        Action::DeleteClass => w.delete(&Id::new(Plural::IngressClasses, "", "second")),
        Action::LabelNamespace(name, yes) => {
            let value = if *yes { "yes" } else { "no" };
            w.change(&Id::new(Plural::Namespaces, "", name), |object| {
                object["metadata"]["labels"] = json!({ "edge": value });
            });
        }
        Action::ConfigAllowed(all) => {
            let selector = json!({ "from": "Selector", "selector": { "matchLabels": { "edge": "yes" } } });
            let allowed = if *all { json!({ "from": "All" }) } else { selector };
            w.change(&config_id(), |config| config["spec"]["allowedNamespaces"] = allowed);
        }
        Action::ConfigOption(key, value) => w.edge(|edge| {
            edge["options"] = value.map_or(json!({}), |value| json!({ *key: value }));
        }),
        Action::ConfigPublish(number) => w.edge(|edge| {
            edge["publish"] = json!({ "addresses": [format!("192.0.2.{number}")] });
        }),
        Action::ConfigDefaultCertificate(named) => w.edge(|edge| {
            let named = named.then(|| json!({ "secretName": DEFAULT_SECRET }));
            edge["defaultCertificate"] = named.unwrap_or_default();
        }),
        Action::ConfigOwnership(any) => w.edge(|edge| {
            edge["hostOwnership"] = if *any { "Any" } else { "Namespace" }.into();
        }),
        Action::ConfigThreads(threads) => {
            w.may_reload = true;
            w.edge(|edge| edge["tuning"] = json!({ "threads": threads }));
        }
        Action::CrashAfter { agent, changes } => w.alarms.push((*changes, Alarm::Crash(*agent))),
        Action::KillAfter { machine, changes } => w.alarms.push((*changes, Alarm::Kill(*machine))),
        Action::Cut(machine) => {
            w.machines[*machine].wires.drain(..).for_each(|(_, wire)| wire.cut("connection reset by peer"));
        }
        Action::Busy { machine, ms } => w.machines[*machine].busy_until = until(ms),
        Action::RefuseNext { machine, what } => w.machines[*machine].refuse_next = Some(what),
        Action::Refuse { machine, number } => {
            w.machines[*machine].refused = true;
            w.machines[*machine].refuses.insert(mark(*number));
            let refuses = w.machines[*machine].refuses.clone();
            if let Some(worker) = &mut w.machines[*machine].worker {
                worker.refuses = refuses;
            }
        }
        Action::DiskFull { machine, ms } => w.machines[*machine].disk_full_until = until(ms),
        Action::DiskSlow { machine, ms } => w.machines[*machine].disk_slow_until = until(ms),
        Action::Litter { machine, pick } => w.litter(*machine, *pick),
        Action::Drift { machine, pick } => w.drift(*machine, *pick),
        Action::ApiOutage(ms) => {
            w.api_down_until = until(ms);
            w.trouble(100);
        }
        Action::CutWatches => {
            w.cuts += 1;
            w.api.wake_all();
        }
        Action::Compact => {
            w.api.compact();
            w.cuts += 1;
            w.api.wake_all();
        }
        Action::StallWatches { agent, ms } => {
            let at = until(ms);
            w.stalls.insert(*agent, at);
            w.trouble(ms / 1000 + 5);
        }
        Action::Reload(machine) => {
            let (world, machine) = (Shared::clone(world), *machine);
            w.saw("reload by somebody");
            tokio::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                let running = lock(&world).machines[machine].worker.is_some();
                // Files that it refuses leave the old one.
                if running && let Err(why) = reload(&world, machine).await {
                    lock(&world).note(&format!("machine {machine}: not reloaded: {why}"));
                }
            });
        }
        Action::Crash { .. } | Action::Stop { .. } | Action::Kill { .. } | Action::Quiet => {}
    }
}
