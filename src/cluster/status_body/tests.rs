//! What is written and read back is what was decided.

use super::*;
use crate::messaging::reason;
use crate::messaging::remote::Row;

fn condition(status: bool, reason: &'static str) -> Option<Condition> {
    Some(Condition { status, reason, message: "why".into(), generation: 7, since_s: 1_700_000_000 })
}

fn through_the_api<T: serde::de::DeserializeOwned>(status: Status) -> T {
    serde_json::from_value(body(&status, 7).unwrap()).unwrap()
}

#[test]
fn every_status_comes_back_as_it_was_decided() {
    for full in [true, false] {
        let config = RouterConfigStatus {
            accepted: condition(true, reason::ACCEPTED),
            ready: condition(false, reason::BROKER_UNREACHABLE),
            owner: Some("o".into()),
            brokers: vec![TargetStatus {
                name: "b".into(),
                state: TargetState::Unreachable,
                message: "refused".into(),
                since_s: 1_700_000_001,
            }],
            routers: vec![TargetStatus {
                name: "r".into(),
                state: TargetState::Serving,
                message: "".into(),
                since_s: 1_700_000_002,
            }],
            orphans: 3,
            orphans_pruned: Some("1".into()),
            resynced: None,
        };
        let config = if full { config } else { RouterConfigStatus::default() };
        let read = through_the_api(Status::RouterConfig(Arc::new(config.clone())));
        assert_eq!(read_router_config(&read), config);

        let remote = |name: &str, several: bool| Row {
            name: name.into(),
            ready: several,
            reason: if several { reason::CONNECTED } else { reason::NOT_CONNECTED },
            message: if several { "".into() } else { "router r: refused".into() },
            host: several.then(|| "eu.example:5671".into()),
        };
        let space = AddressSpaceStatus {
            accepted: condition(true, reason::ACCEPTED),
            ready: condition(true, reason::SERVING),
            total: 10,
            ready_addresses: 9,
            address_prefix: Some("team.shop/".into()),
            broker: Some("b".into()),
            endpoint: Some(("10.0.0.1".into(), 5672)),
            endpoints: Vec::new(),
            connectors: vec![remote("eu", true), remote("us", false)],
        };
        let space = if full { space } else { AddressSpaceStatus::default() };
        let read = through_the_api(Status::AddressSpace(Arc::new(space.clone())));
        assert_eq!(read_address_space(&read), space);

        let row = |name: &str, full: bool| EndpointStatus {
            name: name.into(),
            at: full.then(|| ("shop-in.team.svc".into(), 5671)),
            ca_certificate: full.then(|| "PEM".into()),
            message: full.then(|| "it leads nowhere".into()),
        };
        let endpoints = vec![row("in", true), row("out", false)];
        let standard = AddressSpaceStatus { broker: None, endpoint: None, endpoints, ..space };
        let read = through_the_api(Status::AddressSpace(Arc::new(standard.clone())));
        assert_eq!(read_address_space(&read), standard);

        let address = AddressStatus {
            accepted: condition(true, reason::ACCEPTED),
            ready: condition(true, reason::CONFIGURED),
            address: Some("orders".into()),
            plan: Some("small".into()),
            brokers: vec!["a".into(), "b".into(), "c".into()],
            leaving: vec![("a".into(), Leaving::Migrating), ("c".into(), Leaving::Draining)],
            configured: Some(7),
            ttl: Ttl { minimum_ms: None, maximum_ms: Some(90_061_001) },
            redelivery: Redelivery {
                max_attempts: Some(-1),
                delay_ms: Some(1),
                delay_multiplier: Some(1.1),
                max_delay_ms: None,
            },
            forwarders: vec![Row { host: None, ..remote("there", false) }],
        };
        let address = if full { address } else { AddressStatus::default() };
        let read = through_the_api(Status::Address(Arc::new(address.clone())));
        assert_eq!(read_address(&read), address);
    }
}

#[test]
fn columns_are_filled_and_a_single_tenants_empty_prefix_stays() {
    let space = AddressSpaceStatus {
        total: 10_000,
        ready_addresses: 9_998,
        address_prefix: Some("".into()),
        ..AddressSpaceStatus::default()
    };
    let written = body(&Status::AddressSpace(Arc::new(space.clone())), 1).unwrap();
    assert_eq!(written["summary"], "9998/10000");
    assert_eq!(read_address_space(&serde_json::from_value(written).unwrap()), space);
    let written = body(&Status::RouterConfig(Arc::default()), 1).unwrap();
    assert_eq!((&written["kind"], &written["brokersSummary"]), (&"Messaging".into(), &"0/0".into()));
}

#[test]
fn a_reason_of_another_version_differs_from_all() {
    let mut status = AddressStatus { ready: condition(false, reason::CONFIGURING), ..AddressStatus::default() };
    let mut written = body(&Status::Address(Arc::new(status.clone())), 1).unwrap();
    written["conditions"][0]["reason"] = "Novel".into();
    let read = read_address(&serde_json::from_value(written).unwrap());
    assert_ne!(read, status);
    status.ready = read.ready.clone();
    assert_eq!(status.ready.unwrap().reason, "");
}
