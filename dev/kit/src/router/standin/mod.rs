//! A stand-in for an AMQP router: management from [`crate::router_core`], and messages moved between clients, and
//! between them and real brokers, as `docs/routers.md` tells it.
//!
//! This module is what surrounds the [`plane`]: sockets, TLS, listeners and connectors that come and go with their
//! entities, and faults on command.

mod plane;
mod wire;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::RouterOptions;
use crate::artemis::Login;
use crate::router_core::{Connector, Core, Counters, Event, Rights};
use plane::{Out, Peer, Plane};
use wire::Gate;

/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(20);
/// Until a connector that was never connected tries again.
const RECONNECT: Duration = Duration::from_secs(5);
/// The same for one that was.
const RECONNECT_AFTER_OPEN: Duration = Duration::from_secs(2);
const READ_BUFFER: usize = 64 * 1024;

/// What the router does with clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Manner {
    /// Accepts everything and answers nothing.
    hangs: bool,
    /// Everything that it sends is late by this.
    slow: Duration,
}

/// A running stand-in; ends when dropped.
#[derive(Debug)]
pub(super) struct StandIn {
    port: u16,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

struct Shared {
    plane: Mutex<Plane>,
    manner: watch::Sender<Manner>,
    /// Changes when all connections shall end.
    cut: watch::Sender<u64>,
    /// Whether the router is there at all.
    running: watch::Sender<bool>,
    /// Listeners and connectors at work, by kind and name.
    tasks: Mutex<HashMap<(&'static str, String), AbortHandle>>,
    gate: Gate,
    tls: Option<TlsAcceptor>,
    address: IpAddr,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StandIn {
    pub(super) async fn start(port: u16, options: &RouterOptions, tls: Option<TlsAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind((options.address, port)).await.with_context(|| format!("port {port}"))?;
        let port = listener.local_addr()?.port();
        let mut core = Core::new(&options.id, options.flavour);
        core.file_listener(&options.address.to_string(), port);
        core.file_entity("policy", "policy/None", &[("enableVhostPolicy", options.policies.into())]);
        for entity in &options.file_entities {
            let attributes = entity.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str().into()));
            core.file_entity(&entity.entity_type, &entity.name, &attributes.collect::<Vec<_>>());
        }
        let gate = Gate { login: options.login.clone(), external: tls.is_some() };
        let shared = Arc::new(Shared {
            plane: Mutex::new(Plane::new(core)),
            manner: watch::Sender::new(Manner::default()),
            cut: watch::Sender::new(0),
            running: watch::Sender::new(true),
            tasks: Mutex::default(),
            gate,
            tls,
            address: options.address,
        });
        let mut serving = JoinSet::new();
        serving.spawn(main_listener(listener, port, Arc::clone(&shared)));
        serving.spawn(keep_time(Arc::clone(&shared)));
        Ok(Self { port, shared, _serving: serving })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let result = action(&mut lock(&self.shared.plane).core);
        self.shared.carry_out();
        result
    }

    pub(super) fn hang(&self) {
        self.shared.manner.send_modify(|manner| manner.hangs = true);
    }

    pub(super) fn go_on(&self) {
        self.shared.manner.send_modify(|manner| manner.hangs = false);
    }

    pub(super) fn slow(&self, by: Duration) {
        self.shared.manner.send_modify(|manner| manner.slow = by);
    }

    pub(super) fn cut(&self) {
        self.shared.cut.send_modify(|count| *count += 1);
    }

    /// Ends it: nothing listens and nothing is left of what it was told.
    pub(super) fn stop(&self) {
        self.shared.running.send_replace(false);
        self.cut();
        for (_, task) in lock(&self.shared.tasks).drain() {
            task.abort();
        }
        lock(&self.shared.plane).restart();
    }

    pub(super) fn start_again(&self) {
        self.go_on();
        self.shared.running.send_replace(true);
    }

    pub(super) fn counters(&self) -> Counters {
        lock(&self.shared.plane).core.counters()
    }

