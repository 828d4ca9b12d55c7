//! Whom a test talks to.

use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use waystation::drive::amqp::{Connector, Endpoint, Login, Secret};
use waystation::drive::broker::artemis::ArtemisLink;
use waystation::drive::broker::link::{BrokerLink, BrokerSession, Call, CallError, LinkError, SessionEvent};
use waystation::engine::permit::Permit;
use waystation::messaging::broker::{Queue, Routing, Settings};
use waystation_kit::artemis::{self, Artemis, ArtemisOptions};
use waystation_kit::standin::StandIn;

pub const USER: &str = "admin";
pub const PASSWORD: &str = "do-not-print-me";
pub const OWNER: &str = "test";
/// For what must happen: generous, since it is only ever waited for in full when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A broker, real or not.
pub enum Peer {
    Real(Box<Artemis>),
    StandIn(StandIn),
}

impl Peer {
    pub async fn real() -> Result<Self> {
        let login = artemis::Login::password(USER, PASSWORD);
        Ok(Self::Real(Box::new(Artemis::start(ArtemisOptions { login, ..Default::default() }).await?)))
    }

    pub async fn stand_in() -> Result<Self> {
        Ok(Self::StandIn(StandIn::start(0, artemis::Login::password(USER, PASSWORD)).await?))
    }

    pub fn port(&self) -> u16 {
        match self {
            Self::Real(broker) => broker.port(),
            Self::StandIn(standin) => standin.port(),
        }
    }

    pub async fn session(&self) -> Result<Box<dyn BrokerSession>> {
        Ok(link(self.port(), plain(PASSWORD)).connect().await?)
    }
}

pub fn plain(password: &str) -> Login {
    Login::Plain { username: USER.to_owned(), password: Secret::new(password) }
}

pub fn connector(port: u16, login: Login) -> Connector {
    Connector {
        endpoint: Endpoint { host: "127.0.0.1".to_owned(), port },
        login,
        tls: None,
        container_id: "waystation-test".to_owned(),
        deadline: Duration::from_secs(20),
        permit: Permit::unlimited(),
    }
}

pub fn link(port: u16, login: Login) -> ArtemisLink {
    ArtemisLink { connector: connector(port, login), request_deadline: Duration::from_secs(30) }
}

/// The error of a connection that must not come about.
pub async fn refused(link: &ArtemisLink) -> Result<LinkError> {
    match link.connect().await {
        Ok(_) => Err(anyhow!("connected")),
        Err(error) => Ok(error),
    }
}

/// The words of a call that must be refused.
pub async fn refusal(session: &dyn BrokerSession, call: Call) -> Result<String> {
    match session.call(call).await {
        Err(CallError::Refused(words)) => Ok(words),
        other => Err(anyhow!("not refused: {other:?}")),
    }
}

/// The next event, which must come.
pub async fn event(session: &dyn BrokerSession) -> Result<SessionEvent> {
    Ok(tokio::time::timeout(PATIENCE, session.next_event()).await?)
}

pub fn queue(name: &str) -> Queue {
    Queue { name: name.into(), durable: true, max_consumers: -1 }
}

pub fn create(name: &str) -> Call {
    waystation::drive::broker::ops::create_queue(&queue(name), name, Routing::Anycast, OWNER, true)
}

pub fn attempts(attempts: i32) -> Settings {
    Settings { max_delivery_attempts: Some(attempts), ..Settings::default() }
}

pub fn raw(operation: &'static str, params: Value) -> Call {
    Call { resource: "broker".to_owned(), operation, params }
}

pub fn node_id() -> Call {
    raw("getNodeID", json!([]))
}
