//! Waiting for a device, a stream or the place one is at, and asking whether a stream is idle.

use std::task::{Context, Waker};
use std::{pin::Pin, sync::Arc};

use futures::FutureExt;
use headwater::testing::assert_all_freed;
use headwater::{Device, DeviceBuffer, DriverCalls, DriverError, Error, Result, Stream};

use crate::common::{
    Wakes, any_device, device_buffer, elements, own_device, own_device_with, poll_once, run_to_end,
    sim, step_through, stepped, stepped_with, until, wait, watched,
};
use crate::kernels::increment;

fn calls(device: &Device) -> DriverCalls {
    device.driver_calls().expect("counted")
}

/// Streams with a kernel each that has not run, and what it works on.
fn busy<const N: usize>(device: &Device) -> Result<[(Stream, DeviceBuffer<u32>); N]> {
    let buffers = [(); N].map(|()| device_buffer(device, &[0u32; 64]));
    let all = buffers.map(|x| (device.stream(), x)).map(|(stream, mut x)| {
        let enqueued = stream.in_scope(|| increment(&mut x)).map(drop);
        enqueued.map(|()| (stream, x))
    });
    let all = all.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(all.try_into().expect("as many"))
}

#[test]
fn a_device_is_synchronized_when_every_stream_has_come_so_far_and_not_later() -> Result<()> {
    let device = stepped();
    let [(a, mut x), (b, mut y)] = busy(&device)?;
    let mut all = device.synchronize();
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| increment(&mut y))?;
    assert!(poll_once(&mut all).is_pending());
    sim(&device).step_stream(a.as_raw());
    until("one stream is seen to have come so far", || {
        assert!(poll_once(&mut all).is_pending());
        a.in_flight() == 1
    });
    sim(&device).step_stream(b.as_raw());
    wait(all)?;
    assert_eq!((a.is_idle()?, b.is_idle()?), (false, false));
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_device_is_synchronized_when_memory_that_was_dropped_is_free() -> Result<()> {
    let device = stepped_with(|builder| builder.keep_memory(false));
    let [(_a, x), (_b, y)] = busy(&device)?;
    drop((x, y));
    let mut all = device.synchronize();
    assert!(poll_once(&mut all).is_pending());
    sim(&device).run_all();
    wait(all)?;
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn a_place_is_synchronized_by_the_stream_that_its_work_goes_to() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    increment(&mut x)?;
    let outside = device.current_stream();
    let scope = device.stream();
    let scoped = device.stream().scope(scope.scope(async {
        increment(&mut y)?;
        let inside = device.synchronize_current();
        Ok::<_, Error>((inside, outside.in_scope(|| device.synchronize_current())))
    }));
    let (mut inside, mut nested) = wait(scoped)?;
    let mut around = device.synchronize_current();
    sim(&device).step_stream(scope.as_raw());
    wait(&mut inside)?;
    assert!(poll_once(&mut nested).is_pending() && poll_once(&mut around).is_pending());
    sim(&device).run_all();
    wait(nested)?;
    wait(around)?;
    run_to_end(&device);
    Ok(())
}

#[test]
fn synchronizing_costs_an_event_for_each_busy_stream_once() -> Result<()> {
    let device = stepped();
    let [(a, _x), (b, _y), (_c, _z)] = busy(&device)?;
    let before = calls(&device);
    let all = [device.synchronize(), device.synchronize()];
    let streams = [a.synchronize(), b.synchronize()];
    assert_eq!(calls(&device).since(&before).event_records, 3);
    sim(&device).run_all();
    all.into_iter().try_for_each(wait)?;
    streams.into_iter().try_for_each(wait)
}

#[test]
fn what_is_known_to_be_idle_is_synchronized_without_a_call() -> Result<()> {
    let device = own_device();
    let mut x = device_buffer(&device, &[0u32; 64]);
    wait(increment(&mut x)?)?;
    wait(device.synchronize())?;
    let before = calls(&device);
    for _ in 0..10 {
        assert!(poll_once(&mut device.synchronize()).is_ready());
        assert!(poll_once(&mut device.synchronize_current()).is_ready());
        assert!(poll_once(&mut device.current_stream().synchronize()).is_ready());
        assert!(device.current_stream().is_idle()?);
    }
    assert_eq!(calls(&device), before);
    Ok(())
}

