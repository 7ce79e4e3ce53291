//! The simulated device through the driver's contract.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used)]

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bytes::POISON;
use super::{
    CostModel, Pageable, Schedule, SimEngine, SimMachine, SimOptions, Simulator, Violation, open,
};
use crate::driver::{
    CopyRows, DevicePtr, Driver, DriverResult, EventHandle, Fill, FunctionHandle, HostKind,
    KernelCost, Launch, MemAccess, StreamHandle, TwinFault, TwinJob, TwinMemory,
};

mod faults;
mod host;
mod injected;
mod lazy;
mod many;
mod memory;
mod order;
mod pageable;
mod program;
mod random;
mod rows;
mod slow;
mod stuck;
mod time;

/// A device with one kernel loaded, and short names for what tests do.
struct Bench {
    driver: Arc<dyn Driver>,
    sim: Simulator,
    function: FunctionHandle,
}

fn bench(options: SimOptions) -> Bench {
    bench_on(open(options))
}

fn bench_on((driver, sim): (Arc<dyn Driver>, Simulator)) -> Bench {
    let ptx = CString::new(".version 8.0\n.visible .entry kernel(\n)\n{\n}\n").unwrap();
    let module = driver.module_load(&ptx).unwrap();
    let function = driver.module_function(&module, c"kernel").unwrap();
    Bench { driver, sim, function }
}

fn eager() -> Bench {
    bench(SimOptions::new())
}

fn stepped() -> Bench {
    bench(SimOptions::new().schedule(Schedule::Stepped))
}

fn code<T>(result: DriverResult<T>) -> Option<u32> {
    result.err().map(|error| error.code())
}

/// Ordinary memory that stays for good.
fn leaked(bytes: usize) -> NonNull<u8> {
    NonNull::from(Box::leak(vec![0_u8; bytes].into_boxed_slice())).cast()
}

/// What page-locked memory holds, or memory that a twin resolved.
fn bytes_at(ptr: NonNull<u8>, bytes: usize) -> Vec<u8> {
    // SAFETY: tests ask for live ranges that no operation being run writes.
    unsafe { std::slice::from_raw_parts(ptr.as_ptr(), bytes) }.to_vec()
}

// SAFETY (all unsafe calls in here): what a test gets wrong of the contract's memory rules on
// purpose, the simulator is made to report.
impl Bench {
    fn stream(&self) -> StreamHandle {
        self.driver.stream_create(0).unwrap()
    }

    fn event(&self) -> EventHandle {
        self.driver.event_create(true).unwrap()
    }

    fn record(&self, stream: &StreamHandle) -> EventHandle {
        let event = self.event();
        self.driver.event_record(&event, stream).unwrap();
        event
    }

    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DevicePtr {
        self.driver.alloc(bytes, stream).unwrap()
    }

