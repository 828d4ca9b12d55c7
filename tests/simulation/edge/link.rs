//! The way to a simulated HAProxy: sessions that carry commands in order, and everything that can go wrong on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use waystation::drive::haproxy::link::{AskError, Asked, LinkError, ProcessLink, ProcessSession, ReloadError};

use super::lies::Lie;
use super::machine::{Wire, reload};
use super::world::{Shared, World};
use crate::api::lock;

/// How one agent reaches its HAProxy.
pub struct SimLink {
    pub world: Shared,
    pub machine: usize,
    /// Which life of the agent.
    pub life: u64,
}

impl ProcessLink for SimLink {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn ProcessSession>, LinkError>> {
        async move {
            let way = {
                let mut world = lock(&self.world);
                let longest = world.faults.latency_ms;
                world.some_ms(longest)
            };
            sleep(way).await;
            let mut world = lock(&self.world);
            let rate = world.faults.haproxy;
            let fails = rate > 0 && world.random.chance(rate);
            let machine = &mut world.machines[self.machine];
            let pid = machine.worker.as_ref().map(|worker| worker.pid).filter(|_| !fails);
            let Some(pid) = pid else {
                let message = "no such file or directory".to_owned();
                return Err(LinkError { category: "unreachable", message });
            };
            let wire = Arc::new(Wire::default());
            machine.wires.push((pid, Arc::clone(&wire)));
            let (queue, queued) = mpsc::unbounded_channel();
            let serve = serve(Shared::clone(&self.world), (self.machine, self.life), pid, Arc::clone(&wire), queued);
            tokio::spawn(serve);
            Ok(Box::new(SimSession { queue, wire }) as Box<dyn ProcessSession>)
        }
        .boxed()
    }

    fn reload(&self) -> BoxFuture<'_, Result<(), ReloadError>> {
        async move {
            let mishap = {
                let mut world = lock(&self.world);
                world.machines[self.machine].reloads += 1;
                world.acted();
                world.note(&format!("machine {}: is to be reloaded", self.machine));
                world.saw("reload by an agent");
                let why = "an agent has HAProxy reloaded though nothing needs it";
                if !world.may_reload && world.lie.is_none() {
                    world.violated(format!("machine {}: {why}", self.machine));
                }
                if world.machines[self.machine].worker.is_none() {
                    return Err(ReloadError::Unreachable("no such file or directory".to_owned()));
                }
                let rate = world.faults.haproxy * 2;
                let fails = rate > 0 && world.random.chance(rate);
                // One that is not answered is given up after a minute.
                world.trouble(if fails { 75 } else { 0 });
                if fails { world.random.within(1..4) } else { 0 }
            };
            if mishap == 1 {
                return Err(ReloadError::Unreachable("connection refused".to_owned()));
            }
            let done = reload(&self.world, self.machine).await;
            match mishap {
                2 => Err(ReloadError::TimedOut),
                3 => pending().await,
                _ => done.map_err(ReloadError::Refused),
            }
        }
        .boxed()
    }

    fn bindable(&self, _: &[SocketAddr]) -> Result<(), String> {
        Ok(())
    }

    fn reloads(&self) -> bool {
        true
    }
}

type Queue = mpsc::UnboundedReceiver<(String, oneshot::Sender<String>)>;

struct SimSession {
    queue: mpsc::UnboundedSender<(String, oneshot::Sender<String>)>,
    wire: Arc<Wire>,
}

impl ProcessSession for SimSession {
    fn ask(&self, text: String, deadline: Duration) -> Asked {
        let (teller, told) = oneshot::channel();
        let sent = self.queue.send((text, teller)).is_ok();
        let wire = Arc::clone(&self.wire);
        async move {
            let lost = || AskError::Lost(wire.why().unwrap_or_else(|| "closed".to_owned()));
            if !sent {
                return Err(lost());
            }
            match timeout(deadline, told).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(_)) => Err(lost()),
                Err(_) => Err(AskError::TimedOut),
            }
        }
        .boxed()
    }

    fn lost(&self) -> BoxFuture<'_, String> {
        async move {
            loop {
                let told = self.wire.told.notified();
                if let Some(why) = self.wire.why() {
                    return why;
                }
                told.await;
            }
        }
        .boxed()
    }
}

/// What goes wrong with one command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mishap {
    None,
    /// The connection breaks before it arrives.
    Before,
    /// It is carried out, and the connection breaks before the answer.
    After,
    /// It is carried out, and nothing is ever answered any more.
    Mute,
    /// It is carried out, and the process ends.
    Killed,
}

