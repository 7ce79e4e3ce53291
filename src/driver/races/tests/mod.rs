//! The checker by itself, told of steps one by one.

mod ends;
mod reports;
mod rows;

use std::panic::Location;

use super::*;
use crate::driver::DevicePtr;
use crate::driver::DriverCall;

const BLOCK: u64 = 0x1000;
const PINNED: u64 = 0x9_0000;
const BYTES: usize = 256;

/// What was told so far. Streams and events are small numbers; there is one device block and one
/// pinned block, allocated by stream 1 and known to be so.
struct Told(Checker);

/// Bytes of the device block.
fn at(range: Range<u64>, writes: bool) -> Touched {
    Touched::new(BLOCK + range.start, (range.end - range.start) as usize, writes)
}

fn reads() -> [Touched; 1] {
    [at(0..256, false)]
}

fn writes() -> [Touched; 1] {
    [at(0..256, true)]
}

fn pinned(writes: bool) -> [Touched; 1] {
    [Touched::new(PINNED, BYTES, writes)]
}

impl Told {
    fn new() -> Self {
        Told::by(Checker::default())
    }

    /// By a checker that lets go of what it can at every step.
    fn forgetful() -> Self {
        Told::by(Checker::that_keeps(0))
    }

    fn by(checker: Checker) -> Self {
        let mut told = Told(checker);
        told.step(Step::HostAllocated { ptr: PINNED, bytes: BYTES, write_combined: false });
        told.alloc(1, BLOCK);
        told.sync(1, 99);
        told
    }

    fn step(&mut self, step: Step) -> &mut Self {
        self.0.step(0, &step);
        self
    }

    fn alloc(&mut self, stream: u64, ptr: u64) -> &mut Self {
        self.step(Step::Allocated { ptr: DevicePtr(ptr), bytes: BYTES, stream })
    }

    fn free(&mut self, stream: u64) -> &mut Self {
        self.step(Step::Freed { ptr: DevicePtr(BLOCK), stream })
    }

    fn work(&mut self, stream: u64, name: &'static str, touched: &[Touched]) -> &mut Self {
        let (call, touched) = (DriverCall::Launch, touched.iter().copied().collect());
        self.step(Step::Work { call, name, stream, function: 0, touched })
    }

    fn record(&mut self, event: u64, stream: u64) -> &mut Self {
        self.step(Step::Recorded { event, stream })
    }

    fn wait(&mut self, stream: u64, event: u64) -> &mut Self {
        self.step(Step::Waited { stream, event, lost: false, nth: 0 })
    }

    fn query(&mut self, event: u64, finished: bool) -> &mut Self {
        self.step(Step::Queried { event, finished })
    }

    /// The host sees all that is on the stream finish.
    fn sync(&mut self, stream: u64, event: u64) -> &mut Self {
        self.record(event, stream).query(event, true)
    }

    fn host(&mut self, writes: bool) -> &mut Self {
        self.step(Touched::new(PINNED, BYTES, writes).by_host())
    }

    /// Names of the operations that race, two by two, in the order found.
    fn races(&self) -> Vec<(&'static str, &'static str)> {
        self.0.races().iter().map(|race| (race.first.operation, race.second.operation)).collect()
    }
}

const NONE: [(&str, &str); 0] = [];

#[test]
fn a_stream_orders_what_is_on_it() {
    let mut t = Told::new();
    t.work(1, "a", &writes()).work(1, "b", &reads()).work(1, "c", &writes()).free(1);
    assert_eq!(t.races(), NONE);
}

#[test]
fn two_streams_are_ordered_by_an_event_recorded_and_waited_for_and_by_nothing_else() {
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1).wait(2, 7).work(2, "read", &reads());
    assert_eq!(t.races(), NONE);
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1).work(2, "read", &reads());
    assert_eq!(t.races(), [("write", "read")]);
}

#[test]
fn a_lost_wait_orders_nothing() {
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1);
    t.step(Step::Waited { stream: 2, event: 7, lost: true, nth: 3 }).work(2, "read", &reads());
    assert_eq!(t.races(), [("write", "read")]);
}

#[test]
fn readers_do_not_race_and_a_writer_is_checked_against_each_of_them() {
    let mut t = Told::new();
    for (stream, name) in [(1, "r1"), (2, "r2"), (3, "r3"), (4, "r4")] {
        t.work(stream, name, &reads());
    }
    assert_eq!(t.races(), NONE);
    t.record(7, 1).record(8, 3).wait(4, 7).wait(4, 8);
    t.work(4, "w", &writes());
    assert_eq!(t.races(), [("r2", "w")]);
}

