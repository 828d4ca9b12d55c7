//! What holds for a host: who speaks for it, its certificate, certificates of its clients, passthrough, HSTS.

use std::sync::Arc;

use super::Model;
use super::ingress::covers;
use super::state::{HostDecision, HostIndex};
use super::store::{authority_name, owned_secret, tell_secret};
use super::unit::{Need, Outcome, Reason, StoreId};
use super::words::Levels;
use crate::edge::ids::{Key, Kind, Object};
use crate::edge::input::Ingress;
use crate::edge::names;
use crate::edge::options::{Opt, Options, Scope};
use crate::edge::route::{BackendId, DEFAULT_HOST, PathKind, RouteKey};
use crate::edge::sets::Sorted;
use crate::edge::wanted::{CrtLine, MapName, Slot, Value};

/// The certificate of hosts without one.
pub const DEFAULT_CERTIFICATE: &str = "_default";

/// Who may speak for a host, oldest first, and who may not.
struct Speakers {
    owner: Arc<str>,
    heard: Vec<(Arc<Ingress>, Arc<Options>)>,
    others: Vec<(Arc<Ingress>, Arc<Options>)>,
}

/// What is asked of clients.
enum Clients {
    /// Nothing.
    Anyone,
    /// A certificate of that CA, or none if it is not required.
    Certificate(Arc<str>, bool),
    /// It cannot be asked for what it should: nobody may come.
    Nobody,
}

impl Model {
    /// Decides a host.
    pub(super) fn decide_host(&mut self, host: &Arc<str>) -> Outcome {
        let mut out = Outcome::default();
        if &**host == DEFAULT_HOST {
            self.default_certificate(&mut out);
        }
        let decision = self.indexes.hosts.get(host).map(|index| self.host_of(host, index, &mut out));
        let before = match decision {
            Some(ref decision) => self.decided.hosts.insert(host.clone(), decision.clone()),
            None => self.decided.hosts.remove(host),
        };
        if before != decision {
            self.changed(&Need::Host(host.clone()));
        }
        out
    }

    fn host_of(&self, host: &Arc<str>, index: &HostIndex, out: &mut Outcome) -> HostDecision {
        let speakers = self.speakers(index);
        let mut levels: Vec<Arc<Options>> = speakers.heard.iter().map(|(_, options)| options.clone()).collect();
        levels.extend(self.objects.config.as_ref().map(|(_, options)| options.clone()));
        let levels = Levels::new(levels);
        self.tell_unheard(host, &speakers, out);
        let clients = self.clients(host, &speakers, &levels, out);
        let client = match &clients {
            Clients::Certificate(authority, required) => Some((authority.clone(), *required)),
            Clients::Anyone | Clients::Nobody => None,
        };
        let (mut tls, certificate) = self.certificate(host, &speakers, out);
        let line = match (certificate, &client) {
            (Some(certificate), _) => Some(CrtLine { certificate, client: client.clone() }),
            (None, Some(_)) => Some(CrtLine { certificate: DEFAULT_CERTIFICATE.into(), client: client.clone() }),
            (None, None) => None,
        };
        let mut refused = false;
        if let (Some(line), true) = (line, has_line(host)) {
            let (slot, value) = (Slot::CrtList(host.clone()), Value::CrtLine(Arc::new(line)));
            match (self.refusal(&slot, &value), speakers.heard.first()) {
                (Some(words), Some((ingress, _))) => {
                    out.tell(&ingress.meta.key, Reason::Refused, format!("certificate of {host}: {words}"));
                    // Without its line nobody asks clients for theirs.
                    refused = client.is_some();
                }
                _ => out.want(slot, value),
            }
        }
        let deny = refused || matches!(clients, Clients::Nobody);
        if levels.is(Opt::SslPassthrough) {
            tls |= self.passthrough(host, &speakers, out);
        }
        if index.routes.is_empty() || &**host == DEFAULT_HOST {
            return HostDecision { owner: speakers.owner, tls, deny, client: None };
        }
        let mut flags = String::from("-");
        let (exact, regex) = index.kinds();
        let cases = [(exact, 'e'), (regex, 'r')];
        flags.extend(cases.into_iter().filter(|(holds, _)| *holds).map(|(_, flag)| flag));
        if levels.is(Opt::Hsts) {
            flags.push('h');
            out.want(Slot::Map(MapName::Hsts, host.clone()), Value::Text(hsts(&levels).into()));
        }
        out.want(Slot::Map(MapName::Hosts, host.clone()), Value::Text(flags.into()));
        if levels.is(Opt::WwwRedirect)
            && let Some(other) = other_name(host)
        {
            out.want(Slot::Map(MapName::Www, other), Value::Text(host.clone()));
        }
        let client = client.map(|(_, required)| (required, levels.is(Opt::ClientHeader)));
        HostDecision { owner: speakers.owner, tls, deny, client }
    }

