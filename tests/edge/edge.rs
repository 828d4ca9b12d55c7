//! What the tests stand on.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpStream;
use waystation_kit::cluster::{Cluster, ClusterOptions};
use waystation_kit::edge::{Edge, NAMESPACE, SERVICE_ACCOUNT};
use waystation_kit::pki::{Authority, Leaf};
use waystation_kit::process::eventually;
use waystation_kit::tools::repository;

use crate::traffic::{Server, get, get_tls, request};

/// For what must happen: generous, since it is only ever waited for in full when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// So often HAProxy is compared with the model: often enough to be waited for.
pub const COMPARED: &[&str] = &["--resync-interval=1s"];

/// A control plane with the kinds and the rights, and one edge for RouterConfig `edge/main`, class `waystation`.
pub struct World {
    pub edge: Edge,
    pub authority: Authority,
    pub cluster: Cluster,
}

impl World {
    pub async fn start() -> Result<Self> {
        let cluster = Cluster::start(ClusterOptions { audit: false, ..ClusterOptions::default() }).await?;
        cluster.apply_dir(&repository().join("charts/waystation/rbac")).await?;
        cluster.apply_dir(&repository().join("crds")).await?;
        cluster.await_crds(&["routerconfigs.waystation.dev"]).await?;
        for namespace in ["edge", "shop", "other"] {
            cluster.kubectl_text(&["create", "namespace", namespace]).await?;
        }
        let edge = Self::prepare(&cluster, "main").await?;
        let mut world = Self { edge, authority: Authority::new("test")?, cluster };
        world.class("waystation").await?;
        let listeners = world.edge.listeners();
        world.router_config("main", "waystation", &listeners, "192.0.2.10").await?;
        world.edge.start_supervisor()?;
        world.edge.start_agent(COMPARED)?;
        world.edge.await_ready().await?;
        world.leads().await?;
        Ok(world)
    }

    /// An edge for that RouterConfig of namespace `edge`.
    pub async fn prepare(cluster: &Cluster, name: &str) -> Result<Edge> {
        let account = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
        Edge::prepare(name, &format!("edge/{name}"), env!("CARGO_BIN_EXE_waystation").as_ref(), &account)
    }

    /// Events and statuses are told from now on.
    pub async fn leads(&self) -> Result<()> {
        eventually(PATIENCE, "it leads", || async {
            ensure!(self.edge.metric("waystation_edge_leading").await? == 1.0);
            Ok(())
        })
        .await
    }

    pub async fn class(&self, name: &str) -> Result<()> {
        let yaml = format!(
            "{{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {{name: {name}}}, \
             spec: {{controller: waystation.dev/edge}}}}"
        );
        self.cluster.apply(&yaml).await.map(drop)
    }

    pub async fn router_config(&self, name: &str, class: &str, listeners: &str, address: &str) -> Result<()> {
        let yaml = format!(
            "{{apiVersion: waystation.dev/v1alpha1, kind: RouterConfig, metadata: {{name: {name}, namespace: edge}}, \
             spec: {{edge: {{ingressClassName: {class}, listeners: {listeners}, \
             publish: {{addresses: [\"{address}\"]}}}}}}}}"
        );
        let applied = || async { self.cluster.apply(&yaml).await.map(drop) };
        // Established is not yet applicable.
        eventually(PATIENCE, "a RouterConfig", applied).await
    }

