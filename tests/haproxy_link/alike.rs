//! The HAProxy in memory is held to the real one: both are started from the same files and told the same, and answer the
//! same, word for word. In between both are asked what they hold.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::net::{TcpListener, TcpStream};
use waystation::drive::haproxy::link::{ProcessLink, ProcessSession};
use waystation::drive::haproxy::socket::SocketLink;
use waystation::edge::model::DEFAULT_CERTIFICATE;
use waystation::edge::render::{self, FixedPart, Layout};
use waystation::edge::runtime::command::{Command, Kind};
use waystation::edge::runtime::show;
use waystation::edge::wanted::{MapName, Slot, Value};
use waystation_kit::haproxy_core::{Files, Parser, Worker};
use waystation_kit::pki::Authority;

use crate::edge::{Edge, PATIENCE, pem, soon};

/// Both of them.
struct Pair {
    real: Box<dyn ProcessSession>,
    memory: Worker,
    layout: Layout,
    edge: Edge,
    different: Vec<String>,
}

impl Pair {
    /// From the same files: a backend with a server, a host with a certificate, a map with two entries.
    async fn start() -> Result<Self> {
        let mut edge = Edge::new()?;
        let (default, leaf) = (pem(&edge.default), edge.default.clone());
        edge.wanted.set(Slot::Certificate(DEFAULT_CERTIFICATE.into()), Some(Value::Sealed(default.into())));
        edge.backend("a:web:80").server("a:web:80", 9, false).route("h.com", Some("a:web:80"));
        edge.certificate("a_cert", Some(&leaf)).crt_line("h.com", Some("a_cert"));
        let layout = edge.layout();
        let files = render::files(&FixedPart::of(&edge.config, &layout), &edge.wanted, &layout);
        for file in &files {
            let path = Path::new(&file.path);
            std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
            std::fs::write(path, &file.contents)?;
        }
        edge.haproxy.start().await?;
        let files: Files = files.into_iter().map(|file| (file.path, file.contents.into())).collect();
        let memory = Parser::default().start(&files, layout.dir(), (1, 1), &BTreeSet::new());
        let memory = memory.map_err(|why| anyhow::anyhow!("the one in memory does not start: {why}"))?;
        let link = SocketLink {
            socket: edge.haproxy.socket().display().to_string(),
            master: None,
            connect: PATIENCE,
            reload: PATIENCE,
        };
        Ok(Self { real: link.connect().await?, memory, layout, edge, different: Vec::new() })
    }

    /// Tells both the same; `~/` is the folder of their files.
    async fn tell(&mut self, line: &str, payload: Option<&str>) -> Result<()> {
        let here = |text: &str| text.replace("~/", &format!("{}/", self.layout.dir()));
        let command = match payload {
            Some(payload) => Command::with_payload(Kind::Show, &here(line), &here(payload)),
            None => Command::plain(Kind::Show, here(line)),
        };
        let real = self.real.ask(command.text.clone(), PATIENCE).await?;
        let memory = self.memory.ask(&command.text);
        let (real, memory) = (plain(line, &real), plain(line, &memory));
        if real != memory {
            self.different.push(format!("{line}\n  real:   {real}\n  memory: {memory}"));
        }
        Ok(())
    }

    async fn tell_all(&mut self, lines: &str) -> Result<()> {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.tell(line, None).await?;
        }
        self.look(lines.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()).await
    }

    /// Asks both what they hold, in the words that an agent reads it by.
    async fn look(&mut self, after: &str) -> Result<()> {
        let ask = async |question: String| anyhow::Ok(self.real.ask(format!("{question}\n"), PATIENCE).await?);
        let mut questions: Vec<String> =
            MapName::ALL.iter().map(|map| format!("show map {}", self.layout.map(*map))).collect();
        questions.push(format!("show ssl crt-list -n {}", self.layout.crt_list()));
        for question in ["backend", "servers state", "ssl cert", "ssl ca-file", "stat -1 1 -1", "info"] {
            questions.push(format!("show {question}"));
        }
        let mut different = Vec::new();
        for question in questions {
            let (real, memory) = (ask(question.clone()).await?, self.memory.clone().ask(&format!("{question}\n")));
            let (real, memory) = (held(&question, &real), held(&question, &memory));
            if real != memory {
                different.push(format!("{question}, after {after}\n  real:   {real:?}\n  memory: {memory:?}"));
            }
        }
        self.different.extend(different);
        Ok(())
    }

    fn end(self) -> Result<()> {
        ensure!(self.different.is_empty(), "they differ:\n{}\n{}", self.different.join("\n"), self.edge.haproxy.log());
        Ok(())
    }
}

