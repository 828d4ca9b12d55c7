//! Durations as people write them in Kubernetes: `500ms`, `30s`, `1h30m`.
//!
//! Invariant: the parser accepts whatever the schema (pattern and CEL rule of [`DurationText`]) accepts, and refuses
//! whatever it refuses.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Up to four terms of a whole number and a unit. The digits are bounded so that no sum leaves the range of CEL's
/// `duration()` (292 years), in which the longest duration is then checked with a message of its own.
pub const PATTERN: &str = "^([0-9]{1,5}h|[0-9]{1,7}m|[0-9]{1,9}s|[0-9]{1,10}ms){1,4}$";

/// The longest duration there is: ten years of 365 days.
pub const MAX: Duration = Duration::from_secs(87_600 * 3_600);

const MAX_TERMS: usize = 4;
/// Four terms of ten digits and a unit of two letters.
const MAX_LENGTH: usize = MAX_TERMS * 12;

/// Why a text is no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not terms of a whole number and one of the units h, m, s, ms.
    #[error("not a duration: write whole numbers with the units h, m, s or ms, such as 30s or 1h30m")]
    Syntax,
    /// More than [`MAX`].
    #[error("too long: a duration is at most 87600h (ten years)")]
    TooLong,
}

/// A duration in the text that a person wrote; [`DurationText::parse`] gives its value.
///
/// It decodes from any string, so that an object stored before a rule became stricter stays readable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

impl DurationText {
    /// The value.
    pub fn parse(&self) -> Result<Duration, DurationError> {
        parse_duration(&self.0)
    }
}

impl From<Duration> for DurationText {
    fn from(duration: Duration) -> Self {
        Self(format_duration(duration))
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 2,
            "maxLength": MAX_LENGTH,
            "pattern": PATTERN,
            "x-kubernetes-validations": [{
                "rule": "duration(self) <= duration('87600h')",
                "message": "use a duration of at most 87600h (ten years)",
            }],
        })
    }
}

/// Reads a duration such as `1h30m` or `500ms`, exact to the millisecond.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut terms = 0;
    while !rest.is_empty() {
        terms += 1;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        // `ms` before `m`, its beginning.
        let (unit_millis, max_digits, tail) = if let Some(tail) = tail.strip_prefix("ms") {
            (1, 10, tail)
        } else if let Some(tail) = tail.strip_prefix('s') {
            (1_000, 9, tail)
        } else if let Some(tail) = tail.strip_prefix('m') {
            (60_000, 7, tail)
        } else if let Some(tail) = tail.strip_prefix('h') {
            (3_600_000, 5, tail)
        } else {
            return Err(DurationError::Syntax);
        };
        if terms > MAX_TERMS || number.len() > max_digits {
            return Err(DurationError::Syntax);
        }
        let number: u64 = number.parse().map_err(|_| DurationError::Syntax)?;
        // At most ten digits times 3,600,000 and four terms: far below the range of u64.
        total += Duration::from_millis(number * unit_millis);
        rest = tail;
    }
    match terms {
        0 => Err(DurationError::Syntax),
        _ if total > MAX => Err(DurationError::TooLong),
        _ => Ok(total),
    }
}

/// Writes a duration so that [`parse_duration`] reads it back, without what is less than a millisecond.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 3_600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (duration.subsec_millis().into(), "ms"),
    ];
    let text: String =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, unit)| format!("{number}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_usual_forms_are_read() {
        let millis = |text| parse_duration(text).map(|d| d.as_millis());
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("30s"), Ok(30_000));
        assert_eq!(millis("1h30m"), Ok(5_400_000));
        assert_eq!(millis("1h0m0s"), Ok(3_600_000));
        assert_eq!(millis("0s"), Ok(0));
        assert_eq!(millis("604800s"), Ok(604_800_000));
        assert_eq!(millis("87600h"), Ok(MAX.as_millis()));
    }

    #[test]
    fn what_the_pattern_refuses_is_refused() {
        for text in
            ["", "30", "s", "1.5h", "-1s", "+1s", "1d", "1h ", " 1h", "1H", "1us", "123456h", "1s1s1s1s1s", "1s1"]
        {
            assert_eq!(parse_duration(text), Err(DurationError::Syntax), "{text:?}");
        }
        assert_eq!(parse_duration("87600h1ms"), Err(DurationError::TooLong));
        assert_eq!(parse_duration("99999h99999h99999h99999h"), Err(DurationError::TooLong));
    }

    /// The pattern that the schema carries; a generated string is always a whole match.
    fn matching() -> impl Strategy<Value = String> {
        proptest::string::string_regex(PATTERN.trim_start_matches('^').trim_end_matches('$')).unwrap()
    }

    proptest! {
        #[test]
        fn whatever_the_schema_accepts_the_parser_accepts(text in matching()) {
            prop_assert!(text.len() <= MAX_LENGTH);
            // `TooLong` is what the CEL rule refuses.
            match parse_duration(&text) {
                Ok(duration) => prop_assert!(duration <= MAX),
                Err(error) => prop_assert_eq!(error, DurationError::TooLong),
            }
        }

        #[test]
        fn what_is_written_is_read_back(millis in 0..=MAX.as_millis() as u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_parser_fail_otherwise(text in "[0-9hms]{0,60}") {
            let _ = parse_duration(&text);
        }
    }
}