    pub(super) fn most_in_flight(&self) -> u64 {
        lock(&self.shared.plane).most_in_flight()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Starts and ends listeners and connectors as management said.
    fn carry_out(self: &Arc<Self>) {
        let events = lock(&self.plane).apply_events();
        for event in events {
            match event {
                Event::ListenerMade { name, host, port, multi_tenant } => {
                    let shared = Arc::clone(self);
                    self.spawn("listener", name, listener(host, port, multi_tenant, shared));
                }
                Event::ListenerGone(name) => self.abort("listener", name),
                Event::ConnectorMade(connector) => {
                    let name = connector.name.clone();
                    self.spawn("connector", name, connect(*connector, Arc::clone(self)));
                }
                Event::ConnectorGone(name) => {
                    lock(&self.plane).disconnect(&name);
                    self.abort("connector", name);
                }
                _ => {}
            }
        }
    }

    fn spawn(&self, kind: &'static str, name: String, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(old) = lock(&self.tasks).insert((kind, name), tokio::spawn(task).abort_handle()) {
            old.abort();
        }
    }

    fn abort(&self, kind: &'static str, name: String) {
        if let Some(task) = lock(&self.tasks).remove(&(kind, name)) {
            task.abort();
        }
    }
}

async fn keep_time(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(TICK).await;
        lock(&shared.plane).tick(Instant::now());
    }
}

/// The listener of the configuration: it is there whenever the router runs.
async fn main_listener(first: TcpListener, port: u16, shared: Arc<Shared>) {
    let mut running = shared.running.subscribe();
    let mut listener = Some(first);
    loop {
        if running.wait_for(|running| *running).await.is_err() {
            return;
        }
        let bound = match listener.take() {
            Some(listener) => Ok(listener),
            None => TcpListener::bind((shared.address, port)).await,
        };
        let Ok(bound) = bound else {
            tokio::time::sleep(TICK).await;
            continue;
        };
        tokio::select! {
            () = accept(bound, false, &shared) => {}
            _ = running.wait_for(|running| !*running) => {}
        }
    }
}

/// A listener that was made by management. One whose port is taken is there all the same and listens to nobody.
async fn listener(host: String, port: String, multi_tenant: bool, shared: Arc<Shared>) {
    let Some(port) = number(&port) else { return };
    let own = host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
    let host = if own { shared.address.to_string() } else { host };
    if let Ok(listener) = TcpListener::bind((host.as_str(), port)).await {
        accept(listener, multi_tenant, &shared).await;
    }
}

fn number(port: &str) -> Option<u16> {
    match port {
        "amqp" => Some(5672),
        "amqps" => Some(5671),
        port => port.parse().ok(),
    }
}

async fn accept(listener: TcpListener, multi_tenant: bool, shared: &Arc<Shared>) {
    loop {
        let Ok((stream, from)) = listener.accept().await else { continue };
        let (shared, from) = (Arc::clone(shared), from.to_string());
        tokio::spawn(async move {
            let mut cut = shared.cut.subscribe();
            tokio::select! {
                _ = cut.changed() => {}
                // A client that goes or cannot log in is its own affair.
                _ = welcome(stream, &from, multi_tenant, &shared) => {}
            }
        });
    }
}

async fn welcome(stream: TcpStream, from: &str, multi_tenant: bool, shared: &Arc<Shared>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    goes_on(shared).await;
    match &shared.tls {
        None => admit(stream, from, multi_tenant, shared).await,
        Some(tls) => admit(tls.accept(stream).await?, from, multi_tenant, shared).await,
    }
}

async fn admit<S>(mut stream: S, from: &str, multi_tenant: bool, shared: &Arc<Shared>) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mechanism = wire::admit(&mut stream, &shared.gate).await?;
    let user = if mechanism == "ANONYMOUS" { "anonymous" } else { "" };
    converse(stream, Peer::Client { multi_tenant }, from, (&mechanism, user), shared).await
}

/// Waits while the router hangs.
async fn goes_on(shared: &Shared) {
    // The sender is in what we hold.
    let _ = shared.manner.subscribe().wait_for(|manner| !manner.hangs).await;
}

/// Takes frames and writes frames until either ends.
async fn converse<S>(
    stream: S,
    peer: Peer,
    host: &str,
    login: (&str, &str),
    shared: &Arc<Shared>,
) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (give, given) = mpsc::unbounded_channel();
    let id = lock(&shared.plane).connected(peer, host, login, give);
    let _leave = Leave { id, shared: Arc::clone(shared) };
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        result = take(reader, id, shared) => result,
        result = write(writer, given, shared) => result,
    }
}

