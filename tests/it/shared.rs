//! Frozen device memory: readers are not noted, wait for its writers only, and are waited for.

use std::sync::Arc;

use headwater::{Device, DeviceBuffer, Error, Result, SharedBuffer};

use crate::common::{
    any_device, device_buffer, elements, last_waits, own_device, pinned_buffer, run_to_end, sim,
    step_through, stepped, stepped_with, wait,
};
use crate::kernels::{copy_u32, increment, sum_rows};

fn frees(device: &Device) -> u64 {
    device.driver_calls().expect("counted").frees
}

fn elements_of(device: &Device, shared: &SharedBuffer<u32>) -> Vec<u32> {
    let elements = shared.to_vec();
    step_through(device);
    wait(elements).expect("reading back")
}

/// 64 times 7, written by an operation that has not run.
fn unfinished(device: &Device) -> Result<DeviceBuffer<u32>> {
    let mut x = device.alloc(64)?;
    device.stream().in_scope(|| x.fill(7))?;
    Ok(x)
}

#[test]
fn tasks_that_share_weights_read_them_at_a_time() -> Result<()> {
    let device = any_device();
    let weights = device_buffer(&device, &[7u32; 1_000]).into_shared();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (weights, device) = (weights.clone(), device.clone());
            std::thread::spawn(move || {
                let mut x = device.alloc(1_000)?;
                copy_u32(&weights, &mut x)?;
                increment(&mut x)?;
                x.slice_mut(..500)?.copy_from(&weights.slice(500..)?)?;
                Ok::<_, Error>(x)
            })
        })
        .collect();
    for worker in workers {
        let x = worker.join().unwrap()?;
        assert_eq!(elements(&x), [[7; 500], [8; 500]].concat());
    }
    assert_eq!(wait(weights.to_vec())?, [7; 1_000]);
    Ok(())
}

#[test]
fn a_kernel_and_a_copy_read_an_arc_of_whatever_they_read() -> Result<()> {
    let device = any_device();
    let weights = Arc::new(device_buffer(&device, &[1u32; 8]));
    let parts = device_buffer(&device, &[2u32; 8]).into_parts(1).map_err(|e| e.error)?;
    let part = Arc::new(parts.into_iter().next().expect("one"));
    let shared = Arc::new(device_buffer(&device, &[3u32; 8]).into_shared());
    let slice = Arc::new(weights.slice(4..)?);
    let tile = Arc::new(weights.as_matrix(2)?);
    let mut x = device.zeros::<u32>(28)?;
    let mut chunks = x.chunks_mut(8)?;
    let mut next = || chunks.next().expect("of 28");
    let (mut a, mut b, mut c, mut d) = (next(), next(), next(), next());
    copy_u32(&weights, &mut a)?;
    copy_u32(&part, &mut b)?;
    copy_u32(&shared, &mut c)?;
    copy_u32(&slice, &mut d)?;
    sum_rows(&tile, d.as_matrix_mut(1)?)?;
    assert_eq!(elements(&x), [[1; 8].as_slice(), &[2; 8], &[3; 8], &[2; 4]].concat());
    let mut chunks = x.chunks_mut(8)?;
    let mut next = || chunks.next().expect("of 28");
    next().copy_from(&part)?;
    next().copy_from(&shared)?;
    next().copy_from(&weights)?;
    next().copy_from(&slice)?;
    assert_eq!(elements(&x), [[2; 8].as_slice(), &[3; 8], &[1; 12]].concat());
    Ok(())
}

