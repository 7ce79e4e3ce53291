//! Trouble that passes: a driver that refuses to record or to be asked for a while. The work goes on
//! and nobody is told of an end that is not one, nor left waiting.

use std::time::Duration;

use headwater::sim::{DriverCall, Fault};
use headwater::{DriverError, Error, Result, block_on};

use crate::common::{
    device_buffer, elements, is_runnable, last_op, poll_once, run_to_end, sim, stepped, until,
    wait, watched,
};
use crate::kernels::{copy_u32, increment};

const INVALID_VALUE: u32 = DriverError::INVALID_VALUE;
const OUT_OF_MEMORY: u32 = DriverError::OUT_OF_MEMORY;
const CAPTURE_UNSUPPORTED: u32 = DriverError::STREAM_CAPTURE_UNSUPPORTED;

fn refused(call: DriverCall) -> Fault {
    Fault::of_call(call, INVALID_VALUE)
}

#[test]
fn a_query_that_fails_once_is_made_again() -> Result<()> {
    for blocking in [false, true] {
        watched(move || {
            let device = stepped();
            let sim = sim(&device).clone();
            let mut x = device_buffer(&device, &[0u32; 64]);
            let done = increment(&mut x)?;
            sim.inject(refused(DriverCall::EventQuery));
            assert!(!done.is_finished()?, "a query that failed says nothing");
            assert_eq!(sim.injected().len(), 1);
            // And under one who waits.
            sim.inject(refused(DriverCall::EventQuery));
            let stepper = std::thread::spawn({
                let sim = sim.clone();
                move || {
                    until("the fault strikes", || sim.injected().len() == 2);
                    sim.run_all()
                }
            });
            match blocking {
                true => block_on(done)?,
                false => wait(done)?,
            }
            assert_eq!(stepper.join().expect("no panic"), 1);
            assert_eq!(elements(&x), [1; 64]);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_launch_stands_whose_record_failed() -> Result<()> {
    watched(|| {
        let device = stepped();
        let sim = sim(&device);
        let mut x = device_buffer(&device, &[0u32; 64]);
        let mut y = device.alloc::<u32>(64)?;
        // Two streams use it at a time: from now on every operation on it is recorded at once.
        device.stream().in_scope(|| increment(&mut x))?;
        device.stream().in_scope(|| increment(&mut x))?;
        sim.inject(refused(DriverCall::EventRecord));
        let done = device.stream().in_scope(|| increment(&mut x))?;
        let third = last_op(sim).id;
        assert_eq!(sim.injected().len(), 1, "no record was made");
        device.stream().in_scope(|| copy_u32(&x, &mut y))?;
        let copy = last_op(sim).id;
        while sim.pending().iter().any(|op| op.id == third) {
            assert!(!is_runnable(sim, copy), "it does not wait for the launch");
            sim.step();
        }
        wait(done)?;
        run_to_end(&device);
        assert_eq!(elements(&y), [3; 64]);
        Ok(())
    })
}

#[test]
fn one_who_cannot_be_ordered_is_refused_and_may_come_again() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device.alloc::<u32>(64)?;
    for call in [DriverCall::EventRecord, DriverCall::StreamWait] {
        let (a, b) = (device.stream(), device.stream());
        a.in_scope(|| increment(&mut x))?;
        let pending = sim.pending();
        sim.inject(refused(call));
        let refused = b.in_scope(|| copy_u32(&x, &mut y)).map(drop);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        assert_eq!(sim.pending(), pending, "it was enqueued");
        b.in_scope(|| copy_u32(&x, &mut y))?;
        assert!(!last_op(sim).runnable, "it runs unordered");
        run_to_end(&device);
    }
    assert_eq!(elements(&y), [2; 64]);
    Ok(())
}

#[test]
fn a_wait_lasts_as_long_as_trouble_that_is_sure_to_pass() -> Result<()> {
    for code in [OUT_OF_MEMORY, CAPTURE_UNSUPPORTED] {
        for call in [DriverCall::EventRecord, DriverCall::EventQuery] {
            let device = stepped();
            let sim = sim(&device);
            let mut x = device_buffer(&device, &[0u32; 64]);
            sim.inject(Fault::of_call(call, code).always());
            let mut done = increment(&mut x)?;
            assert!(poll_once(&mut done).is_pending());
            sim.run_all();
            until("many looks have failed", || sim.injected().len() > 20);
            assert!(poll_once(&mut done).is_pending(), "{call:?} {code}");
            sim.clear_faults();
            wait(done)?;
            increment(&mut x)?;
            run_to_end(&device);
        }
    }
    Ok(())
}

#[test]
fn a_driver_that_refuses_for_good_ends_the_wait() -> Result<()> {
    for call in [DriverCall::EventRecord, DriverCall::EventQuery] {
        let device = stepped();
        let mut x = device_buffer(&device, &[0u32; 64]);
        let done = increment(&mut x)?;
        sim(&device).inject(refused(call).always());
        let Err(Error::DeviceLost(failure)) = wait(done) else { panic!("{call:?}") };
        assert_eq!(failure.cause.call(), call.name());
        assert!(failure.suspects.is_empty(), "nobody did anything wrong: {failure}");
    }
    Ok(())
}

#[test]
fn records_that_fail_now_and_then_do_not_lose_the_device() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let streams = [device.stream(), device.stream()];
    streams[0].in_scope(|| increment(&mut x))?;
    streams[1].in_scope(|| increment(&mut x))?;
    for round in 0..40 {
        sim(&device).inject(Fault::of_call(DriverCall::EventRecord, INVALID_VALUE));
        let failed = streams[1].in_scope(|| increment(&mut x)).map(drop);
        assert!(failed.is_ok(), "round {round}: {}", failed.unwrap_err());
        std::thread::sleep(Duration::from_micros(200)); // a moment alone is forgiven
        // This one is recorded: not "in a row".
        let recorded = streams[1].in_scope(|| increment(&mut x)).map(drop);
        assert!(recorded.is_ok(), "round {round}: {}", recorded.unwrap_err());
    }
    Ok(())
}

#[test]
fn a_lack_of_memory_does_not_count_against_the_device() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut done = increment(&mut x)?;
    sim(&device).inject(Fault::of_call(DriverCall::EventQuery, OUT_OF_MEMORY).times(40));
    sim(&device).inject(Fault::of_call(DriverCall::EventQuery, INVALID_VALUE).after(40));
    assert!(poll_once(&mut done).is_pending());
    until("all have struck", || sim(&device).injected().len() == 41);
    assert!(poll_once(&mut done).is_pending());
    sim(&device).run_all();
    let ended = wait(done);
    assert!(ended.is_ok(), "{}", ended.unwrap_err());
    Ok(())
}

#[test]
fn a_record_of_shared_memory_that_failed_is_made_before_the_next_operation() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let mut z = device_buffer(&device, &[0u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| increment(&mut x))?; // shared from here on
    sim(&device).inject(Fault::of_call(DriverCall::EventRecord, INVALID_VALUE));
    a.in_scope(|| increment(&mut x))?; // its record fails
    let third = last_op(sim(&device)).id;
    assert_eq!(sim(&device).injected().len(), 1);
    a.in_scope(|| increment(&mut z))?; // later work, unrelated
    b.in_scope(|| copy_u32(&x, &mut y))?;
    let copy = last_op(sim(&device)).id;
    while sim(&device).pending().iter().any(|op| op.id == third) {
        sim(&device).step();
    }
    let pending = sim(&device).pending();
    let op = pending.iter().find(|op| op.id == copy).unwrap();
    assert!(op.runnable, "it waits for work after what it needs: {pending:?}");
    Ok(())
}

#[test]
fn a_moment_of_trouble_with_many_waiting_does_not_lose_the_device() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut all: Vec<_> = (0..20).map(|_| increment(&mut x)).collect::<Result<_>>()?;
    sim(&device).inject(Fault::of_call(DriverCall::EventRecord, INVALID_VALUE).times(20));
    for one in &mut all {
        assert!(!poll_once(one).is_ready(), "{one:?}");
    }
    Ok(())
}

#[test]
fn nothing_is_asked_after_trouble_that_nobody_waits_for() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut done = increment(&mut x)?;
    sim(&device).inject(Fault::of_call(DriverCall::EventRecord, OUT_OF_MEMORY).always());
    assert!(poll_once(&mut done).is_pending());
    std::thread::sleep(Duration::from_millis(30));
    drop(done);
    std::thread::sleep(Duration::from_millis(100));
    let before = sim(&device).calls();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(sim(&device).calls(), before);
    sim(&device).clear_faults();
    let done = increment(&mut x)?;
    sim(&device).run_all();
    wait(done)
}
