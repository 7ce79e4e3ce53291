//! Waiting in the thread itself, without a reactor thread and without a runtime.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use super::lane::Lane;
use super::thread::{Rounds, Watched};
use super::timer_slack::PreciseSleeps;

thread_local! {
    /// The lanes that this thread looks after, while it is inside [`block_on_thread`].
    static LOCAL: RefCell<Option<Rounds>> = const { RefCell::new(None) };
}

/// Has the lane looked after: by this thread if it does so itself, else by the reactor's.
pub(super) fn watch_here(lane: &Arc<Lane>, seq: u64) {
    let taken = LOCAL.with_borrow_mut(|local| match local {
        Some(rounds) => {
            rounds.add(Watched::new(lane, seq, Instant::now()));
            true
        }
        None => false,
    });
    if !taken {
        lane.reactor().watch(lane, seq);
    }
}

/// While it lives, completions polled on this thread are looked after by this thread.
struct LocalPoller {
    /// An outer poller of this thread, to be put back.
    outer: Option<Rounds>,
    _precise: PreciseSleeps,
}

impl LocalPoller {
    fn enter() -> Self {
        let outer = LOCAL.replace(Some(Rounds::default()));
        LocalPoller { outer, _precise: PreciseSleeps::for_this_thread() }
    }

    /// Looks at what is due and sleeps until the next look, unless unparked before.
    fn park(&self, woken: &AtomicBool) {
        // Taken out while at work: a waker run by a look may poll, and so watch, on this thread.
        let mut rounds = LOCAL.replace(Some(Rounds::default())).unwrap_or_default();
        let next = rounds.look(Instant::now());
        LOCAL.with_borrow_mut(|local| {
            if let Some(added) = local.replace(rounds)
                && let Some(rounds) = local
            {
                rounds.merge(added);
            }
        });
        if woken.load(Acquire) {
            return;
        }
        match next {
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

impl Drop for LocalPoller {
    fn drop(&mut self) {
        let rounds = LOCAL.replace(self.outer.take());
        // A completion polled here may be in other hands by now, with its waker still registered.
        for watched in rounds.into_iter().flat_map(Rounds::into_watched) {
            watched.hand_over();
        }
    }
}

/// Runs a future to its end on this thread, which looks after its GPU work itself.
pub(crate) fn block_on_thread<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let wake = Arc::new(Unpark { woken: AtomicBool::new(false), thread: thread::current() });
    let waker = Waker::from(wake.clone());
    let mut cx = Context::from_waker(&waker);
    let poller = LocalPoller::enter();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        while !wake.woken.swap(false, AcqRel) {
            poller.park(&wake.woken);
        }
    }
}

struct Unpark {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, AcqRel) {
            self.thread.unpark();
        }
    }
}
