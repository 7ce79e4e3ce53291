//! What runs when something needs it, and only then.

use std::sync::{Arc, mpsc};
use std::thread;

use super::program::{copied, copied_late, overwritten, trace};
use super::{Bench, Schedule, SimOptions, bench, bytes_at, code};
use crate::driver::HostKind;

fn lazy() -> Bench {
    bench(SimOptions::new().schedule(Schedule::Lazy))
}

#[test]
fn what_nobody_reads_is_never_computed() {
    let b = lazy();
    let (s, t) = (b.stream(), b.stream());
    let (x, y) = (b.alloc(4, &s), b.alloc(4, &t));
    b.fill(x, 1, 4, &s);
    b.fill(y, 2, 4, &t);
    let event = b.record(&t);
    for _ in 0..10 {
        b.driver.relax_capture().unwrap();
    }
    assert_eq!(b.ran(), []);
    b.wait_for(&event);
    assert_eq!(b.ran(), [("fill", t.raw())]);
    assert_eq!(b.pending(), [("fill", s.raw(), true)]);
}

#[test]
fn a_query_says_no_once_and_what_its_recording_comes_after_runs_and_nothing_else() {
    let b = lazy();
    let (s, t, u) = (b.stream(), b.stream(), b.stream());
    let x = b.alloc(4, &s);
    b.fill(x, 1, 4, &s);
    let first = b.record(&s);
    b.fill(x, 2, 4, &s);
    b.driver.stream_wait(&t, &first).unwrap();
    b.launch(&t, |_| Ok(()));
    let second = b.record(&t);
    b.launch(&t, |_| Ok(()));
    b.driver.stream_wait(&u, &second).unwrap();
    b.launch(&u, |_| Ok(()));
    let third = b.record(&u);
    b.fill(x, 3, 4, &u);

    assert!(!b.done(&third));
    assert_eq!(b.ran(), [], "the answer comes first");
    assert!(b.done(&third));
    assert_eq!(b.ran(), [("fill", s.raw()), ("kernel", t.raw()), ("kernel", u.raw())]);
    assert_eq!(b.sim.pending().len(), 3);
    assert!(b.done(&first) && b.done(&second));
}

#[test]
fn what_was_needed_already_is_looked_through_again_where_more_was_enqueued() {
    let b = lazy();
    let (s, t) = (b.stream(), b.stream());
    let gate = b.sim.gate();
    b.launch_at(gate, &t);
    let early = b.record(&t);
    assert!(!b.done(&early));
    b.launch(&s, |_| Ok(()));
    b.driver.stream_wait(&t, &b.record(&s)).unwrap();
    let late = b.record(&t);
    assert!(!b.done(&early) && !b.done(&late));
    b.sim.open_gate(gate);
    assert!(b.done(&late));
    assert_eq!(b.ran(), [("kernel", t.raw()), ("kernel", s.raw())]);
}

#[test]
fn records_waits_allocations_and_frees_run_by_themselves() {
    let b = lazy();
    let (s, t) = (b.stream(), b.stream());
    let x = b.alloc(1_024, &s);
    let event = b.record(&s);
    b.driver.stream_wait(&t, &event).unwrap();
    let other = b.record(&t);
    assert!(b.done(&other), "nothing is in front of it");
    b.free(x, &t);
    b.driver.relax_capture().unwrap();
    assert_eq!(b.sim.live_device_bytes(), 0);
}

#[test]
fn a_full_queue_needs_the_oldest_operation_there_and_what_that_waits_for() {
    let b = bench(SimOptions::new().schedule(Schedule::Lazy).queue_limit(2));
    let (s, t) = (b.stream(), b.stream());
    let x = b.alloc(4, &s);
    b.fill(x, 1, 4, &s);
    b.driver.stream_wait(&t, &b.record(&s)).unwrap();
    b.launch(&t, |_| Ok(()));
    b.launch(&t, |_| Ok(()));
    assert_eq!((b.ran(), b.sim.blocked_calls()), (vec![], 0));
    b.launch(&t, |_| Ok(()));
    assert_eq!(b.ran(), [("fill", s.raw()), ("kernel", t.raw())]);
    assert_eq!((b.sim.pending().len(), b.sim.blocked_calls()), (2, 1));
}

