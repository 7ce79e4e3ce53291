//! Which operations of a device's other lanes come before something. Pure.
//!
//! A lane is in order, so of each lane the last ticket tells of all before it.

use smallvec::SmallVec;

use super::Ticket;
use super::lane::LaneId;

/// Lanes that have a place of their own: as many as a device opens by itself, but for one.
const PLACES: usize = 64;

/// The number of a ticket, exact up to 2^53. As a float: of two the greater is found in one instruction,
/// and of several pairs in the same, on every processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
struct Seq(f64);

impl Seq {
    const NONE: Seq = Seq(0.0);

    #[inline]
    fn of(ticket: Ticket) -> Self {
        Seq(ticket.seq.cast_signed() as f64)
    }

    fn get(self) -> u64 {
        self.0 as u64
    }

    #[inline]
    fn raise(&mut self, to: Seq) {
        self.0 = if self.0 < to.0 { to.0 } else { self.0 };
    }
}

/// Of some lanes of one device, the last ticket that comes before.
///
/// A lane's number is its place, up to 64; those beyond are in a list. What is known to be finished
/// comes before everything and needs no saying. Joining two, which is done at every wait, and
/// copying one, at every record, take a word for each lane between the first and the last that
/// they tell of: with few of them, no allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// By place; `NONE` where it tells nothing.
    last: SmallVec<[Seq; 16]>,
    /// The place of the first in `last`.
    first: u8,
    /// Ascending by lane.
    beyond: Vec<Ticket>,
}

