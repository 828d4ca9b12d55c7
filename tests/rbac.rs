//! What the operator's account and tenants may do, asked from the API server's own authorizer.

// The lints know only functions marked `#[test]` as test code.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use waystation_kit::cluster::{Cluster, ClusterOptions};
use waystation_kit::process::eventually;
use waystation_kit::tools::repository;

const OPERATOR: &str = "system:serviceaccount:waystation-system:waystation";
const EDGE: &str = "system:serviceaccount:waystation-edge:waystation-edge";
/// Where an edge and its Leases are.
const EDGES: &str = "waystation-edge";

/// Whether the user may; the resource is `group/resource[/subresource]`.
async fn may(client: &Client, user: &str, verb: &str, resource: &str, namespace: &str) -> bool {
    let mut parts = resource.splitn(3, '/').map(str::to_owned);
    let attributes = ResourceAttributes {
        group: parts.next(),
        resource: parts.next(),
        subresource: parts.next(),
        verb: Some(verb.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await.unwrap();
    answer.status.is_some_and(|status| status.allowed)
}

/// Asks for each verb; `allowed` are those that it may, of all there are.
async fn check(client: &Client, wrong: &mut Vec<String>, user: &str, namespace: &str, resource: &str, allowed: &str) {
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"] {
        let expected = allowed.split(' ').any(|allowed| allowed == verb);
        if may(client, user, verb, resource, namespace).await != expected {
            let may = if expected { "should" } else { "should not" };
            wrong.push(format!("{user} {may} {verb} {resource} in {namespace}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_allow_what_is_used_and_nothing_more() {
    let cluster = Cluster::start(ClusterOptions { audit: false, ..ClusterOptions::default() }).await.unwrap();
    cluster.apply_dir(&repository().join("crds")).await.unwrap();
    cluster.apply_dir(&repository().join("charts/waystation/rbac")).await.unwrap();
    let client = cluster.admin_client().await.unwrap();
    let mut wrong = Vec::new();

    let (here, elsewhere) = ("waystation-system", "team");
    for kind in ["addresses", "addressspaces", "routerconfigs"] {
        let resource = format!("waystation.dev/{kind}");
        check(&client, &mut wrong, OPERATOR, elsewhere, &resource, "get list watch patch").await;
        check(&client, &mut wrong, OPERATOR, elsewhere, &format!("{resource}/status"), "patch").await;
    }
    let lease = "get list watch create update";
    let children = "get list watch create patch delete";
    for (namespace, resource, allowed) in [
        (elsewhere, "/secrets", "get list watch"),
        (elsewhere, "/namespaces", "get list watch"),
        (elsewhere, "events.k8s.io/events", "create patch"),
        (elsewhere, "discovery.k8s.io/endpointslices", children),
        (elsewhere, "/services", children),
        (elsewhere, "/services/status", ""),
        (elsewhere, "/endpoints", ""),
        (elsewhere, "coordination.k8s.io/leases", ""),
        (here, "coordination.k8s.io/leases", lease),
        (EDGES, "coordination.k8s.io/leases", ""),
        (elsewhere, "/configmaps", ""),
        (here, "/pods", ""),
        (elsewhere, "rbac.authorization.k8s.io/roles", ""),
    ] {
        check(&client, &mut wrong, OPERATOR, namespace, resource, allowed).await;
    }

    let reading = "get list watch";
    for (namespace, resource, allowed) in [
        (elsewhere, "waystation.dev/routerconfigs", reading),
        (elsewhere, "waystation.dev/routerconfigs/status", "patch"),
        (elsewhere, "waystation.dev/addresses", ""),
        (elsewhere, "waystation.dev/addressspaces", ""),
        (elsewhere, "networking.k8s.io/ingresses", reading),
        (elsewhere, "networking.k8s.io/ingresses/status", "patch"),
        (elsewhere, "networking.k8s.io/ingressclasses", reading),
        (elsewhere, "/services", reading),
        (elsewhere, "/services/status", ""),
        (elsewhere, "discovery.k8s.io/endpointslices", reading),
        (elsewhere, "/namespaces", reading),
        (elsewhere, "/secrets", reading),
        (elsewhere, "events.k8s.io/events", "create"),
        (elsewhere, "coordination.k8s.io/leases", ""),
        (EDGES, "coordination.k8s.io/leases", "get list watch create update patch delete"),
        // The operator's Lease: who writes that decides who leads.
        (here, "coordination.k8s.io/leases", ""),
        (elsewhere, "/configmaps", ""),
        (EDGES, "/pods", ""),
    ] {
        check(&client, &mut wrong, EDGE, namespace, resource, allowed).await;
    }

    // The built-in roles are put together by a controller.
    for (user, role) in [("viewer", "view"), ("editor", "edit")] {
        let arguments = [
            "create",
            "rolebinding",
            user,
            "-n",
            "default",
            &format!("--clusterrole={role}"),
            &format!("--user={user}"),
        ];
        cluster.kubectl_text(&arguments).await.unwrap();
    }
    let aggregated = eventually(Duration::from_secs(30), "the roles to join the built-in ones", || async {
        ensure!(may(&client, "viewer", "get", "waystation.dev/addresses", "default").await);
        ensure!(may(&client, "editor", "create", "waystation.dev/addresses", "default").await);
        Ok(())
    });
    aggregated.await.unwrap();
    let (read, write) = ("get list watch", "get list watch create update patch delete deletecollection");
    for (user, kind, allowed) in [
        ("viewer", "addresses", read),
        ("viewer", "routerconfigs", read),
        ("editor", "addresses", write),
        ("editor", "addressspaces", write),
        ("editor", "routerconfigs", read),
        ("editor", "addresses/status", ""),
    ] {
        check(&client, &mut wrong, user, "default", &format!("waystation.dev/{kind}"), allowed).await;
    }
    check(&client, &mut wrong, "editor", "kube-system", "waystation.dev/addresses", "").await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
