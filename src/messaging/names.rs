//! Names on data planes: prefixes and the form in which two addresses are the same.

use std::sync::Arc;

use super::ids::{Key, Slot};

/// The form in which addresses are compared: routers take `.` and `/` for the same separator, so `a.b` and `a/b` are
/// one address.
pub fn canonical(address: &str) -> Arc<str> {
    if address.contains('/') { address.replace('/', ".").into() } else { address.into() }
}

/// What stands before every address of a space on routers and brokers. A space's name has no dot and a namespace's
/// neither, so two spaces never share a prefix.
pub fn prefix(space: &Key, single: bool) -> Arc<str> {
    if single { "".into() } else { format!("{}.{}/", space.namespace, space.name).into() }
}

/// The broker-side name of an address.
pub fn slot(prefix: &str, address: &str) -> Slot {
    format!("{prefix}{address}").into()
}

/// Whether no Address can have this address: the schema refuses it (but for what cannot be seen, which is not looked at).
pub fn impossible(address: &str) -> bool {
    let edge = |c: char| matches!(c, '.' | '/');
    address.contains(['*', '#', '?'])
        || address.contains("::")
        || ["$", "_", "activemq."].iter().any(|beginning| address.starts_with(beginning))
        || address.starts_with(edge)
        || address.ends_with(edge)
        || address.as_bytes().windows(2).any(|pair| pair.iter().all(|c| matches!(c, b'.' | b'/')))
}

/// The space that a broker-side name belongs to, if it has the form of a shared prefix.
pub fn space_of(slot: &str) -> Option<Key> {
    let (space, _) = slot.split_once('/')?;
    let (namespace, name) = space.split_once('.')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains('.')).then(|| Key::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_slashes_are_one_separator() {
        assert_eq!(canonical("a/b.c"), canonical("a.b/c"));
        assert_ne!(canonical("a.b"), canonical("ab"));
    }

    #[test]
    fn what_the_schema_refuses_as_an_address_is_known() {
        for never in ["a#b", "a*", "a?", "t::s", "$x", "_x", "activemq.x", ".a", "a/", "a./b"] {
            assert!(impossible(never), "{never}");
        }
        for may in ["a", "a.b/c", "a:b", "a$_", "activemq"] {
            assert!(!impossible(may), "{may}");
        }
    }

    #[test]
    fn a_slot_tells_its_space() {
        let space = Key::new("tenant", "orders");
        let name = slot(&prefix(&space, false), "eu/new.orders");
        assert_eq!(&*name, "tenant.orders/eu/new.orders");
        assert_eq!(space_of(&name), Some(space));
        assert_eq!(space_of("DLQ"), None);
        assert_eq!(space_of("a.b.c/d"), None);
    }
}
