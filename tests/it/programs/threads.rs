//! Programs of threads and tasks that run at once and share memory under locks.
//!
//! The order of what conflicts is that of the locks, so there is no race and each buffer holds what its
//! lock says; in which order the calls come to be seen differs from run to run. The checker judges
//! as they come and the oracle judges the log: one order, or they do not agree. Parts of one buffer have
//! locks of their own, and chunks and columns go to threads under the lock of their buffer.

mod lines;

use std::sync::Arc;
use std::thread;

use headwater::Device;
use headwater::sim::Schedule;
use headwater::testing::Step;

use super::done::Done;
use super::watched::{Ran, judged};
use super::world::{Came, Checked};
use super::{losing, seeds};
use crate::common::{run_to_end, wait};
use lines::World;

const THREADS: u64 = 3;
const TASKS: u64 = 3;

/// Runs a program to its end on threads and on tasks of several threads, as far as it gets.
fn run(device: &Device, seed: u64) -> Checked<Came> {
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
    world.read_all()?;
    Ok(Came { kinds: world.kinds(), ..Came::default() })
}

/// Runs it on a device that loses that wait, and has what was seen judged.
fn judged_run(seed: u64, lose: Option<u64>) -> (Device, Ran, bool) {
    let device = losing(Schedule::Eager, lose);
    let ended = run(&device, seed);
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
        let came = ran.ended.unwrap_or_else(|failed| panic!("seed {seed}: {failed}"));
        done.add(came.kinds);
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
