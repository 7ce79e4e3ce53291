//! Who sees what crosses the seam, of one device or of several that share memory: the log and the
//! race checker.
//!
//! Both see one order of steps, whichever threads they are made on. No lock is held over a call, so
//! that order is made so: a step that ends something's life (a free, a destroy) is seen before its
//! call, since another thread can be given the address or handle anew as soon as the call is made;
//! every other step is seen when its call has succeeded, before the caller can tell anyone of it.

use std::sync::Arc;
use std::thread;

use super::DriverError;
use super::races::{Checker, Race, TakeBack};
use super::step::{LoggedStep, Step};
use crate::sync::Mutex;

/// What is to be watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) log: bool,
    pub(crate) races: bool,
    /// Panics at the step that makes a race.
    pub(crate) panic_on_race: bool,
    /// Of the waits asked for, counted from 0, the one that is not made.
    pub(crate) lose_wait: Option<u64>,
    /// Another device's witness, so that the two are seen in one order.
    pub(crate) with: Option<Arc<Witness>>,
}

impl Watch {
    /// Whether any of it is.
    pub(crate) fn is_wanted(&self) -> bool {
        self.log || self.races || self.lose_wait.is_some() || self.with.is_some()
    }
}

/// Who sees the steps of one device, or of several that share memory, in one order.
#[derive(Debug)]
pub(crate) struct Witness(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    log: Option<Vec<LoggedStep>>,
    checker: Option<Checker>,
}

/// The end of something, whose call is being made.
pub(super) struct Ending {
    take_back: Option<TakeBack>,
    /// Where the log has it.
    logged: Option<usize>,
}

impl Witness {
    pub(super) fn new(log: bool, races: bool) -> Arc<Self> {
        let seen = Seen { log: log.then(Vec::new), checker: races.then(Checker::default) };
        Arc::new(Witness(Mutex::new(seen)))
    }

    /// `None` where it keeps none.
    pub(crate) fn log(&self) -> Option<Vec<LoggedStep>> {
        self.0.lock().log.clone()
    }

    /// `None` where it looks for none.
    pub(crate) fn races(&self) -> Option<Vec<Race>> {
        self.0.lock().checker.as_ref().map(|checker| checker.races().to_vec())
    }

    /// Whether it does all of that.
    pub(crate) fn does(&self, log: bool, races: bool) -> bool {
        let seen = self.0.lock();
        (seen.log.is_some() || !log) && (seen.checker.is_some() || !races)
    }

    /// A step whose call was made. The first race that it makes comes back.
    pub(super) fn saw(
        &self,
        device: u32,
        step: Step,
        refused: Option<DriverError>,
    ) -> Option<Race> {
        let mut seen = self.0.lock();
        let checker = seen.checker.as_mut().filter(|_| refused.is_none());
        let race = checker.and_then(|checker| {
            let found = checker.races().len();
            checker.step(device, &step);
            checker.races().get(found).cloned()
        });
        seen.note(device, step, refused);
        race
    }

    /// A step that ends something's life, whose call is still to be made.
    pub(super) fn sees_end(&self, device: u32, step: Step) -> Ending {
        let mut seen = self.0.lock();
        let take_back = seen.checker.as_mut().map(|checker| checker.step(device, &step));
        let logged = seen.log.as_ref().map(Vec::len);
        seen.note(device, step, None);
        Ending { take_back, logged }
    }

    /// Its call had no effect.
    pub(super) fn was_refused(&self, Ending { take_back, logged }: Ending, error: DriverError) {
        let mut seen = self.0.lock();
        if let Some((checker, take_back)) = seen.checker.as_mut().zip(take_back) {
            checker.take_back(take_back);
        }
        let log = seen.log.as_mut().zip(logged);
        if let Some(logged) = log.and_then(|(log, at)| log.get_mut(at)) {
            logged.refused = Some(error);
        }
    }
}

impl Seen {
    fn note(&mut self, device: u32, step: Step, refused: Option<DriverError>) {
        if let Some(log) = &mut self.log {
            log.push(LoggedStep { device, thread: thread::current().id(), step, refused });
        }
    }
}
