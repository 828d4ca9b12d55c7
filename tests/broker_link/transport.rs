//! Connections that do not come about, and protected ones that do. Nothing that is printed holds a secret.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use waystation::drive::amqp::{Login, Secret, Tls, TlsError};
use waystation::drive::broker::artemis::ArtemisLink;
use waystation::drive::broker::link::{BrokerLink, CallError};
use waystation_kit::artemis::{self, Artemis, ArtemisOptions};
use waystation_kit::pki::Authority;
use waystation_kit::proxy::{Mode, Proxy};

use crate::peer::{PASSWORD, PATIENCE, Peer, USER, connector, link, node_id, plain, refused};

#[tokio::test]
async fn a_peer_that_never_answers_is_given_up_in_time() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut link = link(silent.local_addr()?.port(), plain(PASSWORD));
    link.connector.deadline = Duration::from_millis(200);
    let error = refused(&link).await?;
    ensure!(error.category == "timeout" && error.message == "no answer within 0.2 s while logging in", "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_closed_port_and_an_unknown_host_are_unreachable() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    drop(listener);
    let mut link = link(port, plain(PASSWORD));
    ensure!(refused(&link).await?.category == "unreachable");
    link.connector.endpoint.host = "no such host".to_owned();
    ensure!(refused(&link).await?.category == "unreachable");
    Ok(())
}

#[tokio::test]
async fn a_peer_that_speaks_something_else_is_told_as_such() -> Result<()> {
    let web = TcpListener::bind("127.0.0.1:0").await?;
    let port = web.local_addr()?.port();
    let serving = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let (mut stream, _) = web.accept().await?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await?;
        // Kept open until the client hangs up.
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await
    });
    let error = refused(&link(port, plain(PASSWORD))).await?;
    ensure!(error.category == "protocol", "{error:?}");
    serving.abort();
    Ok(())
}

#[tokio::test]
async fn a_broker_that_hangs_later_costs_a_request_its_deadline_and_no_more() -> Result<()> {
    let peer = Peer::stand_in().await?;
    let proxy = Proxy::start(peer.port()).await?;
    let mut link = link(proxy.port(), plain(PASSWORD));
    link.request_deadline = Duration::from_millis(300);
    let session = link.connect().await?;
    session.call(node_id()).await?;
    proxy.set(Mode::Hang);
    let answer = session.call(node_id()).await;
    ensure!(answer == Err(CallError::TimedOut), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn wrong_passwords_are_refused_by_both_peers_and_not_printed() -> Result<()> {
    for peer in [Peer::real().await?, Peer::stand_in().await?] {
        let wrong = link(peer.port(), plain("wrong-and-secret"));
        let error = refused(&wrong).await?;
        ensure!(error.category == "login" && error.message == "login by PLAIN refused", "{error:?}");
        ensure!(!format!("{error:?} {wrong:?}").contains("wrong-and-secret"), "{wrong:?}");
        let error = refused(&link(peer.port(), Login::External)).await?;
        ensure!(error.message == "login by EXTERNAL is not offered, only PLAIN", "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn anonymous_works_where_it_is_offered() -> Result<()> {
    let login = artemis::Login::Anonymous;
    let broker =
        Artemis::start(ArtemisOptions { persistence: false, login: login.clone(), ..Default::default() }).await?;
    let standin = waystation_kit::standin::StandIn::start(0, login).await?;
    for port in [broker.port(), standin.port()] {
        link(port, Login::Anonymous).connect().await?.call(node_id()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mutual_tls_logs_in_by_the_certificate() -> Result<()> {
    let broker = protected(artemis::Tls::Mutual).await?;
    let material = broker.tls().context("no TLS")?;
    let (ca, client) = (material.ca.as_bytes(), &material.client);
    let identity = Some((client.certificate.as_bytes(), client.key.as_bytes()));
    let good = over_tls(&broker, Login::External, Tls::new(ca, identity, None)?);
    good.connect().await?.call(node_id()).await?;

    let without = over_tls(&broker, Login::External, Tls::new(ca, None, None)?);
    let error = refused(&without).await?;
    ensure!(matches!(error.category, "tls" | "unreachable"), "no certificate shown: {error:?}");
    let other = over_tls(&broker, Login::External, Tls::new(ca, identity, Some("another.example"))?);
    let error = refused(&other).await?;
    ensure!(error.category == "tls", "the broker's certificate is for another name: {error:?}");
    let key = client.key.lines().nth(1).context("no key")?;
    ensure!(!format!("{good:?} {error:?}").contains(key));
    Ok(())
}

#[tokio::test]
async fn plain_over_tls_works_with_the_right_authority_only() -> Result<()> {
    let broker = protected(artemis::Tls::OneWay).await?;
    let ca = &broker.tls().context("no TLS")?.ca;
    over_tls(&broker, plain(PASSWORD), Tls::new(ca.as_bytes(), None, None)?).connect().await?.call(node_id()).await?;
    let stranger = Authority::new("stranger")?.certificate();
    let error = refused(&over_tls(&broker, plain(PASSWORD), Tls::new(stranger.as_bytes(), None, None)?)).await?;
    ensure!(error.category == "tls", "{error:?}");
    Ok(())
}

#[test]
fn bad_pem_is_named_by_the_key_of_the_secret() {
    assert!(matches!(Tls::new(b"nothing", None, None), Err(TlsError::NoCertificate("ca.crt"))));
    let ca = Authority::new("x").unwrap().certificate();
    let chain = Tls::new(ca.as_bytes(), Some((b"nothing", b"nothing")), None);
    assert_eq!(chain.unwrap_err().to_string(), "tls.key: no private key in PEM form");
}

#[test]
fn secrets_do_not_show() {
    let login = Login::Plain { username: "me".to_owned(), password: Secret::new("hush") };
    assert_eq!(format!("{login:?}"), r#"Plain { username: "me", password: *** }"#);
}

#[tokio::test]
async fn dropping_a_session_ends_the_connection() -> Result<()> {
    let peer = Peer::stand_in().await?;
    let relay = TcpListener::bind("127.0.0.1:0").await?;
    let (port, target) = (relay.local_addr()?.port(), peer.port());
    let relayed = tokio::spawn(async move {
        let (mut client, _) = relay.accept().await?;
        let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
        copy_bidirectional(&mut client, &mut server).await
    });
    let session = link(port, plain(PASSWORD)).connect().await?;
    session.call(node_id()).await?;
    drop(session);
    tokio::time::timeout(PATIENCE, relayed).await.context("still connected")???;
    Ok(())
}

async fn protected(tls: artemis::Tls) -> Result<Artemis> {
    let login = artemis::Login::password(USER, PASSWORD);
    Artemis::start(ArtemisOptions { persistence: false, login, tls: Some(tls), ..Default::default() }).await
}

fn over_tls(broker: &Artemis, login: Login, tls: Tls) -> ArtemisLink {
    let mut connector = connector(broker.port(), login);
    connector.tls = Some(tls);
    ArtemisLink { connector, request_deadline: Duration::from_secs(30) }
}
