//! Which operations of a device's other lanes come before something. Pure.
//!
//! A lane is in order, so of each lane the last ticket tells of all before it.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::Ticket;
use super::lane::LaneId;

/// Of some lanes of one device, the last ticket that comes before.
///
/// It has entries for lanes in use, whatever number of lanes there is: what is known to be finished
/// comes before everything and needs none. With few it is in one piece, so that a copy of it costs
/// little: one is made at every record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Ascending, one a lane.
    last: SmallVec<[Entry; 16]>,
}

/// A ticket in one word: the lane's number above, so that of one lane the later one is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u64);

impl Entry {
    /// A lane would have to enqueue a million operations a second for nine years.
    const SEQ_BITS: u32 = u64::BITS - LaneId::INDEX_BITS;

    fn new(ticket: Ticket) -> Self {
        Entry((ticket.lane.index() as u64) << Self::SEQ_BITS | ticket.seq)
    }

    fn lane(self) -> usize {
        (self.0 >> Self::SEQ_BITS) as usize
    }

    fn ticket(self, device: u32) -> Ticket {
        let lane = LaneId::new(device, self.lane() as u16);
        Ticket { lane, seq: self.0 & ((1 << Self::SEQ_BITS) - 1) }
    }
}

impl Clock {
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }

    /// The last ticket of each lane, in the order of lanes; of `device`, whose clock it is.
    pub(crate) fn iter(&self, device: u32) -> impl Iterator<Item = Ticket> {
        self.last.iter().map(move |entry| entry.ticket(device))
    }

    /// Whether `ticket`, of the clock's device, comes before.
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        let wanted = Entry::new(ticket);
        self.find(wanted.lane()).is_ok_and(|at| self.last[at] >= wanted)
    }

    /// `ticket` comes before, too.
    pub(crate) fn add(&mut self, ticket: Ticket) {
        let entry = Entry::new(ticket);
        match self.find(entry.lane()) {
            Ok(at) => self.last[at] = self.last[at].max(entry),
            Err(at) => self.last.insert(at, entry),
        }
    }

    /// What comes before `other`, a clock of the same device, comes before, too.
    pub(crate) fn join(&mut self, other: &Clock) {
        let mut at = 0;
        for &entry in &other.last {
            loop {
                match self.last.get_mut(at) {
                    None => self.last.push(entry),
                    Some(own) => match own.lane().cmp(&entry.lane()) {
                        Ordering::Less => {
                            at += 1;
                            continue;
                        }
                        Ordering::Equal => *own = entry.max(*own),
                        Ordering::Greater => self.last.insert(at, entry),
                    },
                }
                at += 1;
                break;
            }
        }
    }

    /// Says nothing of `lane` any more.
    pub(crate) fn remove(&mut self, lane: LaneId) {
        if let Ok(at) = self.find(lane.index()) {
            self.last.remove(at);
        }
    }

    /// Drops what needs no saying.
    pub(crate) fn retain(&mut self, device: u32, mut keep: impl FnMut(Ticket) -> bool) {
        self.last.retain(|entry| keep(entry.ticket(device)));
    }

    /// Becomes what `other` is.
    pub(crate) fn set(&mut self, other: &Clock) {
        self.last.clear();
        self.last.extend_from_slice(&other.last);
    }

    fn find(&self, lane: usize) -> Result<usize, usize> {
        self.last.binary_search_by_key(&lane, |entry| entry.lane())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(lane: u16, seq: u64) -> Ticket {
        Ticket { lane: LaneId::new(3, lane), seq }
    }

    fn clock(tickets: &[Ticket]) -> Clock {
        let mut clock = Clock::default();
        tickets.iter().for_each(|ticket| clock.add(*ticket));
        clock
    }

    #[test]
    fn of_each_lane_the_last_ticket_stands_for_those_before_it() {
        let clock = clock(&[t(3, 5), t(1, 2), t(3, 4)]);
        assert!(clock.covers(t(3, 5)) && clock.covers(t(3, 1)) && clock.covers(t(1, 2)));
        assert!(!clock.covers(t(3, 6)) && !clock.covers(t(1, 3)) && !clock.covers(t(2, 1)));
        assert_eq!(clock.iter(3).collect::<Vec<_>>(), [t(1, 2), t(3, 5)]);
    }

    #[test]
    fn what_comes_before_either_comes_before_both_joined() {
        let mut random = crate::random::SplitMix64::new(1);
        for _ in 0..2_000 {
            let mut tickets = || {
                let count = random.below(20);
                (0..count).map(|_| t(random.below(24) as u16, random.below(9))).collect::<Vec<_>>()
            };
            let (a, b) = (tickets(), tickets());
            let mut joined = clock(&a);
            joined.join(&clock(&b));
            assert_eq!(joined, clock(&[a, b].concat()));
        }
    }

    #[test]
    fn what_is_dropped_is_said_no_more() {
        let mut clock = clock(&[t(1, 7), t(2, 1), t(3, 5)]);
        clock.retain(3, |ticket| ticket.lane != t(2, 0).lane);
        assert!(!clock.covers(t(2, 1)) && clock.covers(t(1, 7)));
        clock.remove(t(3, 0).lane);
        assert_eq!(clock.iter(3).collect::<Vec<_>>(), [t(1, 7)]);
    }
}
