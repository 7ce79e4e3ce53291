//! Dropping and forgetting stop the waiting and nothing else: the work runs, memory is neither
//! freed under it nor kept.

use std::time::{Duration, Instant};

use headwater::sim::{Schedule, SimOptions};
use headwater::testing::assert_all_freed;
use headwater::{Completion, Device, Result};

use crate::common::{
    any_device, device_buffer, elements, last_op, on_gpu, own_device, pinned_buffer, poll_once,
    run_to_end, sim, simulated_with, stepped, until, wait,
};
use crate::kernels::{copy_u32, delay, increment};

const HALF_A_SECOND: u64 = 500_000_000;
const LEN: usize = 1 << 12;

/// Enqueues half a second of work on memory of its own, polls, and lets go of everything with
/// `let_go`; then fills as much memory on another stream before that work runs.
fn letting_go_of_work_in_flight(let_go: impl FnOnce(Completion)) -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device.zeros::<u32>(LEN)?; // made on another stream than it is used on
    run_to_end(&device);
    let mut done = device.stream().in_scope(|| delay(&mut x, HALF_A_SECOND))?;
    let slow = last_op(sim).id;
    assert!(poll_once(&mut done).is_pending());

    let start = Instant::now();
    let_go(done);
    drop(x);
    assert!(start.elapsed() < Duration::from_millis(10), "letting go waited");

    let mut pattern = device.stream().in_scope(|| device.alloc::<u32>(LEN))?;
    device.stream().in_scope(|| pattern.fill(0xABCD))?;
    sim.run(last_op(sim).id);
    assert!(sim.run(slow).is_some(), "the work was cancelled");
    assert_eq!(elements(&pattern), [0xABCD; LEN]);
    drop(pattern);
    run_to_end(&device);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn a_future_dropped_half_way_neither_waits_nor_cancels_nor_frees_early() -> Result<()> {
    letting_go_of_work_in_flight(drop)
}

#[test]
fn a_forgotten_future_neither_leaks_device_memory_nor_frees_it_early() -> Result<()> {
    letting_go_of_work_in_flight(std::mem::forget)
}

#[test]
fn memory_used_on_several_streams_is_freed_after_the_last_of_them() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let x = device_buffer(&device, &[7u32; LEN]);
    let mut copies = Vec::new();
    let mut reads = Vec::new();
    for _ in 0..3 {
        let mut y = device.alloc::<u32>(LEN)?;
        device.stream().in_scope(|| copy_u32(&x, &mut y))?;
        copies.push(y);
        reads.push(last_op(sim).id);
    }
    drop(x);
    let mut intruders = Vec::new();
    for read in reads.into_iter().rev() {
        // Where it were freed by now, this would get its memory.
        let mut intruder = device.stream().in_scope(|| device.alloc::<u32>(LEN))?;
        device.stream().in_scope(|| intruder.fill(0))?;
        sim.run(last_op(sim).id);
        assert!(sim.run(read).is_some());
        intruders.push(intruder);
    }
    for y in &copies {
        assert_eq!(elements(y), [7; LEN]);
    }
    drop(copies);
    run_to_end(&device);
    assert_eq!(device.memory().in_use, 3 * LEN as u64 * 4, "the intruders' own");
    drop(intruders);
    Ok(())
}

#[test]
fn memory_freed_on_one_stream_holds_up_no_other() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &[0u32; LEN]);
    let mut y = device_buffer(&device, &[0u32; LEN]);
    let mut z = device.alloc::<u32>(LEN)?;
    let (a, b) = (device.stream(), device.stream());
    a.in_scope(|| delay(&mut x, HALF_A_SECOND))?;
    b.in_scope(|| copy_u32(&x, &mut z))?;
    drop(x); // two streams use it
    device.current_stream().in_scope(|| increment(&mut y))?;
    assert!(last_op(sim).runnable, "the stream it was made on waits for its users");
    device.stream().in_scope(|| increment(&mut y))?;
    run_to_end(&device);
    Ok(())
}

#[test]
fn pinned_memory_dropped_during_a_copy_up_is_not_written_by_its_next_owner() -> Result<()> {
    let device = stepped();
    let mut x = device.alloc::<u32>(LEN)?;
    let source = pinned_buffer(&device, &[1u32; LEN]);
    x.copy_from(&source)?;
    drop(source);
    let next = pinned_buffer(&device, &[2u32; LEN]);
    run_to_end(&device);
    assert_eq!(elements(&x), [1; LEN], "torn");
    assert_eq!(*next.try_read()?, [2; LEN]);
    Ok(())
}

#[test]
fn pinned_memory_dropped_during_a_copy_down_is_not_given_to_its_next_owner() -> Result<()> {
    let device = stepped();
    let x = device_buffer(&device, &[1u32; LEN]);
    let mut target = device.alloc_host::<u32>(LEN)?;
    x.copy_to(&mut target)?;
    drop(target);
    let next = pinned_buffer(&device, &[2u32; LEN]);
    run_to_end(&device);
    assert_eq!(*next.try_read()?, [2; LEN], "the copy went to somebody else's memory");
    Ok(())
}

#[test]
fn pinned_memory_is_used_again_once_its_copy_is_done() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device.alloc::<u32>(LEN)?;
    let mut most = 0;
    for round in 0..20 {
        let source = pinned_buffer(&device, &[round; LEN]);
        x.copy_from(&source)?;
        drop(source);
        run_to_end(&device);
        if round == 2 {
            most = sim.live_pinned_bytes();
        }
    }
    assert_eq!(sim.live_pinned_bytes(), most);
    Ok(())
}

