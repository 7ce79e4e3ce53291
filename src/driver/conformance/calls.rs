//! Short names for what tests do, and handles that go when the test is over.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::mem;
use std::ops::Deref;
use std::ptr::NonNull;

use super::subject::Subject;
use crate::driver::{CopyRows, DevicePtr, DriverResult, EventHandle, Fill, HostKind, StreamHandle};

/// Bytes of most buffers.
pub(super) const N: usize = 256;
/// As words.
pub(super) const WORDS: u32 = N as u32 / 4;

pub(super) fn code<T>(result: DriverResult<T>) -> Option<u32> {
    result.err().map(|error| error.code())
}

/// An address in page-locked memory, which is any thread's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host(usize);

impl Host {
    /// So many bytes further.
    pub(super) fn at(self, offset: usize) -> Host {
        Host(self.0 + offset)
    }

    /// As a number.
    pub(super) fn address(self) -> usize {
        self.0
    }

    pub(super) fn ptr(self) -> NonNull<u8> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(self.0)).unwrap()
    }
}

/// The address so many bytes further.
pub(super) fn at(ptr: DevicePtr, offset: usize) -> DevicePtr {
    DevicePtr(ptr.0 + offset as u64)
}

macro_rules! guards {
    ($($(#[$doc:meta])* $guard:ident: $handle:ident by $destroy:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $guard<'s> {
            subject: &'s Subject,
            handle: $handle,
        }

        impl $guard<'_> {
            /// Before the test is over.
            pub(super) fn destroy(self) {
                let driver = &self.subject.driver;
                driver.$destroy(self.into_handle()).unwrap();
            }

            /// For who destroys it otherwise.
            pub(super) fn into_handle(mut self) -> $handle {
                mem::take(&mut self.handle)
            }
        }

        impl Deref for $guard<'_> {
            type Target = $handle;
            fn deref(&self) -> &$handle {
                &self.handle
            }
        }

        impl Drop for $guard<'_> {
            fn drop(&mut self) {
                let handle = mem::take(&mut self.handle);
                if handle != $handle::default() {
                    // A device that has failed destroys nothing.
                    let _ = self.subject.driver.$destroy(handle);
                }
            }
        }
    )*};
}

guards! {
    /// A stream, destroyed when dropped.
    Stream: StreamHandle by stream_destroy;
    /// An event, destroyed when dropped.
    Event: EventHandle by event_destroy;
}

