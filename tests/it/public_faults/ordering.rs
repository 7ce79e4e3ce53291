//! Too few waits, and too many.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use headwater::sim::{Schedule, SimOptions};
use headwater::testing::{LoggedStep, Step};
use headwater::{Device, DeviceBuffer, DevicePart, Error, Result};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use super::{best_of_rounds, gpu};
use crate::common::{
    any_device, device_buffer, elements, run_to_end, sim, simulated, step_through, stepped, wait,
};
use crate::kernels::{copy_u32, delay, increment};
use crate::programs::log_of_random_programs;

/// Every event that is waited for or asked about was recorded before.
fn each_event_was_recorded(log: &[LoggedStep]) -> Result<usize, String> {
    let mut recorded = HashSet::new();
    let mut waits = 0;
    for LoggedStep { step, refused, .. } in log {
        match step {
            _ if refused.is_some() => {}
            Step::EventCreated { event, .. } | Step::EventDestroyed { event, .. } => {
                recorded.remove(event);
            }
            Step::Recorded { event, .. } => {
                recorded.insert(*event);
            }
            Step::Waited { event, .. } | Step::Queried { event, .. } => {
                if !recorded.contains(event) {
                    return Err(format!("{step:?} is of an event that was not recorded"));
                }
                waits += usize::from(matches!(step, Step::Waited { .. }));
            }
            _ => {}
        }
    }
    Ok(waits)
}

// cudarc PR#555: stale events, left behind when tracking was switched off, hung `Drop`.
#[test]
fn no_wait_is_for_an_event_that_was_not_recorded_over_a_thousand_programs() {
    const PROGRAMS: u64 = 1_000;
    let log = log_of_random_programs(0..PROGRAMS);
    let waits = each_event_was_recorded(&log).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{waits} waits in {} steps", log.len());
    assert!(waits > 5 * PROGRAMS as usize, "{waits} waits");
}

const TASKS: usize = 3;

/// So many orders have their buffers read together.
const AT_A_TIME: usize = 72;

/// The buffer, and how often it was incremented.
struct Counted {
    x: DeviceBuffer<u32>,
    writes: u32,
}

/// A task's access to the buffer, and who hears that it is enqueued.
struct Turn {
    counted: Counted,
    writes: bool,
    enqueued: oneshot::Sender<Counted>,
}

/// A task that makes accesses as it is told. What it reads is held against what there was to read when
/// `None` comes.
async fn accesses(
    device: Device,
    mut turns: mpsc::UnboundedReceiver<Option<Turn>>,
) -> Result<(), Error> {
    let mut read = Vec::new();
    while let Some(turn) = turns.recv().await {
        let Some(Turn { mut counted, writes, enqueued }) = turn else {
            for (copy, was) in read.drain(..) {
                let copy: DeviceBuffer<u32> = copy;
                assert_eq!(copy.to_vec().await?, [was; 16]);
            }
            continue;
        };
        if writes {
            increment(&mut counted.x)?;
            counted.writes += 1;
        } else {
            let mut copy = device.alloc::<u32>(16)?;
            copy_u32(&counted.x, &mut copy)?;
            read.push((copy, counted.writes));
        }
        let _ = enqueued.send(counted);
    }
    Ok(())
}

/// Every order of so many accesses, each by any of the tasks.
fn three_tasks_in_every_order(device: &Device, length: u32) -> Result<()> {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (senders, tasks): (Vec<_>, Vec<_>) = (0..TASKS)
            .map(|_| {
                let (sender, turns) = mpsc::unbounded_channel();
                (sender, headwater::spawn(accesses(device.clone(), turns)))
            })
            .unzip();
        let kinds = TASKS * 2;
        let mut all = Vec::new();
        for order in 0..kinds.pow(length) {
            let mut counted = Counted { x: device.zeros::<u32>(16)?, writes: 0 };
            for access in 0..length {
                let kind = order / kinds.pow(access) % kinds;
                let (enqueued, told) = oneshot::channel();
                let turn = Turn { counted, writes: kind.is_multiple_of(2), enqueued };
                assert!(senders[kind / 2].send(Some(turn)).is_ok(), "it goes on");
                counted = told.await.expect("it was enqueued");
            }
            all.push(counted);
            if all.len() < AT_A_TIME {
                continue;
            }
            for sender in &senders {
                assert!(sender.send(None).is_ok(), "it goes on");
            }
            for Counted { x, writes } in all.drain(..) {
                assert_eq!(x.to_vec().await?, [writes; 16]);
            }
        }
        assert!(all.is_empty());
        drop(senders);
        for task in tasks {
            task.await.expect("no panic")?;
        }
        Ok(())
    })
}

