//! Events as a user holds them.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::reactor::{Completion, EventRef, Lane, OpKey, Operation, Waits};

/// A point in a stream, recorded: awaitable, and other streams can wait for it.
///
/// It exists only once recorded, so waiting for an event that never was is not expressible. Clones
/// are the same point. Dropping it changes nothing for those who wait.
#[derive(Clone)]
pub struct Event {
    /// `None`: it was known to be reached when it was asked for. Before `lane`, which holds the pool.
    event: Option<EventRef>,
    lane: Arc<Lane>,
    /// The last operation before it.
    seq: u64,
    timed: bool,
}

/// What [`Event::elapsed_since`] can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elapsed {
    /// Both points were reached, so long apart.
    Time(Duration),
    /// One of them was not reached yet: await them first.
    NotReached,
    /// One of them was recorded without timing.
    NotTimed,
}

impl Event {
    pub(super) fn record(lane: &Arc<Lane>, timed: bool) -> Result<Event> {
        let (seq, event) = lane.record_event(timed)?;
        Ok(Event { lane: lane.clone(), seq, event, timed })
    }

    pub(super) fn wait_on(&self, lane: &Arc<Lane>) -> Result<()> {
        const WAIT: OpKey = OpKey::of(&Operation::control("waiting for an event"));
        if !self.lane.can_share_events(lane) {
            let (of, on) = (self.lane.id().device(), lane.id().device());
            return Err(Error::WrongDevice { operation: WAIT.name(), argument: "event", of, on });
        }
        let Some(event) = &self.event else { return Ok(()) };
        if lane.id() == self.lane.id() || self.lane.is_known_finished(self.seq) {
            return Ok(());
        }
        let mut enqueue = lane.enqueue_uncounted(WAIT)?;
        let ticket = self.lane.ticket(self.seq);
        if enqueue.comes_after(ticket) {
            return Ok(());
        }
        enqueue.take_uncounted_ticket();
        enqueue
            .wait(&Waits::of(ticket, event))
            .map_err(|error| lane.reactor().refused(WAIT.name(), error))
    }

    /// Whether the point was reached. As [`Completion::is_finished`].
    ///
    /// # Errors
    ///
    /// The device is lost.
    pub fn is_finished(&self) -> Result<bool> {
        self.lane.completion(self.seq).is_finished()
    }

    /// The device's time from `earlier` to this event, in steps of about half a microsecond
    /// (`cuEventElapsedTime`). Both come from [`Stream::record_timed`](crate::Stream::record_timed).
    ///
    /// # Errors
    ///
    /// [`WrongDevice`](Error::WrongDevice) as for [`Stream::wait`](crate::Stream::wait); the driver
    /// refused; or the device is lost.
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Elapsed> {
        if !self.timed || !earlier.timed {
            return Ok(Elapsed::NotTimed);
        }
        if !self.is_finished()? || !earlier.is_finished()? {
            return Ok(Elapsed::NotReached);
        }
        let (Some(start), Some(end)) = (&earlier.event, &self.event) else {
            return Ok(Elapsed::NotTimed);
        };
        let name = "measuring time";
        if !self.lane.can_share_events(&earlier.lane) {
            let (of, on) = (earlier.lane.id().device(), self.lane.id().device());
            return Err(Error::WrongDevice { operation: name, argument: "earlier", of, on });
        }
        match self.lane.driver().event_elapsed(start.handle(), end.handle()) {
            Ok(time) => Ok(Elapsed::Time(time)),
            Err(cause) => {
                let error = self.lane.reactor().refused(name, cause);
                self.lane.reactor().announce();
                Err(error)
            }
        }
    }
}

impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = Completion;

    fn into_future(self) -> Completion {
        self.lane.completion(self.seq)
    }
}

impl IntoFuture for &Event {
    type Output = Result<()>;
    type IntoFuture = Completion;

    fn into_future(self) -> Completion {
        self.lane.completion(self.seq)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("stream", &self.lane.id().index())
            .field("after", &self.seq)
            .field("timed", &self.timed)
            .finish_non_exhaustive()
    }
}
