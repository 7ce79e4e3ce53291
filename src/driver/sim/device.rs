//! The driver's contract, each method by a few lines on the machine's state.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::bytes::{HostSide, Ordinary, Pinned};
use super::copy_rows::{self, RowCopy};
use super::cost::CostModel;
use super::entered::{Entered, INVALID_HANDLE};
use super::facts::{Facts, accepts};
use super::link::Direction;
use super::many::{PRIORITIES, User};
use super::memory::HostMemory;
use super::module::kernels_of;
use super::op::SimOpKind;
use super::options::{Hardware, Pageable, SimOptions};
use super::reach::frees_before;
use super::state::{Event, Item, StreamOf};
use super::timeline::Takes;
use super::violation::Violation;
use super::work::{Work, discard, fill_extent};
use crate::driver::{
    ContextHandle, CopyRows, DefaultStream, DeviceInfo, DevicePtr, Driver, DriverCall, DriverError,
    DriverResult, EventHandle, Fact, Fill, FunctionHandle, HostKind, Launch, ModuleHandle,
    PoolUsage, PtxError, StreamHandle, Touched,
};

const INVALID_CONTEXT: u32 = 201;
const INVALID_PTX: u32 = 218;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const NOT_SUPPORTED: u32 = 801;

/// One device of a simulated machine.
pub(super) struct SimDriver {
    user: User,
    /// Its `ordinal` is the index among the machine's devices.
    info: DeviceInfo,
    hardware: Hardware,
    cost: CostModel,
    pageable: Pageable,
    queue_limit: usize,
}

impl SimDriver {
    pub(super) fn new(user: User, options: &SimOptions, info: DeviceInfo) -> Self {
        let SimOptions { hardware, pageable, queue_limit, .. } = *options;
        SimDriver { user, info, hardware, cost: options.cost.clone(), pageable, queue_limit }
    }

    fn device(&self) -> usize {
        self.info.ordinal
    }

    fn enter(&self, call: DriverCall) -> DriverResult<Entered<'_>> {
        self.user.machine.enter(self.device(), call)
    }

    /// Enqueues work; what is given back on an error is dropped without the lock.
    fn submit(
        &self,
        entered: Entered<'_>,
        stream: &StreamHandle,
        work: Work,
        facts: Facts,
    ) -> DriverResult<()> {
        let host_ns = match work {
            Work::Kernel { .. } => self.cost.launch_call_ns,
            Work::CopyRows(_) => self.cost.copy_rows_call_ns,
            _ => self.cost.copy_call_ns,
        };
        entered
            .enqueue_work(stream.id(), Item::Work(work), facts, self.queue_limit, host_ns)
            .map_err(|(error, item)| {
                discard(item);
                error
            })
    }
}

