//! Records and queries that the driver refuses: nobody's call, so nobody is told unless it lasts.

use std::time::Instant;

use super::lane::Lane;
use super::trouble::{Trouble, Verdict};
use crate::driver::DriverError;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the driver refused in a row, of one kind of call.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// There are some: what is asked where all goes well. Changes under `trouble`.
    some: AtomicBool,
    /// Leaf lock.
    trouble: Mutex<Trouble>,
}

impl Refusals {
    pub(super) fn count(&self) -> u32 {
        if self.some.load(Relaxed) { self.trouble.lock().refusals } else { 0 }
    }

    fn met(&self, passes: bool, now: Option<Instant>) -> Verdict {
        let mut trouble = self.trouble.lock();
        self.some.store(true, Relaxed);
        trouble.met(passes, now)
    }

    /// A call succeeded.
    pub(super) fn over(&self) {
        if self.some.load(Relaxed) {
            let mut trouble = self.trouble.lock();
            *trouble = Trouble::default();
            self.some.store(false, Relaxed);
        }
    }
}

impl Lane {
    /// A record or a query that was refused: the work goes on, only our view of it is delayed. Too
    /// many in a row are taken for the loss of the device, so that nobody waits for ever; a lack of
    /// memory, or a capture that forbids the call, never is. The caller lets [`Reactor::announce`]
    /// follow once it holds no lock.
    pub(super) fn note_refusal(&self, refusals: &Refusals, error: DriverError) {
        let passes = error.code() == DriverError::OUT_OF_MEMORY || error.is_of_capture();
        // By hand, how fast looks follow each other is the machine's matter and not the program's.
        let now = (!self.reactor.options().by_hand).then(Instant::now);
        match refusals.met(passes, now) {
            _ if error.is_sticky() => self.reactor.fail(error),
            Verdict::GiveUp => self.reactor.fail(error),
            Verdict::First => self.reactor.note_transient(error),
            Verdict::Again => {}
        }
    }
}
