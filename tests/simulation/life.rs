//! A process that is simulated: it starts, ends, is killed or told to end, and starts again, each time in another life.

use std::fmt::Display;
use std::ops::DerefMut;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use waystation::engine::clock::Clock;

use crate::api::lock;
use crate::api::store::EPOCH_S;
use crate::stage::Stage;

/// The clock of a world.
pub struct SimClock(pub Instant);

impl Clock for SimClock {
    fn unix_micros(&self) -> i64 {
        EPOCH_S * 1_000_000 + i64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

/// Resolves when a process is asked to end, and never when it is killed.
pub fn asked(stopped: oneshot::Receiver<()>) -> BoxFuture<'static, ()> {
    async move {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
    .boxed()
}

/// See the module.
#[derive(Default)]
pub struct Life {
    /// Which one it is; 0: it never ran.
    pub number: u64,
    running: Option<(JoinHandle<()>, oneshot::Sender<()>)>,
}

impl Life {
    pub fn runs(&self) -> bool {
        self.running.as_ref().is_some_and(|(task, _)| !task.is_finished())
    }

    /// Lets `process` run under this name until it ends or is killed; `stop` asks it to end.
    pub fn run<W, L, E>(
        &mut self,
        world: Arc<Mutex<W>>,
        identity: Arc<str>,
        stop: oneshot::Sender<()>,
        process: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        W: DerefMut<Target = Stage<L>> + Send + 'static,
        L: Copy + PartialEq,
        E: Display,
    {
        let running = async move {
            let ended = AssertUnwindSafe(process).catch_unwind().await;
            let mut world = lock(&world);
            world.note(&format!("{identity} ended"));
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => world.violated(format!("{identity} ended: {error}")),
                Err(_) => world.violated(format!("{identity} panicked")),
            }
        };
        self.running = Some((tokio::spawn(running), stop));
    }

    /// What runs, for killing it; from now on it counts as ended.
    pub fn kill(&mut self) -> Option<JoinHandle<()>> {
        self.running.take().map(|(task, _)| task)
    }

    /// Asks what runs to end; from now on it counts as ended.
    pub fn ask(&mut self) -> Option<JoinHandle<()>> {
        let (task, stop) = self.running.take()?;
        let _ = stop.send(());
        Some(task)
    }
}
