//! A program run on one thread, which looks after the devices by hand: nothing but the program and the
//! choices it is given decides what happens when.
//!
//! The program runs on a tokio runtime of this thread. When no task can run, the runtime asks
//! ([`Run::parked`]) and the devices are moved on until someone is woken. Where nobody can be, the
//! run has come to a [`Stall`] and ends.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};

use super::watch::Watch;
use super::yields::Yields;
use crate::device::Device;
use crate::foreign::contained;
use crate::reactor::{Hand, Turned, Woken, hold};

/// So many looks at all that is waited for, with nobody woken, are the end: an event that cannot be
/// recorded, say. A device that can go on does so at each look.
const MOST_TURNS: u32 = 200_000;
/// So many they get at a time while tasks can run.
const TURNS_BETWEEN: u32 = 100;

/// What a thread panics with that is inside of `block_on` when the run ends.
pub(crate) const OUT_OF_BLOCK_ON: &str =
    "block_on waits for what cannot happen any more: the run ends here";

thread_local! {
    static CURRENT: RefCell<Option<Rc<Run>>> = const { RefCell::new(None) };
}

/// Who chooses what happens next, and knows the devices.
pub(crate) trait Chooser {
    /// No task can run, and some wait for the devices: where none of these can go on, says why.
    fn stuck(&self) -> Option<String>;
    /// Whether the spawned task that is about to be polled lets another one go first.
    fn defers(&self) -> bool;
    /// Ends the devices that cannot go on: whoever waits is told. False where all had ended.
    fn gives_up(&self) -> bool;
    /// The program has ended, or cannot go on. What happens from here on is done to clear up.
    fn ended(&self);
}

/// Why nothing can happen any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// No task can run, some wait for a device, and no device can move: who waits for whom.
    Device(String),
    /// No task can run and none waits for a device. So many of the spawned ones have not ended.
    Host { tasks: usize },
    /// The thread is inside `block_on`, and what that waits for does not come.
    Blocked,
    /// Tasks can run, again and again, and nothing comes of it.
    Yielding,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    Output(T),
    /// It, or a task of its that [`spawn`](super::spawn) made, panicked: what with, as far as that
    /// is text. The process's hook has told more, unless it was not called (`resume_unwind`) or is
    /// not ours any more.
    Panicked(Vec<String>),
    Stalled(Stall),
}

/// A program that is being run on this thread.
pub(crate) struct Run {
    devices: Vec<Device>,
    chooser: Box<dyn Chooser>,
    /// How long to wait for a wake-up that only another thread can bring.
    patience: Duration,
    stall: RefCell<Option<Stall>>,
    task_panicked: Cell<bool>,
    /// What tasks panicked with.
    payloads: RefCell<Vec<String>>,
    /// The runtime's numbers of tasks, and theirs in the order in which they were first seen: the
    /// runtime's depend on what else goes on in the process.
    tasks: RefCell<HashMap<u64, u64>>,
    program: Arc<ProgramWaker>,
    caller: Arc<Caller>,
    /// Over the runtime's sleeps.
    watch: Watch,
    yields: Yields,
    /// The devices are to move, though tasks can run.
    due: Cell<bool>,
}

