//! Typed page-locked host memory.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;

use super::guards::{HostMut, HostRef, Read, Write};
use super::hazard::{Access, Mode};
use super::pod::byte_len;
use super::region::Region;
use super::tracked::{Memory, Tracked};
use crate::device::{Device, DeviceCore, PinnedBlock};
use crate::driver::Fact;
use crate::error::{Error, Result};
use crate::reactor::{Completion, block_on_thread};

/// `len` elements of `T` in page-locked host memory, which the device copies to and from while
/// other work goes on.
///
/// The bytes are reached only through guards, which exist only while no operation touches them in
/// a way that conflicts: [`read`](HostBuffer::read) and [`write`](HostBuffer::write) await that,
/// [`try_read`](HostBuffer::try_read) and [`try_write`](HostBuffer::try_write) ask, and the
/// `blocking_` ones wait in the thread. Copies are ordered with each other as those of
/// [`DeviceBuffer`](crate::DeviceBuffer)s are.
///
/// While a guard is there, the compiler keeps operations away that conflict with it:
///
/// ```compile_fail,E0502
/// # async fn f(y: headwater::DeviceBuffer<f32>, mut out: headwater::HostBuffer<f32>) {
/// let bytes = out.read().await.unwrap();
/// y.copy_to(&mut out).unwrap(); // would write what `bytes` reads
/// println!("{}", bytes[0]);
/// # }
/// ```
///
/// ```compile_fail,E0502
/// # async fn f(mut y: headwater::DeviceBuffer<f32>, mut out: headwater::HostBuffer<f32>) {
/// let mut bytes = out.write().await.unwrap();
/// y.copy_from(&out).unwrap(); // would read what `bytes` writes
/// bytes[0] = 1.0;
/// # }
/// ```
///
/// # Drop
///
/// Never blocks and frees nothing: the memory goes back to the device's pool, for reuse once the
/// device is done with it.
pub struct HostBuffer<T> {
    /// `None` only where there are no bytes, and while being dropped.
    block: Option<PinnedBlock>,
    core: Arc<DeviceCore>,
    tracked: Tracked,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> HostBuffer<T> {
    /// Memory with nothing in it that counts.
    #[track_caller]
    pub(crate) fn unwritten(core: &Arc<DeviceCore>, len: usize) -> Result<Self> {
        let bytes = byte_len::<T>(len)?;
        core.reactor().check()?;
        let block = match bytes {
            0 => None,
            _ => {
                let block = core.pinned().take(core, bytes)?;
                let made_at = Location::caller();
                core.driver().tell(Fact::HostMemory { ptr: block.ptr(), bytes, made_at });
                Some(block)
            }
        };
        let tracked = Tracked::new(core.number(), Memory::Pinned, bytes, None);
        let buffer = HostBuffer { block, core: core.clone(), tracked, len, element: PhantomData };
        core.raise_race();
        Ok(buffer)
    }

    /// Memory with a copy of `elements` in it.
    #[track_caller]
    pub(crate) fn from_slice(core: &Arc<DeviceCore>, elements: &[T]) -> Result<Self> {
        let buffer = Self::unwritten(core, elements.len())?;
        buffer.tell_of_access(true);
        // SAFETY: the block has room for as many elements, nobody else knows of it yet, and no
        // operation touches a block that the pool hands out: its last users were seen to finish, and
        // earlier ones as in `readable`.
        unsafe {
            let first = buffer.first().as_ptr();
            std::ptr::copy_nonoverlapping(elements.as_ptr(), first, elements.len());
        }
        buffer.tracked.lock().written_by_host();
        Ok(buffer)
    }

    /// Awaits the last operation that writes the buffer, then gives its elements to read.
    ///
    /// Operations that only read it go on meanwhile, and those enqueued later on the same stream
    /// are not waited for. See [`Read`] for errors and cancel safety.
    pub fn read(&self) -> Read<'_, T> {
        Read::new(self)
    }

