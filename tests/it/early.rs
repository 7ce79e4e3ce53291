//! Later work on a stream does not delay those who wait for its earlier work.

use headwater::{Device, Result};

use crate::common::{
    device_buffer, is_runnable, last_op, poll_once, run_to_end, sim, stepped, wait,
};
use crate::kernels::{copy_u32, increment};

type Waiter = Box<dyn FnOnce(&Device)>;

/// Enqueues what `earlier` says and then something else on one stream, and runs the earlier work
/// alone: the waiter that `earlier` returned has to get what it waits for.
fn later_work_does_not_delay(
    what: &str,
    earlier: impl FnOnce(&Device) -> Result<Waiter>,
) -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let stream = device.stream();
    let mut other = device_buffer(&device, &[0u32; 64]);
    let waiter = stream.in_scope(|| earlier(&device))?;
    let first = last_op(sim).id;
    stream.in_scope(|| increment(&mut other))?;
    let later = last_op(sim).id;
    assert!(sim.run(first).is_some(), "{what}");
    waiter(&device);
    assert!(is_runnable(sim, later), "{what}: the later work has not run");
    run_to_end(&device);
    Ok(())
}

#[test]
fn later_work_does_not_delay_one_who_holds_a_completion() -> Result<()> {
    later_work_does_not_delay("completion", |device| {
        let mut x = device_buffer(device, &[0u32; 64]);
        let done = increment(&mut x)?;
        Ok(Box::new(move |_| {
            assert!(wait(done).is_ok());
            drop(x);
        }))
    })
}

#[test]
fn later_work_does_not_delay_one_who_polled_before_it_was_enqueued() -> Result<()> {
    later_work_does_not_delay("polled", |device| {
        let mut x = device_buffer(device, &[0u32; 64]);
        drop(increment(&mut x)?);
        let mut done = device.current_stream().synchronize();
        assert!(poll_once(&mut done).is_pending());
        Ok(Box::new(move |_| assert!(wait(done).is_ok())))
    })
}

#[test]
fn later_work_does_not_delay_one_who_reads_pinned_memory() -> Result<()> {
    later_work_does_not_delay("pinned", |device| {
        let x = device_buffer(device, &[9u32; 64]);
        let mut pinned = device.alloc_host::<u32>(64)?;
        x.copy_to(&mut pinned)?;
        Ok(Box::new(move |_| assert!(wait(pinned.read()).is_ok_and(|read| read[63] == 9))))
    })
}

#[test]
fn later_work_does_not_delay_another_stream_that_needs_a_shared_buffer() -> Result<()> {
    later_work_does_not_delay("shared", |device| {
        let mut x = device_buffer(device, &[0u32; 64]);
        let mut y = device.alloc::<u32>(64)?;
        let b = device.stream();
        b.in_scope(|| copy_u32(&x, &mut y))?;
        increment(&mut x)?; // known to be shared from here on
        run_to_end(device);
        increment(&mut x)?;
        Ok(Box::new(move |device| {
            b.in_scope(|| copy_u32(&x, &mut y)).expect("enqueuing");
            let read = last_op(sim(device)).id;
            assert!(is_runnable(sim(device), read));
        }))
    })
}

/// So many operations can be between one that nobody held a completion of, on memory not known to be
/// shared, and the event that a first stranger waits for.
const LATEST: usize = 15;

/// How many of `later` operations, enqueued behind one that a stranger then conflicts with, have to run
/// before the stranger can.
fn later_operations_waited_for(later: usize) -> Result<usize> {
    let device = stepped();
    let sim = sim(&device);
    let (a, b) = (device.stream(), device.stream());
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut others = device_buffer(&device, &[0u32; 64]);
    a.in_scope(|| increment(&mut x))?;
    for _ in 0..later {
        a.in_scope(|| increment(&mut others))?;
    }
    b.in_scope(|| increment(&mut x))?;
    let stranger = last_op(sim).id;
    let mut ran = 0;
    while !is_runnable(sim, stranger) {
        let next = sim.pending().into_iter().find(|op| op.runnable).expect("a's next operation");
        assert!(sim.run(next.id).is_some());
        ran += 1;
    }
    run_to_end(&device);
    Ok(ran - 1)
}

#[test]
fn a_stranger_waits_for_at_most_15_later_operations() -> Result<()> {
    let waited = (0..40).map(later_operations_waited_for).collect::<Result<Vec<_>>>()?;
    assert_eq!(waited.iter().max(), Some(&LATEST), "{waited:?}");
    assert_eq!(waited[..4], [0, 1, 2, 3], "what is there already");
    Ok(())
}
