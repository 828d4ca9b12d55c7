//! Routers that are the endpoints of a Service, as they come and go.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use waystation_kit::amqp_client::{Node, Outgoing};
use waystation_kit::process::{eventually, inside_own_network};
use waystation_kit::router::{Router, RouterOptions, real_binary};
use waystation_kit::router_core::Counters;

use crate::support::{CONFIG, Kind, LOGIN, MOMENT, SOON, SPACE, Tenant, World, arrived};

/// Port for clients and management, where the routers are stand-ins.
const PORT: u16 = 5672;
const READINESS: u16 = 7779;
const LONG: std::time::Duration = std::time::Duration::from_secs(60);

/// A router as in a Pod: with an address, and a loopback, of its own.
async fn pod(number: u8) -> Result<Router> {
    let address = Ipv4Addr::new(10, 77, 0, number + 1).into();
    let options = RouterOptions { id: format!("R{number}"), address, ..RouterOptions::default() };
    match real_binary() {
        Some(_) => Router::start(options).await,
        None => Router::stand_in(PORT, options).await,
    }
}

/// EndpointSlices of the Service for these routers: one for each port, as Kubernetes makes them.
async fn follow(tenant: &Tenant<'_>, service: &str, pods: &[(u8, &Router)], ready: bool) -> Result<()> {
    let mut ports: Vec<u16> = pods.iter().map(|(_, router)| router.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    let slices: Api<EndpointSlice> = Api::namespaced(tenant.client.clone(), &tenant.namespace);
    for port in ports {
        let endpoints: Vec<Value> = pods
            .iter()
            .filter(|(_, router)| router.port() == port)
            .map(|(number, _)| {
                json!({
                    "addresses": [format!("10.77.0.{}", number + 1)],
                    "conditions": {"ready": ready, "serving": ready, "terminating": false},
                    "targetRef": {"kind": "Pod", "namespace": tenant.namespace, "name": format!("router-{number}")},
                })
            })
            .collect();
        let name = format!("{service}-{port}");
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"name": "amqp", "port": port, "protocol": "TCP"}],
            "endpoints": endpoints,
        });
        slices.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(slice)).await?;
    }
    // What is left of ports that no router has any more.
    for slice in slices.list(&Default::default()).await? {
        let name = slice.metadata.name.unwrap_or_default();
        let port = name.strip_prefix(&format!("{service}-")).and_then(|port| port.parse::<u16>().ok());
        if port.is_some_and(|port| !pods.iter().any(|(_, router)| router.port() == port)) {
            slices.delete(&name, &Default::default()).await?;
        }
    }
    Ok(())
}

/// Waits until exactly these routers are told, all of them Serving.
async fn serve(tenant: &Tenant<'_>, numbers: &[u8]) -> Result<()> {
    let wanted: Vec<String> = numbers.iter().map(|number| format!("router-{number}")).collect();
    tenant
        .until(Kind::RouterConfig, CONFIG, &format!("routers {wanted:?}"), |object| {
            let rows = object["status"]["routers"].as_array().context("there are no routers")?;
            let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
            ensure!(names == wanted, "there are {names:?}");
            ensure!(rows.iter().all(|row| row["state"] == "Serving"), "not all serve");
            crate::support::is_ready(object)
        })
        .await
}

/// Sends numbered messages by one router and takes them by another until told to stop; gives how many there were.
async fn traffic(from: &Router, to: &Router, address: String, stop: Arc<AtomicBool>) -> Result<usize> {
    let (mut producer, mut consumer) = (from.client().await?, to.client().await?);
    let mut receiver = consumer.consumer(&address, Node::Queue).await?;
    let mut count = 0;
    loop {
        let ends = stop.load(Ordering::Relaxed);
        let text = count.to_string();
        producer.send_all(&address, &[Outgoing::text(&text)]).await?;
        arrived(&receiver.receive(1, LONG).await?, &[&text])?;
        count += 1;
        if ends {
            return Ok(count);
        }
    }
}

