//! Routers that are reached by TLS, and those that ask for a password.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use waystation_kit::artemis::Login;
use waystation_kit::pki::Authority;
use waystation_kit::router::RouterOptions;

use crate::plane::{Routed, router_state, rows};
use crate::support::{CONFIG, Kind, LOGIN, SPACE, Tenant, World};

const USER: &str = "operator";
const PASSWORD: &str = "of-the-routers";

/// A router for which a password is as good as a certificate, when it has TLS.
async fn router(mutual_tls: bool) -> Result<Routed> {
    let login = Login::password(USER, PASSWORD);
    Routed::with(RouterOptions { mutual_tls, login, ..RouterOptions::default() }).await
}

/// A RouterConfig and a space on this router; `more` is laid over `routers.external`.
async fn plane(tenant: &Tenant<'_>, routed: &Routed, more: Value) -> Result<()> {
    let world = tenant.world;
    let mut routers = rows(&[("r1", routed)]);
    if let (Some(external), Value::Object(more)) = (routers["external"].as_object_mut(), more) {
        external.extend(more);
    }
    tenant.router_config(CONFIG, &[("broker", &world.broker)], json!({ "routers": routers })).await?;
    tenant.create(Kind::AddressSpace, SPACE, json!({"type": "standard", "routerConfigRef": {"name": CONFIG}})).await
}

#[tokio::test]
async fn a_router_with_mutual_tls_takes_the_certificate_of_the_secret() -> Result<()> {
    let world = World::shared().await?;
    let routed = router(true).await?;
    let material = routed.router.tls().context("the router has no TLS")?;
    let tenant = world.tenant("routed-tls").await?;
    // At first without a certificate of our own, and no password either: the router does not let us in.
    tenant.secret("router-tls", &[("ca.crt", &material.ca)]).await?;
    plane(&tenant, &routed, json!({"tls": {"secretName": "router-tls"}})).await?;
    router_state(&tenant, "r1", "Unreachable").await?;
    ensure!(!routed.is_filled().await, "a router that lets nobody in says that it is filled");

    // SASL EXTERNAL: there is nothing else that it would take of one who has no password.
    let whole = [
        ("ca.crt", material.ca.as_str()),
        ("tls.crt", material.client.certificate.as_str()),
        ("tls.key", material.client.key.as_str()),
    ];
    tenant.secret("router-tls", &whole).await?;
    router_state(&tenant, "r1", "Serving").await?;
    tenant.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready_address("prices", json!({"type": "anycast"})).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    routed.filled().await?;
    if !routed.router.is_real() {
        let (listing, name) = (routed.router.with(|core| core.listing())?, tenant.name("prices"));
        ensure!(listing.contains(&name), "{name} is not there: {listing}");
    }

    // Another authority's router is not talked to.
    let stranger = Authority::new("somebody else")?.certificate();
    let [_, certificate, key] = whole;
    tenant.secret("router-tls", &[("ca.crt", &stranger), certificate, key]).await?;
    let told = router_state(&tenant, "r1", "Unreachable").await?;
    ensure!(told.to_lowercase().contains("certificate"), "{told}");
    let secret = material.client.key.lines().nth(1).context("no key")?;
    ensure!(!told.contains("BEGIN") && !world.operator.logs().contains(secret), "a key is shown");
    Ok(())
}

#[tokio::test]
async fn a_router_with_a_password_takes_that_of_the_secret_and_nobody_without_one() -> Result<()> {
    let world = World::shared().await?;
    let routed = router(false).await?;
    let tenant = world.tenant("routed-password").await?;
    let credentials = json!({"credentials": {"secretName": "router-login"}});
    plane(&tenant, &routed, json!({})).await?;
    let told = router_state(&tenant, "r1", "Unreachable").await?;
    ensure!(told.contains("ANONYMOUS"), "{told}");
    tenant.secret("router-login", &[("username", USER), ("password", "of-nobody")]).await?;
    let routers = json!({"routers": {"external": credentials}});
    tenant.change(Kind::RouterConfig, CONFIG, json!({"spec": {"messaging": routers}})).await?;
    tenant
        .until(Kind::RouterConfig, CONFIG, "a login that is refused", |config| {
            let told = config["status"]["routers"][0]["message"].as_str().unwrap_or_default();
            ensure!(told.contains("login by PLAIN refused"), "{told}");
            Ok(())
        })
        .await?;
    tenant.secret("router-login", &[("username", USER), ("password", PASSWORD)]).await?;
    router_state(&tenant, "r1", "Serving").await?;
    tenant.ready_address("prices", json!({"type": "anycast"})).await?;
    let log = world.operator.logs();
    ensure!(!log.contains(PASSWORD) && !log.contains("of-nobody"), "a password is in the log");
    let config = tenant.get(Kind::RouterConfig, CONFIG).await?.to_string();
    ensure!(!config.contains(PASSWORD) && !config.contains("of-nobody") && config.contains(LOGIN), "{config}");
    Ok(())
}
