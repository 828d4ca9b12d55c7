//! Which Ingress has a route, and what a request then comes to.

use super::support::*;
use crate::edge::ids::Kind;
use crate::edge::input::{Allowed, BackendRef, IngressClass, Input, LabelTest, Port, Requirement};
use crate::edge::lookup::{Lookup, lookup};
use crate::edge::model::Reason;
use crate::edge::wanted::MapName;

#[test]
fn exact_host_before_wildcard_before_none_and_exact_path_before_the_longest_prefix() {
    let mut world = World::plain();
    world.ingress(
        ing("a/one", 1)
            .path("x.a.com", "/", "web:80")
            .path("x.a.com", "/foo", "api:80")
            .exact("x.a.com", "/foo", "web:80")
            .path("*.a.com", "/", "api:80")
            .path("", "/bar", "web:80"),
    );
    let cases = [
        ("x.a.com", "/", "a:web:80"),
        ("X.A.Com", "/other", "a:web:80"),
        ("x.a.com", "/foo", "a:web:80"),
        ("x.a.com", "/foo/", "a:api:80"),
        ("x.a.com", "/foo/x", "a:api:80"),
        ("x.a.com", "/foobar", "a:web:80"),
        ("y.a.com", "/bar", "a:api:80"),
        ("y.y.a.com", "/bar", "a:web:80"),
        ("y.y.a.com", "/bar/x", "a:web:80"),
        ("a.com", "/bar", "a:web:80"),
        ("a.com", "/", "_404"),
    ];
    for (host, path, to) in cases {
        assert_eq!(world.to(host, path), to, "{host}{path}");
    }
}

#[test]
fn a_slash_at_the_end_of_a_prefix_says_nothing_and_of_an_exact_path_everything() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).path("h.com", "/foo/", "web:80").exact("h.com", "/bar/", "api:80"));
    for (path, to) in [("/foo", "a:web:80"), ("/foo/", "a:web:80"), ("/foo/x", "a:web:80"), ("/foox", "_404")] {
        assert_eq!(world.to("h.com", path), to, "{path}");
    }
    assert_eq!(world.to("h.com", "/bar/"), "a:api:80");
    assert_eq!(world.to("h.com", "/bar"), "_404");
    // Case and encoding of paths count.
    assert_eq!(world.to("h.com", "/FOO"), "_404");
    assert_eq!(world.to("h.com", "/f%6fo"), "_404");
}

#[test]
fn of_two_that_want_the_same_the_older_has_it_whatever_comes_first() {
    let old = || ing("a/old", 1).path("h.com", "/", "web:80");
    let new = || ing("b/new", 2).path("h.com", "/", "web:80");
    let (mut one, mut two) = (World::plain(), World::plain());
    one.ingress(old()).ingress(new());
    assert_eq!(one.events(), [("b/new".to_owned(), Reason::RouteConflict)]);
    two.ingress(new()).ingress(old());
    assert_eq!(two.events(), [("b/new".to_owned(), Reason::RouteConflict)]);
    for world in [&mut one, &mut two] {
        assert_eq!(world.to("h.com", "/"), "a:web:80");
        assert_eq!(world.told("b/new"), [Reason::RouteConflict]);
        world.gone(Kind::Ingress, "a/old");
        assert_eq!(world.to("h.com", "/"), "b:web:80");
        assert!(world.problems().is_empty());
    }
    // Of one second: by name.
    one.ingress(ing("a/same", 2).path("h.com", "/", "web:80"));
    assert_eq!(one.to("h.com", "/"), "a:web:80");
}

#[test]
fn prefix_and_implementation_specific_are_one_path_and_exact_is_another() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).specific("h.com", "/", "web:80"));
    world.ingress(ing("a/two", 2).path("h.com", "/", "api:80").exact("h.com", "/", "api:80"));
    assert_eq!(world.to("h.com", "/"), "a:api:80");
    assert_eq!(world.to("h.com", "/x"), "a:web:80");
    assert_eq!(world.told("a/two"), [Reason::RouteConflict]);
}

#[test]
fn the_default_backend_takes_what_no_rule_takes() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 2).path("h.com", "/foo", "web:80").default("api:80"));
    for (host, path, to) in [("h.com", "/foo", "a:web:80"), ("h.com", "/x", "a:api:80"), ("z.com", "/", "a:api:80")] {
        assert_eq!(world.to(host, path), to, "{host}{path}");
    }
    world.ingress(ing("b/older", 1).default("web:80"));
    assert_eq!(world.to("z.com", "/"), "b:web:80");
    assert_eq!(world.told("a/one"), [Reason::RouteConflict]);
    world.gone(Kind::Ingress, "b/older").gone(Kind::Ingress, "a/one");
    assert_eq!(world.to("z.com", "/"), "_404");

    let mut config = config();
    config.default_backend = Some(("fall".into(), Port::Number(80)));
    world.put(Input::RouterConfig(config.into()));
    assert_eq!(world.to("z.com", "/"), "_503");
    assert_eq!(world.problems(), [("edge/main".to_owned(), Reason::ServiceNotFound)]);
    world.put(Input::Service(svc("edge/fall", &[("", 80)]).into()));
    assert_eq!(world.to("z.com", "/"), "edge:fall:80");
    world.ingress(ing("a/one", 2).default("api:80"));
    assert_eq!(world.to("z.com", "/"), "a:api:80");
    assert!(world.problems().is_empty());
}

