//! A HAProxy with its drive, told by hand what it must hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use waystation::drive::haproxy::actor::{Batch, HaproxyDrive, Limits, Order, Report, State};
use waystation::drive::haproxy::disk::{Disk, Folder};
use waystation::drive::haproxy::socket::SocketLink;
use waystation::drive::meter::Meter;
use waystation::edge::class::Class;
use waystation::edge::ids::Key;
use waystation::edge::input::{Allowed, Input, Listeners, Meta, RouterConfig, Tuning};
use waystation::edge::render::Layout;
use waystation::edge::wanted::{CrtLine, Link, MapName, Server as Target, Slot, Value, Wanted};
use waystation::engine::clock::Clock;
use waystation::engine::jitter::Jitter;
use waystation_kit::haproxy::Haproxy;
use waystation_kit::pki::{Authority, Leaf};

/// For what must happen: generous, since it is only ever waited for in full when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Commands by kind and result.
#[derive(Default)]
pub struct Counts(Mutex<BTreeMap<(&'static str, &'static str), usize>>);

impl Meter for Counts {
    fn command(&self, operation: &'static str, result: &'static str, _: Duration) {
        *self.0.lock().unwrap().entry((operation, result)).or_insert(0) += 1;
    }
}

impl Counts {
    pub fn all(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        self.0.lock().unwrap().clone()
    }
}

struct SystemClock;

impl Clock for SystemClock {
    fn unix_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(0)
    }
}

/// A drive at work.
pub struct Driver {
    orders: mpsc::UnboundedSender<Order>,
    reports: mpsc::Receiver<Report>,
    /// Everything that was reported.
    pub told: Vec<Report>,
    pub counts: Arc<Counts>,
    task: JoinHandle<()>,
}

/// A HAProxy, its drive, and what is wanted of it.
pub struct Edge {
    pub haproxy: Haproxy,
    pub wanted: Wanted,
    pub authority: Authority,
    pub default: Leaf,
    pub driver: Option<Driver>,
    pub limits: Limits,
    pub disk: Arc<dyn Disk>,
    pub config: RouterConfig,
    generation: u64,
}

impl Edge {
    /// With nothing to serve.
    pub fn new() -> Result<Self> {
        let haproxy = Haproxy::prepare()?;
        let authority = Authority::new("test")?;
        let default = authority.server("default", &["h.com", "g.com"])?;
        let key = Key::new("edge", "main");
        let config = RouterConfig {
            meta: Meta { key, uid: "u".into(), created_s: 0 },
            class_name: "waystation".into(),
            allowed: Allowed::All,
            any_owner: false,
            default_certificate: None,
            default_backend: None,
            external_name: false,
            listeners: Listeners {
                http: haproxy.http(),
                https: haproxy.https(),
                stats: haproxy.stats(),
                addresses: vec!["127.0.0.1".parse()?],
                ..Listeners::default()
            },
            tuning: Tuning::default(),
            options: Arc::new([]),
        };
        let (wanted, limits) = (Wanted::default(), Limits::default());
        let disk: Arc<dyn Disk> = Arc::new(Folder);
        Ok(Self { haproxy, wanted, authority, default, driver: None, limits, disk, config, generation: 0 })
    }

    /// With that to serve, driven and running.
    pub async fn started(prepare: impl FnOnce(&mut Self)) -> Result<Self> {
        let mut edge = Self::new()?;
        prepare(&mut edge);
        edge.drive();
        edge.begin().await?;
        Ok(edge)
    }

