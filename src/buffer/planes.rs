//! Which elements of a buffer a volume is of: planes of rows. Pure.

use std::ops::RangeBounds;

use smallvec::SmallVec;

use super::region::Region;
use super::shape::{Extent, Shape, within};
use crate::error::{Error, Result};

/// Elements of one buffer: `planes` planes, `plane_stride` elements from plane to plane, of `rows` rows
/// of `columns` elements each, `stride` elements from row to row.
///
/// What is in rows is one plane. Of several planes `rows * stride <= plane_stride`, which is a multiple
/// of `stride`. Beyond that, and where there are no elements, as for [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planes {
    /// Of the first element, from the start of the buffer.
    start: usize,
    planes: usize,
    plane_stride: usize,
    rows: usize,
    columns: usize,
    stride: usize,
}

impl From<Shape> for Planes {
    fn from(shape: Shape) -> Self {
        let [rows, columns, stride] = shape.sides();
        let plane_stride = if shape.is_empty() { 0 } else { rows * stride };
        Planes { start: shape.start(), planes: 1, plane_stride, rows, columns, stride }
    }
}

impl Shape {
    /// What is in one piece as a volume, of planes of so many rows of so many columns.
    pub(super) fn as_volume(&self, rows: usize, columns: usize) -> Result<Planes> {
        let (start, len) = (self.start(), self.len());
        let plane = rows.checked_mul(columns);
        match plane.and_then(|plane| Some((plane, len.checked_rem(plane)?))) {
            Some((plane_stride, 0)) => {
                let planes = len / plane_stride;
                Ok(Planes { start, planes, plane_stride, rows, columns, stride: columns })
            }
            _ => Err(Error::NotPlanes { len, rows, columns }),
        }
    }
}

impl Planes {
    /// Planes, rows and columns.
    pub(crate) fn sides(&self) -> [usize; 3] {
        [self.planes, self.rows, self.columns]
    }

    /// The elements where some planes, some rows and some columns meet.
    pub(super) fn block(
        &self,
        planes: impl RangeBounds<usize>,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> Result<Planes> {
        let planes = within("planes", planes, self.planes)?;
        let rows = within("rows", rows, self.rows)?;
        let columns = within("columns", columns, self.columns)?;
        let empty = planes.is_empty() || rows.is_empty() || columns.is_empty();
        let ahead = match empty {
            true => 0,
            false => planes.start * self.plane_stride + rows.start * self.stride + columns.start,
        };
        let start = self.start + ahead;
        let (planes, rows, columns) = (planes.len(), rows.len(), columns.len());
        Ok(Planes { start, planes, rows, columns, ..*self })
    }

    /// The plane of that index.
    pub(super) fn plane(&self, plane: usize) -> Result<Shape> {
        let block = self.block(plane..plane.saturating_add(1), .., ..)?;
        Ok(Shape::of_rows(block.start, [block.rows, block.columns, block.stride]))
    }

    /// As many elements from the same place on, in one piece, in the shape of `other`.
    pub(crate) fn packed_as(&self, other: &Planes) -> Planes {
        let Planes { planes, rows, columns, .. } = *other;
        let plane_stride = if other.is_empty() { 0 } else { rows * columns };
        Planes { start: self.start, planes, plane_stride, rows, columns, stride: columns }
    }

    /// Where the run of elements is that the element of that number, counted row after row and plane after
    /// plane, is in, and how many there are from it to the end of the run. There is such an element.
    pub(super) fn run_at(&self, number: usize) -> (usize, usize) {
        let (row, column) = (number / self.columns, number % self.columns);
        let (plane, row) = (row / self.rows, row % self.rows);
        let at = self.start + plane * self.plane_stride + row * self.stride + column;
        (at, self.columns - column)
    }
}

impl Extent for Planes {
    fn start(self) -> usize {
        self.start
    }

    fn len(self) -> usize {
        // In this order, of which no product is more than the elements that there are, if there are any.
        self.planes * self.rows * self.columns
    }

    fn is_empty(self) -> bool {
        self.planes == 0 || self.rows == 0 || self.columns == 0
    }