/// Without blanks and empty lines at the ends, the dots that say how far it is, and what was said before.
fn plain(command: &str, answer: &str) -> String {
    let lines = answer.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let going_on = |line: &str| ["Inserting", "Committing"].iter().any(|word| line.starts_with(word));
    let lines = lines.map(|line| if going_on(line) { line.trim_end_matches('.') } else { line });
    let lines: Vec<&str> = lines.collect();
    // Whoever deletes a backend is told again what became of its servers.
    let counts = if command.starts_with("del backend") { lines.len().saturating_sub(1) } else { 0 };
    lines[counts..].join("\n           ")
}

/// What an agent reads out of an answer; of what has no order, sorted.
fn held(question: &str, answer: &str) -> Vec<String> {
    fn all<T: std::fmt::Debug>(list: Vec<T>) -> Vec<String> {
        list.iter().map(|one| format!("{one:?}")).collect()
    }
    let (mut list, ordered) = match question.split(' ').collect::<Vec<_>>()[1..] {
        ["map", _] => (all(show::map(answer)), true),
        ["ssl", "crt-list", ..] => (all(show::crt_list(answer)), true),
        ["backend"] => (all(show::backends(answer)), false),
        ["servers", "state"] => (all(show::servers(answer)), false),
        ["ssl", ..] => (all(show::stores(answer)), false),
        ["stat", ..] => (all(show::frontends(answer)), false),
        // Number and time are each one's own.
        _ => (vec![format!("{:?} {}", show::info(answer).mark, show::info(answer).stopping)], true),
    };
    if !ordered {
        list.sort();
    }
    list
}

#[tokio::test]
async fn backends_and_servers() -> Result<()> {
    let mut pair = Pair::start().await?;
    pair.look("the start").await?;
    pair.tell_all(
        "add backend a:web:80 from http-roundrobin
         add backend n:x:80 from http-roundrobin
         add backend n:x:80 from http-roundrobin
         add backend n:y:80 from nope
         add backend n/y from http-roundrobin
         publish backend n:x:80
         publish backend n:x:80
         unpublish backend n:none:80
         publish backend n:none:80
         del backend n:none:80
         del backend n:x:80
         unpublish backend n:x:80
         unpublish backend n:x:80
         publish backend n:x:80",
    )
    .await?;
    pair.tell_all(
        "add server n:x:80/one 127.0.0.1:9 weight 1 maxconn 7
         add server n:x:80/one 127.0.0.1:9 weight 1
         add server n:none:80/one 127.0.0.1:9 weight 1
         add server n:x:80/six [::1]:9 weight 0 maxqueue 3 cookie six
         add server n:x:80/odd 127.0.0.1:9 weight 1 nonsense
         add server n:x:80/lacks 127.0.0.1:9 weight 1 ssl verify required ca-file ~/authorities/none.pem
         add server n:x:80/lacks 127.0.0.1:9 weight 1 ssl verify none crt ~/certs/none.pem
         add server n:x:80/asked 127.0.0.1:9 weight 1 check inter 3600000ms rise 2 fall 3 send-proxy check-send-proxy
         add server n:x:80/tls 127.0.0.1:9 weight 1 check inter 3600000ms rise 2 fall 3 check-ssl ssl alpn h2 verify none no-sni-auto no-check-sni-auto
         add server n:x:80/named 127.0.0.1:9 weight 1 ssl alpn http/1.1 verify none verifyhost a.b crt ~/certs/a_cert.pem sni str(a.b)
         add server n:x:80/version 127.0.0.1:9 weight 1 send-proxy-v2 proto h2",
    )
    .await?;
    pair.tell_all(
        "set server n:x:80/one weight 1
         set server n:x:80/one weight x
         set server n:x:80/one weight 0
         set maxconn server n:x:80/one 9
         set maxconn server n:x:80/one x
         set maxconn server n:x:80/none 9
         set server n:x:80/one state ready
         set server n:x:80/six state drain
         set server n:x:80/none state ready
         set server n:none:80/one state ready
         set server n:x:80/none weight 1
         enable health n:x:80/asked
         enable health n:x:80/one
         enable health n:x:80/none",
    )
    .await?;
    pair.tell_all(
        "del server n:x:80/one
         del server n:x:80/none
         del server n:none:80/one
         set server n:x:80/one state maint
         del server n:x:80/one
         del server n:x:80/one
         del backend n:x:80
         unpublish backend n:x:80
         del backend n:x:80
         set server n:x:80/six state maint
         del server n:x:80/six",
    )
    .await?;
    for name in ["asked", "tls", "named", "version"] {
        pair.tell(&format!("set server n:x:80/{name} state maint"), None).await?;
        pair.tell(&format!("del server n:x:80/{name}"), None).await?;
    }
    // What came from the files goes as well; what the configuration leads to stays.
    pair.tell_all(
        "del backend n:x:80
         del backend _404
         unpublish backend _404
         del backend _404
         publish backend _404
         set server a:web:80/127.0.0.1_9 state maint
         del server a:web:80/127.0.0.1_9
         unpublish backend a:web:80
         del backend a:web:80",
    )
    .await?;
    pair.end()
}

