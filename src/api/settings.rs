//! What an Address and the defaults of a RouterConfig both say about stored messages.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::DurationText;

/// For how long a message may stay, whatever its sender says.
///
/// A message whose own time to live lies outside of the window gets the nearer end of it; a message without one gets
/// `maximum`, or `minimum` where no maximum is given. What expires goes to the expiry address, or away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "has(self.minimum) || has(self.maximum)",
        "messageTtl is empty: give minimum, maximum or both, or leave messageTtl out"
    ),
    validation = (
        "!has(self.minimum) || !has(self.maximum) || duration(self.minimum) <= duration(self.maximum)",
        "messageTtl.minimum is longer than messageTtl.maximum: lower the one or raise the other"
    )
)]
pub struct MessageTtl {
    /// The shortest time to live, such as 30s: a message that asks for less gets this much. Default: no lower end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a time to live of zero keeps nothing: use at least 1ms, or leave it out"
    ))]
    pub minimum: Option<DurationText>,
    /// The longest time to live, such as 24h: a message that asks for more, or for nothing, gets this much. Default:
    /// no upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = (
        "duration(self) > duration('0s')",
        "a time to live of zero keeps nothing: use at least 1ms, or leave it out"
    ))]
    pub maximum: Option<DurationText>,
}

/// How often and when a message is delivered again after a receiver has released it or given it back as failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "has(self.maxAttempts) || has(self.delay) || has(self.delayMultiplier) || has(self.maxDelay)",
        "redelivery is empty: give at least one of its fields, or leave redelivery out"
    ),
    validation = (
        "!has(self.delay) || !has(self.maxDelay) || duration(self.delay) <= duration(self.maxDelay)",
        "redelivery.delay is longer than redelivery.maxDelay: lower the one or raise the other"
    )
)]
pub struct Redelivery {
    /// How often a message is tried, the first delivery included; after the last failure it goes to the dead letter
    /// address, or away where there is none. -1 is endless. Default: what the broker has for all its addresses
    /// (Artemis: 10).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("self == -1 || self >= 1", "use 1 or more attempts, or -1 for endless ones"))]
    pub max_attempts: Option<i32>,
    /// The pause before the second attempt, such as 500ms. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<DurationText>,
    /// By what the pause is multiplied from attempt to attempt, such as 1.5; at least 1, at most 1000. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 1000.0))]
    pub delay_multiplier: Option<f64>,
    /// The longest pause that the multiplication may reach, such as 10s. Default: ten times the delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<DurationText>,
}

/// What happens to a message that arrives at a full address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FullPolicy {
    /// It is written to disk and comes back when there is room: senders notice nothing.
    Page,
    /// Senders get no more credit until there is room.
    Block,
    /// It is refused, and the sender is told.
    Fail,
    /// It is thrown away silently.
    Drop,
    /// A value that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}
