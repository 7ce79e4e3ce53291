//! Copies from pinned memory to pinned memory: the host makes them, when nothing is in the way.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::{future::Future, pin::Pin};

use headwater::{Error, Result};

use crate::common::{
    Wakes, any_device, device_buffer, eager, pinned_buffer, poll_once, run_to_end, sim, stepped,
    wait,
};

/// More than four polls copy.
const LONG: usize = 1 << 18;

#[test]
fn a_copy_on_the_host_awaits_what_writes_its_source_and_what_touches_its_target() -> Result<()> {
    let device = stepped();
    let x = device_buffer(&device, &[7u32; 8]);
    let (mut from, mut to) = (pinned_buffer(&device, &[0; 8]), pinned_buffer(&device, &[1u32; 8]));
    let mut y = device.alloc::<u32>(8)?;
    x.copy_to(&mut from)?;
    device.stream().in_scope(|| y.copy_from(&to))?;
    let mut copy = to.copy_from_host(&from);
    for _ in 0..2 {
        assert!(poll_once(&mut copy).is_pending());
        sim(&device).step();
    }
    wait(copy)?;
    assert_eq!(*to.try_read()?, [7; 8]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_copy_of_a_block_on_the_host_awaits_what_is_in_flight_on_any_of_its_planes() -> Result<()> {
    let device = stepped();
    let x = device_buffer(&device, &[7u32; 64]);
    let (mut from, mut to) =
        (pinned_buffer(&device, &[0u32; 64]), pinned_buffer(&device, &[0; 64]));
    from.as_volume_mut(4, 4)?.plane_mut(2)?.row_mut(2)?.copy_from(&x.slice(..4)?)?;
    let volume = from.as_volume(4, 4)?;
    for (block, waits) in [
        (volume.block(..3, 1..3, 1..3)?, true),
        (volume.block(.., 2..3, ..1)?, true),
        (volume.block(..2, .., ..)?, false),
        (volume.block(.., ..2, ..)?, false),
        (volume.block(2.., 3.., ..)?, false),
    ] {
        let mut target = to.slice_mut(..block.planes() * block.rows() * block.columns())?;
        let polled = poll_once(&mut target.copy_from_host(&block));
        assert_eq!(polled.is_pending(), waits, "{block:?}");
    }
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_copy_on_the_host_does_not_wait_for_readers_of_its_source() -> Result<()> {
    let device = stepped();
    let (from, mut to) = (pinned_buffer(&device, &[7u32; 8]), device.alloc_host::<u32>(8)?);
    device.alloc::<u32>(8)?.copy_from(&from)?;
    assert!(matches!(poll_once(&mut to.copy_from_host(&from)), Poll::Ready(Ok(()))));
    assert_eq!(*to.try_read()?, [7; 8]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_long_copy_on_the_host_gives_way_to_others_and_ends() -> Result<()> {
    let device = any_device();
    let values: Vec<u32> = (0..LONG as u32).collect();
    let (from, mut to) = (pinned_buffer(&device, &values), device.alloc_host::<u32>(LONG)?);
    let mut copy = to.copy_from_host(&from);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut polls = 1;
    while Pin::new(&mut copy).poll(&mut Context::from_waker(&waker)).is_pending() {
        assert_eq!(wakes.count(), polls, "it asks to be polled again");
        polls += 1;
    }
    assert_eq!(polls, 4);
    assert!(*to.try_read()? == values);
    Ok(())
}

#[test]
fn a_copy_on_the_host_that_is_dropped_has_copied_the_first_elements_only() -> Result<()> {
    let device = any_device();
    let (from, mut to) =
        (pinned_buffer(&device, &[7u32; LONG]), pinned_buffer(&device, &[1; LONG]));
    assert!(poll_once(&mut to.copy_from_host(&from)).is_pending());
    let copied = to.try_read()?.iter().take_while(|x| **x == 7).count();
    assert_eq!(copied, LONG / 4);
    assert!(to.try_read()?[copied..].iter().all(|x| *x == 1));
    // Of memory that nothing has written, nothing is to be seen either.
    let mut new = device.alloc_host::<u32>(LONG)?;
    assert!(poll_once(&mut new.copy_from_host(&from)).is_pending());
    assert!(matches!(new.try_read(), Err(Error::Uninitialised { .. })));
    let mut never_polled = new.slice_mut(..4)?;
    drop(never_polled.copy_from_host(&from.slice(..4)?));
    assert!(matches!(never_polled.try_read(), Err(Error::Uninitialised { .. })));
    Ok(())
}

#[test]
fn what_a_copy_on_the_host_cannot_copy_is_told_and_nothing_is_copied() -> Result<()> {
    let device = any_device();
    let (from, mut to) = (pinned_buffer(&device, &[7u32; 12]), pinned_buffer(&device, &[1u32; 12]));
    let told = wait(to.copy_from_host(&from.slice(..5)?));
    let (source_len, destination_len) = match told {
        Err(Error::LengthMismatch { source_len, destination_len, .. }) => {
            (source_len, destination_len)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((source_len, destination_len), (5, 12));
    let told = wait(to.as_matrix_mut(3)?.copy_from_host(&from.as_volume(2, 3)?));
    assert!(matches!(told, Err(Error::ShapeMismatch { .. })), "{told:?}");
    let mut half = device.alloc_host::<u32>(12)?;
    wait(half.slice_mut(..6)?.copy_from_host(&from.slice(..6)?))?;
    let told = wait(to.copy_from_host(&half));
    assert!(matches!(told, Err(Error::Uninitialised { range, .. }) if range == (24..48)));
    assert_eq!(*to.try_read()?, [1; 12]);
    Ok(())
}

#[test]
fn pinned_memory_of_one_device_is_copied_to_that_of_another() -> Result<()> {
    let (one, other) = (any_device(), eager());
    let x = device_buffer(&one, &(0..24).collect::<Vec<u32>>());
    let (mut from, mut to) = (one.alloc_host::<u32>(24)?, other.alloc_host::<u32>(6)?);
    x.copy_to(&mut from)?;
    let mut y = other.alloc::<u32>(6)?;
    wait(to.copy_from_host(&Arc::new(from.as_matrix(4)?.column(1)?)))?;
    y.copy_from(&to)?;
    assert_eq!(wait(y.to_vec())?, [1, 5, 9, 13, 17, 21]);
    Ok(())
}
