//! The host's references to elements in rows.
//!
//! A row-major matrix or a part of one cannot be a slice: between its rows lie elements of others, to
//! which there may be exclusive references. So these are an address and a shape, and references are
//! made of one row or of one element at a time.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};
use std::ptr::NonNull;

use super::shape::Shape;
use crate::error::Result;

/// Where the rows lie. What both kinds of reference share.
#[derive(Debug)]
struct Rows<T> {
    first: NonNull<T>,
    rows: usize,
    columns: usize,
    /// Elements from row to row: no two rows overlap.
    stride: usize,
}

impl<T> Clone for Rows<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rows<T> {}

impl<T> Rows<T> {
    /// First element of a row. Within the memory where the row is one of them.
    fn row(&self, row: usize) -> NonNull<T> {
        let bytes = row.wrapping_mul(self.stride).wrapping_mul(size_of::<T>());
        self.first.map_addr(|first| first.saturating_add(bytes))
    }

    /// The element at a place; `None` where there is none.
    fn element(&self, row: usize, column: usize) -> Option<NonNull<T>> {
        let within = row < self.rows && column < self.columns;
        let bytes = column.wrapping_mul(size_of::<T>());
        within.then(|| self.row(row).map_addr(|first| first.saturating_add(bytes)))
    }

    #[track_caller]
    fn check_row(&self, row: usize) {
        let rows = self.rows;
        assert!(row < rows, "there is no row {row}: there are {rows}, counted from 0");
    }

    #[track_caller]
    fn outside(&self, (row, column): (usize, usize)) -> ! {
        let (rows, columns) = (self.rows, self.columns);
        panic!("there is no element in row {row}, column {column}, of {rows} rows of {columns}")
    }
}

/// Elements in rows, to read: `tile[(row, column)]`.
///
/// What a guard of pinned memory in rows is, and what the twin of a kernel gets for a matrix that the
/// kernel reads. A plain borrow: dropping or forgetting it does nothing.
pub struct TileRef<'a, T> {
    /// For `'a`, nobody writes the elements of these rows.
    at: Rows<T>,
    elements: PhantomData<&'a [T]>,
}

/// Elements in rows, to read and write: `tile[(row, column)] = value`.
///
/// In the declaration of a kernel it stands for a matrix, a column or a tile in device memory that the
/// kernel writes, and is called with a [`DeviceTileMut`](crate::DeviceTileMut):
///
/// ```
/// use headwater::{Device, Result, TileMut};
///
/// #[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
/// // SAFETY: thread i < n touches the columns first elements of row i only, which begins i * stride
/// // elements behind the first; n is the number of rows.
/// unsafe extern "C" {
///     /// `x[(i, j)] = factor * x[(i, j)]`
///     #[launch(items = x.rows(), block = 256)]
///     #[args(x, x.rows() as u32, x.columns() as u32, x.stride() as u32, factor)]
///     #[twin(scale_rows_on_host)]
///     safe fn scale_rows(x: TileMut<'_, f32>, factor: f32);
/// }
///
/// fn scale_rows_on_host(mut x: TileMut<'_, f32>, factor: f32) {
///     x.iter_rows_mut().flatten().for_each(|x| *x *= factor);
/// }
///
/// async fn run(device: &Device) -> Result<()> {
///     let mut x = device.upload(vec![1.0f32; 6]).await?;
///     let mut matrix = x.as_matrix_mut(3)?; // 2 rows
///     scale_rows(matrix.column_mut(1)?, 2.0)?;
///     assert_eq!(x.to_vec().await?, [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
///     Ok(())
/// }
/// # headwater::block_on(run(&Device::simulated().unwrap())).unwrap();
/// ```
///
/// What a guard of pinned memory in rows is, and what the twin of a kernel gets for a matrix that the
/// kernel writes. What is between the rows is not borrowed: two of these can be columns of one matrix,
/// on two threads. A plain borrow: dropping or forgetting it does nothing.
pub struct TileMut<'a, T> {
    /// For `'a`, nobody else touches the elements of these rows.
    at: Rows<T>,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: it is used as the `&[T]`s of its rows are.
unsafe impl<T: Sync> Send for TileRef<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for TileRef<'_, T> {}
// SAFETY: it is used as the `&mut [T]`s of its rows are: through it alone, for as long as it lives.
unsafe impl<T: Send> Send for TileMut<'_, T> {}
// SAFETY: behind a shared reference it gives out `&[T]`s.
unsafe impl<T: Sync> Sync for TileMut<'_, T> {}

