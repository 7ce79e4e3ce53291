//! Copies from one place of a buffer to another.

use headwater::DeviceSlice;
use headwater::DriverError;
use headwater::sim::{DriverCall, Fault};

use super::*;

#[test]
fn elements_are_copied_within_a_buffer_as_within_a_slice() -> Result<()> {
    for device in devices() {
        for (src, dest) in [
            (0..10, 20),
            (20..30, 0),
            (0..20, 10), // they meet, and that is all
            (10..30, 0),
            (0..20, 19),
            (5..25, 6),
            (6..26, 5),
            (3..37, 3),
            (4..4, 40),
            (0..40, 0),
        ] {
            let mut expected = values::<[u8; 3]>(40, 1);
            let mut x = device_buffer(&device, &expected);
            expected.copy_within(src.clone(), dest);
            x.copy_within(src.clone(), dest)?;
            assert_eq!(elements(&x), expected, "{src:?} to {dest}");
        }
        let mut x = device_buffer(&device, &[0u32, 1, 2, 3, 4, 5, 6, 7]);
        x.slice_mut(2..)?.copy_within(1..4, 2)?;
        assert_eq!(elements(&x), [0, 1, 2, 3, 3, 4, 5, 7]);
        let mut parts = x.into_parts(2).map_err(|refused| refused.error)?;
        parts[1].copy_within(..=2, 1)?;
        assert_eq!(elements(&DeviceBuffer::rejoin(parts).map_err(|e| e.error)?)[4..], [3, 3, 4, 5]);
        if let Some(sim) = device.simulator() {
            assert_eq!(sim.violations(), []);
        }
    }
    Ok(())
}

#[test]
fn a_copy_within_a_buffer_is_one_call_unless_it_overlaps() -> Result<()> {
    let device = own_device();
    let mut x = device.zeros::<u32>(64)?;
    let mut calls = |src: Range<usize>, dest| {
        let before = device.driver_calls().expect("counted");
        let done = x.copy_within(src, dest)?;
        let calls = device.driver_calls().expect("counted").since(&before);
        wait(done)?;
        Ok::<_, Error>((calls.copies, calls.allocs))
    };
    assert_eq!(calls(0..32, 32)?, (1, 0));
    assert_eq!(calls(33..64, 2)?, (1, 0));
    assert_eq!(calls(5..5, 64)?, (0, 0));
    assert_eq!(calls(0..32, 31)?.0, 2);
    Ok(())
}

#[test]
fn a_copy_within_a_buffer_that_is_out_of_range_is_refused_and_does_nothing() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[7u32; 8]);
    let refused = |copied: Result<_>| match copied {
        Err(Error::OutOfRange { what: "elements", range, len: 8, .. }) => range,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(x.copy_within(2..9, 0)), 2..9);
    assert_eq!(refused(x.copy_within(2..6, 5)), 5..9);
    assert_eq!(refused(x.copy_within(2..6, usize::MAX)), usize::MAX..usize::MAX);
    assert_eq!(refused(x.copy_within(8..8, 9)), 9..9);
    assert_eq!(sim(&device).pending(), []);
    let mut y = device.alloc::<u32>(8)?;
    y.slice_mut(..4)?.fill(1)?;
    assert!(matches!(y.copy_within(2..6, 0), Err(Error::Uninitialised { .. })));
    assert!(matches!(y.copy_within(2..6, 3), Err(Error::Uninitialised { .. })));
    Ok(())
}

/// One operation of two calls: taken or refused as a whole, also at the limits.
#[test]
fn an_overlapping_copy_within_a_buffer_is_admitted_once() -> Result<()> {
    let device = simulated_with(SimOptions::new().schedule(Schedule::Stepped), |builder| {
        builder.in_flight_operations(4)
    });
    let mut x = device_buffer(&device, &(0..100u8).collect::<Vec<_>>());
    wait(device.synchronize())?;
    let mut y = device.zeros::<u8>(1)?;
    y.fill(1)?;
    y.fill(2)?;
    let refused = x.copy_within(0..50, 10);
    assert!(matches!(refused, Err(Error::TooMuchInFlight { needed: 2, .. })), "{refused:?}");
    assert_eq!(sim(&device).pending().len(), 3, "nothing of it");
    run_to_end(&device);
    wait(device.ready())?;
    x.copy_within(0..50, 10)?;
    run_to_end(&device);
    let mut expected: Vec<u8> = (0..100).collect();
    expected.copy_within(0..50, 10);
    assert_eq!(elements(&x), expected);
    // Of which the driver refuses the second, after the first was taken.
    sim(&device).inject(Fault::of_call(DriverCall::CopyD2D, DriverError::NOT_SUPPORTED).after(1));
    assert!(matches!(x.copy_within(0..50, 10), Err(Error::PartlyRefused { .. })));
    run_to_end(&device);
    assert!(matches!(wait(x.slice(10..60)?.to_vec()), Err(Error::Uninitialised { .. })));
    assert_eq!(elements_of(&device, x.slice(..10)?), expected[..10]);
    Ok(())
}

fn elements_of(device: &Device, x: DeviceSlice<'_, u8>) -> Vec<u8> {
    let read = x.to_vec();
    step_through(device);
    wait(read).expect("it is written")
}
