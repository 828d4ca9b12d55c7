//! Management.

use anyhow::{Context, Result, ensure};
use fe2o3_amqp::types::messaging::MessageId;
use serde_amqp::Value;
use tokio::net::TcpStream;
use waystation_kit::process::{Port, eventually};
use waystation_kit::router::management::{Management, get, rows_of};
use waystation_kit::router::{Router, RouterOptions};
use waystation_kit::router_core::{Answer, Core, Flavour, Request};

use crate::support::*;

async fn router() -> Result<(Router, Management)> {
    let router = Router::start(RouterOptions::default()).await?;
    let management = Management::connect(&router).await?;
    Ok((router, management))
}

/// Requests whose answers are compared word for word with the core's, and with the real router's.
fn requests() -> Vec<Request> {
    let both = [("address", "q"), ("direction", "in"), ("connection", "c"), ("containerId", "d")];
    let update = |kind: &str, name: &str, key: &str| {
        let mut request = Request::create(kind, Some(name), &[(key, Value::Int(5))]);
        request.operation = "UPDATE".to_owned();
        request
    };
    let anonymous = |kind: &str| Request { name: None, ..Request::read(kind, "") };
    vec![
        create(ADDRESS, "one", &[("pattern", "a.b"), ("distribution", "balanced")]),
        create(ADDRESS, "one", &[("pattern", "zz")]),
        create(ADDRESS, "two", &[("pattern", "a/b")]),
        create(ADDRESS, "two", &[("pattern", "/a.b/")]),
        create(ADDRESS, "two", &[("prefix", "a.b")]),
        create(ADDRESS, "three", &[("prefix", "a/b")]),
        create(ADDRESS, "three", &[("pattern", "a.b.#")]),
        create(ADDRESS, "four", &[("pattern", "x"), ("distribution", "zz"), ("bogus", "1")]),
        create(ADDRESS, "five", &[("pattern", "y"), ("prefix", "y")]),
        create(ADDRESS, "five", &[]),
        create(ADDRESS, "five", &[("pattern", "")]),
        create(ADDRESS, "five", &[("pattern", "./")]),
        create(ADDRESS, "five", &[("pattern", "multi"), ("distribution", "multicast")]),
        create(ADDRESS, "six", &[("pattern", "none"), ("distribution", "unavailable")]),
        waypoint("seven", "way"),
        Request { body: Value::from("text"), ..create(ADDRESS, "eight", &[]) },
        Request::read(ADDRESS, "two"),
        Request::read(ADDRESS, "nope"),
        anonymous(ADDRESS),
        Request::delete(ADDRESS, "nope"),
        Request::delete(ADDRESS, "one"),
        Request { offset: Some(1), count: Some(2), ..Request::query(ADDRESS, &["name", "pattern", "type"]) },
        Request { offset: Some(1_000), count: Some(2), ..Request::query(ADDRESS, &["name"]) },
        Request::query(ADDRESS, &["name", "pattern", "prefix", "distribution", "waypoint"]),
        create(AUTO_LINK, "in", &[("address", "q.1"), ("direction", "in"), ("connection", "c")]),
        create(AUTO_LINK, "in", &[("address", "q.2"), ("direction", "in"), ("connection", "c")]),
        create(AUTO_LINK, "out", &[("address", "q.1"), ("direction", "out"), ("containerId", "c")]),
        create(AUTO_LINK, "ext", &[("address", "q.1"), ("direction", "in"), ("externalAddress", "q::q")]),
        create(AUTO_LINK, "bad", &[("address", "q.1"), ("direction", "sideways")]),
        create(AUTO_LINK, "bad", &[("address", "q.1")]),
        create(AUTO_LINK, "bad", &both),
        Request::query(AUTO_LINK, &["name", "address", "direction", "phase", "connection", "operStatus", "lastError"]),
        create(LINK_ROUTE, "r-in", &[("pattern", "news"), ("direction", "in"), ("connection", "c")]),
        create(LINK_ROUTE, "r-in", &[("pattern", "olds"), ("direction", "in"), ("connection", "c")]),
        create(LINK_ROUTE, "r-same", &[("pattern", "news"), ("direction", "in"), ("connection", "c")]),
        create(LINK_ROUTE, "bad", &[("pattern", "news")]),
        create(LINK_ROUTE, "bad", &[("direction", "in")]),
        create(LINK_ROUTE, "bad", &[("pattern", "news"), ("direction", "in"), ("distribution", "balanced")]),
        Request::read(LINK_ROUTE, "r-in"),
        Request::delete(LINK_ROUTE, "r-same"),
        create(SSL_PROFILE, "tls", &[("caCertFile", "/nowhere/ca.pem")]),
        create(SSL_PROFILE, "tls2", &[("bogus", "1")]),
        update(SSL_PROFILE, "tls", "caCertFile"),
        Request::read(SSL_PROFILE, "tls"),
        Request::read(CONNECTOR, "tls"),
        Request::read(CONNECTOR, "nope"),
        anonymous(CONNECTOR),
        create(CONNECTOR, "c", &[("bogus", "1")]),
        create(CONNECTOR, "c", &[("role", "x")]),
        create(LISTENER, "l", &[("maxFrameSize", "many")]),
        create(VHOST, "t", &[]),
        create(VHOST, "t", &[("hostname", "t")]),
        create(VHOST, "t", &[("hostname", "t")]),
        create(VHOST, "u", &[("hostname", "t")]),
        create(VHOST, "open", &[("hostname", "open"), ("allowUnknownUser", "true")]),
        create(VHOST, "a", &[("hostname", "a"), ("aliases", "a1,a2")]),
        create(VHOST, "b", &[("hostname", "b"), ("aliases", "a2")]),
        update(VHOST, "t", "maxConnections"),
        update(VHOST, "t", "bogus"),
        update(VHOST, "t", "hostname"),
        update(VHOST, "nope", "maxConnections"),
        Request::query(VHOST, &["name", "hostname", "maxConnections"]),
        Request::query(VHOST, &["name", "nope"]),
        Request { offset: Some(7), count: Some(1), ..Request::query(VHOST, &["name"]) },
        Request::delete(VHOST, "t"),
        create("org.apache.qpid.dispatch.bogus", "x", &[]),
        Request::query("bogus", &[]),
        Request::delete("org.apache.qpid.dispatch.connection", "x"),
        Request { operation: "GET-MGMT-NODES".to_owned(), ..Request::default() },
        Request { operation: "GET-ANNOTATIONS".to_owned(), ..Request::default() },
        Request { operation: "FROB".to_owned(), ..Request::default() },
        Request { operation: "FROB".to_owned(), name: Some("tls".to_owned()), ..Request::default() },
        Request { operation: "GET-OPERATIONS".to_owned(), queried_type: Some(VHOST.to_owned()), ..Request::default() },
        Request {
            operation: "GET-ATTRIBUTES".to_owned(),
            queried_type: Some(LISTENER.to_owned()),
            ..Request::default()
        },
        Request { operation: "GET-TYPES".to_owned(), queried_type: Some(AUTO_LINK.to_owned()), ..Request::default() },
    ]
}