    /// Planes that leave something between them, and whose rows do, have a region each; or all of
    /// their first rows, all of their second rows and so on have, where those are fewer.
    fn regions(self, size: usize) -> impl Iterator<Item = Region> {
        let Steps { row, steps } = Steps::of([&self], size);
        let (count, between, (rows, pitch)) = match steps[..] {
            _ if self.is_empty() => (0, 0, (0, 0)),
            [] => (1, 0, (1, row)),
            [(rows, [pitch])] => (1, 0, (rows, pitch)),
            [(rows, [pitch]), (planes, [plane_pitch]), ..] if planes <= rows => {
                (planes, plane_pitch, (rows, pitch))
            }
            [(rows, [pitch]), (planes, [plane_pitch]), ..] => (rows, pitch, (planes, plane_pitch)),
        };
        let start = self.start * size;
        (0..count).map(move |i| Region::of_rows(start + i * between, row, rows, pitch))
    }
}

/// Shapes of the same sides, in bytes: a row, and how it is repeated in each of them. What leaves nothing
/// in between in any of them is joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steps<const SHAPES: usize> {
    /// Bytes in one piece.
    pub(crate) row: usize,
    /// How often, and how far apart in each shape. Rows first, then planes of them: two steps at most.
    pub(crate) steps: SmallVec<[(usize, [usize; SHAPES]); 2]>,
}

impl<const SHAPES: usize> Steps<SHAPES> {
    /// Of no elements, of elements of no bytes: none that count.
    pub(crate) fn of(shapes: [&Planes; SHAPES], size: usize) -> Self {
        let mut all = Steps { row: 0, steps: SmallVec::new() };
        let Some(first) = shapes.first().filter(|first| !first.is_empty()) else { return all };
        all.row = first.columns * size;
        all.repeat(first.rows, shapes.map(|shape| shape.stride * size));
        all.repeat(first.planes, shapes.map(|shape| shape.plane_stride * size));
        all
    }