#[test]
fn an_allocation_without_room_needs_the_frees_and_succeeds_the_next_time() {
    let b = bench(SimOptions::new().schedule(Schedule::Lazy).total_memory(1_024));
    let (s, t) = (b.stream(), b.stream());
    let x = b.alloc(1_024, &s);
    b.fill(x, 1, 1_024, &s);
    b.free(x, &s);
    b.launch(&s, |_| Ok(()));
    b.launch(&t, |_| Ok(()));
    assert_eq!(code(b.driver.alloc(1_024, &t)), Some(2));
    assert_eq!(b.ran(), []);
    b.alloc(1_024, &t);
    assert_eq!(b.ran(), [("fill", s.raw())]);
}

#[test]
fn to_ask_for_the_time_between_events_needs_nothing() {
    let b = lazy();
    let s = b.stream();
    b.launch(&s, |_| Ok(()));
    let event = b.record(&s);
    assert_eq!(code(b.driver.event_elapsed(&event, &event)), Some(600));
    b.driver.relax_capture().unwrap();
    assert_eq!(code(b.driver.event_elapsed(&event, &event)), Some(600));
    assert_eq!(b.ran(), []);
}

#[test]
fn what_nobody_needed_is_dropped_with_the_last_driver() {
    let b = lazy();
    let s = b.stream();
    let (told, heard) = mpsc::channel();
    b.launch(&s, move |_| {
        told.send(()).unwrap();
        Ok(())
    });
    let Bench { driver, sim, .. } = b;
    drop(driver);
    assert!(heard.recv().is_err(), "the twin held the only sender");
    assert_eq!(sim.timeline(), []);
}

#[test]
fn a_missing_wait_makes_wrong_bytes_every_time() {
    for program in [copied, copied_late] {
        for _ in 0..10 {
            assert_eq!(program(Schedule::Lazy, false).0, [0xCB; 4], "not written yet");
        }
        assert_eq!(program(Schedule::Lazy, true).0, [1; 4]);
    }
    assert_eq!(overwritten(Schedule::Lazy, false).0, [2; 4]);
    assert_eq!(overwritten(Schedule::Lazy, true).0, [1; 4]);
}

#[test]
fn the_same_calls_make_the_same_run() {
    let first = trace(Schedule::Lazy);
    assert_eq!(first, trace(Schedule::Lazy));
}

#[test]
fn twins_run_on_the_executor_and_their_own_calls_wait_for_nothing() {
    let b = Arc::new(lazy());
    let (s, t) = (b.stream(), b.stream());
    b.launch(&t, |_| Ok(()));
    let waited_for = Arc::new(b.record(&t));
    let (told, heard) = mpsc::channel();
    let (inner, event) = (Arc::downgrade(&b), Arc::clone(&waited_for));
    b.launch(&s, move |_| {
        let b = inner.upgrade().unwrap();
        told.send((thread::current().id(), b.done(&event))).unwrap();
        Ok(())
    });
    assert!(!b.done(&b.record(&s)));
    b.driver.relax_capture().unwrap();
    let (ran_on, done) = heard.try_recv().expect("the call waited until it had run");
    assert_ne!(ran_on, thread::current().id());
    assert!(!done);
    assert!(b.done(&waited_for), "the twin has asked for it");
}

#[test]
fn a_test_can_step_through_what_nobody_needs() {
    let b = lazy();
    let (s, t) = (b.stream(), b.stream());
    let x = b.alloc(4, &s);
    b.fill(x, 7, 4, &s);
    b.driver.stream_wait(&t, &b.record(&s)).unwrap();
    b.launch(&t, |_| Ok(()));
    let host = b.driver.host_alloc(4, HostKind::Cacheable).unwrap();
    b.down(host, x, 4, &t);
    assert_eq!(b.sim.step().map(|op| op.stream), Some(s.raw()));
    assert_eq!(b.sim.run_all(), 2);
    assert_eq!(bytes_at(host, 4), [7; 4]);
}