/// Identities are counted up from wherever the router begins, and the order in a map means nothing.
fn comparable(answer: &Answer) -> (i32, String, String) {
    let body = match &answer.body {
        Value::Map(map) => {
            let mut entries: Vec<_> = map
                .iter()
                .filter(|(key, value)| {
                    let counted = matches!(value, Value::String(text) if text.parse::<u64>().is_ok());
                    !(**key == Value::from("identity") && counted)
                })
                .map(|entry| format!("{entry:?}"))
                .collect();
            entries.sort();
            entries.join("\n")
        }
        other => format!("{other:?}"),
    };
    // A number that is none is told with the place in the router's memory where that was noticed.
    let words = answer.description.split(":<traceback object at").next().unwrap_or_default();
    (answer.status, words.to_owned(), body)
}

#[tokio::test]
async fn every_answer_is_the_one_that_the_core_gives() -> Result<()> {
    let (_router, mut management) = router().await?;
    let mut core = Core::new("R1", Flavour::Qdrouterd);
    let mut differences = Vec::new();
    for request in requests() {
        let answer = comparable(&management.ask(&request).await?);
        let expected = comparable(&core.call(&request).context("the core is silent")?);
        if answer != expected {
            differences.push(format!("{request:?}\n  router: {answer:?}\n  core:   {expected:?}"));
        }
    }
    ensure!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
    Ok(())
}

