//! Device memory: where buffers get theirs, and where it goes when they are dropped.
//!
//! Blocks are asked of the driver in stream order and kept when a buffer is dropped, with the operations
//! that may still touch them. Whoever gets such a block takes these over into its record: so the first use
//! waits for them on the device, where it is on another stream, and nothing waits for getting it. A block is
//! handed out at once to the stream that its users are on, and to anyone when they are known to be
//! finished. Others get one in flight only where there is no more memory to be had.

mod budget;
mod cache;
mod classes;
mod pressure;
mod queue;
mod release;
mod request;
mod stats;
mod tenant;
mod trim;

use std::sync::Arc;

pub(crate) use budget::{Budget, Charge};
pub(crate) use cache::Users;
pub(super) use release::free_all;
pub(crate) use request::MemoryRequest;
pub use stats::{MemoryStats, TenantStats};
pub use tenant::Tenant;
pub use trim::Trim;

use self::cache::{Cache, Idle};
use self::queue::{Place, Queue};
use super::DeviceCore;
use crate::driver::{DevicePtr, Driver, DriverError};
use crate::error::{Error, Result};
use crate::foreign::contained;
use crate::reactor::{Held, Lane, LaneId, OpKey, Operation, Recording, Ticket};
use crate::sync::{Mutex, MutexGuard};

const ALLOCATE: OpKey = OpKey::of(&Operation::control("allocating device memory"));

/// The device memory of one buffer.
#[derive(Debug)]
pub(crate) struct DeviceBlock {
    ptr: DevicePtr,
    /// A size class: at least what was asked for.
    bytes: u64,
    /// Where the driver was asked for it.
    home: LaneId,
    /// What it takes of a budget.
    charge: Option<Charge>,
}

impl DeviceBlock {
    pub(crate) fn ptr(&self) -> DevicePtr {
        self.ptr
    }
}

/// What comes before the first use of a block.
#[derive(Debug)]
pub(crate) enum Before {
    /// The driver was asked for it by this operation.
    Allocation(Ticket),
    /// It was somebody else's, for these.
    Users(Users),
}

/// The memory of one device.
pub(crate) struct MemoryPool {
    /// Bytes of blocks that there may be.
    limit: u64,
    /// Whether blocks are kept. Else they go to the driver when a buffer is dropped.
    keeps: bool,
    /// Leaf lock.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What no buffer has.
    idle: Cache,
    /// Bytes of buffers' blocks.
    in_use: u64,
    /// Bytes of all blocks: those that the driver was asked for and not given back.
    reserved: u64,
    /// The most that these two were.
    in_use_high_water: u64,
    reserved_high_water: u64,
    waiting: Queue,
    /// The last free on each lane that is not known to be finished: until then the driver does not have what
    /// was given back to it, but for who comes after that.
    freed: Users,
}

impl State {
    fn use_more(&mut self, bytes: u64) {
        self.in_use += bytes;
        self.in_use_high_water = self.in_use_high_water.max(self.in_use);
    }
}

/// Why there is no block.
enum Unavailable {
    /// There is no memory: as far as the limit goes, or because the driver said so.
    Exhausted,
    /// Something else went wrong.
    Failed(Error),
}

impl From<Error> for Unavailable {
    fn from(error: Error) -> Self {
        Unavailable::Failed(error)
    }
}

impl MemoryPool {
    /// Of a device of `total` bytes.
    pub(super) fn new(total: u64, limit: Option<u64>, keeps: bool) -> Self {
        let limit = limit.map_or(total, |limit| limit.min(total));
        MemoryPool { limit, keeps, state: Mutex::default() }
    }

    /// A block of `bytes` bytes, which are not 0, for work on `lane` first of all.
    pub(crate) fn allocate(
        &self,
        core: &DeviceCore,
        lane: &Arc<Lane>,
        budget: Option<&Arc<Budget>>,
        bytes: usize,
    ) -> Result<(DeviceBlock, Before)> {
        self.allocate_for(core, lane, budget, bytes, None)
    }

