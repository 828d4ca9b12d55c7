//! What the charts render, without a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use waystation::api::crds;

use super::helm::{self, Helm, chart, documents, object, title};

const ALL: &[&str] = &[
    "--set=edge.enabled=true,metrics.dashboard.enabled=true",
    "--api-versions=monitoring.coreos.com/v1/ServiceMonitor",
    "--api-versions=monitoring.coreos.com/v1/PrometheusRule",
    "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
];

async fn rendered(name: &str, namespace: &str, more: &[&str]) -> Vec<Value> {
    Helm::offline().unwrap().template(name, &chart(), namespace, more).await.unwrap()
}

#[tokio::test]
async fn the_linter_has_nothing_to_say() {
    let helm = Helm::offline().unwrap();
    for chart in [helm::chart(), helm::crds()] {
        helm.text(&["lint", "--strict", &chart.to_string_lossy()]).await.unwrap();
    }
}

/// What is rendered, object by object; `charts/waystation/rbac` and the other files say what is in them.
#[tokio::test]
async fn each_value_switches_what_it_says() {
    let titles = |objects: &[Value]| objects.iter().map(title).collect::<BTreeSet<_>>();
    let bare = titles(&rendered("waystation", "waystation-system", &[]).await);
    let golden = BTreeSet::from_iter(include_str!("golden/default.txt").lines().map(str::to_owned));
    assert_eq!(bare, golden, "tests/chart/golden/default.txt lists what the defaults render");
    let all = titles(&rendered("waystation", "waystation-system", ALL).await);
    let golden = BTreeSet::from_iter(include_str!("golden/all.txt").lines().map(str::to_owned));
    assert_eq!(all, golden, "tests/chart/golden/all.txt lists what is rendered with everything");
}

#[tokio::test]
async fn the_operators_pod_is_as_it_is_looked_at() {
    let objects = rendered("waystation", "waystation-system", ALL).await;
    let golden = serde_saphyr::from_str::<Value>(include_str!("golden/deployment.yaml")).unwrap();
    assert_eq!(object(&objects, "Deployment", "waystation"), &golden, "tests/chart/golden/deployment.yaml");
}

/// The rules that the charts give, by the name of the role without release and namespace.
fn rules(objects: &[Value]) -> BTreeMap<String, Value> {
    let roles = objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role"));
    let plain = |name: &str| name.split('.').next().unwrap().to_owned();
    roles.map(|role| (plain(role["metadata"]["name"].as_str().unwrap()), role["rules"].clone())).collect()
}

#[tokio::test]
async fn the_rights_are_those_that_tests_run_under() {
    let mut given = rules(&rendered("waystation", "waystation-system", ALL).await);
    let hook = given.remove("waystation-release").unwrap();
    assert!(!hook.to_string().contains("secrets"), "{hook}");
    let mut tested = BTreeMap::new();
    for file in std::fs::read_dir(chart().join("rbac")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        tested.extend(rules(&documents(&text).unwrap()));
    }
    assert_eq!(given, tested);
}

#[tokio::test]
async fn two_releases_have_no_name_in_common() {
    let names = |objects: Vec<Value>| {
        let all = objects.iter().map(title).collect::<BTreeSet<_>>();
        assert_eq!(all.len(), objects.len(), "nothing is rendered twice");
        all
    };
    let own = ["--set=edge.ingressClass.name=other"];
    let other = [ALL, &own].concat();
    let first = names(rendered("waystation", "one", ALL).await);
    for (name, namespace) in [("waystation", "two"), ("waystation-two", "one"), ("two", "one")] {
        let in_other = [&other[..], &["--set=edge.namespace=two-edge"]].concat();
        let second = names(rendered(name, namespace, &in_other).await);
        assert_eq!(first.intersection(&second).collect::<Vec<_>>(), Vec::<&String>::new(), "{name} in {namespace}");
    }
}