impl Clock {
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty() && self.beyond.is_empty()
    }

    /// The last ticket of each lane, in the order of lanes; of `device`, whose clock it is.
    pub(crate) fn iter(&self, device: u32) -> impl Iterator<Item = Ticket> {
        let places = self.last.iter().zip(self.first..).filter(|(seq, _)| **seq > Seq::NONE);
        let ticket = move |(seq, place): (&Seq, u8)| {
            let lane = LaneId::new(device, place.into());
            Ticket { lane, seq: seq.get() }
        };
        places.map(ticket).chain(self.beyond.iter().copied())
    }

    /// Whether `ticket`, of the clock's device, comes before.
    #[inline]
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        let place = ticket.lane.index();
        if place < PLACES {
            // One before the first is far behind the last.
            let told = self.last.get(place.wrapping_sub(self.first.into()));
            return told.is_some_and(|seq| *seq >= Seq::of(ticket));
        }
        self.find(ticket.lane).is_ok_and(|at| self.beyond[at].seq >= ticket.seq)
    }

    /// `ticket` comes before, too.
    #[inline]
    pub(crate) fn add(&mut self, ticket: Ticket) {
        let place = ticket.lane.index();
        if place < PLACES {
            let [told, ..] = self.places(place, 1) else { return };
            return told.raise(Seq::of(ticket));
        }
        match self.find(ticket.lane) {
            Ok(at) => self.beyond[at].seq = self.beyond[at].seq.max(ticket.seq),
            Err(at) => self.beyond.insert(at, ticket),
        }
    }

    /// What comes before `other`, a clock of the same device, comes before, too.
    pub(crate) fn join(&mut self, other: &Clock) {
        if !other.last.is_empty() {
            let own = self.places(other.first.into(), other.last.len());
            own.iter_mut().zip(&other.last).for_each(|(own, seq)| own.raise(*seq));
        }
        other.beyond.iter().for_each(|ticket| self.add(*ticket));
    }

    /// Says nothing of `lane` any more.
    pub(crate) fn remove(&mut self, lane: LaneId) {
        let place = lane.index();
        if place < PLACES {
            if let Some(told) = self.last.get_mut(place.wrapping_sub(self.first.into())) {
                *told = Seq::NONE;
            }
        } else if let Ok(at) = self.find(lane) {
            self.beyond.remove(at);
        }
    }

    /// Drops what needs no saying.
    pub(crate) fn retain(&mut self, device: u32, mut keep: impl FnMut(Ticket) -> bool) {
        for (seq, place) in self.last.iter_mut().zip(self.first..) {
            let lane = LaneId::new(device, place.into());
            if *seq > Seq::NONE && !keep(Ticket { lane, seq: seq.get() }) {
                *seq = Seq::NONE;
            }
        }
        self.beyond.retain(|ticket| keep(*ticket));
        self.trim();
    }

    /// Whether it tells of lanes so far apart that it takes more than it does where they are close.
    pub(crate) fn is_wide(&self) -> bool {
        self.last.spilled() || !self.beyond.is_empty()
    }

    /// Drops the places before the first and behind the last that it tells of.
    fn trim(&mut self) {
        let is_told = |seq: &Seq| *seq > Seq::NONE;
        let end = self.last.iter().rposition(is_told).map_or(0, |last| last + 1);
        self.last.truncate(end);
        let lead = self.last.iter().position(is_told).unwrap_or(0);
        self.last.drain(..lead);
        self.first += lead as u8;
        self.last.shrink_to_fit();
    }

    /// Becomes what `other` is.
    pub(crate) fn set(&mut self, other: &Clock) {
        self.first = other.first;
        if self.last.len() == other.last.len() {
            self.last.copy_from_slice(&other.last);
        } else {
            self.last.clear();
            self.last.extend_from_slice(&other.last);
        }
        self.beyond.clone_from(&other.beyond);
    }

    /// What it tells of `count` places from `first` on, at least one, all below `PLACES`.
    #[inline]
    fn places(&mut self, first: usize, count: usize) -> &mut [Seq] {
        let at = first.wrapping_sub(self.first.into());
        if at >= self.last.len() || self.last.len() - at < count {
            self.widen(first, count);
        }
        let at = first - usize::from(self.first);
        &mut self.last[at..at + count]
    }

    #[cold]
    fn widen(&mut self, first: usize, count: usize) {
        if self.last.is_empty() {
            self.first = first as u8;
        }
        if let Some(more) = usize::from(self.first).checked_sub(first + 1) {
            self.last.insert_many(0, (0..=more).map(|_| Seq::NONE));
            self.first = first as u8;
        }
        let end = first + count - usize::from(self.first);
        if self.last.len() < end {
            self.last.resize(end, Seq::NONE);
        }
    }

    fn find(&self, lane: LaneId) -> Result<usize, usize> {
        self.beyond.binary_search_by_key(&lane, |ticket| ticket.lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    const DEVICE: u32 = 3;

    fn t(lane: u16, seq: u64) -> Ticket {
        Ticket { lane: LaneId::new(DEVICE, lane), seq }
    }

    fn clock(tickets: &[Ticket]) -> Clock {
        let mut clock = Clock::default();
        tickets.iter().for_each(|ticket| clock.add(*ticket));
        clock
    }

    fn told(clock: &Clock) -> Vec<Ticket> {
        clock.iter(DEVICE).collect()
    }

    #[test]
    fn of_each_lane_the_last_ticket_stands_for_those_before_it() {
        for (low, high) in [(1, 3), (63, 64), (64, 900)] {
            let clock = clock(&[t(high, 5), t(low, 2), t(high, 4)]);
            assert!(
                clock.covers(t(high, 5)) && clock.covers(t(high, 1)) && clock.covers(t(low, 2))
            );
            assert!(!clock.covers(t(high, 6)) && !clock.covers(t(low, 3)));
            assert!(!clock.covers(t(2, 1)) && !clock.covers(t(70, 1)));
            assert_eq!(told(&clock), [t(low, 2), t(high, 5)]);
        }
    }

    /// Clocks of up to 20 tickets of 80 lanes, of some of which they say nothing any more, and what they tell.
    fn any(random: &mut SplitMix64) -> (Clock, Vec<Ticket>) {
        let spread = 1 + random.below(80);
        let mut ticket = || t(random.below(spread) as u16, 1 + random.below(9));
        let mut tickets: Vec<_> = (0..20).map(|_| ticket()).collect();
        tickets.truncate(random.below(20) as usize);
        let mut made = clock(&tickets);
        let (dropped, removed) = (random.below(4), random.below(spread) as u16);
        if dropped > 0 {
            made.retain(DEVICE, |ticket| ticket.seq % 4 != dropped);
            // What is dropped is the last of its lane.
            let told = told(&made);
            tickets.retain(|ticket| told.iter().any(|last| last.lane == ticket.lane));
        }
        if random.below(2) == 0 {
            made.remove(t(removed, 0).lane);
            tickets.retain(|ticket| ticket.lane != t(removed, 0).lane);
        }
        (made, tickets)
    }

    #[test]
    fn what_comes_before_either_comes_before_both_joined() {
        let mut random = SplitMix64::new(1);
        let mut used = Clock::default();
        for _ in 0..2_000 {
            let ((a, of_a), (b, of_b)) = (any(&mut random), any(&mut random));
            let mut joined = a.clone();
            joined.join(&b);
            assert_eq!(told(&joined), told(&clock(&[of_a, of_b].concat())));
            // Whatever it was before.
            used.set(&a);
            assert_eq!(told(&used), told(&a));
            used.join(&b);
            assert_eq!(told(&used), told(&joined));
            assert!(!used.is_empty() || told(&used).is_empty());
        }
    }

    #[test]
    fn a_clock_is_as_wide_as_what_it_tells() {
        let mut clock = clock(&[t(3, 1), t(20, 5), t(22, 7), t(60, 2)]);
        assert!(clock.is_wide());
        clock.retain(DEVICE, |ticket| ticket.seq > 4);
        assert_eq!((told(&clock), clock.last.len()), (vec![t(20, 5), t(22, 7)], 3));
        assert!(!clock.is_wide());
        clock.retain(DEVICE, |_| false);
        assert!(clock.is_empty());
    }

    #[test]
    fn what_is_dropped_is_said_no_more() {
        let mut clock = clock(&[t(1, 7), t(2, 1), t(3, 5), t(64, 1), t(65, 1)]);
        clock.retain(DEVICE, |ticket| ![2, 64].contains(&ticket.lane.index()));
        assert_eq!(told(&clock), [t(1, 7), t(3, 5), t(65, 1)]);
        assert!(!clock.covers(t(2, 1)) && clock.covers(t(1, 7)));
        assert!(clock.is_wide());
        clock.retain(DEVICE, |ticket| ticket.seq > 1);
        assert!(!clock.is_wide() && clock.last.len() == 3);
        assert_eq!(told(&clock), [t(1, 7), t(3, 5)]);
        clock.add(t(65, 1));
        clock.remove(t(3, 0).lane);
        clock.remove(t(65, 0).lane);
        assert_eq!(told(&clock), [t(1, 7)]);
    }
}