#[tokio::test]
async fn the_core_is_silent_about_updates_and_both_agents_treat_ids_their_own_way() -> Result<()> {
    let (_router, mut management) = router().await?;
    management.make(&create(ADDRESS, "a", &[("pattern", "a")])).await?;
    management.make(&create(SSL_PROFILE, "tls", &[])).await?;
    let update = Request { operation: "UPDATE".to_owned(), ..create(ADDRESS, "a", &[("distribution", "multicast")]) };
    ensure!(management.ask_within(&update, MOMENT).await?.is_none(), "an UPDATE was answered");
    let number = || MessageId::Ulong(7);
    let echoed = management.ask_with_id(&Request::read(ADDRESS, "a"), number()).await?;
    ensure!(echoed == Some(number()), "the core: {echoed:?}");
    // What a real router sends instead is something that this client cannot even read.
    let echoed = management.ask_with_id(&Request::read(SSL_PROFILE, "tls"), number()).await.unwrap_or(None);
    ensure!(echoed.is_none(), "the other agent: {echoed:?}");
    Ok(())
}

#[tokio::test]
async fn a_thousand_are_made_and_read_by_pages_and_nothing_outlives_a_restart() -> Result<()> {
    let (mut router, mut management) = router().await?;
    let requests: Vec<_> = (0..1_000)
        .map(|number| create(ADDRESS, &format!("n{number}"), &[("pattern", &format!("p/{number}"))]))
        .collect();
    let answers = management.pipeline(&requests, 100).await?;
    ensure!(answers.iter().all(|answer| answer.status == 201));
    let rows = management.all_rows(ADDRESS, &["name", "pattern"], 100, 5).await?;
    let names: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    ensure!(names == (0..1_000).map(|number| Value::String(format!("n{number}"))).collect::<Vec<_>>());
    management.make(&create(SSL_PROFILE, "tls", &[])).await?;
    router.restart_empty().await?;
    let mut management = Management::connect(&router).await?;
    ensure!(management.all_rows(ADDRESS, &["name"], 100, 1).await?.is_empty());
    ensure!(management.ask(&Request::read(SSL_PROFILE, "tls")).await?.status == 404);
    Ok(())
}

#[tokio::test]
async fn the_schema_says_what_the_router_can_do() -> Result<()> {
    let (_router, mut management) = router().await?;
    let schema = management.make(&Request { operation: "GET-SCHEMA".to_owned(), ..Request::default() }).await?.body;
    ensure!(get(&schema, "prefix") == Value::from("org.apache.qpid.dispatch"));
    let types = get(&schema, "entityTypes");
    let attribute = |kind: &str, name: &str| get(&get(&get(&types, kind), "attributes"), name);
    ensure!(get(&attribute("address", "waypoint"), "type") == Value::from("boolean"), "{:?}", get(&types, "address"));
    ensure!(get(&attribute("linkRoute", "direction"), "required") == Value::Bool(true));
    ensure!(get(&attribute("listener", "multiTenant"), "type") == Value::from("boolean"));
    ensure!(get(&attribute("autoLink", "connection"), "type") == Value::from("string"));
    ensure!(get(&get(&types, "autoLink"), "fullyQualifiedType") == Value::from(AUTO_LINK));
    Ok(())
}

#[tokio::test]
async fn a_listener_is_there_as_long_as_its_entity() -> Result<()> {
    let (_router, mut management) = router().await?;
    let port = Port::claim()?;
    let number = port.number();
    ensure!(TcpStream::connect(("127.0.0.1", number)).await.is_err());
    let attributes = [("host", "127.0.0.1"), ("port", &number.to_string()), ("role", "normal")];
    let made = management.make(&create(LISTENER, "ready", &attributes)).await?;
    ensure!(get(&made.body, "port") == Value::String(number.to_string()));
    eventually(SOON, "it listens", || async { Ok(TcpStream::connect(("127.0.0.1", number)).await?) }).await?;
    let rows = rows_of(&management.make(&Request::query(LISTENER, &["name"])).await?.body);
    ensure!(rows.len() == 2 && rows[1][0] == Value::from("ready"), "{rows:?}");
    management.make(&Request::delete(LISTENER, "ready")).await?;
    eventually(SOON, "it listens no more", || async {
        ensure!(TcpStream::connect(("127.0.0.1", number)).await.is_err(), "it does");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hung_router_answers_when_it_goes_on() -> Result<()> {
    let (mut router, mut management) = router().await?;
    router.hang()?;
    let request = create(ADDRESS, "a", &[("pattern", "a")]);
    ensure!(management.ask_within(&request, MOMENT).await?.is_none(), "it answered");
    ensure!(TcpStream::connect(("127.0.0.1", router.port())).await.is_ok(), "it accepts");
    router.go_on()?;
    ensure!(Management::connect(&router).await?.ask(&request).await?.status == 400, "the first one was carried out");
    Ok(())
}
