//! Who may: basic authentication against a Secret's users, and asking another service.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::Model;
use super::route_options::Refusal;
use super::store::{owned_secret, tell_secret};
use super::unit::{Outcome, Reason, StoreId};
use super::words::Levels;
use crate::edge::address;
use crate::edge::names;
use crate::edge::options::{Opt, Value, absolute};
use crate::edge::route::Claim;
use crate::edge::wanted::{MapName, Slot, Value as Held};

impl Model {
    /// Basic authentication, where it is asked for.
    pub(super) fn basic_auth(
        &self,
        claim: &Claim,
        levels: &Levels,
        id: &str,
        flags: &mut String,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let named = levels.text(Opt::AuthSecret);
        match (levels.word(Opt::AuthType), named) {
            (Some("none"), _) | (None, None) => return Ok(()),
            _ => {}
        }
        let Some(text) = named else {
            out.tell_object(
                claim.object.clone(),
                Reason::SecretNotFound,
                "auth-type asks for users, and no auth-secret names them: nobody may come",
            );
            return Err(names::UNAVAILABLE);
        };
        let Some(key) = owned_secret(&claim.object, text, Some("nobody may come"), out) else {
            return Err(names::UNAVAILABLE);
        };
        if let Err(why) = self.users(&key) {
            tell_secret(&claim.object, &key, &why, "nobody may come", out);
            return Err(names::UNAVAILABLE);
        }
        let realm = levels.text(Opt::AuthRealm).map_or("Authentication required", |r| r);
        let value = format!("{}|{realm}", names::store(&key));
        out.stores.insert(StoreId::Users(key));
        out.want(Slot::Map(MapName::BasicAuth, id.into()), Held::Text(value.into()));
        flags.push('a');
        Ok(())
    }

    /// Another service is asked, where an option names one. The value is
    /// `method|scheme|address|host|path|sign-in|headers of the request|headers of its answer`.
    pub(super) fn external_auth(
        &self,
        claim: &Claim,
        levels: &Levels,
        id: &str,
        flags: &mut String,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let Some(url) = levels.text(Opt::AuthUrl) else { return Ok(()) };
        let Some((scheme, host, port, path)) = absolute(url) else { return Err(names::UNAVAILABLE) };
        let host: Arc<str> = host.into();
        let found = self.resolve(&host, out);
        let (good, bad): (Vec<IpAddr>, Vec<IpAddr>) = found.iter().partition(|a| address::refused(**a).is_none());
        if let Some((ip, why)) = bad.first().and_then(|ip| Some((ip, address::refused(*ip)?))) {
            out.tell_object(
                claim.object.clone(),
                Reason::AddressRefused,
                format!("auth-url leads to {ip}, {why}: it is not asked there"),
            );
        }
        let Some(address) = good.first() else {
            let known = self.objects.names.contains_key(&host);
            if known && bad.is_empty() {
                out.tell_object(
                    claim.object.clone(),
                    Reason::NameNotResolved,
                    format!("auth-url: {host} does not resolve: nobody may come"),
                );
            }
            return Err(names::UNAVAILABLE);
        };
        let at = SocketAddr::new(*address, port);
        let method = levels.word(Opt::AuthMethod).unwrap_or("get").to_ascii_uppercase();
        let path = match path {
            "" => "/".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        let authority = if (scheme, port) == ("http", 80) || (scheme, port) == ("https", 443) {
            host.to_string()
        } else {
            format!("{host}:{port}")
        };
        let names_of = |opt| match levels.get(opt) {
            Some(Value::List(list)) => list.join(",").to_ascii_lowercase(),
            _ => String::new(),
        };
        let sign_in = levels.text(Opt::AuthSignin).map_or("", |s| s);
        let (request, answer) = (names_of(Opt::AuthRequestHeaders), names_of(Opt::AuthResponseHeaders));
        let value = format!("{method}|{scheme}|{at}|{authority}|{path}|{sign_in}|{request}|{answer}");
        out.want(Slot::Map(MapName::ExternalAuth, id.into()), Held::Text(value.into()));
        flags.push('x');
        Ok(())
    }
}
