//! An AMQP router of one's own on loopback: a faithful stand-in, or a real qdrouterd when `WAYSTATION_QDROUTERD` names
//! its binary. Both have the same face, so that one test suite runs against either.
//!
//! Invariant: the router listens on the same port and knows nothing but its configuration after every
//! [`Router::restart_empty`]; it ends when this is dropped.

pub mod management;
mod real;
mod standin;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::TlsAcceptor;

use crate::amqp_client::Client;
use crate::artemis::{Login, TlsMaterial};
use crate::pki::Authority;
use crate::router_core::{Core, Counters, Flavour};
use real::Real;
use standin::StandIn;

/// An entity of the configuration file: a profile or a vhost.
#[derive(Debug, Clone)]
pub struct FileEntity {
    /// The type, without the prefix.
    pub entity_type: String,
    /// Its name.
    pub name: String,
    /// Attributes and their values.
    pub attributes: Vec<(String, String)>,
}

/// What may differ between routers.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    /// The router's id; `R1` by default. Routers of one test need different ones.
    pub id: String,
    /// Where it listens; 127.0.0.1 by default. A stand-in with another address has a loopback of its own, as a Pod has:
    /// what it is told to make there is on this address.
    pub address: IpAddr,
    /// Which router the stand-in stands in for.
    pub flavour: Flavour,
    /// Who may connect; anybody by default.
    pub login: Login,
    /// TLS with certificates on both sides, and SASL EXTERNAL beside `login`; off by default.
    pub mutual_tls: bool,
    /// It enforces policies: clients may do what they like, and what the other side of a connector may do is said by the
    /// connector's. Off by default.
    pub policies: bool,
    /// Further entities of the configuration file.
    pub file_entities: Vec<FileEntity>,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            id: "R1".to_owned(),
            address: Ipv4Addr::LOCALHOST.into(),
            flavour: Flavour::default(),
            login: Login::Anonymous,
            mutual_tls: false,
            policies: false,
            file_entities: Vec::new(),
        }
    }
}

#[derive(Debug)]
enum Kind {
    StandIn(Box<StandIn>),
    Real(Box<Real>),
}

/// A router.
#[derive(Debug)]
pub struct Router {
    kind: Kind,
    options: RouterOptions,
    material: Option<TlsMaterial>,
}

/// The real router's binary, when one is named.
#[must_use]
pub fn real_binary() -> Option<OsString> {
    std::env::var_os("WAYSTATION_QDROUTERD").filter(|path| !path.is_empty())
}

