//! What becomes of a device that fails: who is told, and what of.

use std::sync::{Arc, Weak};
use std::task::Waker;

use super::in_flight::{Named, Progress, Runs};
use super::lane::{Lane, LaneId};
use super::thread::Reactor;
use super::waiters::{WaiterKey, discard, wake_all};
use crate::driver::DriverError;
use crate::error::{DeviceFailure, Error, Suspect};
use crate::foreign::contained;
use crate::sync::atomic::Ordering::*;

/// What was met under locks, for the next [`Reactor::announce`].
#[derive(Default)]
pub(super) struct News {
    /// The device is lost.
    failure: Option<Arc<DeviceFailure>>,
    /// Lanes whose waiters are to be told so.
    lanes: Vec<Arc<Lane>>,
    /// An error that may pass by itself.
    transient: Option<DriverError>,
}

/// Names one who is told of the device's loss.
#[derive(Debug)]
pub(crate) struct LossKey(WaiterKey);

/// A lane that was opened, and what outlives it.
pub(super) struct OpenedLane {
    pub(super) index: usize,
    pub(super) lane: Weak<Lane>,
    pub(super) progress: Arc<Progress>,
}

impl OpenedLane {
    /// That of `lane` among all, which are in the order of their numbers, but for those that were opened
    /// side by side.
    pub(super) fn find(lanes: &[OpenedLane], lane: LaneId) -> Option<&OpenedLane> {
        let (index, is_it) = (lane.index(), |opened: &&OpenedLane| opened.index == lane.index());
        lanes.get(index).filter(is_it).or_else(|| lanes.iter().find(is_it))
    }
}

impl Reactor {
    /// `Err` once the device is lost.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(Error::DeviceLost(failure.clone())),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.failure.get().is_some()
    }

    /// The device is lost. Those who wait are told by the [`Reactor::announce`] that the caller
    /// lets follow once it holds no lock. Takes leaf locks only.
    pub(crate) fn fail(&self, cause: DriverError) {
        if self.is_lost() {
            return;
        }
        let info = self.driver().info();
        let failure = Arc::new(DeviceFailure {
            device: self.options().device,
            ordinal: (!info.simulated).then_some(info.ordinal),
            cause,
            // An error that is not sticky is of the call that met it.
            suspects: if cause.is_sticky() { self.suspects(cause) } else { Vec::new() },
        });
        // Before the lanes are listed that are to be told: who registers on one after its waiters
        // were taken out, or on one that is not listed, sees it.
        let first = self.failure.set(failure.clone()).is_ok();
        let lanes = self.open_lanes();
        let mut news = self.news.lock();
        if first {
            news.failure = Some(failure);
        }
        // Whoever was first: a lane is not to be dropped under the caller's locks.
        news.lanes.extend(lanes);
        drop(news);
        self.unannounced.store(true, Release);
    }

    /// Wakes `waker` when the device is lost, in the place of one given before. For one who waits for no
    /// operation, and who looks at [`Reactor::check`] once more afterwards.
    pub(crate) fn tell_of_loss(&self, key: Option<LossKey>, waker: Waker) -> LossKey {
        let key = key.map(|LossKey(key)| key);
        let (key, replaced) = self.told_of_loss.lock().register(0, key, waker);
        discard(replaced);
        LossKey(key)
    }

    pub(crate) fn forget_loss(&self, LossKey(key): LossKey) {
        let removed = self.told_of_loss.lock().remove(key);
        discard(removed);
    }

    fn open_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().iter().filter_map(|opened| opened.lane.upgrade()).collect()
    }

    /// An error that may pass by itself, to be logged by the next [`Reactor::announce`].
    pub(super) fn note_transient(&self, error: DriverError) {
        self.news.lock().transient = Some(error);
        self.unannounced.store(true, Release);
    }

    /// Wakes everyone who waits, if the device was lost since the last call, and tells what went
    /// wrong. Runs foreign code: no lock is held.
    pub(crate) fn announce(&self) {
        if !self.unannounced.load(Relaxed) || !self.unannounced.swap(false, AcqRel) {
            return;
        }
        let News { failure, lanes, transient } = std::mem::take(&mut *self.news.lock());
        for lane in lanes {
            wake_all(lane.take_waiters(u64::MAX));
        }
        if let Some(failure) = failure {
            let told = self.told_of_loss.lock().take_through(u64::MAX);
            wake_all(told);
            self.hook().tell(&Error::DeviceLost(failure));
        }
        if let Some(error) = transient {
            let what = "asking a stream for its progress failed; trying again";
            contained(|| tracing::warn!(%error, "{what}"));
        }
    }

    /// The error of a call that the driver refused. A sticky one loses the device, and the caller
    /// lets [`Reactor::announce`] follow. On a lost device nothing but the loss is told.
    pub(crate) fn refused(&self, operation: &'static str, cause: DriverError) -> Error {
        if cause.is_sticky() {
            // It came from earlier work: this call is only the first to hear of it.
            self.fail(cause);
        }
        self.check().err().unwrap_or(Error::Refused { operation, cause })
    }

    /// The operations that can have failed, the oldest of each lane first: also on lanes that are
    /// gone, since what was enqueued there still runs.
    fn suspects(&self, cause: DriverError) -> Vec<Suspect> {
        let can_fail_so =
            |named: &Named| named.operation.runs() != Runs::CopyEngine || !cause.is_of_kernel();
        let mut found = Vec::new();
        for OpenedLane { index, progress, .. } in &*self.lanes.lock() {
            let operations = progress.in_flight().into_iter().filter(can_fail_so).enumerate();
            found.extend(operations.map(|(rank, Named { operation, number })| {
                let (name, runs) = (operation.name(), operation.runs());
                let is_kernel = runs == Runs::Kernel;
                (rank, runs, Suspect { name, is_kernel, stream: *index, number })
            }));
        }
        found.sort_by_key(|(rank, runs, suspect)| (*rank, *runs, suspect.stream));
        found.into_iter().map(|(.., suspect)| suspect).collect()
    }
}
