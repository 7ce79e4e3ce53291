//! The lanes of a device, by number.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::DeviceCore;
use crate::driver::{DriverResult, Fact};
use crate::error::{Error, Result};
use crate::reactor::{Lane, LaneId, LaneOptions, Reactor, StreamRole, Ticket};
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many lanes a device can have: their indices are below that.
pub(crate) const MOST: usize = 1024;

/// Grows, never shrinks: a lane found is there for the device's life, without a lock.
pub(super) struct Lanes {
    device: u32,
    reactor: Arc<Reactor>,
    queue_limit: u64,
    slots: Box<[OnceLock<Arc<Lane>>]>,
    taken: AtomicUsize,
}

impl Lanes {
    pub(super) fn new(device: u32, reactor: Arc<Reactor>, queue_limit: u64) -> Self {
        let slots = (0..MOST).map(|_| OnceLock::new()).collect();
        Lanes { device, reactor, queue_limit, slots, taken: AtomicUsize::new(0) }
    }

    /// Whether there cannot be one more.
    pub(super) fn are_full(&self) -> bool {
        self.taken.load(Relaxed) == MOST
    }

    /// Adopts a default stream. One thread at a time calls it.
    pub(super) fn adopt(&self, role: StreamRole) -> Result<Arc<Lane>> {
        if self.are_full() {
            return Err(Error::TooManyStreams { limit: MOST });
        }
        let refused = |cause| self.reactor.refused("adopting a default stream", cause);
        self.open(role, self.priorities().0).map_err(refused)
    }

    /// Makes one more. One thread at a time calls it, and the device's own settings bound how often.
    pub(super) fn open(&self, role: StreamRole, priority: i32) -> DriverResult<Arc<Lane>> {
        let index = self.taken.load(Relaxed);
        let id = LaneId::new(self.device, index as u16);
        let options = LaneOptions { id, role, priority, queue_limit: self.queue_limit };
        let lane = Lane::open(&self.reactor, options)?;
        self.taken.store(index + 1, Relaxed);
        let (stream, number) = (lane.stream_id(), index as u32);
        self.reactor.driver().tell(Fact::Stream { stream, number, name: None });
        Ok(self.slots[index].get_or_init(|| lane).clone())
    }

    /// (least urgent, most urgent): known, since the device is opened.
    pub(super) fn priorities(&self) -> (i32, i32) {
        self.reactor.driver().info().priorities.unwrap_or_default()
    }

    pub(super) fn at(&self, index: usize) -> Option<&Arc<Lane>> {
        self.slots.get(index)?.get()
    }

    pub(super) fn get(&self, id: LaneId) -> Option<&Arc<Lane>> {
        self.at(id.index()).filter(|lane| lane.id() == id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.slots.iter().filter_map(OnceLock::get)
    }
}

impl DeviceCore {
    /// Looks how far lanes are, once at each that `users` are on: to learn of all of these.
    pub(super) fn look(&self, users: impl IntoIterator<Item = Ticket>) {
        let mut seen = SmallVec::<[(Ticket, u64); 4]>::new();
        for user in users.into_iter().filter(|user| !self.is_known_finished(*user)) {
            match seen.iter_mut().find(|(oldest, _)| oldest.lane == user.lane) {
                Some((oldest, newest)) => {
                    oldest.seq = oldest.seq.min(user.seq);
                    *newest = (*newest).max(user.seq);
                }
                None => seen.push((user, user.seq)),
            }
        }
        for (oldest, newest) in seen {
            if let Some(lane) = self.lane(oldest.lane) {
                lane.request_record(newest);
                lane.probe(oldest.seq);
            }
        }
    }
}
