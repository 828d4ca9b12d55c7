//! Services in a space's namespace that lead to routers in another.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use waystation_kit::amqp_client::Client;
use waystation_kit::artemis::Login;
use waystation_kit::process::{eventually, inside_own_network};
use waystation_kit::router::{Router, RouterOptions};

use crate::support::{CONFIG, Kind, LOGIN, SOON, SPACE, Tenant, World, arrived};

struct Children {
    services: Api<Service>,
    slices: Api<EndpointSlice>,
}

impl Children {
    fn of(tenant: &Tenant<'_>) -> Self {
        let (client, namespace) = (tenant.client.clone(), &tenant.namespace);
        Self { services: Api::namespaced(client.clone(), namespace), slices: Api::namespaced(client, namespace) }
    }

    /// `address:port` of everything that a Service leads to.
    async fn led_to(&self, service: &str) -> Result<Vec<String>> {
        let label = format!("kubernetes.io/service-name={service}");
        let mut all = Vec::new();
        for slice in self.slices.list(&ListParams::default().labels(&label)).await? {
            let port = slice.ports.iter().flatten().next().and_then(|port| port.port).context("a slice has no port")?;
            let endpoints = slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.clone());
            all.extend(endpoints.map(|address| format!("{address}:{port}")));
        }
        all.sort_unstable();
        Ok(all)
    }

    async fn leads_to(&self, service: &str, wanted: &[String]) -> Result<()> {
        eventually(SOON, &format!("Service {service} leads to {wanted:?}"), || async {
            let found = self.led_to(service).await?;
            ensure!(found == wanted, "it leads to {found:?}");
            Ok(())
        })
        .await
    }

    async fn port(&self, service: &str) -> Result<Option<i32>> {
        let service = self.services.get_opt(service).await?;
        let ports = service.and_then(|service| service.spec?.ports).unwrap_or_default();
        ensure!(ports.len() <= 1, "there are {ports:?}");
        ensure!(ports.iter().all(|port| port.name.as_deref().is_none_or(|name| name == "amqp")), "{ports:?}");
        Ok(ports.first().map(|port| port.port))
    }

    async fn has_port(&self, service: &str, wanted: Option<i32>) -> Result<()> {
        eventually(SOON, &format!("Service {service} has port {wanted:?}"), || async {
            let found = self.port(service).await?;
            ensure!(found == wanted, "it has {found:?}");
            Ok(())
        })
        .await
    }
}

/// Waits until the status tells this of an endpoint.
async fn told(tenant: &Tenant<'_>, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    tenant
        .until(Kind::AddressSpace, SPACE, &format!("endpoint {name}"), |object| {
            let rows = object["status"]["endpoints"].as_array().context("there are no endpoints")?;
            let row = rows.iter().find(|row| row["name"] == name).context("there is no such endpoint")?;
            ensure!(wanted(row), "it is {row}");
            Ok(())
        })
        .await
}

