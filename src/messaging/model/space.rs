//! AddressSpaces: whether their RouterConfig takes them, and what their status says.

use std::sync::Arc;

use super::services::Said;
use super::state::{Refusal, SpaceState};
use super::verdict::only_held_by;
use super::{Model, Timer};
use crate::messaging::broker::ground;
use crate::messaging::ids::{Key, Kind, TargetId};
use crate::messaging::input::{Allowed, LabelTest, RouterConfig};
use crate::messaging::names;
use crate::messaging::output::{Status, Write};
use crate::messaging::plans::SpacePlan;
use crate::messaging::reason;
use crate::messaging::status::{AddressSpaceStatus, Condition, TargetState};

impl Model {
    /// Decides whether the space is taken and where it is; marks its addresses when that changed.
    pub(super) fn evaluate_space(&mut self, key: &Key) {
        let Some(space) = self.spaces.get(key) else { return };
        let foreign = self.foreign_configs.contains(&space.obj.config);
        let (accept, now_ms) = (self.accept_space(key, space), self.now.mono_ms);
        let config = self.configs.get(&space.obj.config);
        let prefix = config.map(|c| names::prefix(key, c.obj.single));
        let plan = config.and_then(|c| c.space_plan(space.obj.plan.as_ref()?)).cloned();
        let Some(space) = self.spaces.get_mut(key) else { return };
        let changed = space.foreign != foreign || space.accept.as_ref() != Some(&accept);
        space.foreign = foreign;
        space.ever_accepted |= accept.is_ok();
        let lost = matches!(&accept, Err((reason::ROUTER_CONFIG_NOT_FOUND, _)));
        space.unled_ms = lost.then(|| space.unled_ms.unwrap_or(now_ms));
        space.accept = Some(accept);
        let terms = |plan: &Option<SpacePlan>| plan.as_ref().map(|plan| (plan.name.clone(), plan.allowed.clone()));
        let changed = changed || terms(&space.plan) != terms(&plan);
        let other = changed || space.plan != plan;
        space.plan = plan;
        if let Some(prefix) = prefix {
            space.prefix = prefix;
        }
        let moved = self.place(key);
        if changed || moved {
            self.mark_addresses_of(key);
        }
        self.call_the_line(key, other);
        self.hold_remotes(key);
        self.stale_spaces.insert(key.clone());
        let empty = !self.members.contains_key(key) && self.unreadable_address(&key.namespace).is_none();
        if empty && self.spaces.get(key).is_some_and(|s| s.obj.meta.deleting && !s.cleared) {
            let cleared = match self.space_out_of_reach(key) {
                Some(text) => self.leave_space(key, &text),
                None => self.clear_space(key) && self.remotes_gone(key),
            };
            if let Some(space) = self.spaces.get_mut(key) {
                space.cleared = cleared;
            }
        }
    }

    /// What brokers have of a space whose RouterConfig is not there, in words: nobody knows how they are reached.
    pub(super) fn space_out_of_reach(&self, key: &Key) -> Option<String> {
        // Without a prefix nothing is shared.
        let shares = |space: &&SpaceState| space.told.latest().address_prefix.as_ref().is_some_and(|p| !p.is_empty());
        self.spaces.get(key).filter(shares)?;
        let words = self.unled(key)?;
        Some(format!("{words}, and nothing else says how to reach its brokers, which may have settings of this space"))
    }

    /// Whether a space goes though nobody can take away what brokers have of it: somebody said so, or the RouterConfig
    /// cannot come again. Tells of it.
    fn leave_space(&mut self, key: &Key, words: &str) -> bool {
        let Some(space) = self.spaces.get(key) else { return true };
        let leaves = space.obj.meta.force_delete || self.going.contains(&space.obj.config.namespace);
        if leaves {
            let uid = space.obj.meta.uid.clone();
            let text = format!("let go of: {words}: what is there stays there");
            self.event(Kind::AddressSpace, key, &uid, true, reason::event::BROKER_LET_GO, text);
        }
        leaves
    }

