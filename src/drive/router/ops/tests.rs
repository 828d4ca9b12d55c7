//! Requests and what comes back, without a router.

use super::*;

const SLOT: &str = "tenant.space/orders";

fn attributes(entity: &Entity, credentials: &Credentials) -> Map<String, Value> {
    match create(&Names::new("o"), SLOT, entity, credentials).operation {
        Operation::Create(_, attributes) => attributes,
        other => panic!("{}", matches!(other, Operation::Read(_))),
    }
}

fn all() -> Vec<Entity> {
    let link = |direction, external: Option<&str>| {
        Entity::AutoLink(AutoLink { direction, broker: "b.c".into(), external: external.map(Into::into) })
    };
    vec![
        Entity::Address { distribution: Distribution::Balanced, waypoint: true },
        Entity::Address { distribution: Distribution::Multicast, waypoint: false },
        link(Direction::In, None),
        link(Direction::Out, Some("orders::orders")),
        Entity::LinkRoute { direction: Direction::In, broker: "b.c".into() },
        Entity::LinkRoute { direction: Direction::Out, broker: "b.c".into() },
    ]
}

#[test]
fn what_is_made_is_seen_as_what_it_is() {
    let names = Names::new("o");
    for entity in all() {
        let attributes = attributes(&entity, &None);
        let name = names.name(SLOT, &entity);
        let shown = |name: &str| {
            shown(&names, type_of(&entity), |attribute| match attribute {
                "name" => Some(name.into()),
                attribute => attributes.get(attribute).cloned(),
            })
        };
        assert_eq!(shown(&name), Some((name.clone(), Shown::Known(SLOT.into(), entity.clone()))));
        let old = format!("{}x", name);
        assert_eq!(shown(&old), Some((old.clone(), Shown::Stray(SLOT.into()))));
        assert_eq!(shown("made-by-hand"), None);
    }
}

#[test]
fn a_prefix_is_never_given_and_waypoint_only_where_it_is_meant() {
    for entity in all() {
        let attributes = attributes(&entity, &None);
        assert!(!attributes.contains_key("prefix") && !attributes.contains_key("containerId"));
        let waypoint = matches!(entity, Entity::Address { waypoint: true, .. });
        assert_eq!(attributes.contains_key("waypoint"), waypoint);
    }
}

#[test]
fn another_distribution_or_connection_is_not_taken_for_ours() {
    let names = Names::new("o");
    let address = Entity::Address { distribution: Distribution::Balanced, waypoint: true };
    let name = names.name(SLOT, &address);
    for word in ["closest", "unavailable"] {
        let shown = shown(&names, Type::Address, |attribute| match attribute {
            "name" => Some(name.clone().into()),
            "pattern" => Some(SLOT.into()),
            "distribution" => Some(word.into()),
            _ => None,
        });
        assert_eq!(shown, Some((name.clone(), Shown::Stray(SLOT.into()))));
    }
    // With our mark, and nothing that tells what it belongs to.
    let shown = shown(&names, Type::Address, |attribute| (attribute == "name").then(|| name.clone().into()));
    assert_eq!(shown, Some((name.clone(), Shown::Stray(format!("#stray/{name}").into()))));
}

