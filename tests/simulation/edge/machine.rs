//! A machine: HAProxy under its supervisor, and the files that it is started from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use waystation::edge::render::Layout;
use waystation_kit::haproxy_core::{Files, Parser, Worker};

use super::moments::Window;
use super::world::{Shared, World};
use crate::api::lock;
use crate::api::store::EPOCH_S;

/// A connection to a process.
#[derive(Default)]
pub struct Wire {
    cut: Mutex<Option<String>>,
    pub told: Notify,
}

impl Wire {
    pub fn cut(&self, why: &str) {
        self.cut.lock().unwrap().get_or_insert_with(|| why.to_owned());
        self.told.notify_waiters();
    }

    pub fn why(&self) -> Option<String> {
        self.cut.lock().unwrap().clone()
    }
}

/// See the module.
pub struct Machine {
    pub layout: Layout,
    pub files: Files,
    /// The process that new connections come to.
    pub worker: Option<Worker>,
    /// Those that only end what they have begun.
    pub old: Vec<Worker>,
    pub wires: Vec<(u32, Arc<Wire>)>,
    pub parser: Parser,
    next_pid: u32,
    /// It ended by itself, and the supervisor has not seen it.
    pub killed: bool,
    /// Servers have sessions until then.
    pub busy_until: Instant,
    /// Contents that HAProxy can make nothing of.
    pub refuses: BTreeSet<String>,
    /// The next command that begins so is refused.
    pub refuse_next: Option<&'static str>,
    /// Something was refused since everything was compared last.
    pub refused: bool,
    /// Somebody has meddled with process or files since then.
    pub drifted: bool,
    pub disk_full_until: Instant,
    pub disk_slow_until: Instant,
    /// Which life of its agent: what an earlier one had begun does not go on.
    pub life: u64,
    pub window: Window,
    /// How often its agent has had it reloaded.
    pub reloads: u64,
    /// Commands that changed a process.
    pub commands: u64,
}

impl Machine {
    pub fn new(index: usize) -> Self {
        let now = Instant::now();
        Self {
            layout: Layout::new(format!("/m{index}")),
            files: Files::new(),
            worker: None,
            old: Vec::new(),
            wires: Vec::new(),
            parser: Parser::default(),
            next_pid: 100,
            killed: false,
            busy_until: now,
            refuses: BTreeSet::new(),
            refuse_next: None,
            refused: false,
            drifted: false,
            disk_full_until: now,
            disk_slow_until: now,
            life: 0,
            window: Window::default(),
            reloads: 0,
            commands: 0,
        }
    }

    /// The process of that number.
    pub fn process(&mut self, pid: u32) -> Option<&mut Worker> {
        self.worker.iter_mut().chain(&mut self.old).find(|worker| worker.pid == pid)
    }

    /// The master and all its workers end.
    pub fn kill(&mut self) {
        self.worker = None;
        self.old.clear();
        self.wires.drain(..).for_each(|(_, wire)| wire.cut("the process has ended"));
        self.killed = true;
    }

    /// A process from the files as they are.
    pub fn begin(&mut self, at_s: u64) -> Result<Worker, String> {
        self.next_pid += 1;
        let process = (self.next_pid, at_s);
        self.parser.start(&self.files, self.layout.dir(), process, &self.refuses)
    }

    /// Whether the files were ever written as a whole.
    pub fn has_files(&self) -> bool {
        self.files.contains_key(&self.layout.config())
    }
}

impl World {
    pub fn now_s(&self) -> u64 {
        u64::try_from(EPOCH_S).unwrap() + self.began.elapsed().as_secs()
    }

    /// Files were changed, or a process begun or told something: holds what is there against what was wanted.
    pub fn judge(&mut self, index: usize) {
        let now_s = self.now_s();
        let machine = &mut self.machines[index];
        let mut wrong = Vec::new();
        if let Some(worker) = &machine.worker {
            let excused = (machine.refused, machine.drifted);
            wrong.extend(machine.window.process(worker, &machine.layout, excused));
        }
        if machine.window.files_changed && machine.has_files() {
            machine.window.files_changed = false;
            let excused = (machine.refused, machine.drifted);
            // Tried, and not kept.
            let pid = machine.next_pid;
            match machine.begin(now_s) {
                Ok(worker) => wrong.extend(machine.window.files(&worker, &machine.layout, excused)),
                Err(why) if machine.refuses.is_empty() && !machine.drifted => {
                    wrong.push(format!("HAProxy would not start from its files: {why}"));
                }
                Err(_) => {}
            }
            machine.next_pid = pid;
        }
        for what in wrong {
            self.violated(format!("machine {index}: {what}"));
        }
    }

    /// The supervisor starts HAProxy, if there is anything to start it from.
    pub fn start_process(&mut self, index: usize) -> bool {
        let now_s = self.now_s();
        let machine = &mut self.machines[index];
        if machine.worker.is_some() || !machine.has_files() {
            return machine.worker.is_some();
        }
        match machine.begin(now_s) {
            Ok(worker) => {
                let pid = worker.pid;
                machine.worker = Some(worker);
                machine.killed = false;
                self.note(&format!("machine {index}: process {pid} begins"));
                self.saw("process begins");
                self.acted();
                self.judge(index);
                true
            }
            Err(why) => {
                let excused = !machine.refuses.is_empty() || machine.drifted;
                self.note(&format!("machine {index}: no process: {why}"));
                self.saw("a start that is refused");
                if !excused {
                    self.violated(format!("machine {index}: HAProxy does not start: {why}"));
                }
                false
            }
        }
    }

    /// A new process takes over from the old one, which ends some time later.
    pub fn take_over(&mut self, index: usize) -> Result<(u32, Duration), String> {
        let now_s = self.now_s();
        let lasts = Duration::from_millis(self.random.within(0..4_000));
        let machine = &mut self.machines[index];
        let worker = machine.begin(now_s)?;
        let new = worker.pid;
        let old = machine.worker.replace(worker).map(|mut old| {
            old.stopping = true;
            let pid = old.pid;
            machine.old.push(old);
            pid
        });
        self.note(&format!("machine {index}: process {new} takes over"));
        self.judge(index);
        Ok((old.unwrap_or_default(), lasts))
    }

    /// An old process has ended what it had begun.
    pub fn end_old(&mut self, index: usize, pid: u32) {
        let machine = &mut self.machines[index];
        machine.old.retain(|worker| worker.pid != pid);
        let (ended, rest) = std::mem::take(&mut machine.wires).into_iter().partition(|(of, _)| *of == pid);
        machine.wires = rest;
        let ended: Vec<(u32, Arc<Wire>)> = ended;
        ended.iter().for_each(|(_, wire)| wire.cut("the process has ended"));
    }
}

/// The supervisor: starts HAProxy when there are files, and again when it has ended.
pub async fn supervise(world: Shared, index: usize, down: Duration) {
    sleep(down).await;
    while !lock(&world).start_process(index) {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Has a new process take over, as the master does when it is told to.
pub async fn reload(world: &Shared, index: usize) -> Result<(), String> {
    let takes = {
        let mut world = lock(world);
        Duration::from_millis(world.random.within(1..60))
    };
    sleep(takes).await;
    let (old, lasts) = lock(world).take_over(index)?;
    let world = Shared::clone(world);
    tokio::spawn(async move {
        sleep(lasts).await;
        lock(&world).end_old(index, old);
    });
    Ok(())
}
