//! Waiting for device memory, in turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::budget::Budget;
use super::queue::Place;
use super::{Before, DeviceBlock, MemoryPool};
use crate::device::{DeviceCore, current};
use crate::error::{Error, Result};
use crate::foreign::contained;
use crate::reactor::{Completion, Lane, LossKey};

/// A request for a block that waits its turn. What memory it needs it gets in the order of `lane`, and
/// of the budget of whoever asked.
pub(crate) struct MemoryRequest {
    core: Arc<DeviceCore>,
    lane: Arc<Lane>,
    budget: Option<Arc<Budget>>,
    /// Not 0.
    bytes: usize,
    /// There from the first poll that found no memory, until it is answered.
    place: Option<Place>,
    /// How it hears of the device's loss.
    loss: Option<LossKey>,
    /// Of something that is in flight in memory nobody has.
    in_flight: Option<Completion>,
}

/// What a request that found no memory is to do.
enum Next {
    Again,
    Wait,
    GiveUp(Error),
}

impl MemoryRequest {
    pub(crate) fn new(core: &Arc<DeviceCore>, bytes: usize) -> Self {
        let (lane, budget) = (core.current_lane(), current::budget(core.number()));
        let core = core.clone();
        MemoryRequest { core, lane, budget, bytes, place: None, loss: None, in_flight: None }
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.core
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(DeviceBlock, Before)>> {
        let core = self.core.clone();
        let pool = core.memory();
        loop {
            if let Some(in_flight) = &mut self.in_flight {
                match Pin::new(in_flight).poll(cx) {
                    Poll::Ready(Err(error)) => return self.answer(Err(error)),
                    Poll::Pending if !self.is_called(pool, cx) => return Poll::Pending,
                    _ => self.in_flight = None,
                }
            }
            let place = *self.place.get_or_insert_with(|| {
                pool.state.lock().waiting.join(self.bytes as u64, self.budget.clone())
            });
            self.hear_of_loss(cx);
            // Foreign, so with nothing held.
            let waker = cx.waker().clone();
            // Before it tries: whatever comes back from here on wakes it.
            let (replaced, turn) = {
                let mut state = pool.state.lock();
                let replaced = state.waiting.wake_by(place, waker);
                (replaced, state.waiting.is_turn_of(place))
            };
            drop(replaced);
            if !turn && core.reactor().check().is_ok() {
                return Poll::Pending;
            }
            let budget = self.budget.as_ref();
            let allocated = pool.allocate_for(&core, &self.lane, budget, self.bytes, Some(place));
            let error = match allocated {
                Ok(granted) => return self.answer(Ok(granted)),
                Err(error) => error,
            };
            match self.next(pool, cx, error) {
                Next::Again => {}
                Next::Wait => return Poll::Pending,
                Next::GiveUp(error) => return self.answer(Err(error)),
            }
        }
    }

    /// Whether somebody called it, who waits for an operation: memory came back meanwhile.
    fn is_called(&self, pool: &MemoryPool, cx: &Context<'_>) -> bool {
        let Some(place) = self.place else { return true };
        let waker = cx.waker().clone();
        let mut state = pool.state.lock();
        // Taken by who called.
        let before = state.waiting.wake_by(place, waker);
        let turn = state.waiting.is_turn_of(place);
        drop(state);
        before.is_none() && turn || self.core.reactor().check().is_err()
    }

    /// What to do about an error.
    fn next(&mut self, pool: &MemoryPool, cx: &Context<'_>, error: Error) -> Next {
        match &error {
            Error::OverBudget { requested, budget, .. } if requested <= budget => Next::Wait,
            Error::OutOfMemory { requested, limit, .. } if requested <= limit => {
                self.in_flight = pool.something_in_flight(&self.core);
                match self.in_flight {
                    Some(_) => Next::Again,
                    None if pool.has_some_to_come_back() => Next::Wait,
                    // It has come back since.
                    None if self.is_called(pool, cx) => Next::Again,
                    None => Next::GiveUp(error),
                }
            }
            _ => Next::GiveUp(error),
        }
    }

    fn hear_of_loss(&mut self, cx: &Context<'_>) {
        self.loss = Some(self.core.reactor().tell_of_loss(self.loss.take(), cx.waker().clone()));
    }

    fn answer<T>(&mut self, answer: T) -> Poll<T> {
        self.leave();
        Poll::Ready(answer)
    }

    /// Leaves its place to the next.
    fn leave(&mut self) {
        if let Some(loss) = self.loss.take() {
            self.core.reactor().forget_loss(loss);
        }
        let Some(place) = self.place.take() else { return };
        let (own, next) = {
            let mut state = self.core.memory().state.lock();
            (state.waiting.leave(place), state.waiting.take_next(None))
        };
        drop(own);
        next.into_iter().for_each(|waker| _ = contained(|| waker.wake()));
    }
}

impl Drop for MemoryRequest {
    fn drop(&mut self) {
        self.leave();
    }
}

impl MemoryPool {
    /// A future of an operation that may still touch memory which nobody has, or of a free.
    fn something_in_flight(&self, core: &DeviceCore) -> Option<Completion> {
        let state = self.state.lock();
        let users = state.idle.iter().flat_map(|block| &block.users).chain(&state.freed);
        let user = users.copied().find(|user| !core.is_known_finished(*user))?;
        Some(core.lane(user.lane)?.completion(user.seq))
    }

    /// Whether somebody has memory of this device, or is about to get some or to give it back.
    fn has_some_to_come_back(&self) -> bool {
        let state = self.state.lock();
        state.reserved > state.idle.bytes()
    }
}