#[test]
fn a_read_waits_on_the_device_for_writers_that_are_not_known_to_be_finished() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let weights = unfinished(&device)?.into_shared();
    let mut y = device.alloc(64)?;
    device.stream().in_scope(|| copy_u32(&weights, &mut y))?;
    assert!(last_waits(sim), "the fill has not run");
    sim.step();
    assert!(!last_waits(sim));
    assert_eq!(elements(&y), [7; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn readers_of_settled_memory_take_no_wait() -> Result<()> {
    let device = own_device();
    let calls = || device.driver_calls().expect("counted");
    let weights = device_buffer(&device, &[7u32; 64]).into_shared();
    let streams: Vec<_> = (0..4).map(|_| device.stream()).collect();
    let mut copies = Vec::new();
    let before = calls();
    for stream in &streams {
        let mut x = stream.in_scope(|| device.alloc::<u32>(64))?;
        stream.in_scope(|| copy_u32(&weights, &mut x))?;
        copies.push(x);
    }
    assert_eq!(calls().since(&before).stream_waits, 0);
    for x in &copies {
        assert_eq!(elements(x), [7; 64]);
    }
    Ok(())
}

#[test]
fn memory_is_freed_after_every_reader() -> Result<()> {
    let device = stepped_with(|builder| builder.keep_memory(false));
    let sim = sim(&device);
    let weights = device_buffer(&device, &[7u32; 64]).into_shared();
    let mut copies = [device.alloc::<u32>(64)?, device.alloc::<u32>(64)?];
    for (x, weights) in copies.iter_mut().zip([weights.clone(), weights]) {
        device.stream().in_scope(|| copy_u32(&weights, x))?;
        assert!(!last_waits(sim), "nothing conflicts");
    }
    assert_eq!(frees(&device), 1, "with the last handle");
    run_to_end(&device);
    for x in &copies {
        assert_eq!(elements(x), [7; 64]);
    }
    run_to_end(&device);
    Ok(())
}

#[test]
fn the_last_handle_becomes_a_buffer_whose_writers_wait_for_every_reader() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let weights = device_buffer(&device, &[7u32; 64]).into_shared();
    let other = weights.clone();
    let weights = weights.try_into_buffer().expect_err("there is another handle");
    drop(other);
    let mut copies = [device.alloc::<u32>(64)?, device.alloc::<u32>(64)?];
    for x in &mut copies {
        device.stream().in_scope(|| copy_u32(&weights, x))?;
    }
    let mut x = weights.try_into_buffer().expect("the last handle");
    device.stream().in_scope(|| x.fill(8))?;
    for _ in 0..2 {
        assert!(last_waits(sim), "it would write what a reader has not read");
        sim.step();
    }
    assert!(!last_waits(sim));
    for copy in &copies {
        assert_eq!(elements(copy), [7; 64]);
    }
    assert_eq!(elements(&x), [8; 64]);
    let again = x.into_shared();
    assert_eq!(elements_of(&device, &again)[..2], [8, 8]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_read_before_it_was_shared_is_waited_for_by_the_free() -> Result<()> {
    let device = stepped();
    let x = device_buffer(&device, &[7u32; 64]);
    let mut y = device.alloc::<u32>(64)?;
    device.stream().in_scope(|| copy_u32(&x, &mut y))?;
    drop(x.into_shared());
    run_to_end(&device);
    assert_eq!(elements(&y), [7; 64]);
    Ok(())
}

#[test]
fn memory_that_nobody_wrote_cannot_be_read_by_sharing_it() -> Result<()> {
    let device = any_device();
    let mut x = device.alloc::<u32>(64)?;
    x.slice_mut(..32)?.fill(1)?;
    let shared = x.into_shared();
    assert_eq!(wait(shared.slice(..32)?.to_vec())?, [1; 32]);
    for _ in 0..2 {
        let read = wait(shared.to_vec());
        assert!(matches!(read, Err(Error::Uninitialised { .. })), "{read:?}");
    }
    Ok(())
}

#[test]
fn shared_memory_is_read_in_rows_and_copied_to_the_host() -> Result<()> {
    let device = any_device();
    let weights = device_buffer(&device, &(0..12).collect::<Vec<u32>>()).into_shared();
    assert_eq!(wait(weights.as_matrix(4)?.row(1)?.to_vec())?, [4, 5, 6, 7]);
    let mut out = pinned_buffer(&device, &[0u32; 12]);
    weights.copy_to(&mut out)?;
    assert_eq!(wait(out.read())?[11], 11);
    assert!(device.alloc::<u32>(0)?.into_shared().try_into_buffer().is_ok());
    Ok(())
}
