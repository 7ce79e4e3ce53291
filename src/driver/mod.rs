//! The seam below which CUDA or the simulated device sits.
//!
//! [`Driver`] is the whole contract: small, literal methods, one driver call each. Handles are
//! newtypes that are neither `Copy` nor `Clone`, made by the driver that takes them back: while a
//! handle exists the object behind it does, so calls that only name handles are safe. (The default
//! streams are always there: they are neither made nor taken back.) Calls that
//! name *memory* are `unsafe`: who makes them answers for the memory being alive and ordered.
//!
//! What every implementation holds to:
//!
//! - No method waits for the device, unless its docs say so. An operation is enqueued when its
//!   method returns `Ok` and has no effect when it returns `Err`.
//! - Operations of one stream run in the order enqueued; nothing is ordered across streams but by
//!   [`Driver::stream_wait`].
//! - A stream takes at least 1,000 pending launches, copies, fills and timed records before a call
//!   may block.
//! - After a *sticky* error ([`DriverError::is_sticky`]) every later call fails, queries included; but for what is asked of
//!   the pool of memory, which may be answered.
//! - Handles are given to the driver that made them. The exceptions: a stream can wait for an event
//!   of another device, and memory of another device can be copied; of another CUDA device on CUDA,
//!   of another device of the same machine on simulated ones.
//! - Calls may come from any thread, but those that name a thread's own default stream.
//! - Nothing panics because a library, a symbol, a device or a permission is missing.
#![cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "parts of the contract have no user without CUDA")
)]

use std::ffi::CStr;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

mod call;
#[cfg(test)]
mod conformance;
mod counted;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
mod error;
mod exit;
mod handles;
mod launch;
mod memory;
#[cfg(all(test, headwater_loom))]
#[allow(clippy::expect_used)]
pub(crate) mod model;
mod races;
mod rows;
pub(crate) mod sim;
mod step;
mod watched;
mod witness;

pub use call::DriverCall;
pub use counted::DriverCalls;
pub use error::DriverError;
pub(crate) use exit::{stay, wait_at_exit};
pub(crate) use handles::{
    ContextHandle, DefaultStream, EventHandle, FunctionHandle, ModuleHandle, StreamHandle,
    thread_number,
};
pub(crate) use launch::Launch;
pub use launch::{KernelCost, TwinFault, TwinJob, TwinMemory};
pub use memory::DevicePtr;
pub(crate) use memory::{CopyMemory, CopyRows, CopySide, Fill, HostKind, MemAccess};
pub use races::{Race, RaceAccess, RacedMemory};
pub use step::{LoggedStep, Step, Touched};
pub(crate) use watched::Watched;
pub(crate) use witness::{Watch, Witness};

pub(crate) type DriverResult<T> = Result<T, DriverError>;

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// `cuDeviceGetName`; a simulated device's name says that it is one.
    pub name: String,
    /// Index among the visible devices.
    pub ordinal: usize,
    /// True where there is no GPU behind this device.
    pub simulated: bool,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Bytes of device memory in all.
    pub total_memory: u64,
    /// `ASYNC_ENGINE_COUNT`: how many copies can run beside each other and beside kernels.
    pub copy_engines: u32,
    /// Whether kernels of several streams can run at once.
    pub concurrent_kernels: bool,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads a block may have.
    pub max_block_threads: u32,
    /// Blocks a grid may have in x, y, z.
    pub max_grid: [u32; 3],
    /// Threads a block may have in x, y, z.
    pub max_block: [u32; 3],
    /// Bytes of dynamic shared memory a block may have without opting in to more.
    pub max_shared_bytes: u32,
    /// `cuCtxGetStreamPriorityRange`: (least urgent, most urgent); a lower number is more urgent.
    /// Needs a context, so it is known of devices that were opened and `None` of others.
    pub priorities: Option<(i32, i32)>,
    /// `cuDeviceCanAccessPeer`: ordinals of the visible devices whose memory this one can reach.
    pub peers: Vec<usize>,
    /// Hardware queues that CUDA is asked to deal its streams to: `CUDA_DEVICE_MAX_CONNECTIONS`, at
    /// most 32, or CUDA's default of 8. With more, more small kernels run at once, and waiting costs
    /// more. CUDA has no call that tells, and reads the variable once: set it before the process
    /// starts. 32 on a simulated device, whose streams share nothing.
    pub hardware_queues: u32,
    /// CUDA version the driver supports, as 1000 * major + 10 * minor; 0 on a simulated device.
    pub driver_version: u32,
}

