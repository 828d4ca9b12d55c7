//! Whatever is fed in, nothing panics, and what comes out is fit to go on.

use proptest::prelude::*;

use super::address::Networks;
use super::headers;
use super::names;
use super::options::{Options, TABLE, Value};
use super::pem;
use super::runtime::answer::Answer;
use super::runtime::command::{Kind, word};
use super::runtime::show;
use super::users;

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
        const KINDS: [Kind; 19] = [
            Kind::AddBackend, Kind::Publish, Kind::DelBackend, Kind::AddServer, Kind::SetServer, Kind::DelServer,
            Kind::NewStore, Kind::SetStore, Kind::CommitStore, Kind::AbortStore, Kind::DelStore, Kind::AddCrtList,
            Kind::DelCrtList, Kind::SetMap, Kind::DelMap, Kind::PrepareMap, Kind::CommitMap,
            Kind::SwitchFrontend, Kind::Show,
        ];
        for kind in KINDS {
            if let Answer::Refused(words) = Answer::read(kind, &value) {
                prop_assert!(is_plain(&words) && words.chars().count() <= 300);
            }
        }
        let _ = (show::map(&value), show::backends(&value), show::servers(&value), show::crt_list(&value), show::frontends(&value));
        let _ = (show::info(&value), show::stores(&value), show::reload(&value));
    }
}