#[tokio::test]
async fn endpoints_are_services_that_lead_to_the_routers_and_go_with_the_space() -> Result<()> {
    if !inside_own_network("endpoints::endpoints_are_services_that_lead_to_the_routers_and_go_with_the_space").await? {
        return Ok(());
    }
    let world = World::shared().await?;
    let (infra, tenant) = (world.tenant("expose-infra").await?, world.tenant("expose-team").await?);
    let router = |number: u8| {
        let address = std::net::Ipv4Addr::new(10, 77, 1, number).into();
        Router::start(RouterOptions { id: format!("R{number}"), address, ..RouterOptions::default() })
    };
    let (first, mut second) = (router(1).await?, router(2).await?);
    let host = |router: &Router, name: &str, readiness: u16| {
        let address = router.address().to_string();
        json!({"name": name, "host": address, "port": router.port(), "readinessPort": readiness})
    };
    let Login::Password { user, password } = world.broker.login() else { anyhow::bail!("the broker has no password") };
    infra.secret(LOGIN, &[("username", user), ("password", password)]).await?;
    let broker = json!({"name": "broker", "host": "127.0.0.1", "port": world.broker.plain_port()});
    let spec = json!({
        "allowedNamespaces": {"from": "All"},
        "messaging": {
            "brokers": {"external": {"hosts": [broker], "credentials": {"secretName": LOGIN}}},
            "routers": {
                "external": {"hosts": [host(&first, "r1", 7001), host(&second, "r2", 7002)]},
                "brokerCredentials": {"secretName": LOGIN},
            },
        },
    });
    infra.create(Kind::RouterConfig, CONFIG, spec).await?;
    let children = Children::of(&tenant);

    // A Service that somebody else has made under that name.
    let foreign = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop-taken"}, "spec": {"ports": [{"port": 1}]},
    });
    children.services.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    let space = json!({
        "type": "standard",
        "routerConfigRef": {"name": CONFIG, "namespace": infra.namespace},
        "endpoints": [
            {"name": "in", "service": "amqp"},
            {"name": "out", "service": "amqp", "expose": "loadBalancer"},
            {"name": "named", "service": "amqp", "host": "mq.example.com"},
            {"name": "tls", "service": "amqps"},
            {"name": "taken", "service": "amqp"},
        ],
    });
    tenant.create(Kind::AddressSpace, SPACE, space).await?;
    infra.ready(Kind::RouterConfig, &[CONFIG]).await?;
    tenant.ready(Kind::AddressSpace, &[SPACE]).await?;
    let at = |router: &Router| format!("{}:{}", router.address(), router.port());
    let mut both = vec![at(&first), at(&second)];
    both.sort_unstable();
    children.leads_to("shop-in", &both).await?;
    let inside = |row: &Value| row["host"] == "shop-in.expose-team.svc" && row["port"] == 5672;
    told(&tenant, "in", inside).await?;
    told(&tenant, "named", |row| row["host"] == "mq.example.com" && row["port"] == 5672).await?;
    told(&tenant, "out", |row| row["host"].is_null() && row["message"] == "waits for a load balancer").await?;
    let lacks = |row: &Value, part: &str| row["message"].as_str().is_some_and(|message| message.contains(part));
    told(&tenant, "tls", |row| lacks(row, "listeners.amqps")).await?;
    told(&tenant, "taken", |row| lacks(row, "Service shop-taken is there already and belongs to somebody else"))
        .await?;
    ensure!(children.port("shop-taken").await? == Some(1), "the Service of somebody else was changed");
    let service = children.services.get("shop-in").await?;
    ensure!(service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_ref()).is_some(), "{service:?}");

    // What it leads to takes and gives messages.
    tenant.ready_address("orders", json!({"type": "queue"})).await?;
    let (address, port) = both[0].rsplit_once(':').context("no port")?;
    let mut client = Client::connect(address, port.parse()?, &Login::Anonymous).await?;
    client.send_text(&tenant.name("orders"), "by the Service").await?;
    let received = second.client().await?.receive(&tenant.name("orders"), 1, SOON).await?;
    arrived(&received, &["by the Service"])?;

    // What a cloud does.
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}});
    children.services.patch_status("shop-out", &PatchParams::default(), &Patch::Merge(&ingress)).await?;
    told(&tenant, "out", |row| row["host"] == "198.51.100.7" && row["message"].is_null()).await?;

    // Once all is there, nothing is written.
    let mark = tenant.mark().await?;
    let others =
        json!({"metadata": {"annotations": {"example.com/by": "hand"}}, "spec": {"sessionAffinity": "ClientIP"}});
    children.services.patch("shop-in", &PatchParams::default(), &Patch::Merge(&others)).await?;
    // Changed and deleted by hand: it comes back, and what others own stays.
    let wrong = json!({"spec": {"ports": [{"name": "amqp", "port": 1, "protocol": "TCP"}]}});
    children.services.patch("shop-in", &PatchParams::default(), &Patch::Merge(&wrong)).await?;
    children.has_port("shop-in", Some(5672)).await?;
    let service = children.services.get("shop-in").await?;
    ensure!(
        service.metadata.annotations.is_some_and(|all| all.contains_key("example.com/by")),
        "an annotation is gone"
    );
    let affinity = service.spec.and_then(|spec| spec.session_affinity);
    ensure!(affinity.as_deref() == Some("ClientIP"), "{affinity:?}");
    children.services.delete("shop-in", &DeleteParams::default()).await?;
    children.has_port("shop-in", Some(5672)).await?;
    children.slices.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    children.leads_to("shop-in", &both).await?;
    let writes = tenant.writes(mark).await?;
    ensure!(writes.iter().all(|write| ["services", "endpointslices"].contains(&&*write.resource)), "{writes:?}");

    // A router that goes is led to no more, and comes back.
    second.stop().await?;
    children.leads_to("shop-in", &[at(&first)]).await?;
    second.start_again().await?;
    children.leads_to("shop-in", &both).await?;

    // An endpoint that nobody asks for any more goes, and all of them go with the space.
    let fewer = json!({"spec": {"endpoints": [{"name": "in", "service": "amqp"}]}});
    tenant.change(Kind::AddressSpace, SPACE, fewer).await?;
    children.has_port("shop-out", None).await?;
    tenant
        .until(Kind::AddressSpace, SPACE, "one endpoint", |object| {
            ensure!(object["status"]["endpoints"].as_array().is_some_and(|rows| rows.len() == 1));
            Ok(())
        })
        .await?;
    ensure!(children.led_to("shop-out").await?.is_empty(), "slices are left");
    tenant.delete(Kind::Address, "orders").await?;
    tenant.gone(Kind::Address, "orders").await?;
    tenant.delete(Kind::AddressSpace, SPACE).await?;
    tenant.gone(Kind::AddressSpace, SPACE).await?;
    children.has_port("shop-in", None).await?;
    children.leads_to("shop-in", &[]).await?;
    ensure!(children.port("shop-taken").await? == Some(1), "the Service of somebody else is gone");
    Ok(())
}
