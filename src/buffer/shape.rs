//! Which elements of a buffer a view is of: rows of a row-major matrix. Pure.

use std::ops::{Bound, Range, RangeBounds};

use super::region::Region;
use crate::error::{Error, Result};

/// Which elements of one buffer, in whatever shape: all of them are the buffer's, and none is twice there.
pub(crate) trait Extent: Copy {
    /// Of the first element, from the start of the buffer; its end where there are none.
    fn start(self) -> usize;

    /// Elements in all.
    fn len(self) -> usize;

    fn is_empty(self) -> bool;

    /// The bytes, for elements of `size` bytes, in as few regions as make them up.
    fn regions(self, size: usize) -> impl Iterator<Item = Region>;
}

/// Elements of one buffer: `rows` rows of `columns` elements each, `stride` elements from row to row.
///
/// What is in one piece is one row. Of several rows, `columns <= stride`, so they do not overlap.
/// All elements are ones of the buffer, as is `start`, or its end: sums and products of these sides
/// do not overflow, those of their bytes neither. Where there are no elements, `columns` and `stride`
/// can be any that a user gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Of the first element, from the start of the buffer.
    start: usize,
    rows: usize,
    columns: usize,
    stride: usize,
}

impl Shape {
    /// In one piece.
    pub(crate) const fn of_elements(start: usize, len: usize) -> Self {
        Shape { start, rows: 1, columns: len, stride: len }
    }

    /// Rows that do not overlap, or no elements.
    pub(super) const fn of_rows(start: usize, [rows, columns, stride]: [usize; 3]) -> Self {
        Shape { start, rows, columns, stride }
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Rows, columns and stride.
    pub(crate) fn sides(&self) -> [usize; 3] {
        [self.rows, self.columns, self.stride]
    }

    /// Elements in all: no more than the buffer has.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.columns
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// The bytes, for elements of `size` bytes.
    pub(crate) fn region(&self, size: usize) -> Region {
        // Without elements, the sides may be any numbers.
        if self.is_empty() {
            let start = self.start * size;
            return Region::of_bytes(start..start);
        }
        let (row, pitch) = (self.columns * size, self.stride * size);
        Region::of_rows(self.start * size, row, self.rows, pitch)
    }

    /// A part of what is in one piece.
    pub(crate) fn elements(&self, range: impl RangeBounds<usize>) -> Result<Shape> {
        let range = within("elements", range, self.columns)?;
        Ok(Shape::of_elements(self.start + range.start, range.len()))
    }

    /// What is in one piece as a matrix of so many columns.
    pub(crate) fn as_matrix(&self, columns: usize) -> Result<Shape> {
        match self.columns.checked_rem(columns) {
            Some(0) => {
                let rows = self.columns / columns;
                Ok(Shape { start: self.start, rows, columns, stride: columns })
            }
            _ => Err(Error::NotRows { len: self.columns, columns }),
        }
    }

    /// The elements where some rows and some columns meet.
    pub(crate) fn tile(
        &self,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> Result<Shape> {
        let rows = within("rows", rows, self.rows)?;
        let columns = within("columns", columns, self.columns)?;
        Ok(self.at(rows, columns))
    }

    /// The row of that index, in one piece.
    pub(crate) fn row(&self, row: usize) -> Result<Shape> {
        let rows = within("rows", row..row.saturating_add(1), self.rows)?;
        Ok(Shape::of_elements(self.at(rows, 0..self.columns).start, self.columns))
    }

    /// The column of that index.
    pub(crate) fn column(&self, column: usize) -> Result<Shape> {
        self.tile(.., column..column.saturating_add(1))
    }

    /// What is inside of this one.
    fn at(&self, rows: Range<usize>, columns: Range<usize>) -> Shape {
        let empty = rows.is_empty() || columns.is_empty();
        let ahead = if empty { 0 } else { rows.start * self.stride + columns.start };
        let (start, stride) = (self.start + ahead, self.stride);
        Shape { start, rows: rows.len(), columns: columns.len(), stride }
    }
}

impl Extent for Shape {
    fn start(self) -> usize {
        self.start
    }

    fn len(self) -> usize {
        self.rows * self.columns
    }

    fn is_empty(self) -> bool {
        Shape::is_empty(&self)
    }

    fn regions(self, size: usize) -> impl Iterator<Item = Region> {
        std::iter::once(self.region(size))
    }
}

/// The range, if it is one of `len` things.
pub(super) fn within(
    what: &'static str,
    range: impl RangeBounds<usize>,
    len: usize,
) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if start > end || end > len {
        return Err(Error::OutOfRange { what, range: start..end, len });
    }
    Ok(start..end)
}

/// Cuts a shape into tiles, row after row of them: all of `height` rows and `width` columns but
/// those at the far ends, which may have less. Together they are the shape, and no two overlap.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    whole: Shape,
    height: usize,
    width: usize,
    /// Where the next one begins; `row` is `whole.rows` at the end.
    row: usize,
    column: usize,
}