impl Router {
    /// The real one if `WAYSTATION_QDROUTERD` names it and it is of the flavour that is asked for, else the stand-in.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(options: RouterOptions) -> Result<Self> {
        match real_binary().filter(|_| options.flavour == Flavour::Qdrouterd) {
            Some(binary) => Self::real(&binary, options).await,
            None => Self::stand_in(0, options).await,
        }
    }

    /// The stand-in, on this port of its address or, for 0, a free one.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn stand_in(port: u16, options: RouterOptions) -> Result<Self> {
        let (material, tls) = match options.mutual_tls {
            true => material().map(|(material, leaf)| (Some(material), Some(leaf)))?,
            false => (None, None),
        };
        let tls = match (&material, tls) {
            (Some(material), Some(leaf)) => Some(acceptor(material, &leaf)?),
            _ => None,
        };
        let standin = StandIn::start(port, &options, tls).await?;
        Ok(Self { kind: Kind::StandIn(Box::new(standin)), options, material })
    }

    /// The real one of this binary, with one listener of its own on a free port.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn real(binary: &std::ffi::OsStr, options: RouterOptions) -> Result<Self> {
        let (material, leaf) = match options.mutual_tls {
            true => material().map(|(material, leaf)| (Some(material), Some(leaf)))?,
            false => (None, None),
        };
        let tls = material.as_ref().zip(leaf.as_ref());
        let real = Real::start(binary, &options, tls).await?;
        Ok(Self { kind: Kind::Real(Box::new(real)), options, material })
    }

    /// Whether it is a real one.
    #[must_use]
    pub fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real(_))
    }

    /// The port on its address for clients and management.
    #[must_use]
    pub fn port(&self) -> u16 {
        match &self.kind {
            Kind::StandIn(standin) => standin.port(),
            Kind::Real(real) => real.port(),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.options.address
    }

    /// Who may connect.
    #[must_use]
    pub fn login(&self) -> &Login {
        &self.options.login
    }

    /// Certificates for clients, when it has TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&TlsMaterial> {
        self.material.as_ref()
    }

    /// A client, with the login of the options. Not with TLS.
    ///
    /// # Errors
    /// When it is not let in.
    pub async fn client(&self) -> Result<Client> {
        Client::connect(&self.options.address.to_string(), self.port(), &self.options.login).await
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::StandIn(standin) => standin.stop(),
            Kind::Real(real) => real.stop(),
        }
        Ok(())
    }

    /// Starts it again after [`Router::stop`]: with nothing but its configuration, on the same port.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start_again(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::StandIn(standin) => {
                standin.start_again();
                let at = (self.options.address, standin.port());
                crate::process::eventually(Duration::from_secs(10), "the router listens", || async move {
                    Ok(tokio::net::TcpStream::connect(at).await?)
                })
                .await
                .map(drop)
            }
            Kind::Real(real) => real.start_again().await,
        }
    }

    /// Kills it and starts it again: nothing of what it was told is left.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn restart_empty(&mut self) -> Result<()> {
        self.stop().await?;
        self.start_again().await
    }

    /// Makes it stand still: connections stay open and new ones are accepted, answers do not come.
    ///
    /// # Errors
    /// When it does not run.
    pub fn hang(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::StandIn(standin) => standin.hang(),
            Kind::Real(real) => real.signal("STOP")?,
        }
        Ok(())
    }

    /// Lets it go on after [`Router::hang`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn go_on(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::StandIn(standin) => standin.go_on(),
            Kind::Real(real) => real.signal("CONT")?,
        }
        Ok(())
    }

    /// Cuts all connections. Only of the stand-in, as all that follows: put a [`crate::proxy::Proxy`] in front of a
    /// real one.
    ///
    /// # Errors
    /// For a real one.
    pub fn cut(&self) -> Result<()> {
        self.only_stand_in().map(StandIn::cut)
    }

    /// Everything that it sends is late by this from now on.
    ///
    /// # Errors
    /// For a real one.
    pub fn slow(&self, by: Duration) -> Result<()> {
        self.only_stand_in().map(|standin| standin.slow(by))
    }

    /// Refuses, in these words, to make or remove anything whose name, pattern or address contains `part`.
    ///
    /// # Errors
    /// For a real one.
    pub fn refuse(&self, part: &str, words: &str) -> Result<()> {
        self.with(|core| core.refuse(part, words))
    }

    /// Looks at its entities or changes them, as people do behind the operator's back.
    ///
    /// # Errors
    /// For a real one.
    pub fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> Result<R> {
        self.only_stand_in().map(|standin| standin.with(action))
    }

    /// What it was asked so far, restarts included.
    ///
    /// # Errors
    /// For a real one.
    pub fn counters(&self) -> Result<Counters> {
        self.only_stand_in().map(StandIn::counters)
    }

    /// Most requests that were under way together.
    ///
    /// # Errors
    /// For a real one.
    pub fn most_in_flight(&self) -> Result<u64> {
        self.only_stand_in().map(StandIn::most_in_flight)
    }

    /// The number of its process, when it has one of its own.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match &self.kind {
            Kind::StandIn(_) => None,
            Kind::Real(real) => real.pid(),
        }
    }

    /// Everything that a real one logged.
    #[must_use]
    pub fn log(&self) -> String {
        match &self.kind {
            Kind::StandIn(_) => String::new(),
            Kind::Real(real) => real.log(),
        }
    }

    fn only_stand_in(&self) -> Result<&StandIn> {
        match &self.kind {
            Kind::StandIn(standin) => Ok(standin),
            Kind::Real(_) => bail!("a real router cannot do that"),
        }
    }
}

/// What clients need, and the server's certificate.
fn material() -> Result<(TlsMaterial, crate::pki::Leaf)> {
    let authority = Authority::new("waystation-kit-router")?;
    let server = authority.server("router", &["127.0.0.1", "localhost"])?;
    let client = authority.client("waystation", None)?;
    Ok((TlsMaterial { ca: authority.certificate(), client }, server))
}

fn acceptor(material: &TlsMaterial, server: &crate::pki::Leaf) -> Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(material.ca.as_bytes())?)?;
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(server.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(server.key.as_bytes())?,
        )
        .context("the server's certificate")?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
