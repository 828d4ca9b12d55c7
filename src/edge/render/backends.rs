//! Backends and servers as configuration, and what is said of a server in both a file and a command.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::layout::{Layout, shard_of};
use crate::edge::class::Class;
use crate::edge::wanted::{Proxy, Server, Slot, Sni, Value, Wanted};

/// What follows a server's name: where it is and how it is spoken to.
pub fn server(name: &str, server: &Server, layout: &Layout) -> String {
    let link = &server.link;
    let mut out = match server.address {
        IpAddr::V4(v4) => format!("{v4}:{}", server.port),
        IpAddr::V6(v6) => format!("[{v6}]:{}", server.port),
    };
    // The default, written out: `add server` does not take what a class says.
    out.push_str(if server.drain { " weight 0" } else { " weight 1" });
    if server.maxconn > 0 {
        let _ = write!(out, " maxconn {}", server.maxconn);
    }
    if link.maxqueue > 0 {
        let _ = write!(out, " maxqueue {}", link.maxqueue);
    }
    if link.cookie {
        let _ = write!(out, " cookie {name}");
    }
    if let Some(check) = &link.check {
        let _ = write!(out, " check inter {}ms rise {} fall {}", check.interval_ms, check.rise, check.fall);
        // Checks of servers that come at run time do not follow from how they are asked otherwise.
        if link.tls.is_some() {
            out.push_str(" check-ssl");
        }
        if link.proxy != Proxy::No {
            out.push_str(" check-send-proxy");
        }
    }
    match link.proxy {
        Proxy::No => {}
        Proxy::V1 => out.push_str(" send-proxy"),
        Proxy::V2 => out.push_str(" send-proxy-v2"),
    }
    if link.h2 {
        out.push_str(" proto h2");
    }
    if let Some(tls) = &link.tls {
        out.push_str(if tls.h2 { " ssl alpn h2" } else { " ssl alpn http/1.1" });
        match &tls.authority {
            Some(authority) => {
                let _ = write!(out, " verify required ca-file {}", layout.authority(authority));
            }
            None => out.push_str(" verify none"),
        }
        if let Some(host) = &tls.verify_host {
            let _ = write!(out, " verifyhost {host}");
        }
        if let Some(certificate) = &tls.certificate {
            let _ = write!(out, " crt {}", layout.certificate(certificate));
        }
        match &tls.sni {
            // By itself HAProxy sends the Host, and then wants it in the certificate as well.
            Sni::No => out.push_str(" no-sni-auto"),
            Sni::Host => out.push_str(" sni var(txn.host)"),
            Sni::Name(name) => {
                let _ = write!(out, " sni str({name})");
            }
        }
        match (&tls.sni, &link.check) {
            (Sni::Name(name), Some(_)) => {
                let _ = write!(out, " check-sni {name}");
            }
            (_, Some(_)) => out.push_str(" no-check-sni-auto"),
            (_, None) => {}
        }
    }
    out
}

/// A part of the backends.
pub fn shard(wanted: &Wanted, shard: u64, layout: &Layout) -> String {
    let mut out = String::new();
    let start = Slot::Backend("".into());
    for (slot, value) in wanted.slots().range(start..) {
        let (Slot::Backend(name), Value::Backend(class)) = (slot, value) else { break };
        if shard_of(name) != shard {
            continue;
        }
        section(wanted, name, *class, layout, &mut out);
    }
    out
}

/// Appends a backend with its servers.
pub fn section(wanted: &Wanted, name: &str, class: Class, layout: &Layout, out: &mut String) {
    let _ = writeln!(out, "backend {name} from {class}");
    for (server_name, value) in wanted.servers(name) {
        let _ = writeln!(out, "  server {server_name} {}", server(server_name, value, layout));
    }
}
