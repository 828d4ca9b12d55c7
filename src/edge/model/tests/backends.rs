//! Services and where they are.

use super::support::*;
use crate::edge::ids::Kind;
use crate::edge::input::Input;
use crate::edge::model::Reason;
use crate::edge::wanted::Slot;

fn world() -> World {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80"));
    world
}

fn put_slice(world: &mut World, endpoints: &[&str]) {
    world.put(Input::EndpointSlice(slice("a/web-1", "web", &[("http", 8080)], endpoints).into()));
}

#[test]
fn a_change_of_endpoints_is_a_change_of_servers_and_nothing_else() {
    let mut world = world();
    put_slice(&mut world, &["10.0.0.1", "10.0.0.9"]);
    let slots: Vec<&Slot> = world.last.changes.iter().map(|c| &c.slot).collect();
    assert_eq!(slots, [&Slot::Server("a:web:80".into(), "10.0.0.9_8080".into())]);
    put_slice(&mut world, &["10.0.0.9", "10.0.0.1"]);
    assert!(world.last.changes.is_empty(), "order is no difference");
    // The only endpoint is replaced: the new one comes first.
    put_slice(&mut world, &["10.0.0.9"]);
    put_slice(&mut world, &["10.0.0.7"]);
    let steps: Vec<(bool, &Slot)> = world.last.changes.iter().map(|c| (c.after.is_some(), &c.slot)).collect();
    let server = |name: &str| Slot::Server("a:web:80".into(), name.into());
    assert_eq!(steps, [(true, &server("10.0.0.7_8080")), (false, &server("10.0.0.9_8080"))]);
    put_slice(&mut world, &[]);
    assert_eq!((world.servers("a:web:80"), world.to("h.com", "/")), (vec![], "a:web:80".into()));
}

#[test]
fn what_terminates_drains_and_takes_over_when_nothing_else_is_there() {
    let mut world = world();
    put_slice(&mut world, &["10.0.0.1", "10.0.0.2=drain", "10.0.0.3=gone", "10.0.0.4=unready"]);
    assert_eq!(world.servers("a:web:80"), ["10.0.0.1_8080", "10.0.0.2_8080 drain"]);
    put_slice(&mut world, &["10.0.0.1=published", "10.0.0.2=drain"]);
    assert_eq!(world.servers("a:web:80"), ["10.0.0.1_8080", "10.0.0.2_8080 drain"]);
    put_slice(&mut world, &["10.0.0.1=unready", "10.0.0.2=drain", "10.0.0.3=gone"]);
    assert_eq!(world.servers("a:web:80"), ["10.0.0.2_8080"]);
}

#[test]
fn ports_are_found_by_the_service_and_numbered_by_each_slice() {
    let mut world = world();
    world.put(Input::EndpointSlice(slice("a/web-2", "web", &[("http", 9090), ("other", 1)], &["10.0.0.5"]).into()));
    assert_eq!(world.servers("a:web:80"), ["10.0.0.1_8080", "10.0.0.5_9090"]);
    world.ingress(ing("a/two", 1).path("i.com", "/", "web:http").path("j.com", "/", "web:81"));
    assert_eq!(world.servers("a:web:http"), ["10.0.0.1_8080", "10.0.0.5_9090"]);
    assert_eq!((world.to("j.com", "/"), world.told("a/two")), ("_503".into(), vec![Reason::PortNotFound]));
    world.put(Input::Service(svc("a/web", &[("http", 80), ("other", 81)]).into()));
    assert_eq!((world.to("j.com", "/"), world.told("a/two")), ("a:web:81".into(), vec![]));
    assert_eq!(world.servers("a:web:81"), ["10.0.0.5_1"]);
}

#[test]
fn a_service_that_comes_later_is_found_and_one_that_goes_is_told() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).path("h.com", "/", "late:80"));
    assert_eq!(
        (world.to("h.com", "/"), world.events()),
        ("_503".into(), vec![("a/one".into(), Reason::ServiceNotFound)])
    );
    world.put(Input::EndpointSlice(slice("a/late-1", "late", &[("", 8080)], &["10.0.0.6"]).into()));
    assert!(world.last.changes.is_empty());
    world.put(Input::Service(svc("a/late", &[("", 80)]).into()));
    assert_eq!(
        (world.to("h.com", "/"), world.servers("a:late:80")),
        ("a:late:80".into(), vec!["10.0.0.6_8080".to_owned()])
    );
    assert!(world.problems().is_empty());
    world.gone(Kind::Service, "a/late");
    assert_eq!(world.to("h.com", "/"), "_503");
    assert!(world.model.wanted().get(&Slot::Backend("a:late:80".into())).is_none());
}

#[test]
fn a_slice_that_moves_to_another_service_leaves_the_first() {
    let mut world = world();
    world.ingress(ing("a/two", 1).path("i.com", "/", "api:80"));
    world.put(Input::EndpointSlice(slice("a/web-1", "api", &[("http", 8080)], &["10.0.0.1"]).into()));
    assert_eq!(world.servers("a:web:80"), [""; 0]);
    assert_eq!(world.servers("a:api:80"), ["10.0.0.1_8080", "10.0.0.2_8080"]);
    // The address leaves one before it comes to the other.
    let steps: Vec<bool> = world.last.changes.iter().map(|c| c.after.is_some()).collect();
    assert_eq!(steps, [false, true]);
    world.gone(Kind::EndpointSlice, "a/web-1");
    assert_eq!(world.servers("a:api:80"), ["10.0.0.2_8080"]);
}

