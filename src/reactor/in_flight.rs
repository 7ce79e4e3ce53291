//! What the operations in flight are called, for the report of a device that was lost.
//!
//! Who enqueues writes a name down at the cost of a few stores; who reports reads without a lock,
//! since a failure can be met under any of them.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::OnceLock;

use crate::sync::MODELLED;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*, fence};

/// What an operation is called in messages, and what it is for the device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    name: &'static str,
    runs: Runs,
}

/// What an operation has the device run, and so how it can fail there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Runs {
    /// Code of the program's.
    Kernel,
    /// Something of the driver's that may be a kernel: fills, copies within the device.
    OnDevice,
    /// A copy between host and device, by an engine of its own: no kernel's error is of its making.
    CopyEngine,
    /// No work: allocations, frees, records, waits.
    Nothing,
}

impl Operation {
    /// The launch of a kernel.
    pub(crate) const fn kernel(name: &'static str) -> Self {
        Operation { name, runs: Runs::Kernel }
    }

    /// A fill, or a copy within the device.
    pub(crate) const fn on_device(name: &'static str) -> Self {
        Operation { name, runs: Runs::OnDevice }
    }

    /// A copy between host and device.
    pub(crate) const fn transfer(name: &'static str) -> Self {
        Operation { name, runs: Runs::CopyEngine }
    }

    /// What is no work of the device's.
    pub(crate) const fn control(name: &'static str) -> Self {
        Operation { name, runs: Runs::Nothing }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn runs(&self) -> Runs {
        self.runs
    }
}

/// How far a lane is, and what is on it: what the report of a loss needs, shared with who makes it. A
/// lane that goes leaves it behind, since its work still runs.
#[derive(Debug)]
pub(super) struct Progress {
    /// Every ticket up to here is known to be finished. Never above `recorded` of the lane, but while that is
    /// being recorded.
    pub(super) done: AtomicU64,
    /// Every ticket up to here came before something that was seen to finish, maybe on another lane.
    /// Nobody is woken for it.
    pub(super) implied: AtomicU64,
    /// What the operations are called. Written under `submit` of the lane only.
    pub(super) names: Names,
}

impl Progress {
    pub(super) fn new() -> Self {
        Progress { done: AtomicU64::new(0), implied: AtomicU64::new(0), names: Names::new() }
    }

    /// Whether ticket `seq` is known to be finished, by a look at its lane or at what came after it.
    pub(super) fn is_known_finished(&self, seq: u64) -> bool {
        self.done.load(Acquire) >= seq || self.implied.load(Acquire) >= seq
    }

    /// Every ticket up to here is known to be finished.
    pub(super) fn known(&self) -> u64 {
        self.done.load(Acquire).max(self.implied.load(Acquire))
    }

    /// Something that comes after ticket `seq` was seen to finish.
    pub(super) fn finished_by_implication(&self, seq: u64) {
        if !self.is_known_finished(seq) {
            self.implied.fetch_max(seq, AcqRel);
        }
    }

    /// The operations not known to be finished, oldest first. Takes no lock; what is enqueued
    /// meanwhile may be in it or not.
    pub(super) fn in_flight(&self) -> Vec<Named> {
        self.names.after(self.known())
    }
}

/// The names of a lane's last operations that are work of the device's.
#[derive(Debug)]
pub(super) struct Names {
    /// Made with the first name: most streams of a device are never used.
    slots: OnceLock<Box<[Slot]>>,
    /// Operations that were enqueued. The next one's name is in the slot of that number.
    enqueued: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    /// The operation's ticket; 0: none, or it is being written.
    seq: AtomicU64,
    /// Null, or from a `&'static Operation`.
    operation: AtomicPtr<Operation>,
}

/// An operation by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) operation: &'static Operation,
    /// Its place among the operations of its lane that are work of the device's, from 1.
    pub(super) number: u64,
}

impl Names {
    /// More than a stream takes: the oldest in flight are those that are likely to have failed.
    const KEPT: u64 = if MODELLED { 2 } else { 1024 };

    pub(super) fn new() -> Self {
        Names { slots: OnceLock::new(), enqueued: AtomicU64::new(0) }
    }

