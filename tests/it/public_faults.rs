//! What users of neighbouring libraries ran into: a test or two for each report, which the comment
//! names; the test's name says what must hold here.

mod cancelled;
mod ordering;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use headwater::sim::{DriverCall, Fault, Injected, Schedule, SimOptions};
use headwater::testing::{LoggedStep, Step, Touched, assert_all_freed};
use headwater::{Completion, Device, DeviceBuffer, DriverError, Error, Result, Stream, block_on};

use crate::common::{
    device_buffer, elements, last_op, on_gpu, own_device, pinned_buffer, poll_once, run_to_end,
    sim, simulated_with, step_through, stepped, until, wait,
};
use crate::kernels::{delay, increment};
use crate::lost::{fail, failure_of};

const LEN: usize = 1 << 14;
const PATTERN: u32 = 0xABCD_1234;
const FIFTY_MS: u64 = 50_000_000;
const HALF_A_SECOND: u64 = 500_000_000;
/// Where a time is measured that other processes can lengthen, the best of so many rounds counts:
/// what waits for the device takes longer in every one.
const ROUNDS: usize = 5;

/// A GPU, on which `delay` takes as long as it says.
fn gpu() -> Device {
    assert!(on_gpu(), "set HEADWATER_REQUIRE_GPU=1");
    own_device()
}

/// The shortest of what the rounds took.
fn best_of_rounds(mut round: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    (0..ROUNDS).map(|_| round()).try_fold(Duration::MAX, |best, took| Ok(best.min(took?)))
}

/// Has a kernel write a buffer for 50 ms, polls for its end, has `let_go` do away with both 1 ms
/// later, and has as much memory filled on another stream before the kernel is done. Says how long
/// letting go took.
fn memory_let_go_under_a_writer(
    device: &Device,
    let_go: impl FnOnce(Completion, DeviceBuffer<u32>) -> Duration,
) -> Result<Duration> {
    let mut x = device.zeros::<u32>(LEN)?;
    step_through(device);
    wait(device.current_stream().synchronize())?;
    let writers = device.stream();
    let mut done = writers.in_scope(|| delay(&mut x, FIFTY_MS))?;
    assert!(poll_once(&mut done).is_pending());
    if !device.info().simulated {
        std::thread::sleep(Duration::from_millis(1)); // so says the report
    }
    let took = let_go(done, x);

    let mut pattern = device.stream().in_scope(|| device.alloc::<u32>(LEN))?;
    let filled = device.stream().in_scope(|| pattern.fill(PATTERN))?;
    if let Some(sim) = device.simulator() {
        sim.run(last_op(sim).id).expect("nothing holds it up");
    }
    wait(filled)?;
    step_through(device);
    wait(writers.synchronize())?;
    assert_eq!(elements(&pattern), [PATTERN; LEN], "written by one who has it no longer");
    Ok(took)
}

// cutile-rs#242: dropping a polled future freed buffers that a kernel still used.
fn a_task_aborted_under_its_writer(device: &Device) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let took = best_of_rounds(|| {
        memory_let_go_under_a_writer(device, |done, x| {
            let task = runtime.spawn(async move {
                let ended = done.await;
                drop(x);
                ended
            });
            let start = Instant::now();
            task.abort();
            let took = start.elapsed();
            assert!(runtime.block_on(task).expect_err("it was aborted").is_cancelled());
            took
        })
    })?;
    assert!(took < Duration::from_millis(1), "{took:?}");
    Ok(())
}

