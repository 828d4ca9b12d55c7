//! What the process says that it holds.

use std::net::IpAddr;
use std::sync::Arc;

use crate::edge::render::{Mark, mark_in};

/// One server of `show servers state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// Its backend.
    pub backend: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Where it is; `None` for sockets.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// On its way out, or never brought up.
    pub maintenance: bool,
    /// By weight or by state: nothing new goes there.
    pub drain: bool,
}

/// One line of `show ssl crt-list -n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrtListLine {
    /// The certificate's path.
    pub certificate: String,
    /// The line's number, by which it is deleted.
    pub number: u64,
    /// The CA of clients, and whether a certificate is required.
    pub client: Option<(Arc<str>, bool)>,
    /// Hosts.
    pub hosts: Vec<String>,
}

/// What of `show info` tells one process from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its id.
    pub pid: u32,
    /// When it started, seconds since 1970.
    pub started_s: u64,
    /// An old one, that only ends what it has begun.
    pub stopping: bool,
    /// `3.4.7-1`.
    pub version: String,
    /// Which fixed part of the files it was started from.
    pub mark: Option<Mark>,
}

/// Keys and values of a map, in its order.
pub type Entries = Vec<(Arc<str>, Arc<str>)>;

/// Entries of `show map`.
pub fn map(text: &str) -> Entries {
    let entry = |line: &str| {
        // An address, the key, and the rest of the line.
        let (_, rest) = line.split_once(' ')?;
        let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
        (!key.is_empty()).then(|| (Arc::from(key), Arc::from(value)))
    };
    text.lines().filter(|line| line.starts_with("0x")).filter_map(entry).collect()
}

/// Names of `show backend`, without the fixed ones.
pub fn backends(text: &str) -> Vec<Arc<str>> {
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '_']));
    names.map(Arc::from).collect()
}

/// Names of `show ssl cert` or `show ssl ca-file`: paths, without what has been set and not committed.
pub fn stores(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '*', '@']));
    lines.map(|line| line.split(" - ").next().unwrap_or(line).to_owned()).collect()
}

/// Servers of `show servers state`, without those of fixed backends. Lines that are not understood are left out.
pub fn servers(text: &str) -> Vec<ServerState> {
    let mut columns: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for line in text.lines() {
        if let Some(header) = line.strip_prefix("# ") {
            columns = header.split(' ').collect();
            continue;
        }
        let fields: Vec<&str> = line.split(' ').collect();
        let field = |name: &str| columns.iter().position(|c| *c == name).and_then(|at| fields.get(at).copied());
        let (Some(backend), Some(name)) = (field("be_name"), field("srv_name")) else { continue };
        if backend.starts_with('_') {
            continue;
        }
        let number = |name: &str| field(name).and_then(|f| f.parse::<u32>().ok()).unwrap_or(0);
        let state = number("srv_admin_state");
        out.push(ServerState {
            backend: backend.into(),
            name: name.into(),
            address: field("srv_addr").and_then(|a| a.trim_matches(['[', ']']).parse().ok()),
            port: field("srv_port").and_then(|p| p.parse().ok()).unwrap_or(0),
            // Forced, inherited and configured maintenance; forced and inherited drain.
            maintenance: state & (0x01 | 0x02 | 0x04 | 0x20) != 0,
            drain: state & (0x08 | 0x10) != 0 || number("srv_uweight") == 0,
        });
    }
    out
}

/// Lines of `show ssl crt-list -n`.
pub fn crt_list(text: &str) -> Vec<CrtListLine> {
    let parse = |line: &str| {
        // HAProxy puts a zero byte behind what it lists in `alpn`.
        let line = line.replace('\0', " ");
        let (path, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let (certificate, number) = path.rsplit_once(':')?;
        let (options, hosts) = match rest.trim_start().strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((options, hosts)) => (options, hosts),
            None => ("", rest),
        };
        let words: Vec<&str> = options.split_whitespace().collect();
        let after = |word: &str| words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1).copied());
        let client = after("ca-file").map(|authority| (Arc::from(authority), after("verify") == Some("required")));
        Some(CrtListLine {
            certificate: certificate.to_owned(),
            number: number.parse().ok()?,
            client,
            hosts: hosts.split_whitespace().map(str::to_owned).collect(),
        })
    };
    text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).filter_map(parse).collect()
}

/// The frontends of `show stat`, and whether they take connections: their status is `OPEN` then. Those that were left out
/// when the process started are not among them.
pub fn frontends(text: &str) -> Vec<(Arc<str>, bool)> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().trim_start_matches("# ").split(',').collect();
    let at = |name: &str| columns.iter().position(|c| *c == name);
    let (Some(proxy), Some(server), Some(status)) = (at("pxname"), at("svname"), at("status")) else {
        return Vec::new();
    };
    let all = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let is_one = fields.get(server) == Some(&"FRONTEND");
        is_one.then(|| Some((Arc::from(*fields.get(proxy)?), fields.get(status) == Some(&"OPEN")))).flatten()
    });
    all.collect()
}

