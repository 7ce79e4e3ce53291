//! What is kept of memory that nothing writes any more, in place of a record of its readers.

use super::hazard::{Access, Hazards, Mode};
use super::region::Region;
use crate::device::MOST_LANES;
use crate::reactor::{LaneId, Ticket};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

const WORDS: usize = MOST_LANES.div_ceil(64);

/// Of one allocation. The record that it has beside this holds what was noted before it was frozen,
/// and nothing is added to that but reads that are open for a while.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// All of it is written, by what is known to be finished: a read has nothing to check.
    settled: AtomicBool,
    /// A bit for each lane of the device that a read was ever enqueued on. Set under the submit lock
    /// of the lane, once the read is there, and never cleared.
    readers: [AtomicU64; WORDS],
}

impl Frozen {
    pub(super) fn new() -> Self {
        Frozen {
            settled: AtomicBool::new(false),
            readers: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Whether a read has nothing to wait for, and need not look at the record.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Acquire)
    }

    /// Looks whether it is settled: no writer that `record` names is unfinished, and nothing in
    /// `bytes` bytes is undefined.
    pub(crate) fn settle(
        &self,
        record: &Hazards,
        bytes: usize,
        is_finished: impl Fn(Ticket) -> bool,
    ) {
        let region = Region::of_bytes(0..bytes);
        let mut settled = record.undefined_in(&region).is_none() && !record.is_being_written();
        let read = Access { region, mode: Mode::Read };
        record.conflicts(&read, |writer| settled = settled && is_finished(writer));
        if settled {
            self.settled.store(true, Release);
        }
    }

    /// Notes that a read was enqueued on a lane.
    pub(crate) fn read_by(&self, lane: LaneId) {
        let (word, bit) = (lane.index() / 64, 1 << (lane.index() % 64));
        let Some(word) = self.readers.get(word) else { return };
        // Looked at first: a line that many threads read stays in all their caches.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The indices of the lanes that reads were enqueued on.
    pub(super) fn readers(&self) -> impl Iterator<Item = u16> + use<'_> {
        let words = self.readers.iter().map(|word| word.load(Relaxed));
        words.enumerate().flat_map(|(index, word)| {
            let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
            set.map(move |bit| (index * 64 + bit) as u16)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Notes;

    #[test]
    fn every_lane_that_read_is_remembered() {
        let frozen = Frozen::new();
        for lane in [3, 63, 64, 1023, 3] {
            frozen.read_by(LaneId::new(7, lane));
        }
        assert_eq!(frozen.readers().collect::<Vec<_>>(), [3, 63, 64, 1023]);
    }

    #[test]
    fn it_is_settled_once_all_is_written_and_every_writer_is_finished() {
        let [first, second] = [1, 2].map(|seq| Ticket { lane: LaneId::new(0, 0), seq });
        let frozen = Frozen::new();
        let mut record = Hazards::new(8, Some(first));
        let settle = |record: &Hazards, done: u64| {
            frozen.settle(record, 8, |ticket| ticket.seq <= done);
            frozen.is_settled()
        };
        assert!(!settle(&record, 2), "nothing is written");
        let write = Access { region: Region::of_bytes(0..8), mode: Mode::Overwrite };
        record.note(&write, second, |_| false, &mut Notes::default());
        assert!(!settle(&record, 1) && settle(&record, 2));
    }
}