#[test]
fn a_read_is_checked_against_the_last_write() {
    let mut t = Told::new();
    t.work(1, "w1", &writes()).record(7, 1).wait(2, 7).work(2, "w2", &writes());
    t.wait(3, 7).work(3, "read", &reads());
    assert_eq!(t.races(), [("w2", "read")], "it waits for the first one only");
}

#[test]
fn a_wait_for_an_event_recorded_before_the_write_does_not_order_it() {
    let mut t = Told::new();
    t.record(7, 1).work(1, "write", &writes()).wait(2, 7).work(2, "read", &reads());
    assert_eq!(t.races(), [("write", "read")]);
}

#[test]
fn a_wait_keeps_the_recording_it_took_when_the_event_is_recorded_anew() {
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1).wait(2, 7);
    t.record(7, 3); // of a stream with nothing on it
    t.work(2, "read", &reads());
    assert_eq!(t.races(), NONE);
    t.wait(4, 7).work(4, "late", &reads());
    assert_eq!(t.races(), [("write", "late")], "the event now says nothing of the write");
}

#[test]
fn a_wait_for_an_event_never_recorded_orders_nothing() {
    let mut t = Told::new();
    t.step(Step::EventCreated { event: 7 });
    t.work(1, "write", &writes()).wait(2, 7).work(2, "read", &reads());
    assert_eq!(t.races(), [("write", "read")]);
}

#[test]
fn an_event_with_the_handle_of_a_destroyed_one_is_another_one() {
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1);
    t.step(Step::EventDestroyed { event: 7 }).step(Step::EventCreated { event: 7 });
    t.wait(2, 7).work(2, "read", &reads());
    assert_eq!(t.races(), [("write", "read")]);
}

#[test]
fn forks_branches_and_chains_join() {
    // 1 forks to 2 and 3, which join in 4; then a chain 4, 5, 6.
    let fork = |join: bool| {
        let mut t = Told::new();
        t.work(1, "source", &writes()).record(10, 1).wait(2, 10).wait(3, 10);
        t.work(2, "left", &[at(0..128, true)]).work(3, "right", &[at(128..256, true)]);
        t.record(12, 2).record(13, 3).wait(4, 12);
        if join {
            t.wait(4, 13);
        }
        t.record(14, 4).wait(5, 14).record(15, 5).wait(6, 15).work(6, "sink", &reads());
        t.races()
    };
    assert_eq!(fork(true), NONE);
    assert_eq!(fork(false), [("right", "sink")]);
}

#[test]
fn what_the_host_saw_finish_is_ordered_before_all_that_is_enqueued_later() {
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1).query(7, false);
    t.work(2, "early", &reads());
    assert_eq!(t.races(), [("write", "early")], "a query that says no is no order");
    t.query(7, true).work(3, "late", &reads());
    assert_eq!(t.races().len(), 1);
}

#[test]
fn a_query_tells_of_what_the_recordings_stream_had_waited_for() {
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1).wait(2, 7).record(8, 2).query(8, true);
    t.work(3, "read", &reads());
    assert_eq!(t.races(), NONE);
}

#[test]
fn synchronising_with_a_stream_is_not_synchronising_with_the_device() {
    let mut t = Told::new();
    t.work(1, "one", &[at(0..128, true)]).work(2, "two", &[at(128..256, true)]);
    t.sync(1, 7).work(3, "read", &reads());
    assert_eq!(t.races(), [("two", "read")]);
    let mut t = Told::new();
    t.work(1, "one", &[at(0..128, true)]).work(2, "two", &[at(128..256, true)]);
    t.sync(1, 7).sync(2, 8).work(3, "read", &reads());
    assert_eq!(t.races(), NONE);
}

#[test]
fn disjoint_ranges_do_not_race_and_overlapping_ones_do_where_they_overlap() {
    let mut t = Told::new();
    t.work(1, "a", &[at(0..100, true)]).work(2, "b", &[at(100..200, true)]);
    assert_eq!(t.races(), NONE);
    t.work(3, "c", &[at(90..110, false)]);
    assert_eq!(t.races(), [("a", "c"), ("b", "c")]);
    assert_eq!(t.0.races()[0].range, 90..100);
    assert_eq!(t.0.races()[1].range, 100..110);
}

#[test]
fn a_copy_within_one_buffer_reads_and_writes_it() {
    let mut t = Told::new();
    let copy = [at(0..64, false), at(128..192, true)];
    t.work(1, "copy", &copy).work(2, "reads source", &[at(0..64, false)]);
    assert_eq!(t.races(), NONE);
    t.work(3, "reads target", &[at(128..192, false)]);
    t.work(4, "writes source", &[at(0..64, true)]);
    let expected =
        [("copy", "reads target"), ("copy", "writes source"), ("reads source", "writes source")];
    assert_eq!(t.races(), expected);
}

