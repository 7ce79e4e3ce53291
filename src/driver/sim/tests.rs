//! The simulated device through the driver's contract.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::bytes::POISON;
use super::{Schedule, SimEngine, SimOptions, Simulator, Violation, open};
use crate::driver::{
    DevicePtr, Driver, DriverResult, EventHandle, Fill, FunctionHandle, KernelCost, Launch,
    MemAccess, StreamHandle, TwinFault, TwinJob, TwinMemory,
};

/// A device with one kernel loaded, and short names for what tests do.
struct Bench {
    driver: Arc<dyn Driver>,
    sim: Simulator,
    function: FunctionHandle,
}

fn bench(options: SimOptions) -> Bench {
    let (driver, sim) = open(options);
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

// SAFETY (all unsafe calls in here): what a test gets wrong of the contract's memory rules on
// purpose, the simulator is made to report; pinned ranges are live while host code reads them.
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

    fn free(&self, ptr: DevicePtr, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.free(ptr, stream) }.unwrap();
    }

    fn fill(&self, ptr: DevicePtr, value: u8, bytes: usize, stream: &StreamHandle) {
        let value = u32::from(value);
        let fill = Fill { dst: ptr, unit: 1, value, columns: bytes, rows: 1, pitch: 0 };
        // SAFETY: as said at the impl.
        unsafe { self.driver.fill(fill, stream) }.unwrap();
    }

    fn up(&self, dst: DevicePtr, src: NonNull<u8>, bytes: usize, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_h2d(dst, src, bytes, stream) }.unwrap();
    }

    fn down(&self, dst: NonNull<u8>, src: DevicePtr, bytes: usize, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_d2h(dst, src, bytes, stream) }.unwrap();
    }

    fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: usize, stream: &StreamHandle) {
        // SAFETY: as said at the impl.
        unsafe { self.driver.copy_d2d(dst, src, bytes, stream) }.unwrap();
    }

    fn try_launch(
        &self,
        accesses: &[MemAccess],
        cost: KernelCost,
        blocks: u32,
        stream: &StreamHandle,
        twin: Option<&dyn Fn() -> TwinJob>,
    ) -> DriverResult<()> {
        let launch = Launch {
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

    /// What the device holds, read when all that runs by itself has run.
    fn read(&self, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
        let stream = self.stream();
        let host = self.driver.host_alloc(bytes).unwrap();
        self.down(host, ptr, bytes, &stream);
        while self.sim.step_stream(stream.raw()).is_some() {}
        self.sim.settle();
        self.host(host, bytes)
    }

    fn host(&self, host: NonNull<u8>, bytes: usize) -> Vec<u8> {
        // SAFETY: as said at the impl.
        unsafe { std::slice::from_raw_parts(host.as_ptr(), bytes) }.to_vec()
    }

    fn done(&self, event: &EventHandle) -> bool {
        self.driver.event_query(event).unwrap()
    }

    fn pending(&self) -> Vec<(&'static str, u64, bool)> {
        self.sim.pending().iter().map(|op| (op.name, op.stream, op.runnable)).collect()
    }
}

#[test]
fn operations_of_one_stream_run_in_the_order_enqueued() {
    let b = stepped();
    let s = b.stream();
    let ptr = b.alloc(4, &s);
    b.fill(ptr, 1, 4, &s);
    let first = b.record(&s);
    b.fill(ptr, 2, 4, &s);
    let second = b.record(&s);
    let id = s.raw();
    assert_eq!(b.pending(), [("fill", id, true), ("fill", id, false)]);
    let later = b.sim.pending()[1].id;
    assert_eq!(b.sim.run(later), None, "not its turn");
    assert!(!b.done(&first));
    assert!(b.sim.step().is_some());
    assert!(b.done(&first) && !b.done(&second));
    assert_eq!(b.read(ptr, 4), [1; 4]);
    assert_eq!(b.sim.run_all(), 1);
    assert!(b.done(&second));
    assert_eq!(b.read(ptr, 4), [2; 4]);
    assert_eq!(b.sim.step(), None);
}

#[test]
fn streams_are_not_ordered_unless_one_waits() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let ptr = b.alloc(4, &s);
    b.sim.settle();
    b.fill(ptr, 1, 4, &s);
    b.fill(ptr, 2, 4, &t);
    assert!(b.sim.step_stream(t.raw()).is_some(), "nothing holds it");
    assert!(b.sim.step().is_some());
    assert_eq!(b.read(ptr, 4), [1; 4], "the later write ran first");

    b.fill(ptr, 3, 4, &s);
    let written = b.record(&s);
    b.driver.stream_wait(&t, &written).unwrap();
    b.fill(ptr, 4, 4, &t);
    assert_eq!(b.sim.step_stream(t.raw()), None);
    assert_eq!(b.pending(), [("fill", s.raw(), true), ("fill", t.raw(), false)]);
    assert!(b.sim.step().is_some());
    assert!(b.sim.step_stream(t.raw()).is_some());
    assert_eq!(b.read(ptr, 4), [4; 4]);
}