/// `show info`. What a number cannot be is 0: nothing that the process says is trusted to be in range.
pub fn info(text: &str) -> Info {
    let mut out = Info::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name {
            "Pid" => out.pid = value.parse().unwrap_or(0),
            "Start_time_sec" => out.started_s = value.parse().unwrap_or(0),
            "Stopping" => out.stopping = value != "0",
            "Version" => out.version = value.to_owned(),
            "description" => out.mark = mark_in(value),
            _ => {}
        }
    }
    out
}

/// The answer of the master to `reload`: what was logged, if it failed.
///
/// # Errors
/// HAProxy's words.
pub fn reload(text: &str) -> Result<(), String> {
    match text.lines().next() {
        Some("Success=1") => Ok(()),
        _ => {
            let log: Vec<&str> = text.lines().filter(|l| !l.starts_with("Success=") && *l != "--").collect();
            Err(log.join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held() {
        let text = "0x7fa502623640 !/ a:can:80\n0x7fa5026236a0 h/a\\b/ va;lue with space\n\n";
        let entries = map(text);
        assert_eq!(entries, [("!/".into(), "a:can:80".into()), ("h/a\\b/".into(), "va;lue with space".into())]);
        assert_eq!(backends("# name\n_404\n_tls\na:web:80\n\n"), ["a:web:80".into()]);
        let cas = "# filename\n/d/authorities/x.pem - 1 certificate(s)\n@system-ca - 145 certificate(s)\n*/d/y.pem\n";
        assert_eq!(stores(cas), ["/d/authorities/x.pem"]);
        assert_eq!(stores("# filename\n/d/certs/a_cert.pem\n"), ["/d/certs/a_cert.pem"]);
    }

    #[test]
    fn servers_and_their_states() {
        let head = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n";
        let line = |name: &str, address: &str, admin: u32, weight: u32| {
            format!("13 a:web:80 1 {name} {address} 2 {admin} {weight} 1 1 1 0 0 0 0 0 0 - 8080 - 0 0 - - 0\n")
        };
        let all = [
            line("up", "10.0.0.1", 0, 1),
            line("drain", "fd00::1", 8, 1),
            line("weightless", "10.0.0.3", 0, 0),
            line("leaving", "10.0.0.4", 1, 1),
            "9 _tls 1 tls - 2 0 1 1 1 1 0 0 0 0 0 0 - 0 - 0 0 - - 0\n".to_owned(),
            "broken\n".to_owned(),
        ];
        let found = servers(&format!("{head}{}", all.concat()));
        let states: Vec<(&str, bool, bool)> = found.iter().map(|s| (&*s.name, s.drain, s.maintenance)).collect();
        assert_eq!(
            states,
            [("up", false, false), ("drain", true, false), ("weightless", true, false), ("leaving", false, true)]
        );
        assert_eq!((found[1].address, found[1].port), (Some("fd00::1".parse().unwrap()), 8080));
    }

    #[test]
    fn lines_of_hosts() {
        let text = "# /d/certs.list\n/d/certs/a_cert.pem:1 [alpn h2,http/1.1\0] h.com\n/d/certs/a_cert.pem:2 [alpn h2,http/1.1\0 verify required ca-file /d/ca.pem] m.com *.n.com\n/d/x.pem:3\n";
        let lines = crt_list(text);
        assert_eq!(lines.len(), 3);
        assert_eq!((&*lines[0].certificate, lines[0].number, &lines[0].client), ("/d/certs/a_cert.pem", 1, &None));
        assert_eq!(lines[1].client, Some(("/d/ca.pem".into(), true)));
        assert_eq!(lines[1].hosts, ["m.com", "*.n.com"]);
    }

    #[test]
    fn frontends_that_take_connections() {
        let text = "# pxname,svname,qcur,status,weight,\n_sni,FRONTEND,,OPEN,,\n_https,FRONTEND,,PAUSED,,\n_tls,BACKEND,,UP,,\n\n";
        assert_eq!(frontends(text), [("_sni".into(), true), ("_https".into(), false)]);
        assert_eq!(frontends(""), []);
    }

    #[test]
    fn numbers_out_of_range_are_none() {
        let found =
            info("Version: 3.4.7-1\nPid: 4294967296\nStopping: 0\nStart_time_sec: 1796054761\nIdle_pct: 4294967200\n");
        assert_eq!(found, Info { started_s: 1_796_054_761, version: "3.4.7-1".into(), ..Info::default() });
        assert_eq!(info("description: waystation-00000000000000ff\n").mark, Some(255));
        assert_eq!(reload("Success=1\n--\n[NOTICE] x"), Ok(()));
        assert_eq!(reload("Success=0\n--\n[ALERT] bad"), Err("[ALERT] bad".into()));
        assert!(reload("").is_err());
    }
}
