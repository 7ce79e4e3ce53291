//! Asking a stream how far it is.

use std::time::{Duration, Instant};

use super::event_pool::EventRef;
use super::frontier::Gallop;
use super::lane::Lane;
use super::waiters::{Wakers, wake_all};
use crate::sync::atomic::Ordering::*;

/// Of so many, some are likely to be finished where the newest is not.
const MANY_RECORDINGS: usize = 32;

impl Lane {
    /// Asks for ticket `seq` (`cuEventQuery`), and when it is finished for what came after it;
    /// wakes everyone this answers. True where the ticket is known to be finished.
    ///
    /// Never waits; where another thread is asking already, or nothing is recorded, nothing is
    /// asked.
    pub(crate) fn probe(&self, seq: u64) -> bool {
        let waited_for = self.lowest_waited().is_some_and(|lowest| lowest <= seq);
        self.look(seq, waited_for)
    }

    /// Asks again and again for at most `budget`. True where `seq` was seen to finish. Where
    /// another thread is asking already, that is left to it.
    pub(super) fn spin(&self, seq: u64, budget: Duration) -> bool {
        /// Reading the clock costs a quarter of a query.
        const QUERIES_PER_CLOCK: u32 = 4;
        let start = Instant::now();
        let mut queries = 0u32;
        self.look_while(seq, true, || {
            queries += 1;
            let over = queries.is_multiple_of(QUERIES_PER_CLOCK) && start.elapsed() >= budget;
            std::hint::spin_loop();
            !over && !self.reactor.is_lost()
        })
    }

    fn look(&self, seq: u64, waited_for: bool) -> bool {
        self.look_while(seq, waited_for, || false)
    }

    /// Looks, and while it is pending, again as long as `again` says so.
    fn look_while(&self, seq: u64, waited_for: bool, again: impl FnMut() -> bool) -> bool {
        if self.is_done(seq) {
            return true;
        }
        if self.reactor.is_lost() {
            return false;
        }
        let wakers = {
            let Some(_guard) = ProbeGuard::take(self) else { return false };
            self.look_guarded(seq, waited_for, again)
        };
        wake_all(wakers);
        self.reactor.announce();
        self.is_done(seq)
    }

    /// Looks how far the lane is, where that was not seen for a while: takes out what is finished, as its
    /// events are to be used again, and what is known to be finished is not waited for.
    pub(crate) fn look_if_due(&self) {
        if !self.is_look_due() {
            return;
        }
        self.look_due.store(false, Relaxed);
        if self.reactor.is_lost() {
            return;
        }
        let wakers = {
            let Some(_guard) = ProbeGuard::take(self) else { return };
            let Some(reached) = self.finished_by_now() else { return };
            self.progress.done.fetch_max(reached, AcqRel);
            let waited_for = self.lowest_waited().is_some_and(|lowest| lowest <= reached);
            self.advance(reached, waited_for)
        };
        wake_all(wakers);
        self.reactor.announce();
    }

    pub(super) fn is_look_due(&self) -> bool {
        self.look_due.load(Relaxed)
    }

    /// The newest of all, for one query, since often all is finished. Else, where there are many, the one
    /// in the middle; else what is known without asking.
    fn finished_by_now(&self) -> Option<u64> {
        let known = self.progress.known();
        let recording = |index| self.frontier.lock().at(index);
        let (newest, seq, event) = recording(usize::MAX)?;
        if seq <= known || self.query(&event) {
            return Some(seq.max(known));
        }
        if newest >= MANY_RECORDINGS {
            let (_, seq, event) = recording(newest / 2)?;
            if seq > known && self.query(&event) {
                return Some(seq);
            }
        }
        Some(known)
    }

    fn look_guarded(&self, seq: u64, waited_for: bool, mut again: impl FnMut() -> bool) -> Wakers {
        let covering = self.frontier.lock().covering(seq);
        let Some((index, mut reached, event)) = covering else { return Wakers::new() };
        while !self.query(&event) {
            if !again() {
                self.frontier.lock().pending(Instant::now());
                return Wakers::new();
            }
        }
        drop(event);
        // At once: whoever meets a failure from here on knows that so much is finished.
        self.progress.done.fetch_max(reached, AcqRel);
        // Recordings are taken out in this turn only, so an index stays what it is.
        let mut gallop = Gallop::new(index, self.frontier.lock().len());
        while let Some(next) = gallop.next() {
            let Some((next, at, event)) = self.frontier.lock().at(next) else { break };
            let finished = self.query(&event);
            if finished {
                reached = at;
                self.progress.done.fetch_max(reached, AcqRel);
            }
            gallop.answer(next, finished);
        }
        self.advance(reached, waited_for)
    }

    /// Everything up to ticket `reached` is finished.
    fn advance(&self, reached: u64, waited_for: bool) -> Wakers {
        // `done` says so already: whoever finds no recording, or registers as a waiter, sees that it
        // is done.
        let finished = self.frontier.lock().finish(reached, Instant::now(), waited_for);
        if let Some(newest) = finished.last() {
            self.reactor.finished_before(newest.clock());
        }
        self.reactor.events().give_back(finished);
        self.take_waiters(reached)
    }

    /// Wakes everyone whose ticket is known to be finished.
    pub(super) fn wake_finished(&self) {
        wake_all(self.take_waiters(self.progress.done.load(Acquire)));
    }

    fn query(&self, event: &EventRef) -> bool {
        match self.driver().event_query(event.handle()) {
            Ok(finished) => {
                self.queries.over();
                finished
            }
            Err(error) => {
                self.note_refusal(&self.queries, error);
                false
            }
        }
    }
}

/// The right to take recordings out of a lane's frontier.
struct ProbeGuard<'l>(&'l Lane);

impl<'l> ProbeGuard<'l> {
    fn take(lane: &'l Lane) -> Option<Self> {
        let free = !lane.probing.swap(true, Acquire);
        // Not `then_some`: a guard made where the right is another thread's would be dropped.
        free.then(|| ProbeGuard(lane))
    }
}

impl Drop for ProbeGuard<'_> {
    fn drop(&mut self) {
        self.0.probing.store(false, Release);
    }
}
