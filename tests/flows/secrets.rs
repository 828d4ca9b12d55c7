//! Logins to brokers: which Secrets are read, and what happens when they change or go.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use serde_json::{Value, json};
use waystation_kit::artemis::{Artemis, ArtemisOptions, Tls};
use waystation_kit::process::eventually;

use crate::support::{CONFIG, Kind, LOGIN, SOON, SPACE, World, arrived, broker_row, is_operator};
use crate::writes::renewed_twice;

const GOOD: [(&str, &str); 2] = [("username", "admin"), ("password", "admin-password")];
const BAD: [(&str, &str); 2] = [("username", "admin"), ("password", "of-tomorrow")];

#[tokio::test]
async fn a_broker_with_mutual_tls_takes_the_certificate_of_the_secret() -> Result<()> {
    let world = World::shared().await?;
    let options = ArtemisOptions { tls: Some(Tls::Mutual), ..ArtemisOptions::default() };
    let broker = Artemis::start(options).await?;
    let material = broker.tls().context("the broker has no TLS")?;
    let tenant = world.tenant("tls").await?;
    // At first without a certificate of our own: the broker is reached and does not let us in.
    tenant.secret("broker-tls", &[("ca.crt", &material.ca)]).await?;
    let host = json!({"name": "tls", "host": "127.0.0.1", "port": broker.port()});
    let external = json!({"hosts": [host], "tls": {"secretName": "broker-tls"}});
    tenant.create(Kind::RouterConfig, CONFIG, json!({"messaging": {"brokers": {"external": external}}})).await?;
    tenant.space(SPACE, CONFIG).await?;
    tenant.broker_state(CONFIG, "tls", "Unreachable").await?;

    let whole = [
        ("ca.crt", material.ca.as_str()),
        ("tls.crt", material.client.certificate.as_str()),
        ("tls.key", material.client.key.as_str()),
    ];
    tenant.secret("broker-tls", &whole).await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let mut client = broker.client().await?;
    client.send_text(&tenant.name("orders"), "order").await?;
    arrived(&client.receive(&tenant.name("orders"), 1, SOON).await?, &["order"])?;

    // Another authority's broker is not talked to.
    let stranger = waystation_kit::pki::Authority::new("somebody else")?.certificate();
    tenant.secret("broker-tls", &[("ca.crt", &stranger)]).await?;
    let told = tenant.broker_state(CONFIG, "tls", "Unreachable").await?;
    ensure!(told.to_lowercase().contains("certificate"), "{told}");
    ensure!(!told.contains("BEGIN"), "{told}");
    Ok(())
}

