//! What a launch takes, and when.
#![allow(clippy::unwrap_used)]

use super::calls::{N, WORDS, at, code};
use super::kernels::Shape;
use super::subject::Subject;
use crate::driver::DriverError;

on_every_subject![
    a_kernel_runs_once_for_each_thread_asked_for,
    a_kernel_touches_nothing_beside,
    parameters_are_read_during_the_call_only,
    a_launch_may_have_all_the_shared_memory_there_is_without_asking,
    a_launch_of_a_shape_that_is_none_is_refused_and_runs_nothing,
];

// It asks for too much memory: see `allocation`.
on_every_subject![in_a_process_of_its_own:
    refused_calls_between_others_leave_no_trace,
];

fn a_kernel_runs_once_for_each_thread_asked_for(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, 4 * 70_000, &s);
    for n in [1_u32, 2, 63, 64, 65, 1_000, 70_000] {
        let bytes = n as usize * 4;
        on.fill(x, 0, bytes, &s);
        on.increment(x, n, &s);
        on.increment(x, n, &s);
        assert!(on.read(x, bytes, &s) == [2, 0, 0, 0].repeat(n as usize), "{n} words");
    }
    // Blocks and threads of any shape, as far as the first dimension goes.
    let max = on.driver.info().max_block_threads;
    for (grid, block) in [(1, max), (max, 1), (7, 33)] {
        let shape = Shape { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0 };
        let n = grid * block;
        on.fill(x, 0, n as usize * 4, &s);
        on.increment_as(x, n, shape, &s).unwrap();
        assert!(on.read(x, n as usize * 4, &s) == [1, 0, 0, 0].repeat(n as usize), "{shape:?}");
    }
}

fn a_kernel_touches_nothing_beside(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    on.increment(at(x, 8), 3, &s);
    on.copy_words(at(y, 20), x, 4, &s);
    let mut expected = [1; N];
    (8..20).step_by(4).for_each(|i| expected[i] = 2);
    assert_eq!(on.read(x, N, &s), expected);
    let mut copied = [2; N];
    copied[20..36].copy_from_slice(&expected[..16]);
    assert_eq!(on.read(y, N, &s), copied);
}

fn parameters_are_read_during_the_call_only(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let held = on.hold(&s);
    // Overwritten when each call returns: see `Subject::launch`.
    on.increment(x, WORDS, &s);
    on.copy_words(at(y, 4), x, 1, &s);
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
    assert_eq!(on.read(y, 12, &s), [2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2]);
}

fn a_launch_may_have_all_the_shared_memory_there_is_without_asking(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let shared_bytes = on.driver.info().max_shared_bytes;
    on.increment_as(x, WORDS, Shape { shared_bytes, ..Shape::of(WORDS) }, &s).unwrap();
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
}

/// Shapes that no device takes.
fn wrong_shapes(on: &Subject) -> Vec<Shape> {
    let info = on.driver.info();
    let right = Shape::of(WORDS);
    let mut wrong = Vec::new();
    for i in 0..3 {
        for size in [0, info.max_grid[i] + 1] {
            let mut grid = right.grid;
            grid[i] = size;
            wrong.push(Shape { grid, ..right });
        }
        for size in [0, info.max_block[i] + 1] {
            let mut block = [1; 3];
            block[i] = size;
            wrong.push(Shape { block, ..right });
        }
    }
    wrong.push(Shape { block: [info.max_block_threads / 2, 3, 1], ..right });
    wrong.push(Shape { block: [u32::MAX; 3], ..right });
    wrong.push(Shape { shared_bytes: info.max_shared_bytes + 1, ..right });
    wrong
}

fn a_launch_of_a_shape_that_is_none_is_refused_and_runs_nothing(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let answers: Vec<_> = wrong_shapes(on)
        .into_iter()
        .map(|shape| (shape, code(on.increment_as(x, WORDS, shape, &s))))
        .filter(|(_, code)| *code != Some(DriverError::INVALID_VALUE))
        .collect();
    assert!(answers.is_empty(), "not refused as they should be: {answers:#?}");
    assert_eq!(on.read(x, N, &s), [1; N]);
}

fn refused_calls_between_others_leave_no_trace(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(1, N, &s);
    let wrong = Shape { block: [0, 1, 1], ..Shape::of(WORDS) };
    let too_much = usize::try_from(on.driver.info().total_memory).unwrap() * 2;
    let event = on.event();
    for _ in 0..5 {
        on.increment(x, WORDS, &s);
        assert!(on.increment_as(x, WORDS, wrong, &s).is_err());
        assert!(on.driver.alloc(too_much, &s).is_err());
        on.record_again(&event, &s);
        assert!(on.increment_as(x, WORDS, wrong, &t).is_err());
        on.wait(&t, &event);
        assert!(on.driver.event_elapsed(&event, &event).is_err());
        on.increment(x, WORDS, &t);
        on.record_again(&event, &t);
        on.wait(&s, &event);
    }
    assert_eq!(on.read(x, N, &s), [11, 1, 1, 1].repeat(N / 4));
}
