//! Parts of buffers: owned by whoever works on them, rejoined in any order, freed after the last use.

use headwater::{
    Device, DeviceBuffer, DevicePart, Error, HostBuffer, NotDivided, NotRejoined, Result,
};

use crate::common::{
    any_device, device_buffer, elements, last_waits, own_device, pinned_buffer, run_to_end, sim,
    stepped, stepped_with, wait,
};
use crate::kernels::{copy_u32, increment};

fn counted(device: &Device, len: u32) -> DeviceBuffer<u32> {
    device_buffer(device, &(0..len).collect::<Vec<_>>())
}

fn rejoined(parts: Vec<DevicePart<u32>>) -> Result<DeviceBuffer<u32>> {
    DeviceBuffer::rejoin(parts).map_err(|refused| refused.error)
}

fn frees(device: &Device) -> u64 {
    device.driver_calls().expect("counted").frees
}

#[test]
fn parts_go_to_threads_that_borrow_nothing_and_come_back() -> Result<()> {
    let device = any_device();
    let workers =
        counted(&device, 1_000).into_parts(4).map_err(|refused| refused.error)?.into_iter().map(
            |mut part| {
                std::thread::spawn(move || {
                    increment(&mut part)?;
                    part.slice_mut(..1)?.fill(7)?;
                    Ok::<_, Error>(part)
                })
            },
        );
    let workers: Vec<_> = workers.collect();
    let parts: Result<Vec<_>> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    let mut x = rejoined(parts?)?;
    increment(&mut x)?;
    let expected = |i: u32| if i.is_multiple_of(250) { 8 } else { i + 2 };
    assert_eq!(elements(&x), (0..1_000).map(expected).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn parts_are_not_ordered_with_each_other_and_the_whole_is_with_each() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut parts = counted(&device, 64).into_chunks(16).map_err(|refused| refused.error)?;
    for part in &mut parts {
        device.stream().in_scope(|| increment(part))?;
        assert!(!last_waits(sim));
    }
    parts.swap(0, 3);
    let mut x = rejoined(parts)?;
    device.stream().in_scope(|| increment(&mut x))?;
    for _ in 0..4 {
        assert!(last_waits(sim), "a part's operation has not run");
        sim.step();
    }
    assert!(!last_waits(sim));
    assert_eq!(elements(&x), (2..66).collect::<Vec<_>>());
    run_to_end(&device);
    Ok(())
}

#[test]
fn lengths_of_parts_differ_by_one_at_most_and_chunks_are_as_long_as_asked() -> Result<()> {
    let device = any_device();
    let lengths = |parts: &[DevicePart<u32>]| parts.iter().map(DevicePart::len).collect::<Vec<_>>();
    let parts = counted(&device, 10).into_parts(4).map_err(|refused| refused.error)?;
    assert_eq!(lengths(&parts), [3, 3, 2, 2]);
    assert_eq!(parts[2].range(), 6..8);
    let parts = rejoined(parts)?.into_chunks(4).map_err(|refused| refused.error)?;
    assert_eq!(lengths(&parts), [4, 4, 2]);
    let parts = rejoined(parts)?.into_parts(12).map_err(|refused| refused.error)?;
    assert_eq!(lengths(&parts)[9..], [1, 0, 0]);
    assert_eq!(elements(&rejoined(parts)?), (0..10).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_part_is_split_and_a_range_past_its_end_leaves_it_as_it_is() -> Result<()> {
    let device = any_device();
    let mut parts = counted(&device, 10).into_parts(1).map_err(|refused| refused.error)?;
    let mut tail = parts[0].split_off(4)?;
    parts.push(tail.split_off(6)?);
    let refused = tail.split_off(7);
    let Err(Error::OutOfRange { range, len, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!([range.start, range.end, len], [7, 6, 6]);
    parts.push(tail);
    let ranges: Vec<_> = parts.iter().map(DevicePart::range).collect();
    assert_eq!(ranges, [0..4, 10..10, 4..10]);
    increment(&mut parts[2])?;
    let x = rejoined(parts)?;
    assert_eq!(elements(&x), [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]);
    Ok(())
}

#[test]
fn parts_that_are_not_all_of_one_buffer_are_given_back_with_the_reason() -> Result<()> {
    let device = own_device();
    let mut one = counted(&device, 10).into_parts(3).map_err(|refused| refused.error)?;
    let mut other = counted(&device, 12).into_parts(3).map_err(|refused| refused.error)?;

    one.extend(other.pop());
    let NotRejoined { mut parts, error } = DeviceBuffer::rejoin(one).expect_err("of two buffers");
    assert!(matches!(error, Error::PartsOfSeveral { .. }), "{error}");
    assert_eq!(parts.len(), 4);
    let stranger = parts.iter().position(|part| part.range() == (8..12)).expect("given back");
    other.push(parts.remove(stranger));

    let last = parts.iter().position(|part| part.range() == (7..10)).expect("given back");
    let last = parts.remove(last);
    let NotRejoined { mut parts, error } = DeviceBuffer::rejoin(parts).expect_err("one is missing");
    let Error::PartsMissing { elements: missing, len, .. } = error else { panic!("{error}") };
    assert_eq!((missing, len, parts.len()), (7..10, 10, 2));
    parts.push(last);

    // What is given back is as good as before.
    assert_eq!(elements(&rejoined(parts)?), (0..10).collect::<Vec<_>>());
    assert_eq!(elements(&rejoined(other)?), (0..12).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn an_error_of_rejoining_has_one_of_the_crate_for_its_text() {
    let none = DeviceBuffer::<u32>::rejoin([]).expect_err("there are none");
    assert_eq!(none.to_string(), Error::NoParts.to_string());
    let as_error: Box<dyn std::error::Error> = Box::new(none);
    assert!(as_error.to_string().contains("no parts"));
}

#[test]
fn a_part_without_elements_is_missed_too() -> Result<()> {
    let device = any_device();
    let mut parts = counted(&device, 2).into_parts(3).map_err(|refused| refused.error)?;
    let empty = parts.pop().expect("three");
    let NotRejoined { mut parts, error } = DeviceBuffer::rejoin(parts).expect_err("one is missing");
    assert!(
        matches!(error, Error::PartsMissing { ref elements, .. } if *elements == (2..2)),
        "{error}"
    );
    parts.push(empty);
    assert_eq!(elements(&rejoined(parts)?), [0, 1]);
    // One that is dropped is missed by nobody.
    let mut parts = counted(&device, 2).into_parts(3).map_err(|refused| refused.error)?;
    drop(parts.pop());
    assert_eq!(elements(&rejoined(parts)?), [0, 1]);
    Ok(())
}

#[test]
fn no_parts_and_parts_of_no_elements_are_refused_and_the_buffer_is_given_back() -> Result<()> {
    let device = own_device();
    let NotDivided { buffer, error } = counted(&device, 2).into_parts(0).expect_err("none");
    assert!(matches!(error, Error::EmptyPieces), "{error}");
    let NotDivided { buffer, error } = buffer.into_chunks(0).expect_err("without elements");
    assert!(matches!(error, Error::EmptyPieces), "{error}");
    let NotDivided { buffer, error } = buffer.into_parts(usize::MAX).expect_err("too many");
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!((elements(&buffer), frees(&device)), (vec![0, 1], 0));
    let refused = device.alloc_host::<u32>(3)?.into_parts(0).expect_err("none");
    assert_eq!((refused.to_string(), refused.buffer.len()), (Error::EmptyPieces.to_string(), 3));
    Ok(())
}

#[test]
fn a_buffer_without_elements_is_dealt_out_and_rejoined() -> Result<()> {
    let device = any_device();
    let nothing = device.alloc::<u32>(0)?;
    let parts = nothing.into_parts(2).map_err(|refused| refused.error)?;
    assert_eq!(parts.len(), 2);
    let parts = rejoined(parts)?.into_chunks(5).map_err(|refused| refused.error)?;
    assert_eq!((parts.len(), parts[0].len()), (1, 0));
    assert!(rejoined(parts)?.is_empty());
    Ok(())
}

#[test]
fn memory_is_freed_with_the_last_part_after_every_use_of_any() -> Result<()> {
    let device = stepped_with(|builder| builder.keep_memory(false));
    let sim = sim(&device);
    let mut parts = counted(&device, 64).into_parts(2).map_err(|refused| refused.error)?;
    for part in &mut parts {
        device.stream().in_scope(|| increment(part))?;
    }
    let forgotten = parts.pop();
    drop(parts);
    assert_eq!(frees(&device), 0, "a part is left");
    drop(forgotten);
    assert_eq!(frees(&device), 1);
    assert_eq!(sim.pending().iter().filter(|op| op.runnable).count(), 2);
    run_to_end(&device);
    assert_eq!(sim.violations(), []);
    Ok(())
}

#[test]
fn a_part_that_is_forgotten_keeps_the_memory() -> Result<()> {
    let device = own_device();
    let mut parts = counted(&device, 64).into_parts(2).map_err(|refused| refused.error)?;
    std::mem::forget(parts.pop());
    let refused = DeviceBuffer::rejoin(parts);
    assert!(matches!(refused, Err(NotRejoined { error: Error::PartsMissing { .. }, .. })));
    drop(refused);
    assert_eq!(frees(&device), 0);
    Ok(())
}

#[test]
fn parts_of_pinned_memory_are_dealt_out_as_those_of_device_memory() -> Result<()> {
    let device = any_device();
    let source = pinned_buffer(&device, &(0..1_000).collect::<Vec<u32>>());
    let x = device.alloc::<u32>(1_000)?;
    let workers = source
        .into_chunks(300)
        .map_err(|refused| refused.error)?
        .into_iter()
        .zip(x.into_chunks(300).map_err(|refused| refused.error)?);
    let workers: Vec<_> = workers
        .map(|(mut pinned, mut part)| {
            std::thread::spawn(move || {
                part.copy_from(&pinned)?;
                increment(&mut part)?;
                part.copy_to(&mut pinned)?;
                let first = wait(pinned.slice(..1)?.read())?[0];
                pinned.blocking_write()?[0] = 2 * first;
                Ok::<_, Error>(pinned)
            })
        })
        .collect();
    let parts: Result<Vec<_>> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    let all = HostBuffer::rejoin(parts?).map_err(|refused| refused.error)?;
    let expected = |i: u32| if i.is_multiple_of(300) { 2 * i + 2 } else { i + 1 };
    assert_eq!(*all.try_read()?, *(0..1_000).map(expected).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_kernel_takes_parts_and_views_of_them() -> Result<()> {
    let device = any_device();
    let mut parts = counted(&device, 8).into_parts(2).map_err(|refused| refused.error)?;
    let [low, high] = &mut parts[..] else { panic!("two") };
    copy_u32(&*low, &mut *high)?;
    copy_u32(low.slice(..2)?, high.slice_mut(2..)?)?;
    let rows = high.as_matrix(2)?;
    assert_eq!(wait(rows.column(1)?.to_vec())?, [1, 1]);
    assert_eq!(elements(&rejoined(parts)?), [0, 1, 2, 3, 0, 1, 0, 1]);
    Ok(())
}
