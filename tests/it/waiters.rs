//! Each waiter is woken when its own operation has run, once, and not before.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

use headwater::{Completion, Device, DeviceBuffer, Result};

use crate::common::{
    Random, Wakes, any_device, device_buffer, elements, last_op, receive, run_to_end, sim,
    step_at_random, stepped, until, wait,
};
use crate::kernels::{copy_u32, increment};
use crate::unreturned::Bomb;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

/// Lets the reactor's thread ask for what is pending `rounds` times more.
fn let_the_reactor_look(device: &Device, rounds: u64) {
    let queries = || device.driver_calls().expect("counted").event_queries;
    let before = queries();
    until("the reactor looks", || queries() >= before + rounds);
}

/// Counts the wake-ups of the task it is polled by, and those before `open`.
struct Watched<F> {
    inner: F,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: AtomicBool,
    pending: AtomicUsize,
    wakes: AtomicUsize,
    early: AtomicUsize,
}

struct CountingWaker(Waker, Arc<Counts>);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.1.wakes.fetch_add(1, SeqCst);
        if !self.1.open.load(SeqCst) {
            self.1.early.fetch_add(1, SeqCst);
        }
        self.0.wake_by_ref();
    }
}

impl<F: Future + Unpin> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let counts = self.counts.clone();
        let waker = Arc::new(CountingWaker(cx.waker().clone(), counts.clone())).into();
        let polled = Pin::new(&mut self.inner).poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            counts.pending.fetch_add(1, SeqCst);
        }
        polled
    }
}

#[test]
fn of_64_tasks_behind_one_operation_each_is_woken_once_and_none_before() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut gate = device_buffer(&device, &[0u32; 64]);
    increment(&mut gate)?;
    let gate = Arc::new(gate);
    let counts = Arc::new(Counts::default());
    let runtime = runtime();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (device, gate, counts) = (device.clone(), gate.clone(), counts.clone());
            runtime.spawn(async move {
                let mut mine = device.alloc::<u32>(64)?;
                let inner = copy_u32(&*gate, &mut mine)?;
                Watched { inner, counts }.await?;
                Ok::<_, headwater::Error>(mine)
            })
        })
        .collect();
    until("all wait", || counts.pending.load(SeqCst) == 64);
    let_the_reactor_look(&device, 200);
    assert_eq!(sim.pending().iter().filter(|op| op.runnable).count(), 1);

    counts.open.store(true, SeqCst);
    assert_eq!(sim.run_all(), 65);
    for task in tasks {
        let mine = wait(task).expect("the task ends")?;
        assert_eq!(elements(&mine), [1; 64]);
    }
    let count = |counter: &AtomicUsize| counter.load(SeqCst);
    assert_eq!(count(&counts.early), 0, "woken before the gate was opened");
    assert_eq!((count(&counts.pending), count(&counts.wakes)), (64, 64));
    Ok(())
}

#[test]
fn of_64_waiters_for_one_operation_each_is_woken_once() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    increment(&mut x)?;
    let stream = device.current_stream();
    let waiters: Vec<_> = (0..64)
        .map(|_| {
            let wakes = Arc::new(Wakes::default());
            let mut done = stream.synchronize();
            let waker = wakes.clone().into();
            assert!(Pin::new(&mut done).poll(&mut Context::from_waker(&waker)).is_pending());
            (wakes, done)
        })
        .collect();
    let_the_reactor_look(&device, 20);
    assert!(waiters.iter().all(|(wakes, _)| wakes.count() == 0));
    run_to_end(&device);
    for (wakes, done) in waiters {
        until("woken", || wakes.count() > 0);
        assert!(done.is_finished()?);
        assert_eq!(wakes.count(), 1);
    }
    Ok(())
}

/// Adds 1 and reads back, `rounds` times, on streams of its own; what a task reads when it resumes
/// shows whether its own operation has run.
async fn count_up(device: Device, rounds: u32) -> Result<()> {
    let mut x: DeviceBuffer<u32> = device.zeros(16)?;
    let mut witness = device.alloc_host::<u32>(16)?;
    for round in 1..=rounds {
        let done: Completion = increment(&mut x)?;
        match round % 3 {
            0 => done.await?,
            1 => drop(done),
            _ => std::mem::forget(done),
        }
        let copied = x.copy_to(&mut witness)?;
        if round % 2 == 0 {
            copied.await?;
            assert_eq!(*witness.try_read()?, [round; 16], "resumed too early");
        } else {
            assert_eq!(*witness.read().await?, [round; 16], "resumed too early");
        }
    }
    Ok(())
}

