//! Which stream work goes to: the innermost scope's, else the one set, else the task's or thread's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use headwater::sim::{DriverCall, Fault};
use headwater::testing::assert_all_freed;
use headwater::{
    Device, DeviceBuffer, DriverError, Priority, Result, Stream, StreamOptions, StreamRole,
};

use crate::common::{
    device_buffer, eager, elements, own_device, own_device_with, receive, run_to_end, sim, stepped,
    until, wait, watched,
};
use crate::kernels::increment;

fn local_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

#[test]
fn a_task_stays_on_its_stream_and_so_does_a_thread() -> Result<()> {
    let device = own_device();
    let on_thread = device.current_stream();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let device = device.clone();
            runtime.spawn(async move {
                let mine = device.current_stream();
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                    assert!(mine.same_stream(&device.current_stream()));
                }
                mine.as_raw()
            })
        })
        .collect();
    let mut streams: Vec<_> = tasks.into_iter().map(|task| wait(task).expect("no panic")).collect();
    streams.push(on_thread.as_raw());
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 9, "each has its own");
    assert!(on_thread.same_stream(&device.current_stream()));
    Ok(())
}

#[test]
fn tasks_do_not_displace_a_thread() {
    let device = own_device();
    let mine = device.current_stream();
    let runtime = local_runtime();
    for _ in 0..1_100 {
        let device = device.clone();
        let task = runtime.spawn(async move { device.current_stream() });
        runtime.block_on(task).expect("no panic");
    }
    assert!(mine.same_stream(&device.current_stream()));
}

#[test]
fn the_innermost_scope_counts_and_the_outer_one_again_after_it() {
    let device = own_device();
    let outside = device.current_stream();
    let (a, b) = (device.stream(), device.stream());
    let current = || device.current_stream().as_raw();
    a.in_scope(|| {
        assert_eq!(current(), a.as_raw());
        b.in_scope(|| {
            a.in_scope(|| assert_eq!(current(), a.as_raw()));
            assert_eq!(current(), b.as_raw());
        });
        assert_eq!(current(), a.as_raw());
    });
    assert_eq!(current(), outside.as_raw());
}

#[test]
fn the_current_stream_of_a_scope_is_the_scopes_own_with_its_name_and_priority() {
    let device = own_device();
    let options = StreamOptions::new().priority(Priority::High).name("urgent");
    let current = device.stream_with(options).in_scope(|| device.current_stream());
    assert_eq!((current.priority(), current.name()), (Priority::High, Some("urgent")));
    let held: Vec<_> = (0..15)
        .map(|_| device.stream_with(StreamOptions::new().priority(Priority::High)))
        .collect();
    assert!(!held.iter().any(|other| other.same_stream(&current)), "lent out while it is held");
}

#[test]
fn scopes_of_two_devices_do_not_hide_each_other() {
    let (one, two) = (eager(), eager());
    let (a, b) = (one.stream(), two.stream());
    a.in_scope(|| {
        b.in_scope(|| {
            assert!(one.current_stream().same_stream(&a));
            assert!(two.current_stream().same_stream(&b));
        });
    });
}

#[test]
fn a_panic_inside_a_scope_ends_the_scope() {
    let device = own_device();
    let outside = device.current_stream().as_raw();
    let stream = device.stream();
    let nested = || stream.in_scope(|| device.stream().in_scope(|| panic!("the user's own")));
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
    assert_eq!(device.current_stream().as_raw(), outside);

    let mut scoped = Box::pin(stream.scope(async {
        tokio::task::yield_now().await;
        device.scope(async { panic!("the user's own") }).await
    }));
    assert!((&mut scoped).now_or_never().is_none());
    assert_eq!(device.current_stream().as_raw(), outside, "between two polls");
    let polled = catch_unwind(AssertUnwindSafe(|| scoped.now_or_never()));
    assert!(polled.is_err());
    assert_eq!(device.current_stream().as_raw(), outside);
}