#[test]
fn what_belongs_to_a_remote_host_is_seen_as_what_it_is() {
    let names = Names::new("o");
    let id = crate::messaging::remote::connection(&crate::messaging::ids::Key::new("tenant", "space"), "eu");
    let link = |direction, broker: &Arc<str>, external: &str| {
        Entity::AutoLink(AutoLink { direction, broker: broker.clone(), external: Some(external.into()) })
    };
    let via = Entity::Via {
        direction: Direction::Out,
        connection: id.clone(),
        pattern: "tenant.space/eu/#".into(),
        strip: "tenant.space/eu/".into(),
    };
    let connector = Entity::Connector(Connector {
        broker: id.clone(),
        host: "eu.example".into(),
        port: 5671,
        ssl_profile: Some("web".into()),
        credentials: None,
        relogin: false,
        remote: Some(Remote { idle_s: 30, max_frame: 512 }),
    });
    let tap = crate::messaging::remote::tap_slot(&id, "far", "tenant.space/t::tenant.space/s");
    let forward = |direction| forward_slot(direction, &id, "far/away", SLOT);
    let all: Vec<(Slot, Entity, &str, Option<u64>)> = vec![
        (connector_slot(&id), via, "pattern", None),
        (connector_slot(&id), connector, "policyVhost", None),
        (fence_slot(), Entity::Fence, "groups", None),
        (forward(Direction::Out), link(Direction::Out, &id, "far/away"), "address", Some(1)),
        (forward(Direction::In), link(Direction::In, &id, "far/away"), "address", Some(0)),
        (tap.clone(), link(Direction::In, &"b".into(), "tenant.space/t::tenant.space/s"), "address", Some(0)),
        (tap, link(Direction::Out, &id, "far"), "address", None),
    ];
    for (slot, entity, essential, phase) in all {
        let request = create(&names, &slot, &entity, &None);
        let Operation::Create(name, attributes) = request.operation else { panic!("{entity:?}") };
        assert_eq!(attributes.get("phase").and_then(Value::as_u64), phase, "{entity:?}");
        let shown = |essence: Option<Value>| {
            shown(&names, type_of(&entity), |attribute| match attribute {
                "name" => Some(name.clone().into()),
                attribute if attribute == essential => essence.clone(),
                attribute => attributes.get(attribute).cloned(),
            })
        };
        let right = shown(attributes.get(essential).cloned());
        assert_eq!(right, Some((name.clone(), Shown::Known(slot, entity.clone()))));
        // A policy that lets in more, or none at all, is not what was made.
        assert!(matches!(shown(Some("other".into())), Some((_, Shown::Stray(_)))), "{entity:?}");
    }
}

#[test]
fn a_forwarders_link_that_was_changed_by_hand_is_in_the_way_of_that_forwarder() {
    let names = Names::new("o");
    let id = crate::messaging::remote::connection(&crate::messaging::ids::Key::new("tenant", "space"), "eu");
    let link =
        Entity::AutoLink(AutoLink { direction: Direction::Out, broker: id.clone(), external: Some("far".into()) });
    let slot = forward_slot(Direction::Out, &id, "far", SLOT);
    let name = names.name(&slot, &link);
    for (direction, connection) in [("in", None), ("in", Some(names.connector(&id))), ("out", None)] {
        let shown = shown(&names, Type::AutoLink, |attribute| match attribute {
            "name" => Some(name.clone().into()),
            "address" => Some(SLOT.into()),
            "direction" => Some(direction.into()),
            "connection" => connection.clone().map(Value::from),
            _ => None,
        });
        assert_eq!(shown, Some((name.clone(), Shown::Stray(slot.clone()))), "{direction} {connection:?}");
    }
}

#[test]
fn a_connector_logs_in_by_what_it_is_given() {
    let connector = |ssl_profile: Option<&str>| {
        Entity::Connector(Connector {
            broker: "b".into(),
            host: "h".into(),
            port: 5671,
            ssl_profile: ssl_profile.map(Into::into),
            credentials: None,
            relogin: false,
            remote: None,
        })
    };
    let login = Some(("u".to_owned(), Secret::new("p")));
    let plain = attributes(&connector(Some("brokers")), &login);
    assert_eq!((plain["saslMechanisms"].as_str(), plain["saslPassword"].as_str()), (Some("PLAIN"), Some("p")));
    assert_eq!((plain["sslProfile"].as_str(), plain["verifyHostname"].as_bool()), (Some("brokers"), Some(true)));
    assert_eq!((plain["role"].as_str(), plain["idleTimeoutSeconds"].as_u64()), (Some("route-container"), Some(16)));
    assert!(attributes(&connector(Some("brokers")), &None).get("saslMechanisms").is_none());
    assert_eq!(attributes(&connector(None), &None)["saslMechanisms"].as_str(), Some("ANONYMOUS"));
    let shown = format!("{:?}", create(&Names::new("o"), SLOT, &connector(None), &login));
    assert!(shown.starts_with("CREATE connector ") && !shown.contains("\"p\""), "{shown}");
}
