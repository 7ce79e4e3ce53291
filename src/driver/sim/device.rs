//! The driver's contract, each method by a few lines on the machine's state.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::bytes::Pinned;
use super::compute::{Kernel, LEVELS};
use super::control::{SimOpKind, Simulator, Violation};
use super::cost::CostModel;
use super::link::Direction;
use super::machine::{Entered, INVALID_HANDLE, Machine};
use super::module::kernels_of;
use super::options::{Hardware, SimOptions};
use super::state::{Event, Facts, Item};
use super::timeline::Takes;
use super::work::{Work, discard, fill_extent};
use crate::driver::{
    DeviceInfo, DevicePtr, Driver, DriverCall, DriverError, DriverResult, EventHandle, Fill,
    FunctionHandle, Launch, ModuleHandle, PtxError, StreamHandle,
};

const INVALID_PTX: u32 = 218;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const NOT_SUPPORTED: u32 = 801;

/// CUDA's priorities: the least urgent and the most, one for each level of urgency.
const PRIORITIES: (i32, i32) = (0, 1 - LEVELS as i32);

/// A machine with one simulated device, and the handle that drives it.
///
/// When the last driver handle goes, what can still run under the schedule runs, the rest is
/// dropped, and the executor thread ends. Page-locked memory not freed goes with the machine.
pub(crate) fn open(options: SimOptions) -> (Arc<dyn Driver>, Simulator) {
    let machine = Machine::new(&options);
    let hardware = options.hardware;
    let info = DeviceInfo {
        name: options.name,
        ordinal: 0,
        simulated: true,
        compute_capability: hardware.compute_capability,
        total_memory: options.total_memory,
        copy_engines: hardware.copy_engines,
        concurrent_kernels: true,
        multiprocessors: hardware.multiprocessors,
        max_block_threads: 1_024,
        max_grid: [i32::MAX as u32, 65_535, 65_535],
        max_block: [1_024, 1_024, 64],
        max_shared_bytes: 49_152,
        priorities: Some(PRIORITIES),
        peers: Vec::new(),
        hardware_queues: 32,
        driver_version: 0,
    };
    let simulator = Simulator::new(Arc::clone(&machine));
    if let Some(to) = options.simulator_to {
        let _ = to.send(simulator.clone());
    }
    let (cost, queue_limit) = (options.cost, options.queue_limit);
    (Arc::new(SimDriver { machine, device: 0, info, hardware, cost, queue_limit }), simulator)
}

/// One device of a simulated machine.
struct SimDriver {
    machine: Arc<Machine>,
    /// Index among the machine's devices.
    device: usize,
    info: DeviceInfo,
    hardware: Hardware,
    cost: CostModel,
    queue_limit: usize,
}

impl SimDriver {
    fn enter(&self, call: DriverCall) -> DriverResult<Entered<'_>> {
        self.machine.enter(self.device, call)
    }

    /// Enqueues work; what is given back on an error is dropped without the lock.
    fn submit(
        &self,
        entered: Entered<'_>,
        stream: &StreamHandle,
        work: Work,
        facts: Facts,
    ) -> DriverResult<()> {
        let host_ns = match facts.kind {
            SimOpKind::Kernel => self.cost.launch_call_ns,
            _ => self.cost.copy_call_ns,
        };
        entered
            .enqueue_work(stream.raw(), Item::Work(work), facts, self.queue_limit, host_ns)
            .map_err(|(error, item)| {
                discard(item);
                error
            })
    }

    /// Whether a launch is one the device can take.
    fn accepts(&self, launch: &Launch<'_>) -> bool {
        let fits = |size: [u32; 3], limit: [u32; 3]| {
            size.iter().zip(limit).all(|(&size, limit)| (1..=limit).contains(&size))
        };
        fits(launch.grid, self.info.max_grid)
            && fits(launch.block, self.info.max_block)
            && product(launch.block) <= u64::from(self.info.max_block_threads)
            && launch.shared_bytes <= self.info.max_shared_bytes
    }
}

fn product(size: [u32; 3]) -> u64 {
    size.iter().fold(1, |all, &one| all.saturating_mul(u64::from(one)))
}

