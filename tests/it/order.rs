//! What conflicts is ordered on the device, what does not is not, and the host waits for neither.

use headwater::Result;
use headwater::sim::{SimOpKind, SimSpan};

use crate::common::{
    any_device, device_buffer, elements, is_runnable, last_op, own_device, pinned_buffer,
    run_to_end, sim, stepped, stepped_and_slow, wait,
};
use crate::kernels::{copy_u32, increment};

fn span(spans: &[SimSpan], id: u64) -> &SimSpan {
    spans.iter().find(|span| span.id == id).expect("it has run")
}

fn overlap(a: &SimSpan, b: &SimSpan) -> bool {
    a.start < b.end && b.start < a.end
}

#[test]
fn a_reader_on_another_stream_waits_on_the_device_while_the_host_runs_ahead() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let (a, b) = (device.stream(), device.stream());
    let mut x = device.alloc::<u32>(64)?;
    let mut y = device.alloc::<u32>(64)?;

    a.in_scope(|| x.fill(7))?;
    let write = last_op(sim);
    b.in_scope(|| copy_u32(&x, &mut y))?;
    let read = last_op(sim);

    assert_eq!(sim.timeline(), [], "both calls returned and nothing has run");
    assert_ne!(write.stream, read.stream);
    assert!(is_runnable(sim, write.id));
    assert!(!is_runnable(sim, read.id), "it would read too early");
    assert_eq!(sim.run(read.id), None);
    sim.run(write.id);
    assert!(is_runnable(sim, read.id));
    assert_eq!(elements(&y), [7; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn the_bytes_of_a_chain_across_streams_are_right_on_any_device() -> Result<()> {
    let device = any_device();
    let streams: Vec<_> = (0..4).map(|_| device.stream()).collect();
    let mut x = device_buffer(&device, &[0u32; 1000]);
    let mut y = device.zeros::<u32>(1000)?;
    for round in 0..25 {
        streams[round % 4].in_scope(|| increment(&mut x))?;
        streams[(round + 1) % 4].in_scope(|| copy_u32(&x, &mut y))?;
        streams[(round + 2) % 4].in_scope(|| increment(&mut y))?;
        streams[(round + 3) % 4].in_scope(|| x.copy_from(&y))?;
    }
    assert_eq!(elements(&x), [50; 1000]);
    Ok(())
}

#[test]
fn readers_overlap_and_a_writer_waits_for_all_of_them() -> Result<()> {
    let device = stepped_and_slow();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &[3u32; 64]);
    let mut reads = Vec::new();
    let mut copies = Vec::new();
    for _ in 0..3 {
        let mut y = device.alloc::<u32>(64)?;
        device.stream().in_scope(|| copy_u32(&x, &mut y))?;
        reads.push(last_op(sim).id);
        copies.push(y);
    }
    device.stream().in_scope(|| increment(&mut x))?;
    let write = last_op(sim).id;

    for read in &reads {
        assert!(is_runnable(sim, *read), "readers do not order readers");
    }
    for read in &reads {
        assert!(!is_runnable(sim, write), "a reader has not run yet");
        sim.run(*read);
    }
    assert!(is_runnable(sim, write));
    sim.run(write);
    let spans = sim.timeline();
    let of = |id: &u64| span(&spans, *id);
    assert!(overlap(of(&reads[0]), of(&reads[1])) && overlap(of(&reads[1]), of(&reads[2])));
    assert!(reads.iter().all(|read| of(read).end <= of(&write).start));
    for y in &copies {
        assert_eq!(elements(y), [3; 64]);
    }
    assert_eq!(elements(&x), [4; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_write_waits_for_the_write_before_it() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let (a, b) = (device.stream(), device.stream());
    let mut x = device.alloc::<u32>(64)?;
    a.in_scope(|| x.fill(1))?;
    b.in_scope(|| x.fill(2))?;
    let second = last_op(sim).id;
    assert!(!is_runnable(sim, second));
    assert_eq!(elements(&x), [2; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_touches_different_buffers_is_not_ordered() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut buffers = [device.zeros::<u32>(64)?, device.zeros::<u32>(64)?];
    run_to_end(&device);
    for x in &mut buffers {
        device.stream().in_scope(|| increment(x))?;
    }
    assert!(sim.pending().iter().all(|op| op.runnable));
    run_to_end(&device);
    Ok(())
}

#[test]
fn copies_of_pinned_memory_are_ordered_as_device_memory_is() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let (a, b) = (device.stream(), device.stream());
    let x = device_buffer(&device, &[5u32; 64]);
    let mut y = device.alloc::<u32>(64)?;
    let mut pinned = pinned_buffer(&device, &[0u32; 64]);
    a.in_scope(|| x.copy_to(&mut pinned))?;
    b.in_scope(|| y.copy_from(&pinned))?;
    let up = last_op(sim);
    assert_eq!(up.kind, SimOpKind::CopyH2D);
    assert!(!is_runnable(sim, up.id), "the copy down has not run");
    assert_eq!(elements(&y), [5; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn an_order_that_is_there_already_takes_no_wait() -> Result<()> {
    let device = own_device();
    let (a, b) = (device.stream(), device.stream());
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    a.in_scope(|| increment(&mut x))?;
    a.in_scope(|| increment(&mut y))?;
    b.in_scope(|| increment(&mut y))?;
    let waits = || device.driver_calls().expect("counted").stream_waits;

    let before = waits();
    b.in_scope(|| increment(&mut x))?;
    b.in_scope(|| increment(&mut y))?;
    assert_eq!(waits(), before, "b waits for a's last operation already");
    wait(a.synchronize())?;
    wait(b.synchronize())?;
    a.in_scope(|| increment(&mut x))?;
    assert_eq!(waits(), before, "b is known to be finished");
    assert_eq!((elements(&x), elements(&y)), (vec![3; 64], vec![3; 64]));
    Ok(())
}
