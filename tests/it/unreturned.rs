//! Errors that no call returns go to the device's hook, with the name of what they are about, and
//! to nobody else.

use std::sync::{Arc, Mutex};

use headwater::sim::{DriverCall, Fault, Schedule, SimOptions, Simulator};
use headwater::{Device, DriverError, Error, Result};

use crate::common::{
    device_buffer, elements, pinned_buffer, run_to_end, sim, simulated_with, until, wait, watched,
};
use crate::kernels::increment;
use crate::lost::fail;

const INVALID_VALUE: u32 = DriverError::INVALID_VALUE;

/// What a hook was told.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<Error>>>);

impl Told {
    pub(crate) fn take(&self) -> Vec<Error> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("not poisoned").len()
    }
}

/// A stepped device and what its hook is told.
pub(crate) fn device_with_a_hook() -> (Device, Simulator, Told) {
    let told = Told::default();
    let hook = told.clone();
    let device = simulated_with(SimOptions::new().schedule(Schedule::Stepped), |builder| {
        let builder = builder.keep_memory(false);
        builder.on_error(move |error| hook.0.lock().expect("not poisoned").push(error.clone()))
    });
    let simulator = sim(&device).clone();
    (device, simulator, told)
}

/// What was not given back, and the driver's call for that.
pub(crate) fn not_released(error: &Error) -> (&str, &'static str) {
    match error {
        Error::NotReleased { what, why, .. } => match &**why {
            Error::Refused { cause, .. } => (what, cause.call()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

// cudarc#590: an error in `Drop` was returned by a later call that had nothing to do with it.
#[test]
fn a_free_that_fails_is_told_with_the_buffers_name_and_returned_by_no_call() -> Result<()> {
    let (device, sim, told) = device_with_a_hook();
    let x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let shown = format!("{x:?}");
    sim.inject(Fault::of_call(DriverCall::Free, INVALID_VALUE));
    drop(x);
    let errors = told.take();
    let [error] = &*errors else { panic!("{errors:?}") };
    let (what, call) = not_released(error);
    assert_eq!(call, "cuMemFreeAsync");
    assert!(what.starts_with("device buffer #") && what.ends_with(" of 256 bytes"), "{what}");
    let number = what.split(['#', ' ']).nth(3).expect("a number");
    assert!(shown.contains(&format!("number: Some({number})")), "{what} is not {shown}");

    let done = increment(&mut y)?;
    run_to_end(&device);
    wait(done)?;
    assert_eq!(elements(&y), [1; 64]);
    drop(y);
    run_to_end(&device);
    assert_eq!(sim.live_device_bytes(), 256, "the safe end of it is to keep it");
    assert_eq!(told.count(), 0);
    Ok(())
}

#[test]
fn what_cannot_be_given_back_when_a_device_is_closed_is_told() -> Result<()> {
    let (device, sim, told) = device_with_a_hook();
    drop(pinned_buffer(&device, &[1u32; 64]));
    let timed = device.current_stream().record_timed()?;
    wait(device.current_stream().synchronize())?;
    for call in [DriverCall::HostFree, DriverCall::ModuleUnload, DriverCall::StreamDestroy] {
        sim.inject(Fault::of_call(call, INVALID_VALUE));
    }
    sim.inject(Fault::of_call(DriverCall::EventDestroy, INVALID_VALUE));
    drop((timed, device));
    until("all is told", || told.count() == 4);
    let mut calls: Vec<_> = told.take().iter().map(|error| not_released(error).1).collect();
    calls.sort_unstable();
    assert_eq!(calls, ["cuEventDestroy", "cuMemFreeHost", "cuModuleUnload", "cuStreamDestroy"]);
    Ok(())
}

#[test]
fn the_loss_of_a_device_is_told_once_and_nothing_that_follows_from_it() -> Result<()> {
    let (device, sim, told) = device_with_a_hook();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let pinned = pinned_buffer(&device, &[1u32; 64]);
    let failed = fail(&mut x)?;
    sim.run_all();
    assert!(matches!(wait(failed), Err(Error::DeviceLost(_))));
    drop((x, pinned, device));
    until("the device is gone", || Arc::strong_count(&told.0) == 1);
    let errors = told.take();
    let [Error::DeviceLost(failure)] = &*errors else { panic!("{errors:?}") };
    assert_eq!(failure.culprit().map(|culprit| culprit.name), Some("fail"));
    Ok(())
}

#[test]
fn a_hook_may_use_the_device_and_may_panic() -> Result<()> {
    let device = Arc::new(Mutex::new(None::<Device>));
    let within = device.clone();
    let opened = simulated_with(SimOptions::new(), |builder| {
        builder.keep_memory(false).on_error(move |error| {
            assert!(matches!(error, Error::NotReleased { .. }), "{error:?}");
            let device = within.lock().expect("not poisoned").clone().expect("it was opened");
            let x = device.zeros::<u32>(8).expect("the device works");
            assert_eq!(elements(&x), [0; 8]);
            *within.lock().expect("not poisoned") = None;
            panic!("a hook's own fault");
        })
    });
    *device.lock().expect("not poisoned") = Some(opened.clone());
    let x = opened.zeros::<u32>(64)?;
    sim(&opened).inject(Fault::of_call(DriverCall::Free, INVALID_VALUE));
    drop(x);
    assert!(device.lock().expect("not poisoned").is_none(), "the hook was not called");
    let y = device_buffer(&opened, &[1u32; 8]);
    assert_eq!(elements(&y), [1; 8]);
    Ok(())
}

/// Events are let go of under locks: one that is destroyed there has the hook called there.
#[test]
fn no_event_is_destroyed_before_the_device_is_closed() -> Result<()> {
    let (device, sim, told) = device_with_a_hook();
    let stream = device.current_stream();
    sim.inject(Fault::of_call(DriverCall::EventDestroy, INVALID_VALUE).always());
    drop((stream.record_timed()?, stream.record()?));
    sim.inject(Fault::of_call(DriverCall::EventRecord, INVALID_VALUE));
    assert!(stream.record_timed().is_err());
    wait(stream.synchronize())?;
    let events = sim.live_events();
    for _ in 0..10 {
        drop(stream.record_timed()?);
        wait(stream.synchronize())?;
    }
    assert_eq!(sim.live_events(), events, "timed ones are used again");
    assert_eq!(told.count(), 0);
    drop((stream, device));
    until("all is told", || told.count() == events);
    Ok(())
}

#[test]
fn a_loss_that_opening_meets_is_returned_by_it_and_told() {
    // Events, streams, modules.
    for after in [3, 64, 70, 130] {
        let told = Told::default();
        let hook = told.clone();
        let fault = Fault::any_call(DriverError::LAUNCH_FAILED).after(after);
        let options = SimOptions::new().fault(fault);
        let builder = Device::builder().simulated_with(options);
        let opened = builder
            .on_error(move |error| hook.0.lock().expect("not poisoned").push(error.clone()))
            .open();
        assert!(matches!(opened, Err(Error::DeviceLost(_))), "{after}: {opened:?}");
        until("the device is gone", || Arc::strong_count(&told.0) == 1);
        let errors = told.take();
        assert!(matches!(&*errors, [Error::DeviceLost(_)]), "{after}: {errors:?}");
    }
}

/// A panic's payload whose drop panics.
pub(crate) struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a payload's own fault");
        }
    }
}

#[test]
fn a_hook_may_panic_with_what_panics_again() {
    let device = simulated_with(SimOptions::new(), |b| b.on_error(|_| std::panic::panic_any(Bomb)));
    let x = device.zeros::<u32>(64).unwrap();
    sim(&device).inject(Fault::of_call(DriverCall::Free, INVALID_VALUE));
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(x)));
    if let Err(payload) = dropped {
        std::mem::forget(payload);
        panic!("dropping a buffer panicked");
    }
}

