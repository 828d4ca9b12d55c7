//! `waystation-dev demo`: the whole story on one screen, each step with its time.

mod edge;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use waystation_kit::amqp_client::{Node, Outgoing, Received};
use waystation_kit::artemis::{Artemis, ArtemisOptions, Login};
use waystation_kit::cluster::{Cluster, ClusterOptions};
use waystation_kit::edge::Edge;
use waystation_kit::operator::{NAMESPACE, Operator, OperatorOptions, SERVICE_ACCOUNT, install};
use waystation_kit::router::{Router, RouterOptions};
use waystation_kit::tools::{repository, tools};

const SOON: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(300);

#[derive(Args)]
pub struct Arguments {
    /// End when the story is told, with status 0 only if every address was Ready and every message arrived
    #[arg(long)]
    once: bool,
}

pub async fn run(arguments: &Arguments) -> Result<()> {
    let (mut interrupt, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Dropped when interrupted: then all that it started ends here and now.
    tokio::select! {
        told = tell(arguments.once) => told,
        _ = interrupt.recv() => stopped(),
        _ = term.recv() => stopped(),
    }
}

/// Whether everything was shown that there is to show.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// The end when somebody ends it: good only after the whole story.
fn stopped() -> Result<()> {
    println!("\nEverything is stopped and removed.");
    ensure!(SHOWN.load(Ordering::Relaxed), "interrupted before everything was shown");
    Ok(())
}

/// Prints what is done and how long it took.
struct Story {
    began: Instant,
}

impl Story {
    async fn step<T>(&self, what: &str, step: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let outcome = step.await;
        let mark = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!(
            "{:6.1} s  {what}: {mark} ({:.2} s)",
            self.began.elapsed().as_secs_f32(),
            began.elapsed().as_secs_f32()
        );
        outcome.with_context(|| what.to_owned())
    }
}

async fn tell(once: bool) -> Result<()> {
    let story = Story { began: Instant::now() };
    tools()?;
    let (cluster, broker) = story
        .step("a Kubernetes control plane and an Artemis broker", async {
            tokio::try_join!(Cluster::start(ClusterOptions::default()), Artemis::start(ArtemisOptions::default()))
        })
        .await?;
    story.step("the kinds, the operator's rights, the admission policy", install(&cluster, true)).await?;
    let mut operator = story
        .step("the operator, with the rights of its ServiceAccount", async {
            let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
            let options = OperatorOptions { binary: Some(binary()?), ..OperatorOptions::default() };
            let mut operator = Operator::start(&kubeconfig, &options)?;
            operator.await_ready(SOON * 3).await?;
            Ok(operator)
        })
        .await?;

    let told = async {
        messages(&story, &cluster, &broker).await?;
        let router = routed(&story, &cluster, &broker).await?;
        anyhow::Ok((router, edge::tell(&story, &cluster, &binary()?).await?))
    };
    let (router, mut edge) = match told.await {
        Ok(told) => told,
        Err(error) => {
            println!("\nThe operator's last words:\n{}", tail(&operator.logs(), 15));
            return Err(error);
        }
    };
    SHOWN.store(!once, Ordering::Relaxed);
    if !once {
        invite(&cluster, &broker, &router, &edge)?;
        std::future::pending::<()>().await;
    }
    story
        .step("the operator ends by itself when told to", async {
            let status = operator.terminate().await?;
            ensure!(status.success(), "it ended with {status}");
            Ok(())
        })
        .await?;
    story
        .step("the edge's agent ends, and so does HAProxy with its supervisor", async {
            edge.terminate_agent().await?;
            edge.terminate_supervisor().await
        })
        .await?;
    drop((operator, router, edge, cluster, broker));
    println!(
        "\nEvery address was Ready, every message arrived and every request was answered. Everything is stopped and removed."
    );
    Ok(())
}

async fn messages(story: &Story, cluster: &Cluster, broker: &Artemis) -> Result<()> {
    let yaml = std::fs::read_to_string(repository().join("docs/examples/messaging.yaml"))?;
    let ours = format!("port: {}", broker.port());
    ensure!(yaml.contains("port: 5672"), "the example names no port to be replaced");
    story
        .step("docs/examples/messaging.yaml: one RouterConfig, one AddressSpace, six Addresses", async {
            cluster.apply(&yaml.replace("port: 5672", &ours)).await
        })
        .await?;
    story
        .step("all of them Ready", async {
            let wait = ["wait", "--for=condition=Ready", "--timeout=60s", "-n", "demo", "--all", "rcfg,aspace,addr"];
            if let Err(error) = cluster.kubectl_text(&wait).await {
                let seen = cluster.kubectl_text(&["get", "rcfg,aspace,addr", "-n", "demo", "-o", "wide"]).await?;
                return Err(error.context(seen));
            }
            // The count of a space is written at most every two seconds.
            let count = "--for=jsonpath={.status.summary}=6/6";
            cluster.kubectl_text(&["wait", count, "--timeout=10s", "-n", "demo", "aspace/shop"]).await.map(drop)
        })
        .await?;
    let get = ["get", "rcfg,aspace,addr", "-n", "demo"];
    println!("\n$ kubectl {}\n{}", get.join(" "), cluster.kubectl_text(&get).await?);
    let path = ["get", "aspace", "shop", "-n", "demo", "-o", "jsonpath={.status.addressPrefix}"];
    let prefix = cluster.kubectl_text(&path).await?;
    println!("Clients put the space's prefix before an address: {prefix}orders\n");

    let address = |name: &str| format!("{prefix}{name}");
    let mut client = broker.client().await?;
    story
        .step("queue: a message is sent to orders and comes back", async {
            client.send_text(&address("orders"), "one order").await?;
            arrived(&client.receive(&address("orders"), 1, SOON).await?, "one order")
        })
        .await?;
    story
        .step("deadLetter: an order is rejected and is found in dead-letters", async {
            client.send_text(&address("orders"), "a bad order").await?;
            arrived(&client.receive_and_reject(&address("orders"), 1, SOON).await?, "a bad order")?;
            arrived(&client.receive(&address("dead-letters"), 1, SOON).await?, "a bad order")
        })
        .await?;
    story
        .step("anycast: a message is sent to price-requests, one of two consumers gets it", async {
            let mut one = client.consumer(&address("price-requests"), Node::Queue).await?;
            let mut other = client.consumer(&address("price-requests"), Node::Queue).await?;
            client.send_to(&address("price-requests"), Node::Queue, &[Outgoing::text("how much?")]).await?;
            let (mut got, more) = tokio::try_join!(one.receive(1, MOMENT * 4), other.receive(1, MOMENT * 4))?;
            got.extend(more);
            one.close().await?;
            other.close().await?;
            arrived(&got, "how much?")
        })
        .await?;
    story
        .step("multicast: a message is sent to alerts, both consumers get it", async {
            let mut one = client.consumer(&address("alerts"), Node::Topic).await?;
            let mut other = client.consumer(&address("alerts"), Node::Topic).await?;
            client.send_to(&address("alerts"), Node::Topic, &[Outgoing::text("fire")]).await?;
            let (got, more) = tokio::try_join!(one.receive(1, SOON), other.receive(1, SOON))?;
            one.close().await?;
            other.close().await?;
            arrived(&got, "fire")?;
            arrived(&more, "fire")
        })
        .await?;
    story
        .step("topic and subscription: a message is sent to news, archive has kept it", async {
            client.send_to(&address("news"), Node::Topic, &[Outgoing::text("good news")]).await?;
            let subscription = format!("{}::{}", address("news"), address("archive"));
            arrived(&client.receive(&subscription, 1, SOON).await?, "good news")
        })
        .await?;
    client.close().await
}

/// A standard space: a router in front of the broker.
async fn routed(story: &Story, cluster: &Cluster, broker: &Artemis) -> Result<Router> {
    let options = RouterOptions { login: Login::Anonymous, ..RouterOptions::default() };
    let router = story
        .step("an AMQP router: a stand-in, or the one that WAYSTATION_QDROUTERD names", Router::start(options))
        .await?;
    let mut yaml = std::fs::read_to_string(repository().join("docs/examples/routers.yaml"))?;
    let readiness = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let ports = [("port: 5672", broker.port()), ("port: 5673", router.port()), ("readinessPort: 7779", readiness)];
    for (named, port) in ports {
        ensure!(yaml.contains(named), "the example does not name {named} to be replaced");
        let (field, _) = named.split_once(' ').context("a field and a port")?;
        yaml = yaml.replace(named, &format!("{field} {port}"));
    }
    story
        .step(
            "docs/examples/routers.yaml: a RouterConfig with a router, a standard space, two Addresses: all Ready",
            async {
                cluster.apply(&yaml).await?;
                let wait =
                    ["wait", "--for=condition=Ready", "--timeout=60s", "-n", "demo", "--all", "rcfg,aspace,addr"];
                if let Err(error) = cluster.kubectl_text(&wait).await {
                    let seen = cluster.kubectl_text(&["get", "rcfg,aspace,addr", "-n", "demo", "-o", "wide"]).await?;
                    return Err(error.context(seen));
                }
                // Its counts follow when they have come to rest.
                let count = "--for=jsonpath={.status.summary}=2/2";
                cluster.kubectl_text(&["wait", count, "--timeout=10s", "-n", "demo", "aspace/bazaar"]).await.map(drop)
            },
        )
        .await?;
    let get = ["get", "rcfg,aspace", "-n", "demo"];
    println!("\n$ kubectl {}\n{}", get.join(" "), cluster.kubectl_text(&get).await?);
    let (mut sender, mut receiver) = (router.client().await?, router.client().await?);
    story
        .step("queue: a message goes through the router to the broker, and back when somebody asks", async {
            sender.send_text("demo.bazaar/parcels", "a parcel").await?;
            arrived(&receiver.receive("demo.bazaar/parcels", 1, SOON).await?, "a parcel")
        })
        .await?;
    story
        .step("anycast: the router hands a message from client to client", async {
            let quotes = "demo.bazaar/quotes";
            let mut consumer = receiver.consumer(quotes, Node::Queue).await?;
            let quote = [Outgoing::text("nine")];
            let (got, ()) = tokio::try_join!(consumer.receive(1, SOON), sender.send_to(quotes, Node::Queue, &quote))?;
            consumer.close().await?;
            arrived(&got, "nine")
        })
        .await?;
    sender.close().await?;
    receiver.close().await?;
    Ok(router)
}

fn arrived(received: &[Received], body: &str) -> Result<()> {
    let bodies: Vec<&str> = received.iter().map(|message| message.body.as_str()).collect();
    ensure!(bodies == [body], "expected {body:?}, received {bodies:?}");
    Ok(())
}

fn invite(cluster: &Cluster, broker: &Artemis, router: &Router, edge: &Edge) -> Result<()> {
    println!(
        "
All of this stays up until Ctrl-C. In another terminal:

  export KUBECONFIG={kubeconfig}
  export PATH={programs}:$PATH WAYSTATION_BROKER_PORT={port}
  kubectl get addr -n demo -w                        what you change shows here within milliseconds
  kubectl describe addr orders -n demo
  kubectl explain addr.spec
  kubectl delete addr archive -n demo
  {this} send demo.shop/orders hello
  {this} receive demo.shop/orders

  curl -k --resolve shop.example:{https}:127.0.0.1 https://shop.example:{https}/
  kubectl annotate ingress shop -n shop waystation.dev/app-root=/welcome
  kubectl get events -n shop

The broker is amqp://127.0.0.1:{port}, user admin, password admin-password; the router amqp://127.0.0.1:{router}.
The objects are docs/examples/messaging.yaml, routers.yaml and edge.yaml; README.md tells where to read on.
",
        kubeconfig = cluster.kubeconfig().display(),
        programs = tools()?.programs().display(),
        port = broker.port(),
        router = router.port(),
        https = edge.https(),
        this = std::env::current_exe()?.display(),
    );
    Ok(())
}

/// The operator's binary, built beside this one.
fn binary() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("waystation");
    ensure!(path.is_file(), "{} is not built: cargo build --bins", path.display());
    Ok(path)
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
