//! Filling device memory with one value.
#![allow(unsafe_code)]

use bytemuck::Pod;
use smallvec::SmallVec;

use super::copy::check_pitch;
use super::submit::{Operand, Refusal, submit};
use crate::buffer::{
    Allocation, DeviceBuffer, DevicePart, DeviceSliceMut, DeviceTileMut, Mode, Place, Shape,
    for_device_slices_mut, for_device_tiles_mut,
};
use crate::driver::{DevicePtr, Fill};
use crate::error::{Error, Result};
use crate::reactor::{Completion, OpKey, Operation};

/// Driver calls that one fill may take.
const MOST_CALLS: usize = 16;

const FILL: Operation = Operation::on_device("filling device memory");

/// Bytes of the widest unit that the driver fills with and that elements of `size` bytes consist of.
fn widest_unit(size: usize) -> usize {
    [4, 2, 1].into_iter().find(|unit| size.is_multiple_of(*unit)).unwrap_or(1)
}

macro_rules! fill {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Sets every element to `value`, on the current stream of its device.
            ///
            /// One `cuMemsetD8Async`, `D16` or `D32` (of rows, `cuMemsetD2D…Async`) where the value is a
            /// repetition of 1, 2 or 4 bytes, as zero of any type is. Else one strided fill for each 4
            /// bytes of an element (2 or 1 where its size is not a multiple of 4), and for each row or
            /// each column, whichever are fewer, where there is something between the rows.
            ///
            /// # Errors
            ///
            /// [`FillTooWide`](Error::FillTooWide): that would be over 16 calls;
            /// [`RowsTooFarApart`](Error::RowsTooFarApart), [`QueueFull`](Error::QueueFull), the driver
            /// refused, or the device is lost. Nothing is enqueued then, except that where the driver
            /// refuses one of several calls the elements are undefined afterwards: reading them is
            /// [`Uninitialised`](Error::Uninitialised).
            pub fn fill(&mut self, value: T) -> Result<Completion> {
                fill_with(self.place(), bytemuck::bytes_of(&value))
            }
        }
    )+};
}

for_device_slices_mut!(fill! {});
for_device_tiles_mut!(fill! {});

/// The place is borrowed to be written; its elements are of the size of `value`.
fn fill_with(place: Place<'_, Allocation>, value: &[u8]) -> Result<Completion> {
    let bytes = place.bytes();
    if bytes == 0 {
        return Ok(Completion::ready());
    }
    let fills = fills(place.ptr().0, &place.shape(), value)?;
    let (tracked, access) = place.access(Mode::Overwrite);
    let in_rows = access.region.rows() > 1;
    let op = OpKey { operation: &FILL, key: bytes as u32 ^ (2 | u32::from(in_rows)) << 30 };
    let operand = Operand::new("self", (tracked, access));
    submit(place.core(), op, &[operand], fills.len() as u64, |driver, stream| {
        for (done, fill) in fills.iter().enumerate() {
            // SAFETY: the rows lie within the place (see `fills`), which is freed after this
            // operation in stream order; `submit` has ordered it with all that conflicts.
            let filled = unsafe { driver.fill(*fill, stream) };
            filled.map_err(|error| match done {
                0 => Refusal::Whole(error),
                _ => Refusal::Rest { error, made: done as u64 },
            })?;
        }
        Ok(())
    })
}

