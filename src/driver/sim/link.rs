//! The link between host and device, which both directions share. Pure.
//!
//! Each direction is an engine that makes one copy at a time. Alone, a copy goes at its own rate;
//! beside one in the other direction, at what that one leaves of the link's joint rate. Which of
//! the two is held back is not as on a GPU, which slows both: an end that was told cannot change, so
//! it is the one that is placed later. The sum is right: never more than the joint rate, and no
//! less while both have bytes to move.

use smallvec::{SmallVec, smallvec};

use super::steps::{Load, Steps};

const SECOND: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From host to device.
    Up,
    /// From device to host.
    Down,
}

/// Bytes to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) bytes: u64,
    /// Bytes a second it goes at, at most. 0: bytes cost nothing.
    pub(super) rate: u64,
    /// How long the engine is taken before the first byte moves.
    pub(super) latency: u64,
}

/// One device's link.
#[derive(Debug)]
pub(super) struct HostLink {
    /// One operation at most, and the bytes a second that it moves.
    up: Steps,
    down: Steps,
    /// Bytes a second of both directions together. 0: neither takes notice of the other.
    both: u64,
}

/// Part of a transfer: from, to, and its bytes a second meanwhile.
type Piece = (u64, u64, u64);

impl HostLink {
    pub(super) fn new(both: u64) -> Self {
        HostLink { up: Steps::default(), down: Steps::default(), both }
    }

