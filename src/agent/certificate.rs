//! A certificate of one's own, so that HTTPS answers before any Secret is there.

use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair};

use crate::edge::model::DEFAULT_CERTIFICATE;
use crate::edge::render::Layout;

/// The one that an agent before us made, so that a restart changes nothing; else a new one.
///
/// # Errors
/// When none can be made.
pub fn fallback(layout: &Layout) -> Result<Arc<str>, rcgen::Error> {
    // Only what we make ourselves: a Secret that was named there before may be gone for a reason.
    let path = layout.dir().to_owned() + "/fallback.pem";
    if let Ok(text) = std::fs::read_to_string(&path)
        && text.contains("BEGIN CERTIFICATE")
        && text.contains("PRIVATE KEY")
    {
        return Ok(text.into());
    }
    let made = make()?;
    if let Err(error) = keep(Path::new(&path), &made) {
        tracing::debug!(%error, certificate = DEFAULT_CERTIFICATE, "the made-up certificate could not be kept");
    }
    Ok(made.into())
}

fn make() -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["default.waystation.invalid".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, "Waystation default certificate");
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
}

fn keep(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let part = path.with_extension("part");
    let _ = std::fs::remove_file(&part);
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::pem;

    #[test]
    fn it_is_made_once_and_is_what_the_model_would_take() {
        let folder = std::env::temp_dir().join(format!("waystation-fallback-{}", std::process::id()));
        let layout = Layout::new(folder.display().to_string());
        let first = fallback(&layout).unwrap();
        assert_eq!(first, fallback(&layout).unwrap());
        std::fs::write(folder.join("fallback.pem"), "broken").unwrap();
        assert_ne!(first, fallback(&layout).unwrap());
        let (certificate, key) = first.split_at(first.rfind("-----BEGIN").unwrap());
        pem::identity(certificate.as_bytes(), key.as_bytes()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
