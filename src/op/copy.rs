//! Copies between device memory and pinned memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;

use super::submit::{Operand, Refusal, submit};
use crate::buffer::{
    Access, Allocation, Backing, DeviceBuffer, DevicePart, DeviceSlice, DeviceSliceMut, DeviceTile,
    DeviceTileMut, DeviceVolume, DeviceVolumeMut, Extent, HostBuffer, HostPart, HostSlice,
    HostSliceMut, HostTile, HostTileMut, HostVolume, HostVolumeMut, Memory, Mode, Place, Planes,
    SharedBuffer, Steps, for_device_slices, for_device_slices_mut, for_device_tiles,
    for_device_tiles_mut, for_device_volumes, for_device_volumes_mut, for_host_slices,
    for_host_slices_mut, for_host_tiles, for_host_tiles_mut, for_host_volumes,
    for_host_volumes_mut,
};
use crate::device::DeviceCore;
use crate::driver::{
    CopyMemory, CopyRows, CopySide, Driver, DriverError, DriverResult, StreamHandle,
};
use crate::error::{Error, Result};
use crate::reactor::{Completion, OpKey, Operation};

/// What a copy reads: a [`DeviceBuffer`] or a [`HostBuffer`], a view or a part of one, or an `Arc` of
/// any of these.
#[diagnostic::on_unimplemented(
    message = "a copy cannot read `{T}`s from a `{Self}`",
    note = "a copy reads a reference to a buffer, or to a view or part of one",
    note = "from a `Vec` or a slice, `device.upload(…).await?` makes a buffer; to copy into memory that is \
            there, write the elements to a `HostBuffer` first"
)]
pub trait CopySource<T>: sealed::Source<T> {}

/// What a copy writes: a [`DeviceBuffer`] or a [`HostBuffer`], or a mutable view or a part of one.
#[diagnostic::on_unimplemented(
    message = "a copy cannot write `{T}`s to a `{Self}`",
    note = "a copy writes a `&mut` of a buffer, or of a mutable view or part of one",
    note = "for a `Vec`, `to_vec().await?` of the device memory makes one"
)]
pub trait CopyTarget<T>: sealed::Target<T> {}

/// Device memory of any shape: one side of each copy is that.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` is not device memory, as one side of a copy has to be",
    note = "between two pinned buffers, copy on the host: `b.copy_from_host(&a).await?`"
)]
pub trait OnDevice: sealed::OnDevice {}

mod sealed {
    use super::Side;

    pub trait Source<T> {
        #[doc(hidden)]
        fn source(&self) -> Side<'_>;
    }

    pub trait Target<T> {
        #[doc(hidden)]
        fn target(&mut self) -> Side<'_>;
    }

    pub trait OnDevice {}
}

/// One end of a copy.
#[derive(Debug)]
#[doc(hidden)]
pub struct Side<'a> {
    /// Of the first element; `None` where there are no bytes.
    first: Option<CopyMemory>,
    memory: Memory,
    core: &'a Arc<DeviceCore>,
    shape: Planes,
    /// Bytes of an element.
    size: usize,
    /// In rows or planes, which are copied to ones of the same shape only.
    is_shaped: bool,
    /// One for each region, all of the same memory.
    touched: SmallVec<[Operand<'a>; 1]>,
}

impl<'a> Side<'a> {
    fn new<M: Backing, S: Extent + Into<Planes>>(
        place: Place<'a, M, S>,
        mode: Mode,
        is_shaped: bool,
    ) -> Self {
        let tracked = place.tracked();
        let argument = if mode == Mode::Read { "source" } else { "target" };
        let touched = place
            .regions()
            .map(|region| Operand::new(argument, (tracked, Access { region, mode })));
        Side {
            first: place.address(),
            memory: M::KIND,
            core: place.core(),
            shape: place.shape().into(),
            size: place.size(),
            is_shaped,
            touched: touched.collect(),
        }
    }
}

