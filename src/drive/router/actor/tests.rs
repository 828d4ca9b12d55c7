//! The drive against a router in memory.

mod carrying;
mod looking_after;
mod reading;
mod router_in_memory;

use std::time::Duration;

use router_in_memory::MemoryRouter;
use serde_json::Map;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use waystation_kit::router_core::Flavour;

use super::*;
use crate::drive::amqp::Secret;
use crate::drive::router::link::{Operation, Request};
use crate::drive::router::ops;
use crate::engine::permit::{Granter, permit};
use crate::messaging::broker::Class as Turn;
use crate::messaging::ids::Key;
use crate::messaging::router::{
    AutoLink, Connector, Contents, Direction, Distribution, Entry, Wish, connector_slot, readiness_slot,
};

const OWNER: &str = "o";

struct NoMeter;

impl Meter for NoMeter {
    fn command(&self, _: &'static str, _: &'static str, _: Duration) {}
}

struct OneSecret;

impl Secrets for OneSecret {
    fn credentials(&self, secret: &Key) -> Option<(String, Secret)> {
        (&*secret.name == "login").then(|| ("user".to_owned(), Secret::new("do-not-print-me")))
    }
}

/// A drive that runs against a router in memory, with everything that stands around it.
struct Bench {
    router: MemoryRouter,
    mailbox: Mailbox<Job>,
    commands: mpsc::UnboundedSender<Command>,
    reports: mpsc::Receiver<Report>,
    granter: Granter,
    task: JoinHandle<()>,
    generation: u64,
}

fn bench_of(router: MemoryRouter) -> Bench {
    let (granter, permit) = permit();
    let (commands, told) = mpsc::unbounded_channel();
    let (out, reports) = mpsc::channel(10_000);
    let mailbox = Mailbox::default();
    let drive = RouterDrive {
        owner: OWNER.into(),
        link: Arc::new(router.clone()),
        mailbox: mailbox.clone(),
        permit,
        commands: told,
        reports: out,
        as_report: Box::new(|report| report),
        limits: Limits { window: WINDOW, ..Limits::default() },
        jitter: Jitter::seeded(1),
        meter: Arc::new(NoMeter),
        secrets: Arc::new(OneSecret),
    };
    let task = tokio::spawn(drive.run());
    granter.grant(Instant::now() + Duration::from_secs(1_000_000));
    Bench { router, mailbox, commands, reports, granter, task, generation: 0 }
}

fn bench() -> Bench {
    bench_of(MemoryRouter::new(Flavour::Qdrouterd))
}

impl Bench {
    async fn report(&mut self) -> Report {
        timeout(Duration::from_secs(1_000), self.reports.recv()).await.expect("no report").unwrap()
    }

    /// The next report that is not about a connector, nor that links were looked at.
    async fn next(&mut self) -> Report {
        loop {
            match self.report().await {
                Report::Connector(..) | Report::Looked => {}
                report => return report,
            }
        }
    }

    /// Up to the contents of the first read.
    async fn started(&mut self) -> Arc<Contents> {
        let connected = self.next().await;
        assert!(matches!(connected, Report::Connected { .. }), "{connected:?}");
        assert_eq!(self.next().await, Report::Reading);
        match self.next().await {
            Report::Contents(contents) => contents,
            other => panic!("{other:?}"),
        }
    }

    fn put(&mut self, slot: &str, class: Turn, wish: Wish) -> u64 {
        self.generation += 1;
        let tenant = Key::new("team", "shop");
        self.mailbox.put(Job { slot: slot.into(), generation: self.generation, tenant, class, wish });
        self.generation
    }

