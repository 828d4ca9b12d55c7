//! Connectors and forwarders, as the model reads them.

use std::sync::Arc;

use super::{ConvertError, Result, millis};
use crate::api::connector::{Connector, ConnectorRules, ForwardDirection, Forwarder};
use crate::messaging::ids::Key;
use crate::messaging::remote::{self, ConnectorSpec, ForwarderSpec, Host};
use crate::messaging::router::Direction;

pub(super) fn rules(rules: &ConnectorRules) -> remote::ConnectorRules {
    remote::ConnectorRules {
        hosts: rules.allowed_hosts.iter().map(|host| host.0.as_str().into()).collect(),
        profiles: rules.ssl_profiles.iter().map(|profile| profile.0.as_str().into()).collect(),
    }
}

pub(super) fn connector(spec: &Connector, namespace: &Arc<str>) -> Result<ConnectorSpec> {
    let idle_ms = millis(spec.idle_timeout.as_ref(), "spec.connectors[].idleTimeout")?;
    let host = |host: &crate::api::connector::ConnectorHost| Host { host: host.host.as_str().into(), port: host.port };
    if spec.endpoint_hosts.is_empty() {
        return Err(ConvertError::Missing { field: "spec.connectors[].endpointHosts" });
    }
    Ok(ConnectorSpec {
        name: spec.name.as_str().into(),
        hosts: spec.endpoint_hosts.iter().map(host).collect(),
        ssl_profile: spec.tls.as_ref().map(|tls| tls.ssl_profile.as_str().into()),
        credentials: spec
            .credentials
            .as_ref()
            .map(|login| Key { namespace: Arc::clone(namespace), name: login.secret_name.as_str().into() }),
        idle_s: idle_ms.map_or(remote::IDLE_S, |ms| u32::try_from(ms / 1_000).unwrap_or(remote::IDLE_S).max(1)),
        max_frame: spec.max_frame_size.unwrap_or(remote::MAX_FRAME),
        patterns: spec.addresses.iter().map(|address| address.pattern.as_str().into()).collect(),
    })
}

pub(super) fn forwarder(spec: &Forwarder) -> Result<ForwarderSpec> {
    const FIELD: &str = "spec.forwarders[].direction";
    let missing = ConvertError::Missing { field: "spec.forwarders[].remoteAddress" };
    let (connector, remote) = spec.remote_address.split_once('/').ok_or(missing)?;
    Ok(ForwarderSpec {
        name: spec.name.as_str().into(),
        connector: connector.into(),
        remote: remote.into(),
        direction: match spec.direction {
            ForwardDirection::In => Direction::In,
            ForwardDirection::Out => Direction::Out,
            ForwardDirection::Unknown => return Err(ConvertError::Unknown { field: FIELD }),
        },
    })
}
