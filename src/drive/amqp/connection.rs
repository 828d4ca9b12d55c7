//! Opening one AMQP connection: TCP without Nagle, TLS, SASL, AMQP open, all under one deadline.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use fe2o3_amqp::Connection;
use fe2o3_amqp::connection::ConnectionHandle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::sasl;
use super::secret::Secret;
use super::tls::{Tls, TlsError};
use crate::engine::guarded::Guarded;
use crate::engine::permit::Permit;

/// The largest frame we take. A list of 10,000 queues is 7 MB: fewer, larger frames cost less.
const MAX_FRAME_BYTES: u32 = 1024 * 1024;
/// A peer that is silent for this long is gone; heartbeats keep an idle connection alive. The peer sends one at
/// half of it, so that an idle operator costs a packet every 15 s.
const IDLE_TIMEOUT_MS: u32 = 30_000;

/// Where a peer listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// DNS name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Who we say that we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// SASL ANONYMOUS.
    Anonymous,
    /// SASL PLAIN.
    Plain {
        /// The user.
        username: String,
        /// The password.
        password: Secret,
    },
    /// SASL EXTERNAL: whom the TLS certificate names.
    External,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host cannot be resolved or reached, or hung up.
    #[error("cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    /// The peer took the connection and did not answer in time.
    #[error("no answer within {} s while {stage}", .after.as_secs_f32())]
    TimedOut {
        /// What the peer was asked last.
        stage: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Handshake(#[source] io::Error),
    /// The TLS configuration does not fit the endpoint.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The peer does not take this way of logging in.
    #[error("login by {mechanism} is not offered, only {}", .offered.join(", "))]
    MechanismNotOffered {
        /// The mechanism that the configuration asks for.
        mechanism: &'static str,
        /// What the peer has.
        offered: Vec<String>,
    },
    /// Wrong user, password or certificate.
    #[error("login by {mechanism} refused")]
    LoginRefused {
        /// The mechanism used.
        mechanism: &'static str,
    },
    /// The peer speaks something else, or refuses what a connection needs.
    #[error("protocol: {0}")]
    Protocol(String),
}

impl ConnectError {
    /// Bounded name for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::TimedOut { .. } => "timeout",
            Self::Handshake(_) | Self::Tls(_) => "tls",
            Self::MechanismNotOffered { .. } | Self::LoginRefused { .. } => "login",
            Self::Protocol(_) => "protocol",
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Opened {
    /// The connection.
    pub connection: ConnectionHandle<()>,
    /// The address of the other side.
    pub peer: Option<IpAddr>,
}

/// All that is needed to open a connection, again and again.
#[derive(Clone, Debug)]
pub struct Connector {
    /// Where to.
    pub endpoint: Endpoint,
    /// As whom.
    pub login: Login,
    /// Protected how; `None` is plain TCP.
    pub tls: Option<Tls>,
    /// The AMQP container id; peers show it to their operators.
    pub container_id: String,
    /// For everything up to the open connection.
    pub deadline: Duration,
    /// Without it not a byte leaves.
    pub permit: Permit,
}

impl Connector {
    /// Opens a connection.
    ///
    /// # Errors
    /// See [`ConnectError`]; the deadline covers the whole.
    pub async fn open(&self) -> Result<Opened, ConnectError> {
        let stage = std::sync::Mutex::new("connecting");
        let reached = |next| {
            if let Ok(mut stage) = stage.lock() {
                *stage = next;
            }
        };
        let opened = tokio::time::timeout(self.deadline, self.open_in_stages(&reached)).await;
        opened.unwrap_or_else(|_| {
            let stage = stage.lock().map(|stage| *stage).unwrap_or("connecting");
            Err(ConnectError::TimedOut { stage, after: self.deadline })
        })
    }

    async fn open_in_stages(&self, reached: &(dyn Fn(&'static str) + Sync)) -> Result<Opened, ConnectError> {
        let Endpoint { host, port } = &self.endpoint;
        let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(ConnectError::Unreachable)?;
        // Small requests, each waiting for its answer: Nagle costs 40 ms apiece.
        tcp.set_nodelay(true).map_err(ConnectError::Unreachable)?;
        let peer = tcp.peer_addr().ok().map(|peer| peer.ip());
        let tcp = Guarded::new(tcp, self.permit.clone());
        let connection = match &self.tls {
            None => self.log_in(tcp, reached).await?,
            Some(tls) => {
                reached("negotiating TLS");
                let name = tls.name_for(host)?;
                let stream =
                    TlsConnector::from(tls.config()).connect(name, tcp).await.map_err(ConnectError::Handshake)?;
                self.log_in(stream, reached).await?
            }
        };
        Ok(Opened { connection, peer })
    }

    async fn log_in<S>(
        &self,
        mut stream: S,
        reached: &(dyn Fn(&'static str) + Sync),
    ) -> Result<ConnectionHandle<()>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static,
    {
        reached("logging in");
        sasl::log_in(&mut stream, &self.login, &self.endpoint.host).await?;
        reached("opening the connection");
        Connection::builder()
            .container_id(self.container_id.as_str())
            .hostname(self.endpoint.host.as_str())
            .max_frame_size(MAX_FRAME_BYTES)
            .idle_time_out(IDLE_TIMEOUT_MS)
            .open_with_stream(stream)
            .await
            .map_err(|error| ConnectError::Protocol(error.to_string()))
    }
}
