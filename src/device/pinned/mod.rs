//! Page-locked host memory, kept for reuse: allocating takes a millisecond, freeing waits for
//! running kernels.

mod answer;
mod block;
mod ledger;
mod stats;
mod thread;
mod trim;

use std::sync::Arc;

use smallvec::SmallVec;

use self::answer::answer;
use self::ledger::{Ledger, Retiring, class_of};
use self::thread::{Job, Jobs, Leaving};
use super::DeviceCore;
use crate::driver::{DriverError, HostKind};
use crate::error::{Error, Result};
use crate::reactor::Ticket;
use crate::sync::Mutex;

pub(crate) use self::answer::Answer;
pub(crate) use self::block::{PinnedBlock, VecMemory};
pub use self::stats::PinnedStats;
pub(crate) use self::thread::{Registered, Unregistered};
pub use self::trim::TrimPinned;

/// The page-locked memory of one device.
pub(crate) struct PinnedPool {
    /// The device's number.
    device: u32,
    /// Held for bookkeeping only, never over a driver call or a waker.
    state: Mutex<State>,
}

struct State {
    ledger: Ledger,
    jobs: Jobs,
}

impl PinnedPool {
    /// `limit`: of the bytes of all blocks.
    pub(super) fn new(device: u32, limit: Option<usize>) -> Arc<Self> {
        let state = State { ledger: Ledger::new(limit), jobs: Jobs::default() };
        Arc::new(PinnedPool { device, state: Mutex::new(state) })
    }

    /// A cacheable block of at least `bytes` bytes: see [`PinnedPool::take_as`].
    pub(crate) fn take(self: &Arc<Self>, core: &DeviceCore, bytes: usize) -> Result<PinnedBlock> {
        self.take_as(core, bytes, HostKind::Cacheable)
    }

    /// A block of at least `bytes` bytes, with whatever is in it. One that the pool has, else a new
    /// one (`cuMemHostAlloc`); where there is no room for that, a larger one that the pool has.
    pub(crate) fn take_as(
        self: &Arc<Self>,
        core: &DeviceCore,
        bytes: usize,
        kind: HostKind,
    ) -> Result<PinnedBlock> {
        let Some(class) = class_of(bytes) else {
            return Err(Error::TooLarge { len: bytes, element_size: 1 });
        };
        if let Some(block) = self.state.lock().ledger.take(kind, class) {
            return Ok(block);
        }
        self.sweep(core);
        let mut state = self.state.lock();
        if let Some(block) = state.ledger.take(kind, class) {
            return Ok(block);
        }
        let room = state.ledger.reserve(class);
        drop(state);
        if room.is_err() {
            return self.make_do(core, (bytes, class, kind), None);
        }
        let made = PinnedBlock::allocate(&**core.driver(), class, kind);
        let mut state = self.state.lock();
        match &made {
            Ok(_) => state.ledger.made(class),
            Err(_) => state.ledger.not_made(class),
        }
        drop(state);
        match made {
            Ok(block) => Ok(block),
            Err(cause) if cause.code() == DriverError::OUT_OF_MEMORY => {
                self.make_do(core, (bytes, class, kind), Some(cause))
            }
            Err(cause) => {
                let error = core.reactor().refused("allocating pinned memory", cause);
                core.reactor().announce();
                Err(error)
            }
        }
    }

    /// Where no block of that class can be made: a larger one that is idle. There being none, idle blocks
    /// of other kinds and classes are freed for whoever asks again, which takes too long to be done here.
    fn make_do(
        self: &Arc<Self>,
        core: &DeviceCore,
        (requested, class, kind): (usize, usize, HostKind),
        cause: Option<DriverError>,
    ) -> Result<PinnedBlock> {
        let mut state = self.state.lock();
        if let Some(block) = state.ledger.take_larger(kind, class) {
            return Ok(block);
        }
        let stats = state.ledger.stats();
        let keep = match cause {
            // The system has no more, whatever the limit says.
            Some(_) => stats.idle.checked_sub(class.min(stats.idle)).filter(|_| stats.idle > 0),
            None => state.ledger.idle_beside(class),
        };
        let keep = keep.filter(|_| !state.jobs.making_room);
        state.jobs.making_room |= keep.is_some();
        drop(state);
        if let Some(keep) = keep {
            self.submit(core.reactor(), Job::Trim { keep, told: None });
        }
        let PinnedStats { in_use, in_flight, idle, limit, .. } = stats;
        Err(Error::OutOfPinnedMemory { requested, in_use, in_flight, idle, limit, cause })
    }

    /// Takes back a block that `users` may still touch.
    pub(crate) fn retire(
        self: &Arc<Self>,
        core: &DeviceCore,
        block: PinnedBlock,
        mut users: SmallVec<[Ticket; 2]>,
    ) {
        users.retain(|user| !core.is_known_finished(*user));
        // Their events are recorded now, while that is exact.
        for user in &users {
            if let Some(lane) = core.lane(user.lane) {
                lane.request_record(user.seq);
            }
        }
        if block.is_registered() {
            let completion = |user: &Ticket| Some(core.lane(user.lane)?.completion(user.seq));
            let users = users.iter().filter_map(completion).collect();
            let leaving = Leaving { block, users, told: None };
            return self.submit(core.reactor(), Job::Unregister(leaving));
        }
        let ledger = &mut self.state.lock().ledger;
        match users.is_empty() {
            true => ledger.is_idle(block),
            false => ledger.is_retiring(Retiring { block, users }),
        }
    }

    /// Has memory of the program's page-locked (`cuMemHostRegister`).
    pub(crate) fn register(
        self: &Arc<Self>,
        core: &DeviceCore,
        memory: VecMemory,
    ) -> Answer<Registered> {
        let (told, answer) = answer();
        self.submit(core.reactor(), Job::Register { memory, told });
        answer
    }

    /// Has registered memory that nothing touches made its owner's again (`cuMemHostUnregister`).
    pub(crate) fn unregister(
        self: &Arc<Self>,
        core: &DeviceCore,
        block: PinnedBlock,
    ) -> Answer<Unregistered> {
        let (told, answer) = answer();
        let leaving = Leaving { block, users: SmallVec::new(), told: Some(told) };
        self.submit(core.reactor(), Job::Unregister(leaving));
        answer
    }

    /// Moves what the device is done with to the idle blocks. Looks at each lane once at most.
    fn sweep(&self, core: &DeviceCore) {
        // Taken out: a look wakes tasks, and they may come here.
        let candidates = self.state.lock().ledger.look_at_retiring();
        let mut oldest = SmallVec::<[Ticket; 4]>::new();
        for user in candidates.iter().flat_map(|r| &r.users) {
            match oldest.iter_mut().find(|known| known.lane == user.lane) {
                Some(known) => known.seq = known.seq.min(user.seq),
                None => oldest.push(*user),
            }
        }
        oldest.retain(|user| !core.is_known_finished(*user));
        for user in &oldest {
            if let Some(lane) = core.lane(user.lane) {
                lane.request_record(user.seq);
                lane.probe(user.seq);
            }
        }
        let is_done = |r: &Retiring| r.users.iter().all(|user| core.is_known_finished(*user));
        let (done, busy): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_done);
        self.state.lock().ledger.looked_at(done, busy);
    }

    /// Everything that no buffer and no thread has, for closing the device; users are finished by then.
    pub(super) fn drain(&self) -> Vec<PinnedBlock> {
        let mut state = self.state.lock();
        let mut blocks = state.ledger.drain();
        blocks.extend(state.jobs.drain());
        blocks
    }
}
