//! What several units refer to: it is there once, as long as one of them does.

use std::sync::Arc;

use super::Model;
use super::state::Absent;
use super::unit::{Need, Outcome, Reason, StoreId};
use crate::edge::ids::{Key, Object};
use crate::edge::input::Secret;
use crate::edge::names;
use crate::edge::pem;
use crate::edge::users;
use crate::edge::wanted::{MapName, Slot, Value};

/// What [`Slot::Front`] holds.
pub const FRONT: &str = "sni";

/// Why a Secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SecretError {
    /// Nobody has looked yet.
    Unknown,
    /// It is not there.
    Missing,
    /// It cannot be read.
    Unreadable,
    /// It is not what it should be; what is wrong.
    Invalid(Arc<str>),
}

/// The Secret that an object names, and needs from now on. One of another namespace is none, and the object is told so,
/// with what `follows`.
pub(super) fn owned_secret(object: &Object, text: &str, follows: Option<&str>, out: &mut Outcome) -> Option<Key> {
    let namespace = &object.key.namespace;
    let name = match text.split_once('/') {
        None => text,
        Some((other, name)) if other == &**namespace => name,
        Some(_) => {
            let follows = follows.map(|follows| format!(": {follows}")).unwrap_or_default();
            let message = format!("Secret {text} is of another namespace{follows}");
            out.tell_object(object.clone(), Reason::CrossNamespace, message);
            return None;
        }
    };
    let key = Key::new(namespace.clone(), name);
    out.needs.insert(Need::Secret(key.clone()));
    Some(key)
}

/// Tells an object that a Secret cannot be used, and what follows.
pub(super) fn tell_secret(object: &Object, key: &Key, why: &SecretError, follows: &str, out: &mut Outcome) {
    let (reason, message) = match why {
        SecretError::Unknown => return,
        SecretError::Missing => (Reason::SecretNotFound, format!("Secret {key} is not there: {follows}")),
        SecretError::Unreadable => (
            Reason::SecretUnreadable,
            format!("Secret {key} cannot be read, and is as good as missing until it can be: {follows}"),
        ),
        SecretError::Invalid(words) => {
            (Reason::InvalidSecret, format!("Secret {key} cannot be used ({words}): {follows}"))
        }
    };
    out.tell_object(object.clone(), reason, message);
}

impl Model {
    fn secret(&self, key: &Key) -> Result<&Arc<Secret>, SecretError> {
        match self.objects.secrets.get(key) {
            None => Err(SecretError::Unknown),
            Some(Err(Absent::Missing)) => Err(SecretError::Missing),
            Some(Err(Absent::Unreadable)) => Err(SecretError::Unreadable),
            Some(Ok(secret)) => Ok(secret),
        }
    }

    /// A certificate with its key.
    pub(super) fn identity(&self, key: &Key) -> Result<Arc<str>, SecretError> {
        let secret = self.secret(key)?;
        let part = |name: &str| secret.data.get(name).map_or(&[][..], |bytes| bytes);
        let text = pem::identity(part("tls.crt"), part("tls.key"));
        let text = text.map_err(|why| SecretError::Invalid(why.as_str().into()))?;
        self.unless_refused(Slot::Certificate(names::store(key)), text)
    }

    /// Certificates of an authority.
    pub(super) fn authority(&self, key: &Key) -> Result<Arc<str>, SecretError> {
        let secret = self.secret(key)?;
        let bytes = secret.data.get("ca.crt").map_or(&[][..], |bytes| bytes);
        let text = pem::authority(bytes).map_err(|why| SecretError::Invalid(why.as_str().into()))?;
        self.unless_refused(Slot::Authority(authority_name(key, &text)), text)
    }

    /// Users of basic authentication.
    pub(super) fn users(&self, key: &Key) -> Result<Arc<str>, SecretError> {
        users::users(&self.secret(key)?.data).map_err(|why| SecretError::Invalid(why.into()))
    }

    fn unless_refused(&self, slot: Slot, text: Arc<str>) -> Result<Arc<str>, SecretError> {
        match self.refused.get(&slot) {
            Some((fingerprint, words)) if *fingerprint == Value::Sealed(text.clone()).fingerprint() => {
                Err(SecretError::Invalid(words.clone()))
            }
            _ => Ok(text),
        }
    }

    /// What a store holds while it is referred to.
    pub(super) fn decide_store(&mut self, id: &StoreId) -> Outcome {
        let mut out = Outcome::default();
        if !self.decided.users.contains_key(id) {
            if let StoreId::Networks(name) = id {
                self.decided.lists.remove(name);
            }
            return out;
        }
        match id {
            StoreId::Certificate(key) => {
                out.needs.insert(Need::Secret(key.clone()));
                if let Ok(text) = self.identity(key) {
                    out.want(Slot::Certificate(names::store(key)), Value::Sealed(text));
                }
            }
            StoreId::Authority(key) => {
                out.needs.insert(Need::Secret(key.clone()));
                if let Ok(text) = self.authority(key) {
                    out.want(Slot::Authority(authority_name(key, &text)), Value::Sealed(text));
                }
            }
            StoreId::Users(key) => {
                out.needs.insert(Need::Secret(key.clone()));
                if let Ok(text) = self.users(key) {
                    out.want(Slot::Users(names::store(key)), Value::Sealed(text));
                }
            }
            StoreId::Front => out.want(Slot::Front, Value::Text(FRONT.into())),
            StoreId::Networks(name) => {
                if let Some(list) = self.decided.lists.get(name) {
                    for (key, inside) in list.keys() {
                        let value = if inside { "y" } else { "n" };
                        let slot = Slot::Map(MapName::Networks, format!("{name}|{key}").into());
                        out.want(slot, Value::Text(value.into()));
                    }
                }
            }
        }
        out
    }
}

/// The name of a CA says its contents: what is made with it never changes under it.
pub(super) fn authority_name(key: &Key, text: &str) -> Arc<str> {
    names::store_of(key, names::digest(text.as_bytes()))
}
