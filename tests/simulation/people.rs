//! What people do: to objects, to Secrets, to brokers.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waystation::api::{FORCE_DELETE_ANNOTATION, PRUNE_ORPHANS_ANNOTATION, RESYNC_ANNOTATION};

use crate::api::store::{Id, Plural, Snapshot, deleting};
use crate::broker::{hands, millis};
use crate::plan::{Action, Name};
use crate::router::{router_host, router_name};
use crate::run::{Story, broker_name, host};
use crate::terms::Terms;
use crate::world::{MIXED_SPACE, OTHER_SPACE, Shared, World, lock};
use crate::{remotes, services, slices, terms};

/// The RouterConfigs, with their owners: most is about the first; both are on the same brokers.
pub const CONFIGS: [(&str, &str, &str); 2] = [("infra", "plane", "sim"), ("infra", "other", "elsewhere")];
const SECRET: (&str, &str) = ("infra", "login");

pub fn config_id(index: usize) -> Id {
    Id::new(Plural::RouterConfigs, CONFIGS[index].0, CONFIGS[index].1)
}

fn address_id(name: Name) -> Id {
    Id::new(Plural::Addresses, name.0, name.1)
}

fn space_id(name: Name) -> Id {
    Id::new(Plural::AddressSpaces, name.0, name.1)
}

fn hosts(count: usize) -> Value {
    (0..count).map(|index| json!({ "name": broker_name(index), "host": host(index), "port": 5672 })).collect()
}

fn router_hosts(count: usize) -> Value {
    (0..count).map(|index| json!({ "name": router_name(index), "host": router_host(index), "port": 5672 })).collect()
}

/// Where the routers of a RouterConfig listen once they are filled: two never share a port.
pub fn readiness_port(index: usize) -> u16 {
    [7779, 7780][index]
}

pub fn create_config(world: &mut World, index: usize) {
    let mut external = json!({ "hosts": hosts(world.brokers.len()) });
    if has_secret(world) {
        external["credentials"] = json!({ "secretName": SECRET.1 });
    }
    let tenancy = if world.single && index == 0 { "Single" } else { "Shared" };
    let mut messaging = json!({ "tenancy": tenancy, "owner": CONFIGS[index].2, "brokers": { "external": external } });
    if !world.routers.is_empty() {
        let mut external = json!({ "hosts": router_hosts(world.routers.len()) });
        let mut routers = json!({ "readiness": { "port": readiness_port(index) } });
        if has_secret(world) {
            external["credentials"] = json!({ "secretName": SECRET.1 });
            routers["brokerCredentials"] = json!({ "secretName": SECRET.1 });
        }
        if world.followed && index == 0 {
            let credentials = external["credentials"].take();
            external = slices::reference();
            if !credentials.is_null() {
                external["credentials"] = credentials;
            }
        }
        routers["external"] = external;
        world.put_rules(index, &mut routers);
        messaging["routers"] = routers;
    }
    match index {
        0 => world.put_terms(&mut messaging),
        _ if world.terms.is_some() => Terms::default().put(&mut messaging),
        _ => {}
    }
    let spec =
        json!({ "controllerName": "waystation", "allowedNamespaces": { "from": "All" }, "messaging": messaging });
    world.create(&config_id(index), &json!({ "spec": spec }));
}

/// Whether brokers want a password.
pub fn has_secret(world: &World) -> bool {
    world.brokers.values().any(|broker| !broker.passwords.is_empty())
}

/// "p0" to "p9" as a Secret has it: too small a job for an encoder.
pub fn base64(number: u64) -> String {
    let ends = ["DA", "DE", "DI", "DM", "DQ", "DU", "DY", "Dc", "Dg", "Dk"];
    format!("c{}=", ends[number as usize % ends.len()])
}

/// Makes or changes the Secret with the password of this number.
pub fn put_secret(world: &mut World, number: u64) {
    let id = Id::new(Plural::Secrets, SECRET.0, SECRET.1);
    let data = json!({ "username": "dQ==", "password": base64(number) });
    if !world.create(&id, &json!({ "data": data.clone() })) {
        world.change(&id, |secret| secret["data"] = data);
    }
}

/// Whatever there is may be left over without having been seen to go.
fn excuse_all(world: &mut World) {
    let addresses = world.api.all(Plural::Addresses).map(|(_, address)| world.slot(address));
    let spaces = world.api.all(Plural::AddressSpaces).map(|(id, _)| format!("{}.{}/*.#", id.namespace, id.name));
    let names: Vec<String> = addresses.chain(spaces).collect();
    world.excused.extend(names);
}