/// Runs `main` to its end on this thread, with everything that it has spawned, and drops it.
/// `patience` is how long it may wait for other threads.
///
/// Errors: the runtime was not made, or the thread is inside of one.
pub(crate) fn run<F: Future>(
    devices: Vec<Device>,
    chooser: Box<dyn Chooser>,
    patience: Duration,
    main: impl FnOnce() -> F,
) -> io::Result<Ended<F::Output>> {
    if Handle::try_current().is_ok() {
        return Err(io::Error::other(
            "this thread is inside of a tokio runtime already, and a run has one of its own: call it \
             from a plain function, by `#[test]`, not `#[tokio::test]`",
        ));
    }
    let runtime = Builder::new_current_thread()
        .on_thread_park(|| with_current(Run::parked).unwrap_or_default())
        .on_thread_unpark(|| with_current(|run| run.watch.end()).unwrap_or_default())
        .build()?;
    let wakes: Arc<ProgramWaker> = Arc::default();
    let (program, thread) = (wakes.clone(), thread::current());
    let run = Rc::new(Run {
        devices,
        chooser,
        patience,
        stall: RefCell::default(),
        task_panicked: Cell::new(false),
        payloads: RefCell::default(),
        tasks: RefCell::default(),
        watch: Watch::new(Arc::new(RuntimeWaker(wakes.clone())).into()),
        yields: Yields::default(),
        due: Cell::new(false),
        caller: Arc::new(Caller { called: Woken::default(), program, thread }),
        program: wakes,
    });
    let current = Current::enter(run.clone());
    let turning = Turning::begin(&run);
    let _hand = hold(run.clone());
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut program = pin!(main());
        let waker = Waker::from(run.program.clone());
        run.program.woken.set();
        runtime.block_on(poll_fn(|cx| {
            let _ = run.program.runtime.set(cx.waker().clone());
            if run.due.take()
                && let Some(stall) = run.move_between()
            {
                run.end(stall);
            }
            if let Some(stall) = run.stalled() {
                run.chooser.ended();
                return Poll::Ready(Ended::Stalled(stall));
            }
            if !run.program.woken.take() {
                return Poll::Pending;
            }
            run.polls();
            let polled = program.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                run.chooser.ended();
            }
            polled.map(Ended::Output)
        }))
    }));
    run.chooser.ended(); // it panicked
    // Tasks that have not ended are dropped here, still on this thread.
    let dropped = contained(|| runtime.shutdown_timeout(patience));
    drop((turning, current));
    let mut payloads = run.payloads.take();
    Ok(match (ended, run.stalled()) {
        // What panicked because nothing could happen any more.
        (_, Some(stall)) => Ended::Stalled(stall),
        (Err(payload), None) => {
            payloads.extend(text(&*payload));
            contained(|| drop(payload));
            Ended::Panicked(payloads)
        }
        (Ok(_), None) if !dropped || run.task_panicked.get() => Ended::Panicked(payloads),
        (Ok(ended), None) => ended,
    })
}

/// What was panicked with, if it is text.
fn text(payload: &dyn Any) -> Option<String> {
    let fixed = payload.downcast_ref::<&str>().map(ToString::to_string);
    fixed.or_else(|| payload.downcast_ref::<String>().cloned())
}

/// The number of a task in the run of this thread, if there is one: in the order in which tasks
/// were first seen.
pub(super) fn number(task: u64) -> Option<u64> {
    with_current(|run| {
        let mut tasks = run.tasks.borrow_mut();
        let next = tasks.len() as u64 + 1;
        *tasks.entry(task).or_insert(next)
    })
}

/// Whether a spawned task that is about to be polled lets another one go first.
pub(super) fn defers() -> bool {
    let defers = |run: &Run| {
        run.polls();
        run.chooser.defers()
    };
    with_current(defers).unwrap_or(false)
}

/// Polls a spawned task. A panic goes on after it was noted.
pub(super) fn noticing<R>(poll: impl FnOnce() -> R) -> R {
    if with_current(|_| ()).is_none() {
        return poll();
    }
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|payload| {
        with_current(|run| {
            run.task_panicked.set(true);
            run.payloads.borrow_mut().extend(text(&*payload));
        });
        resume_unwind(payload)
    })
}

/// The last part of a spawned task: notes a panic while the others are dropped.
#[derive(Debug, Default)]
pub(super) struct Noticing;

impl Drop for Noticing {
    fn drop(&mut self) {
        if thread::panicking() {
            with_current(|run| run.task_panicked.set(true));
        }
    }
}

fn with_current<R>(f: impl FnOnce(&Run) -> R) -> Option<R> {
    let run = CURRENT.try_with(|current| current.borrow().clone()).ok()??;
    Some(f(&run))
}

struct Current(());

impl Current {
    fn enter(run: Rc<Run>) -> Self {
        CURRENT.set(Some(run));
        Current(())
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ended = CURRENT.take();
    }
}

/// What the devices came to where no task could run.
enum Moved {
    Woke,
    /// Someone waits for a device, and none can move: why.
    Stuck(String),
    /// Nobody waits for a device.
    NotAwaited,
}

impl Run {
    /// No task can run.
    fn parked(&self) {
        self.yields.end();
        match self.move_devices(MOST_TURNS) {
            // The runtime looks again; only whom that woke is polled.
            Moved::Woke => self.program.wake_runtime(),
            Moved::Stuck(why) => self.end(Stall::Device(why)),
            Moved::NotAwaited => {
                // Another thread may wake someone: the runtime sleeps, for so long at most.
                if self.watch.begin(Instant::now() + self.patience).is_err() {
                    self.end(self.host_stall());
                }
            }
        }
    }

    /// A task is about to be polled. Were some always to be, no runtime would ask for the devices.
    fn polls(&self) {
        if self.yields.count() {
            self.due.set(true);
            self.program.wake_runtime();
        }
    }