    /// The next operation, of ticket `seq`, is this one. One writer at a time.
    pub(super) fn set(&self, seq: u64, operation: &'static Operation) {
        let slots = || (0..Self::KEPT).map(|_| Slot::default()).collect();
        let slot = &self.slots.get_or_init(slots)[Self::place(self.enqueued.load(Relaxed))];
        slot.seq.store(0, Relaxed);
        // A reader that sees the new operation sees that the slot is being written.
        fence(Release);
        slot.operation.store(ptr::from_ref(operation).cast_mut(), Relaxed);
        slot.seq.store(seq, Release);
    }

    /// The next operation was refused.
    pub(super) fn withdraw(&self) {
        if let Some(slot) = self.slot(self.enqueued.load(Relaxed)) {
            slot.seq.store(0, Relaxed);
        }
    }

    /// The next operation was enqueued.
    pub(super) fn keep(&self) {
        self.enqueued.store(self.enqueued.load(Relaxed) + 1, Release);
    }

    /// The operations after ticket `done`, oldest first, the one being enqueued included.
    pub(super) fn after(&self, done: u64) -> Vec<Named> {
        let next = self.enqueued.load(Acquire);
        let oldest = next.saturating_sub(Self::KEPT - 1);
        (oldest..=next)
            .filter_map(|at| Some((at, self.slot(at)?.read()?)))
            .filter(|(_, (seq, _))| *seq > done)
            .map(|(at, (_, operation))| Named { operation, number: at + 1 })
            .collect()
    }

    /// `None` where there was no name yet.
    fn slot(&self, at: u64) -> Option<&Slot> {
        self.slots.get().map(|slots| &slots[Self::place(at)])
    }

    fn place(at: u64) -> usize {
        (at % Self::KEPT) as usize
    }
}

impl Slot {
    /// Its ticket and operation; `None` where there is none, or it is being written.
    fn read(&self) -> Option<(u64, &'static Operation)> {
        let seq = self.seq.load(Acquire);
        // SAFETY: not null, a slot holds what `set` put there: a `&'static Operation`.
        let operation = unsafe { self.operation.load(Relaxed).as_ref() };
        fence(Acquire);
        let same = seq != 0 && self.seq.load(Relaxed) == seq;
        operation.filter(|_| same).map(|operation| (seq, operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILL: Operation = Operation::on_device("fill");
    static WORK: Operation = Operation::kernel("work");

    fn after(names: &Names, done: u64) -> Vec<(&'static str, u64)> {
        names.after(done).iter().map(|named| (named.operation.name(), named.number)).collect()
    }

    #[test]
    fn what_is_not_done_is_listed_oldest_first() {
        let names = Names::new();
        assert_eq!(after(&names, 0), []);
        for (seq, operation) in [(1, &FILL), (4, &WORK), (5, &FILL)] {
            names.set(seq, operation);
            names.keep();
        }
        assert_eq!(after(&names, 0), [("fill", 1), ("work", 2), ("fill", 3)]);
        assert_eq!(after(&names, 3), [("work", 2), ("fill", 3)]);
        assert_eq!(after(&names, 5), []);
    }

    #[test]
    fn what_is_being_enqueued_is_listed_until_it_is_refused() {
        let names = Names::new();
        names.set(1, &FILL);
        names.keep();
        names.set(2, &WORK);
        assert_eq!(after(&names, 0), [("fill", 1), ("work", 2)]);
        names.withdraw();
        assert_eq!(after(&names, 0), [("fill", 1)]);
        names.set(9, &FILL);
        assert_eq!(after(&names, 1), [("fill", 2)], "a refused one has no place");
    }

    #[test]
    fn the_oldest_of_as_many_as_a_stream_takes_is_known() {
        let names = Names::new();
        for seq in 1..=5_000 {
            names.set(seq, if seq == 4_001 { &WORK } else { &FILL });
            names.keep();
        }
        let listed = after(&names, 4_000);
        assert_eq!((listed.len(), listed[0]), (1_000, ("work", 4_001)));
    }
}