    /// Starts HAProxy when the drive has written its files, and waits until all is in force.
    pub async fn begin(&mut self) -> Result<()> {
        let config = self.haproxy.folder().join("haproxy.cfg");
        let written = async {
            while !config.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.context("no files were written")?;
        self.haproxy.check().await?;
        self.haproxy.start().await?;
        self.in_force().await
    }

    pub fn layout(&self) -> Layout {
        Layout::new(self.haproxy.folder().display().to_string())
    }

    pub fn fallback(&self) -> String {
        pem(&self.default)
    }

    /// A drive that knows nothing but what is wanted now.
    pub fn drive(&mut self) {
        self.wanted.take_changes();
        self.generation += 1;
        let first = Batch::first(self.generation, &self.wanted, Arc::new(self.config.clone()));
        self.drive_to(first);
    }

    /// A drive that is told this first.
    pub fn drive_to(&mut self, first: Batch) {
        let (orders, taken) = mpsc::unbounded_channel();
        let (reported, reports) = mpsc::channel(1000);
        let counts = Arc::new(Counts::default());
        let link = SocketLink {
            socket: self.haproxy.socket().display().to_string(),
            master: Some(self.haproxy.master_socket().display().to_string()),
            connect: PATIENCE,
            reload: PATIENCE,
        };
        let drive = HaproxyDrive {
            link: Arc::new(link),
            disk: Arc::clone(&self.disk),
            layout: self.layout(),
            fallback_certificate: self.fallback().into(),
            orders: taken,
            reports: reported,
            limits: self.limits.clone(),
            jitter: Jitter::seeded(1),
            clock: Arc::new(SystemClock),
            meter: counts.clone(),
        };
        let task = tokio::spawn(drive.run());
        self.driver = Some(Driver { orders, reports, told: Vec::new(), counts, task });
        self.send(first);
    }

    /// Tells the drive that.
    pub fn send(&mut self, batch: Batch) {
        self.generation = batch.generation;
        if let Some(driver) = &self.driver {
            driver.orders.send(Order::Batch(batch)).ok();
        }
    }

    /// Tells the drive what has changed.
    pub fn tell(&mut self) {
        self.tell_all(Vec::new());
    }

    fn tell_all(&mut self, reload: Vec<&'static str>) {
        let changes = self.wanted.take_changes();
        self.generation += 1;
        let config = Arc::new(self.config.clone());
        self.send(Batch { generation: self.generation, changes, config, reload });
    }

    /// Tells the drive what has changed, and waits until it is in force.
    pub async fn settle(&mut self) -> Result<()> {
        self.tell();
        self.in_force().await
    }

    /// Waits until the newest batch is in force.
    pub async fn in_force(&mut self) -> Result<()> {
        let generation = self.generation;
        let told = self.driver.iter().flat_map(|driver| &driver.told);
        if told.into_iter().any(|report| *report == Report::Model(Input::InForce(generation))) {
            return Ok(());
        }
        self.until("all is in force", |report| *report == Report::Model(Input::InForce(generation))).await.map(drop)
    }

    /// Changes the fixed part of the configuration.
    pub fn tune(&mut self, f: impl FnOnce(&mut RouterConfig), fields: Vec<&'static str>) {
        f(&mut self.config);
        self.tell_all(fields);
    }

    pub fn order(&self, order: Order) {
        self.driver.as_ref().unwrap().orders.send(order).ok();
    }

    /// Waits for a report.
    pub async fn until(&mut self, what: &str, test: impl Fn(&Report) -> bool) -> Result<Report> {
        let driver = self.driver.as_mut().context("nobody drives")?;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match tokio::time::timeout_at(deadline, driver.reports.recv()).await {
                Ok(Some(report)) => {
                    driver.told.push(report.clone());
                    if test(&report) {
                        return Ok(report);
                    }
                }
                Ok(None) => bail!("the drive ended before {what}; it told {:?}", driver.told),
                Err(_) => bail!("not in time: {what}; the drive told {:?}; {}", driver.told, self.haproxy.log()),
            }
        }
    }

    /// Waits until it serves again.
    pub async fn serving(&mut self) -> Result<()> {
        self.until("it serves", |report| *report == Report::State(State::Serving)).await.map(drop)
    }

    /// Has the drive finish.
    pub async fn finish(&mut self) -> Result<Driver> {
        self.order(Order::Finish);
        let mut driver = self.driver.take().context("nobody drives")?;
        while let Some(report) = tokio::time::timeout(PATIENCE, driver.reports.recv()).await? {
            driver.told.push(report);
        }
        tokio::time::timeout(PATIENCE, &mut driver.task).await??;
        Ok(driver)
    }