#[test]
fn a_wait_is_for_the_recording_there_was_at_the_call() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let ptr = b.alloc(4, &s);
    let event = b.event();
    b.driver.stream_wait(&t, &event).unwrap();
    b.fill(ptr, 1, 4, &s);
    b.driver.event_record(&event, &s).unwrap();
    b.driver.stream_wait(&t, &event).unwrap();
    b.fill(ptr, 2, 4, &s);
    b.driver.event_record(&event, &s).unwrap();
    b.fill(ptr, 3, 4, &t);

    assert_eq!(b.sim.step_stream(t.raw()), None);
    b.sim.step_stream(s.raw());
    assert!(b.sim.step_stream(t.raw()).is_some(), "the first recording was reached");
    assert!(!b.done(&event), "a query is for the last recording");
    b.sim.step_stream(s.raw());
    assert!(b.done(&event));
}

#[test]
fn an_event_never_recorded_is_finished_and_has_no_time() {
    let b = eager();
    let (event, plain) = (b.event(), b.driver.event_create(false).unwrap());
    assert!(b.done(&event));
    assert_eq!(code(b.driver.event_elapsed(&event, &event)), Some(400));
    b.driver.event_record(&plain, &b.stream()).unwrap();
    assert_eq!(code(b.driver.event_elapsed(&plain, &plain)), Some(400));
}

#[test]
fn nothing_runs_on_the_calling_thread_and_calls_go_on_while_a_twin_runs() {
    let b = eager();
    let s = b.stream();
    let (open_gate, gate) = mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let (told, ran_on) = mpsc::channel();
    b.launch(&s, move |_| {
        gate.lock().unwrap().recv().unwrap();
        told.send(thread::current().id()).unwrap();
        Ok(())
    });
    let event = b.record(&s);
    let t = b.stream();
    let ptr = b.alloc(64, &t);
    b.fill(ptr, 1, 64, &t);
    assert!(!b.done(&event));
    assert!(ran_on.try_recv().is_err());
    open_gate.send(()).unwrap();
    assert_ne!(ran_on.recv().unwrap(), thread::current().id());
    b.sim.settle();
    assert!(b.done(&event));
}

#[test]
fn memory_is_freed_in_stream_order_and_the_address_comes_back_poisoned() {
    let b = stepped();
    let s = b.stream();
    let ptr = b.alloc(100, &s);
    b.fill(ptr, 7, 100, &s);
    b.free(ptr, &s);
    assert_eq!(code(unsafe_free(&b, ptr, &s)), Some(1), "freed already");
    b.sim.settle();
    assert_eq!(b.sim.live_device_bytes(), 256);
    assert_ne!(b.alloc(100, &s), ptr, "the fill has not run");
    assert!(b.sim.step().is_some());
    assert_eq!(b.sim.live_device_bytes(), 256, "the second block's");
    let again = b.alloc(90, &s);
    assert_eq!(again, ptr);
    b.sim.settle();
    assert_eq!(b.read(again, 90), [POISON; 90]);
    assert_eq!(b.sim.violations(), []);
}

