//! Streams made in advance and lent out one holder each.

use std::sync::Arc;

use super::DeviceOptions;
use super::lanes::Lanes;
use super::stream::Priority;
use crate::driver::DriverResult;
use crate::reactor::{Lane, StreamRole};
use crate::sync::Mutex;

/// The streams of one device that can be leased, by priority.
///
/// None is made later: making one may wait for a running kernel, and a lease is taken on async
/// workers.
pub(crate) struct StreamPool {
    normal: Shelf,
    high: Shelf,
    /// Lanes for the library's own use: frees that several streams have to agree to.
    reclaim: Arc<Lane>,
    /// The debug switch: everyone gets this one.
    single: Option<Arc<Lane>>,
}

struct Shelf {
    slots: Mutex<Vec<Slot>>,
}

struct Slot {
    lane: Arc<Lane>,
    /// Leases that are out. More than one only while every lane of the shelf has one.
    leases: u32,
    /// Of all returns to the shelf, which was the last of this lane.
    returned: u64,
}

impl StreamPool {
    pub(super) fn new(lanes: &Lanes, options: &DeviceOptions) -> DriverResult<Self> {
        let (least, most) = lanes.priorities();
        let reclaim = lanes.open(StreamRole::Reclaim, least)?;
        if options.single_stream {
            let single = lanes.open(StreamRole::Task, least)?;
            let none = || Shelf { slots: Mutex::default() };
            return Ok(StreamPool { normal: none(), high: none(), reclaim, single: Some(single) });
        }
        let shelf = |priority| {
            let slot = |_| {
                let lane = lanes.open(StreamRole::Leased, priority)?;
                Ok(Slot { lane, leases: 0, returned: 0 })
            };
            let slots = (0..options.leased_streams.max(1)).map(slot);
            Ok(Shelf { slots: Mutex::new(slots.collect::<DriverResult<_>>()?) })
        };
        Ok(StreamPool { normal: shelf(least)?, high: shelf(most)?, reclaim, single: None })
    }

    /// The lane with the fewest leases; of those one that is idle, as far as is known; of those the
    /// one returned longest ago.
    pub(super) fn lease(&self, priority: Priority) -> Arc<Lane> {
        if let Some(single) = &self.single {
            return single.clone();
        }
        let mut slots = self.shelf(priority).slots.lock();
        let rank = |slot: &&mut Slot| (slot.leases, !slot.lane.seems_idle(), slot.returned);
        match slots.iter_mut().min_by_key(rank) {
            Some(slot) => {
                slot.leases += 1;
                slot.lane.clone()
            }
            // A shelf has at least one.
            None => self.reclaim.clone(),
        }
    }

    /// Takes back a lease.
    pub(super) fn give_back(&self, priority: Priority, lane: &Arc<Lane>) {
        // Where an event says how far it is, one look: the pool then knows that it is idle.
        lane.probe(lane.submitted());
        let mut slots = self.shelf(priority).slots.lock();
        let returned = slots.iter().map(|slot| slot.returned).max().unwrap_or(0) + 1;
        if let Some(slot) = slots.iter_mut().find(|slot| Arc::ptr_eq(&slot.lane, lane)) {
            slot.leases = slot.leases.saturating_sub(1);
            slot.returned = returned;
        }
    }

    /// How many leases of each lane are out.
    #[cfg(all(test, headwater_loom))]
    pub(super) fn leases(&self, priority: Priority) -> Vec<u32> {
        self.shelf(priority).slots.lock().iter().map(|slot| slot.leases).collect()
    }

    pub(super) fn single(&self) -> Option<&Arc<Lane>> {
        self.single.as_ref()
    }

    /// The lane on which memory is freed that several lanes used: it carries nothing else, so its
    /// waits hold up nobody.
    pub(crate) fn reclaim(&self) -> &Arc<Lane> {
        &self.reclaim
    }

    fn shelf(&self, priority: Priority) -> &Shelf {
        match priority {
            Priority::Normal => &self.normal,
            Priority::High => &self.high,
        }
    }
}