#[test]
fn a_synchronization_dropped_half_way_wakes_nobody_and_disturbs_no_other() -> Result<()> {
    let device = stepped();
    let [(a, _x), (_b, _y)] = busy(&device)?;
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut first = device.synchronize();
    let mut second = device.synchronize();
    assert!(first.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    assert!(poll_once(&mut second).is_pending());
    sim(&device).step_stream(a.as_raw());
    drop(first);
    let woken = wakes.count();
    sim(&device).run_all();
    wait(second)?;
    assert_eq!(wakes.count(), woken);
    wait(device.synchronize())
}

#[test]
fn whoever_synchronizes_with_a_device_that_is_lost_is_told_so() -> Result<()> {
    let device = stepped();
    let [(a, _x), (b, _y)] = busy(&device)?;
    let before = (device.synchronize(), a.synchronize());
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut pending = device.synchronize();
    assert!(Pin::new(&mut pending).poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    sim(&device).fail(DriverError::ILLEGAL_ADDRESS);
    assert!(matches!(wait(before.0), Err(Error::DeviceLost(_))));
    assert!(matches!(wait(before.1), Err(Error::DeviceLost(_))));
    until("the one that was pending is woken", || wakes.count() > 0);
    assert!(matches!(wait(pending), Err(Error::DeviceLost(_))));
    assert!(matches!(wait(device.synchronize()), Err(Error::DeviceLost(_))));
    assert!(matches!(b.is_idle(), Err(Error::DeviceLost(_))));
    let here = wait(b.scope(async { device.synchronize_current().await }));
    assert!(matches!(here, Err(Error::DeviceLost(_))));
    Ok(())
}

#[test]
fn a_stream_is_idle_when_all_of_it_has_run_and_asking_costs_one_event_and_one_query() -> Result<()>
{
    let device = stepped();
    let [(a, mut x)] = busy(&device)?;
    let before = calls(&device);
    assert!(!a.is_idle()?);
    let asked = calls(&device).since(&before);
    assert_eq!((asked.event_records, asked.event_queries), (1, 1));
    for _ in 0..3 {
        a.in_scope(|| increment(&mut x))?; // held for no time: nothing but `is_idle` needs an event
    }
    assert!(!a.is_idle()?);
    run_to_end(&device);
    let before = calls(&device);
    assert!(a.is_idle()?);
    let asked = calls(&device).since(&before);
    assert_eq!((asked.event_records, asked.event_queries), (0, 1));
    let before = calls(&device);
    assert!(a.is_idle()?);
    assert_eq!(calls(&device), before);
    Ok(())
}

#[test]
fn select_takes_a_synchronization_and_is_done_with_it_once() -> Result<()> {
    let device = any_device();
    watched(move || {
        headwater::block_on(async {
            let mut x = device.upload(vec![0u32; 64]).await?;
            increment(&mut x)?;
            let (mut all, mut here) = (device.synchronize(), device.synchronize_current());
            let mut ended = 0;
            loop {
                futures::select! {
                    all = all => all?,
                    here = here => here?,
                    complete => break,
                }
                ended += 1;
            }
            assert_eq!(ended, 2);
            Ok(())
        })
    })
}

#[test]
fn no_wake_up_is_lost_while_others_enqueue() -> Result<()> {
    // Without spinning: every wait is ended by a wake-up.
    let device = own_device_with(|builder| builder.inline_spin(std::time::Duration::ZERO));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut x = device_buffer(&device, &[0u32; 64]);
                for round in 0..200 {
                    increment(&mut x).expect("enqueuing");
                    match round % 3 {
                        0 => wait(device.synchronize()).expect("no failure"),
                        1 => wait(device.synchronize_current()).expect("no failure"),
                        _ => until("idle", || device.current_stream().is_idle().expect("asking")),
                    }
                }
                assert_eq!(elements(&x), [200; 64]);
            });
        }
    });
    step_through(&device);
    Ok(())
}
