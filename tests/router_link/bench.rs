//! A drive of its own for a test, with everything that stands around it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use waystation::drive::amqp::{Connector as Reach, Endpoint, Login, Secret};
use waystation::drive::broker::artemis::ArtemisLink;
use waystation::drive::broker::link::{BrokerLink, BrokerSession};
use waystation::drive::broker::ops;
use waystation::drive::keep::Limits;
use waystation::drive::meter::Meter;
use waystation::drive::router::actor::{Command, RouterDrive, WINDOW};
use waystation::drive::router::carry::Secrets;
use waystation::drive::router::qpid::QpidLink;
use waystation::engine::jitter::Jitter;
use waystation::engine::mailbox::Mailbox;
use waystation::engine::permit::{Granter, permit};
use waystation::messaging::broker::{Class, Queue, Routing, Settings, ground};
use waystation::messaging::ids::Key;
use waystation::messaging::router::{
    AutoLink, Connector, Contents, Direction, Distribution, Done, Entry, Job, Outcome, RouterLink as Report, Wish,
};
use waystation_kit::artemis::{self, ArtemisOptions};
use waystation_kit::router::Router;

pub const OWNER: &str = "test";
pub const HELD: std::result::Result<Done, String> = Ok(Done::Held { trouble: None });
/// For what must happen: generous, since it is only ever waited for in full when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

struct NoMeter;

impl Meter for NoMeter {
    fn command(&self, _: &'static str, _: &'static str, _: Duration) {}
}

/// Of the broker.
const USER: &str = "admin";
const PASSWORD: &str = "do-not-print-me";

struct OneSecret;

impl Secrets for OneSecret {
    fn credentials(&self, _: &Key) -> Option<(String, Secret)> {
        Some((USER.to_owned(), Secret::new(PASSWORD)))
    }
}

pub fn broker_options() -> ArtemisOptions {
    ArtemisOptions { login: artemis::Login::password(USER, PASSWORD), ..Default::default() }
}

pub struct Bench {
    mailbox: Mailbox<Job>,
    commands: mpsc::UnboundedSender<Command>,
    reports: mpsc::Receiver<Report>,
    serving: Option<bool>,
    generation: u64,
    _granter: Granter,
}

pub fn link_to(router: &Router, login: Login) -> QpidLink {
    QpidLink { connector: reach(router.port(), login), request_deadline: Duration::from_secs(60) }
}

fn reach(port: u16, login: Login) -> Reach {
    Reach {
        permit: waystation::engine::permit::Permit::unlimited(),
        endpoint: Endpoint { host: "127.0.0.1".to_owned(), port },
        login,
        tls: None,
        container_id: "waystation-test".to_owned(),
        deadline: Duration::from_secs(20),
    }
}

async fn broker_session(port: u16) -> Result<Box<dyn BrokerSession>> {
    let login = Login::Plain { username: USER.to_owned(), password: Secret::new(PASSWORD) };
    let connector = reach(port, login);
    Ok(ArtemisLink { connector, request_deadline: Duration::from_secs(30) }.connect().await?)
}

/// Lets nothing come into being by being used below `ns.s/`.
pub async fn forbid_creation(port: u16) -> Result<()> {
    let all = ops::put_settings(&ground("ns.s/"), &Settings::default());
    broker_session(port).await?.call(all).await?;
    Ok(())
}

/// Makes a queue on the broker at this port.
pub async fn make_queue(port: u16, name: &str) -> Result<()> {
    let session = broker_session(port).await?;
    let queue = Queue { name: name.into(), durable: true, max_consumers: -1 };
    session.call(ops::create_queue(&queue, name, Routing::Anycast, OWNER, true)).await?;
    Ok(())
}

