//! AMQP values: short ways to make and to read them, and how Python writes them, which the agent's answers quote.

use serde_amqp::Value;
use serde_amqp::primitives::OrderedMap;

/// A map of attributes.
pub type Attributes = OrderedMap<String, Value>;

pub(super) fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

pub(super) fn optional(value: Option<&str>) -> Value {
    value.map_or(Value::Null, text)
}

pub(super) fn number(number: u64) -> Value {
    Value::Ulong(number)
}

/// A list of texts.
pub(super) fn texts<'a>(all: impl IntoIterator<Item = &'a str>) -> Value {
    Value::List(all.into_iter().map(text).collect())
}

/// A map with texts for keys.
pub(super) fn map(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (Value::String(key), value)).collect())
}

/// The empty map.
pub(super) fn empty() -> Value {
    Value::Map(OrderedMap::new())
}

/// The attributes in a body, or `None` when it is not a map. Keys that are no texts are left out.
pub(super) fn attributes(body: &Value) -> Option<Attributes> {
    let Value::Map(map) = body else { return None };
    let text = |key: &Value| match key {
        Value::String(key) => Some(key.clone()),
        Value::Symbol(key) => Some(key.to_string()),
        _ => None,
    };
    Some(map.iter().filter_map(|(key, value)| Some((text(key)?, value.clone()))).collect())
}

pub(super) fn as_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Symbol(symbol) => Some(symbol.as_str()),
        _ => None,
    }
}

/// An integer of any width.
pub(super) fn as_integer(value: &Value) -> Option<i64> {
    match value {
        Value::Byte(number) => Some(i64::from(*number)),
        Value::Ubyte(number) => Some(i64::from(*number)),
        Value::Short(number) => Some(i64::from(*number)),
        Value::Ushort(number) => Some(i64::from(*number)),
        Value::Int(number) => Some(i64::from(*number)),
        Value::Uint(number) => Some(i64::from(*number)),
        Value::Long(number) => Some(*number),
        Value::Ulong(number) => i64::try_from(*number).ok(),
        _ => None,
    }
}

/// As Python's `str` writes it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Symbol(symbol) => symbol.to_string(),
        other => quoted(other),
    }
}

/// As Python's `repr` writes it.
pub(super) fn quoted(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => quote(text),
        Value::Symbol(symbol) => quote(symbol.as_str()),
        Value::Map(map) => {
            let entries: Vec<_> =
                map.iter().map(|(key, value)| format!("{}: {}", quoted(key), quoted(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::List(list) => format!("[{}]", list.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        other => as_integer(other).map_or_else(|| format!("{other:?}"), |number| number.to_string()),
    }
}

pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A Python list of texts.
pub(super) fn quoted_list(all: &[&str]) -> String {
    format!("[{}]", all.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", "))
}
