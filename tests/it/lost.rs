//! A device that fails ends every wait with an error, refuses what comes later, and takes nothing
//! else down. On the simulated device a kernel's twin that panics is such a failure.

use std::sync::Arc;
use std::time::Duration;

use headwater::sim::{DriverCall, Fault, Schedule, SimOptions, Violation};
use headwater::{Device, DeviceBuffer, DriverError, Error, Result, block_on};

use crate::common::{
    AS_PROMISED, Child, Wakes, device_buffer, eager, elements, in_process_of, pinned_buffer,
    poll_once, run_to_end, sim, simulated, stepped, until, wait, watched,
};
use crate::kernels::{copy_u32, increment};

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: thread i < n touches element i of the slice, whose length is n.
unsafe extern "C" {
    /// `increment`, with a twin that panics: for simulated devices only.
    #[launch(items = x.len(), block = 256, entry = "increment")]
    #[args(x, x.len() as u32)]
    #[twin(fail_on_host)]
    pub(crate) safe fn fail(x: &mut [u32]);
}

fn fail_on_host(_: &mut [u32]) {
    panic!("a twin's own fault");
}

fn is_lost<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::DeviceLost(_)))
}

#[test]
fn when_a_device_fails_every_waiter_is_told() -> Result<()> {
    let device = stepped();
    let simulator = sim(&device).clone();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let mut pinned = pinned_buffer(&device, &[0u32; 64]);
    let before = device.stream().in_scope(|| increment(&mut y))?;
    let failing = device.stream().in_scope(|| fail(&mut x))?;
    let behind = device.stream().in_scope(|| increment(&mut x))?;
    let beside = device.stream().in_scope(|| y.copy_to(&mut pinned))?;
    simulator.step();
    wait(before)?;

    let mut waiters = vec![failing, behind, beside];
    let wakes = Arc::new(Wakes::default());
    for waiter in &mut waiters {
        let waker = wakes.clone().into();
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(std::pin::Pin::new(waiter).poll(&mut cx).is_pending());
    }
    let reader = {
        let (device, pinned) = (device.clone(), Arc::new(pinned));
        let mut set = Vec::new();
        for blocking in [false, true] {
            let (device, pinned) = (device.clone(), pinned.clone());
            let queries = device.driver_calls().map(|calls| calls.event_queries);
            set.push(std::thread::spawn(move || match blocking {
                true => pinned.blocking_read().map(drop),
                false => wait(pinned.read()).map(drop),
            }));
            until("it waits", || device.driver_calls().map(|c| c.event_queries) > queries);
        }
        set
    };
    simulator.step();
    until("all are woken", || wakes.count() == 3);
    for waiter in waiters {
        assert!(is_lost(&waiter.is_finished()));
        assert!(is_lost(&wait(waiter)));
    }
    for reader in reader {
        assert!(is_lost(&watched(|| reader.join()).expect("no panic")));
    }
    assert_eq!(simulator.violations(), [Violation::TwinPanicked { name: "fail" }]);
    Ok(())
}

#[test]
fn a_lost_device_refuses_everything_and_says_why() -> Result<()> {
    let device = eager();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let mut pinned = pinned_buffer(&device, &[7u32; 64]);
    let stream = device.stream();
    let Err(Error::DeviceLost(failure)) = wait(fail(&mut x)?) else { panic!("it did not fail") };
    assert_eq!(failure.device, device.number());
    assert_eq!(failure.cause.name(), "LAUNCH_FAILED");
    let message = failure.to_string();
    assert!(message.contains(&format!("device {}", device.number())), "{message}");

    assert!(is_lost(&increment(&mut y)));
    assert!(is_lost(&copy_u32(&x, &mut y)));
    assert!(is_lost(&y.fill(1)));
    assert!(is_lost(&y.copy_from(&pinned)));
    assert!(is_lost(&y.copy_to(&mut pinned)));
    assert!(is_lost(&device.alloc::<u32>(64)));
    assert!(is_lost(&device.alloc_host::<u32>(64)));
    assert!(is_lost(&wait(device.upload([1u32; 64]))));
    assert!(is_lost(&wait(y.to_vec())));
    assert!(is_lost(&stream.record()));
    assert!(is_lost(&wait(stream.ready())));
    assert!(is_lost(&wait(device.current_stream().synchronize())));
    assert_eq!(*pinned.try_read()?, [7; 64], "the host's own memory is still there");
    drop((x, y, pinned, stream, device));
    Ok(())
}

/// The failure that a wait ends with.
pub(crate) fn failure_of<T>(result: Result<T>) -> Arc<headwater::DeviceFailure> {
    match result {
        Err(Error::DeviceLost(failure)) => failure,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it did not fail"),
    }
}

