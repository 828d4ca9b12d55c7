//! What a RouterConfig says of sizes: what an Address costs, and how much a space may have.

use std::borrow::Cow;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::address::AddressType;
use super::settings::{MessageTtl, Redelivery};

/// The most that a credit can be.
const MOST: i64 = 1_000_000;

/// How Addresses and AddressSpaces name a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanName(pub String);

impl JsonSchema for PlanName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PlanName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "The name of a plan: 1 to 63 lower case letters, digits, '-' and '.'.",
            "minLength": 1,
            "maxLength": 63,
            "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        })
    }
}

/// A share of a data plane, as a plain number with up to three decimals: what 1 stands for is the RouterConfig's
/// author's choice.
///
/// A plain number and not a Kubernetes quantity, since that is what people add up in their heads: `0.25` four times is
/// 1. Inside it is counted in thousandths, so that sums are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Credit(pub f64);

impl Credit {
    /// In thousandths. What the schema does not let through is cut to what it does.
    pub fn milli(self) -> i64 {
        let most = MOST as f64;
        // A number that is none, or beyond the bounds, was stored by another version.
        if self.0.is_nan() { 0 } else { (self.0.clamp(0.0, most) * 1_000.0).round() as i64 }
    }
}

impl JsonSchema for Credit {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Credit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "number",
            "minimum": 0,
            "maximum": MOST,
            "x-kubernetes-validations": [{
                // No number of three decimals is exact in binary: the nearest is good enough.
                "rule": "self * 1000.0 - double(int(self * 1000.0 + 0.5)) < 0.0001 && \
                         self * 1000.0 - double(int(self * 1000.0 + 0.5)) > -0.0001",
                "message": "a credit has at most three decimals: round it to thousandths, such as 0.125",
            }],
        })
    }
}

/// What an Address costs, and how it is when it says nothing itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "!has(self.messageTtl) || self.addressTypes.exists(t, t in ['queue', 'topic'])",
        "an address plan's messageTtl is only for types queue and topic: remove it, or add one of them to addressTypes"
    ),
    validation = (
        "!has(self.partitions) || 'queue' in self.addressTypes",
        "an address plan's partitions are only for type queue: remove them, or add it to addressTypes"
    ),
    validation = (
        "!has(self.redelivery) || self.addressTypes.exists(t, t in ['queue', 'topic'])",
        "an address plan's redelivery is only for types queue and topic: remove it, or add one of them to addressTypes"
    )
)]
pub struct AddressPlan {
    /// What Addresses call it in spec.plan, such as small.
    pub name: PlanName,
    /// The types of Addresses that it fits.
    #[schemars(length(min = 1, max = 6))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub address_types: Vec<AddressType>,
    /// What an Address of this plan takes of its space's limits.router, in spaces of type standard. A number with up
    /// to three decimals, such as 0.01. Default: 0.
    #[serde(default)]
    pub router_credit: Credit,
    /// What an Address of this plan takes of its space's limits.broker, and of the credit of the broker that holds it
    /// (each of several brokers gives its share). Addresses that no broker holds take none. A number with up to three
    /// decimals, such as 0.1. Default: 0.
    #[serde(default)]
    pub broker_credit: Credit,
    /// How many brokers hold a queue of this plan, in a standard space: each has a part of its messages, so that they
    /// are in no order among each other. Where there are fewer brokers, it is on all. When this changes, a queue moves
    /// without losing messages. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub partitions: Option<u8>,
    /// Time to live of messages in queues and topics of this plan without a messageTtl. Default: that of
    /// messaging.defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl: Option<MessageTtl>,
    /// Redelivery for queues and topics of this plan, field by field where they leave one out. Default: that of
    /// messaging.defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redelivery: Option<Redelivery>,
}

/// What an AddressSpace may have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpacePlan {
    /// What AddressSpaces call it in spec.plan, such as team.
    pub name: PlanName,
    /// How much the Addresses of a space may take together. Default: no limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Names of the address plans that its Addresses may have. Default: all that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub address_plans: Vec<PlanName>,
}

/// How much the Addresses of a space may take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "has(self.router) || has(self.broker) || has(self.aggregate) || has(self.addresses)",
    "limits is empty: give router, broker, aggregate or addresses, or leave limits out"
))]
pub struct Limits {
    /// Sum of routerCredit. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Credit>,
    /// Sum of brokerCredit. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<Credit>,
    /// Sum of both credits. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Credit>,
    /// Number of Addresses. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub addresses: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_is_counted_in_whole_thousandths() {
        for (number, milli) in [(0.0, 0), (0.001, 1), (0.29, 290), (1.001, 1_001), (1_000_000.0, 1_000_000_000)] {
            assert_eq!(Credit(number).milli(), milli, "{number}");
        }
        let tenth = Credit(0.1).milli();
        assert_eq!(tenth * 10, Credit(1.0).milli());
    }

    #[test]
    fn a_number_from_elsewhere_is_cut_to_what_can_be_counted() {
        assert_eq!(Credit(-1.0).milli(), 0);
        assert_eq!(Credit(f64::NAN).milli(), 0);
        assert_eq!(Credit(f64::INFINITY).milli(), 1_000_000_000);
    }
}
