use super::*;
use crate::edge::input::Annotations;

fn annotations(pairs: &[(&str, &str)]) -> Annotations {
    pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
}

fn read(pairs: &[(&str, &str)]) -> Options {
    Options::read(&annotations(pairs))
}

#[test]
fn rows_stand_in_the_order_of_their_names() {
    for (at, row) in TABLE.iter().enumerate() {
        assert_eq!(row.opt as usize, at, "{}", row.name);
        assert!(row.opt.definition().name == row.name);
    }
    let names: std::collections::BTreeSet<&str> = TABLE.iter().map(|r| r.name).collect();
    assert_eq!(names.len(), TABLE.len());
}

#[test]
fn every_default_that_is_a_value_can_be_read() {
    for row in TABLE {
        // Some defaults are words for people.
        let told = ["AuthRequestHeaders", "VerifyHost"].contains(&format!("{:?}", row.opt).as_str());
        if !row.default.is_empty() && !told {
            assert!((row.parse)(row.default).is_ok(), "{}: {}", row.name, row.default);
        }
    }
}

#[test]
fn our_prefix_counts_before_others_and_a_difference_is_told() {
    let same = read(&[("haproxy.org/ssl-redirect", "true"), ("waystation.dev/ssl-redirect", "true")]);
    assert_eq!(same.get(Opt::SslRedirect), Some(&Value::Word("true")));
    assert!(same.differing.is_empty());
    let all = read(&[
        ("haproxy-ingress.github.io/timeout-server", "2s"),
        ("haproxy.org/timeout-server", "3s"),
        ("nginx.ingress.kubernetes.io/proxy-read-timeout", "4"),
        ("waystation.dev/timeout-server", "1s"),
    ]);
    assert_eq!(all.get(Opt::TimeoutServer), Some(&Value::Int(1000)));
    let keys: Vec<&str> = all.differing.iter().map(|(_, key)| &**key).collect();
    assert_eq!(keys.len(), 3);
    let theirs = read(&[("haproxy.org/timeout-server", "3s"), ("nginx.ingress.kubernetes.io/proxy-read-timeout", "3")]);
    assert_eq!(theirs.get(Opt::TimeoutServer), Some(&Value::Int(3000)));
    assert!(theirs.differing.is_empty());
}

#[test]
fn what_cannot_be_read_names_key_and_value_and_a_lower_prefix_takes_its_place() {
    let options = read(&[("waystation.dev/timeout-server", "soon"), ("haproxy.org/timeout-server", "3s")]);
    assert_eq!(options.get(Opt::TimeoutServer), Some(&Value::Int(3000)));
    assert_eq!(
        options.bad[0].message,
        "waystation.dev/timeout-server: \"soon\" is no duration like 30s, 1m30s or 500ms"
    );
    assert!(!options.fails(Scope::Path));
    assert!(read(&[("waystation.dev/allow-list", "10.0.0.0/99")]).fails(Scope::Path));
    assert!(read(&[("nginx.ingress.kubernetes.io/auth-type", "digest")]).fails(Scope::Path));
    assert!(read(&[("nginx.ingress.kubernetes.io/auth-tls-verify-client", "optional_no_ca")]).fails(Scope::Host));
    assert_eq!(read(&[("waystation.dev/nonsense", "x"), ("other/x", "y")]).unknown, ["waystation.dev/nonsense".into()]);
}

#[test]
fn aliases_mean_the_same() {
    let cases: &[(&str, &str, &str, &str)] = &[
        ("nginx.ingress.kubernetes.io/force-ssl-redirect", "true", "ssl-redirect", "force"),
        ("nginx.ingress.kubernetes.io/use-regex", "true", "path-type", "regex"),
        ("nginx.ingress.kubernetes.io/proxy-body-size", "8m", "body-size", "8388608"),
        ("nginx.ingress.kubernetes.io/backend-protocol", "GRPCS", "backend-protocol", "grpcs"),
        ("nginx.ingress.kubernetes.io/whitelist-source-range", "10.0.0.0/8", "allow-list", "10.0.0.0/8"),
        ("nginx.ingress.kubernetes.io/enable-cors", "true", "cors-enable", "on"),
        ("nginx.ingress.kubernetes.io/upstream-hash-by", "$request_uri", "balance", "uri"),
        ("nginx.ingress.kubernetes.io/rewrite-target", "/$2", "rewrite-target", "/$2"),
        ("haproxy.org/cookie-persistence", "SRV", "session-cookie-name", "SRV"),
        ("haproxy.org/cookie-persistence", "SRV", "affinity", "cookie"),
        ("haproxy.org/send-proxy-protocol", "proxy-v2", "proxy-protocol", "v2"),
        ("haproxy.org/forwarded-for", "false", "forwarded-for", "never"),
        ("haproxy.org/request-set-header", "X-A \"b c\"", "request-set-headers", "X-A: b c"),
        ("haproxy-ingress.github.io/backend-protocol", "h2-ssl", "backend-protocol", "https-h2"),
        ("haproxy-ingress.github.io/balance-algorithm", "random(2)", "balance", "random"),
        ("haproxy-ingress.github.io/rewrite-target", r"/\1", "rewrite-prefix", "/$1"),
    ];
    for (key, value, name, ours) in cases {
        let theirs = read(&[(key, value)]);
        let own = format!("waystation.dev/{name}");
        let same = read(&[(&own, ours)]);
        let row = TABLE.iter().find(|r| r.name == *name).unwrap();
        assert!(same.get(row.opt).is_some(), "{own}: {ours}: {:?}", same.bad);
        assert_eq!(theirs.get(row.opt), same.get(row.opt), "{key}: {value}: {:?}", theirs.bad);
    }
    // An alias that says nothing of ours leaves the rest alone.
    let quiet = read(&[
        ("nginx.ingress.kubernetes.io/force-ssl-redirect", "false"),
        ("nginx.ingress.kubernetes.io/ssl-redirect", "false"),
    ]);
    assert_eq!(quiet.get(Opt::SslRedirect), Some(&Value::Word("false")));
    assert!(quiet.differing.is_empty() && quiet.bad.is_empty());
}

