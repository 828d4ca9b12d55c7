//! An Apache ActiveMQ Artemis broker of one's own: a real one, with an AMQP acceptor on a free port of loopback.
//!
//! Invariant: the broker listens on the same port and has the same data through [`Artemis::stop`], [`Artemis::kill`] and
//! [`Artemis::start_again`]; it ends when this is dropped (see [`crate::process`]).

mod config;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::process::{Port, Process, WorkFolder};
use crate::tools::tools;

const START: Duration = Duration::from_secs(120);

/// Who may connect.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// Anybody, without a name; everybody may do everything.
    Anonymous,
    /// This user, who may do everything, by SASL PLAIN.
    Password {
        /// Name.
        user: String,
        /// Password.
        password: String,
    },
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Password { user, .. } => f.debug_struct("Password").field("user", user).finish_non_exhaustive(),
        }
    }
}

impl Login {
    /// A user with a password.
    #[must_use]
    pub fn password(user: &str, password: &str) -> Self {
        Self::Password { user: user.to_owned(), password: password.to_owned() }
    }
}

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// The server shows a certificate; the login is by password.
    OneWay,
    /// Both show a certificate; the login is SASL EXTERNAL.
    Mutual,
}

/// What clients need for a broker with TLS, as PEM.
#[derive(Clone)]
pub struct TlsMaterial {
    /// The authority that signed the server's certificate.
    pub ca: String,
    /// A certificate that the broker takes for its admin ([`Tls::Mutual`]).
    pub client: crate::pki::Leaf,
}

impl std::fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsMaterial").finish_non_exhaustive()
    }
}

/// What may differ between brokers.
#[derive(Debug, Clone)]
pub struct ArtemisOptions {
    /// Whether queues and messages survive a restart. On by default.
    pub persistence: bool,
    /// Whether the journal is forced to the disk before the broker answers. Off by default: a killed broker loses nothing
    /// by that, and tests are not slowed by the disk of the machine. Benches turn it on.
    pub fsync: bool,
    /// `admin` with a password by default.
    pub login: Login,
    /// None by default. With TLS, [`Artemis::port`] is the protected port and [`Artemis::plain_port`] one for observers.
    pub tls: Option<Tls>,
    /// The largest heap of the JVM in MiB. 512 by default; 10,000 queues need about 1,100.
    pub heap_mib: u32,
}

impl Default for ArtemisOptions {
    fn default() -> Self {
        Self {
            persistence: true,
            fsync: false,
            login: Login::password("admin", "admin-password"),
            tls: None,
            heap_mib: 512,
        }
    }
}

/// A broker.
#[derive(Debug)]
pub struct Artemis {
    process: Option<Process>,
    port: Port,
    plain_port: Option<Port>,
    options: ArtemisOptions,
    material: Option<TlsMaterial>,
    folder: WorkFolder,
}

impl Artemis {
    /// Starts a broker and waits until it is active: about five seconds.
    pub async fn start(options: ArtemisOptions) -> Result<Self> {
        let mut broker = Self::prepare(options)?;
        broker.start_again().await?;
        Ok(broker)
    }

    /// A broker that is ready to be started by [`Artemis::start_again`] on a port that is already known.
    pub fn prepare(options: ArtemisOptions) -> Result<Self> {
        let folder = WorkFolder::new("artemis")?;
        let port = Port::claim()?;
        let plain_port = options.tls.map(|_| Port::claim()).transpose()?;
        let ports = (port.number(), plain_port.as_ref().map(Port::number));
        let material = config::write(folder.path(), &options, ports)?;
        Ok(Self { process: None, port, plain_port, options, material, folder })
    }

    /// The AMQP port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The AMQP port without TLS, with the login of the options.
    #[must_use]
    pub fn plain_port(&self) -> u16 {
        self.plain_port.as_ref().unwrap_or(&self.port).number()
    }

    /// `127.0.0.1` and the port.
    #[must_use]
    pub fn host_port(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.port())
    }

    /// Who may connect.
    #[must_use]
    pub fn login(&self) -> &Login {
        &self.options.login
    }

    /// Certificates for clients, when the broker has TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&TlsMaterial> {
        self.material.as_ref()
    }

    /// A client on the port without TLS, with the login of the options.
    pub async fn client(&self) -> Result<crate::amqp_client::Client> {
        crate::amqp_client::Client::connect("127.0.0.1", self.plain_port(), &self.options.login).await
    }

    /// The number of its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Everything it logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Ends it in an orderly way.
    pub async fn stop(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.terminate(Duration::from_secs(60)).await.map(drop),
            None => Ok(()),
        }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it on the same port with the data that it has, and waits until it is active.
    pub async fn start_again(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("the broker runs already");
        }
        let began = self.log().len();
        let home = tools()?.artemis_home();
        let flags = config::java_flags(home, self.folder.path(), &self.options);
        let process = Process::spawn("artemis", Path::new("java"), &flags, &[], &self.log_path())?;
        let process = self.process.insert(process);
        let deadline = Instant::now() + START;
        loop {
            process.ensure_running()?;
            // "Server is now active", which comes after its acceptors listen.
            if process.log().get(began..).is_some_and(|log| log.contains("AMQ221007")) {
                break;
            }
            if Instant::now() > deadline {
                bail!("the broker was not active within {START:?}; the end of its log:\n{}", process.log_tail(20));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        TcpStream::connect(("127.0.0.1", self.port())).await.context("the broker is active but does not listen")?;
        Ok(())
    }

    /// Starts it on the same port without any of the data that it had.
    pub async fn start_empty(&mut self) -> Result<()> {
        self.kill();
        let data = self.folder.join("data");
        if data.exists() {
            tokio::fs::remove_dir_all(&data).await?;
        }
        self.start_again().await
    }

    /// Makes it stand still (SIGSTOP): connections stay open and are even accepted, answers do not come.
    pub fn hang(&mut self) -> Result<()> {
        self.process.as_mut().context("the broker does not run")?.signal("STOP")
    }

    /// Lets it go on after [`Artemis::hang`].
    pub fn go_on(&mut self) -> Result<()> {
        self.process.as_mut().context("the broker does not run")?.signal("CONT")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("artemis.log")
    }
}
