//! Giving blocks of device memory back to the driver, in stream order.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::cache::Idle;
use super::queue::Place;
use super::{MemoryPool, wake_next};
use crate::device::DeviceCore;
use crate::driver::{DevicePtr, DriverError, stay};
use crate::error::Result;
use crate::reactor::{Enqueue, Held, Lane, Latest, OpKey, Operation, Recording, Ticket, Waits};

const FREE: OpKey = OpKey::of(&Operation::control("freeing device memory"));

impl MemoryPool {
    /// Frees blocks (`cuMemFreeAsync`) on `lane`, which waits for their users before. Where the driver refuses,
    /// the rest is kept.
    pub(super) fn release(
        &self,
        core: &DeviceCore,
        lane: &Arc<Lane>,
        mut blocks: Vec<Idle>,
        asker: Option<Place>,
    ) -> Result<()> {
        let bytes = |blocks: &[Idle]| blocks.iter().map(|block| block.bytes).sum::<u64>();
        let all = bytes(&blocks);
        let (freed, released) = free(core, lane, &mut blocks);
        let mut state = self.state.lock();
        state.reserved -= all - bytes(&blocks);
        blocks.into_iter().for_each(|block| state.idle.put(block));
        if let Some(freed) = freed {
            state.freed.retain(|other| other.lane != freed.lane && !core.is_known_finished(*other));
            state.freed.push(freed);
        }
        wake_next(state, asker);
        core.reactor().announce();
        released
    }

    /// Where a block can be freed without a stream waiting that carries anything else: on the only one that
    /// uses it, or where it was made; else on the one that is for that.
    pub(super) fn lane_to_free_on<'a>(&self, core: &'a DeviceCore, block: &Idle) -> &'a Arc<Lane> {
        let lane = match &block.users[..] {
            [] => core.lane(block.home),
            [only] => core.lane(only.lane),
            _ => None,
        };
        let reclaim = core.streams().reclaim();
        // A thread's own stream takes calls of that thread only, and memory is dropped on any.
        lane.filter(|lane| !lane.is_of_a_thread()).unwrap_or(reclaim)
    }
}

/// Frees from the back of `blocks`; what is left in it was not freed. The operation, if any was.
fn free(
    core: &DeviceCore,
    lane: &Arc<Lane>,
    blocks: &mut Vec<Idle>,
) -> (Option<Ticket>, Result<()>) {
    let refused = |cause: DriverError| core.reactor().refused(FREE.name(), cause);
    let (mut enqueue, waits) = match behind_users(core, lane, blocks) {
        Ok(behind) => behind,
        Err(error) => return (None, Err(error)),
    };
    let ticket = enqueue.take_uncounted_ticket();
    if let Err(cause) = enqueue.wait(&waits) {
        return (None, Err(refused(cause)));
    }
    let mut freed = None;
    let mut released = Ok(());
    while let Some(block) = blocks.pop() {
        // SAFETY: the block came from this driver's `alloc`, and whoever has its `Idle` is the only one who
        // can name it. Every operation that touches it is among its users (`Tracked` names all that may), so it
        // is finished, or before this point of `lane`, or waited for above.
        match unsafe { enqueue.driver().free(block.ptr, enqueue.stream()) } {
            Ok(()) => freed = Some(ticket),
            Err(cause) => {
                blocks.push(block);
                released = Err(refused(cause));
                break;
            }
        }
    }
    enqueue.finish(Recording::Lazy, Held::No);
    (freed, released)
}

/// Locks the lane, with the waits after which it comes after all users of the blocks.
fn behind_users<'l>(
    core: &DeviceCore,
    lane: &'l Arc<Lane>,
    blocks: &[Idle],
) -> Result<(Enqueue<'l>, Waits)> {
    let mut users = Latest::default();
    blocks.iter().flat_map(|block| &block.users).for_each(|user| users.add(*user));
    loop {
        let enqueue = lane.enqueue_uncounted(FREE)?;
        match enqueue.waits(users.iter(), |id| core.lane(id)) {
            Ok(waits) => return Ok((enqueue, waits)),
            Err(unrecorded) => {
                // Not under this lane's lock: one lane's is held at a time.
                drop(enqueue);
                for ticket in unrecorded {
                    if let Some(other) = core.lane(ticket.lane) {
                        other.record_through(ticket.seq)?;
                    }
                }
            }
        }
    }
}

/// Frees what is left when a device closes, with nothing in flight.
pub(in crate::device) fn free_all(lane: &Arc<Lane>, blocks: Vec<DevicePtr>) {
    let reactor = lane.reactor();
    let refused = |cause| reactor.refused(FREE.name(), cause);
    let free = |ptr| {
        let _stay = stay();
        let mut enqueue = lane.enqueue_uncounted(FREE)?;
        enqueue.take_uncounted_ticket();
        // SAFETY: as above; the caller has seen all work on the device finish.
        unsafe { enqueue.driver().free(ptr, enqueue.stream()) }.map_err(refused)?;
        enqueue.finish(Recording::Lazy, Held::No);
        Ok(())
    };
    for ptr in blocks {
        if let Err(error) = free(ptr) {
            reactor.hook().not_released(|| format!("device memory at {ptr:?}"), error);
        }
    }
}
