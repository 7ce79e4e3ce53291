//! Copies of every shape between every two kinds of memory, of elements of many types: each against a
//! plain loop, and each in one call of the driver.

mod blocks;
mod within;

use std::fmt::Debug;
use std::ops::Range;

use bytemuck::Zeroable;
use half::{bf16, f16};
use headwater::sim::{Schedule, SimOptions};
use headwater::{Device, DeviceBuffer, Error, HostBuffer, Pod, Result};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};

use crate::common::{
    any_device, device_buffer, elements, on_gpu, own_device, pinned_buffer, run_to_end, sim,
    simulated, simulated_with, step_through, stepped, wait,
};

/// 7 bytes, which are aligned to none.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
struct Packed {
    _tag: u8,
    _value: f32,
    _more: u16,
}

// SAFETY: all bytes are zero in a valid value, as of its fields.
#[allow(unsafe_code, reason = "the derive is a feature of bytemuck's that nothing else needs")]
unsafe impl Zeroable for Packed {}
// SAFETY: numbers without anything between them.
#[allow(unsafe_code, reason = "as above")]
unsafe impl Pod for Packed {}

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: thread i < n copies word i of the one slice to word i of the other; n words are all bytes of
// each. Every bit pattern is an f16, or a bf16.
unsafe extern "C" {
    #[launch(items = to.len() / 2, block = 256, require = from.len() == to.len(),
             require = to.len().is_multiple_of(2), fills = [to], entry = "copy_u32")]
    #[args(from, to, (to.len() / 2) as u32)]
    #[twin(copy_f16_on_host)]
    safe fn copy_f16(from: &[f16], to: &mut [f16]);

    #[launch(items = to.len() / 2, block = 256, require = from.len() == to.len(),
             require = to.len().is_multiple_of(2), fills = [to], entry = "copy_u32")]
    #[args(from, to, (to.len() / 2) as u32)]
    #[twin(copy_bf16_on_host)]
    safe fn copy_bf16(from: &[bf16], to: &mut [bf16]);
}

fn copy_f16_on_host(from: &[f16], to: &mut [f16]) {
    to.copy_from_slice(from);
}

fn copy_bf16_on_host(from: &[bf16], to: &mut [bf16]) {
    to.copy_from_slice(from);
}

/// Every device that there is to test on: a GPU, or simulated ones under every schedule.
fn devices() -> Vec<Device> {
    if on_gpu() {
        return vec![own_device()];
    }
    let simulated_as = |schedule| simulated(SimOptions::new().schedule(schedule));
    let random = [1, 2].map(|seed| simulated_as(Schedule::random(seed)));
    let others = [simulated_as(Schedule::Eager), simulated_as(Schedule::Lazy), stepped()];
    others.into_iter().chain(random).collect()
}

/// Elements of which no two near each other have the same bytes.
fn values<T: Pod>(count: usize, seed: usize) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    let bytes = bytemuck::cast_slice_mut::<T, u8>(&mut values);
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (seed + i * 7 + i / 256) as u8;
    }
    values
}

fn bytes_of<T: Pod>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// What a view is of: some of a buffer's 5 planes of 4 rows of 6 columns, in one of three shapes. Those
/// of one extent have as many elements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Flat,
    Rows,
    Planes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Extent {
    Whole,
    Part,
    Nothing,
}

use Extent::{Nothing, Part, Whole};
use Shape::{Flat, Planes, Rows};

const COUNT: usize = 5 * 4 * 6;
const SHAPES: [Shape; 3] = [Flat, Rows, Planes];
const EXTENTS: [Extent; 3] = [Whole, Part, Nothing];

impl Extent {
    fn flat(self) -> Range<usize> {
        match self {
            Whole => 0..COUNT,
            Part => 7..43,
            Nothing => 9..9,
        }
    }

