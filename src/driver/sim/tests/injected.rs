//! Faults that a test asks for: at calls of the driver, and on the device.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Bench, bytes_at, code, eager, leaked, stepped};
use crate::driver::sim::{Fault, Injected, SimOpKind, SimOptions, Simulator, open};
use crate::driver::{
    CopyMemory, CopyRows, CopySide, DevicePtr, DriverCall, DriverError, DriverResult, EventHandle,
    Fill, HostKind, KernelCost, ModuleHandle, StreamHandle, TwinJob,
};

const INVALID_VALUE: u32 = DriverError::INVALID_VALUE;
const NOT_READY: u32 = DriverError::NOT_READY;
const LAUNCH_FAILED: u32 = DriverError::LAUNCH_FAILED;
const ECC_UNCORRECTABLE: u32 = DriverError::ECC_UNCORRECTABLE;
const NOT_SUPPORTED: u32 = DriverError::NOT_SUPPORTED;

/// A device, and what every call takes in order to succeed.
struct Calls {
    b: Bench,
    stream: StreamHandle,
    /// Recorded and reached.
    event: EventHandle,
    x: DevicePtr,
    y: DevicePtr,
    host: NonNull<u8>,
    /// To be registered.
    ordinary: NonNull<u8>,
    registered: NonNull<u8>,
    ptx: CString,
    module: ModuleHandle,
    /// One of each kind, for the calls that destroy one.
    spare: (StreamHandle, EventHandle, DevicePtr, NonNull<u8>, ModuleHandle),
    /// Twins constructed.
    twins: Arc<AtomicUsize>,
}

fn calls(b: Bench) -> Calls {
    let stream = b.stream();
    let event = b.record(&stream);
    let (x, y, z) = (b.alloc(16, &stream), b.alloc(16, &stream), b.alloc(16, &stream));
    b.sim.settle();
    let ptx = CString::new(".version 8.0\n.visible .entry kernel(\n)\n{\n}\n").unwrap();
    let pinned = || b.driver.host_alloc(16, HostKind::Cacheable).unwrap();
    let module = || b.driver.module_load(&ptx).unwrap();
    Calls {
        spare: (b.stream(), b.event(), z, pinned(), module()),
        host: pinned(),
        ordinary: leaked(16),
        registered: {
            let registered = leaked(16);
            b.try_register(registered, 16).unwrap();
            registered
        },
        module: module(),
        twins: Arc::default(),
        stream,
        event,
        x,
        y,
        ptx,
        b,
    }
}

impl Calls {
    fn make(&self, call: DriverCall) -> DriverResult<()> {
        let (b, driver, stream) = (&self.b, &self.b.driver, &self.stream);
        let (spare_stream, spare_event, z, spare_host, spare_module) = &self.spare;
        match call {
            DriverCall::StreamCreate => driver.stream_create(0).map(drop),
            DriverCall::StreamDestroy => {
                driver.stream_destroy(StreamHandle::new(spare_stream.raw()))
            }
            DriverCall::StreamWait => driver.stream_wait(stream, &self.event),
            DriverCall::EventCreate => driver.event_create(false).map(drop),
            DriverCall::EventDestroy => driver.event_destroy(EventHandle::new(spare_event.raw())),
            DriverCall::EventRecord => driver.event_record(&self.event, stream),
            DriverCall::EventQuery => driver.event_query(&self.event).map(drop),
            DriverCall::EventElapsed => {
                b.sim.settle(); // it may just have been recorded again
                driver.event_elapsed(&self.event, &self.event).map(drop)
            }
            DriverCall::RelaxCapture => driver.relax_capture(),
            DriverCall::Alloc => driver.alloc(16, stream).map(drop),
            DriverCall::Free => b.try_free(*z, stream),
            DriverCall::MemoryFree => driver.memory_free().map(drop),
            DriverCall::PoolTrim => driver.pool_trim(0, None),
            DriverCall::PoolUsage => driver.pool_usage().map(drop),
            DriverCall::HostAlloc => driver.host_alloc(16, HostKind::Cacheable).map(drop),
            DriverCall::HostFree => b.try_host_free(*spare_host),
            DriverCall::HostRegister => b.try_register(self.ordinary, 16),
            DriverCall::HostUnregister => b.try_unregister(self.registered),
            DriverCall::CopyH2D => b.try_up(self.x, self.host, 16, stream),
            DriverCall::CopyD2H => b.try_down(self.host, self.x, 16, stream),
            DriverCall::CopyD2D => b.try_copy(self.y, self.x, 16, stream),
            DriverCall::CopyRows | DriverCall::CopyPlanes => {
                let (pitch, plane_pitch) = (4, 8);
                let side = |ptr| CopySide { memory: CopyMemory::Device(ptr), pitch, plane_pitch };
                let (dst, src) = (side(self.y), side(self.x));
                let planes = if call == DriverCall::CopyRows { 1 } else { 2 };
                b.try_copy_rows(&CopyRows { dst, src, row: 2, rows: 2, planes }, stream)
            }
            DriverCall::CopyPeer => b.try_peer(b, self.y, self.x, 16, stream),
            DriverCall::Fill => b.try_fill(fill_of(self.x, 7), stream),
            DriverCall::ModuleLoad => {
                driver.module_load(&self.ptx).map(|_| ()).map_err(|e| e.error)
            }
            DriverCall::ModuleUnload => driver.module_unload(ModuleHandle::new(spare_module.raw())),
            DriverCall::ModuleFunction => driver.module_function(&self.module, c"kernel").map(drop),
            DriverCall::Launch => {
                let twins = self.twins.clone();
                let twin = move || -> TwinJob {
                    twins.fetch_add(1, SeqCst);
                    Box::new(|_| Ok(()))
                };
                b.try_launch(&[], KernelCost::Unknown, 1, stream, Some(&twin))
            }
        }
    }

