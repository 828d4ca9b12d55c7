//! A server that says how it was asked. It understands what comes: HTTP of either version, with TLS or without, behind
//! the PROXY protocol or not.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use waystation_kit::pki::Leaf;

use crate::edge::soon;
use crate::frames::{self, Message};
use crate::traffic;

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Wire = BufReader<Box<dyn Stream>>;

/// Answers with a text about the request: a line each for the request, the address at which it came, what came before it
/// (`proxy`, `tls`), which HTTP it is, its headers in lower case, and how long its body was.
///
/// What a path holds decides how: `/status/N`; `/held` waits to be let go; `/silent` is never answered;
/// `/needs/host-NAME/sni-NAME/http-2/proxy-v2` fails unless it is asked like that.
pub struct Reflector {
    held: watch::Sender<bool>,
    /// Requests that came so far and those that are held now.
    pub counts: Arc<Counts>,
    task: JoinHandle<()>,
}

#[derive(Default)]
pub struct Counts {
    pub requests: AtomicUsize,
    pub held: AtomicUsize,
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is known of a connection before its first request.
#[derive(Clone, Default)]
struct How {
    at: String,
    proxy: Option<String>,
    tls: Option<String>,
}

/// What all connections share.
struct Shared {
    tls: TlsAcceptor,
    held: watch::Receiver<bool>,
    counts: Arc<Counts>,
}

impl Reflector {
    /// At this address, with that certificate; clients that show one of `authority` are told apart.
    pub async fn start(at: SocketAddr, leaf: &Leaf, authority: &str) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(traffic::roots(authority)?), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let (chain, key) = traffic::identity(leaf)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind(at).await?;
        let (held, waits) = watch::channel(true);
        let counts = Arc::new(Counts::default());
        let shared =
            Arc::new(Shared { tls: TlsAcceptor::from(Arc::new(config)), held: waits, counts: Arc::clone(&counts) });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let at = stream.local_addr().map(|at| at.to_string()).unwrap_or_default();
                let stream: Box<dyn Stream> = Box::new(stream);
                // What a client breaks off is its own affair.
                tokio::spawn(
                    async move { connection(BufReader::new(stream), How { at, ..How::default() }, &shared).await },
                );
            }
        });
        Ok(Self { held, counts, task })
    }

    /// Requests that are held now and those that come are let go, or held again.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }
}

async fn connection(mut wire: Wire, mut how: How, shared: &Shared) -> Result<()> {
    loop {
        let first = wire.fill_buf().await?.first().copied();
        match first {
            None => return Ok(()),
            Some(0x16) => {
                let stream = shared.tls.accept(wire).await?;
                let session = stream.get_ref().1;
                let name = session.server_name().unwrap_or("-");
                let alpn = session.alpn_protocol().map_or("-".into(), String::from_utf8_lossy);
                let client = session.peer_certificates().and_then(<[_]>::first);
                let client = client.map_or_else(|| "-".to_owned(), |der| STANDARD.encode(der));
                how.tls = Some(format!("{name} {alpn} {client}"));
                let stream: Box<dyn Stream> = Box::new(stream);
                wire = BufReader::new(stream);
            }
            Some(b'\r') => how.proxy = Some(second_version(&mut wire).await?),
            Some(_) => {
                let mut line = String::new();
                wire.read_line(&mut line).await?;
                if let Some(proxy) = line.strip_prefix("PROXY ") {
                    how.proxy = Some(format!("v1 {}", proxy.trim_end()));
                } else if frames::PREFACE.starts_with(line.as_bytes()) {
                    wire.read_exact(&mut vec![0; frames::PREFACE.len() - line.len()]).await?;
                    return second(wire, &how, shared).await;
                } else {
                    return first_version(wire, line, &how, shared).await;
                }
            }
        }
    }
}

/// The header of the PROXY protocol in its second version: the client's address.
async fn second_version(wire: &mut Wire) -> Result<String> {
    let mut head = [0; 16];
    wire.read_exact(&mut head).await?;
    ensure!(head[..12] == *b"\r\n\r\n\0\r\nQUIT\n", "something else begins with an empty line");
    let mut rest = vec![0; usize::from(u16::from_be_bytes([head[14], head[15]]))];
    wire.read_exact(&mut rest).await?;
    if head[12] & 0xf == 0 {
        // A proxy that asks for itself.
        return Ok("v2 LOCAL".to_owned());
    }
    ensure!(head[13] == 0x11, "no client by IPv4: {head:?}");
    let address = Ipv4Addr::new(rest[0], rest[1], rest[2], rest[3]);
    Ok(format!("v2 TCP4 {address}"))
}

