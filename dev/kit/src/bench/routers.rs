//! Routers of a bench: processes that stand in for routers, and a bare client that makes on them what the operator makes.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_amqp::Value;
use serde_json::{Value as Json, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::data::Planned;
use crate::artemis::Login;
use crate::process::{Port, Process, WorkFolder};
use crate::router::management::Management;
use crate::router_core::{Answer, Request};

/// Requests in flight, as many as the operator has at most.
const WINDOW: usize = 400;
/// How often somebody looks whether a port is listened on.
const POLL: Duration = Duration::from_millis(2);
const SOON: Duration = Duration::from_secs(30);
const PREFIX: &str = "org.apache.qpid.dispatch";
/// The connector of the bare client.
const CONNECTOR: &str = "bare-connector";

/// A router: its process, which may be replaced, and its ports, which stay.
#[derive(Debug)]
pub(super) struct Router {
    process: Option<Process>,
    name: String,
    port: Port,
    readiness: Port,
    folder: WorkFolder,
}

impl Router {
    /// Starts one that knows nothing.
    pub async fn start(name: &str) -> Result<Self> {
        let (port, readiness, folder) = (Port::claim()?, Port::claim()?, WorkFolder::new(name)?);
        let mut router = Self { process: None, name: name.to_owned(), port, readiness, folder };
        router.start_again()?;
        router.accepts().await?;
        Ok(router)
    }

    /// Kills it, with all that it holds.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it, empty.
    pub fn start_again(&mut self) -> Result<()> {
        let program = std::env::current_exe()?;
        let port = format!("--port={}", self.port.number());
        let arguments = ["router".to_owned(), port, format!("--id={}", self.name)];
        self.process = Some(Process::spawn(&self.name, &program, &arguments, &[], &self.folder.join("router.log"))?);
        Ok(())
    }

    /// Waits until it takes connections; when that was seen.
    pub async fn accepts(&self) -> Result<Instant> {
        listens(self.port.number(), SOON).await
    }

    /// Waits until a probe would find it filled; when that was seen.
    pub async fn is_filled(&self, within: Duration) -> Result<Instant> {
        listens(self.readiness.number(), within).await
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its row in a RouterConfig.
    pub fn row(&self) -> Json {
        json!({
            "name": self.name, "host": "127.0.0.1", "port": self.port.number(), "readinessPort": self.readiness.number(),
        })
    }
}

async fn listens(port: u16, within: Duration) -> Result<Instant> {
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        if began.elapsed() > within {
            bail!("nobody listens on port {port} within {within:?}");
        }
        sleep(POLL).await;
    }
    Ok(Instant::now())
}

/// Makes on each router what the operator makes for the addresses, under names that are nobody else's. `broker`: the
/// port of the broker that queues are on.
pub(super) async fn make(ports: &[u16], addresses: &[Planned], broker: Option<u16>) -> Result<()> {
    ByHand::open(ports, broker).await?.make(addresses).await
}

/// Takes away what [`make`] made.
pub(super) async fn remove(ports: &[u16], addresses: &[Planned]) -> Result<()> {
    ByHand::open(ports, None).await?.remove(addresses).await
}

/// A bare client with a connection to each router.
pub(super) struct ByHand(Vec<Management>);

impl ByHand {
    /// Connects, and makes the connector to the broker on this port.
    pub async fn open(ports: &[u16], broker: Option<u16>) -> Result<Self> {
        let one = async |port: &u16| {
            let mut management = Management::open(*port, &Login::Anonymous).await?;
            if let Some(broker) = broker {
                let attributes = [
                    ("host", Value::from("127.0.0.1")),
                    ("port", Value::String(broker.to_string())),
                    ("role", Value::from("route-container")),
                    ("saslMechanisms", Value::from("ANONYMOUS")),
                ];
                // It may be there from before.
                management.ask(&Request::create(&kind("connector"), Some(CONNECTOR), &attributes)).await?;
            }
            anyhow::Ok(management)
        };
        Ok(Self(futures::future::try_join_all(ports.iter().map(one)).await?))
    }

    /// Makes what the operator makes for the addresses.
    pub async fn make(&mut self, addresses: &[Planned]) -> Result<()> {
        let requests = addresses.iter().flat_map(entities).map(|entity| entity.create()).collect();
        self.carry_out(requests).await
    }

    /// Takes it away.
    pub async fn remove(&mut self, addresses: &[Planned]) -> Result<()> {
        let entities = addresses.iter().flat_map(|address| entities(address).into_iter().rev());
        self.carry_out(entities.map(|entity| entity.delete()).collect()).await
    }

    async fn carry_out(&mut self, requests: Vec<Request>) -> Result<()> {
        let answers = self.0.iter_mut().map(|management| management.pipeline(&requests, WINDOW));
        let answers: Vec<Vec<Answer>> = futures::future::try_join_all(answers).await?;
        let refused = answers.iter().flatten().find(|answer| !answer.succeeded());
        ensure!(refused.is_none(), "a router refused: {}", refused.map_or("", |answer| &answer.description));
        Ok(())
    }
}

fn kind(of: &str) -> String {
    format!("{PREFIX}.{of}")
}

struct Entity {
    of: &'static str,
    name: String,
    attributes: Vec<(&'static str, Value)>,
}

impl Entity {
    fn create(&self) -> Request {
        Request::create(&kind(self.of), Some(&self.name), &self.attributes)
    }

    fn delete(&self) -> Request {
        Request::delete(&kind(self.of), &self.name)
    }
}

fn entities(address: &Planned) -> Vec<Entity> {
    let pattern = super::management::bare_name(address);
    let text = |text: &str| Value::String(text.to_owned());
    let queue = address.is_queue();
    let mut all = vec![Entity {
        of: "router.config.address",
        name: format!("address/{pattern}"),
        attributes: vec![
            ("pattern", text(&pattern)),
            ("distribution", text("balanced")),
            ("waypoint", Value::Bool(queue)),
        ],
    }];
    let directions: &[&str] = if queue { &["in", "out"] } else { &[] };
    all.extend(directions.iter().map(|direction| Entity {
        of: "router.config.autoLink",
        name: format!("link-{direction}/{pattern}"),
        attributes: vec![("address", text(&pattern)), ("direction", text(direction)), ("connection", text(CONNECTOR))],
    }));
    all
}

/// How long a bare client takes to fill an empty router with all of this, from the first connection that it takes.
pub(super) async fn fill_by_hand(addresses: &[Planned], broker: Option<u16>) -> Result<Duration> {
    let router = Router::start("bare-router").await.context("a router for the bare client")?;
    let began = Instant::now();
    make(&[router.port()], addresses, broker).await?;
    Ok(began.elapsed())
}
