//! The end of the process, which takes the driver library away under threads that still run.
//!
//! Threads of this crate that nobody joins make their driver calls inside a [`Stay`]. The process's
//! exit waits until nobody is inside, and lets nobody in again.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::of_process::{Condvar, Mutex};

/// How long the exit waits at most: a call that waits for a kernel is not waited for.
const LONGEST: Duration = Duration::from_secs(1);

struct State {
    /// Threads inside, counted as often as they are.
    inside: usize,
    exiting: bool,
}

/// Leaf lock.
static STATE: Mutex<State> = Mutex::new(State { inside: 0, exiting: false });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// How often this thread is inside: it can be the one that ends the process, by a waker.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, the process's exit waits.
#[must_use = "the exit waits only while this lives"]
#[derive(Debug)]
pub(crate) struct Stay {
    /// `HERE` is of this thread.
    this_thread: PhantomData<*mut ()>,
}

/// For a thread that nobody joins, around its driver calls. Does not return once the process is
/// exiting.
pub(crate) fn stay() -> Stay {
    let mut state = STATE.lock();
    if state.exiting {
        drop(state);
        loop {
            thread::park();
        }
    }
    state.inside += 1;
    HERE.set(HERE.get() + 1);
    Stay { this_thread: PhantomData }
}

impl Drop for Stay {
    fn drop(&mut self) {
        HERE.set(HERE.get() - 1);
        let mut state = STATE.lock();
        state.inside -= 1;
        if state.exiting {
            CHANGED.notify_one();
        }
    }
}

/// Has the process's exit wait. Called when a device has been opened: what the library registered
/// itself for the exit by then runs after this. May be called any number of times.
pub(crate) fn wait_at_exit() {
    PROCESS.store(std::process::id(), Relaxed);
    // SAFETY: the function may be called at any time, by the thread that ends the process. Where
    // there is no room to register it, the exit does not wait.
    unsafe { libc::atexit(at_exit) };
}

/// Which process is waited for: a child of its by `fork` has none of its threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

extern "C" fn at_exit() {
    if PROCESS.load(Relaxed) != std::process::id() {
        return;
    }
    let deadline = Instant::now() + LONGEST;
    let mut state = STATE.lock();
    state.exiting = true;
    while state.inside > HERE.get() && Instant::now() < deadline {
        state = CHANGED.wait_until(state, deadline);
    }
}