#[test]
fn a_task_aborted_under_its_writer_returns_at_once_and_its_memory_stays_its_own() -> Result<()> {
    let device = stepped();
    a_task_aborted_under_its_writer(&device)?;
    run_to_end(&device);
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn a_task_aborted_under_its_writer_returns_at_once_and_its_memory_stays_its_own_on_a_gpu()
-> Result<()> {
    a_task_aborted_under_its_writer(&gpu())
}

// cutile-rs#272: a future forgotten, and the inputs dropped: use after free.
fn a_future_forgotten_under_its_writer(device: &Device) -> Result<()> {
    memory_let_go_under_a_writer(device, |done, x| {
        std::mem::forget(done);
        drop(x);
        Duration::ZERO
    })?;
    Ok(())
}

#[test]
fn a_future_forgotten_frees_nothing_early_and_all_of_it_in_the_end() -> Result<()> {
    let device = stepped();
    a_future_forgotten_under_its_writer(&device)?;
    run_to_end(&device);
    assert_all_freed(&device);
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn a_future_forgotten_frees_nothing_early_and_all_of_it_in_the_end_on_a_gpu() -> Result<()> {
    let device = gpu();
    a_future_forgotten_under_its_writer(&device)?;
    wait(device.synchronize())?;
    let headwater::MemoryStats { in_use, in_flight, .. } = device.memory();
    assert_eq!((in_use, in_flight), (0, 0));
    Ok(())
}

// cuda-oxide#99: the mend for the one before made the drop block on the stream.
fn drop_with_half_a_second_in_flight(device: &Device) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let gap = Arc::new(AtomicU64::new(0));
    let widest = gap.clone();
    let ticker = runtime.spawn(async move {
        let mut last = Instant::now();
        loop {
            tokio::task::yield_now().await;
            let now = Instant::now();
            widest.fetch_max((now - last).as_micros() as u64, SeqCst);
            last = now;
        }
    });
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (mut x, mut y) = (device.zeros::<u32>(LEN)?, device.zeros::<u32>(LEN)?);
        let pinned = pinned_buffer(device, &[9u32; LEN]);
        step_through(device);
        wait(device.current_stream().synchronize())?;
        let mut done = device.stream().in_scope(|| delay(&mut x, HALF_A_SECOND))?;
        let copied = device.stream().in_scope(|| x.copy_from(&pinned))?; // waits for the first
        device.stream().in_scope(|| y.copy_from(&x))?; // and this one for that
        let witness = device.current_stream().synchronize();
        rounds.push(runtime.block_on(async {
            assert!(poll_once(&mut done).is_pending());
            tokio::task::yield_now().await;
            gap.store(0, SeqCst);
            tokio::task::yield_now().await;
            let start = Instant::now();
            drop((done, x, y, pinned));
            let took = start.elapsed();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            (took, Duration::from_micros(gap.load(SeqCst)))
        }));
        assert!(!copied.is_finished()?, "half a second cannot have passed");
        drop(witness);
        step_through(device);
        wait(copied)?;
    }
    ticker.abort();
    println!("(drop, widest gap of the ticker): {rounds:?}");
    let took = rounds.iter().map(|round| round.0).min().expect("there are rounds");
    let gap = rounds.iter().map(|round| round.1).min().expect("there are rounds");
    // Unoptimised, it is that much longer on the way even where it waits for nothing.
    let most = if cfg!(debug_assertions) { 1_000 } else { 100 };
    assert!(took < Duration::from_micros(most), "{rounds:?}");
    assert!(gap < Duration::from_millis(1), "{rounds:?}");
    Ok(())
}

#[test]
fn dropping_with_half_a_second_in_flight_holds_up_nobody() -> Result<()> {
    drop_with_half_a_second_in_flight(&stepped())
}

#[test]
#[ignore = "needs a GPU"]
fn dropping_with_half_a_second_in_flight_holds_up_nobody_on_a_gpu() -> Result<()> {
    drop_with_half_a_second_in_flight(&gpu())
}