    /// The devices move while tasks can run, one of which may be what they wait for.
    fn move_between(&self) -> Option<Stall> {
        let stall = match self.move_devices(TURNS_BETWEEN) {
            Moved::Woke => {
                self.yields.end();
                return None;
            }
            Moved::Stuck(why) => Stall::Device(why),
            Moved::NotAwaited => Stall::Yielding,
        };
        self.yields.are_too_many(self.patience).then_some(stall)
    }

    fn move_devices(&self, turns: u32) -> Moved {
        self.caller.called.take();
        let mut stuck = None;
        for _ in 0..turns {
            let mut awaited = false;
            for device in &self.devices {
                match device.core().reactor().turn() {
                    Turned::Woke => return Moved::Woke,
                    Turned::Waiting => awaited = true,
                    Turned::Idle => {}
                }
            }
            if !awaited {
                return Moved::NotAwaited;
            }
            // Looked at once more since.
            if let Some(why) = stuck {
                return Moved::Stuck(why);
            }
            stuck = self.chooser.stuck();
        }
        Moved::Stuck("the devices go on, and nobody is told of an end".to_owned())
    }

    fn stalled(&self) -> Option<Stall> {
        let mut stall = self.stall.borrow_mut();
        if stall.is_none() && self.watch.take_too_long() && !self.was_woken() {
            *stall = Some(self.host_stall());
        }
        stall.clone()
    }

    /// Whether another thread has given this one something to do: at the last moment, it may be.
    fn was_woken(&self) -> bool {
        let tasks =
            Handle::try_current().map_or(0, |runtime| runtime.metrics().global_queue_depth());
        tasks > 0 || self.program.woken.is_set() || self.caller.called.is_set()
    }

    fn host_stall(&self) -> Stall {
        let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        Stall::Host { tasks }
    }

    fn end(&self, stall: Stall) {
        self.stall.borrow_mut().get_or_insert(stall);
        self.program.wake_runtime();
    }
}

/// Inside `block_on`: no task can run until it returns.
impl Hand for Run {
    fn wait(&self, woken: &Woken) {
        self.yields.end();
        let stall = match self.move_devices(MOST_TURNS) {
            Moved::Woke => return,
            Moved::Stuck(why) => Stall::Device(why),
            Moved::NotAwaited => {
                let until = Instant::now() + self.patience;
                loop {
                    if woken.is_set() || self.caller.called.is_set() {
                        return;
                    }
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    thread::park_timeout(left);
                }
                Stall::Blocked
            }
        };
        self.end_inside(stall);
    }

    fn polls_again(&self) {
        if self.yields.count()
            && let Some(stall) = self.move_between()
        {
            self.end_inside(stall);
        }
    }
}

impl Run {
    /// Gets the thread out of `block_on`: by a panic. Where it panics already, that would end the
    /// process: then a device that somebody waits for fails instead, and tells them.
    fn end_inside(&self, stall: Stall) {
        let device = matches!(stall, Stall::Device(_));
        self.end(stall);
        self.chooser.ended();
        if device && thread::panicking() && self.chooser.gives_up() {
            return;
        }
        panic!("{OUT_OF_BLOCK_ON}");
    }
}

/// While it lives, the run's devices leave to it what is waited for.
struct Turning<'r>(&'r [Device]);

impl<'r> Turning<'r> {
    fn begin(run: &'r Run) -> Self {
        let caller = Waker::from(run.caller.clone());
        for device in &run.devices {
            device.core().reactor().turned_by(Some(caller.clone()));
        }
        Turning(&run.devices)
    }
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        for device in self.0 {
            device.core().reactor().turned_by(None);
        }
    }
}

/// Has the run's thread look again at what is waited for, without the program being polled.
#[derive(Debug)]
struct Caller {
    /// Since the devices were last turned.
    called: Woken,
    program: Arc<ProgramWaker>,
    /// The run's, which may sleep inside of `block_on`.
    thread: Thread,
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.called.set();
        self.program.wake_runtime();
        self.thread.unpark();
    }
}

/// Wakes the runtime alone.
struct RuntimeWaker(Arc<ProgramWaker>);

impl Wake for RuntimeWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake_runtime();
    }
}

/// Wakes the program. Wakes of the runtime alone do not have it polled.
#[derive(Debug, Default)]
struct ProgramWaker {
    woken: Woken,
    /// Of the future that the runtime blocks on, which stays the same.
    runtime: OnceLock<Waker>,
}

impl ProgramWaker {
    fn wake_runtime(&self) {
        if let Some(runtime) = self.runtime.get() {
            runtime.wake_by_ref();
        }
    }
}

impl Wake for ProgramWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.set();
        self.wake_runtime();
    }
}
