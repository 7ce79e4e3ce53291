//! What runs when, and who waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::{Bench, Schedule, SimOptions, bench, bytes_at, eager, stepped};
use crate::driver::{DefaultStream, HostKind};

#[test]
fn a_step_runs_the_operation_asked_for_in_its_streams_turn_and_no_other() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let (x, y) = (b.alloc(4, &s), b.alloc(4, &t));
    b.fill(x, 1, 4, &s);
    let first = b.record(&s);
    b.fill(x, 2, 4, &s);
    let second = b.record(&s);
    b.fill(y, 3, 4, &t);
    b.driver.stream_wait(&t, &second).unwrap();
    b.fill(y, 4, 4, &t);
    let (on_s, on_t) = (s.raw(), t.raw());
    let later = b.sim.pending()[1].id;
    let fills = [(on_s, true), (on_s, false), (on_t, true), (on_t, false)];
    assert_eq!(b.pending(), fills.map(|(stream, runnable)| ("fill", stream, runnable)));
    assert_eq!(b.sim.run(later), None, "not its turn");
    assert!(b.sim.step_stream(on_t).is_some(), "nothing holds it");
    assert_eq!(b.sim.step_stream(on_t), None, "it waits");
    assert!(b.sim.step().is_some());
    assert!(b.done(&first) && !b.done(&second));
    assert_eq!(b.pending(), [("fill", on_s, true), ("fill", on_t, false)]);
    assert_eq!(b.sim.run_all(), 2);
    assert!(b.done(&second));
    assert_eq!(b.sim.step(), None);
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
fn a_full_queue_blocks_the_call_until_an_operation_has_run() {
    let b = bench(SimOptions::new().schedule(Schedule::Stepped).queue_limit(3));
    let (s, t) = (b.stream(), b.stream());
    let ptr = b.alloc(4, &s);
    for _ in 0..3 {
        b.fill(ptr, 1, 4, &s);
    }
    for _ in 0..10 {
        let _uncounted = b.record(&s);
    }
    b.fill(ptr, 2, 4, &t);
    assert_eq!(b.sim.blocked_calls(), 0);
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        let fourth = scope.spawn(|| {
            b.fill(ptr, 3, 4, &s);
            returned.store(true, Ordering::Release);
        });
        while b.sim.blocked_calls() == 0 && !returned.load(Ordering::Acquire) {
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
fn threads_held_up_by_full_queues_get_each_their_own_order() {
    const ROUNDS: u8 = 200;
    let b = bench(SimOptions::new().queue_limit(8));
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let b = &b;
            scope.spawn(move || {
                let (s, t) = (b.stream(), b.stream());
                let ptr = b.alloc(64, &s);
                let event = b.event();
                let mut pair = [&s, &t];
                for round in 0..ROUNDS {
                    b.fill(ptr, round ^ thread, 64, pair[0]);
                    b.driver.event_record(&event, pair[0]).unwrap();
                    b.driver.stream_wait(pair[1], &event).unwrap();
                    pair.reverse();
                }
                let host = b.driver.host_alloc(64, HostKind::Cacheable).unwrap();
                b.down(host, ptr, 64, pair[0]);
                b.free(ptr, pair[0]);
                b.driver.event_record(&event, pair[0]).unwrap();
                while !b.done(&event) {
                    thread::yield_now();
                }
                assert_eq!(bytes_at(host, 64), [(ROUNDS - 1) ^ thread; 64]);
                b.host_free(host);
            });
        }
    });
    assert_eq!(b.sim.violations(), []);
    assert_eq!((b.sim.live_device_bytes(), b.sim.live_pinned_bytes()), (0, 0));
}

#[test]
fn default_streams_are_not_counted_and_a_program_gives_them_the_same_numbers_each_time() {
    let ids = || {
        let b = stepped();
        let of = |which| b.driver.default_stream(which).id();
        let own = of(DefaultStream::PerThread);
        let others =
            thread::scope(|scope| scope.spawn(|| of(DefaultStream::PerThread)).join().unwrap());
        let ids = [own, others, of(DefaultStream::Legacy), b.stream().id()];
        assert_eq!((b.sim.live_streams(), of(DefaultStream::PerThread)), (1, own));
        ids
    };
    // Whatever the threads are called: a random schedule goes by the numbers.
    assert_eq!(ids(), ids());
}
