//! Whatever is fed in, nothing panics, and what comes out is fit to go on.

use proptest::prelude::*;

use super::address::Networks;
use super::headers;
use super::model::tests::support::{World, ing};
use super::names;
use super::options::{Options, TABLE, Value};
use super::pem;
use super::render::Layout;
use super::runtime::answer::Answer;
use super::runtime::carry;
use super::runtime::command::{Kind, word};
use super::runtime::show;
use super::users;

const KINDS: [Kind; 19] = [
    Kind::AddBackend,
    Kind::Publish,
    Kind::DelBackend,
    Kind::AddServer,
    Kind::SetServer,
    Kind::DelServer,
    Kind::NewStore,
    Kind::SetStore,
    Kind::CommitStore,
    Kind::AbortStore,
    Kind::DelStore,
    Kind::AddCrtList,
    Kind::DelCrtList,
    Kind::SetMap,
    Kind::DelMap,
    Kind::PrepareMap,
    Kind::CommitMap,
    Kind::SwitchFrontend,
    Kind::Show,
];

/// Text with more of what means something somewhere than chance would bring.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => any::<String>(),
        2 => "[ -~]{0,20}",
        1 => proptest::sample::select(&["\n", "\r\n", "<<", ";", "\\", " ", "|", "%[src]", "\0", "..", "/", "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n",
            "MIIBszCCAVmgAwIBAgIUQWJjZGVm\n", "10.0.0.0/8", "*", "https://", "30s", "0x1 ", "# ", "= "][..]).prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// What stands in a Secret that is to hold certificates.
