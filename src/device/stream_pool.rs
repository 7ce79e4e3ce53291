//! Streams made in advance and lent out one holder each.

use std::collections::VecDeque;
use std::sync::Arc;

use super::DeviceOptions;
use super::lanes::Lanes;
use super::stream::Priority;
use crate::driver::DriverResult;
use crate::reactor::Lane;
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
    all: Vec<Arc<Lane>>,
    /// Lanes that nobody leases, longest returned first.
    idle: Mutex<VecDeque<Arc<Lane>>>,
}

impl StreamPool {
    pub(super) fn new(lanes: &Lanes, options: &DeviceOptions) -> DriverResult<Self> {
        let reclaim = lanes.open(0)?;
        if options.single_stream {
            let single = lanes.open(0)?;
            let none = || Shelf { all: Vec::new(), idle: Mutex::default() };
            return Ok(StreamPool { normal: none(), high: none(), reclaim, single: Some(single) });
        }
        let (least, most) = lanes.priorities();
        let shelf = |priority| {
            let all = (0..options.leased_streams.max(1))
                .map(|_| lanes.open(priority))
                .collect::<DriverResult<Vec<_>>>()?;
            let idle = Mutex::new(all.iter().cloned().collect());
            Ok(Shelf { all, idle })
        };
        Ok(StreamPool { normal: shelf(least)?, high: shelf(most)?, reclaim, single: None })
    }

    /// A lane that nobody else leases, and idle if one is; else the least busy of all.
    pub(super) fn lease(&self, priority: Priority) -> Arc<Lane> {
        if let Some(single) = &self.single {
            return single.clone();
        }
        let shelf = self.shelf(priority);
        let mut idle = shelf.idle.lock();
        let quiet = idle.iter().position(|lane| lane.in_flight() == 0).unwrap_or(0);
        if let Some(lane) = idle.remove(quiet) {
            return lane;
        }
        drop(idle);
        let least = shelf.all.iter().min_by_key(|lane| lane.in_flight());
        least.unwrap_or(&self.reclaim).clone()
    }

    /// Takes back a lease. A lane handed out twice comes back twice: the second is ignored.
    pub(super) fn give_back(&self, priority: Priority, lane: Arc<Lane>) {
        if self.single.is_some() {
            return;
        }
        // So that the pool comes to know when it is idle without asking again and again.
        lane.request_record(lane.submitted());
        lane.probe(lane.submitted());
        let mut idle = self.shelf(priority).idle.lock();
        if !idle.iter().any(|known| Arc::ptr_eq(known, &lane)) {
            idle.push_back(lane);
        }
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
