//! What ordinary memory goes through: a bounded pool of pinned chunks, and the threads that fill and
//! drain them.
//!
//! A transfer comes here for *turns*: one of the threads has it do a piece of work, and it says whether
//! it has more. Transfers are served one after the other, a piece each. The threads are started when
//! there is work for one more, sleep while there is none, and end with the device. No driver call is made
//! and no transfer is called under the lock.

use std::collections::VecDeque;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::thread;

use smallvec::SmallVec;

use super::{DeviceCore, PinnedBlock};
use crate::driver::{Fact, stay};
use crate::error::{Error, Result};
use crate::foreign::contained;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How a device stages ordinary memory: what [`DeviceBuilder::staging`](crate::DeviceBuilder::staging)
/// takes.
///
/// A transfer of more than 256 KiB goes through pinned memory in chunks, which threads of the device
/// fill and drain while others are on the wire.
#[derive(Clone, Debug)]
pub struct StagingOptions {
    pub(crate) threads: usize,
    pub(crate) chunk: usize,
    pub(crate) limit: usize,
}

impl Default for StagingOptions {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        StagingOptions { threads: (cores * 3 / 4).clamp(1, 12), chunk: 2 << 20, limit: 64 << 20 }
    }
}

impl StagingOptions {
    /// The defaults: as many threads as three quarters of the cores, 1 to 12; chunks of 2 MiB, 64 MiB of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many threads copy between ordinary and pinned memory, at most: 1 to 64. They are started when
    /// there is work for them.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Bytes of a chunk: at least 1. Smaller ones are sooner on the wire, and each costs a driver call.
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = bytes;
        self
    }

    /// Bytes of pinned memory that the chunks of all transfers take together: at least one chunk.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let StagingOptions { threads, chunk, limit } = *self;
        let refused = |given: usize, allowed| {
            Err(Error::BadSetting { name: "staging", given: given.to_string(), allowed })
        };
        match () {
            _ if !(1..=64).contains(&threads) => refused(threads, "1 to 64 threads"),
            _ if chunk == 0 => refused(chunk, "chunks of at least 1 byte"),
            _ if limit < chunk => Err(Error::StagingTooSmall { limit, chunk }),
            _ => Ok(()),
        }
    }
}

/// A transfer, as the threads know it.
pub(crate) trait Staged: Send + Sync {
    /// Does a piece of work, and lines up again if there is more. A chunk that it starved for comes
    /// with the turn.
    fn turn(self: Arc<Self>, chunk: Option<PinnedBlock>);

    /// There is no thread, and none can be started: it ends with that error.
    fn without_a_thread(self: Arc<Self>, error: Arc<io::Error>);

    fn in_line(&self) -> &InLine;
}

/// Where a transfer stands. Changes under the lock of the line.
#[derive(Debug, Default)]
pub(crate) struct InLine {
    ready: AtomicBool,
    starving: AtomicBool,
}

struct Turn {
    transfer: Arc<dyn Staged>,
    chunk: Option<PinnedBlock>,
}

/// The chunks and the threads of one device.
pub(crate) struct Staging {
    options: StagingOptions,
    line: Arc<Line>,
}

/// What the threads share. They outlive the device by the turn that they are in.
struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Transfers that are under way.
    transfers: usize,
    ready: VecDeque<Turn>,
    /// Transfers that go on with the next chunk that is free.
    starving: VecDeque<Arc<dyn Staged>>,
    /// Chunks that nobody uses: none while somebody starves, nor without transfers.
    free: Vec<PinnedBlock>,
    /// Chunks there are.
    made: usize,
    /// How many there can be: less than the limit allows where pinned memory ran out.
    most: usize,
    threads: usize,
    /// Threads that sleep.
    idle: usize,
    closed: bool,
}

