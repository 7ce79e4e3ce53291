//! Lanes of streams that are one thread's: CUDA's per-thread default stream has the same handle on
//! every thread and is another stream on each.
//!
//! What is always true of them: only their thread makes calls that name the stream, and whenever
//! their submit lock is free an event was recorded after every ticket. So nobody else ever has to
//! record there, and all that others do with an operation of theirs, waiting for its event and asking
//! for it, names the event alone. (Where the driver refuses a record it is made again at the thread's
//! next call, or its end; one that is refused there as well loses the device.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::lane::Lane;
use super::submit::Enqueue;
use crate::driver::{DefaultStream, Fact, thread_number};
use crate::error::Error;

/// Whose a lane is.
#[derive(Debug)]
pub(super) struct Owner(AtomicU64);

impl Owner {
    const ANYONE: u64 = 0;

    pub(super) fn anyone() -> Self {
        Owner(AtomicU64::new(Self::ANYONE))
    }

    pub(super) fn this_thread() -> Self {
        Owner(AtomicU64::new(thread_number()))
    }
}

impl Lane {
    /// Whether it is the lane of one thread.
    pub(crate) fn is_of_a_thread(&self) -> bool {
        self.owner.0.load(Relaxed) != Owner::ANYONE
    }

    /// Whether the calling thread may make calls that name the stream. Only the thread that is
    /// asking could change the answer.
    pub(crate) fn is_usable_here(&self) -> bool {
        let owner = self.owner.0.load(Relaxed);
        owner == Owner::ANYONE || owner == thread_number()
    }

    pub(super) fn check_thread(&self) -> Result<(), Error> {
        match self.is_usable_here() {
            true => Ok(()),
            false => Err(Error::WrongThread { stream: self.id().index() }),
        }
    }

    /// Makes it the calling thread's, where its last thread has left it and all that was enqueued
    /// for that one is finished. False where that is not so.
    ///
    /// Its tickets go on from there. All before are finished, waits included, since an event comes
    /// after each: what was known to come before the last thread's work comes before this one's.
    pub(crate) fn take_over(&self) -> bool {
        let all = self.submitted();
        if !self.probe(all) {
            return false;
        }
        let stream = self.driver().default_stream(DefaultStream::PerThread);
        let (id, number) = (stream.id(), self.id().index() as u32);
        self.driver().tell(Fact::Stream { stream: id, number, name: None });
        self.set_stream(stream);
        self.owner.0.store(thread_number(), Relaxed);
        true
    }

    /// The lane's thread, which calls this, is ending.
    pub(crate) fn leave(&self) {
        if let Err(Error::Refused { cause, .. }) = self.record_through(self.submitted()) {
            // Nobody could ever say how far it is.
            self.reactor.fail(cause);
        }
        self.reactor.announce();
    }
}

impl Drop for Enqueue<'_> {
    /// Still under the submit lock, whether the operation was taken or refused: others have seen its
    /// ticket.
    fn drop(&mut self) {
        self.record_for_others();
    }
}
