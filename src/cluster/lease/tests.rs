//! Candidates on an API server that holds one Lease, under a paused clock.

use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::cluster::meter::Unmetered;
use crate::cluster::tests::api_server::{Asked, Reply, TestClock, failure, server};
use crate::engine::permit::{Permit, permit};
use crate::messaging::input::{Input, Source};

const DURATION: Duration = Duration::from_secs(15);

/// The Lease as the server has it, and what goes wrong with it.
#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    /// Requests of this holder are not answered, though carried out.
    mute: Option<String>,
    /// Nobody is answered, nothing is carried out.
    down: bool,
    delay: Duration,
}

impl Stored {
    fn answer(&mut self, asked: &Asked) -> Reply {
        if self.down {
            return Reply::Hang;
        }
        let holder = asked.body["spec"]["holderIdentity"].as_str().map(str::to_owned);
        let reply = self.carry_out(asked);
        let reply = if holder.is_some() && holder == self.mute { Reply::Hang } else { reply };
        Reply::After(self.delay, Box::new(reply))
    }

    fn carry_out(&mut self, asked: &Asked) -> Reply {
        match asked.method {
            Method::GET => match &self.lease {
                Some(lease) => Reply::Json(200, lease.clone()),
                None => failure(404, "not found"),
            },
            Method::POST if self.lease.is_some() => failure(409, "already exists"),
            Method::PUT if self.lease.is_none() => failure(404, "not found"),
            Method::PUT if asked.body["metadata"]["resourceVersion"] != json!(self.version.to_string()) => {
                failure(409, "the object has been modified")
            }
            _ => {
                self.version += 1;
                let mut lease = asked.body.clone();
                lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.lease = Some(lease.clone());
                Reply::Json(200, lease)
            }
        }
    }
}

struct Candidate {
    permit: Permit,
    inputs: mpsc::Receiver<Input>,
    release: Stop,
    task: JoinHandle<Result<(), Closed>>,
}

fn candidate(stored: &Arc<Mutex<Stored>>, identity: &str) -> Candidate {
    let stored = Arc::clone(stored);
    let (client, _) = server(move |asked| stored.lock().unwrap().answer(asked));
    let (granter, permit) = permit();
    let (sender, inputs) = mpsc::channel(100);
    let readiness = Readiness::default();
    for source in [Source::RouterConfigs, Source::AddressSpaces, Source::Addresses, Source::Namespaces] {
        readiness.synced(source);
    }
    let release = Stop::default();
    let keeper = LeaseKeeper {
        client,
        namespace: "system".into(),
        name: "waystation".into(),
        identity: identity.into(),
        duration: DURATION,
        granter,
        inputs: sender,
        as_input: Input::Leading,
        clock: Arc::new(TestClock(Instant::now())),
        readiness,
        jitter: Jitter::seeded(identity.len() as u64),
        meter: Arc::new(Unmetered),
        release: release.clone(),
    };
    Candidate { permit, inputs, release, task: tokio::spawn(keeper.run()) }
}

impl Candidate {
    fn leads(&self) -> bool {
        self.permit.allows(Duration::ZERO)
    }
}