// SAFETY (all unsafe calls in here): tests name memory that they have, keep it until what they
// enqueued is done, and order what they enqueue; calls meant to be refused touch nothing.
impl Subject {
    pub(super) fn stream(&self) -> Stream<'_> {
        self.stream_of(0)
    }

    pub(super) fn stream_of(&self, priority: i32) -> Stream<'_> {
        Stream { subject: self, handle: self.driver.stream_create(priority).unwrap() }
    }

    pub(super) fn event(&self) -> Event<'_> {
        Event { subject: self, handle: self.driver.event_create(false).unwrap() }
    }

    pub(super) fn timed_event(&self) -> Event<'_> {
        Event { subject: self, handle: self.driver.event_create(true).unwrap() }
    }

    /// A new event, recorded.
    pub(super) fn record(&self, stream: &StreamHandle) -> Event<'_> {
        let event = self.event();
        self.record_again(&event, stream);
        event
    }

    pub(super) fn record_again(&self, event: &EventHandle, stream: &StreamHandle) {
        self.driver.event_record(event, stream).unwrap();
    }

    pub(super) fn wait(&self, stream: &StreamHandle, event: &EventHandle) {
        self.driver.stream_wait(stream, event).unwrap();
    }

    pub(super) fn done(&self, event: &EventHandle) -> bool {
        self.driver.event_query(event).unwrap()
    }

    pub(super) fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DevicePtr {
        self.driver.alloc(bytes, stream).unwrap()
    }

    pub(super) fn free(&self, ptr: DevicePtr, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.free(ptr, stream) }.unwrap();
    }

    /// Page-locked memory that stays allocated: freeing it would wait for streams that are held.
    pub(super) fn pinned(&self, bytes: usize) -> Host {
        self.pinned_as(bytes, HostKind::Cacheable)
    }

    /// As [`Subject::pinned`].
    pub(super) fn pinned_as(&self, bytes: usize, kind: HostKind) -> Host {
        Host(self.driver.host_alloc(bytes, kind).unwrap().as_ptr().expose_provenance())
    }

    pub(super) fn host_free(&self, host: Host) {
        self.try_host_free(host).unwrap();
    }

    pub(super) fn try_host_free(&self, host: Host) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.host_free(host.ptr()) }
    }

    pub(super) fn register(&self, host: Host, bytes: usize) -> DriverResult<()> {
        // SAFETY: as said at the impl; ordinary memory of tests is never freed.
        unsafe { self.driver.host_register(host.ptr(), bytes) }
    }

    pub(super) fn unregister(&self, host: Host) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.host_unregister(host.ptr()) }
    }

    /// Page-locked memory that holds these bytes.
    pub(super) fn pinned_with(&self, bytes: &[u8]) -> Host {
        let host = self.pinned(bytes.len());
        self.write(host, bytes);
        host
    }

    /// Ordinary memory, not page-locked, with these bytes. It stays allocated, as copies that come late
    /// need it to.
    pub(super) fn ordinary(&self, bytes: &[u8]) -> Host {
        Host(Box::leak(Box::<[u8]>::from(bytes)).as_mut_ptr().expose_provenance())
    }

    /// By the host.
    pub(super) fn write(&self, host: Host, bytes: &[u8]) {
        // SAFETY: tests write page-locked memory that they have, and that nothing uses meanwhile.
        unsafe { host.ptr().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// By the host.
    pub(super) fn bytes(&self, host: Host, bytes: usize) -> Vec<u8> {
        // SAFETY: tests read page-locked memory that they have, and that nothing writes meanwhile.
        unsafe { std::slice::from_raw_parts(host.ptr().as_ptr(), bytes) }.to_vec()
    }

    pub(super) fn try_fill(&self, fill: Fill, stream: &StreamHandle) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.fill(fill, stream) }
    }

    pub(super) fn fill(&self, dst: DevicePtr, value: u8, bytes: usize, stream: &StreamHandle) {
        let value = u32::from(value);
        let fill = Fill { dst, unit: 1, value, columns: bytes, rows: 1, pitch: 0 };
        self.try_fill(fill, stream).unwrap();
    }

    /// Host to device.
    pub(super) fn up(&self, dst: DevicePtr, src: Host, bytes: usize, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_h2d(dst, src.ptr(), bytes, stream) }.unwrap();
    }

    /// Device to host.
    pub(super) fn down(&self, dst: Host, src: DevicePtr, bytes: usize, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_d2h(dst.ptr(), src, bytes, stream) }.unwrap();
    }

    /// Within the device.
    pub(super) fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: usize, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_d2d(dst, src, bytes, stream) }.unwrap();
    }

    pub(super) fn try_copy_rows(&self, copy: &CopyRows, stream: &StreamHandle) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_rows(copy, stream) }
    }

    pub(super) fn copy_rows(&self, copy: &CopyRows, stream: &StreamHandle) {
        self.try_copy_rows(copy, stream).unwrap();
    }

    /// From memory of this device to memory of another, in the order of a stream of `of`, which is one
    /// of the two.
    pub(super) fn copy_to_device(
        &self,
        (to, dst): (&Subject, DevicePtr),
        src: DevicePtr,
        bytes: usize,
        (of, stream): (&Subject, &StreamHandle),
    ) {
        let (dst_context, src_context) = (to.driver.context(), self.driver.context());
        // SAFETY: as said at the impl.
        unsafe { of.driver.copy_peer(dst, dst_context, src, src_context, bytes, stream) }.unwrap();
    }

    /// What device memory holds when the stream has come so far.
    pub(super) fn read(&self, ptr: DevicePtr, bytes: usize, stream: &StreamHandle) -> Vec<u8> {
        let host = self.pinned(bytes);
        self.down(host, ptr, bytes, stream);
        self.finish(&self.record(stream));
        self.bytes(host, bytes)
    }

    /// Device memory that holds that byte over and over, as all streams that come later know.
    pub(super) fn filled(&self, value: u8, bytes: usize, stream: &StreamHandle) -> DevicePtr {
        let ptr = self.alloc(bytes, stream);
        self.fill(ptr, value, bytes, stream);
        self.finish(&self.record(stream));
        ptr
    }
}