    /// The same for `asker`, who waits in turn.
    fn allocate_for(
        &self,
        core: &DeviceCore,
        lane: &Arc<Lane>,
        budget: Option<&Arc<Budget>>,
        bytes: usize,
        asker: Option<Place>,
    ) -> Result<(DeviceBlock, Before)> {
        core.reactor().check()?;
        let allocated = self.allocate_unannounced(core, lane, budget, bytes as u64, asker);
        if allocated.is_err() {
            core.reactor().announce();
        }
        allocated
    }

    fn allocate_unannounced(
        &self,
        core: &DeviceCore,
        lane: &Arc<Lane>,
        budget: Option<&Arc<Budget>>,
        bytes: u64,
        asker: Option<Place>,
    ) -> Result<(DeviceBlock, Before)> {
        // Not asked of the driver if it is more than there is: before it refuses, it takes all that is free for a
        // moment (seen on an H200), and others are refused meanwhile.
        let Some(class) = self.class_of(bytes) else { return Err(self.exhausted(core, bytes)) };
        let charge = budget.map(|budget| {
            let over =
                |in_use| Error::OverBudget { requested: bytes, in_use, budget: budget.limit() };
            budget.charge(bytes).map_err(over)
        });
        let charge = charge.transpose()?;
        let found = match self.reuse(core, lane, class) {
            Some(found) => Ok(found),
            None => match self.ask(core, lane, class, asker) {
                Err(Unavailable::Exhausted) => {
                    self.allocate_under_pressure(core, lane, class, asker)
                }
                asked => asked,
            },
        };
        match found {
            Ok((block, before)) => Ok((DeviceBlock { charge, ..block }, before)),
            Err(why) => {
                if charge.is_some() {
                    // Others may have found the budget taken.
                    drop(charge);
                    wake_next(self.state.lock(), asker);
                }
                Err(match why {
                    Unavailable::Exhausted => self.exhausted(core, bytes),
                    Unavailable::Failed(error) => error,
                })
            }
        }
    }

    /// Bytes of the block that so many get; `None` where there never can be one.
    fn class_of(&self, bytes: u64) -> Option<u64> {
        let fits = |class: &u64| *class <= self.limit;
        let class = classes::class_of(bytes).filter(|class| self.keeps && fits(class));
        class.or(Some(bytes).filter(fits))
    }

    /// A block that is kept and that `lane` may touch at once.
    fn reuse(&self, core: &DeviceCore, lane: &Lane, class: u64) -> Option<(DeviceBlock, Before)> {
        let own = lane.id();
        let gone = |user: Ticket| user.lane == own || core.is_known_finished(user);
        let mut state = self.state.lock();
        let found = state.idle.take(class, gone);
        if found.is_some() || !state.idle.has(class) {
            return self.hand_out(core, state, found);
        }
        // There are some, but others use them as far as is known: rather look than ask for more.
        let users: Users = state
            .idle
            .iter()
            .filter(|b| b.bytes == class)
            .take(4)
            .flat_map(|b| b.users.clone())
            .collect();
        drop(state);
        core.look(users);
        let mut state = self.state.lock();
        let found = state.idle.take(class, gone);
        self.hand_out(core, state, found)
    }

    fn hand_out(
        &self,
        core: &DeviceCore,
        mut state: MutexGuard<'_, State>,
        idle: Option<Idle>,
    ) -> Option<(DeviceBlock, Before)> {
        let Idle { ptr, bytes, home, mut users } = idle?;
        state.use_more(bytes);
        drop(state);
        users.retain(|user| !core.is_known_finished(*user));
        Some((DeviceBlock { ptr, bytes, home, charge: None }, Before::Users(users)))
    }