#[test]
fn of_two_families_the_first_of_the_service_counts() {
    let mut world = world();
    world.put(Input::EndpointSlice(slice("a/web-6", "web", &[("http", 8080)], &["fd00::1"]).into()));
    assert_eq!(world.servers("a:web:80"), ["10.0.0.1_8080"]);
    let mut service = svc("a/web", &[("http", 80)]);
    service.ipv6_first = true;
    world.put(Input::Service(service.into()));
    assert_eq!(world.servers("a:web:80"), ["fd00::1_8080"]);
    put_slice(&mut world, &[]);
    assert_eq!(world.servers("a:web:80"), ["fd00::1_8080"]);
}

#[test]
fn addresses_inside_the_machine_or_of_the_cloud_are_no_endpoints() {
    let mut world = world();
    put_slice(&mut world, &["127.0.0.1", "169.254.169.254", "10.0.0.1", "::ffff:127.0.0.1"]);
    assert_eq!(world.servers("a:web:80"), ["10.0.0.1_8080"]);
    assert_eq!(world.problems().iter().filter(|(_, r)| *r == Reason::AddressRefused).count(), 2);
    let mut fqdn = slice("a/web-2", "web", &[("http", 8080)], &[]);
    fqdn.fqdn = true;
    world.put(Input::EndpointSlice(fqdn.into()));
    assert_eq!(world.events(), [("a/web".to_owned(), Reason::NamesInSlice)]);
}

#[test]
fn external_names_are_off_by_default_and_resolved_from_outside() {
    let mut world = world();
    let mut service = svc("a/web", &[]);
    (service.external_name, service.cluster_ip) = (Some("db.example.com".into()), None);
    world.put(Input::Service(service.into()));
    assert_eq!(world.to("h.com", "/"), "_503");
    assert_eq!(world.events(), [("a/web".to_owned(), Reason::ExternalNameOff)]);
    let mut config = config();
    config.external_name = true;
    world.put(Input::RouterConfig(config.into()));
    assert_eq!(world.last.names, [("db.example.com".into(), true)]);
    let addresses = [ip("93.184.216.34"), ip("127.0.0.1")];
    world.put(Input::Resolved("db.example.com".into(), addresses.into()));
    assert_eq!(world.servers("a:web:80"), ["93.184.216.34_80"]);
    assert_eq!(world.events(), [("a/web".to_owned(), Reason::AddressRefused)]);
    world.put(Input::Resolved("db.example.com".into(), [].into()));
    assert_eq!(world.events(), [("a/web".to_owned(), Reason::NameNotResolved)]);
    world.gone(Kind::Ingress, "a/one");
    assert_eq!(world.last.names, [("db.example.com".into(), false)]);
}

#[test]
fn the_services_own_address_takes_the_place_of_its_endpoints() {
    let mut world = world();
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").say(&[("service-upstream", "true")]));
    assert_eq!(world.servers("a:web:80"), ["10.96.0.1_80"]);
    let mut headless = svc("a/web", &[("http", 80)]);
    headless.cluster_ip = None;
    world.put(Input::Service(headless.into()));
    assert_eq!(world.servers("a:web:80"), ["10.0.0.1_8080"]);
}

#[test]
fn what_haproxy_refuses_is_told_and_its_neighbours_are_served() {
    let mut world = world();
    put_slice(&mut world, &["10.0.0.1", "10.0.0.2"]);
    let refuse = |world: &mut World, slot: Slot| {
        let fingerprint = world.held[&slot].fingerprint();
        world.put(Input::Refused(slot, fingerprint, "no".into()));
    };
    refuse(&mut world, Slot::Server("a:web:80".into(), "10.0.0.2_8080".into()));
    assert_eq!(
        (world.servers("a:web:80"), world.events()),
        (vec!["10.0.0.1_8080".to_owned()], vec![("a/web".into(), Reason::Refused)])
    );
    refuse(&mut world, Slot::Backend("a:web:80".into()));
    assert_eq!((world.to("h.com", "/"), world.events()), ("_503".into(), vec![("a/one".into(), Reason::Refused)]));
    assert!(world.servers("a:web:80").is_empty());
    // Another class is another value.
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").say(&[("balance", "random")]));
    assert_eq!(world.servers("a:web:80:http-random").len(), 2);
    assert!(world.problems().is_empty());
}

#[test]
fn what_cannot_be_changed_in_place_is_another_server_or_another_backend() {
    let mut world = world();
    let with = |pairs: &[(&str, &str)]| ing("a/one", 1).path("h.com", "/", "web:80").say(pairs);
    world.ingress(with(&[("maxconn-server", "5")]));
    assert_eq!(world.last.changes.len(), 1, "in place");
    world.ingress(with(&[("backend-protocol", "h2c")]));
    let kinds: Vec<(&str, bool)> = world.last.changes.iter().map(|c| (c.slot.kind(), c.after.is_some())).collect();
    assert_eq!(kinds, [("server", true), ("server", false)], "the new one is up before the old one goes");
    world.ingress(with(&[("affinity", "cookie")]));
    assert_eq!(world.to("h.com", "/"), "a:web:80:http-roundrobin-cookie");
    let kinds: Vec<(&str, bool)> = world.last.changes.iter().map(|c| (c.slot.kind(), c.after.is_some())).collect();
    let order = [("backend", true), ("server", true), ("map", true), ("server", false), ("backend", false)];
    assert_eq!(kinds, order);
}
