//! A call that is refused leaves everything as it was: the order of what comes later, what it costs,
//! the room in the queue, the host's right to its memory.

use headwater::sim::{DriverCall, Fault};
use headwater::testing::assert_all_freed;
use headwater::{DeviceBuffer, DriverError, Error, Result};

use crate::common::{device_buffer, last_op, pinned_buffer, run_to_end, sim, stepped, wait};
use crate::kernels::{copy_u32, increment};

const INVALID_VALUE: u32 = DriverError::INVALID_VALUE;
const OUT_OF_MEMORY: u32 = DriverError::OUT_OF_MEMORY;

#[test]
fn a_refused_read_holds_up_no_later_write() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[1u32; 64]);
    let mut y = device_buffer(&device, &[1u32; 64]);
    let mut z = device_buffer(&device, &[1u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    a.in_scope(|| increment(&mut z))?; // long
    sim(&device).inject(Fault::of_call(DriverCall::Launch, INVALID_VALUE));
    assert!(a.in_scope(|| copy_u32(&x, &mut y)).is_err());
    b.in_scope(|| increment(&mut x))?;
    assert!(last_op(sim(&device)).runnable, "it waits for what was refused");
    Ok(())
}

#[test]
fn a_refused_upload_leaves_the_host_its_memory() -> Result<()> {
    let device = stepped();
    let mut pinned = pinned_buffer(&device, &[1u32; 64]);
    let mut y = device_buffer(&device, &[1u32; 64]);
    let mut z = device_buffer(&device, &[1u32; 64]);
    increment(&mut z)?;
    sim(&device).inject(Fault::of_call(DriverCall::CopyH2D, INVALID_VALUE));
    assert!(y.copy_from(&pinned).is_err());
    let written = pinned.try_write().map(drop);
    assert!(written.is_ok(), "{written:?}");
    Ok(())
}

#[test]
fn a_refused_upload_with_nothing_in_flight_costs_the_host_nothing() -> Result<()> {
    let device = stepped();
    let mut y = device_buffer(&device, &[1u32; 64]);
    let mut pinned = pinned_buffer(&device, &[1u32; 64]);
    let stream = device.stream();
    for _ in 0..20 {
        sim(&device).inject(Fault::of_call(DriverCall::CopyH2D, INVALID_VALUE));
        assert!(stream.in_scope(|| y.copy_from(&pinned)).is_err());
        let before = device.driver_calls().expect("counted");
        let written = pinned.try_write().map(drop);
        let calls = device.driver_calls().expect("counted").since(&before);
        assert!(written.is_ok() && calls.event_records == 0, "{written:?}, {calls:?}");
    }
    Ok(())
}

#[test]
fn memory_costs_no_more_events_after_a_refused_call() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    let chain = |x: &mut DeviceBuffer<u32>| -> Result<u64> {
        let before = device.driver_calls().expect("counted");
        for _ in 0..12 {
            b.in_scope(|| increment(&mut *x)).map(drop)?;
        }
        Ok(device.driver_calls().expect("counted").since(&before).event_records)
    };
    let usual = chain(&mut y)?;
    run_to_end(&device);
    wait(b.synchronize())?;
    sim(&device).inject(Fault::of_call(DriverCall::Launch, INVALID_VALUE));
    assert!(a.in_scope(|| increment(&mut x)).is_err());
    assert_eq!(chain(&mut x)?, usual);
    Ok(())
}

#[test]
fn the_queue_has_the_room_it_had() -> Result<()> {
    let device = stepped();
    let stream = device.stream();
    let mut x = device_buffer(&device, &[[0u32; 3]; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    stream.in_scope(|| increment(&mut y))?;
    assert_eq!(stream.in_flight(), 1);
    for code in [INVALID_VALUE, OUT_OF_MEMORY] {
        sim(&device).inject(Fault::of_call(DriverCall::Launch, code));
        assert!(stream.in_scope(|| increment(&mut y)).is_err());
        sim(&device).inject(Fault::of_call(DriverCall::Fill, code));
        assert!(stream.in_scope(|| x.fill([1, 2, 3])).is_err());
        assert_eq!(stream.in_flight(), 1);
    }
    sim(&device).inject(Fault::of_call(DriverCall::Fill, INVALID_VALUE).after(1));
    let partly = stream.in_scope(|| x.fill([1, 2, 3]));
    assert!(matches!(partly, Err(Error::PartlyRefused { .. })));
    assert_eq!(sim(&device).pending().len(), 2);
    assert_eq!(stream.in_flight(), 2);
    Ok(())
}

#[test]
fn zeros_whose_fill_is_refused_leave_no_memory() -> Result<()> {
    let device = stepped();
    sim(&device).inject(Fault::of_call(DriverCall::Fill, INVALID_VALUE));
    assert!(device.zeros::<u32>(64).is_err());
    run_to_end(&device);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn refused_calls_cost_no_events() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let st = device.stream();
    let before = device.driver_calls().expect("counted");
    sim(&device).inject(Fault::of_call(DriverCall::Launch, INVALID_VALUE).times(100));
    for _ in 0..100 {
        assert!(st.in_scope(|| increment(&mut x)).is_err());
    }
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!(calls.event_records, 0, "{calls:?}");
    Ok(())
}