/// The fills that set the elements of `shape`, of which the first is at address `dst`, to the bytes
/// `value`. Together they write those elements, and nothing else.
fn fills(dst: u64, shape: &Shape, value: &[u8]) -> Result<SmallVec<[Fill; 4]>> {
    let size = value.len();
    let word = |at: usize, unit: usize| {
        value[at..at + unit].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
    };
    let dst_at = |offset: usize| DevicePtr(dst + offset as u64);
    let region = shape.region(size);
    if region.rows() > 1 {
        check_pitch(FILL.name(), region.pitch())?;
    }
    // All of it as a repetition of one unit.
    for unit in [1, 2, 4] {
        if size.is_multiple_of(unit)
            && (0..size).step_by(unit).all(|at| word(at, unit) == word(0, unit))
        {
            return Ok(SmallVec::from_iter([Fill {
                dst: dst_at(0),
                unit: unit as u8,
                value: word(0, unit),
                columns: region.row() / unit,
                rows: region.rows(),
                pitch: region.pitch(),
            }]));
        }
    }
    // Elements some way apart, in lines some way apart: of each line a strided fill of each unit.
    let pitch = shape.stride() * size;
    let (lines, between_lines, elements, between_elements) = match region.piece() {
        Some(_) => (1, 0, shape.len(), size),
        None if shape.columns() <= shape.rows() => (shape.columns(), size, shape.rows(), pitch),
        None => (shape.rows(), pitch, shape.columns(), size),
    };
    let unit = widest_unit(size);
    let calls = lines.saturating_mul(size / unit);
    if calls > MOST_CALLS {
        return Err(Error::FillTooWide { element_size: size, calls, most: MOST_CALLS });
    }
    let fills = (0..lines).flat_map(|line| {
        (0..size).step_by(unit).map(move |at| Fill {
            dst: dst_at(line * between_lines + at),
            unit: unit as u8,
            value: word(at, unit),
            columns: 1,
            rows: elements,
            pitch: between_elements,
        })
    });
    Ok(fills.collect())
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Runs fills on bytes in memory, and says how many there were, if not too many.
    fn apply(out: &mut [u8], shape: &Shape, value: &[u8]) -> Option<usize> {
        let first = (shape.start() * value.len()) as u64;
        let fills = fills(first, shape, value).ok()?;
        for fill in &fills {
            for row in 0..fill.rows {
                for column in 0..fill.columns {
                    let unit = usize::from(fill.unit);
                    let at = fill.dst.0 as usize + row * fill.pitch + column * unit;
                    out[at..at + unit].copy_from_slice(&fill.value.to_le_bytes()[..unit]);
                }
            }
        }
        Some(fills.len())
    }

    /// A matrix of 6 columns and 5 rows after a fill of a part of it, as it should be and as it is.
    fn filled(
        rows: Range<usize>,
        columns: Range<usize>,
        value: &[u8],
    ) -> ([Vec<u8>; 2], Option<usize>) {
        const UNTOUCHED: u8 = 0xEE;
        let size = value.len();
        let matrix = Shape::of_elements(0, 30).as_matrix(6).expect("5 rows");
        let tile = matrix.tile(rows.clone(), columns.clone()).expect("inside");
        let mut out = vec![UNTOUCHED; 30 * size];
        let calls = apply(&mut out, &tile, value);
        let inside = |at: &usize| rows.contains(&(at / 6)) && columns.contains(&(at % 6));
        let element = |at| if inside(&at) { value.to_vec() } else { vec![UNTOUCHED; size] };
        ([(0..30).flat_map(element).collect(), out], calls)
    }

    #[test]
    fn every_element_gets_the_value_whatever_its_size_and_no_other_is_touched() {
        let bytes: Vec<u8> = (1..=24).collect();
        for size in 1..=24 {
            let value = &bytes[..size];
            for (rows, columns) in [(0..5, 0..6), (1..3, 0..6), (0..5, 2..3), (2..3, 1..4)] {
                if let ([expected, out], Some(1..=MOST_CALLS)) = filled(rows, columns, value) {
                    assert_eq!(out, expected, "size {size}");
                }
            }
        }
    }

    #[test]
    fn a_repeating_value_takes_one_fill() {
        for value in [&[0; 24][..], &[1, 2, 1, 2, 1, 2], &[1, 2, 3, 4, 1, 2, 3, 4]] {
            for (rows, columns) in [(0..5, 0..6), (1..4, 2..5), (0..5, 5..6)] {
                let ([expected, out], calls) = filled(rows, columns, value);
                assert_eq!((out, calls), (expected, Some(1)));
            }
        }
    }

    #[test]
    fn a_value_that_does_not_repeat_takes_as_many_as_there_are_rows_or_columns() {
        let value: Vec<u8> = (1..=8).collect();
        for (rows, columns, calls) in [(0..5, 0..6, 2), (0..5, 1..3, 4), (1..3, 1..5, 4)] {
            let ([expected, out], made) = filled(rows, columns, &value);
            assert_eq!((out, made), (expected, Some(calls)));
        }
        let wide = Shape::of_elements(0, 200).as_matrix(20).expect("10 rows");
        let tile = wide.tile(.., ..9).expect("inside");
        let refused = fills(0, &tile, &value);
        assert!(matches!(
            refused,
            Err(Error::FillTooWide { element_size: 8, calls: 18, most: 16 })
        ));
    }
}
