//! CUDA's default streams, adopted: ordered as any other, and each thread's is its own.

use std::sync::{Barrier, Mutex};

use futures::FutureExt;
use headwater::sim::{DriverCall, Fault};
use headwater::testing::assert_all_freed;
use headwater::{Device, DeviceBuffer, DriverError, Error, Result, Stream, StreamRole};

use crate::common::{
    Random, any_device, device_buffer, eager, elements, last_op, own_device_with, poll_once,
    run_to_end, sim, simulated_with, stepped, unattended, until, wait, while_stepped_at_random,
};
use crate::kernels::{copy_u32, increment};

/// What `f` returns on a thread of its own, which ends.
fn elsewhere<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(f).join().expect("no panic"))
}

fn is_of_another_thread<T>(result: Result<T>, stream: &Stream) -> bool {
    matches!(result, Err(Error::WrongThread { stream: named, .. }) if named == stream.number())
}

/// Has the next calls of that kind refused.
fn refuse(device: &Device, call: DriverCall, times: u64) {
    sim(device).inject(Fault::of_call(call, DriverError::INVALID_VALUE).times(times));
}

#[test]
fn a_device_has_one_legacy_default_stream_which_it_does_not_destroy() -> Result<()> {
    let (sender, told) = std::sync::mpsc::channel();
    let device = simulated_with(unattended(), |builder| {
        builder.on_error(move |error| drop(sender.send(error.clone())))
    });
    let legacy = device.legacy_default_stream()?;
    assert_eq!(legacy.role(), StreamRole::LegacyDefault);
    assert!(elsewhere(|| device.legacy_default_stream())?.same_stream(&legacy));
    assert!(!device.per_thread_default_stream()?.same_stream(&legacy));
    let simulator = sim(&device).clone();
    drop((legacy, device));
    until("all others are destroyed", || simulator.live_streams() <= 2);
    assert_eq!(simulator.violations(), []);
    assert!(told.try_recv().is_err(), "it was to be destroyed");
    Ok(())
}

#[test]
fn a_default_stream_is_ordered_where_work_conflicts_and_nowhere_else() -> Result<()> {
    let device = stepped();
    for default in [device.legacy_default_stream()?, device.per_thread_default_stream()?] {
        let mut x = device_buffer(&device, &[1u32; 64]);
        let (mut y, mut z) = (device.alloc::<u32>(64)?, device_buffer(&device, &[5u32; 64]));
        increment(&mut x)?;
        let ours = last_op(sim(&device)).id;
        default.in_scope(|| increment(&mut z))?;
        assert!(last_op(sim(&device)).runnable, "nothing conflicts");
        default.in_scope(|| copy_u32(&x, &mut y))?;
        assert!(!last_op(sim(&device)).runnable);
        increment(&mut y)?;
        assert!(!last_op(sim(&device)).runnable);
        increment(&mut x)?;
        sim(&device).run(ours);
        run_to_end(&device);
        assert_eq!([elements(&x)[0], elements(&y)[0], elements(&z)[0]], [3, 3, 6]);
    }
    Ok(())
}

