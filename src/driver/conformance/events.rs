//! What an event stands for: its last recording.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::calls::{N, WORDS, code};
use super::subject::Subject;
use crate::driver::DriverError;

on_every_subject![
    an_event_never_recorded_is_reached,
    an_event_is_reached_when_what_came_before_its_record_has_run,
    an_event_recorded_on_an_idle_stream_is_reached,
    recording_again_replaces_what_queries_see,
    a_wait_keeps_the_recording_there_was_at_the_call,
    a_wait_is_not_let_go_by_a_later_recording,
    each_wait_takes_the_recording_of_its_time,
    an_event_may_be_recorded_on_one_stream_after_the_other,
    an_event_destroyed_before_it_is_reached_still_lets_go_who_waits,
    reaching_an_event_shows_the_host_what_was_copied,
    the_time_between_timed_events_is_what_the_work_took,
    an_event_reached_earlier_is_no_time_later,
    plain_events_have_no_time,
    an_event_never_recorded_has_no_time,
    an_event_not_reached_has_no_time_yet,
];

fn an_event_never_recorded_is_reached(on: &Subject) {
    assert!(on.done(&on.event()));
    assert!(on.done(&on.timed_event()));
}

fn an_event_is_reached_when_what_came_before_its_record_has_run(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    let to = on.pinned_with(&[9; N]);
    let held = on.hold(&s);
    on.increment(x, WORDS, &s);
    on.down(to, x, N, &s);
    for event in [on.event(), on.timed_event()] {
        on.record_again(&event, &s);
        assert!(!on.done(&event));
        on.let_pass();
        assert!(!on.done(&event));
    }
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(to, N), [1, 0, 0, 0].repeat(N / 4));
    assert!(on.done(&end), "what was reached stays reached");
}

fn an_event_recorded_on_an_idle_stream_is_reached(on: &Subject) {
    let s = on.stream();
    on.finish(&on.record(&s));
    let x = on.filled(0, N, &s); // has run something by now
    on.finish(&on.record(&s));
    assert_eq!(on.read(x, N, &s), [0; N]);
}

fn recording_again_replaces_what_queries_see(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let event = on.record(&s);
    on.finish(&event);
    let held = on.hold(&t);
    on.record_again(&event, &t);
    assert!(!on.done(&event), "reached before, but not the recording of now");
    on.record_again(&event, &s);
    on.finish(&event);
    held.open();
}

fn a_wait_keeps_the_recording_there_was_at_the_call(on: &Subject) {
    let (s, t, later) = (on.stream(), on.stream(), on.stream());
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    let first = on.hold(&s);
    on.fill(x, 1, N, &s);
    let event = on.record(&s);
    on.wait(&t, &event);
    let second = on.hold(&later);
    on.record_again(&event, &later);
    on.copy(y, x, N, &t);
    let copied = on.record(&t);
    first.open();
    on.finish(&copied);
    assert!(!on.done(&event), "a query is for the last recording");
    second.open();
    on.finish(&event);
    assert_eq!(on.read(y, N, &t), [1; N]);
}

fn a_wait_is_not_let_go_by_a_later_recording(on: &Subject) {
    let (s, t, idle) = (on.stream(), on.stream(), on.stream());
    let held = on.hold(&s);
    let event = on.record(&s);
    on.wait(&t, &event);
    on.record_again(&event, &idle);
    on.finish(&event);
    let behind = on.record(&t);
    on.let_pass();
    assert!(!on.done(&behind));
    held.open();
    on.finish(&behind);
}

fn each_wait_takes_the_recording_of_its_time(on: &Subject) {
    let (s, event) = (on.stream(), on.event());
    let waiting = [(); 4].map(|()| on.stream());
    let (x, copies) = (on.filled(0, N, &s), [(); 4].map(|()| on.filled(0, N, &s)));
    let mut held = Vec::new();
    let mut ends = Vec::new();
    for (t, y) in waiting.iter().zip(copies) {
        held.push(on.hold(&s));
        on.increment(x, WORDS, &s);
        on.record_again(&event, &s);
        on.wait(t, &event);
        on.copy(y, x, 4, t);
        ends.push(on.record(t));
        // What is written next waits until this was read.
        on.wait(&s, &ends[ends.len() - 1]);
    }
    for (i, gate) in held.into_iter().enumerate() {
        let passed: Vec<bool> = ends.iter().map(|end| on.done(end)).collect();
        assert!(passed[i..].iter().all(|passed| !passed), "{passed:?} before gate {i}");
        gate.open();
        on.finish(&ends[i]);
    }
    for (i, (t, y)) in waiting.iter().zip(copies).enumerate() {
        assert_eq!(on.read(y, 4, t), [i as u8 + 1, 0, 0, 0]);
    }
}