pub fn restore(world: &mut World, snapshot: Snapshot) {
    excuse_all(world);
    world.settled.clear();
    world.api.restore(snapshot);
    excuse_all(world);
    // Statuses tell of what was held then.
    let slots: Vec<String> = world.api.all(Plural::Addresses).map(|(_, address)| world.slot(address)).collect();
    let hosts: Vec<String> = world.brokers.keys().cloned().collect();
    world.held.extend(hosts.iter().flat_map(|host| slots.iter().map(|slot| (host.clone(), slot.clone()))));
    world.cuts += 1;
    world.api.wake_all();
}

fn annotate(world: &mut World, id: &Id, name: &str, value: &str) {
    world.change(id, |object| {
        if object["metadata"].get("annotations").is_none() {
            object["metadata"]["annotations"] = json!({});
        }
        object["metadata"]["annotations"][name] = value.into();
    });
}

/// Asks for a comparison with everything.
pub fn resync(world: &mut World) {
    for index in 0..CONFIGS.len() {
        let value = world.api.version.to_string();
        annotate(world, &config_id(index), RESYNC_ANNOTATION, &value);
    }
}

/// Remembers where more happens than creations: only there are writes beyond the first to be expected.
pub fn disturb(world: &mut World, action: &Action) {
    match action {
        Action::CreateAddress { .. } | Action::CreateSpace(_) | Action::Send(..) | Action::Drain(..) => {}
        Action::BrokerRestart { .. } | Action::BrokerHang { .. } | Action::BreakConnections(_) => {}
        Action::CutWatches | Action::Compact | Action::StallWatches { .. } => {}
        Action::Quiet | Action::Snapshot | Action::Resync | Action::Prune => {}
        Action::RouterRestart { .. } | Action::RouterHang { .. } | Action::RouterSlow { .. } | Action::RouterCut(_) => {
        }
        Action::Drift { .. } | Action::ConfigRouters(_) | Action::Endpoints(..) | Action::ServiceByHand { .. } => {}
        Action::DeleteFarSecret(_) | Action::CreateFarSecret(_) | Action::RotateFarSecret { .. } => {}
        Action::FarLearns | Action::FarDown { .. } | Action::FarUp | Action::FarLacks { .. } => {}
        Action::StripAddress(_)
        | Action::StripSpace(_)
        | Action::Crash { .. }
        | Action::CrashAfter { .. }
        | Action::Stop { .. }
        | Action::Restore
        | Action::Measure(_) => {
            world.accountable = false;
        }
        _ => world.disturb(""),
    }
}

