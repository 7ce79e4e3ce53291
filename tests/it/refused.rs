//! Whatever call of the driver is refused, a program is told where that was, can do the same again,
//! and computes what it says.
//!
//! Each program here runs once for every driver call that it makes, with that call refused.

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use headwater::sim::{DriverCall, Fault, Injected, Schedule, SimOptions, Simulator};
use headwater::{
    Device, DeviceBuffer, DriverError, Elapsed, Error, HostBuffer, Result, Stream, StreamRole,
    block_on,
};

use crate::common::{
    elements, run_to_end, sim, simulated, simulated_with, step_through, until, wait, watched,
};
use crate::kernels::{add, copy_u32, increment};

const LEN: usize = 16;
const OUT_OF_MEMORY: u32 = DriverError::OUT_OF_MEMORY;
const NOT_SUPPORTED: u32 = DriverError::NOT_SUPPORTED;
const LAUNCH_FAILED: u32 = DriverError::LAUNCH_FAILED;

/// A device of which one call is refused, and a program's view of that.
struct Refusing {
    device: Device,
    sim: Simulator,
    /// The call was made while something was let go of.
    while_letting_go: Cell<bool>,
}

impl Refusing {
    /// The call that was refused, once that has happened.
    fn refused(&self) -> Option<DriverCall> {
        refused(&self.sim)
    }

    /// Does something; where that is refused, once more.
    fn again<R>(&self, mut f: impl FnMut() -> Result<R>) -> R {
        let before = self.refused();
        let error = match f() {
            Ok(done) => {
                if before.is_none() {
                    self.refused().into_iter().for_each(assert_passed_over);
                }
                return done;
            }
            Err(error) => error,
        };
        assert_refusal(&error);
        assert_eq!(before, None, "told later than it was: {error}");
        assert!(self.refused().is_some(), "{error}");
        f().unwrap_or_else(|error| panic!("refused again: {error}"))
    }

    /// Drops something.
    fn let_go<T>(&self, of: T) {
        let before = self.refused();
        drop(of);
        if before.is_none() && self.refused().is_some() {
            self.while_letting_go.set(true);
        }
    }

    /// Awaits something, which is not refused: what it asks the driver is asked again.
    fn await_all(&self, stream: &Stream) {
        let synchronize = stream.synchronize();
        step_through(&self.device);
        wait(synchronize).unwrap();
    }
}

fn refused(sim: &Simulator) -> Option<DriverCall> {
    sim.injected().first().map(|injected| match injected {
        Injected::Call { call, .. } => *call,
        other => panic!("{other:?}"),
    })
}

fn assert_refusal(error: &Error) {
    let code = match error {
        Error::Refused { cause, .. } | Error::PartlyRefused { cause, .. } => cause.code(),
        Error::OutOfMemory { .. } | Error::OutOfPinnedMemory { .. } => OUT_OF_MEMORY,
        other => panic!("{other}"),
    };
    assert!([NOT_SUPPORTED, OUT_OF_MEMORY].contains(&code), "{error}");
}

/// The library asks again by itself (for memory, once what is kept was given back), or the event is recorded when someone needs it.
fn assert_passed_over(call: DriverCall) {
    use DriverCall::{Alloc, EventCreate, EventQuery, EventRecord, RelaxCapture};
    let passed_over = [Alloc, EventCreate, EventQuery, EventRecord, RelaxCapture].contains(&call);
    assert!(passed_over, "{call:?} was refused and nobody was told");
}

/// How much of a device is alive: streams, events, modules, page-locked memory.
fn alive(sim: &Simulator) -> u64 {
    let objects = sim.live_streams() + sim.live_events() + sim.live_modules();
    objects as u64 + u64::from(sim.live_pinned_bytes() > 0)
}

/// Runs a program once for every call that it makes, with that call refused, under both schedules;
/// `calls` are some of those. The calls that open the device are not among them.
///
/// Kind by kind: how often an event is asked for is a matter of time, and says nothing of the others.
fn with_each_call_refused(calls: &[DriverCall], program: fn(&Refusing)) {
    for (schedule, code) in [
        (Schedule::Stepped, NOT_SUPPORTED),
        (Schedule::Stepped, OUT_OF_MEMORY),
        (Schedule::Eager, NOT_SUPPORTED),
    ] {
        for call in DriverCall::ALL {
            let run = move |after| {
                let fault = Fault::of_call(*call, code).after(after);
                watched(move || run_refusing(program, schedule, fault))
            };
            let times = (0..).take_while(|after| run(*after).is_some()).count();
            assert!(times > 0 || !calls.contains(call), "{call:?} was never made");
        }
    }
}