#[test]
fn a_rule_without_paths_leads_all_of_its_host_to_the_default_backend() {
    let mut world = World::plain();
    let mut ingress = ing("a/one", 1).default("api:80");
    ingress.0.rules.push(crate::edge::input::Rule { host: "h.com".into(), paths: Vec::new() });
    world.ingress(ingress);
    world.ingress(ing("a/two", 2).path("", "/", "web:80"));
    assert_eq!(world.to("h.com", "/x"), "a:api:80");
    assert_eq!(world.to("z.com", "/x"), "a:web:80");
}

#[test]
fn what_cannot_be_read_is_told_and_its_neighbours_are_served() {
    let mut world = World::plain();
    let mut ingress = ing("a/one", 1)
        .path("bad host", "/", "web:80")
        .path("h.com", "no-slash", "web:80")
        .path("h.com", "/", "web:80");
    ingress.0.rules[1].paths[0].backend = BackendRef::Resource("Bucket b".into());
    world.ingress(ingress);
    assert_eq!(world.told("a/one"), [Reason::InvalidHost, Reason::InvalidPath]);
    assert_eq!(world.to("h.com", "/"), "a:web:80");
    let mut resource = ing("a/two", 1).path("r.com", "/", "web:80").path("r.com", "/x", "web:80");
    resource.0.rules[0].paths[0].backend = BackendRef::Resource("Bucket b".into());
    world.ingress(resource);
    assert_eq!(world.told("a/two"), [Reason::UnsupportedBackend]);
    assert_eq!(world.to("r.com", "/x"), "a:web:80");
}

#[test]
fn the_class_decides_and_the_annotation_counts_only_where_there_is_no_class_name() {
    let mut world = World::plain();
    let at = |class: Option<&str>, annotation: Option<&str>| {
        ing("a/one", 1).path("h.com", "/", "web:80").class(class, annotation)
    };
    let ours = |world: &World| world.to("h.com", "/") == "a:web:80";
    for (class, annotation, expect) in [
        (Some("waystation"), None, true),
        (None, Some("waystation"), true),
        (Some("other"), Some("waystation"), false),
        (Some("waystation"), Some("other"), true),
        (None, None, false),
        (None, Some("other"), false),
    ] {
        world.ingress(at(class, annotation));
        assert_eq!(ours(&world), expect, "{class:?} {annotation:?}");
        assert_eq!(world.model.served().count(), usize::from(expect));
    }
    let class = |name: &str, controller: &str, parameters: Option<&str>, default| {
        let parameters = parameters.map(key);
        Input::IngressClass(
            IngressClass { name: name.into(), controller: controller.into(), parameters, default }.into(),
        )
    };
    // A class leads here by its parameters, by another name too.
    world.ingress(at(Some("special"), None)).put(class("special", "waystation.dev/edge", Some("edge/main"), false));
    assert!(ours(&world));
    assert_eq!(world.last.published, [(key("a/one"), true)]);
    world.put(class("special", "waystation.dev/edge", Some("edge/other"), false));
    assert!(!ours(&world));
    assert_eq!(world.last.published, [(key("a/one"), false)]);
    // The name of another controller's class is not ours, though the RouterConfig names it.
    world.ingress(at(Some("waystation"), None));
    assert!(ours(&world));
    world.put(class("waystation", "example.com/other", None, false));
    assert!(!ours(&world));
    world.put(class("waystation", "waystation.dev/edge", None, true));
    assert!(ours(&world));
    // The default class.
    world.ingress(at(None, None));
    assert!(ours(&world));
    world.gone(Kind::IngressClass, "waystation");
    assert!(!ours(&world));
}

#[test]
fn namespaces_that_are_not_allowed_are_told_and_not_served() {
    let mut config = config();
    let test = LabelTest::In(["yes".into()].into());
    config.allowed = Allowed::Selector(vec![Requirement { key: "edge".into(), test }]);
    let mut world = World::new(config.clone());
    world.put(Input::Service(svc("a/web", &[("http", 80)]).into()));
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80"));
    assert_eq!((world.to("h.com", "/"), world.told("a/one")), ("_404".into(), vec![Reason::NamespaceNotAllowed]));
    world.put(Input::Namespace("a".into(), std::sync::Arc::new([("edge".to_owned(), "yes".to_owned())].into())));
    assert_eq!((world.to("h.com", "/"), world.told("a/one")), ("a:web:80".into(), vec![]));
    config.allowed = Allowed::Same;
    world.put(Input::RouterConfig(config.into()));
    assert_eq!(world.to("h.com", "/"), "_404");
}

