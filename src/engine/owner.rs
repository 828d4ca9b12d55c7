//! The one task that owns a model. No lock stands around a model and no I/O happens inside it: inputs come through a
//! bounded channel, output goes to a synchronous function that must not wait.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::clock::{Clock, Moment, Stopwatch};
use super::pulse::Pulse;

/// Inputs taken in before the model settles: what is waiting counts as one moment, up to this many.
pub const BATCH: usize = 512;

/// A pure model.
pub trait Model {
    /// What happens to it.
    type Input;
    /// What came of settling.
    type Output;

    /// Takes in one event. Costs the event.
    fn apply(&mut self, input: Self::Input, now: Moment);

    /// Decides. Costs what has changed since the last time.
    fn settle(&mut self, now: Moment) -> Self::Output;
}

/// Runs `model` until every sender of `inputs` is gone, and hands it back. `carry_out` gets each output and says at
/// which monotonic millisecond the model wants to settle again if nothing happens.
pub async fn own<M: Model>(
    mut model: M,
    mut inputs: mpsc::Receiver<M::Input>,
    clock: Arc<dyn Clock>,
    stopwatch: Stopwatch,
    pulse: Pulse,
    mut carry_out: impl FnMut(M::Output, usize) -> Option<u64>,
) -> M {
    let mut batch = Vec::with_capacity(BATCH);
    let mut wake: Option<u64> = None;
    loop {
        let alarm = async {
            match wake {
                Some(at) => sleep_until(stopwatch.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            taken = inputs.recv_many(&mut batch, BATCH) => taken == 0,
            () = alarm => false,
        };
        if ended {
            return model;
        }
        let _working = pulse.working();
        let now = Moment { mono_ms: stopwatch.elapsed_ms(), unix_s: clock.unix_s() };
        let taken = batch.len();
        for input in batch.drain(..) {
            model.apply(input, now);
        }
        wake = carry_out(model.settle(now), taken);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::pulse::Pulses;
    use super::*;

    #[derive(Default)]
    struct Sum {
        total: u64,
        settled_at: Vec<u64>,
        alarm: Option<u64>,
    }

    impl Model for Sum {
        type Input = u64;
        type Output = (u64, Option<u64>);

        fn apply(&mut self, input: u64, _: Moment) {
            self.total += input;
        }

        fn settle(&mut self, now: Moment) -> Self::Output {
            self.settled_at.push(now.mono_ms);
            (self.total, self.alarm.take())
        }
    }

    struct Noon;

    impl Clock for Noon {
        fn unix_micros(&self) -> i64 {
            43_200_000_000
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waiting_settles_once_and_the_alarm_settles_again() {
        let (tx, rx) = mpsc::channel(BATCH);
        for n in [1, 2, 3] {
            tx.send(n).await.unwrap();
        }
        let mut seen = Vec::new();
        let model = Sum { alarm: Some(250), ..Sum::default() };
        let pulse = Pulses::default().of("model");
        let own = own(model, rx, Arc::new(Noon), Stopwatch::start(), pulse, |(total, wake), taken| {
            seen.push((total, taken));
            wake
        });
        let sender = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tx.send(10).await.unwrap();
            drop(tx);
        };
        let (model, ()) = tokio::join!(own, sender);
        assert_eq!(model.settled_at, [0, 250, 1000]);
        assert_eq!(seen, [(6, 3), (6, 0), (16, 1)]);
    }
}
