//! Questions to an edge, and what their answers must be.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail, ensure};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use waystation_kit::pki::Leaf;

use crate::edge::{PATIENCE, soon};
use crate::frames::{self, Fields, Message};
use crate::reflect::{Reflector, Stream, until_held};
use crate::traffic;

/// Where an edge is, whose certificates count, and what is behind it.
#[derive(Clone)]
pub struct Edges {
    pub http: u16,
    pub https: u16,
    /// As PEM.
    pub authority: String,
    pub reflector: Arc<Reflector>,
}

/// One question.
#[derive(Clone)]
pub struct Ask {
    method: &'static str,
    path: String,
    /// Another host than that of who asks.
    host: Option<String>,
    /// Another name in TLS than the host's.
    sni: Option<String>,
    tls: bool,
    second: bool,
    headers: Fields,
    body: Body,
    from: Client,
    client: Option<Leaf>,
    times: Times,
    beside_held: bool,
    at_once: bool,
    expect: Vec<Expect>,
}

#[derive(Clone, Copy)]
enum Client {
    At([u8; 4]),
    /// From where nobody has asked yet.
    Anew,
}

#[derive(Clone, Copy)]
enum Times {
    /// Each of so many.
    Each(usize),
    /// One of so many.
    One(usize),
    /// Sooner or later.
    Soon,
}

#[derive(Clone)]
enum Body {
    None,
    /// With its length.
    Long(usize),
    /// Without.
    Chunked(usize),
}

#[derive(Clone, Debug)]
enum Expect {
    Status(u16),
    /// A line of the answer's head: `name: value`.
    Told(String),
    NotTold(&'static str),
    /// A line of what a reflecting server says of the request, or its beginning, up to a `…`.
    Seen(String),
    NotSeen(String),
    Trailer(&'static str, &'static str),
    /// There is no answer.
    Broken,
    /// That cookie has one endpoint answer again and again, and these are its attributes.
    Sticks(&'static str, &'static str),
    /// Of ten requests each has the same endpoint, or all endpoints have some, of so many.
    Endpoints(usize),
    /// What became a tunnel ends.
    TunnelEnds,
}

pub fn get(path: impl Into<String>) -> Ask {
    Ask {
        method: "GET",
        path: path.into(),
        host: None,
        sni: None,
        tls: false,
        second: false,
        headers: Fields::new(),
        body: Body::None,
        from: Client::At([127, 0, 0, 1]),
        client: None,
        times: Times::Each(1),
        beside_held: false,
        at_once: false,
        expect: Vec::new(),
    }
}

impl Ask {
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    pub fn sni(mut self, name: impl Into<String>) -> Self {
        self.sni = Some(name.into());
        self.tls()
    }

    /// By HTTP/2, with TLS.
    pub fn second(mut self) -> Self {
        self.second = true;
        self.tls()
    }

    /// With a certificate.
    pub fn client(mut self, leaf: &Leaf) -> Self {
        self.client = Some(leaf.clone());
        self.tls()
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn long(mut self, bytes: usize) -> Self {
        (self.method, self.body) = ("POST", Body::Long(bytes));
        self
    }

    pub fn chunked(mut self, bytes: usize) -> Self {
        (self.method, self.body) = ("POST", Body::Chunked(bytes));
        self
    }

    pub fn from(mut self, address: [u8; 4]) -> Self {
        self.from = Client::At(address);
        self
    }

    /// From where nobody has asked yet: for what counts requests.
    pub fn anew(mut self) -> Self {
        self.from = Client::Anew;
        self
    }

    /// So many times; what is expected holds each time.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Times::Each(times);
        self
    }

    /// So many times at most; what is expected holds once.
    pub fn once_in(mut self, times: usize) -> Self {
        self.times = Times::One(times);
        self
    }

    /// Again and again until what is expected holds.
    pub fn soon(mut self) -> Self {
        self.times = Times::Soon;
        self
    }

    /// While another request of the same client, to the same path with `/held` behind, is not answered yet.
    pub fn beside_held(mut self) -> Self {
        self.beside_held = true;
        self
    }

    /// By HTTP/2: all of it in one piece.
    pub fn at_once(mut self) -> Self {
        self.at_once = true;
        self
    }

    /// Whether it needs another request to be held.
    pub fn holds(&self) -> bool {
        self.beside_held
    }

    pub fn sticks(mut self, cookie: &'static str, attributes: &'static str) -> Self {
        self.expect.push(Expect::Sticks(cookie, attributes));
        self
    }

    pub fn endpoints(mut self, count: usize) -> Self {
        self.expect.push(Expect::Endpoints(count));
        self
    }

