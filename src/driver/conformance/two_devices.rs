//! Two devices: a stream of one waits for an event of the other, and memory is copied between them.
//! Nothing else is ordered from one device to another.

use super::calls::{N, WORDS, at};
use super::subject::Subject;
use crate::driver::DefaultStream;

on_every_two_subjects![
    a_stream_waits_for_an_event_of_the_other_device,
    a_wait_for_the_other_device_covers_nothing_that_follows_the_record,
    a_wait_for_an_event_of_the_other_device_never_recorded_waits_for_nothing,
    a_stream_that_is_held_holds_up_none_of_the_other_device,
    order_passes_from_device_to_device_and_back,
    copies_between_devices_of_any_size_and_place_move_their_bytes_and_no_others,
    a_copy_between_devices_is_in_the_order_of_its_stream,
    a_copy_between_devices_comes_after_what_its_stream_waits_for,
    a_copy_between_devices_that_is_held_back_holds_up_no_kernel,
    copies_of_nothing_between_devices_do_nothing,
    work_can_go_back_and_forth_between_devices,
    default_streams_are_each_devices_own,
];

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + 1) as u8).collect()
}

fn let_pass(one: &Subject, other: &Subject) {
    one.let_pass();
    other.let_pass();
}

fn a_stream_waits_for_an_event_of_the_other_device(one: &Subject, other: &Subject) {
    for (a, b) in [(one, other), (other, one)] {
        let (s, t) = (a.stream(), b.stream());
        let x = b.filled(0, N, &t);
        let held = a.hold(&s);
        let recorded = a.record(&s);
        b.increment(x, WORDS, &t);
        let before = b.record(&t);
        b.wait(&t, &recorded);
        b.increment(x, WORDS, &t);
        let after = b.record(&t);
        b.finish(&before);
        let_pass(a, b);
        assert!(!b.done(&after));
        held.open();
        b.finish(&after);
        assert!(a.done(&recorded), "what was waited for came first");
        assert_eq!(b.read(x, N, &t), [2, 0, 0, 0].repeat(N / 4));
    }
}

fn a_wait_for_the_other_device_covers_nothing_that_follows_the_record(a: &Subject, b: &Subject) {
    let (s, t) = (a.stream(), b.stream());
    let x = b.filled(0, N, &t);
    let event = a.record(&s);
    b.wait(&t, &event);
    let held = a.hold(&s);
    a.record_again(&event, &s);
    b.increment(x, WORDS, &t);
    b.finish(&b.record(&t));
    assert!(!a.done(&event));
    held.open();
    a.finish(&event);
    assert_eq!(b.read(x, N, &t), [1, 0, 0, 0].repeat(N / 4));
}

fn a_wait_for_an_event_of_the_other_device_never_recorded_waits_for_nothing(
    a: &Subject,
    b: &Subject,
) {
    let (s, t) = (a.stream(), b.stream());
    let x = b.filled(0, N, &t);
    let event = a.event();
    b.wait(&t, &event);
    let held = a.hold(&s);
    a.record_again(&event, &s);
    b.increment(x, WORDS, &t);
    b.finish(&b.record(&t));
    assert!(!a.done(&event));
    held.open();
}

fn a_stream_that_is_held_holds_up_none_of_the_other_device(one: &Subject, other: &Subject) {
    for (a, b) in [(one, other), (other, one)] {
        let (s, t) = (a.stream(), b.stream());
        let x = b.filled(0, N, &t);
        let to = b.pinned(N);
        let held = a.hold(&s);
        let end = a.record(&s);
        b.increment(x, WORDS, &t);
        b.down(to, x, N, &t);
        b.finish(&b.record(&t));
        assert_eq!(b.bytes(to, N), [1, 0, 0, 0].repeat(N / 4));
        assert!(!a.done(&end));
        held.open();
        a.finish(&end);
    }
}

fn order_passes_from_device_to_device_and_back(a: &Subject, b: &Subject) {
    let (s, t, u) = (a.stream(), b.stream(), a.stream());
    let x = a.filled(0, N, &s);
    let held = a.hold(&s);
    a.fill(x, 1, N, &s);
    b.wait(&t, &a.record(&s));
    a.wait(&u, &b.record(&t)); // by way of the other device
    a.increment(x, WORDS, &u);
    let end = a.record(&u);
    let_pass(a, b);
    assert!(!a.done(&end));
    held.open();
    a.finish(&end);
    assert_eq!(a.read(x, N, &u), [2, 1, 1, 1].repeat(N / 4));
}

fn copies_between_devices_of_any_size_and_place_move_their_bytes_and_no_others(
    one: &Subject,
    other: &Subject,
) {
    const MOST: usize = (1 << 20) + 3;
    for (a, b) in [(one, other), (other, one)] {
        let (s, t) = (a.stream(), b.stream());
        let (x, y) = (a.alloc(MOST, &s), b.alloc(MOST + 512, &t));
        a.up(x, a.pinned_with(&pattern(MOST)), MOST, &s);
        a.finish(&a.record(&s));
        for (bytes, from, to) in [(1, 0, 3), (7, 3, 0), (4_097, 1, 253), (MOST - 16, 16, 256)] {
            let extent = to + bytes + 256;
            b.fill(y, 0xA5, extent, &t);
            b.finish(&b.record(&t));
            a.copy_to_device((b, at(y, to)), at(x, from), bytes, (a, &s));
            a.finish(&a.record(&s));
            let mut expected = vec![0xA5; extent];
            expected[to..to + bytes].copy_from_slice(&pattern(MOST)[from..from + bytes]);
            assert!(b.read(y, extent, &t) == expected, "{bytes} bytes at {from} to {to}");
        }
        assert!(a.read(x, MOST, &s) == pattern(MOST), "the source is as it was");
    }
}