    /// Has it compared; differences of the process and of files.
    pub async fn compare(&mut self) -> Result<(usize, usize)> {
        self.order(Order::Compare);
        match self.until("a comparison", |report| matches!(report, Report::Compared { .. })).await? {
            Report::Compared { differences, files } => Ok((differences, files)),
            other => bail!("{other:?}"),
        }
    }

    // === What is wanted ===

    pub fn backend(&mut self, name: &str) -> &mut Self {
        self.wanted.set(Slot::Backend(name.into()), Some(Value::Backend(Class::DEFAULT)));
        self
    }

    pub fn server(&mut self, backend: &str, port: u16, drain: bool) -> &mut Self {
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let target = Target { address, port, drain, maxconn: 0, link: Arc::new(Link::default()) };
        self.wanted.set(server_slot(backend, port), Some(Value::Server(Arc::new(target))));
        self
    }

    pub fn no_server(&mut self, backend: &str, port: u16) -> &mut Self {
        self.wanted.set(server_slot(backend, port), None);
        self
    }

    pub fn map(&mut self, map: MapName, key: &str, value: Option<&str>) -> &mut Self {
        self.wanted.set(Slot::Map(map, key.into()), value.map(|value| Value::Text(value.into())));
        self
    }

    /// Everything of the host goes to the backend.
    pub fn route(&mut self, host: &str, backend: Option<&str>) -> &mut Self {
        self.map(MapName::Hosts, host, backend.map(|_| "-")).map(MapName::Prefix, &format!("{host}/"), backend)
    }

    pub fn certificate(&mut self, name: &str, leaf: Option<&Leaf>) -> &mut Self {
        let value = leaf.map(|leaf| Value::Sealed(pem(leaf).into()));
        self.wanted.set(Slot::Certificate(name.into()), value);
        self
    }

    pub fn crt_line(&mut self, host: &str, certificate: Option<&str>) -> &mut Self {
        let line = |name: &str| Value::CrtLine(Arc::new(CrtLine { certificate: name.into(), client: None }));
        self.wanted.set(Slot::CrtList(host.into()), certificate.map(line));
        self
    }

    /// What the files say is what HAProxy says of itself.
    pub async fn files_are_the_process(&self) -> Result<()> {
        let layout = self.layout();
        let folder = self.haproxy.folder();
        for map in MapName::ALL {
            let shown = self.haproxy.ask(&format!("show map {}", layout.map(*map))).await?;
            let mut held: Vec<&str> = shown.lines().filter_map(|line| line.split_once(' ')).map(|(_, e)| e).collect();
            let file = std::fs::read_to_string(layout.map(*map))?;
            let mut said: Vec<&str> = file.lines().collect();
            held.sort_unstable();
            said.sort_unstable();
            ensure!(held == said, "{map}: held {held:?}, in the file {said:?}");
        }
        let mut held: Vec<String> = self.haproxy.stat().await?.iter().map(waystation_kit::haproxy::Row::name).collect();
        held.retain(|name| !name.starts_with('_') && !name.ends_with("/BACKEND"));
        let mut said = Vec::new();
        for entry in std::fs::read_dir(folder.join("backends"))? {
            let mut backend = String::new();
            for line in std::fs::read_to_string(entry?.path())?.lines() {
                match line.split_whitespace().collect::<Vec<_>>()[..] {
                    ["backend", name, ..] => backend = name.to_owned(),
                    ["server", name, ..] => said.push(format!("{backend}/{name}")),
                    _ => {}
                }
            }
        }
        held.sort();
        said.sort();
        ensure!(held == said, "servers: held {held:?}, in the files {said:?}");
        Ok(())
    }
}

pub fn server_slot(backend: &str, port: u16) -> Slot {
    Slot::Server(backend.into(), format!("127.0.0.1_{port}").into())
}

pub fn pem(leaf: &Leaf) -> String {
    format!("{}{}", leaf.certificate, leaf.key)
}

/// Asks until the answer is that, for what only HAProxy's own clock brings about.
pub async fn soon<T, Fut>(what: &str, mut probe: impl FnMut() -> Fut) -> Result<T>
where
    Fut: Future<Output = Result<T>>,
{
    waystation_kit::process::eventually(PATIENCE, what, &mut probe).await
}
