//! What is said about a route becomes flags in its value and entries of maps under its name.
//!
//! | flag | what | flag | what |
//! |---|---|---|---|
//! | `s` | redirect to TLS | `b` | size of bodies |
//! | `S` | its own status | `c` | CORS |
//! | `r` | redirect of everything | `q` | headers of the request |
//! | `R` | redirect of `/` | `p` | headers of the answer |
//! | `i` | allow list | `z` | the path is replaced, or its beginning |
//! | `d` | deny list | `Z` | the path is replaced by a regular expression |
//! | `a` | basic authentication | `u` | another Host |
//! | `x` | external authentication | `F` | fallback |
//! | `l` | limits | `t` | timeouts |
//! | `w` | alternatives | `A` `I` `N` | X-Forwarded-For: append, if none, never |
//! | `m` `o` | a client's certificate is required, asked for | `k` | and told to the Service |

use std::fmt::Write as _;
use std::sync::Arc;

use super::Model;
use super::ingress::fallback;
use super::state::HostDecision;
use super::unit::{Outcome, StoreId};
use super::words::Levels;
use crate::edge::address::Networks;
use crate::edge::headers;
use crate::edge::names;
use crate::edge::options::{Opt, Value};
use crate::edge::route::{Claim, PathKind, RouteKey};
use crate::edge::wanted::{MapName, Slot, Value as Held};

/// The name of a fixed backend that answers instead.
pub(super) type Refusal = &'static str;

/// What is collected for one route.
struct Route<'a> {
    id: &'a str,
    flags: &'a mut String,
    out: &'a mut Outcome,
}

impl Route<'_> {
    fn set(&mut self, map: MapName, value: impl Into<Arc<str>>) {
        self.out.want(Slot::Map(map, self.id.into()), Held::Text(value.into()));
    }

    fn flag(&mut self, flag: char) {
        if !self.flags.contains(flag) {
            self.flags.push(flag);
        }
    }
}

impl Model {
    /// The redirect to TLS.
    pub(super) fn redirects(
        &self,
        host: &HostDecision,
        levels: &Levels,
        id: &str,
        flags: &mut String,
        out: &mut Outcome,
    ) {
        let redirect = match levels.word(Opt::SslRedirect) {
            Some("false") => false,
            Some("force") => true,
            _ => host.tls,
        };
        if !redirect {
            return;
        }
        let mut route = Route { id, flags, out };
        route.flag('s');
        if let Some(code) = levels.word(Opt::SslRedirectCode).filter(|code| *code != "308") {
            route.flag('S');
            route.set(MapName::SslCode, code);
        }
    }

    /// Everything else that is said about a route; a refusal if it must not be served as it stands.
    pub(super) fn route_flags(
        &self,
        key: &RouteKey,
        claim: &Claim,
        levels: &Levels,
        id: &str,
        flags: &mut String,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let (kept_flags, kept_slots, kept_lists) = (flags.len(), out.slots.len(), out.lists.len());
        let kept_stores = out.stores.clone();
        let mut route = Route { id, flags, out };
        lists(claim, levels, &mut route);
        let guarded = self.basic_auth(claim, levels, route.id, route.flags, route.out);
        let guarded = guarded.and_then(|()| self.external_auth(claim, levels, route.id, route.flags, route.out));
        if let Err(refusal) = guarded {
            flags.truncate(kept_flags);
            out.slots.truncate(kept_slots);
            out.lists.truncate(kept_lists);
            out.stores = kept_stores;
            return Err(refusal);
        }
        redirect(levels, &mut route);
        limits(claim, levels, &mut route);
        cors(levels, &mut route);
        header_options(levels, &mut route);
        rewrite(key, levels, &mut route);
        timeouts(levels, &mut route);
        if let Some(host) = levels.text(Opt::UpstreamHost) {
            route.flag('u');
            route.set(MapName::UpstreamHost, host.clone());
        }
        let port = claim.targets.first().map(|target| &target.backend.port);
        if let Some(id) = port.and_then(|port| fallback(&claim.object.key, &claim.options, port)) {
            let decision = self.backend_decision(&id.into(), route.out);
            if !decision.refused {
                route.flag('F');
                route.set(MapName::Fallback, decision.name);
            }
        }
        Ok(())
    }
}

