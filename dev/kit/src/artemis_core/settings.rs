//! Address settings: matches, what is taken of a request, and the merge that is in force.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::queues::parse_object;

/// The Java type of a key: it decides what is taken, cut or refused.
#[derive(Clone, Copy)]
enum Kind {
    Long,
    Integer,
    Double,
    Boolean,
    Text,
    Policy,
}

const KEYS: [(&str, Kind); 23] = [
    ("addressFullMessagePolicy", Kind::Policy),
    ("maxSizeBytes", Kind::Long),
    ("maxSizeMessages", Kind::Long),
    ("pageSizeBytes", Kind::Integer),
    ("pageLimitBytes", Kind::Long),
    ("maxDeliveryAttempts", Kind::Integer),
    ("redeliveryDelay", Kind::Long),
    ("redeliveryMultiplier", Kind::Double),
    ("maxRedeliveryDelay", Kind::Long),
    ("deadLetterAddress", Kind::Text),
    ("expiryAddress", Kind::Text),
    ("expiryDelay", Kind::Long),
    ("minExpiryDelay", Kind::Long),
    ("maxExpiryDelay", Kind::Long),
    ("autoCreateQueues", Kind::Boolean),
    ("autoCreateAddresses", Kind::Boolean),
    ("autoDeleteQueues", Kind::Boolean),
    ("autoDeleteAddresses", Kind::Boolean),
    ("autoCreateDeadLetterResources", Kind::Boolean),
    ("autoCreateExpiryResources", Kind::Boolean),
    ("defaultMaxConsumers", Kind::Integer),
    ("slowConsumerThreshold", Kind::Long),
    ("managementBrowsePageSize", Kind::Integer),
];

const DEFAULT_PAGE_BYTES: i64 = 10_485_760;

/// The settings of a broker: those of `#`, which the configuration file gives, and those that were added.
#[derive(Debug, Clone)]
pub(super) struct AddressSettings {
    base: Map<String, Value>,
    exact: BTreeMap<String, Map<String, Value>>,
    wildcard: BTreeMap<String, Map<String, Value>>,
}

impl Default for AddressSettings {
    fn default() -> Self {
        let base = json!({
            "addressFullMessagePolicy": "PAGE", "maxSizeBytes": -1, "maxReadPageBytes": 20_971_520,
            "maxReadPageMessages": -1, "pageLimitBytes": -1, "pageLimitMessages": -1, "maxSizeMessages": -1,
            "pageSizeBytes": DEFAULT_PAGE_BYTES, "messageCounterHistoryDayLimit": 10, "redeliveryDelay": 0,
            "deadLetterAddress": "DLQ", "expiryAddress": "ExpiryQueue",
            "slowConsumerThresholdMeasurementUnit": "MESSAGES_PER_SECOND", "autoCreateQueues": true,
            "autoDeleteQueues": false, "autoCreateAddresses": true, "autoDeleteAddresses": false,
            "managementBrowsePageSize": 200,
        });
        let base = base.as_object().cloned().unwrap_or_default();
        Self { base, exact: BTreeMap::new(), wildcard: BTreeMap::new() }
    }
}

impl AddressSettings {
    /// Replaces the settings of a match by what is taken of `text`; the echo.
    pub(super) fn add(&mut self, matches: &str, text: &str) -> Result<String, String> {
        let wanted = parse_object(text)?;
        let mut taken = Map::new();
        for (key, kind) in KEYS {
            if let Some(value) = wanted.get(key).filter(|value| !value.is_null()) {
                taken.insert(key.to_owned(), take(key, kind, value)?);
            }
        }
        let number = |key: &str| taken.get(key).and_then(Value::as_i64);
        let (limit, page) =
            (number("maxSizeBytes").unwrap_or(-1), number("pageSizeBytes").unwrap_or(DEFAULT_PAGE_BYTES));
        if page > limit && limit > 0 {
            return Err(format!("pageSize has to be lower than maxSizeBytes. Invalid argument ({page} < {limit})"));
        }
        if limit < -1 {
            return Err("Invalid argument on maxSizeBytes".to_owned());
        }
        verify_match(matches)?;
        let mut echo = taken.clone();
        echo.insert("slowConsumerThresholdMeasurementUnit".to_owned(), Value::from("MESSAGES_PER_SECOND"));
        echo.entry("managementBrowsePageSize").or_insert(Value::from(200));
        self.matches_of(matches).insert(matches.to_owned(), taken);
        Ok(Value::Object(echo).to_string())
    }

    /// Takes a match away; false when it was not there.
    pub(super) fn remove(&mut self, matches: &str) -> bool {
        self.matches_of(matches).remove(matches).is_some()
    }

    pub(super) fn added(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        self.exact.iter().chain(&self.wildcard).map(|(matches, keys)| (matches.as_str(), keys))
    }