#[tokio::test]
async fn a_server_with_a_request_under_way() -> Result<()> {
    let mut pair = Pair::start().await?;
    // Takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let at = format!("a:web:80/silent {}", silent.local_addr()?);
    pair.tell("set server a:web:80/127.0.0.1_9 state maint", None).await?;
    pair.tell(&format!("add server {at} weight 1"), None).await?;
    pair.tell("set server a:web:80/silent state ready", None).await?;
    let mut client = TcpStream::connect(("127.0.0.1", pair.edge.haproxy.http())).await?;
    tokio::io::AsyncWriteExt::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: h.com\r\n\r\n").await?;
    let (held, _) = silent.accept().await?;
    if let Some(server) = pair.memory.backends.get_mut("a:web:80").and_then(|b| b.servers.get_mut("silent")) {
        server.sessions = 1;
    }
    pair.tell_all(
        "del server a:web:80/silent
         set server a:web:80/silent state maint
         del server a:web:80/silent",
    )
    .await?;
    drop((held, client));
    if let Some(server) = pair.memory.backends.get_mut("a:web:80").and_then(|b| b.servers.get_mut("silent")) {
        server.sessions = 0;
    }
    soon("it can be removed", || async {
        let answer = pair.real.ask("wait 1s srv-removable a:web:80/silent\n".to_owned(), PATIENCE).await?;
        ensure!(answer.contains("Done."), "{answer}");
        Ok(())
    })
    .await?;
    pair.tell_all("del server a:web:80/silent").await?;
    pair.end()
}

