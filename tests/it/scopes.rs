//! Scopes wherever futures are put: combinators, tasks, other threads, panics, lost devices.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use futures::FutureExt;
use futures::future::{join, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use headwater::sim::Schedule;
use headwater::{
    Device, DriverError, Error, Priority, Result, StreamOptions, StreamRole, block_on,
};
use tokio::task::{JoinSet, yield_now};

use crate::common::{
    device_buffer, eager, elements, last_op, own_device, run_to_end, sim, stepped, until, wait,
    watched,
};
use crate::kernels::increment;

fn current(device: &Device) -> u64 {
    device.current_stream().as_raw()
}

fn workers(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_time().build().expect("a runtime")
}

/// What `f` returns on a thread of its own.
fn elsewhere<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(f).join().expect("no panic"))
}

/// Asserts that the current stream stays what it is, over some yields, and returns it.
async fn stays(device: &Device) -> u64 {
    let mine = current(device);
    for _ in 0..5 {
        yield_now().await;
        assert_eq!(current(device), mine);
    }
    mine
}

fn are_different(mut streams: Vec<u64>) -> bool {
    let all = streams.len();
    streams.sort_unstable();
    streams.dedup();
    streams.len() == all
}

#[test]
fn a_task_that_changes_its_worker_thread_stays_on_its_stream() {
    let device = own_device();
    let runtime = workers(3);
    let task = |device: Device| async move {
        let (mine, first) = (current(&device), std::thread::current().id());
        let mut moved = false;
        for _ in 0..20_000 {
            yield_now().await;
            assert_eq!(current(&device), mine);
            moved |= std::thread::current().id() != first;
        }
        moved
    };
    let tasks: Vec<_> = (0..8)
        .map(|i| {
            let (device, _runtime) = (device.clone(), runtime.enter());
            match i % 3 {
                0 => tokio::spawn(task(device)),
                1 => headwater::spawn(task(device)),
                _ => device.stream().in_scope(|| headwater::spawn(task(device.clone()))),
            }
        })
        .collect();
    let moved: Vec<_> = tasks.into_iter().map(|task| wait(task).expect("no panic")).collect();
    assert!(moved.contains(&true), "no task was moved: this shows nothing");
}

#[test]
fn a_scope_polled_on_one_thread_after_another_keeps_its_stream() {
    let device = own_device();
    let stream = device.stream();
    let mut scoped = Box::pin(stream.scope(async {
        let inner = device.stream();
        for _ in 0..3 {
            assert_eq!(current(&device), stream.as_raw());
            inner.scope(async { stays(&device).await }).await;
            futures::pending!();
        }
        3
    }));
    let mut polls = 0;
    let ended = loop {
        let polled = match polls % 2 {
            0 => elsewhere(|| scoped.as_mut().now_or_never()),
            _ => scoped.as_mut().now_or_never(),
        };
        assert_eq!(device.current_stream().role(), StreamRole::Task, "between two polls");
        polls += 1;
        match polled {
            None => assert!(polls < 100),
            Some(ended) => break ended,
        }
    };
    assert!(ended == 3 && polls > 3, "{polls} polls");
}

#[test]
fn select_gives_each_scoped_branch_its_stream_and_the_loser_gives_its_own_back() -> Result<()> {
    let device = stepped();
    let outside = current(&device);
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    block_on(async {
        tokio::select! {
            biased;
            lost = device.scope(async { increment(&mut x)?.await }) => panic!("{lost:?}"),
            won = device.scope(async { increment(&mut y).map(drop) }) => won?,
        }
        assert_eq!(current(&device), outside);
        Ok::<_, Error>(())
    })?;
    let [a, b] = &sim(&device).pending()[..] else { panic!("the loser's work is there") };
    assert!(a.stream != b.stream && a.runnable && b.runnable);
    run_to_end(&device);
    assert_eq!((elements(&x), elements(&y)), (vec![1; 64], vec![1; 64]));
    let all: Vec<_> = (0..16).map(|_| device.stream()).collect();
    assert!(are_different(all.iter().map(|stream| stream.as_raw()).collect()), "one is still lent");
    Ok(())
}