#[test]
fn an_event_of_a_default_stream_is_recorded_anew_each_time() -> Result<()> {
    let device = eager();
    let records = || device.driver_calls().expect("counted").event_records;
    for default in [device.legacy_default_stream()?, device.per_thread_default_stream()?] {
        let before = records();
        let reached = [default.record()?, default.record()?];
        assert_eq!(records() - before, 2);
        for event in &reached {
            wait(event)?;
        }
    }
    Ok(())
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() -> Result<()> {
    let device = eager();
    let mine = device.per_thread_default_stream()?;
    assert_eq!(mine.role(), StreamRole::PerThreadDefault);
    assert!(device.per_thread_default_stream()?.same_stream(&mine));
    let theirs = elsewhere(|| device.per_thread_default_stream())?;
    assert!(!theirs.same_stream(&mine));
    mine.set_current();
    assert!(device.current_stream().same_stream(&mine));
    let mut x = device.zeros::<u32>(64)?;
    increment(&mut x)?;
    assert_eq!(elements(&x), [1; 64]);
    Ok(())
}

#[test]
fn nothing_is_enqueued_on_another_threads_default_stream() -> Result<()> {
    let device = eager();
    let mine = device.per_thread_default_stream()?;
    let mut x = device_buffer(&device, &[1u32; 64]);
    let other = device.stream();
    let event = other.record()?;
    let before = device.driver_calls();
    elsewhere(|| {
        assert!(is_of_another_thread(mine.in_scope(|| increment(&mut x)), &mine));
        assert!(is_of_another_thread(mine.in_scope(|| device.alloc::<u32>(64)), &mine));
        assert!(is_of_another_thread(mine.record(), &mine));
        assert!(is_of_another_thread(mine.record_timed(), &mine));
        drop(event);
    });
    assert_eq!(device.driver_calls(), before);
    mine.in_scope(|| increment(&mut x))?;
    let event = mine.record()?;
    elsewhere(|| other.wait(&event).and_then(|()| wait(&event)))?;
    elsewhere(|| wait(mine.synchronize()).and_then(|()| wait(mine.ready())))?;
    assert!(elsewhere(|| mine.is_idle())?);
    assert_eq!(elements(&x), [2; 64]);
    Ok(())
}

#[test]
fn a_scope_of_a_threads_default_stream_is_refused_where_it_was_moved() -> Result<()> {
    let device = eager();
    let mine = device.per_thread_default_stream()?;
    let mut x = device_buffer(&device, &[1u32; 64]);
    let mut scoped = Box::pin(mine.scope(async {
        increment(&mut x)?;
        futures::pending!();
        increment(&mut x).map(drop)
    }));
    assert!(scoped.as_mut().now_or_never().is_none());
    assert!(is_of_another_thread(elsewhere(|| wait(scoped)), &mine));
    assert_eq!(elements(&x), [2; 64]);
    Ok(())
}

#[test]
fn a_task_that_set_a_threads_default_stream_has_another_where_it_was_moved() -> Result<()> {
    let device = eager();
    let mine = device.per_thread_default_stream()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (sender, moved) = tokio::sync::oneshot::channel();
    let task = runtime.spawn({
        let (device, mine) = (device.clone(), mine.clone());
        async move {
            mine.set_current();
            let mut x = device.zeros::<u32>(64)?;
            increment(&mut x)?;
            assert!(device.current_stream().same_stream(&mine));
            moved.await.expect("sent");
            increment(&mut x)?;
            Ok::<_, Error>((device.current_stream(), x))
        }
    });
    runtime.block_on(tokio::task::yield_now());
    sender.send(()).expect("it waits");
    let (stream, x) = elsewhere(|| runtime.block_on(task)).expect("no panic")?;
    assert_eq!(stream.role(), StreamRole::Task);
    assert_eq!(elements(&x), [2; 64]);
    Ok(())
}

#[test]
fn others_order_themselves_after_a_threads_default_stream_and_never_record_there() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[1u32; 64]);
    let mut y = device_buffer(&device, &[1u32; 64]);
    let records = || device.driver_calls().expect("counted").event_records;
    // As if late: nothing waits, the buffer is not shared, its completion is not held.
    elsewhere(|| {
        let mine = device.per_thread_default_stream()?;
        let before = records();
        for _ in 0..20 {
            mine.in_scope(|| increment(&mut x))?;
        }
        refuse(&device, DriverCall::Launch, 1);
        assert!(mine.in_scope(|| increment(&mut y)).is_err());
        assert_eq!(records() - before, 21, "one for each, of the refused one too");
        Ok(())
    })?;
    copy_u32(&x, &mut y)?;
    assert!(!last_op(sim(&device)).runnable);
    run_to_end(&device);
    assert_eq!(elements(&y), [21; 64]);
    Ok(())
}

