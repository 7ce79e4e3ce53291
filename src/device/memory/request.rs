//! Waiting for device memory, in turn.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::budget::Budget;
use super::queue::Place;
use super::{Before, DeviceBlock, MemoryPool, wake};
use crate::device::{DeviceCore, current};
use crate::error::{Error, Result};
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
                // Its error is the device's, which the next try tells.
                if std::pin::Pin::new(in_flight).poll(cx).is_pending() && !self.is_called(pool, cx)
                {
                    return Poll::Pending;
                }
                self.in_flight = None;
            }
            let place = *self.place.get_or_insert_with(|| {
                // What it will be charged.
                let class = pool.class_of(self.bytes as u64).unwrap_or(self.bytes as u64);
                pool.state.lock().waiting.join(class, self.budget.clone())
            });
            self.hear_of_loss(cx);
            // Foreign, so with nothing held.
            let waker = cx.waker().clone();
            let (replaced, turn, returned) = {
                let mut state = pool.state.lock();
                let replaced = state.waiting.wake_by(place, waker);
                (replaced, state.waiting.is_turn_of(place), state.returned)
            };
            drop(replaced);
            if !turn && core.reactor().check().is_ok() {
                return Poll::Pending;
            }
            let error = match pool.allocate(&core, &self.lane, self.budget.as_ref(), self.bytes) {
                Ok(granted) => return self.answer(Ok(granted)),
                Err(error) => error,
            };
            match self.next(pool, error, returned) {
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

    /// What to do about an error, if since then memory came back `returned` times.
    fn next(&mut self, pool: &MemoryPool, error: Error, returned: u64) -> Next {
        let (in_use, is_new) = {
            let state = pool.state.lock();
            (state.in_use, state.returned != returned)
        };
        match &error {
            Error::OverBudget { requested, budget, .. } if requested <= budget => {
                if is_new {
                    Next::Again
                } else {
                    Next::Wait
                }
            }
            Error::OutOfMemory { requested, limit, .. } if requested <= limit => {
                if is_new {
                    return Next::Again;
                }
                self.in_flight = pool.something_in_flight(&self.core);
                match self.in_flight {
                    Some(_) => Next::Again,
                    None if in_use > 0 => Next::Wait,
                    // Nothing of ours can come back.
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
            (state.waiting.leave(place), state.waiting.take_next())
        };
        drop(own);
        next.into_iter().for_each(wake);
    }
}

impl Drop for MemoryRequest {
    fn drop(&mut self) {
        self.leave();
    }
}

impl MemoryPool {
    /// A future of an operation that may still touch memory which nobody has.
    fn something_in_flight(&self, core: &DeviceCore) -> Option<Completion> {
        let state = self.state.lock();
        let mut users = state.idle.iter().flat_map(|block| &block.users);
        let user = users.find(|user| !core.is_known_finished(**user))?;
        Some(core.lane(user.lane)?.completion(user.seq))
    }
}
