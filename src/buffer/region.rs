//! Which bytes of an allocation: in one piece, or in rows some way apart. Pure.

use std::ops::Range;

/// Bytes of one allocation: `rows` rows of `row` bytes each, `pitch` bytes from row to row.
///
/// What is in one piece is one row with `pitch == row`; so are rows that leave nothing between
/// them, and no bytes at all. Of several rows, `row < pitch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    start: usize,
    row: usize,
    rows: usize,
    pitch: usize,
}

impl Region {
    /// Bytes in one piece.
    pub(crate) const fn of_bytes(range: Range<usize>) -> Self {
        let row = range.end - range.start;
        Region { start: range.start, row, rows: 1, pitch: row }
    }

    /// Rows whose bytes do not overlap: `row <= pitch`.
    pub(crate) fn of_rows(start: usize, row: usize, rows: usize, pitch: usize) -> Self {
        debug_assert!(row <= pitch || rows <= 1, "rows of {row} bytes, {pitch} apart");
        if rows <= 1 || row == pitch || row == 0 {
            return Region::of_bytes(start..start + row * rows);
        }
        Region { start, row, rows, pitch }
    }

    /// The same bytes, so many further on.
    pub(crate) fn moved_by(self, bytes: usize) -> Self {
        Region { start: self.start + bytes, ..self }
    }