// cubecl (read in its source): write after read, and every wait after the first, were missing. Races
// panic on these devices.
#[test]
fn three_tasks_read_and_write_a_buffer_in_every_order_without_a_race() -> Result<()> {
    three_tasks_in_every_order(&any_device(), 4)?;
    let schedules = [Schedule::Lazy, Schedule::random(1), Schedule::random(2)];
    let devices = schedules.map(|schedule| simulated(SimOptions::new().schedule(schedule)));
    for device in &devices {
        three_tasks_in_every_order(device, 3)?;
        run_to_end(device);
    }
    Ok(())
}

const TENTH_OF_A_SECOND: u64 = 100_000_000;
/// What two kernels of 100 ms take that run beside each other.
const BESIDE: Duration = Duration::from_millis(130);

#[headwater::kernels(ptx = include_str!("../../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: the one thread of `delay` touches the n elements of its slice, and `x` not at all.
unsafe extern "C" {
    /// A reader of `x` that takes so long.
    #[launch(grid = 1, block = 1, nanoseconds = nanoseconds, entry = "delay")]
    #[args(witness, witness.len() as u32, nanoseconds)]
    #[twin(reads_on_host)]
    safe fn reads_for(x: &[u32], witness: &mut [u32], nanoseconds: u64);
}

fn reads_on_host(_x: &[u32], witness: &mut [u32], _nanoseconds: u64) {
    witness.iter_mut().for_each(|witness| *witness += 1);
}

/// How long what the two tasks enqueue takes, on the device's own clock where it has one.
fn two_tasks_take(device: &Device, tasks: [BoxFuture<'static, Result<()>>; 2]) -> Result<Duration> {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let done = device.simulator().map_or(0, |sim| sim.timeline().len());
    let start = Instant::now();
    runtime.block_on(async {
        let [a, b] = tasks.map(headwater::spawn);
        a.await.expect("no panic")?;
        b.await.expect("no panic")
    })?;
    let Some(sim) = device.simulator() else {
        wait(device.synchronize())?;
        return Ok(start.elapsed());
    };
    sim.run_all();
    let spans = sim.timeline().split_off(done);
    let start = spans.iter().map(|span| span.start).min().expect("it ran");
    let end = spans.iter().map(|span| span.end).max().expect("it ran");
    Ok(Duration::from_nanos(end - start))
}

// CUDA.jl#2236, #2617: the order of accesses was kept for whole arrays, readers among them.
fn two_readers_of_one_buffer(device: &Device) -> Result<()> {
    let x = std::sync::Arc::new(device_buffer(device, &[1u32; 64]));
    let took = best_of_rounds(|| {
        let witnesses = [device_buffer(device, &[0u32; 1]), device_buffer(device, &[0u32; 1])];
        let reader = |mut witness: DeviceBuffer<u32>| {
            let x = x.clone();
            async move { reads_for(&*x, &mut witness, TENTH_OF_A_SECOND).map(drop) }.boxed()
        };
        two_tasks_take(device, witnesses.map(reader))
    })?;
    assert!(took >= Duration::from_nanos(TENTH_OF_A_SECOND) && took < BESIDE, "{took:?}");
    step_through(device);
    assert_eq!(elements(&x), [1; 64]);
    Ok(())
}

#[test]
fn two_readers_of_one_buffer_take_as_long_as_one() -> Result<()> {
    let device = stepped();
    two_readers_of_one_buffer(&device)?;
    assert_eq!(sim(&device).violations(), []);
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn two_readers_of_one_buffer_take_as_long_as_one_on_a_gpu() -> Result<()> {
    two_readers_of_one_buffer(&gpu())
}

fn two_writers_of_the_halves_of_one_buffer(device: &Device) -> Result<()> {
    let took = best_of_rounds(|| {
        let x = device_buffer(device, &[0u32; 64]);
        let halves = x.into_parts(2).map_err(|refused| refused.error)?;
        let halves: [DevicePart<u32>; 2] = halves.try_into().expect("two of them");
        let writer = |mut half: DevicePart<u32>| {
            async move { delay(&mut half, TENTH_OF_A_SECOND).map(drop) }.boxed()
        };
        two_tasks_take(device, halves.map(writer))
    })?;
    assert!(took >= Duration::from_nanos(TENTH_OF_A_SECOND) && took < BESIDE, "{took:?}");
    step_through(device);
    Ok(())
}

#[test]
fn two_writers_of_the_halves_of_one_buffer_take_as_long_as_one() -> Result<()> {
    let device = stepped();
    two_writers_of_the_halves_of_one_buffer(&device)?;
    assert_eq!(sim(&device).violations(), []);
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn two_writers_of_the_halves_of_one_buffer_take_as_long_as_one_on_a_gpu() -> Result<()> {
    two_writers_of_the_halves_of_one_buffer(&gpu())
}