fn unsafe_free(b: &Bench, ptr: DevicePtr, s: &StreamHandle) -> DriverResult<()> {
    // SAFETY: not kept, on purpose; the simulator answers with an error.
    unsafe { b.driver.free(ptr, s) }
}

#[test]
fn memory_runs_out_at_its_total() {
    let b = bench(SimOptions::new().total_memory(1_024));
    let s = b.stream();
    let ptr = b.alloc(800, &s);
    assert_eq!(b.driver.memory_free().unwrap(), 0);
    assert_eq!(code(b.driver.alloc(1, &s)), Some(2));
    assert_eq!(code(b.driver.alloc(0, &s)), Some(1));
    b.free(ptr, &s);
    b.sim.settle();
    assert_eq!(b.driver.memory_free().unwrap(), 1_024);
}

#[test]
fn an_illegal_address_ends_the_device_and_queries_fail() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let ptr = b.alloc(16, &s);
    let before = b.record(&s);
    b.sim.settle();
    assert!(b.done(&before));
    b.fill(ptr, 1, 17, &s);
    b.fill(ptr, 1, 16, &t);
    let after = b.record(&t);
    assert_eq!(b.sim.step().map(|op| op.bytes), Some(17));
    for event in [&before, &after] {
        assert_eq!(code(b.driver.event_query(event)), Some(700));
    }
    assert_eq!(code(b.driver.alloc(1, &s)), Some(700));
    assert_eq!(code(b.driver.host_alloc(1)), Some(700));
    assert!(b.driver.event_query(&after).is_err_and(|error| error.is_sticky()));
    assert_eq!(b.pending(), [], "what was pending never runs");
    assert_eq!(b.sim.step(), None);
    let illegal = Violation::IllegalAddress { name: "fill", ptr, bytes: 17 };
    assert_eq!(b.sim.violations(), [illegal]);
}

#[test]
fn memory_cannot_be_used_before_its_allocation() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let other = b.alloc(4, &s);
    b.fill(other, 1, 4, &s);
    let ptr = b.alloc(4, &s);
    b.fill(ptr, 1, 4, &t);
    b.sim.step_stream(t.raw());
    assert_eq!(b.sim.violations(), [Violation::UseBeforeAlloc { name: "fill", ptr, bytes: 4 }]);
    assert_eq!(code(b.driver.stream_create(0)), Some(700));
}

#[test]
fn a_twin_that_panics_ends_the_device() {
    let b = eager();
    let s = b.stream();
    b.launch(&s, |_| std::panic::resume_unwind(Box::new("on purpose")));
    b.sim.settle();
    assert_eq!(code(b.driver.event_create(false)), Some(719));
    assert_eq!(b.sim.violations(), [Violation::TwinPanicked { name: "kernel" }]);
}

#[test]
fn a_twin_sees_the_memory_its_launch_declared_and_no_other() {
    let b = eager();
    let s = b.stream();
    let (x, y) = (b.alloc(8, &s), b.alloc(8, &s));
    b.fill(x, 5, 8, &s);
    let reads = [MemAccess { ptr: x, bytes: 8, writes: false }];
    let twin = move || -> TwinJob {
        Box::new(move |memory| {
            let at = memory.resolve(DevicePtr(x.0 + 2), 6).unwrap();
            // SAFETY: six bytes that the launch reads.
            assert_eq!(unsafe { std::slice::from_raw_parts(at.as_ptr(), 6) }, [5; 6]);
            assert!(memory.resolve(x, 9).is_none());
            assert!(memory.resolve(y, 0).is_some());
            memory.resolve(y, 1).map(drop).ok_or(TwinFault { ptr: y, bytes: 1 })
        })
    };
    b.try_launch(&reads, KernelCost::Unknown, 1, &s, Some(&twin)).unwrap();
    b.sim.settle();
    assert_eq!(code(b.driver.event_create(false)), Some(700));
    let illegal = Violation::IllegalAddress { name: "kernel", ptr: y, bytes: 1 };
    assert_eq!(b.sim.violations(), [illegal]);
}