fn redirect(levels: &Levels, route: &mut Route<'_>) {
    let permanent =
        levels.text(Opt::PermanentRedirect).map(|to| (to, levels.word(Opt::PermanentCode).unwrap_or("301")));
    let temporal = levels.text(Opt::TemporalRedirect).map(|to| (to, levels.word(Opt::TemporalCode).unwrap_or("302")));
    if let Some((to, code)) = permanent.or(temporal) {
        route.flag('r');
        route.set(MapName::Redirect, format!("{code}|{to}"));
    }
    if let Some(root) = levels.text(Opt::AppRoot).filter(|root| &***root != "/") {
        route.flag('R');
        route.set(MapName::AppRoot, root.clone());
    }
}

/// The name of a list says whose it is and what is in it.
fn list(route: &mut Route<'_>, owner: &str, networks: &Arc<Networks>) -> Arc<str> {
    let digest = names::digest(format!("{networks:?}").as_bytes());
    let name: Arc<str> = format!("{owner}.{digest:016x}").into();
    route.out.stores.insert(StoreId::Networks(name.clone()));
    route.out.lists.push((name.clone(), networks.clone()));
    name
}

fn owner(claim: &Claim) -> String {
    format!("{}_{}", claim.object.key.namespace, claim.object.key.name)
}

fn networks(value: &Value) -> Option<&Arc<Networks>> {
    match value {
        Value::Networks(networks) => Some(networks),
        _ => None,
    }
}

/// Of two allow lists both hold, of two deny lists either. The RouterConfig's counts where nothing else is said.
fn lists(claim: &Claim, levels: &Levels, route: &mut Route<'_>) {
    type Join = fn(&Networks, &Networks) -> Networks;
    let kinds: [(Opt, MapName, char, Join); 2] = [
        (Opt::AllowList, MapName::AllowList, 'i', Networks::and),
        (Opt::DenyList, MapName::DenyList, 'd', Networks::or),
    ];
    for (opt, map, flag, join) in kinds {
        let tenant = levels.tenants(opt).filter_map(networks);
        let said = tenant.cloned().reduce(|a, b| Arc::new(join(&a, &b)));
        if let Some(networks) = said.or_else(|| levels.get(opt).and_then(networks).cloned()) {
            let name = list(route, &owner(claim), &networks);
            route.flag(flag);
            route.set(map, name);
        }
    }
}

fn limits(claim: &Claim, levels: &Levels, route: &mut Route<'_>) {
    let minute = levels.word(Opt::LimitPeriod) == Some("1m");
    let rps = levels.int(Opt::LimitRps);
    let (second, per_minute) = if minute { (None, rps) } else { (rps, None) };
    let per_minute = [per_minute, levels.int(Opt::LimitRpm)].into_iter().flatten().min();
    let all = [
        (MapName::RateSecond, second),
        (MapName::RateMinute, per_minute),
        (MapName::Concurrent, levels.int(Opt::LimitConnections)),
    ];
    for (map, limit) in all {
        if let Some(limit) = limit {
            route.flag('l');
            route.set(map, limit.to_string());
        }
    }
    if let (true, Some(networks)) = (route.flags.contains('l'), levels.get(Opt::LimitExempt).and_then(networks)) {
        let name = list(route, &owner(claim), &networks.clone());
        route.set(MapName::LimitExempt, name);
    }
    if let Some(bytes) = levels.int(Opt::BodySize).filter(|bytes| *bytes > 0) {
        route.flag('b');
        route.set(MapName::BodySize, bytes.to_string());
    }
}