fn an_event_may_be_recorded_on_one_stream_after_the_other(on: &Subject) {
    let (streams, event) = ([on.stream(), on.stream(), on.stream()], on.event());
    for s in streams.iter().cycle().take(12) {
        let x = on.filled(0, N, s);
        on.increment(x, WORDS, s);
        on.record_again(&event, s);
        on.finish(&event);
        on.free(x, s);
    }
}

fn an_event_destroyed_before_it_is_reached_still_lets_go_who_waits(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    let held = on.hold(&s);
    on.fill(x, 1, N, &s);
    let event = on.record(&s);
    on.wait(&t, &event);
    event.destroy();
    on.copy(y, x, N, &t);
    let copied = on.record(&t);
    on.let_pass();
    assert!(!on.done(&copied), "destroying it let nobody go");
    held.open();
    on.finish(&copied);
    assert_eq!(on.read(y, N, &t), [1; N]);
}

fn reaching_an_event_shows_the_host_what_was_copied(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    let to = on.pinned(N);
    for round in 1..=100 {
        on.fill(x, round, N, &s);
        on.down(to, x, N, &s);
        on.finish(&on.record(&s));
        assert_eq!(on.bytes(to, N), [round; N]);
    }
}

fn the_time_between_timed_events_is_what_the_work_took(on: &Subject) {
    let s = on.stream();
    let (start, end) = (on.timed_event(), on.timed_event());
    on.record_again(&start, &s);
    on.delay(2_000_000, &s);
    on.record_again(&end, &s);
    on.finish(&end);
    let took = on.driver.event_elapsed(&start, &end).unwrap();
    // The two clocks of a GPU are not the same.
    let range = Duration::from_micros(1_900)..Duration::from_secs(5);
    assert!(range.contains(&took), "{took:?}");
}

fn an_event_reached_earlier_is_no_time_later(on: &Subject) {
    let s = on.stream();
    let (start, end) = (on.timed_event(), on.timed_event());
    on.record_again(&start, &s);
    on.delay(100_000, &s);
    on.record_again(&end, &s);
    on.finish(&end);
    assert_eq!(on.driver.event_elapsed(&end, &start), Ok(Duration::ZERO));
    assert_eq!(on.driver.event_elapsed(&end, &end), Ok(Duration::ZERO));
}

fn plain_events_have_no_time(on: &Subject) {
    let s = on.stream();
    let (plain, timed) = (on.event(), on.timed_event());
    on.record_again(&plain, &s);
    on.record_again(&timed, &s);
    on.finish(&timed);
    for (start, end) in [(&plain, &plain), (&plain, &timed), (&timed, &plain)] {
        let told = code(on.driver.event_elapsed(start, end));
        assert_eq!(told, Some(DriverError::INVALID_HANDLE));
    }
}

fn an_event_never_recorded_has_no_time(on: &Subject) {
    let s = on.stream();
    let (never, recorded) = (on.timed_event(), on.timed_event());
    on.record_again(&recorded, &s);
    on.finish(&recorded);
    for (start, end) in [(&never, &never), (&never, &recorded), (&recorded, &never)] {
        let told = code(on.driver.event_elapsed(start, end));
        assert_eq!(told, Some(DriverError::INVALID_HANDLE));
    }
}

fn an_event_not_reached_has_no_time_yet(on: &Subject) {
    let s = on.stream();
    let (start, end) = (on.timed_event(), on.timed_event());
    on.record_again(&start, &s);
    on.finish(&start);
    let held = on.hold(&s);
    on.record_again(&end, &s);
    for (start, end) in [(&start, &end), (&end, &start), (&end, &end)] {
        let told = code(on.driver.event_elapsed(start, end));
        assert_eq!(told, Some(DriverError::NOT_READY));
    }
    held.open();
    on.finish(&end);
    assert!(on.driver.event_elapsed(&start, &end).is_ok());
}
