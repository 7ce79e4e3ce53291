//! `headwater::testing`: runs that are the same each time, and failures that are found, named and made
//! small.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use headwater::sim::{DriverCall, Fault, SimOpKind, SimOptions, SimSpan};
use headwater::testing::{self, Cause, Explore, Gate, explore};
use headwater::{Device, DriverCalls, DriverError, Result, block_on, spawn};
use tokio::sync::oneshot;

use crate::common::{WATCHDOG, any_device, elements, poll_once, sim, wait};
use crate::kernels::{copy_u32, increment};

/// What it panics with.
pub(crate) fn report(program: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(program)).expect_err("it fails");
    let report = panic.downcast_ref::<String>().cloned();
    report.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).expect("a report")
}

/// Six tasks that share a buffer and wait in all the ways there are, and one that is cancelled.
pub(crate) async fn busy_program(device: Device) -> Result<Vec<u32>> {
    let shared = Arc::new(device.upload([3u32; 64]).await?);
    let tasks = (0..6u32).map(|i| {
        let (device, shared) = (device.clone(), shared.clone());
        spawn(async move {
            let mut own = device.upload(vec![i; 64]).await?;
            for round in 0..=i {
                let mut copy = device.alloc(64)?;
                copy_u32(&*shared, &mut copy)?;
                increment(&mut copy)?;
                match round % 2 {
                    0 => increment(&mut own)?.await?,
                    _ => drop(copy.to_vec()),
                }
                let mut out = device.alloc_host(64)?;
                copy.copy_to(&mut out)?;
                match i {
                    3 => assert_eq!(*out.blocking_read()?, [4; 64]),
                    _ => assert_eq!(*out.read().await?, [4; 64]),
                }
                tokio::task::yield_now().await;
            }
            device.scope(async { own.to_vec().await }).await
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let cancelled = spawn({
        let mut x = device.zeros::<u32>(64)?;
        async move {
            loop {
                increment(&mut x)?.await?;
            }
            #[expect(unreachable_code, reason = "says what the task yields")]
            Result::<()>::Ok(())
        }
    });
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("no panic")?);
    }
    cancelled.abort();
    assert!(cancelled.await.expect_err("it never ends").is_cancelled());
    let (a, b) = block_on(async { futures::join!(shared.to_vec(), shared.to_vec()) });
    assert_eq!(a?, b?);
    Ok(all)
}

#[test]
fn the_same_seed_makes_the_same_calls_times_and_bytes() {
    type Ran = (Vec<u32>, Vec<SimSpan>, DriverCalls, [u64; 2]);
    let once = |seed| -> Ran {
        let ran = Rc::new(RefCell::new(None));
        Explore::new().seeds([seed]).run({
            let ran = ran.clone();
            async move |device: Device| -> Result<()> {
                let bytes = busy_program(device.clone()).await?;
                let (sim, calls) = (sim(&device), device.driver_calls().expect("counted"));
                let numbers = [sim.calls(), sim.host_now()];
                ran.replace(Some((bytes, sim.timeline(), calls, numbers)));
                Ok(())
            }
        });
        ran.take().expect("it ran")
    };
    let runs: Vec<Ran> = (0..20).map(once).collect();
    for (seed, run) in (0..).zip(&runs) {
        assert_eq!(&once(seed), run, "seed {seed}");
    }
    let bytes = &runs[0].0;
    assert!(runs.iter().all(|run| run.0 == *bytes), "the program's result is no matter of order");
    assert!(runs.iter().any(|run| run.1 != runs[0].1), "other seeds make other orders");
}

/// Two tasks that each append their number when their work is done: wrong if the first is taken for
/// the first to finish.
pub(crate) async fn who_is_first(device: Device) -> Result<()> {
    let finished = Arc::new(Mutex::new(Vec::new()));
    let tasks = [0u32, 1].map(|number| {
        let (device, finished) = (device.clone(), finished.clone());
        spawn(async move {
            let mut x = device.zeros::<u32>(64)?;
            increment(&mut x)?.await?;
            finished.lock().expect("no panic").push(number);
            Ok(())
        })
    });
    for task in tasks {
        task.await.expect("no panic")?;
    }
    assert_eq!(*finished.lock().expect("no panic"), [0, 1], "a planted mistake");
    Ok(())
}

#[test]
fn a_mistake_that_needs_an_order_is_found_and_made_small() {
    let failure = Explore::new().find(who_is_first).expect("it is found");
    assert!((1..=2).contains(&failure.deviations()), "{failure}");
    let again = Explore::new().seeds([failure.seed()]).find(who_is_first).expect("it fails again");
    assert_eq!(again.causes(), failure.causes());
    assert_eq!(again.order(), failure.order());
    let Cause::Panicked(heard) = &failure.causes()[0] else { panic!("{failure}") };
    let [heard] = &heard[..] else { panic!("{heard:?}") };
    assert!(heard.contains("a planted mistake") && heard.contains("testing.rs:"), "{heard}");
}

#[test]
fn a_task_that_panics_is_a_failure_though_nobody_joins_it() {
    let failure = Explore::new().seeds(0..1).find(async |device: Device| -> Result<()> {
        let mut x = device.zeros::<u32>(64)?;
        drop(spawn(async { panic!("nobody looks") }));
        increment(&mut x)?.await
    });
    let failure = failure.expect("it fails");
    assert!(
        matches!(&failure.causes()[0], Cause::Panicked(heard) if heard[0].contains("nobody looks"))
    );
}

#[test]
fn blocking_inside_of_a_program_works() {
    explore(0..20, async |device| -> Result<()> {
        let mut x = device.zeros::<u32>(64)?;
        let mut out = device.alloc_host::<u32>(64)?;
        block_on(increment(&mut x)?)?;
        let task = spawn({
            let device = device.clone();
            async move { block_on(device.upload([7u32; 64])) }
        });
        increment(&mut x)?;
        x.copy_to(&mut out)?;
        assert_eq!(*out.blocking_read()?, [2; 64]);
        // Polled with a waker that is not the one of `block_on`.
        let y = task.await.expect("no panic")?;
        let (a, b) = block_on(async { futures::join!(x.to_vec(), y.to_vec()) });
        assert_eq!((a?, b?), (vec![2; 64], vec![7; 64]));
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn no_thread_of_the_reactor_is_started() {
    explore(0..3, async |device| -> Result<()> {
        let number = device.number();
        busy_program(device).await?;
        let tasks = std::fs::read_dir("/proc/self/task").expect("on Linux");
        let names =
            tasks.flatten().flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
        assert!(!names.into_iter().any(|name| name.trim() == format!("headwater-{number}")));
        Ok(())
    });
}

/// The one cause of the failure, which is there within a few seconds: a run that hangs fails.
pub(crate) fn soon(find: impl FnOnce() -> Option<testing::Failure>) -> Cause {
    // What finds is not to be had on another thread, so it is the process that ends.
    let (ended, end) = mpsc::channel::<()>();
    thread::spawn(move || {
        if end.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a run that was to end hangs");
            std::process::abort();
        }
    });
    let start = Instant::now();
    let failure = find().expect("it fails");
    drop(ended);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(failure.causes().len(), 1, "{failure}");
    failure.causes()[0].clone()
}

#[test]
fn a_message_that_never_comes_ends_the_run() {
    let patience = Explore::new().seeds([3]).patience(Duration::from_millis(50));
    let cause = soon(|| {
        patience.find(async |device: Device| -> Result<()> {
            let (sender, receiver) = oneshot::channel::<()>();
            let waiting = spawn(receiver);
            let mut x = device.zeros::<u32>(64)?;
            increment(&mut x)?.await?;
            let _ = waiting.await;
            drop(sender);
            Ok(())
        })
    });
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("nor has a task")), "{cause}");
}

#[test]
fn a_wake_up_of_a_task_that_has_ended_is_no_sleep_for_ever() {
    let patience = Explore::new().seeds([3]).patience(Duration::from_millis(50));
    let cause = soon(|| {
        patience.find(async |device: Device| -> Result<()> {
            let mut x = device.zeros::<u32>(64)?;
            let mut done = increment(&mut x)?;
            let polled = spawn(async move {
                assert!(futures::poll!(&mut done).is_pending());
                Some(done)
            });
            let _kept = polled.await.expect("no panic");
            std::future::pending().await
        })
    });
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("none of it can run")), "{cause}");
}

