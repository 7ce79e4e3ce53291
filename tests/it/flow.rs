//! Limits to what is in flight on a device.

use std::task::Poll;

use headwater::sim::{DriverCall, Fault};
use headwater::{Device, DriverError, Error, InFlight, Result};

use crate::common::{pinned_buffer, poll_once, run_to_end, sim, stepped_with, wait};
use crate::kernels::increment;

const KIB: usize = 1 << 10;

/// A stepped device with a limit of 4 KiB in flight and one of three operations.
fn limited() -> Device {
    stepped_with(|builder| builder.in_flight_bytes(4 * KIB as u64).in_flight_operations(3))
}

fn told(device: &Device) -> (u64, u64) {
    let InFlight { bytes, operations, .. } = device.in_flight().expect("there is a limit");
    (bytes, operations)
}

#[test]
fn bytes_of_copies_are_bounded_over_all_streams_and_room_is_waited_for() -> Result<()> {
    let device = limited();
    let pinned = pinned_buffer(&device, &[1u8; 3 * KIB]);
    let (mut x, mut y) = (device.alloc::<u8>(3 * KIB)?, device.alloc::<u8>(3 * KIB)?);
    device.stream().in_scope(|| x.copy_from(&pinned))?;
    let refused = device.stream().in_scope(|| y.copy_from(&pinned));
    let Err(Error::TooMuchInFlight { what, in_flight, needed, limit, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((what, in_flight, needed, limit), ("bytes", 3072, 3072, 4096));
    assert_eq!((told(&device), sim(&device).pending().len()), ((3072, 1), 1));
    y.slice_mut(..KIB)?.copy_from(&pinned.slice(..KIB)?)?; // there is room for so much
    let mut ready = device.ready();
    assert!(poll_once(&mut ready).is_ready(), "what was refused last was taken since");

    assert!(y.copy_from(&pinned).is_err());
    let mut ready = device.ready();
    assert!(poll_once(&mut ready).is_pending());
    run_to_end(&device);
    wait(ready)?;
    wait(device.synchronize())?;
    y.copy_from(&pinned)?;
    assert_eq!(told(&device), (3072, 1));
    run_to_end(&device);
    Ok(())
}

#[test]
fn operations_are_bounded_over_all_streams() -> Result<()> {
    let device = limited();
    let mut xs = (0..4).map(|_| device.zeros::<u32>(64)).take(3).collect::<Result<Vec<_>>>()?;
    assert_eq!(told(&device), (0, 3));
    let refused = device.stream().in_scope(|| increment(&mut xs[0]));
    assert!(matches!(refused, Err(Error::TooMuchInFlight { what: "operations", .. })));
    let mut ready = device.ready();
    assert!(poll_once(&mut ready).is_pending());
    run_to_end(&device);
    assert!(matches!(wait(ready), Ok(())));
    increment(&mut xs[0])?;
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_is_larger_than_the_limit_goes_alone() -> Result<()> {
    let device = limited();
    let pinned = pinned_buffer(&device, &[1u8; 8 * KIB]);
    let mut x = device.alloc::<u8>(8 * KIB)?;
    x.copy_from(&pinned)?;
    assert!(x.copy_from(&pinned).is_err());
    let mut ready = device.ready();
    assert!(poll_once(&mut ready).is_pending());
    run_to_end(&device);
    wait(ready)?;
    x.copy_from(&pinned)?;
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_is_refused_otherwise_is_not_in_flight() -> Result<()> {
    let device = limited();
    let pinned = pinned_buffer(&device, &[1u8; 3 * KIB]);
    let mut x = device.alloc::<u8>(3 * KIB)?;
    sim(&device).inject(Fault::of_call(DriverCall::CopyH2D, DriverError::NOT_SUPPORTED));
    assert!(matches!(x.copy_from(&pinned), Err(Error::Refused { .. })));
    assert_eq!(told(&device), (0, 0));
    x.copy_from(&pinned)?;
    run_to_end(&device);
    Ok(())
}

#[test]
fn who_waits_for_room_hears_of_the_loss_of_the_device() -> Result<()> {
    let device = limited();
    let mut x = device.zeros::<u32>(1024)?;
    while increment(&mut x).is_ok() {}
    let mut ready = device.ready();
    assert!(poll_once(&mut ready).is_pending());
    sim(&device).fail(DriverError::LAUNCH_FAILED);
    assert!(matches!(wait(ready), Err(Error::DeviceLost(_))));
    Ok(())
}

#[test]
fn without_a_limit_there_is_always_room_and_nothing_is_counted() -> Result<()> {
    let device = stepped_with(|builder| builder);
    let mut x = device.zeros::<u32>(64)?;
    increment(&mut x)?;
    assert!(matches!(poll_once(&mut device.ready()), Poll::Ready(Ok(()))));
    assert_eq!(device.in_flight(), None);
    run_to_end(&device);
    Ok(())
}

/// Whatever its size: what it goes through is bounded by itself.
#[test]
fn ordinary_memory_is_not_counted() -> Result<()> {
    let device = stepped_with(|builder| builder.in_flight_bytes(4 * KIB as u64));
    let uploads: Vec<_> = (0..4).map(|i| device.upload(vec![i; 3 * KIB])).collect();
    assert_eq!(told(&device), (0, 0));
    run_to_end(&device);
    for (i, upload) in uploads.into_iter().enumerate() {
        let x = wait(upload)?;
        let back = x.to_vec();
        run_to_end(&device);
        assert_eq!(wait(back)?, vec![i as u8; 3 * KIB]);
    }
    Ok(())
}
