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
fn a_connector_logs_in_by_what_it_is_given() {
    let connector = |ssl_profile: Option<&str>| {
        Entity::Connector(Connector {
            broker: "b".into(),
            host: "h".into(),
            port: 5671,
            ssl_profile: ssl_profile.map(Into::into),
            credentials: None,
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