#[test]
fn a_task_that_panics_takes_nobody_down_and_leaves_nothing_behind() -> Result<()> {
    let device = stepped();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let task = |panics: bool| {
        let device = device.clone();
        async move {
            let mut x = device.zeros::<u32>(64)?;
            let done = increment(&mut x)?;
            assert!(!panics, "a task's own fault");
            done.await?;
            x.to_vec().await
        }
    };
    let tasks =
        runtime.block_on(device.scope(async {
            (0..8).map(|i| headwater::spawn(task(i % 2 == 0))).collect::<Vec<_>>()
        }));
    let mut ended = tasks.into_iter().enumerate().map(|(i, task)| {
        until("it has ended", || {
            sim(&device).run_all();
            task.is_finished()
        });
        (i, runtime.block_on(task))
    });
    assert!(ended.all(|(i, ended)| match ended {
        Ok(Ok(x)) => i % 2 == 1 && x == [1; 64],
        Ok(Err(_)) => false,
        Err(ended) => i % 2 == 0 && ended.is_panic(),
    }));
    let mut more = device_buffer(&device, &[1u32; 64]);
    increment(&mut more)?;
    run_to_end(&device);
    drop(more);
    run_to_end(&device);
    assert_all_freed(&device);
    assert!(device.stream().in_flight() == 0);
    Ok(())
}

#[test]
fn a_scope_is_current_in_every_poll_and_in_none_between() {
    let device = own_device();
    let outside = device.current_stream().as_raw();
    let stream = device.stream();
    let current = || device.current_stream().as_raw();
    let mut scoped = Box::pin(stream.scope(async {
        for _ in 0..3 {
            assert_eq!(current(), stream.as_raw());
            futures::pending!();
        }
        current()
    }));
    for _ in 0..3 {
        assert!((&mut scoped).now_or_never().is_none());
        assert_eq!(current(), outside);
    }
    assert_eq!(scoped.now_or_never(), Some(stream.as_raw()));
}

#[test]
fn a_stream_set_is_used_by_its_thread_alone_and_not_inside_scopes() {
    watched(|| {
        let device = own_device();
        let [chosen, other] = [device.stream(), device.stream()];
        chosen.set_current();
        assert!(device.current_stream().same_stream(&chosen));
        other.in_scope(|| assert!(device.current_stream().same_stream(&other)));
        assert!(device.current_stream().same_stream(&chosen));
        let theirs = std::thread::scope(|scope| {
            scope.spawn(|| device.current_stream()).join().expect("no panic")
        });
        assert!(!theirs.same_stream(&chosen));
    });
}

#[test]
fn a_stream_set_lasts_as_long_as_the_task() {
    let device = own_device();
    let outside = device.current_stream().as_raw();
    local_runtime().block_on(async {
        let set = |device: Device| async move {
            let stream = device.stream();
            stream.set_current();
            for _ in 0..3 {
                tokio::task::yield_now().await;
                assert!(device.current_stream().same_stream(&stream));
            }
        };
        let scope = device.stream();
        let plain = tokio::spawn(set(device.clone()));
        let unscoped = headwater::spawn(set(device.clone()));
        let scoped = scope.in_scope(|| headwater::spawn(set(device.clone())));
        for task in [plain, unscoped, scoped] {
            task.await.expect("no panic");
        }
    });
    assert_eq!(device.current_stream().as_raw(), outside);
}

#[test]
fn a_task_spawned_in_a_scope_gets_a_stream_of_its_own_with_the_same_priority() {
    let device = own_device();
    let urgent = device.stream_with(StreamOptions::new().priority(Priority::High).name("urgent"));
    assert_eq!((urgent.priority(), urgent.name()), (Priority::High, Some("urgent")));
    local_runtime().block_on(async {
        let task = |device: Device| async move {
            let mine = device.current_stream();
            tokio::task::yield_now().await;
            assert!(device.current_stream().same_stream(&mine));
            let grandchild = headwater::spawn(async move { device.current_stream() });
            [mine, grandchild.await.expect("no panic")]
        };
        let spawned = urgent.in_scope(|| {
            [headwater::spawn(task(device.clone())), headwater::spawn(task(device.clone()))]
        });
        let mut streams = vec![urgent.as_raw()];
        for task in spawned {
            let both = task.await.expect("no panic");
            assert!(both.iter().all(|stream| stream.priority() == Priority::High));
            assert!(!both[0].same_stream(&both[1]));
            streams.push(both[0].as_raw());
        }
        streams.sort_unstable();
        streams.dedup();
        assert_eq!(streams.len(), 3);
    });
}

