//! Certificates for clusters and brokers, made anew for each: nothing of them is worth keeping.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Leaf {
    /// The certificate.
    pub certificate: String,
    /// Its private key (PKCS #8).
    pub key: String,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// Its certificate, as PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a server that is reached by these names and addresses.
    pub fn server(&self, common_name: &str, names: &[&str]) -> Result<Leaf> {
        self.leaf(common_name, None, names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client. Kubernetes reads the user from the common name and its group from the organization.
    pub fn client(&self, common_name: &str, organization: Option<&str>) -> Result<Leaf> {
        self.leaf(common_name, organization, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn leaf(
        &self,
        common_name: &str,
        organization: Option<&str>,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A key pair that is no certificate, as PEM: (private, public).
pub fn key_pair() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}
