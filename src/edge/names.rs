//! Names of what is made in HAProxy, and how tenants' text is made fit to be a key of a map. Names follow from the
//! objects alone, so that two agents and a restarted one come to the same; none holds a character that means something
//! in a command or a file.

use std::net::IpAddr;
use std::sync::Arc;

use super::class::Class;
use super::ids::Key;
use super::input::Port;

/// Characters that a path may have, in its raw form.
const MAX_PATH: usize = 2048;
/// Characters of a regular expression.
const MAX_REGEX: usize = 512;

/// Backend of what is refused since something is missing.
pub const UNAVAILABLE: &str = "_503";
/// Backend of bytes that lead nowhere.
pub const REJECT: &str = "_reject";
/// Backend of what is not there.
pub const NOT_FOUND: &str = "_404";

/// Letters, digits, `-` and `.` as they are, anything else as `_` and its hexadecimal bytes.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => out.push(char::from(byte)),
            other => out.push_str(&format!("_{other:02x}")),
        }
    }
    out
}

/// The backend of a Service's port: `namespace:service:port`, and the class where it is not the default one.
pub fn backend(service: &Key, port: &Port, class: Class) -> Arc<str> {
    let port = match port {
        Port::Number(number) => number.to_string(),
        Port::Name(name) => clean(name),
    };
    format!("{}:{}:{port}{}", clean(&service.namespace), clean(&service.name), class.suffix()).into()
}

/// The server at an address: `10.0.0.1_8080`, and a mark where it is spoken to in a way of its own.
pub fn server(address: IpAddr, port: u16, mark: Option<u64>) -> Arc<str> {
    match mark {
        None => format!("{address}_{port}").into(),
        Some(mark) => format!("{address}_{port}_{:08x}", mark & 0xffff_ffff).into(),
    }
}

/// A store named by its Secret.
pub fn store(secret: &Key) -> Arc<str> {
    // Neither part has an underscore of its own.
    format!("{}_{}", clean(&secret.namespace), clean(&secret.name)).into()
}

/// A store whose contents never change under its name.
pub fn store_of(secret: &Key, contents: u64) -> Arc<str> {
    format!("{}_{contents:016x}", store(secret)).into()
}

/// FNV-1a: the same in every process and version, for names. Whoever can make two texts collide here shares a
/// namespace with both.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A host in the form of keys: lower case, without a final dot. Empty means every host and becomes `*`.
///
/// # Errors
/// What is wrong, for people.
pub fn host(text: &str) -> Result<Arc<str>, String> {
    let lower = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if text.is_empty() || text == "*" {
        return Ok("*".into());
    }
    let labels = lower.strip_prefix("*.").unwrap_or(&lower);
    let label = |l: &str| {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        !l.is_empty() && l.len() <= 63 && l.bytes().all(fits)
    };
    if lower.len() > 253 || !labels.split('.').all(label) {
        return Err(format!("{:?} is no host name", shorten(text)));
    }
    Ok(lower.into())
}

/// Whether `host` is met by `pattern`: the same, or `*.` and all but its first label.
pub fn covers(pattern: &str, host: &str) -> bool {
    pattern == host
        || pattern
            .strip_prefix("*.")
            .is_some_and(|rest| host.split_once('.').is_some_and(|(first, tail)| first != "*" && tail == rest))
}

/// A path as clients send it: what cannot stand in a request line is percent-encoded.
///
/// # Errors
/// What is wrong, for people.
pub fn path(text: &str) -> Result<Arc<str>, String> {
    if text.is_empty() {
        return Ok("/".into());
    }
    if !text.starts_with('/') {
        return Err(format!("path {:?} does not start with /", shorten(text)));
    }
    if text.contains(['?', '#']) {
        return Err(format!("path {:?} has a query or a fragment", shorten(text)));
    }
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            0..=31 | 127 => return Err(format!("path {:?} has a control character", shorten(text))),
            b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 128.. => {
                out.push_str(&format!("%{byte:02X}"));
            }
            _ => out.push(char::from(byte)),
        }
    }
    if out.len() > MAX_PATH {
        return Err(format!("path {:?} is longer than {MAX_PATH} bytes", shorten(text)));
    }
    Ok(out.into())
}

