//! Events: points in a stream that can be awaited, waited for and told apart in time.

use std::time::Duration;

use headwater::{Elapsed, Error, Result};

use crate::common::{
    any_device, device_buffer, elements, is_runnable, last_op, own_device, poll_once, run_to_end,
    sim, stepped, wait,
};
use crate::kernels::{delay, increment};

#[test]
fn a_stream_waits_for_an_event_and_the_host_does_not() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    a.in_scope(|| increment(&mut x))?;
    let first = last_op(sim).id;
    let event = a.record()?;
    a.in_scope(|| increment(&mut x))?;
    b.wait(&event)?;
    b.in_scope(|| increment(&mut y))?;
    let waiting = last_op(sim).id;

    assert!(!is_runnable(sim, waiting));
    assert!(!event.is_finished()?);
    sim.run(first);
    assert!(is_runnable(sim, waiting), "what came after the event is not waited for");
    assert!(event.is_finished()?);
    run_to_end(&device);
    Ok(())
}

#[test]
fn an_event_is_awaited_as_often_as_one_likes_and_does_not_wait_for_later_work() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    increment(&mut x)?;
    let event = device.current_stream().record()?;
    increment(&mut x)?;
    let mut awaited = event.clone().into_future();
    assert!(poll_once(&mut awaited).is_pending());
    sim(&device).step();
    wait(awaited)?;
    wait(&event)?;
    wait(event)?;
    assert_eq!(sim(&device).pending().len(), 1);
    run_to_end(&device);
    Ok(())
}

#[test]
fn an_event_of_an_idle_stream_is_reached() -> Result<()> {
    let device = any_device();
    let stream = device.stream();
    wait(stream.synchronize())?;
    wait(stream.record()?)?;
    stream.wait(&stream.record()?)?;
    device.stream().wait(&stream.record()?)?;
    wait(stream.synchronize())
}

#[test]
fn the_time_between_two_timed_events_is_that_of_the_work_between_them() -> Result<()> {
    let device = own_device();
    let stream = device.stream();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let untimed = stream.record()?;
    let start = stream.record_timed()?;
    stream.in_scope(|| delay(&mut x, 5_000_000))?;
    let end = stream.record_timed()?;
    wait(&end)?;
    let elapsed = end.elapsed_since(&start)?;
    let Elapsed::Time(time) = elapsed else { panic!("{elapsed:?}") };
    assert!(time >= Duration::from_millis(5), "{time:?}");
    assert!(time < Duration::from_millis(500), "{time:?}");
    assert_eq!(end.elapsed_since(&untimed)?, Elapsed::NotTimed);
    assert_eq!(untimed.elapsed_since(&start)?, Elapsed::NotTimed);
    assert_eq!(elements(&x), [1; 64]);
    Ok(())
}

#[test]
fn the_time_to_an_event_not_reached_is_not_known() -> Result<()> {
    let device = stepped();
    let stream = device.stream();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let start = stream.record_timed()?;
    stream.in_scope(|| increment(&mut x))?;
    let end = stream.record_timed()?;
    assert_eq!(end.elapsed_since(&start)?, Elapsed::NotReached);
    run_to_end(&device);
    wait(&end)?;
    assert!(matches!(end.elapsed_since(&start)?, Elapsed::Time(_)));
    Ok(())
}

#[test]
fn a_held_event_is_not_recorded_again_by_others() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    increment(&mut x)?;
    let held = device.stream().record()?;
    let mut events = vec![device.current_stream().record()?];
    run_to_end(&device);
    for _ in 0..200 {
        increment(&mut x)?;
        events.push(device.current_stream().record()?);
    }
    assert!(held.is_finished()? && events[0].is_finished()?);
    assert!(!events[1].is_finished()?, "200 operations have not run");
    run_to_end(&device);
    wait(&events[200])?;
    Ok(())
}

#[test]
fn events_stay_among_devices_that_understand_them() -> Result<()> {
    let (a, b) = (stepped(), stepped());
    let mut x = device_buffer(&a, &[0u32; 64]);
    increment(&mut x)?;
    let event = a.current_stream().record()?;
    let refused = b.stream().wait(&event);
    assert!(matches!(refused, Err(Error::WrongDevice { argument: "event", .. })), "{refused:?}");

    let (start, end) = (a.stream().record_timed()?, b.stream().record_timed()?);
    run_to_end(&a);
    run_to_end(&b);
    let refused = end.elapsed_since(&start);
    assert!(matches!(refused, Err(Error::WrongDevice { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn events_of_an_idle_stream_cost_none() -> Result<()> {
    let device = own_device();
    let stream = device.stream();
    let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
    wait(stream.synchronize())?;
    let before = device.driver_calls().expect("counted");
    for _ in 0..1_000 {
        let event = stream.record()?;
        assert!(event.is_finished()?);
        device.stream().wait(&event)?;
    }
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!((calls.event_creates, calls.event_records, calls.stream_waits), (0, 0, 0));
    stream.in_scope(|| increment(&mut x))?;
    assert_eq!(elements(&x), [1; 64]);
    Ok(())
}

#[test]
fn synchronize_does_not_wait_for_what_is_enqueued_later() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &[0u32; 64]);
    drop(increment(&mut x)?);
    let stream = device.current_stream();
    let synchronized = stream.synchronize();
    drop(increment(&mut x)?);
    sim.step();
    assert!(synchronized.is_finished()?);
    assert_eq!(sim.pending().len(), 1);
    run_to_end(&device);
    Ok(())
}
