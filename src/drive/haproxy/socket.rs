//! The link over HAProxy's Unix sockets.
//!
//! In the mode `prompt i` a connection takes any number of commands, and each answer ends with an empty line; success
//! without words is that line alone. Answers carry no number: they are told apart by their order alone, so one that
//! does not come in time ends the session.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::link::{AskError, Asked, LinkError, ProcessLink, ProcessSession, ReloadError};
use crate::edge::runtime::show;

/// Bytes of one answer: 20,000 servers are about 2 MB, 100,000 entries of a map 10 MB.
const MAX_ANSWER: usize = 256 << 20;

/// A HAProxy that listens on these sockets.
#[derive(Clone, Debug)]
pub struct SocketLink {
    /// The runtime socket.
    pub socket: String,
    /// The master's socket, where there is one.
    pub master: Option<String>,
    /// For a connection and its first answer.
    pub connect: Duration,
    /// For a reload: as long as 20,000 backends need, many times over.
    pub reload: Duration,
}

impl ProcessLink for SocketLink {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn ProcessSession>, LinkError>> {
        async {
            let unreachable = |error: std::io::Error| LinkError {
                category: "unreachable",
                message: format!("{} cannot be connected to: {error}", self.socket),
            };
            let late = || LinkError { category: "timeout", message: format!("{} does not answer", self.socket) };
            let connected = timeout(self.connect, UnixStream::connect(&self.socket)).await;
            let stream = connected.map_err(|_| late())?.map_err(unreachable)?;
            let session = SocketSession::new(stream);
            match session.ask("prompt i\n".to_owned(), self.connect).await {
                Ok(answer) if answer.is_empty() => Ok(Box::new(session) as Box<dyn ProcessSession>),
                Ok(_) => Err(LinkError {
                    category: "protocol",
                    message: format!("{} does not know `prompt i`: HAProxy 3.4 or newer is needed", self.socket),
                }),
                Err(AskError::TimedOut) => Err(late()),
                Err(AskError::Lost(reason)) => Err(LinkError { category: "unreachable", message: reason }),
            }
        }
        .boxed()
    }