/// Takes commands one after another, as a process does, until the connection is gone.
async fn serve(world: Shared, (machine, life): (usize, u64), pid: u32, wire: Arc<Wire>, mut queue: Queue) {
    while let Some((text, teller)) = queue.recv().await {
        let (wait, mishap) = {
            let mut world = lock(&world);
            let wait = world.random.chance(100).then(|| {
                let longest = world.faults.latency_ms;
                world.some_ms(longest)
            });
            (wait, mishap(&mut world))
        };
        if let Some(wait) = wait {
            sleep(wait).await;
        }
        if wire.why().is_some() {
            return;
        }
        if mishap == Mishap::Before {
            wire.cut("connection reset by peer");
            return;
        }
        if lock(&world).lies(Lie::EarlyAnswer) && !text.starts_with("show") {
            let early = lock(&world).machines[machine].process(pid).map(|process| process.clone().ask(&text));
            let _ = teller.send(early.unwrap_or_default());
            sleep(Duration::from_millis(2)).await;
            lock(&world).carry_out(machine, life, pid, &text, false);
            continue;
        }
        let answer = lock(&world).carry_out(machine, life, pid, &text, true);
        match (mishap, answer) {
            (Mishap::None, Some(answer)) => {
                let _ = teller.send(answer);
            }
            (Mishap::Mute, Some(_)) => {
                // Nobody hangs up.
                while wire.why().is_none() && !queue.is_closed() {
                    sleep(Duration::from_secs(1)).await;
                }
                return;
            }
            (Mishap::Killed, _) => {
                let mut world = lock(&world);
                world.note(&format!("machine {machine}: the process crashes"));
                world.machines[machine].kill();
                world.crash.notify_one();
                return;
            }
            _ => {
                wire.cut("connection reset by peer");
                return;
            }
        }
    }
}

fn mishap(world: &mut World) -> Mishap {
    let rate = world.faults.haproxy;
    if rate == 0 || !world.random.chance(rate / 4) {
        return Mishap::None;
    }
    let mishap = match world.random.within(0..10) {
        0..4 => Mishap::Before,
        4..8 => Mishap::After,
        8 => Mishap::Mute,
        _ => Mishap::Killed,
    };
    // A command that is not answered is given up after 10 s, a question after 60.
    world.trouble(if mishap == Mishap::Mute { 65 } else { 2 });
    mishap
}

impl World {
    /// What a process answers to a command; none: it is no more. `told`: whether anybody is.
    fn carry_out(&mut self, index: usize, life: u64, pid: u32, text: &str, told: bool) -> Option<String> {
        let shows = text.starts_with("show");
        let (publishes, removes) = (text.starts_with("publish backend"), text.starts_with("del server"));
        let phantom = publishes && life > 1 && self.lies(Lie::ForgottenPublish);
        let swallowed = removes && self.lies(Lie::PhantomRemoval);
        let machine = &mut self.machines[index];
        let refused = machine.refuse_next.take_if(|what| text.starts_with(*what)).is_some();
        let sessions = u32::from(machine.busy_until > Instant::now());
        let process = machine.process(pid)?;
        process.backends.values_mut().flat_map(|b| b.servers.values_mut()).for_each(|s| s.sessions = sessions);
        let mut answer = match (refused, phantom) {
            (true, _) => "out of memory.\n".to_owned(),
            (_, true) => "Backend published.\n".to_owned(),
            _ => process.ask(text),
        };
        let busy = answer.contains("still has connections");
        if swallowed && busy {
            answer = "Server deleted.\n".to_owned();
        }
        // What nobody was told of is no excuse.
        machine.refused |= refused && told;
        // Limits cannot be read, and are told again whenever all is compared.
        if !shows && !text.starts_with("set maxconn") {
            machine.commands += 1;
        }
        if shows {
            self.note(&format!("machine {index}/{pid}: {} -> {} bytes", text.trim_end(), answer.len()));
            return Some(answer);
        }
        self.note(&format!("machine {index}/{pid}: {} -> {}", text.trim_end(), answer.trim_end()));
        for (is, what) in [(refused, "a refused command"), (busy, "a busy removal")] {
            if is {
                self.saw(what);
            }
        }
        self.saw("command");
        self.acted();
        self.judge(index);
        Some(answer)
    }
}
