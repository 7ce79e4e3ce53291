//! A value for each of the numbers `0..len`, kept as pieces in which it is the same. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

/// Adjacent pieces that together are `0..len`, each with a value. One piece takes no allocation;
/// of more, one is found, split or joined in logarithmic time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition<V> {
    len: usize,
    pieces: Pieces<V>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pieces<V> {
    One(V),
    /// At least two, by their first number: the first begins at 0.
    Many(BTreeMap<usize, Piece<V>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece<V> {
    /// Where the next one begins.
    end: usize,
    value: V,
}

impl<V: Clone> Partition<V> {
    pub(super) fn new(len: usize, value: V) -> Self {
        Partition { len, pieces: Pieces::One(value) }
    }

    /// Of pieces given by their ends, in ascending order. At least one.
    pub(super) fn of_ends(ends: Vec<(usize, V)>) -> Option<Self> {
        let len = ends.last()?.0;
        if ends.len() == 1 {
            return ends.into_iter().next().map(|(_, only)| Partition::new(len, only));
        }
        let mut first = 0;
        let by_first = ends
            .into_iter()
            .map(|(end, value)| (std::mem::replace(&mut first, end), Piece { end, value }));
        Some(Partition { len, pieces: Pieces::Many(by_first.collect()) })
    }

    /// How many pieces there are.
    pub(super) fn count(&self) -> usize {
        match &self.pieces {
            Pieces::One(_) => 1,
            Pieces::Many(map) => map.len(),
        }
    }

    /// The value of all, while there is one piece.
    pub(super) fn only(&self) -> Option<&V> {
        match &self.pieces {
            Pieces::One(only) => Some(only),
            Pieces::Many(_) => None,
        }
    }

    /// The value of the piece that has the numbers of `range` and no other, if there is one.
    pub(super) fn exact_mut(&mut self, range: &Range<usize>) -> Option<&mut V> {
        let value = match &mut self.pieces {
            Pieces::One(only) => (*range == (0..self.len)).then_some(only),
            Pieces::Many(map) => {
                let piece = map.get_mut(&range.start).filter(|piece| piece.end == range.end);
                piece.map(|piece| &mut piece.value)
            }
        };
        looked_at(usize::from(value.is_some()));
        value
    }

    /// The piece that has `at` in it.
    pub(super) fn get(&self, at: usize) -> Option<(Range<usize>, &V)> {
        match &self.pieces {
            Pieces::One(only) => Some((0..self.len, only)),
            Pieces::Many(map) => {
                let (first, piece) = map.range(..=at).next_back()?;
                Some((*first..piece.end, &piece.value))
            }
        }
    }

    /// Calls `each` with the pieces that have numbers of `range` in them and these numbers, the
    /// last piece first.
    pub(super) fn each<'a>(
        &'a self,
        range: Range<usize>,
        mut each: impl FnMut(Range<usize>, &'a V),
    ) {
        match &self.pieces {
            _ if range.is_empty() => {}
            Pieces::One(only) => {
                looked_at(1);
                each(range, only);
            }
            Pieces::Many(map) => {
                // Most look for what one piece has.
                let exact = map.get(&range.start).filter(|piece| range.end <= piece.end);
                if let Some(piece) = exact {
                    looked_at(1);
                    return each(range, &piece.value);
                }
                for (first, piece) in map.range(..range.end).rev() {
                    looked_at(1);
                    each(range.start.max(*first)..range.end.min(piece.end), &piece.value);
                    if *first <= range.start {
                        break;
                    }
                }
            }
        }
    }

    /// As [`Partition::each`], to change them. Pieces begin and end where `range` does: see
    /// [`Partition::split_at`].
    pub(super) fn each_mut(
        &mut self,
        range: Range<usize>,
        mut each: impl FnMut(Range<usize>, &mut V),
    ) {
        match &mut self.pieces {
            _ if range.is_empty() => {}
            Pieces::One(only) => {
                looked_at(1);
                each(range, only);
            }
            Pieces::Many(map) => {
                for (first, piece) in map.range_mut(range).rev() {
                    looked_at(1);
                    each(*first..piece.end, &mut piece.value);
                }
            }
        }
    }

    /// Has a piece begin at `at`. The value of the piece that was split for it.
    pub(super) fn split_at(&mut self, at: usize) -> Option<&V> {
        if at == 0 || at >= self.len {
            return None;
        }
        if let Pieces::One(only) = &self.pieces {
            let piece = |end| Piece { end, value: only.clone() };
            let halves = [(0, piece(at)), (at, piece(self.len))];
            self.pieces = Pieces::Many(BTreeMap::from(halves));
        } else if let Pieces::Many(map) = &mut self.pieces {
            let (first, lower) = map.range_mut(..=at).next_back()?;
            looked_at(1);
            if *first == at {
                return None;
            }
            let upper = lower.clone();
            lower.end = at;
            map.insert(at, upper);
        }
        self.get(at).map(|(_, value)| value)
    }

    /// Joins pieces of `range`, and those beside it, where they are the `same`. How many pieces
    /// there are less.
    pub(super) fn join(&mut self, range: Range<usize>, same: impl Fn(&V, &V) -> bool) -> usize {
        let Pieces::Many(map) = &mut self.pieces else { return 0 };
        let mut joined = SmallVec::<[usize; 4]>::new();
        let mut above: Option<(usize, &Piece<V>)> = None;
        for (first, piece) in map.range(..=range.end).rev() {
            looked_at(1);
            if let Some((above, _)) = above.filter(|(_, above)| same(&piece.value, &above.value)) {
                joined.push(above);
            }
            if *first < range.start {
                break;
            }
            above = Some((*first, piece));
        }
        if joined.len() + 1 == map.len() {
            if let Some((_, piece)) = map.pop_first() {
                self.pieces = Pieces::One(piece.value);
            }
            return joined.len();
        }
        for first in &joined {
            let upper = map.remove(first).map(|piece| piece.end);
            let lower = map.range_mut(..*first).next_back();
            if let (Some(end), Some((_, lower))) = (upper, lower) {
                lower.end = end;
            }
        }
        joined.len()
    }
}

/// What tests count: so many pieces are looked at, to be used, compared or split.
fn looked_at(_pieces: usize) {
    #[cfg(test)]
    LOOKED_AT.set(LOOKED_AT.get() + _pieces);
}

#[cfg(test)]
thread_local! {
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many pieces of partitions this thread looks at in `f`.
#[cfg(test)]
pub(super) fn count_looked_at(f: impl FnOnce()) -> usize {
    let before = LOOKED_AT.get();
    f();
    LOOKED_AT.get() - before
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Sets the value of `range`, as those who use a partition do.
    fn set(partition: &mut Partition<u64>, range: Range<usize>, value: u64) {
        partition.split_at(range.start);
        partition.split_at(range.end);
        partition.each_mut(range.clone(), |_, old| *old = value);
        partition.join(range, |a, b| a == b);
    }

    fn all(partition: &Partition<u64>, range: Range<usize>) -> Vec<u64> {
        let mut out = vec![u64::MAX; range.len()];
        partition.each(range.clone(), |part, value| {
            part.for_each(|at| out[at - range.start] = *value);
        });
        out
    }

    #[test]
    fn numbers_have_the_value_last_given_to_them_and_equal_neighbours_are_one_piece() {
        let mut random = SplitMix64::new(3);
        for _ in 0..200 {
            let len = 1 + random.below(40) as usize;
            let (mut partition, mut model) = (Partition::new(len, 0), vec![0; len]);
            for _ in 0..40 {
                let start = random.below(len as u64) as usize;
                let range = start..start + random.below((len - start) as u64 + 1) as usize;
                let value = random.below(3);
                if !range.is_empty() {
                    set(&mut partition, range.clone(), value);
                }
                model[range.clone()].fill(value);
                assert_eq!(all(&partition, 0..len), model);
                assert_eq!(all(&partition, range.clone()), model[range]);
                let pieces = 1 + model.windows(2).filter(|two| two[0] != two[1]).count();
                assert_eq!(partition.count(), pieces);
                assert_eq!(partition.only().is_some(), pieces == 1);
                let at = random.below(len as u64) as usize;
                let Some((piece, value)) = partition.get(at) else { panic!("{at} of {len}") };
                assert!(all(&partition, piece.clone()).iter().all(|v| v == value));
                assert!(piece.contains(&at));
                let (value, mut same) = (*value, partition.clone());
                assert_eq!(same.exact_mut(&piece), Some(&mut value.clone()));
                assert_eq!(same.exact_mut(&(piece.start..piece.end + 1)), None);
            }
        }
    }

    #[test]
    fn a_partition_is_made_of_the_ends_of_its_pieces() {
        let partition = Partition::of_ends(vec![(2, 7), (3, 8), (6, 7)]).unwrap();
        assert_eq!((partition.len, partition.count()), (6, 3));
        assert_eq!(all(&partition, 0..6), [7, 7, 8, 7, 7, 7]);
        assert_eq!(Partition::of_ends(vec![(6, 7)]), Some(Partition::new(6, 7)));
    }
}
