//! What other front ends will claim: conditions on requests, and several targets by weight.

use std::sync::Arc;

use super::support::*;
use crate::edge::ids::{Kind, Object};
use crate::edge::input::Port;
use crate::edge::model::unit::Unit;
use crate::edge::model::{Model, Reason};
use crate::edge::options::Options;
use crate::edge::route::{BackendId, Claim, Condition, PathKind, Rank, RouteKey, Target};
use crate::edge::wanted::{MapName, Slot, Value};

fn target(service: &str, weight: u32) -> Target {
    Target { backend: BackendId { service: key(service), port: Port::Number(80), tcp: false }.into(), weight }
}

fn claim(model: &mut Model, name: &str, created_s: i64, conditions: Vec<Condition>, targets: Vec<Target>) {
    let route = Arc::new(RouteKey { host: "h.com".into(), kind: PathKind::Prefix, path: "/".into() });
    let object = Object::new(Kind::Ingress, key(name));
    let rank = Arc::new(Rank { created_s, key: key(name) });
    for target in &targets {
        model.indexes.backends.entry(target.backend.clone()).or_default().insert(rank.clone());
        model.dirty.insert(Unit::Backend(target.backend.clone()));
    }
    let claim =
        Claim { object, conditions, targets, options: Arc::new(Options::default()), canary: false, challenge: false };
    model.indexes.routes.entry(route.clone()).or_default().insert(rank, 0, Arc::new(claim));
    model.dirty.insert(Unit::Route(route));
}

fn text(model: &Model, map: MapName, key: &str) -> Option<String> {
    match model.wanted().get(&Slot::Map(map, key.into())) {
        Some(Value::Text(text)) => Some(text.to_string()),
        _ => None,
    }
}

#[test]
fn what_asks_more_of_a_request_is_tried_first() {
    let mut model = World::plain().model;
    let header = || Condition::Header("x-version".into(), "2".into());
    claim(&mut model, "a/r3", 3, vec![header(), Condition::Method("POST".into())], vec![target("b/web", 1)]);
    claim(&mut model, "a/r2", 2, vec![header()], vec![target("a/api", 1)]);
    claim(&mut model, "a/r4", 4, vec![header()], vec![target("b/web", 1)]);
    model.settle();
    let conditions = "h,x-version,2&m,,POST>b:web:80;h,x-version,2>a:api:80";
    assert_eq!(text(&model, MapName::Choose, "p:h.com/").as_deref(), Some(conditions));
    assert_eq!(text(&model, MapName::Prefix, "h.com/").as_deref(), Some("_404|w|p:h.com/"), "nothing takes the rest");
    let told: Vec<(String, Reason)> = model.problems().map(|p| (p.object.key.to_string(), p.reason)).collect();
    assert_eq!(told, [("a/r4".to_owned(), Reason::RouteConflict)]);
    claim(&mut model, "a/r5", 5, vec![], vec![target("a/web", 1)]);
    model.settle();
    assert_eq!(text(&model, MapName::Prefix, "h.com/").as_deref(), Some("a:web:80|w|p:h.com/"));
}

#[test]
fn several_targets_have_their_shares() {
    let mut model = World::plain().model;
    claim(&mut model, "a/r1", 1, vec![], vec![target("a/web", 3), target("a/api", 1), target("b/web", 0)]);
    model.settle();
    assert_eq!(text(&model, MapName::Choose, "p:h.com/").as_deref(), Some("w,3>a:web:80;w,1>a:api:80"));
}
