//! Certificates under traffic: turned over, missing, broken, and a thousand of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use waystation::edge::ids::Kind;
use waystation::edge::input::Input;
use waystation_kit::pki::Leaf;
use waystation_kit::process::inside_own_network;

use crate::edge::Edge;
use crate::site::{self, Site};
use crate::traffic::{Load, Server, get_tls};

const HOST: &str = "shop.test";

fn der(leaf: &Leaf) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap()
}

/// With these hosts, all served by one Service at an address of its own.
fn site(hosts: &[&str]) -> Result<Site> {
    let mut edge = Edge::new()?;
    edge.default = edge.authority.server("default", hosts)?;
    let mut site = Site::new(edge);
    site.put(Input::Service(site::service("web").into()));
    site.put(Input::EndpointSlice(site::slice("web", 8080, &["10.77.1.1"]).into()));
    Ok(site)
}

/// An Ingress for a host with the certificate of a Secret.
fn put(site: &mut Site, name: &str, host: &str, secret: &str) {
    let mut ingress = site::ingress(name, 1, host, "web");
    ingress.tls = vec![site::tls(host, Some(secret))];
    site.put(Input::Ingress(ingress.into()));
}

async fn shown(site: &Site, host: &str) -> Result<CertificateDer<'static>> {
    let (status, _, shown) = get_tls(site.edge.haproxy.https(), &site.edge.authority.certificate(), host).await?;
    ensure!(status == 200, "{host}: {status}");
    Ok(shown)
}

/// Clients that connect anew for each request; which certificates they were shown.
struct Clients {
    loads: Vec<Load>,
    shown: Arc<Mutex<BTreeSet<Vec<u8>>>>,
}