/// Why a module was not loaded.
#[derive(Debug)]
pub(crate) struct PtxError {
    pub(crate) error: DriverError,
    /// What the driver's compiler said; often nothing.
    pub(crate) log: String,
}

impl From<DriverError> for PtxError {
    fn from(error: DriverError) -> Self {
        PtxError { error, log: String::new() }
    }
}

/// Bytes of the pool that device memory is allocated from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolUsage {
    /// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`: taken from the device.
    pub(crate) reserved: u64,
    /// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`: allocated from the pool and not freed.
    pub(crate) used: u64,
}

/// What the library tells of itself that no call of the driver shows. For what watches the calls; CUDA
/// takes no notice of it. A simulated device keeps copies from memory that the host is said to
/// have: tests can have the wait lost that would have ordered them.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// The stream of that id has that number here, and that name for whoever holds it now.
    Stream { stream: u64, number: u32, name: Option<Arc<str>> },
    /// Device memory of [`Driver::alloc`] was made for a user at that place of the program.
    DeviceMemory { ptr: DevicePtr, made_at: &'static Location<'static> },
    /// Page-locked memory is a user's from here on, until it is told of again; the last owner's
    /// accesses are all finished.
    HostMemory { ptr: NonNull<u8>, bytes: usize, made_at: &'static Location<'static> },
    /// The host reads or writes page-locked memory from here on: `rows` rows of `row` bytes, `pitch`
    /// bytes from row to row.
    HostAccess { ptr: NonNull<u8>, row: usize, rows: usize, pitch: usize, writes: bool },
}