    /// Takes away what a space shared on its broker; whether there is nothing left to wait for.
    pub(super) fn clear_space(&mut self, key: &Key) -> bool {
        if self.spaces.get(key).is_none_or(|s| s.foreign || s.prefix.is_empty()) {
            return true;
        }
        let slot = ground(&names::prefix(key, false));
        let Some(space) = self.spaces.get(key) else { return true };
        let ids: Vec<TargetId> = if space.obj.standard {
            let config = space.obj.config.clone();
            let brokers = self.configs.get(&config).into_iter().flat_map(|c| c.targets.keys());
            let left = brokers.filter(|name| !space.cleared_on.contains(*name));
            left.map(|name| TargetId::broker(config.clone(), name.clone())).collect()
        } else {
            self.target_of_space(key).into_iter().collect()
        };
        let mut cleared = true;
        for id in &ids {
            // Every one of them is told, whatever another says.
            cleared &= self.clear_ground(id, &slot, key);
        }
        cleared
    }

    /// An Address of the namespace that is there and cannot be read: it may belong to any space of it.
    pub(super) fn unreadable_address(&self, namespace: &Arc<str>) -> Option<&Key> {
        let first = (Kind::Address, Key { namespace: namespace.clone(), name: "".into() });
        let next = self.undecodable.range(first..).next();
        next.filter(|(kind, key)| *kind == Kind::Address && key.namespace == *namespace).map(|(_, key)| key)
    }

    fn accept_space(&self, key: &Key, space: &SpaceState) -> Result<(), Refusal> {
        let refuse = |reason, message: String| Err((reason, message.into()));
        let name = &space.obj.config;
        let Some(config) = self.configs.get(name) else {
            return refuse(
                reason::ROUTER_CONFIG_NOT_FOUND,
                match self.undecodable.contains(&(Kind::RouterConfig, name.clone())) {
                    false => {
                        format!("spec.routerConfigRef names {name}, which does not exist: create that RouterConfig")
                    }
                    true => {
                        format!("spec.routerConfigRef names {name}, which cannot be read: correct that RouterConfig")
                    }
                },
            );
        };
        if config.obj.meta.deleting && !space.ever_accepted {
            return refuse(
                reason::ROUTER_CONFIG_TERMINATING,
                format!("spec.routerConfigRef names {name}, which is being deleted: use another RouterConfig"),
            );
        }
        if !self.allows(&config.obj, &key.namespace) {
            return refuse(
                reason::NAMESPACE_NOT_ALLOWED,
                format!(
                    "RouterConfig {name} does not take spaces of namespace {}: its allowedNamespaces must be widened",
                    key.namespace
                ),
            );
        }
        if space.obj.standard && !config.obj.has_routers() {
            return refuse(
                reason::NO_ROUTERS,
                format!(
                    "spec.type is standard, and RouterConfig {name} has no routers: add spec.messaging.routers to it, \
                     or make the space of type brokered"
                ),
            );
        }
        match (&space.obj.plan, config.obj.space_plans.is_empty()) {
            (None, true) => {}
            (Some(plan), true) => {
                return refuse(
                    reason::PLAN_NOT_FOUND,
                    format!(
                        "spec.plan names {plan}, and RouterConfig {name} has no spacePlans: remove spec.plan, or have \
                         the plan added there"
                    ),
                );
            }
            (plan, false) => {
                if plan.as_ref().and_then(|plan| config.space_plan(plan)).is_none() {
                    let what = match plan {
                        Some(plan) => format!("spec.plan names {plan}, which RouterConfig {name} does not have"),
                        None => format!("spec.plan is missing, and RouterConfig {name} has spacePlans"),
                    };
                    let all: Vec<&str> = config.obj.space_plans.iter().map(|plan| &*plan.name).collect();
                    return refuse(reason::PLAN_NOT_FOUND, format!("{what}: name one of {}", all.join(", ")));
                }
            }
        }
        if config.obj.single
            && let Some(winner) = self.single_winner(name)
            && winner != *key
        {
            return refuse(
                reason::TENANCY_SINGLE,
                format!(
                    "RouterConfig {name} has tenancy Single and serves AddressSpace {winner}: use another RouterConfig"
                ),
            );
        }
        Ok(())
    }