    /// Whatever a call may change: what is alive, and how many operations were enqueued.
    fn state(&self) -> (usize, usize, usize, u64, u64, usize, usize) {
        let sim = &self.b.sim;
        sim.settle();
        let enqueued = sim.timeline().len() + sim.pending().len();
        let (streams, events, modules) =
            (sim.live_streams(), sim.live_events(), sim.live_modules());
        let (device, pinned) = (sim.live_device_bytes(), sim.live_pinned_bytes());
        (streams, events, modules, device, pinned, enqueued, self.twins.load(SeqCst))
    }
}

/// 16 bytes.
fn fill_of(dst: DevicePtr, value: u32) -> Fill {
    Fill { dst, unit: 1, value, columns: 16, rows: 1, pitch: 0 }
}

fn injected_calls(sim: &Simulator) -> Vec<(u64, DriverCall, u32)> {
    let call = |injected: &Injected| match *injected {
        Injected::Call { index, call, code } => (index, call, code),
        _ => panic!("{injected:?}"),
    };
    sim.injected().iter().map(call).collect()
}

#[test]
fn any_kind_of_call_can_be_made_to_fail_and_no_other_does() {
    for &call in DriverCall::ALL {
        let calls = calls(eager());
        let sim = &calls.b.sim;
        sim.inject(Fault::of_call(call, NOT_SUPPORTED));
        for other in DriverCall::ALL.iter().filter(|other| **other != call) {
            assert_eq!(calls.make(*other), Ok(()), "{other:?} with a fault of {call:?}");
        }
        let (before, index) = (calls.state(), sim.calls());
        let error = calls.make(call).unwrap_err();
        assert_eq!((error.call(), error.code()), (call.name(), NOT_SUPPORTED));
        assert_eq!(calls.state(), before, "{call:?} did something");
        assert_eq!(calls.make(call), Ok(()), "the next {call:?}");
        assert_eq!(injected_calls(sim), [(index, call, NOT_SUPPORTED)]);
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn the_call_of_any_index_can_be_made_to_fail_and_no_other_does() {
    for (k, &call) in DriverCall::ALL.iter().enumerate() {
        let calls = calls(eager());
        let first = calls.b.sim.calls();
        calls.b.sim.inject(Fault::any_call(NOT_SUPPORTED).after(k as u64));
        for other in DriverCall::ALL {
            assert_eq!(calls.make(*other).is_err(), *other == call, "{other:?} with {k}");
        }
        let all = DriverCall::ALL.len() as u64;
        assert_eq!(calls.b.sim.calls(), first + all, "each call counts once");
        assert_eq!(injected_calls(&calls.b.sim), [(first + k as u64, call, NOT_SUPPORTED)]);
    }
}

#[test]
fn a_call_made_to_fail_and_to_take_effect_did_what_it_should() {
    for &call in DriverCall::ALL {
        let [struck, other] = [calls(eager()), calls(eager())];
        struck.b.sim.inject(Fault::of_call(call, NOT_SUPPORTED).whatever_the_code());
        assert_eq!(code(struck.make(call)), Some(NOT_SUPPORTED), "{call:?}");
        assert_eq!(other.make(call), Ok(()));
        assert_eq!(struck.state(), other.state(), "{call:?}");
        let (mine, index) = (injected_calls(&struck.b.sim), struck.b.sim.calls() - 1);
        assert_eq!(mine, [(index, call, NOT_SUPPORTED)]);
        // What is gone is gone, and the rest goes on.
        let gone = [
            DriverCall::StreamDestroy,
            DriverCall::EventDestroy,
            DriverCall::Free,
            DriverCall::HostFree,
            // Registered twice is one time too often.
            DriverCall::HostRegister,
            DriverCall::HostUnregister,
            DriverCall::ModuleUnload,
        ];
        assert_eq!(struck.make(call).is_err(), gone.contains(&call), "{call:?} again");
    }
}

#[test]
fn a_record_that_took_effect_is_reached_and_a_wait_that_did_holds_back() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let (x, y) = (b.alloc(16, &s), b.alloc(16, &t));
    b.fill(x, 1, 16, &s);
    let event = b.event();
    b.sim.inject(Fault::of_call(DriverCall::EventRecord, NOT_SUPPORTED).whatever_the_code());
    b.sim.inject(Fault::of_call(DriverCall::StreamWait, NOT_SUPPORTED).whatever_the_code());
    assert!(b.driver.event_record(&event, &s).is_err());
    assert!(b.driver.stream_wait(&t, &event).is_err());
    b.fill(y, 1, 16, &t);
    assert_eq!(b.pending(), [("fill", s.raw(), true), ("fill", t.raw(), false)]);
    assert!(!b.done(&event));
    b.sim.step();
    assert!(b.done(&event));
}

#[test]
fn a_call_that_would_not_have_succeeded_answers_its_own_error() {
    let b = eager();
    b.sim.inject(Fault::of_call(DriverCall::EventDestroy, LAUNCH_FAILED).taking_effect());
    assert_eq!(code(b.driver.event_destroy(EventHandle::new(99))), Some(400));
    assert_eq!(b.sim.injected(), []);
    assert_eq!(code(b.driver.event_create(false)), None, "the device works");
}

#[test]
fn a_sticky_code_ends_the_device_and_what_is_pending_never_runs() {
    for &call in DriverCall::ALL {
        let calls = calls(stepped());
        let sim = &calls.b.sim;
        calls.make(DriverCall::Fill).unwrap();
        let after = calls.b.record(&calls.stream);
        sim.inject(Fault::of_call(call, LAUNCH_FAILED));
        assert_eq!(code(calls.make(call)), Some(LAUNCH_FAILED));
        for &later in DriverCall::ALL {
            assert_eq!(code(calls.make(later)), Some(LAUNCH_FAILED), "{later:?} after {call:?}");
        }
        assert_eq!(code(calls.b.driver.event_query(&after)), Some(LAUNCH_FAILED));
        assert_eq!(sim.pending(), []);
        assert_eq!((sim.step(), sim.timeline().len()), (None, 0));
        assert_eq!(sim.injected().len(), 1, "the device itself fails what comes later");
    }
}

#[test]
fn a_sticky_code_ends_the_device_also_where_the_call_takes_effect() {
    for &call in DriverCall::ALL {
        let calls = calls(stepped());
        calls.b.sim.inject(Fault::of_call(call, LAUNCH_FAILED).taking_effect());
        assert_eq!(code(calls.make(call)), Some(LAUNCH_FAILED));
        assert_eq!(code(calls.make(DriverCall::EventCreate)), Some(LAUNCH_FAILED), "{call:?}");
        assert_eq!(calls.b.sim.pending(), [], "{call:?}");
    }
}

#[test]
fn a_caller_blocked_by_a_full_queue_hears_of_the_failure_at_once() {
    let b = super::bench(SimOptions::new().queue_limit(1));
    let s = b.stream();
    let x = b.alloc(16, &s);
    let (open, gate) = mpsc::channel();
    let (gate, opened) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
    let counter = opened.clone();
    let (running, runs) = mpsc::channel();
    b.launch(&s, move |_| {
        running.send(()).unwrap();
        let in_time = gate.lock().unwrap().recv_timeout(Duration::from_secs(60)).is_ok();
        counter.fetch_add(usize::from(in_time), SeqCst);
        Ok(())
    });
    runs.recv().unwrap();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| b.try_fill(fill_of(x, 2), &s));
        while b.sim.blocked_calls() == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
        b.sim.fail(LAUNCH_FAILED);
        assert_eq!(code(blocked.join().unwrap()), Some(LAUNCH_FAILED));
    });
    open.send(()).unwrap();
    b.sim.settle();
    assert_eq!(opened.load(SeqCst), 1, "it was told when the running twin had ended");
}