    fn speakers(&self, index: &HostIndex) -> Speakers {
        let any = self.objects.config.as_ref().is_some_and(|(config, _)| config.any_owner);
        let owner = match index.ingresses.first() {
            Some(rank) if !any => rank.key.namespace.clone(),
            _ => "".into(),
        };
        let mut speakers = Speakers { owner, heard: Vec::new(), others: Vec::new() };
        for rank in index.ingresses.iter() {
            let Some(ingress) = self.objects.ingresses.get(&rank.key) else { continue };
            if any || rank.key.namespace == speakers.owner {
                speakers.heard.push(ingress.clone());
            } else {
                speakers.others.push(ingress.clone());
            }
        }
        speakers
    }

    /// Of other namespaces neither options nor certificates count.
    fn tell_unheard(&self, host: &Arc<str>, speakers: &Speakers, out: &mut Outcome) {
        for (ingress, options) in &speakers.others {
            let says = options.iter().any(|(opt, _)| opt.definition().scope == Scope::Host);
            let rules = self.rule_hosts(&ingress.meta.key);
            let certificate = ingress.tls.iter().any(|tls| tls.secret.is_some() && covers(&tls.hosts, &rules, host));
            if says || certificate {
                let message = format!(
                    "host {host} belongs to namespace {}, whose Ingress is older: options and certificates for it do not count here",
                    speakers.owner
                );
                out.tell(&ingress.meta.key, Reason::HostNotOwned, message);
            }
        }
    }

    fn rule_hosts(&self, key: &Key) -> Sorted<Arc<str>> {
        let claims = self.decided.claims.get(key);
        claims.map(|c| c.routes.iter().map(|(route, _)| route.host.clone()).collect()).unwrap_or_default()
    }

    /// Whether the host has TLS, and the name of its own certificate.
    fn certificate(&self, host: &Arc<str>, speakers: &Speakers, out: &mut Outcome) -> (bool, Option<Arc<str>>) {
        let mut tls = false;
        let mut chosen: Option<(Key, &Arc<Ingress>)> = None;
        for (ingress, _) in &speakers.heard {
            let rules = self.rule_hosts(&ingress.meta.key);
            for entry in ingress.tls.iter().filter(|tls| covers(&tls.hosts, &rules, host)) {
                tls = true;
                let Some(secret) = entry.secret.as_ref().filter(|s| !s.is_empty()) else { continue };
                let key = Key::new(ingress.meta.key.namespace.clone(), secret.clone());
                match &chosen {
                    None => chosen = Some((key, ingress)),
                    Some((first, winner)) if *first != key && winner.meta.key != ingress.meta.key => {
                        let message =
                            format!("host {host}: Ingress {} is older and names another certificate", winner.meta.key);
                        out.tell(&ingress.meta.key, Reason::OptionConflict, message);
                    }
                    Some(_) => {}
                }
            }
        }
        let Some((key, ingress)) = chosen else { return (tls, None) };
        out.needs.insert(Need::Secret(key.clone()));
        match self.identity(&key) {
            Ok(_) => {
                let name = names::store(&key);
                if has_line(host) {
                    out.stores.insert(StoreId::Certificate(key));
                }
                (true, Some(name))
            }
            Err(why) => {
                let object = Object::new(Kind::Ingress, ingress.meta.key.clone());
                tell_secret(&object, &key, &why, "its hosts are served the default certificate", out);
                (true, None)
            }
        }
    }