macro_rules! copy_source {
    ($is_shaped:literal; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> CopySource<T> for $type {}
        impl<$($generics)*> sealed::Source<T> for $type {
            fn source(&self) -> Side<'_> {
                Side::new(self.place(), Mode::Read, $is_shaped)
            }
        }
    )+};
}

macro_rules! copy_target {
    ($is_shaped:literal; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> CopyTarget<T> for $type {}
        impl<$($generics)*> sealed::Target<T> for $type {
            fn target(&mut self) -> Side<'_> {
                Side::new(self.place(), Mode::Overwrite, $is_shaped)
            }
        }
    )+};
}

impl<T, S: CopySource<T>> CopySource<T> for Arc<S> {}
impl<T, S: CopySource<T>> sealed::Source<T> for Arc<S> {
    fn source(&self) -> Side<'_> {
        S::source(self)
    }
}

impl<S: OnDevice> OnDevice for Arc<S> {}
impl<S: OnDevice> sealed::OnDevice for Arc<S> {}

macro_rules! copy_to {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> OnDevice for $type {}
        impl<$($generics)*> sealed::OnDevice for $type {}
        impl<$($generics)*> $type {
            /// Copies all of it into `target`, on the current stream of its device
            /// (`cuMemcpyDtoHAsync`, `cuMemcpyDtoDAsync`; `cuMemcpy2DAsync` where one side is in rows, `cuMemcpy3DAsync` where one
            /// is in planes): one call, whatever the shapes.
            ///
            /// # Errors
            ///
            /// As [`DeviceBuffer::copy_from`].
            pub fn copy_to<D: CopyTarget<T>>(&self, target: &mut D) -> Result<Completion> {
                copy(&sealed::Source::<T>::source(self), &target.target())
            }
        }
    )+};
}

macro_rules! copy_from {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies all of `source` into it, on the current stream of its device
            /// (`cuMemcpyHtoDAsync`, `cuMemcpyDtoDAsync`; `cuMemcpy2DAsync` where one side is in rows, `cuMemcpy3DAsync` where one
            /// is in planes): one call, whatever the shapes.
            ///
            /// Enqueued when it returns; ordered after what writes `source` and after everything that
            /// touches what is written. Both may be dropped at once.
            ///
            /// # Errors
            ///
            /// [`LengthMismatch`](Error::LengthMismatch), or [`ShapeMismatch`](Error::ShapeMismatch)
            /// between two matrices or volumes; [`Uninitialised`](Error::Uninitialised),
            /// [`WrongDevice`](Error::WrongDevice), [`RowsTooFarApart`](Error::RowsTooFarApart),
            /// [`QueueFull`](Error::QueueFull), the driver refused, or the device is lost. Nothing is
            /// enqueued then.
            pub fn copy_from<S: CopySource<T>>(&mut self, source: &S) -> Result<Completion> {
                copy(&source.source(), &sealed::Target::<T>::target(self))
            }
        }
    )+};
}

macro_rules! copy_to_device {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies all of it into device memory: [`DeviceBuffer::copy_from`] the other way round.
            ///
            /// # Errors
            ///
            /// As [`DeviceBuffer::copy_from`].
            pub fn copy_to<D>(&self, target: &mut D) -> Result<Completion>
            where
                D: CopyTarget<T> + OnDevice,
            {
                copy(&sealed::Source::<T>::source(self), &target.target())
            }
        }
    )+};
}

macro_rules! copy_from_device {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies all of `source`, which is device memory, into it: [`DeviceBuffer::copy_to`] the
            /// other way round.
            ///
            /// # Errors
            ///
            /// As [`DeviceBuffer::copy_from`].
            pub fn copy_from<S>(&mut self, source: &S) -> Result<Completion>
            where
                S: CopySource<T> + OnDevice,
            {
                copy(&source.source(), &sealed::Target::<T>::target(self))
            }
        }
    )+};
}

