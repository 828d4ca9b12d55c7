//! What people do to routers.

use serde_amqp::Value as Amqp;
use tokio::time::Instant;
use waystation_kit::router_core::{Direction, Request};

use super::{NOT_TODAY, Router, kind, router_host, rows, words};
use crate::broker::millis;
use crate::plan::Action;
use crate::run::Story;
use crate::world::World;

/// The types of what an operator makes on a router.
const KINDS: [&str; 6] =
    ["router.config.address", "router.config.autoLink", "router.config.linkRoute", "connector", "listener", "vhost"];

/// Every action on routers that is over at once.
pub fn act(story: &mut Story, world: &mut World, action: &Action) {
    world.calm_routers &= matches!(action, Action::RelentRoute(..) | Action::UnsquatRoute(..));
    match action {
        Action::RouterHang { router, ms } => {
            if let Some(router) = world.routers.get_mut(&router_host(*router)) {
                router.hangs_until = Instant::now() + millis(*ms);
            }
        }
        Action::RouterSlow { router, by_ms, ms } => {
            if let Some(router) = world.routers.get_mut(&router_host(*router)) {
                router.slow = (millis(*by_ms), Instant::now() + millis(*ms));
            }
        }
        Action::RouterCut(router) => {
            if let Some(router) = world.routers.get_mut(&router_host(*router)) {
                router.lose_all("the connection was reset");
            }
        }
        Action::RefuseRoute(space, address) => {
            let prefix = world.prefix(*space);
            // Without a prefix nearly every name has this in it.
            if !prefix.is_empty() {
                story.refusals = true;
                let part = prefix + address;
                for router in world.routers.values_mut() {
                    router.core.refuse(&part, NOT_TODAY);
                    router.refused.insert(part.clone());
                }
            }
        }
        Action::RelentRoute(space, address) => {
            let part = world.prefix(*space) + address;
            for router in world.routers.values_mut() {
                router.core.relent(&part);
                router.refused.remove(&part);
            }
        }
        Action::SquatRoute(space, address) => {
            story.refusals = true;
            let pattern = world.prefix(*space) + address;
            for router in world.routers.values_mut().filter(|router| router.up) {
                router.squat(&pattern);
            }
        }
        Action::UnsquatRoute(space, address) => {
            let name = squatter(&(world.prefix(*space) + address));
            for router in world.routers.values_mut() {
                if router.squatted.remove(&name) {
                    router.by_hand(&Request::delete(&kind(KINDS[0]), &name));
                }
            }
        }
        Action::Drift { router, pick, change } => {
            if let Some(router) = world.routers.get_mut(&router_host(*router)) {
                story.drifted |= router.drift(*pick, *change);
            }
        }
        other => panic!("{other:?} is nobody's"),
    }
}

fn squatter(pattern: &str) -> String {
    format!("somebody/{pattern}")
}

impl Router {
    fn squat(&mut self, pattern: &str) {
        let name = squatter(pattern);
        let attributes = [("pattern", Amqp::from(pattern)), ("distribution", Amqp::from("closest"))];
        let answer = self.by_hand(&Request::create(&kind(KINDS[0]), Some(&name), &attributes));
        if answer.is_some_and(|answer| answer.succeeded()) {
            self.squatted.insert(name);
        }
    }

    /// Takes an entity of an operator away, or changes it; whether there was any.
    pub fn drift(&mut self, pick: u64, change: bool) -> bool {
        let mut ours = Vec::new();
        for of in KINDS {
            let names = rows(self.core.call(&Request::query(&kind(of), &["name"])));
            let names = names.iter().filter_map(|row| row.first()).map(|name| words(name).to_owned());
            ours.extend(names.filter(|name| name.contains(".waystation-")).map(|name| (of, name)));
        }
        if ours.is_empty() {
            return false;
        }
        let (of, name) = ours.swap_remove(pick as usize % ours.len());
        let changed = match of {
            "router.config.address" => {
                let found = rows(self.core.call(&Request::query(&kind(of), &["name", "pattern"])));
                let pattern = found.into_iter().find(|row| words(&row[0]) == name).map(|row| row[1].clone());
                pattern.map(|pattern| vec![("pattern", pattern), ("distribution", Amqp::from("closest"))])
            }
            "router.config.autoLink" => {
                let link = self.core.auto_links().find(|(_, link)| link.name.as_deref() == Some(&*name));
                link.map(|(_, link)| {
                    let turned = if link.direction == Direction::In { "out" } else { "in" };
                    vec![("address", Amqp::from(link.address.as_str())), ("direction", Amqp::from(turned))]
                })
            }
            _ => None,
        };
        self.by_hand(&Request::delete(&kind(of), &name));
        if let Some(attributes) = changed.filter(|_| change) {
            self.by_hand(&Request::create(&kind(of), Some(&name), &attributes));
        }
        true
    }
}