    /// Of a matrix of 6 columns.
    fn rows(self) -> [Range<usize>; 2] {
        match self {
            Whole => [0..20, 0..6],
            Part => [2..11, 1..5],
            Nothing => [3..3, 1..5],
        }
    }

    /// Of a volume of 4 rows of 6 columns.
    fn planes(self) -> [Range<usize>; 3] {
        match self {
            Whole => [0..5, 0..4, 0..6],
            Part => [1..4, 1..4, 2..6],
            Nothing => [1..4, 4..4, 2..6],
        }
    }
}

/// The indices of a view's elements, in their order.
fn indices(shape: Shape, extent: Extent) -> Vec<usize> {
    match shape {
        Flat => extent.flat().collect(),
        Rows => {
            let [rows, columns] = extent.rows();
            rows.flat_map(|row| columns.clone().map(move |column| row * 6 + column)).collect()
        }
        Planes => indices_of_block(extent.planes(), [4, 6]),
    }
}

fn indices_of_block(ranges: [Range<usize>; 3], [all_rows, all_columns]: [usize; 2]) -> Vec<usize> {
    let [planes, rows, columns] = ranges;
    let mut indices = Vec::new();
    for plane in planes {
        for row in rows.clone() {
            for column in columns.clone() {
                indices.push((plane * all_rows + row) * all_columns + column);
            }
        }
    }
    indices
}

/// Does something with a view of a buffer.
macro_rules! with_view {
    ($buffer:expr, $shape:expr, $extent:expr, $view:ident => $with:expr) => {
        match $shape {
            Flat => {
                let $view = $buffer.slice($extent.flat())?;
                $with
            }
            Rows => {
                let [rows, columns] = $extent.rows();
                let $view = $buffer.as_matrix(6)?.tile(rows, columns)?;
                $with
            }
            Planes => {
                let [planes, rows, columns] = $extent.planes();
                let $view = $buffer.as_volume(4, 6)?.block(planes, rows, columns)?;
                $with
            }
        }
    };
}

macro_rules! with_view_mut {
    ($buffer:expr, $shape:expr, $extent:expr, $view:ident => $with:expr) => {
        match $shape {
            Flat => {
                let mut $view = $buffer.slice_mut($extent.flat())?;
                $with
            }
            Rows => {
                let [rows, columns] = $extent.rows();
                let mut whole = $buffer.as_matrix_mut(6)?;
                let mut $view = whole.tile_mut(rows, columns)?;
                $with
            }
            Planes => {
                let [planes, rows, columns] = $extent.planes();
                let mut whole = $buffer.as_volume_mut(4, 6)?;
                let mut $view = whole.block_mut(planes, rows, columns)?;
                $with
            }
        }
    };
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Device,
    Pinned,
    Ordinary,
}

const KINDS: [Kind; 3] = [Kind::Device, Kind::Pinned, Kind::Ordinary];

/// A copy that the matrix has a cell for.
#[derive(Clone, Copy, Debug)]
struct Case {
    from: (Kind, Shape),
    to: (Kind, Shape),
    extent: Extent,
}

fn cases() -> impl Iterator<Item = Case> {
    let sides = || KINDS.into_iter().flat_map(|kind| SHAPES.map(|shape| (kind, shape)));
    let pairs = sides().flat_map(move |from| sides().map(move |to| (from, to)));
    // Within ordinary memory there is nothing to do for a device.
    let pairs = pairs.filter(|(from, to)| (from.0, to.0) != (Kind::Ordinary, Kind::Ordinary));
    pairs.flat_map(|(from, to)| EXTENTS.map(|extent| Case { from, to, extent }))
}

/// What is in ordinary memory is packed, whatever shape it has on the other side.
impl Case {
    fn is_refused(&self) -> bool {
        let shaped = |(kind, shape)| kind != Kind::Ordinary && shape != Flat;
        shaped(self.from) && shaped(self.to) && self.from.1 != self.to.1
    }

