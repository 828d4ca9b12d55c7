//! The SASL exchange (AMQP 1.0 part 5.3), done here and not by the AMQP crate: the crate's EXTERNAL sends no initial
//! response, which peers answer with a challenge that it does not understand, and it knows EXTERNAL only over a TLS
//! layer of its own. Doing all mechanisms here also keeps the password out of the crate's types and traces.

use fe2o3_amqp::types::primitives::{Binary, Symbol};
use fe2o3_amqp::types::sasl::{SaslCode, SaslInit, SaslMechanisms, SaslOutcome};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::connection::{ConnectError, Login};

const HEADER: [u8; 8] = [b'A', b'M', b'Q', b'P', 3, 1, 0, 0];
/// A SASL frame is at most 512 bytes by the specification; some peers send more mechanisms than fit.
const MAX_FRAME: usize = 16 * 1024;
const SASL_FRAME: u8 = 1;

/// Logs in on a fresh stream; afterwards the peer waits for the AMQP header.
pub(super) async fn log_in<S>(stream: &mut S, login: &Login, host: &str) -> Result<(), ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&HEADER).await.map_err(ConnectError::Unreachable)?;
    let mut header = [0_u8; 8];
    stream.read_exact(&mut header).await.map_err(ConnectError::Unreachable)?;
    if header != HEADER {
        return Err(ConnectError::Protocol("the peer does not speak AMQP 1.0 with SASL".to_owned()));
    }

    let offered: SaslMechanisms = read_frame(stream).await?;
    let (mechanism, response) = first_response(login);
    if !offered.sasl_server_mechanisms.0.iter().any(|offer| offer.as_str() == mechanism) {
        let offered = offered.sasl_server_mechanisms.0.iter().map(|offer| offer.as_str().to_owned()).collect();
        return Err(ConnectError::MechanismNotOffered { mechanism, offered });
    }
    let init = SaslInit {
        mechanism: Symbol::from(mechanism),
        initial_response: Some(Binary::from(response)),
        hostname: Some(host.to_owned()),
    };
    write_frame(stream, &init).await?;

    let outcome: SaslOutcome = read_frame(stream).await?;
    match outcome.code {
        SaslCode::Ok => Ok(()),
        SaslCode::SysTemp => Err(ConnectError::Protocol("the peer cannot check the login at the moment".to_owned())),
        _ => Err(ConnectError::LoginRefused { mechanism }),
    }
}

fn first_response(login: &Login) -> (&'static str, Vec<u8>) {
    match login {
        Login::Anonymous => ("ANONYMOUS", b"waystation".to_vec()),
        // An empty response asks for the identity of the certificate; none at all would provoke a challenge.
        Login::External => ("EXTERNAL", Vec::new()),
        Login::Plain { username, password } => {
            let mut response = Vec::with_capacity(username.len() + password.reveal().len() + 2);
            response.push(0);
            response.extend_from_slice(username.as_bytes());
            response.push(0);
            response.extend_from_slice(password.reveal().as_bytes());
            ("PLAIN", response)
        }
    }
}

async fn read_frame<S, T>(stream: &mut S) -> Result<T, ConnectError>
where
    S: AsyncRead + Unpin,
    T: serde::de::DeserializeOwned,
{
    let mut head = [0_u8; 8];
    stream.read_exact(&mut head).await.map_err(ConnectError::Unreachable)?;
    let [s0, s1, s2, s3, offset, kind, ..] = head;
    let size = u32::from_be_bytes([s0, s1, s2, s3]) as usize;
    let body_from = usize::from(offset) * 4;
    if kind != SASL_FRAME || size > MAX_FRAME || body_from < 8 || body_from > size {
        return Err(ConnectError::Protocol("not a SASL frame".to_owned()));
    }
    let mut rest = vec![0_u8; size - 8];
    stream.read_exact(&mut rest).await.map_err(ConnectError::Unreachable)?;
    let body = rest.get(body_from - 8..).unwrap_or_default();
    serde_amqp::from_slice(body).map_err(|_| ConnectError::Protocol("an unexpected SASL frame".to_owned()))
}

async fn write_frame<S, T>(stream: &mut S, body: &T) -> Result<(), ConnectError>
where
    S: AsyncWrite + Unpin,
    T: serde::Serialize,
{
    let body =
        serde_amqp::to_vec(body).map_err(|_| ConnectError::Protocol("cannot encode the SASL frame".to_owned()))?;
    let size = u32::try_from(body.len() + 8).map_err(|_| ConnectError::Protocol("the login is too long".to_owned()))?;
    let mut frame = Vec::with_capacity(body.len() + 8);
    frame.extend_from_slice(&size.to_be_bytes());
    frame.extend_from_slice(&[2, SASL_FRAME, 0, 0]);
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await.map_err(ConnectError::Unreachable)?;
    stream.flush().await.map_err(ConnectError::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::amqp::Secret;

    /// Plays a peer that offers `mechanisms` and answers with `code`; returns what the client sent as its response.
    async fn peer(mechanisms: &[&str], code: SaslCode, login: Login) -> (Result<(), ConnectError>, Vec<u8>) {
        let (mut ours, mut theirs) = tokio::io::duplex(4096);
        let offer: Vec<Symbol> = mechanisms.iter().map(|name| Symbol::from(*name)).collect();
        let server = tokio::spawn(async move {
            let mut header = [0_u8; 8];
            theirs.read_exact(&mut header).await.unwrap();
            theirs.write_all(&HEADER).await.unwrap();
            write_frame(&mut theirs, &SaslMechanisms { sasl_server_mechanisms: offer.into() }).await.unwrap();
            let Ok(init) = read_frame::<_, SaslInit>(&mut theirs).await else { return Vec::new() };
            write_frame(&mut theirs, &SaslOutcome { code, additional_data: None }).await.unwrap();
            init.initial_response.unwrap().into_vec()
        });
        let result = log_in(&mut ours, &login, "broker").await;
        drop(ours);
        (result, server.await.unwrap())
    }

    fn plain() -> Login {
        Login::Plain { username: "me".to_owned(), password: Secret::new("hush") }
    }

    #[tokio::test]
    async fn plain_sends_user_and_password() {
        let (result, sent) = peer(&["ANONYMOUS", "PLAIN"], SaslCode::Ok, plain()).await;
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(sent, b"\0me\0hush");
    }

    #[tokio::test]
    async fn external_sends_an_empty_response() {
        let (result, sent) = peer(&["EXTERNAL"], SaslCode::Ok, Login::External).await;
        assert!(result.is_ok(), "{result:?}");
        assert!(sent.is_empty());
    }

    #[tokio::test]
    async fn a_refused_login_names_the_mechanism_and_not_the_password() {
        let (result, _) = peer(&["PLAIN"], SaslCode::Auth, plain()).await;
        let error = result.unwrap_err();
        assert!(matches!(error, ConnectError::LoginRefused { mechanism: "PLAIN" }), "{error:?}");
        assert!(!format!("{error} {error:?} {:?}", plain()).contains("hush"));
    }

    #[tokio::test]
    async fn a_mechanism_that_is_not_offered_is_not_tried() {
        let (result, sent) = peer(&["GSSAPI", "EXTERNAL"], SaslCode::Ok, plain()).await;
        let error = result.unwrap_err();
        assert_eq!(error.to_string(), "login by PLAIN is not offered, only GSSAPI, EXTERNAL");
        assert!(sent.is_empty());
    }
}