#[tokio::test]
async fn routers_are_followed_from_one_to_five_to_two_with_traffic() -> Result<()> {
    if !inside_own_network("services::routers_are_followed_from_one_to_five_to_two_with_traffic").await? {
        return Ok(());
    }
    let world = World::shared().await?;
    let tenant = world.tenant("followed").await?;
    let mut routers = Vec::new();
    for number in 0..6 {
        routers.push(pod(number).await?);
    }
    let rows = |numbers: &[u8]| numbers.iter().map(|n| (*n, &routers[usize::from(*n)])).collect::<Vec<_>>();

    // A Service that is not there is told, with what to do; slices of another one are nobody's.
    follow(&tenant, "other", &rows(&[5]), true).await?;
    let service = json!({"name": "routers", "port": "amqp"});
    let way = json!({"external": {"serviceRef": service}, "brokerCredentials": {"secretName": LOGIN}});
    tenant.router_config(CONFIG, &[("broker", &world.broker)], json!({"routers": way})).await?;
    tenant.create(Kind::AddressSpace, SPACE, json!({"type": "standard", "routerConfigRef": {"name": CONFIG}})).await?;
    let told = tenant.reason(Kind::RouterConfig, CONFIG, "NoEndpoints").await?;
    ensure!(told.contains("Service followed/routers has no EndpointSlices: create it"), "{told}");
    tenant.reason(Kind::AddressSpace, SPACE, "NoRouterServing").await?;

    // A router that is not ready becomes so by being configured.
    follow(&tenant, "routers", &rows(&[0]), false).await?;
    serve(&tenant, &[0]).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    tenant.ready_address("prices", json!({"type": "anycast"})).await?;
    filled(&routers[0]).await?;
    follow(&tenant, "routers", &rows(&[0]), true).await?;

    let mark = tenant.mark().await?;
    let stop = Arc::new(AtomicBool::default());
    let orders = tenant.name("orders");
    let scaling = async {
        follow(&tenant, "routers", &rows(&[0, 1, 2, 3, 4]), false).await?;
        serve(&tenant, &[0, 1, 2, 3, 4]).await?;
        for router in &routers[..5] {
            filled(router).await?;
        }
        // Each leads to what the others lead to.
        tenant.ready_address("late", json!({"type": "queue"})).await?;
        each_leads_to(&tenant.name("late"), &routers[..5]).await?;
        follow(&tenant, "routers", &rows(&[0, 3]), true).await?;
        serve(&tenant, &[0, 3]).await?;
        stop.store(true, Ordering::Relaxed);
        Ok(())
    };
    let moving = traffic(&routers[0], &routers[0], orders.clone(), Arc::clone(&stop));
    let (count, ()) = tokio::try_join!(moving, scaling)?;
    ensure!(count > 1, "there was no traffic");
    let writes = tenant.address_writes(mark).await?;
    ensure!(writes.iter().all(|write| write.name == "late"), "{writes:?}");

    // Those that went are asked for nothing any more, and hold up nothing.
    let asked = || [1, 2, 4, 5].map(|number: usize| routers[number].counters().ok());
    let before = asked();
    tenant.delete(Kind::Address, "prices").await?;
    tenant.gone(Kind::Address, "prices").await?;
    tenant.ready_address("last", json!({"type": "anycast"})).await?;
    ensure!(before == asked(), "asked {before:?} before and {:?} after", asked());
    ensure!(before[3].is_none_or(|counters| counters == Counters::default()), "a router of another Service was asked");
    let mut client = routers[3].client().await?;
    client.send_text(&orders, "still here").await?;
    arrived(&routers[0].client().await?.receive(&orders, 1, SOON).await?, &["still here"])
}

/// Sends a message by each router, with a consumer at each that stays: the broker gives a message to any of the routers
/// that have asked for some, and a router keeps what it was given for its own consumers, also for those to come.
async fn each_leads_to(address: &str, routers: &[Router]) -> Result<()> {
    let (mut clients, mut consumers) = (Vec::new(), Vec::new());
    for router in routers {
        let mut client = router.client().await?;
        consumers.push(client.consumer(address, Node::Queue).await?);
        clients.push(client);
    }
    let sent: BTreeSet<String> = (0..routers.len()).map(|number| format!("by {number}")).collect();
    for (text, client) in sent.iter().zip(&mut clients) {
        client.send_text(address, text).await?;
    }
    let mut received = BTreeSet::new();
    let deadline = Instant::now() + SOON;
    while received != sent {
        ensure!(Instant::now() < deadline, "of {sent:?} only {received:?} came");
        for consumer in &mut consumers {
            received.extend(consumer.receive(sent.len(), MOMENT).await?.into_iter().map(|message| message.body));
        }
    }
    Ok(())
}

/// Waits until a probe would find it filled. Real ones share a loopback here, so that only one of them can tell.
async fn filled(router: &Router) -> Result<()> {
    if router.is_real() {
        return Ok(());
    }
    let address = router.address();
    eventually(SOON, "the readiness listener", || async {
        TcpStream::connect((address, READINESS)).await?;
        Ok(())
    })
    .await
}