    /// Makes the copy, from and to buffers of `COUNT` elements, and gives all of the target.
    fn make<T: Pod + Debug>(&self, device: &Device, from: &[T], to: &[T]) -> Result<Vec<T>> {
        let Case { from: (_, from_shape), to: (_, to_shape), extent } = *self;
        let packed = |shape| indices(shape, extent).iter().map(|i| from[*i]).collect::<Vec<T>>();
        match (self.from.0, self.to.0) {
            (Kind::Device, Kind::Device) => {
                let (x, mut y) = (device_buffer(device, from), device_buffer(device, to));
                self.counted(device, || {
                    with_view!(x, from_shape, extent, source => {
                        with_view_mut!(y, to_shape, extent, target => {
                            target.copy_from(&source).map(drop)
                        })
                    })
                })?;
                Ok(elements(&y))
            }
            (Kind::Device, Kind::Pinned) => {
                let (x, mut y) = (device_buffer(device, from), pinned_buffer(device, to));
                self.counted(device, || {
                    with_view!(x, from_shape, extent, source => {
                        with_view_mut!(y, to_shape, extent, target => {
                            source.copy_to(&mut target).map(drop)
                        })
                    })
                })?;
                pinned_elements(&y)
            }
            (Kind::Pinned, Kind::Device) => {
                let (x, mut y) = (pinned_buffer(device, from), device_buffer(device, to));
                self.counted(device, || {
                    with_view!(x, from_shape, extent, source => {
                        with_view_mut!(y, to_shape, extent, target => {
                            target.copy_from(&source).map(drop)
                        })
                    })
                })?;
                Ok(elements(&y))
            }
            (Kind::Pinned, Kind::Pinned) => {
                let (x, mut y) = (pinned_buffer(device, from), pinned_buffer(device, to));
                with_view!(x, from_shape, extent, source => {
                    with_view_mut!(y, to_shape, extent, target => {
                        wait(target.copy_from_host(&source))?
                    })
                });
                pinned_elements(&y)
            }
            (Kind::Ordinary, Kind::Device) => {
                let (x, mut y) =
                    (device_buffer(device, &packed(from_shape)), device_buffer(device, to));
                with_view_mut!(y, to_shape, extent, target => target.copy_from(&x)?);
                Ok(elements(&y))
            }
            (Kind::Device, Kind::Ordinary) => {
                let x = device_buffer(device, from);
                let out = match from_shape {
                    Flat => x.slice(extent.flat())?.to_vec(),
                    Rows => {
                        let [rows, columns] = extent.rows();
                        x.as_matrix(6)?.tile(rows, columns)?.to_vec()
                    }
                    Planes => {
                        let [planes, rows, columns] = extent.planes();
                        let block = x.as_volume(4, 6)?.block(planes, rows, columns)?;
                        let mut out = device.alloc_host(extent.flat().len())?;
                        block.copy_to(&mut out)?;
                        return Ok(with_packed(to, to_shape, extent, &pinned_elements(&out)?));
                    }
                };
                step_through(device);
                Ok(with_packed(to, to_shape, extent, &wait(out)?))
            }
            (Kind::Ordinary, Kind::Pinned) => {
                let (values, mut y) = (packed(from_shape), pinned_buffer(device, to));
                let mut values = values.iter();
                let mut next = |x: &mut T| *x = *values.next().expect("as many");
                match to_shape {
                    Flat => y.slice_mut(extent.flat())?.try_write()?.iter_mut().for_each(next),
                    Rows => {
                        let [rows, columns] = extent.rows();
                        let mut matrix = y.as_matrix_mut(6)?;
                        let mut tile = matrix.tile_mut(rows, columns)?;
                        tile.try_write()?.iter_rows_mut().flatten().for_each(next);
                    }
                    Planes => {
                        let [planes, rows, columns] = extent.planes();
                        let mut volume = y.as_volume_mut(4, 6)?;
                        let mut block = volume.block_mut(planes, rows, columns)?;
                        for plane in 0..block.planes() {
                            let mut plane = block.plane_mut(plane)?;
                            plane.try_write()?.iter_rows_mut().flatten().for_each(&mut next);
                        }
                    }
                }
                pinned_elements(&y)
            }
            (Kind::Pinned, Kind::Ordinary) => {
                let x = pinned_buffer(device, from);
                let out = match from_shape {
                    Flat => x.slice(extent.flat())?.try_read()?.to_vec(),
                    Rows => {
                        let [rows, columns] = extent.rows();
                        let tile = x.as_matrix(6)?.tile(rows, columns)?.try_read()?;
                        tile.iter_rows().flatten().copied().collect()
                    }
                    Planes => {
                        let [planes, rows, columns] = extent.planes();
                        let block = x.as_volume(4, 6)?.block(planes, rows, columns)?;
                        let mut out = Vec::new();
                        for plane in 0..block.planes() {
                            let plane = block.plane(plane)?.try_read()?;
                            out.extend(plane.iter_rows().flatten());
                        }
                        out
                    }
                };
                Ok(with_packed(to, to_shape, extent, &out))
            }
            (Kind::Ordinary, Kind::Ordinary) => unreachable!("no case"),
        }
    }