/// Every action that is over at once.
pub fn act(story: &mut Story, action: &Action) {
    let shared = Shared::clone(&story.world);
    let mut world = lock(&shared);
    let world = &mut *world;
    match action {
        Action::CreateAddress { .. } => create_address(world, action),
        Action::ChangeTtl(name, hours) => change_stored(world, *name, |spec| {
            spec["messageTtl"] = json!({ "maximum": format!("{hours}h") });
        }),
        Action::ChangeDeadLetter(name, dead) => change_stored(world, *name, |spec| match dead {
            Some(dead) => spec["deadLetterAddress"] = (*dead).into(),
            None => {
                spec.as_object_mut().unwrap().remove("deadLetterAddress");
            }
        }),
        Action::ChangeConsumers(name, count) => {
            change_of_type(world, *name, &["subscription"], |spec| {
                spec["subscription"] = json!({ "maxConsumers": count });
            });
        }
        Action::ChangeDeletionPolicy(name, when_empty) => {
            let policy = if *when_empty { "WhenEmpty" } else { "Delete" };
            change_of_type(world, *name, &["queue", "topic", "subscription", "deadLetter"], |spec| {
                spec["deletionPolicy"] = policy.into();
            });
        }
        Action::DeleteAddress(name) => world.delete(&address_id(*name)),
        Action::StripAddress(name) => world.strip(&address_id(*name)),
        Action::ForceAddress(name) => {
            if let Some(address) = world.api.get(&address_id(*name)) {
                let slot = world.slot(address);
                world.forced.insert(slot);
                annotate(world, &address_id(*name), FORCE_DELETE_ANNOTATION, "true");
            }
        }
        Action::SpoilAddress(name, spoilt) => change_stored(world, *name, |spec| {
            if *spoilt {
                spec["maxSizeBytes"] = "many".into();
            } else {
                spec.as_object_mut().unwrap().remove("maxSizeBytes");
            }
        }),
        Action::CreateSpace(name) => {
            let config = CONFIGS[usize::from(*name == OTHER_SPACE)];
            let brokered = world.routers.is_empty() || (world.mixed && *name == MIXED_SPACE);
            let spec = json!({
                "type": if brokered { "brokered" } else { "standard" }, "routerConfigRef": { "name": config.1, "namespace": config.0 },
            });
            let mut spec = spec;
            if let Some(plan) = world.space_plan(*name) {
                spec["plan"] = plan.into();
            }
            world.create(&space_id(*name), &json!({ "spec": spec }));
        }
        Action::DeleteSpace(name) => world.delete(&space_id(*name)),
        Action::StripSpace(name) => {
            // Where its Addresses were is known to nobody any more.
            excuse_all(world);
            world.strip(&space_id(*name));
        }
        Action::ForceSpace(name) => {
            let prefix = world.prefix(*name);
            world.forced.insert(prefix);
            annotate(world, &space_id(*name), FORCE_DELETE_ANNOTATION, "true");
        }
        Action::CreateNamespace(name) => {
            world.create(&Id::new(Plural::Namespaces, "", name), &json!({}));
        }
        Action::DeleteNamespace(name) => delete_namespace(&shared, world, name),
        Action::CreateConfig => {
            create_config(world, 0);
        }
        Action::DeleteConfig => world.delete(&config_id(0)),
        Action::ConfigTtl(hours) => {
            change_defaults(world, "messageTtl", hours.map(|h| json!({ "maximum": format!("{h}h") })))
        }
        Action::ConfigDeadLetter(on) => change_defaults(world, "deadLetterAddress", on.then(|| "dead".into())),
        Action::ConfigBrokers(count) => {
            // A broker that is taken out is let go of, with all that it holds.
            excuse_all(world);
            world.settled.clear();
            world.calm_routers = false;
            let left: Vec<String> = world
                .brokers
                .values()
                .flat_map(|broker| broker.core.addresses().map(|(name, _)| name.to_owned()))
                .collect();
            world.excused.extend(left);
            let there = world.brokers.len();
            world.change(&config_id(0), |config| {
                config["spec"]["messaging"]["brokers"]["external"]["hosts"] = hosts((*count).min(there));
            });
        }
        Action::ConfigRouters(count) => {
            world.calm_routers = false;
            let count = (*count).min(world.routers.len());
            if world.followed {
                slices::put(world, count);
            } else {
                world.change(&config_id(0), |config| {
                    config["spec"]["messaging"]["routers"]["external"]["hosts"] = router_hosts(count);
                });
            }
        }
        Action::ConfigAllowed(all) => {
            let from = if *all { "All" } else { "Same" };
            world.change(&config_id(0), |config| config["spec"]["allowedNamespaces"] = json!({ "from": from }));
        }
        Action::Resync => {
            let value = world.api.version.to_string();
            annotate(world, &config_id(0), RESYNC_ANNOTATION, &value);
        }
        Action::Prune => {
            world.pruned = true;
            let value = world.api.version.to_string();
            annotate(world, &config_id(0), PRUNE_ORPHANS_ANNOTATION, &value);
        }
        Action::RotateSecret => {
            if has_secret(world) {
                story.passwords = (story.passwords + 1) % 10;
                let password = format!("p{}", story.passwords);
                for broker in world.brokers.values_mut() {
                    broker.passwords.insert(password.clone());
                }
                for router in world.routers.values_mut() {
                    router.passwords.insert(password.clone());
                }
                put_secret(world, story.passwords);
            }
        }
        Action::DeleteSecret => world.delete(&Id::new(Plural::Secrets, SECRET.0, SECRET.1)),
        Action::CreateSecret => {
            if has_secret(world) {
                put_secret(world, story.passwords);
            }
        }
        Action::ApiOutage(ms) => {
            // Whose answer does not come must write again what may be there already.
            (world.remotes.unsteady, world.accountable) = (true, false);
            world.api_down_until = Instant::now() + millis(*ms);
        }
        Action::CutWatches => {
            world.cuts += 1;
            world.api.wake_all();
        }
        Action::Compact => world.api.compact(),
        Action::StallWatches { replica, ms } => {
            world.stalls.insert(*replica, Instant::now() + millis(*ms));
            world.trouble(ms / 1_000 + 2);
        }
        Action::Snapshot => story.snapshot = Some(world.api.snapshot()),
        Action::ChangePlan(..)
        | Action::ChangeSpacePlan(..)
        | Action::ConfigPlans { .. }
        | Action::DrainBroker { .. } => {
            terms::act(world, action);
        }
        Action::Endpoints(..) | Action::ServiceByHand { .. } => services::act(world, action),
        Action::Connect(..)
        | Action::Disconnect(..)
        | Action::Forward(..)
        | Action::ConfigConnectors(_)
        | Action::RotateFarSecret { .. }
        | Action::DeleteFarSecret(_)
        | Action::CreateFarSecret(_)
        | Action::FarLearns
        | Action::FarDown { .. }
        | Action::FarUp
        | Action::FarLacks { .. } => remotes::act(&shared, world, action),
        action => hands::act(story, world, action),
    }
}