#[test]
fn nested_scopes_of_the_branches_of_a_join_do_not_mix() {
    let device = own_device();
    let branch = async || {
        let outer = stays(&device).await;
        let inner = device.scope(stays(&device)).await;
        assert_eq!(current(&device), outer);
        [outer, inner]
    };
    let outside = current(&device);
    let (a, b) = block_on(join(device.scope(branch()), device.scope(branch())));
    assert!(are_different([a, b, [outside, 0]].concat()));
    assert_eq!(current(&device), outside);
}

#[test]
fn scopes_in_an_unordered_set_keep_their_streams() {
    let device = own_device();
    let mut set: FuturesUnordered<_> = (0..10).map(|_| device.scope(stays(&device))).collect();
    let outside = current(&device);
    let streams = block_on(async {
        let mut streams = Vec::new();
        while let Some(stream) = set.next().await {
            assert_eq!(current(&device), outside);
            streams.push(stream);
        }
        streams
    });
    assert!(are_different(streams));
}

#[test]
fn tasks_of_a_join_set_have_streams_of_their_own_and_aborted_ones_give_theirs_back() {
    let device = own_device();
    let runtime = workers(2);
    runtime.block_on(async {
        let mut set = JoinSet::new();
        for i in 0..12 {
            let device = device.clone();
            let task = async move { stays(&device).await };
            match i % 2 {
                0 => set.spawn(task),
                _ => set.spawn(own_scope(task)),
            };
        }
        assert!(are_different(set.join_all().await));

        let mut set = JoinSet::new();
        for _ in 0..16 {
            set.spawn(device.scope(std::future::pending::<()>()));
        }
        yield_now().await;
        set.shutdown().await;
    });
    let all: Vec<_> = (0..16).map(|_| device.stream()).collect();
    assert!(are_different(all.iter().map(|stream| stream.as_raw()).collect()), "one is still lent");

    /// In a scope that it takes at its first poll.
    async fn own_scope<F: Future<Output = u64>>(task: F) -> u64 {
        let mut task = Box::pin(task);
        let device = own_device();
        let outer = device.stream(); // of another device: hides nothing
        outer.scope(poll_fn(move |cx| task.as_mut().poll(cx))).await
    }
}

#[test]
fn a_task_that_panics_in_scopes_leaves_nothing_to_the_next_one_on_its_thread() {
    let device = own_device();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let stream = device.stream();
    let mut lent = vec![stream.as_raw()];
    for round in 0..4 {
        let (scope, inner) = (device.clone(), device.clone());
        let panics = async move {
            yield_now().await;
            let inside = async {
                if round % 2 == 0 {
                    yield_now().await;
                }
                inner.stream().in_scope(|| panic!("the user's own"))
            };
            scope.scope(inside).await
        };
        runtime.block_on(async {
            let task = match round / 2 {
                0 => tokio::spawn(stream.scope(panics)),
                _ => stream.in_scope(|| headwater::spawn(panics)),
            };
            let next = tokio::spawn({
                let device = device.clone();
                async move { stays(&device).await }
            });
            assert!(task.await.is_err_and(|ended| ended.is_panic()));
            lent.push(next.await.expect("no panic"));
        });
        assert_eq!(device.current_stream().role(), StreamRole::Task);
    }
    assert!(are_different(lent));
}

#[test]
fn a_scope_dropped_half_way_leaves_its_work_and_gives_its_stream_back() -> Result<()> {
    let device = stepped();
    let outside = current(&device);
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut scoped = Box::pin(device.scope(async {
        increment(&mut x)?;
        device.scope(async { increment(&mut x)?.await }).await
    }));
    assert!(scoped.as_mut().now_or_never().is_none());
    drop(scoped);
    assert_eq!(current(&device), outside);
    let all: Vec<_> = (0..16).map(|_| device.stream()).collect();
    assert!(are_different(all.iter().map(|stream| stream.as_raw()).collect()), "one is still lent");
    run_to_end(&device);
    assert_eq!(elements(&x), [2; 64]);
    Ok(())
}

