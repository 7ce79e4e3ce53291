//! Work of one stream runs in order; that of several is not ordered.
#![allow(clippy::unwrap_used)]

use super::calls::{Host, N, WORDS, at};
use super::subject::Subject;
use crate::driver::{DevicePtr, StreamHandle};

on_every_subject![
    work_of_one_stream_runs_in_the_order_enqueued,
    a_long_mixture_on_one_stream_computes_what_one_step_after_the_other_does,
    nothing_on_a_held_stream_runs_before_it_is_let_go,
    a_held_stream_holds_up_no_other_whichever_was_given_its_work_first,
    a_copy_that_is_held_back_holds_up_no_copy_of_another_stream,
    a_stream_held_in_the_middle_has_run_what_came_before,
];

fn work_of_one_stream_runs_in_the_order_enqueued(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.alloc(N, &s), on.alloc(N, &s));
    let (from, [first, second]) = (on.pinned_with(&[5; N]), [on.pinned(N), on.pinned(N)]);
    let held = on.hold(&s);
    on.fill(x, 1, N, &s);
    on.copy(y, x, N, &s);
    on.increment(x, WORDS, &s);
    on.down(first, x, N, &s);
    on.up(x, from, N, &s);
    on.copy(at(y, 4), x, 4, &s);
    on.down(second, y, N, &s);
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(first, N), [2, 1, 1, 1].repeat(N / 4));
    let mut expected = [1; N];
    expected[4..8].fill(5);
    assert_eq!(on.bytes(second, N), expected);
    assert_eq!(on.read(x, N, &s), [5; N]);
}

fn a_long_mixture_on_one_stream_computes_what_one_step_after_the_other_does(on: &Subject) {
    const WORDS: usize = 16;
    const BYTES: usize = WORDS * 4;
    let s = on.stream();
    let device = [on.filled(0, BYTES, &s), on.filled(0, BYTES, &s)];
    let source = on.pinned_with(&[7; BYTES]);
    let mut model = [[0_u32; WORDS]; 2];
    let mut seen = Vec::new();
    for round in 0..300_u32 {
        // Any sequence in which every kind of work comes after every other.
        let (kind, target) = (round.wrapping_mul(2_654_435_761) >> 29, (round % 2) as usize);
        let (x, other) = (device[target], device[1 - target]);
        match kind {
            0 => {
                on.fill(x, round as u8, BYTES, &s);
                model[target] = [u32::from(round as u8) * 0x0101_0101; WORDS];
            }
            1 => {
                on.up(x, source, BYTES, &s);
                model[target] = [0x0707_0707; WORDS];
            }
            2 => {
                on.copy(x, other, BYTES, &s);
                model[target] = model[1 - target];
            }
            3 => {
                on.copy_words(x, other, WORDS as u32, &s);
                model[target] = model[1 - target];
            }
            4 => {
                let host = on.pinned(BYTES);
                on.down(host, x, BYTES, &s);
                seen.push((host, model[target]));
            }
            _ => {
                on.increment(x, WORDS as u32, &s);
                model[target] = model[target].map(|word| word.wrapping_add(1));
            }
        }
    }
    on.finish(&on.record(&s));
    let bytes = |words: [u32; WORDS]| words.map(u32::to_le_bytes).concat();
    assert!(seen.len() > 20);
    for (host, expected) in seen {
        assert_eq!(on.bytes(host, BYTES), bytes(expected));
    }
    for (x, expected) in device.into_iter().zip(model) {
        assert_eq!(on.read(x, BYTES, &s), bytes(expected));
    }
}

fn nothing_on_a_held_stream_runs_before_it_is_let_go(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let to = on.pinned_with(&[9; N]);
    let held = on.hold(&s);
    let first = on.record(&s);
    on.down(to, x, N, &s);
    let second = on.record(&s);
    on.let_pass();
    assert_eq!((on.done(&first), on.done(&second)), (false, false));
    held.open();
    on.finish(&second);
    assert!(on.done(&first), "it comes before the second");
    assert_eq!(on.bytes(to, N), [1; N]);
}

fn a_held_stream_holds_up_no_other_whichever_was_given_its_work_first(on: &Subject) {
    let streams = [on.stream(), on.stream()];
    let buffers = [on.filled(0, N, &streams[0]), on.filled(0, N, &streams[1])];
    for holding in [0, 1] {
        for first in [0, 1] {
            let held = on.hold(&streams[holding]);
            let mut ends = [None, None];
            for i in [first, 1 - first] {
                on.increment(buffers[i], WORDS, &streams[i]);
                on.fill(at(buffers[i], 4), 3, 4, &streams[i]);
                on.copy(at(buffers[i], 8), buffers[i], 8, &streams[i]);
                ends[i] = Some(on.record(&streams[i]));
            }
            let [Some(a), Some(b)] = ends else { unreachable!("both were recorded") };
            let (held_back, free) = if holding == 0 { (a, b) } else { (b, a) };
            on.finish(&free);
            assert!(!on.done(&held_back));
            held.open();
            on.finish(&held_back);
        }
    }
}

/// In any direction, though a GPU has few engines for copies.
fn a_copy_that_is_held_back_holds_up_no_copy_of_another_stream(on: &Subject) {
    type Copy = fn(&Subject, DevicePtr, Host, &StreamHandle);
    let directions: [(&str, Copy); 3] = [
        ("up", |on, x, host, s| on.up(x, host, N, s)),
        ("down", |on, x, host, s| on.down(host, x, N, s)),
        ("within", |on, x, _, s| on.copy(x, at(x, N), N, s)),
    ];
    let (s, t) = (on.stream(), on.stream());
    let buffers = [on.filled(1, 2 * N, &s), on.filled(2, 2 * N, &t)];
    let hosts = [on.pinned_with(&[3; N]), on.pinned_with(&[4; N])];
    for (held_back, first) in directions {
        for (free, second) in directions {
            let held = on.hold(&s);
            first(on, buffers[0], hosts[0], &s);
            let last = on.record(&s);
            second(on, buffers[1], hosts[1], &t);
            on.finish(&on.record(&t));
            assert!(!on.done(&last), "{held_back}, then {free}");
            held.open();
            on.finish(&last);
        }
    }
}

fn a_stream_held_in_the_middle_has_run_what_came_before(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let to = on.pinned(N);
    on.down(to, x, N, &s);
    let before = on.record(&s);
    let held = on.hold(&s);
    let after = on.record(&s);
    on.finish(&before);
    assert_eq!(on.bytes(to, N), [1; N]);
    assert!(!on.done(&after));
    held.open();
    on.finish(&after);
}