    /// Awaits every operation that touches the buffer, then gives its elements to change. Where
    /// nothing has written any of them yet, they are zero. See [`Write`] for errors and cancel
    /// safety.
    pub fn write(&mut self) -> Write<'_, T> {
        Write::new(self)
    }

    /// The elements, if no operation still writes them, by
    /// [`is_finished`](crate::Completion::is_finished).
    ///
    /// # Errors
    ///
    /// [`Error::InFlight`]; [`Error::Uninitialised`]; the device is lost.
    pub fn try_read(&self) -> Result<HostRef<'_, T>> {
        self.all_finished(Mode::Read)?;
        self.readable()
    }

    /// The elements to change, if no operation still touches them. Where nothing has written any of
    /// them yet, they are zero.
    ///
    /// # Errors
    ///
    /// [`Error::InFlight`]; the device is lost.
    pub fn try_write(&mut self) -> Result<HostMut<'_, T>> {
        self.all_finished(Mode::Overwrite)?;
        Ok(self.writable())
    }

    /// As [`HostBuffer::read`], blocking the calling thread. Not for async workers.
    ///
    /// # Errors
    ///
    /// As [`Read`].
    pub fn blocking_read(&self) -> Result<HostRef<'_, T>> {
        block_on_thread(self.read())
    }

    /// As [`HostBuffer::write`], blocking the calling thread. Not for async workers.
    ///
    /// # Errors
    ///
    /// As [`Write`].
    pub fn blocking_write(&mut self) -> Result<HostMut<'_, T>> {
        block_on_thread(self.write())
    }

    /// Completions of what an access by the host has to come after.
    pub(super) fn waits(&self, mode: Mode) -> SmallVec<[Completion; 2]> {
        let mut waits = SmallVec::new();
        self.tracked.lock().conflicts(&self.access(mode), |ticket| {
            if let Some(lane) = self.core.lane(ticket.lane)
                && !lane.is_known_finished(ticket.seq)
            {
                waits.push(lane.completion(ticket.seq));
            }
        });
        waits
    }

    fn all_finished(&self, mode: Mode) -> Result<()> {
        for wait in self.waits(mode) {
            if !wait.is_finished()? {
                return Err(Error::InFlight { buffer: self.tracked.describe() });
            }
        }
        Ok(())
    }

    /// The elements, once no operation writes them.
    pub(super) fn readable(&self) -> Result<HostRef<'_, T>> {
        if let Some(range) = self.tracked.lock().undefined_in(&Region::of_bytes(0..self.bytes())) {
            let (operation, argument) = ("reading on the host", "self");
            let buffer = self.tracked.describe();
            return Err(Error::Uninitialised { operation, argument, buffer, range });
        }
        self.tell_of_access(false);
        // SAFETY: the block has room for `len` elements, is aligned for them (`byte_len`), and its
        // bytes are defined; any bytes make a `T: Pod`. The last operation that wrote each of them
        // was seen to finish (the callers' `waits`), and earlier ones came before it, by waits of
        // the device; where a simulated device loses a wait, the simulator keeps what is left from
        // the bytes (`Fact::HostAccess`, told above). None that writes can be enqueued while the
        // guard borrows `self`, since that takes `&mut self`.
        let elements = unsafe { std::slice::from_raw_parts(self.first().as_ptr(), self.len) };
        Ok(HostRef::new(elements))
    }

    /// The elements to change, once no operation touches them.
    pub(super) fn writable(&mut self) -> HostMut<'_, T> {
        self.tell_of_access(true);
        let mut hazards = self.tracked.lock();
        if hazards.undefined_in(&Region::of_bytes(0..self.bytes())).is_some() {
            // SAFETY: the block has room for as many bytes, and nothing else touches them, as
            // below. They may be anything, also another buffer's: the user is not to see those.
            unsafe { std::ptr::write_bytes(self.first().as_ptr().cast::<u8>(), 0, self.bytes()) };
        }
        hazards.written_by_host();
        drop(hazards);
        // SAFETY: as in `readable`; every operation that touched the bytes was seen to finish or came
        // before one that was, and none can be enqueued while the guard borrows `self`.
        let elements = unsafe { std::slice::from_raw_parts_mut(self.first().as_ptr(), self.len) };
        HostMut::new(elements)
    }

    fn tell_of_access(&self, writes: bool) {
        if let Some(block) = &self.block {
            let (ptr, bytes) = (block.ptr(), self.bytes());
            self.core.driver().tell(Fact::HostAccess { ptr, bytes, writes });
            self.core.raise_race();
        }
    }

    fn first(&self) -> NonNull<T> {
        self.block.as_ref().map_or(NonNull::dangling(), |block| block.ptr().cast())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    pub(crate) fn access(&self, mode: Mode) -> Access {
        Access { region: Region::of_bytes(0..self.bytes()), mode }
    }

    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.first().cast()
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.core
    }

    pub(crate) fn tracked(&self) -> &Tracked {
        &self.tracked
    }
}

impl<T> HostBuffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device whose copies the memory is made for.
    pub fn device(&self) -> Device {
        Device::from_core(self.core.clone())
    }
}

impl<T> Drop for HostBuffer<T> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let mut users = SmallVec::new();
        self.tracked.lock().users(|user| users.push(user));
        self.core.pinned().retire(&self.core, block, users);
    }
}

impl<T> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer")
            .field("number", &self.tracked.id())
            .field("type", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("device", &self.core.number())
            .finish_non_exhaustive()
    }
}
