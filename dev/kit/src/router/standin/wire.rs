//! AMQP frames on a stream, and logging in before them.
//!
//! The router needs what client libraries hide: the credit of a link, attaches that are answered later, and bodies that
//! are passed on unread. So it speaks frames, with the types and the encoding of the client library.

use std::io::{Error, ErrorKind, Result};

use bytes::Bytes;
use fe2o3_amqp::types::performatives::Performative;
use fe2o3_amqp::types::primitives::{Array, Symbol};
use fe2o3_amqp::types::sasl::{SaslCode, SaslInit, SaslMechanisms, SaslOutcome};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::artemis::Login;

/// What a client must have sent first.
const AMQP: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
const SASL: [u8; 8] = *b"AMQP\x03\x01\x00\x00";
/// The largest frame that is taken.
pub(super) const MAX_FRAME: u32 = 1024 * 1024;
const HEADER: usize = 8;

/// One frame; without a performative it is a sign of life.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) channel: u16,
    pub(super) performative: Option<Performative>,
    pub(super) payload: Bytes,
}

fn invalid(words: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, words.into())
}

/// Reads a frame: its type, channel and contents.
async fn read_raw(stream: &mut (impl AsyncRead + Unpin)) -> Result<(u8, u16, Bytes)> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await?;
    let [a, b, c, d, offset, kind, high, low] = header;
    let size = u32::from_be_bytes([a, b, c, d]);
    let begin = usize::from(offset) * 4;
    if size > MAX_FRAME || begin < HEADER || (size as usize) < begin {
        return Err(invalid(format!("a frame of {size} bytes")));
    }
    let mut contents = vec![0; size as usize - HEADER];
    stream.read_exact(&mut contents).await?;
    Ok((kind, u16::from_be_bytes([high, low]), Bytes::from(contents).slice(begin - HEADER..)))
}

/// Reads a frame.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Frame> {
    let (_, channel, contents) = read_raw(stream).await?;
    if contents.is_empty() {
        return Ok(Frame { channel, performative: None, payload: contents });
    }
    let length = described_list(&contents).ok_or_else(|| invalid("no performative"))?;
    let performative = serde_amqp::from_slice(&contents[..length]).map_err(|error| invalid(error.to_string()))?;
    Ok(Frame { channel, performative: Some(performative), payload: contents.slice(length..) })
}

/// How many bytes a described list takes.
fn described_list(bytes: &[u8]) -> Option<usize> {
    let list = match bytes.get(..2)? {
        [0, 0x53] => 3,
        [0, 0x80] => 10,
        [0, 0xa3] => 3 + usize::from(*bytes.get(2)?),
        _ => return None,
    };
    let length = match bytes.get(list)? {
        0x45 => list + 1,
        0xc0 => list + 2 + usize::from(*bytes.get(list + 1)?),
        0xd0 => {
            let size = bytes.get(list + 1..list + 5)?;
            list + 5 + usize::try_from(u32::from_be_bytes(size.try_into().ok()?)).ok()?
        }
        _ => return None,
    };
    (length <= bytes.len()).then_some(length)
}

/// A frame's bytes.
pub(super) fn encode(kind: u8, channel: u16, performative: &[u8], payload: &[u8]) -> Vec<u8> {
    let size = HEADER + performative.len() + payload.len();
    let mut frame = Vec::with_capacity(size);
    frame.extend(u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend([2, kind]);
    frame.extend(channel.to_be_bytes());
    frame.extend(performative);
    frame.extend(payload);
    frame
}

/// An AMQP frame's bytes; nothing when it cannot be written, which does not happen with what is made here.
pub(super) fn amqp(channel: u16, performative: &Performative, payload: &[u8]) -> Vec<u8> {
    match serde_amqp::to_vec(performative) {
        Ok(performative) => encode(0, channel, &performative, payload),
        Err(_) => Vec::new(),
    }
}

async fn send_sasl(stream: &mut (impl AsyncWrite + Unpin), body: &impl serde::Serialize) -> Result<()> {
    let body = serde_amqp::to_vec(body).map_err(|error| invalid(error.to_string()))?;
    stream.write_all(&encode(1, 0, &body, &[])).await
}

async fn header(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), ours: [u8; 8]) -> Result<()> {
    stream.write_all(&ours).await?;
    let mut theirs = [0; 8];
    stream.read_exact(&mut theirs).await?;
    if theirs == ours { Ok(()) } else { Err(invalid("another protocol")) }
}