#[tokio::test]
async fn maps() -> Result<()> {
    let mut pair = Pair::start().await?;
    pair.tell("add map ~/maps/exact.map", Some("h.com/a a:web:80\nh.com/b a:web:80|u|p:h.com/b\n")).await?;
    pair.tell("add map ~/maps/exact.map", Some("h.com/c one\nh.com/d\nh.com/e three\n")).await?;
    pair.tell("add map ~/maps/exact.map", Some("h.com/a twice\n")).await?;
    pair.tell("add map ~/maps/request-set.map", Some("p:h.com/a X-A: b c;d \\ <<e\n")).await?;
    pair.tell_all(
        "set map ~/maps/exact.map h.com/b other
         set map ~/maps/exact.map h.com/none other
         set map ~/maps/exact.map h.com/b two\\ words\\;\\<\\<and\\\\more
         del map ~/maps/exact.map h.com/none",
    )
    .await?;
    // One of two.
    pair.tell_all("del map ~/maps/exact.map h.com/a").await?;
    pair.tell_all("del map ~/maps/exact.map h.com/a").await?;
    pair.tell_all("del map ~/maps/exact.map h.com/a").await?;
    pair.tell_all(
        "set map ~/maps/none.map a b
         del map ~/maps/none.map a
         prepare map ~/maps/none.map
         commit map @1 ~/maps/none.map",
    )
    .await?;
    pair.tell("add map ~/maps/none.map", Some("a b\n")).await?;
    // As a whole.
    pair.tell_all("prepare map ~/maps/regex.map").await?;
    pair.tell("add map @1 ~/maps/regex.map", Some("^h\\.com(?:/b.*) a:web:80\n^h\\.com(?:/a) a:web:80\n")).await?;
    pair.look("what is prepared").await?;
    pair.tell_all("commit map @1 ~/maps/regex.map").await?;
    pair.tell_all("commit map @1 ~/maps/regex.map").await?;
    pair.tell_all("commit map @7 ~/maps/regex.map").await?;
    pair.tell("add map @7 ~/maps/regex.map", Some("x y\n")).await?;
    // Of two that were prepared the later one takes the earlier with it.
    pair.tell_all(
        "prepare map ~/maps/regex.map
         prepare map ~/maps/regex.map",
    )
    .await?;
    pair.tell("add map @2 ~/maps/regex.map", Some("^two two\n")).await?;
    pair.tell("add map @3 ~/maps/regex.map", Some("^three three\n^h(.* bad\n")).await?;
    pair.tell_all("commit map @3 ~/maps/regex.map").await?;
    pair.tell_all("commit map @2 ~/maps/regex.map").await?;
    pair.end()
}

#[tokio::test]
async fn certificates() -> Result<()> {
    let mut pair = Pair::start().await?;
    let authority = Authority::new("another")?;
    let (one, two) = (authority.server("one", &["one.com"])?, authority.server("two", &["two.com"])?);
    let both = pem(&one);
    pair.tell_all(
        "new ssl cert ~/certs/one.pem
         new ssl cert ~/certs/one.pem
         commit ssl cert ~/certs/one.pem
         abort ssl cert ~/certs/one.pem
         commit ssl cert ~/certs/none.pem",
    )
    .await?;
    pair.tell("add ssl crt-list ~/certs.list", Some("~/certs/one.pem [alpn h2,http/1.1] one.com\n")).await?;
    pair.tell("set ssl cert ~/certs/none.pem", Some(&both)).await?;
    pair.tell("set ssl cert ~/certs/one.pem", Some(&both)).await?;
    pair.tell("set ssl cert ~/certs/one.pem", Some(&both)).await?;
    pair.tell("set ssl cert ~/certs/a_cert.pem", Some(&both)).await?;
    pair.look("a transaction").await?;
    pair.tell_all(
        "commit ssl cert ~/certs/a_cert.pem
         abort ssl cert ~/certs/a_cert.pem
         commit ssl cert ~/certs/one.pem
         new ssl cert ~/certs/two.pem",
    )
    .await?;
    pair.tell("set ssl cert ~/certs/two.pem", Some("nonsense\n")).await?;
    pair.tell("set ssl cert ~/certs/two.pem", Some(&pem(&two))).await?;
    pair.tell_all("abort ssl cert ~/certs/two.pem").await?;
    // Without its key.
    pair.tell("set ssl cert ~/certs/two.pem", Some(&two.certificate)).await?;
    pair.tell_all("commit ssl cert ~/certs/two.pem").await?;
    for line in [
        "~/certs/two.pem [alpn h2,http/1.1] two.com\n",
        "~/certs/none.pem [alpn h2,http/1.1] two.com\n",
        "~/certs/one.pem [alpn h2,http/1.1] one.com\n",
        "~/certs/one.pem [alpn h2,http/1.1] *.one.com\n",
        "~/certs/one.pem [alpn h2,http/1.1 verify required ca-file ~/authorities/none.pem] m.com\n",
    ] {
        pair.tell("add ssl crt-list ~/certs.list", Some(line)).await?;
    }
    pair.tell("add ssl crt-list ~/none.list", Some("~/certs/one.pem [alpn h2,http/1.1] one.com\n")).await?;
    pair.tell_all(
        "del ssl cert ~/certs/one.pem
         del ssl cert ~/certs/none.pem
         del ssl crt-list ~/certs.list ~/certs/none.pem
         del ssl crt-list ~/certs.list ~/certs/one.pem
         del ssl crt-list ~/certs.list ~/certs/one.pem:77
         del ssl crt-list ~/none.list ~/certs/one.pem
         del ssl crt-list ~/certs.list ~/certs/two.pem
         del ssl cert ~/certs/two.pem",
    )
    .await?;
    // By their numbers, which each says of its own.
    for host in ["one.com", "*.one.com"] {
        let shown = pair.memory.clone().ask(&format!("show ssl crt-list -n {}\n", pair.layout.crt_list()));
        let line = show::crt_list(&shown).into_iter().find(|line| line.hosts == [host]).context("no line")?;
        pair.tell_all(&format!("del ssl crt-list ~/certs.list ~/certs/one.pem:{}", line.number)).await?;
    }
    pair.tell_all("del ssl cert ~/certs/one.pem").await?;
    pair.end()
}