    async fn outcome(&mut self) -> Outcome {
        match self.next().await {
            Report::Outcome(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    async fn does(&mut self, slot: &str, wish: Wish) -> Result<Done, String> {
        self.router.asked();
        self.put(slot, Turn::Change, wish);
        self.outcome().await.result
    }

    /// With a connector to broker `b`.
    async fn connected() -> Self {
        let mut bench = bench();
        bench.started().await;
        assert_eq!(bench.does(&connector_slot("b"), hold(connector("b"))).await, HELD);
        bench
    }

    /// Nothing is told for so long.
    async fn silent(&mut self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
        while let Ok(report) = self.reports.try_recv() {
            assert_eq!(report, Report::Looked);
        }
    }
}

const HELD: Result<Done, String> = Ok(Done::Held { trouble: None });

fn hold(entry: Entry) -> Wish {
    Wish::Hold(Arc::new(entry))
}

fn anycast() -> Entry {
    Entry::Address { distribution: Distribution::Balanced, waypoint: false, links: Box::new([]) }
}

fn multicast() -> Entry {
    Entry::Address { distribution: Distribution::Multicast, waypoint: false, links: Box::new([]) }
}

fn queue(broker: &str) -> Entry {
    let link = |direction| AutoLink { direction, broker: broker.into(), external: None };
    let links = Box::new([link(Direction::In), link(Direction::Out)]);
    Entry::Address { distribution: Distribution::Balanced, waypoint: true, links }
}

fn topic(broker: &str) -> Entry {
    Entry::LinkRoute { broker: broker.into(), both: true }
}

fn connector(broker: &str) -> Entry {
    Entry::Connector(Connector {
        broker: broker.into(),
        host: "127.0.0.1".into(),
        port: 5672,
        ssl_profile: None,
        credentials: None,
        relogin: false,
        remote: None,
    })
}

fn with_login(number: u64) -> Entry {
    match connector("b") {
        Entry::Connector(connector) => {
            Entry::Connector(Connector { credentials: Some((Key::new("infra", "login"), number)), ..connector })
        }
        other => other,
    }
}

fn readiness() -> Entry {
    Entry::Readiness { host: "127.0.0.1".into(), port: 7779 }
}

fn name(slot: &str, entry: &Entry, at: usize) -> String {
    Names::new(OWNER).name(slot, &entry.entities()[at])
}

/// What is ours on the router, by its own list.
fn names_on(router: &MemoryRouter) -> Vec<String> {
    let mut all = Vec::new();
    for of in [Type::Address, Type::AutoLink, Type::LinkRoute, Type::Connector, Type::Listener] {
        let operation = Operation::Query { offset: 0, count: 100_000, attributes: &["name"] };
        let Ok(crate::drive::router::link::Answer::Rows(rows)) = router.by_hand(Request { of, operation }) else {
            panic!("no rows of {of:?}")
        };
        let names = rows.into_iter().filter_map(|row| row[0].as_str().map(str::to_owned));
        all.extend(names.filter(|name| Names::new(OWNER).is_ours(name)));
    }
    all.sort();
    all
}

fn names_of(slot: &str, entry: &Entry) -> Vec<String> {
    let mut names: Vec<String> = (0..entry.entities().len()).map(|at| name(slot, entry, at)).collect();
    names.sort();
    names
}

fn make_by_hand(router: &MemoryRouter, owner: &str, slot: &str, entry: &Entry) {
    for entity in entry.entities() {
        router.by_hand(ops::create(&Names::new(owner), slot, &entity, &None)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_once_and_another_reason_again() {
    let mut bench = bench();
    bench.started().await;
    bench.router.state().down = Some("refused");
    bench.router.cut();
    assert!(matches!(bench.report().await, Report::Down(reason) if &*reason == "cut"));
    assert!(matches!(bench.report().await, Report::Down(reason) if &*reason == "refused"));
    sleep(Duration::from_secs(60)).await;
    let attempts = bench.router.state().connects;
    assert!((6..=20).contains(&attempts), "100 ms doubling to 10 s: {attempts}");
    assert!(bench.reports.try_recv().is_err());
    bench.router.state().down = None;
    bench.started().await;
}

#[tokio::test(start_paused = true)]
async fn a_hung_router_loses_its_session_and_the_job_is_done_on_the_next() {
    let mut bench = bench();
    bench.started().await;
    bench.router.state().hung = true;
    let generation = bench.put("s/a", Turn::Change, hold(anycast()));
    assert!(matches!(bench.report().await, Report::Down(reason) if reason.contains("in time")));
    assert!(matches!(bench.report().await, Report::Down(reason) if reason.contains("no connection")));
    bench.router.state().hung = false;
    assert!(matches!(bench.report().await, Report::Connected { .. }));
    assert_eq!(bench.report().await, Report::Reading);
    let mut outcome = None;
    for _ in 0..2 {
        if let Report::Outcome(done) = bench.report().await {
            outcome = Some(done);
        }
    }
    let outcome = outcome.unwrap();
    assert_eq!((outcome.generation, outcome.result), (generation, HELD));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_ends_the_session_and_what_was_done_is_found() {
    let mut bench = bench();
    bench.started().await;
    bench.router.state().unanswered = Some("CREATE");
    bench.put("s/a", Turn::Repair, hold(anycast()));
    assert!(matches!(bench.report().await, Report::Down(reason) if reason.contains("in time")));
    bench.router.state().unanswered = None;
    let contents = bench.started().await;
    assert_eq!(contents.slots["s/a"], anycast().fingerprint());
    bench.router.asked();
    assert_eq!(bench.outcome().await.result, HELD);
    assert!(bench.router.asked().is_empty(), "it is there already");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_the_permit_and_its_end_closes_the_session() {
    let mut bench = bench();
    bench.started().await;
    // Less left than a command may take.
    bench.granter.grant(Instant::now() + Limits::default().command / 2);
    let before = bench.router.state().requests.len();
    bench.put("s/a", Turn::Change, hold(anycast()));
    bench.silent(60).await;
    assert_eq!(bench.router.state().requests.len(), before);
    assert_eq!(bench.router.state().sessions, 0);
    bench.granter.grant(Instant::now() + Duration::from_secs(1_000));
    assert!(matches!(bench.report().await, Report::Connected { .. }));
    while bench.router.state().core.counters().creates == 0 {
        bench.report().await;
    }
}

#[tokio::test(start_paused = true)]
async fn reading_again_keeps_the_session_and_reconnecting_makes_another() {
    let mut bench = bench();
    bench.started().await;
    make_by_hand(&bench.router, OWNER, "s/new", &anycast());
    bench.commands.send(Command::Reread).ok().unwrap();
    assert_eq!(bench.report().await, Report::Reading);
    assert!(matches!(bench.report().await, Report::Contents(contents) if contents.slots.contains_key("s/new")));
    let other = MemoryRouter::new(Flavour::Qdrouterd);
    bench.commands.send(Command::Reconnect(Arc::new(other.clone()))).ok().unwrap();
    assert!(bench.started().await.slots.is_empty());
    assert_eq!((bench.router.state().sessions, other.state().sessions), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn finishing_answers_what_is_under_way_and_takes_nothing_more() {
    let mut bench = bench();
    bench.started().await;
    bench.router.state().slow.insert("CREATE", Duration::from_secs(2));
    bench.put("s/a", Turn::Change, hold(anycast()));
    sleep(Duration::from_secs(1)).await;
    bench.commands.send(Command::Finish).ok().unwrap();
    sleep(Duration::from_millis(10)).await;
    bench.put("s/b", Turn::Change, hold(anycast()));
    assert_eq!(&*bench.outcome().await.slot, "s/a");
    bench.task.await.unwrap();
    assert_eq!(names_on(&bench.router), names_of("s/a", &anycast()));
}

#[tokio::test(start_paused = true)]
async fn removals_that_wait_for_a_read_do_not_hold_up_the_end() {
    let mut bench = bench();
    bench.router.state().slow.insert("QUERY", Duration::from_secs(3));
    assert!(matches!(bench.report().await, Report::Connected { .. }));
    bench.put("s/a", Turn::Change, Wish::Gone);
    sleep(Duration::from_secs(1)).await;
    bench.commands.send(Command::Finish).ok().unwrap();
    timeout(Duration::from_secs(1), bench.task).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn as_many_requests_are_under_way_as_fit_and_the_rest_waits() {
    let mut bench = bench();
    bench.started().await;
    bench.router.state().slow.insert("CREATE", Duration::from_millis(10));
    for at in 0..4_000 {
        bench.put(&format!("s/{at}"), Turn::Change, hold(anycast()));
    }
    let began = Instant::now();
    for _ in 0..4_000 {
        assert_eq!(bench.outcome().await.result, HELD);
    }
    let most = bench.router.state().most_open;
    assert!((300..=WINDOW).contains(&most), "{most}");
    assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    assert_eq!(bench.mailbox.in_flight(), 0);
}
