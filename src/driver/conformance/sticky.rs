//! A kernel that faults ends the device: every later call says so.
#![allow(unsafe_code, clippy::unwrap_used)]

use super::calls::{N, WORDS, code};
use super::kernels::{Shape, probe};
use super::subject::Subject;
use crate::driver::{DriverError, DriverResult, Fill, HostKind};

on_every_subject![in_a_process_of_its_own:
    after_a_fault_every_call_fails_with_the_error_of_the_fault,
    events_behind_a_fault_are_never_reached,
    an_error_that_passes_does_not_stay,
];

const FAULT: u32 = DriverError::ILLEGAL_ADDRESS;

fn after_a_fault_every_call_fails_with_the_error_of_the_fault(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y, spare) = (on.filled(1, N, &s), on.filled(2, N, &s), on.filled(3, N, &s));
    let (host, other) = (on.pinned_with(&[4; N]), on.pinned(N));
    let (ordinary, registered) = (on.ordinary(&[1; N]), on.ordinary(&[1; 1 << 16]));
    on.register(registered, 1 << 16).unwrap();
    let module = on.driver.module_load(probe()).unwrap();
    let (never, before, start) = (on.event(), on.record(&s), on.timed_event());
    on.record_again(&start, &s);
    on.finish(&start);
    assert!(on.done(&before));

    let held = on.hold(&s);
    on.write_out_of_bounds(x, &s);
    let behind = on.record(&s);
    assert!(!on.done(&behind), "the fault is made when the kernel runs");
    held.open();
    assert_eq!(on.fail_at(&behind), FAULT);

    let driver = &on.driver;
    let fill = Fill { dst: x, unit: 1, value: 0, columns: N, rows: 1, pitch: 0 };
    // SAFETY: all that is named is alive, or was until the device failed: nothing is accessed.
    let answers: Vec<(&str, Option<u32>)> = unsafe {
        vec![
            ("event_query, reached before", code(driver.event_query(&before))),
            ("event_query, behind the fault", code(driver.event_query(&behind))),
            ("event_query, never recorded", code(driver.event_query(&never))),
            ("event_elapsed", code(driver.event_elapsed(&start, &start))),
            ("event_create", code(driver.event_create(false))),
            ("event_record", code(driver.event_record(&behind, &t))),
            ("stream_create", code(driver.stream_create(0))),
            ("stream_wait", code(driver.stream_wait(&t, &before))),
            ("alloc", code(driver.alloc(N, &t))),
            ("free", code(driver.free(spare, &t))),
            ("memory_free", code(driver.memory_free())),
            ("host_alloc", code(driver.host_alloc(N, HostKind::Cacheable))),
            ("copy_h2d", code(driver.copy_h2d(x, host.ptr(), N, &t))),
            ("copy_d2h", code(driver.copy_d2h(host.ptr(), x, N, &t))),
            ("copy_d2d", code(driver.copy_d2d(y, x, N, &t))),
            ("fill", code(driver.fill(fill, &t))),
            ("launch", code(on.increment_as(x, WORDS, Shape::of(WORDS), &t))),
            ("module_load", code(driver.module_load(probe()).map_err(|refused| refused.error))),
            ("module_function", code(driver.module_function(&module, c"increment"))),
            ("module_unload", code(driver.module_unload(module))),
            ("host_register", code(driver.host_register(ordinary.ptr(), N))),
            ("host_unregister", code(driver.host_unregister(registered.ptr()))),
            ("host_free", code(driver.host_free(other.ptr()))),
            ("event_destroy", code(driver.event_destroy(never.into_handle()))),
            ("stream_destroy", code(driver.stream_destroy(s.into_handle()))),
        ]
    };
    let otherwise: Vec<_> = answers.iter().filter(|answer| answer.1 != Some(FAULT)).collect();
    assert!(otherwise.is_empty(), "these do not answer {FAULT}: {otherwise:#?}");
    assert!(driver.event_query(&before).unwrap_err().is_sticky());
}

fn events_behind_a_fault_are_never_reached(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(1, N, &s);
    let to = on.pinned_with(&[9; N]);
    let held = on.hold(&s);
    on.write_out_of_bounds(x, &s);
    on.down(to, x, N, &s);
    let behind = on.record(&s);
    on.wait(&t, &behind);
    let waited = on.record(&t);
    held.open();
    // Whichever is asked first, and however often.
    for event in [&waited, &behind, &waited, &behind] {
        assert_eq!(on.fail_at(event), FAULT);
    }
    assert_eq!(on.bytes(to, N), [9; N], "what is behind the fault did not run");
}

fn an_error_that_passes_does_not_stay(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let too_much = usize::try_from(on.driver.info().total_memory).unwrap() * 2;
    let errors: [DriverResult<()>; 3] = [
        on.driver.alloc(too_much, &s).map(drop),
        on.increment_as(x, WORDS, Shape { grid: [0; 3], ..Shape::of(WORDS) }, &s),
        on.driver.module_load(c"hello").map(drop).map_err(|refused| refused.error),
    ];
    for error in errors {
        assert!(!error.unwrap_err().is_sticky());
        on.finish(&on.record(&s));
    }
    assert_eq!(on.read(x, N, &s), [1; N]);
}