#[test]
fn memory_is_used_by_another_stream_only_after_its_allocation() {
    let mut t = Told::new();
    t.alloc(1, 0x2000).work(2, "use", &[Touched::new(0x2000, 8, true)]);
    assert_eq!(t.races(), [("allocation", "use")]);
}

#[test]
fn the_host_reads_pinned_memory_after_the_query_that_saw_its_writer_finish() {
    let mut t = Told::new();
    t.work(1, "download", &pinned(true)).record(7, 1).host(false);
    assert_eq!(t.races(), [("download", "read by the host")]);
    t.query(7, true).host(false);
    assert_eq!(t.races().len(), 1);
}

#[test]
fn the_host_may_read_beside_a_reader_and_not_write() {
    let mut t = Told::new();
    t.work(1, "upload", &pinned(false)).host(false);
    assert_eq!(t.races(), NONE);
    t.host(true);
    assert_eq!(t.races(), [("upload", "write by the host")]);
}

#[test]
fn pinned_memory_is_anothers_only_once_nothing_uses_it() {
    let here = Location::caller();
    let mut t = Told::new();
    t.work(1, "upload", &pinned(false));
    t.step(Step::Owned { ptr: PINNED, bytes: BYTES, made_at: here });
    assert_eq!(t.races(), [("upload", "reuse of pinned memory")]);
    assert_eq!(t.0.races()[0].memory.made_at, None, "it was found under the last owner");
    t.sync(1, 7).step(Step::Owned { ptr: PINNED, bytes: BYTES, made_at: here });
    t.work(2, "upload", &pinned(false)).step(Step::HostFreed { ptr: PINNED });
    assert_eq!(t.races()[1..], [("upload", "freeing pinned memory")]);
    assert_eq!(t.0.races()[1].memory.made_at, Some(here));
}

#[test]
fn a_peer_copy_is_ordered_on_both_sides() {
    const THERE: u64 = 0x7000_0000;
    let peer_copy = [at(0..256, false), Touched::new(THERE, BYTES, true)];
    let there = |writes| [Touched::new(THERE, BYTES, writes)];
    let run = |wait: bool| {
        let mut t = Told::new();
        // Stream 8 is the other device's.
        t.0.step(1, &Step::Allocated { ptr: DevicePtr(THERE), bytes: BYTES, stream: 8 });
        t.record(20, 8).wait(1, 20).work(1, "peer copy", &peer_copy).record(7, 1);
        if wait {
            t.wait(8, 7);
        }
        t.work(8, "use", &there(true));
        t.work(2, "overwrite the source", &writes());
        t.races()
    };
    assert_eq!(run(true), [("peer copy", "overwrite the source")]);
    assert_eq!(run(false), [("peer copy", "use"), ("peer copy", "overwrite the source")]);
}

#[test]
fn memory_goes_by_what_is_in_flight() {
    let mut t = Told::new();
    for round in 0..200_000u64 {
        let stream = 1 + round % 8;
        let first = round % 31 * 8;
        t.work(stream, "work", &[at(first..first + 8, round % 3 == 0)]);
        t.sync(stream, 50 + round % 100);
    }
    assert_eq!(t.races(), NONE);
    assert!(t.0.history() < HISTORY_ALWAYS_KEPT, "{}", t.0.history());
    assert!(t.0.streams.all().iter().all(|stream| stream.clock == Clock::default()));
}

#[test]
fn streams_that_come_and_go_leave_nothing() {
    let mut t = Told::new();
    for stream in 100..10_000 {
        t.step(Step::StreamCreated { stream }).work(stream, "write", &writes()).sync(stream, 7);
        t.step(Step::StreamDestroyed { stream });
    }
    assert_eq!(t.races(), NONE);
    assert!(t.0.streams.all().len() < 10, "{}", t.0.streams.all().len());
}

#[test]
fn streams_that_come_and_go_without_work_leave_nothing_either() {
    let mut t = Told::new();
    for stream in 100..10_000 {
        t.step(Step::StreamCreated { stream }).record(7, stream);
        t.step(Step::StreamDestroyed { stream });
    }
    assert!(t.0.streams.all().len() < 10, "{}", t.0.streams.all().len());
}

#[test]
fn what_waits_and_recordings_know_is_let_go_of_without_any_work() {
    let mut t = Told::new();
    for stream in 1..100 {
        t.work(stream, "work", &[at(stream..stream + 1, true)]).record(stream, stream);
        t.wait(200, stream);
    }
    for event in 1_000..1_050 {
        t.record(event, 200);
    }
    let much = t.0.history();
    assert!(much > 50 * 99, "{much}");
    t.sync(200, 300);
    for _ in 0..2 * much {
        t.step(Step::Other { call: DriverCall::MemoryFree });
    }
    assert!(t.0.history() < 500, "{}", t.0.history());
}