#[test]
fn a_device_can_fail_by_itself() {
    let b = stepped();
    let s = b.stream();
    let x = b.alloc(16, &s);
    b.fill(x, 1, 16, &s);
    b.sim.fail(LAUNCH_FAILED);
    b.sim.fail(700);
    assert_eq!(code(b.driver.alloc(16, &s)), Some(LAUNCH_FAILED), "the first error stays");
    assert_eq!(b.pending(), []);
    assert_eq!((b.sim.injected(), b.sim.violations()), (vec![], vec![]));
    assert_eq!((b.sim.live_streams(), b.sim.live_modules()), (1, 1), "nothing is destroyed");
}

#[test]
#[should_panic(expected = "no error that a device ends with")]
fn a_device_does_not_fail_with_an_error_that_passes() {
    eager().sim.fail(INVALID_VALUE);
}

#[test]
fn an_operation_can_fail_when_it_is_run_and_does_nothing_then() {
    for takes_effect in [false, true] {
        let b = stepped();
        let s = b.stream();
        let x = b.alloc(16, &s);
        let host = b.driver.host_alloc(16, HostKind::Cacheable).unwrap();
        let fault = Fault::when_run(SimOpKind::CopyD2H, ECC_UNCORRECTABLE).after(1);
        b.sim.inject(if takes_effect { fault.taking_effect() } else { fault });
        b.fill(x, 1, 16, &s);
        b.down(host, x, 16, &s);
        b.fill(x, 2, 16, &s);
        b.down(host, x, 16, &s);
        b.fill(x, 3, 16, &s);
        for _ in 0..3 {
            assert!(b.sim.step().is_some());
        }
        assert_eq!(bytes_at(host, 16), [1; 16], "the first passes");
        let struck = b.sim.step().unwrap();
        assert_eq!(bytes_at(host, 16), [1 + u8::from(takes_effect); 16]);
        assert_eq!(code(b.driver.event_create(false)), Some(ECC_UNCORRECTABLE));
        assert_eq!((b.sim.step(), b.pending()), (None, vec![]), "what is behind it is lost");
        let (id, kind) = (struck.id, SimOpKind::CopyD2H);
        assert_eq!(b.sim.injected(), [Injected::Run { id, kind, code: ECC_UNCORRECTABLE }]);
        assert_eq!(b.sim.violations(), [], "nobody did anything wrong");
    }
}