/// The call that was refused; `None` where the fault struck none.
fn run_refusing(program: fn(&Refusing), schedule: Schedule, fault: Fault) -> Option<DriverCall> {
    // The hook works on the device and waits for it, which takes that it is called under no lock.
    let within = Arc::new(Mutex::new(None::<Device>));
    let hook = within.clone();
    let device = simulated_with(SimOptions::new().schedule(schedule), |builder| {
        // So that every drop is a call, which can be refused.
        builder.keep_memory(false).on_error(move |_| {
            let Some(device) = hook.lock().expect("not poisoned").clone() else { return };
            let x = device.zeros::<u32>(LEN).expect("one call is refused, and that was another");
            assert_eq!(block_on(x.to_vec()).expect("as before"), [0; LEN]);
        })
    });
    if schedule == Schedule::Eager {
        *within.lock().expect("not poisoned") = Some(device.clone());
    }
    let simulator = sim(&device).clone();
    let r = Refusing { device, sim: simulator, while_letting_go: Cell::new(false) };
    r.sim.inject(fault);
    program(&r);
    let was_refused = r.refused();
    r.sim.clear_faults();
    within.lock().expect("not poisoned").take();
    run_to_end(&r.device);
    let live = r.sim.live_device_bytes();
    match r.while_letting_go.get() {
        false => assert_eq!(live, 0, "{was_refused:?} was refused, and memory is left"),
        // By design: it is safe to keep, and nobody could be told.
        true if live > 0 => {
            let needed = [
                DriverCall::Free,
                DriverCall::StreamWait,
                DriverCall::EventRecord,
                DriverCall::EventCreate,
            ];
            assert!(was_refused.is_some_and(|call| needed.contains(&call)), "{was_refused:?}");
        }
        true => {}
    }
    let Refusing { device, sim, .. } = r;
    drop(device);
    let kept = u64::from(was_refused == Some(DriverCall::EventDestroy));
    until("the device is closed", || alive(&sim) == kept);
    was_refused
}

fn written(r: &Refusing, from: u32) -> HostBuffer<u32> {
    let mut pinned = r.again(|| r.device.alloc_host::<u32>(LEN));
    block_on(pinned.write()).expect("nothing uses it").copy_from_slice(&counting_from(from));
    pinned
}

fn counting_from(from: u32) -> Vec<u32> {
    (from..).take(LEN).collect()
}

#[test]
fn copies_and_kernels_on_two_streams() {
    let calls = &[
        DriverCall::HostAlloc,
        DriverCall::Alloc,
        DriverCall::Fill,
        DriverCall::CopyH2D,
        DriverCall::CopyD2H,
        DriverCall::CopyD2D,
        DriverCall::Launch,
        DriverCall::EventRecord,
        DriverCall::EventQuery,
        DriverCall::StreamWait,
        DriverCall::Free,
    ];
    with_each_call_refused(calls, |r| {
        let (a, b) = (r.device.stream(), r.device.stream());
        let pinned = written(r, 10);
        let mut x = r.again(|| a.in_scope(|| r.device.zeros::<u32>(LEN)));
        let mut y = r.again(|| b.in_scope(|| r.device.alloc::<u32>(LEN)));
        r.again(|| a.in_scope(|| x.copy_from(&pinned)).map(drop));
        // Each of these touches what the one before it touched on the other stream.
        r.again(|| b.in_scope(|| y.copy_from(&x)).map(drop));
        r.again(|| a.in_scope(|| increment(&mut x)).map(drop));
        r.again(|| b.in_scope(|| increment(&mut x)).map(drop));
        r.again(|| a.in_scope(|| increment(&mut y)).map(drop));
        let mut out = r.again(|| r.device.alloc_host::<u32>(LEN));
        let copied = r.again(|| b.in_scope(|| y.copy_to(&mut out)));
        step_through(&r.device);
        wait(copied).unwrap();
        assert_eq!(*wait(out.read()).unwrap(), counting_from(11));
        r.again(|| a.in_scope(|| copy_u32(&x, &mut y)).map(drop));
        r.again(|| b.in_scope(|| y.copy_to(&mut out)).map(drop));
        r.let_go(x);
        r.let_go(y);
        step_through(&r.device);
        assert_eq!(*wait(out.read()).unwrap(), counting_from(12));
        r.await_all(&a);
        r.await_all(&b);
    });
}

