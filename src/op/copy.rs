//! Copies between device memory and pinned memory.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use super::submit::{Operand, submit};
use crate::buffer::{Access, DeviceBuffer, HostBuffer, Mode, Tracked};
use crate::device::DeviceCore;
use crate::driver::DevicePtr;
use crate::error::{Error, Result};
use crate::reactor::{Completion, OpKey, Operation};

/// What a copy reads: a [`DeviceBuffer`] or a [`HostBuffer`].
pub trait CopySource<T>: sealed::Source<T> {}

/// What a copy writes: a [`DeviceBuffer`] or a [`HostBuffer`].
pub trait CopyTarget<T>: sealed::Target<T> {}

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
}

/// One end of a copy.
#[derive(Debug)]
#[doc(hidden)]
pub struct Side<'a> {
    memory: Address,
    touched: (Option<&'a Tracked>, Access),
    core: &'a Arc<DeviceCore>,
    len: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Address {
    Device(DevicePtr),
    Pinned(NonNull<u8>),
}

impl<T: Pod> sealed::Source<T> for DeviceBuffer<T> {
    fn source(&self) -> Side<'_> {
        let view = self.as_slice();
        Side {
            memory: Address::Device(view.ptr()),
            touched: view.access(Mode::Read),
            core: view.core(),
            len: view.len(),
            bytes: view.bytes(),
        }
    }
}

impl<T: Pod> sealed::Target<T> for DeviceBuffer<T> {
    fn target(&mut self) -> Side<'_> {
        let view = self.as_slice_mut();
        Side {
            memory: Address::Device(view.ptr()),
            touched: view.access(Mode::Overwrite),
            core: view.core(),
            len: view.len(),
            bytes: view.bytes(),
        }
    }
}

impl<T: Pod> sealed::Source<T> for HostBuffer<T> {
    fn source(&self) -> Side<'_> {
        pinned_side(self, Mode::Read)
    }
}

impl<T: Pod> sealed::Target<T> for HostBuffer<T> {
    fn target(&mut self) -> Side<'_> {
        pinned_side(self, Mode::Overwrite)
    }
}

fn pinned_side<T: Pod>(buffer: &HostBuffer<T>, mode: Mode) -> Side<'_> {
    Side {
        memory: Address::Pinned(buffer.ptr()),
        touched: (Some(buffer.tracked()), buffer.access(mode)),
        core: buffer.core(),
        len: buffer.len(),
        bytes: buffer.bytes(),
    }
}

impl<T: Pod> CopySource<T> for DeviceBuffer<T> {}
impl<T: Pod> CopySource<T> for HostBuffer<T> {}
impl<T: Pod> CopyTarget<T> for DeviceBuffer<T> {}
impl<T: Pod> CopyTarget<T> for HostBuffer<T> {}

impl<T: Pod> DeviceBuffer<T> {
    /// Copies all of `source` into this buffer, on the current stream of this buffer's device
    /// (`cuMemcpyHtoDAsync`, `cuMemcpyDtoDAsync`).
    ///
    /// Enqueued when it returns; ordered after what writes `source` and after everything that
    /// touches this buffer. Both may be dropped at once.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](Error::LengthMismatch), [`Uninitialised`](Error::Uninitialised),
    /// [`WrongDevice`](Error::WrongDevice), [`QueueFull`](Error::QueueFull), the driver refused, or
    /// the device is lost. Nothing is enqueued then.
    pub fn copy_from<S: CopySource<T>>(&mut self, source: &S) -> Result<Completion> {
        copy(&source.source(), &sealed::Target::target(self))
    }

    /// Copies all of this buffer into `target`, on the current stream of this buffer's device
    /// (`cuMemcpyDtoHAsync`, `cuMemcpyDtoDAsync`).
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from`].
    pub fn copy_to<D: CopyTarget<T>>(&self, target: &mut D) -> Result<Completion> {
        copy(&sealed::Source::source(self), &target.target())
    }
}

impl<T: Pod> HostBuffer<T> {
    /// Copies all of `source` into this buffer: [`DeviceBuffer::copy_to`] the other way round.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from`].
    pub fn copy_from(&mut self, source: &DeviceBuffer<T>) -> Result<Completion> {
        source.copy_to(self)
    }

    /// Copies all of this buffer into `target`: [`DeviceBuffer::copy_from`] the other way round.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from`].
    pub fn copy_to(&self, target: &mut DeviceBuffer<T>) -> Result<Completion> {
        target.copy_from(self)
    }
}

fn copy(source: &Side<'_>, target: &Side<'_>) -> Result<Completion> {
    const UP: Operation = Operation::transfer("copying to the device");
    const DOWN: Operation = Operation::transfer("copying to the host");
    const WITHIN: Operation = Operation::on_device("copying on the device");
    let (operation, direction, core): (&'static Operation, _, _) =
        match (source.memory, target.memory) {
            (Address::Pinned(_), _) => (&UP, 1, target.core),
            (_, Address::Pinned(_)) => (&DOWN, 2, source.core),
            _ => (&WITHIN, 3, target.core),
        };
    if source.len != target.len {
        return Err(Error::LengthMismatch {
            operation: operation.name(),
            source_len: source.len,
            destination_len: target.len,
        });
    }
    if source.bytes == 0 {
        return Ok(Completion::ready());
    }
    let operands = [
        Operand::new("source", source.touched.clone()),
        Operand::new("target", target.touched.clone()),
    ];
    // Equal sizes in one direction are expected to take equally long.
    let key = source.bytes as u32 ^ direction << 28;
    submit(core, OpKey { operation, key }, &operands, 1, |driver, stream| {
        let bytes = source.bytes;
        // SAFETY: both ranges are whole buffers of `bytes` bytes, held alive by their owners until
        // this operation is done (device memory is freed after it in stream order, pinned memory
        // is not reused before it is finished), and `submit` has ordered it with every access that
        // conflicts. Source and target are not the same buffer: one is borrowed exclusively.
        let copied = unsafe {
            match (source.memory, target.memory) {
                (Address::Pinned(src), Address::Device(dst)) => {
                    driver.copy_h2d(dst, src, bytes, stream)
                }
                (Address::Device(src), Address::Pinned(dst)) => {
                    driver.copy_d2h(dst, src, bytes, stream)
                }
                (Address::Device(src), Address::Device(dst)) => {
                    driver.copy_d2d(dst, src, bytes, stream)
                }
                // No method takes two pinned buffers.
                (Address::Pinned(_), Address::Pinned(_)) => Ok(()),
            }
        };
        Ok(copied?)
    })
}