    fn reload(&self) -> BoxFuture<'_, Result<(), ReloadError>> {
        async {
            let master = self.master.as_ref().ok_or(ReloadError::NoMaster)?;
            let talk = async {
                let mut stream = UnixStream::connect(master).await?;
                stream.write_all(b"reload\n").await?;
                let mut answer = String::new();
                // The master ends the connection when it has answered.
                stream.take(1 << 20).read_to_string(&mut answer).await?;
                std::io::Result::Ok(answer)
            };
            match timeout(self.reload, talk).await {
                Ok(Ok(answer)) => show::reload(&answer).map_err(ReloadError::Refused),
                Ok(Err(error)) => Err(ReloadError::Unreachable(error.to_string())),
                Err(_) => Err(ReloadError::TimedOut),
            }
        }
        .boxed()
    }

    fn bindable(&self, at: &[SocketAddr]) -> Result<(), String> {
        for address in at {
            match TcpListener::bind(address) {
                // Others, such as a want of rights, are for HAProxy to say: it may have more.
                Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {
                    return Err(match address.port() {
                        0 => format!("it cannot listen at {}: {error}", address.ip()),
                        _ => format!("it cannot listen at {address}: {error}"),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn reloads(&self) -> bool {
        self.master.is_some()
    }
}

type Waiting = oneshot::Sender<Result<String, AskError>>;

/// Who waits for answers, in order. `Err`: the connection has ended, and nobody may begin to wait.
type Line = Arc<Mutex<Result<VecDeque<Waiting>, String>>>;

/// What reads and writes; taken by whoever waits for its end.
type Task = Arc<Mutex<Option<JoinHandle<()>>>>;

struct SocketSession {
    line: Line,
    commands: mpsc::UnboundedSender<String>,
    ended: watch::Receiver<Option<String>>,
    task: Task,
}

impl Drop for SocketSession {
    fn drop(&mut self) {
        if let Some(task) = &*self.task.lock().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

/// Waits for the end of what has said that it ends; a panic of it is one of whoever asked.
async fn judge(task: &Task) {
    let task = task.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(task) = task
        && let Err(failed) = task.await
        && failed.is_panic()
    {
        std::panic::resume_unwind(failed.into_panic());
    }
}

/// Tells everybody who waits, however the task ends.
struct Finish {
    line: Line,
    end: Arc<watch::Sender<Option<String>>>,
}

impl Drop for Finish {
    fn drop(&mut self) {
        finish(&self.line, &self.end, "the session was closed".to_owned());
    }
}

impl SocketSession {
    fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let line: Line = Arc::new(Mutex::new(Ok(VecDeque::new())));
        let (commands, orders) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let end = Arc::new(end);
        let (reading, writing) = (
            read(reader, Arc::clone(&line), Arc::clone(&end)),
            write(writer, orders, Arc::clone(&line), Arc::clone(&end)),
        );
        let work = async move {
            // Either ends both.
            tokio::select! {
                biased;
                () = reading => {}
                () = writing => {}
            }
        };
        Self::with(line, commands, (end, ended), work)
    }

    fn with(
        line: Line,
        commands: mpsc::UnboundedSender<String>,
        (end, ended): (Arc<watch::Sender<Option<String>>>, watch::Receiver<Option<String>>),
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let at_end = Finish { line: Arc::clone(&line), end };
        let task = tokio::spawn(async move {
            let _at_end = at_end;
            work.await;
        });
        Self { line, commands, ended, task: Arc::new(Mutex::new(Some(task))) }
    }
}

impl ProcessSession for SocketSession {
    fn ask(&self, text: String, deadline: Duration) -> Asked {
        let (answer, answered) = oneshot::channel();
        let by = Instant::now() + deadline;
        {
            // Under the lock, so that the order of those who wait is that of the commands.
            let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *line {
                Ok(waiting) => {
                    waiting.push_back(answer);
                    // A writer that is gone tells everybody in line.
                    let _ = self.commands.send(text);
                }
                Err(reason) => {
                    let _ = answer.send(Err(AskError::Lost(reason.clone())));
                }
            }
        }
        let task = Arc::clone(&self.task);
        async move {
            let result = match timeout_at(by, answered).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(AskError::Lost("the session was closed".to_owned())),
                Err(_) => Err(AskError::TimedOut),
            };
            if matches!(result, Err(AskError::Lost(_))) {
                judge(&task).await;
            }
            result
        }
        .boxed()
    }

    fn lost(&self) -> BoxFuture<'_, String> {
        let (mut ended, task) = (self.ended.clone(), Arc::clone(&self.task));
        async move {
            let reason = match ended.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or_default(),
                Err(_) => "the session was closed".to_owned(),
            };
            judge(&task).await;
            reason
        }
        .boxed()
    }
}

/// Tells everybody who waits that no answer will come.
fn finish(line: &Line, end: &watch::Sender<Option<String>>, reason: String) {
    let before = std::mem::replace(&mut *line.lock().unwrap_or_else(PoisonError::into_inner), Err(reason.clone()));
    for waiting in before.into_iter().flatten() {
        let _ = waiting.send(Err(AskError::Lost(reason.clone())));
    }
    end.send_if_modified(|ended| ended.is_none() && ended.replace(reason).is_none());
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut orders: mpsc::UnboundedReceiver<String>,
    line: Line,
    end: Arc<watch::Sender<Option<String>>>,
) {
    let mut batch = Vec::new();
    while orders.recv_many(&mut batch, 256).await > 0 {
        let text = batch.concat();
        batch.clear();
        if let Err(error) = writer.write_all(text.as_bytes()).await {
            return finish(&line, &end, error.to_string());
        }
    }
}

async fn read(mut reader: OwnedReadHalf, line: Line, end: Arc<watch::Sender<Option<String>>>) {
    let mut answers = Answers::default();
    let mut buffer = vec![0; 64 << 10];
    let reason = loop {
        match reader.read(&mut buffer).await {
            Ok(0) => break "HAProxy closed the connection".to_owned(),
            Ok(count) => answers.take(&buffer[..count]),
            Err(error) => break error.to_string(),
        }
        if answers.pending.len() > MAX_ANSWER {
            break "an answer without an end".to_owned();
        }
        let mut waits = true;
        while waits && let Some(answer) = answers.next() {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            match line.as_mut().map(VecDeque::pop_front) {
                Ok(Some(waiting)) => {
                    let _ = waiting.send(Ok(answer));
                }
                _ => waits = false,
            }
        }
        if !waits {
            break "an answer that nobody asked for".to_owned();
        }
    };
    finish(&line, &end, reason);
}

/// Cuts what comes into answers.
#[derive(Default)]
struct Answers {
    pending: Vec<u8>,
    /// Where the answer begins that has not ended.
    begin: usize,
    /// Up to where no end was found.
    seen: usize,
}

impl Answers {
    fn take(&mut self, bytes: &[u8]) {
        if self.begin > 0 {
            self.pending.drain(..self.begin);
            self.seen -= self.begin;
            self.begin = 0;
        }
        self.pending.extend_from_slice(bytes);
    }

    /// The next answer that is complete: up to an empty line.
    fn next(&mut self) -> Option<String> {
        let rest = self.pending.get(self.begin..)?;
        let from = self.seen.saturating_sub(self.begin).saturating_sub(1);
        let length = match rest.first()? {
            b'\n' => 0,
            _ => match rest.get(from..)?.windows(2).position(|pair| pair == b"\n\n") {
                Some(at) => from + at + 1,
                None => {
                    self.seen = self.pending.len();
                    return None;
                }
            },
        };
        let answer = String::from_utf8_lossy(&rest[..length]).into_owned();
        self.begin += length + 1;
        self.seen = self.begin;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of these bytes, however they are cut.
    fn read_all(text: &str) -> Vec<String> {
        let mut whole = Answers::default();
        whole.take(text.as_bytes());
        let expected: Vec<String> = std::iter::from_fn(|| whole.next()).collect();
        for size in 1..text.len().max(2) {
            let mut cut = Answers::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                cut.take(piece);
                found.extend(std::iter::from_fn(|| cut.next()));
            }
            assert_eq!(found, expected, "cut into pieces of {size}");
        }
        expected
    }

    #[test]
    fn answers_end_with_an_empty_line_and_may_be_nothing_else() {
        assert_eq!(read_all("\n"), [""]);
        assert_eq!(read_all("\n\nNo such server.\n\n\n"), ["", "", "No such server.\n", ""]);
        assert_eq!(
            read_all("Committing x\nSuccess!\n\n\n# name\nb\n\nunfin"),
            ["Committing x\nSuccess!\n", "", "# name\nb\n"]
        );
        assert!(read_all("# name\nb\n").is_empty());
    }

    #[tokio::test]
    async fn answers_go_to_who_asked_in_order_and_an_end_to_all() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let session = SocketSession::new(ours);
        let asks: Vec<Asked> = ["a\n", "b\n", "c\n"]
            .into_iter()
            .map(|text| session.ask(text.to_owned(), Duration::from_secs(60)))
            .collect();
        let mut got = [0; 6];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"a\nb\nc\n");
        theirs.write_all(b"\nwords\n\n").await.unwrap();
        let mut asks = asks.into_iter();
        assert_eq!(asks.next().unwrap().await, Ok(String::new()));
        assert_eq!(asks.next().unwrap().await, Ok("words\n".to_owned()));
        drop(theirs);
        assert!(matches!(asks.next().unwrap().await, Err(AskError::Lost(_))));
        assert!(!session.lost().await.is_empty());
        assert!(matches!(session.ask("d\n".to_owned(), Duration::from_secs(60)).await, Err(AskError::Lost(_))));
    }

    #[tokio::test]
    async fn an_answer_that_nobody_asked_for_ends_the_session() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let session = SocketSession::new(ours);
        theirs.write_all(b"surprise\n\n").await.unwrap();
        assert_eq!(session.lost().await, "an answer that nobody asked for");
    }

    #[tokio::test]
    async fn a_panic_of_what_reads_is_one_of_who_asked() {
        let failing = || {
            let line: Line = Arc::new(Mutex::new(Ok(VecDeque::new())));
            let (end, ended) = watch::channel(None);
            let go = Arc::new(tokio::sync::Notify::new());
            let wait = Arc::clone(&go);
            let work = async move {
                wait.notified().await;
                panic!("planted");
            };
            (SocketSession::with(line, mpsc::unbounded_channel().0, (Arc::new(end), ended), work), go)
        };
        let (session, go) = failing();
        let asked = session.ask("a\n".to_owned(), Duration::from_secs(60));
        go.notify_one();
        assert!(tokio::spawn(asked).await.unwrap_err().is_panic());
        let (session, go) = failing();
        go.notify_one();
        assert!(tokio::spawn(async move { session.lost().await }).await.unwrap_err().is_panic());
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_in_time_is_told() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let session = SocketSession::new(ours);
        assert_eq!(session.ask("a\n".to_owned(), Duration::from_secs(1)).await, Err(AskError::TimedOut));
    }
}
