//! Trouble that passes: a driver that refuses to record or to be asked for a while. The work goes on
//! and nobody is told of an end that is not one, nor left waiting.

use headwater::sim::{Fault, SimCall};
use headwater::{Error, Result, block_on};

use crate::common::{
    device_buffer, elements, is_runnable, last_op, poll_once, run_to_end, sim, stepped, until,
    wait, watched,
};
use crate::kernels::{copy_u32, increment};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const CAPTURE_UNSUPPORTED: u32 = 900;

fn refused(call: SimCall) -> Fault {
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
            sim.inject(refused(SimCall::EventQuery));
            assert!(!done.is_finished()?, "a query that failed says nothing");
            assert_eq!(sim.injected().len(), 1);
            // And under one who waits.
            sim.inject(refused(SimCall::EventQuery));
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
        sim.inject(refused(SimCall::EventRecord));
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
    for call in [SimCall::EventRecord, SimCall::StreamWait] {
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
        for call in [SimCall::EventRecord, SimCall::EventQuery] {
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
    for call in [SimCall::EventRecord, SimCall::EventQuery] {
        let device = stepped();
        let mut x = device_buffer(&device, &[0u32; 64]);
        let done = increment(&mut x)?;
        sim(&device).inject(refused(call).always());
        let Err(Error::DeviceLost(failure)) = wait(done) else { panic!("{call:?}") };
        assert_eq!(failure.source.call(), call.name());
        assert_eq!(failure.operation().map(|op| op.operation), Some("increment"));
    }
    Ok(())
}