/// Tells the plane when a connection ends, however it does.
struct Leave {
    id: plane::ConnectionId,
    shared: Arc<Shared>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        lock(&self.shared.plane).disconnected(self.id);
    }
}

async fn take(reader: impl AsyncRead + Unpin, id: plane::ConnectionId, shared: &Arc<Shared>) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_BUFFER, reader);
    loop {
        let frame = wire::read(&mut reader).await?;
        goes_on(shared).await;
        {
            let mut plane = lock(&shared.plane);
            plane.take(id, frame);
            if reader.buffer().is_empty() {
                plane.burst_ended();
            }
        }
        shared.carry_out();
    }
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut given: mpsc::UnboundedReceiver<Out>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut beat = None;
    loop {
        let out = match beat {
            None => given.recv().await,
            Some(beat) => match tokio::time::timeout(beat, given.recv()).await {
                Ok(out) => out,
                Err(_) => Some(Out::Bytes(wire::encode(0, 0, &[], &[]))),
            },
        };
        let slow = shared.manner.borrow().slow;
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        goes_on(shared).await;
        let (mut bytes, mut next, mut ends) = (Vec::new(), out, false);
        loop {
            match next {
                Some(Out::Bytes(more)) if bytes.is_empty() => bytes = more,
                Some(Out::Bytes(more)) => bytes.extend(more),
                Some(Out::Beat(every)) => beat = Some(every),
                Some(Out::End) | None => ends = true,
            }
            match given.try_recv() {
                Ok(more) => next = Some(more),
                Err(_) => break,
            }
        }
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        if ends {
            return writer.shutdown().await;
        }
    }
}

/// Keeps a connector connected for as long as it exists.
async fn connect(connector: Connector, shared: Arc<Shared>) {
    let at = format!("{}:{}", connector.host, connector.port);
    let mut words = String::new();
    loop {
        // The router says so from the moment in which it dials; what it said last stays until there is an answer.
        lock(&shared.plane).core.set_connector(&connector.name, "SUCCESS", &words);
        let mut cut = shared.cut.subscribe();
        let mut opened = false;
        let result = tokio::select! {
            _ = cut.changed() => Ok(()),
            result = dial(&connector, &mut opened, &shared) => result,
        };
        let trouble = match result {
            Ok(()) => format!("Connection to {at} failed: amqp:connection:framing-error connection aborted"),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                format!("Connection to {at} failed: amqp:unauthorized-access {error}")
            }
            Err(_) if opened => {
                format!("Connection to {at} failed: amqp:connection:framing-error connection aborted")
            }
            Err(error) => {
                let error = error.to_string();
                let words = error.split(" (os error").next().unwrap_or_default();
                format!("Connection to {at} failed: proton:io {words} - disconnected {at}")
            }
        };
        words = format!("[C0] {trouble}");
        lock(&shared.plane).core.set_connector(&connector.name, "CONNECTING", &words);
        tokio::time::sleep(if opened { RECONNECT_AFTER_OPEN } else { RECONNECT }).await;
    }
}

async fn dial(connector: &Connector, opened: &mut bool, shared: &Arc<Shared>) -> std::io::Result<()> {
    let unknown = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "Servname not supported for ai_socktype");
    let port = number(&connector.port).ok_or_else(unknown)?;
    let mut stream = TcpStream::connect((connector.host.as_str(), port)).await?;
    stream.set_nodelay(true)?;
    let user = connector.user.as_deref().zip(connector.password.as_deref());
    wire::log_in(&mut stream, &connector.host, user).await?;
    let leave = lock(&shared.plane).core.leave(connector);
    if leave == Rights::Denied {
        let words = "connection disallowed by local policy";
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, words));
    }
    *opened = true;
    let (connector, route) = (connector, connector.route_container);
    let peer = Peer::Container { connector: connector.name.clone(), route, fenced: leave == Rights::Nothing };
    let login = user.map_or(("ANONYMOUS", "anonymous"), |(user, _)| ("PLAIN", user));
    let at = format!("{}:{}", connector.host, connector.port);
    converse(stream, peer, &at, login, shared).await
}

/// A login by name, for the options of a configuration.
pub(super) fn mechanisms(login: &Login, external: bool) -> String {
    let by_name = match login {
        Login::Anonymous => "ANONYMOUS",
        Login::Password { .. } => "PLAIN",
    };
    if external { format!("EXTERNAL {by_name}") } else { by_name.to_owned() }
}
