//! Copies from one place of a buffer to another.

use std::ops::RangeBounds;

use bytemuck::Pod;

use super::copy::copy_through;
use crate::buffer::{DeviceBuffer, DevicePart, DeviceSliceMut, Extent, for_device_slices_mut};
use crate::error::{Error, Result};
use crate::reactor::Completion;

macro_rules! copy_within {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies the elements of a range to where `dest` is the first, as
            /// [`slice::copy_within`] does: the two may overlap.
            ///
            /// On the current stream of its device, enqueued when it returns. One `cuMemcpyDtoDAsync`
            /// where they do not overlap. Where they do, which CUDA leaves undefined, the elements go
            /// through device memory that is allocated for them, and freed after: one operation of two copies.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](Error::OutOfRange), of the range or of where it goes;
            /// [`Uninitialised`](Error::Uninitialised), [`QueueFull`](Error::QueueFull), the driver
            /// refused, or the device is lost; where they overlap, as [`Device::alloc`](crate::Device::alloc)
            /// as well. The elements are as they were then, except that where they overlap and the driver refuses
            /// the second copy, those at `dest` are undefined ([`PartlyRefused`](Error::PartlyRefused)).
            #[track_caller]
            pub fn copy_within(
                &mut self,
                src: impl RangeBounds<usize>,
                dest: usize,
            ) -> Result<Completion> {
                copy_within(self.as_slice_mut(), src, dest)
            }
        }
    )+};
}

for_device_slices_mut!(copy_within! {});

#[track_caller]
fn copy_within<T: Pod>(
    mut all: DeviceSliceMut<'_, T>,
    src: impl RangeBounds<usize>,
    dest: usize,
) -> Result<Completion> {
    let from = all.slice(src)?.place().shape();
    let (start, len) = (from.start() - all.place().shape().start(), from.len());
    let beyond = || Error::OutOfRange { what: "elements", range: dest..usize::MAX, len: all.len() };
    let end = dest.checked_add(len).ok_or_else(beyond)?;
    all.slice(dest..end)?;
    if start + len <= dest {
        let (before, mut after) = all.split_at_mut(dest)?;
        return after.slice_mut(..len)?.copy_from(&before.slice(start..start + len)?);
    }
    if end <= start {
        let (mut before, after) = all.split_at_mut(start)?;
        return before.slice_mut(dest..end)?.copy_from(&after.slice(..len)?);
    }
    let scratch = DeviceBuffer::<T>::unwritten(all.place().core(), len)?;
    let (source, target) = (all.slice(start..start + len)?, all.slice(dest..end)?);
    copy_through(source.place(), target.place(), scratch.place())
}
