//! `edge-churn`: everything changes all the time while requests come; in the end, all is as after a start from nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::super::data::Numbers;
use super::super::figures::Figures;
use super::super::say;
use super::data::{Site, Write};
use super::observer::{Observer, Servers};
use super::stage::{self, EdgeStage};
use super::web::{Asker, exchange, head};

/// Connections that ask, each about 100 times a second.
const CONNECTIONS: usize = 4;
const BREATH: Duration = Duration::from_millis(10);
/// Sites whose last change may still be on its way are left alone for as many events.
const APART: usize = 200;

/// `events` changes, `rate` a second.
pub(super) async fn run(stage: &mut EdgeStage, rate: usize, events: usize) -> Result<Figures> {
    stage.ensure_running().await?;
    say(&format!("edge-churn: {events} events, {rate} a second"));
    let before = stage.subject.used().await?;
    let load = Load::start(stage);
    let mut changes = Changes::default();
    let (mut writing, failed) = (JoinSet::new(), Arc::new(Mutex::new(None)));
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / rate.max(1) as f64));
    for number in 0..events {
        tick.tick().await;
        let writes = changes.next(stage, number)?;
        let (client, failed) = (stage.client.clone(), Arc::clone(&failed));
        writing.spawn(async move {
            // One after the other, as a person's tools do.
            for write in writes {
                if let Err(error) = stage::write(&client, &write).await {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        });
    }
    while writing.join_next().await.is_some() {}
    if let Some(error) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error.context("a change could not be made"));
    }
    let hosts = changes.hosts(stage);
    stage.quiet().await?;
    let after = stage.subject.used().await?;
    let (requests, failed) = load.end().await;
    let lived = State::read(stage, &hosts).context("after all changes")?;
    say("edge-churn: a start from nothing, to compare");
    // Whatever has been asked for of the API is what a start finds.
    stage.start().await?;
    let fresh = State::read(stage, &hosts).context("after a start from nothing")?;
    let seconds = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64();
    Ok(Figures::new("edge-churn", stage.size(), events)
        .with("reloads", (after.reloads - before.reloads) as f64)
        .with("requests", requests as f64)
        .with("failed_requests", failed as f64)
        .with("agent_cpu_s", seconds(before.controller, after.controller))
        .with("haproxy_cpu_s", seconds(before.haproxy, after.haproxy))
        .with("drift", lived.differences(&fresh) as f64))
}

/// Which change comes next.
#[derive(Default)]
struct Changes {
    numbers: Option<Numbers>,
    /// Sites that were changed last, by their place.
    recent: std::collections::VecDeque<usize>,
    /// Sites that came and stay for a while, and those that are gone.
    guests: std::collections::VecDeque<Site>,
    gone: Vec<Site>,
    /// A path that one has more.
    added: std::collections::VecDeque<usize>,
    paths: Vec<(String, String)>,
}

impl Changes {
    /// Of ten events six are about endpoints: four replaced, one more, one fewer; the others are Ingresses that come, go,
    /// do both at once, have a path more or less, or another certificate.
    fn next(&mut self, stage: &mut EdgeStage, number: usize) -> Result<Vec<Write>> {
        let data = &mut stage.data;
        Ok(match number % 10 {
            0 | 2 | 4 | 6 => {
                let (site, turn) = (self.pick(data.planned(), |_| true), self.below(3));
                let address = data.fresh_address();
                let turn = turn % data.sites[site].addresses.len();
                vec![data.sites[site].replace_endpoint(turn, address)]
            }
            1 => {
                let site = self.pick(data.planned(), |_| true);
                let mut addresses = data.sites[site].addresses.clone();
                addresses.push(data.fresh_address());
                vec![data.sites[site].scale(addresses)]
            }
            3 => {
                let site = self.pick(data.planned(), |_| true);
                let mut addresses = data.sites[site].addresses.clone();
                if addresses.len() > 1 {
                    addresses.remove(0);
                }
                vec![data.sites[site].scale(addresses)]
            }
            5 => {
                let guest = data.another("guest", number);
                let mut writes: Vec<Write> = guest.create_endpoints().into();
                writes.push(guest.create_ingress());
                // Every second one is gone before anybody could have noticed.
                if number % 20 == 5 {
                    writes.push(guest.delete_ingress());
                    writes.extend(guest.delete_endpoints());
                    self.gone.push(guest);
                } else {
                    self.guests.push_back(guest);
                }
                writes
            }
            7 => match if self.guests.len() > 5 { self.guests.pop_front() } else { None } {
                Some(guest) => {
                    let mut writes = vec![guest.delete_ingress()];
                    writes.extend(guest.delete_endpoints());
                    self.gone.push(guest);
                    writes
                }
                None => Vec::new(),
            },
            8 => match if self.added.len() > 5 { self.added.pop_front() } else { None } {
                Some(site) => vec![data.sites[site].remove_path()],
                None => {
                    let sites = &data.sites;
                    let added = self.added.clone();
                    let site = self.pick(data.planned(), |site| !sites[site].tls && !added.contains(&site));
                    let path = format!("/added-{number}");
                    self.added.push_back(site);
                    self.paths.push((data.sites[site].hosts[0].clone(), path.clone()));
                    vec![data.sites[site].add_path(&path, &data.sites[data.neighbour(site)])]
                }
            },
            _ => {
                let sites = &data.sites;
                let site = self.pick(data.planned(), |site| sites[site].tls);
                let leaf = data.certificate(&data.sites[site], &format!("churn {number}"))?;
                vec![data.sites[site].rotate(&leaf)]
            }
        })
    }

