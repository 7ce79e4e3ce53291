//! How streams come and go.
#![allow(clippy::unwrap_used)]

use super::calls::{N, WORDS};
use super::subject::Subject;

on_every_subject![
    work_of_a_destroyed_stream_still_runs,
    a_stream_destroyed_while_it_waits_still_runs_its_work,
    a_stream_waited_for_may_be_destroyed,
    streams_of_every_priority_run_their_work,
    many_streams_run_their_work_while_one_is_held,
];

fn work_of_a_destroyed_stream_still_runs(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &s);
    let held = on.hold(&s);
    on.fill(x, 9, N, &s);
    let end = on.record(&s);
    s.destroy();
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, N, &t), [9; N]);
}

fn a_stream_destroyed_while_it_waits_still_runs_its_work(on: &Subject) {
    let (s, t, u) = (on.stream(), on.stream(), on.stream());
    let x = on.filled(0, N, &s);
    let held = on.hold(&s);
    on.fill(x, 1, N, &s);
    on.wait(&t, &on.record(&s));
    on.increment(x, WORDS, &t);
    let end = on.record(&t);
    t.destroy();
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, N, &u), [2, 1, 1, 1].repeat(N / 4));
}

fn a_stream_waited_for_may_be_destroyed(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &s);
    let held = on.hold(&s);
    on.fill(x, 1, N, &s);
    on.wait(&t, &on.record(&s));
    s.destroy();
    on.increment(x, WORDS, &t);
    let end = on.record(&t);
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, N, &t), [2, 1, 1, 1].repeat(N / 4));
}

fn streams_of_every_priority_run_their_work(on: &Subject) {
    let (least, most) = on.driver.info().priorities.unwrap();
    assert!(most <= least, "a lower number is more urgent");
    // What is out of range is taken for the nearest that is in it.
    for priority in (most..=least).chain([i32::MIN, i32::MAX]) {
        let s = on.stream_of(priority);
        let x = on.filled(1, N, &s);
        on.increment(x, WORDS, &s);
        assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
    }
}

fn many_streams_run_their_work_while_one_is_held(on: &Subject) {
    let s = on.stream();
    let others: Vec<_> = (0..24).map(|_| on.stream()).collect();
    let buffers: Vec<_> = others.iter().map(|t| on.filled(1, N, t)).collect();
    let held = on.hold(&s);
    let end = on.record(&s);
    let ends: Vec<_> = (others.iter().zip(&buffers))
        .map(|(t, x)| {
            on.increment(*x, WORDS, t);
            on.record(t)
        })
        .collect();
    ends.iter().for_each(|end| on.finish(end));
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
}
