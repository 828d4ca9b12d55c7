//! The table itself, in the order of its documentation.

use super::parse::*;
use super::{Alias, Definition, Prefix, Scope};

macro_rules! options {
    ($($opt:ident $name:literal $scope:ident $protects:literal
       ($values:literal, $default:literal) $does:literal, $parse:expr, [$($alias:expr),* $(,)?];)*) => {
        /// Every option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Opt { $(#[doc = $does] $opt,)* }

        /// One row each, in the order of [`Opt`].
        pub static TABLE: &[Definition] = &[$(Definition {
            opt: Opt::$opt,
            name: $name,
            scope: Scope::$scope,
            protects: $protects,
            values: $values,
            default: $default,
            does: $does,
            parse: $parse,
            aliases: &[$($alias,)*],
        },)*];
    };
}

const fn same(prefix: Prefix, key: &'static str, differs: &'static str) -> Alias {
    Alias { prefix, key, convert: as_is, differs }
}

const fn hi(key: &'static str) -> Alias {
    same(Prefix::HaproxyIngress, key, "")
}

const fn ht(key: &'static str) -> Alias {
    same(Prefix::Haproxy, key, "")
}

const fn nginx(key: &'static str) -> Alias {
    same(Prefix::Nginx, key, "")
}

const fn with(mut alias: Alias, convert: fn(&str) -> Result<String, String>, differs: &'static str) -> Alias {
    alias.convert = convert;
    alias.differs = differs;
    alias
}

fn as_is(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// One of pairs of words; a pair with an empty second word says nothing.
fn one_of(text: &str, pairs: &[(&str, &str)]) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let found = pairs.iter().find(|(theirs, _)| *theirs == lower);
    found.map(|(_, ours)| (*ours).to_owned()).ok_or_else(|| {
        let words: Vec<&str> = pairs.iter().map(|(theirs, _)| *theirs).collect();
        format!("is not supported: only {}", words.join(", "))
    })
}

fn seconds(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) { Ok(format!("{text}s")) } else { as_is(text) }
}

fn verify_client(text: &str) -> Result<String, String> {
    one_of(text, &[("on", "on"), ("optional", "optional"), ("off", "off")])
}

fn grpc_words(text: &str) -> Result<String, String> {
    one_of(text, &[("http", "http"), ("https", "https"), ("grpc", "grpc"), ("grpcs", "grpcs")])
}

fn h_words(text: &str) -> Result<String, String> {
    let h = [
        ("h1", "http"),
        ("h1-ssl", "https"),
        ("h2", "h2c"),
        ("h2-ssl", "https-h2"),
        ("grpc", "grpc"),
        ("grpcs", "grpcs"),
    ];
    one_of(text, &h)
}

fn nginx_hash(text: &str) -> Result<String, String> {
    let hash =
        [("$request_uri", "uri"), ("$uri", "uri"), ("$remote_addr", "source"), ("$binary_remote_addr", "source")];
    one_of(text, &hash)
}