    /// Offset of the first byte.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Bytes of a row.
    pub(crate) fn row(&self) -> usize {
        self.row
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes from the start of a row to that of the next.
    pub(crate) fn pitch(&self) -> usize {
        self.pitch
    }

    /// Bytes in all.
    pub(crate) fn bytes(&self) -> usize {
        self.row * self.rows
    }

    /// The range, where it is in one piece.
    pub(crate) fn piece(&self) -> Option<Range<usize>> {
        (self.rows == 1).then(|| self.extent())
    }

    /// From the first byte to the last, what lies between the rows with it.
    pub(crate) fn extent(&self) -> Range<usize> {
        self.start..self.start + (self.rows - 1) * self.pitch + self.row
    }

    /// Whether some byte is in both.
    pub(crate) fn overlaps(&self, other: &Region) -> bool {
        self.first_common(other).is_some()
    }

    /// The first byte that is in both, however many rows there are: in logarithmic time.
    pub(crate) fn first_common(&self, other: &Region) -> Option<usize> {
        let (own, their) = (self.extent(), other.extent());
        if self.bytes() == 0 || other.bytes() == 0 || own.end <= their.start {
            return None;
        }
        // The first own row that ends behind the other's first byte, as rows before it cannot meet
        // the other.
        let skipped = match their.start.checked_sub(self.start + self.row) {
            Some(behind) => behind / self.pitch + 1,
            None => 0,
        };
        // A row that begins at `at` meets one of the other's where it begins at most
        // `self.row - 1` before that one and at most `other.row - 1` behind its start: where
        // `at + self.row - 1`, counted from the other's start, is little above a multiple of the
        // other's pitch.
        let at = self.start + skipped * self.pitch;
        let above = at + self.row - 1 - their.start;
        let reach = (self.row + other.row - 2).min(other.pitch - 1);
        let more = match other.rows {
            1 => 0,
            _ => first_within(above, self.pitch, other.pitch, reach)?,
        };
        let row = at.checked_add(more.checked_mul(self.pitch)?)?;
        if skipped + more >= self.rows || row >= their.end {
            return None;
        }
        let other_row = match row.checked_sub(their.start + other.row) {
            Some(behind) => their.start + (behind / other.pitch + 1) * other.pitch,
            None => their.start,
        };
        Some(row.max(other_row))
    }

    /// Calls `each` with the bytes that are in both, piece by piece: in time for the own rows within
    /// the other's extent, and for the pieces.
    pub(crate) fn each_common(&self, other: &Region, mut each: impl FnMut(Range<usize>)) {
        if self.bytes() == 0 || other.bytes() == 0 {
            return;
        }
        let within = other.extent();
        // Rows of `of` before this one end at or before `at`.
        let first_behind = |of: &Region, at: usize| match at.checked_sub(of.start + of.row) {
            Some(behind) => behind / of.pitch + 1,
            None => 0,
        };
        let own_rows = first_behind(self, within.start)..self.rows;
        let starts = own_rows.map(|index| self.start + index * self.pitch);
        for start in starts.take_while(|start| *start < within.end) {
            let end = start + self.row;
            let their_rows = first_behind(other, start)..other.rows;
            let theirs = their_rows.map(|index| other.start + index * other.pitch);
            for their_start in theirs.take_while(|their_start| *their_start < end) {
                each(start.max(their_start)..end.min(their_start + other.row));
            }
        }
    }
}

/// The first `i` for which `(start + i * step) % modulus <= reach`.
fn first_within(start: usize, step: usize, modulus: usize, reach: usize) -> Option<usize> {
    let (start, modulus) = (start % modulus, modulus as u128);
    if start <= reach {
        return Some(0);
    }
    let low = modulus - start as u128;
    let first = first_between(step as u128 % modulus, modulus, low, low + reach as u128)?;
    usize::try_from(first).ok()
}

/// The first `i` for which `low <= i * step % modulus <= high`, where `step < modulus` and
/// `0 < low <= high < modulus`. As Euclid's algorithm: where no multiple of `step` lies between
/// the two, the first lap in which one does is that of a smaller problem.
fn first_between(step: u128, modulus: u128, low: u128, high: u128) -> Option<u128> {
    if step == 0 {
        return None;
    }
    let first = low.div_ceil(step);
    if first * step <= high {
        return Some(first);
    }
    let laps = first_between(modulus % step, step, step - high % step, step - low % step)?;
    Some((low + modulus * laps).div_ceil(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn rows_that_leave_nothing_between_them_are_one_piece() {
        assert_eq!(Region::of_rows(8, 4, 3, 4), Region::of_bytes(8..20));
        assert_eq!(Region::of_rows(8, 4, 1, 100), Region::of_bytes(8..12));
        assert_eq!(Region::of_rows(8, 0, 5, 100), Region::of_bytes(8..8));
        let column = Region::of_rows(8, 4, 3, 16);
        assert_eq!((column.piece(), column.extent(), column.bytes()), (None, 8..44, 12));
    }

    fn bytes_of(region: &Region) -> impl Iterator<Item = usize> {
        let Region { start, row, rows, pitch } = *region;
        (0..rows).flat_map(move |i| (0..row).map(move |j| start + i * pitch + j))
    }

    #[test]
    fn regions_overlap_where_they_share_a_byte() {
        let mut random = SplitMix64::new(1);
        let mut any = || {
            let pitch = 1 + random.below(12);
            let (row, rows) = (random.below(pitch + 1), 1 + random.below(9));
            let start = random.below(60);
            Region::of_rows(start as usize, row as usize, rows as usize, pitch as usize)
        };
        let mut met = 0;
        for _ in 0..20_000 {
            let (a, b) = (any(), any());
            let of_b: Vec<_> = bytes_of(&b).collect();
            let first = bytes_of(&a).find(|byte| of_b.contains(byte));
            assert_eq!(a.first_common(&b), first, "{a:?} and {b:?}");
            assert_eq!(a.overlaps(&b), first.is_some(), "{a:?} and {b:?}");
            let mut common = Vec::new();
            a.each_common(&b, |range| {
                assert!(!range.is_empty(), "{a:?} and {b:?}");
                common.extend(range);
            });
            let both: Vec<_> = bytes_of(&a).filter(|byte| of_b.contains(byte)).collect();
            assert_eq!(common, both, "{a:?} and {b:?}");
            met += usize::from(first.is_some());
        }
        assert!((2_000..18_000).contains(&met), "{met}");
    }

    #[test]
    fn what_a_small_region_has_in_common_with_a_large_one_is_found_at_once() {
        let large = Region::of_rows(0, 4, 1 << 40, 1 << 12);
        let tile = Region::of_rows((1 << 50) + 2, 8, 2, 1 << 12);
        for (a, b) in [(&large, &tile), (&tile, &large)] {
            let mut common = Vec::new();
            a.each_common(b, |range| common.push(range.start - (1 << 50)..range.end - (1 << 50)));
            assert_eq!(common, [2..4, 4098..4100]);
        }
    }

    #[test]
    fn columns_of_large_matrices_are_compared_at_once() {
        let (rows, pitch) = (1 << 30, 1 << 12);
        let column = |at, pitch| Region::of_rows(at, 4, rows, pitch);
        assert!(!column(0, pitch).overlaps(&column(4, pitch)));
        assert_eq!(column(0, pitch).first_common(&column(4, pitch + 4)), Some(pitch * 1024));
    }
}
