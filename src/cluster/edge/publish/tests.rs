//! Which writes follow from what is heard.

use super::*;

fn config(publish: &str) -> api::RouterConfig {
    serde_json::from_str(&format!(
        r#"{{"apiVersion": "waystation.dev/v1alpha1", "kind": "RouterConfig", "metadata": {{"name": "c"}},
            "spec": {{"edge": {publish}}}}}"#
    ))
    .unwrap()
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn seen(name: &str, addresses: &[&str]) -> Observed {
    let addresses = addresses.iter().map(ToString::to_string).collect();
    Observed::Ingress { key: key(name), uid: "u".into(), addresses }
}

/// `name=addresses` to be written, `-name` where ours are to go; carried out at once.
fn writes(state: &mut State) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((key, _, wish)) = state.next() {
        let known = state.ingresses.get_mut(&key).unwrap();
        known.writing = false;
        known.clear &= wish.is_some();
        match wish {
            Some(addresses) => {
                all.push(format!("{}={}", key.name, addresses.join(",")));
                known.addresses = addresses;
            }
            None => {
                all.push(format!("-{}", key.name));
                known.addresses.clear();
            }
        }
    }
    all
}

const FIXED: &str = r#"{"publish": {"addresses": ["192.0.2.1", "edge.example"]}}"#;
const SERVICE: &str = r#"{"publish": {"service": "lb"}}"#;

#[test]
fn only_what_differs_is_written_and_only_where_it_is_served() {
    let mut state = State::default();
    state.config(&config(FIXED));
    state.take(seen("new", &[]));
    state.take(seen("same", &["192.0.2.1", "edge.example"]));
    state.take(seen("other", &["192.0.2.9"]));
    state.take(seen("foreign", &["192.0.2.9"]));
    state.take(Observed::Served(["new", "same", "other"].map(|name| (key(name), true)).into()));
    assert_eq!(writes(&mut state), ["new=192.0.2.1,edge.example", "other=192.0.2.1,edge.example"]);
    // What came of it is seen, and is no news.
    state.take(seen("new", &["192.0.2.1", "edge.example"]));
    assert!(writes(&mut state).is_empty());
    // Somebody writes over it.
    state.take(seen("new", &["192.0.2.9"]));
    assert_eq!(writes(&mut state), ["new=192.0.2.1,edge.example"]);
}

#[test]
fn what_is_served_no_more_loses_ours_and_nothing_else() {
    let mut state = State::default();
    state.config(&config(FIXED));
    state.take(seen("left", &["192.0.2.1", "edge.example"]));
    state.take(seen("foreign", &["192.0.2.9"]));
    state.take(seen("ours", &[]));
    state.take(Observed::Served(vec![(key("ours"), true)]));
    // `left` says what only we say: one who led before us was interrupted.
    assert_eq!(writes(&mut state), ["-left", "ours=192.0.2.1,edge.example"]);
    state.take(Observed::Served(vec![(key("ours"), false)]));
    assert_eq!(writes(&mut state), ["-ours"]);
    // A namesake is served like the one before it, until the model says otherwise.
    state.take(Observed::Served(vec![(key("ours"), true)]));
    assert_eq!(writes(&mut state), ["ours=192.0.2.1,edge.example"]);
    state.take(Observed::IngressGone(key("ours")));
    assert!(writes(&mut state).is_empty());
    state.take(seen("ours", &[]));
    assert_eq!(writes(&mut state), ["ours=192.0.2.1,edge.example"]);
}

#[test]
fn a_service_is_followed_and_one_that_says_nothing_changes_nothing() {
    let mut state = State::default();
    state.config(&config(SERVICE));
    state.take(seen("a", &[]));
    state.take(Observed::Served(vec![(key("a"), true)]));
    assert!(writes(&mut state).is_empty());
    state.take(Observed::Service("lb".into(), vec!["198.51.100.1".to_owned()]));
    assert_eq!(writes(&mut state), ["a=198.51.100.1"]);
    state.take(Observed::Service("other".into(), vec!["198.51.100.2".to_owned()]));
    assert!(writes(&mut state).is_empty());
    state.take(Observed::Service("lb".into(), Vec::new()));
    assert!(writes(&mut state).is_empty());
    state.config(&config("{}"));
    assert_eq!(writes(&mut state), ["-a"]);
}

#[test]
fn addresses_and_names_stand_where_they_belong() {
    let addresses = vec!["192.0.2.1".to_owned(), "2001:db8::1".to_owned(), "edge.example".to_owned()];
    let body = body(&key("a"), "u", Some(&addresses));
    let entries = json!([{ "ip": "192.0.2.1" }, { "ip": "2001:db8::1" }, { "hostname": "edge.example" }]);
    assert_eq!(body["status"]["loadBalancer"]["ingress"], entries);
    assert_eq!(super::body(&key("a"), "u", None)["status"], json!({}));
}