#[allow(unsafe_code)] // the contract's unsafe methods; all that is done in here is pass promises on
impl Driver for SimDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn tell(&self, fact: Fact) {
        let (ptr, rows, writes) = match fact {
            Fact::DeviceMemory { .. } | Fact::Stream { .. } => return,
            // Another owner may do whatever it likes.
            Fact::HostMemory { ptr, bytes, .. } => (ptr, (bytes, 1, bytes), true),
            Fact::HostAccess { ptr, row, rows, pitch, writes } => (ptr, (row, rows, pitch), writes),
        };
        let touched = Touched::in_rows(ptr.as_ptr().addr() as u64, rows, writes);
        self.user.machine.host_has(&touched);
    }

    /// A priority that there is not is taken for the next one that there is, as CUDA does.
    fn stream_create(&self, priority: i32) -> DriverResult<StreamHandle> {
        let mut entered = self.enter(DriverCall::StreamCreate)?;
        let (least, most) = PRIORITIES;
        let level = least.abs_diff(priority.clamp(most, least)) as usize;
        let stream = StreamHandle::new(entered.state.add_stream(self.device(), level));
        entered.done(stream)
    }

    /// It has a number of its own, as all streams here do.
    fn default_stream(&self, which: DefaultStream) -> StreamHandle {
        let of = match which {
            DefaultStream::Legacy => StreamOf::Legacy,
            DefaultStream::PerThread => StreamOf::Thread(thread::current().id()),
        };
        StreamHandle::new(self.user.machine.lock().default_stream(self.device(), of))
    }

    fn stream_destroy(&self, stream: StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::StreamDestroy)?;
        match entered.state.destroy_stream(stream.id(), self.device()) {
            true => entered.done(()),
            false => Err(entered.error(INVALID_HANDLE)),
        }
    }

    fn stream_wait(&self, stream: &StreamHandle, event: &EventHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::StreamWait)?;
        entered.stream(stream.id())?;
        let recording = match entered.state.events.get(&event.raw()) {
            Some(event) => event.latest.clone(),
            None => return Err(entered.error(INVALID_HANDLE)),
        };
        match recording {
            Some(recording) => entered.enqueue_control(stream.id(), Item::Wait(recording)),
            None => entered.done(()),
        }
    }

    fn event_create(&self, timed: bool) -> DriverResult<EventHandle> {
        let mut entered = self.enter(DriverCall::EventCreate)?;
        let id = entered.state.number();
        entered.state.events.insert(id, Event { device: self.device(), timed, latest: None });
        entered.done(EventHandle::new(id))
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::EventDestroy)?;
        if entered.state.event(event.raw(), self.device()).is_none() {
            return Err(entered.error(INVALID_HANDLE));
        }
        entered.state.events.remove(&event.raw());
        entered.done(())
    }

    fn event_record(&self, event: &EventHandle, stream: &StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::EventRecord)?;
        entered.stream(stream.id())?;
        let recording = entered.state.new_recording(stream.id());
        match entered.state.events.get_mut(&event.raw()) {
            Some(event) if event.device == self.device() => {
                event.latest = Some(Arc::clone(&recording));
            }
            _ => return Err(entered.error(INVALID_HANDLE)),
        }
        entered.enqueue_control(stream.id(), Item::Record(recording))
    }

    /// Moves the host's virtual clock to the recording's time if that was reached.
    fn event_query(&self, event: &EventHandle) -> DriverResult<bool> {
        let answer = self.enter(DriverCall::EventQuery).and_then(|mut entered| {
            let Some(event) = entered.state.event(event.raw(), self.device()) else {
                return Err(entered.error(INVALID_HANDLE));
            };
            let Some(recording) = event.latest.clone() else {
                return entered.done(true);
            };
            let faults = &mut entered.state.faults;
            match recording.reached() {
                None => entered.not_reached(&recording),
                Some(_) if recording.is_late(|| faults.meet_seen(recording.stream)) => {
                    entered.done(false)
                }
                Some(reached) => {
                    entered.state.host_now = entered.state.host_now.max(reached);
                    entered.done(true)
                }
            }
        });
        match answer {
            // An answer and no error, as it is of CUDA; only a fault gives it.
            Err(error) if error.code() == NOT_READY => Ok(false),
            answer => answer,
        }
    }

    /// There is no capture to disturb.
    fn relax_capture(&self) -> DriverResult<()> {
        self.enter(DriverCall::RelaxCapture)?.done(())
    }

    /// 0 where `end` was reached before `start`.
    fn event_elapsed(&self, start: &EventHandle, end: &EventHandle) -> DriverResult<Duration> {
        let entered = self.enter(DriverCall::EventElapsed)?;
        let time = |event: &EventHandle| {
            let event = entered.state.event(event.raw(), self.device()).filter(|event| event.timed);
            let recording = event.and_then(|event| event.latest.as_ref());
            let recording = recording.ok_or_else(|| entered.error(INVALID_HANDLE))?;
            recording.reached().ok_or_else(|| entered.error(NOT_READY))
        };
        let (start, end) = (time(start)?, time(end)?);
        entered.done(Duration::from_nanos(end.saturating_sub(start)))
    }

    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DriverResult<DevicePtr> {
        let mut entered = self.enter(DriverCall::Alloc)?;
        entered.stream(stream.id())?;
        if bytes == 0 {
            return Err(entered.error(DriverError::INVALID_VALUE));
        }
        let state = &mut *entered.state;
        let memory = &mut state.devices[self.device()].memory;
        let in_order = || frees_before(&state.streams, stream.id());
        let Some((ptr, allocation)) = memory.alloc(bytes, in_order) else {
            entered.state.need_frees(self.device());
            return Err(entered.error(DriverError::OUT_OF_MEMORY));
        };
        entered.enqueue_control(stream.id(), Item::Alloc { ptr, allocation })?;
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::Free)?;
        entered.stream(stream.id())?;
        if !entered.state.devices[self.device()].memory.begin_free(ptr) {
            return Err(entered.error(DriverError::INVALID_VALUE));
        }
        entered.enqueue_control(stream.id(), Item::Free(ptr))
    }

    fn memory_free(&self) -> DriverResult<u64> {
        let entered = self.enter(DriverCall::MemoryFree)?;
        let free = entered.state.devices[self.device()].memory.free_bytes();
        entered.done(free)
    }

    fn pool_trim(&self, keep: u64, _freed: Option<&EventHandle>) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::PoolTrim)?;
        entered.state.devices[self.device()].memory.trim(keep);
        entered.done(())
    }

    fn pool_usage(&self) -> DriverResult<PoolUsage> {
        let entered = self.enter(DriverCall::PoolUsage)?;
        let usage = entered.state.devices[self.device()].memory.usage();
        entered.done(usage)
    }

    /// Write-combined memory is slow for the host to read, and otherwise memory as any other.
    fn host_alloc(&self, bytes: usize, _kind: HostKind) -> DriverResult<NonNull<u8>> {
        let entered = self.enter(DriverCall::HostAlloc)?;
        if bytes == 0 {
            return Err(entered.error(DriverError::INVALID_VALUE));
        }
        // Writing the poison takes time: not under the lock.
        let (mut entered, block) =
            entered.unlocked(|| Pinned::new(bytes)).map_err(|(error, _)| error)?;
        let block = block.ok_or_else(|| entered.error(DriverError::OUT_OF_MEMORY))?;
        let address = entered.state.pinned.insert(block);
        entered.done(address)
    }

    /// Does not wait: operations that still name the block keep its storage, and fail when they
    /// come to run.
    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::HostFree)?;
        let Some(block) = entered.state.pinned.remove(ptr, false) else {
            return Err(entered.error(DriverError::INVALID_VALUE));
        };
        if Arc::strong_count(&block) > 1 {
            entered.state.report(Violation::PinnedFreedInUse { bytes: block.len() });
        }
        let freed = entered.done(());
        drop(block); // without the lock
        freed
    }

    unsafe fn host_register(&self, ptr: NonNull<u8>, bytes: usize) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::HostRegister)?;
        match entered.state.pinned.find(ptr, bytes) {
            _ if bytes == 0 => return Err(entered.error(DriverError::INVALID_VALUE)),
            HostMemory::Ordinary => {}
            _ if entered.state.pinned.is_registered_in_part(ptr, bytes) => {
                return Err(entered.error(DriverError::HOST_MEMORY_ALREADY_REGISTERED));
            }
            _ => return Err(entered.error(DriverError::INVALID_VALUE)),
        }
        // SAFETY: the caller's promise, passed on.
        let block = unsafe { Pinned::registered(ptr, bytes) };
        entered.state.pinned.insert(block);
        entered.done(())
    }

    /// Waits for no more than a copy of that memory that is being run.
    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::HostUnregister)?;
        let Some(block) = entered.state.pinned.remove(ptr, true) else {
            return Err(entered.error(DriverError::HOST_MEMORY_NOT_REGISTERED));
        };
        if Arc::strong_count(&block) > 1 {
            entered.state.report(Violation::PinnedFreedInUse { bytes: block.len() });
        }
        entered.until_untouched(ptr, block.len()).done(())
    }

    unsafe fn copy_h2d(
        &self,
        dst: DevicePtr,
        src: NonNull<u8>,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::CopyH2D)?;
        let mut facts = Facts::of_copy(SimOpKind::CopyH2D, bytes, &self.cost);
        if bytes == 0 {
            return self.submit(entered, stream, Work::Nothing, facts);
        }
        let src = match entered.state.pinned.find(src, bytes) {
            HostMemory::PageLocked(range) => HostSide::PageLocked(range),
            HostMemory::Invalid => return Err(entered.error(DriverError::INVALID_VALUE)),
            HostMemory::Ordinary => {
                let transfer = self.cost.h2d_pageable(facts.bytes);
                facts.takes = Takes::Host(Direction::Up, transfer);
                // SAFETY: the caller's promise, passed on.
                let src = unsafe { Ordinary::new(src, bytes) };
                match self.pageable {
                    Pageable::Delayed => HostSide::Ordinary(src),
                    Pageable::Staged => {
                        facts.keeps_host = self.cost.staging(facts.bytes);
                        let captured;
                        (entered, captured) =
                            entered.unlocked(|| src.capture()).map_err(|(error, _)| error)?;
                        let captured =
                            captured.ok_or_else(|| entered.error(DriverError::OUT_OF_MEMORY))?;
                        HostSide::Captured(captured)
                    }
                }
            }
        };
        self.submit(entered, stream, Work::Upload { dst, src }, facts)
    }

    unsafe fn copy_d2h(
        &self,
        dst: NonNull<u8>,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let entered = self.enter(DriverCall::CopyD2H)?;
        let mut facts = Facts::of_copy(SimOpKind::CopyD2H, bytes, &self.cost);
        if bytes == 0 {
            return self.submit(entered, stream, Work::Nothing, facts);
        }
        let (dst, waits) = match entered.state.pinned.find(dst, bytes) {
            HostMemory::PageLocked(range) => (HostSide::PageLocked(range), false),
            HostMemory::Invalid => return Err(entered.error(DriverError::INVALID_VALUE)),
            HostMemory::Ordinary => {
                let transfer = self.cost.d2h_pageable(facts.bytes);
                facts.takes = Takes::Host(Direction::Down, transfer);
                // SAFETY: the caller's promise, passed on.
                let dst = unsafe { Ordinary::new(dst, bytes) };
                (HostSide::Ordinary(dst), self.pageable == Pageable::Staged)
            }
        };
        self.submit(entered, stream, Work::Download { dst, src }, facts)?;
        if waits {
            let done = self.user.machine.wait_for_stream(self.device(), stream.id());
            done.map_err(|code| DriverError::new(DriverCall::CopyD2H.name(), code))?;
        }
        Ok(())
    }

    unsafe fn copy_d2d(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::CopyD2D)?;
        if dst.0.abs_diff(src.0) < bytes as u64 {
            entered.state.report(Violation::OverlappingCopy { src, dst });
        }
        let work = if bytes == 0 { Work::Nothing } else { Work::Copy { dst, src, bytes } };
        self.submit(entered, stream, work, Facts::of_copy(SimOpKind::CopyD2D, bytes, &self.cost))
    }

    /// Host memory that is not page-locked, all of the rows in one block, is refused as well.
    unsafe fn copy_rows(&self, copy: &CopyRows, stream: &StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(copy.call())?;
        let Some(kind) = copy_rows::kind(copy) else {
            return Err(entered.error(DriverError::INVALID_VALUE));
        };
        let facts = Facts::of_copy_rows(kind, copy, &self.cost);
        if copy.is_empty() {
            return self.submit(entered, stream, Work::Nothing, facts);
        }
        let Some(rows) = RowCopy::new(copy, &entered.state.pinned) else {
            return Err(entered.error(DriverError::INVALID_VALUE));
        };
        copy_rows::overlap(copy).into_iter().for_each(|overlap| entered.state.report(overlap));
        self.submit(entered, stream, Work::CopyRows(Box::new(rows)), facts)
    }

    fn context(&self) -> ContextHandle {
        self.user.machine.context(self.device())
    }

    /// Refused where one of the devices has failed.
    unsafe fn copy_peer(
        &self,
        dst: DevicePtr,
        dst_context: ContextHandle,
        src: DevicePtr,
        src_context: ContextHandle,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::CopyPeer)?;
        let device_of = |context| {
            let device = self.user.machine.device_of(context);
            device.filter(|&device| entered.state.devices[device].failed.is_none())
        };
        let (Some(from), Some(to)) = (device_of(src_context), device_of(dst_context)) else {
            return Err(entered.error(INVALID_CONTEXT));
        };
        if dst.0.abs_diff(src.0) < bytes as u64 {
            entered.state.report(Violation::OverlappingCopy { src, dst });
        }
        let work = match bytes {
            0 => Work::Nothing,
            bytes => Work::CopyPeer { dst: (to, dst), src: (from, src), bytes },
        };
        let facts = Facts::of_peer_copy(from, to, bytes, &self.cost, self.hardware.peer_links);
        self.submit(entered, stream, work, facts)
    }

    unsafe fn fill(&self, fill: Fill, stream: &StreamHandle) -> DriverResult<()> {
        let entered = self.enter(DriverCall::Fill)?;
        let unit = usize::from(fill.unit);
        let extent = fill_extent(&fill);
        let valid = matches!(unit, 1 | 2 | 4)
            && fill.dst.0.is_multiple_of(unit as u64)
            && extent.is_some_and(|_| {
                fill.rows <= 1
                    || (fill.pitch >= fill.columns * unit && fill.pitch.is_multiple_of(unit))
            });
        let bytes = fill.columns.checked_mul(unit).and_then(|row| row.checked_mul(fill.rows));
        let (true, Some(bytes)) = (valid, bytes) else {
            return Err(entered.error(DriverError::INVALID_VALUE));
        };
        let work = if extent == Some(0) { Work::Nothing } else { Work::Fill(fill) };
        self.submit(entered, stream, work, Facts::of_copy(SimOpKind::Fill, bytes, &self.cost))
    }

    fn module_load(&self, ptx: &CStr) -> Result<ModuleHandle, PtxError> {
        let mut entered = self.enter(DriverCall::ModuleLoad)?;
        let Some(kernels) = ptx.to_str().ok().and_then(kernels_of) else {
            return Err(entered.error(INVALID_PTX).into());
        };
        let id = entered.state.number();
        entered.state.devices[self.device()].modules.load(id, kernels);
        Ok(entered.done(ModuleHandle::new(id))?)
    }

    fn module_unload(&self, module: ModuleHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::ModuleUnload)?;
        match entered.state.devices[self.device()].modules.unload(module.raw()) {
            true => entered.done(()),
            false => Err(entered.error(INVALID_HANDLE)),
        }
    }

    fn module_function(&self, module: &ModuleHandle, name: &CStr) -> DriverResult<FunctionHandle> {
        let mut entered = self.enter(DriverCall::ModuleFunction)?;
        let fresh = entered.state.number();
        let name = name.to_str().map_err(|_| entered.error(NOT_FOUND))?;
        match entered.state.devices[self.device()].modules.function(module.raw(), name, fresh) {
            Some(Some(function)) => entered.done(FunctionHandle::new(function)),
            Some(None) => Err(entered.error(NOT_FOUND)),
            None => Err(entered.error(INVALID_HANDLE)),
        }
    }

    unsafe fn launch(&self, launch: &Launch<'_>, stream: &StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::Launch)?;
        entered.stream(stream.id())?;
        if !entered.state.devices[self.device()].modules.has_function(launch.function.raw()) {
            return Err(entered.error(INVALID_HANDLE));
        }
        if !accepts(&self.info, launch) {
            return Err(entered.error(DriverError::INVALID_VALUE));
        }
        let twin = launch.twin.ok_or_else(|| entered.error(NOT_SUPPORTED))?;
        let facts = Facts::of_launch(launch, &self.cost, &self.hardware);
        // `twin` is user code: called without the lock, and only for a launch that is in order.
        match entered.unlocked(twin) {
            Ok((entered, job)) => {
                let work = Work::Kernel { accesses: launch.accesses.to_vec(), job };
                self.submit(entered, stream, work, facts)
            }
            Err((error, job)) => {
                discard(job);
                Err(error)
            }
        }
    }
}