#[test]
fn a_launch_whose_write_overlaps_another_access_does_not_run() {
    let b = eager();
    let s = b.stream();
    let x = b.alloc(8, &s);
    let access = |offset, writes| MemAccess { ptr: DevicePtr(x.0 + offset), bytes: 4, writes };
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let twin = move || -> TwinJob {
        let counter = Arc::clone(&counter);
        Box::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    };
    for accesses in [
        [access(0, false), access(2, false)],
        [access(0, true), access(4, true)],
        [access(0, false), access(3, true)],
    ] {
        b.try_launch(&accesses, KernelCost::Unknown, 1, &s, Some(&twin)).unwrap();
        b.sim.settle();
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
    let second = DevicePtr(x.0 + 3);
    let overlap = Violation::OverlappingAccesses { name: "kernel", first: x, second };
    assert_eq!(b.sim.violations(), [overlap]);
    assert_eq!(code(b.driver.event_create(false)), Some(700));
}

#[test]
fn a_launch_is_refused_at_the_call_for_what_the_device_cannot_do() {
    let b = eager();
    let s = b.stream();
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    assert_eq!(code(b.try_launch(&[], KernelCost::Unknown, 0, &s, Some(&twin))), Some(1));
    assert_eq!(code(b.try_launch(&[], KernelCost::Unknown, 1, &s, None)), Some(801));
    let gone = StreamHandle::new(s.raw());
    b.driver.stream_destroy(s).unwrap();
    assert_eq!(code(b.try_launch(&[], KernelCost::Unknown, 1, &gone, Some(&twin))), Some(400));
    assert_eq!(code(b.driver.stream_destroy(gone)), Some(400));
    assert_eq!(code(b.driver.event_destroy(EventHandle::new(99))), Some(400));
    let ptx = CString::new(".visible .entry kernel()").unwrap();
    assert_eq!(code(b.driver.module_load(&ptx)), Some(218));
    let ptx = CString::new(".version 8.0").unwrap();
    let module = b.driver.module_load(&ptx).unwrap();
    assert_eq!(code(b.driver.module_function(&module, c"kernel")), Some(500));
}

#[test]
fn a_full_queue_blocks_the_call_until_an_operation_has_run() {
    let b = bench(SimOptions::new().schedule(Schedule::Stepped).queue_limit(3));
    let (s, t) = (b.stream(), b.stream());
    let ptr = b.alloc(4, &s);
    for _ in 0..3 {
        b.fill(ptr, 1, 4, &s);
    }
    for _ in 0..10 {
        drop(b.record(&s)); // records do not count
    }
    b.fill(ptr, 2, 4, &t);
    assert_eq!(b.sim.blocked_calls(), 0);
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        let fourth = scope.spawn(|| {
            b.fill(ptr, 3, 4, &s);
            returned.store(true, Ordering::Release);
        });
        while b.sim.blocked_calls() == 0 {
            thread::yield_now();
        }
        b.sim.step_stream(t.raw());
        thread::sleep(Duration::from_millis(20));
        assert!(!returned.load(Ordering::Acquire), "another stream's operation makes no room");
        b.sim.step_stream(s.raw());
        fourth.join().unwrap();
    });
    assert_eq!((b.sim.blocked_calls(), b.sim.pending().len()), (1, 3));
}

