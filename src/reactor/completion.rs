//! The future of one operation.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::FusedFuture;

use super::lane::Lane;
use super::local::watch_here;
use super::waiters::WaiterKey;
use crate::error::Result;
use crate::sync::atomic::Ordering::*;

/// The end of one operation that is already on its stream.
///
/// Ready with `Ok` once the device has finished the operation and everything enqueued before it on
/// the same stream; with [`Error::DeviceLost`](crate::Error::DeviceLost) once the device failed; or
/// with [`Error::Thread`](crate::Error::Thread) where a thread is needed and there is none.
/// The work runs whether this is awaited, dropped, forgotten or never polled.
///
/// While an event is needed for it, one is recorded (`cuEventRecord`) and asked for
/// (`cuEventQuery`); a completion that nobody polls costs neither unless something else is enqueued
/// on the stream while it is held.
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else; it never blocks.
pub struct Completion {
    /// `None`: there was nothing to do.
    lane: Option<Arc<Lane>>,
    seq: u64,
    /// Registered with the lane under this name.
    waiter: Option<WaiterKey>,
    /// This is the submission's own completion, named by the lane's `tail_held` while it is newest.
    held: bool,
    polled: bool,
    /// It was ready.
    ended: bool,
}

thread_local! {
    /// When this thread may spin again: spinning that saw nothing is not repeated at once, so a
    /// poll of many completions spins for one of them.
    static SPIN_AGAIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A spin that saw nothing is followed by so many times its length without spinning.
const SPIN_REST: u32 = 8;

impl Completion {
    pub(super) fn new(lane: Arc<Lane>, seq: u64, held: bool) -> Self {
        Completion { lane: Some(lane), seq, waiter: None, held, polled: false, ended: false }
    }

    /// Of an operation that was enqueued as [`Held::Yes`](super::Held).
    pub(crate) fn of_submission(lane: Arc<Lane>, seq: u64) -> Self {
        Completion::new(lane, seq, true)
    }

    /// Of an operation that had nothing to do.
    pub(crate) fn ready() -> Self {
        Completion { lane: None, seq: 0, waiter: None, held: false, polled: false, ended: false }
    }

    /// Whether the operation is finished: asks the driver once if that is not known yet
    /// (`cuEventQuery`), and never waits. While another thread is asking for the same stream it is
    /// left to that one, and a `false` may be of just before.
    ///
    /// # Errors
    ///
    /// The device is lost.
    pub fn is_finished(&self) -> Result<bool> {
        let Some(lane) = &self.lane else { return Ok(true) };
        if lane.is_known_finished(self.seq) {
            return Ok(true);
        }
        lane.request_record(self.seq);
        if lane.probe(self.seq) {
            return Ok(true);
        }
        lane.reactor.check()?;
        Ok(lane.is_known_finished(self.seq))
    }

    /// Of the same operation, for one who does not wait.
    pub(crate) fn of_same(&self) -> Completion {
        match &self.lane {
            Some(lane) => Completion::new(lane.clone(), self.seq, false),
            None => Completion::ready(),
        }
    }

    /// Whether the operation is known to be finished. Asks nobody.
    pub(crate) fn is_known_finished(&self) -> bool {
        self.lane.as_ref().is_none_or(|lane| lane.is_known_finished(self.seq))
    }

    fn verdict(&self, lane: &Lane) -> Option<Result<()>> {
        if lane.is_known_finished(self.seq) {
            return Some(Ok(()));
        }
        let failure = lane.reactor.check().err()?;
        // What was seen to finish before the failure did finish.
        Some(if lane.is_known_finished(self.seq) { Ok(()) } else { Err(failure) })
    }

    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(lane) = &self.lane else { return Poll::Ready(Ok(())) };
        if let Some(verdict) = self.verdict(lane) {
            return Poll::Ready(verdict);
        }
        lane.request_record(self.seq);
        if let Some(budget) = self.spin_budget(lane) {
            if !lane.spin(self.seq, budget) {
                SPIN_AGAIN.set(Some(Instant::now() + budget * SPIN_REST));
            }
        } else if !self.polled {
            // It may be finished since long ago, and a pending query costs next to nothing.
            lane.probe(self.seq);
        }
        self.polled = true;
        if let Some(verdict) = self.verdict(lane) {
            return Poll::Ready(verdict);
        }
        self.waiter = Some(lane.register_waiter(self.seq, self.waiter, cx.waker().clone()));
        // The frontier may have passed, or the device failed, before the waiter was there.
        if let Some(verdict) = self.verdict(lane) {
            return Poll::Ready(verdict);
        }
        match watch_here(lane, self.seq, cx.waker()) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Takes back the waiter, where it was not taken out to be woken.
    fn stop_waiting(&mut self) {
        if let Some(lane) = &self.lane
            && let Some(key) = self.waiter.take()
        {
            lane.remove_waiter(key);
        }
    }

    fn spin_budget(&self, lane: &Lane) -> Option<Duration> {
        let budget = lane.reactor.options().inline_spin;
        if self.polled || budget.is_zero() {
            return None;
        }
        let rested = SPIN_AGAIN.get().is_none_or(|at| Instant::now() >= at);
        let short = lane.estimate(self.seq).is_none_or(|estimate| estimate.is_short());
        (rested && short).then_some(budget)
    }
}

impl Future for Completion {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let verdict = self.poll_verdict(cx);
        self.ended = verdict.is_ready();
        if self.ended {
            // One who learned of the end while registering was registered too late to be taken out:
            // whoever looks after the lane would look for that operation for ever.
            self.stop_waiting();
        }
        verdict
    }
}

/// For `select!`: terminated once it was ready.
impl FusedFuture for Completion {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let Some(lane) = &self.lane else { return };
        if self.held {
            // Nothing was enqueued since: the event that the next operation would have had to
            // record first is not needed for this one.
            let _ = lane.tail_held.compare_exchange(self.seq, 0, AcqRel, Relaxed);
        }
        self.stop_waiting();
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lane = self.lane.as_ref();
        f.debug_struct("Completion")
            .field("stream", &lane.map(|l| l.id().index()))
            .field("operation", &self.seq)
            .field("finished", &lane.is_none_or(|l| l.is_known_finished(self.seq)))
            .finish()
    }
}