#[test]
fn on_a_busy_device_each_task_resumes_when_its_own_work_has_run() -> Result<()> {
    let device = stepped();
    let runtime = runtime();
    let ended = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..48)
        .map(|_| {
            let (device, ended) = (device.clone(), ended.clone());
            runtime.spawn(async move {
                let result = count_up(device, 12).await;
                ended.fetch_add(1, SeqCst);
                result
            })
        })
        .collect();
    let mut random = Random::new(7);
    until("all tasks end", || {
        // One that panics ends as well.
        step_at_random(sim(&device), &mut random);
        tasks.iter().all(tokio::task::JoinHandle::is_finished)
    });
    for task in tasks {
        wait(task).expect("no task panics")?;
    }
    assert_eq!(ended.load(SeqCst), 48);
    run_to_end(&device);
    Ok(())
}

#[test]
fn each_task_resumes_when_its_own_work_has_run_on_any_device() -> Result<()> {
    let device = any_device();
    let runtime = runtime();
    let tasks: Vec<_> = (0..48).map(|_| runtime.spawn(count_up(device.clone(), 20))).collect();
    for task in tasks {
        wait(task).expect("no task panics")?;
    }
    Ok(())
}

#[test]
fn the_last_waker_is_the_one_that_is_woken() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut done = increment(&mut x)?;
    let wakes = [Arc::new(Wakes::default()), Arc::new(Wakes::default())];
    for wakes in &wakes {
        let waker = wakes.clone().into();
        assert!(Pin::new(&mut done).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    run_to_end(&device);
    until("woken", || wakes[1].count() > 0);
    assert_eq!(wakes[0].count(), 0, "that task has gone on to something else");
    Ok(())
}

#[test]
fn one_who_stopped_waiting_is_not_woken() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut given_up = increment(&mut x)?;
    let wakes = Arc::new(Wakes::default());
    let waker = wakes.clone().into();
    assert!(Pin::new(&mut given_up).poll(&mut Context::from_waker(&waker)).is_pending());
    drop((given_up, waker));
    assert_eq!(Arc::strong_count(&wakes), 1, "its waker is kept");
    let done = device.current_stream().synchronize();
    run_to_end(&device);
    wait(done)?;
    assert_eq!(wakes.count(), 0);
    Ok(())
}

/// Runs a function when woken.
struct OnWake<F>(F);

impl<F: Fn() + Send + Sync> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn poll_with(done: &mut Completion, on_wake: impl Fn() + Send + Sync + 'static) {
    let waker = Arc::new(OnWake(on_wake)).into();
    assert!(Pin::new(done).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn a_waker_that_panics_keeps_nobody_asleep() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    increment(&mut x)?;
    let stream = device.current_stream();
    let (mut before, mut panics, mut after) =
        (stream.synchronize(), stream.synchronize(), stream.synchronize());
    let (sender, woken) = channel();
    let after_sender = sender.clone();
    poll_with(&mut before, move || sender.send("before").expect("received"));
    poll_with(&mut panics, || panic!("a waker's own fault"));
    poll_with(&mut after, move || after_sender.send("after").expect("received"));
    run_to_end(&device);
    assert_eq!([receive(&woken), receive(&woken)], ["before", "after"]);
    let done = increment(&mut x)?;
    run_to_end(&device);
    wait(done)
}

struct PanicsAgain;

impl Wake for PanicsAgain {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(Bomb);
    }
}

#[test]
fn a_waker_that_panics_with_what_panics_again_keeps_nobody_asleep() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut first = increment(&mut x)?;
    let waker = Waker::from(Arc::new(PanicsAgain));
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
    let second = increment(&mut x)?;
    sim(&device).run_all();
    wait(second)
}

