//! `docs/api.md` leaves nothing out: fields, enum values, columns, reasons, annotations, finalizers.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use waystation::api;

/// The words that stand as code, each at least once in `…`.
fn is_told(text: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    text.split('`').skip(1).step_by(2).any(|code| {
        // What parts the word's own parts, such as a slash, is a part of it.
        code.match_indices(word).any(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + word.len()..]);
            !before.ends_with(inner) && !after.starts_with(inner)
        })
    })
}

#[test]
fn a_part_of_a_word_tells_nothing_of_it() {
    let text = "see `maxConsumers`, `a-name` and `waystation.dev/address-space`";
    assert!(is_told(text, "maxConsumers") && is_told(text, "waystation.dev/address-space"));
    for word in ["max", "Consumers", "name", "see", "waystation.dev/address"] {
        assert!(!is_told(text, word), "{word}");
    }
}

/// Names of fields and enum values of a schema that is ours.
fn words(schema: &Value, words: &mut Vec<String>) {
    words.extend(schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        words.push(name.clone());
        // Conditions and label selectors are Kubernetes' own.
        if name != "conditions" && name != "selector" {
            self::words(below, words);
        }
    }
    if schema["items"].is_object() {
        self::words(&schema["items"], words);
    }
}

#[test]
fn api_md_names_everything() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md")).unwrap();
    let mut wanted = Vec::new();
    for crd in api::crds::all().unwrap() {
        let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
        for part in ["spec", "status"] {
            words(&version["schema"]["openAPIV3Schema"]["properties"][part], &mut wanted);
        }
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        wanted.extend(columns.iter().map(|column| column["name"].as_str().unwrap().to_uppercase()));
        wanted.extend(crd.spec.names.short_names.into_iter().flatten());
    }
    wanted.extend(api::AddressReason::ALL.iter().map(ToString::to_string));
    wanted.extend(api::AddressSpaceReason::ALL.iter().map(ToString::to_string));
    wanted.extend(api::RouterConfigReason::ALL.iter().map(ToString::to_string));
    wanted.extend(api::EdgeReason::ALL.iter().map(ToString::to_string));
    wanted.extend(api::ConnectorReason::ALL.iter().map(ToString::to_string));
    wanted.extend(api::ForwarderReason::ALL.iter().map(ToString::to_string));
    wanted.extend(waystation::messaging::reason::event::ALL.iter().map(ToString::to_string));
    for name in [
        api::ADDRESS_FINALIZER,
        api::ADDRESS_SPACE_FINALIZER,
        api::ROUTER_CONFIG_FINALIZER,
        api::FORCE_DELETE_ANNOTATION,
        api::PRUNE_ORPHANS_ANNOTATION,
        api::RESYNC_ANNOTATION,
    ] {
        wanted.push(name.to_owned());
    }
    assert!(wanted.len() > 100, "{wanted:?}");
    let missing: Vec<&String> = wanted.iter().filter(|word| !is_told(&text, word)).collect();
    assert!(missing.is_empty(), "docs/api.md does not tell of {missing:?}");
}

#[test]
fn api_md_tells_of_the_events_that_there_are_and_of_no_others() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md")).unwrap();
    let table = text.split("## Events of messaging").nth(1).unwrap().split("\n## ").next().unwrap();
    let firsts = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let told: BTreeSet<&str> = firsts.flat_map(|cell| cell.split("`, `").map(|name| name.trim_matches('`'))).collect();
    assert_eq!(told, waystation::messaging::reason::event::ALL.iter().copied().collect());
}

#[test]
fn definitions_in_crds_are_what_the_types_say() {
    api::crds::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crds")).unwrap();
}

#[test]
fn the_example_has_an_address_of_every_type_and_decodes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/messaging.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).cloned().collect::<Vec<_>>();
    let addresses: Vec<api::Address> = of("Address").into_iter().map(|o| serde_json::from_value(o).unwrap()).collect();
    let mut types: Vec<&str> = addresses.iter().map(|a| a.spec.type_.as_str()).collect();
    types.sort_unstable();
    assert_eq!(types, ["anycast", "deadLetter", "multicast", "queue", "subscription", "topic"]);
    for address in &addresses {
        for name in
            [&address.spec.dead_letter_address, &address.spec.expiry_address, &address.spec.topic].into_iter().flatten()
        {
            assert!(addresses.iter().any(|a| a.address_in_force() == *name), "nothing has the address {name}");
        }
    }
    let config: api::RouterConfig = serde_json::from_value(of("RouterConfig").remove(0)).unwrap();
    assert_eq!(config.spec.broker_hosts()[0].name_in_force(), "broker");
    let _: api::AddressSpace = serde_json::from_value(of("AddressSpace").remove(0)).unwrap();
}

