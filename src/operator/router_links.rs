//! From a router's address, and the Secrets that its RouterConfig names, to something that connects; and what its
//! connectors log in to brokers with.

use std::sync::Arc;
use std::time::Duration;

use super::links::{Advice, Advised, NamedSecret, broken, connector, login};
use crate::cluster::secrets::SecretStore;
use crate::drive::amqp::{Endpoint, Secret};
use crate::drive::router::carry::Secrets;
use crate::drive::router::link::RouterLink;
use crate::drive::router::qpid::QpidLink;
use crate::engine::permit::Permit;
use crate::messaging::ids::Key;

/// Makes links to routers.
pub trait RouterLinks: Send + Sync {
    /// A link to the router that listens there: by TLS and with a login as the Secrets say. What is wrong with a
    /// Secret is told by every attempt to connect.
    fn link(
        &self,
        endpoint: Endpoint,
        tls: Option<NamedSecret>,
        credentials: Option<NamedSecret>,
    ) -> Arc<dyn RouterLink>;
}

/// Links to real routers.
#[derive(Clone, Debug)]
pub struct QpidLinks {
    /// How routers show us to people.
    pub container_id: String,
    /// For everything up to an open connection with a known schema.
    pub connect: Duration,
    /// For any answer; commands have a shorter one of their own.
    pub request: Duration,
    /// Leave to act.
    pub permit: Permit,
}

impl RouterLinks for QpidLinks {
    fn link(
        &self,
        endpoint: Endpoint,
        tls: Option<NamedSecret>,
        credentials: Option<NamedSecret>,
    ) -> Arc<dyn RouterLink> {
        match connector(endpoint, (&self.container_id, self.connect, &self.permit), tls.as_ref(), credentials.as_ref())
        {
            Ok(connector) => Arc::new(Advised {
                link: QpidLink { connector, request_deadline: self.request },
                advice: Advice::new("routers", tls.as_ref(), credentials.as_ref()),
            }),
            Err(message) => Arc::new(broken(message)),
        }
    }
}

/// What connectors log in with, from the Secrets as they are now.
pub struct BrokerCredentials(pub SecretStore);

impl Secrets for BrokerCredentials {
    fn credentials(&self, secret: &Key) -> Option<(String, Secret)> {
        login(&NamedSecret { key: secret.clone(), data: self.0.get(secret) }).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_secret_lacks_is_said_by_every_attempt() {
        let wait = Duration::from_secs(1);
        let permit = Permit::unlimited();
        let links = QpidLinks { container_id: "waystation".to_owned(), connect: wait, request: wait, permit };
        let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: 5671 };
        let missing = NamedSecret { key: Key::new("team", "login"), data: None };
        let error = links.link(endpoint, Some(missing), None).connect().await.err().unwrap();
        assert_eq!((error.category, error.to_string().as_str()), ("secret", "Secret team/login is missing"));
    }
}
