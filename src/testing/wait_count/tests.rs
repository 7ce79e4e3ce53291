use std::thread;

use smallvec::smallvec;

use super::{meet, wait_count};
use crate::driver::{DevicePtr, DriverCall, DriverError, LoggedStep, Step, Touched};

const X: u64 = 1000;
const REFUSED: DriverError = DriverError::new("cuLaunchKernel", 2);

fn logged(step: Step) -> LoggedStep {
    LoggedStep { device: 0, thread: thread::current().id(), step, refused: None }
}

fn work(stream: u64, touched: Touched) -> LoggedStep {
    let (call, touched) = (DriverCall::Launch, smallvec![touched]);
    logged(Step::Work { call, name: "work", stream, function: 1, touched })
}

fn write(stream: u64) -> LoggedStep {
    work(stream, Touched::new(X, 100, true))
}

fn read(stream: u64) -> LoggedStep {
    work(stream, Touched::new(X, 100, false))
}

fn record(event: u64, stream: u64) -> LoggedStep {
    logged(Step::Recorded { event, stream })
}

fn wait(stream: u64, event: u64) -> LoggedStep {
    logged(Step::Waited { stream, event, lost: false, nth: 0 })
}

fn saw(event: u64) -> LoggedStep {
    logged(Step::Queried { event, finished: true })
}

/// Issued and needed.
fn counted(log: &[LoggedStep]) -> (u64, u64) {
    let count = wait_count(log);
    (count.issued, count.needed)
}

#[test]
fn a_wait_is_needed_where_a_stream_touches_what_another_wrote() {
    assert_eq!(counted(&[write(1), read(1), write(1)]), (0, 0));
    assert_eq!(counted(&[write(1), record(7, 1), wait(2, 7), read(2)]), (1, 1));
    assert_eq!(counted(&[read(1), read(2), read(3)]), (0, 0), "readers need no order");
    assert_eq!(counted(&[write(1), record(7, 1), read(2)]), (0, 1), "it is missing");
    assert_eq!(counted(&[write(1), read(2)]), (0, 1), "there is not even a recording");
}

#[test]
fn a_second_wait_for_the_same_is_not_needed_nor_one_for_what_the_host_saw() {
    let twice = [write(1), record(7, 1), wait(2, 7), wait(2, 7), read(2)];
    assert_eq!(counted(&twice), (2, 1));
    let later = [write(1), record(7, 1), wait(2, 7), read(2), wait(2, 7), read(2)];
    assert_eq!(counted(&later), (2, 1));
    assert_eq!(counted(&[write(1), record(7, 1), saw(7), wait(2, 7), read(2)]), (1, 0));
    let seen_meanwhile = [write(1), record(7, 1), wait(2, 7), saw(7), read(2)];
    assert_eq!(counted(&seen_meanwhile), (1, 1), "it was not known when it was made");
    let without_conflict = [write(1), record(7, 1), wait(2, 7)];
    assert_eq!(counted(&without_conflict), (1, 0));
}

#[test]
fn a_wait_does_for_all_that_comes_before_its_recording() {
    // Stream 2 reads after 1 wrote; 3 overwrites, so after both, and waits for 2 alone.
    let chain = [write(1), record(7, 1), wait(2, 7), read(2), record(8, 2), wait(3, 8), write(3)];
    assert_eq!(counted(&chain), (2, 2));
    let both = [
        write(1),
        record(7, 1),
        wait(2, 7),
        read(2),
        record(8, 2),
        wait(3, 7),
        wait(3, 8),
        write(3),
    ];
    assert_eq!(counted(&both), (3, 2));
    // Two readers that know nothing of each other.
    let readers = [read(1), record(7, 1), read(2), record(8, 2), wait(3, 7), wait(3, 8), write(3)];
    assert_eq!(counted(&readers), (2, 2));
}

#[test]
fn a_later_recording_that_covers_more_is_not_asked_of_a_wait() {
    // Stream 2 has read before it waited for 1: its first recording does not cover the write.
    let own = |stream| work(stream, Touched::new(5000, 8, true));
    let log = [
        write(1),
        record(7, 1),
        work(2, Touched::new(2000, 8, false)),
        record(8, 2),
        wait(2, 7),
        read(2),
        own(2),
        record(9, 2),
    ];
    let both = smallvec![Touched::new(X, 100, false), Touched::new(2000, 8, true)];
    let (call, stream) = (DriverCall::Launch, 3);
    let last = logged(Step::Work { call, name: "both", stream, function: 1, touched: both });
    let mut log = log.to_vec();
    log.extend([wait(3, 7), wait(3, 8), last]);
    assert_eq!(counted(&log), (3, 3), "recording 9 would do for both, behind two operations more");
}