for_device_slices!(copy_source! { false; });
for_device_tiles!(copy_source! { true; });
for_device_volumes!(copy_source! { true; });
for_host_slices!(copy_source! { false; });
for_host_tiles!(copy_source! { true; });
for_host_volumes!(copy_source! { true; });
for_device_slices_mut!(copy_target! { false; });
for_device_tiles_mut!(copy_target! { true; });
for_device_volumes_mut!(copy_target! { true; });
for_host_slices_mut!(copy_target! { false; });
for_host_tiles_mut!(copy_target! { true; });
for_host_volumes_mut!(copy_target! { true; });
for_device_slices!(copy_to! {});
for_device_tiles!(copy_to! {});
for_device_volumes!(copy_to! {});
for_device_slices_mut!(copy_from! {});
for_device_tiles_mut!(copy_from! {});
for_device_volumes_mut!(copy_from! {});
for_host_slices!(copy_to_device! {});
for_host_tiles!(copy_to_device! {});
for_host_volumes!(copy_to_device! {});
for_host_slices_mut!(copy_from_device! {});
for_host_tiles_mut!(copy_from_device! {});
for_host_volumes_mut!(copy_from_device! {});

/// Refuses rows so many bytes apart that one call of the driver does not take them.
pub(super) fn check_pitch(operation: &'static str, pitch: usize) -> Result<()> {
    const MOST: usize = (1 << 31) - 1;
    match pitch {
        ..=MOST => Ok(()),
        _ => Err(Error::RowsTooFarApart { operation, pitch, most: MOST }),
    }
}

const WITHIN: Operation = Operation::on_device("copying on the device");

/// What the copy is called, and a number for its direction.
fn operation_of(source: &Side<'_>, target: &Side<'_>) -> (&'static Operation, u32) {
    const UP: Operation = Operation::transfer("copying to the device");
    const DOWN: Operation = Operation::transfer("copying to the host");
    match (source.memory, target.memory) {
        (Memory::Pinned, _) => (&UP, 1),
        (_, Memory::Pinned) => (&DOWN, 2),
        _ => (&WITHIN, 3),
    }
}

/// Both shapes, if what is of the one fits the other; in one piece, it takes the other's shape.
fn shapes_of(operation: &'static str, source: &Side<'_>, target: &Side<'_>) -> Result<[Planes; 2]> {
    let (from, to) = (source.shape, target.shape);
    let (source_shape, destination_shape) = (from.sides(), to.sides());
    if source.is_shaped && target.is_shaped && source_shape != destination_shape {
        return Err(Error::ShapeMismatch { operation, source_shape, destination_shape });
    }
    let (source_len, destination_len) = (from.len(), to.len());
    if source_len != destination_len {
        return Err(Error::LengthMismatch { operation, source_len, destination_len });
    }
    Ok(match (source.is_shaped, target.is_shaped) {
        (true, false) => [from, to.packed_as(&from)],
        (false, true) => [from.packed_as(&to), to],
        (true, true) | (false, false) => [from, to],
    })
}

/// Copies what is in one piece to where it overlaps itself, through `scratch`: one operation of two calls. All
/// three have as many bytes, and the first two are of memory that is borrowed exclusively.
pub(super) fn copy_through(
    source: Place<'_, Allocation>,
    target: Place<'_, Allocation>,
    scratch: Place<'_, Allocation>,
) -> Result<Completion> {
    let (from, to, through, bytes) = (source.ptr(), target.ptr(), scratch.ptr(), scratch.bytes());
    if bytes == 0 {
        return Ok(Completion::ready());
    }
    let operands = [
        Operand::new("self", source.access(Mode::Read)),
        Operand::new("scratch", scratch.access(Mode::Overwrite)),
        Operand::new("self", target.access(Mode::Overwrite)),
    ];
    let op = OpKey { operation: &WITHIN, key: bytes as u32 ^ 3 << 30 };
    submit(source.core(), op, &operands, 2, |driver, stream| {
        // SAFETY: each is of a buffer, which is freed after this operation in stream order, and has the bytes.
        // `submit` has ordered it with every access that conflicts. The scratch memory is another buffer.
        unsafe { driver.copy_d2d(through, from, bytes, stream) }?;
        // SAFETY: as above; behind the first in stream order.
        let copied = unsafe { driver.copy_d2d(to, through, bytes, stream) };
        copied.map_err(|error| Refusal::Rest { error, made: 1 })
    })
}

