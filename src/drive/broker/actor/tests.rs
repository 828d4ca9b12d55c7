//! The actor and how it carries jobs out, against a broker in memory that answers as Artemis does.

mod broker_in_memory;
mod carrying;
mod neighbours;

use std::time::Duration;

use broker_in_memory::MemoryBroker;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::engine::permit::{Granter, permit};
use crate::messaging::broker::{Class, Entry, Queue, Routing, Settings, Wish};
use crate::messaging::ids::Key;

struct NoMeter;

impl Meter for NoMeter {
    fn command(&self, _: &'static str, _: &'static str, _: Duration) {}
}

/// A drive that runs against a broker in memory, with everything that stands around it.
struct Bench {
    broker: MemoryBroker,
    mailbox: Mailbox<Job>,
    commands: mpsc::UnboundedSender<Command>,
    reports: mpsc::Receiver<Input>,
    granter: Granter,
    task: JoinHandle<()>,
    generation: u64,
}

fn bench() -> Bench {
    let broker = MemoryBroker::default();
    let (granter, permit) = permit();
    let (commands, told) = mpsc::unbounded_channel();
    let (out, reports) = mpsc::channel(10_000);
    let mailbox = Mailbox::default();
    let drive = BrokerDrive {
        target: TargetId::broker(Key::new("infra", "main"), "b".into()),
        incarnation: 7,
        user: "waystation:o".into(),
        link: Arc::new(broker.clone()),
        mailbox: mailbox.clone(),
        permit,
        commands: told,
        reports: out,
        limits: Limits::default(),
        jitter: Jitter::seeded(1),
        meter: Arc::new(NoMeter),
    };
    let task = tokio::spawn(drive.run());
    granter.grant(Instant::now() + Duration::from_secs(1_000_000));
    Bench { broker, mailbox, commands, reports, granter, task, generation: 0 }
}

impl Bench {
    async fn report(&mut self) -> Link {
        let report = timeout(Duration::from_secs(300), self.reports.recv()).await.expect("no report").unwrap();
        let Input::Target(_, 7, link) = report else { panic!("{report:?}") };
        link
    }

    /// Up to the contents of the first read.
    async fn started(&mut self) -> Arc<Contents> {
        assert_eq!(self.report().await, Link::Connected(Some("node".into())));
        assert_eq!(self.report().await, Link::Reading);
        match self.report().await {
            Link::Contents(contents) => contents,
            other => panic!("{other:?}"),
        }
    }

    fn put(&mut self, slot: &str, class: Class, wish: Wish) -> u64 {
        self.generation += 1;
        let tenant = Key::new("team", "shop");
        self.mailbox.put(Job { slot: slot.into(), generation: self.generation, tenant, class, wish });
        self.generation
    }

