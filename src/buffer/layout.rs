//! Bytes of an allocation by row and place within the row. Pure.

use std::ops::Range;

use super::region::Region;

/// An allocation seen as rows of `pitch` bytes: byte `a` is at `a % pitch` of row `a / pitch`.
///
/// The last row may go on beyond the allocation. A place there goes with the byte above it, so that
/// nothing begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    bytes: usize,
    pitch: usize,
}

/// Bytes `columns` of each of the rows `rows`. Not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) columns: Range<usize>,
    pub(super) rows: Range<usize>,
}

impl Layout {
    /// `pitch` is not more than there are bytes; 1 where there are none.
    pub(super) fn new(bytes: usize, pitch: usize) -> Self {
        debug_assert!((1..=bytes.max(1)).contains(&pitch), "rows of {pitch} of {bytes} bytes");
        Layout { bytes, pitch }
    }

    /// All in one row.
    pub(super) fn flat(bytes: usize) -> Self {
        Layout::new(bytes, bytes.max(1))
    }

    pub(super) fn is_flat(self) -> bool {
        self.pitch >= self.bytes
    }

    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    pub(super) fn pitch(self) -> usize {
        self.pitch
    }

    pub(super) fn rows(self) -> usize {
        self.bytes.div_ceil(self.pitch).max(1)
    }

    /// The bytes of a rectangle, places beyond the allocation with them.
    pub(super) fn region(self, rect: &Rect) -> Region {
        let start = rect.rows.start * self.pitch + rect.columns.start;
        Region::of_rows(start, rect.columns.len(), rect.rows.len(), self.pitch)
    }

    /// How many parts a region is here; each is a few rectangles at most.
    pub(super) fn parts(self, region: &Region) -> usize {
        match self.rows_in_one(region) {
            Some(per_row) => region.rows().min(per_row),
            None => region.rows(),
        }
    }

    /// The rows of a region that begin in one row, where they begin at the same places in each.
    fn rows_in_one(self, region: &Region) -> Option<usize> {
        let divides = region.rows() > 1 && self.pitch.is_multiple_of(region.pitch());
        divides.then(|| self.pitch / region.pitch())
    }

    /// Calls `each` with disjoint rectangles that together are the bytes of `region` within the
    /// allocation, and the places below that go with them.
    pub(super) fn each_rect(self, region: &Region, mut each: impl FnMut(Rect)) {
        let (start, row) = (region.start(), region.row());
        let Some(per_row) = self.rows_in_one(region) else {
            for i in 0..region.rows() {
                let start = start + i * region.pitch();
                self.each_rect_of_piece(start..start + row, &mut each);
            }
            return;
        };
        for i in 0..per_row.min(region.rows()) {
            let at = start + i * region.pitch();
            let (top, left) = (at / self.pitch, at % self.pitch);
            let rows = top..top + (region.rows() - i).div_ceil(per_row);
            // A row of the region may go on in the next one here.
            let right = (left + row).min(self.pitch);
            let wrapped = left + row - right;
            let below = rows.start + 1..rows.end + 1;
            self.within(left..right, rows, &mut each);
            self.within(0..wrapped, below, &mut each);
        }
    }

    fn each_rect_of_piece(self, piece: Range<usize>, each: &mut impl FnMut(Rect)) {
        let (pitch, start) = (self.pitch, piece.start);
        let end = if piece.end >= self.bytes { self.rows() * pitch } else { piece.end };
        if start >= end {
            return;
        }
        let (top, left) = (start / pitch, start % pitch);
        let (bottom, right) = (end / pitch, end % pitch);
        if top == bottom {
            return self.within(left..right, top..top + 1, each);
        }
        let whole = if left == 0 { top..bottom } else { top + 1..bottom };
        if left > 0 {
            self.within(left..pitch, top..top + 1, each);
        }
        self.within(0..pitch, whole, each);
        self.within(0..right, bottom..bottom + 1, each);
    }

    /// The part of a rectangle that is within the allocation, and the places that go with it.
    fn within(self, columns: Range<usize>, rows: Range<usize>, each: &mut impl FnMut(Rect)) {
        let last = self.rows() - 1;
        let last_ends = self.bytes - last * self.pitch;
        let rows = rows.start..rows.end.min(last + 1);
        let mut each = |columns: Range<usize>, rows: Range<usize>| {
            if !columns.is_empty() && !rows.is_empty() {
                each(Rect { columns, rows });
            }
        };
        if rows.start == last {
            each(columns.start..columns.end.min(last_ends), rows);
        } else if rows.end == last {
            let beyond = columns.start.max(last_ends)..columns.end;
            each(columns.start..columns.end.min(last_ends), rows.clone());
            each(beyond, rows.start..last + 1);
        } else {
            each(columns, rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn the_rectangles_of_a_region_are_its_bytes() {
        let mut random = SplitMix64::new(5);
        for _ in 0..20_000 {
            let bytes = 1 + random.below(60) as usize;
            let layout = Layout::new(bytes, 1 + random.below(bytes as u64) as usize);
            let pitch = 1 + random.below(14) as usize;
            let (row, rows) = (random.below(pitch as u64 + 1), 1 + random.below(9));
            let start = random.below(bytes as u64);
            let region = Region::of_rows(start as usize, row as usize, rows as usize, pitch);
            let mut found = vec![0; layout.rows() * layout.pitch()];
            let mut count = 0;
            layout.each_rect(&region, |rect| {
                count += 1;
                assert!(rect.columns.end <= layout.pitch() && rect.rows.end <= layout.rows());
                for row in rect.rows {
                    for column in rect.columns.clone() {
                        found[row * layout.pitch() + column] += 1;
                    }
                }
            });
            for (at, n) in found.into_iter().enumerate() {
                let byte = if at < bytes { at } else { at - layout.pitch() };
                let here = Region::of_bytes(byte..byte + 1).overlaps(&region);
                assert_eq!(n, usize::from(here), "byte {at} of {region:?} in {layout:?}");
            }
            assert!(count <= 4 * layout.parts(&region), "{region:?} in {layout:?}");
        }
    }
}