    fn try_free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.free(ptr, stream) }
    }

    fn free(&self, ptr: DevicePtr, stream: &StreamHandle) {
        self.try_free(ptr, stream).unwrap();
    }

    fn try_host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.host_free(ptr) }
    }

    fn host_free(&self, ptr: NonNull<u8>) {
        self.try_host_free(ptr).unwrap();
    }

    fn try_register(&self, ptr: NonNull<u8>, bytes: usize) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.host_register(ptr, bytes) }
    }

    fn try_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.host_unregister(ptr) }
    }

    fn try_fill(&self, fill: Fill, stream: &StreamHandle) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.fill(fill, stream) }
    }

    fn fill(&self, dst: DevicePtr, value: u8, bytes: usize, stream: &StreamHandle) {
        let value = u32::from(value);
        let fill = Fill { dst, unit: 1, value, columns: bytes, rows: 1, pitch: 0 };
        self.try_fill(fill, stream).unwrap();
    }

    fn try_up(
        &self,
        dst: DevicePtr,
        src: NonNull<u8>,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_h2d(dst, src, bytes, stream) }
    }

    fn up(&self, dst: DevicePtr, src: NonNull<u8>, bytes: usize, stream: &StreamHandle) {
        self.try_up(dst, src, bytes, stream).unwrap();
    }

    fn try_down(
        &self,
        dst: NonNull<u8>,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_d2h(dst, src, bytes, stream) }
    }

    fn down(&self, dst: NonNull<u8>, src: DevicePtr, bytes: usize, stream: &StreamHandle) {
        self.try_down(dst, src, bytes, stream).unwrap();
    }

    fn try_copy(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_d2d(dst, src, bytes, stream) }
    }

    fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: usize, stream: &StreamHandle) {
        self.try_copy(dst, src, bytes, stream).unwrap();
    }

    fn try_copy_rows(&self, copy: &CopyRows, stream: &StreamHandle) -> DriverResult<()> {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_rows(copy, stream) }
    }

    /// From this device to another, on a stream of this one.
    fn try_peer(
        &self,
        to: &Bench,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let (dst_context, src_context) = (to.driver.context(), self.driver.context());
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_peer(dst, dst_context, src, src_context, bytes, stream) }
    }

    fn try_launch(
        &self,
        accesses: &[MemAccess],
        cost: KernelCost,
        blocks: u32,
        stream: &StreamHandle,
        twin: Option<&dyn Fn() -> TwinJob>,
    ) -> DriverResult<()> {
        self.try_launch_at(None, accesses, cost, blocks, stream, twin)
    }

    fn try_launch_at(
        &self,
        gate: Option<u64>,
        accesses: &[MemAccess],
        cost: KernelCost,
        blocks: u32,
        stream: &StreamHandle,
        twin: Option<&dyn Fn() -> TwinJob>,
    ) -> DriverResult<()> {
        let launch = Launch {
            gate,
            function: &self.function,
            name: "kernel",
            grid: [blocks, 1, 1],
            block: [256, 1, 1],
            shared_bytes: 0,
            params: &[],
            accesses,
            cost,
            twin,
        };
        // SAFETY: as said at the impl.
        unsafe { self.driver.launch(&launch, stream) }
    }

    fn launch(
        &self,
        stream: &StreamHandle,
        twin: impl Fn(&dyn TwinMemory) -> Result<(), TwinFault> + Clone + Send + 'static,
    ) {
        let twin = move || Box::new(twin.clone()) as TwinJob;
        self.try_launch(&[], KernelCost::Nanoseconds(1_000), 1, stream, Some(&twin)).unwrap();
    }

    /// A launch that does nothing, and not before the gate is open.
    fn launch_at(&self, gate: u64, stream: &StreamHandle) {
        let twin = || Box::new(|_: &dyn TwinMemory| Ok(())) as TwinJob;
        let cost = KernelCost::Nanoseconds(1_000);
        self.try_launch_at(Some(gate), &[], cost, 1, stream, Some(&twin)).unwrap();
    }

    /// Asks for the event until it is finished: how often.
    fn wait_for(&self, event: &EventHandle) -> usize {
        let deadline = Instant::now() + Duration::from_secs(30);
        let finished = |_: &usize| {
            assert!(Instant::now() < deadline, "it is never finished");
            std::thread::yield_now();
            self.done(event)
        };
        (1..).find(finished).unwrap()
    }

    /// The names and streams of what has run, in that order.
    fn ran(&self) -> Vec<(&'static str, u64)> {
        self.sim.timeline().iter().map(|span| (span.name, span.stream)).collect()
    }

    /// What the device holds, read when all that runs by itself has run.
    fn read(&self, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
        let stream = self.stream();
        let host = self.driver.host_alloc(bytes, HostKind::Cacheable).unwrap();
        self.down(host, ptr, bytes, &stream);
        while self.sim.step_stream(stream.raw()).is_some() {}
        self.sim.settle();
        bytes_at(host, bytes)
    }

    fn done(&self, event: &EventHandle) -> bool {
        self.driver.event_query(event).unwrap()
    }

    fn pending(&self) -> Vec<(&'static str, u64, bool)> {
        self.sim.pending().iter().map(|op| (op.name, op.stream, op.runnable)).collect()
    }
}