fn a_copy_between_devices_is_in_the_order_of_its_stream(one: &Subject, other: &Subject) {
    // On a stream of the source's device, and of the target's.
    for of in [one, other] {
        let (s, t, u) = (one.stream(), other.stream(), of.stream());
        let (x, y) = (one.filled(1, N, &s), other.filled(2, N, &t));
        let own = if std::ptr::eq(of, one) { x } else { y };
        let to = of.pinned(N);
        of.delay(2_000_000, &u);
        of.increment(own, WORDS, &u);
        one.copy_to_device((other, y), x, N, (of, &u));
        of.down(to, own, N, &u);
        of.fill(own, 9, N, &u);
        let end = of.record(&u);
        of.finish(&end);
        let (copied, left) = match std::ptr::eq(of, one) {
            true => (other.read(y, N, &t), [2, 1, 1, 1].repeat(N / 4)),
            false => (of.bytes(to, N), vec![1; N]),
        };
        assert_eq!(copied, left);
        assert_eq!(of.read(own, N, &u), [9; N]);
    }
}

fn a_copy_between_devices_comes_after_what_its_stream_waits_for(a: &Subject, b: &Subject) {
    let (s, t, u) = (a.stream(), b.stream(), a.stream());
    let (x, y) = (a.filled(1, N, &s), b.filled(2, N, &t));
    let held = [a.hold(&s), b.hold(&t)];
    a.fill(x, 3, N, &s);
    b.fill(y, 4, N, &t);
    a.wait(&u, &a.record(&s));
    a.wait(&u, &b.record(&t));
    a.copy_to_device((b, y), x, N, (a, &u));
    let copied = a.record(&u);
    b.wait(&t, &copied);
    b.increment(y, WORDS, &t);
    let end = b.record(&t);
    for held in held {
        let_pass(a, b);
        assert!(!a.done(&copied) && !b.done(&end));
        held.open();
    }
    b.finish(&end);
    assert!(a.done(&copied));
    assert_eq!(b.read(y, N, &t), [4, 3, 3, 3].repeat(N / 4));
}

fn a_copy_between_devices_that_is_held_back_holds_up_no_kernel(a: &Subject, b: &Subject) {
    let (s, t, u) = (a.stream(), b.stream(), a.stream());
    let (x, y) = (a.filled(1, 2 * N, &s), b.filled(2, 2 * N, &t));
    let held = a.hold(&s);
    a.copy_to_device((b, y), x, N, (a, &s));
    let last = a.record(&s);
    a.increment(at(x, N), WORDS, &u);
    a.finish(&a.record(&u));
    b.increment(at(y, N), WORDS, &t);
    b.finish(&b.record(&t));
    assert!(!a.done(&last));
    held.open();
    a.finish(&last);
    assert_eq!(b.read(y, N, &t), [1; N]);
    assert_eq!(a.read(at(x, N), N, &s), [2, 1, 1, 1].repeat(N / 4));
    assert_eq!(b.read(at(y, N), N, &t), [3, 2, 2, 2].repeat(N / 4));
}

fn copies_of_nothing_between_devices_do_nothing(a: &Subject, b: &Subject) {
    let (s, t) = (a.stream(), b.stream());
    let (x, y) = (a.filled(1, N, &s), b.filled(2, N, &t));
    a.copy_to_device((b, y), x, 0, (a, &s));
    a.finish(&a.record(&s));
    assert_eq!((a.read(x, N, &s), b.read(y, N, &t)), (vec![1; N], vec![2; N]));
}

fn work_can_go_back_and_forth_between_devices(a: &Subject, b: &Subject) {
    const ROUNDS: u8 = 20;
    let (s, t) = (a.stream(), b.stream());
    let (x, y) = (a.filled(0, N, &s), b.filled(9, N, &t));
    let (here, there) = (a.event(), b.event());
    for _ in 0..ROUNDS {
        a.increment(x, WORDS, &s);
        a.copy_to_device((b, y), x, N, (a, &s));
        a.record_again(&here, &s);
        b.wait(&t, &here);
        b.increment(y, WORDS, &t);
        b.copy_to_device((a, x), y, N, (b, &t));
        b.record_again(&there, &t);
        a.wait(&s, &there);
    }
    a.record_again(&here, &s);
    a.finish(&here);
    assert_eq!(a.read(x, N, &s), [2 * ROUNDS, 0, 0, 0].repeat(N / 4));
}

fn default_streams_are_each_devices_own(one: &Subject, other: &Subject) {
    for which in [DefaultStream::Legacy, DefaultStream::PerThread] {
        let (s, t) = (one.driver.default_stream(which), other.driver.default_stream(which));
        assert_ne!(s.id(), t.id(), "{which:?}");
        let (x, y) = (one.filled(1, N, &s), other.filled(5, N, &t));
        let held = one.hold(&s);
        one.increment(x, WORDS, &s);
        let behind = one.record(&s);
        other.increment(y, WORDS, &t);
        other.finish(&other.record(&t));
        assert!(!one.done(&behind), "{which:?}");
        held.open();
        assert_eq!(one.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4), "{which:?}");
        assert_eq!(other.read(y, N, &t), [6, 5, 5, 5].repeat(N / 4), "{which:?}");
    }
}
