//! Readers of values. What they let through is safe where it goes: a map's value, a header, a server's keyword.

use std::sync::Arc;

use super::Value;
use crate::edge::address::Networks;
use crate::edge::names;

/// Bytes of one value.
const MAX_VALUE: usize = 4096;
/// Headers of one option.
const MAX_HEADERS: usize = 32;

/// Headers that would change how a message is framed or where a connection goes.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn boolean(text: &str) -> Result<Value, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "enabled" => Ok(Value::Bool(true)),
        "false" | "off" | "no" | "disabled" => Ok(Value::Bool(false)),
        _ => Err("is neither true nor false".into()),
    }
}

pub(super) fn word(text: &str, words: &[&'static str]) -> Result<Value, String> {
    let lower = text.to_ascii_lowercase();
    let found = words.iter().find(|w| **w == lower);
    found.map(|w| Value::Word(w)).ok_or_else(|| format!("is none of {}", words.join(", ")))
}

pub(super) fn int(text: &str, min: u64, max: u64) -> Result<Value, String> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = plain.then(|| text.parse::<u64>().ok()).flatten();
    number
        .filter(|n| (min..=max).contains(n))
        .map(Value::Int)
        .ok_or_else(|| format!("is no number from {min} to {max}"))
}

/// `30s`, `1m30s`, `500ms`, or seconds; at most 24 days, HAProxy's own limit.
pub(super) fn duration(text: &str) -> Result<Value, String> {
    const MAX_MS: u64 = 24 * 24 * 3600 * 1000;
    let wrong = || "is no duration like 30s, 1m30s or 500ms".to_owned();
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let unit = match &rest[..letters] {
            "ms" => 1,
            "s" => 1000,
            "" if digits == text.len() => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        total = number.checked_mul(unit).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
    }
    if text.is_empty() || total == 0 || total > MAX_MS {
        return Err(wrong());
    }
    Ok(Value::Int(total))
}

/// `10m`, `1Gi`, bytes; 0 and `unlimited`: no limit.
pub(super) fn size(text: &str) -> Result<Value, String> {
    let lower = text.to_ascii_lowercase();
    if lower == "unlimited" {
        return Ok(Value::Int(0));
    }
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let shift = match &lower[digits..] {
        "" | "b" => 0,
        "k" | "kb" | "ki" => 10,
        "m" | "mb" | "mi" => 20,
        "g" | "gb" | "gi" => 30,
        _ => return Err("is no size like 512k, 10m or 1g".into()),
    };
    let number = lower[..digits].parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    number.filter(|n| *n <= 1 << 50).map(Value::Int).ok_or_else(|| "is no size like 512k, 10m or 1g".into())
}

pub(super) fn networks(text: &str) -> Result<Value, String> {
    if text.len() > 65536 {
        return Err("is longer than 65,536 bytes".into());
    }
    Networks::parse(text).map(|n| Value::Networks(Arc::new(n)))
}

/// A path, or a template with `$1` (or `\1`) for what a group of a regular expression took.
pub(super) fn target(text: &str) -> Result<Value, String> {
    Ok(Value::Text(names::path(text)?))
}

pub(super) fn rewrite(text: &str) -> Result<Value, String> {
    // `\1` would be percent-encoded as a backslash.
    let mut plain = text.to_owned();
    for digit in '0'..='9' {
        plain = plain.replace(&format!("\\{digit}"), &format!("${digit}"));
    }
    // `$1` alone is as good as a path: the group brings its slash.
    if plain.starts_with('$') {
        return names::path(&format!("/{plain}")).map(|p| Value::Text(p[1..].into()));
    }
    Ok(Value::Text(names::path(&plain)?))
}

/// An absolute URL of http or https, or a path.
pub(super) fn url(text: &str) -> Result<Value, String> {
    let wrong = || "is no URL like https://host/path".to_owned();
    if text.len() > MAX_VALUE
        || text.is_empty()
        || text.chars().any(|c| !c.is_ascii_graphic() || "\"<>\\^`{}|".contains(c))
    {
        return Err(wrong());
    }
    if text.starts_with('/') && !text.starts_with("//") {
        return Ok(Value::Text(text.into()));
    }
    absolute(text).map(|_| Value::Text(text.into())).ok_or_else(wrong)
}

/// Scheme, host, port and the rest of an absolute URL.
pub(crate) fn absolute(text: &str) -> Option<(&'static str, String, u16, &str)> {
    let (scheme, default, rest) = match text.split_once("://")? {
        ("http", rest) => ("http", 80, rest),
        ("https", rest) => ("https", 443, rest),
        _ => return None,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    // `[::1]:80`, or a name; no user or password.
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host.to_owned(), port.strip_prefix(':'))
        }
        None => {
            let (host, port) = authority.split_once(':').map_or((authority, None), |(h, p)| (h, Some(p)));
            let host = names::host(host).ok().filter(|h| !h.starts_with('*'))?;
            (host.to_string(), port)
        }
    };
    let port = match port {
        None | Some("") => default,
        Some(port) => port.parse().ok().filter(|p| *p != 0)?,
    };
    Some((scheme, host, port, tail))
}

pub(super) fn host(text: &str) -> Result<Value, String> {
    let host = names::host(text)?;
    if host.starts_with('*') { Err("is no host name".into()) } else { Ok(Value::Text(host)) }
}

/// A host name, `host` for the one that was asked for.
pub(super) fn sni(text: &str) -> Result<Value, String> {
    host(text)
}

