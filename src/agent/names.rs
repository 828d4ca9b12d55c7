//! Names of DNS that routes lead to: resolved here, with a deadline, and again when their time ends.
//!
//! A name that does not exist leads nowhere. One that cannot be resolved at the moment stays where it was: unknown is not
//! empty. So does one of which nothing is known yet, since HAProxy may have it from an agent before us; but not for ever,
//! since whatever comes first waits for all names. What of the addresses may be used is for the model to say.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::edge::input::Input;
use crate::engine::jitter::{Jitter, doubling};

/// For all that one answer takes.
const DEADLINE: Duration = Duration::from_secs(5);
/// Questions under way.
const AT_A_TIME: usize = 16;
/// Between which an answer is trusted, whatever it says of itself.
const TTL: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(300)];
/// After a name that does not exist.
const ABSENT: Duration = Duration::from_secs(15);
/// After a failure; doubles.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// After this long without any answer a name is taken to lead nowhere.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a question came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is at these addresses, for so long.
    At(Vec<IpAddr>, Duration),
    /// There is no such name.
    Absent,
    /// Nobody knows at the moment, in words for people.
    Unknown(String),
}

/// Who is asked.
pub trait Resolve: Send + Sync {
    /// Asks for a name, in full: no search list counts.
    fn resolve(&self, name: &str) -> BoxFuture<'_, Answer>;
}

/// The machine's name servers, read when one is first asked for.
#[derive(Default)]
pub struct System {
    /// Others than the machine's.
    servers: Option<ResolverConfig>,
    resolver: tokio::sync::OnceCell<TokioResolver>,
}

impl System {
    async fn ask(&self, name: &str) -> Answer {
        let resolver = self.resolver.get_or_try_init(|| async {
            let mut builder = match &self.servers {
                Some(servers) => TokioResolver::builder_with_config(servers.clone(), TokioRuntimeProvider::default()),
                None => TokioResolver::builder_tokio()?,
            };
            // Its answers are asked for again when their time has ended, not before.
            builder.options_mut().cache_size = 0;
            builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
            builder.build()
        });
        let resolver: &TokioResolver = match resolver.await {
            Ok(resolver) => resolver,
            Err(error) => return Answer::Unknown(NetError::to_string(&error)),
        };
        match resolver.lookup_ip(name).await {
            Ok(found) => {
                let ttl = found.valid_until().saturating_duration_since(std::time::Instant::now());
                Answer::At(found.iter().collect(), ttl)
            }
            Err(error) if error.is_nx_domain() || error.is_no_records_found() => Answer::Absent,
            Err(error) => Answer::Unknown(error.to_string()),
        }
    }
}

impl Resolve for System {
    fn resolve(&self, name: &str) -> BoxFuture<'_, Answer> {
        let full = format!("{}.", name.trim_end_matches('.'));
        async move {
            match timeout(DEADLINE, self.ask(&full)).await {
                Ok(answer) => answer,
                Err(_) => Answer::Unknown("no answer in time".to_owned()),
            }
        }
        .boxed()
    }
}

/// Resolves what it is told to, until nobody tells it anything.
pub async fn follow(
    resolver: Arc<dyn Resolve>,
    mut wanted: mpsc::UnboundedReceiver<(Arc<str>, bool)>,
    inputs: mpsc::Sender<Input>,
    jitter: Jitter,
) {
    let turns = Arc::new(Semaphore::new(AT_A_TIME));
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<Arc<str>, AbortHandle> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            change = wanted.recv() => {
                let Some((name, wanted)) = change else { return };
                if let Some(task) = running.remove(&name) {
                    task.abort();
                }
                if wanted {
                    let follow = Name {
                        name: Arc::clone(&name),
                        resolver: Arc::clone(&resolver),
                        turns: Arc::clone(&turns),
                        inputs: inputs.clone(),
                        jitter: jitter.fork(),
                    };
                    running.insert(name, tasks.spawn(follow.run()));
                }
            }
            Some(ended) = tasks.join_next() => {
                if let Err(failed) = ended
                    && failed.is_panic()
                {
                    std::panic::resume_unwind(failed.into_panic());
                }
            }
        }
    }
}

struct Name {
    name: Arc<str>,
    resolver: Arc<dyn Resolve>,
    turns: Arc<Semaphore>,
    inputs: mpsc::Sender<Input>,
    jitter: Jitter,
}