/// A regular expression for paths, if it is one that cannot be made to run for long or reach beyond its own host.
///
/// # Errors
/// What is wrong, for people.
pub fn regex(text: &str) -> Result<Arc<str>, String> {
    let shown = shorten(text);
    if text.len() > MAX_REGEX {
        return Err(format!("the regular expression {shown:?} is longer than {MAX_REGEX} characters"));
    }
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(format!("the regular expression {shown:?} has the character {bad:?}"));
    }
    let refuse = |why: &str| Err(format!("the regular expression {shown:?} {why}"));
    // For each open group: whether something in it repeats without bound.
    let mut groups: Vec<bool> = vec![false];
    let mut closed_repeats = None;
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        let inner = closed_repeats.take();
        match byte {
            b'\\' => match bytes.next() {
                None => return refuse("ends with a backslash"),
                Some((_, b'1'..=b'9' | b'g' | b'k' | b'K' | b'Q' | b'E' | b'R')) => {
                    return refuse("has an escape that is not supported");
                }
                Some(_) => {}
            },
            b'[' => {
                // A bracket first, or after the caret, is a member.
                if bytes.peek().is_some_and(|(_, b)| *b == b'^') {
                    bytes.next();
                }
                if bytes.peek().is_some_and(|(_, b)| *b == b']') {
                    bytes.next();
                }
                loop {
                    match bytes.next() {
                        None => return refuse("has a bracket that is not closed"),
                        Some((_, b'\\')) => {
                            bytes.next();
                        }
                        Some((_, b']')) => break,
                        Some(_) => {}
                    }
                }
            }
            b'(' => {
                let rest = &text[at + 1..];
                if rest.starts_with('*')
                    || (rest.starts_with('?') && !rest.starts_with("?:") && !rest.starts_with("?i:"))
                {
                    return refuse("has a group that is not supported");
                }
                if rest.starts_with('?') {
                    bytes.next();
                }
                groups.push(false);
            }
            b')' => {
                let repeats = groups.pop().unwrap_or(false);
                let Some(outer) = groups.last_mut() else {
                    return refuse("has a parenthesis that is not opened");
                };
                *outer |= repeats;
                closed_repeats = Some(repeats);
            }
            b'*' | b'+' | b'{' => {
                let bounded = byte == b'{' && !text[at..].split('}').next().is_some_and(|b| b.ends_with(','));
                if inner == Some(true) {
                    return refuse("repeats what repeats");
                }
                if let (false, Some(group)) = (bounded, groups.last_mut()) {
                    *group = true;
                }
                if at == 0 {
                    return refuse("starts with a repetition");
                }
            }
            _ => {}
        }
    }
    if groups.len() != 1 {
        return refuse("has a parenthesis that is not closed");
    }
    Ok(text.into())
}

/// Text that a regular expression takes for itself.
pub fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if !c.is_ascii_alphanumeric() && !matches!(c, '/' | '-' | '_') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The beginning of a text, for messages.
pub fn shorten(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_distinct() {
        let service = Key::new("prod", "web");
        assert_eq!(&*backend(&service, &Port::Number(80), Class::DEFAULT), "prod:web:80");
        let sticky = Class { cookie: true, ..Class::DEFAULT };
        assert_eq!(&*backend(&service, &Port::Name("http".into()), sticky), "prod:web:http:http-roundrobin-cookie");
        assert_eq!(&*backend(&service, &Port::Name("a;b c".into()), Class::DEFAULT), "prod:web:a_3bb_20c");
        assert_eq!(&*server("fd00::1".parse().unwrap(), 8080, None), "fd00::1_8080");
        assert_eq!(&*store(&Key::new("prod", "web.tls")), "prod_web.tls");
        assert_ne!(store(&Key::new("a", "b_c")), store(&Key::new("a_b", "c")));
    }

    #[test]
    fn hosts() {
        assert_eq!(&*host("WWW.Example.com.").unwrap(), "www.example.com");
        assert_eq!(&*host("").unwrap(), "*");
        assert_eq!(&*host("*.a.b").unwrap(), "*.a.b");
        for bad in ["a..b", "a.*.b", "*a.b", "a b", "a;b", "a/b", "é.b", "*.", "a..", ".a", "a\nb", "a:80"] {
            assert!(host(bad).is_err(), "{bad:?}");
        }
        assert!(covers("*.a.b", "x.a.b") && covers("a.b", "a.b"));
        assert!(!covers("*.a.b", "a.b") && !covers("*.a.b", "x.y.a.b") && !covers("*.a.b", "*.x.a.b"));
    }

    #[test]
    fn paths_are_as_clients_send_them() {
        assert_eq!(&*path("").unwrap(), "/");
        assert_eq!(&*path("/a b/é").unwrap(), "/a%20b/%C3%A9");
        assert_eq!(&*path("/a%20b/(x)").unwrap(), "/a%20b/(x)");
        for bad in ["a", "/a?b", "/a#b", "/a\nb", "/\u{7f}"] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn regular_expressions_that_may_run_for_long_are_refused() {
        for good in
            ["/a(/|$)(.*)", "/v[0-9]+/x", "/[^/]+/(?:a|b)", "/a{2,3}", "/(a|b)?c", r"/a\.b", "/[]a]+", "/(ab){2}"]
        {
            assert_eq!(regex(good).as_deref(), Ok(good));
        }
        for bad in [
            "/(a+)+",
            "/((a*)b)*",
            "/(a",
            "/a)",
            "/[a",
            "/a\\",
            "/a b",
            "/(?=a)",
            r"/(a)\1",
            "*a",
            "/(?i)a",
            "/(a{2,})+",
            "/(*ACCEPT)",
            "/é",
            r"/\Qa",
        ] {
            assert!(regex(bad).is_err(), "{bad:?}");
        }
        assert_eq!(literal("*.a-b.c/d|e"), r"\*\.a-b\.c/d\|e");
    }
}