    /// The one space of a RouterConfig with tenancy Single: the accepted one, then the oldest, then by name.
    pub(super) fn single_winner(&self, config: &Key) -> Option<Key> {
        let spaces = self.spaces_of_config.get(config)?;
        let rank = |key: &&Key| {
            let space = self.spaces.get(*key);
            (space.is_none_or(|s| !s.ever_accepted), space.map_or(i64::MAX, |s| s.obj.meta.created_s), (*key).clone())
        };
        spaces.iter().min_by_key(rank).cloned()
    }

    fn allows(&self, config: &RouterConfig, namespace: &Arc<str>) -> bool {
        match &config.allowed {
            Allowed::Same => config.meta.key.namespace == *namespace,
            Allowed::All => true,
            Allowed::Selector(requirements) => {
                let Some(labels) = self.labels.get(namespace) else { return false };
                requirements.iter().all(|r| {
                    let value = labels.get(&*r.key);
                    match &r.test {
                        LabelTest::In(values) => value.is_some_and(|v| values.iter().any(|w| **w == **v)),
                        LabelTest::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| **w != **v)),
                        LabelTest::Exists => value.is_some(),
                        LabelTest::DoesNotExist => value.is_none(),
                    }
                })
            }
        }
    }

    /// The broker that serves a space, if it is placed and its RouterConfig still has that broker.
    pub(super) fn target_of_space(&self, key: &Key) -> Option<TargetId> {
        let space = self.spaces.get(key)?;
        let id = TargetId::broker(space.obj.config.clone(), space.broker.clone()?);
        self.target(&id).is_some().then_some(id)
    }

    /// Says what the space's status must be now, and writes it if that is new.
    pub(super) fn verdict_space(&mut self, key: &Key) {
        let Some(space) = self.spaces.get(key).filter(|s| !s.foreign) else { return };
        let now = self.now;
        let total = self.members.get(key).map_or(0, |m| m.all.len() as i64);
        let ready = self.members.get(key).map_or(0, |m| m.ready);
        let done = space.obj.meta.deleting && total == 0 && space.cleared;
        let told = space.told.latest();
        let (mut wanted, mut wake) = (told.clone(), None);
        let mut moved_ms = None;
        let mut rows_move = false;
        let others = space.obj.meta.others.as_ref().filter(|_| done || !space.told.latest_finalizer());
        if let Some(others) = others.filter(|_| space.obj.meta.deleting) {
            (wanted.total, wanted.ready_addresses) = (total, ready);
            let since_s = told.ready.as_ref().filter(|c| !c.status).map_or(now.unix_s, |c| c.since_s);
            let generation = space.obj.meta.generation;
            let (reason, message) = (reason::TERMINATING, only_held_by(others));
            wanted.ready = Some(Condition { status: false, reason, message, generation, since_s });
        } else if !done {
            (wanted, wake) = self.space_status(space, total);
            let (rows, later) = self.connector_rows(space);
            wake = wake.into_iter().chain(later).min();
            rows_move = rows != told.connectors;
            if rows_move {
                // A remote host that comes and goes is told of now and then.
                let due = space.rows_ms.map_or(0, |at| at + self.timing.rows_ms);
                if wanted == *told && due > now.mono_ms {
                    wake = wake.into_iter().chain([due]).min();
                    rows_move = false;
                } else {
                    wanted.connectors = rows;
                }
            }
            let counts = (total, ready);
            if counts != (told.total, told.ready_addresses) {
                // Counts move with every address: they wait for their turn, unless something else is said anyway.
                let since = *moved_ms.insert(space.moved_ms.unwrap_or(now.mono_ms));
                let turn = space.written_ms.map_or(0, |at| at + self.timing.counts_ms);
                let due = turn.max(since + self.timing.counts_wait_ms);
                let alone =
                    AddressSpaceStatus { total: told.total, ready_addresses: told.ready_addresses, ..wanted.clone() }
                        == *told;
                if alone && due > now.mono_ms {
                    wake = wake.into_iter().chain([due]).min();
                } else {
                    (wanted.total, wanted.ready_addresses) = counts;
                    moved_ms = None;
                }
            }
        }
        let (uid, generation) = (space.obj.meta.uid.clone(), space.obj.meta.generation);
        let finalizer = !done && (!space.obj.meta.deleting || space.told.latest_finalizer());
        if let Some(at) = wake {
            self.wake_at(at, Timer::Space(key.clone()));
        }
        let Some(space) = self.spaces.get_mut(key) else { return };
        space.moved_ms = moved_ms;
        if let Some((status, change)) = space.told.plan(wanted, finalizer, &mut self.seq) {
            if status.is_some() {
                space.written_ms = Some(now.mono_ms);
            }
            if rows_move {
                space.rows_ms = Some(now.mono_ms);
            }
            self.out.writes.push(Write {
                kind: Kind::AddressSpace,
                key: key.clone(),
                uid,
                generation,
                tenant: key.clone(),
                low: false,
                seq: self.seq,
                status: status.map(Status::AddressSpace),
                finalizer: change,
            });
        }
    }

    /// The status but for its counts, and when it may change by itself.
    fn space_status(&self, space: &SpaceState, total: i64) -> (AddressSpaceStatus, Option<u64>) {
        let told = space.told.latest();
        let meta = &space.obj.meta;
        let (now, mut wake) = (self.now, None);
        let mut wanted = told.clone();
        let condition = |before: &Option<Condition>, status, reason, message: Arc<str>| {
            let since_s = before.as_ref().filter(|c| c.status == status).map_or(now.unix_s, |c| c.since_s);
            Some(Condition { status, reason, message, generation: meta.generation, since_s })
        };
        if let Some(config) = self.configs.get(&space.obj.config)
            && (space.ever_accepted || matches!(space.accept, Some(Ok(()))))
        {
            wanted.address_prefix = Some(space.prefix.clone());
            wanted.broker = space.broker.clone();
            let broker = space.broker.as_ref().and_then(|name| config.targets.get(name));
            wanted.endpoint = broker.map(|t| (t.broker.host.clone(), t.broker.port));
        }
        wanted.endpoints = self.endpoint_rows(space);
        let mut refused: Option<&Refusal> = None;
        match &space.accept {
            Some(Err(refusal)) => {
                // What it names may be on its way: a second of patience before the first word.
                let missing = refusal.0 == reason::ROUTER_CONFIG_NOT_FOUND && told.accepted.is_none();
                let due = meta_due(space.since_ms, self.timing.configuring_ms);
                if missing && due > now.mono_ms {
                    return (told.clone(), Some(due));
                }
                wanted.accepted = condition(&told.accepted, false, refusal.0, refusal.1.clone());
                refused = Some(refusal);
            }
            _ => {
                let message = self.overdrawn(&meta.key).unwrap_or_default().into();
                wanted.accepted = condition(&told.accepted, true, reason::ACCEPTED, message);
            }
        }
        if meta.deleting {
            let due = meta_due(space.since_ms, self.timing.configuring_ms);
            if due > now.mono_ms {
                return (told.clone(), Some(due));
            }
            let message = format!(
                "waits for {2}; delete them with: kubectl get addr -n {0} -o name \
                 --field-selector spec.addressSpace={1} | xargs kubectl delete -n {0}",
                meta.key.namespace,
                meta.key.name,
                counted(total, "Address", "Addresses")
            );
            let message = match self.unreadable_address(&meta.key.namespace) {
                _ if total > 0 => message,
                Some(address) => format!(
                    "waits for Address {}, which cannot be read and may be in this space: correct it, or delete it",
                    address.name
                ),
                None => self.space_out_of_reach(&meta.key).map_or(message, |text| {
                    format!(
                        "{text}, which must be removed first: create that RouterConfig again; or let go of it: kubectl \
                         annotate aspace -n {} {} waystation.dev/force-delete=true",
                        meta.key.namespace, meta.key.name
                    )
                }),
            };
            // The count moves: it is told as often as the counts are.
            let due = space.written_ms.map_or(0, |at| at + self.timing.counts_ms);
            if told.ready.as_ref().is_some_and(|c| c.reason == reason::TERMINATING) && due > now.mono_ms {
                wake = Some(due);
            } else {
                wanted.ready = condition(&told.ready, false, reason::TERMINATING, message.into());
            }
            return (wanted, wake);
        }
        if let Some((reason, message)) = refused {
            let keeps = space.ever_accepted && (space.obj.standard || self.target_of_space(&meta.key).is_some());
            let message = if keeps {
                format!("{message}; what was accepted before keeps working").into()
            } else {
                message.clone()
            };
            wanted.ready = condition(&told.ready, false, reason, message);
            return (wanted, None);
        }
        if space.obj.standard {
            if let Some((status, reason, message)) = self.standard_ready(space) {
                wanted.ready = condition(&told.ready, status, reason, message.into());
            } else if told.accepted.is_none() {
                return (told.clone(), None);
            }
            return (wanted, wake);
        }
        let target = self.target_of_space(&meta.key).and_then(|id| self.target(&id).map(|t| (id, t)));
        match target {
            None => {
                let due = meta_due(space.since_ms, self.timing.configuring_ms);
                if due > now.mono_ms {
                    return (told.clone(), Some(due));
                }
                let message = "no broker could be chosen yet: see the RouterConfig's brokers";
                wanted.ready = condition(&told.ready, false, reason::WAITING_FOR_BROKER, message.into());
            }
            Some((id, target)) => match target.line.shown {
                None if told.accepted.is_none() => return (told.clone(), None),
                None => {}
                Some(TargetState::Serving) => {
                    wanted.ready = condition(&told.ready, true, reason::SERVING, "".into());
                }
                Some(TargetState::Unreachable) => {
                    let message = format!("broker {} does not answer; {}", id.name, on_it(total));
                    let same = told.ready.as_ref().is_some_and(|c| c.reason == reason::BROKER_UNREACHABLE);
                    if !same {
                        wanted.ready = condition(&told.ready, false, reason::BROKER_UNREACHABLE, message.into());
                    }
                }
                Some(TargetState::Filling) => {
                    let message = format!("broker {} is being compared and completed", id.name);
                    wanted.ready = condition(&told.ready, false, reason::FILLING, message.into());
                }
                Some(TargetState::Connecting) => {
                    let message = format!("broker {} is being connected", id.name);
                    wanted.ready = condition(&told.ready, false, reason::CONNECTING, message.into());
                }
            },
        }
        (wanted, wake)
    }
}

