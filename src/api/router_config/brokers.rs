//! Of a RouterConfig: where its brokers are.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::login::{Credentials, Tls};
use super::name_in_force;
use crate::api::plans::Credit;

/// Where the brokers are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.external)", "brokers is empty: give brokers.external.hosts"))]
pub struct Brokers {
    /// Brokers that someone else runs: Apache Artemis 2.40 or later, managed over AMQP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalBrokers>,
}

/// Brokers that someone else runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalBrokers {
    /// 1 to 64 brokers. A broker taken out of the list lets go of all that it held: Addresses on it no longer wait
    /// for it, and nothing on it is removed.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["host".into(), "port".into()]),
        validation = (
            "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",
            "two brokers have the same name: give each a name of its own, or none"
        ),
        validation = (
            "self.all(a, has(a.credit)) || !self.exists(a, has(a.credit))",
            "some brokers have a credit and some have none, which cannot be compared: give each one, or none"
        )
    )]
    pub hosts: Vec<BrokerHost>,
    /// Connects by TLS. Default: plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Logs in with a password (SASL PLAIN). Without it: by the client certificate in the tls Secret (SASL
    /// EXTERNAL), else without a login (SASL ANONYMOUS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerHost {
    /// What status and messages call the broker, such as east-1: lower case letters, digits, '-' and '.'. Default:
    /// host:port. The name is the broker's identity: under another one it counts as another broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Host name or IP address, such as broker-0.broker.messaging.svc.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub host: String,
    /// AMQP port, such as 5672 (5671 by TLS).
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Host name or IP address by which the routers reach the broker. Default: host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[0-9A-Za-z._:-]+$"))]
    pub router_host: Option<String>,
    /// AMQP port by which the routers reach the broker. Default: port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub router_port: Option<u16>,
    /// How much brokerCredit the broker is made for, where brokers differ in size: a new queue or topic goes to the
    /// one with the most that is free. It is no limit, since limits are those of space plans. A number with up to
    /// three decimals, such as 100. Default: all brokers are alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<Credit>,
    /// Whether the broker shall become empty, before it is taken out of the list: it takes no new queues, topics and
    /// brokered spaces, and the queues of standard spaces move to other brokers, with the messages that are received
    /// meanwhile. Topics with their subscriptions, dead letters and brokered spaces stay. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

impl BrokerHost {
    /// What status and messages call the broker: its name, or else `host:port`.
    pub fn name_in_force(&self) -> String {
        name_in_force(self.name.as_deref(), &self.host, self.port)
    }
}
