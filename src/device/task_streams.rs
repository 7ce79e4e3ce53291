//! Which stream belongs to which task.

use std::sync::Arc;

use super::DeviceOptions;
use super::current::A_THREAD;
use super::lanes::Lanes;
use crate::driver::DriverResult;
use crate::reactor::{Lane, LaneId, StreamRole};
use crate::sync::MODELLED;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Tasks that can be told apart before they begin to displace each other.
const TASK_SLOTS: usize = if MODELLED { 2 } else { 1024 };
/// The same of threads. Both are numbered from 0, so they would meet in the same slots.
const THREAD_SLOTS: usize = if MODELLED { 1 } else { 256 };
/// Bits of a slot that hold the lane's index plus one.
const LANE_BITS: u32 = 16;

/// A small direct-mapped cache from caller (a task's or a thread's number) to lane.
///
/// Nothing tells when a task ends, and runtimes use task numbers again: a stale or displaced entry
/// puts work on another stream than before, which costs a wait on the GPU and is never wrong. An entry
/// that names another thread's lane, since its task set that and has moved or left it behind, counts as
/// none.
pub(super) struct TaskStreams {
    /// Dealt to callers in turn.
    streams: Vec<Arc<Lane>>,
    /// Caller above, lane index plus one below; 0: empty.
    slots: Box<[AtomicU64]>,
    next: AtomicUsize,
}

impl TaskStreams {
    pub(super) fn new(
        lanes: &Lanes,
        single: Option<&Arc<Lane>>,
        options: &DeviceOptions,
    ) -> DriverResult<Self> {
        let streams = match single {
            Some(single) => vec![single.clone()],
            None => (0..options.task_streams.max(1))
                .map(|_| lanes.open(StreamRole::Task, lanes.priorities().0))
                .collect::<DriverResult<_>>()?,
        };
        let slots = (0..TASK_SLOTS + THREAD_SLOTS).map(|_| AtomicU64::new(0)).collect();
        Ok(TaskStreams { streams, slots, next: AtomicUsize::new(0) })
    }

    /// The caller's lane; the next in turn if it has none that the calling thread can use.
    pub(super) fn lane_of(&self, lanes: &Lanes, caller: u64) -> Arc<Lane> {
        let slot = self.slot(caller);
        let entry = slot.load(Relaxed);
        if entry >> LANE_BITS == caller
            && let Some(index) = (entry & ((1 << LANE_BITS) - 1)).checked_sub(1)
            && let Some(lane) = lanes.at(index as usize)
            && lane.is_usable_here()
        {
            return lane.clone();
        }
        let turn = self.next.fetch_add(1, Relaxed) % self.streams.len();
        let lane = &self.streams[turn];
        self.set(caller, lane.id());
        lane.clone()
    }

    pub(super) fn set(&self, caller: u64, lane: LaneId) {
        let entry = (caller << LANE_BITS) | (lane.index() as u64 + 1);
        self.slot(caller).store(entry, Relaxed);
    }

    fn slot(&self, caller: u64) -> &AtomicU64 {
        let number = (caller & (A_THREAD - 1)) as usize;
        match caller & A_THREAD {
            0 => &self.slots[number % TASK_SLOTS],
            _ => &self.slots[TASK_SLOTS + number % THREAD_SLOTS],
        }
    }
}
