//! Clients of the Kubernetes API server.

use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt};
use tokio::net::TcpStream;
use tower::limit::ConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::requests::{CountRequests, Requests};
use crate::engine::guarded::Guarded;
use crate::engine::permit::Permit;

/// For reads and the Lease. Retrying is for those who know what they ask for.
///
/// # Errors
/// When the configuration cannot be used.
pub fn read_client(mut config: kube::Config, requests: &Requests) -> anyhow::Result<Client> {
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(&CountRequests(requests.clone())).build())
}

impl Connection for Guarded<TcpStream> {
    fn connected(&self) -> Connected {
        self.inner().connected()
    }
}

/// For writes: so many at a time, and each only while it is permitted. The library's builder has no place for such a
/// socket, and puts together what is put together here.
///
/// # Errors
/// When the configuration cannot be used.
pub fn write_client(
    config: kube::Config,
    requests: &Requests,
    at_a_time: usize,
    permit: Permit,
) -> anyhow::Result<Client> {
    let mut tcp = HttpConnector::new();
    // TLS is put on top of it.
    tcp.enforce_http(false);
    let tcp = tcp.map_response(move |socket| TokioIo::new(Guarded::new(socket.into_inner(), permit.clone())));
    let http: legacy::Client<_, Body> =
        legacy::Builder::new(TokioExecutor::new()).build(config.rustls_https_connector_with_connector(tcp)?);
    let service = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(at_a_time))
        .layer(CountRequests(requests.clone()))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::engine::permit::permit;

    /// An API server with one connection that says yes to everything, and in the end what it was sent.
    async fn agreeable(listener: TcpListener) -> String {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (mut sent, mut chunk) = (String::new(), [0; 4096]);
        loop {
            let count = socket.read(&mut chunk).await.unwrap_or(0);
            if count == 0 {
                return sent;
            }
            sent.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
            if sent.ends_with("-body") {
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn no_byte_of_a_write_leaves_without_the_permit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let server = tokio::spawn(agreeable(listener));
        let (granter, permit) = permit();
        let client = write_client(config, &Requests::default(), 1, permit).unwrap();
        let write = |name: &str| {
            client.request_text(http::Request::patch(format!("/{name}")).body(format!("{name}-body").into()).unwrap())
        };
        granter.grant(Instant::now() + Duration::from_secs(600));
        assert_eq!(write("early").await.unwrap(), "{}");
        // Over the connection that is open, and over one of its own.
        granter.revoke();
        for late in ["late", "later"] {
            write(late).await.unwrap_err();
        }
        drop(client);
        let sent = server.await.unwrap();
        assert!(sent.contains("early-body") && !sent.contains("late"), "{sent}");
    }
}