#[test]
fn a_pipeline_on_two_streams_overlaps_to_the_nanosecond() {
    const BYTES: usize = 1 << 20;
    // 1,300 + 18,928 up, 30,000 for the kernel, 1,300 + 19,031 down.
    const UP: u64 = 20_228;
    const KERNEL: u64 = 30_000;
    const DOWN: u64 = 20_331;
    let b = stepped();
    let streams = [b.stream(), b.stream()];
    let host = b.driver.host_alloc(BYTES).unwrap();
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    for s in &streams {
        let ptr = b.alloc(BYTES, s);
        b.up(ptr, host, BYTES, s);
        b.try_launch(&[], KernelCost::Nanoseconds(KERNEL), 4_096, s, Some(&twin)).unwrap();
        b.down(host, ptr, BYTES, s);
    }
    // The host's clock: a copy call costs 1,300, a launch 3,000.
    assert_eq!(b.sim.host_now(), 2 * (1_300 + 3_000 + 1_300));
    assert_eq!(b.sim.run_all(), 6);
    let spans: Vec<_> = b.sim.timeline().iter().map(|s| (s.engine, s.start, s.end)).collect();
    let (h2d, d2h, compute) = (SimEngine::CopyH2D, SimEngine::CopyD2H, SimEngine::Compute);
    let up = [1_300 + UP, 1_300 + 2 * UP];
    let kernel = [up[0] + KERNEL, up[0] + 2 * KERNEL];
    assert_eq!(
        spans,
        [
            (h2d, 1_300, up[0]),
            (compute, up[0], kernel[0]),
            (d2h, kernel[0], kernel[0] + DOWN),
            (h2d, up[0], up[1]),
            (compute, kernel[0], kernel[1]),
            (d2h, kernel[1], kernel[1] + DOWN),
        ]
    );
}

#[test]
fn small_kernels_run_beside_each_other_and_a_wait_moves_the_start() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let start = b.record(&s);
    b.launch(&s, |_| Ok(()));
    b.launch(&t, |_| Ok(()));
    let end = b.record(&s);
    assert_eq!(code(b.driver.event_elapsed(&start, &end)), Some(600));
    b.driver.stream_wait(&t, &end).unwrap();
    b.launch(&t, |_| Ok(()));
    b.sim.run_all();
    let spans: Vec<_> = b.sim.timeline().iter().map(|s| (s.start, s.end)).collect();
    assert_eq!(spans, [(3_000, 4_000), (6_000, 7_000), (9_000, 10_000)]);
    let elapsed = b.driver.event_elapsed(&start, &end).unwrap();
    assert_eq!(elapsed, Duration::from_nanos(6_000), "the record was made at 6,000");
    let last = b.record(&t);
    b.sim.settle();
    assert!(b.done(&last));
    assert_eq!(b.sim.host_now(), 10_000, "seen finished, so it is at least that late");
}

#[test]
fn a_destroyed_streams_work_still_runs() {
    let b = stepped();
    let s = b.stream();
    let ptr = b.alloc(4, &s);
    b.fill(ptr, 9, 4, &s);
    let event = b.record(&s);
    b.driver.stream_destroy(s).unwrap();
    b.driver.event_destroy(b.event()).unwrap();
    assert!(!b.done(&event));
    assert_eq!(b.sim.run_all(), 1);
    assert!(b.done(&event));
    assert_eq!(b.read(ptr, 4), [9; 4]);
}

