//! An AMQP process that answers Artemis' management requests at once, from memory: a broker for benches in which the
//! broker shall not be the limit. It carries no messages: links to and from its queues are taken and stay empty, and every
//! other address is `amqp:not-found`.
//!
//! Its semantics are [`crate::artemis_core`]'s; this module is the protocol: SASL ANONYMOUS or PLAIN, addresses for
//! replies (dynamic sources), `activemq.management`, and `activemq.notifications` with removed queues only.

mod links;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use fe2o3_amqp::acceptor::sasl_acceptor::{SaslAcceptor, SaslServerFrame};
use fe2o3_amqp::acceptor::{ConnectionAcceptor, SessionAcceptor};
use fe2o3_amqp::types::messaging::{AmqpValue, Message};
use fe2o3_amqp::types::primitives::{Array, Symbol};
use fe2o3_amqp::types::sasl::{SaslCode, SaslInit, SaslOutcome, SaslResponse};
use serde_amqp::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::artemis::Login;
use crate::artemis_core::Core;

const SESSION_WINDOW: u32 = 20_000;
const MAX_FRAME_BYTES: u32 = 1024 * 1024;

/// A running stand-in; ends when dropped.
#[derive(Debug)]
pub struct StandIn {
    port: u16,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

impl StandIn {
    /// Listens on a port of loopback, 0 for a free one.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start(port: u16, login: Login) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.with_context(|| format!("port {port}"))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State::default());
        let mut serving = JoinSet::new();
        serving.spawn(listen(listener, Gate { login }, Arc::clone(&state)));
        Ok(Self { port, state, _serving: serving })
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Looks at the broker's state or changes it, as people do behind the operator's back; removals are notified.
    pub fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        self.state.with(action)
    }

    /// Restarts the broker: every connection is cut, and only what a restart leaves is left ([`Core::restart`]).
    pub fn restart(&self, empty: bool) {
        self.state.core().restart(empty);
        self.state.cut.send_modify(|count| *count += 1);
    }
}

/// Serves on a port until the process ends: `waystation-dev standin`.
///
/// # Errors
/// When the port is taken.
pub async fn run(port: u16) -> Result<()> {
    let standin = StandIn::start(port, Login::Anonymous).await?;
    println!("a stand-in for a broker listens on 127.0.0.1:{}", standin.port());
    std::future::pending::<()>().await;
    Ok(())
}

/// What is sent on a link to a client.
type Outgoing = Message<AmqpValue<Value>>;

#[derive(Debug, Default)]
struct State {
    core: Mutex<Core>,
    /// Who listens to notifications.
    listeners: Mutex<Vec<mpsc::UnboundedSender<Outgoing>>>,
    /// Links to clients by the address that they were given.
    replies: Mutex<HashMap<String, mpsc::UnboundedSender<Outgoing>>>,
    next_address: AtomicU64,
    /// Changes when all connections shall end.
    cut: watch::Sender<u64>,
}

impl State {
    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let (result, removals) = {
            let mut core = self.core();
            (action(&mut core), core.take_removals())
        };
        for removal in removals {
            lock(&self.listeners).retain(|listener| listener.send(links::notification(&removal)).is_ok());
        }
        result
    }

    fn new_address(&self) -> String {
        format!("standin-{}", self.next_address.fetch_add(1, Ordering::Relaxed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(listener: TcpListener, gate: Gate, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let (gate, state) = (gate.clone(), Arc::clone(&state));
        let mut cut = state.cut.subscribe();
        connections.spawn(async move {
            tokio::select! {
                _ = cut.changed() => {}
                // A client that goes or cannot log in is its own affair.
                _ = serve(stream, gate, &state) => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, gate: Gate, state: &Arc<State>) -> Result<()> {
    stream.set_nodelay(true)?;
    let acceptor = ConnectionAcceptor::builder()
        .container_id("waystation-standin")
        .max_frame_size(MAX_FRAME_BYTES)
        .sasl_acceptor(gate)
        .build();
    let mut connection = acceptor.accept(stream).await?;
    let sessions = SessionAcceptor::builder().incoming_window(SESSION_WINDOW).outgoing_window(SESSION_WINDOW).build();
    let mut serving = JoinSet::new();
    loop {
        let session = sessions.accept(&mut connection).await?;
        serving.spawn(links::serve(session, Arc::clone(state)));
    }
}

/// Offers one mechanism and checks it.
#[derive(Debug, Clone)]
struct Gate {
    login: Login,
}

impl SaslAcceptor for Gate {
    fn mechanisms(&self) -> Array<Symbol> {
        let name = match self.login {
            Login::Anonymous => "ANONYMOUS",
            Login::Password { .. } => "PLAIN",
        };
        Array::from(vec![Symbol::from(name)])
    }

    fn on_init(&mut self, init: SaslInit) -> SaslServerFrame {
        let allowed = match &self.login {
            Login::Anonymous => init.mechanism.as_str() == "ANONYMOUS",
            Login::Password { user, password } => {
                let expected = format!("\0{user}\0{password}").into_bytes();
                init.initial_response.is_some_and(|response| response.into_vec() == expected)
            }
        };
        outcome(if allowed { SaslCode::Ok } else { SaslCode::Auth })
    }

    fn on_response(&mut self, _: SaslResponse) -> SaslServerFrame {
        outcome(SaslCode::Sys)
    }
}

fn outcome(code: SaslCode) -> SaslServerFrame {
    SaslServerFrame::Outcome(SaslOutcome { code, additional_data: None })
}