#[test]
fn memory_of_a_threads_default_stream_can_be_dropped_on_any_thread() -> Result<()> {
    let device = stepped();
    let mine = device.per_thread_default_stream()?;
    let used = mine.in_scope(|| {
        let mut x = device.zeros::<u32>(64)?;
        increment(&mut x)?;
        Ok::<_, Error>([x, device.alloc::<u32>(64)?])
    })?;
    elsewhere(|| drop(used));
    run_to_end(&device);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn what_a_thread_enqueued_before_its_end_can_be_waited_for() -> Result<()> {
    let device = stepped();
    let (mut done, x) = elsewhere(|| {
        let mut x = device_buffer(&device, &[1u32; 64]);
        device.per_thread_default_stream()?.in_scope(|| increment(&mut x)).map(|done| (done, x))
    })?;
    assert!(poll_once(&mut done).is_pending());
    run_to_end(&device);
    wait(done)?;
    assert_eq!(elements(&x), [2; 64]);
    Ok(())
}

#[test]
fn threads_that_have_ended_give_their_default_streams_back() -> Result<()> {
    let device = eager();
    let mut kept = Vec::new();
    for round in 0..1_100 {
        kept.push(elsewhere(|| {
            let stream = device.per_thread_default_stream()?;
            let mut x = stream.in_scope(|| device.zeros::<u32>(4))?;
            wait(stream.in_scope(|| increment(&mut x))?)?;
            Ok::<_, Error>(x)
        })?);
        kept.truncate(200 - round % 100); // memory does not hold them back
    }
    Ok(())
}

#[test]
fn a_default_stream_given_back_is_lent_only_when_its_work_is_done() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[1u32; 64]);
    let first = elsewhere(|| {
        let mine = device.per_thread_default_stream()?;
        mine.in_scope(|| increment(&mut x))?;
        Ok::<_, Error>((mine.number(), mine.as_raw()))
    })?;
    let held = elsewhere(|| device.per_thread_default_stream())?;
    assert_ne!(held.number(), first.0);
    run_to_end(&device);
    let next = elsewhere(|| {
        let next = device.per_thread_default_stream()?;
        next.in_scope(|| increment(&mut x))?;
        assert_eq!(last_op(sim(&device)).stream, next.as_raw());
        Ok::<_, Error>(next)
    })?;
    assert_eq!(next.number(), first.0);
    assert_ne!(next.as_raw(), first.1, "the stream of a thread that has ended");
    run_to_end(&device);
    assert_eq!(elements(&x), [3; 64]);
    Ok(())
}

#[test]
fn more_threads_than_there_are_streams_for_are_told_so_until_some_give_theirs_back() -> Result<()> {
    let device = eager();
    let mut held = Vec::new();
    let refused = loop {
        match elsewhere(|| device.per_thread_default_stream()) {
            Ok(stream) => held.push(stream),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyStreams { limit: 1024, .. }), "{refused}");
    assert!((900..1024).contains(&held.len()), "{}", held.len());
    held.pop();
    elsewhere(|| device.per_thread_default_stream())?;
    Ok(())
}

/// What a thread leaves on its default stream when it ends.
struct Left {
    number: usize,
    raw: u64,
    _zeros: DeviceBuffer<u32>,
}

fn leave_work(device: &Device) -> Result<Left> {
    elsewhere(|| {
        let mine = device.per_thread_default_stream()?;
        let zeros = mine.in_scope(|| device.zeros::<u32>(4))?;
        Ok(Left { number: mine.number(), raw: mine.as_raw(), _zeros: zeros })
    })
}

#[test]
fn a_thread_asks_after_few_of_the_default_streams_that_others_left() -> Result<()> {
    let device = stepped();
    let left = (0..30).map(|_| leave_work(&device)).collect::<Result<Vec<_>>>()?;
    let queries = || device.driver_calls().expect("counted").event_queries;
    let before = queries();
    let next = elsewhere(|| device.per_thread_default_stream())?;
    assert!(left.iter().all(|left| left.number != next.number()));
    assert!((1..=4).contains(&(queries() - before)), "{}", queries() - before);
    Ok(())
}

