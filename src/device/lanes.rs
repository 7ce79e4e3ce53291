//! The lanes of a device, by number.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::driver::{DriverResult, Fact};
use crate::reactor::{Lane, LaneId, LaneOptions, Reactor, StreamRole};

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

    /// Makes one more. The device's own settings bound how many are asked for.
    pub(super) fn open(&self, role: StreamRole, priority: i32) -> DriverResult<Arc<Lane>> {
        let index = self.taken.fetch_add(1, Relaxed) % MOST;
        let id = LaneId::new(self.device, index as u16);
        let options = LaneOptions { id, role, priority, queue_limit: self.queue_limit };
        let lane = Lane::open(&self.reactor, options)?;
        let (stream, number) = (lane.stream().id(), index as u32);
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