#[tokio::test]
async fn every_pod_is_restricted_and_has_no_more_than_it_needs() {
    let objects = rendered("waystation", "waystation-system", ALL).await;
    let pods = objects.iter().filter(|object| object["spec"]["template"]["spec"].is_object());
    let mut count = 0;
    for owner in pods {
        let pod = &owner["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{}", title(owner));
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{}", title(owner));
        for container in pod["containers"].as_array().unwrap() {
            let context = json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
            });
            assert_eq!(container["securityContext"], context, "{}", title(owner));
            for of in ["cpu", "memory"] {
                assert!(container["resources"]["requests"][of].is_string(), "{} {of}", title(owner));
            }
            count += 1;
        }
    }
    assert_eq!(count, 4, "operator, hook, HAProxy and agent");
}

#[tokio::test]
async fn a_value_that_does_not_exist_or_cannot_be_is_refused() {
    let helm = Helm::offline().unwrap();
    for wrong in [
        "replica=3",
        "edge.replica=3",
        "replicas=-1",
        "operator.leaseDuration=soon",
        // What the flags refuse.
        "operator.leaseDuration=2s",
        "operator.leaseDuration=2999ms",
        "operator.resyncInterval=0s",
        "operator.resyncInterval=500ms",
        "image.pullPolicy=Sometimes",
        "edge.ports.http=80",
        // The edge could keep the operator from leading.
        "edge.enabled=true,edge.namespace=here",
    ] {
        let chart = chart();
        let set = format!("--set={wrong}");
        let output = helm.run(&["template", "w", &chart.to_string_lossy(), "--namespace=here", &set]).await.unwrap();
        assert!(!output.status.success(), "{wrong} was taken");
    }
    for right in ["operator.leaseDuration=3s", "operator.leaseDuration=1m1s", "operator.resyncInterval=1h"] {
        rendered("waystation", "here", &[&format!("--set={right}")]).await;
    }
}

#[tokio::test]
async fn secrets_of_named_namespaces_only_are_read_where_somebody_says_so() {
    let more = ["--set=rbac.secretNamespaces={brokers,team}"];
    let objects = rendered("waystation", "waystation-system", &more).await;
    let name = "waystation-secrets.waystation-system.waystation";
    let bindings = objects.iter().filter(|object| object["roleRef"]["name"] == name).map(title).collect::<Vec<_>>();
    assert_eq!(bindings, [format!("RoleBinding brokers/{name}"), format!("RoleBinding team/{name}")]);
}

/// Every value is explained where it stands, and known to the schema.
#[test]
fn each_value_has_a_word_and_a_schema() {
    let text = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap();
    fn paths(schema: &Value, values: &Value, at: &str, wrong: &mut Vec<String>) {
        let closed = schema["additionalProperties"] == false;
        for (name, value) in values.as_object().into_iter().flatten() {
            let below = &schema["properties"][name];
            if closed && below.is_null() {
                wrong.push(format!("{at}{name} is not in the schema"));
            }
            paths(below, value, &format!("{at}{name}."), wrong);
        }
        for name in schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
            if closed && values[name].is_null() && at != "resources." && !at.ends_with("Resources.") && name != "global"
            {
                wrong.push(format!("{at}{name} is not in values.yaml"));
            }
        }
    }
    let mut wrong = Vec::new();
    paths(&schema, &values, "", &mut wrong);
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn the_kinds_are_those_of_the_types_and_stay_when_they_are_uninstalled() {
    crds::check(&helm::crds().join("files")).unwrap();
    let objects = Helm::offline().unwrap().template("kinds", &helm::crds(), "any", &[]).await.unwrap();
    let types = crds::all().unwrap();
    assert_eq!(objects.len(), types.len());
    for (mut object, kind) in objects.into_iter().zip(types) {
        assert_eq!(object["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        let mut kind = serde_json::to_value(kind).unwrap();
        let (rendered, wanted) = (object["spec"].take(), kind["spec"].take());
        assert_eq!(plain(rendered), plain(wanted));
    }
}

/// YAML knows one kind of number.
fn plain(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        other => other,
    }
}
