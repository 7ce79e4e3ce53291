//! Bytes in one piece, or in rows some way apart. Pure.

use std::ops::Range;

use super::step::Touched;

/// Addresses of bytes that are touched: rows, of which one is enough for what is in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    first: u64,
    end: u64,
    row: u64,
    /// More than `row`, where there are several.
    pitch: u64,
}

impl Rows {
    pub(super) fn one(range: Range<u64>) -> Self {
        let row = range.end - range.start;
        Rows { first: range.start, end: range.end, row, pitch: row }
    }

    pub(super) fn of(touched: &Touched) -> Self {
        let Range { start, end } = touched.range();
        Rows { first: start, end, row: touched.row as u64, pitch: touched.pitch as u64 }
    }

    /// From the first byte to the last, what lies between the rows with it.
    pub(super) fn extent(&self) -> Range<u64> {
        self.first..self.end
    }

    pub(super) fn is_one(&self) -> bool {
        self.row >= self.end - self.first
    }

    /// What is left from `at` on of the row there, or the next row.
    fn from(&self, at: u64) -> Option<Range<u64>> {
        let at = at.max(self.first);
        if self.is_one() {
            return (at < self.end).then_some(at..self.end);
        }
        let start = at - (at - self.first) % self.pitch;
        let start = if at - start < self.row { start } else { start + self.pitch };
        (start < self.end).then_some(at.max(start)..start + self.row)
    }

    /// Whether they have a byte in common.
    pub(super) fn overlap(&self, other: &Rows) -> bool {
        self.meet(other, &(0..u64::MAX)).is_some()
    }

    /// The first bytes of both, in one piece, that are in `range`.
    pub(super) fn meet(&self, other: &Rows, range: &Range<u64>) -> Option<Range<u64>> {
        let mut at = range.start.max(self.first).max(other.first);
        let mut end = range.end.min(self.end).min(other.end);
        if !self.is_one() && self.pitch == other.pitch && !other.is_one() {
            // They meet, or do not, in each pitch as in the next one.
            end = end.min(at.saturating_add(self.pitch));
        }
        while at < end {
            let (a, b) = (self.from(at)?, other.from(at)?);
            at = a.start.max(b.start);
            let both = at..a.end.min(b.end).min(end);
            if !both.is_empty() {
                return Some(both);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(start: u64, row: usize, rows: usize, pitch: usize) -> Rows {
        Rows::of(&Touched::in_rows(start, (row, rows, pitch), true))
    }

    /// By each byte.
    fn meet_by_bytes(a: &Rows, b: &Rows, range: &Range<u64>) -> Option<Range<u64>> {
        let has = |rows: &Rows, at: u64| {
            let from = at.checked_sub(rows.first);
            at < rows.end && from.is_some_and(|from| from % rows.pitch.max(1) < rows.row)
        };
        let mut common = range.clone().filter(|&at| has(a, at) && has(b, at));
        let start = common.next()?;
        let mut end = start + 1;
        // One piece ends where either row does.
        let goes_on = |at: u64| {
            let same =
                |rows: &Rows| (at - rows.first) / rows.pitch == (at - 1 - rows.first) / rows.pitch;
            range.contains(&at) && has(a, at) && has(b, at) && same(a) && same(b)
        };
        while goes_on(end) {
            end += 1;
        }
        Some(start..end)
    }

    #[test]
    fn rows_meet_where_they_have_a_byte_in_common() {
        let mut all = Vec::new();
        for start in [0, 3, 10] {
            for row in [1, 2, 5] {
                for count in [1, 2, 4] {
                    all.extend([1, 2, 3, 5, 6, 7].map(|pitch| rows(start, row, count, pitch)));
                }
            }
        }
        for a in &all {
            for b in &all {
                for range in [0..40, 4..9, 11..12, 7..30] {
                    let expected = meet_by_bytes(a, b, &range);
                    assert_eq!(a.meet(b, &range), expected, "{a:?} {b:?} {range:?}");
                }
            }
        }
    }

    #[test]
    fn a_million_rows_that_leave_nothing_between_them_are_one_piece() {
        let dense = rows(64, 8, 1_000_000, 8);
        assert_eq!(dense, Rows::one(64..8_000_064));
        let (low, high) = (rows(0, 4, 1_000_000, 8), rows(4, 4, 1_000_000, 8));
        assert_eq!(low.meet(&high, &(0..u64::MAX)), None);
        assert_eq!(low.meet(&dense, &(100..u64::MAX)), Some(104..108));
    }
}