#[test]
fn values_that_would_reach_further_than_they_may_are_refused() {
    let cases: &[(&str, &str)] = &[
        ("request-set-headers", "X-A: b\r\nX-B: c\u{7}d"),
        ("request-set-headers", "Content-Length: 5"),
        ("request-set-headers", "X-A: %[src]"),
        ("request-del-headers", "Host"),
        ("auth-url", "file:///etc/passwd"),
        ("auth-url", "/relative"),
        ("auth-url", "http://user:pw@host/"),
        ("auth-url", "http://a b/"),
        ("permanent-redirect", "//evil"),
        ("permanent-redirect", "javascript:alert(1)"),
        ("permanent-redirect", "https://a/\r\nX: y"),
        ("session-cookie-name", "a=b;c"),
        ("session-cookie-name", "a|b"),
        ("upstream-vhost", "a b"),
        ("auth-realm", "a\"b"),
        ("auth-secret", "../x"),
        ("default-backend", "a/b"),
        ("cors-allow-origin", "https://a b"),
        ("cors-allow-origin", "https://a;b"),
        ("rewrite-target", "/a\nb"),
        ("timeout-server", "0"),
        ("timeout-server", "99999999999999999999d"),
        ("limit-rps", "-1"),
        ("body-size", "1x"),
    ];
    for (name, value) in cases {
        let key = format!("waystation.dev/{name}");
        let options = read(&[(&key, value)]);
        assert_eq!(options.bad.len(), 1, "{name}: {value:?}: {options:?}");
        assert!(options.iter().next().is_none());
    }
}

#[test]
fn durations_sizes_and_urls() {
    let ms = |t| parse::duration(t);
    assert_eq!(ms("30"), Ok(Value::Int(30_000)));
    assert_eq!(ms("1m30s"), Ok(Value::Int(90_000)));
    assert_eq!(ms("500ms"), Ok(Value::Int(500)));
    assert!(ms("30s5").is_err() && ms("s").is_err() && ms("1.5s").is_err() && ms("1w").is_err());
    assert_eq!(parse::size("1g"), Ok(Value::Int(1 << 30)));
    assert_eq!(parse::size("unlimited"), Ok(Value::Int(0)));
    let url = parse::absolute("https://[fd00::1]:8443/x?y=z").unwrap();
    assert_eq!(url, ("https", "fd00::1".into(), 8443, "/x?y=z"));
    assert_eq!(parse::absolute("http://A.b").unwrap(), ("http", "a.b".into(), 80, ""));
    assert!(parse::absolute("http://a:0/").is_none() && parse::absolute("ftp://a/").is_none());
}

#[test]
fn the_page_names_every_option_and_every_alias() {
    let page = document::page();
    for row in TABLE {
        assert!(page.contains(&format!("| `{}` |", row.name)), "{}", row.name);
        for alias in row.aliases {
            assert!(page.contains(&format!("| `{}` | `{}` |", alias.key, row.name)), "{}", alias.key);
        }
    }
    assert!(page.lines().all(|l| !l.starts_with('|') || l.ends_with('|')));
}

/// `WRITE_OPTIONS=1` writes the page instead of comparing it.
#[test]
fn the_page_in_docs_is_that_of_the_table() {
    let root = std::path::Path::new(file!()).ancestors().nth(4).unwrap();
    let path = root.join("docs/options.md");
    if std::env::var_os("WRITE_OPTIONS").is_some() {
        std::fs::write(&path, document::page()).unwrap();
    }
    let held = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        held == document::page(),
        "docs/options.md differs from the table: WRITE_OPTIONS=1 cargo test the_page_in_docs"
    );
}
