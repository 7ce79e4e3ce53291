//! Programs of threads and tasks that run at once and share buffers under locks.
//!
//! The order of what conflicts is that of the locks, so there is no race and each buffer holds what its
//! lock says; in which order the calls come to be seen differs from run to run. The checker judges
//! as they come and the oracle judges the log: one order, or they do not agree.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use headwater::sim::Schedule;
use headwater::testing::Step;
use headwater::{Completion, Device, DeviceBuffer, Error, HostBuffer, Stream, ToVec};

use super::done::Done;
use super::watched::{Ran, judged};
use super::world::{Came, Checked, Failed};
use super::{losing, seeds};
use crate::common::{Random, run_to_end, wait};
use crate::kernels::{add_u32, copy_u32, increment};

const THREADS: u64 = 3;
const TASKS: u64 = 3;
/// Lines of each.
const LINES: usize = 40;
const LEN: usize = 8;

/// A buffer, and the element that it is full of.
struct Full<B> {
    buffer: B,
    of: u32,
}

type Shared<B> = Mutex<Full<B>>;

struct World {
    device: Device,
    streams: Vec<Stream>,
    /// Where several are locked, in this order, and before those of the host.
    buffers: Vec<Shared<DeviceBuffer<u32>>>,
    pinned: Vec<Shared<HostBuffer<u32>>>,
}

/// What a line leaves to be awaited when the locks are released.
enum Left {
    Nothing,
    Completion(Completion),
    Bytes(Box<ToVec<u32>>, u32),
}

fn lock<B>(shared: &Shared<B>) -> MutexGuard<'_, Full<B>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(what: &str, elements: &[u32], of: u32) -> Checked {
    match elements.iter().all(|element| *element == of) {
        true => Ok(()),
        false => Err(Failed::Wrong(format!("{what} is {elements:?}, not full of {of}"))),
    }
}

impl World {
    fn new(device: &Device) -> Result<World, Error> {
        let buffers = (0..4).map(|_| Ok(Mutex::new(Full { buffer: device.zeros(LEN)?, of: 0 })));
        let pinned = (0..2).map(|_| {
            let mut buffer = device.alloc_host(LEN)?;
            buffer.try_write()?.fill(0);
            Ok(Mutex::new(Full { buffer, of: 0 }))
        });
        Ok(World {
            streams: (0..3).map(|_| device.stream()).collect(),
            buffers: buffers.collect::<Result<_, Error>>()?,
            pinned: pinned.collect::<Result<_, Error>>()?,
            device: device.clone(),
        })
    }

    /// One line at random, on one of the streams or on that of whoever calls.
    fn line(&self, random: &mut Random) -> Checked<Left> {
        match self.streams.get(random.below(self.streams.len() + 1)) {
            Some(stream) => stream.in_scope(|| self.line_here(random)),
            None => self.line_here(random),
        }
    }

    fn line_here(&self, random: &mut Random) -> Checked<Left> {
        let mut at = random.two_below(self.buffers.len());
        at.sort_unstable();
        let (mut x, mut y) = (lock(&self.buffers[at[0]]), lock(&self.buffers[at[1]]));
        let mut p = lock(&self.pinned[random.below(self.pinned.len())]);
        let completion = match random.below(12) {
            0 => {
                x.of = random.next() as u32;
                let of = x.of;
                x.buffer.fill(of)?
            }
            1 | 2 => {
                x.of = x.of.wrapping_add(1);
                increment(&mut x.buffer)?
            }
            3 => {
                y.of = x.of;
                copy_u32(&x.buffer, &mut y.buffer)?
            }
            4 => {
                x.of = y.of;
                x.buffer.copy_from(&y.buffer)?
            }
            5 => {
                y.of = x.of.wrapping_add(x.of);
                add_u32(&x.buffer, &x.buffer, &mut y.buffer)?
            }
            6 => {
                p.of = x.of;
                x.buffer.copy_to(&mut p.buffer)?
            }
            7 => {
                x.of = p.of;
                x.buffer.copy_from(&p.buffer)?
            }
            8..=10 => {
                *x = Full { buffer: self.device.zeros(LEN)?, of: 0 };
                return Ok(Left::Nothing);
            }
            _ if random.below(3) > 0 => return Ok(Left::Bytes(Box::new(x.buffer.to_vec()), x.of)),
            _ => {
                p.of = random.next() as u32;
                let of = p.of;
                p.buffer.blocking_write()?.fill(of);
                check("what was written", &p.buffer.blocking_read()?, of)?;
                return Ok(Left::Nothing);
            }
        };
        Ok(match random.below(4) {
            0 => Left::Completion(completion),
            1 => {
                let _ = completion.is_finished()?;
                Left::Nothing
            }
            _ => Left::Nothing,
        })
    }