options! {
    // Hosts.
    SslPassthrough "ssl-passthrough" Host false ("true, false", "false")
        "TLS goes through to the Service of the path `/`, told apart by SNI; nothing else of the host's HTTPS is looked at.",
        boolean, [hi("ssl-passthrough"), ht("ssl-passthrough"), nginx("ssl-passthrough")];
    Hsts "hsts" Host false ("true, false", "false") "Sends Strict-Transport-Security over TLS.",
        boolean, [same(Prefix::HaproxyIngress, "hsts", "off by default")];
    HstsMaxAge "hsts-max-age" Host false ("seconds", "15768000") "Its max-age.",
        |t| int(t, 0, 1 << 40), [hi("hsts-max-age")];
    HstsSubdomains "hsts-include-subdomains" Host false ("true, false", "false") "Its includeSubDomains.",
        boolean, [hi("hsts-include-subdomains")];
    HstsPreload "hsts-preload" Host false ("true, false", "false") "Its preload.",
        boolean, [hi("hsts-preload")];
    ClientCa "auth-tls-secret" Host true ("Secret with `ca.crt`", "")
        "Clients need a certificate of that CA (mutual TLS). Over plain HTTP the host then answers 403, or redirects.",
        secret, [hi("auth-tls-secret"), nginx("auth-tls-secret")];
    ClientVerify "auth-tls-verify-client" Host true ("on, optional, off", "on")
        "Whether a certificate is required. Of two Ingresses the stricter counts.",
        |t| word(t, &["on", "optional", "off"]),
        [with(hi("auth-tls-verify-client"), verify_client, "`optional_no_ca` is not supported, and denies"),
         with(nginx("auth-tls-verify-client"), verify_client, "`optional_no_ca` is not supported, and denies")];
    ClientHeader "auth-tls-cert-header" Host false ("true, false", "false")
        "Tells the Service of the client's certificate: `X-SSL-Client-CN`, `-DN`, `-SHA1`, `-Cert` (DER, base64). What a client says there itself is always removed.",
        boolean,
        [hi("auth-tls-cert-header"),
         same(Prefix::Nginx, "auth-tls-pass-certificate-to-upstream", "other headers: `X-SSL-Client-…`")];
    WwwRedirect "from-to-www-redirect" Host false ("true, false", "false")
        "`www.host` without rules of its own is redirected to `host`, and the other way round.",
        boolean, [nginx("from-to-www-redirect")];

    // Paths: TLS and redirects.
    SslRedirect "ssl-redirect" Path false ("true, false, force", "true")
        "HTTP is redirected to HTTPS where the host has TLS; `force`: also where it has not. `/.well-known/acme-challenge/` never is.",
        |t| word(&one_of(t, &[("true", "true"), ("on", "true"), ("false", "false"), ("off", "false"), ("force", "force")])?, &["true", "false", "force"]),
        [hi("ssl-redirect"), ht("ssl-redirect"),
         with(nginx("force-ssl-redirect"), |t| one_of(t, &[("true", "force"), ("false", "")]), ""), nginx("ssl-redirect")];
    SslRedirectCode "ssl-redirect-code" Path false ("301, 302, 303, 307, 308", "308") "Its status.",
        |t| word(t, &["301", "302", "303", "307", "308"]),
        [same(Prefix::HaproxyIngress, "ssl-redirect-code", "308 by default, not 302"),
         same(Prefix::Haproxy, "ssl-redirect-code", "308 by default, not 302")];
    AppRoot "app-root" Path false ("path", "") "`/` is redirected there (302).",
        target, [hi("app-root"), nginx("app-root")];
    PermanentRedirect "permanent-redirect" Path false ("URL or path", "") "Everything is redirected there.",
        url, [nginx("permanent-redirect")];
    PermanentCode "permanent-redirect-code" Path false ("301, 308", "301") "Its status.",
        |t| word(t, &["301", "308"]), [nginx("permanent-redirect-code")];
    TemporalRedirect "temporal-redirect" Path false ("URL or path", "") "Everything is redirected there, for now.",
        url, [nginx("temporal-redirect"), hi("redirect-to"),
              with(ht("request-redirect"), |t| if t.contains("://") { as_is(t) } else { Ok(format!("https://{t}/")) },
                   "the path is not kept")];
    TemporalCode "temporal-redirect-code" Path false ("301, 302, 303, 307, 308", "302") "Its status.",
        |t| word(t, &["301", "302", "303", "307", "308"]),
        [nginx("temporal-redirect-code"), hi("redirect-to-code"), ht("request-redirect-code")];

    // Paths: matching and rewriting.
    PathType "path-type" Path false ("prefix, exact, begin, regex", "prefix")
        "What ImplementationSpecific means: by path element, the whole path, by letter, or a regular expression from the path's beginning. Order: exact, then the longest prefix, then the longest regular expression.",
        |t| word(t, &["prefix", "exact", "begin", "regex"]),
        [same(Prefix::HaproxyIngress, "path-type", "`begin` is not the default"),
         with(nginx("use-regex"), |t| one_of(t, &[("true", "regex"), ("false", "")]),
              "case counts; paths of type Prefix and Exact stay what they are, and come first")];
    RewriteTarget "rewrite-target" Path false ("path; `$1` is the first group of a regular expression", "")
        "The Service is asked for this path.",
        rewrite,
        [with(ht("path-rewrite"), |t| if t.contains(' ') { Err("has two words: use a path of type regex and `$1`".into()) } else { as_is(t) },
              "one word only; a regular expression goes into the path"),
         nginx("rewrite-target")];
    RewritePrefix "rewrite-prefix" Path false ("path", "")
        "The matched prefix is replaced by this one. With a regular expression it is as rewrite-target.",
        rewrite, [hi("rewrite-target")];
    UpstreamHost "upstream-vhost" Path false ("host", "") "The Host that the Service is asked for.",
        host, [nginx("upstream-vhost"), ht("set-host")];
    DefaultBackend "default-backend" Path false ("service, service:port", "")
        "A Service of the same namespace that takes over while the route's own has no endpoint.",
        service, [same(Prefix::Nginx, "default-backend", "not for error statuses")];

    // Paths: who may.
    AllowList "allow-list" Path true ("networks; `!` takes one out", "") "Others get 403.",
        networks,
        [hi("allowlist-source-range"), hi("whitelist-source-range"), ht("allow-list"), ht("whitelist"),
         nginx("allowlist-source-range"), nginx("whitelist-source-range")];
    DenyList "deny-list" Path true ("networks; `!` takes one out", "") "These get 403.",
        networks, [hi("denylist-source-range"), ht("deny-list"), ht("blacklist"), nginx("denylist-source-range")];
    AuthType "auth-type" Path true ("basic, none", "") "Basic authentication; `auth-secret` alone says the same.",
        |t| word(t, &["basic", "none"]),
        [with(ht("auth-type"), |t| one_of(t, &[("basic-auth", "basic")]), ""),
         with(nginx("auth-type"), |t| one_of(t, &[("basic", "basic")]), "`digest` is not supported, and denies"),
         hi("auth-type")];
    AuthSecret "auth-secret" Path true ("Secret: key `auth` as htpasswd, or a key a user", "")
        "Who may. While the Secret is missing nobody may: 503.",
        secret, [hi("auth-secret"), ht("auth-secret"), nginx("auth-secret")];
    AuthRealm "auth-realm" Path false ("text", "Authentication required") "What browsers show.",
        realm, [hi("auth-realm"), ht("auth-realm"), nginx("auth-realm")];
    AuthUrl "auth-url" Path true ("URL", "")
        "Asked before each request, with its headers: 2xx lets it through, 401 and 403 are handed on, anything else is 503. May not be inside the machine.",
        |t| url(t).and_then(|v| if t.starts_with('/') { Err("is no absolute URL".into()) } else { Ok(v) }),
        [hi("auth-url"), same(Prefix::Nginx, "auth-url", "no variables")];
    AuthMethod "auth-method" Path true ("GET, HEAD, POST", "GET") "How it is asked.",
        |t| word(t, &["get", "head", "post"]), [hi("auth-method"), nginx("auth-method")];
    AuthSignin "auth-signin" Path false ("URL or path", "") "Where a 401 is redirected to (302), with `rd=` and what was asked for.",
        url, [hi("auth-signin"), same(Prefix::Nginx, "auth-signin", "`rd=` is always added")];
    AuthRequestHeaders "auth-request-headers" Path false ("names", "all but those of the connection and the body")
        "Headers of the request that it is asked with.",
        tokens, [with(hi("auth-headers-request"), |t| one_of(t, &[("*", "")]).or_else(|_| as_is(t)), "")];
    AuthResponseHeaders "auth-response-headers" Path false ("names", "")
        "Headers of its answer that the Service is told. What a client says there itself is removed.",
        deletable, [with(hi("auth-headers-succeed"), |t| if t.contains('*') { Err("names patterns: names only".into()) } else { as_is(t) }, "names only"),
                    nginx("auth-response-headers")];

    // Paths: how much.
    LimitRps "limit-rps" Path false ("number", "") "Requests a `limit-period` of one client address, in each pod; beyond: 429.",
        |t| int(t, 1, 1_000_000_000),
        [hi("limit-rps"), ht("rate-limit-requests"), same(Prefix::Nginx, "limit-rps", "no burst: exactly this rate")];
    LimitPeriod "limit-period" Path false ("1s, 1m", "1s") "See there.",
        |t| word(t, &["1s", "1m"]), [same(Prefix::Haproxy, "rate-limit-period", "1s and 1m only")];
    LimitRpm "limit-rpm" Path false ("number", "") "Requests a minute of one client address, in each pod; beyond: 429.",
        |t| int(t, 1, 1_000_000_000), [same(Prefix::Nginx, "limit-rpm", "no burst: exactly this rate")];
    LimitConnections "limit-connections" Path false ("number", "") "Requests at a time of one client address, in each pod; beyond: 429.",
        |t| int(t, 1, 1_000_000), [same(Prefix::HaproxyIngress, "limit-connections", "requests, not connections"),
                                   same(Prefix::Nginx, "limit-connections", "requests, not connections")];
    LimitExempt "limit-whitelist" Path false ("networks", "") "Who is not limited.",
        networks, [hi("limit-whitelist"), ht("rate-limit-whitelist"), nginx("limit-whitelist")];
    BodySize "body-size" Path false ("size; 0: any", "0") "A longer body gets 413; one that does not tell its length gets 411.",
        size, [same(Prefix::HaproxyIngress, "proxy-body-size", "a body that does not tell its length is refused"),
               same(Prefix::Nginx, "proxy-body-size", "no limit by default; a body that does not tell its length is refused")];

    // Paths: CORS and headers.
    CorsEnable "cors-enable" Path false ("true, false", "false") "Answers preflight requests (204) and adds the headers of CORS.",
        boolean, [hi("cors-enable"), ht("cors-enable"), nginx("enable-cors")];
    CorsOrigin "cors-allow-origin" Path false ("`*`, or origins; `https://*.a.b` is one label", "*") "Who may.",
        origins, [hi("cors-allow-origin"), same(Prefix::Haproxy, "cors-allow-origin", "no regular expressions"), nginx("cors-allow-origin")];
    CorsMethods "cors-allow-methods" Path false ("names", "GET, PUT, POST, DELETE, PATCH, OPTIONS") "Which methods.",
        text, [hi("cors-allow-methods"), ht("cors-allow-methods"), nginx("cors-allow-methods")];
    CorsHeaders "cors-allow-headers" Path false ("names", "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization") "Which headers.",
        text, [hi("cors-allow-headers"), ht("cors-allow-headers"), nginx("cors-allow-headers")];
    CorsCredentials "cors-allow-credentials" Path false ("true, false", "false") "Whether cookies may be sent.",
        boolean, [hi("cors-allow-credentials"), ht("cors-allow-credentials"),
                  same(Prefix::Nginx, "cors-allow-credentials", "off by default")];
    CorsExpose "cors-expose-headers" Path false ("names", "") "Which headers of the answer a page may read.",
        text, [hi("cors-expose-headers"), nginx("cors-expose-headers")];
    CorsMaxAge "cors-max-age" Path false ("seconds, or a duration", "86400") "How long a preflight answer holds.",
        duration, [hi("cors-max-age"), ht("cors-max-age"), same(Prefix::Nginx, "cors-max-age", "a day by default, not 20")];
    RequestSet "request-set-headers" Path false ("lines `Name: value`", "") "Headers that the Service is told.",
        headers, [hi("request-set-headers"), same(Prefix::HaproxyIngress, "headers", "no variables"),
                  same(Prefix::Haproxy, "request-set-header", "plain text only")];
    RequestAdd "request-add-headers" Path false ("lines `Name: value`", "") "Headers that the Service is told besides those there.",
        headers, [hi("request-add-headers")];
    RequestDel "request-del-headers" Path false ("names", "") "Headers that the Service is not told.",
        deletable, [hi("request-del-headers")];
    ResponseSet "response-set-headers" Path false ("lines `Name: value`", "") "Headers of the answer.",
        headers, [hi("response-set-headers"), same(Prefix::Haproxy, "response-set-header", "plain text only")];
    ResponseAdd "response-add-headers" Path false ("lines `Name: value`", "") "Headers of the answer besides those there.",
        headers, [hi("response-add-headers")];
    ResponseDel "response-del-headers" Path false ("names", "") "Headers of the answer that are removed.",
        deletable, [hi("response-del-headers")];
    ForwardedFor "forwarded-for" Path false ("replace, append, if-none, never", "replace")
        "X-Forwarded-For: the client's address alone, behind what came, where there is none, or what came.",
        |t| word(t, &["replace", "append", "if-none", "never"]),
        [with(ht("forwarded-for"), |t| one_of(t, &[("true", "append"), ("false", "never")]), "`replace` by default")];

    // Paths: canaries.
    Canary "canary" Path false ("true, false", "false")
        "This Ingress takes a share of the same paths of another one; its other options do not count.",
        boolean, [nginx("canary")];
    CanaryWeight "canary-weight" Path false ("number", "0") "Share of requests, of `canary-weight-total`.",
        |t| int(t, 0, 1_000_000), [nginx("canary-weight")];
    CanaryTotal "canary-weight-total" Path false ("number", "100") "See there.",
        |t| int(t, 1, 1_000_000), [nginx("canary-weight-total")];
    CanaryHeader "canary-by-header" Path false ("name", "") "With `always` in this header a request goes to the canary, with `never` it does not.",
        token, [nginx("canary-by-header")];
    CanaryHeaderValue "canary-by-header-value" Path false ("text", "") "Instead of `always`; `never` then means nothing.",
        text, [nginx("canary-by-header-value")];
    CanaryCookie "canary-by-cookie" Path false ("name", "") "The same with a cookie.",
        token, [nginx("canary-by-cookie")];

    // Paths: timeouts.
    TimeoutConnect "timeout-connect" Path false ("duration", "5s") "How long a connection to an endpoint may take.",
        duration, [hi("timeout-connect"), ht("timeout-connect"), with(nginx("proxy-connect-timeout"), seconds, "")];
    TimeoutServer "timeout-server" Path false ("duration", "50s") "How long an endpoint may be silent.",
        duration, [hi("timeout-server"), ht("timeout-server"),
                   with(nginx("proxy-read-timeout"), seconds, "`proxy-send-timeout` has no counterpart")];
    TimeoutTunnel "timeout-tunnel" Path false ("duration", "1h") "How long a WebSocket may be silent.",
        duration, [hi("timeout-tunnel"), ht("timeout-tunnel")];
    TimeoutQueue "timeout-queue" Path false ("duration", "5s") "How long a request waits for an endpoint at its limit; then 503.",
        duration, [hi("timeout-queue"), ht("timeout-queue")];

    // Services.
    BackendProtocol "backend-protocol" Service false ("http, h2c, grpc, https, https-h2, grpcs", "http")
        "What the endpoints speak; `grpc` is as `h2c`, `grpcs` as `https-h2`.",
        |t| word(t, &["http", "h2c", "grpc", "https", "https-h2", "grpcs"]),
        [with(hi("backend-protocol"), h_words, "no `fcgi`"),
         with(ht("server-proto"), |t| one_of(t, &[("h1", "http"), ("h2", "h2c")]), ""),
         with(nginx("backend-protocol"), grpc_words, "no `AUTO_HTTP`, `FCGI`")];
    SecureBackends "secure-backends" Service false ("true, false", "false") "The endpoints speak TLS.",
        boolean, [hi("secure-backends"), ht("server-ssl")];
    VerifyCa "secure-verify-ca-secret" Service true ("Secret with `ca.crt`", "") "Which CA they must be of. While it is missing they are not asked: 503.",
        secret, [hi("secure-verify-ca-secret"), ht("server-ca"),
                 same(Prefix::Nginx, "proxy-ssl-secret", "verifies as soon as there is a `ca.crt`, as if `proxy-ssl-verify` were on")];
    BackendCertificate "secure-crt-secret" Service true ("Secret with `tls.crt`, `tls.key`", "") "Our certificate towards them.",
        secret, [hi("secure-crt-secret"), ht("server-crt"), nginx("proxy-ssl-secret")];
    BackendSni "secure-sni" Service false ("host, or a name", "") "The name that they are asked by in TLS; `host`: the one that was asked for.",
        |t| sni(if t == "sni" { "host" } else { t }), [hi("secure-sni"), nginx("proxy-ssl-name")];
    VerifyHost "secure-verify-hostname" Service true ("name", "the name of secure-sni") "The name that must be in their certificate. It needs `secure-verify-ca-secret`; where `secure-sni` is said it is the same name, or they are not asked: 503.",
        host, [hi("secure-verify-hostname")];
    Affinity "affinity" Service false ("cookie, none", "none") "A client keeps its endpoint.",
        |t| word(t, &["cookie", "none"]),
        [hi("affinity"), with(ht("cookie-persistence"), |_| Ok("cookie".into()), ""), nginx("affinity")];
    CookieName "session-cookie-name" Service false ("name", "WAYSTATION") "By which cookie.",
        token, [same(Prefix::HaproxyIngress, "session-cookie-name", "`WAYSTATION` by default"), ht("cookie-persistence"),
                same(Prefix::Nginx, "session-cookie-name", "`WAYSTATION` by default")];
    CookiePath "session-cookie-path" Service false ("path", "/") "Its path.",
        target, [nginx("session-cookie-path")];
    CookieDomain "session-cookie-domain" Service false ("host", "") "Its domain.",
        host, [hi("session-cookie-domain"), nginx("session-cookie-domain")];
    CookieSameSite "session-cookie-samesite" Service false ("lax, strict, none", "") "Its SameSite; `none` makes it Secure.",
        |t| word(t, &["lax", "strict", "none"]),
        [nginx("session-cookie-samesite"),
         with(hi("session-cookie-same-site"), |t| one_of(t, &[("true", "none"), ("false", "")]), "")];
    CookieSecure "session-cookie-secure" Service false ("true, false", "false") "Its Secure.",
        boolean, [nginx("session-cookie-secure")];
    CookieMaxAge "session-cookie-max-age" Service false ("seconds", "") "Its Max-Age.",
        |t| int(t, 0, 1 << 31), [nginx("session-cookie-max-age")];
    Balance "balance" Service false ("roundrobin, leastconn, random, source, uri, first", "roundrobin") "Which endpoint takes a request.",
        |t| word(t, &["roundrobin", "leastconn", "random", "source", "uri", "first"]),
        [with(hi("balance-algorithm"), |t| if t.starts_with("random") { Ok("random".into()) } else { as_is(t) }, "`roundrobin` by default"),
         with(ht("load-balance"), |t| if t.starts_with("random") { Ok("random".into()) } else { as_is(t) }, "no `hdr`, `url_param`, `rdp-cookie`"),
         with(nginx("load-balance"), |t| one_of(t, &[("round_robin", "roundrobin"), ("least_conn", "leastconn"), ("ewma", "leastconn"), ("ip_hash", "source")]), "`ewma` is as `leastconn`"),
         with(nginx("upstream-hash-by"), nginx_hash, "`$request_uri` and `$remote_addr` only")];
    ServiceUpstream "service-upstream" Service false ("true, false", "false") "The Service's own address instead of its endpoints.",
        boolean, [hi("service-upstream"), nginx("service-upstream")];
    ProxyProtocol "proxy-protocol" Service false ("no, v1, v2", "no") "The endpoints are told the client by the PROXY protocol.",
        |t| word(t, &["no", "v1", "v2"]),
        [same(Prefix::HaproxyIngress, "proxy-protocol", "no `v2-ssl`, `v2-ssl-cn`"),
         with(ht("send-proxy-protocol"), |t| one_of(t, &[("proxy", "v1"), ("proxy-v1", "v1"), ("proxy-v2", "v2")]), "no `proxy-v2-ssl…`")];
    MaxconnServer "maxconn-server" Service false ("number; 0: any", "0") "Requests at a time of one endpoint, in each pod; others wait.",
        |t| int(t, 0, 1_000_000), [hi("maxconn-server"), same(Prefix::Haproxy, "pod-maxconn", "of each pod, not divided among them")];
    MaxqueueServer "maxqueue-server" Service false ("number; 0: any", "0") "How many may wait for one endpoint before another is taken.",
        |t| int(t, 0, 1_000_000), [hi("maxqueue-server")];
    HealthCheck "health-check" Service false ("true, false", "false") "Endpoints are tried by connecting, besides what Kubernetes says of them.",
        boolean, [same(Prefix::Haproxy, "check", "off by default")];
    CheckPath "health-check-path" Service false ("path", "") "They are asked by HTTP; 2xx and 3xx are well.",
        target, [hi("health-check-uri"), ht("check-http")];
    CheckHost "health-check-host" Service false ("host", "") "The Host of that.",
        host, [];
    CheckInterval "health-check-interval" Service false ("duration", "2s") "How often.",
        duration, [hi("health-check-interval"), hi("backend-check-interval"), ht("check-interval")];
    CheckRise "health-check-rise-count" Service false ("number", "2") "Successes until one is up.",
        |t| int(t, 1, 100), [hi("health-check-rise-count")];
    CheckFall "health-check-fall-count" Service false ("number", "3") "Failures until one is down.",
        |t| int(t, 1, 100), [hi("health-check-fall-count")];
}
