//! Filling device memory with one value.
#![allow(unsafe_code)]

use bytemuck::Pod;
use smallvec::SmallVec;

use super::submit::{Operand, Refusal, submit};
use crate::buffer::{DeviceBuffer, Mode};
use crate::driver::Fill;
use crate::error::{Error, Result};
use crate::reactor::{Completion, OpKey, Operation};

/// Driver calls that one fill may take.
const MOST_CALLS: usize = 16;

const FILL: Operation = Operation::on_device("filling device memory");

/// Bytes of the widest unit that the driver fills with and that elements of `size` bytes consist of.
fn widest_unit(size: usize) -> usize {
    [4, 2, 1].into_iter().find(|unit| size.is_multiple_of(*unit)).unwrap_or(1)
}

impl<T: Pod> DeviceBuffer<T> {
    /// Sets every element to `value`, on the current stream of the buffer's device.
    ///
    /// One `cuMemsetD8Async`, `D16` or `D32` where the value is a repetition of 1, 2 or 4 bytes (as
    /// zero of any type is); else one strided `cuMemsetD2D…Async` for each 4 bytes of an element
    /// (2 or 1 where its size is not a multiple of 4).
    ///
    /// # Errors
    ///
    /// [`FillTooWide`](Error::FillTooWide) for elements without a repetition of over 16 calls: 64
    /// bytes, or 32 or 16 where the size is a multiple of 2 or 1 only;
    /// [`QueueFull`](Error::QueueFull), the driver refused, or the device is lost. Nothing is
    /// enqueued then, except that where the driver refuses one of several calls the elements are
    /// undefined afterwards: reading them is [`Uninitialised`](Error::Uninitialised).
    pub fn fill(&mut self, value: T) -> Result<Completion> {
        let view = self.as_slice_mut();
        if view.bytes() == 0 {
            return Ok(Completion::ready());
        }
        let fills = fills(view.ptr().0, view.len(), bytemuck::bytes_of(&value));
        if fills.len() > MOST_CALLS {
            let most = MOST_CALLS * widest_unit(size_of::<T>());
            return Err(Error::FillTooWide { element_size: size_of::<T>(), most });
        }
        let operand = Operand::new("self", view.access(Mode::Overwrite));
        let op = OpKey { operation: &FILL, key: view.bytes() as u32 ^ 1 << 31 };
        submit(view.core(), op, &[operand], fills.len() as u64, |driver, stream| {
            for (done, fill) in fills.iter().enumerate() {
                // SAFETY: the rows lie within the buffer (see `fills`), which is freed after this
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
}

/// The fills that set `len` elements from address `dst` to the bytes `value`. Together they write
/// `len * value.len()` bytes from `dst` on, no others.
fn fills(dst: u64, len: usize, value: &[u8]) -> SmallVec<[Fill; 4]> {
    let size = value.len();
    let word = |at: usize, unit: usize| {
        value[at..at + unit].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
    };
    let dst_at = |offset: usize| crate::driver::DevicePtr(dst + offset as u64);
    // The whole range as a repetition of one unit.
    for unit in [1, 2, 4] {
        if size.is_multiple_of(unit)
            && (0..size).step_by(unit).all(|at| word(at, unit) == word(0, unit))
        {
            let columns = len * (size / unit);
            let (unit, value) = (unit as u8, word(0, unit));
            return SmallVec::from_iter([Fill {
                dst: dst_at(0),
                unit,
                value,
                columns,
                rows: 1,
                pitch: 0,
            }]);
        }
    }
    // A column of each unit of the element, one row an element.
    let unit = widest_unit(size);
    (0..size)
        .step_by(unit)
        .map(|at| Fill {
            dst: dst_at(at),
            unit: unit as u8,
            value: word(at, unit),
            columns: 1,
            rows: len,
            pitch: size,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs fills on bytes in memory.
    fn apply(len: usize, value: &[u8]) -> (Vec<u8>, usize) {
        let mut out = vec![0xEE; len * value.len() + 1];
        let fills = fills(0, len, value);
        for fill in &fills {
            for row in 0..fill.rows {
                for column in 0..fill.columns {
                    let unit = usize::from(fill.unit);
                    let at = fill.dst.0 as usize + row * fill.pitch + column * unit;
                    out[at..at + unit].copy_from_slice(&fill.value.to_le_bytes()[..unit]);
                }
            }
        }
        assert_eq!(out.pop(), Some(0xEE), "wrote past the end");
        (out, fills.len())
    }

    #[test]
    fn every_element_gets_the_value_whatever_its_size() {
        let bytes: Vec<u8> = (1..=24).collect();
        for size in 1..=24 {
            let (out, _) = apply(5, &bytes[..size]);
            assert_eq!(out, bytes[..size].repeat(5), "size {size}");
        }
    }

    #[test]
    fn a_repeating_value_takes_one_fill() {
        for value in [&[0; 24][..], &[1, 2, 1, 2, 1, 2], &[1, 2, 3, 4, 1, 2, 3, 4]] {
            let (out, fills) = apply(7, value);
            assert_eq!((out, fills), (value.repeat(7), 1));
        }
    }
}