#[test]
fn streams_given_back_are_lent_again_and_more_than_there_are_still_work() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 16]);
    let held: Vec<_> = (0..40).map(|_| device.stream()).collect();
    for stream in &held {
        stream.in_scope(|| increment(&mut x))?;
    }
    drop(held);
    let mut lent: Vec<_> = (0..16).map(|_| device.stream()).collect();
    lent.sort_unstable_by_key(Stream::as_raw);
    lent.dedup_by(|a, b| a.same_stream(b));
    assert_eq!(lent.len(), 16, "lent twice with others idle");
    drop(lent);
    let mine = device.stream();
    assert!((0..100).all(|_| !device.stream().same_stream(&mine)), "lent while it was held");
    let creates = device.driver_calls().map(|calls| calls.stream_creates);
    for _ in 0..100 {
        device.stream().in_scope(|| increment(&mut x))?;
    }
    assert_eq!(elements(&x), [140; 16]);
    assert_eq!(device.driver_calls().map(|calls| calls.stream_creates), creates);
    run_to_end(&device);
    Ok(())
}

#[test]
fn setting_another_devices_stream_leaves_a_task_its_own() -> Result<()> {
    let (a, b) = (eager(), eager());
    let outer = a.stream();
    local_runtime().block_on(outer.scope(async {
        let task = headwater::spawn(async move {
            let own = a.current_stream();
            let other = b.stream();
            other.set_current();
            assert!(a.current_stream().same_stream(&own));
            assert!(b.current_stream().same_stream(&other));
        });
        task.await.expect("the task ends well");
    }));
    Ok(())
}

#[test]
fn an_ending_thread_can_still_enqueue() -> Result<()> {
    struct Last(Device, std::sync::mpsc::Sender<Result<DeviceBuffer<u32>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.zeros::<u32>(64));
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let device = eager();
    let thread = std::thread::spawn(move || {
        // Made before the scopes of the thread, so dropped after them.
        LAST.set(Some(Last(device.clone(), sender)));
        device.stream().in_scope(|| device.zeros::<u32>(64))
    });
    thread.join().expect("the thread ends well")?;
    let x = receive(&receiver)?;
    assert_eq!(elements(&x), [0; 64]);
    Ok(())
}

#[test]
fn a_stream_knows_what_it_was_made_for() -> Result<()> {
    let device = own_device_with(|builder| builder.single_stream(false));
    assert_eq!(device.current_stream().role(), StreamRole::Task);
    let leased = device.stream();
    assert_eq!(leased.role(), StreamRole::Leased);
    assert_eq!(leased.in_scope(|| device.current_stream().role()), StreamRole::Leased);
    let urgent = device.stream_with(StreamOptions::new().priority(Priority::High));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            urgent.set_current();
            assert_eq!(device.current_stream().priority(), Priority::High);
        });
    });
    assert_eq!(device.current_stream().priority(), Priority::Normal);
    Ok(())
}

/// Sixteen streams are given back, all but one with a kernel running. `on_the_one` leaves nothing
/// running there either.
fn the_idle_stream_is_lent(on_the_one: impl FnOnce(&Device) -> Result<()>) -> Result<()> {
    let device = stepped();
    let mut buffers: Vec<_> = (0..16).map(|_| device_buffer(&device, &[0u32; 64])).collect();
    let mut streams: Vec<_> = (0..16).map(|_| device.stream()).collect();
    let idle = streams[0].number();
    streams[0].in_scope(|| on_the_one(&device))?;
    for (stream, x) in streams.iter().zip(&mut buffers).skip(1) {
        stream.in_scope(|| increment(x))?;
    }
    // The idle one last: it is not the one that was given back longest ago.
    while let Some(stream) = streams.pop() {
        drop(stream);
    }
    assert_eq!(device.stream().number(), idle);
    Ok(())
}

#[test]
fn a_stream_on_which_a_call_was_refused_is_idle() -> Result<()> {
    the_idle_stream_is_lent(|device| {
        let mut x = device.alloc::<u32>(64)?;
        sim(device).inject(Fault::of_call(DriverCall::Fill, DriverError::INVALID_VALUE));
        assert!(x.fill(1).is_err());
        Ok(())
    })
}

#[test]
fn a_stream_that_only_allocated_is_idle() -> Result<()> {
    the_idle_stream_is_lent(|device| device.alloc::<u32>(64).map(drop))
}