#[test]
fn where_there_can_be_no_more_streams_a_thread_asks_after_all_that_others_left() -> Result<()> {
    let device = stepped();
    let mut left = Vec::new();
    let refused = loop {
        match leave_work(&device) {
            Ok(one) => left.push(one),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyStreams { .. }), "{refused}");
    let idle = &left[left.len() / 2];
    while sim(&device).step_stream(idle.raw).is_some() {}
    assert_eq!(leave_work(&device)?.number, idle.number);
    assert!(leave_work(&device).is_err());
    Ok(())
}

#[test]
fn where_no_event_was_recorded_others_are_refused_until_the_thread_has_made_up_for_it() -> Result<()>
{
    let device = stepped();
    let mut x = device_buffer(&device, &[1u32; 64]);
    let mut y = device.alloc::<u32>(64)?;
    let mine = device.per_thread_default_stream()?;
    refuse(&device, DriverCall::EventRecord, 1);
    let mut done = mine.in_scope(|| increment(&mut x))?;
    assert!(is_of_another_thread(elsewhere(|| copy_u32(&x, &mut y)), &mine));
    assert!(elsewhere(|| poll_once(&mut done)).is_pending());
    assert!(poll_once(&mut done).is_pending(), "this thread's own poll records");
    elsewhere(|| copy_u32(&x, &mut y))?;
    run_to_end(&device);
    wait(done)?;
    assert_eq!(elements(&y), [2; 64]);
    Ok(())
}

#[test]
fn an_event_that_was_not_recorded_is_at_the_end_of_the_thread_or_the_device_is_lost() -> Result<()>
{
    for lost in [false, true] {
        let device = stepped();
        let mut x = device_buffer(&device, &[1u32; 64]);
        let done = elsewhere(|| {
            let mine = device.per_thread_default_stream()?;
            refuse(&device, DriverCall::EventRecord, if lost { 2 } else { 1 });
            mine.in_scope(|| increment(&mut x))
        })?;
        sim(&device).run_all();
        match wait(done) {
            Ok(()) => assert!(!lost),
            Err(Error::DeviceLost(_)) => assert!(lost),
            Err(error) => panic!("{error}"),
        }
    }
    Ok(())
}

#[test]
fn on_one_stream_the_default_streams_are_that_one() -> Result<()> {
    let device = own_device_with(|builder| builder.single_stream(true));
    let current = device.current_stream();
    assert!(device.legacy_default_stream()?.same_stream(&current));
    assert!(elsewhere(|| device.per_thread_default_stream())?.same_stream(&current));
    Ok(())
}

/// Threads that share buffers, each on its default stream and on the device's.
fn threads_share_buffers(device: &Device) -> Result<()> {
    type Shared = Mutex<(DeviceBuffer<u32>, u32)>;
    let buffers: Vec<Shared> =
        (0..3).map(|i| Mutex::new((device_buffer(device, &[i; 64]), i))).collect();
    let start = Barrier::new(4);
    let work = |seed: u64| {
        let mut random = Random::new(seed);
        let mine = device.per_thread_default_stream()?;
        let streams = [mine, device.legacy_default_stream()?, device.current_stream()];
        start.wait();
        for _ in 0..60 {
            let [x, y] = random.two_below(buffers.len());
            streams[random.below(3)].in_scope(|| {
                if random.below(2) == 0 {
                    let mut to = buffers[x].lock().expect("no panic");
                    to.1 += 1;
                    return increment(&mut to.0).map(drop);
                }
                let from = buffers[x.min(y)].lock().expect("no panic");
                let mut to = buffers[x.max(y)].lock().expect("no panic");
                to.1 = from.1;
                copy_u32(&from.0, &mut to.0).map(drop)
            })?;
        }
        Ok::<_, Error>(())
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    for buffer in &buffers {
        let buffer = buffer.lock().expect("no panic");
        assert_eq!(elements(&buffer.0), [buffer.1; 64]);
    }
    Ok(())
}

#[test]
fn threads_on_their_default_streams_get_the_bytes_of_their_order() -> Result<()> {
    (0..10).try_for_each(|_| threads_share_buffers(&any_device()))?;
    let device = stepped();
    while_stepped_at_random(&device, || (0..5).try_for_each(|_| threads_share_buffers(&device)))?;
    run_to_end(&device);
    assert_all_freed(&device);
    Ok(())
}
