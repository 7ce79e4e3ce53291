//! Devices that do not move, and what becomes of who waits for them.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::{Bench, Schedule, SimOptions, bench, code, eager, stepped};
use crate::driver::sim::{Fault, Injected, SimOpKind, Stuck, Violation, WaitsFor};

const TIMEOUT: Option<u32> = Some(702);

/// What each stream waits for.
fn waits(stuck: Option<Stuck>) -> Vec<(u64, WaitsFor)> {
    let streams = stuck.expect("it is stuck").streams;
    streams.into_iter().map(|stream| (stream.stream, stream.waits_for)).collect()
}

#[test]
fn a_device_that_has_nothing_to_do_or_something_that_could_run_is_not_stuck() {
    for schedule in [Schedule::Eager, Schedule::Stepped, Schedule::Lazy, Schedule::random(1)] {
        let b = bench(SimOptions::new().schedule(schedule));
        assert_eq!(b.sim.stuck(), None);
        let s = b.stream();
        b.record(&s);
        if !matches!(schedule, Schedule::Stepped) {
            b.launch(&s, |_| Ok(()));
        }
        b.sim.settle();
        assert_eq!(b.sim.stuck(), None, "{schedule:?}");
        assert_eq!(b.sim.give_up(), None);
        assert_eq!(b.sim.violations(), []);
    }
}

#[test]
fn what_could_run_in_the_next_call_makes_no_device_stuck() {
    for schedule in [Schedule::Lazy, Schedule::Random { seed: 0, deviations: 0 }] {
        for options in [SimOptions::new(), SimOptions::new().stall_limit(Duration::ZERO)] {
            let waits = options.stall_limit.is_none();
            let b = bench(options.schedule(schedule));
            let not_stuck = || assert!(!waits || b.sim.stuck().is_none(), "{schedule:?}");
            let s = b.stream();
            b.launch(&s, |_| Ok(()));
            not_stuck();
            let event = b.record(&s);
            b.launch(&s, |_| Ok(()));
            b.done(&event);
            not_stuck();
            b.wait_for(&event);
        }
    }
}

#[test]
fn the_report_says_who_waits_for_whom() {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::random(1)] {
        let options = SimOptions::new().schedule(schedule);
        let b = bench(options.fault(Fault::never_finishes(SimOpKind::Fill)));
        let (s, t, u, idle) = (b.stream(), b.stream(), b.stream(), b.stream());
        let x = b.alloc(4, &u);
        let gate = b.sim.gate();
        b.launch_at(gate, &s);
        b.launch(&s, |_| Ok(()));
        let event = b.record(&s);
        b.launch(&s, |_| Ok(()));
        b.driver.stream_wait(&t, &event).unwrap();
        let end = b.record(&t);
        b.fill(x, 1, 4, &u);
        let endless = b.record(&u);
        b.launch(&idle, |_| Ok(()));
        for _ in 0..20 {
            assert!(!b.done(&end) && !b.done(&endless));
        }
        if schedule != Schedule::Lazy {
            b.wait_for(&b.record(&idle));
        }
        b.sim.settle();

        let stuck = b.sim.stuck().expect("nothing moves");
        let id = |at: usize| stuck.streams[at].op.as_ref().map_or(0, |op| op.id);
        let mut report = format!(
            "the device is stuck: nothing runs, and nothing could\n  \
             stream {}: kernel `kernel` (operation {}) waits for gate {gate}, which was never \
             opened (2 more behind it)\n  \
             stream {}: no operation waits for the event recorded on stream {} after `kernel` \
             (operation {})\n  \
             stream {}: `fill` (operation {}) was begun and never ends",
            s.raw(),
            id(0),
            t.raw(),
            s.raw(),
            id(0) + 1,
            u.raw(),
            id(2)
        );
        if schedule == Schedule::Lazy {
            report += &format!(
                "\n  stream {}: kernel `kernel` (operation {}) could run, but nobody needs it",
                idle.raw(),
                id(3)
            );
        }
        assert_eq!(stuck.to_string(), report, "{schedule:?}");

        b.sim.open_gate(gate);
        b.wait_for(&end);
        b.wait_for(&b.record(&s));
        assert_eq!(waits(b.sim.stuck()).remove(0), (u.raw(), WaitsFor::End));
        assert_eq!(
            b.sim.injected(),
            [Injected::NeverFinishes { id: id(2), kind: SimOpKind::Fill }]
        );
    }
}

