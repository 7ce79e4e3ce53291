//! An order that follows from others takes no wait of its own.

use headwater::sim::{DriverCall, Fault};
use headwater::{
    Device, DeviceBuffer, DriverError, Error, Priority, Result, Stream, StreamOptions,
};

use crate::common::{
    device_buffer, elements, is_runnable, last_op, run_to_end, sim, stepped, wait,
};
use crate::kernels::{add_u32, copy_u32, increment};

fn waits(device: &Device) -> u64 {
    device.driver_calls().expect("counted").stream_waits
}

/// Three streams, and three buffers of ones that nothing uses any more.
fn three() -> (Device, [Stream; 3], [DeviceBuffer<u32>; 3]) {
    let device = stepped();
    let streams = [(); 3].map(|()| device.stream());
    let buffers = [(); 3].map(|()| device_buffer(&device, &[1u32; 64]));
    run_to_end(&device);
    wait(device.current_stream().synchronize()).expect("everything has run");
    (device, streams, buffers)
}

#[test]
fn who_waits_for_one_who_waited_for_another_waits_for_both() -> Result<()> {
    let (device, [a, b, c], [mut x, mut y, mut z]) = three();
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| copy_u32(&x, &mut y))?;
    let before = waits(&device);
    // After both: b's copy, which comes after a's increment.
    c.in_scope(|| add_u32(&x, &y, &mut z))?;
    assert_eq!(waits(&device) - before, 1);
    let last = last_op(sim(&device)).id;
    assert!(!is_runnable(sim(&device), last));
    assert_eq!(elements(&z), [4; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_wait_made_earlier_covers_what_the_other_stream_had_waited_for() -> Result<()> {
    let (device, [a, b, c], [mut x, mut y, mut z]) = three();
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| copy_u32(&x, &mut y))?;
    c.in_scope(|| copy_u32(&y, &mut z))?;
    let before = waits(&device);
    c.in_scope(|| increment(&mut x))?; // after a's increment and b's copy
    assert_eq!(waits(&device), before);
    assert_eq!((elements(&x), elements(&z)), (vec![3; 64], vec![2; 64]));
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_the_other_stream_waited_for_later_is_waited_for() -> Result<()> {
    let (device, [a, b, c], [mut x, mut y, mut z]) = three();
    let done = b.in_scope(|| increment(&mut y))?;
    wait_for_event_of(&b)?;
    c.in_scope(|| copy_u32(&y, &mut z))?; // after b's increment
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| copy_u32(&x, &mut y))?; // after a's: nothing that c has waited for
    let before = waits(&device);
    c.in_scope(|| increment(&mut x))?;
    assert_eq!(waits(&device) - before, 1, "b's copy, which comes after a's increment");
    assert_eq!((elements(&x), elements(&y)), (vec![3; 64], vec![2; 64]));
    run_to_end(&device);
    drop(done);
    Ok(())
}

/// Has an event recorded after what is on the stream now.
fn wait_for_event_of(stream: &Stream) -> Result<()> {
    stream.record().map(drop)
}

#[test]
fn what_came_before_something_that_was_seen_to_finish_is_not_waited_for() -> Result<()> {
    let (device, [a, b, c], [mut x, mut y, _]) = three();
    a.in_scope(|| increment(&mut x))?;
    let copied = b.in_scope(|| copy_u32(&x, &mut y))?;
    sim(&device).run_all();
    wait(copied)?;
    let (before, asked) = (waits(&device), queries(&device));
    c.in_scope(|| increment(&mut x))?;
    assert_eq!(waits(&device), before, "a's increment came before the copy");
    assert_eq!(queries(&device), asked, "and nobody was asked");
    assert_eq!(elements(&x), [3; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn of_many_streams_each_is_waited_for_once() -> Result<()> {
    const STREAMS: usize = 12;
    let device = stepped();
    let streams: Vec<_> = (0..STREAMS).map(|_| device.stream()).collect();
    let buffers = || (0..STREAMS).map(|_| device_buffer(&device, &[1u32; 8])).collect::<Vec<_>>();
    let (mut earlier, mut later) = (buffers(), buffers());
    for (stream, (x, y)) in streams.iter().zip(earlier.iter_mut().zip(&mut later)) {
        stream.in_scope(|| increment(x).and(increment(y)))?;
    }
    let before = waits(&device);
    let collects = device.stream();
    for x in later.iter_mut().chain(&mut earlier) {
        collects.in_scope(|| increment(x))?;
    }
    assert_eq!(waits(&device) - before, STREAMS as u64);
    assert!(earlier.iter().chain(&later).all(|x| elements(x) == [3; 8]));
    run_to_end(&device);
    Ok(())
}

fn queries(device: &Device) -> u64 {
    device.driver_calls().expect("counted").event_queries
}

#[test]
fn a_wait_of_the_programs_own_covers_what_comes_before_its_event() -> Result<()> {
    let (device, [a, b, c], [mut x, mut y, mut z]) = three();
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| copy_u32(&x, &mut y))?;
    let event = b.record()?;
    c.wait(&event)?;
    let before = waits(&device);
    c.in_scope(|| add_u32(&x, &y, &mut z))?;
    c.wait(&event)?;
    c.wait(&a.record()?)?;
    assert_eq!(waits(&device), before, "all of that comes before the event");
    assert_eq!(elements(&z), [4; 64]);
    run_to_end(&device);
    Ok(())
}

/// What a stream that has 16 events costs another one that copies from each of its 16 buffers: waits and
/// queries, of the first copy and of all.
fn cost_of_copying_what_another_stream_wrote(finished: bool) -> Result<[(u64, u64); 2]> {
    let device = stepped();
    let [a, b] = [(); 2].map(|()| device.stream());
    let mut sources: Vec<_> = (0..17).map(|_| device_buffer(&device, &[1u32; 64])).collect();
    let mut target = device_buffer(&device, &[0u32; 64]);
    run_to_end(&device);
    wait(device.current_stream().synchronize())?;
    // Of each but the last there is an event, as its completion is held when the next is enqueued.
    let incremented = sources.iter_mut().map(|source| a.in_scope(|| increment(source)));
    let held = incremented.collect::<Result<Vec<_>>>()?;
    if finished {
        run_to_end(&device);
    }
    let calls = || device.driver_calls().expect("counted");
    let before = calls();
    let cost = || {
        let calls = calls().since(&before);
        (calls.stream_waits, calls.event_queries)
    };
    b.in_scope(|| copy_u32(&sources[0], &mut target))?;
    let first = cost();
    for source in &sources[1..16] {
        b.in_scope(|| copy_u32(source, &mut target))?;
    }
    let all = cost();
    assert_eq!(elements(&target), [2; 64]);
    run_to_end(&device);
    drop(held);
    Ok([first, all])
}

#[test]
fn of_a_stream_that_is_waited_for_the_newest_event_is_asked_for_once_in_16() -> Result<()> {
    let [first, all] = cost_of_copying_what_another_stream_wrote(true)?;
    assert_eq!((first, all), ((1, 1), (1, 1)), "what was seen to finish is waited for no more");
    let [first, all] = cost_of_copying_what_another_stream_wrote(false)?;
    assert_eq!((first, all), ((1, 1), (16, 1)), "what is pending is not asked for again");
    Ok(())
}

#[test]
fn what_was_waited_for_on_streams_far_apart_is_remembered() -> Result<()> {
    let (device, [a, b, _], [mut x, mut y, mut z]) = three();
    let urgent = device.stream_with(StreamOptions::default().priority(Priority::High));
    assert!(urgent.number() - a.number() >= 16, "a stream remembers 16 in a row with less effort");
    a.in_scope(|| increment(&mut x))?;
    urgent.in_scope(|| increment(&mut y))?;
    let before = waits(&device);
    b.in_scope(|| add_u32(&x, &y, &mut z))?;
    assert_eq!(waits(&device) - before, 2);
    b.in_scope(|| increment(&mut x))?;
    b.in_scope(|| increment(&mut y))?;
    assert_eq!(waits(&device) - before, 2);
    assert_eq!(elements(&z), [4; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_would_have_read_unwritten_bytes_is_waited_for_by_nobody() -> Result<()> {
    let (device, [a, b, _], [mut x, _, mut z]) = three();
    let unwritten = device.alloc::<u32>(64)?;
    let before = device.driver_calls().expect("counted");
    // The read of `x` is found before that of memory that is younger.
    let refused = a.in_scope(|| add_u32(&x, &unwritten, &mut z));
    assert!(matches!(refused, Err(Error::Uninitialised { .. })), "{refused:?}");
    b.in_scope(|| increment(&mut x))?;
    b.in_scope(|| increment(&mut z))?;
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!((calls.stream_waits, calls.event_records), (0, 0));
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_was_refused_after_an_event_had_to_be_recorded_for_it_is_waited_for_by_nobody() -> Result<()>
{
    let (device, [a, b, c], [mut x, y, mut z]) = three();
    a.in_scope(|| increment(&mut x))?; // without an event
    sim(&device).inject(Fault::of_call(DriverCall::Launch, DriverError::INVALID_VALUE));
    let refused = b.in_scope(|| add_u32(&x, &y, &mut z));
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    let before = device.driver_calls().expect("counted");
    a.in_scope(|| increment(&mut x))?;
    c.in_scope(|| increment(&mut z))?;
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!(calls.stream_waits, 0);
    run_to_end(&device);
    Ok(())
}
