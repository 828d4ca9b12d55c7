//! Of a RouterConfig: how brokers and routers are logged in to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS towards brokers or routers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret in the namespace of the RouterConfig. ca.crt (required) verifies the other side; tls.crt and
    /// tls.key, where they are given, are the client certificate. When its content changes, the connections are made
    /// anew one at a time.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
}

/// A login by password.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// A Secret in the namespace of the RouterConfig with the keys username and password. When its content changes,
    /// the connections are made anew one at a time.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
}