    pub fn tunnel_ends(mut self) -> Self {
        let key = [("sec-websocket-version", "13"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")];
        for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")].into_iter().chain(key) {
            self = self.with(name, value);
        }
        self.expect.push(Expect::TunnelEnds);
        self
    }

    pub fn status(mut self, status: u16) -> Self {
        self.expect.push(Expect::Status(status));
        self
    }

    pub fn told(mut self, line: impl Into<String>) -> Self {
        self.expect.push(Expect::Told(line.into()));
        self
    }

    pub fn not_told(mut self, name: &'static str) -> Self {
        self.expect.push(Expect::NotTold(name));
        self
    }

    pub fn seen(mut self, line: impl Into<String>) -> Self {
        self.expect.push(Expect::Seen(line.into()));
        self
    }

    pub fn not_seen(mut self, beginning: impl Into<String>) -> Self {
        self.expect.push(Expect::NotSeen(beginning.into()));
        self
    }

    pub fn trailer(mut self, name: &'static str, value: &'static str) -> Self {
        self.expect.push(Expect::Trailer(name, value));
        self
    }

    pub fn broken(mut self) -> Self {
        self.expect.push(Expect::Broken);
        self
    }

    /// Asks for a host, and fails where the answer is not what it must be.
    pub async fn check(&self, edges: &Edges, host: &str) -> Result<()> {
        let mut ask = self.clone();
        if let Client::Anew = self.from {
            static LAST: AtomicU16 = AtomicU16::new(0);
            let [high, low] = LAST.fetch_add(1, Ordering::SeqCst).to_be_bytes();
            ask.from = Client::At([127, 1, high, low]);
        }
        if !self.beside_held {
            return ask.check_times(edges, host).await;
        }
        let held = Self { path: format!("{}/held", self.path), ..ask.clone() };
        let (other_edges, other_host) = (edges.clone(), host.to_owned());
        edges.reflector.hold(true);
        let held = tokio::spawn(async move { held.send(&other_edges, &other_host).await });
        until_held(&edges.reflector.counts, 1).await?;
        let checked = ask.check_times(edges, host).await;
        edges.reflector.hold(false);
        let answer = tokio::time::timeout(PATIENCE, held).await.context("what was held is not answered")???;
        ensure!(answer.get(":status") == Some("200"), "what was held: {:?}", answer.headers);
        until_held(&edges.reflector.counts, 0).await?;
        checked
    }

    async fn check_times(&self, edges: &Edges, host: &str) -> Result<()> {
        let mut last = Ok(());
        match self.times {
            Times::Each(times) => {
                for _ in 0..times {
                    self.check_once(edges, host).await?;
                }
            }
            Times::One(times) => {
                for _ in 0..times {
                    last = self.check_once(edges, host).await;
                    if last.is_ok() {
                        break;
                    }
                }
            }
            Times::Soon => return soon("an answer", || self.check_once(edges, host)).await,
        }
        last
    }

    async fn check_once(&self, edges: &Edges, base: &str) -> Result<()> {
        let host = self.host.as_deref().unwrap_or("HOST").replace("HOST", base);
        let answer = tokio::time::timeout(PATIENCE, self.send(edges, &host)).await.context("no answer in time");
        let scheme = if self.tls { "https" } else { "http" };
        let words = || format!("{} {scheme}://{host}{} {:?}", self.method, self.path, self.headers);
        let answer = match answer.and_then(|answer| answer) {
            Ok(answer) => answer,
            Err(_) if self.expect.iter().any(|expect| matches!(expect, Expect::Broken)) => return Ok(()),
            Err(error) => return Err(error.context(words())),
        };
        let body = String::from_utf8_lossy(&answer.body);
        let told = |line: &str| answer.headers.iter().any(|(name, value)| format!("{name}: {value}") == line);
        for expect in &self.expect {
            let fine = match expect {
                Expect::Status(status) => answer.get(":status") == Some(&status.to_string()),
                Expect::Told(line) => told(&line.replace("HOST", base)),
                Expect::NotTold(name) if name.contains(": ") => !told(name),
                Expect::NotTold(name) => answer.get(name).is_none(),
                Expect::Seen(line) => {
                    let line = line.replace("HOST", base);
                    body.lines().any(|l| line.strip_suffix('…').map_or(l == line, |start| l.starts_with(start)))
                }
                Expect::NotSeen(start) => !body.lines().any(|line| line.starts_with(start.as_str())),
                Expect::Trailer(name, value) => answer.trailers.contains(&((*name).to_owned(), (*value).to_owned())),
                Expect::Broken => false,
                Expect::Sticks(cookie, attributes) => self.keeps(edges, &host, &answer, cookie, attributes).await?,
                Expect::Endpoints(count) => self.endpoints_of(edges, &host, None).await?.len() == *count,
                // It has, or it would not have been answered.
                Expect::TunnelEnds => answer.get(":status") == Some("101"),
            };
            ensure!(fine, "{}: {expect:?} does not hold of {:?} {body}", words(), answer.headers);
        }
        Ok(())
    }

    /// Whether the cookie of an answer has the same endpoint answer again and again.
    async fn keeps(&self, edges: &Edges, host: &str, first: &Message, name: &str, attributes: &str) -> Result<bool> {
        let set = first.get("set-cookie").context("no cookie")?;
        let (pair, rest) = set.split_once(';').context("a cookie without a path")?;
        ensure!(pair.starts_with(&format!("{name}=")) && rest.trim() == attributes, "{set}");
        // Among others, which arrive as they were.
        let cookie = format!("before=1; {pair}; after=2");
        let seen = self.endpoints_of(edges, host, Some(&cookie)).await?;
        let at = at_of(first)?;
        Ok(seen.into_iter().collect::<Vec<_>>() == [at])
    }

    /// The endpoints that answer ten requests.
    async fn endpoints_of(&self, edges: &Edges, host: &str, cookie: Option<&str>) -> Result<BTreeSet<String>> {
        let mut seen = BTreeSet::new();
        for _ in 0..10 {
            let mut again = self.clone();
            again.headers.extend(cookie.map(|cookie| ("cookie".to_owned(), cookie.to_owned())));
            let answer = again.send(edges, host).await?;
            if cookie.is_some() {
                let body = String::from_utf8_lossy(&answer.body);
                ensure!(answer.get("set-cookie").is_none(), "it is told again");
                ensure!(body.lines().any(|line| line == "cookie: before=1; after=2"), "other cookies: {body}");
            }
            seen.insert(at_of(&answer)?);
        }
        Ok(seen)
    }

    /// What is answered, if there is any answer.
    pub async fn send(&self, edges: &Edges, host: &str) -> Result<Message> {
        let socket = TcpSocket::new_v4()?;
        if let Client::At(address) = self.from {
            socket.bind((address, 0).into())?;
        }
        let port = if self.tls { edges.https } else { edges.http };
        let stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        let mut stream: Box<dyn Stream> = Box::new(stream);
        if self.tls {
            let connector = TlsConnector::from(Arc::new(self.tls_config(edges)?));
            let name = ServerName::try_from(self.sni.clone().unwrap_or_else(|| host.to_owned()))?;
            stream = Box::new(connector.connect(name, stream).await?);
        }
        if self.second { self.by_second(stream, host).await } else { self.by_first(stream, host).await }
    }

    fn tls_config(&self, edges: &Edges) -> Result<ClientConfig> {
        let config = traffic::clients(&edges.authority)?;
        let mut config = match &self.client {
            None => config.with_no_client_auth(),
            Some(leaf) => {
                let (chain, key) = traffic::identity(leaf)?;
                config.with_client_auth_cert(chain, key)?
            }
        };
        config.alpn_protocols = vec![if self.second { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Ok(config)
    }

    async fn by_first(&self, mut stream: Box<dyn Stream>, host: &str) -> Result<Message> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = match self.body {
            Body::None => "\r\n".to_owned(),
            Body::Long(bytes) => format!("content-length: {bytes}\r\n\r\n{}", "x".repeat(bytes)),
            Body::Chunked(bytes) => {
                format!("transfer-encoding: chunked\r\n\r\n{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes))
            }
        };
        text.push_str(&body);
        stream.write_all(text.as_bytes()).await?;
        stream.flush().await?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        ensure!(stream.read_line(&mut line).await? > 0, "closed without an answer");
        let mut answer = Message::default();
        let status = line.split(' ').nth(1).context("no status")?.to_owned();
        answer.headers.push((":status".to_owned(), status.clone()));
        loop {
            line.clear();
            ensure!(stream.read_line(&mut line).await? > 0, "cut off");
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if status == "101" {
            let ended = stream.read_to_end(&mut answer.body);
            tokio::time::timeout(PATIENCE, ended).await.context("the tunnel does not end")??;
            return Ok(answer);
        }
        let length = answer.get("content-length").unwrap_or("0").parse()?;
        if self.method != "HEAD" {
            answer.body.resize(length, 0);
            stream.read_exact(&mut answer.body).await?;
        }
        Ok(answer)
    }

    async fn by_second(&self, mut stream: Box<dyn Stream>, host: &str) -> Result<Message> {
        let mut request = Message::default();
        let pseudo = [(":method", self.method), (":scheme", "https"), (":authority", host), (":path", &self.path)];
        request.headers.extend(pseudo.map(|(name, value)| (name.to_owned(), value.to_owned())));
        request.headers.extend(self.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        match self.body {
            Body::None => {}
            Body::Long(bytes) => {
                request.headers.push(("content-length".to_owned(), bytes.to_string()));
                request.body = vec![b'x'; bytes];
            }
            Body::Chunked(bytes) => request.body = vec![b'x'; bytes],
        }
        let mut piece = std::io::Cursor::new(Vec::new());
        piece.write_all(frames::PREFACE).await?;
        frames::begin(&mut piece).await?;
        if self.at_once {
            frames::send(&mut piece, 1, &request).await?;
        }
        stream.write_all(piece.get_ref()).await?;
        stream.flush().await?;
        if !self.at_once {
            frames::send(&mut stream, 1, &request).await?;
        }
        match frames::receive(&mut stream).await? {
            Some((1, answer)) => Ok(answer),
            other => bail!("{other:?}"),
        }
    }
}

/// Which endpoint answered.
pub fn at_of(answer: &Message) -> Result<String> {
    let body = String::from_utf8_lossy(&answer.body);
    let at = body.lines().find_map(|line| line.strip_prefix("at ").map(str::to_owned));
    at.with_context(|| format!("nobody answered: {:?} {body}", answer.headers))
}