#[test]
fn a_stepped_device_waits_for_steps() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    b.launch(&s, |_| Ok(()));
    let event = b.record(&s);
    b.driver.stream_wait(&t, &event).unwrap();
    b.launch(&t, |_| Ok(()));
    let after = b.sim.pending().first().map(|op| (op.id, op.name));
    let recording = WaitsFor::Recording { stream: s.raw(), after };
    assert_eq!(waits(b.sim.stuck()), [(s.raw(), WaitsFor::Step), (t.raw(), recording)]);
    assert_eq!(b.sim.run_all(), 2);
    assert_eq!(b.sim.stuck(), None);
}

#[test]
fn what_nobody_needs_makes_no_lazy_device_stuck() {
    let b = bench(SimOptions::new().schedule(Schedule::Lazy));
    let (s, t) = (b.stream(), b.stream());
    let gate = b.sim.gate();
    b.launch_at(gate, &s);
    let event = b.record(&s);
    b.launch(&t, |_| Ok(()));
    b.driver.relax_capture().unwrap();
    assert_eq!(b.sim.stuck(), None, "nobody waits for anything");
    assert!(!b.done(&event));
    let stuck = b.sim.stuck();
    assert_eq!(waits(stuck), [(s.raw(), WaitsFor::Gate { gate }), (t.raw(), WaitsFor::Need)]);
}

#[test]
fn to_give_up_ends_the_device_with_a_timeout_and_the_report() {
    let b = eager();
    let s = b.stream();
    let event = {
        let gate = b.sim.gate();
        b.launch_at(gate, &s);
        b.record(&s)
    };
    b.sim.settle();
    let report = b.sim.give_up().expect("it is stuck");
    assert_eq!(report.streams.len(), 1);
    assert_eq!(code(b.driver.event_query(&event)), TIMEOUT);
    assert_eq!(b.sim.violations(), [Violation::Stuck { report }]);
    assert_eq!((b.sim.stuck(), b.sim.pending()), (None, vec![]));
}

/// A device with this limit and a launch behind a gate: its event.
fn behind_a_gate(schedule: Schedule, limit: Duration) -> (Bench, crate::driver::EventHandle, u64) {
    let b = bench(SimOptions::new().schedule(schedule).stall_limit(limit).queue_limit(2));
    let s = b.stream();
    let gate = b.sim.gate();
    b.launch_at(gate, &s);
    let event = b.record(&s);
    (b, event, gate)
}

#[test]
fn who_waits_for_a_device_that_stays_stuck_is_told_after_the_limit() {
    for schedule in [Schedule::Eager, Schedule::Stepped, Schedule::Lazy, Schedule::random(1)] {
        const LIMIT: Duration = Duration::from_millis(30);
        let (b, event, _) = behind_a_gate(schedule, LIMIT);
        let began = Instant::now();
        let error = loop {
            match b.driver.event_query(&event) {
                Ok(done) => assert!(!done),
                error => break error,
            }
        };
        assert!(began.elapsed() >= LIMIT, "{schedule:?}");
        assert_eq!(code(error), TIMEOUT);
        assert!(matches!(b.sim.violations()[..], [Violation::Stuck { .. }]), "{schedule:?}");
    }
}

#[test]
fn whatever_moves_begins_the_limit_anew() {
    let (b, event, gate) = behind_a_gate(Schedule::Eager, Duration::from_secs(60));
    b.sim.settle();
    assert!(!b.done(&event));
    let left = |b: &Bench| b.sim.machine.lock().stall_left();
    let first = left(&b).unwrap();
    std::iter::repeat_with(|| left(&b).unwrap()).find(|&later| later < first).unwrap();
    let other = b.sim.gate();
    b.sim.open_gate(other);
    assert_eq!(left(&b), Some(Duration::from_secs(60)));
    b.sim.open_gate(gate);
    b.sim.settle();
    assert_eq!(left(&b), None);
}

#[test]
fn a_call_that_waits_for_room_is_told_as_well() {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::random(1)] {
        let (b, _event, _) = behind_a_gate(schedule, Duration::from_millis(10));
        let s = b.driver.stream_create(0).unwrap();
        b.launch_at(b.sim.gate(), &s);
        b.launch(&s, |_| Ok(()));
        let twin = || Box::new(|_: &dyn crate::driver::TwinMemory| Ok(())) as super::TwinJob;
        let cost = super::KernelCost::Nanoseconds(1);
        let third = b.try_launch(&[], cost, 1, &s, Some(&twin));
        assert_eq!(code(third), TIMEOUT, "{schedule:?}");
    }
}