/// Says on which stream it is dropped.
struct TellsStream<'a>(&'a Device, std::sync::mpsc::Sender<u64>);

impl Drop for TellsStream<'_> {
    fn drop(&mut self) {
        let _ = self.1.send(current(self.0));
    }
}

#[test]
fn what_a_dropped_scope_drops_is_still_inside_of_it_on_any_thread() {
    let device = own_device();
    let outside = current(&device);
    let stream = device.stream();
    let (sender, told) = std::sync::mpsc::channel();
    let waits = |tells: TellsStream<'static>| async move {
        let _tells = tells;
        std::future::pending::<()>().await
    };
    let device: &'static Device = Box::leak(Box::new(device));
    let tells = || TellsStream(device, sender.clone());
    let mut scoped = Box::pin(stream.scope(waits(tells())));
    assert!(scoped.as_mut().now_or_never().is_none());
    elsewhere(|| drop(scoped));
    drop(stream.scope(waits(tells()))); // never polled
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [stream.as_raw(); 2]);
    assert_eq!(current(device), outside);

    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let aborted = runtime.block_on(async {
        let tells = tells();
        let task = stream.in_scope(|| {
            headwater::spawn(async move {
                let _ = tells.1.send(current(tells.0));
                waits(tells).await
            })
        });
        yield_now().await;
        task.abort();
        task.await
    });
    assert!(aborted.is_err_and(|ended| ended.is_cancelled()));
    let told: Vec<_> = told.try_iter().collect();
    assert!(told.len() == 2 && told[0] == told[1] && told[0] != outside, "{told:?}");
}

#[test]
fn a_scope_polled_after_its_end_does_what_the_future_in_it_does() {
    let device = own_device();
    let outside = current(&device);
    let stream = device.stream();
    let polls = std::cell::Cell::new(0);
    let mut counted = stream.scope(poll_fn(|_| {
        polls.set(polls.get() + 1);
        assert_eq!(current(&device), stream.as_raw());
        Poll::Ready(())
    }));
    (0..3).for_each(|_| assert!((&mut counted).now_or_never().is_some()));
    assert_eq!(polls.get(), 3);
    let mut panics: Pin<Box<_>> = Box::pin(stream.scope(async {}));
    assert!(panics.as_mut().now_or_never().is_some());
    let again = catch_unwind(AssertUnwindSafe(|| panics.as_mut().now_or_never()));
    assert!(again.is_err());
    assert_eq!(current(&device), outside);
}

#[test]
fn a_stream_set_inside_a_scope_is_used_after_the_scope() {
    watched(|| {
        let device = own_device();
        let [scope, chosen] = [device.stream(), device.stream()];
        scope.in_scope(|| {
            chosen.set_current();
            assert_eq!(current(&device), scope.as_raw());
        });
        assert_eq!(current(&device), chosen.as_raw());
    });
}

#[test]
fn a_stream_set_in_a_spawned_task_is_used_outside_of_its_scopes_alone() {
    let device = own_device();
    let runtime = workers(2);
    let set = |device: Device| async move {
        let mine = current(&device);
        let chosen = device.stream();
        let inside = device.scope(async {
            let scope = current(&device);
            chosen.set_current();
            yield_now().await;
            assert_eq!(current(&device), scope);
            scope
        });
        let inside = inside.await;
        assert_eq!(stays(&device).await, chosen.as_raw());
        let child = headwater::spawn({
            let device = device.clone();
            async move { current(&device) }
        });
        let child = child.await.expect("no panic");
        assert!(are_different(vec![mine, inside, chosen.as_raw(), child]));
    };
    runtime.block_on(async {
        let mut tasks = vec![headwater::spawn(set(device.clone()))];
        let scope = device.stream();
        tasks.push(scope.in_scope(|| headwater::spawn(set(device.clone()))));
        for task in join_all(tasks).await {
            task.expect("no panic");
        }
    });
}