/// One device behind the seam. See the module's docs for what all methods hold to.
#[allow(unsafe_code)] // Declares unsafe methods; calls none.
pub(crate) trait Driver: Send + Sync + 'static {
    fn info(&self) -> &DeviceInfo;

    /// Nothing, but for who watches, and for a simulated device: see [`Fact`].
    fn tell(&self, _fact: Fact) {}

    /// Whether anyone looks at what memory a [`Launch`] says that it touches. The device itself is given
    /// addresses among the parameters.
    fn sees_accesses(&self) -> bool {
        true
    }

    /// `cuStreamCreateWithPriority`, non-blocking flag. May wait for running kernels now and then.
    fn stream_create(&self, priority: i32) -> DriverResult<StreamHandle>;
    /// A stream that is there without being made. No call is made for it; asked for again, the same
    /// stream has another handle. It is there for as long as the device, and never to be destroyed.
    ///
    /// It is ordered with streams of [`Driver::stream_create`] by [`Driver::stream_wait`] only, since
    /// those are non-blocking. Whether the legacy stream and those of threads are ordered with each
    /// other is left open: CUDA does that, and no simulated device.
    ///
    /// The per-thread stream is the calling thread's. Only that thread makes calls with its handle: CUDA
    /// would take it for the other's own. They are refused (`INVALID_HANDLE`).
    fn default_stream(&self, which: DefaultStream) -> StreamHandle;
    /// `cuStreamDestroy`. Work enqueued still runs. Of a default stream, `INVALID_HANDLE`.
    fn stream_destroy(&self, stream: StreamHandle) -> DriverResult<()>;
    /// `cuStreamWaitEvent`: later work of `stream` waits for the event's recording as it is now.
    /// An event never recorded is not waited for.
    fn stream_wait(&self, stream: &StreamHandle, event: &EventHandle) -> DriverResult<()>;

    /// `cuEventCreate`; `timed` events can be told apart in time and cost the stream about 2 us.
    fn event_create(&self, timed: bool) -> DriverResult<EventHandle>;
    /// `cuEventDestroy`.
    fn event_destroy(&self, event: EventHandle) -> DriverResult<()>;
    /// `cuEventRecord`: replaces the event's recording by one after all that `stream` has now.
    fn event_record(&self, event: &EventHandle, stream: &StreamHandle) -> DriverResult<()>;
    /// `cuEventQuery`: whether the last recording was reached; true if never recorded. True is an
    /// acquire: what came before the recording is visible to this thread.
    fn event_query(&self, event: &EventHandle) -> DriverResult<bool>;
    /// `cuThreadExchangeStreamCaptureMode`, relaxed: what this thread does from here on does not
    /// disturb a graph capture of another thread.
    fn relax_capture(&self) -> DriverResult<()>;
    /// `cuEventElapsedTime` between the recordings of two timed events, both finished.
    fn event_elapsed(&self, start: &EventHandle, end: &EventHandle) -> DriverResult<Duration>;

    /// `cuMemAllocFromPoolAsync` from a pool of our own: at least 256-byte aligned; valid for work
    /// after this point of `stream`. `bytes` is not 0.
    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DriverResult<DevicePtr>;
    /// `cuMemFreeAsync`, in `stream`'s order.
    ///
    /// # Safety
    /// `ptr` came from [`Driver::alloc`] of this driver, is not freed yet, and every access to it
    /// is done or ordered before this point of `stream`.
    unsafe fn free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()>;
    /// `cuMemGetInfo`: bytes that nobody has, of any process. What the pool of [`Driver::alloc`] keeps is
    /// not among them.
    fn memory_free(&self) -> DriverResult<u64>;
    /// `cuMemPoolTrimTo`: gives back what the pool of [`Driver::alloc`] keeps beyond `keep` bytes, as far
    /// as no allocation has it, and no free whose end it was not told of: that takes `cuEventSynchronize` of an event after the
    /// free, and a query does not do (seen on an H200). `freed` is such an event that was seen to be reached, so
    /// that nothing waits. Unmapping takes about 1 ms a GB (64 ms for 60 GB on an H200).
    fn pool_trim(&self, keep: u64, freed: Option<&EventHandle>) -> DriverResult<()>;
    /// `cuMemPoolGetAttribute`: how much the pool of [`Driver::alloc`] has.
    fn pool_usage(&self) -> DriverResult<PoolUsage>;

    /// `cuMemHostAlloc`: page-locked memory, at least 64-byte aligned. Takes milliseconds.
    fn host_alloc(&self, bytes: usize, kind: HostKind) -> DriverResult<NonNull<u8>>;
    /// `cuMemFreeHost`. Waits for running kernels: call it from a thread that may.
    ///
    /// # Safety
    /// `ptr` came from [`Driver::host_alloc`] of this driver, is not freed yet, and neither the
    /// device nor the host touches it any more.
    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()>;
    /// `cuMemHostRegister`: page-locks memory that is there, in place: its bytes stay as they are. From then
    /// on it is to copies what [`Driver::host_alloc`] gives. `bytes` is not 0. Takes long: some 70 us a MiB.
    ///
    /// Memory of which a byte is page-locked already, by this call or by [`Driver::host_alloc`], is refused
    /// (`HOST_MEMORY_ALREADY_REGISTERED`).
    ///
    /// # Safety
    /// The range is live and initialised until it is unregistered.
    unsafe fn host_register(&self, ptr: NonNull<u8>, bytes: usize) -> DriverResult<()>;
    /// `cuMemHostUnregister`: the memory is ordinary memory again, and its owner's to free. Waits for
    /// running kernels: call it from a thread that may. Of an address at which nothing was registered,
    /// `HOST_MEMORY_NOT_REGISTERED`.
    ///
    /// # Safety
    /// No operation that is not done touches the memory.
    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()>;

    /// `cuMemcpyHtoDAsync`. From page-locked memory, which is what [`Driver::host_alloc`] gives and
    /// [`Driver::host_register`] makes, it is enqueued as any operation. From ordinary memory it is left open whether the call waits, and
    /// whether the copy is done when it returns: the bytes may be read before or long after. A range
    /// that is page-locked in part is `INVALID_VALUE`.
    ///
    /// # Safety
    /// Both ranges are live until the copy is done, whatever memory they lie in, `src` is
    /// initialised, and every conflicting access is ordered with this operation.
    unsafe fn copy_h2d(
        &self,
        dst: DevicePtr,
        src: NonNull<u8>,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()>;
    /// `cuMemcpyDtoHAsync`. To page-locked or to ordinary memory, as [`Driver::copy_h2d`] has it: the
    /// bytes of ordinary memory may be written before the call returns or long after.
    ///
    /// # Safety
    /// As [`Driver::copy_h2d`], with the roles exchanged.
    unsafe fn copy_d2h(
        &self,
        dst: NonNull<u8>,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()>;
    /// `cuMemcpyDtoDAsync`. The ranges do not overlap.
    ///
    /// # Safety
    /// As [`Driver::copy_h2d`].
    unsafe fn copy_d2d(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()>;
    /// `cuMemcpy2DAsync`; of several planes, `cuMemcpy3DAsync`; of one row in all, the copy in one piece.
    /// Nothing between the rows and between the planes is touched.
    ///
    /// `INVALID_VALUE` where there are several rows and a pitch is less than a row or 2 GiB or more,
    /// and where neither side is the device's. Where there are several planes, be they of one row
    /// each, as well where a plane's pitch is less than its rows' pitches together, or no multiple of
    /// that pitch: CUDA is told how many rows apart planes are.
    ///
    /// # Safety
    /// As [`Driver::copy_h2d`], for the bytes of the rows, which lie in one block on each side. Host
    /// memory is page-locked. The two sides have no byte in common.
    unsafe fn copy_rows(&self, copy: &CopyRows, stream: &StreamHandle) -> DriverResult<()>;
    /// This device's context, for [`Driver::copy_peer`] by any driver of the same kind.
    #[allow(dead_code, reason = "copies between devices are not offered yet")]
    fn context(&self) -> ContextHandle;
    /// `cuMemcpyPeerAsync`: from memory of the one device to memory of the other, in the order of a
    /// stream of this driver. The devices need not reach each other. The ranges do not overlap.
    ///
    /// On CUDA the pool of [`Driver::alloc`] is not open to other devices, so that it goes through
    /// the host, whatever link there is: 38 GB/s between two H200s (NVLink: 393). There one that is
    /// held back by its stream holds up those of other streams between the same devices.
    ///
    /// # Safety
    /// As [`Driver::copy_h2d`]; each pointer is to memory of the device whose context is beside it.
    #[allow(dead_code, reason = "copies between devices are not offered yet")]
    unsafe fn copy_peer(
        &self,
        dst: DevicePtr,
        dst_context: ContextHandle,
        src: DevicePtr,
        src_context: ContextHandle,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()>;
    /// `cuMemsetD{8,16,32}Async`, `cuMemsetD2D{8,16,32}Async`.
    ///
    /// # Safety
    /// As [`Driver::copy_h2d`], for the bytes of the rows.
    unsafe fn fill(&self, fill: Fill, stream: &StreamHandle) -> DriverResult<()>;

    /// `cuModuleLoadData` of PTX text. Waits for running kernels.
    fn module_load(&self, ptx: &CStr) -> Result<ModuleHandle, PtxError>;
    /// `cuModuleUnload`. Waits for running kernels; functions of the module are gone after it.
    fn module_unload(&self, module: ModuleHandle) -> DriverResult<()>;
    /// `cuModuleGetFunction`. Where a kernel runs meanwhile, the function's first launch can wait for
    /// it (seen on an H200, driver 580); of a function asked for earlier it does not.
    fn module_function(&self, module: &ModuleHandle, name: &CStr) -> DriverResult<FunctionHandle>;
    /// `cuLaunchKernel`.
    ///
    /// # Safety
    /// `params` point to values of the kernel's parameter types, all memory that the kernel touches is live
    /// until it is done, and every conflicting access is ordered with this operation. `accesses` is all that
    /// memory, or empty where it is not [seen](Driver::sees_accesses). The function's module is loaded. The twin
    /// touches what `accesses` says, no more.
    unsafe fn launch(&self, launch: &Launch<'_>, stream: &StreamHandle) -> DriverResult<()>;
}
