//! Whether HAProxy's own exporter answers, where the RouterConfig gives it a port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::progress::Progress;
use crate::metrics::edge::EdgeMetrics;

const EVERY: Duration = Duration::from_secs(15);
const FIRST: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(2);

/// Asks again and again, for ever.
pub async fn look(progress: Progress, metrics: Arc<EdgeMetrics>) {
    loop {
        let listeners = progress.config().map(|config| config.listeners.clone());
        let port = listeners.as_ref().map(|listeners| listeners.stats).filter(|port| *port != 0);
        let up = match (listeners, port) {
            (Some(listeners), Some(port)) => {
                let at = listeners.addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
                matches!(timeout(DEADLINE, healthy(SocketAddr::new(at, port))).await, Ok(Ok(true)))
            }
            _ => false,
        };
        metrics.exporter_up.set(up.into());
        // Until it is there for the first time it may be soon.
        sleep(if up || port.is_none() { EVERY } else { FIRST }).await;
    }
}

/// `/healthz` and not `/metrics`, which takes seconds where there are many backends.
async fn healthy(at: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.take(1 << 12).read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1") && answer.get(8..12) == Some(b" 200"))
}
