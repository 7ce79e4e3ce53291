//! Slices of buffers: the bytes that they are, and that only what touches the same ones is ordered.

use std::ops::Range;

use headwater::{Device, DeviceBuffer, Error, HostBuffer, Result};

use crate::common::{
    any_device, device_buffer, elements, last_op, last_waits, own_device, pinned_buffer, poll_once,
    run_to_end, sim, stepped, wait,
};
use crate::kernels::{copy_u32, increment};

fn counted(device: &Device, len: u32) -> DeviceBuffer<u32> {
    device_buffer(device, &(0..len).collect::<Vec<_>>())
}

#[test]
fn the_halves_of_a_buffer_are_two_tasks_for_the_device() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = counted(&device, 64);
    let (mut low, mut high) = x.split_at_mut(32)?;
    device.stream().in_scope(|| increment(&mut low))?;
    device.stream().in_scope(|| increment(&mut high))?;
    assert!(!last_waits(sim), "they have no element in common");
    device.stream().in_scope(|| increment(&mut x))?;
    assert!(last_waits(sim), "it touches both");
    assert_eq!(elements(&x), (2..66).collect::<Vec<_>>());
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_overlaps_by_one_element_is_ordered_and_what_meets_is_not() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = counted(&device, 64);
    let mut into = [device.zeros::<u32>(8)?, device.zeros::<u32>(8)?];
    run_to_end(&device);
    device.stream().in_scope(|| increment(x.slice_mut(16..32)?))?;
    for (range, expected) in [(8..16, false), (9..17, true), (31..39, true), (32..40, false)] {
        let to = &mut into[usize::from(expected)];
        device.stream().in_scope(|| copy_u32(x.slice(range.clone())?, to))?;
        assert_eq!(last_waits(sim), expected, "{range:?}");
        sim.run(last_op(sim).id); // if it can
    }
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_slice_of_a_slice_is_where_it_says_on_any_device() -> Result<()> {
    let device = any_device();
    let mut x = counted(&device, 100);
    let read = |x: &DeviceBuffer<u32>, range: Range<usize>| wait(x.slice(range)?.to_vec());
    assert_eq!(read(&x, 10..13)?, [10, 11, 12]);
    let inner = x.slice(10..)?.slice(5..=7)?;
    assert_eq!((inner.len(), wait(inner.to_vec())?), (3, vec![15, 16, 17]));
    let (before, after) = inner.split_at(1)?;
    assert_eq!((wait(before.to_vec())?, wait(after.to_vec())?), (vec![15], vec![16, 17]));

    let mut outer = x.slice_mut(20..60)?;
    let mut middle = outer.slice_mut(10..20)?;
    middle.fill(7)?;
    middle.as_slice_mut().slice_mut(..1)?.fill(8)?;
    assert_eq!(wait(middle.as_slice().to_vec())?, [8, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    increment(&mut outer)?;
    let expected = |i| match i {
        30 => 9,
        31..40 => 8,
        20..60 => i + 1,
        _ => i,
    };
    assert_eq!(elements(&x), (0..100).map(expected).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn one_half_is_copied_to_the_other_in_one_operation_on_one_buffer() -> Result<()> {
    let device = any_device();
    let mut x = counted(&device, 64);
    let (a, mut b) = x.split_at_mut(32)?;
    device.stream().in_scope(|| b.copy_from(&a))?;
    device.stream().in_scope(|| increment(&mut b))?;
    let (mut a, b) = x.split_at_mut(32)?;
    device.stream().in_scope(|| copy_u32(&b, &mut a))?;
    let half: Vec<_> = (1..33).collect();
    assert_eq!(elements(&x), [half.clone(), half].concat());
    Ok(())
}

#[test]
fn chunks_of_one_pinned_array_go_to_the_device_and_back_beside_each_other() -> Result<()> {
    let device = any_device();
    let len = 1_000;
    let source = pinned_buffer(&device, &(0..len).collect::<Vec<u32>>());
    let mut target = device.alloc_host::<u32>(len as usize)?;
    let mut x = device.alloc::<u32>(len as usize)?;
    let pieces = source.chunks(128)?.zip(x.chunks_mut(128)?).zip(target.chunks_mut(128)?);
    assert_eq!(pieces.len(), 8);
    for ((from, mut on_device), mut to) in pieces {
        let stream = device.stream();
        stream.in_scope(|| on_device.copy_from(&from))?;
        stream.in_scope(|| increment(&mut on_device))?;
        stream.in_scope(|| on_device.copy_to(&mut to))?;
    }
    assert_eq!(*wait(target.read())?, *(1..=len).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn copies_of_two_chunks_of_pinned_memory_are_not_ordered() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let x = counted(&device, 64);
    let mut out = pinned_buffer(&device, &[0u32; 128]);
    for mut chunk in out.chunks_mut(64)? {
        device.stream().in_scope(|| x.copy_to(&mut chunk))?;
        assert!(!last_waits(sim));
    }
    device.stream().in_scope(|| x.copy_to(&mut out.slice_mut(32..96)?))?;
    assert!(last_waits(sim));
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_guard_of_one_chunk_stays_while_the_device_copies_to_another() -> Result<()> {
    let device = stepped();
    let x = counted(&device, 64);
    let mut out = pinned_buffer(&device, &[9u32; 128]);
    let (mut mine, mut theirs) = out.split_at_mut(64)?;
    let mut guard = wait(mine.write())?;
    x.copy_to(&mut theirs)?;
    assert!(matches!(theirs.try_read(), Err(Error::InFlight { .. })));
    assert!(poll_once(&mut theirs.write()).is_pending());
    guard[0] = 1;
    sim(&device).run_all();
    guard[1] = 2;
    assert_eq!(*wait(theirs.read())?, *(0..64).collect::<Vec<_>>());
    assert_eq!(guard[..3], [1, 2, 9]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_read_of_one_chunk_does_not_await_copies_to_others() -> Result<()> {
    let device = stepped();
    let x = counted(&device, 64);
    let mut out = pinned_buffer(&device, &[9u32; 128]);
    x.copy_to(&mut out.slice_mut(64..)?)?;
    assert_eq!(*out.slice(..64)?.try_read()?, [9; 64]);
    assert_eq!(*wait(out.slice_mut(..64)?.write())?, [9; 64]);
    assert!(matches!(out.try_read(), Err(Error::InFlight { .. })));
    assert!(matches!(out.slice(63..65)?.try_read(), Err(Error::InFlight { .. })));
    run_to_end(&device);
    Ok(())
}

#[test]
fn writing_on_the_host_zeroes_what_nobody_wrote_and_keeps_the_rest() -> Result<()> {
    let device = any_device();
    drop(pinned_buffer(&device, &[0xDEAD_BEEF_u32; 64]));
    let mut out: HostBuffer<u32> = device.alloc_host(64)?;
    wait(out.slice_mut(8..16)?.write())?.fill(7);
    assert_eq!(*out.slice(8..16)?.try_read()?, [7; 8]);
    let unwritten = out.slice(8..17)?.try_read();
    assert!(matches!(unwritten, Err(Error::Uninitialised { range, .. }) if range == (64..68)));
    let all = out.try_write()?.to_vec();
    assert_eq!(all, [[0; 8], [7; 8]].concat().into_iter().chain([0; 48]).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn what_is_written_of_a_buffer_can_be_read_and_no_more() -> Result<()> {
    let device = any_device();
    let mut x = device.alloc::<u32>(64)?;
    x.slice_mut(16..32)?.fill(3)?;
    assert_eq!(wait(x.slice(16..32)?.to_vec())?, [3; 16]);
    let mut to = device.alloc::<u32>(17)?;
    for (slice, undefined) in [(16..33, 128..132), (15..32, 60..64)] {
        let refused = copy_u32(x.slice(slice)?, &mut to);
        let Err(Error::Uninitialised { range, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(range, undefined, "bytes of the buffer");
    }
    Ok(())
}

#[test]
#[allow(clippy::reversed_empty_ranges, reason = "it is what is given")]
fn a_range_that_is_not_within_is_refused_with_what_was_given_and_allowed() -> Result<()> {
    let device = own_device();
    let mut x = counted(&device, 64);
    let mut pinned = pinned_buffer(&device, &[0u32; 64]);
    let before = device.driver_calls();
    let out_of_range = |result: Result<()>| match result {
        Err(Error::OutOfRange { range, len, .. }) => (range, len),
        other => panic!("{other:?}"),
    };
    assert_eq!(out_of_range(x.slice(60..65).map(drop)), (60..65, 64));
    assert_eq!(out_of_range(x.slice(5..4).map(drop)), (5..4, 64));
    assert_eq!(out_of_range(x.slice_mut(64..=64).map(drop)), (64..65, 64));
    assert_eq!(out_of_range(x.split_at(65).map(drop)), (0..65, 64));
    assert_eq!(out_of_range(x.split_at_mut(65).map(drop)), (0..65, 64));
    assert_eq!(out_of_range(x.slice(8..16)?.slice(..9).map(drop)), (0..9, 8));
    assert_eq!(out_of_range(pinned.slice(..=usize::MAX).map(drop)), (0..usize::MAX, 64));
    assert_eq!(out_of_range(pinned.split_at_mut(65).map(drop)), (0..65, 64));
    assert!(matches!(x.chunks(0), Err(Error::EmptyPieces)));
    assert!(matches!(x.chunks_mut(0), Err(Error::EmptyPieces)));
    assert!(matches!(pinned.chunks_mut(0), Err(Error::EmptyPieces)));
    assert_eq!(device.driver_calls(), before);
    Ok(())
}

#[test]
fn a_slice_without_elements_is_nothing_to_do() -> Result<()> {
    let device = own_device();
    let mut x = device.alloc::<u32>(64)?;
    let mut pinned = device.alloc_host::<u32>(64)?;
    let before = device.driver_calls();
    let (mut none, mut all) = x.split_at_mut(0)?;
    assert!(
        none.is_empty() && none.fill(1)?.is_finished()? && increment(&mut none)?.is_finished()?
    );
    assert!(all.slice_mut(64..)?.copy_from(&none)?.is_finished()?);
    assert!(none.copy_to(&mut pinned.slice_mut(3..3)?)?.is_finished()?);
    assert_eq!(*pinned.slice(64..)?.try_read()?, [], "nothing has written the buffer");
    assert_eq!(wait(none.to_vec())?, []);
    assert_eq!(all.chunks(usize::MAX)?.count(), 1);
    assert_eq!(none.chunks_mut(3)?.count(), 0);
    assert_eq!(device.driver_calls(), before);
    Ok(())
}

#[test]
fn lengths_of_slices_that_differ_are_refused() -> Result<()> {
    let device = any_device();
    let mut x = counted(&device, 64);
    let source = counted(&device, 64);
    let refused = x.slice_mut(..3)?.copy_from(&source.slice(..4)?);
    let Err(Error::LengthMismatch { source_len, destination_len, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((source_len, destination_len), (4, 3));
    Ok(())
}