fn copy_facts(kind: SimOpKind, bytes: usize, cost: &CostModel) -> Facts {
    let bytes = bytes as u64;
    let (name, takes) = match kind {
        SimOpKind::CopyH2D => ("copy_h2d", Takes::Host(Direction::Up, cost.h2d(bytes))),
        SimOpKind::CopyD2H => ("copy_d2h", Takes::Host(Direction::Down, cost.d2h(bytes))),
        SimOpKind::CopyD2D => ("copy_d2d", Takes::Within(cost.d2d(bytes))),
        SimOpKind::Fill | SimOpKind::Kernel => ("fill", Takes::Within(cost.fill(bytes))),
    };
    Facts { kind, name, bytes, takes, gate: None }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        let mut state = self.machine.lock();
        state.drivers -= 1;
        self.machine.release(state);
    }
}

#[allow(unsafe_code)] // the contract's unsafe methods; nothing unsafe is done in here
impl Driver for SimDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// A priority that there is not is taken for the next one that there is, as CUDA does.
    fn stream_create(&self, priority: i32) -> DriverResult<StreamHandle> {
        let mut entered = self.enter(DriverCall::StreamCreate)?;
        let (least, most) = PRIORITIES;
        let level = least.abs_diff(priority.clamp(most, least)) as usize;
        let stream = StreamHandle::new(entered.state.add_stream(self.device, level));
        entered.done(stream)
    }

    fn stream_destroy(&self, stream: StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::StreamDestroy)?;
        match entered.state.destroy_stream(stream.raw(), self.device) {
            true => entered.done(()),
            false => Err(entered.error(INVALID_HANDLE)),
        }
    }

    fn stream_wait(&self, stream: &StreamHandle, event: &EventHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::StreamWait)?;
        entered.stream(stream.raw())?;
        let recording = match entered.state.events.get(&event.raw()) {
            Some(event) => event.latest.clone(),
            None => return Err(entered.error(INVALID_HANDLE)),
        };
        match recording {
            Some(recording) => entered.enqueue_control(stream.raw(), Item::Wait(recording)),
            None => entered.done(()),
        }
    }

    fn event_create(&self, timed: bool) -> DriverResult<EventHandle> {
        let mut entered = self.enter(DriverCall::EventCreate)?;
        let id = entered.state.number();
        entered.state.events.insert(id, Event { timed, latest: None });
        entered.done(EventHandle::new(id))
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::EventDestroy)?;
        match entered.state.events.remove(&event.raw()) {
            Some(_) => entered.done(()),
            None => Err(entered.error(INVALID_HANDLE)),
        }
    }

    fn event_record(&self, event: &EventHandle, stream: &StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::EventRecord)?;
        entered.stream(stream.raw())?;
        let recording = entered.state.new_recording(stream.raw());
        match entered.state.events.get_mut(&event.raw()) {
            Some(event) => event.latest = Some(Arc::clone(&recording)),
            None => return Err(entered.error(INVALID_HANDLE)),
        }
        entered.enqueue_control(stream.raw(), Item::Record(recording))
    }

    /// Moves the host's virtual clock to the recording's time if that was reached.
    fn event_query(&self, event: &EventHandle) -> DriverResult<bool> {
        let answer = self.enter(DriverCall::EventQuery).and_then(|mut entered| {
            let Some(event) = entered.state.events.get(&event.raw()) else {
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
            let event = entered.state.events.get(&event.raw()).filter(|event| event.timed);
            let recording = event.and_then(|event| event.latest.as_ref());
            let recording = recording.ok_or_else(|| entered.error(INVALID_HANDLE))?;
            recording.reached().ok_or_else(|| entered.error(NOT_READY))
        };
        let (start, end) = (time(start)?, time(end)?);
        entered.done(Duration::from_nanos(end.saturating_sub(start)))
    }

    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DriverResult<DevicePtr> {
        let mut entered = self.enter(DriverCall::Alloc)?;
        entered.stream(stream.raw())?;
        if bytes == 0 {
            return Err(entered.error(DriverError::INVALID_VALUE));
        }
        let memory = &mut entered.state.devices[self.device].memory;
        let Some((ptr, allocation)) = memory.alloc(bytes) else {
            entered.state.need_frees(self.device);
            return Err(entered.error(DriverError::OUT_OF_MEMORY));
        };
        entered.enqueue_control(stream.raw(), Item::Alloc { ptr, allocation })?;
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::Free)?;
        entered.stream(stream.raw())?;
        if !entered.state.devices[self.device].memory.begin_free(ptr) {
            return Err(entered.error(DriverError::INVALID_VALUE));
        }
        entered.enqueue_control(stream.raw(), Item::Free(ptr))
    }

    fn memory_free(&self) -> DriverResult<u64> {
        let entered = self.enter(DriverCall::MemoryFree)?;
        let free = entered.state.devices[self.device].memory.free_bytes();
        entered.done(free)
    }

    fn host_alloc(&self, bytes: usize) -> DriverResult<NonNull<u8>> {
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
        let Some(block) = entered.state.pinned.remove(ptr) else {
            return Err(entered.error(DriverError::INVALID_VALUE));
        };
        if Arc::strong_count(&block) > 1 {
            entered.state.report(Violation::PinnedFreedInUse { bytes: block.len() });
        }
        let freed = entered.done(());
        drop(block); // without the lock
        freed
    }

    unsafe fn copy_h2d(
        &self,
        dst: DevicePtr,
        src: NonNull<u8>,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let entered = self.enter(DriverCall::CopyH2D)?;
        let work = match entered.state.pinned.find(src, bytes) {
            _ if bytes == 0 => Work::Nothing,
            Some(src) => Work::Upload { dst, src },
            None => return Err(entered.error(DriverError::INVALID_VALUE)),
        };
        self.submit(entered, stream, work, copy_facts(SimOpKind::CopyH2D, bytes, &self.cost))
    }

    unsafe fn copy_d2h(
        &self,
        dst: NonNull<u8>,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let entered = self.enter(DriverCall::CopyD2H)?;
        let work = match entered.state.pinned.find(dst, bytes) {
            _ if bytes == 0 => Work::Nothing,
            Some(dst) => Work::Download { dst, src },
            None => return Err(entered.error(DriverError::INVALID_VALUE)),
        };
        self.submit(entered, stream, work, copy_facts(SimOpKind::CopyD2H, bytes, &self.cost))
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
        self.submit(entered, stream, work, copy_facts(SimOpKind::CopyD2D, bytes, &self.cost))
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
        self.submit(entered, stream, work, copy_facts(SimOpKind::Fill, bytes, &self.cost))
    }

    fn module_load(&self, ptx: &CStr) -> Result<ModuleHandle, PtxError> {
        let mut entered = self.enter(DriverCall::ModuleLoad)?;
        let Some(kernels) = ptx.to_str().ok().and_then(kernels_of) else {
            return Err(entered.error(INVALID_PTX).into());
        };
        let id = entered.state.number();
        entered.state.modules.load(id, kernels);
        Ok(entered.done(ModuleHandle::new(id))?)
    }

    fn module_unload(&self, module: ModuleHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::ModuleUnload)?;
        match entered.state.modules.unload(module.raw()) {
            true => entered.done(()),
            false => Err(entered.error(INVALID_HANDLE)),
        }
    }

    fn module_function(&self, module: &ModuleHandle, name: &CStr) -> DriverResult<FunctionHandle> {
        let mut entered = self.enter(DriverCall::ModuleFunction)?;
        let fresh = entered.state.number();
        let name = name.to_str().map_err(|_| entered.error(NOT_FOUND))?;
        match entered.state.modules.function(module.raw(), name, fresh) {
            Some(Some(function)) => entered.done(FunctionHandle::new(function)),
            Some(None) => Err(entered.error(NOT_FOUND)),
            None => Err(entered.error(INVALID_HANDLE)),
        }
    }

    unsafe fn launch(&self, launch: &Launch<'_>, stream: &StreamHandle) -> DriverResult<()> {
        let mut entered = self.enter(DriverCall::Launch)?;
        entered.stream(stream.raw())?;
        if !entered.state.modules.has_function(launch.function.raw()) {
            return Err(entered.error(INVALID_HANDLE));
        }
        if !self.accepts(launch) {
            return Err(entered.error(DriverError::INVALID_VALUE));
        }
        let twin = launch.twin.ok_or_else(|| entered.error(NOT_SUPPORTED))?;
        let touched = launch.accesses.iter().map(|access| access.bytes as u64);
        let bytes = touched.fold(0, u64::saturating_add);
        let (blocks, threads_each) = (product(launch.grid), product(launch.block));
        let kernel = Kernel {
            ns: self.cost.kernel(launch.cost, bytes),
            threads: blocks.saturating_mul(threads_each),
            waves: blocks.div_ceil(self.hardware.blocks(threads_each)),
        };
        let facts = Facts {
            kind: SimOpKind::Kernel,
            name: launch.name,
            bytes,
            takes: Takes::Multiprocessors(kernel),
            gate: launch.gate,
        };
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
