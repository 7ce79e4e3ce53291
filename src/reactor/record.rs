//! Recording events in a stream, and leaving that to whoever is enqueuing.

use std::time::Instant;

use super::event_pool::EventRef;
use super::lane::Lane;
use super::submit::Submit;
use crate::driver::DriverResult;
use crate::error::Error;
use crate::sync::atomic::Ordering::*;

impl Lane {
    /// Sees to it that an event is recorded after ticket `seq`, without waiting for anyone: where
    /// the lane is being enqueued on, whoever does so records it.
    pub(crate) fn request_record(&self, seq: u64) {
        if self.recorded.load(Acquire) >= seq || self.reactor.is_lost() || !self.is_usable_here() {
            return;
        }
        let mut submit = self.submit.try_lock();
        if submit.is_none() {
            // Either the holder's look at this, after unlocking, is the later one and sees the wish. Or
            // this is the later one, and reads what that look left: then the unlocking comes before this
            // second try, which finds the lock free or another holder.
            self.record_wanted.swap(true, AcqRel);
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

    /// Runs `f` while nobody enqueues here. It takes no lock but leaf locks.
    pub(crate) fn between_operations<R>(&self, f: impl FnOnce() -> R) -> R {
        let submit = self.submit.lock();
        let result = f();
        drop(submit);
        self.unlocked();
        result
    }

    /// Called after every unlocking of `submit`: does what others left to the holder.
    pub(super) fn unlocked(&self) {
        while self.is_record_wanted() && self.is_usable_here() {
            // Taken again: then its holder comes here.
            let Some(mut submit) = self.submit.try_lock() else { break };
            if let Err(error) = self.record_locked(&mut submit) {
                // The wish is gone, but whoever waits asks again at the next look.
                self.note_refusal(&self.records, error);
            }
            drop(submit);
        }
        self.reactor.announce();
    }

    /// Looks for a wish by an exchange that leaves all as it is. An exchange, because of it and that of a
    /// wish one comes after the other and knows of it; with a load it would take two fences.
    fn is_record_wanted(&self) -> bool {
        self.record_wanted.compare_exchange(false, false, AcqRel, Acquire).is_err()
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

    fn make_record(&self, submit: &mut Submit, timed: bool) -> DriverResult<EventRef> {
        submit.recordings += 1;
        if submit.recordings.is_multiple_of(LOOK_EVERY) && submit.clock.is_wide() {
            self.reactor.forget_finished(&mut submit.clock);
        }
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
        if recordings.is_multiple_of(LOOK_EVERY) {
            self.look_due.store(true, Relaxed);
        }
        self.recorded.store(seq, Release);
        submit.unrecorded = 0;
    }
}

/// Every so many recordings it is time to look how far a lane is: nobody may wait for it. An event that is
/// used again soon costs less, here and in the driver, than one of many; a wait that is known to be
/// needless costs nothing.
const LOOK_EVERY: usize = 16;