// cutile-rs#257: an error parked earlier was returned before the wait, and host memory freed under
// its copy.
#[test]
fn an_earlier_error_ends_no_wait_and_frees_no_host_memory_under_its_copy() -> Result<()> {
    const INVALID_VALUE: u32 = DriverError::INVALID_VALUE;
    let device = stepped();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &[1u32; LEN]);
    let mut target = device.alloc_host::<u32>(LEN)?;
    let copied = x.copy_to(&mut target)?;
    let copy = last_op(sim).id;
    // One error for a caller, one that is only to be logged.
    sim.inject(Fault::of_call(DriverCall::Launch, INVALID_VALUE));
    assert!(matches!(increment(&mut x), Err(Error::Refused { .. })));
    sim.inject(Fault::of_call(DriverCall::EventQuery, INVALID_VALUE));
    let mut downloading = x.to_vec();
    {
        let mut reading = target.read();
        assert!(poll_once(&mut reading).is_pending(), "it did not wait");
    }
    assert!(poll_once(&mut downloading).is_pending(), "it did not wait");
    until("the query fails", || sim.injected().len() == 2);
    assert!(!copied.is_finished()?);
    drop((target, downloading));
    let next = pinned_buffer(&device, &[2u32; LEN]);
    let after = pinned_buffer(&device, &[3u32; LEN]);
    assert!(sim.run(copy).is_some(), "the copy was cancelled");
    wait(copied)?;
    run_to_end(&device);
    assert_eq!((&*next.try_read()?, &*after.try_read()?), (&[2; LEN][..], &[3; LEN][..]));
    Ok(())
}

// CUDA.jl#1366, mlx#2757: after a fault a callback never fired, and the await hung. (Here for a
// simulated device; `faults` has the GPU's.)
#[test]
fn after_a_fault_every_pending_await_ends_within_10_ms() -> Result<()> {
    const TASKS: usize = 32;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let took = best_of_rounds(|| {
        let device = stepped();
        let mut x = device_buffer(&device, &[0u32; 64]);
        let mut y = device_buffer(&device, &[0u32; 64]);
        let mut pinned = device.alloc_host::<u32>(64)?;
        let waiting = Arc::new(AtomicU64::new(0));
        let mut waits = Vec::new();
        let mut tasks = Vec::new();
        waits.push(device.stream().in_scope(|| fail(&mut x))?);
        waits.push(x.copy_to(&mut pinned)?);
        for _ in 0..TASKS {
            waits.push(device.stream().in_scope(|| increment(&mut y))?);
        }
        for mut wait in waits {
            let waiting = waiting.clone();
            tasks.push(runtime.spawn(async move {
                assert!(poll_once(&mut wait).is_pending());
                waiting.fetch_add(1, SeqCst);
                (wait.await, Instant::now())
            }));
        }
        let blocked = {
            let waiting = waiting.clone();
            std::thread::spawn(move || {
                let mut read = pinned.read();
                assert!(poll_once(&mut read).is_pending());
                waiting.fetch_add(1, SeqCst);
                (block_on(read).map(drop), Instant::now())
            })
        };
        until("all wait", || waiting.load(SeqCst) == TASKS as u64 + 3);
        let start = Instant::now();
        sim(&device).step();
        let mut ends = vec![blocked.join().expect("no panic")];
        for task in tasks {
            ends.push(wait(task).expect("no panic"));
        }
        let mut last = Duration::ZERO;
        for (ended, at) in ends {
            failure_of(ended);
            last = last.max(at - start);
        }
        Ok(last)
    })?;
    assert!(took < Duration::from_millis(10), "{took:?}");
    Ok(())
}

// cuda-oxide#92: an early error left device memory behind, and an allocation landed in the context
// that the thread had current.

/// A little of everything on one device, from a place where another one's stream is current. The
/// first error ends it.
fn a_little_of_everything(device: &Device) -> Result<()> {
    let (a, b) = (device.stream(), device.stream());
    let settled = |stream: &Stream| {
        let all = stream.synchronize();
        step_through(device);
        wait(all)
    };
    let mut x = device.zeros::<u32>(LEN)?;
    let mut y = a.in_scope(|| device.alloc::<u32>(LEN))?;
    let pinned = device.alloc_host::<u32>(LEN)?;
    increment(&mut x)?;
    a.in_scope(|| y.copy_from(&x))?;
    let reached = a.record()?;
    b.wait(&reached)?;
    b.in_scope(|| increment(&mut y))?;
    let mut out = pinned;
    let copied = y.copy_to(&mut out)?;
    step_through(device);
    wait(copied)?;
    assert_eq!(*out.try_read()?, [2; LEN]);
    let upload = device.upload(vec![7u32; LEN]);
    step_through(device);
    let z = wait(upload)?;
    let vec = b.in_scope(|| z.to_vec());
    step_through(device);
    assert_eq!(wait(vec)?, [7; LEN]);
    drop((x, z));
    settled(&a)?;
    settled(&b)
}

