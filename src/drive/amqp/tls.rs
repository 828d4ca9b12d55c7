//! TLS towards data planes: rustls with ring, certificates from PEM bytes (as Secrets hold them).

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// What can be wrong with the PEM of a Secret. Never carries the material itself.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The bundle cannot be parsed or is empty.
    #[error("{0}: no certificate in PEM form")]
    NoCertificate(&'static str),
    /// The key cannot be parsed.
    #[error("tls.key: no private key in PEM form")]
    NoKey,
    /// One certificate of the bundle is refused.
    #[error("{0}: not acceptable: {1}")]
    Unusable(&'static str, rustls::Error),
    /// The name to verify is neither a DNS name nor an address.
    #[error("`{0}` is neither a DNS name nor an IP address")]
    ServerName(String, #[source] InvalidDnsNameError),
}

/// How to protect a connection: whom to trust, and who we are.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    identity: bool,
}

impl Tls {
    /// Trusts the authorities in `ca` (PEM) and nothing else; with `identity` (certificate chain and key, PEM) the
    /// client shows a certificate. `server_name` replaces the endpoint's host in the check of the peer's name.
    ///
    /// # Errors
    /// When a PEM holds nothing usable, or key and certificate do not belong together.
    pub fn new(ca: &[u8], identity: Option<(&[u8], &[u8])>, server_name: Option<&str>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("ca.crt", ca)? {
            roots.add(certificate).map_err(|error| TlsError::Unusable("ca.crt", error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Unusable("TLS", error))?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
                builder
                    .with_client_auth_cert(certificates("tls.crt", chain)?, key)
                    .map_err(|error| TlsError::Unusable("tls.crt", error))?
            }
        };
        let server_name = server_name.map(parse_name).transpose()?;
        Ok(Self { config: Arc::new(config), server_name, identity: identity.is_some() })
    }

    /// The rustls configuration.
    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The name that the peer's certificate must carry.
    pub(super) fn name_for(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => parse_name(host),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).field("identity", &self.identity).finish()
    }
}

fn parse_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|error| TlsError::ServerName(host.to_owned(), error))
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(list) if !list.is_empty() => Ok(list),
        _ => Err(TlsError::NoCertificate(what)),
    }
}