impl Staging {
    pub(super) fn new(options: StagingOptions) -> Self {
        let state = State {
            transfers: 0,
            ready: VecDeque::new(),
            starving: VecDeque::new(),
            free: Vec::new(),
            made: 0,
            most: options.limit / options.chunk,
            threads: 0,
            idle: 0,
            closed: false,
        };
        let line = Line { state: Mutex::new(state), changed: Condvar::default() };
        Staging { options, line: Arc::new(line) }
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk(&self) -> usize {
        self.options.chunk
    }

    /// A transfer begins: it ends by [`Staging::end`].
    pub(crate) fn begin(&self) {
        self.line.state.lock().transfers += 1;
    }

    /// A transfer has ended, and has no chunk. After the last one the chunks go back to where pinned
    /// memory comes from.
    pub(crate) fn end(&self, core: &DeviceCore) {
        let mut state = self.line.state.lock();
        state.transfers -= 1;
        if state.transfers > 0 {
            return;
        }
        let free = std::mem::take(&mut state.free);
        state.made -= free.len();
        state.most = self.options.limit / self.options.chunk;
        drop(state);
        free.into_iter().for_each(|chunk| give_back(core, chunk));
    }

    /// Has a transfer get a turn, where it does not stand in line already. Where there is no thread, and none can be
    /// started, it ends.
    pub(crate) fn line_up(&self, core: &DeviceCore, transfer: Arc<dyn Staged>) {
        let mut state = self.line.state.lock();
        if transfer.in_line().ready.swap(true, Relaxed) {
            return;
        }
        state.ready.push_back(Turn { transfer, chunk: None });
        self.wake(core, state);
    }

    /// A chunk that is free, with whatever is in it.
    pub(crate) fn take_free(&self) -> Option<PinnedBlock> {
        self.line.state.lock().free.pop()
    }

    /// The same, or a new one. `None`: there is none, and it gets the next one
    /// that is free with a turn.
    ///
    /// # Errors
    ///
    /// There is no chunk at all and none can be made.
    pub(crate) fn take(
        &self,
        core: &DeviceCore,
        transfer: &Arc<dyn Staged>,
    ) -> Result<Option<PinnedBlock>> {
        let mut state = self.line.state.lock();
        if let Some(chunk) = state.free.pop() {
            return Ok(Some(chunk));
        }
        if state.made >= state.most {
            state.starve(transfer);
            return Ok(None);
        }
        state.made += 1;
        drop(state);
        let refused = match core.pinned().take(core, self.options.chunk) {
            Ok(chunk) => {
                let (ptr, bytes, made_at) = (chunk.ptr(), self.options.chunk, Location::caller());
                core.driver().tell(Fact::HostMemory { ptr, bytes, made_at });
                return Ok(Some(chunk));
            }
            Err(refused) => refused,
        };
        let mut state = self.line.state.lock();
        state.made -= 1;
        if state.made == 0 {
            // Who starves counted on what could not be made.
            state.starving_try_again();
            self.wake(core, state);
            return Err(refused);
        }
        state.most = state.made;
        let free = state.free.pop();
        if free.is_none() {
            state.starve(transfer);
        }
        Ok(free)
    }

    /// A chunk that nothing touches any more: for whoever starves first, or whoever asks next.
    pub(crate) fn release(&self, core: &DeviceCore, chunk: PinnedBlock) {
        let mut state = self.line.state.lock();
        if let Some(transfer) = state.starving.pop_front() {
            transfer.in_line().starving.store(false, Relaxed);
            state.ready.push_front(Turn { transfer, chunk: Some(chunk) });
            // There is a thread: there was one for this chunk.
            self.wake(core, state);
        } else if state.transfers > 0 {
            state.free.push(chunk);
        } else {
            state.made -= 1;
            drop(state);
            give_back(core, chunk);
        }
    }

    /// A chunk that a lost device may still touch is not used again. Who starves for one tries to make
    /// one, and hears of the loss.
    pub(crate) fn forget_chunk(&self, core: &DeviceCore) {
        let mut state = self.line.state.lock();
        state.made -= 1;
        state.starving_try_again();
        // There is a thread: there was one for this chunk.
        self.wake(core, state);
    }

    /// Has a thread see to what is ready.
    fn wake(&self, core: &DeviceCore, mut state: MutexGuard<'_, State>) {
        if state.ready.len() <= state.idle || state.threads == self.options.threads {
            drop(state);
            self.line.changed.notify_one();
            return;
        }
        state.threads += 1;
        let index = state.threads;
        drop(state);
        let line = self.line.clone();
        let name = format!("headwater-{}-stage-{index}", core.number());
        match thread::Builder::new().name(name).spawn(move || line.serve()) {
            Ok(_) => {}
            Err(error) => {
                let mut state = self.line.state.lock();
                state.threads -= 1;
                if state.threads > 0 {
                    return;
                }
                // Also those who were told that there is one, which then was not started either.
                let error = Arc::new(error);
                let stranded = std::mem::take(&mut state.ready);
                drop(state);
                for Turn { transfer, chunk } in stranded {
                    transfer.in_line().ready.store(false, Relaxed);
                    transfer.without_a_thread(error.clone());
                    if let Some(chunk) = chunk {
                        self.release(core, chunk);
                    }
                }
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        state.closed = true;
        let threads = state.threads;
        drop(state);
        (0..threads).for_each(|_| self.line.changed.notify_one());
    }
}

impl State {
    /// Has each that starves get a turn, without a chunk.
    fn starving_try_again(&mut self) {
        while let Some(transfer) = self.starving.pop_front() {
            transfer.in_line().starving.store(false, Relaxed);
            if !transfer.in_line().ready.swap(true, Relaxed) {
                self.ready.push_back(Turn { transfer, chunk: None });
            }
        }
    }

    fn starve(&mut self, transfer: &Arc<dyn Staged>) {
        if !transfer.in_line().starving.swap(true, Relaxed) {
            self.starving.push_back(transfer.clone());
        }
    }
}

impl Line {
    /// What each of the threads does.
    fn serve(&self) {
        while let Some(Turn { transfer, chunk }) = self.next() {
            let _stay = stay();
            contained(|| transfer.turn(chunk));
        }
    }

    /// Sleeps until there is a turn. `None` once the device is closed.
    fn next(&self) -> Option<Turn> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(turn) = state.ready.pop_front() {
                if turn.chunk.is_none() {
                    turn.transfer.in_line().ready.store(false, Relaxed);
                }
                return Some(turn);
            }
            state.idle += 1;
            state = self.changed.wait(state);
            state.idle -= 1;
        }
    }
}

/// A chunk that nothing touches, to where it came from.
fn give_back(core: &DeviceCore, chunk: PinnedBlock) {
    core.pinned().retire(core, chunk, SmallVec::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_mean_nothing_are_refused_with_their_numbers() {
        let check = |options: StagingOptions| options.check();
        assert!(check(StagingOptions::new()).is_ok());
        assert!(check(StagingOptions::new().chunk(4096).limit(4096)).is_ok());
        let small = check(StagingOptions::new().chunk(4097).limit(4096));
        assert!(matches!(small, Err(Error::StagingTooSmall { limit: 4096, chunk: 4097 })));
        for options in [StagingOptions::new().threads(0), StagingOptions::new().threads(65)] {
            assert!(matches!(check(options), Err(Error::BadSetting { name: "staging", .. })));
        }
        assert!(check(StagingOptions::new().chunk(0)).is_err());
    }
}