#[test]
fn what_had_run_before_the_failure_had_run() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[1u32; 64]);
    let mut pinned = device.alloc_host::<u32>(64)?;
    let copied = x.copy_to(&mut pinned)?;
    sim(&device).step();
    wait(copied)?;
    fail(&mut x)?;
    sim(&device).step();
    let mut lost = device.current_stream().synchronize();
    until("the failure is known", || poll_once(&mut lost).is_ready());
    assert_eq!(*wait(pinned.read())?, [1; 64]);
    Ok(())
}

#[test]
fn another_device_goes_on() -> Result<()> {
    let [failing, other] = [eager(), eager()];
    let mut x = device_buffer(&failing, &[0u32; 64]);
    let mut y = device_buffer(&other, &[0u32; 64]);
    let done = increment(&mut y)?;
    assert!(is_lost(&wait(fail(&mut x)?)));
    wait(done)?;
    wait(increment(&mut y)?)?;
    assert_eq!(elements(&y), [2; 64]);
    run_to_end(&other);
    Ok(())
}

#[test]
fn a_new_device_can_be_opened_after_a_failure() -> Result<()> {
    let mut x: DeviceBuffer<u32> = device_buffer(&eager(), &[0u32; 64]);
    assert!(is_lost(&wait(fail(&mut x)?)));
    let mut y = device_buffer(&eager(), &[0u32; 64]);
    increment(&mut y)?;
    assert_eq!(elements(&y), [1; 64]);
    Ok(())
}

#[test]
fn block_on_ends_when_the_device_is_lost() -> Result<()> {
    watched(|| {
        let device: Device = simulated(SimOptions::new().schedule(Schedule::Stepped));
        let mut x = device_buffer(&device, &[0u32; 64]);
        let failing = fail(&mut x)?;
        let simulator = sim(&device).clone();
        let stepper = std::thread::spawn(move || {
            while simulator.step().is_none() {
                std::thread::yield_now();
            }
        });
        assert!(is_lost(&block_on(failing)));
        stepper.join().expect("no panic");
        Ok(())
    })
}

/// A log subscriber that panics at every event.
struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        panic!("a subscriber's own fault");
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn log_subscribers_that_panic_keep_nobody_from_being_told() {
    // Those of a process are for all of its threads, the reactor's among them.
    Child::new("lost::a_process_whose_log_panics", "panics").run();
}

#[test]
#[ignore = "the process of another test"]
fn a_process_whose_log_panics() -> Result<()> {
    if in_process_of().is_none() {
        return Ok(());
    }
    const ROUNDS: usize = 20;
    // Opened before: what a test module of this binary gets wrong is told to the log.
    let mut devices: Vec<Device> = (0..2 * ROUNDS).map(|_| stepped()).collect();
    tracing::subscriber::set_global_default(Panics).expect("it is the first");
    watched(move || {
        let mut next_device = || devices.pop().expect("there are enough");
        for _ in 0..ROUNDS {
            let device = next_device();
            let mut x = device_buffer(&device, &[0u32; 64]);
            let mut y = device_buffer(&device, &[0u32; 64]);
            let mut waiters = vec![fail(&mut x)?];
            waiters.push(increment(&mut x)?);
            waiters.push(device.stream().in_scope(|| increment(&mut y))?);
            let wakes = Arc::new(Wakes::default());
            for waiter in &mut waiters {
                let waker = wakes.clone().into();
                let mut cx = std::task::Context::from_waker(&waker);
                assert!(std::pin::Pin::new(waiter).poll(&mut cx).is_pending());
            }
            sim(&device).step();
            until("every waiter is told", || wakes.count() == 3);
            assert!(waiters.into_iter().all(|waiter| is_lost(&wait(waiter))));
            // A waker that panics is told to the log as well.
            let device = next_device();
            let mut x = device_buffer(&device, &[0u32; 64]);
            let mut panicking = increment(&mut x)?;
            let waker = std::task::Waker::from(Arc::new(PanickingWaker));
            let mut cx = std::task::Context::from_waker(&waker);
            assert!(std::pin::Pin::new(&mut panicking).poll(&mut cx).is_pending());
            let next = increment(&mut x)?;
            sim(&device).run_all();
            wait(next)?;
        }
        println!("{AS_PROMISED}");
        Ok(())
    })
}

struct PanickingWaker;

impl std::task::Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("a waker's own fault");
    }
}

#[test]
fn a_lack_of_memory_does_not_hide_the_loss_of_the_device() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    fail(&mut x)?;
    sim(&device).step();
    let total = device.info().total_memory as usize;
    let got = device.alloc::<u8>(total + 1);
    assert!(matches!(got, Err(Error::DeviceLost(_))), "{got:?}");
    Ok(())
}