    /// A copy that the device makes: in one call, or in none where there is nothing to copy.
    fn counted(&self, device: &Device, copy: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = device.driver_calls().expect("counted");
        copy()?;
        let calls = device.driver_calls().expect("counted").since(&before);
        assert_eq!(calls.copies, u64::from(self.extent != Nothing), "{self:?}");
        Ok(())
    }
}

/// `into`, with these where a view of it is.
fn with_packed<T: Pod>(into: &[T], shape: Shape, extent: Extent, packed: &[T]) -> Vec<T> {
    let mut into = into.to_vec();
    let places = indices(shape, extent);
    assert_eq!(places.len(), packed.len());
    for (place, value) in places.into_iter().zip(packed) {
        into[place] = *value;
    }
    into
}

fn pinned_elements<T: Pod>(buffer: &HostBuffer<T>) -> Result<Vec<T>> {
    step_through(&buffer.device());
    Ok(wait(buffer.read())?.to_vec())
}

fn the_matrix_of<T: Pod + Debug>() {
    for device in devices() {
        let (from, to) = (values::<T>(COUNT, 1), values::<T>(COUNT, 101));
        for case in cases() {
            let copied = case.make(&device, &from, &to);
            if case.is_refused() {
                let refused = matches!(copied, Err(Error::ShapeMismatch { .. }));
                assert!(refused, "{case:?}: {copied:?}");
                continue;
            }
            let copied = copied.unwrap_or_else(|error| panic!("{case:?}: {error}"));
            let places = indices(case.from.1, case.extent);
            let moved: Vec<T> = places.into_iter().map(|place| from[place]).collect();
            let expected = with_packed(&to, case.to.1, case.extent, &moved);
            assert_eq!(bytes_of(&copied), bytes_of(&expected), "{case:?}");
        }
        if let Some(sim) = device.simulator() {
            assert_eq!(sim.violations(), []);
        }
    }
}

#[test]
fn every_copy_of_the_matrix_moves_what_a_loop_does_of_bytes() {
    the_matrix_of::<u8>();
}

#[test]
fn every_copy_of_the_matrix_moves_what_a_loop_does_of_words() {
    the_matrix_of::<f32>();
    the_matrix_of::<u64>();
}

#[test]
fn every_copy_of_the_matrix_moves_what_a_loop_does_of_halves() {
    the_matrix_of::<f16>();
    the_matrix_of::<bf16>();
}

#[test]
fn every_copy_of_the_matrix_moves_what_a_loop_does_of_elements_that_are_not_aligned() {
    the_matrix_of::<[u8; 3]>();
    the_matrix_of::<Packed>();
}