#[test]
fn a_launch_that_waits_for_two_streams() {
    let calls = &[DriverCall::Launch, DriverCall::StreamWait, DriverCall::EventRecord];
    with_each_call_refused(calls, |r| {
        let streams: Vec<_> = (0..3).map(|_| r.device.stream()).collect();
        let on = |i: usize| {
            let mut x = r.again(|| streams[i].in_scope(|| r.device.zeros::<f32>(LEN)));
            r.again(|| streams[i].in_scope(|| x.fill(i as f32 + 1.0)).map(drop));
            x
        };
        let (x, y, mut z) = (on(0), on(1), on(2));
        r.again(|| streams[2].in_scope(|| add(&x, &y, &mut z)).map(drop));
        let sum = r.again(|| {
            let sum = z.to_vec();
            step_through(&r.device);
            wait(sum)
        });
        assert_eq!(sum, [3.0; LEN]);
        r.let_go((x, y, z));
    });
}

#[test]
fn uploads_and_downloads() {
    let calls = &[
        DriverCall::CopyH2D,
        DriverCall::CopyD2H,
        DriverCall::Alloc,
        DriverCall::HostAlloc,
        DriverCall::Free,
    ];
    with_each_call_refused(calls, |r| {
        for round in 0..3 {
            let buffer = r.again(|| {
                let upload = r.device.upload(counting_from(round));
                step_through(&r.device);
                wait(upload)
            });
            let read = r.again(|| {
                let elements = buffer.to_vec();
                step_through(&r.device);
                block_on(elements)
            });
            assert_eq!(read, counting_from(round));
            r.let_go(buffer);
        }
    });
}

#[test]
fn events_and_the_time_between_them() {
    let calls = &[
        DriverCall::EventCreate,
        DriverCall::EventRecord,
        DriverCall::EventElapsed,
        DriverCall::StreamWait,
    ];
    with_each_call_refused(calls, |r| {
        let (a, b) = (r.device.stream(), r.device.stream());
        let mut x = r.again(|| a.in_scope(|| r.device.zeros::<u32>(LEN)));
        let start = r.again(|| a.record_timed());
        r.again(|| a.in_scope(|| increment(&mut x)).map(drop));
        let plain = r.again(|| a.record());
        r.again(|| b.wait(&plain));
        let end = r.again(|| b.record_timed());
        step_through(&r.device);
        for event in [&start, &plain, &end] {
            wait(event).unwrap();
            assert!(r.again(|| event.is_finished()));
        }
        match r.again(|| end.elapsed_since(&start)) {
            Elapsed::Time(time) => assert!(!time.is_zero()),
            other => panic!("{other:?}"),
        }
        r.let_go(x);
    });
}

#[test]
fn many_operations_that_nobody_waits_for() {
    let calls = &[DriverCall::Launch, DriverCall::EventRecord];
    with_each_call_refused(calls, |r| {
        let stream = r.device.stream();
        let mut x = r.again(|| stream.in_scope(|| r.device.zeros::<u32>(LEN)));
        for _ in 0..40 {
            r.again(|| stream.in_scope(|| increment(&mut x)).map(drop));
        }
        r.await_all(&stream);
        let read = r.again(|| {
            let elements = x.to_vec();
            step_through(&r.device);
            wait(elements)
        });
        assert_eq!(read, [40; LEN]);
        r.let_go(x);
    });
}

#[test]
fn a_fill_of_which_only_some_calls_were_taken_leaves_the_buffer_undefined() {
    type Wide = [u32; 3];
    let calls = &[DriverCall::Fill, DriverCall::StreamWait];
    with_each_call_refused(calls, |r| {
        let calls = || r.device.driver_calls().unwrap().fills;
        let read = |buffer: &DeviceBuffer<Wide>| {
            let elements = buffer.to_vec();
            step_through(&r.device);
            wait(elements)
        };
        let (a, b) = (r.device.stream(), r.device.stream());
        let mut x = r.again(|| a.in_scope(|| r.device.zeros::<Wide>(LEN)));
        let (before, known) = (calls(), r.refused());
        let filled = b.in_scope(|| x.fill([1, 2, 3]));
        if let Err(error) = filled {
            assert_refusal(&error);
            assert!(known.is_none() && r.refused().is_some());
            match (calls() - before, read(&x)) {
                // The first call is refused, or what comes before it.
                (0..=1, unchanged) => assert_eq!(unchanged.unwrap(), [[0; 3]; LEN]),
                (_, Err(Error::Uninitialised { .. })) => {}
                (made, other) => panic!("{made} calls were made, then it read {other:?}"),
            }
            b.in_scope(|| x.fill([1, 2, 3])).unwrap();
        }
        assert_eq!(r.again(|| read(&x)), [[1, 2, 3]; LEN]);
        r.let_go(x);
    });
}