async fn first_version(mut wire: Wire, mut line: String, how: &How, shared: &Shared) -> Result<()> {
    loop {
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().context("no method")?, words.next().context("no path")?);
        let mut request = Message::default();
        request.headers.push((":method".into(), method.into()));
        request.headers.push((":path".into(), path.into()));
        loop {
            let mut header = String::new();
            ensure!(wire.read_line(&mut header).await? > 0, "cut off");
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if request.get("upgrade") == Some("websocket") {
            return traffic::echo(wire).await;
        }
        request.body = body(&mut wire, &request).await?;
        let answer = answer(&request, how, "1", shared).await;
        let status = answer.get(":status").context("no status")?;
        let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", answer.body.len());
        for (name, value) in answer.headers.iter().filter(|(name, _)| !name.starts_with(':')) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        wire.get_mut().write_all(head.as_bytes()).await?;
        if method != "HEAD" {
            wire.get_mut().write_all(&answer.body).await?;
        }
        wire.get_mut().flush().await?;
        line.clear();
        if wire.read_line(&mut line).await? == 0 {
            return Ok(());
        }
    }
}

async fn body(wire: &mut Wire, request: &Message) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    if let Some(length) = request.get("content-length") {
        body.resize(length.parse()?, 0);
        wire.read_exact(&mut body).await?;
    } else if request.get("transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            wire.read_line(&mut line).await?;
            let length = usize::from_str_radix(line.trim(), 16)?;
            let mut chunk = vec![0; length + 2];
            wire.read_exact(&mut chunk).await?;
            body.extend_from_slice(&chunk[..length]);
            if length == 0 {
                break;
            }
        }
    }
    Ok(body)
}

async fn second(mut wire: Wire, how: &How, shared: &Shared) -> Result<()> {
    frames::begin(&mut wire).await?;
    while let Some((id, request)) = frames::receive(&mut wire).await? {
        let mut answer = answer(&request, how, "2", shared).await;
        if request.get("content-type") != Some("application/grpc") {
            answer.headers.push(("content-length".into(), answer.body.len().to_string()));
        } else {
            answer.headers.push(("content-type".into(), "application/grpc".into()));
            answer.trailers.push(("grpc-status".into(), "0".into()));
        }
        frames::send(&mut wire, id, &answer).await?;
    }
    Ok(())
}

async fn answer(request: &Message, how: &How, version: &str, shared: &Shared) -> Message {
    shared.counts.requests.fetch_add(1, Ordering::SeqCst);
    let header = |name: &str| request.get(name).unwrap_or("-").to_owned();
    let path = header(":path");
    if path.contains("/held") {
        shared.counts.held.fetch_add(1, Ordering::SeqCst);
        let mut held = shared.held.clone();
        held.wait_for(|held| !held).await.ok();
        shared.counts.held.fetch_sub(1, Ordering::SeqCst);
    }
    if path.contains("/silent") {
        std::future::pending::<()>().await;
    }
    let mut status = path.split("/status/").nth(1).and_then(|rest| rest.get(..3)).unwrap_or("200");
    let word = |text: Option<&String>| text.and_then(|text| text.split(' ').next()).unwrap_or("-").to_owned();
    let spoken = [
        format!("host-{}", if version == "1" { header("host") } else { header(":authority") }),
        format!("http-{version}"),
        format!("sni-{}", word(how.tls.as_ref())),
        format!("proxy-{}", word(how.proxy.as_ref())),
    ];
    if path.strip_prefix("/needs/").is_some_and(|needs| !needs.split('/').all(|need| spoken.iter().any(|s| s == need)))
    {
        status = "500";
    }
    let mut text = format!("{} {path}\nat {}\nhttp {version}\n", header(":method"), how.at);
    text.extend(how.proxy.iter().map(|proxy| format!("proxy {proxy}\n")));
    text.extend(how.tls.iter().map(|tls| format!("tls {tls}\n")));
    for (name, value) in request.headers.iter().filter(|(name, _)| name != ":method" && name != ":path") {
        text.push_str(&format!("{}: {value}\n", if name == ":authority" { "host" } else { name }));
    }
    text.push_str(&format!("{} bytes\n", request.body.len()));
    // Of its own, for whoever removes or overwrites some; and what it was asked with, for whoever asks before others.
    let mut headers = frames::Fields::from([(":status".to_owned(), status.to_owned())]);
    for (name, value) in [
        ("x-of-server", "one"),
        ("x-of-server-too", "two"),
        ("x-token-was", &header("x-token")),
        ("x-method-was", &header(":method")),
        ("x-path-was", &path),
        ("x-other-was", &header("x-other")),
        ("www-authenticate", "Custom realm=\"r\""),
    ] {
        headers.push((name.to_owned(), value.to_owned()));
    }
    Message { headers, body: text.into_bytes(), trailers: Vec::new() }
}

/// Waits until so many requests are held.
pub async fn until_held(counts: &Counts, wanted: usize) -> Result<()> {
    soon("requests are held", || async {
        let held = counts.held.load(Ordering::SeqCst);
        ensure!(held == wanted, "{held} are held, not {wanted}");
        Ok(())
    })
    .await
}
