//! The chapter of the edge: an Ingress is applied, answers over HTTP and HTTPS, is scaled and certified anew, and HAProxy is
//! not reloaded.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use waystation_kit::cluster::Cluster;
use waystation_kit::edge::{Edge, NAMESPACE, SERVICE_ACCOUNT};
use waystation_kit::pki::{Authority, Leaf};
use waystation_kit::process::eventually;
use waystation_kit::tools::repository;

use super::Story;

const SOON: Duration = Duration::from_secs(30);
const HOST: &str = "shop.example";

/// Tells it; what it started goes on until it is dropped.
pub async fn tell(story: &Story, cluster: &Cluster, binary: &Path) -> Result<Edge> {
    let account = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
    let mut edge = Edge::prepare("demo", "edge/main", binary, &account)?;
    let mut yaml = std::fs::read_to_string(repository().join("docs/examples/edge.yaml"))?;
    for (named, port) in [("http: 8080", edge.http()), ("https: 8443", edge.https()), ("stats: 8404", edge.stats())] {
        ensure!(yaml.contains(named), "the example does not name {named} to be replaced");
        let (field, _) = named.split_once(' ').context("a field and a port")?;
        yaml = yaml.replace(named, &format!("{field} {port}"));
    }
    story
        .step("docs/examples/edge.yaml: a RouterConfig with an edge, an Ingress and its Service", cluster.apply(&yaml))
        .await?;
    story.step("an edge: HAProxy, its supervisor, and the agent beside it", edge.start()).await?;

    // The API server takes no loopback addresses for endpoints: this machine's own.
    let own = own_address()?;
    let ports = [serve("one", own).await?, serve("two", own).await?];
    let authority = Authority::new("demo")?;
    let roots = authority.certificate();
    let first = authority.server("first", &[HOST])?;
    story
        .step("its endpoint and its certificate come: it answers over HTTP (308 to HTTPS) and over HTTPS", async {
            cluster.apply(&slice(own, &ports[..1])).await?;
            cluster.apply(&secret(&first)).await?;
            until(|| async {
                let (status, _) = ask(&mut TcpStream::connect(("127.0.0.1", edge.http())).await?).await?;
                ensure!(status == 308, "{status}");
                let (status, body, shown) = ask_tls(edge.https(), &roots).await?;
                ensure!((status, body.as_str()) == (200, "one") && shown == der(&first)?, "{status} {body}");
                Ok(())
            })
            .await
        })
        .await?;
    story
        .step("it is scaled to two endpoints: both answer", async {
            cluster.apply(&slice(own, &ports)).await?;
            until(|| async {
                let mut seen = BTreeSet::new();
                for _ in 0..6 {
                    seen.insert(ask_tls(edge.https(), &roots).await?.1);
                }
                ensure!(seen.len() == 2, "{seen:?}");
                Ok(())
            })
            .await
        })
        .await?;
    story
        .step("its certificate is another one: it is shown", async {
            let second = authority.server("second", &[HOST])?;
            cluster.apply(&secret(&second)).await?;
            until(|| async {
                ensure!(ask_tls(edge.https(), &roots).await?.2 == der(&second)?);
                Ok(())
            })
            .await
        })
        .await?;
    story
        .step("HAProxy was reloaded 0 times", async {
            let processes = edge.ask_master("show proc").await?;
            let master = processes.lines().find(|line| line.contains("master")).unwrap_or_default();
            ensure!(master.split_whitespace().nth(2) == Some("0"), "{processes}");
            let ready = ["wait", "--for=condition=Ready", "--timeout=30s", "-n", "edge", "rcfg/main"];
            cluster.kubectl_text(&ready).await.map(drop)
        })
        .await?;
    println!(
        "\n$ kubectl get rcfg -n edge\n{}\n$ kubectl get ingress -n shop\n{}",
        cluster.kubectl_text(&["get", "rcfg", "-n", "edge"]).await?,
        cluster.kubectl_text(&["get", "ingress", "-n", "shop"]).await?
    );
    Ok(edge)
}

async fn until<F: Future<Output = Result<()>>>(probe: impl FnMut() -> F) -> Result<()> {
    eventually(SOON, "the answer", probe).await
}

/// An address of this machine that is not loopback. Nothing is sent.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(("192.0.2.1", 9)).context("this machine has no address but loopback")?;
    Ok(socket.local_addr()?.ip())
}

/// Answers with its name.
async fn serve(name: &'static str, at: IpAddr) -> Result<u16> {
    let listener = TcpListener::bind((at, 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|count| count > 0) {
                    if line == "\r\n" {
                        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                        if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                    line.clear();
                }
            });
        }
    });
    Ok(port)
}

/// As Kubernetes keeps it for Pods. Two servers share the address here, so that each port is a slice of its own.
fn slice(own: IpAddr, ports: &[u16]) -> String {
    let one = |(number, port): (usize, &u16)| {
        format!(
            "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {{name: web-{number}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}, \
             ports: [{{name: http, port: {port}, protocol: TCP}}], endpoints: [{{addresses: [\"{own}\"]}}]}}\n"
        )
    };
    ports.iter().enumerate().map(one).collect()
}

fn secret(leaf: &Leaf) -> String {
    let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: shop-certificate, namespace: shop}}\n\
         stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indented(&leaf.certificate),
        indented(&leaf.key)
    )
}

fn der(leaf: &Leaf) -> Result<CertificateDer<'static>> {
    Ok(CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?)
}

/// One request for the host: status and body.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<(u16, String)> {
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // A peer that ends without a word of TLS has said all that there is.
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    Ok((status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// The same by TLS, with the certificate that was shown.
async fn ask_tls(port: u16, roots: &str) -> Result<(u16, String, CertificateDer<'static>)> {
    let mut store = RootCertStore::empty();
    store.add(CertificateDer::from_pem_slice(roots.as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(HOST)?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).context("no certificate")?.clone();
    let shown = shown.into_owned();
    let (status, body) = ask(&mut stream).await?;
    Ok((status, body, shown))
}
