//! Clients and servers of HTTP/1.1, as plain as can be: what is measured is what stands between them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::data::PORT;

const ANSWER: Duration = Duration::from_secs(30);

/// Every endpoint at once: it answers with the address that was asked.
#[derive(Debug)]
pub(super) struct Endpoints(JoinHandle<()>);

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Endpoints {
    /// Listens on all addresses of this network.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await.context("the endpoints")?;
        let accepting = async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
                    // Out of files: some will be given back.
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        Ok(Self(tokio::spawn(accepting)))
    }
}

async fn serve(mut stream: tokio::net::TcpStream) {
    let Ok(own) = stream.local_addr() else { return };
    let body = own.ip().to_string();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut buffer = Vec::with_capacity(2048);
    while stream.read_buf(&mut buffer).await.is_ok_and(|count| count > 0) {
        while let Some(end) = head_end(&buffer) {
            buffer.drain(..end);
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn head_end(buffer: &[u8]) -> Option<usize> {
    buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The head of a request.
pub(super) fn head(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// A head of an answer: status, length of the body, and whether the connection stays open.
fn read_head(head: &str) -> Result<(u16, usize, bool)> {
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("an answer without a status")?;
    let (mut length, mut stays) = (0, true);
    for line in head.lines().skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        } else if name.eq_ignore_ascii_case("connection") {
            stays = !value.trim().eq_ignore_ascii_case("close");
        }
    }
    Ok((status, length, stays))
}

/// One request on a connection that may stay open: status, and whether it does.
pub(super) async fn exchange<S>(stream: &mut S, request: &[u8], buffer: &mut Vec<u8>) -> Result<(u16, bool)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let talk = async {
        stream.write_all(request).await?;
        buffer.clear();
        loop {
            ensure!(stream.read_buf(buffer).await? > 0, "cut off");
            let Some(end) = head_end(buffer) else { continue };
            let (status, length, stays) = read_head(&String::from_utf8_lossy(&buffer[..end]))?;
            while buffer.len() < end + length {
                ensure!(stream.read_buf(buffer).await? > 0, "cut off");
            }
            return anyhow::Ok((status, stays));
        }
    };
    tokio::time::timeout(ANSWER, talk).await.context("no answer")?
}

/// A client that blocks, for what is timed: one connection as long as it lasts.
#[derive(Debug)]
pub(super) struct Asker {
    port: u16,
    stream: Option<BufReader<TcpStream>>,
}

impl Asker {
    /// For a port of 127.0.0.1.
    pub fn new(port: u16) -> Self {
        Self { port, stream: None }
    }

    /// Status and body.
    pub fn get(&mut self, host: &str, path: &str) -> Result<(u16, String)> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_read_timeout(Some(ANSWER))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        stream.get_mut().write_all(&head(host, path))?;
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            ensure!(stream.read_line(&mut text)? > 0, "cut off");
        }
        let (status, length, stays) = read_head(&text)?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        if stays {
            self.stream = Some(stream);
        }
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// Trusts that authority alone.
pub(super) fn trust(authority: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The certificate that is shown for a host, on a connection of its own; blocks.
pub(super) fn shown(port: u16, trust: &Arc<ClientConfig>, host: &str) -> Result<CertificateDer<'static>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut session = ClientConnection::new(Arc::clone(trust), ServerName::try_from(host.to_owned())?)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    let certificate = session.peer_certificates().and_then(<[_]>::first).context("no certificate")?;
    Ok(certificate.clone().into_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn heads_are_read_whatever_their_case() {
        let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\nConnection: Close\r\n\r\n";
        assert_eq!(super::read_head(head).unwrap(), (404, 7, false));
        assert_eq!(super::read_head("HTTP/1.1 200 OK\r\n\r\n").unwrap(), (200, 0, true));
        assert!(super::read_head("nonsense").is_err());
    }
}