#[test]
fn a_waker_may_enqueue_await_and_drop_whatever_it_likes() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let mut done = increment(&mut x)?;
    increment(&mut y)?;
    let mine = Arc::new(Mutex::new(Some((y, x, device.alloc_host::<u32>(64)?))));
    let (sender, result) = channel();
    poll_with(&mut done, move || {
        let taken = mine.lock().expect("not poisoned").take();
        let Some((mut y, mut x, mut pinned)) = taken else { return };
        let all = || {
            increment(&mut y)?;
            y.copy_to(&mut pinned)?;
            x.copy_from(&pinned)?;
            drop((y, pinned));
            Ok::<_, headwater::Error>(x)
        };
        sender.send(all()).expect("received");
    });
    let first = sim(&device).step().map(|op| op.id);
    assert!(first.is_some());
    let x = receive(&result)?;
    assert_eq!(sim(&device).pending().len(), 4);
    assert_eq!(last_op(sim(&device)).name, "copy_h2d");
    assert_eq!(elements(&x), [2; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn the_last_handle_may_be_dropped_by_a_waker() -> Result<()> {
    for with_work in [false, true] {
        let device = stepped();
        let sim = sim(&device).clone();
        let mut x = device_buffer(&device, &[0u32; 64]);
        let mut pinned = device.alloc_host::<u32>(64)?;
        let mut done = increment(&mut x)?;
        let step = last_op(&sim).id;
        if with_work {
            x.copy_to(&mut pinned)?; // still to run when the handles are gone
        }
        let mine = Arc::new(Mutex::new(Some((device, x, pinned))));
        let (sender, dropped_on) = channel();
        poll_with(&mut done, move || {
            drop(mine.lock().expect("not poisoned").take());
            let _ = sender.send(std::thread::current().name().map(str::to_owned));
        });
        assert!(sim.run(step).is_some());
        let thread = receive(&dropped_on).expect("a named thread");
        assert!(thread.starts_with("headwater-"), "on {thread}, not the reactor's");
        drop(done);
        sim.run_all();
        until("all is given back", || {
            (sim.live_streams(), sim.live_events(), sim.live_modules()) == (0, 0, 0)
                && (sim.live_device_bytes(), sim.live_pinned_bytes()) == (0, 0)
        });
        assert_eq!(sim.violations(), []);
    }
    Ok(())
}

/// A waker that calls `on_clone` when it is cloned, and whose clones do nothing.
#[allow(unsafe_code, reason = "the safe way to make a waker has no say in how it is cloned")]
fn waker_with_a_clone(on_clone: impl Fn() + Send + Sync + 'static) -> Waker {
    type OnClone = Box<dyn Fn() + Send + Sync>;
    fn clone(data: *const ()) -> RawWaker {
        // SAFETY: `data` is the box below, which lives until its waker is dropped.
        unsafe { (*data.cast::<OnClone>())() };
        RawWaker::new(Waker::noop().data(), Waker::noop().vtable())
    }
    fn drop_box(data: *const ()) {
        // SAFETY: `data` is the box below. It has one owner, since clones do not refer to it.
        drop(unsafe { Box::from_raw(data.cast_mut().cast::<OnClone>()) });
    }
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, drop_box, |_| {}, drop_box);
    let data: *mut OnClone = Box::into_raw(Box::new(Box::new(on_clone)));
    // SAFETY: the functions of the table may be called from any thread with this `data`, and it is
    // freed once, by a wake or by a drop.
    unsafe { Waker::from_raw(RawWaker::new(data.cast_const().cast(), &VTABLE)) }
}

#[test]
fn one_who_is_told_while_registering_and_stays_around_holds_nobody_up() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut told = increment(&mut x)?;
    let stream = device.current_stream();
    let mut others = [stream.synchronize(), stream.synchronize()];
    // Between the last look and the registration, the work runs and another thread sees that.
    let (simulator, other) = (sim(&device).clone(), stream.synchronize());
    let waker = waker_with_a_clone(move || {
        simulator.run_all();
        until("seen", || other.is_finished().expect("asking"));
    });
    let polled = Pin::new(&mut told).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Ok(()))));

    for other in &mut others {
        wait(other)?;
    }
    let next = increment(&mut x)?;
    let mut next_too = stream.synchronize();
    poll_with(&mut next_too, || {});
    run_to_end(&device);
    wait(next)?;
    wait(next_too)?;
    drop(told);
    Ok(())
}