#[derive(Clone, Debug)]
enum Piece {
    Certificate(String),
    Key(&'static str, String),
    /// Derived from the key, or of no use: left out.
    Other(&'static str, String),
    /// Between two blocks: nothing of it may be left.
    Between(String),
    /// Inside a block of certificates.
    Inside(&'static str, String),
}

/// Base64 of what begins like DER.
fn body() -> impl Strategy<Value = String> {
    "M[A-Za-z0-9+/]{19}([A-Za-z0-9+/]{4}){0,40}(==)?".prop_map(|body| match body.strip_suffix("==") {
        Some(rest) => format!("{}==", &rest[..rest.len() - 2]),
        None => body,
    })
}

fn piece() -> impl Strategy<Value = Piece> {
    let commands =
        &["shutdown sessions", "", "  ", "# a comment", "del backend x", "%WAYSTATION%", "<<", "-----", ";", "x\u{0}y"];
    let keys = proptest::sample::select(&["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"][..]);
    let others = proptest::sample::select(&["EC PARAMETERS", "DH PARAMETERS", "PUBLIC KEY"][..]);
    let inside = &["del map x", "%WAYSTATION%", "abc;", "-----BEGIN CERTIFICATE-----", "a-b", "\u{e9}"];
    prop_oneof![
        4 => body().prop_map(Piece::Certificate),
        2 => (keys, body()).prop_map(|(label, body)| Piece::Key(label, body)),
        1 => (others, body()).prop_map(|(label, body)| Piece::Other(label, body)),
        3 => proptest::sample::select(&commands[..]).prop_map(|text| Piece::Between(text.to_owned())),
        1 => "[ -,.-~]{0,30}".prop_map(Piece::Between),
        1 => (proptest::sample::select(&inside[..]), body()).prop_map(|(text, body)| Piece::Inside(text, body)),
    ]
}

/// A block with lines of that length; `loose`: with blanks and empty lines among them, and other ends of lines.
fn block(label: &str, body: &str, length: usize, loose: bool) -> String {
    let (end, more) = if loose { ("\r\n", "\r\n  ") } else { ("\n", "") };
    let lines: Vec<&str> =
        body.as_bytes().chunks(length).map(|chunk| std::str::from_utf8(chunk).unwrap_or_default()).collect();
    format!("-----BEGIN {label}-----{end}{}{end}-----END {label}-----{end}", lines.join(&format!("{end}{more}")))
}

fn written(pieces: &[Piece], length: usize, loose: bool) -> String {
    let one = |piece: &Piece| match piece {
        Piece::Certificate(body) => block("CERTIFICATE", body, length, loose),
        Piece::Key(label, body) | Piece::Other(label, body) => block(label, body, length, loose),
        Piece::Between(text) => format!("{text}\n"),
        Piece::Inside(text, body) => {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n{body}\n-----END CERTIFICATE-----\n")
        }
    };
    pieces.iter().map(one).collect()
}

/// What of it counts, written as we write it.
fn counted(pieces: &[Piece], keys: bool) -> (usize, String) {
    let blocks = pieces.iter().filter_map(|piece| match piece {
        Piece::Certificate(body) if !keys => Some(block("CERTIFICATE", body, 64, false)),
        Piece::Key(label, body) if keys => Some(block(label, body, 64, false)),
        _ => None,
    });
    let blocks: Vec<String> = blocks.collect();
    (blocks.len(), blocks.concat())
}

/// Words without which a command of that kind has not succeeded; none: success is silent.
fn success(kind: Kind) -> Option<&'static [&'static str]> {
    match kind {
        Kind::AddBackend => Some(&["New backend registered."]),
        Kind::Publish => Some(&["Backend published.", "Backend unpublished."]),
        Kind::DelBackend => Some(&["Backend deleted."]),
        Kind::AddServer => Some(&["New server registered."]),
        Kind::DelServer => Some(&["Server deleted."]),
        Kind::NewStore => Some(&["New empty certificate store '/x'!", "New CA file created '/x'!"]),
        Kind::SetStore => Some(&["Transaction created for certificate /x!", "transaction updated for CA /x!"]),
        Kind::CommitStore | Kind::AddCrtList => Some(&["Success!"]),
        Kind::DelStore => Some(&["Certificate '/x' deleted!", "CA file '/x' deleted!"]),
        Kind::DelCrtList => Some(&["Entry '/x' deleted in crtlist '/y'!"]),
        Kind::PrepareMap => Some(&["New version created: 7"]),
        Kind::SetServer | Kind::SetMap | Kind::DelMap | Kind::CommitMap | Kind::SwitchFrontend => None,
        Kind::AbortStore | Kind::Show => Some(&[]),
    }
}

/// A key of an option, ours or another's, and what is written there.
fn said() -> impl Strategy<Value = (String, String)> {
    let own = TABLE.iter().map(|row| format!("waystation.dev/{}", row.name));
    let others =
        TABLE.iter().flat_map(|row| row.aliases).map(|alias| format!("{}{}", alias.prefix.as_str(), alias.key));
    let keys: Vec<String> = own.chain(others).collect();
    let value = prop_oneof![
        2 => text(),
        2 => proptest::sample::select(&["true", "5", "/a b", "X-A: b;c\\<<%WAYSTATION%", "a.b", "users", "10.0.0.0/8",
            "http://10.9.9.9/x;y", "https://x.y/%20", "X-A, X-B", "cookie", "https", "v1", "/$1;", "30s", "regex"][..])
            .prop_map(str::to_owned),
    ];
    (proptest::sample::select(keys), value)
}

/// Nothing that ends a line or a field, or that a process would take for something else.
fn is_plain(text: &str) -> bool {
    !text.contains(['\n', '\r', '\0'])
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|c| c.parse().ok()).unwrap_or(256),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn values_of_options(value in text()) {
        for row in TABLE {
            let key = format!("waystation.dev/{}", row.name);
            let options = Options::read(&[(key.as_str().into(), value.as_str().into())].into());
            for alias in row.aliases {
                let _ = (alias.convert)(&value);
            }
            for bad in &options.bad {
                prop_assert!(bad.message.len() < 1000 && is_plain(&bad.message), "{}", bad.message);
            }
            match options.get(row.opt) {
                Some(Value::Text(text)) => prop_assert!(is_plain(text), "{}: {text:?}", row.name),
                Some(Value::List(list)) => prop_assert!(list.iter().all(|t| is_plain(t) && !t.contains(['|', ' ']))),
                Some(Value::Headers(list)) => {
                    prop_assert!(list.iter().all(|(name, value)| is_plain(name) && is_plain(value)));
                    prop_assert!(headers::fields(list).bytes().all(|b| b.is_ascii_graphic()));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn hosts_paths_and_patterns(value in text()) {
        if let Ok(host) = names::host(&value) {
            prop_assert!(host.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.*".contains(&b)));
            prop_assert_eq!(names::host(&host), Ok(host.clone()));
        }
        if let Ok(path) = names::path(&value) {
            prop_assert!(path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && !b"|\\<>\"".contains(&b)));
            prop_assert_eq!(names::path(&path), Ok(path.clone()));
        }
        if let Ok(pattern) = names::regex(&value) {
            prop_assert!(pattern.bytes().all(|b| b.is_ascii_graphic()));
        }
        if let Ok(networks) = Networks::parse(&value) {
            prop_assert!(networks.keys().keys().all(|k| k.bytes().all(|b| b.is_ascii_hexdigit())));
        }
    }

    #[test]
    fn words_are_one_word(value in text()) {
        let word = word(&value);
        let mut escaped = false;
        for c in word.chars() {
            prop_assert!(!c.is_control());
            prop_assert!(escaped || !matches!(c, ' ' | ';' | '<'), "{word:?}");
            escaped = c == '\\' && !escaped;
        }
        prop_assert!(!escaped, "{word:?} would escape what follows");
    }

    #[test]
    fn pem_and_users(value in text()) {
        let lines = |clean: &str| clean.lines().all(|l| {
            l.starts_with("-----") || (!l.is_empty() && l.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)))
        });
        if let Ok(clean) = pem::authority(value.as_bytes()) {
            prop_assert!(lines(&clean), "{clean}");
        }
        if let Ok(clean) = pem::identity(value.as_bytes(), value.as_bytes()) {
            prop_assert!(lines(&clean), "{clean}");
        }
        let data = [("auth".into(), value.as_bytes().into())].into();
        if let Ok(users) = users::users(&data) {
            prop_assert!(users.lines().all(|l| l.contains(':') && !l.chars().any(char::is_control)));
        }
    }

    #[test]
    fn what_the_process_says(value in text()) {
        for kind in KINDS {
            if let Answer::Refused(words) = Answer::read(kind, &value) {
                prop_assert!(is_plain(&words) && words.chars().count() <= 300);
            }
        }
        let _ = (show::map(&value), show::backends(&value), show::servers(&value), show::crt_list(&value), show::frontends(&value));
        let _ = (show::info(&value), show::stores(&value), show::reload(&value));
    }

    #[test]
    fn of_a_secret_all_blocks_that_count_are_left_and_nothing_else(
        pieces in proptest::collection::vec(piece(), 0..8), length in 1..100_usize, loose: bool
    ) {
        let text = written(&pieces, length, loose);
        let broken = pieces.iter().any(|piece| matches!(piece, Piece::Inside(..)));
        let ((certificates, chain), (keys, key)) = (counted(&pieces, false), counted(&pieces, true));
        let whole = pem::authority(text.as_bytes());
        match (broken, certificates) {
            (true, _) => prop_assert!(whole.is_err(), "{whole:?}"),
            (false, 0) => prop_assert_eq!(whole, Err(pem::PemError::NoCertificate)),
            (false, _) => prop_assert_eq!(&*whole.unwrap_or_default(), chain.as_str()),
        }
        let both = pem::identity(text.as_bytes(), text.as_bytes());
        match (broken, certificates, keys) {
            (true, ..) => prop_assert!(both.is_err(), "{both:?}"),
            (_, 0, _) => prop_assert_eq!(both, Err(pem::PemError::NoCertificate)),
            (_, _, 0) => prop_assert_eq!(both, Err(pem::PemError::NoKey)),
            (_, _, 1) => prop_assert_eq!(both.unwrap_or_default().to_string(), chain + &key),
            _ => prop_assert_eq!(both, Err(pem::PemError::SeveralKeys)),
        }
    }

    #[test]
    fn nothing_is_done_that_is_not_said_to_be(
        kind in proptest::sample::select(&KINDS[..]), before in text(), after in text(), pick: usize, says: bool
    ) {
        let words = success(kind);
        let done = words.filter(|words| !words.is_empty()).map(|words| words[pick % words.len()]);
        let text = match done {
            Some(done) if says => format!("{before}\n{done}\n{after}"),
            _ => format!("{before}\n{after}"),
        };
        let answer = Answer::read(kind, &text);
        if matches!(answer, Answer::Done | Answer::Version(_)) {
            match words {
                None => prop_assert!(text.trim().is_empty(), "{text:?}"),
                Some([]) => {}
                Some(_) => prop_assert!(says, "{text:?}"),
            }
        }
        // And what is said alone is understood, whatever the process has told before.
        if let Some(done) = done.filter(|_| !["in use", "exist", "already"].iter().any(|word| before.contains(word))) {
            let answer = Answer::read(kind, &format!("{before}\n{done}\n"));
            prop_assert!(matches!(answer, Answer::Done | Answer::Version(_)), "{answer:?}");
        }
    }

    #[test]
    fn whatever_an_ingress_says_each_command_is_one(
        first in proptest::collection::vec(said(), 0..4), then in proptest::collection::vec(said(), 0..4)
    ) {
        let (mut world, layout) = (World::plain(), Layout::new("/d"));
        for said in [first, then, Vec::new()] {
            let said: Vec<(&str, &str)> = said.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            // The model checks itself.
            world.ingress(ing("a/one", 1).path("h.com", "/", "web:80").specific("h.com", "/x", "api:80").say(&said));
            for command in carry::steps(&world.last.changes, world.model.wanted(), &layout).iter().flat_map(|s| &s.commands) {
                let (line, rest) = command.text.split_once('\n').unwrap_or_default();
                let (line, payload) = match line.split_once(" <<%WAYSTATION%") {
                    Some((line, end)) => {
                        prop_assert_eq!(end, "");
                        (line, rest.strip_suffix("%WAYSTATION%\n"))
                    }
                    None => (line, Some(rest).filter(|rest| rest.is_empty())),
                };
                let payload = payload.ok_or_else(|| TestCaseError::fail(command.text.clone()))?;
                prop_assert!(payload.lines().all(|line| line != "%WAYSTATION%" && !line.is_empty()), "{payload:?}");
                let mut escaped = false;
                for c in line.chars() {
                    prop_assert!(!c.is_control() && (escaped || !matches!(c, ';' | '<')), "{line:?}");
                    escaped = c == '\\' && !escaped;
                }
                // Of a map each line is a key and what it leads to.
                if line.starts_with("add map") {
                    let entry = |line: &str| line.split_once(' ').is_some_and(|(k, v)| !k.is_empty() && !v.trim().is_empty());
                    prop_assert!(payload.lines().all(entry), "{payload:?}");
                }
            }
        }
        prop_assert!(world.problems().is_empty(), "{:?}", world.problems());
    }
}
