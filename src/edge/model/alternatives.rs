//! What a request may go to instead: canaries, shares of several targets, and claims that ask more of a request.
//!
//! The text is read by `waystation.lua`: entries separated by `;`, tried in order. An entry is conditions separated by
//! `&`, `>`, and what the route then leads to. A condition is `h,name,value` (header), `c,name,value` (cookie),
//! `q,name,value` (query), `m,,value` (method). Entries with `w,number` instead are shares: one of them is drawn.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Model;
use super::route::Winners;
use super::state::HostDecision;
use super::unit::Outcome;
use crate::edge::options::{Opt, Value};
use crate::edge::route::{Claim, Condition, RouteKey};

impl Model {
    /// The alternatives of a route to `base`, where it has any.
    pub(super) fn alternatives(
        &self,
        key: &RouteKey,
        host: &HostDecision,
        winners: &Winners<'_>,
        base: &str,
        id: &str,
        out: &mut Outcome,
    ) -> Option<String> {
        let mut list = String::new();
        for (number, claim) in winners.conditional.iter().enumerate() {
            let id = format!("{id}~{number}");
            let value = self.claim_value(key, host, claim, &id, out);
            push(&mut list, &claim.conditions.iter().map(condition).collect::<Vec<_>>().join("&"), &value);
        }
        let Some(claim) = winners.base else { return (!list.is_empty()).then_some(list) };
        let mut shares: Vec<(u64, String)> = Vec::new();
        if claim.targets.len() > 1 {
            for target in &claim.targets {
                let name = self.backend_decision(&target.backend, out).name;
                shares.push((u64::from(target.weight), leading_to(base, &name)));
            }
        }
        if let Some(canary) = winners.canary
            && let Some(target) = canary.targets.first()
        {
            let name = self.backend_decision(&target.backend, out).name;
            let value = leading_to(base, &name);
            by_request(&mut list, canary, &value, base);
            if let Some((weight, total)) = share(canary) {
                if shares.is_empty() {
                    shares.push((total - weight, base.to_owned()));
                } else {
                    let sum = shares.iter().map(|(w, _)| w).sum::<u64>().max(1);
                    shares.iter_mut().for_each(|(w, _)| *w *= total - weight);
                    shares.push((weight * sum, value.clone()));
                }
                if shares.len() == 1 {
                    shares.push((weight, value));
                }
            }
        }
        for (weight, value) in shares.into_iter().filter(|(weight, _)| *weight > 0) {
            push(&mut list, &format!("w,{weight}"), &value);
        }
        (!list.is_empty()).then_some(list)
    }
}

/// The same flags and options, another backend. What is refused stays refused: its options were not looked at.
fn leading_to(base: &str, backend: &Arc<str>) -> String {
    if base.starts_with('_') {
        return base.to_owned();
    }
    match base.split_once('|') {
        Some((_, rest)) => format!("{backend}|{rest}"),
        None => backend.to_string(),
    }
}

/// Header, then cookie, as ingress-nginx has it.
fn by_request(list: &mut String, canary: &Claim, value: &str, base: &str) {
    let text = |opt| match canary.options.get(opt) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    if let Some(name) = text(Opt::CanaryHeader) {
        let header = |value: &str| Condition::Header(name.to_ascii_lowercase().into(), value.into());
        match text(Opt::CanaryHeaderValue) {
            Some(wanted) => push(list, &condition(&header(wanted)), value),
            None => {
                push(list, &condition(&header("always")), value);
                push(list, &condition(&header("never")), base);
            }
        }
    }
    if let Some(name) = text(Opt::CanaryCookie) {
        push(list, &condition(&Condition::Cookie(name.clone(), "always".into())), value);
        push(list, &condition(&Condition::Cookie(name.clone(), "never".into())), base);
    }
}

/// Weight and total.
fn share(canary: &Claim) -> Option<(u64, u64)> {
    let int = |opt, default| match canary.options.get(opt) {
        Some(Value::Int(number)) => *number,
        _ => default,
    };
    let total = int(Opt::CanaryTotal, 100).max(1);
    let weight = int(Opt::CanaryWeight, 0).min(total);
    (weight > 0).then_some((weight, total))
}

fn push(list: &mut String, conditions: &str, value: &str) {
    if !list.is_empty() {
        list.push(';');
    }
    list.push_str(conditions);
    list.push('>');
    list.push_str(&escaped(value));
}

fn condition(condition: &Condition) -> String {
    let (kind, name, value) = match condition {
        Condition::Method(method) => ('m', "", method),
        Condition::Header(name, value) => ('h', &**name, value),
        Condition::Cookie(name, value) => ('c', &**name, value),
        Condition::Query(name, value) => ('q', &**name, value),
    };
    format!("{kind},{},{}", escaped(name), escaped(value))
}

/// Without what separates entries and their parts, and without blanks.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | b',' | b';' | b'&' | b'>' | 0..=32 | 127.. => {
                let _ = write!(out, "%{byte:02X}");
            }
            _ => out.push(char::from(byte)),
        }
    }
    out
}