/// How clients may log in.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) login: Login,
    /// The TLS layer has checked a certificate.
    pub(super) external: bool,
}

impl Gate {
    fn mechanisms(&self) -> Vec<&'static str> {
        let by_name = match self.login {
            Login::Anonymous => "ANONYMOUS",
            Login::Password { .. } => "PLAIN",
        };
        let external = self.external.then_some("EXTERNAL");
        external.into_iter().chain([by_name]).collect()
    }

    fn lets_in(&self, init: &SaslInit) -> bool {
        match (init.mechanism.as_str(), &self.login) {
            ("EXTERNAL", _) => self.external,
            ("ANONYMOUS", Login::Anonymous) => true,
            ("PLAIN", Login::Password { user, password }) => {
                let expected = format!("\0{user}\0{password}");
                init.initial_response.as_ref().is_some_and(|response| response.as_slice() == expected.as_bytes())
            }
            _ => false,
        }
    }
}

/// Lets a client in, with SASL or without where anybody may come; the name of the mechanism.
pub(super) async fn admit(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), gate: &Gate) -> Result<String> {
    let mut theirs = [0; 8];
    stream.read_exact(&mut theirs).await?;
    let mut mechanism = String::new();
    if theirs == SASL {
        stream.write_all(&SASL).await?;
        let offered: Vec<Symbol> = gate.mechanisms().into_iter().map(Symbol::from).collect();
        send_sasl(stream, &SaslMechanisms { sasl_server_mechanisms: Array::from(offered) }).await?;
        let (_, _, init) = read_raw(stream).await?;
        let init: SaslInit = serde_amqp::from_slice(&init).map_err(|error| invalid(error.to_string()))?;
        let code = if gate.lets_in(&init) { SaslCode::Ok } else { SaslCode::Auth };
        let admitted = code == SaslCode::Ok;
        send_sasl(stream, &SaslOutcome { code, additional_data: None }).await?;
        if !admitted {
            return Err(invalid("the login is refused"));
        }
        mechanism = init.mechanism.as_str().to_owned();
        stream.read_exact(&mut theirs).await?;
    } else if gate.login != Login::Anonymous {
        return Err(invalid("a login is needed"));
    }
    stream.write_all(&AMQP).await?;
    if theirs == AMQP { Ok(mechanism) } else { Err(invalid("another protocol")) }
}

/// Logs in at a broker: PLAIN with a user and a password, else ANONYMOUS.
pub(super) async fn log_in(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    user: Option<(&str, &str)>,
) -> Result<()> {
    header(stream, SASL).await?;
    let (_, _, offered) = read_raw(stream).await?;
    let offered: SaslMechanisms = serde_amqp::from_slice(&offered).map_err(|error| invalid(error.to_string()))?;
    let (mechanism, response) = match user {
        Some((user, password)) => ("PLAIN", Some(format!("\0{user}\0{password}").into_bytes())),
        None => ("ANONYMOUS", None),
    };
    if !offered.sasl_server_mechanisms.0.iter().any(|offered| offered.as_str() == mechanism) {
        return Err(Error::new(ErrorKind::PermissionDenied, "no mechanism available"));
    }
    let init = SaslInit {
        mechanism: Symbol::from(mechanism),
        initial_response: response.map(Into::into),
        hostname: Some(host.to_owned()),
    };
    send_sasl(stream, &init).await?;
    let (_, _, outcome) = read_raw(stream).await?;
    let outcome: SaslOutcome = serde_amqp::from_slice(&outcome).map_err(|error| invalid(error.to_string()))?;
    if outcome.code != SaslCode::Ok {
        return Err(Error::new(ErrorKind::PermissionDenied, "Authentication failed [mech=PLAIN]"));
    }
    header(stream, AMQP).await
}
