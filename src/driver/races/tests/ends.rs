//! Frees and destructions, refused ones among them, and what is used after them.

use super::*;

#[test]
fn a_free_on_one_stream_races_with_reads_on_another() {
    let mut t = Told::new();
    t.work(2, "read", &reads()).free(1);
    assert_eq!(t.races(), [("read", "free")]);
    let mut t = Told::new();
    t.work(2, "read", &reads()).record(7, 2).wait(1, 7).free(1);
    assert_eq!(t.races(), NONE);
}

#[test]
fn what_comes_after_a_free_uses_freed_memory_whatever_the_stream() {
    for stream in [1, 2] {
        let mut t = Told::new();
        t.free(1).work(stream, "late", &reads());
        assert_eq!(t.races(), [("free", "late")]);
        assert!(t.0.races()[0].freed);
    }
}

#[test]
fn a_freed_address_allocated_again_is_other_memory() {
    let mut t = Told::new();
    t.work(1, "old", &writes()).free(1).alloc(2, BLOCK).work(2, "new", &writes());
    assert_eq!(t.races(), NONE, "the driver answers for the address");
    t.work(1, "old again", &reads());
    assert_eq!(t.races(), [("new", "old again")]);
}

impl Told {
    /// A free that the driver refuses, and what other threads do meanwhile.
    fn refused_free(&mut self, stream: u64, meanwhile: impl FnOnce(&mut Self)) -> &mut Self {
        let take_back = self.0.step(0, &Step::Freed { ptr: DevicePtr(BLOCK), stream });
        meanwhile(self);
        self.0.take_back(take_back);
        self
    }
}

#[test]
fn a_free_that_was_refused_freed_nothing() {
    let mut t = Told::new();
    t.refused_free(1, |_| {}).work(1, "use", &writes()).free(1);
    assert_eq!(t.races(), NONE);
}

#[test]
fn a_free_that_was_refused_wrote_nothing_that_other_streams_race_with() {
    let mut t = Told::new();
    t.refused_free(1, |_| {}).work(2, "use", &writes());
    assert_eq!(t.races(), NONE);
}

#[test]
fn a_free_that_was_refused_has_no_race_and_forgets_none() {
    let mut t = Told::new();
    t.work(2, "write", &writes()).refused_free(1, |t| _ = t.work(3, "use", &reads()));
    assert_eq!(t.races(), NONE);
    t.work(1, "read", &reads());
    assert_eq!(t.races(), [("write", "read")]);
}

#[test]
fn a_free_that_was_refused_is_no_operation_of_its_stream() {
    let mut t = Told::new();
    t.refused_free(1, |_| {}).work(1, "write", &writes()).work(2, "read", &reads());
    assert_eq!(t.0.races()[0].first.number, 2, "after the allocation");
}

#[test]
fn a_recording_made_during_a_refused_free_does_not_cover_what_comes_next() {
    let mut t = Told::new();
    t.refused_free(1, |t| _ = t.record(7, 1)).work(1, "write", &writes());
    t.wait(2, 7).work(2, "read", &reads());
    assert_eq!(t.races(), [("write", "read")]);
}

#[test]
fn freeing_pinned_memory_that_was_refused_has_no_race() {
    let mut t = Told::new();
    t.work(1, "download", &pinned(true));
    let take_back = t.0.step(0, &Step::HostFreed { ptr: PINNED });
    assert_eq!(t.races(), [("download", "freeing pinned memory")]);
    t.0.take_back(take_back);
    assert_eq!(t.races(), NONE);
}

#[test]
fn freed_memory_stays_freed_whatever_the_host_has_seen_and_however_long_ago() {
    let mut t = Told::new();
    t.free(1).sync(1, 7);
    for _ in 0..10 * HISTORY_ALWAYS_KEPT {
        t.work(1, "other", &[]);
    }
    t.work(2, "late", &reads());
    assert_eq!(t.races(), [("free", "late")]);
    assert_eq!(t.0.races()[0].memory.bytes, 256);
}

#[test]
fn what_is_left_of_a_freed_block_is_freed_when_a_part_is_allocated_again() {
    let mut t = Told::new();
    let part = |ptr, bytes| Step::Allocated { ptr: DevicePtr(ptr), bytes, stream: 1 };
    t.free(1).step(part(BLOCK + 64, 64)).sync(1, 7);
    t.work(1, "new", &[at(64..128, true)]);
    assert_eq!(t.races(), NONE);
    t.work(1, "below", &[at(60..61, false)]).work(1, "above", &[at(128..129, false)]);
    t.work(1, "over all", &[at(0..256, false)]);
    assert_eq!(t.races(), [("free", "below"), ("free", "above"), ("free", "over all")]);
    let ranges: Vec<_> = t.0.races().iter().map(|race| race.range.clone()).collect();
    assert_eq!(ranges, [60..61, 128..129, 0..64]);
}

#[test]
fn an_access_that_begins_before_freed_memory_uses_it() {
    let mut t = Told::new();
    t.free(1).work(1, "late", &[Touched::new(BLOCK - 8, 16, false)]);
    assert_eq!(t.races(), [("free", "late")]);
    assert_eq!(t.0.races()[0].range, 0..8);
}

#[test]
fn the_latest_frees_are_remembered_and_not_all_of_them() {
    let mut t = Told::new();
    let block = |i: u64| 0x100_0000 + i * 512;
    for i in 0..200_000 {
        t.alloc(1, block(i)).step(Step::Freed { ptr: DevicePtr(block(i)), stream: 1 });
    }
    assert!(t.0.freed.len() < 70_000, "{}", t.0.freed.len());
    t.work(1, "late", &[Touched::new(block(180_000), 1, false)]);
    assert_eq!(t.races(), [("free", "late")]);
}

#[test]
fn a_stream_that_has_a_destroyed_ones_index_did_not_make_its_free() {
    let mut t = Told::new();
    t.step(Step::StreamCreated { stream: 2 }).free(2).sync(2, 7);
    t.step(Step::StreamDestroyed { stream: 2 }).step(Step::StreamCreated { stream: 3 });
    t.work(3, "late", &reads());
    assert_eq!((t.0.races()[0].first.stream, t.0.races()[0].first.number), (Some(2), 1));
}

#[test]
fn a_destroyed_streams_work_still_counts_and_its_handle_can_come_back() {
    let mut t = Told::new();
    t.work(2, "write", &writes()).step(Step::StreamDestroyed { stream: 2 });
    t.step(Step::StreamCreated { stream: 2 }).work(2, "read", &reads());
    assert_eq!(t.races(), [("write", "read")], "it is another stream");
}

#[test]
fn a_stream_whose_destruction_was_refused_is_no_other_streams_order() {
    let mut t = Told::new();
    t.step(Step::StreamCreated { stream: 2 });
    let take_back = t.0.step(0, &Step::StreamDestroyed { stream: 2 });
    t.step(Step::StreamCreated { stream: 3 });
    t.0.take_back(take_back);
    t.work(2, "write", &writes()).work(3, "read", &reads());
    assert_eq!(t.races(), [("write", "read")], "it took the index meanwhile");
}

#[test]
fn a_stream_whose_destruction_was_refused_still_waits_for_what_it_waited_for() {
    let mut t = Told::new();
    t.work(1, "write", &writes()).record(7, 1).wait(2, 7);
    let take_back = t.0.step(0, &Step::StreamDestroyed { stream: 2 });
    t.step(Step::StreamCreated { stream: 3 });
    t.0.take_back(take_back);
    t.work(2, "read", &reads());
    assert_eq!(t.races(), NONE);
}