    /// A Service in `shop` whose endpoints, at port 8080, are those of 10.77.`net`.x.
    pub async fn service(&self, name: &str, addresses: &[&str]) -> Result<()> {
        let service = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, \
             spec: {{ports: [{{name: http, port: 80, targetPort: 8080}}]}}}}"
        );
        self.cluster.apply(&service).await?;
        self.endpoints(name, addresses).await
    }

    pub async fn endpoints(&self, name: &str, addresses: &[&str]) -> Result<()> {
        let endpoints: Vec<String> = addresses.iter().map(|a| format!("{{addresses: [\"{a}\"]}}")).collect();
        let slice = format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}, \
             ports: [{{name: http, port: 8080, protocol: TCP}}], endpoints: [{}]}}",
            endpoints.join(", ")
        );
        self.cluster.apply(&slice).await.map(drop)
    }

    /// An Ingress in `shop` with that spec and annotations.
    pub async fn ingress(&self, name: &str, spec: &str, annotations: &[(&str, &str)]) -> Result<()> {
        self.ingress_in("shop", name, spec, annotations).await
    }

    pub async fn ingress_in(
        &self,
        namespace: &str,
        name: &str,
        spec: &str,
        annotations: &[(&str, &str)],
    ) -> Result<()> {
        let annotations: Vec<String> = annotations.iter().map(|(key, value)| format!("{key}: \"{value}\"")).collect();
        let yaml = format!(
            "{{apiVersion: networking.k8s.io/v1, kind: Ingress, \
             metadata: {{name: {name}, namespace: {namespace}, annotations: {{{}}}}}, spec: {spec}}}",
            annotations.join(", ")
        );
        self.cluster.apply(&yaml).await.map(drop)
    }

    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.cluster.kubectl_text(&["delete", kind, name, "-n", "shop"]).await.map(drop)
    }

    /// A Secret in `shop`.
    pub async fn secret(&self, name: &str, kind: &str, data: &[(&str, &str)]) -> Result<()> {
        let data: Vec<String> = data.iter().map(|(key, value)| format!("{key}: {}", STANDARD.encode(value))).collect();
        let yaml = format!(
            "{{apiVersion: v1, kind: Secret, type: {kind}, metadata: {{name: {name}, namespace: shop}}, \
             data: {{{}}}}}",
            data.join(", ")
        );
        self.cluster.apply(&yaml).await.map(drop)
    }

    pub async fn certificate(&self, name: &str, leaf: &Leaf) -> Result<()> {
        self.secret(name, "kubernetes.io/tls", &[("tls.crt", &leaf.certificate), ("tls.key", &leaf.key)]).await
    }

    /// Waits until a request by plain HTTP is answered like that.
    pub async fn answers(&self, host: &str, path: &str, status: u16, body: &str) -> Result<()> {
        let port = self.edge.http();
        let what = format!("http://{host}{path} answers {status} {body}");
        let asked = eventually(PATIENCE, &what, || async {
            let answer = get(port, host, path).await?;
            ensure!(answer.0 == status && (body.is_empty() || answer.1 == body), "{answer:?}");
            Ok(())
        });
        asked.await.map_err(|error| error.context(self.edge.logs(30)))
    }

    /// Waits until a request by TLS, verified by our authority, is answered like that, with that certificate.
    pub async fn answers_tls(&self, host: &str, body: &str, leaf: &Leaf) -> Result<()> {
        let wanted = der(&leaf.certificate);
        let what = format!("https://{host}/ answers {body}");
        let asked = eventually(PATIENCE, &what, || async {
            let (status, got, shown) = get_tls(self.edge.https(), &self.authority.certificate(), host).await?;
            ensure!(status == 200 && got == body, "{status} {got}");
            ensure!(shown.as_ref() == wanted, "another certificate");
            Ok(())
        });
        asked.await.map_err(|error| error.context(self.edge.logs(30)))
    }

    /// Notes of Events about an object in a namespace, for that reason.
    pub async fn events(&self, namespace: &str, object: &str, reason: &str) -> Result<Vec<String>> {
        let path = format!(
            "{{range .items[?(@.regarding.name==\"{object}\")]}}{{.reason}}{{\"\\t\"}}{{.note}}{{\"\\n\"}}{{end}}"
        );
        let arguments = ["get", "events.events.k8s.io", "-n", namespace, "-o", &format!("jsonpath={path}")];
        let text = self.cluster.kubectl_text(&arguments).await?;
        let notes = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(notes.filter(|(told, _)| *told == reason).map(|(_, note)| note.to_owned()).collect())
    }

    /// Everything is compared once more; how many differences of the process and of the files were ever found.
    pub async fn drift(&self) -> Result<(f64, f64)> {
        let comparisons = async || self.edge.metric("waystation_edge_comparisons_total").await;
        let before = comparisons().await?;
        eventually(PATIENCE, "another comparison", || async {
            // The first that ends may have begun before.
            let now = comparisons().await?;
            ensure!(now >= before + 2.0, "{now} after {before}");
            Ok(())
        })
        .await?;
        let of = async |kind: &str| self.edge.metric(&format!("waystation_edge_drift_total{{kind=\"{kind}\"}}")).await;
        Ok((of("process").await?, of("files").await?))
    }

    /// Commands so far, by kind and result.
    pub async fn commands(&self) -> Result<BTreeMap<String, f64>> {
        const NAME: &str = "waystation_edge_commands_total{kind=";
        let all = self.edge.metrics(NAME).await?;
        Ok(all.into_iter().map(|(name, count)| (name[NAME.len()..].replace(['"', '}'], ""), count)).collect())
    }

    /// Nothing has been reloaded: says the agent, and says HAProxy.
    pub async fn no_reload(&self) -> Result<()> {
        let (_, metrics) = self.edge.get("/metrics").await?;
        let reloads: Vec<&str> =
            metrics.lines().filter(|line| line.starts_with("waystation_edge_reloads_total")).collect();
        ensure!(reloads == ["waystation_edge_reloads_total{reason=\"behind\"} 0"], "{reloads:?}");
        let processes = self.edge.ask_master("show proc").await?;
        let master = processes.lines().find(|line| line.contains("master")).unwrap_or_default();
        ensure!(master.split_whitespace().nth(2) == Some("0"), "{processes}");
        Ok(())
    }
}

/// One request on a connection of its own, with one more header.
pub async fn get_with(port: u16, host: &str, header: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    request(&mut stream, &format!("{host}\r\n{header}"), "/").await
}

/// A server that answers with its name, at 10.77.x.y:8080.
pub async fn endpoint(name: &'static str, address: &str) -> Result<Server> {
    Server::start_at(name, format!("{address}:8080").parse()?).await
}

/// `rules` of an Ingress: everything of a host goes to a Service.
pub fn all_of(host: &str, service: &str) -> String {
    format!("{{host: {host}, http: {{paths: [{}]}}}}", path("/", "Prefix", service))
}

pub fn path(path: &str, kind: &str, service: &str) -> String {
    format!("{{path: \"{path}\", pathType: {kind}, backend: {{service: {{name: {service}, port: {{number: 80}}}}}}}}")
}

fn der(pem: &str) -> Vec<u8> {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).unwrap()
}