#[test]
fn every_copy_of_the_matrix_moves_what_a_loop_does_of_wide_elements() {
    the_matrix_of::<[u32; 3]>();
    the_matrix_of::<u128>();
}

#[test]
fn a_column_of_256_rows_is_one_call_of_the_driver() -> Result<()> {
    let device = own_device();
    let (x, mut out) = (device.zeros::<f32>(256 * 33)?, device.alloc_host::<f32>(256)?);
    let before = device.driver_calls().expect("counted").copies;
    let done = x.as_matrix(33)?.column(7)?.copy_to(&mut out)?;
    assert_eq!(device.driver_calls().expect("counted").copies - before, 1);
    wait(done)?;
    Ok(())
}

#[test]
fn a_matrix_is_a_volume_of_one_plane() -> Result<()> {
    let device = any_device();
    let (x, mut y) = (device_buffer(&device, &values::<u32>(24, 1)), device.zeros::<u32>(24)?);
    y.as_volume_mut(4, 6)?.copy_from(&x.as_matrix(6)?)?;
    assert_eq!(elements(&y), elements(&x));
    y.fill(0)?;
    x.as_volume(2, 3)?.plane(3)?.copy_to(&mut y.as_volume_mut(2, 3)?.block_mut(1..2, .., ..)?)?;
    assert_eq!(elements(&y)[6..12], elements(&x)[18..]);
    Ok(())
}

#[test]
fn halves_are_elements_of_everything() -> Result<()> {
    let device = any_device();
    let halves: Vec<f16> = (0..64).map(|i| f16::from_f32(i as f32 / 8.0)).collect();
    let (x, mut y) = (device_buffer(&device, &halves), device.alloc::<f16>(64)?);
    copy_f16(&x, &mut y)?;
    y.slice_mut(..8)?.fill(f16::from_f32(1.5))?;
    let expected = [&[f16::from_f32(1.5); 8][..], &halves[8..]].concat();
    assert_eq!(elements(&y), expected);
    let brains: Vec<bf16> = (0..64).map(|i| bf16::from_f32(i as f32)).collect();
    let (x, mut y) = (device_buffer(&device, &brains), device.alloc::<bf16>(64)?);
    copy_bf16(&x, &mut y)?;
    assert_eq!(elements(&y), brains);
    Ok(())
}

#[test]
fn elements_without_bytes_are_counted_and_nothing_is_done_for_them() -> Result<()> {
    let device = own_device();
    let before = device.driver_calls().expect("counted");
    let (mut x, y) = (device.alloc::<()>(12)?, device_buffer(&device, &[(); 12]));
    let mut host = device.alloc_host::<()>(12)?;
    x.fill(())?;
    x.copy_from(&y)?;
    x.copy_within(0..8, 2)?;
    x.as_matrix_mut(4)?.column_mut(1)?.copy_from(&y.as_matrix(4)?.column(3)?)?;
    let mut volume = x.as_volume_mut(2, 3)?;
    volume.block_mut(.., 1.., ..2)?.copy_from(&y.as_volume(2, 3)?.block(.., ..1, 1..)?)?;
    host.copy_from(&y)?;
    host.as_volume_mut(2, 3)?.copy_from(&y.as_volume(2, 3)?)?;
    wait(host.copy_from_host(&device.alloc_host(12)?))?;
    assert_eq!(wait(host.write())?.len(), 12);
    assert_eq!((wait(x.to_vec())?.len(), wait(host.read())?.len()), (12, 12));
    assert!(matches!(x.copy_from(&y.slice(..3)?), Err(Error::LengthMismatch { .. })));
    assert!(matches!(x.slice(..13), Err(Error::OutOfRange { .. })));
    assert_eq!(device.alloc::<[u64; 0]>(usize::MAX)?.as_matrix(5)?.rows(), usize::MAX / 5);
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!((calls.copies, calls.fills, calls.allocs, calls.host_allocs), (0, 0, 0, 0));
    Ok(())
}