    /// Asks the driver (`cuMemAllocFromPoolAsync`).
    fn ask(
        &self,
        core: &DeviceCore,
        lane: &Arc<Lane>,
        class: u64,
        asker: Option<Place>,
    ) -> Result<(DeviceBlock, Before), Unavailable> {
        {
            let mut state = self.state.lock();
            if class > self.limit - state.reserved.min(self.limit) {
                return Err(Unavailable::Exhausted);
            }
            state.reserved += class;
        }
        let asked = self.ask_driver(core, lane, class);
        let mut state = self.state.lock();
        match asked {
            Ok((ptr, ticket)) => {
                state.use_more(class);
                state.reserved_high_water = state.reserved_high_water.max(state.reserved);
                let block = DeviceBlock { ptr, bytes: class, home: lane.id(), charge: None };
                Ok((block, Before::Allocation(ticket)))
            }
            Err(why) => {
                state.reserved -= class;
                // Others may have found the limit reached.
                wake_next(state, asker);
                Err(why)
            }
        }
    }

    fn ask_driver(
        &self,
        core: &DeviceCore,
        lane: &Arc<Lane>,
        class: u64,
    ) -> Result<(DevicePtr, Ticket), Unavailable> {
        /// Before it refuses, the driver looks long for a block that is larger than what it maps at a
        /// time (60 ms on an H200), and holds others up.
        const WORTH_A_LOOK: u64 = 2 << 20;
        if class >= WORTH_A_LOOK && free_for_allocation(core)?.is_some_and(|free| free < class) {
            return Err(Unavailable::Exhausted);
        }
        let bytes = usize::try_from(class).unwrap_or(usize::MAX);
        let mut enqueue = lane.enqueue_uncounted(ALLOCATE)?;
        let ticket = enqueue.take_uncounted_ticket();
        match enqueue.driver().alloc(bytes, enqueue.stream()) {
            Ok(ptr) => {
                enqueue.finish(Recording::Lazy, Held::No);
                Ok((ptr, ticket))
            }
            Err(cause) => {
                drop(enqueue);
                Err(match cause.code() {
                    DriverError::OUT_OF_MEMORY => Unavailable::Exhausted,
                    _ => core.reactor().refused(ALLOCATE.name(), cause).into(),
                })
            }
        }
    }

    /// Takes the block of a buffer that is dropped back; `users` may still touch it. `Err`: it was to go to the
    /// driver, which refused that. It is kept then.
    pub(crate) fn retire(&self, core: &DeviceCore, block: DeviceBlock, users: Users) -> Result<()> {
        let DeviceBlock { ptr, bytes, home, charge } = block;
        drop(charge);
        let idle = Idle { ptr, bytes, home, users };
        let mut state = self.state.lock();
        state.in_use -= bytes;
        if self.keeps {
            state.idle.put(idle);
            wake_next(state, None);
            return Ok(());
        }
        drop(state);
        let lane = self.lane_to_free_on(core, &idle);
        let released = self.release(core, lane, vec![idle], None);
        // Whose charge came back, if nothing else did.
        wake_next(self.state.lock(), None);
        released
    }

    /// All blocks that are kept, for closing the device.
    pub(super) fn drain(&self) -> Vec<DevicePtr> {
        let idle = std::mem::take(&mut self.state.lock().idle);
        idle.iter().map(|block| block.ptr).collect()
    }
}

/// Memory came back, of the device or of a budget: wakes the one whose turn it is to try. Found under the lock that
/// it came back under: who sees that nothing more can come back sees that it was called.
fn wake_next(mut state: MutexGuard<'_, State>, asker: Option<Place>) {
    let next = state.waiting.take_next(asker);
    drop(state);
    next.into_iter().for_each(|waker| _ = contained(|| waker.wake()));
}

/// Bytes that the driver can be asked for, where it says: free ones, and those that its pool has.
fn free_for_allocation(core: &DeviceCore) -> Result<Option<u64>> {
    let asked = |driver: &dyn Driver| {
        let usage = driver.pool_usage()?;
        Ok(driver.memory_free()? + usage.reserved.saturating_sub(usage.used))
    };
    match asked(&**core.driver()) {
        Ok(free) => Ok(Some(free)),
        Err(cause @ DriverError { .. }) if cause.is_sticky() => {
            Err(core.reactor().refused(ALLOCATE.name(), cause))
        }
        Err(_) => Ok(None),
    }
}