#[tokio::test]
async fn authorities_and_what_refers_to_them() -> Result<()> {
    let mut pair = Pair::start().await?;
    let authority = Authority::new("another")?.certificate();
    pair.tell_all(
        "new ssl ca-file ~/authorities/a.pem
         new ssl ca-file ~/authorities/a.pem
         commit ssl ca-file ~/authorities/a.pem",
    )
    .await?;
    pair.tell("set ssl ca-file ~/authorities/none.pem", Some(&authority)).await?;
    pair.tell("set ssl ca-file ~/authorities/a.pem", Some("nonsense\n")).await?;
    pair.tell("set ssl ca-file ~/authorities/a.pem", Some(&authority)).await?;
    pair.tell_all("new ssl ca-file ~/authorities/b.pem").await?;
    pair.tell("set ssl ca-file ~/authorities/b.pem", Some(&authority)).await?;
    pair.tell_all(
        "commit ssl ca-file ~/authorities/b.pem
         abort ssl ca-file ~/authorities/b.pem
         commit ssl ca-file ~/authorities/a.pem
         new ssl ca-file ~/authorities/c.pem",
    )
    .await?;
    pair.tell("set ssl ca-file ~/authorities/c.pem", Some(&authority)).await?;
    pair.tell_all(
        "commit ssl ca-file ~/authorities/c.pem
         add server a:web:80/tls 127.0.0.1:9 weight 1 ssl alpn http/1.1 verify required ca-file ~/authorities/c.pem crt ~/certs/a_cert.pem no-sni-auto",
    )
    .await?;
    let line = "~/certs/a_cert.pem [alpn h2,http/1.1 verify required ca-file ~/authorities/a.pem] m.com\n";
    pair.tell("add ssl crt-list ~/certs.list", Some(line)).await?;
    pair.tell_all(
        "del ssl ca-file ~/authorities/a.pem
         del ssl ca-file ~/authorities/none.pem
         del ssl ca-file ~/authorities/b.pem",
    )
    .await?;
    let shown = pair.memory.clone().ask(&format!("show ssl crt-list -n {}\n", pair.layout.crt_list()));
    for host in ["m.com", "h.com"] {
        let line = show::crt_list(&shown).into_iter().find(|line| line.hosts == [host]).context("no line")?;
        pair.tell_all(&format!("del ssl crt-list ~/certs.list ~/certs/a_cert.pem:{}", line.number)).await?;
    }
    // Now the server alone has them.
    pair.tell_all(
        "del ssl ca-file ~/authorities/a.pem
         del ssl cert ~/certs/a_cert.pem
         del ssl ca-file ~/authorities/c.pem
         set server a:web:80/tls state maint
         del server a:web:80/tls
         del ssl ca-file ~/authorities/c.pem
         del ssl cert ~/certs/a_cert.pem",
    )
    .await?;
    pair.end()
}

#[tokio::test]
async fn frontends() -> Result<()> {
    let mut pair = Pair::start().await?;
    pair.tell_all(
        "disable frontend _sni
         enable frontend _sni
         enable frontend _sni
         disable frontend _https
         disable frontend _https
         enable frontend _https
         enable frontend _none
         disable frontend _none",
    )
    .await?;
    pair.end()
}
