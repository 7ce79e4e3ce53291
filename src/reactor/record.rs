//! Recording events in a stream, and leaving that to whoever is enqueuing.

use std::time::Instant;

use super::event_pool::EventRef;
use super::lane::Lane;
use super::submit::Submit;
use crate::driver::DriverResult;
use crate::error::Error;
use crate::sync::atomic::{Ordering::*, fence};

impl Lane {
    /// Sees to it that an event is recorded after ticket `seq`, without waiting for anyone: where
    /// the lane is being enqueued on, whoever does so records it.
    pub(crate) fn request_record(&self, seq: u64) {
        if self.recorded.load(Acquire) >= seq || self.reactor.is_lost() || !self.is_usable_here() {
            return;
        }
        let mut submit = self.submit.try_lock();
        if submit.is_none() {
            self.record_wanted.store(true, Relaxed);
            // With the fence in `unlocked`: either the holder sees the wish after
            // unlocking, or this second try finds the lock free.
            fence(SeqCst);
            submit = self.submit.try_lock();
        }
        let Some(mut submit) = submit else { return };
        if self.recorded.load(Acquire) < seq
            && let Err(error) = self.record_locked(&mut submit)
        {
            self.note_refusal(&self.records, error);
        }
        drop(submit);
        self.unlocked();
    }

    /// The same, waiting for whoever is enqueuing. The caller holds no other lane and no buffer.
    pub(crate) fn record_through(&self, seq: u64) -> Result<(), Error> {
        if self.recorded.load(Acquire) >= seq {
            return Ok(());
        }
        let mut submit = self.submit.lock();
        let recorded = if self.recorded.load(Acquire) >= seq {
            Ok(())
        } else {
            self.check_thread().and_then(|()| {
                let refused = |error| self.reactor.refused("recording an event", error);
                self.record_locked(&mut submit).map_err(refused)
            })
        };
        drop(submit);
        self.unlocked();
        recorded
    }

    /// Called after every unlocking of `submit`: does what others left to the holder.
    pub(super) fn unlocked(&self) {
        fence(SeqCst);
        while self.record_wanted.load(Relaxed) && self.is_usable_here() {
            // Taken again: then its holder comes here.
            let Some(mut submit) = self.submit.try_lock() else { break };
            if let Err(error) = self.record_locked(&mut submit) {
                // The wish is gone, but whoever waits asks again at the next look.
                self.note_refusal(&self.records, error);
            }
            drop(submit);
            fence(SeqCst);
        }
        self.reactor.announce();
    }

    /// Records an event after everything enqueued so far, unless there is one.
    pub(super) fn record_locked(&self, submit: &mut Submit) -> DriverResult<()> {
        self.record_wanted.store(false, Relaxed);
        let seq = self.submitted.load(Relaxed);
        if self.recorded.load(Relaxed) == seq {
            return Ok(());
        }
        let event = self.make_record(submit, false)?;
        self.keep_record(submit, event);
        Ok(())
    }

    /// Records one more event after everything enqueued so far.
    pub(super) fn record_event_locked(
        &self,
        submit: &mut Submit,
        timed: bool,
    ) -> DriverResult<EventRef> {
        let event = self.make_record(submit, timed)?;
        self.keep_record(submit, event.clone());
        Ok(event)
    }

    fn make_record(&self, submit: &Submit, timed: bool) -> DriverResult<EventRef> {
        let event = self.reactor.events().take(timed, &submit.clock)?;
        if let Err(error) = self.driver().event_record(event.handle(), &submit.stream) {
            self.reactor.events().give_back([event]);
            return Err(error);
        }
        self.records.over();
        Ok(event)
    }

    fn keep_record(&self, submit: &mut Submit, event: EventRef) {
        let seq = self.submitted.load(Relaxed);
        let mut frontier = self.frontier.lock();
        frontier.push(seq, event, submit.last_key, Instant::now);
        let recordings = frontier.len();
        drop(frontier);
        if is_look_due(recordings) {
            self.look_due.store(true, Relaxed);
        }
        self.recorded.store(seq, Release);
        submit.unrecorded = 0;
    }
}

/// Whether it is time to look how far a lane is that has so many recordings: nobody may wait for it,
/// and an event that is used again soon costs less, here and in the driver, than one of many.
fn is_look_due(recordings: usize) -> bool {
    recordings >= 32 && recordings.is_multiple_of(16)
}
