//! What of a RouterConfig needs a reload.

use crate::edge::input::RouterConfig;

/// Names of the fields that differ and are in the fixed part of the configuration. Everything else is followed at run
/// time.
pub fn reloads(before: &RouterConfig, after: &RouterConfig) -> Vec<&'static str> {
    let (a, b) = (&before.listeners, &after.listeners);
    let (c, d) = (&before.tuning, &after.tuning);
    let all = [
        (a.http != b.http, "edge.listeners.http"),
        (a.https != b.https, "edge.listeners.https"),
        (a.stats != b.stats, "edge.listeners.stats"),
        (a.addresses != b.addresses, "edge.listeners.addresses"),
        (a.accept_proxy != b.accept_proxy, "edge.listeners.acceptProxy"),
        (a.passthrough != b.passthrough, "edge.listeners.passthrough"),
        (c.max_connections != d.max_connections, "edge.tuning.maxConnections"),
        (c.threads != d.threads, "edge.tuning.threads"),
        (c.timeout_client_ms != d.timeout_client_ms, "edge.tuning.timeoutClient"),
        (c.timeout_http_request_ms != d.timeout_http_request_ms, "edge.tuning.timeoutHttpRequest"),
        (c.timeout_keep_alive_ms != d.timeout_keep_alive_ms, "edge.tuning.timeoutKeepAlive"),
        (c.timeout_connect_ms != d.timeout_connect_ms, "edge.tuning.timeoutConnect"),
        (c.timeout_server_ms != d.timeout_server_ms, "edge.tuning.timeoutServer"),
        (c.timeout_tunnel_ms != d.timeout_tunnel_ms, "edge.tuning.timeoutTunnel"),
        (c.timeout_queue_ms != d.timeout_queue_ms, "edge.tuning.timeoutQueue"),
        (c.hard_stop_after_ms != d.hard_stop_after_ms, "edge.tuning.hardStopAfter"),
    ];
    all.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
}