/// Every step is of this device, on a stream of its, in memory of its.
fn assert_all_its_own(device: &Device, log: &[LoggedStep]) {
    let (mut streams, mut memory) = (HashSet::new(), BTreeMap::new());
    for logged in log {
        assert_eq!(logged.device, device.number(), "{logged:?}");
        match &logged.step {
            Step::StreamCreated { stream, .. } => drop(streams.insert(*stream)),
            Step::Allocated { ptr, bytes, stream, .. } if logged.refused.is_none() => {
                assert!(streams.contains(stream), "{logged:?}");
                memory.insert(ptr.get(), *bytes as u64);
            }
            Step::HostAllocated { ptr, bytes, .. } | Step::HostRegistered { ptr, bytes, .. }
                if logged.refused.is_none() =>
            {
                memory.insert(*ptr, *bytes as u64);
            }
            Step::Work { stream, touched, .. } => {
                assert!(streams.contains(stream), "{logged:?}");
                for range in touched.iter().map(Touched::range) {
                    let block = memory.range(..=range.start).next_back();
                    let inside = block.is_some_and(|(start, bytes)| range.end <= start + bytes);
                    assert!(inside, "{logged:?}");
                }
            }
            Step::Freed { ptr, stream, .. } => {
                assert!(streams.contains(stream) && memory.contains_key(&ptr.get()), "{logged:?}");
            }
            _ => {}
        }
    }
}

/// With one call refused, from where `other` is current; false where the fault struck no call.
fn with_a_call_refused(other: &Device, schedule: Schedule, fault: Fault) -> bool {
    let told = Arc::new(AtomicU64::new(0));
    let hook = told.clone();
    let device = simulated_with(SimOptions::new().schedule(schedule), |builder| {
        builder.keep_memory(false).log_calls(true).on_error(move |_| {
            hook.fetch_add(1, SeqCst);
        })
    });
    let simulator = sim(&device).clone();
    simulator.inject(fault);
    let others = other.call_log().unwrap().len();
    let ended = other.stream().in_scope(|| a_little_of_everything(&device));
    assert_eq!(
        other.call_log().unwrap().len(),
        others,
        "a call went to the device that is current"
    );

    let refused = match simulator.injected().first() {
        Some(Injected::Call { call, .. }) => Some(*call),
        None => None,
        other => panic!("{other:?}"),
    };
    simulator.clear_faults();
    run_to_end(&device);
    let live = simulator.live_device_bytes();
    match &ended {
        Err(error) => assert_eq!(live, 0, "{refused:?} was refused, and memory is left: {error}"),
        // A free that cannot be made keeps the memory, since nothing else is safe, and says so.
        Ok(()) => assert!(live == 0 || told.load(SeqCst) == 1, "{refused:?}: {live} bytes"),
    }
    assert_all_its_own(&device, &device.call_log().unwrap());
    drop(device);
    let events = usize::from(refused == Some(DriverCall::EventDestroy));
    until("all of the device is given back", || {
        let objects = simulator.live_streams() + simulator.live_modules();
        objects == 0 && simulator.live_events() == events && simulator.live_pinned_bytes() == 0
    });
    refused.is_some()
}

#[test]
fn whichever_call_is_refused_nothing_is_left_and_none_goes_to_the_device_that_is_current() {
    let other = simulated_with(SimOptions::new(), |builder| builder.log_calls(true));
    other.stream().set_current();
    let mut struck = 0;
    for schedule in [Schedule::Stepped, Schedule::Eager] {
        for call in DriverCall::ALL {
            for code in [DriverError::NOT_SUPPORTED, DriverError::OUT_OF_MEMORY] {
                let fault = |after| Fault::of_call(*call, code).after(after);
                let refused = |after: &u64| with_a_call_refused(&other, schedule, fault(*after));
                struck += (0..).take_while(refused).count();
            }
        }
    }
    assert!(struck > 50, "{struck} calls were refused");
}
