//! Users of basic authentication, as Secrets hold them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Users that one Secret may name.
const MAX_USERS: usize = 1000;
/// Letters of a name, and of a hash.
const MAX_LETTERS: usize = 256;
/// Rounds of a hash that are too many to be computed on the way of a request.
const MAX_ROUNDS: u32 = 100_000;
/// Cost of bcrypt that is too high.
const MAX_COST: u32 = 14;

/// Lines `name:hash`, sorted, from a Secret: the key `auth` in the form of htpasswd, or one key a user. `name::text`
/// has a password in clear.
///
/// # Errors
/// What is wrong, without any of the contents.
pub fn users(data: &BTreeMap<Arc<str>, Arc<[u8]>>) -> Result<Arc<str>, String> {
    let mut users: BTreeMap<String, String> = BTreeMap::new();
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "it is not text".to_owned());
    match data.get("auth") {
        Some(file) => {
            for (number, line) in text(file)?.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let (name, hash) = line.split_once(':').ok_or(format!("line {} has no colon", number + 1))?;
                let hash = match hash.strip_prefix(':') {
                    Some(clear) => format!("{{PLAIN}}{clear}"),
                    None => hash.to_owned(),
                };
                add(&mut users, name, &hash).map_err(|why| format!("line {}: {why}", number + 1))?;
            }
        }
        None => {
            for (name, hash) in data {
                add(&mut users, name, text(hash)?.trim()).map_err(|why| format!("user {name}: {why}"))?;
            }
        }
    }
    if users.is_empty() {
        return Err("it names no user".into());
    }
    if users.len() > MAX_USERS {
        return Err(format!("it names more than {MAX_USERS} users"));
    }
    Ok(users.into_iter().map(|(name, hash)| format!("{name}:{hash}\n")).collect::<String>().into())
}

fn add(users: &mut BTreeMap<String, String>, name: &str, hash: &str) -> Result<(), &'static str> {
    let plain = |text: &str| !text.is_empty() && text.len() <= MAX_LETTERS && !text.chars().any(char::is_control);
    if !plain(name) || name.contains(':') {
        return Err("this is no name");
    }
    if !plain(hash) {
        return Err("there is no hash");
    }
    supported(hash)?;
    // The first of a name counts, as in Apache.
    users.entry(name.to_owned()).or_insert_with(|| hash.to_owned());
    Ok(())
}

/// Whether the verifier can and will compute it.
fn supported(hash: &str) -> Result<(), &'static str> {
    if hash.starts_with("{PLAIN}") || hash.starts_with("{SHA}") || hash.starts_with("$apr1$") || hash.starts_with("$1$")
    {
        return Ok(());
    }
    if let Some(rest) = ["$2a$", "$2b$", "$2y$"].iter().find_map(|p| hash.strip_prefix(p)) {
        let cost = rest.split('$').next().and_then(|c| c.parse::<u32>().ok()).ok_or("its hash is broken")?;
        return if cost <= MAX_COST { Ok(()) } else { Err("its hash costs too much: at most 14 of bcrypt") };
    }
    if let Some(rest) = ["$5$", "$6$"].iter().find_map(|p| hash.strip_prefix(p)) {
        let rounds = rest.strip_prefix("rounds=").and_then(|r| r.split('$').next());
        let rounds = rounds.map_or(Some(5000), |r| r.parse::<u32>().ok()).ok_or("its hash is broken")?;
        return if rounds <= MAX_ROUNDS { Ok(()) } else { Err("its hash costs too much: at most 100,000 rounds") };
    }
    Err("its hash is of a kind that is not supported (bcrypt, SHA-256, SHA-512, apr1, MD5, {SHA})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(entries: &[(&str, &str)]) -> BTreeMap<Arc<str>, Arc<[u8]>> {
        entries.iter().map(|(k, v)| ((*k).into(), v.as_bytes().into())).collect()
    }

    #[test]
    fn both_forms_of_secrets() {
        let file = users(&secret(&[("auth", "# people\nbob:$apr1$x$y\n\nann::se cret\nbob:{SHA}late\n")])).unwrap();
        assert_eq!(&*file, "ann:{PLAIN}se cret\nbob:$apr1$x$y\n");
        let map = users(&secret(&[("ann", "$2y$10$abc\n"), ("bob", "$6$rounds=5000$a$b")])).unwrap();
        assert_eq!(&*map, "ann:$2y$10$abc\nbob:$6$rounds=5000$a$b\n");
    }

    #[test]
    fn what_is_broken_or_too_dear_is_refused_without_its_contents() {
        for bad in
            ["", "ann", "ann:", ":x", "ann:plain", "ann:$2y$15$x", "ann:$6$rounds=999999999$a$b", "ann:$6$rounds=x$a"]
        {
            let why = users(&secret(&[("auth", bad)])).unwrap_err();
            assert!(!why.contains("999") && !why.contains("plain"), "{why}");
        }
        assert!(users(&secret(&[])).is_err());
        assert!(users(&[("auth".into(), Arc::from([0xff_u8].as_slice()))].into()).is_err());
    }
}