#[test]
fn block_on_in_the_way_of_the_task_it_waits_for_ends_the_run() {
    let patience = Explore::new().seeds([3]).patience(Duration::from_millis(50));
    let cause = soon(|| patience.find(async |_| drop(block_on(spawn(async {})))));
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("block_on")), "{cause}");
}

#[test]
fn another_thread_may_wake_the_program() {
    explore(0..3, async |_| {
        let answer = tokio::task::spawn_blocking(|| {
            thread::sleep(Duration::from_millis(5));
            42
        });
        assert_eq!(answer.await.expect("no panic"), 42);
    });
}

#[test]
fn memory_that_is_forgotten_is_a_failure() {
    let find = || {
        Explore::new().seeds([1]).find(async |device: Device| -> Result<()> {
            std::mem::forget(device.zeros::<u8>(1_000)?);
            Ok(())
        })
    };
    assert_eq!(soon(find), Cause::Leaked { bytes: 1_024 });
}

#[test]
fn memory_of_tasks_that_have_not_ended_is_freed() {
    explore(0..5, async |device| -> Result<()> {
        let mut x = device.zeros::<u32>(64)?;
        let waiting = increment(&mut x)?;
        let (sender, receiver) = oneshot::channel::<()>();
        drop(spawn(async move {
            let _kept = (x, sender);
            std::future::pending::<()>().await;
        }));
        waiting.await?;
        drop(receiver);
        Ok(())
    });
}

