//! What the edge's model takes alone, at sizes that no machine at hand can serve: `edge_model INGRESSES [EVENTS]` prints one
//! JSON object. `dev/bench edge-endpoint --size 100000` runs it; docs/performance.md tells what the figures mean.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use waystation::edge::ids::{Key, Kind};
use waystation::edge::input::{
    Allowed, BackendRef, Endpoint, EndpointSlice, Ingress, IngressClass, Input, Listeners, Meta, PathRule, PathType,
    Port, RouterConfig, Rule, Service, ServicePort, Tuning,
};
use waystation::edge::model::{CONTROLLER, Model};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let size: usize = arguments.next().ok_or("usage: edge_model INGRESSES [EVENTS]")?.parse()?;
    let events: usize = arguments.next().as_deref().unwrap_or("2000").parse()?;
    // What a watch hands over is there before the time begins.
    let inputs = inputs(size);
    let mut model = Model::new(Key::new("edge", "main"));
    let began = Instant::now();
    for input in inputs {
        model.apply(input);
    }
    let first = model.settle();
    let took = began.elapsed();
    if !first.first || model.sizes().ingresses != size {
        return Err(format!("not everything is served: {:?}", model.sizes()).into());
    }
    model.apply(Input::InForce(first.generation));
    let mut times = Vec::with_capacity(events);
    for number in 0..events {
        let slice = slice(number * 7919 % size, 300_000 + number);
        let began = Instant::now();
        model.apply(Input::EndpointSlice(Arc::new(slice)));
        let settled = model.settle();
        times.push(began.elapsed());
        // One goes and one comes; the names that they share, or none, make it no more than that.
        if settled.changes.is_empty() || settled.changes.len() > 4 {
            return Err(format!("{} changes of one endpoint", settled.changes.len()).into());
        }
        model.apply(Input::InForce(settled.generation));
    }
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).map_or(0.0, |took| micros(*took));
    let figures = serde_json::json!({
        "model_ms": micros(took) / 1000.0, "event_p50_us": at(50), "event_p99_us": at(99), "rss_mb": rss_mb()?,
    });
    println!("{figures}");
    Ok(())
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

fn rss_mb() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
}

fn meta(number: usize) -> Meta {
    let key = key(number, "");
    Meta { uid: format!("uid-{key}").into(), key, created_s: 1_700_000_000 }
}

fn key(number: usize, more: &str) -> Key {
    Key::new(format!("tenant-{:05}", number / 3), format!("app-{number:06}{more}"))
}

/// As in `dev/bench`: a Service with three endpoints for each, two paths a host, every second with two hosts.
fn inputs(size: usize) -> Vec<Input> {
    let mut all = vec![Input::RouterConfig(Arc::new(config()))];
    let class =
        IngressClass { name: "waystation".into(), controller: CONTROLLER.into(), parameters: None, default: false };
    all.push(Input::IngressClass(Arc::new(class)));
    for number in 0..size {
        all.push(Input::Ingress(Arc::new(ingress(number))));
        all.push(Input::Service(Arc::new(service(number))));
        all.push(Input::EndpointSlice(Arc::new(slice(number, number * 3))));
    }
    all.extend(Kind::ALL.iter().copied().map(Input::Synced));
    all
}

fn config() -> RouterConfig {
    RouterConfig {
        meta: Meta { key: Key::new("edge", "main"), uid: "uid".into(), created_s: 0 },
        class_name: "waystation".into(),
        allowed: Allowed::All,
        any_owner: false,
        default_certificate: None,
        default_backend: None,
        external_name: false,
        listeners: Listeners::default(),
        tuning: Tuning::default(),
        options: Arc::new([]),
    }
}

fn ingress(number: usize) -> Ingress {
    let meta = meta(number);
    let path = |path: &str| PathRule {
        path: path.into(),
        kind: PathType::Prefix,
        backend: BackendRef::Service(Arc::clone(&meta.key.name), Port::Number(80)),
    };
    let rule = |host: String| Rule { host: host.into(), paths: vec![path("/"), path("/api")] };
    let mut rules = vec![rule(format!("app-{number:06}.example"))];
    if number.is_multiple_of(2) {
        rules.push(rule(format!("app-{number:06}.second.example")));
    }
    Ingress {
        class: Some("waystation".into()),
        class_annotation: None,
        default_backend: None,
        rules,
        tls: Vec::new(),
        annotations: Arc::new([]),
        meta,
    }
}

fn service(number: usize) -> Service {
    Service {
        meta: meta(number),
        ports: vec![ServicePort { name: "http".into(), port: 80, tcp: true }],
        cluster_ip: None,
        external_name: None,
        ipv6_first: false,
        annotations: Arc::new([]),
    }
}

fn slice(number: usize, first_address: usize) -> EndpointSlice {
    let endpoint = |turn: usize| {
        // The first stays what it was; of those numbers none needs more than 24 bits.
        let address = if turn == 0 { number * 3 } else { first_address + turn } + 1;
        let address = Ipv4Addr::from_bits(0x0a00_0000 | (address as u32 & 0x00ff_ffff));
        Endpoint { address: Some(IpAddr::V4(address)), ready: true, serving: true, terminating: false }
    };
    EndpointSlice {
        key: key(number, "-x"),
        service: key(number, "").name,
        fqdn: false,
        ports: vec![("http".into(), 8080)],
        endpoints: (0..3).map(endpoint).collect(),
    }
}
