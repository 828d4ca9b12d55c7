//! From a broker in a RouterConfig, and the Secrets that it names, to something that connects.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::cluster::secrets::SecretData;
use crate::drive::amqp::{Connector, Endpoint, Login, Secret, Tls};
use crate::drive::broker::artemis::ArtemisLink;
use crate::drive::broker::link::{BrokerLink, BrokerSession, LinkError};
use crate::drive::router::link::{RouterLink, RouterSession};
use crate::engine::permit::Permit;
use crate::messaging::ids::Key;
use crate::messaging::input::Broker;

/// A Secret that a RouterConfig names, as it is now.
#[derive(Clone, Debug)]
pub struct NamedSecret {
    /// Its name.
    pub key: Key,
    /// Its last known contents.
    pub data: Option<Arc<SecretData>>,
}

/// Makes links to brokers.
pub trait Links: Send + Sync {
    /// A link to this broker: by TLS and with a login as the Secrets say. What is wrong with a Secret is told by every
    /// attempt to connect.
    fn link(&self, broker: &Broker, tls: Option<NamedSecret>, credentials: Option<NamedSecret>) -> Arc<dyn BrokerLink>;
}

/// Links to real brokers.
#[derive(Clone, Debug)]
pub struct ArtemisLinks {
    /// How brokers show us to people.
    pub container_id: String,
    /// For everything up to an open connection.
    pub connect: Duration,
    /// For any answer; commands have a shorter one of their own.
    pub request: Duration,
    /// Leave to act.
    pub permit: Permit,
}

impl Links for ArtemisLinks {
    fn link(&self, broker: &Broker, tls: Option<NamedSecret>, credentials: Option<NamedSecret>) -> Arc<dyn BrokerLink> {
        let advice = Advice::new("brokers", tls.as_ref(), credentials.as_ref());
        match self.connector(broker, tls.as_ref(), credentials.as_ref()) {
            Ok(connector) => {
                Arc::new(Advised { link: ArtemisLink { connector, request_deadline: self.request }, advice })
            }
            Err(message) => Arc::new(broken(message)),
        }
    }
}

impl ArtemisLinks {
    fn connector(
        &self,
        broker: &Broker,
        tls: Option<&NamedSecret>,
        credentials: Option<&NamedSecret>,
    ) -> Result<Connector, String> {
        let endpoint = Endpoint { host: broker.host.to_string(), port: broker.port };
        connector(endpoint, (&self.container_id, self.connect, &self.permit), tls, credentials)
    }
}

/// How to connect there, by what the Secrets hold; or what is wrong with them.
pub(super) fn connector(
    endpoint: Endpoint,
    (container_id, deadline, permit): (&str, Duration, &Permit),
    tls: Option<&NamedSecret>,
    credentials: Option<&NamedSecret>,
) -> Result<Connector, String> {
    let login = match credentials {
        Some(secret) => {
            let (username, password) = login(secret)?;
            Login::Plain { username, password }
        }
        None if tls.is_some_and(shows_certificate) => Login::External,
        None => Login::Anonymous,
    };
    let tls = match tls {
        None => None,
        Some(secret) => {
            let ca = value(secret, "ca.crt")?;
            let identity = if shows_certificate(secret) {
                Some((value(secret, "tls.crt")?, value(secret, "tls.key")?))
            } else {
                None
            };
            let tls = Tls::new(ca, identity, None).map_err(|error| format!("Secret {}: {error}", secret.key))?;
            Some(tls)
        }
    };
    let (container_id, permit) = (container_id.to_owned(), permit.clone());
    Ok(Connector { endpoint, login, tls, container_id, deadline, permit })
}

/// `username` and `password` of a Secret; or what it lacks.
pub(super) fn login(secret: &NamedSecret) -> Result<(String, Secret), String> {
    let text = |name: &str| {
        let text = std::str::from_utf8(value(secret, name)?);
        text.map(str::to_owned).map_err(|_| format!("Secret {}: {name} is not text", secret.key))
    };
    Ok((text("username")?, Secret::new(text("password")?)))
}

fn shows_certificate(secret: &NamedSecret) -> bool {
    secret.data.as_ref().is_some_and(|data| data.get("tls.crt").is_some() || data.get("tls.key").is_some())
}

fn value<'a>(secret: &'a NamedSecret, name: &str) -> Result<&'a [u8], String> {
    let data = secret.data.as_ref().ok_or_else(|| format!("Secret {} is missing", secret.key))?;
    data.get(name).ok_or_else(|| format!("Secret {} has no {name}", secret.key))
}

/// What people can do when the other side does not take what we show of ourselves, or we not what it shows.
pub(super) struct Advice {
    login: String,
    tls: String,
}