#[test]
fn several_devices_take_turns() {
    Explore::new().seeds(0..10).run_on(async |[a, b]| -> Result<()> {
        let (mut x, mut y) = (a.zeros::<u32>(64)?, b.zeros::<u32>(64)?);
        let (first, second) = (increment(&mut x)?, increment(&mut y)?);
        let (first, second) = futures::join!(first, second);
        first.and(second)?;
        assert_eq!((x.to_vec().await?, y.to_vec().await?), (vec![1; 64], vec![1; 64]));
        Ok(())
    });
}

#[test]
fn a_device_that_fails_under_a_program_that_expects_it_is_no_failure() {
    explore(0..5, async |device| {
        let mut x = device.zeros::<u32>(64).expect("it works still");
        let done = increment(&mut x).expect("it works still");
        sim(&device).fail(719);
        assert!(matches!(done.await, Err(headwater::Error::DeviceLost(_))));
    });
}

#[test]
fn memory_on_a_device_that_failed_unnoticed_is_not_leaked() {
    explore(0..20, async |device| -> Result<()> {
        drop(device.zeros::<u32>(64)?);
        sim(&device).fail(719);
        Ok(())
    });
    let faults = SimOptions::new().fault(Fault::when_run(SimOpKind::Kernel, 719));
    Explore::new().seeds(0..3).options(faults).run(async |device: Device| -> Result<()> {
        increment(&mut device.zeros::<u32>(64)?).map(drop)
    });
    let device = testing::device();
    let _kept = device.zeros::<u32>(64);
    sim(&device).fail(719);
    testing::assert_all_freed(&device);
}

#[test]
fn a_lost_wait_is_a_failure_whatever_bytes_came_out() {
    let lossy = Explore::new().seeds(0..1).settings(|builder| builder.lose_wait(0));
    let failure = lossy.find(async |device: Device| -> Result<()> {
        let (a, b) = (device.stream(), device.stream());
        let mut x = a.in_scope(|| device.zeros::<u32>(64))?;
        let mut y = b.in_scope(|| device.alloc::<u32>(64))?;
        a.in_scope(|| increment(&mut x))?;
        b.in_scope(|| copy_u32(&x, &mut y))?.await
    });
    let failure = failure.expect("it fails");
    let raced = |cause: &Cause| matches!(cause, Cause::Raced(races) if !races.is_empty());
    assert!(failure.causes().iter().any(raced), "{failure}");
    let report = failure.to_string();
    assert!(report.contains("`increment` writes") && report.contains("missing:"), "{report}");
    // Race and list name the stream alike.
    let (_, stream) = report.split_once(" of stream ").expect("the race names it");
    let number: String = stream.chars().take_while(char::is_ascii_digit).collect();
    assert!(report.contains(&format!("  stream {number:<4} increment ")), "{report}");
}

