//! Honest clients and servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use waystation_kit::pki::Leaf;

use crate::edge::PATIENCE;

/// A server that answers with its name; requests for `/held` wait until they are let go.
pub struct Server {
    pub port: u16,
    held: Arc<(Notify, AtomicBool)>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(name: &'static str) -> Result<Self> {
        Self::start_at(name, ([127, 0, 0, 1], 0).into()).await
    }

    /// At this address.
    pub async fn start_at(name: &'static str, at: std::net::SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let port = listener.local_addr()?.port();
        let held = Arc::new((Notify::new(), AtomicBool::new(false)));
        let for_task = Arc::clone(&held);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let held = Arc::clone(&for_task);
                tokio::spawn(async move { serve(stream, name, &held).await });
            }
        });
        Ok(Self { port, held, task })
    }

    /// Lets requests that are held end.
    pub fn let_go(&self) {
        self.held.1.store(true, Ordering::SeqCst);
        self.held.0.notify_waiters();
    }
}

async fn serve(stream: TcpStream, name: &str, held: &(Notify, AtomicBool)) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let (mut header, mut upgrade) = (String::new(), false);
        while stream.read_line(&mut header).await? > 2 {
            upgrade |= header.eq_ignore_ascii_case("upgrade: websocket\r\n");
            header.clear();
        }
        if upgrade {
            return echo(stream).await;
        }
        if line.starts_with("GET /held ") {
            let go = held.0.notified();
            if !held.1.load(Ordering::SeqCst) {
                go.await;
            }
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
}

/// Becomes a WebSocket that says what it is told.
pub async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: BufReader<S>) -> Result<()> {
    // For the key of RFC 6455, which our clients send.
    let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                  sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    stream.get_mut().write_all(answer.as_bytes()).await?;
    stream.get_mut().flush().await?;
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => {
                stream.get_mut().write_all(&buffer[..count]).await?;
                stream.get_mut().flush().await?;
            }
        }
    }
}

/// A WebSocket as a proxy sees one: upgraded, then bytes back and forth, until it is told to end.
pub struct Socket {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<usize>>,
}

impl Socket {
    pub async fn open(port: u16, host: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let key = "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
        let ask =
            format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        ensure!(line.starts_with("HTTP/1.1 101 "), "{host}: {line}");
        while stream.read_line(&mut line).await? > 2 {}
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut count = 0_usize;
            while !stopped.load(Ordering::SeqCst) {
                let sent = count.to_be_bytes();
                stream.get_mut().write_all(&sent).await?;
                let mut got = [0; 8];
                let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut got)).await;
                read.context("no echo")?.context("the WebSocket was dropped")?;
                ensure!(got == sent, "another echo");
                count += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(count)
        });
        Ok(Self { stop, task })
    }

    /// Ends it; how many messages came back. Fails if it was dropped before.
    pub async fn end(self) -> Result<usize> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await?
    }
}

/// One request on a connection that stays open: status and body.
pub async fn request<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    host: &str,
    path: &str,
) -> Result<(u16, String)> {
    ask(stream, host, path).await.map(|(status, body, _)| (status, body))
}

/// One request: status, body, and whether the connection stays open.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, host: &str, path: &str) -> Result<(u16, String, bool)> {
    let talk = async {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let status = line.split(' ').nth(1).context("no status")?.parse()?;
        let (mut length, mut stays) = (0, true);
        loop {
            let mut header = String::new();
            ensure!(reader.read_line(&mut header).await? > 0, "cut off");
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            stays &= !header.to_lowercase().starts_with("connection: close");
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await?;
        anyhow::Ok((status, String::from_utf8(body)?, stays))
    };
    tokio::time::timeout(PATIENCE, talk).await.context("no answer")?
}

/// One request on a connection of its own.
pub async fn get(port: u16, host: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    request(&mut stream, host, path).await
}

/// The one authority that is trusted, as PEM.
pub fn roots(authority: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    Ok(roots)
}

/// What a certificate is shown with.
pub fn identity(leaf: &Leaf) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?];
    Ok((chain, PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?))
}

/// Clients who trust that authority.
pub fn clients(authority: &str) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots(authority)?))
}

/// One request by TLS: status, body, and the certificate that was shown.
pub async fn get_tls(port: u16, authority: &str, host: &str) -> Result<(u16, String, CertificateDer<'static>)> {
    let config = clients(authority)?.with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(host.to_owned())?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).context("no certificate")?;
    let shown = shown.clone().into_owned();
    let (status, body) = request(&mut stream, host, "/").await?;
    Ok((status, body, shown))
}

/// A client that never stops asking, on one connection after the other; every answer but 200 is a failure.
pub struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    task: JoinHandle<Result<()>>,
}

impl Load {
    pub fn start(port: u16, host: &'static str) -> Self {
        Self::paced(port, host, 5, Duration::ZERO)
    }

    /// With so many requests on a connection, and that much rest between two.
    pub fn paced(port: u16, host: &'static str, requests: usize, rest: Duration) -> Self {
        Self::spawn(async move |stopped, counted| {
            while !stopped.load(Ordering::SeqCst) {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
                for _ in 0..requests {
                    let (status, body, stays) = ask(&mut stream, host, "/").await?;
                    if !rest.is_zero() {
                        tokio::time::sleep(rest).await;
                    }
                    if status != 200 {
                        bail!("{status} {body} after {} requests", counted.load(Ordering::SeqCst));
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    if !stays {
                        break;
                    }
                }
            }
            Ok(())
        })
    }

    /// Asks by TLS, each time on a connection of its own; what is answered, and which certificate was shown, is for
    /// `check`.
    pub fn by_tls(
        port: u16,
        authority: String,
        host: &'static str,
        mut check: impl FnMut(u16, &CertificateDer<'static>) -> Result<()> + Send + 'static,
        rest: Duration,
    ) -> Self {
        Self::spawn(async move |stopped, counted| {
            while !stopped.load(Ordering::SeqCst) {
                let (status, _, shown) = get_tls(port, &authority, host).await?;
                check(status, &shown)?;
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(rest).await;
            }
            Ok(())
        })
    }

    fn spawn<Fut>(work: impl FnOnce(Arc<AtomicBool>, Arc<AtomicUsize>) -> Fut) -> Self
    where
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn(work(Arc::clone(&stop), Arc::clone(&count)));
        Self { stop, count, task }
    }

    /// Waits until it has asked that many times more.
    pub async fn go_on(&self, requests: usize) -> Result<()> {
        let until = self.count.load(Ordering::SeqCst) + requests;
        while self.count.load(Ordering::SeqCst) < until && !self.task.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Whether a request has failed.
    pub fn failed(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends it; fails if any request failed.
    pub async fn end(self) -> Result<usize> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await??;
        Ok(self.count.load(Ordering::SeqCst))
    }
}
