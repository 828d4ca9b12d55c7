//! Which Service answers a request: hosts × path types × slashes × case × encoding, as Kubernetes documents it.

use anyhow::{Result, ensure};
use waystation_kit::process::inside_own_network;

use crate::edge::{World, endpoint, path};
use crate::traffic::get;

/// Services, by the Ingress path that leads to them.
const SERVICES: [&str; 9] =
    ["exact", "prefix", "deeper", "slash", "specific", "wildcard", "nohost", "fallback", "root"];

/// Host, path, and who answers.
const TABLE: &[(&str, &str, &str)] = &[
    // Exact: the whole path, with case and slashes.
    ("a.example", "/exact", "exact"),
    ("a.example", "/exact?query=1", "exact"),
    ("a.example", "/exact/", "root"),
    ("a.example", "/EXACT", "root"),
    ("a.example", "/exact/more", "root"),
    // Prefix: by element.
    ("a.example", "/prefix", "prefix"),
    ("a.example", "/prefix/", "prefix"),
    ("a.example", "/prefix/x", "prefix"),
    ("a.example", "/prefixed", "root"),
    ("a.example", "/Prefix", "root"),
    // The longest wins, and a slash at the end of a rule means nothing.
    ("a.example", "/prefix/deeper", "deeper"),
    ("a.example", "/prefix/deeper/x", "deeper"),
    ("a.example", "/prefix/deep", "prefix"),
    ("a.example", "/slash", "slash"),
    ("a.example", "/slash/", "slash"),
    ("a.example", "/slash/x", "slash"),
    ("a.example", "/slashed", "root"),
    // ImplementationSpecific is as Prefix.
    ("a.example", "/specific/x", "specific"),
    ("a.example", "/specifics", "root"),
    // Exact before Prefix of the same path.
    ("a.example", "/both", "exact"),
    ("a.example", "/both/", "prefix"),
    // What is encoded is another path.
    ("a.example", "/pre%66ix", "root"),
    ("a.example", "/prefix%2Fdeeper", "root"),
    ("a.example", "/", "root"),
    // Hosts: without case, with a port, with a final dot.
    ("A.Example", "/exact", "exact"),
    ("a.example:8080", "/exact", "exact"),
    ("a.example.", "/exact", "exact"),
    // A wildcard is one label; an exact host goes before it, also where it has no such path: then the default backend.
    ("b.wild.example", "/", "wildcard"),
    ("own.wild.example", "/own", "exact"),
    ("own.wild.example", "/", "fallback"),
    ("c.b.wild.example", "/", "nohost"),
    ("wild.example", "/", "nohost"),
    // Rules without a host.
    ("unknown.example", "/nohost/x", "nohost"),
    ("unknown.example", "/", "nohost"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_where_kubernetes_says() -> Result<()> {
    if !inside_own_network("routing::requests_go_where_kubernetes_says").await? {
        return Ok(());
    }
    let world = World::start().await?;
    let mut servers = Vec::new();
    for (number, name) in SERVICES.into_iter().enumerate() {
        let address = format!("10.77.1.{}", number + 1);
        servers.push(endpoint(name, &address).await?);
        world.service(name, &[&address]).await?;
    }
    let paths = [
        path("/exact", "Exact", "exact"),
        path("/prefix", "Prefix", "prefix"),
        path("/prefix/deeper", "Prefix", "deeper"),
        path("/slash/", "Prefix", "slash"),
        path("/specific", "ImplementationSpecific", "specific"),
        path("/both", "Exact", "exact"),
        path("/both", "Prefix", "prefix"),
        path("/", "Prefix", "root"),
    ];
    let rules = [
        format!("{{host: a.example, http: {{paths: [{}]}}}}", paths.join(", ")),
        format!("{{host: \"*.wild.example\", http: {{paths: [{}]}}}}", path("/", "Prefix", "wildcard")),
        format!("{{host: own.wild.example, http: {{paths: [{}]}}}}", path("/own", "Exact", "exact")),
        format!("{{http: {{paths: [{}]}}}}", path("/", "Prefix", "nohost")),
    ];
    // By the old annotation as well as by the field.
    let default = "{service: {name: fallback, port: {number: 80}}}";
    let spec = format!("{{defaultBackend: {default}, rules: [{}]}}", rules.join(", "));
    world.ingress("table", &spec, &[("kubernetes.io/ingress.class", "waystation")]).await?;
    world.answers("a.example", "/", 200, "root").await?;
    let mut wrong = Vec::new();
    for (host, path, wanted) in TABLE {
        let (status, body) = get(world.edge.http(), host, path).await?;
        if (status, body.as_str()) != (200, *wanted) {
            wrong.push(format!("{host}{path}: {status} {body}, and should be {wanted}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.no_reload().await
}