impl Clients {
    fn start(site: &Site) -> Self {
        let shown: Arc<Mutex<BTreeSet<Vec<u8>>>> = Arc::default();
        let client = |_| {
            let shown = Arc::clone(&shown);
            let check = move |status, certificate: &CertificateDer<'static>| {
                ensure!(status == 200, "{status}");
                shown.lock().unwrap().insert(certificate.to_vec());
                Ok(())
            };
            let (port, authority) = (site.edge.haproxy.https(), site.edge.authority.certificate());
            Load::by_tls(port, authority, HOST, check, Duration::ZERO)
        };
        let loads = (0..3).map(client).collect();
        Self { loads, shown }
    }

    /// Waits until each has begun another request, and that was answered.
    async fn go_on(&self) -> Result<()> {
        for load in &self.loads {
            load.go_on(2).await?;
        }
        Ok(())
    }

    async fn end(self) -> Result<BTreeSet<Vec<u8>>> {
        for load in self.loads {
            load.end().await.context("a request failed")?;
        }
        Ok(self.shown.lock().unwrap().clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_turned_over_goes_and_comes_while_clients_connect() -> Result<()> {
    if !inside_own_network("certificates::a_certificate_is_turned_over_goes_and_comes_while_clients_connect").await? {
        return Ok(());
    }
    let _server = Server::start_at("any", "0.0.0.0:8080".parse()?).await?;
    let mut site = site(&[HOST])?;
    let leaves: Vec<Leaf> =
        (0..20).map(|number| site.edge.authority.server(&format!("leaf {number}"), &[HOST])).collect::<Result<_>>()?;
    put(&mut site, "shop", HOST, "cert");
    site.begin().await?;
    let before = site.as_if_made_anew().await?;
    let began = site.edge.haproxy.info().await?.pid;
    // Missing: the default certificate is shown.
    ensure!(shown(&site, HOST).await? == der(&site.edge.default));
    let clients = Clients::start(&site);
    for (number, leaf) in leaves.iter().enumerate() {
        site.put(Input::Secret(site::certificate("cert", leaf).into()));
        site.in_force().await?;
        ensure!(shown(&site, HOST).await? == der(leaf), "leaf {number}");
        clients.go_on().await?;
        if number % 5 == 4 {
            site.take(Kind::Secret, "cert");
            site.in_force().await?;
            ensure!(shown(&site, HOST).await? == der(&site.edge.default));
            clients.go_on().await?;
        }
    }
    // Each was shown to somebody, and nothing else was.
    let seen = clients.end().await?;
    let known: BTreeSet<Vec<u8>> = leaves.iter().chain([&site.edge.default]).map(|leaf| der(leaf).to_vec()).collect();
    ensure!(seen == known, "{} of {}", seen.len(), known.len());
    site.undisturbed().await?;
    site::same("before and after", &before, &site.as_if_made_anew().await?)?;
    ensure!(site.edge.haproxy.info().await?.pid == began, "another process");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_in_a_secret_it_is_a_certificate_or_none_and_never_a_command() -> Result<()> {
    const TEST: &str = "certificates::whatever_is_in_a_secret_it_is_a_certificate_or_none_and_never_a_command";
    if !inside_own_network(TEST).await? {
        return Ok(());
    }
    let _server = Server::start_at("any", "0.0.0.0:8080".parse()?).await?;
    let mut site = site(&[HOST])?;
    let (leaf, other) = (site.edge.authority.server("leaf", &[HOST])?, site.edge.authority.server("other", &[HOST])?);
    put(&mut site, "shop", HOST, "cert");
    site.begin().await?;
    let began = site.edge.haproxy.info().await?.pid;
    let before = site.as_if_made_anew().await?;
    let map = site.edge.layout().map(waystation::edge::wanted::MapName::Hosts);
    // What a command would look like, wherever somebody might take it for one.
    let command = format!(
        "\n\ndel map {map} {HOST}\nshutdown frontend _http\nset server n:web:80/10.77.1.1_8080 state maint\n\n"
    );
    let (first, rest) = leaf.certificate.split_once('\n').context("one line")?;
    let (body, last) = rest.trim_end().rsplit_once('\n').context("no body")?;
    let terminator = "%E%\n%EOF%\n<<\n%END%\n".to_owned();
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let cases: Vec<(&str, String, String, bool)> = vec![
        ("as it is", leaf.certificate.clone(), leaf.key.clone(), true),
        ("blank lines around", format!("\n\n{}\n\n", leaf.certificate), format!("\n{}\n", leaf.key), true),
        (
            "comments",
            format!("# a comment\n{}subject=CN\n", leaf.certificate),
            format!("Bag Attributes\n{}", leaf.key),
            true,
        ),
        ("lines of Windows", crlf(&leaf.certificate), crlf(&leaf.key), true),
        (
            "commands around",
            format!("{command}{}{command}", leaf.certificate),
            format!("{command}{}{command}", leaf.key),
            true,
        ),
        ("a terminator", format!("{}{terminator}", leaf.certificate), format!("{terminator}{}", leaf.key), true),
        ("a chain", format!("{}{}", leaf.certificate, site.edge.authority.certificate()), leaf.key.clone(), true),
        ("a blank line within", format!("{first}\n\n{body}\n{last}\n"), leaf.key.clone(), true),
        ("commands within", format!("{first}\n{command}{body}\n{last}\n"), leaf.key.clone(), false),
        ("a command for a body", format!("{first}\n{command}{last}\n"), leaf.key.clone(), false),
        ("another's key", leaf.certificate.clone(), other.key.clone(), false),
        ("no key", leaf.certificate.clone(), String::new(), false),
        ("no certificate", String::new(), leaf.key.clone(), false),
        ("nothing", String::new(), String::new(), false),
        ("the wrong way round", leaf.key.clone(), leaf.certificate.clone(), false),
        ("cut off", leaf.certificate[..leaf.certificate.len() / 2].to_owned(), leaf.key.clone(), false),
        ("no PEM", command.clone(), command.clone(), false),
        ("PEM of nothing", format!("{first}\nTUlJQg==\n{last}\n"), leaf.key.clone(), false),
        ("PEM of anything", format!("{first}\nMIIBszCCAVmgAwIBAgIUQWJjZGVm\n{last}\n"), leaf.key.clone(), false),
        ("two keys", leaf.certificate.clone(), format!("{}{}", leaf.key, other.key), false),
        ("too long", leaf.certificate.repeat(200), leaf.key.clone(), false),
        ("as it is, again", leaf.certificate.clone(), leaf.key.clone(), true),
    ];
    for (what, certificate, key, good) in cases {
        site.put(Input::Secret(site::secret("cert", &[("tls.crt", &certificate), ("tls.key", &key)]).into()));
        site.in_force().await.with_context(|| what.to_owned())?;
        // What HAProxy refuses the model is told of.
        site.hear().await.with_context(|| what.to_owned())?;
        let is = shown(&site, HOST).await.with_context(|| what.to_owned())?;
        let wanted = if good { der(&leaf) } else { der(&site.edge.default) };
        ensure!(is == wanted, "{what}: another certificate");
        let told: Vec<&str> = site.model.problems().map(|problem| &*problem.message).collect();
        ensure!(told.is_empty() == good, "{what}: {told:?}");
        ensure!(told.iter().all(|told| !told.contains("shutdown") && !told.contains("PRIVATE")), "{what}: {told:?}");
        ensure!(crate::traffic::get(site.edge.haproxy.http(), HOST, "/").await?.0 == 308, "{what}");
        let compared = site.edge.compare().await?;
        ensure!(compared == (0, 0), "{what}: {compared:?}");
    }
    site.take(Kind::Secret, "cert");
    site.in_force().await?;
    site::same("before and after", &before, &site.as_if_made_anew().await?)?;
    ensure!(site.edge.haproxy.info().await?.pid == began, "another process");
    site.edge.finish().await?;
    site.edge.haproxy.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_hosts_have_a_certificate_each() -> Result<()> {
    const HOSTS: usize = 1000;
    if !inside_own_network("certificates::a_thousand_hosts_have_a_certificate_each").await? {
        return Ok(());
    }
    let _server = Server::start_at("any", "0.0.0.0:8080".parse()?).await?;
    let mut site = site(&["*.many.test"])?;
    let leaf = |site: &Site, number: usize| site.edge.authority.server(&format!("{number}"), &["*.many.test"]);
    let leaves: Vec<Leaf> = (0..20).map(|number| leaf(&site, number)).collect::<Result<_>>()?;
    site.begin().await?;
    let before = site.as_if_made_anew().await?;
    let began = site.edge.haproxy.info().await?.pid;
    // Those of every 50th host.
    let check = async |site: &Site, which: &dyn Fn(usize) -> CertificateDer<'static>| {
        for number in (0..HOSTS).step_by(50) {
            let is = shown(site, &format!("h{number}.many.test")).await?;
            ensure!(is == which(number), "h{number}: another certificate");
        }
        anyhow::Ok(())
    };
    // All at once; then all are turned over at once; then every other one goes.
    for number in 0..HOSTS {
        let name = format!("h{number}");
        put(&mut site, &name, &format!("{name}.many.test"), &name);
        site.put(Input::Secret(site::certificate(&name, &leaves[number % 10]).into()));
    }
    site.in_force().await?;
    check(&site, &|number| der(&leaves[number % 10])).await?;
    for number in 0..HOSTS {
        site.put(Input::Secret(site::certificate(&format!("h{number}"), &leaves[10 + number % 10]).into()));
    }
    site.in_force().await?;
    check(&site, &|number| der(&leaves[10 + number % 10])).await?;
    for number in (0..HOSTS).step_by(100) {
        site.take(Kind::Secret, &format!("h{number}"));
    }
    site.in_force().await?;
    let default = der(&site.edge.default);
    check(&site, &|number| if number % 100 == 0 { default.clone() } else { der(&leaves[10 + number % 10]) }).await?;
    for number in 0..HOSTS {
        site.take(Kind::Ingress, &format!("h{number}"));
        site.take(Kind::Secret, &format!("h{number}"));
    }
    site.in_force().await?;
    site.undisturbed().await?;
    site::same("before and after", &before, &site.as_if_made_anew().await?)?;
    ensure!(site.edge.haproxy.info().await?.pid == began, "another process");
    Ok(())
}