#[test]
fn a_task_spawned_in_scopes_of_two_devices_has_streams_of_its_own_on_both() {
    let devices = [eager(), eager()];
    let urgent = StreamOptions::new().priority(Priority::High);
    let [a, b] = devices.each_ref().map(|device| device.stream_with(urgent.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let own = runtime.block_on(a.scope(b.scope(async {
        let task = headwater::spawn(async move {
            let mine = devices.each_ref().map(Device::current_stream);
            let chosen = devices[0].stream();
            chosen.set_current();
            yield_now().await;
            assert!(devices[0].current_stream().same_stream(&chosen));
            assert!(devices[1].current_stream().same_stream(&mine[1]));
            mine
        });
        task.await.expect("no panic")
    })));
    assert!(own.iter().all(|s| s.priority() == Priority::High && s.role() == StreamRole::Leased));
    assert!(!own[0].same_stream(&a) && !own[1].same_stream(&b));
}

#[test]
fn scopes_of_two_devices_in_branches_of_a_join_each_have_their_own() {
    let (one, two) = (eager(), eager());
    let (on_one, on_two) = (one.stream(), two.stream());
    let both = async || {
        let seen = (current(&one), current(&two));
        for _ in 0..3 {
            yield_now().await;
            assert_eq!((current(&one), current(&two)), seen);
        }
        seen
    };
    let outside = (current(&one), current(&two));
    let nested = on_one.scope(async { on_two.scope(both()).await });
    let (a, (b, c)) = block_on(join(nested, join(on_one.scope(both()), on_two.scope(both()))));
    assert_eq!(a, (on_one.as_raw(), on_two.as_raw()));
    assert_eq!((b, c), ((on_one.as_raw(), outside.1), (outside.0, on_two.as_raw())));
}

#[test]
fn in_a_scope_of_a_lost_device_operations_say_so_and_other_devices_go_on() -> Result<()> {
    let (lost, other) = (stepped(), eager());
    let mut x = device_buffer(&lost, &[0u32; 64]);
    let mut y = device_buffer(&other, &[0u32; 64]);
    let before = lost.stream();
    let done = before.in_scope(|| increment(&mut x))?;
    sim(&lost).fail(DriverError::ILLEGAL_ADDRESS);
    assert!(matches!(wait(done), Err(Error::DeviceLost(_))));
    let told = |ended: Result<()>| assert!(matches!(ended, Err(Error::DeviceLost(_))), "{ended:?}");
    for stream in [&before, &lost.stream()] {
        told(stream.in_scope(|| increment(&mut x).map(drop)));
        told(wait(stream.scope(async {
            other.scope(async { increment(&mut y)?.await }).await?;
            increment(&mut x)?.await
        })));
        told(stream.in_scope(|| lost.alloc::<u32>(4).map(drop)));
        told(stream.record().map(drop));
        told(wait(stream.ready()));
    }
    told(wait(lost.scope(async { lost.upload(vec![1u32]).await.map(drop) })));
    told(lost.legacy_default_stream().map(drop));
    let runtime = workers(1);
    let task = runtime.block_on(lost.scope(async {
        let device = lost.clone();
        headwater::spawn(async move { device.zeros::<u32>(4).map(drop) }).await
    }));
    told(task.expect("no panic"));
    assert_eq!(elements(&y), [2; 64]);
    Ok(())
}

#[test]
fn a_scope_that_a_device_is_lost_in_ends_with_the_loss() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut scoped = Box::pin(device.scope(async { increment(&mut x)?.await }));
    assert!(scoped.as_mut().now_or_never().is_none());
    let op = last_op(sim(&device));
    assert_eq!(op.name, "increment");
    sim(&device).fail(DriverError::ILLEGAL_ADDRESS);
    until("it has ended", || match scoped.as_mut().now_or_never() {
        None => false,
        Some(Err(Error::DeviceLost(_))) => true,
        Some(other) => panic!("{other:?}"),
    });
    sim(&device).set_schedule(Schedule::Eager);
    Ok(())
}