impl<T> Clone for TileRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TileRef<'_, T> {}

impl<'a, T> TileRef<'a, T> {
    /// Ordinary memory as a row-major matrix of so many columns: to call a kernel's twin with.
    ///
    /// # Errors
    ///
    /// [`NotRows`](crate::Error::NotRows): the length is not a multiple of `columns`, or that is 0.
    pub fn new(elements: &'a [T], columns: usize) -> Result<Self> {
        let shape = Shape::of_elements(0, elements.len()).as_matrix(columns)?;
        // SAFETY: the rows are the slice, which is borrowed for `'a`, one after another.
        Ok(unsafe { TileRef::from_raw(NonNull::from(elements).cast(), shape.sides()) })
    }

    /// `rows` rows of `columns` elements, `stride` elements from row to row.
    ///
    /// # Safety
    ///
    /// Every row, from `first` on, is memory of one allocation, aligned and initialised, live for
    /// `'a`, and nobody writes it meanwhile. All rows together take no more than `isize::MAX` bytes,
    /// and no two overlap.
    pub(crate) unsafe fn from_raw(first: NonNull<T>, [rows, columns, stride]: [usize; 3]) -> Self {
        TileRef { at: Rows { first, rows, columns, stride }, elements: PhantomData }
    }

    /// The row of that index.
    ///
    /// # Panics
    ///
    /// If there is none, as indexing does.
    #[track_caller]
    pub fn row(&self, row: usize) -> &'a [T] {
        self.at.check_row(row);
        // SAFETY: it is one of the rows, by what `from_raw` was promised.
        unsafe { std::slice::from_raw_parts(self.at.row(row).as_ptr(), self.at.columns) }
    }

    /// The rows, from the first to the last.
    pub fn iter_rows(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T> {
        let tile = *self;
        (0..self.at.rows).map(move |row| tile.row(row))
    }

    /// The element at a place; `None` where there is none.
    pub fn get(&self, row: usize, column: usize) -> Option<&'a T> {
        // SAFETY: it is an element of one of the rows, by what `from_raw` was promised.
        self.at.element(row, column).map(|element| unsafe { element.as_ref() })
    }
}

impl<'a, T> TileMut<'a, T> {
    /// Ordinary memory as a row-major matrix of so many columns: to call a kernel's twin with.
    ///
    /// # Errors
    ///
    /// [`NotRows`](crate::Error::NotRows): the length is not a multiple of `columns`, or that is 0.
    pub fn new(elements: &'a mut [T], columns: usize) -> Result<Self> {
        let shape = Shape::of_elements(0, elements.len()).as_matrix(columns)?;
        // SAFETY: the rows are the slice, which is borrowed exclusively for `'a`, one after another.
        Ok(unsafe { TileMut::from_raw(NonNull::from(elements).cast(), shape.sides()) })
    }

    /// `rows` rows of `columns` elements, `stride` elements from row to row.
    ///
    /// # Safety
    ///
    /// As [`TileRef::from_raw`], and nobody else touches the elements of the rows.
    pub(crate) unsafe fn from_raw(first: NonNull<T>, [rows, columns, stride]: [usize; 3]) -> Self {
        TileMut { at: Rows { first, rows, columns, stride }, elements: PhantomData }
    }

    /// All of it, to read.
    pub fn as_tile(&self) -> TileRef<'_, T> {
        TileRef { at: self.at, elements: PhantomData }
    }

    /// The row of that index, to read.
    ///
    /// # Panics
    ///
    /// If there is none, as indexing does.
    #[track_caller]
    pub fn row(&self, row: usize) -> &[T] {
        self.as_tile().row(row)
    }

    /// The row of that index, to write.
    ///
    /// # Panics
    ///
    /// If there is none, as indexing does.
    #[track_caller]
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        self.at.check_row(row);
        // SAFETY: it is one of the rows, by what `from_raw` was promised; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.row(row).as_ptr(), self.at.columns) }
    }

    /// The rows, from the first to the last, to read.
    pub fn iter_rows(&self) -> impl ExactSizeIterator<Item = &[T]> {
        self.as_tile().iter_rows()
    }

    /// The rows, from the first to the last, to write.
    pub fn iter_rows_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [T]> {
        let at = self.at;
        (0..at.rows).map(move |row| {
            // SAFETY: it is one of the rows, which do not overlap, and comes up once while `self` is
            // borrowed exclusively.
            unsafe { std::slice::from_raw_parts_mut(at.row(row).as_ptr(), at.columns) }
        })
    }

    /// The element at a place, to read; `None` where there is none.
    pub fn get(&self, row: usize, column: usize) -> Option<&T> {
        self.as_tile().get(row, column)
    }

    /// The element at a place, to write; `None` where there is none.
    pub fn get_mut(&mut self, row: usize, column: usize) -> Option<&mut T> {
        // SAFETY: it is an element of one of the rows, by what `from_raw` was promised; `self` is
        // borrowed exclusively.
        self.at.element(row, column).map(|mut element| unsafe { element.as_mut() })
    }

    /// The same rows for as long as they are borrowed from it, to read from here on.
    pub fn into_tile(self) -> TileRef<'a, T> {
        TileRef { at: self.at, elements: PhantomData }
    }
}

