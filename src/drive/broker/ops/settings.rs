//! Settings of addresses in the broker's words, and how those in force are told from those wanted.

use serde_json::{Map, Value};

use super::{DEFAULT_PAGE_BYTES, parse_nested};
use crate::messaging::broker::Settings;

/// Settings in the broker's keys: those wanted, and auto-creation and auto-deletion off, always.
pub(super) fn settings_json(settings: &Settings) -> Map<String, Value> {
    let Settings {
        max_size_bytes,
        full_policy,
        max_delivery_attempts,
        redelivery_delay_ms,
        redelivery_multiplier,
        max_redelivery_delay_ms,
        dead_letter_address,
        expiry_address,
        min_expiry_delay_ms,
        max_expiry_delay_ms,
    } = settings;
    // The broker refuses a limit below the page size, which counts even where nothing is paged.
    let page_size_bytes = max_size_bytes.filter(|limit| (1..DEFAULT_PAGE_BYTES).contains(limit));
    let wanted = [
        ("maxSizeBytes", max_size_bytes.map(Value::from)),
        ("pageSizeBytes", page_size_bytes.map(Value::from)),
        ("addressFullMessagePolicy", full_policy.map(|policy| Value::from(policy.as_str()))),
        ("maxDeliveryAttempts", max_delivery_attempts.map(Value::from)),
        ("redeliveryDelay", redelivery_delay_ms.map(Value::from)),
        ("redeliveryMultiplier", redelivery_multiplier.map(Value::from)),
        ("maxRedeliveryDelay", max_redelivery_delay_ms.map(Value::from)),
        ("deadLetterAddress", dead_letter_address.as_deref().map(Value::from)),
        ("expiryAddress", expiry_address.as_deref().map(Value::from)),
        ("minExpiryDelay", min_expiry_delay_ms.map(Value::from)),
        ("maxExpiryDelay", max_expiry_delay_ms.map(Value::from)),
    ];
    let mut keys: Map<String, Value> =
        wanted.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    for key in AUTOMATIC {
        keys.insert(key.to_owned(), Value::Bool(false));
    }
    keys
}

/// What brokers make and delete by themselves, and not for our addresses.
pub(super) const AUTOMATIC: [&str; 6] = [
    "autoCreateQueues",
    "autoCreateAddresses",
    "autoDeleteQueues",
    "autoDeleteAddresses",
    "autoCreateDeadLetterResources",
    "autoCreateExpiryResources",
];

/// Keys that a [`Settings`] can hold: what is compared.
pub(super) const KEYS: [&str; 11] = [
    "maxSizeBytes",
    "pageSizeBytes",
    "addressFullMessagePolicy",
    "maxDeliveryAttempts",
    "redeliveryDelay",
    "redeliveryMultiplier",
    "maxRedeliveryDelay",
    "deadLetterAddress",
    "expiryAddress",
    "minExpiryDelay",
    "maxExpiryDelay",
];

/// Checks the echo of [`put_settings`].
///
/// # Errors
/// The broker's keys that it did not take, or not with our value.
pub fn check_echo(settings: &Settings, echo: &Value) -> Result<(), Vec<String>> {
    let taken = parse_settings(echo);
    let missed: Vec<String> = settings_json(settings)
        .into_iter()
        .filter(|(key, wanted)| taken.get(key).is_none_or(|value| !same(wanted, value)))
        .map(|(key, _)| key)
        .collect();
    if missed.is_empty() { Ok(()) } else { Err(missed) }
}

/// The answer of [`read_settings`] by key; also an echo.
pub fn parse_settings(answer: &Value) -> Map<String, Value> {
    match parse_nested(answer) {
        Some(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

/// The keys in which the settings in force differ from `wanted`. `base` are the settings in force without the
/// address's own, as read for a name that has none: they tell what an unset key must be.
pub fn differing(wanted: &Settings, in_force: &Map<String, Value>, base: &Map<String, Value>) -> Vec<String> {
    let wanted = settings_json(wanted);
    let expected = |key: &str| wanted.get(key).or_else(|| base.get(key)).unwrap_or(&Value::Null);
    KEYS.iter()
        .chain(&AUTOMATIC)
        .filter(|key| !same(expected(key), in_force.get(**key).unwrap_or(&Value::Null)))
        .map(|key| (*key).to_owned())
        .collect()
}

/// Whether an address has nothing of its own in force, as far as we ever set anything: `base` are the settings in force
/// beside it.
pub fn same_in_force(in_force: &Map<String, Value>, base: &Map<String, Value>) -> bool {
    let absent = Value::Null;
    KEYS.iter()
        .chain(&AUTOMATIC)
        .all(|key| same(in_force.get(*key).unwrap_or(&absent), base.get(*key).unwrap_or(&absent)))
}

/// Whether two JSON values are one to the broker, for whom 2 and 2.0 are the same multiplier.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}