impl Advice {
    /// By these Secrets of `spec.messaging.<plane>.external`.
    pub(super) fn new(plane: &str, tls: Option<&NamedSecret>, credentials: Option<&NamedSecret>) -> Self {
        let field = format!("spec.messaging.{plane}.external");
        let login = match (credentials, tls) {
            (Some(secret), _) => {
                format!("check username and password in Secret {}, and that the user may log in there", secret.key)
            }
            (None, Some(secret)) if shows_certificate(secret) => {
                format!("check tls.crt in Secret {}, and that its subject is a user there", secret.key)
            }
            _ => format!(
                "name a Secret with username and password in {field}.credentials.secretName, or one with tls.crt and \
                 tls.key in {field}.tls.secretName"
            ),
        };
        let tls = match tls {
            Some(secret) => format!(
                "check ca.crt in Secret {} (and tls.crt, if it has one), and that the certificate there is for this host",
                secret.key
            ),
            None => format!("name a Secret with ca.crt in {field}.tls.secretName"),
        };
        Self { login, tls }
    }

    fn on(&self, mut error: LinkError) -> LinkError {
        let advice = match error.category {
            "login" => &self.login,
            "tls" => &self.tls,
            _ => return error,
        };
        error.message = format!("{}: {advice}", error.message);
        error
    }
}

/// A link whose errors say what to do.
pub(super) struct Advised<L> {
    pub(super) link: L,
    pub(super) advice: Advice,
}

impl<L: BrokerLink> BrokerLink for Advised<L> {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn BrokerSession>, LinkError>> {
        self.link.connect().map(|result| result.map_err(|error| self.advice.on(error))).boxed()
    }
}

impl<L: RouterLink> RouterLink for Advised<L> {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn RouterSession>, LinkError>> {
        self.link.connect().map(|result| result.map_err(|error| self.advice.on(error))).boxed()
    }
}

/// A link that says why there is none.
pub(super) struct Broken(LinkError);

/// For a Secret with which nothing can be made.
pub(super) fn broken(message: String) -> Broken {
    Broken(LinkError { category: "secret", message })
}

impl BrokerLink for Broken {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn BrokerSession>, LinkError>> {
        ready(Err(self.0.clone())).boxed()
    }
}

impl RouterLink for Broken {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn RouterSession>, LinkError>> {
        ready(Err(self.0.clone())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> ArtemisLinks {
        let wait = Duration::from_secs(1);
        let permit = Permit::unlimited();
        ArtemisLinks { container_id: "waystation".to_owned(), connect: wait, request: wait, permit }
    }

    fn secret(entries: &[(&str, &str)]) -> NamedSecret {
        let data = entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        NamedSecret { key: Key::new("team", "login"), data: Some(Arc::new(data)) }
    }

    fn broker() -> Broker {
        let (name, host) = ("b".into(), "127.0.0.1".into());
        Broker { name, host, port: 5672, router_host: None, router_port: None, credit: 0, drain: false }
    }

    #[test]
    fn a_password_makes_plain_and_nothing_makes_anonymous() {
        let plain = links().connector(&broker(), None, Some(&secret(&[("username", "u"), ("password", "p")]))).unwrap();
        assert!(matches!(&plain.login, Login::Plain { username, .. } if username == "u"));
        assert!(!format!("{plain:?}").contains("\"p\""));
        assert_eq!(links().connector(&broker(), None, None).unwrap().login, Login::Anonymous);
    }

    #[tokio::test]
    async fn what_a_secret_lacks_is_said_by_name() {
        let link = links().link(&broker(), Some(secret(&[("tls.crt", "x")])), None);
        let error = link.connect().await.err().unwrap();
        assert_eq!(error.to_string(), "Secret team/login has no ca.crt");
        let gone = NamedSecret { key: Key::new("team", "login"), data: None };
        let error = links().link(&broker(), None, Some(gone)).connect().await.err().unwrap();
        assert_eq!((error.category, error.to_string().as_str()), ("secret", "Secret team/login is missing"));
    }

    struct Fails(&'static str);

    impl BrokerLink for Fails {
        fn connect(&self) -> BoxFuture<'_, Result<Box<dyn BrokerSession>, LinkError>> {
            ready(Err(LinkError { category: self.0, message: "refused".to_owned() })).boxed()
        }
    }

    #[tokio::test]
    async fn a_refusal_names_the_secret_that_was_shown() {
        let named = |name: &str, fields: &[(&str, &str)]| NamedSecret { key: Key::new("team", name), ..secret(fields) };
        let (login, tls) = (named("login", &[("password", "hush")]), named("tls", &[("tls.crt", "x")]));
        for (category, tls, login, words) in [
            ("login", None, Some(&login), "refused: check username and password in Secret team/login"),
            ("login", Some(&tls), None, "refused: check tls.crt in Secret team/tls"),
            (
                "login",
                None,
                None,
                "refused: name a Secret with username and password in spec.messaging.brokers.external",
            ),
            ("tls", Some(&tls), Some(&login), "refused: check ca.crt in Secret team/tls"),
            ("unreachable", Some(&tls), Some(&login), "refused"),
        ] {
            let link = Advised { link: Fails(category), advice: Advice::new("brokers", tls, login) };
            let error = link.connect().await.err().unwrap().to_string();
            assert!(error.starts_with(words) && !error.contains("hush"), "{error}");
        }
    }
}