    pub(super) fn merged_json(&self, address: &str) -> String {
        let mut merged = self.base.clone();
        for keys in self.narrowing(address) {
            merged.extend(keys.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        Value::Object(merged).to_string()
    }

    pub(super) fn flag(&self, address: &str, key: &str) -> bool {
        let narrowest = self.narrowing(address).filter_map(|keys| keys.get(key)).last();
        narrowest.or_else(|| self.base.get(key)).and_then(Value::as_bool).unwrap_or(false)
    }

    /// What was added and matches, from wide to narrow.
    fn narrowing(&self, address: &str) -> impl Iterator<Item = &Map<String, Value>> {
        let mut wide: Vec<_> = self.wildcard.iter().filter(|(matches, _)| takes(matches, address)).collect();
        wide.sort_by_key(|(matches, _)| matches.len());
        wide.into_iter().map(|(_, keys)| keys).chain(self.exact.get(address))
    }

    fn matches_of(&mut self, matches: &str) -> &mut BTreeMap<String, Map<String, Value>> {
        if matches.contains(['*', '#']) { &mut self.wildcard } else { &mut self.exact }
    }
}

fn take(key: &str, kind: Kind, value: &Value) -> Result<Value, String> {
    let refused = |class: &str| format!("Error while parsing MetaData{{type=class {class}, name='{key}'}}");
    // Java cuts what does not fit: a fraction for both, the upper half for an Integer.
    let whole = || value.as_i64().or_else(|| value.as_f64().map(|number| number as i64));
    match kind {
        Kind::Long => whole().map(Value::from).ok_or_else(|| refused("java.lang.Long")),
        Kind::Integer => whole().map(|number| Value::from(number as i32)).ok_or_else(|| refused("java.lang.Integer")),
        Kind::Double => value.as_f64().map(Value::from).ok_or_else(|| refused("java.lang.Double")),
        Kind::Boolean => value.as_bool().map(Value::from).ok_or_else(|| refused("java.lang.Boolean")),
        Kind::Text => value.as_str().map(Value::from).ok_or_else(|| refused("SimpleString")),
        Kind::Policy => match value.as_str() {
            Some(policy @ ("DROP" | "PAGE" | "BLOCK" | "FAIL")) => Ok(Value::from(policy)),
            _ => Err(refused("org.apache.activemq.artemis.core.settings.impl.AddressFullMessagePolicy")),
        },
    }
}

/// The broker compiles every match as a Java regular expression, also one without wildcards, and escapes only `.` and
/// `$`. The three ways in which plain names break that.
fn verify_match(matches: &str) -> Result<(), String> {
    if matches.contains('#') && matches.find('#') != Some(matches.len() - 1) {
        return Err("AMQ229071: # can only be at end of match".to_owned());
    }
    let pattern = format!("{}$", matches.replace('.', "\\.").replace('$', "\\$"));
    let characters: Vec<char> = pattern.chars().collect();
    let count = |wanted: char| characters.iter().filter(|character| **character == wanted).count();
    let pointing = |what: &str, index: usize| format!("{what} near index {index}\n{pattern}\n{}^", " ".repeat(index));
    if count('(') > count(')') {
        return Err(format!("Unclosed group near index {}\n{pattern}", characters.len()));
    }
    if count('[') > count(']') {
        return Err(pointing("Unclosed character class", characters.len() - 1));
    }
    let brace = characters.iter().position(|character| *character == '{');
    if let Some(index) = brace.filter(|at| !characters.get(at + 1).is_some_and(char::is_ascii_digit)) {
        return Err(pointing("Illegal repetition", index + 1));
    }
    Ok(())
}

/// Whether a wildcard match takes an address: `*` is one word between dots, `.#` any number of further words.
fn takes(matches: &str, address: &str) -> bool {
    if matches == "#" {
        return true;
    }
    let (pattern, open_end) = match matches.strip_suffix('#') {
        Some(pattern) => (pattern.strip_suffix('.').unwrap_or(pattern), true),
        None => (matches, false),
    };
    let whole = |rest: &str| rest.is_empty() || (open_end && rest.len() > 1 && rest.starts_with('.'));
    let mut pieces = pattern.split('*');
    let Some(rest) = pieces.next().and_then(|start| address.strip_prefix(start)) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    takes_words(&pieces, rest, &whole)
}

/// `pieces` are the literal texts that follow each `*`.
fn takes_words(pieces: &[&str], rest: &str, whole: &dyn Fn(&str) -> bool) -> bool {
    let Some((piece, further)) = pieces.split_first() else { return whole(rest) };
    let word = rest.find('.').unwrap_or(rest.len());
    let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]).filter(|end| (1..=word).contains(end));
    ends.filter_map(|end| rest.get(end..)?.strip_prefix(piece)).any(|rest| takes_words(further, rest, whole))
}
