//! The streams that are there without being made: the device's legacy stream, and one for each thread.
#![allow(clippy::unwrap_used)]

use std::thread;

use super::calls::{N, WORDS, code};
use super::kernels::Shape;
use super::rows::{column, device, host};
use super::subject::Subject;
use crate::driver::{DefaultStream, DriverError, Fill, StreamHandle};

on_every_subject![
    work_on_default_streams_runs_in_the_order_enqueued,
    default_streams_take_every_call_that_names_a_stream,
    events_order_default_streams_with_others_both_ways,
    a_default_stream_and_a_made_one_hold_each_other_up_in_nothing,
    each_device_has_one_legacy_stream_and_each_thread_one_of_its_own,
    threads_have_streams_that_are_independent,
    the_legacy_stream_is_every_threads,
    a_threads_stream_is_of_no_use_to_another_thread,
    default_streams_are_not_destroyed,
];

const BOTH: [DefaultStream; 2] = [DefaultStream::Legacy, DefaultStream::PerThread];

impl Subject {
    fn default_stream(&self, which: DefaultStream) -> StreamHandle {
        self.driver.default_stream(which)
    }
}

fn work_on_default_streams_runs_in_the_order_enqueued(on: &Subject) {
    for which in BOTH {
        let s = on.default_stream(which);
        let x = on.filled(0, N, &s);
        let host = on.pinned_with(&[0; N]);
        let held = on.hold(&s);
        on.fill(x, 1, N, &s);
        on.increment(x, WORDS, &s);
        on.down(host, x, N, &s);
        on.fill(x, 9, N, &s);
        let end = on.record(&s);
        on.let_pass();
        assert!(!on.done(&end), "{which:?}");
        held.open();
        on.finish(&end);
        assert_eq!(on.bytes(host, N), [2, 1, 1, 1].repeat(N / 4), "{which:?}");
    }
}

fn default_streams_take_every_call_that_names_a_stream(on: &Subject) {
    for which in BOTH {
        let s = on.default_stream(which);
        let (start, end) = (on.timed_event(), on.timed_event());
        let (from, to) = (on.pinned_with(&[3; N]), on.pinned(N));
        on.record_again(&start, &s);
        let (x, y) = (on.alloc(N, &s), on.alloc(N, &s));
        on.up(x, from, N, &s);
        on.copy(y, x, N, &s);
        on.increment(y, WORDS, &s);
        on.down(to, y, N, &s);
        on.wait(&s, &start);
        on.free(x, &s);
        on.free(y, &s);
        on.record_again(&end, &s);
        on.finish(&end);
        assert!(on.driver.event_elapsed(&start, &end).is_ok());
        assert_eq!(on.bytes(to, N), [4, 3, 3, 3].repeat(N / 4), "{which:?}");
    }
}

fn events_order_default_streams_with_others_both_ways(on: &Subject) {
    for which in BOTH {
        let (s, t) = (on.default_stream(which), on.stream());
        let (x, y) = (on.filled(0, N, &t), on.filled(0, N, &t));
        let held = on.hold(&s);
        on.fill(x, 1, N, &s);
        on.wait(&t, &on.record(&s));
        on.increment(x, WORDS, &t);
        on.wait(&s, &on.record(&t));
        on.copy(y, x, N, &s);
        let end = on.record(&s);
        on.let_pass();
        assert!(!on.done(&end), "{which:?}");
        held.open();
        assert_eq!(on.read(y, N, &s), [2, 1, 1, 1].repeat(N / 4), "{which:?}");
    }
}

fn a_default_stream_and_a_made_one_hold_each_other_up_in_nothing(on: &Subject) {
    for which in BOTH {
        let (s, t) = (on.default_stream(which), on.stream());
        for (held, other) in [(&s, &*t), (&*t, &s)] {
            let x = on.filled(1, N, other);
            let gate = on.hold(held);
            let behind = on.record(held);
            on.increment(x, WORDS, other);
            on.finish(&on.record(other));
            assert!(!on.done(&behind), "{which:?}");
            gate.open();
            on.finish(&behind);
        }
    }
}