#[test]
fn an_event_stands_for_its_last_recording_and_a_handle_for_its_last_owner() {
    // What was recorded first is not there to be waited for any more.
    let again = [read(1), record(7, 1), read(1), record(7, 1), wait(2, 7), write(2)];
    assert_eq!(counted(&again), (1, 1));
    let destroyed = logged(Step::StreamDestroyed { stream: 1 });
    let stream = [write(1), record(7, 1), destroyed, wait(1, 7), read(1)];
    assert_eq!(counted(&stream), (1, 1), "another stream of that handle");
    let destroyed = logged(Step::EventDestroyed { event: 7 });
    let event = [write(1), record(7, 1), destroyed, wait(2, 7), read(2), read(2)];
    assert_eq!(counted(&event), (1, 1), "another event of that handle orders nothing");
}

#[test]
fn allocations_and_frees_are_operations_and_an_address_given_out_anew_is_other_memory() {
    let ptr = DevicePtr(X);
    let alloc = |stream| logged(Step::Allocated { ptr, bytes: 100, stream });
    let free = |stream| logged(Step::Freed { ptr, stream });
    let used = [alloc(1), record(7, 1), wait(2, 7), read(2), record(8, 2), wait(1, 8), free(1)];
    assert_eq!(counted(&used), (2, 2));
    let reused = [alloc(1), write(1), free(1), alloc(2), write(2)];
    assert_eq!(counted(&reused), (0, 0));
}

#[test]
fn a_refused_operation_had_its_waits_and_touched_nothing() {
    let mut refused = read(2);
    refused.refused = Some(REFUSED);
    let log = [write(1), record(7, 1), wait(2, 7), refused.clone(), read(2)];
    assert_eq!(counted(&log), (1, 1));
    assert_eq!(counted(&[refused, write(1)]), (0, 0));
    let mut wait = wait(2, 7);
    wait.refused = Some(REFUSED);
    assert_eq!(counted(&[write(1), record(7, 1), wait, read(2)]), (0, 1));
}

#[test]
fn a_wait_that_is_lost_is_counted_as_if_it_had_been_made() {
    let lost = logged(Step::Waited { stream: 2, event: 7, lost: true, nth: 0 });
    assert_eq!(counted(&[write(1), record(7, 1), lost, read(2), read(2)]), (1, 1));
}

#[test]
fn a_wait_that_is_missing_is_needed_once_and_with_it_what_it_would_have_brought() {
    assert_eq!(counted(&[write(1), record(7, 1), read(2), read(2), write(2)]), (0, 1));
    assert_eq!(counted(&[write(1), read(2), read(2)]), (0, 1), "without a recording, too");
    // Stream 3 needs 2 and, by that, has 1.
    let to_two = [write(1), record(7, 1), wait(2, 7), write(2), record(8, 2)];
    let elsewhere = |stream| work(stream, Touched::new(X, 8, false));
    let mut log = to_two.to_vec();
    log.extend([elsewhere(3), read(3), write(3), record(9, 3)]);
    assert_eq!(counted(&log), (1, 2));
    let mut refused = read(3);
    refused.refused = Some(REFUSED);
    log = to_two.to_vec();
    log.extend([refused, read(3)]);
    assert_eq!(counted(&log), (1, 2));
}

#[test]
fn columns_are_not_in_each_others_way_and_a_row_is_in_that_of_all() {
    let column = |stream, j: u64| work(stream, Touched::in_rows(X + 4 * j, (4, 10, 64), true));
    let columns = [column(1, 0), record(7, 1), column(2, 1), record(8, 2), column(3, 2)];
    assert_eq!(counted(&columns), (0, 0));
    let mut log = columns.to_vec();
    log.extend([record(9, 3), work(4, Touched::new(X + 128, 8, false))]);
    assert_eq!(counted(&log), (0, 2), "two of the columns");
}

#[test]
fn rows_meet_where_they_have_a_byte_in_common() {
    let shapes = [(4, 1, 4), (9, 1, 9), (1, 3, 2), (2, 3, 5), (1, 4, 5), (3, 3, 5), (2, 2, 7)];
    let bytes = |touched: &Touched, (row, rows, pitch): (usize, usize, usize)| {
        let starts = (0..rows as u64).map(|row| touched.start + row * pitch as u64);
        starts.flat_map(|start| start..start + row as u64).collect::<Vec<_>>()
    };
    let mut met = 0;
    for (one, other) in shapes.iter().flat_map(|one| shapes.map(|other| (*one, other))) {
        let first = Touched::in_rows(X, one, true);
        let own = bytes(&first, one);
        for start in X - 20..X + 20 {
            let second = Touched::in_rows(start, other, true);
            let expected = bytes(&second, other).iter().any(|byte| own.contains(byte));
            assert_eq!(meet(&first, &second), expected, "{first:?} and {second:?}");
            met += u32::from(expected);
        }
    }
    assert!(met > 300, "{met}");
}
