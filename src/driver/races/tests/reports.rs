//! What is told of a race.

use std::sync::Arc;

use super::*;

#[test]
fn operations_are_counted_from_1_for_each_stream_that_has_the_handle() {
    let mut t = Told::new();
    t.work(2, "old", &reads()).work(2, "old", &reads()).sync(2, 7);
    t.step(Step::StreamDestroyed { stream: 2 }).step(Step::StreamCreated { stream: 2 });
    t.work(2, "write", &writes()).work(3, "read", &reads());
    assert_eq!(t.0.races()[0].first.number, 1);
}

fn report(t: &mut Told) -> String {
    let made_at = Location::caller();
    t.step(Step::Owned { ptr: BLOCK, bytes: 0, made_at });
    t.work(1, "produce", &writes()).record(7, 1);
    t.step(Step::Waited { stream: 2, event: 7, lost: true, nth: 3 });
    t.work(2, "consume", &[at(0..64, false)]);
    t.0.races()[0].to_string()
}

#[test]
fn a_report_says_who_where_and_what_is_missing() {
    let report = report(&mut Told::new());
    for part in [
        "race on bytes 0..64 of 256 bytes of device memory at 0x1000",
        "reports.rs",
        "`produce` writes bytes 0..256: operation 2 of stream 1 on device 0",
        "`consume` reads bytes 0..64: operation 1 of stream 2 on device 0",
        "stream 2 does not wait for `produce` before `consume`",
        "by hand: record an event on stream 1",
        "wait 3 of device 0 was lost on purpose (lose_wait)",
    ] {
        assert!(report.contains(part), "{part:?} in\n{report}");
    }
}

#[test]
fn a_wait_that_was_lost_is_named_where_it_would_have_ordered_the_two_and_nowhere_else() {
    let lost = Step::Waited { stream: 2, event: 7, lost: true, nth: 0 };
    let mut t = Told::new();
    t.record(7, 1).step(lost.clone()).work(1, "w", &writes()).work(2, "r", &reads());
    assert_eq!(t.0.races()[0].lost_wait, None, "the event is from before the write");
    let mut t = Told::new();
    t.work(1, "w", &writes()).record(7, 1).step(lost).work(3, "r", &reads());
    assert_eq!(t.0.races()[0].lost_wait, None, "another stream");
}

#[test]
fn a_report_has_the_librarys_number_of_a_stream_and_the_name_it_had() {
    let named = |stream, number, name: &str| {
        let name = Some(name).filter(|name| !name.is_empty()).map(Arc::from);
        Step::Named { stream, number, name }
    };
    let mut t = Told::new();
    t.step(named(1, 40, "copying")).step(named(2, 41, ""));
    let text = report(&mut t);
    assert!(text.contains("operation 2 of stream 40 (\"copying\") on device 0"), "{text}");
    assert!(text.contains("operation 1 of stream 41 on device 0"), "{text}");
    assert!(text.contains("stream 41 does not wait"), "{text}");
    let mut t = Told::new();
    t.work(1, "w", &writes()).step(named(1, 40, "another's")).work(2, "r", &reads());
    assert_eq!(t.0.races()[0].first.stream_name, None, "it had none yet");
}
