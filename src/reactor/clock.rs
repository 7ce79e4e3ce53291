//! Which operations of other lanes come before something. Pure.
//!
//! A lane is in order, so of each lane the last ticket tells of all before it.

use smallvec::SmallVec;

use super::Ticket;
use super::lane::LaneId;

/// Of some lanes, the last ticket that comes before.
///
/// As long as there are entries, whatever number of lanes a device has: what is known to be
/// finished comes before everything and needs none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Ascending by lane, one of each.
    last: SmallVec<[Ticket; 12]>,
}

impl Clock {
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }

    /// The last ticket of each lane, in the order of lanes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Ticket> {
        self.last.iter().copied()
    }

    /// Whether `ticket` comes before.
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        self.find(ticket.lane).is_ok_and(|at| self.last[at].seq >= ticket.seq)
    }

    /// `ticket` comes before, too.
    pub(crate) fn add(&mut self, ticket: Ticket) {
        match self.find(ticket.lane) {
            Ok(at) => self.last[at].seq = self.last[at].seq.max(ticket.seq),
            Err(at) => self.last.insert(at, ticket),
        }
    }

    /// What comes before `other` comes before, too.
    pub(crate) fn join(&mut self, other: &Clock) {
        let mut at = 0;
        for ticket in &other.last {
            while self.last.get(at).is_some_and(|own| own.lane < ticket.lane) {
                at += 1;
            }
            match self.last.get_mut(at) {
                Some(own) if own.lane == ticket.lane => own.seq = own.seq.max(ticket.seq),
                _ => self.last.insert(at, *ticket),
            }
        }
    }

    /// Says nothing of `lane` any more.
    pub(crate) fn remove(&mut self, lane: LaneId) {
        if let Ok(at) = self.find(lane) {
            self.last.remove(at);
        }
    }

    /// Drops what needs no saying.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Ticket) -> bool) {
        self.last.retain(|ticket| keep(*ticket));
    }

    fn find(&self, lane: LaneId) -> Result<usize, usize> {
        self.last.binary_search_by_key(&lane, |ticket| ticket.lane)
    }
}

impl FromIterator<Ticket> for Clock {
    fn from_iter<I: IntoIterator<Item = Ticket>>(tickets: I) -> Self {
        let mut clock = Clock::default();
        tickets.into_iter().for_each(|ticket| clock.add(ticket));
        clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(lane: u64, seq: u64) -> Ticket {
        Ticket { lane: LaneId(lane), seq }
    }

    #[test]
    fn of_each_lane_the_last_ticket_stands_for_those_before_it() {
        let clock = Clock::from_iter([t(3, 5), t(1, 2), t(3, 4)]);
        assert!(clock.covers(t(3, 5)) && clock.covers(t(3, 1)) && clock.covers(t(1, 2)));
        assert!(!clock.covers(t(3, 6)) && !clock.covers(t(1, 3)) && !clock.covers(t(2, 1)));
        assert_eq!(clock.len(), 2);
    }

    #[test]
    fn what_comes_before_either_comes_before_both_joined() {
        let mut clock = Clock::from_iter([t(1, 2), t(3, 5)]);
        clock.join(&Clock::from_iter([t(1, 7), t(2, 1), t(3, 4)]));
        assert_eq!(clock, Clock::from_iter([t(1, 7), t(2, 1), t(3, 5)]));
        clock.retain(|ticket| ticket.lane != LaneId(2));
        assert!(!clock.covers(t(2, 1)) && clock.covers(t(1, 7)));
    }
}