/// `name`, or `namespace/name`.
pub(super) fn secret(text: &str) -> Result<Value, String> {
    let part = |p: &str| {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        !p.is_empty() && p.len() <= 253 && p.bytes().all(fits) && p.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let fits = match text.split_once('/') {
        Some((namespace, name)) => part(namespace) && part(name),
        None => part(text),
    };
    if fits { Ok(Value::Text(text.into())) } else { Err("names no Secret".into()) }
}

/// `service`, or `service:port`.
pub(super) fn service(text: &str) -> Result<Value, String> {
    let (name, port) = text.split_once(':').map_or((text, None), |(n, p)| (n, Some(p)));
    let fits = |p: &str| {
        !p.is_empty() && p.len() <= 63 && p.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if fits(name) && port.is_none_or(fits) { Ok(Value::Text(text.into())) } else { Err("names no Service".into()) }
}

/// A token of HTTP: the name of a header or a cookie; without the bar, which separates fields here.
pub(super) fn is_token(text: &str) -> bool {
    let mark = |b: u8| b"!#$%&'*+-.^_`~".contains(&b);
    !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_alphanumeric() || mark(b))
}

pub(super) fn token(text: &str) -> Result<Value, String> {
    // What Lua and maps take for themselves is no loss.
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if is_token(text) && text.bytes().all(plain) {
        Ok(Value::Text(text.into()))
    } else {
        Err("is no name of letters, digits, - _ .".into())
    }
}

/// Names of headers, separated by commas.
pub(super) fn tokens(text: &str) -> Result<Value, String> {
    let words: Vec<&str> = text.split([',', '\n', ' ']).map(str::trim).filter(|w| !w.is_empty()).collect();
    if words.is_empty() || words.len() > MAX_HEADERS || !words.iter().all(|w| is_token(w)) {
        return Err(format!("is no list of at most {MAX_HEADERS} names"));
    }
    Ok(Value::List(words.into_iter().map(Arc::from).collect()))
}

/// Names of headers that may be deleted.
pub(super) fn deletable(text: &str) -> Result<Value, String> {
    let list = tokens(text)?;
    if let Value::List(names) = &list {
        for name in &**names {
            harmless(name)?;
        }
    }
    Ok(list)
}

fn harmless(name: &str) -> Result<(), String> {
    if FRAMING.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("names the header {name}, which only the proxy may change"));
    }
    Ok(())
}

/// Text that may be the value of a header.
pub(super) fn text(value: &str) -> Result<Value, String> {
    if value.is_empty() || value.len() > MAX_VALUE || value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(format!("is empty, longer than {MAX_VALUE} bytes, or has control characters"));
    }
    // A command's word can hold no tab, and to a header it is a blank.
    Ok(Value::Text(value.trim().replace('\t', " ").into()))
}

/// The realm of basic authentication.
pub(super) fn realm(value: &str) -> Result<Value, String> {
    if value.is_empty()
        || value.len() > 128
        || value.chars().any(|c| c.is_control() || c == '"' || c == '\\' || c == '|')
    {
        return Err("is empty, longer than 128 bytes, or has quotes, bars or control characters".into());
    }
    Ok(Value::Text(value.into()))
}

/// Lines `Name: value` (or `Name value`).
pub(super) fn headers(value: &str) -> Result<Value, String> {
    let mut headers = Vec::new();
    for line in value.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, rest) = line
            .split_once(':')
            .filter(|(name, _)| !name.contains(' '))
            .or_else(|| line.split_once(' '))
            .ok_or_else(|| format!("has a line that is not `Name: value`: {:?}", names::shorten(line)))?;
        let rest = rest.trim().trim_matches('"');
        if !is_token(name) || rest.len() > MAX_VALUE || rest.chars().any(|c| c.is_control() && c != '\t') {
            return Err(format!("has a line that is not `Name: value`: {:?}", names::shorten(line)));
        }
        if rest.contains("%[") {
            return Err("has an expression %[…]: only plain text is possible".into());
        }
        harmless(name)?;
        headers.push((Arc::from(name), Arc::from(rest)));
    }
    if headers.is_empty() || headers.len() > MAX_HEADERS {
        return Err(format!("has no header, or more than {MAX_HEADERS}"));
    }
    Ok(Value::Headers(headers.into()))
}

/// `*`, or origins like `https://a.b`, `https://*.a.b:8443`.
pub(super) fn origins(text: &str) -> Result<Value, String> {
    let mut list: Vec<Arc<str>> = Vec::new();
    for word in text.split([',', ' ']).map(str::trim).filter(|w| !w.is_empty()) {
        if word == "*" {
            return Ok(Value::List([Arc::from("*")].into()));
        }
        let lower = word.to_ascii_lowercase();
        let (scheme, rest) =
            lower.split_once("://").ok_or_else(|| format!("{word:?} is no origin like https://host"))?;
        let (name, port) = rest.split_once(':').map_or((rest, None), |(n, p)| (n, Some(p)));
        let fits = scheme.bytes().all(|b| b.is_ascii_lowercase() || b"+-.".contains(&b)) && !scheme.is_empty();
        if !fits || names::host(name).is_err() || name.is_empty() || port.is_some_and(|p| p.parse::<u16>().is_err()) {
            return Err(format!("{:?} is no origin like https://host", names::shorten(word)));
        }
        list.push(lower.into());
    }
    if list.is_empty() || list.len() > 64 {
        return Err("names no origin, or more than 64".into());
    }
    Ok(Value::List(list.into()))
}
