//! Page-locked memory that the host has to itself from some point on.
//!
//! The library gives it out only when it saw all that conflicts finish, or finish what a stream
//! waited for. Where a test has such a wait lost, a copy can be left behind that it knows nothing
//! of. Here that copy is kept from running under the host's references.

use std::ptr::NonNull;

use smallvec::{SmallVec, smallvec};

use super::machine::Machine;
use super::queue::Item;
use super::state::State;
use super::violation::Violation;
use super::work::Work;
use crate::driver::Touched;
use crate::driver::rows::Rows;

/// Page-locked memory that an operation copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostSpan {
    /// One at least, in ascending order.
    rows: SmallVec<[Rows; 1]>,
    writes: bool,
}

impl HostSpan {
    pub(super) fn of(work: &Work) -> Option<Self> {
        let (rows, writes) = work.page_locked()?;
        Some(HostSpan { rows, writes })
    }

    fn conflicts(&self, other: &HostSpan) -> bool {
        let meets = |rows: &Rows| other.rows.iter().any(|other| rows.overlap(other));
        (self.writes || other.writes) && self.rows.iter().any(meets)
    }
}

impl State {
    /// The number of the operation that is being run, if it copies one of these bytes.
    pub(super) fn copying(&self, ptr: NonNull<u8>, bytes: usize) -> Option<u64> {
        let start = ptr.as_ptr().addr() as u64;
        let touched =
            HostSpan { rows: smallvec![Rows::one(start..start + bytes as u64)], writes: true };
        self.running_span.as_ref().filter(|span| span.conflicts(&touched)).and(self.running)
    }

    /// Copies that conflict with an access by the host are made no more, and reported. The number of
    /// the one that is being run, if it does.
    fn host_has(&mut self, host: &HostSpan) -> Option<u64> {
        let first = host.rows.first()?.extent().start;
        if !self.pinned.is_named(first as usize) {
            return None;
        }
        let mut left = Vec::new();
        for (&id, stream) in &mut self.streams {
            for queued in &mut stream.queue {
                let Item::Work(work) = &mut queued.item else {
                    continue;
                };
                if HostSpan::of(work).is_some_and(|span| span.conflicts(host)) {
                    *work = Work::Nothing;
                    left.push((queued.seq, id));
                }
            }
        }
        let span = self.running_span.as_ref().filter(|span| span.conflicts(host));
        let running = span.and(self.running);
        let stream = running.and_then(|seq| Some((seq, self.pending.get(&seq)?.stream)));
        left.extend(stream);
        left.sort_unstable();
        for (id, stream) in left {
            let Some(pending) = self.pending.get(&id) else {
                continue;
            };
            let (name, bytes) = (pending.facts.name, pending.facts.bytes);
            self.report(Violation::HostAccessInFlight { id, stream, name, bytes });
        }
        running
    }
}

impl Machine {
    /// The host reads or writes page-locked memory from here on: when this returns, no copy that
    /// conflicts touches it any more. Waits for such a copy that is being run, which waits for nothing.
    pub(super) fn host_has(&self, touched: &Touched) {
        let host =
            HostSpan { rows: SmallVec::from_elem(Rows::of(touched), 1), writes: touched.writes };
        let mut state = self.lock();
        // What runs while a twin asks is that twin, which is no copy.
        if let Some(copy) = state.host_has(&host) {
            state = self.wait_until(state, |state| state.running != Some(copy));
        }
        drop(state);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::driver::sim::SimOptions;
    use crate::driver::sim::bytes::Pinned;

    fn span(addresses: Range<usize>, writes: bool) -> HostSpan {
        let rows = Rows::one(addresses.start as u64..addresses.end as u64);
        HostSpan { rows: SmallVec::from_elem(rows, 1), writes }
    }

    #[test]
    fn spans_conflict_where_they_overlap_and_one_is_written() {
        assert!(span(0..4, true).conflicts(&span(3..5, false)));
        assert!(span(0..4, false).conflicts(&span(3..5, true)));
        assert!(!span(0..4, false).conflicts(&span(3..5, false)));
        assert!(!span(0..4, true).conflicts(&span(4..5, true)));
        assert!(!span(4..5, true).conflicts(&span(0..4, true)));
    }

    #[test]
    fn a_copy_that_is_being_run_is_waited_for() {
        let machine = Machine::new(1, &SimOptions::new());
        let block = Pinned::new(4).unwrap();
        let named = block.range(0, 4).unwrap();
        let start = named.addresses().start as u64;
        let mut state = machine.lock();
        state.pinned.insert(block);
        (state.running, state.running_span) = (Some(7), Some(span(named.addresses(), true)));
        drop(state);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                machine.host_has(&Touched::new(start, 4, false));
                assert!(over.load(SeqCst), "the copy still ran");
            });
            machine.host_has(&Touched::new(start + 4, 4, true)); // not what is copied
            machine.wait_for_others(1);
            let mut state = machine.lock();
            over.store(true, SeqCst);
            state.running = None;
            machine.changed();
        });
    }
}
