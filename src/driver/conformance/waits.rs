//! What a wait orders, and what it leaves alone.

use super::calls::{N, WORDS};
use super::subject::Subject;

on_every_subject![
    what_follows_a_wait_runs_after_what_came_before_the_record,
    a_wait_covers_nothing_that_follows_the_record,
    a_wait_holds_up_nothing_that_came_before_it,
    a_wait_orders_a_write_behind_a_read,
    a_wait_for_an_event_never_recorded_waits_for_nothing,
    a_wait_for_what_is_reached_already_waits_for_nothing,
    a_stream_may_wait_for_an_event_of_its_own,
    order_passes_on_from_stream_to_stream,
    several_streams_can_wait_for_one_event,
    a_stream_can_wait_for_several_events,
    work_can_go_back_and_forth_between_streams,
];

fn what_follows_a_wait_runs_after_what_came_before_the_record(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    let held = on.hold(&s);
    on.fill(x, 1, N, &s);
    on.increment(x, WORDS, &s);
    let written = on.record(&s);
    on.wait(&t, &written);
    on.copy(y, x, N, &t);
    let copied = on.record(&t);
    on.let_pass();
    assert!(!on.done(&copied));
    held.open();
    on.finish(&copied);
    assert!(on.done(&written), "what was waited for came first");
    assert_eq!(on.read(y, N, &t), [2, 1, 1, 1].repeat(N / 4));
}

fn a_wait_covers_nothing_that_follows_the_record(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    on.fill(x, 1, N, &s);
    let written = on.record(&s);
    let held = on.hold(&s);
    let behind = on.record(&s);
    on.wait(&t, &written);
    on.copy(y, x, N, &t);
    on.finish(&on.record(&t));
    assert!(!on.done(&behind));
    held.open();
    assert_eq!(on.read(y, N, &t), [1; N]);
}

fn a_wait_holds_up_nothing_that_came_before_it(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &t);
    let held = on.hold(&s);
    on.increment(x, WORDS, &t);
    let before = on.record(&t);
    on.wait(&t, &on.record(&s));
    let after = on.record(&t);
    on.finish(&before);
    assert!(!on.done(&after), "a wait counts without work behind it");
    held.open();
    on.finish(&after);
}

fn a_wait_orders_a_write_behind_a_read(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(1, N, &s), on.filled(0, N, &s));
    let held = on.hold(&s);
    on.copy(y, x, N, &s);
    on.wait(&t, &on.record(&s));
    on.fill(x, 9, N, &t);
    let written = on.record(&t);
    on.let_pass();
    assert!(!on.done(&written));
    held.open();
    on.finish(&written);
    assert_eq!(on.read(y, N, &t), [1; N]);
    assert_eq!(on.read(x, N, &t), [9; N]);
}

fn a_wait_for_an_event_never_recorded_waits_for_nothing(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &t);
    let event = on.event();
    on.wait(&t, &event);
    let held = on.hold(&s);
    on.record_again(&event, &s);
    on.increment(x, WORDS, &t);
    on.finish(&on.record(&t)); // though the event has a recording by now
    assert!(!on.done(&event));
    held.open();
}

fn a_wait_for_what_is_reached_already_waits_for_nothing(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &t);
    let reached = on.record(&s);
    on.finish(&reached);
    let held = on.hold(&s);
    on.wait(&t, &reached);
    on.increment(x, WORDS, &t);
    on.finish(&on.record(&t));
    held.open();
}

fn a_stream_may_wait_for_an_event_of_its_own(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    let held = on.hold(&s);
    let event = on.record(&s);
    on.wait(&s, &event);
    on.increment(x, WORDS, &s);
    on.wait(&s, &event);
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, N, &s), [1, 0, 0, 0].repeat(N / 4));
}

fn order_passes_on_from_stream_to_stream(on: &Subject) {
    let streams = [on.stream(), on.stream(), on.stream(), on.stream()];
    let x = on.filled(0, N, &streams[0]);
    let held = on.hold(&streams[0]);
    on.fill(x, 1, N, &streams[0]);
    for pair in streams.windows(2) {
        on.wait(&pair[1], &on.record(&pair[0]));
    }
    on.increment(x, WORDS, &streams[3]);
    let end = on.record(&streams[3]);
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, N, &streams[3]), [2, 1, 1, 1].repeat(N / 4));
}

fn several_streams_can_wait_for_one_event(on: &Subject) {
    let (s, readers) = (on.stream(), [on.stream(), on.stream(), on.stream()]);
    let x = on.filled(0, N, &s);
    let copies = [(); 3].map(|()| on.filled(0, N, &s));
    let held = on.hold(&s);
    on.fill(x, 1, N, &s);
    let written = on.record(&s);
    let mut ends = Vec::new();
    for (t, y) in readers.iter().zip(copies) {
        on.wait(t, &written);
        on.copy(y, x, N, t);
        ends.push(on.record(t));
    }
    on.let_pass();
    assert!(ends.iter().all(|end| !on.done(end)));
    held.open();
    for ((end, y), t) in ends.iter().zip(copies).zip(&readers) {
        on.finish(end);
        assert_eq!(on.read(y, N, t), [1; N]);
    }
}

fn a_stream_can_wait_for_several_events(on: &Subject) {
    let (writers, t) = ([on.stream(), on.stream()], on.stream());
    let buffers = [on.filled(0, N, &t), on.filled(0, N, &t)];
    let sum = on.filled(0, 2 * N, &t);
    // Whichever is let go first.
    for order in [[0, 1], [1, 0]] {
        let mut held = [Some(on.hold(&writers[0])), Some(on.hold(&writers[1]))];
        for (s, x) in writers.iter().zip(buffers) {
            on.increment(x, WORDS, s);
            on.wait(&t, &on.record(s));
        }
        let end = on.record(&t);
        held[order[0]].take().into_iter().for_each(super::gate::Held::open);
        on.let_pass();
        assert!(!on.done(&end), "the other is still held");
        held[order[1]].take().into_iter().for_each(super::gate::Held::open);
        on.finish(&end);
    }
    on.copy(sum, buffers[0], N, &t);
    on.copy(super::calls::at(sum, N), buffers[1], N, &t);
    assert_eq!(on.read(sum, 2 * N, &t), [2, 0, 0, 0].repeat(N / 2));
}

fn work_can_go_back_and_forth_between_streams(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &s);
    let held = on.hold(&s);
    let event = on.event();
    let mut pair = [&s, &t];
    for _ in 0..100 {
        on.increment(x, WORDS, pair[0]);
        on.record_again(&event, pair[0]);
        on.wait(pair[1], &event);
        pair.reverse();
    }
    on.record_again(&event, pair[0]);
    held.open();
    on.finish(&event);
    assert_eq!(on.read(x, N, pair[0]), [100, 0, 0, 0].repeat(N / 4));
}
