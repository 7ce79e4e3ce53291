//! The end of the process, which takes the driver library away under threads that still run.
//!
//! Threads of this crate that nobody joins make their driver calls inside a [`Stay`]. The process's
//! exit waits until nobody is inside, and lets nobody in again.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only CUDA's driver goes"))]
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex};

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
pub(crate) struct Stay(());

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
    let _ = HERE.try_with(|here| here.set(here.get() + 1));
    Stay(())
}

impl Drop for Stay {
    fn drop(&mut self) {
        STATE.lock().inside -= 1;
        let _ = HERE.try_with(|here| here.set(here.get().saturating_sub(1)));
        CHANGED.notify_one();
    }
}

/// Has the process's exit wait. Called once the driver library is initialised: what it registered
/// itself for the exit then runs after this.
pub(super) fn wait_at_exit() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function may be called at any time, by the thread that ends the process. Where
        // there is no room to register it, the exit does not wait.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    let here = HERE.try_with(Cell::get).unwrap_or(0);
    let deadline = Instant::now() + LONGEST;
    let mut state = STATE.lock();
    state.exiting = true;
    while state.inside > here && Instant::now() < deadline {
        state = CHANGED.wait_until(state, deadline);
    }
}
