//! How endpoints are spoken to: TLS, protocol, checks, cookie.

use super::Model;
use super::backend::COOKIE;
use super::store::{authority_name, owned_secret, tell_secret};
use super::unit::{Outcome, Reason, StoreId};
use super::words::Levels;
use crate::edge::class::Class;
use crate::edge::ids::{Kind, Object};
use crate::edge::names;
use crate::edge::options::Opt;
use crate::edge::route::BackendId;
use crate::edge::wanted::{Check, Link, Proxy, Sni, Tls};

/// What follows from a Secret of a Service that cannot be used.
const UNASKED: &str = "its endpoints are not asked";

impl Model {
    /// How they are spoken to; `None`: not at all, since what verifies them is missing.
    pub(super) fn link(&self, id: &BackendId, levels: &Levels, class: Class, out: &mut Outcome) -> Option<Link> {
        let proxy = match levels.word(Opt::ProxyProtocol) {
            Some("v1") => Proxy::V1,
            Some("v2") => Proxy::V2,
            _ => Proxy::No,
        };
        let check = (class.check || levels.is(Opt::HealthCheck)).then(|| Check {
            interval_ms: levels.int(Opt::CheckInterval).and_then(|n| u32::try_from(n).ok()).unwrap_or(2000),
            rise: levels.int(Opt::CheckRise).and_then(|n| u16::try_from(n).ok()).unwrap_or(2),
            fall: levels.int(Opt::CheckFall).and_then(|n| u16::try_from(n).ok()).unwrap_or(3),
        });
        let maxqueue = levels.int(Opt::MaxqueueServer).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let mut link = Link { proxy, check, cookie: class.cookie, maxqueue, ..Link::default() };
        if id.tcp {
            return Some(link);
        }
        let (tls, h2) = match levels.word(Opt::BackendProtocol) {
            Some("https") => (true, false),
            Some("https-h2" | "grpcs") => (true, true),
            Some("h2c" | "grpc") => (levels.is(Opt::SecureBackends), true),
            _ => (levels.is(Opt::SecureBackends), false),
        };
        if tls {
            link.tls = Some(self.tls(id, levels, h2, out)?)
        } else {
            link.h2 = h2
        };
        Some(link)
    }

    fn tls(&self, id: &BackendId, levels: &Levels, h2: bool, out: &mut Outcome) -> Option<Tls> {
        let sni = match levels.text(Opt::BackendSni) {
            None => Sni::No,
            Some(name) if &**name == "host" => Sni::Host,
            Some(name) => Sni::Name(name.clone()),
        };
        // Secrets are of the Service's namespace, also those that the RouterConfig's defaults name.
        let object = Object::new(Kind::Service, id.service.clone());
        let mut tls = Tls { h2, verify_host: levels.text(Opt::VerifyHost).cloned(), ..Tls::default() };
        if let Some(text) = levels.text(Opt::VerifyCa) {
            let key = owned_secret(&object, text, None, out)?;
            match self.authority(&key) {
                Ok(pem) => tls.authority = Some(authority_name(&key, &pem)),
                Err(why) => {
                    tell_secret(&object, &key, &why, UNASKED, out);
                    return None;
                }
            }
            out.stores.insert(StoreId::Authority(key));
            if let (None, Sni::Name(name)) = (&tls.verify_host, &sni) {
                tls.verify_host = Some(name.clone());
            }
        }
        if let Some(why) = levels.text(Opt::VerifyHost).and_then(|name| unverified(name, &tls, &sni)) {
            out.tell_object(object, Reason::InvalidOption, format!("secure-verify-hostname {why}: {UNASKED}"));
            return None;
        }
        if let Some(text) = levels.text(Opt::BackendCertificate) {
            let key = owned_secret(&object, text, None, out)?;
            match self.identity(&key) {
                Ok(_) => tls.certificate = Some(names::store(&key)),
                Err(why) => {
                    tell_secret(&object, &key, &why, UNASKED, out);
                    return None;
                }
            }
            out.stores.insert(StoreId::Certificate(key));
        }
        tls.sni = sni;
        Some(tls)
    }
}

/// Why HAProxy would not verify that name: without an authority it verifies nothing, and otherwise the name that it asks
/// by, where it asks by one.
fn unverified(name: &str, tls: &Tls, sni: &Sni) -> Option<String> {
    match (&tls.authority, sni) {
        (None, _) => Some("needs secure-verify-ca-secret".to_owned()),
        (_, Sni::Name(asked)) if **asked != *name => {
            Some(format!("{name} is not the name of secure-sni, {asked}, which is the one that is verified"))
        }
        (_, Sni::Host) => Some("cannot be told beside secure-sni host: that is the name that is verified".to_owned()),
        _ => None,
    }
}

/// Name of the cookie and what follows its value, where that differs from what the class says.
pub(super) fn cookie(levels: &Levels) -> Option<String> {
    let name = levels.text(Opt::CookieName).map_or(COOKIE, |n| n);
    let mut attributes = String::new();
    if let Some(path) = levels.text(Opt::CookiePath).filter(|p| &***p != "/") {
        attributes.push_str(&format!("; path={}", path.replace([';', ','], "")));
    }
    if let Some(domain) = levels.text(Opt::CookieDomain) {
        attributes.push_str(&format!("; domain={domain}"));
    }
    if let Some(age) = levels.int(Opt::CookieMaxAge) {
        attributes.push_str(&format!("; Max-Age={age}"));
    }
    let same_site = levels.word(Opt::CookieSameSite);
    if let Some(word) = same_site {
        let word = match word {
            "lax" => "Lax",
            "strict" => "Strict",
            _ => "None",
        };
        attributes.push_str(&format!("; SameSite={word}"));
    }
    if levels.is(Opt::CookieSecure) || same_site == Some("none") {
        attributes.push_str("; Secure");
    }
    (name != COOKIE || !attributes.is_empty()).then(|| format!("{name}|{attributes}"))
}
