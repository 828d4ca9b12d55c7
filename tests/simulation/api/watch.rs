//! Watches: events in order, late, cut off, forgotten.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::service::{Selector, Target, status};
use super::store::{Plural, Refusal, Store, partial};
use super::{Deed, Surroundings, lock};

/// The body of a watch.
pub type Events = StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>;

/// What is to be watched.
pub struct Wanted {
    pub target: Target,
    pub selector: Selector,
    pub replica: usize,
    pub from: u64,
    /// Begins with everything that is there.
    pub initial: bool,
    pub timeout: Duration,
}

type Sender = mpsc::UnboundedSender<io::Result<Bytes>>;

/// Opens a watch.
pub fn open<W: Surroundings>(world: &Arc<Mutex<W>>, wanted: Wanted) -> Result<Events, Refusal> {
    let (sender, mut receiver) = mpsc::unbounded_channel::<io::Result<Bytes>>();
    let mut wanted = wanted;
    {
        let mut locked = lock(world);
        if !wanted.initial && wanted.from < locked.api.compacted {
            if locked.random.chance(500) {
                return Err((410, "Expired"));
            }
            let event = json!({ "type": "ERROR", "object": status((410, "Expired")) });
            let _ = sender.send(Ok(format!("{event}\n").into()));
        } else {
            if wanted.initial {
                wanted.from = locked.api.version;
                send_initial(&locked.api, &wanted, &sender);
            }
            let cuts = locked.cuts;
            tokio::spawn(serve(Arc::clone(world), wanted, sender, cuts));
        }
    }
    let events = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    Ok(StreamBody::new(events.map(|line| line.map(Frame::data)).boxed()))
}

fn send_initial(api: &Store, wanted: &Wanted, sender: &Sender) {
    let all = api.all(wanted.target.plural).filter(|(id, _)| wanted.selector.takes(&wanted.target, id, &api.labels));
    for (_, object) in all {
        let object = if wanted.target.plural.metadata_only() { partial(object) } else { (**object).clone() };
        let _ = sender.send(Ok(format!("{}\n", json!({ "type": "ADDED", "object": object })).into()));
    }
    let _ = sender.send(Ok(bookmark(wanted.target.plural, wanted.from, true)));
}

fn bookmark(plural: Plural, version: u64, ends: bool) -> Bytes {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if ends {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = json!({ "apiVersion": "v1", "kind": plural.as_str(), "metadata": metadata });
    format!("{}\n", json!({ "type": "BOOKMARK", "object": object })).into()
}

enum Next {
    Line(Instant, u64, Bytes),
    Nothing,
    Cut(bool),
}

async fn serve<W: Surroundings>(world: Arc<Mutex<W>>, wanted: Wanted, sender: Sender, cuts: u64) {
    let ends = Instant::now() + wanted.timeout;
    let (mut position, mut due) = (wanted.from, Instant::now());
    let mut next_bookmark = Instant::now() + Duration::from_secs(60);
    loop {
        let (moved, next) = {
            let mut world = lock(&world);
            (world.api.moved(wanted.target.plural), step(&mut *world, &wanted, position, due, cuts))
        };
        let moved = moved.notified();
        tokio::pin!(moved);
        match next {
            Next::Line(at, version, line) => {
                (position, due) = (version, at);
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    () = sleep_until(at) => {}
                }
                let cut = lock(&world).cuts != cuts;
                if cut || sender.send(Ok(line)).is_err() {
                    return;
                }
            }
            Next::Cut(broken) => {
                if broken {
                    cut(&world, &sender);
                }
                return;
            }
            Next::Nothing => {
                // Nothing is awaited between the look above and here: no change can be missed.
                let alarm = next_bookmark.min(ends);
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    () = &mut moved => continue,
                    () = sleep_until(alarm) => {}
                }
                if Instant::now() >= ends {
                    return;
                }
                next_bookmark += Duration::from_secs(60);
                let _ = sender.send(Ok(bookmark(wanted.target.plural, position, false)));
            }
        }
    }
}

/// Ends a watch in one of the ways that it should not end in.
fn cut<W: Surroundings>(world: &Arc<Mutex<W>>, sender: &Sender) {
    let event = |code| json!({ "type": "ERROR", "object": status((code, "Injected")) });
    let ends = match lock(world).random.within(0..4) {
        0 => Ok(Bytes::from_static(b"{\"type\":\"MODI")),
        1 => Ok(format!("{}\n", event(500)).into()),
        2 => Ok(format!("{}\n", event(410)).into()),
        _ => Err(io::Error::new(io::ErrorKind::ConnectionReset, "reset")),
    };
    // Nobody may listen any more.
    let _ = sender.send(ends);
}

fn step<W: Surroundings>(world: &mut W, wanted: &Wanted, position: u64, due: Instant, cuts: u64) -> Next {
    if world.cuts != cuts {
        return Next::Cut(world.random.chance(500));
    }
    let plural = wanted.target.plural;
    let api = &world.api;
    let takes = |id| wanted.selector.takes(&wanted.target, id, &api.labels);
    let found = api.since(plural, position).find(|change| takes(&change.id));
    let found = found.map(|change| (change.at, change.version, change.line.clone()));
    let Some((at, version, line)) = found else { return Next::Nothing };
    if world.omits(Deed::Tell(plural)) {
        return Next::Line(due, version, Bytes::new());
    }
    let late = world.watch_delay();
    Next::Line(due.max(at + late).max(world.stalled_until(wanted.replica)), version, line)
}