impl Cut {
    pub(crate) fn new(whole: Shape, height: usize, width: usize) -> Result<Self> {
        if height == 0 || width == 0 {
            return Err(Error::EmptyPieces);
        }
        let row = if whole.is_empty() { whole.rows } else { 0 };
        Ok(Cut { whole, height, width, row, column: 0 })
    }
}

impl Iterator for Cut {
    type Item = Shape;

    fn next(&mut self) -> Option<Shape> {
        let Shape { rows, columns, .. } = self.whole;
        if self.row >= rows {
            return None;
        }
        let below = self.row.saturating_add(self.height).min(rows);
        let right = self.column.saturating_add(self.width).min(columns);
        let tile = self.whole.at(self.row..below, self.column..right);
        (self.row, self.column) = if right < columns { (self.row, right) } else { (below, 0) };
        Some(tile)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let Shape { rows, columns, .. } = self.whole;
        let across = columns.div_ceil(self.width);
        let left = (rows - self.row).div_ceil(self.height) * across - self.column / self.width;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Cut {}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    /// The indices of a shape's elements.
    fn indices(shape: &Shape) -> Vec<usize> {
        let row = |row| (0..shape.columns).map(move |column| (row, column));
        let places = (0..shape.rows).flat_map(row);
        places.map(|(row, column)| shape.start + row * shape.stride + column).collect()
    }

    fn matrix() -> Shape {
        Shape::of_elements(0, 20).as_matrix(5).expect("4 rows")
    }

    #[test]
    fn a_range_is_counted_from_the_start_of_the_view() {
        let inner = Shape::of_elements(10, 8).elements(2..).expect("inside");
        assert_eq!(inner, Shape::of_elements(12, 6));
        assert_eq!(inner.elements(..=1).expect("inside"), Shape::of_elements(12, 2));
        assert_eq!(inner.elements(6..6).expect("at the end").len(), 0);
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is given")]
    fn a_range_past_the_end_or_reversed_is_refused_with_what_was_given() {
        let view = Shape::of_elements(10, 8);
        let refused = |range: Range<usize>| match view.elements(range.clone()) {
            Err(Error::OutOfRange { what: "elements", range: given, len: 8 }) => given == range,
            _ => false,
        };
        assert!(refused(0..9) && refused(9..9) && refused(5..4) && refused(0..usize::MAX));
        assert!(view.elements(..=usize::MAX).is_err() && view.elements(8..=8).is_err());
        assert!(view.elements((Bound::Excluded(usize::MAX), Bound::Unbounded)).is_err());
    }

    #[test]
    fn rows_columns_and_tiles_are_where_they_are_in_the_matrix() {
        let matrix = matrix();
        assert_eq!(indices(&matrix.column(3).expect("of 5")), [3, 8, 13, 18]);
        assert_eq!(indices(&matrix.row(2).expect("of 4")), [10, 11, 12, 13, 14]);
        let tile = matrix.tile(1..3, 2..).expect("inside");
        assert_eq!(indices(&tile), [7, 8, 9, 12, 13, 14]);
        assert_eq!(indices(&tile.column(1).expect("of 3")), [8, 13]);
        assert_eq!(indices(&tile.tile(1.., ..1).expect("inside")), [12]);
        assert_eq!(tile.region(4), Region::of_rows(28, 12, 2, 20));
    }

    #[test]
    fn what_is_outside_of_a_matrix_is_refused() {
        let matrix = matrix();
        assert!(matches!(matrix.row(4), Err(Error::OutOfRange { what: "rows", len: 4, .. })));
        assert!(matches!(matrix.column(5), Err(Error::OutOfRange { what: "columns", len: 5, .. })));
        assert!(matrix.row(usize::MAX).is_err() && matrix.column(usize::MAX).is_err());
        let view = Shape::of_elements(0, 20);
        assert!(matches!(view.as_matrix(3), Err(Error::NotRows { len: 20, columns: 3 })));
        assert!(matches!(view.as_matrix(0), Err(Error::NotRows { len: 20, columns: 0 })));
    }

    #[test]
    fn no_number_given_makes_a_sum_or_a_product_overflow() {
        const MAX: usize = usize::MAX;
        let numbers = [0, 1, 2, 5, 1 << 62, 1 << 63, MAX - 1, MAX];
        let starts = [Bound::Unbounded].into_iter();
        let starts = starts.chain(numbers.map(Bound::Included)).chain(numbers.map(Bound::Excluded));
        let ranges = starts.clone().flat_map(|start| starts.clone().map(move |end| (start, end)));
        let mut shapes = vec![Shape::of_elements(0, 0), Shape::of_elements(3, 20)];
        for shape in shapes.clone() {
            shapes.extend(numbers.into_iter().filter_map(|columns| shape.as_matrix(columns).ok()));
        }
        for shape in shapes.clone() {
            for range in ranges.clone() {
                shapes.extend(shape.tile(range, ..).into_iter().chain(shape.tile(.., range)));
                shapes.extend(shape.elements(range).ok().filter(|_| shape.rows == 1));
            }
            for at in numbers {
                shapes.extend(shape.row(at).into_iter().chain(shape.column(at)));
                for width in numbers {
                    let Ok(cut) = Cut::new(shape, at, width) else { continue };
                    assert!(cut.len() <= 20);
                    shapes.extend(cut);
                }
            }
        }
        for shape in shapes {
            assert!(shape.start + shape.len() <= 23 && shape.len() <= 20, "{shape:?}");
            let region = shape.region(1 << 58);
            assert_eq!(region.bytes(), shape.len() << 58, "{shape:?}");
            assert!(region.extent().end <= 23 << 58, "{shape:?}");
        }
    }

    #[test]
    fn what_is_empty_lies_inside_of_the_buffer() {
        let right = matrix().tile(.., 3..).expect("inside");
        let nothing = right.tile(4.., ..).expect("at the end");
        assert_eq!((nothing.len(), nothing.region(4)), (0, Region::of_bytes(12..12)));
        assert_eq!(Shape::of_elements(0, 0).as_matrix(5).expect("no rows").rows(), 0);
    }

    #[test]
    fn pieces_are_the_whole_and_do_not_overlap() {
        for (height, width) in [(1, 1), (2, 2), (3, 4), (4, 5), (usize::MAX, 2), (9, usize::MAX)] {
            let cut = Cut::new(matrix(), height, width).expect("pieces");
            let (said, mut pieces) = (cut.len(), 0);
            let mut all: Vec<_> = cut.inspect(|_| pieces += 1).flat_map(|p| indices(&p)).collect();
            all.sort_unstable();
            assert_eq!((all, pieces), ((0..20).collect(), said), "{height} x {width}");
        }
        let chunks = Cut::new(Shape::of_elements(3, 7), 1, 3).expect("pieces");
        assert_eq!(chunks.map(|chunk| chunk.len()).collect::<Vec<_>>(), [3, 3, 1]);
        assert_eq!(Cut::new(Shape::of_elements(3, 0), 1, 3).expect("none").count(), 0);
        assert!(matches!(Cut::new(matrix(), 1, 0), Err(Error::EmptyPieces)));
    }
}