impl Name {
    async fn run(self) {
        let mut told: Option<Vec<IpAddr>> = None;
        let mut failures = 0;
        let patient = Instant::now() + PATIENCE;
        loop {
            let asked = async {
                let Ok(_turn) = self.turns.acquire().await else { return Answer::Unknown("nobody asks".to_owned()) };
                self.resolver.resolve(&self.name).await
            };
            let answer = match told {
                Some(_) => asked.await,
                None => timeout_at(patient, asked)
                    .await
                    .unwrap_or_else(|_| Answer::Unknown("nobody has answered so far".to_owned())),
            };
            let (addresses, wait) = match answer {
                Answer::At(mut addresses, ttl) => {
                    addresses.sort_unstable();
                    addresses.dedup();
                    (Some(addresses), ttl.clamp(TTL[0], TTL[1]))
                }
                Answer::Absent => (Some(Vec::new()), ABSENT),
                Answer::Unknown(words) => {
                    tracing::debug!(name = &*self.name, words, "a name was not resolved; it is tried again");
                    let first = (told.is_none() && Instant::now() >= patient).then(Vec::new);
                    (first, doubling(FIRST_RETRY, LONGEST_RETRY, failures))
                }
            };
            failures = if addresses.is_some() && wait >= TTL[0] { 0 } else { failures + 1 };
            if let Some(addresses) = addresses
                && told.as_ref() != Some(&addresses)
            {
                let input = Input::Resolved(Arc::clone(&self.name), addresses.clone().into());
                if self.inputs.send(input).await.is_err() {
                    return;
                }
                told = Some(addresses);
            }
            let again = Instant::now() + self.jitter.spread(wait);
            sleep_until(if told.is_none() { again.min(patient) } else { again }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    struct Script(Mutex<VecDeque<Answer>>, Mutex<Vec<Instant>>);

    impl Resolve for Script {
        fn resolve(&self, _: &str) -> BoxFuture<'_, Answer> {
            self.1.lock().unwrap().push(Instant::now());
            let mut answers = self.0.lock().unwrap();
            let next = answers.pop_front();
            async move { next.unwrap_or(Answer::Unknown("the end".to_owned())) }.boxed()
        }
    }

    fn at(addresses: &[&str], ttl_s: u64) -> Answer {
        Answer::At(addresses.iter().map(|a| a.parse().unwrap()).collect(), Duration::from_secs(ttl_s))
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_is_told_when_its_time_ends_and_a_failure_changes_nothing() {
        let answers = [
            at(&["10.0.0.2", "10.0.0.1"], 30),
            at(&["10.0.0.1", "10.0.0.2"], 30),
            Answer::Unknown("down".to_owned()),
            at(&["10.0.0.3"], 0),
            Answer::Absent,
        ];
        let script = Arc::new(Script(Mutex::new(answers.into()), Mutex::default()));
        let (wish, wanted) = mpsc::unbounded_channel();
        let (inputs, mut told) = mpsc::channel(10);
        let following = tokio::spawn(follow(script.clone(), wanted, inputs, Jitter::seeded(1)));
        wish.send(("a.example".into(), true)).unwrap();
        let mut next = async || match told.recv().await.unwrap() {
            Input::Resolved(_, addresses) => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            other => panic!("{other:?}"),
        };
        assert_eq!(next().await, "10.0.0.1 10.0.0.2");
        assert_eq!(next().await, "10.0.0.3");
        assert_eq!(next().await, "");
        let times = script.1.lock().unwrap().clone();
        assert!(times[1] - times[0] >= Duration::from_secs(15), "its time");
        assert!(times[3] - times[2] <= Duration::from_secs(1), "after a failure");
        assert!(times[4] - times[3] >= TTL[0] / 2, "never at once");
        wish.send(("a.example".into(), false)).unwrap();
        drop(wish);
        following.await.unwrap();
        assert!(told.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_first_answer_gets_one_but_not_before_others_had_their_time() {
        let script = Arc::new(Script(Mutex::default(), Mutex::default()));
        let begun = Instant::now();
        let (wish, wanted) = mpsc::unbounded_channel();
        let (inputs, mut told) = mpsc::channel(10);
        tokio::spawn(follow(script.clone(), wanted, inputs, Jitter::seeded(1)));
        wish.send(("a.example".into(), true)).unwrap();
        assert_eq!(told.recv().await, Some(Input::Resolved("a.example".into(), Arc::new([]))));
        assert_eq!(begun.elapsed(), PATIENCE);
        assert!(script.1.lock().unwrap().len() > 4, "it was asked again and again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_at_the_start_says_nothing_of_a_name_that_is_known_a_moment_later() {
        let failures = (0..4).map(|_| Answer::Unknown("down".to_owned()));
        let answers = failures.chain([at(&["10.0.0.1"], 30)]).collect();
        let script = Arc::new(Script(Mutex::new(answers), Mutex::default()));
        let (wish, wanted) = mpsc::unbounded_channel();
        let (inputs, mut told) = mpsc::channel(10);
        tokio::spawn(follow(script, wanted, inputs, Jitter::seeded(1)));
        wish.send(("a.example".into(), true)).unwrap();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(told.recv().await, Some(Input::Resolved("a.example".into(), Arc::new([address]))));
    }

    /// Who never answers, or fails.
    struct Broken(bool);

    impl Resolve for Broken {
        fn resolve(&self, _: &str) -> BoxFuture<'_, Answer> {
            assert!(!self.0, "planted");
            std::future::pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_that_never_comes_gets_a_first_one_in_time() {
        let (wish, wanted) = mpsc::unbounded_channel();
        let (inputs, mut told) = mpsc::channel(10);
        let begun = Instant::now();
        tokio::spawn(follow(Arc::new(Broken(false)), wanted, inputs, Jitter::seeded(1)));
        // More than are asked for at a time.
        for number in 0..3 * AT_A_TIME {
            wish.send((format!("n{number}.example").into(), true)).unwrap();
        }
        for _ in 0..3 * AT_A_TIME {
            assert!(matches!(told.recv().await, Some(Input::Resolved(_, addresses)) if addresses.is_empty()));
        }
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_one_question_is_the_end_of_all() {
        let (wish, wanted) = mpsc::unbounded_channel();
        let (inputs, _told) = mpsc::channel(10);
        wish.send(("a.example".into(), true)).unwrap();
        let following = tokio::spawn(follow(Arc::new(Broken(true)), wanted, inputs, Jitter::seeded(1)));
        assert!(following.await.unwrap_err().is_panic());
    }

    /// A name server that knows `a.example`, at 10.1.2.3 for seven seconds, and nothing else.
    async fn name_server() -> u16 {
        let socket = tokio::net::UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let asked = &buffer[12..length];
                let end = asked.iter().position(|byte| *byte == 0).unwrap() + 5;
                let known = asked.starts_with(b"\x01a\x07example\x00");
                let answers = known && asked[end - 3] == 1;
                let mut answer = buffer[..2].to_vec();
                answer.extend([0x81, if known { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(answers), 0, 0, 0, 0]);
                answer.extend(&asked[..end]);
                if answers {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 7, 0, 4, 10, 1, 2, 3]);
                }
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        port
    }

    #[tokio::test]
    async fn a_name_server_is_asked_for_addresses_and_their_time() {
        use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
        let mut server = NameServerConfig::udp([127, 0, 0, 1].into());
        let mut connection = ConnectionConfig::udp();
        connection.port = name_server().await;
        server.connections = vec![connection];
        let servers = Some(ResolverConfig::from_parts(None, Vec::new(), vec![server]));
        let system = System { servers, ..System::default() };
        match system.resolve("a.example").await {
            Answer::At(addresses, ttl) => {
                assert_eq!(addresses, ["10.1.2.3".parse::<IpAddr>().unwrap()]);
                assert!(ttl <= Duration::from_secs(7) && ttl > Duration::from_secs(1), "{ttl:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(system.resolve("b.example").await, Answer::Absent);
        let mut nobody = NameServerConfig::udp([127, 0, 0, 1].into());
        nobody.connections.iter_mut().for_each(|connection| connection.port = 1);
        let servers = Some(ResolverConfig::from_parts(None, Vec::new(), vec![nobody]));
        let system = System { servers, ..System::default() };
        assert!(matches!(system.resolve("a.example").await, Answer::Unknown(_)));
    }
}