/// Both sides have elements of the same type.
fn copy<'a>(source: &Side<'a>, target: &Side<'a>) -> Result<Completion> {
    let (operation, direction) = operation_of(source, target);
    let [from, to] = shapes_of(operation.name(), source, target)?;
    let bytes = from.len() * source.size;
    let (Some(src), Some(dst), 1..) = (source.first, target.first, bytes) else {
        return Ok(Completion::ready());
    };
    let core = match target.memory {
        Memory::Device => target.core,
        Memory::Pinned => source.core,
    };
    let Steps { row, steps } = Steps::of([&from, &to], source.size);
    let rows = rows_of(row, &steps, src, dst);
    if let Some(rows) = &rows {
        check_pitch(operation.name(), rows.src.pitch.max(rows.dst.pitch))?;
    }
    let operands: SmallVec<[_; 2]> = source.touched.iter().chain(&target.touched).collect();
    // Equal sizes in one direction and form are expected to take equally long.
    let key = bytes as u32 ^ (direction | (steps.len().min(1) as u32) << 2) << 28;
    submit(core, OpKey { operation, key }, &operands, 1, |driver, stream| {
        // SAFETY: both sides are elements of buffers, held alive by their owners until this operation is
        // done (device memory is freed after it in stream order, pinned memory is not reused before it
        // is finished), and `submit` has ordered it with every access that conflicts. No byte is of
        // both: the target is borrowed exclusively, or whoever made the sides saw to it.
        let copied = unsafe {
            match &rows {
                Some(rows) => driver.copy_rows(rows, stream),
                None => copy_bytes(driver, dst, src, bytes, stream),
            }
        };
        Ok(copied?)
    })
}

/// A copy that is not in one piece on both sides.
fn rows_of(
    row: usize,
    steps: &[(usize, [usize; 2])],
    src: CopyMemory,
    dst: CopyMemory,
) -> Option<CopyRows> {
    let (&(rows, pitches), more) = steps.split_first()?;
    let (planes, plane_pitches) = more.first().copied().unwrap_or((1, [0; 2]));
    let side = |memory, side: usize| CopySide {
        memory,
        pitch: pitches[side],
        plane_pitch: plane_pitches[side],
    };
    Some(CopyRows { src: side(src, 0), dst: side(dst, 1), row, rows, planes })
}

/// # Safety
///
/// As of [`Driver::copy_h2d`] and its like.
unsafe fn copy_bytes(
    driver: &dyn Driver,
    dst: CopyMemory,
    src: CopyMemory,
    bytes: usize,
    stream: &StreamHandle,
) -> DriverResult<()> {
    use CopyMemory::{Device, Host};
    // SAFETY: as the caller says.
    unsafe {
        match (src, dst) {
            (Host(src), Device(dst)) => driver.copy_h2d(dst, src, bytes, stream),
            (Device(src), Host(dst)) => driver.copy_d2h(dst, src, bytes, stream),
            (Device(src), Device(dst)) => driver.copy_d2d(dst, src, bytes, stream),
            // No method takes two sides of pinned memory. One that did would be refused: never told of a
            // copy that is not made.
            (Host(_), Host(_)) => {
                Err(DriverError::new("cuMemcpyAsync", DriverError::INVALID_VALUE))
            }
        }
    }
}