#[test]
fn a_lost_device_lets_go_of_its_hook_whatever_call_met_the_loss() {
    for call in DriverCall::ALL {
        let call = *call;
        watched(move || {
            let alive = Arc::new(());
            let hook = alive.clone();
            let device = simulated_with(SimOptions::new(), |b| {
                b.on_error(move |_| {
                    let _ = &hook;
                })
            });
            sim(&device).inject(Fault::of_call(call, DriverError::LAUNCH_FAILED));
            let _ = (|| -> Result<()> {
                let (a, b) = (device.stream(), device.stream());
                let mut x = a.in_scope(|| device.zeros::<u32>(64))?;
                let y = wait(device.upload([1u32; 64]))?;
                b.in_scope(|| x.copy_from(&y))?;
                a.in_scope(|| increment(&mut x))?;
                let early = a.record_timed()?;
                let late = a.record_timed()?;
                wait(&late)?;
                late.elapsed_since(&early)?;
                let _ = device.alloc::<u8>(usize::MAX / 4);
                wait(x.to_vec())?;
                Ok(())
            })();
            let simulator = sim(&device).clone();
            drop(device);
            until("the hook is let go of", || Arc::strong_count(&alive) == 1);
            drop(simulator);
        });
    }
}

#[test]
fn a_loss_that_closing_meets_is_told_as_one() -> Result<()> {
    for call in [
        DriverCall::EventDestroy,
        DriverCall::StreamDestroy,
        DriverCall::HostFree,
        DriverCall::ModuleUnload,
    ] {
        let (device, sim, told) = device_with_a_hook();
        drop(pinned_buffer(&device, &[1u32; 64]));
        sim.inject(Fault::of_call(call, DriverError::LAUNCH_FAILED));
        drop(device);
        until("the device is gone", || Arc::strong_count(&told.0) == 1);
        let errors = told.take();
        assert!(matches!(&*errors, [Error::DeviceLost(_)]), "{call:?}: {errors:?}");
    }
    Ok(())
}

#[test]
fn a_device_that_was_given_up_is_told_of_once_and_not_called_again() -> Result<()> {
    let (device, sim, told) = device_with_a_hook();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let done = increment(&mut x)?;
    sim.inject(Fault::any_call(INVALID_VALUE).always());
    assert!(matches!(wait(done), Err(Error::DeviceLost(_))));
    let calls = sim.calls();
    drop((x, device));
    until("the device is gone", || Arc::strong_count(&told.0) == 1);
    assert_eq!((told.count(), sim.calls()), (1, calls));
    Ok(())
}