/// Opens a device, uses it, closes it, with one call refused. Gives the device's handle, and
/// whether it could be opened.
fn open_and_close(single_stream: bool, code: u32, after: u64) -> (Simulator, bool) {
    let (to, handles) = channel();
    let options = SimOptions::new().fault(Fault::any_call(code).after(after)).send_simulator(to);
    let builder = Device::builder().simulated_with(options).single_stream(single_stream);
    let opened = builder.open();
    let sim = handles.try_recv().expect("it was sent before the first call");
    let is_open = opened.is_ok();
    match opened {
        Ok(device) => {
            assert_eq!(device.current_stream().role(), StreamRole::Task);
            drop(device.alloc_host::<u32>(LEN));
        }
        Err(Error::DeviceLost(_)) => assert_eq!(code, LAUNCH_FAILED),
        Err(error) => assert!(matches!(error, Error::Refused { .. }), "{error}"),
    }
    (sim, is_open)
}

#[test]
fn a_device_that_could_not_be_opened_leaves_nothing_behind_and_one_that_was_closes() {
    use DriverCall::{EventDestroy, HostFree, ModuleUnload, StreamDestroy};
    for single_stream in [true, false] {
        let mut were_refused = Vec::new();
        let mut not_opened = 0;
        loop {
            let after = were_refused.len() as u64;
            let (sim, is_open) =
                watched(move || open_and_close(single_stream, NOT_SUPPORTED, after));
            until("everything is destroyed, but for what could not be", || {
                let destroying = [EventDestroy, HostFree, ModuleUnload, StreamDestroy];
                let kept = refused(&sim).is_some_and(|call| destroying.contains(&call));
                alive(&sim) == u64::from(kept)
            });
            assert_eq!(sim.violations(), []);
            not_opened += usize::from(!is_open);
            match refused(&sim) {
                Some(call) => were_refused.push(call),
                None => break,
            }
        }
        let events = were_refused.iter().filter(|call| **call == DriverCall::EventCreate).count();
        let streams = were_refused.iter().filter(|call| **call == DriverCall::StreamCreate).count();
        assert_eq!(not_opened, events + streams);
        for call in [EventDestroy, HostFree, ModuleUnload, StreamDestroy] {
            assert!(were_refused.contains(&call), "no {call:?} among {were_refused:?}");
        }
    }
}

#[test]
fn a_device_that_fails_while_it_is_opened_or_closed_hangs_nobody() {
    for after in (0..300).step_by(7) {
        let (sim, _) = watched(move || open_and_close(false, LAUNCH_FAILED, after));
        assert_eq!(sim.violations(), []);
    }
}

/// Uses a device of which one call tells that the device is lost; false where it made no more than
/// `after` calls.
fn lose_at(after: u64, takes_effect: bool) -> bool {
    let device = simulated(SimOptions::new());
    let sim = sim(&device).clone();
    let fault = Fault::any_call(LAUNCH_FAILED).after(after);
    sim.inject(if takes_effect { fault.taking_effect() } else { fault });
    let mut known = false;
    let mut check = |result: Result<()>| match result {
        Ok(()) => assert!(!known, "the device was lost before"),
        Err(Error::DeviceLost(_)) => known = true,
        Err(error) => panic!("{error}"),
    };
    let (a, b) = (device.stream(), device.stream());
    let zeros = a.in_scope(|| device.zeros::<u32>(LEN));
    let uploaded = wait(device.upload(counting_from(0)));
    check(zeros.as_ref().map(drop).map_err(Error::clone));
    if let (Ok(mut x), Ok(mut y)) = (zeros, uploaded) {
        check(b.in_scope(|| x.copy_from(&y)).map(drop));
        check(a.in_scope(|| increment(&mut x)).map(drop));
        check(b.in_scope(|| increment(&mut y)).map(drop));
        check(wait(x.to_vec()).map(drop));
        check(a.record_timed().map(drop));
        check(b.record().and_then(|event| a.wait(&event)));
        drop(x);
        check(block_on(y.to_vec()).map(drop));
        let lost = refused(&sim).is_some();
        check(b.in_scope(|| increment(&mut y)).map(drop));
        assert!(known || !lost, "a launch on a lost device");
    }
    assert_eq!(sim.violations(), []);
    refused(&sim).is_some()
}

#[test]
fn a_loss_told_by_any_call_is_told_to_the_program_and_hangs_nobody() {
    for takes_effect in [false, true] {
        let mut after = 0;
        while watched(move || lose_at(after, takes_effect)) {
            after += 1;
        }
        assert!(after > 20, "{after} calls");
    }
}

#[test]
fn a_module_that_is_refused_leaves_only_its_own_kernels_without_a_function() {
    let fault = Fault::of_call(DriverCall::ModuleLoad, NOT_SUPPORTED).always();
    let device = simulated(SimOptions::new().fault(fault));
    let mut x = device.zeros::<u32>(LEN).unwrap();
    assert!(increment(&mut x).is_err());
    x.fill(3).unwrap();
    assert_eq!(elements(&x), [3; LEN]);
}
