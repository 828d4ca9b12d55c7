//! The admission policy that puts the finalizer on new Addresses.

use std::time::Duration;

use anyhow::ensure;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use waystation::api::ADDRESS_FINALIZER;
use waystation_kit::cluster::Cluster;
use waystation_kit::process::eventually;
use waystation_kit::tools::repository;

use super::{A, R, S, dry_run};

const OTHER: &str = "example.com/other";

fn address(name: &str, finalizers: &[&str]) -> DynamicObject {
    let mut object = A.object(name, &json!({}));
    object.metadata.finalizers = Some(finalizers.iter().map(|f| (*f).to_owned()).collect());
    object
}

/// Without the policy, then with it; gives what went wrong.
pub async fn run(cluster: &Cluster, client: &Client) -> Vec<String> {
    let mut wrong = Vec::new();
    let addresses = A.api(client);
    let before = addresses.create(&dry_run(), &address("before", &[])).await.unwrap();
    if !before.finalizers().is_empty() {
        wrong.push(format!("a finalizer without the policy: {:?}", before.finalizers()));
    }

    cluster.apply_dir(&repository().join("charts/waystation/admission")).await.unwrap();
    let took_effect = eventually(Duration::from_secs(30), "the policy to take effect", || async {
        let made = addresses.create(&dry_run(), &address("fresh", &[])).await?;
        ensure!(made.finalizers() == [ADDRESS_FINALIZER], "{:?}", made.finalizers());
        Ok(())
    });
    took_effect.await.unwrap();

    // Others are kept, ours is there once.
    for finalizers in [vec![OTHER], vec![ADDRESS_FINALIZER], vec![OTHER, ADDRESS_FINALIZER]] {
        let made = addresses.create(&dry_run(), &address("kept", &finalizers)).await.unwrap();
        let mut have = made.finalizers().to_vec();
        have.sort();
        let mut want: Vec<String> = [ADDRESS_FINALIZER].iter().chain(&finalizers).map(|f| (*f).to_owned()).collect();
        want.sort();
        want.dedup();
        if have != want {
            wrong.push(format!("created with {finalizers:?}: {have:?}"));
        }
    }

    // A change does not bring it back: that is how the operator lets go.
    let mut made = addresses.create(&PostParams::default(), &address("let-go", &[OTHER])).await.unwrap();
    made.metadata.finalizers = Some(vec![OTHER.to_owned()]);
    let mut changed = addresses.replace("let-go", &PostParams::default(), &made).await.unwrap();
    if changed.finalizers() != [OTHER] {
        wrong.push(format!("after a change: {:?}", changed.finalizers()));
    }
    changed.metadata.finalizers = None;
    addresses.replace("let-go", &PostParams::default(), &changed).await.unwrap();
    addresses.delete("let-go", &DeleteParams::default()).await.unwrap();

    for kind in [S, R] {
        let made = kind.api(client).create(&dry_run(), &kind.object("other", &json!({}))).await.unwrap();
        if !made.finalizers().is_empty() {
            wrong.push(format!("on a {kind:?}: {:?}", made.finalizers()));
        }
    }
    wrong
}
