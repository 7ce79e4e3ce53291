//! Calls may come from any thread, with no context current: each test runs on a thread that never
//! had one.
#![allow(clippy::unwrap_used)]

use std::thread;

use super::calls::{N, WORDS};
use super::kernels::probe;
use super::rows::{column, device};
use super::subject::Subject;

on_every_subject![
    every_call_may_be_made_by_a_thread_that_makes_no_other,
    threads_that_enqueue_at_once_get_each_their_own_order,
    one_stream_takes_work_of_several_threads,
    an_event_may_be_asked_for_by_several_threads_at_once,
];

/// On a new thread, which ends.
fn elsewhere<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(f).join().unwrap())
}

fn every_call_may_be_made_by_a_thread_that_makes_no_other(on: &Subject) {
    let driver = &on.driver;
    elsewhere(|| driver.relax_capture()).unwrap();
    assert!(elsewhere(|| driver.memory_free()).unwrap() > 0);
    let s = elsewhere(|| on.stream());
    let t = elsewhere(|| on.stream());
    let (start, end) = (elsewhere(|| on.timed_event()), elsewhere(|| on.timed_event()));
    let (x, y) = (elsewhere(|| on.alloc(N, &s)), elsewhere(|| on.alloc(N, &s)));
    let host = elsewhere(|| on.pinned(N));
    let module = elsewhere(|| driver.module_load(probe())).unwrap();
    let increment = elsewhere(|| driver.module_function(&module, c"increment")).unwrap();
    elsewhere(|| on.record_again(&start, &s));
    elsewhere(|| on.fill(x, 1, N, &s));
    elsewhere(|| on.increment_by(&increment, x, WORDS, &s));
    elsewhere(|| on.copy(y, x, N, &s));
    elsewhere(|| on.record_again(&end, &s));
    elsewhere(|| on.wait(&t, &end));
    elsewhere(|| on.down(host, y, N, &t));
    elsewhere(|| on.up(x, host, N, &t));
    elsewhere(|| on.copy_rows(&column(device(y, 16), device(x, 16)), &t));
    let last = elsewhere(|| on.record(&t));
    elsewhere(|| on.finish(&last));
    assert!(elsewhere(|| driver.event_elapsed(&start, &end)).is_ok());
    assert_eq!(on.bytes(host, N), [2, 1, 1, 1].repeat(N / 4));
    elsewhere(|| on.free(x, &t));
    elsewhere(|| on.free(y, &t));
    elsewhere(|| driver.module_unload(module)).unwrap();
    elsewhere(|| on.host_free(host));
    elsewhere(|| start.destroy());
    elsewhere(|| t.destroy());
}

fn threads_that_enqueue_at_once_get_each_their_own_order(on: &Subject) {
    const ROUNDS: u8 = 100;
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                let (s, t) = (on.stream(), on.stream());
                let (x, event) = (on.alloc(N, &s), on.event());
                let to = on.pinned(N);
                let mut pair = [&s, &t];
                for round in 0..ROUNDS {
                    on.fill(x, round ^ thread, N, pair[0]);
                    on.record_again(&event, pair[0]);
                    on.wait(pair[1], &event);
                    pair.reverse();
                }
                on.down(to, x, N, pair[0]);
                on.free(x, pair[0]);
                on.record_again(&event, pair[0]);
                on.finish(&event);
                assert_eq!(on.bytes(to, N), [(ROUNDS - 1) ^ thread; N]);
            });
        }
    });
}

fn one_stream_takes_work_of_several_threads(on: &Subject) {
    const ROUNDS: u32 = 100;
    let s = on.stream();
    let x = on.filled(0, N, &s);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| on.increment(x, WORDS, &s)));
        }
    });
    assert_eq!(on.read(x, N, &s), (4 * ROUNDS).to_le_bytes().repeat(N / 4));
}

fn an_event_may_be_asked_for_by_several_threads_at_once(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let to = on.pinned_with(&[9; N]);
    let held = on.hold(&s);
    on.down(to, x, N, &s);
    let end = on.record(&s);
    thread::scope(|scope| {
        let end = &end;
        for _ in 0..4 {
            scope.spawn(move || {
                on.finish(end);
                assert_eq!(on.bytes(to, N), [1; N]);
            });
        }
        held.open();
    });
}