    fn way(&self, direction: Direction) -> &Steps {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn way_mut(&mut self, direction: Direction) -> &mut Steps {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// What the other direction leaves for this one at a time, and until when.
    fn left(&self, direction: Direction, time: u64) -> (u64, Option<u64>) {
        if self.both == 0 {
            return (u64::MAX, None);
        }
        let other = match direction {
            Direction::Up => &self.down,
            Direction::Down => &self.up,
        };
        (self.both.saturating_sub(other.at(time).amount), other.next_change(time))
    }
}

/// Places a transfer that goes over these links at a time, `earliest` or later: start and end.
/// Nothing is placed before `floor` from here on.
pub(super) fn place(
    links: &mut [HostLink],
    path: &[(usize, Direction)],
    transfer: Transfer,
    earliest: u64,
    floor: u64,
) -> (u64, u64) {
    let mut start = earliest;
    for &(link, direction) in path {
        links[link].up.forget_before(floor);
        links[link].down.forget_before(floor);
        start = start.max(links[link].way(direction).floor());
    }
    let one = Load::new(1, u64::MAX);
    let pieces = loop {
        let pieces = pieces(links, path, transfer, start);
        let end = pieces.last().map_or(start, |piece| piece.1);
        let obstacle = path.iter().filter_map(|&(link, direction)| {
            links[link].way(direction).obstacle(start, end, Load::new(1, 0), one)
        });
        match obstacle.max() {
            Some(free) => start = free,
            None => break pieces,
        }
    };
    for &(link, direction) in path {
        for &(from, to, rate) in &pieces {
            links[link].way_mut(direction).add(from, to, Load::new(1, rate));
        }
    }
    (start, pieces.last().map_or(start, |piece| piece.1))
}

/// What the transfer is made of if it starts then.
fn pieces(
    links: &[HostLink],
    path: &[(usize, Direction)],
    transfer: Transfer,
    start: u64,
) -> SmallVec<[Piece; 4]> {
    let mut now = start.saturating_add(transfer.latency);
    let mut pieces = smallvec![(start, now, 0)];
    // In bytes times nanoseconds a second: a rate moves exactly itself in a nanosecond.
    let mut rest = u128::from(transfer.bytes) * SECOND;
    while rest > 0 && transfer.rate > 0 {
        let (mut rate, mut until) = (transfer.rate, None::<u64>);
        for &(link, direction) in path {
            let (left, change) = links[link].left(direction, now);
            rate = rate.min(left);
            until = until.into_iter().chain(change).min();
        }
        let needed = match rate {
            0 => u64::MAX,
            rate => u64::try_from(rest.div_ceil(u128::from(rate))).unwrap_or(u64::MAX),
        };
        let done = now.saturating_add(needed);
        let to = until.map_or(done, |until| until.min(done));
        pieces.push((now, to, rate));
        rest = match to == done {
            true => 0,
            false => rest.saturating_sub(u128::from(rate) * u128::from(to - now)),
        };
        now = to;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: [(usize, Direction); 1] = [(0, Direction::Up)];
    const DOWN: [(usize, Direction); 1] = [(0, Direction::Down)];

    /// Rates are in bytes a nanosecond here.
    fn links(both: u64) -> [HostLink; 2] {
        [HostLink::new(both * 1_000_000_000), HostLink::new(both * 1_000_000_000)]
    }

    fn bytes(bytes: u64, rate: u64) -> Transfer {
        Transfer { bytes, rate: rate * 1_000_000_000, latency: 0 }
    }

    #[test]
    fn a_copy_alone_goes_at_its_own_rate() {
        let mut links = links(15);
        assert_eq!(place(&mut links, &UP, bytes(1_000, 10), 5, 0), (5, 105));
        assert_eq!(place(&mut links, &UP, bytes(1_001, 10), 0, 0), (105, 206), "rounded up");
        assert_eq!(place(&mut links, &DOWN, bytes(100, 10), 206, 0), (206, 216));
    }

    #[test]
    fn the_later_one_takes_what_is_left_while_both_go() {
        let mut links = links(15);
        assert_eq!(place(&mut links, &UP, bytes(1_000, 10), 0, 0), (0, 100));
        // 5 a nanosecond until 100, then 10.
        assert_eq!(place(&mut links, &DOWN, bytes(1_000, 10), 0, 0), (0, 150));
        // Beside the second half of the one going down, which goes at 10.
        assert_eq!(place(&mut links, &UP, bytes(250, 10), 0, 0), (100, 150));
        assert_eq!(links[0].up.at(0).amount, 10_000_000_000);
        assert_eq!(links[0].down.at(0).amount, 5_000_000_000);
        assert_eq!(links[0].up.at(149).amount, 5_000_000_000);
    }

    #[test]
    fn a_copy_moves_nothing_while_the_other_direction_leaves_nothing() {
        let mut links = links(10);
        assert_eq!(place(&mut links, &UP, bytes(1_000, 10), 50, 0), (50, 150));
        assert_eq!(place(&mut links, &DOWN, bytes(1_000, 10), 0, 0), (0, 200));
    }

    #[test]
    fn both_directions_in_turn_keep_to_the_joint_rate() {
        let mut links = links(15);
        let mut end = 0;
        for _ in 0..50 {
            end = end.max(place(&mut links, &UP, bytes(1_000, 10), 0, 0).1);
            end = end.max(place(&mut links, &DOWN, bytes(1_000, 10), 0, 0).1);
        }
        // 100,000 bytes at 15 a nanosecond, and a tail on which one goes alone.
        assert!((6_667..6_800).contains(&end), "{end}");
        let all = std::iter::successors(Some(0), |&t| {
            let next = [links[0].up.next_change(t), links[0].down.next_change(t)];
            next.into_iter().flatten().min()
        });
        for t in all {
            let sum = links[0].up.at(t).amount + links[0].down.at(t).amount;
            assert!(sum <= 15_000_000_000, "{sum} at {t}");
        }
    }

    #[test]
    fn latency_takes_the_engine_and_no_bytes() {
        let mut links = links(15);
        let late = Transfer { latency: 7, ..bytes(100, 10) };
        assert_eq!(place(&mut links, &UP, late, 0, 0), (0, 17));
        assert_eq!(place(&mut links, &UP, late, 0, 0), (17, 34));
        // 7 at 10 a nanosecond, then 6 at 5.
        assert_eq!(place(&mut links, &DOWN, bytes(100, 10), 0, 0), (0, 13));
    }

    #[test]
    fn what_goes_over_two_links_takes_one_way_of_each() {
        let mut links = links(15);
        let path = [(0, Direction::Down), (1, Direction::Up)];
        assert_eq!(place(&mut links, &[(1, Direction::Down)], bytes(50, 10), 0, 0), (0, 5));
        assert_eq!(place(&mut links, &UP, bytes(100, 7), 10, 0), (10, 25));
        // 5 for 5 ns, 10 for 5, then 8 beside the one going up.
        assert_eq!(place(&mut links, &path, bytes(100, 10), 0, 0), (0, 14));
        assert_eq!(place(&mut links, &[(1, Direction::Up)], bytes(10, 10), 0, 0), (14, 15));
        assert_eq!(place(&mut links, &DOWN, bytes(15, 10), 0, 0), (14, 16));
    }

    #[test]
    fn bytes_that_cost_nothing_take_no_time() {
        let mut links = links(0);
        assert_eq!(place(&mut links, &UP, bytes(u64::MAX, 0), 3, 0), (3, 3));
        let all = Transfer { bytes: u64::MAX, rate: 1, latency: 0 };
        assert_eq!(place(&mut links, &UP, all, 3, 0), (3, u64::MAX));
    }
}