#[test]
fn copies_and_fills_move_the_bytes_they_name() {
    let b = eager();
    let s = b.stream();
    let host = b.driver.host_alloc(8).unwrap();
    let (x, y) = (b.alloc(8, &s), b.alloc(12, &s));
    let value = 0x0403_0201;
    let fill = Fill { dst: x, unit: 4, value, columns: 2, rows: 1, pitch: 0 };
    // SAFETY: inside `x`, in stream order.
    unsafe { b.driver.fill(fill, &s) }.unwrap();
    b.down(host, x, 8, &s);
    b.copy(y, DevicePtr(x.0 + 1), 7, &s);
    let fill = Fill { dst: y, unit: 2, value: 0xFFEE, columns: 1, rows: 3, pitch: 4 };
    // SAFETY: inside `y`, in stream order.
    unsafe { b.driver.fill(fill, &s) }.unwrap();
    b.up(DevicePtr(x.0 + 4), host, 2, &s);
    b.sim.settle();
    assert_eq!(b.host(host, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(
        b.read(y, 12),
        [0xEE, 0xFF, 4, 1, 0xEE, 0xFF, 4, POISON, 0xEE, 0xFF, POISON, POISON]
    );
    assert_eq!(b.read(x, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    for fill in [
        Fill { unit: 3, ..fill },
        Fill { pitch: 1, ..fill },
        Fill { columns: usize::MAX, ..fill },
        Fill { dst: DevicePtr(y.0 + 1), ..fill },
    ] {
        // SAFETY: refused.
        assert_eq!(code(unsafe { b.driver.fill(fill, &s) }), Some(1), "{fill:?}");
    }
}

#[test]
fn page_locked_memory_freed_under_a_pending_copy_is_reported_and_not_touched() {
    let b = stepped();
    let s = b.stream();
    let host = b.driver.host_alloc(64).unwrap();
    let other = b.driver.host_alloc(64).unwrap();
    assert_eq!(b.host(host, 64), [POISON; 64]);
    let ptr = b.alloc(64, &s);
    b.up(ptr, host, 64, &s);
    // SAFETY: `other` is in no operation; `host` is, on purpose.
    unsafe { b.driver.host_free(other) }.unwrap();
    assert_eq!(b.sim.violations(), []);
    // SAFETY: as above.
    unsafe { b.driver.host_free(host) }.unwrap();
    assert_eq!(b.sim.live_pinned_bytes(), 0);
    // SAFETY: refused at the call.
    assert_eq!(code(unsafe { b.driver.copy_h2d(ptr, host, 64, &s) }), Some(1));
    assert!(b.sim.step().is_some());
    assert_eq!(code(b.driver.event_create(false)), Some(700));
    let freed = Violation::FreedPinned { name: "copy_h2d", bytes: 64 };
    assert_eq!(b.sim.violations(), [Violation::PinnedFreedInUse { bytes: 64 }, freed]);
}

#[test]
fn the_executor_ends_with_the_last_driver_and_runs_first_what_it_can() {
    for (schedule, runs) in [(Schedule::Eager, true), (Schedule::Stepped, false)] {
        let b = bench(SimOptions::new().schedule(schedule));
        let s = b.stream();
        let (told, heard) = mpsc::channel();
        b.launch(&s, move |_| {
            told.send(()).unwrap();
            Ok(())
        });
        let Bench { driver, sim, .. } = b;
        drop(driver);
        // The twin holds the only sender: it ran, or it was dropped.
        assert_eq!(heard.recv().is_ok(), runs, "{schedule:?}");
        sim.settle();
        assert_eq!(sim.step(), None);
    }
}

#[test]
fn a_twin_that_drives_the_simulator_does_not_hang() {
    let b = eager();
    let s = b.stream();
    let (told, heard) = mpsc::channel();
    let sim = b.sim.clone();
    b.launch(&s, move |_| {
        sim.settle();
        told.send((sim.step().is_none(), sim.pending().len())).unwrap();
        Ok(())
    });
    assert_eq!(heard.recv().unwrap(), (true, 0));
}

#[test]
fn the_schedule_can_be_changed_while_operations_are_pending() {
    let b = stepped();
    let s = b.stream();
    for _ in 0..5 {
        b.launch(&s, |_| Ok(()));
    }
    b.sim.step();
    b.sim.set_schedule(Schedule::Eager);
    b.sim.settle();
    assert_eq!(b.pending(), []);
    assert_eq!(b.sim.timeline().len(), 5);
}