macro_rules! common {
    ($name:ident) => {
        impl<T> $name<'_, T> {
            /// How many rows there are.
            pub fn rows(&self) -> usize {
                self.at.rows
            }

            /// Elements of a row.
            pub fn columns(&self) -> usize {
                self.at.columns
            }

            /// Elements from the start of a row to that of the next, in the matrix that this is of.
            pub fn stride(&self) -> usize {
                self.at.stride
            }
        }

        impl<T> Index<(usize, usize)> for $name<'_, T> {
            type Output = T;

            /// The element at a row and a column.
            #[track_caller]
            fn index(&self, at: (usize, usize)) -> &T {
                self.get(at.0, at.1).unwrap_or_else(|| self.at.outside(at))
            }
        }

        impl<T: fmt::Debug> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_list().entries(self.iter_rows()).finish()
            }
        }
    };
}

common!(TileRef);
common!(TileMut);

impl<T> IndexMut<(usize, usize)> for TileMut<'_, T> {
    #[track_caller]
    fn index_mut(&mut self, at: (usize, usize)) -> &mut T {
        let shape = self.at;
        self.get_mut(at.0, at.1).unwrap_or_else(|| shape.outside(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two halves, by columns, of 3 rows of 4.
    fn halves(matrix: &mut [u32; 12]) -> [TileMut<'_, u32>; 2] {
        let first = NonNull::from(matrix).cast::<u32>();
        let second = first.map_addr(|at| at.saturating_add(8));
        // SAFETY: both lie within the matrix, which is borrowed exclusively, and have no element in
        // common.
        [first, second].map(|first| unsafe { TileMut::from_raw(first, [3, 2, 4]) })
    }

    #[test]
    fn columns_of_one_matrix_are_written_beside_each_other() {
        let mut matrix = std::array::from_fn(|i| i as u32);
        let [mut left, mut right] = halves(&mut matrix);
        let (row, other) = (left.row_mut(1), right.row_mut(1));
        row.swap_with_slice(other);
        std::thread::scope(|scope| {
            scope.spawn(move || left.iter_rows_mut().flatten().for_each(|x| *x += 100));
            scope.spawn(move || right[(2, 1)] = 0);
        });
        assert_eq!(matrix, [100, 101, 2, 3, 106, 107, 4, 5, 108, 109, 10, 0]);
    }

    #[test]
    fn elements_are_where_row_and_column_say() {
        let mut matrix = std::array::from_fn(|i| i as u32);
        let [left, right] = halves(&mut matrix);
        assert_eq!((right[(1, 0)], right.get(1, 1), right.get(1, 2)), (6, Some(&7), None));
        assert_eq!((left.get(3, 0), left.get(usize::MAX, 0)), (None, None));
        assert_eq!((right.rows(), right.columns(), right.stride()), (3, 2, 4));
        let tile = right.into_tile();
        assert_eq!(tile.iter_rows().collect::<Vec<_>>(), [[2, 3], [6, 7], [10, 11]]);
        assert_eq!(format!("{tile:?}"), "[[2, 3], [6, 7], [10, 11]]");
    }

    #[test]
    #[should_panic(expected = "there is no row 3: there are 3, counted from 0")]
    fn a_row_that_is_not_there_panics_as_indexing_does() {
        halves(&mut [0; 12])[0].row_mut(3);
    }

    #[test]
    #[should_panic(expected = "no element in row 0, column 2, of 3 rows of 2")]
    fn an_element_that_is_not_there_panics_as_indexing_does() {
        halves(&mut [0; 12])[0][(0, 2)] = 1;
    }
}