fn cors(levels: &Levels, route: &mut Route<'_>) {
    if !levels.is(Opt::CorsEnable) {
        return;
    }
    route.flag('c');
    let any: Arc<[Arc<str>]> = [Arc::from("*")].into();
    let origins = match levels.get(Opt::CorsOrigin) {
        Some(Value::List(origins)) => origins.clone(),
        _ => any,
    };
    for origin in &*origins {
        let slot = Slot::Map(MapName::CorsOrigin, format!("{}|{origin}", route.id).into());
        if !route.out.slots.iter().any(|(s, _)| *s == slot) {
            route.out.want(slot, Held::Text("y".into()));
        }
    }
    let text = |opt, default: &str| levels.text(opt).map_or_else(|| default.to_owned(), ToString::to_string);
    let definition = |opt: Opt| opt.definition().default;
    route.set(MapName::CorsMethods, text(Opt::CorsMethods, definition(Opt::CorsMethods)));
    route.set(MapName::CorsHeaders, text(Opt::CorsHeaders, definition(Opt::CorsHeaders)));
    route.set(MapName::CorsMaxAge, (levels.int(Opt::CorsMaxAge).unwrap_or(86_400_000) / 1000).to_string());
    if let Some(expose) = levels.text(Opt::CorsExpose) {
        route.set(MapName::CorsExpose, expose.clone());
    }
    if levels.is(Opt::CorsCredentials) {
        route.set(MapName::CorsCredentials, "true");
    }
}

fn header_options(levels: &Levels, route: &mut Route<'_>) {
    let kinds = [
        (Opt::RequestSet, MapName::RequestSet, 'q'),
        (Opt::RequestAdd, MapName::RequestAdd, 'q'),
        (Opt::RequestDel, MapName::RequestDel, 'q'),
        (Opt::ResponseSet, MapName::ResponseSet, 'p'),
        (Opt::ResponseAdd, MapName::ResponseAdd, 'p'),
        (Opt::ResponseDel, MapName::ResponseDel, 'p'),
    ];
    for (opt, map, flag) in kinds {
        let encoded = match levels.get(opt) {
            Some(Value::Headers(list)) => headers::fields(list),
            Some(Value::List(list)) => headers::names(list),
            _ => continue,
        };
        route.flag(flag);
        route.set(map, encoded);
    }
    match levels.word(Opt::ForwardedFor) {
        Some("append") => route.flag('A'),
        Some("if-none") => route.flag('I'),
        Some("never") => route.flag('N'),
        _ => {}
    }
}

fn rewrite(key: &RouteKey, levels: &Levels, route: &mut Route<'_>) {
    let target = levels.text(Opt::RewriteTarget);
    let prefix = levels.text(Opt::RewritePrefix);
    let Some(to) = target.or(prefix) else { return };
    if key.kind == PathKind::Regex {
        let mut pattern = format!("^{}\\|(?:{})", names::literal(route.id), key.path);
        // What follows the match is not kept, whether the pattern says so or not.
        pattern.push_str(".*$");
        let mut template = to.replace('\\', "");
        for digit in '0'..='9' {
            template = template.replace(&format!("${digit}"), &format!("\\{digit}"));
        }
        route.flag('Z');
        route.out.want(Slot::Map(MapName::RewriteRegex, pattern.into()), Held::Text(template.into()));
        return;
    }
    route.flag('z');
    if target.is_some() || key.kind == PathKind::Exact {
        route.set(MapName::RewriteTo, to.clone());
        return;
    }
    // The rest of the path brings its own slash.
    let to = to.trim_end_matches('/');
    if !to.is_empty() {
        route.set(MapName::RewriteTo, to);
    }
    let cut = key.path.trim_end_matches('/').len();
    route.set(MapName::RewriteCut, cut.to_string());
}

fn timeouts(levels: &Levels, route: &mut Route<'_>) {
    let kinds = [
        (Opt::TimeoutConnect, MapName::TimeoutConnect),
        (Opt::TimeoutServer, MapName::TimeoutServer),
        (Opt::TimeoutTunnel, MapName::TimeoutTunnel),
        (Opt::TimeoutQueue, MapName::TimeoutQueue),
    ];
    for (opt, map) in kinds {
        if let Some(ms) = levels.int(opt) {
            route.flag('t');
            let mut text = String::new();
            let _ = write!(text, "{ms}");
            route.set(map, text);
        }
    }
}