#[test]
fn nothing_is_enqueued_on_a_device_that_was_given_up() -> Result<()> {
    let device = stepped();
    let (a, b) = (device.stream(), device.stream());
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let unrecorded = b.in_scope(|| increment(&mut y))?;
    let done = a.in_scope(|| increment(&mut x))?;
    sim(&device)
        .inject(Fault::of_call(DriverCall::EventQuery, DriverError::INVALID_VALUE).always());
    failure_of(wait(done));
    let before = device.driver_calls().expect("counted");
    assert!(is_lost(&b.in_scope(|| y.fill(1))));
    assert!(is_lost(&wait(b.synchronize())));
    assert!(is_lost(&unrecorded.is_finished()));
    assert_eq!(device.driver_calls().expect("counted"), before);
    Ok(())
}

#[test]
fn what_was_read_before_stays_readable_where_a_refusal_tells_of_the_loss() -> Result<()> {
    for takes_effect in [false, true] {
        let device = stepped();
        let x = device_buffer(&device, &[3u32; 64]);
        let mut pinned = device.alloc_host::<u32>(64)?;
        let copied = x.copy_to(&mut pinned)?;
        sim(&device).step();
        wait(copied)?;
        let fault = Fault::of_call(DriverCall::CopyD2H, DriverError::LAUNCH_FAILED);
        sim(&device).inject(if takes_effect { fault.taking_effect() } else { fault });
        assert!(matches!(x.copy_to(&mut pinned), Err(Error::DeviceLost(_))));
        assert_eq!(*pinned.try_read()?, [3; 64]);
        assert!(pinned.try_write().is_ok());
    }
    Ok(())
}

#[test]
fn threads_that_share_buffers_all_hear_of_the_loss() {
    for seed in 0..30u64 {
        watched(move || {
            let device = simulated(SimOptions::new());
            let shared: Vec<_> =
                (0..3).map(|i| Arc::new(device_buffer(&device, &[i as u32; 64]))).collect();
            let threads: Vec<_> = (0..4)
                .map(|t| {
                    let (device, shared) = (device.clone(), shared.clone());
                    std::thread::spawn(move || {
                        let mut own = match device.alloc::<u32>(64) {
                            Ok(own) => own,
                            Err(Error::DeviceLost(_)) => return,
                            Err(e) => panic!("{e}"),
                        };
                        let mut good = None;
                        for i in 0..400usize {
                            let on = device.stream();
                            let r = on.in_scope(|| -> Result<()> {
                                own.copy_from(&*shared[(i + t) % 3])?;
                                increment(&mut own)?;
                                let v = match i % 3 {
                                    0 => wait(own.to_vec())?,
                                    1 => block_on(own.to_vec())?,
                                    _ => {
                                        drop(own.to_vec());
                                        return Ok(());
                                    }
                                };
                                assert_eq!(v, [((i + t) % 3) as u32 + 1; 64]);
                                good = Some(v);
                                Ok(())
                            });
                            match r {
                                Ok(()) => {}
                                Err(Error::DeviceLost(_)) => return,
                                Err(e) => panic!("{e}"),
                            }
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(300 * (seed % 20)));
            let sim = sim(&device).clone();
            match seed % 3 {
                0 => sim.fail(DriverError::LAUNCH_FAILED),
                1 => sim.inject(Fault::any_call(DriverError::LAUNCH_FAILED)),
                _ => sim.inject(Fault::any_call(DriverError::LAUNCH_FAILED).taking_effect()),
            }
            drop(shared);
            drop(device);
            for t in threads {
                t.join().unwrap();
            }
            assert_eq!(sim.violations(), []);
        });
    }
}

#[test]
fn tasks_of_one_thread_all_end_when_the_device_fails() {
    for seed in 0..10u64 {
        watched(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let device = stepped();
            let simulator = sim(&device).clone();
            runtime.block_on(async move {
                let mut tasks = Vec::new();
                for t in 0..12u32 {
                    let device = device.clone();
                    tasks.push(headwater::spawn(async move {
                        let mut x = device.zeros::<u32>(64)?;
                        let mut last = None;
                        for i in 0..5 {
                            let done = increment(&mut x)?;
                            if i % 2 == 0 {
                                // Cancelled by select.
                                let mut done = done;
                                futures::select! {
                                    r = &mut done => { r?; }
                                    _ = futures::FutureExt::fuse(tokio::task::yield_now()) => {}
                                }
                                if t % 3 == 0 { std::mem::forget(done) } else { last = Some(done) }
                            }
                        }
                        if t % 4 == 1 {
                            fail(&mut x)?;
                        }
                        if let Some(last) = last {
                            last.await?;
                        }
                        x.to_vec().await.map(drop)
                    }));
                }
                let stepper = std::thread::spawn(move || {
                    for _ in 0..(20 + 7 * seed) {
                        if simulator.step().is_none() {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                    simulator.fail(DriverError::LAUNCH_FAILED);
                });
                for task in tasks {
                    match task.await.unwrap() {
                        Ok(()) | Err(Error::DeviceLost(_)) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
                stepper.join().unwrap();
            });
        });
    }
}
