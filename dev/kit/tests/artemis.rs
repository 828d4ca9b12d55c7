//! The broker is a real one, and the client an honest one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use waystation_kit::amqp_client::{Client, Node, Outgoing};
use waystation_kit::artemis::{Artemis, ArtemisOptions, Login, Tls};
use waystation_kit::pki::Leaf;
use waystation_kit::proxy::{Mode, Proxy};

const SOON: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(500);

#[tokio::test]
async fn messages_are_moved_kept_rejected_released_and_lost_as_told() -> Result<()> {
    let mut broker = Artemis::start(ArtemisOptions::default()).await?;
    let mut client = broker.client().await?;
    client.send_to("work", Node::Queue, &["one", "two", "three"].map(Outgoing::text)).await?;
    let released = client.receive_and_release("work", 3, SOON).await?;
    ensure!(released.len() == 3, "{released:?}");
    let first = client.receive("work", 1, SOON).await?;
    ensure!(first[0].body == "one" && first[0].durable, "{first:?}");

    let rejected = client.receive_and_reject("work", 1, SOON).await?;
    ensure!(rejected[0].body == "two", "{rejected:?}");
    let dead = client.receive("DLQ", 1, SOON).await?;
    ensure!(dead.len() == 1 && dead[0].body == "two", "{dead:?}");
    client.close().await?;

    broker.kill();
    broker.start_again().await?;
    let mut client = broker.client().await?;
    let kept = client.receive("work", 2, SOON.min(MOMENT * 4)).await?;
    ensure!(kept.len() == 1 && kept[0].body == "three", "{kept:?}");
    client.send_text("work", "four").await?;
    client.close().await?;

    broker.start_empty().await?;
    let mut client = broker.client().await?;
    ensure!(client.receive("work", 1, MOMENT).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn every_consumer_of_a_topic_gets_every_message() -> Result<()> {
    let broker = Artemis::start(ArtemisOptions { persistence: false, ..Default::default() }).await?;
    let mut client = broker.client().await?;
    let mut one = client.consumer("news", Node::Topic).await?;
    let mut other = client.consumer("news", Node::Topic).await?;
    client.send_to("news", Node::Topic, &[Outgoing::text("hello")]).await?;
    ensure!(one.receive(1, SOON).await?.len() == 1);
    ensure!(other.receive(1, SOON).await?.len() == 1);
    ensure!(one.receive(1, MOMENT).await?.is_empty(), "once each");
    one.close().await?;
    other.close().await?;
    client.close().await
}

#[tokio::test]
async fn wrong_passwords_are_refused_in_words_and_anonymous_needs_none() -> Result<()> {
    let broker = Artemis::start(ArtemisOptions { persistence: false, ..Default::default() }).await?;
    let error = Client::connect("127.0.0.1", broker.port(), &Login::password("admin", "wrong")).await;
    let error = format!("{:#}", error.err().context("it was let in")?);
    ensure!(error.contains("uth"), "{error}");
    ensure!(!error.contains("wrong"), "the password is in the error: {error}");
    let open =
        Artemis::start(ArtemisOptions { login: Login::Anonymous, persistence: false, ..Default::default() }).await?;
    let mut client = open.client().await?;
    client.send_to("work", Node::Queue, &[Outgoing::text("hello")]).await?;
    ensure!(client.receive("work", 1, SOON).await?.len() == 1);
    Ok(())
}

#[tokio::test]
async fn a_broker_with_tls_has_a_protected_and_a_plain_port() -> Result<()> {
    let broker =
        Artemis::start(ArtemisOptions { tls: Some(Tls::OneWay), persistence: false, ..Default::default() }).await?;
    ensure!(broker.port() != broker.plain_port());
    let mut client = broker.client().await?;
    client.send_to("work", Node::Queue, &[Outgoing::text("hello")]).await?;
    let answer = sasl(&broker, None, b"PLAIN", b"\0admin\0admin-password").await?;
    ensure!(let_in(&answer), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn mutual_tls_lets_in_whom_the_certificate_names_and_nobody_without_one() -> Result<()> {
    let broker =
        Artemis::start(ArtemisOptions { tls: Some(Tls::Mutual), persistence: false, ..Default::default() }).await?;
    let client = broker.tls().context("no certificates")?.client.clone();
    let answer = sasl(&broker, Some(&client), b"EXTERNAL", b"").await?;
    ensure!(let_in(&answer), "{answer:?}");
    ensure!(sasl(&broker, None, b"EXTERNAL", b"").await.is_err(), "it was let in without a certificate");
    Ok(())
}

/// Whether a SASL outcome (descriptor 0x44) says code 0 (ok).
fn let_in(outcome: &[u8]) -> bool {
    outcome.windows(3).any(|part| part == [0, 0x53, 0x44]) && outcome.windows(2).any(|part| part == [0x50, 0])
}

/// Talks SASL by hand on the protected port and returns the outcome frame.
async fn sasl(broker: &Artemis, client: Option<&Leaf>, mechanism: &[u8], response: &[u8]) -> Result<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(broker.tls().context("no certificates")?.ca.as_bytes())?)?;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some(leaf) => config.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?,
        )?,
    };
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", broker.port())).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    let mut stream = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"AMQP\x03\x01\0\0").await?;
    let mut buffer = vec![0; 1024];
    let mut offered = Vec::new();
    while offered.len() < 16 {
        let length = stream.read(&mut buffer).await?;
        ensure!(length > 0, "closed");
        offered.extend_from_slice(&buffer[..length]);
    }
    ensure!(offered.windows(mechanism.len()).any(|part| part == mechanism), "it is not offered");
    // sasl-init: a list of the mechanism (symbol) and the initial response (binary).
    let mut list = vec![2, 0xa3, u8::try_from(mechanism.len())?];
    list.extend_from_slice(mechanism);
    list.extend([0xa0, u8::try_from(response.len())?]);
    list.extend_from_slice(response);
    let mut frame =
        vec![0, 0, 0, u8::try_from(13 + list.len())?, 2, 1, 0, 0, 0, 0x53, 0x41, 0xc0, u8::try_from(list.len())?];
    frame.extend(list);
    stream.write_all(&frame).await?;
    let length = stream.read(&mut buffer).await?;
    ensure!(length > 0, "closed");
    buffer.truncate(length);
    Ok(buffer)
}

