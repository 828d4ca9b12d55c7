//! Conditions: what every kind tells, in the form that `kubectl wait` and `kubectl describe` read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{Timestamp, Unit};

/// Type of the condition that tells whether the spec is taken: what it refers to exists and allows it.
pub const ACCEPTED: &str = "Accepted";
/// Type of the condition that tells whether the data planes hold what the spec says.
pub const READY: &str = "Ready";

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionValue {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionValue {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionValue {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets the condition `type_`, and says whether anything but the time differs from before.
///
/// `lastTransitionTime` is `now`, to the second as the API stores it, unless the status stays what it was;
/// `observedGeneration` is always set. The list stays sorted by type, so that equal conditions are equal lists.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    value: ConditionValue,
    reason: &str,
    message: &str,
    observed_generation: i64,
    now: Timestamp,
) -> bool {
    let at = conditions.iter().position(|c| c.type_ == type_);
    let before = at.map(|at| conditions.remove(at));
    let last_transition_time = match &before {
        Some(before) if before.status == value.as_str() => before.last_transition_time.clone(),
        _ => Time(to_the_second(now)),
    };
    let condition = Condition {
        type_: type_.to_owned(),
        status: value.as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(observed_generation),
        last_transition_time,
    };
    let changed = before.as_ref() != Some(&condition);
    let at = conditions.partition_point(|c| c.type_.as_str() < type_);
    conditions.insert(at, condition);
    changed
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of that type says True, for whatever generation.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == ConditionValue::True.as_str())
}

/// The API stores whole seconds: anything finer would differ from what comes back.
fn to_the_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or_else(|_| now.round(Unit::Second).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millisecond(second * 1_000 + 321).unwrap()
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        assert!(set_condition(&mut conditions, READY, false.into(), "Configuring", "…", 1, at(1)));
        assert!(set_condition(&mut conditions, READY, false.into(), "BrokerRefused", "no", 2, at(2)));
        assert_eq!(conditions[0].last_transition_time, Time(Timestamp::from_second(1).unwrap()));
        assert_eq!(conditions[0].observed_generation, Some(2));
        assert!(set_condition(&mut conditions, READY, true.into(), "Configured", "", 2, at(3)));
        assert_eq!(conditions[0].last_transition_time, Time(Timestamp::from_second(3).unwrap()));
    }

    #[test]
    fn setting_the_same_again_is_no_change() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, READY, true.into(), "Configured", "", 1, at(1));
        let before = conditions.clone();
        assert!(!set_condition(&mut conditions, READY, true.into(), "Configured", "", 1, at(9)));
        assert_eq!(conditions, before);
        assert!(set_condition(&mut conditions, READY, true.into(), "Configured", "", 2, at(9)), "another generation");
    }

    #[test]
    fn the_list_is_sorted_whatever_the_order_of_calls() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for (list, types) in [(&mut one, [ACCEPTED, READY]), (&mut other, [READY, ACCEPTED])] {
            for type_ in types {
                set_condition(list, type_, ConditionValue::Unknown, "Terminating", "", 1, at(1));
            }
        }
        assert_eq!(one, other);
        assert_eq!(one[0].type_, ACCEPTED);
        assert!(!is_true(&one, ACCEPTED));
        assert!(find(&one, "Other").is_none());
    }

    #[test]
    fn what_is_set_survives_the_wire() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, READY, true.into(), "Configured", "", 1, at(1));
        let back: Vec<Condition> = serde_json::from_str(&serde_json::to_string(&conditions).unwrap()).unwrap();
        assert_eq!(back, conditions);
    }
}