#[test]
fn a_dropped_upload_or_download_runs_to_its_end() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let x = device_buffer(&device, &[1u32; LEN]);
    drop(x.to_vec());
    drop(device.upload(vec![2u32; LEN]));
    let next = pinned_buffer(&device, &[3u32; LEN]);
    drop(x);
    assert_eq!(sim.pending().len(), 2);
    run_to_end(&device);
    assert_eq!(*next.try_read()?, [3; LEN]);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn a_device_goes_when_its_last_user_does_and_not_before() -> Result<()> {
    let device = stepped();
    let sim = sim(&device).clone();
    let mut x = device.zeros::<u32>(LEN)?;
    let pinned = pinned_buffer(&device, &[1u32; LEN]);
    drop(device);
    let done = x.copy_from(&pinned)?;
    drop((x, pinned));
    assert_eq!(sim.pending().len(), 2);
    sim.run_all();
    wait(done)?;
    until("pinned memory given back", || sim.live_pinned_bytes() == 0);
    sim.settle();
    assert_eq!((sim.live_device_bytes(), sim.violations()), (0, vec![]));
    Ok(())
}

/// A stream that is destroyed is not looked at again: what is freed on it has to have run before.
#[test]
fn a_device_that_goes_takes_its_memory_with_it_whenever_frees_run() -> Result<()> {
    let mut schedules = vec![Schedule::Lazy];
    schedules.extend((0..64).map(Schedule::random));
    for schedule in schedules {
        // With more streams there are more calls to destroy them, in which the frees run.
        let options = SimOptions::new().schedule(schedule);
        let device = simulated_with(options, |builder| builder.single_stream(true));
        let mut on_its_own = device_buffer(&device, &[1u32; LEN]);
        let mut shared = device.zeros::<u32>(LEN)?;
        // No kernels: to unload a module waits for everything.
        device.stream().in_scope(|| shared.copy_from(&on_its_own))?;
        device.stream().in_scope(|| on_its_own.fill(2))?;
        let sim = sim(&device).clone();
        drop((on_its_own, shared, device));
        until("the streams are destroyed", || sim.live_streams() == 0);
        assert_eq!((sim.live_device_bytes(), sim.violations()), (0, vec![]), "{schedule:?}");
    }
    Ok(())
}

#[test]
fn what_is_dropped_is_right_on_any_device() -> Result<()> {
    let device = any_device();
    let mut kept = Vec::new();
    for round in 0..50u32 {
        let mut x = device.zeros::<u32>(LEN)?;
        let mut y = device.alloc::<u32>(LEN)?;
        let mut done = device.stream().in_scope(|| increment(&mut x))?;
        let _ = poll_once(&mut done);
        device.stream().in_scope(|| copy_u32(&x, &mut y))?;
        drop((x, done));
        let mut next = device.alloc::<u32>(LEN)?;
        next.fill(round)?;
        kept.push((y, next));
    }
    for (round, (y, next)) in kept.iter().enumerate() {
        assert_eq!(elements(y), [1; LEN]);
        assert_eq!(elements(next), [round as u32; LEN]);
    }
    Ok(())
}

/// A fresh device whose `delay` takes as long as it says.
fn gpu() -> Device {
    assert!(on_gpu(), "set HEADWATER_REQUIRE_GPU=1");
    own_device()
}

#[test]
#[ignore = "needs a GPU"]
fn dropping_everything_with_half_a_second_in_flight_returns_at_once() -> Result<()> {
    const SETS: usize = 5;
    let device = gpu();
    let slow = device.stream();
    let mut buffers = (0..SETS).map(|_| device.zeros::<u32>(LEN)).collect::<Result<Vec<_>>>()?;
    let mut gate = device.zeros::<u32>(1)?;
    let pinned = [(); SETS].map(|()| pinned_buffer(&device, &[9u32; LEN]));
    wait(device.current_stream().synchronize())?;
    slow.in_scope(|| delay(&mut gate, HALF_A_SECOND))?;
    let mut sets = Vec::new();
    for (mut x, pinned) in buffers.drain(..).zip(pinned) {
        let mut done = slow.in_scope(|| increment(&mut x))?;
        let copied = x.copy_from(&pinned)?; // on another stream: it waits for the first
        assert!(poll_once(&mut done).is_pending());
        sets.push((done, x, pinned, copied));
    }

    let mut copied = None;
    let mut quickest = Duration::MAX;
    for (done, x, pinned, copy) in sets {
        let start = Instant::now();
        drop((done, x, pinned));
        // The others may have had to wait for a processor.
        quickest = quickest.min(start.elapsed());
        copied = Some(copy);
    }
    let copied = copied.expect("there are sets");
    assert!(!copied.is_finished()?, "half a second cannot have passed");
    assert!(quickest < Duration::from_millis(1), "{quickest:?}");

    let mut pattern = device.stream().in_scope(|| device.alloc::<u32>(LEN))?;
    device.stream().in_scope(|| pattern.fill(0xABCD))?;
    let next = pinned_buffer(&device, &[1u32; LEN]);
    wait(copied)?;
    assert_eq!(elements(&pattern), [0xABCD; LEN]);
    assert_eq!(*next.try_read()?, [1; LEN]);
    Ok(())
}
