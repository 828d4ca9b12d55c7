//! PEM as it may go into a command: every block is decoded and written anew, so that nothing but certificates and keys
//! is left of what a tenant wrote. A blank line, a comment or a command between two blocks is no more.

use std::fmt::Write as _;
use std::sync::Arc;

/// Bytes that a Secret's PEM may have: what one command can carry.
pub const MAX_PEM: usize = 90_000;

/// What a Secret's text is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Certificate,
    Key,
}

/// Why it is not what it should be: for the Secret's owner, without any of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemError {
    /// Longer than [`MAX_PEM`].
    TooLong,
    /// Not text.
    NotText,
    /// A block does not end, or its contents are not base64.
    Broken,
    /// There is no certificate.
    NoCertificate,
    /// There is no private key.
    NoKey,
    /// There is more than one private key.
    SeveralKeys,
    /// The key is encrypted.
    Encrypted,
}

impl PemError {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "it is longer than 90,000 bytes",
            Self::NotText => "it is not text",
            Self::Broken => "its PEM is broken",
            Self::NoCertificate => "it has no certificate",
            Self::NoKey => "it has no private key",
            Self::SeveralKeys => "it has several private keys",
            Self::Encrypted => "its private key is encrypted",
        }
    }
}

/// A certificate chain with its key, clean.
///
/// # Errors
/// What is wrong with either.
pub fn identity(certificate: &[u8], key: &[u8]) -> Result<Arc<str>, PemError> {
    let mut chain = String::new();
    // A key beside the certificate, as some tools write it, is not taken: the Secret says where the key is.
    if blocks(certificate, Block::Certificate, &mut chain)? == 0 {
        return Err(PemError::NoCertificate);
    }
    match blocks(key, Block::Key, &mut chain)? {
        0 => Err(PemError::NoKey),
        1 if chain.len() > MAX_PEM => Err(PemError::TooLong),
        1 => Ok(chain.into()),
        _ => Err(PemError::SeveralKeys),
    }
}

/// Certificates of authorities, clean.
///
/// # Errors
/// What is wrong.
pub fn authority(certificates: &[u8]) -> Result<Arc<str>, PemError> {
    let mut all = String::new();
    match blocks(certificates, Block::Certificate, &mut all)? {
        0 => Err(PemError::NoCertificate),
        _ if all.len() > MAX_PEM => Err(PemError::TooLong),
        _ => Ok(all.into()),
    }
}

/// Appends the blocks of that kind to `out`; how many there were.
fn blocks(bytes: &[u8], kind: Block, out: &mut String) -> Result<usize, PemError> {
    if bytes.len() > MAX_PEM {
        return Err(PemError::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| PemError::NotText)?;
    let mut count = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(label) = line.trim().strip_prefix("-----BEGIN ").and_then(|l| l.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let mut body = String::new();
        loop {
            let line = lines.next().ok_or(PemError::Broken)?.trim();
            if line == end {
                break;
            }
            if line.contains("ENCRYPTED") {
                return Err(PemError::Encrypted);
            }
            if line.contains("-----") {
                return Err(PemError::Broken);
            }
            body.push_str(line);
        }
        let (wanted, label) = match label {
            "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE" => (Block::Certificate, "CERTIFICATE"),
            "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => (Block::Key, label),
            "ENCRYPTED PRIVATE KEY" if kind == Block::Key => return Err(PemError::Encrypted),
            // Parameters of curves and the like: derived from the key.
            _ => continue,
        };
        if wanted != kind {
            continue;
        }
        check(&body)?;
        count += 1;
        let _ = writeln!(out, "-----BEGIN {label}-----");
        for chunk in body.as_bytes().chunks(64) {
            out.push_str(std::str::from_utf8(chunk).map_err(|_| PemError::Broken)?);
            out.push('\n');
        }
        let _ = writeln!(out, "-----END {label}-----");
    }
    Ok(count)
}

/// Base64 of a DER sequence, and nothing else.
fn check(body: &str) -> Result<(), PemError> {
    let data = body.trim_end_matches('=');
    let alphabet = data.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
    let padded = body.len().is_multiple_of(4) && body.len() - data.len() <= 2;
    // A DER sequence starts with 0x30: `M` and one of the first of a quarter of the alphabet.
    if !alphabet || !padded || data.len() < 16 || !data.starts_with('M') {
        return Err(PemError::Broken);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "MIIBszCCAVmgAwIBAgIUQWJjZGVmZ2hpamtsbW5vcHFyc3QwCgYIKoZIzj0EAwIwDTELMAkGA1UEAwwCY2EwHhcN";

    fn pem(label: &str) -> String {
        format!("-----BEGIN {label}-----\n{BODY}\n-----END {label}-----\n")
    }

    #[test]
    fn commands_and_blank_lines_between_blocks_vanish() {
        let dirty = format!(
            "shutdown sessions\n\n# a comment\n{}\n\n\ndel backend x\n{}",
            pem("CERTIFICATE"),
            pem("CERTIFICATE")
        );
        let clean = authority(dirty.as_bytes()).unwrap();
        assert!(
            !clean.contains("shutdown") && !clean.contains("del ") && !clean.contains("\n\n") && !clean.contains('#')
        );
        assert_eq!(clean.matches("BEGIN CERTIFICATE").count(), 2);
        assert_eq!(authority(clean.as_bytes()).unwrap(), clean);
    }

    #[test]
    fn a_blank_line_or_a_command_inside_a_block_is_refused_or_gone() {
        let blank = pem("CERTIFICATE").replace("-----\nMII", "-----\n\nMII");
        assert!(!authority(blank.as_bytes()).unwrap().contains("\n\n"));
        let command = pem("CERTIFICATE").replace("-----\nMII", "-----\ndel map x\nMII");
        assert_eq!(authority(command.as_bytes()), Err(PemError::Broken));
        let open = "-----BEGIN CERTIFICATE-----\nMIIB\n";
        assert_eq!(authority(open.as_bytes()), Err(PemError::Broken));
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let (certificate, key) = (pem("CERTIFICATE"), pem("EC PRIVATE KEY"));
        let whole = identity(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert!(
            whole.starts_with("-----BEGIN CERTIFICATE-----\n") && whole.ends_with("-----END EC PRIVATE KEY-----\n")
        );
        assert_eq!(identity(certificate.as_bytes(), b""), Err(PemError::NoKey));
        assert_eq!(identity(b"", key.as_bytes()), Err(PemError::NoCertificate));
        assert_eq!(identity(certificate.as_bytes(), key.repeat(2).as_bytes()), Err(PemError::SeveralKeys));
        let sealed = pem("ENCRYPTED PRIVATE KEY");
        assert_eq!(identity(certificate.as_bytes(), sealed.as_bytes()), Err(PemError::Encrypted));
        let parameters = format!("{}{key}", pem("EC PARAMETERS"));
        assert_eq!(identity(certificate.as_bytes(), parameters.as_bytes()).unwrap(), whole);
        assert_eq!(identity(&[0xff, 0xfe], key.as_bytes()), Err(PemError::NotText));
        assert_eq!(identity(&[b'a'; MAX_PEM + 1], key.as_bytes()), Err(PemError::TooLong));
    }
}