fn create_address(world: &mut World, action: &Action) {
    let Action::CreateAddress { name, space, address, kind, topic, dead, expiry, when_empty, plan, forwards } = action
    else {
        return;
    };
    let mut spec = json!({ "addressSpace": space, "address": address, "type": kind, "deletionPolicy": "Delete" });
    let optional = [("topic", topic), ("deadLetterAddress", dead), ("expiryAddress", expiry), ("plan", plan)];
    for (field, value) in optional {
        if let Some(value) = value {
            spec[field] = (*value).into();
        }
    }
    if *forwards > 0 && world.remotes.on {
        spec["forwarders"] = remotes::forwarders(kind, *forwards);
    }
    if *when_empty {
        spec["deletionPolicy"] = "WhenEmpty".into();
    }
    world.create(&address_id(*name), &json!({ "spec": spec }));
}

fn change_of_type(world: &mut World, name: Name, kinds: &[&str], change: impl FnOnce(&mut Value)) {
    let id = address_id(name);
    let kind = world.api.get(&id).and_then(|address| address["spec"]["type"].as_str());
    if kind.is_some_and(|kind| kinds.contains(&kind)) {
        world.change(&id, |address| change(&mut address["spec"]));
        world.retomb(&id);
    }
}

fn change_stored(world: &mut World, name: Name, change: impl FnOnce(&mut Value)) {
    change_of_type(world, name, &["queue", "topic"], change);
}

fn change_defaults(world: &mut World, field: &str, value: Option<Value>) {
    world.change(&config_id(0), |config| {
        let messaging = &mut config["spec"]["messaging"];
        if messaging.get("defaults").is_none() {
            messaging["defaults"] = json!({});
        }
        match value {
            Some(value) => messaging["defaults"][field] = value,
            None => {
                messaging["defaults"].as_object_mut().unwrap().remove(field);
            }
        }
    });
}

/// A namespace goes with all that is in it, in any order.
fn delete_namespace(shared: &Shared, world: &mut World, name: &'static str) {
    let id = Id::new(Plural::Namespaces, "", name);
    let Some(namespace) = world.api.get(&id).filter(|namespace| !deleting(namespace)) else { return };
    let uid = crate::api::store::uid(namespace).to_owned();
    world.change(&id, |namespace| {
        namespace["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z".into();
        namespace["metadata"]["finalizers"] = json!(["kubernetes"]);
    });
    let shared = Shared::clone(shared);
    tokio::spawn(async move {
        loop {
            let wait = {
                let mut world = lock(&shared);
                let same = |n: &std::sync::Arc<Value>| crate::api::store::uid(n) == uid;
                if !world.api.get(&id).is_some_and(same) {
                    return;
                }
                let all: Vec<Id> = world.api.objects.keys().filter(|other| other.namespace == name).cloned().collect();
                if all.is_empty() {
                    world.change(&id, |namespace| namespace["metadata"]["finalizers"] = json!([]));
                    return;
                }
                let to_go: Vec<Id> =
                    all.into_iter().filter(|id| world.api.get(id).is_some_and(|object| !deleting(object))).collect();
                if to_go.is_empty() {
                    2_000
                } else {
                    let chosen = world.random.within(0..to_go.len() as u64) as usize;
                    world.delete(&to_go[chosen]);
                    world.random.within(1..40)
                }
            };
            sleep(millis(wait)).await;
        }
    });
}