#[test]
fn nothing_is_said_before_everything_is_read_and_every_secret_is_answered() {
    let mut model = crate::edge::model::Model::new(key("edge/main"));
    model.apply(Input::Ingress(ing("a/one", 1).path("h.com", "/", "web:80").tls(&["h.com"], "cert").0.into()));
    for kind in Kind::ALL {
        assert_eq!(model.settle(), Default::default());
        model.apply(Input::Synced(kind));
    }
    assert_eq!(model.settle(), Default::default());
    model.apply(Input::RouterConfig(config().into()));
    let asked = model.settle();
    assert_eq!((asked.generation, asked.secrets), (0, vec![(key("a/cert"), true)]));
    assert!(asked.changes.is_empty());
    model.apply(Input::Vanished(Kind::Secret, key("a/cert")));
    let first = model.settle();
    assert!(first.first && first.generation == 1 && first.events.is_empty() && first.changes.is_empty());
    assert!(!model.wanted().slots().is_empty());
    assert_eq!(first.published, [(key("a/one"), true)]);
    assert!(!model.in_force());
    model.apply(Input::InForce(1));
    assert!(model.in_force());
    // What changes nothing is in force already.
    model.apply(Input::Service(svc("a/unused", &[("http", 80)]).into()));
    assert!(model.settle().changes.is_empty() && model.in_force());
    model.apply(Input::Service(svc("a/web", &[("http", 80)]).into()));
    assert!(!model.settle().changes.is_empty() && !model.in_force());
}

#[test]
fn what_takes_a_request_is_told_with_its_key() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).path("h.com", "/a/b", "web:80").exact("h.com", "/a", "api:80"));
    let found = |path: &str| lookup(world.model.wanted(), "H.com.", path);
    let taken = |map, key: &str, value: &str| Lookup::Taken { map, key: key.into(), value: value.into() };
    assert_eq!(found("/a/b/c"), taken(MapName::Prefix, "h.com/a/b/", "a:web:80"));
    assert_eq!(found("/a"), taken(MapName::Exact, "h.com/a", "a:api:80"));
    assert_eq!(found("/é"), Lookup::Nothing);
    let say = [("path-type", "regex")];
    world.ingress(ing("a/two", 1).specific("h.com", "/x.*", "web:80").say(&say));
    assert_eq!(lookup(world.model.wanted(), "h.com", "/xyz"), Lookup::Patterns);
}

#[test]
fn what_comes_and_goes_within_a_batch_leaves_nothing() {
    let mut world = World::plain();
    let before = world.held.clone();
    let one = || Input::Ingress(ing("a/one", 1).path("h.com", "/", "web:80").0.into());
    let two = || Input::Ingress(ing("a/one", 2).path("i.com", "/", "api:80").0.into());
    let gone = || Input::Vanished(Kind::Ingress, key("a/one"));
    for batch in [vec![one(), gone()], vec![one(), two(), gone()]] {
        batch.into_iter().for_each(|input| world.model.apply(input));
        world.settle();
        assert!(world.last.changes.is_empty());
        assert_eq!(world.held, before);
    }
    world.put(one());
    // Deleted and made again under the same name, and changed and deleted.
    [gone(), two()].into_iter().for_each(|input| world.model.apply(input));
    world.settle();
    assert_eq!((world.to("h.com", "/"), world.to("i.com", "/")), ("_404".into(), "a:api:80".into()));
    [one(), gone()].into_iter().for_each(|input| world.model.apply(input));
    world.settle();
    assert_eq!(world.held, before);
}

#[test]
fn sizes_are_of_what_is_served() {
    let mut world = World::plain();
    world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").path("h.com", "/x", "api:http"));
    world.ingress(ing("a/two", 2).path("g.com", "/", "web:80"));
    let sizes = world.model.sizes();
    assert_eq!((sizes.ingresses, sizes.hosts, sizes.routes, sizes.backends), (2, 2, 3, 2));
    let mut config = (*world.model.configured().unwrap().clone()).clone();
    config.default_backend = Some(("web".into(), Port::Number(80)));
    world.put(Input::RouterConfig(config.into()));
    assert_eq!(world.model.sizes().ingresses, 2, "the RouterConfig's own is none");
    world.gone(Kind::Ingress, "a/one").gone(Kind::Ingress, "a/two");
    assert_eq!((world.model.sizes().ingresses, world.model.sizes().routes), (0, 1));
}