#[test]
fn a_gate_opened_lets_a_call_that_waits_for_room_go_on() {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::random(1)] {
        let options = SimOptions::new().schedule(schedule).stall_limit(Duration::MAX);
        let b = bench(options.queue_limit(1));
        let s = b.stream();
        let gate = b.sim.gate();
        b.launch_at(gate, &s);
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| b.launch(&s, |_| Ok(())));
            while b.sim.blocked_calls() == 0 {
                std::thread::yield_now();
            }
            b.sim.open_gate(gate);
            blocked.join().unwrap();
        });
        assert!(!b.ran().is_empty(), "{schedule:?}");
    }
}

#[test]
fn a_limit_of_max_is_none() {
    let (b, event, _) = behind_a_gate(Schedule::Eager, Duration::MAX);
    b.sim.settle();
    assert!(!b.done(&event));
    assert_eq!(b.sim.machine.lock().stall_left(), None);
    assert!(b.sim.stuck().is_some());
}

#[test]
fn a_twin_that_blocks_does_not_keep_the_calls_of_others() {
    let limit = Duration::from_millis(10);
    let b = bench(SimOptions::new().schedule(Schedule::Lazy).stall_limit(limit));
    let s = b.stream();
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    b.launch(&s, move |_| {
        gate.lock().unwrap().recv().unwrap();
        Ok(())
    });
    let event = b.record(&s);
    for _ in 0..3 {
        assert!(!b.done(&event));
    }
    assert_eq!(waits(b.sim.stuck()), [(s.raw(), WaitsFor::Return)]);
    open.send(()).unwrap();
    b.wait_for(&event);
    b.launch(&s, |_| Ok(()));
    assert_eq!(b.wait_for(&b.record(&s)), 2, "in lock-step again");
}

/// A device whose first launch does not return before something is sent, and its stream.
fn does_not_return(options: SimOptions) -> (Bench, crate::driver::StreamHandle, mpsc::Sender<()>) {
    let b = bench(options.stall_limit(Duration::from_millis(20)));
    let s = b.stream();
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    b.launch(&s, move |_| {
        let _ = gate.lock().unwrap().recv();
        Ok(())
    });
    (b, s, open)
}

#[test]
fn a_test_waits_for_a_twin_that_does_not_return_as_long_as_the_limit_and_is_told_who_it_is() {
    for schedule in [Schedule::Eager, Schedule::Stepped] {
        let (b, s, open) = does_not_return(SimOptions::new().schedule(schedule));
        let t = b.stream();
        b.launch(&t, |_| Ok(()));
        let (one, two) = (s.raw(), t.raw());
        if schedule == Schedule::Stepped {
            assert_eq!(b.sim.step(), None, "it has not run");
        }
        b.sim.settle();
        assert_eq!((b.sim.step(), b.sim.run_all()), (None, 0));
        assert_eq!(b.pending().len(), 1, "{schedule:?}");

        let other = if schedule == Schedule::Eager { WaitsFor::Turn } else { WaitsFor::Step };
        let stuck = b.sim.stuck();
        assert_eq!(waits(stuck.clone()), [(one, WaitsFor::Return), (two, other)]);
        let said = stuck.unwrap().to_string();
        let first = "the device is stuck: what runs does not return\n  stream ";
        assert!(
            said.starts_with(first) && said.contains("is being run and does not return"),
            "{said}"
        );

        open.send(()).unwrap();
        b.sim.set_schedule(Schedule::Eager);
        let end = b.record(&t);
        b.wait_for(&end);
        assert_eq!(b.ran().len(), 2);
        assert_eq!(b.sim.stuck(), None);
    }
}

#[test]
fn to_give_up_ends_a_device_whose_twin_does_not_return() {
    let (b, s, open) = does_not_return(SimOptions::new());
    let event = b.record(&s);
    b.sim.settle();
    assert!(b.sim.give_up().is_some());
    assert_eq!(code(b.driver.event_query(&event)), TIMEOUT);
    assert_eq!(b.sim.stuck(), None, "nobody waits for it");
    open.send(()).unwrap();
}

#[test]
fn time_in_which_nobody_looks_is_no_waiting() {
    let (b, end, _) = behind_a_gate(Schedule::Eager, Duration::from_millis(300));
    for _ in 0..2 {
        assert_eq!(b.driver.event_query(&end), Ok(false));
        // Not for anything to happen: this is the time that is not to count.
        std::thread::sleep(Duration::from_millis(400));
    }
    assert_eq!(b.driver.event_query(&end), Ok(false), "three looks are no waiting");
}
