//! What cannot be seen from outside by comparison with the real one.

use std::collections::BTreeSet;

use super::*;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n";

fn files() -> Files {
    let config = "global\n  description d\n\ndefaults c\n\nfrontend _https from c\n  disabled\n  bind 1.1.1.1:443 ssl crt-list /d/certs.list\n  http-request x if { var(txn.a),map_str_int(/d/maps/a.map) }\n";
    [
        ("/d/haproxy.cfg", config),
        ("/d/certs.list", "/d/certs/a.pem [alpn h2] a.com\n"),
        ("/d/certs/a.pem", PEM),
        ("/d/maps/a.map", "k v\n"),
        ("/d/backends/0000.cfg", "backend b from c\n  server s 10.0.0.1:80 weight 1\n"),
    ]
    .map(|(path, text)| (path.to_owned(), text.into()))
    .into()
}

fn start(files: &Files) -> Result<Worker, String> {
    Parser::default().start(files, "/d", (1, 7), &BTreeSet::new())
}

#[test]
fn it_starts_from_files_and_from_nothing_that_lacks_what_they_refer_to() {
    let worker = start(&files()).unwrap();
    assert!(worker.backends["b"].servers["s"].takes() && worker.backends["b"].published);
    assert_eq!((worker.description.as_str(), worker.frontends["_https"]), ("d", None));
    assert_eq!(worker.maps["/d/maps/a.map"].entries, [("k".to_owned(), "v".to_owned())]);
    for path in ["/d/haproxy.cfg", "/d/certs.list", "/d/certs/a.pem", "/d/maps/a.map", "/d/backends/0000.cfg"] {
        let mut lacking = files();
        lacking.remove(path);
        assert!(start(&lacking).is_err(), "without {path}");
    }
    let mut foreign = files();
    foreign.insert("/d/backends/0001.cfg".into(), "backend x from nothing\n".into());
    assert!(start(&foreign).unwrap_err().contains("unknown defaults"));
}

#[test]
fn whoever_has_sessions_is_not_removed() {
    let mut worker = start(&files()).unwrap();
    if let Some(server) = worker.backends.get_mut("b").and_then(|b| b.servers.get_mut("s")) {
        server.sessions = 1;
    }
    assert_eq!(worker.ask("set server b/s state maint\n"), "");
    assert!(worker.ask("del server b/s\n").contains("still has connections"));
}

#[test]
fn two_commands_in_a_line_are_none() {
    let mut worker = start(&files()).unwrap();
    assert!(worker.ask("del map /d/maps/a.map k;show info\n").contains("Can't read"));
    assert!(worker.ask("add map /d/maps/a.map <<E\na b\nE\nshow info\n").contains("Can't read"));
    assert_eq!(worker.ask("add map /d/maps/a.map <<E\na\\;b c d\nE\n"), "");
    assert_eq!(worker.maps["/d/maps/a.map"].entries[1], ("a\\;b".to_owned(), "c d".to_owned()));
    assert_eq!(worker.ask("del map /d/maps/a.map a\\\\\\;b\n"), "");
}