#[test]
fn awaiting_behind_a_gate_that_stays_closed_ends_the_run() {
    let find = || {
        Explore::new().seeds([3]).find(async |device: Device| -> Result<()> {
            let stream = device.stream();
            let gate = Gate::new(&device)?;
            gate.hold(&stream)?;
            let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
            stream.in_scope(|| increment(&mut x))?.await?;
            gate.open();
            Ok(())
        })
    };
    let cause = soon(find);
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("gate")), "{cause}");
}

#[test]
fn an_operation_that_never_ends_ends_the_run() {
    let options = SimOptions::new().fault(Fault::never_finishes(SimOpKind::Kernel));
    let find = || {
        Explore::new().seeds([3]).options(options).find(async |device: Device| -> Result<()> {
            increment(&mut device.zeros::<u32>(64)?)?.await
        })
    };
    let cause = soon(find);
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("never ends")), "{cause}");
}

#[test]
fn an_event_that_cannot_be_recorded_ends_the_run() {
    let refused = Fault::of_call(DriverCall::EventRecord, DriverError::OUT_OF_MEMORY).always();
    let options = SimOptions::new().fault(refused);
    let find = || {
        Explore::new().seeds([3]).options(options).find(async |device: Device| -> Result<()> {
            increment(&mut device.zeros::<u32>(64)?)?.await
        })
    };
    let cause = soon(find);
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("nobody is told")), "{cause}");
}

#[test]
fn a_task_may_open_the_gate_that_another_one_waits_behind() {
    explore(0..20, async |device| -> Result<()> {
        let stream = device.stream();
        let gate = Gate::new(&device)?;
        gate.hold(&stream)?;
        let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
        let held = stream.in_scope(|| increment(&mut x))?;
        let mut y = device.zeros::<u32>(64)?;
        let opener = spawn(async move {
            increment(&mut y)?.await?;
            gate.open();
            Result::<()>::Ok(())
        });
        held.await?;
        opener.await.expect("no panic")
    });
}

#[test]
fn a_gate_holds_back_what_is_enqueued_after_it_and_no_other_stream() -> Result<()> {
    let device = any_device();
    let gate = Gate::new(&device)?;
    let (held, free) = (device.stream(), device.stream());
    let mut x = held.in_scope(|| device.zeros::<u32>(64))?;
    let mut y = free.in_scope(|| device.zeros::<u32>(64))?;
    // Once before: memory, and a kernel's first launch, can wait for the gate's kernel.
    wait(free.in_scope(|| increment(&mut y))?)?;
    let before = held.synchronize();
    gate.hold(&held)?;
    let mut after = held.in_scope(|| increment(&mut x))?;
    wait(free.in_scope(|| increment(&mut y))?)?;
    wait(before)?;
    assert!(!after.is_finished()?);
    assert!(poll_once(&mut after).is_pending());
    gate.open();
    wait(after)?;
    assert_eq!(elements(&x), [1; 64]);
    assert!(!gate.gave_up());
    Ok(())
}

#[test]
fn a_gate_that_is_dropped_is_open_and_its_memory_is_kept_for_the_kernels() -> Result<()> {
    let device = any_device();
    let stream = device.stream();
    let gate = Gate::new(&device)?;
    gate.hold(&stream)?;
    let passed = gate.hold(&stream)?;
    drop(gate);
    // Would close it again, if it were in the same place.
    let _zeros = device.alloc_host::<u32>(2)?.try_write()?[0];
    wait(passed)?;
    Ok(())
}

#[test]
fn a_gate_that_is_open_holds_nothing_back() -> Result<()> {
    let device = any_device();
    let gate = Gate::new(&device)?;
    gate.open();
    wait(gate.hold(&device.stream())?)
}

#[test]
fn a_gate_gives_up_after_its_limit_on_a_gpu_and_says_so() -> Result<()> {
    let device = any_device();
    let gate = Gate::with_limit(&device, Duration::from_millis(5))?;
    let passed = gate.hold(&device.stream())?;
    if device.info().simulated {
        gate.open();
    }
    wait(passed)?;
    assert_eq!(gate.gave_up(), !device.info().simulated);
    Ok(())
}

#[test]
fn a_gate_is_one_device_s() -> Result<()> {
    let (a, b) = (testing::device(), testing::device());
    let refused = Gate::new(&a)?.hold(&b.stream());
    assert!(matches!(refused, Err(headwater::Error::WrongDevice { argument: "stream", .. })));
    Ok(())
}