#[test]
fn the_twin_of_a_launch_that_fails_when_run_does_not_run() {
    let b = eager();
    let s = b.stream();
    b.sim.inject(Fault::when_run(SimOpKind::Kernel, LAUNCH_FAILED));
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = ran.clone();
    b.launch(&s, move |_| {
        counter.fetch_add(1, SeqCst);
        Ok(())
    });
    b.sim.settle();
    assert_eq!(code(b.driver.event_create(false)), Some(LAUNCH_FAILED));
    assert_eq!(ran.load(SeqCst), 0);
}

#[test]
fn faults_of_the_options_are_there_from_the_first_call_on() {
    let (to, handles) = mpsc::channel();
    let options = SimOptions::new()
        .fault(Fault::any_call(INVALID_VALUE))
        .fault(Fault::of_call(DriverCall::EventCreate, NOT_SUPPORTED).after(1))
        .send_simulator(to);
    let (driver, sim) = open(options);
    assert_eq!(code(driver.stream_create(0)), Some(INVALID_VALUE));
    assert_eq!(code(driver.event_create(false)), None);
    assert_eq!(code(driver.event_create(false)), Some(NOT_SUPPORTED));
    let handle = handles.try_recv().unwrap();
    let expected =
        [(0, DriverCall::StreamCreate, INVALID_VALUE), (2, DriverCall::EventCreate, NOT_SUPPORTED)];
    assert_eq!((injected_calls(&handle), injected_calls(&sim)), (expected.into(), expected.into()));
}