fn each_device_has_one_legacy_stream_and_each_thread_one_of_its_own(on: &Subject) {
    let ids = || BOTH.map(|which| on.default_stream(which).id());
    let (here, again) = (ids(), ids());
    let there = thread::scope(|scope| scope.spawn(ids).join().unwrap());
    assert_eq!(here, again);
    assert_eq!(here[0], there[0]);
    assert_ne!(here[1], there[1]);
    assert_ne!(here[0], here[1]);
    let made = on.stream();
    assert!(!here.contains(&made.id()) && !there.contains(&made.id()));
    if on.sim.is_none() {
        assert_eq!(BOTH.map(|which| on.default_stream(which).raw()), [1, 2], "CUDA's names");
    }
}

fn threads_have_streams_that_are_independent(on: &Subject) {
    let s = on.default_stream(DefaultStream::PerThread);
    let (x, to) = (on.filled(0, N, &s), on.pinned(N));
    let held = on.hold(&s);
    on.increment(x, WORDS, &s);
    let behind = on.record(&s);
    let other = || {
        let t = on.default_stream(DefaultStream::PerThread);
        let y = on.filled(1, N, &t);
        on.increment(y, WORDS, &t);
        on.down(to, y, N, &t);
        on.finish(&on.record(&t));
    };
    thread::scope(|scope| scope.spawn(other).join().unwrap());
    assert_eq!(on.bytes(to, N), [2, 1, 1, 1].repeat(N / 4));
    assert!(!on.done(&behind));
    held.open();
    on.finish(&behind);
    assert_eq!(on.read(x, N, &s), [1, 0, 0, 0].repeat(N / 4));
}

fn the_legacy_stream_is_every_threads(on: &Subject) {
    let s = on.default_stream(DefaultStream::Legacy);
    let x = on.filled(0, N, &s);
    let held = on.hold(&s);
    on.fill(x, 1, N, &s);
    // With a handle that was got there, and with one that was got here.
    thread::scope(|scope| {
        let there = || on.increment(x, WORDS, &on.default_stream(DefaultStream::Legacy));
        scope.spawn(there).join().unwrap();
        scope.spawn(|| on.increment(x, WORDS, &s)).join().unwrap();
    });
    held.open();
    assert_eq!(on.read(x, N, &s), [3, 1, 1, 1].repeat(N / 4));
}

fn a_threads_stream_is_of_no_use_to_another_thread(on: &Subject) {
    let s = on.default_stream(DefaultStream::PerThread);
    let (x, from) = (on.filled(1, N, &s), on.pinned_with(&[7; N]));
    let (recorded, waited) = (on.record(&s), on.event());
    on.finish(&recorded);
    let refused = [
        code(on.driver.event_record(&waited, &s)),
        code(on.driver.stream_wait(&s, &recorded)),
        code(on.driver.alloc(N, &s)),
    ];
    assert_eq!(refused, [None; 3], "by its own thread");
    let by_another = || {
        let copy = column(device(x, 16), host(from, 16));
        [
            code(on.driver.event_record(&waited, &s)),
            code(on.driver.stream_wait(&s, &recorded)),
            code(on.driver.alloc(N, &s)),
            code(
                on.try_fill(Fill { dst: x, unit: 1, value: 7, columns: N, rows: 1, pitch: 0 }, &s),
            ),
            code(on.try_copy_rows(&copy, &s)),
            code(on.increment_as(x, WORDS, Shape::of(WORDS), &s)),
        ]
    };
    let told = thread::scope(|scope| scope.spawn(by_another).join().unwrap());
    assert_eq!(told, [Some(DriverError::INVALID_HANDLE); 6]);
    on.increment(x, WORDS, &s);
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
}

fn default_streams_are_not_destroyed(on: &Subject) {
    for which in BOTH {
        let s = on.default_stream(which);
        let x = on.filled(1, N, &s);
        let destroyed = on.driver.stream_destroy(on.default_stream(which));
        assert_eq!(code(destroyed), Some(DriverError::INVALID_HANDLE));
        on.increment(x, WORDS, &s);
        assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
    }
}