#[test]
fn the_example_with_routers_decodes_and_names_what_it_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/routers.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).cloned().collect::<Vec<_>>();
    let config: api::RouterConfig = serde_json::from_value(of("RouterConfig").remove(0)).unwrap();
    assert_eq!(config.spec.external_routers().unwrap().hosts[0].name_in_force(), "router");
    let space: api::AddressSpace = serde_json::from_value(of("AddressSpace").remove(0)).unwrap();
    assert_eq!(space.spec.type_, api::address_space::AddressSpaceType::Standard);
    assert_eq!(Some(&space.spec.router_config_ref.name), config.metadata.name.as_ref());
    for address in of("Address") {
        let address: api::Address = serde_json::from_value(address).unwrap();
        assert_eq!(Some(&address.spec.address_space), space.metadata.name.as_ref());
    }
}

#[test]
fn the_example_of_an_edge_is_served_by_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/edge.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |kind: &str| objects.iter().find(|o| o["kind"] == kind).cloned().unwrap();
    let config: api::RouterConfig = serde_json::from_value(of("RouterConfig")).unwrap();
    let edge = waystation::cluster::edge::convert::router_config(&config).unwrap();
    let (class, ingress) = (of("IngressClass"), of("Ingress"));
    assert_eq!(class["metadata"]["name"], *edge.class_name);
    assert_eq!(class["spec"]["controller"], waystation::edge::model::CONTROLLER);
    assert_eq!(ingress["spec"]["ingressClassName"], *edge.class_name);
    let options = waystation::edge::options::Options::read_plain(&edge.options);
    assert!(options.bad.is_empty() && options.unknown.is_empty() && !options.is_empty());
    let service = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"];
    assert_eq!(*service, of("Service")["metadata"]["name"]);
}

#[test]
fn metrics_of_the_edge_are_told() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/edge.md")).unwrap();
    let metrics = waystation::metrics::edge::EdgeMetrics::new().text();
    let names = metrics.lines().filter_map(|line| {
        let (name, kind) = line.strip_prefix("# TYPE waystation_edge_")?.split_once(' ')?;
        Some(if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
    });
    let missing: Vec<String> = names.filter(|name| !is_told(&text, name)).collect();
    assert!(missing.is_empty(), "docs/edge.md does not tell of {missing:?}");
}

#[test]
fn the_example_with_a_remote_host_decodes_and_names_what_it_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/remote.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).cloned().collect::<Vec<_>>();
    let config: api::RouterConfig = serde_json::from_value(of("RouterConfig").remove(0)).unwrap();
    assert!(config.spec.messaging.unwrap().routers.unwrap().connectors.is_some());
    let space: api::AddressSpace = serde_json::from_value(of("AddressSpace").remove(0)).unwrap();
    let connector = &space.spec.connectors[0];
    let secret = &of("Secret")[0]["metadata"]["name"];
    assert_eq!(*secret, connector.credentials.as_ref().unwrap().secret_name);
    for address in of("Address") {
        let address: api::Address = serde_json::from_value(address).unwrap();
        let begins = format!("{}/", connector.name);
        assert!(address.spec.forwarders.iter().all(|forwarder| forwarder.remote_address.starts_with(&begins)));
    }
}

#[test]
fn the_model_and_the_api_have_the_same_reasons() {
    let of_the_api: BTreeSet<&str> = (api::AddressReason::ALL.iter().map(|r| r.as_str()))
        .chain(api::AddressSpaceReason::ALL.iter().map(|r| r.as_str()))
        .chain(api::RouterConfigReason::ALL.iter().map(|r| r.as_str()))
        .chain(api::ConnectorReason::ALL.iter().map(|r| r.as_str()))
        .chain(api::ForwarderReason::ALL.iter().map(|r| r.as_str()))
        .collect();
    let of_the_model: BTreeSet<&str> = waystation::messaging::reason::ALL.iter().copied().collect();
    assert_eq!(of_the_api, of_the_model);
}
