//! From pinned memory to references, once no operation that conflicts is in flight.
//!
//! All the unsafe code about what guards of pinned memory show is here. What makes it sound:
//!
//! - *A view borrows.* A guard lives no longer than the view that it was made of, and as exclusively:
//!   while it is there, no operation that conflicts can be enqueued, since that takes a view of
//!   the same elements which the borrow excludes. Kept in `view`, `tile` and `pieces`, where exclusive
//!   views come from unsafe functions only, each call with its reason. These rely on safe code of
//!   `part` (no two parts have an element in common), of `shape` (a shape made of another lies within
//!   it; halves and the pieces of a cut have no element in common) and of `store` (a place is of a
//!   store that it borrows, and within it).
//! - *Nothing that conflicts is in flight.* [`HostAccess`] gives elements out only after it saw every
//!   conflicting operation that the record names finish. Earlier ones came before those, by waits
//!   of the device; where a simulated device loses a wait, the simulator keeps what is left from the
//!   bytes (`Fact::HostAccess`, told before).
//! - *Every byte is initialised*, by an operation, by the host, or zeroed here; any bytes make a
//!   `T: Pod`.
#![allow(unsafe_code)]

use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::guards::{HostMut, HostRef};
use super::hazard::{Access, Mode};
use super::host_buffer::HostBuffer;
use super::pinned::Pinned;
use super::rows::{TileMut, TileRef};
use super::shape::Extent;
use super::store::{Backing, Place};
use super::tile::{HostTile, HostTileMut};
use super::view::{HostSlice, HostSliceMut};
use crate::driver::CopyMemory::Host;
use crate::driver::{Driver, Fact};
use crate::error::{Error, Result};
use crate::reactor::Completion;

/// A view of pinned memory that a guard can be made of.
pub(super) trait HostView {
    /// The guard.
    type Elements;
    const MODE: Mode;

    fn place(&self) -> Place<'_, Pinned>;

    /// The elements.
    ///
    /// # Safety
    ///
    /// No operation that conflicts with `MODE` is in flight, and all bytes are initialised.
    unsafe fn elements(self) -> Self::Elements;
}

/// An access by the host, from when it is asked for until it can be had.
#[derive(Debug)]
pub(super) struct HostAccess<V> {
    /// Taken when ready.
    view: Option<V>,
    /// What is still to be waited for. No conflicting operation can be added to what the record names
    /// while `view` is borrowed: what is waited for is settled when this is made.
    waits: SmallVec<[Completion; 2]>,
}

impl<V: HostView> HostAccess<V> {
    pub(super) fn new(view: V) -> Self {
        let waits = view.place().waits(V::MODE);
        HostAccess { view: Some(view), waits }
    }

    /// The elements, if nothing that conflicts is in flight now.
    pub(super) fn now(view: V) -> Result<V::Elements> {
        for wait in view.place().waits(V::MODE) {
            if !wait.is_finished()? {
                return Err(Error::InFlight { buffer: view.place().store().describe() });
            }
        }
        Self::granted(view)
    }

    /// The elements when nothing that conflicts is in flight, or the first error.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<V::Elements>> {
        while let Some(wait) = self.waits.last_mut() {
            ready!(Pin::new(wait).poll(cx))?;
            self.waits.pop();
        }
        match self.view.take() {
            Some(view) => Poll::Ready(Self::granted(view)),
            // Polled again after it was ready, which a future's contract forbids.
            None => Poll::Pending,
        }
    }

    /// Called when everything waited for was seen to finish.
    fn granted(view: V) -> Result<V::Elements> {
        let place = view.place();
        if V::MODE == Mode::Read {
            place.check_defined()?;
            place.tell_of_access(false);
        } else {
            place.tell_of_access(true);
            place.define();
        }
        // SAFETY: the callers have seen all that conflicts finish; the bytes are defined, as was just
        // checked or seen to.
        Ok(unsafe { view.elements() })
    }
}

