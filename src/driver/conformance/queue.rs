//! How much a stream takes, and what waits for nothing. A call that blocks would be let go by the
//! gate's giving up on a GPU, which `Held::open` sees, and by nothing elsewhere.
#![allow(clippy::unwrap_used)]

use super::calls::{Event, N, Stream, WORDS, at};
use super::rows::{self, column, device};
use super::subject::Subject;

on_every_subject![
    a_stream_takes_a_thousand_launches,
    a_stream_takes_a_thousand_fills,
    a_stream_takes_a_thousand_copies_in_each_direction,
    a_stream_takes_a_thousand_timed_records,
    a_stream_takes_a_thousand_of_all_kinds,
    records_waits_and_allocations_do_not_count,
    several_streams_take_a_thousand_each,
    no_call_but_those_that_say_so_waits_for_the_device,
    asking_how_much_memory_is_free_waits_for_nothing,
];

/// Beside the gate's launch, which counts as well.
const REST: usize = 999;

/// Fills a held stream with `REST` operations, and sees it through.
fn fill_up(on: &Subject, s: &Stream<'_>, operation: impl Fn(usize)) {
    let held = on.hold(s);
    (0..REST).for_each(operation);
    let end = on.record(s);
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
}

fn a_stream_takes_a_thousand_launches(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    fill_up(on, &s, |_| on.increment(x, 1, &s));
    assert_eq!(on.read(x, 4, &s), (REST as u32).to_le_bytes());
}

fn a_stream_takes_a_thousand_fills(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, REST, &s);
    fill_up(on, &s, |i| on.fill(at(x, i), 1, 1, &s));
    assert_eq!(on.read(x, REST, &s), [1; REST]);
}

fn a_stream_takes_a_thousand_copies_in_each_direction(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, REST, &s), on.filled(2, REST, &s));
    let host = on.pinned_with(&[3; REST]);
    fill_up(on, &s, |i| on.copy(at(y, i), at(x, i), 1, &s));
    assert_eq!(on.read(y, REST, &s), [1; REST]);
    fill_up(on, &s, |_| on.up(x, host, REST, &s));
    assert_eq!(on.read(x, REST, &s), [3; REST]);
    fill_up(on, &s, |_| on.down(host, y, REST, &s));
    assert_eq!(on.bytes(host, REST), [1; REST]);
}

fn a_stream_takes_a_thousand_timed_records(on: &Subject) {
    let s = on.stream();
    let event = on.timed_event();
    fill_up(on, &s, |_| on.record_again(&event, &s));
}

fn a_stream_takes_a_thousand_of_all_kinds(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    let (host, timed) = (on.pinned_with(&[0; N]), on.timed_event());
    fill_up(on, &s, |i| match i % 7 {
        0 => on.increment(x, WORDS, &s),
        1 => on.fill(y, 1, N, &s),
        2 => on.copy(y, x, N, &s),
        3 => on.up(y, host, N, &s),
        4 => on.down(host, y, N, &s),
        5 => on.copy_rows(&column(device(y, 16), rows::host(host, 16)), &s),
        _ => on.record_again(&timed, &s),
    });
    let increments = REST.div_ceil(7) as u32;
    assert_eq!(on.read(x, N, &s), increments.to_le_bytes().repeat(N / 4));
}

fn records_waits_and_allocations_do_not_count(on: &Subject) {
    const ROUNDS: usize = 2_000;
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &s);
    let (here, there) = (on.event(), on.event());
    let held = on.hold(&s);
    (0..REST).for_each(|_| on.increment(x, 1, &s));
    for _ in 0..ROUNDS {
        on.record_again(&here, &s);
        on.wait(&t, &here);
        on.record_again(&there, &t);
        on.wait(&s, &there);
        on.free(on.alloc(N, &s), &s);
    }
    let end = on.record(&s);
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, 4, &s), (REST as u32).to_le_bytes());
}

fn several_streams_take_a_thousand_each(on: &Subject) {
    let streams = [on.stream(), on.stream(), on.stream()];
    let buffers = [(); 3].map(|()| on.filled(0, N, &streams[0]));
    let held = [0, 1, 2].map(|i| on.hold(&streams[i]));
    for _ in 0..REST {
        for (s, x) in streams.iter().zip(buffers) {
            on.increment(x, 1, s);
        }
    }
    let ends: Vec<Event<'_>> = streams.iter().map(|s| on.record(s)).collect();
    held.into_iter().for_each(super::gate::Held::open);
    for ((s, x), end) in streams.iter().zip(buffers).zip(&ends) {
        on.finish(end);
        assert_eq!(on.read(x, 4, s), (REST as u32).to_le_bytes());
    }
}

/// While a kernel runs and a stream has work pending. Streams, modules and page-locked memory are
/// made and freed elsewhere: those calls may wait.
fn no_call_but_those_that_say_so_waits_for_the_device(on: &Subject) {
    let (s, t, gone) = (on.stream(), on.stream(), on.stream());
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let host = on.pinned_with(&[3; N]);
    let (start, end) = (on.timed_event(), on.timed_event());
    on.record_again(&start, &t);
    on.record_again(&end, &t);
    on.finish(&end);
    let held = on.hold(&s);
    let event = on.record(&s);
    on.up(x, host, N, &s);
    on.down(host, x, N, &s);
    on.copy(y, x, N, &s);
    on.copy_rows(&column(rows::host(host, 16), device(y, 16)), &s);
    on.fill(x, 4, N, &s);
    on.increment(x, WORDS, &s);
    on.free(on.alloc(N, &s), &s);
    assert!(!on.done(&event));
    on.wait(&t, &event);
    on.wait(&gone, &event);
    event.destroy();
    gone.destroy();
    assert!(on.driver.event_elapsed(&start, &end).is_ok());
    on.driver.relax_capture().unwrap();
    drop((on.event(), on.timed_event()));
    let _stays = on.pinned(N);
    let last = on.record(&t);
    assert!(!on.done(&last));
    held.open();
    on.finish(&last);
}

fn asking_how_much_memory_is_free_waits_for_nothing(on: &Subject) {
    let s = on.stream();
    let held = on.hold(&s);
    let end = on.record(&s);
    assert!(on.driver.memory_free().unwrap() > 0);
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
}