    /// What is asked of clients: the oldest names the CA, the strictest says whether it is required.
    fn clients(&self, host: &Arc<str>, speakers: &Speakers, levels: &Levels, out: &mut Outcome) -> Clients {
        if levels.fails(Scope::Host) {
            return Clients::Nobody;
        }
        let words: Vec<&str> = levels
            .all(Opt::ClientVerify)
            .filter_map(|v| match v {
                crate::edge::options::Value::Word(word) => Some(*word),
                _ => None,
            })
            .collect();
        let named = levels.text(Opt::ClientCa);
        let strictest = ["on", "optional", "off"].into_iter().find(|w| words.contains(w));
        let required = match (strictest, named) {
            (Some("off"), _) | (None, None) => return Clients::Anyone,
            // Asked for, and nobody says by whom it must be signed.
            (Some(_), None) => return Clients::Nobody,
            (Some("optional"), Some(_)) => false,
            (_, Some(_)) => true,
        };
        let namer = speakers.heard.iter().find(|(_, options)| options.get(Opt::ClientCa).is_some());
        // What the RouterConfig names is the Secret of that name in the namespace that the host belongs to.
        let namer = namer.or_else(|| speakers.heard.first());
        let (Some((ingress, _)), Some(text)) = (namer, named) else { return Clients::Nobody };
        let object = Object::new(Kind::Ingress, ingress.meta.key.clone());
        let Some(key) = owned_secret(&object, text, None, out) else { return Clients::Nobody };
        match self.authority(&key) {
            Ok(pem) if has_line(host) => {
                let name = authority_name(&key, &pem);
                out.stores.insert(StoreId::Authority(key));
                Clients::Certificate(name, required)
            }
            Ok(_) => Clients::Nobody,
            Err(why) => {
                tell_secret(&object, &key, &why, "nothing of the hosts that need it is served", out);
                Clients::Nobody
            }
        }
    }

    /// Leads the host's TLS to the Service of its root; whether it has any then.
    fn passthrough(&self, host: &Arc<str>, speakers: &Speakers, out: &mut Outcome) -> bool {
        let enabled = self.objects.config.as_ref().is_some_and(|(config, _)| config.listeners.passthrough);
        let sayer = speakers.heard.iter().find(|(_, o)| o.get(Opt::SslPassthrough).is_some());
        if !enabled || host.contains(['!']) || &**host == "*" {
            if let Some((ingress, _)) = sayer {
                let why = if enabled { "it needs a host" } else { "the RouterConfig has it switched off" };
                out.tell(&ingress.meta.key, Reason::PassthroughOff, format!("ssl-passthrough of {host}: {why}"));
            }
            return false;
        }
        let root = [PathKind::Prefix, PathKind::Exact].into_iter().find_map(|kind| {
            let key = RouteKey { host: host.clone(), kind, path: "/".into() };
            self.indexes.routes.get(&key)?.values().find(|claim| !claim.canary).cloned()
        });
        let target = root.as_ref().and_then(|claim| claim.targets.first());
        let name = match target {
            Some(target) => {
                let id = Arc::new(BackendId { tcp: true, ..(*target.backend).clone() });
                out.needs.insert(Need::Backend(id.clone()));
                self.decided.backends.get(&id).map_or(names::REJECT.into(), |decision| decision.name.clone())
            }
            None => names::REJECT.into(),
        };
        out.want(Slot::Map(MapName::Passthrough, host.clone()), Value::Text(name));
        out.stores.insert(StoreId::Front);
        true
    }

    /// The certificate of hosts without one; where there is none, whoever runs HAProxy makes one up.
    fn default_certificate(&self, out: &mut Outcome) {
        let Some((config, _)) = &self.objects.config else { return };
        let Some(key) = &config.default_certificate else { return };
        out.needs.insert(Need::Secret(key.clone()));
        match self.identity(key) {
            Ok(text) => out.want(Slot::Certificate(DEFAULT_CERTIFICATE.into()), Value::Sealed(text)),
            Err(why) => {
                let object = Object::new(Kind::RouterConfig, config.meta.key.clone());
                tell_secret(
                    &object,
                    key,
                    &why,
                    "hosts without a certificate are served one that nobody has signed",
                    out,
                );
            }
        }
    }
}

/// Whether a host can have a line in the list of certificates. A client that names no host is served the default
/// certificate anyway, and nothing else would name a certificate or CA of such a host.
fn has_line(host: &str) -> bool {
    host.contains(|c| c != '*' && c != '!')
}

fn hsts(levels: &Levels) -> String {
    let mut text = format!("max-age={}", levels.int(Opt::HstsMaxAge).unwrap_or(15_768_000));
    if levels.is(Opt::HstsSubdomains) {
        text.push_str("; includeSubDomains");
    }
    if levels.is(Opt::HstsPreload) {
        text.push_str("; preload");
    }
    text
}

/// With `www.` the name without, and the other way round.
fn other_name(host: &str) -> Option<Arc<str>> {
    match host.strip_prefix("www.") {
        _ if host.starts_with('*') || host.starts_with("www.www.") => None,
        Some(rest) if rest.contains('.') => Some(rest.into()),
        Some(_) => None,
        None => Some(format!("www.{host}").into()),
    }
}
