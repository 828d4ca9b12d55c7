//! What a process says that it holds.

use std::fmt::Write as _;

use super::{Admin, Worker};

const SERVERS: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n";

impl Worker {
    pub(super) fn show(&self, what: &[&str]) -> String {
        let mut out = String::new();
        match what {
            ["info"] => {
                let (pid, at, stopping) = (self.pid, self.started_s, u8::from(self.stopping));
                let _ = writeln!(out, "Name: HAProxy\nVersion: 3.4.7-1\nPid: {pid}\nnode: sim");
                if !self.description.is_empty() {
                    let _ = writeln!(out, "description: {}", self.description);
                }
                let _ = writeln!(out, "Stopping: {stopping}\nStart_time_sec: {at}");
            }
            ["map", path] => match self.maps.get(*path) {
                Some(map) => {
                    for (at, (key, value)) in map.entries.iter().enumerate() {
                        let _ = writeln!(out, "0x7f{:08x} {key} {value}", at * 0x60);
                    }
                }
                None => out.push_str("Unknown map identifier. Please use #<id> or <file>."),
            },
            ["backend"] => {
                out.push_str("# name\n");
                self.backends.keys().for_each(|name| out.extend([name, "\n"]));
            }
            ["servers", "state"] => self.show_servers(&mut out),
            ["ssl", kind @ ("cert" | "ca-file")] => self.show_stores(kind, &mut out),
            ["ssl", "crt-list", "-n", list] => match self.lists.get(*list) {
                Some(found) => {
                    let _ = writeln!(out, "# {list}");
                    for line in &found.lines {
                        let (options, hosts) = (line.options.join(" "), line.hosts.join(" "));
                        let _ = writeln!(out, "{}:{} [{options}] {hosts}", line.certificate, line.number);
                    }
                }
                None => out.push_str("didn't find the specified filename"),
            },
            ["stat", "-1", "1", "-1"] => {
                out.push_str("# pxname,svname,status,weight,\n");
                for (name, open) in self.frontends.iter().filter_map(|(name, open)| Some((name, (*open)?))) {
                    let _ = writeln!(out, "{name},FRONTEND,{},,", if open { "OPEN" } else { "PAUSED" });
                }
            }
            _ => out.push_str("Unknown command: 'show'"),
        }
        out
    }

    fn show_servers(&self, out: &mut String) {
        out.push_str(SERVERS);
        for (backend, held) in &self.backends {
            for (name, server) in &held.servers {
                let admin = match server.admin {
                    Admin::Maintenance => 1,
                    Admin::Ready => 0,
                    Admin::Drain => 8,
                };
                let op = if server.admin == Admin::Maintenance { 0 } else { 2 };
                let (at, port, weight) = (&server.address, server.port, server.weight);
                let at = if port == 0 { "-" } else { at };
                let _ = writeln!(
                    out,
                    "9 {backend} 1 {name} {at} {op} {admin} {weight} 1 0 1 0 0 0 0 0 0 - {port} - 0 0 - - 0"
                );
            }
        }
    }

    fn show_stores(&self, kind: &str, out: &mut String) {
        let ca = kind == "ca-file";
        let (stores, transaction) = match ca {
            true => (&self.authorities, &self.authority_transaction),
            false => (&self.certificates, &self.certificate_transaction),
        };
        let count = if ca { " - 1 certificate(s)" } else { "" };
        if let Some((path, _)) = transaction {
            let _ = writeln!(out, "# transaction\n*{path}{count}");
        }
        out.push_str("# filename\n");
        for path in stores.keys() {
            let _ = writeln!(out, "{path}{count}");
        }
        if ca {
            out.push_str("@system-ca - 145 certificate(s)\n");
        }
    }
}