/// Lets time pass in small steps, in which never two may act.
async fn pass(time: Duration, candidates: &[&Candidate]) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        let leading = candidates.iter().filter(|candidate| candidate.leads()).count();
        assert!(leading <= 1, "{leading} lead at once");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_keeps_leading() {
    let stored = Arc::default();
    let (mut a, b) = (candidate(&stored, "a"), candidate(&stored, "bb"));
    pass(Duration::from_secs(5), &[&a, &b]).await;
    let first = a.leads();
    assert!(first != b.leads());
    pass(Duration::from_secs(600), &[&a, &b]).await;
    assert_eq!(a.leads(), first);
    // The permit always outlasts a request.
    if first {
        assert_eq!(a.inputs.recv().await, Some(Input::Leading(true)));
        assert!(a.permit.allows(DURATION / 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_replaced_within_the_lease_time_and_not_before() {
    let stored = Arc::default();
    let a = candidate(&stored, "a");
    pass(Duration::from_secs(3), &[&a]).await;
    assert!(a.leads());
    let b = candidate(&stored, "bb");
    pass(Duration::from_secs(60), &[&a, &b]).await;
    assert!(a.leads());
    assert!(b.permit.was_elsewhere(Instant::now() - DURATION), "it was seen to be renewed");
    a.task.abort();
    let died = Instant::now();
    while !b.leads() {
        sleep(Duration::from_millis(50)).await;
    }
    let took = died.elapsed();
    // Renewed up to five seconds before it died, seen up to two seconds later.
    assert!(took >= DURATION * 2 / 3 && took <= DURATION + Duration::from_secs(5), "{took:?}");
    assert!(!b.permit.was_elsewhere(died), "nobody led since");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let stored = Arc::default();
    let a = candidate(&stored, "a");
    pass(Duration::from_secs(3), &[&a]).await;
    let mut b = candidate(&stored, "bb");
    pass(Duration::from_secs(3), &[&a, &b]).await;
    a.release.request();
    a.task.await.unwrap().unwrap();
    pass(Duration::from_secs(3), &[&b]).await;
    assert!(b.leads());
    assert_eq!(b.inputs.recv().await, Some(Input::Leading(true)));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_others_begin() {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let mut a = candidate(&stored, "a");
    pass(Duration::from_secs(3), &[&a]).await;
    assert!(a.leads());
    stored.lock().unwrap().down = true;
    pass(Duration::from_secs(20), &[&a]).await;
    assert!(!a.leads());
    assert_eq!(a.inputs.recv().await, Some(Input::Leading(true)));
    assert_eq!(a.inputs.recv().await, Some(Input::Leading(false)));
    stored.lock().unwrap().down = false;
    pass(Duration::from_secs(10), &[&a]).await;
    assert!(a.leads());
    assert_eq!(a.inputs.recv().await, Some(Input::Leading(true)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_got_lost_does_not_cost_the_lease() {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let mut a = candidate(&stored, "a");
    pass(Duration::from_secs(3), &[&a]).await;
    stored.lock().unwrap().mute = Some("a".into());
    pass(Duration::from_secs(5), &[&a]).await;
    stored.lock().unwrap().mute = None;
    let b = candidate(&stored, "bb");
    pass(Duration::from_secs(120), &[&a, &b]).await;
    assert!(a.leads());
    assert_eq!(a.inputs.recv().await, Some(Input::Leading(true)));
    assert!(a.inputs.try_recv().is_err(), "it never lost it");
}

#[tokio::test(start_paused = true)]
async fn slow_renewals_never_let_two_lead() {
    for delay_ms in [700, 2_500, 4_900] {
        let stored: Arc<Mutex<Stored>> = Arc::default();
        stored.lock().unwrap().delay = Duration::from_millis(delay_ms);
        let (a, b) = (candidate(&stored, "a"), candidate(&stored, "bb"));
        pass(Duration::from_secs(200), &[&a, &b]).await;
        assert!(a.leads() || b.leads(), "{delay_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_before_everything_is_read() {
    let stored: Arc<Mutex<Stored>> = Arc::default();
    let (client, log) = {
        let stored = Arc::clone(&stored);
        server(move |asked| stored.lock().unwrap().answer(asked))
    };
    let (granter, permit) = permit();
    let (sender, _inputs) = mpsc::channel(100);
    let release = Stop::default();
    let keeper = LeaseKeeper {
        client,
        namespace: "system".into(),
        name: "waystation".into(),
        identity: "a".into(),
        duration: DURATION,
        granter,
        inputs: sender,
        as_input: Input::Leading,
        clock: Arc::new(TestClock(Instant::now())),
        readiness: Readiness::default(),
        jitter: Jitter::seeded(1),
        meter: Arc::new(Unmetered),
        release: release.clone(),
    };
    let task = tokio::spawn(keeper.run());
    sleep(Duration::from_secs(100)).await;
    assert_eq!(log.len(), 0);
    assert!(!permit.allows(Duration::ZERO));
    release.request();
    task.await.unwrap().unwrap();
}