impl Bench {
    pub fn start(router: &Router) -> Self {
        let (granter, permit) = permit();
        let (commands, told) = mpsc::unbounded_channel();
        let (out, reports) = mpsc::channel(10_000);
        let mailbox = Mailbox::default();
        let drive = RouterDrive {
            owner: OWNER.into(),
            link: Arc::new(link_to(router, Login::Anonymous)),
            mailbox: mailbox.clone(),
            permit,
            commands: told,
            reports: out,
            as_report: Box::new(|report| report),
            limits: Limits { window: WINDOW, ..Limits::default() },
            jitter: Jitter::seeded(1),
            meter: Arc::new(NoMeter),
            secrets: Arc::new(OneSecret),
        };
        tokio::spawn(drive.run());
        granter.grant(Instant::now() + Duration::from_secs(1_000_000));
        Self { mailbox, commands, reports, serving: None, generation: 0, _granter: granter }
    }

    pub async fn report(&mut self, within: Duration) -> Result<Report> {
        let report = timeout(within, self.reports.recv()).await.context("no report")?.context("the drive has ended")?;
        if let Report::Connected { serving, .. } = report {
            self.serving = Some(serving);
        }
        Ok(report)
    }

    /// The next report that `wanted` takes something from.
    async fn find<T>(&mut self, what: &str, wanted: impl Fn(Report) -> Option<T>) -> Result<T> {
        loop {
            let report = self.report(PATIENCE).await.with_context(|| format!("waiting for {what}"))?;
            if let Some(found) = wanted(report) {
                return Ok(found);
            }
        }
    }

    pub async fn contents(&mut self) -> Result<Arc<Contents>> {
        self.find("contents", |report| match report {
            Report::Contents(contents) => Some(contents),
            _ => None,
        })
        .await
    }

    pub async fn serving(&mut self) -> Result<bool> {
        while self.serving.is_none() {
            self.report(PATIENCE).await?;
        }
        Ok(self.serving == Some(true))
    }

    pub async fn reread(&mut self) -> Result<Arc<Contents>> {
        self.commands.send(Command::Reread).ok().context("the drive has ended")?;
        self.contents().await
    }

    pub async fn down(&mut self) -> Result<()> {
        self.find("an outage", |report| matches!(report, Report::Down(_)).then_some(())).await
    }

    pub fn put(&mut self, slot: &str, wish: Wish) {
        self.generation += 1;
        let tenant = Key::new("team", "shop");
        let generation = self.generation;
        self.mailbox.put(Job { slot: slot.into(), generation, tenant, class: Class::Change, wish });
    }

    pub async fn outcome(&mut self) -> Result<Outcome> {
        self.find("an outcome", |report| match report {
            Report::Outcome(outcome) => Some(outcome),
            _ => None,
        })
        .await
    }

    pub async fn does(&mut self, slot: &str, wish: Wish) -> Result<std::result::Result<Done, String>> {
        self.put(slot, wish);
        let outcome = self.outcome().await?;
        if &*outcome.slot != slot {
            bail!("the answer is for {}", outcome.slot);
        }
        Ok(outcome.result)
    }

    pub async fn connector(&mut self, broker: &str) -> Result<Option<Arc<str>>> {
        self.find("a connector", |report| match report {
            Report::Connector(of, words) if &*of == broker => Some(words),
            _ => None,
        })
        .await
    }

    pub async fn connector_until(&mut self, broker: &str, wanted: impl Fn(Option<Arc<str>>) -> bool) -> Result<bool> {
        while !wanted(self.connector(broker).await?) {}
        Ok(true)
    }
}

pub fn hold(entry: Entry) -> Wish {
    Wish::Hold(Arc::new(entry))
}

pub fn queue(broker: &str, external: Option<&str>) -> Entry {
    let link = |direction| AutoLink { direction, broker: broker.into(), external: external.map(Into::into) };
    let links = Box::new([link(Direction::In), link(Direction::Out)]);
    Entry::Address { distribution: Distribution::Balanced, waypoint: true, links }
}

pub fn connector(broker: &str, port: u16) -> Entry {
    Entry::Connector(Connector {
        broker: broker.into(),
        host: "127.0.0.1".into(),
        port,
        ssl_profile: None,
        credentials: Some((Key::new("infra", "login"), 1)),
        relogin: false,
        remote: None,
    })
}