    async fn lines(&self, seed: u64) -> Checked {
        let mut random = Random::new(seed);
        for _ in 0..LINES {
            let left = self.line(&mut random)?;
            match left {
                Left::Nothing => {}
                Left::Completion(completion) => completion.await?,
                Left::Bytes(bytes, of) => check("what was read back", &bytes.await?, of)?,
            }
        }
        Ok(())
    }

    fn read_all(&self) -> Checked {
        for shared in &self.buffers {
            let full = lock(shared);
            check("a buffer", &wait(full.buffer.to_vec())?, full.of)?;
        }
        for shared in &self.pinned {
            let full = lock(shared);
            check("pinned memory", &full.buffer.blocking_read()?, full.of)?;
        }
        Ok(())
    }
}

/// Runs a program to its end on threads and on tasks of several threads, as far as it gets.
fn run(device: &Device, seed: u64) -> Checked {
    let world = Arc::new(World::new(device)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let seeds = move |number| seed.wrapping_mul(1_000).wrapping_add(number);
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let world = world.clone();
            let lines = async move { world.lines(seeds(number)).await };
            runtime.spawn(device.scope(lines))
        })
        .collect();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let world = world.clone();
            thread::spawn(move || wait(Box::pin(world.lines(seeds(TASKS + number)))))
        })
        .collect();
    let of_threads = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
    let mut ended: Vec<Checked> = of_threads.collect();
    ended.extend(tasks.into_iter().map(|task| wait(task).expect("it does not panic")));
    ended.into_iter().collect::<Checked>()?;
    world.read_all()
}

/// Runs it on a device that loses that wait, and has what was seen judged.
fn judged_run(seed: u64, lose: Option<u64>) -> (Device, Ran, bool) {
    let device = losing(Schedule::Eager, lose);
    let ended = run(&device, seed).map(|()| Came::default());
    let ran = Ran::seen(&device, ended);
    let raced = judged(&ran).unwrap_or_else(|why| panic!("seed {seed}, without {lose:?}: {why}"));
    let raced = !raced.is_empty();
    (device, ran, raced)
}

#[test]
fn checker_and_oracle_find_no_race_where_threads_share_buffers_under_locks() {
    let mut done = Done::default();
    for seed in seeds(20) {
        let (device, ran, raced) = judged_run(seed, None);
        assert!(!raced, "seed {seed}: {:#?}", ran.races);
        ran.ended.as_ref().unwrap_or_else(|failed| panic!("seed {seed}: {failed}"));
        let mut threads: Vec<_> = ran.log.iter().map(|logged| logged.thread).collect();
        threads.dedup();
        assert!(threads.len() > 20, "the threads went one after the other");
        run_to_end(&device);
        done.by_log(&ran.log);
    }
    done.tell_and_expect("eager, threads", false);
}

#[test]
fn checker_and_oracle_agree_on_a_lost_wait_where_threads_share_buffers() {
    let (mut programs, mut raced, mut wrong) = (0, 0, 0);
    for seed in seeds(20) {
        let (_, ran, races) = judged_run(seed, Some(seed % 40));
        let is_lost = |step: &Step| matches!(step, Step::Waited { lost: true, .. });
        assert!(ran.log.iter().any(|logged| is_lost(&logged.step)), "seed {seed}: none was lost");
        assert!(races || ran.ended.is_ok(), "seed {seed}: wrong bytes without a race");
        programs += 1;
        raced += u64::from(races);
        wrong += u64::from(ran.ended.is_err());
    }
    println!(
        "eager, threads: {programs} programs, {programs} waits lost: {raced} mattered, {raced} reported, \
         {wrong} with wrong bytes"
    );
    super::at_least(3, programs, "waits that mattered", raced);
}
