//! What comes, changes and goes in service.

use anyhow::{Result, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use waystation::drive::haproxy::actor::Report;
use waystation::edge::input::Input;
use waystation::edge::wanted::{MapName, Slot};
use waystation_kit::pki::Leaf;

use crate::edge::{Edge, PATIENCE, server_slot, soon};
use crate::traffic::{Load, Server, get, get_tls};

fn der(leaf: &Leaf) -> Result<CertificateDer<'static>> {
    Ok(CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_routes_and_servers_come_and_go_under_traffic_without_a_reload() -> Result<()> {
    let (one, two) = (Server::start("one").await?, Server::start("two").await?);
    let mut edge = Edge::started(|edge| {
        edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    })
    .await?;
    let (http, began) = (edge.haproxy.http(), edge.haproxy.info().await?.pid);
    ensure!(get(http, "h.com", "/").await? == (200, "one".to_owned()));
    ensure!(get(http, "g.com", "/").await?.0 == 404);
    let load = Load::start(http, "h.com");
    // Another backend with a route of its own.
    edge.backend("n:b:80").server("n:b:80", two.port, false).route("g.com", Some("n:b:80"));
    edge.settle().await?;
    ensure!(get(http, "g.com", "/x").await? == (200, "two".to_owned()));
    // The only server is replaced, back and forth.
    for round in 0..20 {
        let (new, old) = if round % 2 == 0 { (&two, &one) } else { (&one, &two) };
        edge.server("n:a:80", new.port, false).no_server("n:a:80", old.port);
        edge.settle().await?;
        load.go_on(20).await?;
    }
    // A route changes its backend, and the old one goes.
    edge.route("h.com", Some("n:b:80"));
    edge.settle().await?;
    ensure!(get(http, "h.com", "/").await? == (200, "two".to_owned()));
    edge.wanted.set(Slot::Backend("n:a:80".into()), None);
    edge.no_server("n:a:80", one.port);
    edge.settle().await?;
    load.go_on(50).await?;
    let count = load.end().await?;
    ensure!(count > 400, "{count} requests");
    soon("the backend is gone", || async {
        let shown = edge.haproxy.ask("show backend").await?;
        ensure!(!shown.contains("n:a:80"), "{shown}");
        Ok(())
    })
    .await?;
    edge.route("g.com", None);
    edge.settle().await?;
    ensure!(get(http, "g.com", "/").await?.0 == 404);
    ensure!(edge.haproxy.info().await?.pid == began, "another process");
    ensure!(edge.compare().await? == (0, 0), "{:?}", edge.driver.as_ref().map(|d| &d.told));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_leaves_what_is_about_to_go_before_it_comes_to_another_service() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| {
        edge.limits.linger = PATIENCE * 10;
        edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    })
    .await?;
    // Nothing leads there any more; what is on its way is waited for.
    edge.route("h.com", None).no_server("n:a:80", one.port).wanted.set(Slot::Backend("n:a:80".into()), None);
    edge.settle().await?;
    let servers = edge.haproxy.ask("show servers state").await?;
    ensure!(servers.contains(" n:a:80 "), "{servers}");
    edge.backend("n:b:80").server("n:b:80", one.port, false).route("g.com", Some("n:b:80"));
    edge.settle().await?;
    let servers = edge.haproxy.ask("show servers state").await?;
    ensure!(!servers.contains(" n:a:80 ") && servers.contains(" n:b:80 "), "{servers}");
    ensure!(get(edge.haproxy.http(), "g.com", "/").await? == (200, "one".to_owned()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_come_rotate_and_go() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| {
        edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    })
    .await?;
    let (https, ca) = (edge.haproxy.https(), edge.authority.certificate());
    let (first, second) = (edge.authority.server("first", &["h.com"])?, edge.authority.server("second", &["h.com"])?);
    ensure!(get_tls(https, &ca, "h.com").await? == (200, "one".to_owned(), der(&edge.default)?));
    edge.certificate("n_cert", Some(&first)).crt_line("h.com", Some("n_cert"));
    edge.settle().await?;
    ensure!(get_tls(https, &ca, "h.com").await?.2 == der(&first)?);
    edge.certificate("n_cert", Some(&second));
    edge.settle().await?;
    ensure!(get_tls(https, &ca, "h.com").await?.2 == der(&second)?);
    // Another certificate for the same host, and the first one gone, in one batch; then a host more.
    edge.certificate("n_cert", None).certificate("n_other", Some(&first));
    edge.crt_line("h.com", Some("n_other")).crt_line("*.h.com", Some("n_other"));
    edge.settle().await?;
    ensure!(get_tls(https, &ca, "h.com").await?.2 == der(&first)?, "{:?}", edge.driver.as_ref().map(|d| &d.told));
    let listed = edge.haproxy.ask("show ssl cert").await?;
    ensure!(!listed.contains("n_cert") && listed.contains("n_other"), "{listed}");
    edge.crt_line("h.com", None);
    edge.settle().await?;
    ensure!(get_tls(https, &ca, "h.com").await?.2 == der(&edge.default)?);
    ensure!(edge.compare().await? == (0, 0), "{:?}", edge.driver.as_ref().map(|d| &d.told));
    edge.finish().await?;
    edge.haproxy.stop().await?;
    edge.haproxy.start().await?;
    ensure!(get_tls(https, &ca, "h.com").await?.2 == der(&edge.default)?);
    let line = edge.haproxy.ask(&format!("show ssl crt-list {}", edge.layout().crt_list())).await?;
    ensure!(line.contains("n_other") && line.contains("*.h.com"), "{line}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_to_what_was_refused_and_to_nobody_else() -> Result<()> {
    let one = Server::start("one").await?;
    let mut edge = Edge::started(|edge| {
        edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    })
    .await?;
    let (good, other) = (edge.authority.server("good", &["h.com"])?, edge.authority.server("bad", &["g.com"])?);
    let bad = Leaf { certificate: other.certificate, key: good.key.clone() };
    edge.certificate("n_bad", Some(&bad)).certificate("n_good", Some(&good)).crt_line("h.com", Some("n_good"));
    edge.map(MapName::Regex, "^h\\.com/(a", Some("n:a:80"));
    edge.map(MapName::Regex, "^g\\.com/a+$", Some("n:a:80")).map(MapName::Hosts, "g.com", Some("-r"));
    edge.settle().await?;
    let refused: Vec<Slot> = edge
        .driver
        .iter()
        .flat_map(|driver| &driver.told)
        .filter_map(|report| match report {
            Report::Model(Input::Refused(slot, _, words)) => {
                assert!(!words.is_empty() && !words.contains("PRIVATE"), "{words}");
                Some(slot.clone())
            }
            _ => None,
        })
        .collect();
    let expected = [Slot::Certificate("n_bad".into()), Slot::Map(MapName::Regex, "^h\\.com/(a".into())];
    ensure!(refused.len() == 2 && expected.iter().all(|slot| refused.contains(slot)), "{refused:?}");
    ensure!(get_tls(edge.haproxy.https(), &edge.authority.certificate(), "h.com").await?.2 == der(&good)?);
    ensure!(get(edge.haproxy.http(), "g.com", "/aaa").await?.0 == 200);
    ensure!(get(edge.haproxy.http(), "g.com", "/b").await?.0 == 404);
    // Neither of the bad ones is in the files, so that HAProxy starts from them.
    edge.finish().await?;
    edge.haproxy.check().await?;
    edge.haproxy.stop().await?;
    edge.haproxy.start().await?;
    ensure!(get(edge.haproxy.http(), "g.com", "/aaa").await?.0 == 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_leaves_when_its_last_request_has_ended_and_may_come_back_before() -> Result<()> {
    let (one, two) = (Server::start("one").await?, Server::start("two").await?);
    let mut edge = Edge::started(|edge| {
        edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    })
    .await?;
    let http = edge.haproxy.http();
    let held = tokio::spawn(get(http, "h.com", "/held"));
    let slot = format!("n:a:80/127.0.0.1_{}", one.port);
    soon("the request is there", || async {
        let rows = edge.haproxy.stat().await?;
        ensure!(rows.iter().any(|row| row.name() == slot && row.get("scur") == "1"));
        Ok(())
    })
    .await?;
    edge.no_server("n:a:80", one.port).server("n:a:80", two.port, false);
    edge.settle().await?;
    edge.until("one leaves", |report| *report == Report::Leaving(1)).await?;
    ensure!(get(http, "h.com", "/").await? == (200, "two".to_owned()));
    ensure!(edge.haproxy.ask("show servers state n:a:80").await?.contains(&format!("127.0.0.1_{} ", one.port)));
    // A comparison knows what leaves.
    ensure!(edge.compare().await? == (0, 0));
    // It comes back while it leaves.
    edge.server("n:a:80", one.port, false).no_server("n:a:80", two.port);
    edge.settle().await?;
    ensure!(get(http, "h.com", "/").await? == (200, "one".to_owned()));
    edge.server("n:a:80", two.port, false).no_server("n:a:80", one.port);
    edge.settle().await?;
    let there = edge.haproxy.ask("show servers state n:a:80").await?;
    ensure!(there.contains(&format!("127.0.0.1_{} ", one.port)), "{there}");
    one.let_go();
    ensure!(held.await?? == (200, "one".to_owned()));
    edge.until("one is gone", |report| *report == Report::Leaving(0)).await?;
    ensure!(!edge.haproxy.ask("show servers state n:a:80").await?.contains(&format!("127.0.0.1_{} ", one.port)));
    ensure!(edge.wanted.get(&server_slot("n:a:80", one.port)).is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_route_leads_to_any_more_stays_for_requests_on_their_way_to_it() -> Result<()> {
    let (one, two) = (Server::start("one").await?, Server::start("two").await?);
    let mut edge = Edge::new()?;
    // Longer than anything here takes.
    edge.limits.linger = 2 * PATIENCE;
    edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    edge.drive();
    edge.begin().await?;
    edge.backend("n:b:80").server("n:b:80", two.port, false).route("h.com", Some("n:b:80"));
    edge.no_server("n:a:80", one.port).wanted.set(Slot::Backend("n:a:80".into()), None);
    edge.settle().await?;
    edge.until("both leave", |report| *report == Report::Leaving(2)).await?;
    let state = edge.haproxy.ask("show servers state n:a:80").await?;
    let server: Vec<&str> =
        state.lines().find(|line| line.contains(" n:a:80 ")).unwrap_or_default().split(' ').collect();
    ensure!(server.len() > 6 && server[5..7] == ["2", "0"], "it is up, and in no maintenance: {state}");
    ensure!(edge.compare().await? == (0, 0));
    // Wanted again, it is what it was.
    edge.backend("n:a:80").server("n:a:80", one.port, false).route("h.com", Some("n:a:80"));
    edge.settle().await?;
    edge.until("nothing leaves", |report| *report == Report::Leaving(0)).await?;
    ensure!(get(edge.haproxy.http(), "h.com", "/").await? == (200, "one".to_owned()));
    ensure!(edge.compare().await? == (0, 0));
    edge.finish().await?;
    edge.files_are_the_process().await
}