    fn repeat(&mut self, count: usize, apart: [usize; SHAPES]) {
        if count == 1 {
            return;
        }
        match self.steps.last_mut() {
            None if apart == [self.row; SHAPES] => self.row *= count,
            Some((inner, between)) if apart == between.map(|between| between * *inner) => {
                *inner *= count;
            }
            _ => self.steps.push((count, apart)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::random::SplitMix64;

    /// The indices of the elements, from the definition.
    fn indices(of: &Planes) -> Vec<usize> {
        let mut indices = Vec::new();
        for plane in 0..of.planes {
            for row in 0..of.rows {
                let first = of.start + plane * of.plane_stride + row * of.stride;
                indices.extend(first..first + of.columns);
            }
        }
        indices
    }

    /// 4 planes of 3 rows of 5.
    fn volume() -> Planes {
        Shape::of_elements(0, 60).as_volume(3, 5).expect("4 planes")
    }

    fn block(planes: Range<usize>, rows: Range<usize>, columns: Range<usize>) -> Planes {
        volume().block(planes, rows, columns).expect("inside")
    }

    #[test]
    fn blocks_and_planes_are_where_they_are_in_the_volume() {
        assert_eq!(indices(&block(1..3, 0..2, 3..5)), [18, 19, 23, 24, 33, 34, 38, 39]);
        let inner = block(1..3, 0..2, 3..5).block(1.., 1..2, ..1).expect("inside");
        assert_eq!(indices(&inner), [38]);
        let plane = block(1..4, 1..3, 1..3).plane(2).expect("of 3");
        assert_eq!(plane, Shape::of_rows(51, [2, 2, 5]));
        assert!(matches!(
            volume().plane(4),
            Err(Error::OutOfRange { what: "planes", range: Range { start: 4, end: 5 }, len: 4 })
        ));
        let beyond = volume().block(.., ..4, ..);
        assert!(matches!(beyond, Err(Error::OutOfRange { what: "rows", len: 3, .. })));
        assert!(volume().plane(usize::MAX).is_err() && volume().block(.., .., 6..).is_err());
    }

    #[test]
    fn a_size_that_leaves_a_plane_unfinished_is_refused_with_its_numbers() {
        let view = Shape::of_elements(0, 60);
        for (rows, columns) in [(7, 5), (0, 5), (5, 0), (usize::MAX, 2), (61, 1)] {
            match view.as_volume(rows, columns) {
                Err(Error::NotPlanes { len: 60, rows: r, columns: c }) => {
                    assert_eq!((r, c), (rows, columns));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn regions_are_the_elements_and_no_more_than_planes_or_rows() {
        let mut random = SplitMix64::new(1);
        let mut any = |most: usize| {
            let [a, b] = [(); 2].map(|()| random.below(most as u64 + 1) as usize);
            a.min(b)..a.max(b)
        };
        for _ in 0..5_000 {
            let block = block(any(4), any(3), any(5));
            let regions: Vec<_> = block.regions(2).collect();
            assert!(regions.len() <= block.planes.min(block.rows), "{block:?}: {regions:?}");
            let mut bytes = Vec::new();
            for region in regions {
                region.each_common(&Region::of_bytes(0..120), |range| bytes.extend(range));
            }
            bytes.sort_unstable();
            let expected = indices(&block).into_iter().flat_map(|i| [2 * i, 2 * i + 1]);
            assert_eq!(bytes, expected.collect::<Vec<_>>(), "{block:?}");
        }
    }

    #[test]
    fn what_leaves_nothing_in_between_is_joined() {
        let regions = |of: Planes| of.regions(4).collect::<Vec<_>>();
        assert_eq!(regions(volume()), [Region::of_bytes(0..240)]);
        assert_eq!(regions(block(1..3, 0..3, 0..5)), [Region::of_bytes(60..180)]);
        assert_eq!(regions(block(0..4, 1..3, 0..5)), [Region::of_rows(20, 40, 4, 60)]);
        assert_eq!(regions(block(0..4, 1..2, 2..4)), [Region::of_rows(28, 8, 4, 60)]);
        assert_eq!(regions(block(0..4, 0..3, 2..3)), [Region::of_rows(8, 4, 12, 20)]);
        assert_eq!(regions(block(0..2, 0..3, 2..3)), [Region::of_rows(8, 4, 6, 20)]);
        // Three rows of each plane, and four planes.
        let large = Shape::of_elements(0, 80).as_volume(4, 5).expect("4 planes");
        let rows = regions(large.block(.., ..3, ..4).expect("inside"));
        assert_eq!(rows, [0, 20, 40].map(|start| Region::of_rows(start, 16, 4, 80)));
        let planes = regions(large.block(..2, ..3, ..4).expect("inside"));
        assert_eq!(planes, [0, 80].map(|start| Region::of_rows(start, 16, 3, 20)));
    }

    #[test]
    fn two_shapes_are_joined_where_both_leave_nothing_in_between() {
        let from = block(0..4, 0..2, 0..5);
        let to = Shape::of_elements(3, 40).into();
        let to = Planes::packed_as(&to, &from);
        assert_eq!(indices(&to), (3..43).collect::<Vec<_>>());
        let steps = Steps::of([&from, &to], 4);
        assert_eq!((steps.row, &steps.steps[..]), (40, &[(4, [60, 40])][..]));
        let from = block(0..4, 0..2, 1..5);
        let steps = Steps::of([&from, &Planes::packed_as(&to, &from)], 4);
        let expected = [(2, [20, 16]), (4, [60, 32])];
        assert_eq!((steps.row, &steps.steps[..]), (16, &expected[..]));
        let whole = Steps::of([&volume(), &volume()], 4);
        assert_eq!((whole.row, whole.steps.len()), (240, 0));
    }

    #[test]
    fn runs_are_the_elements_in_their_order() {
        let block = block(1..4, 1..3, 2..5);
        let mut found = Vec::new();
        while found.len() < block.len() {
            let (at, run) = block.run_at(found.len());
            found.extend(at..at + run);
        }
        assert_eq!(found, indices(&block));
        assert_eq!(block.run_at(4), (28, 2));
    }

    #[test]
    fn no_number_given_makes_a_sum_or_a_product_overflow() {
        const MAX: usize = usize::MAX;
        let numbers = [0, 1, 2, 5, 1 << 31, 1 << 63, MAX - 1, MAX];
        let ranges = || {
            numbers.into_iter().flat_map(|a| numbers.map(|b| a..b)).chain(std::iter::once(0..20))
        };
        for len in [0, 20] {
            for (rows, columns) in numbers.into_iter().flat_map(|a| numbers.map(|b| (a, b))) {
                let Ok(volume) = Shape::of_elements(3, len).as_volume(rows, columns) else {
                    continue;
                };
                for range in ranges() {
                    let all = [
                        volume.block(range.clone(), .., ..),
                        volume.block(.., range.clone(), ..),
                        volume.block(.., .., range.clone()),
                    ];
                    for block in all.into_iter().flatten() {
                        assert!(block.len() <= 20 && block.start + block.len() <= 23, "{block:?}");
                        let bytes = block.regions(1 << 58).map(|region| region.bytes());
                        assert_eq!(bytes.sum::<usize>(), block.len() << 58, "{block:?}");
                        let packed = volume.packed_as(&block);
                        assert_eq!(packed.len(), block.len());
                    }
                }
            }
        }
    }
}