#[tokio::test]
async fn a_hung_broker_answers_when_it_goes_on_and_a_proxy_hangs_and_cuts() -> Result<()> {
    let mut broker = Artemis::start(ArtemisOptions { persistence: false, ..Default::default() }).await?;
    let proxy = Proxy::start(broker.port()).await?;
    let login = broker.login().clone();
    let mut client = Client::connect("127.0.0.1", proxy.port(), &login).await?;
    client.send_to("work", Node::Queue, &[Outgoing::text("through the proxy")]).await?;

    proxy.set(Mode::Hang);
    let hung = tokio::time::timeout(MOMENT, client.send_text("work", "held back")).await;
    ensure!(hung.is_err(), "it should stand still: {hung:?}");
    let new = tokio::time::timeout(MOMENT, Client::connect("127.0.0.1", proxy.port(), &login)).await;
    ensure!(new.is_err(), "a new connection should stand still too");

    proxy.set(Mode::Cut);
    ensure!(client.send_text("work", "cut").await.is_err());
    proxy.set(Mode::Slow(Duration::from_millis(5)));
    let mut client = Client::connect("127.0.0.1", proxy.port(), &login).await?;
    ensure!(client.receive("work", 1, SOON).await?[0].body == "through the proxy");

    broker.hang()?;
    let hung = tokio::time::timeout(MOMENT, client.send_text("work", "later")).await;
    ensure!(hung.is_err(), "a stopped broker does not answer");
    broker.go_on()?;
    let mut client = broker.client().await?;
    client.send_text("work", "after").await
}