impl<S: Extent> Place<'_, Pinned, S> {
    /// Completions of what an access by the host has to come after.
    pub(super) fn waits(&self, mode: Mode) -> SmallVec<[Completion; 2]> {
        let mut waits = SmallVec::new();
        let Some(tracked) = self.tracked() else { return waits };
        let record = tracked.lock();
        for region in self.regions() {
            record.conflicts(&Access { region, mode }, |ticket| {
                if let Some(lane) = self.core().lane(ticket.lane)
                    && !lane.is_known_finished(ticket.seq)
                {
                    waits.push(lane.completion(ticket.seq));
                }
            });
        }
        waits
    }

    pub(super) fn check_defined(&self) -> Result<()> {
        let Some(tracked) = self.tracked() else { return Ok(()) };
        let record = tracked.lock();
        let undefined = self.regions().find_map(|region| record.undefined_in(&region));
        drop(record);
        let Some(range) = undefined else { return Ok(()) };
        let (operation, argument) = ("reading on the host", "self");
        Err(Error::Uninitialised { operation, argument, buffer: tracked.describe(), range })
    }

    pub(super) fn tell_of_access(&self, writes: bool) {
        if self.tracked().is_none() {
            return;
        }
        for region in self.regions() {
            let (ptr, row) = (self.byte(region.start()), region.row());
            let (rows, pitch) = (region.rows(), region.pitch());
            self.core().driver().tell(Fact::HostAccess { ptr, row, rows, pitch, writes });
        }
        self.core().raise_race();
    }

    /// The host has written all of it.
    pub(super) fn written_by_host(&self) {
        let Some(tracked) = self.tracked() else { return };
        let mut record = tracked.lock();
        self.regions().for_each(|region| record.written_by_host(&region));
    }

    /// Zeroes what nothing has written: it may be another buffer's that was here before, which the
    /// user is not to see. From here on the host has written all of it.
    ///
    /// The place is one that is borrowed to be written, and no operation touches it.
    fn define(&self) {
        let Some(tracked) = self.tracked() else { return };
        for region in self.regions() {
            let unwritten = tracked.lock().undefined_around(&region);
            // Not under the lock: it can be much.
            for undefined in unwritten {
                region.each_common(&undefined, |range| {
                    // SAFETY: the range is within a row of the place, which the buffer has bytes for and
                    // which is borrowed exclusively; nothing in flight touches it, as the caller says.
                    unsafe { self.byte(range.start).as_ptr().write_bytes(0, range.len()) };
                });
            }
        }
        self.written_by_host();
    }

    /// The byte of the buffer at that offset.
    pub(super) fn byte(&self, offset: usize) -> NonNull<u8> {
        self.store().place().first().map_addr(|first| first.saturating_add(offset))
    }
}

impl<'a, T: Pod> HostView for HostSlice<'a, T> {
    type Elements = HostRef<'a, T>;
    const MODE: Mode = Mode::Read;

    fn place(&self) -> Place<'_, Pinned> {
        HostSlice::place(self)
    }

    unsafe fn elements(self) -> HostRef<'a, T> {
        // SAFETY: the block has room for so many elements from there, aligned for them (`byte_len`); the
        // caller answers for their being initialised and for what is in flight, and the view's borrow
        // of `'a` for what could be enqueued.
        HostRef::new(unsafe {
            std::slice::from_raw_parts(self.place().first().as_ptr(), self.len())
        })
    }
}

impl<'a, T: Pod> HostView for HostSliceMut<'a, T> {
    type Elements = HostMut<'a, T>;
    const MODE: Mode = Mode::Overwrite;

    fn place(&self) -> Place<'_, Pinned> {
        HostSliceMut::place(self)
    }

    unsafe fn elements(self) -> HostMut<'a, T> {
        let (len, place) = (self.len(), self.into_place());
        // SAFETY: as for `HostSlice`; the view is consumed, and it was the only one of its elements.
        HostMut::new(unsafe { std::slice::from_raw_parts_mut(place.first().as_ptr(), len) })
    }
}

impl<'a, T: Pod> HostView for HostTile<'a, T> {
    type Elements = TileRef<'a, T>;
    const MODE: Mode = Mode::Read;

    fn place(&self) -> Place<'_, Pinned> {
        HostTile::place(self)
    }

    unsafe fn elements(self) -> TileRef<'a, T> {
        // SAFETY: as for `HostSlice`, of each row; rows do not overlap (`Shape`).
        unsafe { TileRef::from_raw(self.place().first(), self.place().shape().sides()) }
    }
}

impl<'a, T: Pod> HostView for HostTileMut<'a, T> {
    type Elements = TileMut<'a, T>;
    const MODE: Mode = Mode::Overwrite;

    fn place(&self) -> Place<'_, Pinned> {
        HostTileMut::place(self)
    }

    unsafe fn elements(self) -> TileMut<'a, T> {
        let place = self.into_place();
        // SAFETY: as for `HostSliceMut`, of each row; rows do not overlap (`Shape`).
        unsafe { TileMut::from_raw(place.first(), place.shape().sides()) }
    }
}

/// Copies the first `bytes` bytes, which both have, and of which only some may count. No operation touches
/// either, and nobody has a reference to them.
pub(super) fn move_bytes(from: &Pinned, to: &mut Pinned, bytes: usize, driver: &dyn Driver) {
    let (Host(src), Host(dst)) = (from.address(0), to.address(0)) else { return };
    for (ptr, writes) in [(src, false), (dst, true)] {
        driver.tell(Fact::HostAccess { ptr, row: bytes, rows: 1, pitch: bytes, writes });
    }
    // SAFETY: both blocks have so many bytes and are different ones; nothing in flight touches them, as the
    // caller says, and there are no references, since the caller has one buffer exclusively and the other is new.
    // Bytes that nobody wrote are moved as they are.
    unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.as_ptr(), bytes) };
}

impl<T: Pod> HostBuffer<T> {
    /// Writes a buffer that was just made, with as many elements: nothing is zeroed before.
    pub(super) fn set(&mut self, elements: &[T]) {
        let (place, len) = (self.place(), elements.len().min(self.len()));
        place.tell_of_access(true);
        // SAFETY: the block has room for so many elements, nobody else knows of it yet, and no operation
        // touches a block that the pool hands out: its last users were seen to finish, and earlier ones
        // came before them.
        unsafe { std::ptr::copy_nonoverlapping(elements.as_ptr(), place.first().as_ptr(), len) };
        place.written_by_host();
    }
}