    async fn outcome(&mut self) -> Outcome {
        match self.report().await {
            Link::Outcome(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }
}

fn queue(slot: &str) -> Entry {
    Entry {
        address: slot.into(),
        routing: Routing::Anycast,
        queue: Some(Queue { name: slot.into(), durable: true, max_consumers: -1 }),
        settings: Some(Settings { max_delivery_attempts: Some(3), ..Settings::default() }),
        ground: None,
    }
}

fn hold(entry: Entry) -> Wish {
    Wish::Hold { entry: Arc::new(entry), replace: false }
}

#[tokio::test(start_paused = true)]
async fn changes_go_before_the_read_is_done_and_repairs_after_it() {
    let mut bench = bench();
    bench.broker.state().slow.insert("getAddressNames", Duration::from_secs(3));
    bench.put("s/repair", Class::Repair, hold(queue("s/repair")));
    bench.put("s/change", Class::Change, hold(queue("s/change")));
    assert_eq!(bench.report().await, Link::Connected(Some("node".into())));
    assert_eq!(bench.report().await, Link::Reading);
    assert_eq!(&*bench.outcome().await.slot, "s/change");
    assert!(matches!(bench.report().await, Link::Contents(_)));
    assert_eq!(&*bench.outcome().await.slot, "s/repair");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_jobs_are_under_way_at_a_time() {
    let mut bench = bench();
    bench.started().await;
    bench.broker.state().slow.insert("createQueue", Duration::from_millis(10));
    let began = Instant::now();
    for index in 0..1_000 {
        let slot = format!("s/{index}");
        bench.put(&slot, Class::Change, hold(queue(&slot)));
    }
    for _ in 0..1_000 {
        assert_eq!(bench.outcome().await.result, Ok(Done::Held));
    }
    assert_eq!(bench.broker.state().queues.len(), 1_000);
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(bench.mailbox.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hung_broker_loses_its_session_and_the_job_is_done_on_the_next() {
    let mut bench = bench();
    bench.started().await;
    bench.broker.state().hung = true;
    let generation = bench.put("s/a", Class::Change, hold(queue("s/a")));
    assert!(matches!(bench.report().await, Link::Down(reason) if reason.contains("in time")));
    bench.broker.state().hung = false;
    bench.started().await;
    let outcome = bench.outcome().await;
    assert_eq!((outcome.generation, outcome.result), (generation, Ok(Done::Held)));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_once_and_another_reason_again() {
    let mut bench = bench();
    bench.started().await;
    bench.broker.state().down = Some("refused");
    bench.broker.cut();
    assert!(matches!(bench.report().await, Link::Down(reason) if &*reason == "cut"));
    assert!(matches!(bench.report().await, Link::Down(reason) if &*reason == "refused"));
    sleep(Duration::from_secs(60)).await;
    let attempts = bench.broker.state().connects;
    assert!((6..=20).contains(&attempts), "100 ms doubling to 10 s: {attempts}");
    assert!(bench.reports.try_recv().is_err());
    bench.broker.state().down = None;
    bench.started().await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_cannot_be_read_is_told_with_its_words() {
    let mut bench = bench();
    bench.broker.state().refuses.insert("listQueues", "AMQ229213: User has no permission");
    assert_eq!(bench.report().await, Link::Connected(Some("node".into())));
    assert_eq!(bench.report().await, Link::Reading);
    assert!(matches!(bench.report().await, Link::Unreadable(words) if words.contains("no permission")));
}

#[tokio::test(start_paused = true)]
async fn what_another_takes_away_is_told_and_what_we_take_is_not() {
    let mut bench = bench();
    bench.started().await;
    bench.put("s/a", Class::Change, hold(queue("s/a")));
    assert_eq!(bench.outcome().await.result, Ok(Done::Held));
    bench.broker.remove_by_hand("s/a");
    assert_eq!(bench.report().await, Link::Lost("s/a".into()));
    bench.put("s/a", Class::Repair, hold(queue("s/a")));
    assert_eq!(bench.outcome().await.result, Ok(Done::Held));
    bench.put("s/a", Class::Change, Wish::Gone { entry: Arc::new(queue("s/a")), only_if_empty: false });
    assert_eq!(bench.outcome().await.result, Ok(Done::Gone));
    sleep(Duration::from_secs(1)).await;
    assert!(bench.reports.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_the_permit_and_its_end_closes_the_session() {
    let mut bench = bench();
    bench.started().await;
    // Less left than a command may take.
    bench.granter.grant(Instant::now() + Limits::default().command / 2);
    let calls = bench.broker.state().calls.len();
    bench.put("s/a", Class::Change, hold(queue("s/a")));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.broker.state().calls.len(), calls);
    assert_eq!(bench.broker.state().sessions, 0);
    assert!(bench.reports.try_recv().is_err());
    bench.granter.grant(Instant::now() + Duration::from_secs(1_000));
    bench.started().await;
    assert_eq!(bench.outcome().await.result, Ok(Done::Held));
}

#[tokio::test(start_paused = true)]
async fn reading_again_keeps_the_session_and_reconnecting_makes_another() {
    let mut bench = bench();
    bench.started().await;
    bench.broker.make_by_hand("s/new", "waystation:o", 0);
    bench.commands.send(Command::Reread).ok().unwrap();
    assert_eq!(bench.report().await, Link::Reading);
    assert!(matches!(bench.report().await, Link::Contents(contents) if contents.queues.contains_key("s/new")));
    let other = MemoryBroker::default();
    bench.commands.send(Command::Reconnect(Arc::new(other.clone()))).ok().unwrap();
    assert!(bench.started().await.queues.is_empty());
    assert_eq!((bench.broker.state().sessions, other.state().sessions), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn finishing_answers_what_is_under_way_and_takes_nothing_more() {
    let mut bench = bench();
    bench.started().await;
    bench.broker.state().slow.insert("createQueue", Duration::from_secs(2));
    bench.put("s/a", Class::Change, hold(queue("s/a")));
    sleep(Duration::from_secs(1)).await;
    bench.commands.send(Command::Finish).ok().unwrap();
    sleep(Duration::from_millis(10)).await;
    bench.put("s/b", Class::Change, hold(queue("s/b")));
    assert_eq!(&*bench.outcome().await.slot, "s/a");
    bench.task.await.unwrap();
    assert!(!bench.broker.state().queues.contains_key("s/b"));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_say_which_it_is_is_served_all_the_same() {
    let mut bench = bench();
    bench.broker.state().refuses.insert("getNodeID", "AMQ229032: User has no permission");
    assert_eq!(bench.report().await, Link::Connected(None));
    assert_eq!(bench.report().await, Link::Reading);
    assert!(matches!(bench.report().await, Link::Contents(_)));
}

#[tokio::test(start_paused = true)]
async fn contents_are_our_queues_and_every_address() {
    let mut bench = bench();
    bench.broker.make_by_hand("s/ours", "waystation:o", 5);
    bench.broker.make_by_hand("s/theirs", "waystation:other", 0);
    bench.broker.state().addresses.insert("s/topic".into(), vec!["MULTICAST".into()]);
    let contents = bench.started().await;
    assert_eq!(contents.queues.keys().map(|slot| &**slot).collect::<Vec<_>>(), ["s/ours"]);
    assert_eq!(contents.queues["s/ours"].messages, 5);
    assert_eq!(contents.addresses["s/topic"], [Routing::Multicast]);
    assert_eq!(contents.addresses["s/ours"], [Routing::Anycast]);
    assert_eq!(contents.addresses["s/theirs"], [Routing::Anycast]);
}
