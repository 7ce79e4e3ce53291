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