impl Model {
    /// `Ready` of a standard space: one router that serves is enough, and brokers that are down are named with the
    /// count of Addresses on them. None while no router's state is known.
    fn standard_ready(&self, space: &SpaceState) -> Option<(bool, &'static str, String)> {
        let config = self.configs.get(&space.obj.config)?;
        let routers = &config.routers.targets;
        let on = self.members.get(&space.obj.meta.key).map(|m| &m.on);
        let down = config.targets.iter().filter(|(_, t)| t.line.shown == Some(TargetState::Unreachable));
        let down = down.filter_map(|(name, _)| Some((name, on?.get(name)?)));
        let down: Vec<String> =
            down.map(|(name, count)| format!("broker {name} does not answer; {}", on_it(*count))).collect();
        if routers.values().any(|r| r.line.shown == Some(TargetState::Serving)) {
            return Some((true, reason::SERVING, down.join("; ")));
        }
        if routers.is_empty() {
            return match self.said_of_routers(config) {
                Said::Trouble((_, words)) => Some((false, reason::NO_ROUTER_SERVING, words.to_string())),
                Said::Fine | Said::Unknown => None,
            };
        }
        let shown: Option<Vec<(&Arc<str>, TargetState)>> =
            routers.iter().map(|(name, r)| Some((name, r.line.shown?))).collect();
        let states: Vec<String> =
            shown?.into_iter().map(|(name, state)| format!("router {name} is {}", state.as_str())).collect();
        let all: Vec<String> = states.into_iter().chain(down).collect();
        Some((false, reason::NO_ROUTER_SERVING, all.join("; ")))
    }
}

/// A number of things.
pub(super) fn counted(count: i64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn on_it(addresses: i64) -> String {
    format!("{} on it", if addresses == 1 { "1 Address is".to_owned() } else { format!("{addresses} Addresses are") })
}

fn meta_due(since_ms: u64, patience_ms: u64) -> u64 {
    since_ms + patience_ms
}