    fn below(&mut self, bound: usize) -> usize {
        self.numbers.get_or_insert_with(Numbers::seeded).below(bound)
    }

    /// One of those that nothing was done to lately, where there is one.
    fn pick(&mut self, of: usize, condition: impl Fn(usize) -> bool) -> usize {
        while self.recent.len() > APART.min(of / 4) {
            self.recent.pop_front();
        }
        let mut site = self.below(of);
        let suits = |site, changes: &Self| condition(site) && !changes.recent.contains(&site);
        for _ in 0..of {
            if suits(site, self) {
                break;
            }
            site = (site + 1) % of;
        }
        self.recent.push_back(site);
        site
    }

    /// Every host and path that there is or was.
    fn hosts(&self, stage: &mut EdgeStage) -> Vec<(String, String)> {
        let stayed = self.guests.iter().cloned();
        stage.data.sites.extend(stayed);
        let all = stage.data.sites.iter().chain(&self.gone).flat_map(|site| &site.hosts);
        let all = all.flat_map(|host| ["/", "/api"].map(|path| (host.clone(), path.to_owned())));
        all.chain(self.paths.iter().cloned()).collect()
    }
}

/// What HAProxy does, as far as anybody can tell from outside.
#[derive(Debug)]
struct State {
    servers: Servers,
    answers: BTreeMap<(String, String), u16>,
    /// Which backend a path is led to that leads to a Service of another.
    bodies: BTreeMap<(String, String), String>,
}

impl State {
    fn read(stage: &EdgeStage, hosts: &[(String, String)]) -> Result<Self> {
        tokio::task::block_in_place(|| {
            let servers = Observer::connect(stage.subject.socket())?.servers(None)?;
            let backend_of: BTreeMap<&String, &String> = servers
                .iter()
                .flat_map(|(backend, addresses)| addresses.iter().map(move |address| (address, backend)))
                .collect();
            let (mut answers, mut bodies) = (BTreeMap::new(), BTreeMap::new());
            let mut asker = Asker::new(stage.subject.http());
            for (host, path) in hosts {
                let (status, body) = asker.get(host, path)?;
                let key = (host.clone(), path.clone());
                answers.insert(key.clone(), status);
                if let Some(backend) = backend_of.get(&body) {
                    bodies.insert(key, (*backend).clone());
                }
            }
            Ok(Self { servers, answers, bodies })
        })
    }

    /// Backends, hosts and paths that are not the same.
    fn differences(&self, other: &Self) -> usize {
        differences(&self.servers, &other.servers)
            + differences(&self.answers, &other.answers)
            + differences(&self.bodies, &other.bodies)
    }
}

fn differences<K: Ord, V: PartialEq>(one: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> usize {
    let missing = other.keys().filter(|key| !one.contains_key(key)).count();
    missing + one.iter().filter(|(key, value)| other.get(key) != Some(value)).count()
}

/// Clients that never stop asking, for all hosts that stay.
struct Load {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicUsize>,
    clients: JoinSet<usize>,
}

impl Load {
    fn start(stage: &EdgeStage) -> Self {
        let plain = stage.data.sites[..stage.size()].iter().filter(|site| !site.tls);
        let heads: Arc<Vec<Vec<u8>>> = Arc::new(plain.map(|site| head(&site.hosts[0], "/")).collect());
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut clients = JoinSet::new();
        for number in 0..CONNECTIONS {
            let (heads, stop, failed) = (Arc::clone(&heads), Arc::clone(&stop), Arc::clone(&failed));
            let (port, mut at) = (stage.subject.http(), number * heads.len() / CONNECTIONS);
            clients.spawn(async move {
                let (mut count, mut stream, mut buffer) = (0, None, Vec::new());
                while !stop.load(Ordering::SeqCst) {
                    tokio::time::sleep(BREATH).await;
                    let head = &heads[at % heads.len()];
                    at += 1;
                    count += 1;
                    let asked = one(&mut stream, port, head, &mut buffer).await;
                    if !matches!(asked, Ok(200)) {
                        let so_far = failed.fetch_add(1, Ordering::SeqCst);
                        if so_far < 3 {
                            say(&format!("{} failed: {asked:?}", String::from_utf8_lossy(head).trim_end()));
                        }
                    }
                }
                count
            });
        }
        Self { stop, failed, clients }
    }

    /// Requests, and how many of them failed.
    async fn end(mut self) -> (usize, usize) {
        self.stop.store(true, Ordering::SeqCst);
        let mut count = 0;
        while let Some(asked) = self.clients.join_next().await {
            count += asked.unwrap_or_default();
        }
        (count, self.failed.load(Ordering::SeqCst))
    }
}

/// One request, on the connection that is open or on a new one.
async fn one(stream: &mut Option<TcpStream>, port: u16, head: &[u8], buffer: &mut Vec<u8>) -> Result<u16> {
    let mut open = match stream.take() {
        Some(open) => open,
        None => TcpStream::connect(("127.0.0.1", port)).await?,
    };
    let (status, stays) = exchange(&mut open, head, buffer).await?;
    if stays {
        *stream = Some(open);
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_differs_is_counted() {
        let map = |pairs: &[(&'static str, u16)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(differences(&map(&[("a", 1), ("b", 2)]), &map(&[("b", 3), ("c", 4)])), 3);
        assert_eq!(differences(&map(&[("a", 1)]), &map(&[("a", 1)])), 0);
    }
}