#[tokio::test]
async fn secrets_that_nobody_names_are_never_asked_for() -> Result<()> {
    const CONTROLLER: &str = "discreet";
    let world = World::shared().await?;
    let tenant = world.tenant("many-secrets").await?.driven_by(CONTROLLER);
    let secrets: Api<Secret> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    let make = |number: usize| {
        let metadata = ObjectMeta { name: Some(format!("unrelated-{number}")), ..ObjectMeta::default() };
        let text = [("key".to_owned(), "x".repeat(1000))].into();
        let secret = Secret { metadata, string_data: Some(text), ..Secret::default() };
        let secrets = secrets.clone();
        async move { secrets.create(&PostParams::default(), &secret).await.map(drop) }
    };
    stream::iter(0..500).map(make).buffer_unordered(16).try_collect::<Vec<()>>().await?;

    // From its start on; and with some moving meanwhile.
    let mark = tenant.mark().await?;
    let _operator = world.operator(CONTROLLER, &["--lease-duration=3s"]).await?;
    tenant.data_plane(&[("broker", &world.broker)]).await?;
    tenant.secret("unrelated-7", &GOOD).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    renewed_twice(&tenant, CONTROLLER).await?;

    let asked = tenant.audit.since(mark).await?;
    let asked: Vec<_> = asked.iter().filter(|entry| is_operator(entry) && entry.resource == "secrets").collect();
    ensure!(asked.iter().any(|entry| entry.namespace == tenant.namespace && entry.name == LOGIN), "{asked:?}");
    for entry in asked {
        ensure!(!entry.namespace.is_empty(), "Secrets of all namespaces were asked for: {}", entry.uri);
        if entry.namespace == tenant.namespace {
            let selected = entry.uri.contains(&format!("fieldSelector=metadata.name%3D{LOGIN}"));
            ensure!(selected || entry.name == LOGIN, "asked for more than was named: {}", entry.uri);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_secret_that_is_missing_is_told_and_what_it_held_last_stays_in_use() -> Result<()> {
    let world = World::shared().await?;
    let tenant = world.tenant("secret-goes").await?;
    tenant.router_config_on_ports(CONFIG, &[("broker", world.broker.port())], json!({})).await?;
    tenant.space(SPACE, CONFIG).await?;
    let told = tenant.reason(Kind::RouterConfig, CONFIG, "SecretNotFound").await?;
    let missing = format!("Secret secret-goes/{LOGIN} is missing");
    ensure!(told == format!("broker broker: {missing}: create it, or change the RouterConfig"), "{told}");

    tenant.secret(LOGIN, &GOOD).await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready_address("before", json!({"type": "queue"})).await?;

    let secrets: Api<Secret> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    secrets.delete(LOGIN, &kube::api::DeleteParams::default()).await?;
    tenant
        .until(Kind::RouterConfig, CONFIG, "says that the Secret is missing", |config| {
            let row = broker_row(config, "broker").context("there is no such broker")?;
            ensure!(row["message"] == format!("{missing}: its last contents are in use"), "{row}");
            ensure!(row["state"] == "Serving", "{row}");
            Ok(())
        })
        .await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready_address("meanwhile", json!({"type": "queue"})).await?;

    tenant.secret(LOGIN, &GOOD).await?;
    tenant
        .until(Kind::RouterConfig, CONFIG, "says nothing more of it", |config| {
            let row = broker_row(config, "broker").context("there is no such broker")?;
            ensure!(row["state"] == "Serving" && row.get("message").is_none_or(|text| text == ""), "{row}");
            Ok(())
        })
        .await?;
    tenant.ready_address("after", json!({"type": "queue"})).await
}

#[tokio::test]
async fn a_rotated_secret_reconnects_brokers_one_at_a_time() -> Result<()> {
    let world = World::shared().await?;
    let second = Artemis::start(ArtemisOptions::default()).await?;
    let tenant = world.tenant("rotation").await?;
    tenant.data_plane(&[("one", &world.broker), ("two", &second)]).await?;
    let states = |config: &Value| {
        let row = |name| broker_row(config, name).map(|row| row["state"].as_str().unwrap_or_default().to_owned());
        let mut states = [row("one").unwrap_or_default(), row("two").unwrap_or_default()];
        states.sort();
        states
    };

    // A wrong password comes: the first is lost to it, the next is not touched while the first does not serve.
    tenant.secret(LOGIN, &BAD).await?;
    let lost = ["Serving".to_owned(), "Unreachable".to_owned()];
    tenant
        .until(Kind::RouterConfig, CONFIG, "one broker lost", |config| {
            ensure!(states(config) == lost, "{:?}", states(config));
            Ok(())
        })
        .await?;
    renewed_twice(&tenant, "waystation").await?;
    let config = tenant.get(Kind::RouterConfig, CONFIG).await?;
    ensure!(states(&config) == lost, "{:?}", states(&config));
    ensure!(config["status"]["brokersSummary"] == "1/2", "{}", config["status"]);
    let text = serde_json::to_string(&config)?;
    ensure!(!text.contains("of-tomorrow") && !world.operator.logs().contains("of-tomorrow"), "a password is shown");

    // The right one comes back: both are connected with it, and addresses work.
    tenant.secret(LOGIN, &GOOD).await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let broker = tenant.get(Kind::AddressSpace, SPACE).await?["status"]["broker"].clone();
    let mut client = if broker == "one" { world.broker.client().await? } else { second.client().await? };
    client.send_text(&tenant.name("orders"), "order").await?;
    arrived(&client.receive(&tenant.name("orders"), 1, SOON).await?, &["order"])?;
    // The one that stayed connected turned to the new contents as well: none waits any more.
    eventually(SOON, "both serve", || async {
        let config = tenant.get(Kind::RouterConfig, CONFIG).await?;
        ensure!(config["status"]["brokersSummary"] == "2/2", "{}", config["status"]);
        Ok(())
    })
    .await
}
