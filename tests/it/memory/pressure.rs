//! What is done when device memory runs out, step by step.

use std::task::Poll;

use headwater::sim::{DriverCall, Fault, Schedule, SimOptions};
use headwater::testing::assert_all_freed;
use headwater::{Device, DriverError, Error, MemoryStats, Result};

use super::{KIB, allocs, in_flight, is_out_of_memory, small};
use crate::common::{
    elements, last_waits, poll_once, run_to_end, sim, simulated_with, stepped, wait,
};

// pytorch#181191: a freed block that two streams had used was not to be had before the host had waited.
#[test]
fn under_pressure_memory_in_flight_is_used_again_behind_a_wait_on_the_device() -> Result<()> {
    let device = simulated_with(SimOptions::new().schedule(Schedule::Stepped), |builder| {
        builder.memory_limit(4 * KIB as u64)
    });
    let mut x = in_flight(&device, 4 * KIB)?;
    device.stream().in_scope(|| x.fill(1))?;
    drop(x);
    let y = in_flight(&device, 4 * KIB)?;
    assert!(last_waits(sim(&device)), "for both users of the memory");
    let MemoryStats { in_use, reserved_high_water, .. } = device.memory();
    assert_eq!((in_use, reserved_high_water, allocs(&device)), (4096, 4096, 1), "once the size");
    run_to_end(&device);
    assert_eq!(elements(&y), [0; 4096]);
    Ok(())
}

#[test]
fn memory_of_other_sizes_that_nobody_uses_is_given_back_where_there_is_no_more() -> Result<()> {
    let device = small(4 * KIB as u64);
    let kept: Vec<_> = (0..4).map(|_| in_flight(&device, KIB)).collect::<Result<_>>()?;
    run_to_end(&device);
    wait(device.synchronize())?;
    drop(kept);
    let x = device.zeros::<u8>(3 * KIB)?;
    let MemoryStats { in_use, cached, .. } = device.memory();
    assert_eq!((in_use, cached), (3072, 1024), "no more was given back than it takes");
    drop(x);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn memory_of_other_sizes_in_flight_is_given_back_behind_a_wait_where_there_is_no_more() -> Result<()>
{
    let device = small(4 * KIB as u64);
    let users: Vec<_> = (0..4).map(|_| in_flight(&device, KIB)).collect::<Result<_>>()?;
    drop(users);
    let x = in_flight(&device, 4 * KIB)?;
    assert!(last_waits(sim(&device)));
    run_to_end(&device);
    assert_eq!(elements(&x), [0; 4096]);
    Ok(())
}

#[test]
fn where_the_driver_refuses_for_want_of_memory_its_pool_is_trimmed_and_it_is_asked_again()
-> Result<()> {
    let device = stepped();
    let out = Fault::of_call(DriverCall::Alloc, DriverError::OUT_OF_MEMORY);
    sim(&device).inject(out.clone());
    drop(device.alloc::<u8>(KIB)?);
    let calls = device.driver_calls().expect("counted");
    assert_eq!((calls.pool_trims, calls.allocs), (1, 2));
    // And told, with what there is, where that does not help.
    drop(in_flight(&device, 2 * KIB)?);
    sim(&device).inject(out.always());
    let Err(Error::OutOfMemory { requested, free, in_flight, cached, limit, .. }) =
        device.alloc::<u8>(8 * KIB)
    else {
        panic!("it was refused")
    };
    assert_eq!((requested, in_flight, cached), (8192, 0, 0), "what was kept was given back");
    // The last free may not have run when the pool was trimmed.
    assert!(free.is_some_and(|free| free >= (16 << 30) - 3072), "{free:?}");
    assert_eq!(limit, 16 << 30);
    Ok(())
}

#[test]
fn a_refused_step_of_running_out_loses_no_memory() -> Result<()> {
    for call in
        [DriverCall::Free, DriverCall::PoolTrim, DriverCall::StreamWait, DriverCall::EventRecord]
    {
        let device = small(4 * KIB as u64);
        drop((0..4).map(|_| in_flight(&device, KIB)).collect::<Result<Vec<_>>>()?);
        sim(&device).inject(Fault::of_call(call, DriverError::NOT_SUPPORTED).always());
        let asked = device.alloc::<u8>(4 * KIB);
        sim(&device).clear_faults();
        let MemoryStats { in_flight, cached, in_use, .. } = device.memory();
        let granted = asked.is_ok();
        assert_eq!(in_flight + cached + in_use, 4096, "{call:?}: {granted}");
        drop(asked);
        assert!(in_flight_again(&device).is_ok(), "{call:?}");
        assert_all_freed(&device);
    }
    Ok(())
}

fn in_flight_again(device: &Device) -> Result<()> {
    run_to_end(device);
    let x = in_flight(device, 4 * KIB)?;
    run_to_end(device);
    assert_eq!(elements(&x), [0; 4096]);
    Ok(())
}

#[test]
fn what_can_never_be_is_refused_at_once_and_the_driver_is_not_asked() -> Result<()> {
    let device = small(4 * KIB as u64);
    let _x = device.alloc::<u8>(1)?;
    let before = allocs(&device);
    assert!(is_out_of_memory(device.alloc::<u8>(4 * KIB + 1)));
    let mut waiting = device.alloc_wait::<u8>(4 * KIB + 1);
    assert!(matches!(poll_once(&mut waiting), Poll::Ready(Err(Error::OutOfMemory { .. }))));
    let tenant = device.tenant(100);
    let mut waiting = tenant.in_scope(|| device.alloc_wait::<u8>(101));
    assert!(matches!(poll_once(&mut waiting), Poll::Ready(Err(Error::OverBudget { .. }))));
    assert_eq!(allocs(&device), before);
    Ok(())
}

#[test]
fn what_has_finished_since_it_was_looked_at_is_not_waited_for_under_pressure() -> Result<()> {
    let device = small(4 * KIB as u64);
    let mut x = device.stream().in_scope(|| device.alloc::<u8>(3 * KIB))?;
    let mut filled = device.stream().in_scope(|| x.fill(1))?;
    assert!(poll_once(&mut filled).is_pending(), "an event is recorded");
    run_to_end(&device); // of which nobody is told
    drop((filled, x));
    let waits = || device.driver_calls().expect("counted").stream_waits;
    let before = waits();
    let _y = in_flight(&device, 4 * KIB)?;
    assert_eq!(waits(), before);
    Ok(())
}

#[test]
fn what_nobody_uses_is_given_back_rather_than_what_is_in_flight() -> Result<()> {
    let device = small(4 * KIB as u64);
    let unused = in_flight(&device, 2 * KIB)?;
    run_to_end(&device);
    wait(device.synchronize())?;
    drop((unused, in_flight(&device, 1792)?));
    let _x = in_flight(&device, 1536)?;
    assert!(!last_waits(sim(&device)));
    Ok(())
}
