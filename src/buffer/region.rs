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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_leave_nothing_between_them_are_one_piece() {
        assert_eq!(Region::of_rows(8, 4, 3, 4), Region::of_bytes(8..20));
        assert_eq!(Region::of_rows(8, 4, 1, 100), Region::of_bytes(8..12));
        assert_eq!(Region::of_rows(8, 0, 5, 100), Region::of_bytes(8..8));
        let column = Region::of_rows(8, 4, 3, 16);
        assert_eq!((column.piece(), column.extent(), column.bytes()), (None, 8..44, 12));
    }
}
