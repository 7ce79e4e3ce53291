//! Streams as queues of items, and the recordings that order them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};

use super::work::Work;
use crate::driver::DevicePtr;

/// One recording of an event: waits and queries hold on to the one they met.
#[derive(Debug)]
pub(super) struct Recording {
    /// Above the number of whatever its stream was given before it, below what came after.
    pub(super) id: u64,
    pub(super) stream: u64,
    /// The last operation its stream was given before it: id and name.
    pub(super) after: Option<(u64, &'static str)>,
    /// Virtual time at which its stream came to it.
    pub(super) reached: OnceLock<u64>,
    /// Queries that are still to say that it was not reached; not known before the first one that
    /// finds it reached. Touched under the machine's lock only.
    late: AtomicU64,
}

const NOT_ASKED: u64 = u64::MAX;

impl Recording {
    pub(super) fn new(id: u64, stream: u64, after: Option<(u64, &'static str)>) -> Self {
        let (reached, late) = (OnceLock::new(), AtomicU64::new(NOT_ASKED));
        Recording { id, stream, after, reached, late }
    }

    pub(super) fn reached(&self) -> Option<u64> {
        self.reached.get().copied()
    }

    /// Whether a query that finds it reached is to say that it was not. `late` is asked once: how
    /// many queries are.
    pub(super) fn is_late(&self, late: impl FnOnce() -> u64) -> bool {
        let left = match self.late.load(Relaxed) {
            NOT_ASKED => late(),
            left => left,
        };
        self.late.store(left.saturating_sub(1), Relaxed);
        left > 0
    }
}

/// What a stream's queue is made of.
pub(super) enum Item {
    Work(Work),
    Record(Arc<Recording>),
    Wait(Arc<Recording>),
    Alloc { ptr: DevicePtr, allocation: u64 },
    Free(DevicePtr),
}

pub(super) struct Queued {
    /// Place among all items of the machine; the id of an operation.
    pub(super) seq: u64,
    /// Host's virtual time at the call.
    pub(super) issued: u64,
    pub(super) item: Item,
}

/// Whose a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StreamOf {
    /// Of who made it.
    Maker,
    /// The device's legacy default stream.
    Legacy,
    /// A thread's default stream.
    Thread(ThreadId),
}

pub(super) struct Stream {
    pub(super) device: usize,
    pub(super) of: StreamOf,
    /// Urgency of its kernels: 0 is the least.
    pub(super) level: usize,
    /// By `seq`, ascending.
    pub(super) queue: VecDeque<Queued>,
    /// Launches, copies and fills not finished, the one being run included.
    pub(super) unfinished: usize,
    /// An operation of it is being run, or never ends.
    pub(super) running: bool,
    /// The operation that was begun and never ends.
    pub(super) endless: Option<(u64, Work)>,
    /// Goes when its queue is empty; its handle is gone.
    pub(super) destroyed: bool,
    /// Virtual end of what it came past: the latest of its operations and the recordings it
    /// waited for.
    pub(super) end: u64,
    /// The last operation it was given: id and name.
    pub(super) last: Option<(u64, &'static str)>,
    /// Under the lazy schedule: what was enqueued before this number is needed.
    pub(super) needed: u64,
}

impl Stream {
    pub(super) fn new(device: usize, of: StreamOf, level: usize) -> Self {
        Stream {
            device,
            of,
            level,
            queue: VecDeque::new(),
            unfinished: 0,
            running: false,
            endless: None,
            destroyed: false,
            end: 0,
            last: None,
            needed: 0,
        }
    }

    /// Whether this thread may make calls with it.
    pub(super) fn is_callers(&self) -> bool {
        match self.of {
            StreamOf::Maker | StreamOf::Legacy => true,
            StreamOf::Thread(thread) => thread == thread::current().id(),
        }
    }

    /// The first operation that it has not finished and that is not being run.
    pub(super) fn first_work(&self) -> Option<u64> {
        let works = self.queue.iter().filter(|queued| matches!(queued.item, Item::Work(_)));
        self.endless.as_ref().map(|&(seq, _)| seq).or_else(|| works.map(|queued| queued.seq).next())
    }

    /// The first of all that it has not come past.
    pub(super) fn first(&self) -> Option<u64> {
        let queued = || self.queue.front().map(|queued| queued.seq);
        self.endless.as_ref().map(|&(seq, _)| seq).or_else(queued)
    }
}

pub(super) struct Event {
    pub(super) device: usize,
    pub(super) timed: bool,
    pub(super) latest: Option<Arc<Recording>>,
}
