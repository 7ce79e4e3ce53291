//! Waiting in the thread itself, without a reactor thread and without a runtime.

use std::cell::RefCell;
use std::future::Future;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use super::by_hand::hand;
use super::lane::Lane;
use super::thread::{Rounds, Watched};
use super::timer_slack::PreciseSleeps;
use crate::error::Error;
use crate::sync::atomic::{AtomicBool, Ordering::*};

thread_local! {
    /// What this thread looks after itself, while it is inside [`block_on_thread`].
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

struct Local {
    /// The waker of the future that the thread runs. Waits registered with any other one, a
    /// combinator's or a nested executor's say, may outlast this or need someone who is not busy.
    waker: Waker,
    rounds: Rounds,
}

/// Has the lane looked after for `waker`: by this thread if it is parked by that waker's future,
/// else by the reactor. A thread that has a hand, which sleeps in its stead, leaves all to the
/// reactors.
pub(super) fn watch_here(lane: &Arc<Lane>, seq: u64, waker: &Waker) -> Result<(), Error> {
    let has_hand = hand().is_some();
    let taken = with_local(|local| match local {
        Some(local) if !has_hand && local.waker.will_wake(waker) => {
            local.rounds.add(Watched::new(lane, seq, Instant::now()));
            true
        }
        _ => false,
    });
    if taken == Some(true) { Ok(()) } else { lane.reactor().watch(lane, seq) }
}

/// While it lives, what is waited for with its waker is looked after by this thread.
struct LocalPoller {
    /// An outer poller of this thread, to be put back.
    outer: Option<Local>,
    _precise: PreciseSleeps,
}

impl LocalPoller {
    fn enter(waker: Waker) -> Self {
        let local = Local { waker, rounds: Rounds::default() };
        let outer = with_local(|slot| slot.replace(local)).flatten();
        LocalPoller { outer, _precise: PreciseSleeps::for_this_thread() }
    }

    /// Looks at what is due and sleeps until the next look, unless unparked before.
    fn park(&self, woken: &Woken) {
        if let Some(hand) = hand() {
            return hand.wait(woken);
        }
        // Taken out while at work: a look wakes others, whose wakers are foreign code.
        let mut rounds = with_rounds(take).unwrap_or_default();
        rounds.look(Instant::now());
        let next = with_rounds(|added| {
            rounds.merge(take(added));
            *added = rounds;
            added.next(Instant::now())
        })
        .flatten();
        if woken.is_set() {
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
        // What ends is dropped after the borrow.
        let _ended = with_local(|slot| std::mem::replace(slot, self.outer.take()));
    }
}

/// `None` while the thread is ending: then the reactor's thread looks after everything.
fn with_local<R>(f: impl FnOnce(&mut Option<Local>) -> R) -> Option<R> {
    LOCAL.try_with(|local| f(&mut local.borrow_mut())).ok()
}

fn with_rounds<R>(f: impl FnOnce(&mut Rounds) -> R) -> Option<R> {
    with_local(|local| local.as_mut().map(|local| f(&mut local.rounds)))?
}

/// Runs a future to its end on this thread, which looks after its GPU work itself.
pub(crate) fn block_on_thread<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let wake = Arc::new(Unpark { woken: Woken::default(), thread: thread::current() });
    let waker = Waker::from(wake.clone());
    let mut cx = Context::from_waker(&waker);
    let poller = LocalPoller::enter(waker.clone());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        if wake.woken.is_set()
            && let Some(hand) = hand()
        {
            hand.polls_again();
        }
        while !wake.woken.take() {
            poller.park(&wake.woken);
        }
    }
}

/// Whether a future was woken since it was last polled.
#[derive(Debug, Default)]
pub(crate) struct Woken(AtomicBool);

impl Woken {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Acquire)
    }

    /// Whether it was, and takes it back.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, AcqRel)
    }

    /// True the first time.
    pub(crate) fn set(&self) -> bool {
        !self.0.swap(true, AcqRel)
    }
}

struct Unpark {
    woken: Woken,
    thread: Thread,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.set() {
            self.thread.unpark();
        }
    }
}
