//! Files of a machine, which are written one by one and may fail halfway.

use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use waystation::drive::haproxy::disk::{Disk, DiskError, Work};
use waystation::edge::render::File;

use super::lies::Lie;
use super::world::{Shared, World};
use crate::api::lock;

/// A machine's disk, as an agent in one of its lives has it.
pub struct SimDisk {
    pub world: Shared,
    pub machine: usize,
    pub life: u64,
}

/// One thing that a write does.
enum Step {
    Write(File),
    Remove(String),
}

impl SimDisk {
    fn error(path: &str, words: &str) -> DiskError {
        DiskError { path: path.to_owned(), words: words.to_owned() }
    }
}

impl World {
    /// What becomes of one file.
    fn write(&mut self, index: usize, step: &Step) -> Result<(), DiskError> {
        let fails = self.faults.disk > 0 && self.stage.random.chance(self.faults.disk / 4);
        let full = self.machines[index].disk_full_until > Instant::now();
        let machine = &mut self.machines[index];
        match step {
            Step::Write(file) if full || fails => {
                machine.files.remove(&part(file));
                self.saw("a write that fails");
                return Err(SimDisk::error(&file.path, "No space left on device (os error 28)"));
            }
            Step::Write(file) => {
                machine.files.remove(&part(file));
                machine.files.insert(file.path.clone(), file.contents.as_str().into());
                self.note(&format!("machine {index}: writes {} {}", file.path, crate::trace::sum(&file.contents)));
            }
            Step::Remove(path) => {
                machine.files.remove(path);
                self.note(&format!("machine {index}: removes {path}"));
            }
        }
        self.machines[index].window.files_changed = true;
        self.acted();
        self.judge(index);
        Ok(())
    }
}

/// What a file is called until all of it is there.
fn part(file: &File) -> String {
    format!("{}.part", file.path)
}

impl Disk for SimDisk {
    fn write(&self, files: Vec<File>, removed: Vec<String>) -> Work<()> {
        let (world, index, life) = (Shared::clone(&self.world), self.machine, self.life);
        let (teller, told) = oneshot::channel();
        let mut steps: Vec<Step> =
            files.into_iter().map(Step::Write).chain(removed.into_iter().map(Step::Remove)).collect();
        {
            let mut world = lock(&world);
            world.machines[index].window.writing += 1;
            if world.lies(Lie::ReversedFiles) {
                steps.reverse();
            }
            if world.lies(Lie::PhantomFiles) && steps.len() < 40 {
                steps.pop();
            }
        }
        // It goes on by itself, but not beyond the end of the process that asked.
        tokio::spawn(async move {
            let mut result = Ok(());
            for step in &steps {
                let wait = {
                    let mut world = lock(&world);
                    if let Step::Write(file) = step
                        && world.machines[index].life == life
                    {
                        // It has not been given its name.
                        world.machines[index].files.insert(part(file), "half".into());
                    }
                    let slow = world.machines[index].disk_slow_until > Instant::now();
                    if slow { world.random.within(5..200) } else { u64::from(world.random.chance(150)) }
                };
                if wait > 0 {
                    sleep(Duration::from_millis(wait)).await;
                }
                let mut world = lock(&world);
                if world.machines[index].life != life {
                    return;
                }
                result = world.write(index, step);
                if result.is_err() {
                    break;
                }
            }
            let mut world = lock(&world);
            if world.machines[index].life == life {
                world.machines[index].window.writing -= 1;
                world.machines[index].window.files_changed = true;
                if result.is_ok() {
                    world.judge(index);
                }
                let _ = teller.send(result);
            }
        });
        async move { told.await.unwrap_or_else(|_| Err(Self::error("files", "cut off"))) }.boxed()
    }

    fn read(&self, paths: Vec<String>) -> Work<Vec<Option<String>>> {
        let (world, index) = (Shared::clone(&self.world), self.machine);
        async move {
            tokio::task::yield_now().await;
            let world = lock(&world);
            let files = &world.machines[index].files;
            Ok(paths.iter().map(|path| files.get(path).map(|text| text.to_string())).collect())
        }
        .boxed()
    }

    fn list(&self, folder: String) -> Work<Vec<String>> {
        let (world, index) = (Shared::clone(&self.world), self.machine);
        async move {
            tokio::task::yield_now().await;
            let mut world = lock(&world);
            let files = &mut world.machines[index].files;
            let inside = |path: &String| path.strip_prefix(&folder).is_some_and(|rest| rest.starts_with('/'));
            files.retain(|path, _| !(inside(path) && path.ends_with(".part")));
            Ok(files.keys().filter(|path| inside(path)).cloned().collect())
        }
        .boxed()
    }
}