#[test]
fn faults_that_are_cleared_strike_no_more() {
    let b = bench_with(Fault::of_call(DriverCall::EventCreate, INVALID_VALUE).always());
    assert_eq!(code(b.driver.event_create(false)), Some(INVALID_VALUE));
    assert_eq!(code(b.driver.event_create(false)), Some(INVALID_VALUE));
    b.sim.clear_faults();
    assert_eq!(code(b.driver.event_create(false)), None);
    assert_eq!(b.sim.injected().len(), 2, "what they did stays");
}

fn bench_with(fault: Fault) -> Bench {
    super::bench(SimOptions::new().fault(fault))
}

#[test]
fn a_query_made_to_answer_not_ready_is_no_error() {
    let calls = calls(eager());
    let (b, event) = (&calls.b, &calls.event);
    b.sim.inject(Fault::of_call(DriverCall::EventQuery, NOT_READY));
    assert!(!b.done(event));
    assert!(b.done(event));
}

/// Asks the simulator when it is dropped, which takes its lock, and tells on which thread that was.
struct AsksWhenDropped {
    sim: Simulator,
    asked: Sender<(usize, Option<String>)>,
}

impl Drop for AsksWhenDropped {
    fn drop(&mut self) {
        let thread = std::thread::current().name().map(str::to_owned);
        let _ = self.asked.send((self.sim.pending().len(), thread));
    }
}

/// A stepped device with a launch pending whose twin captured something that asks.
fn pending_twin_that_asks() -> (Bench, Receiver<(usize, Option<String>)>) {
    let b = stepped();
    let s = b.stream();
    let (asked, answers) = mpsc::channel();
    let captured = Mutex::new(Some(AsksWhenDropped { sim: b.sim.clone(), asked }));
    let twin = || -> TwinJob {
        let captured = captured.lock().unwrap().take();
        Box::new(move |_| {
            drop(captured);
            Ok(())
        })
    };
    b.try_launch(&[], KernelCost::Unknown, 1, &s, Some(&twin)).unwrap();
    (b, answers)
}

/// Callers hold locks of their own: it is dropped by the device.
fn assert_dropped_by_the_device(answers: &Receiver<(usize, Option<String>)>) {
    let answer = answers.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(answer, (0, Some("headwater-sim".into())));
}

#[test]
fn what_twins_captured_is_dropped_without_the_lock_when_a_call_ends_the_device() {
    let (b, answers) = pending_twin_that_asks();
    b.sim.inject(Fault::any_call(LAUNCH_FAILED));
    let driver = b.driver.clone();
    std::thread::spawn(move || driver.memory_free()); // hangs where the lock is held
    assert_dropped_by_the_device(&answers);

    let (b, answers) = pending_twin_that_asks();
    let sim = b.sim.clone();
    std::thread::spawn(move || sim.fail(LAUNCH_FAILED));
    assert_dropped_by_the_device(&answers);
}

#[test]
fn what_twins_captured_is_dropped_without_the_lock_when_they_are_made_to_fail() {
    let (b, answers) = pending_twin_that_asks();
    b.sim.inject(Fault::when_run(SimOpKind::Kernel, LAUNCH_FAILED));
    b.sim.step();
    assert_dropped_by_the_device(&answers);
}

#[test]
fn what_is_alive_is_counted_until_it_is_destroyed() {
    let calls = calls(stepped());
    let sim = &calls.b.sim;
    let live = || (sim.live_streams(), sim.live_events(), sim.live_modules());
    assert_eq!(live(), (2, 2, 3));
    calls.make(DriverCall::StreamDestroy).unwrap();
    calls.make(DriverCall::EventDestroy).unwrap();
    calls.make(DriverCall::ModuleUnload).unwrap();
    assert_eq!(live(), (1, 1, 2));
    // A stream with work left is destroyed as far as its user is concerned.
    calls.make(DriverCall::Fill).unwrap();
    calls.b.driver.stream_destroy(StreamHandle::new(calls.stream.raw())).unwrap();
    assert_eq!(live(), (0, 1, 2));
}
