use super::*;
use crate::buffer::OpenState;

fn t(lane: u64, seq: u64) -> Ticket {
    Ticket { lane: LaneId(lane), seq }
}

fn read(range: Range<usize>) -> Access {
    Access { region: Region::of_bytes(range), mode: Mode::Read }
}

fn overwrite(range: Range<usize>) -> Access {
    Access { region: Region::of_bytes(range), mode: Mode::Overwrite }
}

/// Notes, where nothing else is known to be finished.
fn note(hazards: &mut Hazards, access: &Access, ticket: Ticket) -> Notes {
    noted(hazards, access, ticket, |_| false)
}

fn noted(
    hazards: &mut Hazards,
    access: &Access,
    ticket: Ticket,
    is_finished: impl Fn(Ticket) -> bool,
) -> Notes {
    let mut notes = Notes::default();
    hazards.note(access, ticket, is_finished, &mut notes);
    notes
}

fn conflicts(hazards: &Hazards, access: &Access) -> Vec<Ticket> {
    let mut out = Vec::new();
    hazards.conflicts(access, |t| out.push(t));
    out.sort();
    out.dedup();
    out
}

#[test]
fn the_allocation_is_the_first_write_and_defines_nothing() {
    let hazards = Hazards::new(100, Some(t(0, 1)));
    assert_eq!(conflicts(&hazards, &overwrite(0..100)), [t(0, 1)]);
    assert_eq!(hazards.undefined_in(&Region::of_bytes(10..20)), Some(10..20));
    assert_eq!(hazards.undefined_around(&Region::of_bytes(10..20))[..], [Region::of_bytes(10..20)]);
}

#[test]
fn readers_come_after_the_writer_only_and_a_writer_after_them_all() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(0, 1));
    note(&mut hazards, &read(0..8), t(1, 1));
    assert_eq!(conflicts(&hazards, &read(0..8)), [t(0, 1)]);
    note(&mut hazards, &read(0..8), t(2, 1));
    note(&mut hazards, &read(0..8), t(1, 5));
    assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(0, 1), t(1, 5), t(2, 1)]);
    note(&mut hazards, &overwrite(0..8), t(3, 1));
    assert_eq!(conflicts(&hazards, &read(0..8)), [t(3, 1)]);
}

/// Holds what `is_private_to` says against the tickets that are there.
fn private_to(hazards: &Hazards, lane: u64) -> bool {
    let mut others = false;
    hazards.users(|user| others |= user.lane != LaneId(lane));
    let private = hazards.is_private_to(LaneId(lane));
    assert!(!(private && others), "{hazards:?}");
    private
}

#[test]
fn memory_is_private_to_a_lane_while_no_other_has_touched_it_since_a_write_of_all_of_it() {
    let mut hazards = Hazards::new(8, Some(t(0, 1)));
    assert!(private_to(&hazards, 0) && !private_to(&hazards, 1));
    note(&mut hazards, &read(0..4), t(0, 2));
    assert!(private_to(&hazards, 0));
    note(&mut hazards, &overwrite(0..4), t(1, 1));
    assert!(!private_to(&hazards, 0) && !private_to(&hazards, 1));
    let replaced = note(&mut hazards, &overwrite(0..8), t(1, 2));
    assert!(private_to(&hazards, 1) && !private_to(&hazards, 0));
    hazards.undo(&mut { replaced });
    assert!(!private_to(&hazards, 1) && !private_to(&hazards, 0));
    hazards.written_by_host(&Region::of_bytes(0..8));
    assert!(private_to(&hazards, 0) && private_to(&hazards, 1));
    note(&mut hazards, &read(0..8), t(2, 1));
    assert!(private_to(&hazards, 2) && !private_to(&hazards, 0));
    note(&mut hazards, &read(0..8), t(3, 1));
    assert!(!private_to(&hazards, 2) && !private_to(&hazards, 3));
}

#[test]
fn disjoint_ranges_do_not_conflict() {
    let mut hazards = Hazards::new(100, None);
    note(&mut hazards, &overwrite(0..50), t(0, 1));
    assert_eq!(conflicts(&hazards, &overwrite(50..100)), []);
    assert_eq!(conflicts(&hazards, &read(49..51)), [t(0, 1)]);
    assert_eq!(hazards.undefined_in(&Region::of_bytes(0..100)), Some(50..100));
    assert_eq!(hazards.undefined_in(&Region::of_bytes(0..50)), None);
}

#[test]
fn a_refused_write_leaves_what_was_there() {
    let mut hazards = Hazards::new(8, Some(t(0, 1)));
    let replaced = note(&mut hazards, &overwrite(0..8), t(1, 1));
    hazards.undo(&mut { replaced });
    assert_eq!(hazards.undefined_in(&Region::of_bytes(0..8)), Some(0..8));
    assert_eq!(conflicts(&hazards, &read(0..8)), [t(0, 1)]);
}

#[test]
fn a_write_refused_half_way_leaves_its_range_undefined_and_to_be_waited_for() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(0, 1));
    let refused = note(&mut hazards, &overwrite(0..4), t(1, 1));
    hazards.undefine(&mut { refused });
    assert_eq!(hazards.undefined_in(&Region::of_bytes(0..8)), Some(0..4));
    assert_eq!(conflicts(&hazards, &overwrite(0..4)), [t(1, 1)]);
    note(&mut hazards, &overwrite(0..4), t(2, 1));
    assert_eq!(hazards.undefined_in(&Region::of_bytes(0..8)), None);
}

/// Everything a later access could ask.
fn shown(hazards: &Hazards) -> String {
    let mut histories = Vec::new();
    hazards.histories.each_piece(|bytes, history| histories.push((bytes.start(), history)));
    histories.sort_unstable_by_key(|(start, _)| *start);
    let Hazards { lanes, changes, shared, .. } = hazards;
    format!("{histories:?} {lanes:?} {changes} {shared}")
}

#[test]
fn a_refused_operation_leaves_the_record_as_it_was() {
    for first in [read(0..8), overwrite(0..8)] {
        for second in [read(0..8), overwrite(0..8)] {
            for lane in [1, 2] {
                let mut hazards = Hazards::new(8, Some(t(0, 1)));
                note(&mut hazards, &overwrite(0..8), t(1, 1));
                note(&mut hazards, &read(0..8), t(1, 2));
                let before = shown(&hazards);
                let first = note(&mut hazards, &first, t(lane, 3));
                let second = note(&mut hazards, &second, t(lane, 3));
                hazards.undo(&mut { second });
                hazards.undo(&mut { first });
                assert_eq!(shown(&hazards), before);
            }
        }
    }
}

#[test]
fn a_read_noted_since_a_refused_read_stays() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(0, 1));
    note(&mut hazards, &read(0..8), t(1, 1));
    let refused = note(&mut hazards, &read(0..8), t(1, 2));
    note(&mut hazards, &read(0..8), t(2, 1));
    hazards.undo(&mut { refused });
    assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(0, 1), t(1, 1), t(2, 1)]);
    assert!(!private_to(&hazards, 1) && hazards.is_shared());
}

#[test]
fn a_read_noted_behind_a_refused_write_stays() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(0, 1));
    note(&mut hazards, &read(0..8), t(2, 1));
    let replaced = note(&mut hazards, &overwrite(0..8), t(1, 1));
    note(&mut hazards, &read(0..8), t(3, 1));
    hazards.undo(&mut { replaced });
    assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(0, 1), t(2, 1), t(3, 1)]);
}

#[test]
fn memory_is_shared_once_a_second_lane_touches_it() {
    let mut hazards = Hazards::new(8, Some(t(0, 1)));
    note(&mut hazards, &overwrite(0..8), t(1, 1));
    note(&mut hazards, &read(0..8), t(1, 2));
    assert!(!hazards.is_shared(), "the allocation itself does not count");
    note(&mut hazards, &read(0..8), t(2, 1));
    assert!(hazards.is_shared());
}

#[test]
fn memory_handed_over_after_its_work_was_seen_to_end_is_not_shared() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(1, 1));
    noted(&mut hazards, &read(0..8), t(2, 1), |other| other == t(1, 1));
    noted(&mut hazards, &read(0..8), t(2, 2), |other| other == t(1, 1));
    assert!(!hazards.is_shared());
}

fn of_columns(columns: Range<usize>, rows: usize, pitch: usize, mode: Mode) -> Access {
    Access { region: Region::of_rows(columns.start, columns.len(), rows, pitch), mode }
}

#[test]
fn disjoint_columns_do_not_conflict_and_what_crosses_them_does() {
    let mut hazards = Hazards::new(100, None);
    note(&mut hazards, &of_columns(0..3, 10, 10, Mode::Overwrite), t(0, 1));
    let others = of_columns(3..10, 10, 10, Mode::Overwrite);
    assert_eq!(conflicts(&hazards, &others), []);
    note(&mut hazards, &others, t(1, 1));
    assert_eq!(conflicts(&hazards, &of_columns(2..4, 10, 10, Mode::Read)), [t(0, 1), t(1, 1)]);
    assert_eq!(conflicts(&hazards, &read(0..100)), [t(0, 1), t(1, 1)]);
    assert_eq!(conflicts(&hazards, &read(21..23)), [t(0, 1)]);
    assert_eq!(conflicts(&hazards, &read(23..30)), [t(1, 1)]);
    // A column of another matrix in the same bytes: 8, 28, 48, 68 and 88 are of the second access.
    assert_eq!(conflicts(&hazards, &of_columns(8..9, 5, 20, Mode::Read)), [t(1, 1)]);
    assert!(!hazards.is_shared());
}

#[test]
fn a_matrix_is_written_once_all_its_columns_are() {
    let mut hazards = Hazards::new(60, None);
    let whole = Region::of_bytes(0..60);
    for column in [0, 1, 2, 4, 5] {
        let columns = 2 * column..2 * column + 2;
        note(&mut hazards, &of_columns(columns, 5, 12, Mode::Overwrite), t(column as u64, 1));
    }
    assert_eq!(hazards.undefined_in(&whole), Some(6..8));
    assert_eq!(hazards.undefined_in(&Region::of_bytes(8..60)), Some(18..20));
    assert_eq!(hazards.undefined_in(&Region::of_rows(7, 4, 5, 12)), Some(7..8));
    assert_eq!(hazards.undefined_in(&Region::of_rows(8, 4, 5, 12)), None);
    note(&mut hazards, &of_columns(6..8, 5, 12, Mode::Overwrite), t(3, 1));
    assert_eq!(hazards.undefined_in(&whole), None);
}

#[test]
fn undefined_bytes_are_named_across_pieces_of_the_record() {
    let mut hazards = Hazards::new(60, Some(t(0, 1)));
    let refused = note(&mut hazards, &of_columns(10..12, 5, 12, Mode::Overwrite), t(1, 1));
    hazards.undefine(&mut { refused });
    note(&mut hazards, &overwrite(40..60), t(2, 1));
    assert_eq!(hazards.undefined_in(&Region::of_bytes(5..60)), Some(5..40));
    assert_eq!(hazards.undefined_in(&Region::of_rows(5, 6, 5, 12)), Some(5..11));
}

#[test]
fn slices_of_several_lanes_do_not_make_memory_shared() {
    let mut hazards = Hazards::new(80, Some(t(9, 1)));
    for lane in 0..8 {
        let start = 10 * lane as usize;
        note(&mut hazards, &overwrite(start..start + 10), t(lane, 1));
        note(&mut hazards, &read(start..start + 10), t(lane, 2));
    }
    assert!(!hazards.is_shared());
    note(&mut hazards, &read(9..11), t(0, 3));
    assert!(hazards.is_shared());
}

#[test]
fn readers_beside_readers_share() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &read(0..8), t(0, 1));
    note(&mut hazards, &read(7..8), t(1, 1));
    assert!(hazards.is_shared());
}

#[test]
fn what_the_host_wrote_is_defined_and_free_and_the_rest_is_as_it_was() {
    let mut hazards = Hazards::new(30, Some(t(0, 1)));
    note(&mut hazards, &overwrite(0..20), t(1, 1));
    note(&mut hazards, &read(0..20), t(2, 1));
    hazards.written_by_host(&Region::of_bytes(10..30));
    assert_eq!(conflicts(&hazards, &overwrite(10..30)), []);
    assert_eq!(conflicts(&hazards, &overwrite(0..30)), [t(1, 1), t(2, 1)]);
    assert_eq!(hazards.undefined_in(&Region::of_bytes(0..30)), None);
    assert!(!private_to(&hazards, 1) && hazards.is_shared());
}

#[test]
fn a_read_behind_a_refused_write_is_taken_back_without_its_lanes_earlier_read() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &read(0..8), t(2, 1));
    let write = note(&mut hazards, &overwrite(0..8), t(1, 1));
    let later = note(&mut hazards, &read(0..8), t(2, 2));
    hazards.undo(&mut { write });
    hazards.undo(&mut { later });
    assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(2, 1)]);
}

#[test]
fn a_refused_write_of_many_columns_leaves_them_apart() {
    let mut hazards = Hazards::new(1 << 20, None);
    let column = |i: usize| of_columns(4 * i..4 * i + 4, 1 << 12, 1 << 8, Mode::Overwrite);
    for i in 0..64 {
        note(&mut hazards, &column(i), t(i as u64, 1));
    }
    let refused = note(&mut hazards, &overwrite(0..1 << 20), t(99, 1));
    hazards.undo(&mut { refused });
    for i in 0..64 {
        assert_eq!(conflicts(&hazards, &column(i)), [t(i as u64, 1)]);
    }
    assert!(hazards.histories.pieces() <= 64, "{}", hazards.histories.pieces());
}

#[test]
fn what_is_finished_is_swept_and_what_is_not_stays() {
    let mut hazards = Hazards::new(100_000, Some(t(0, 1)));
    let mut most = 0;
    for seq in 1..10_000 {
        let start = 1_000 + (seq as usize * 7_919) % 98_000;
        let is_finished = |other: Ticket| other.seq + 20 < seq && other.seq != 5;
        noted(&mut hazards, &overwrite(start..start + 100), t(seq % 5, seq), is_finished);
        most = most.max(hazards.histories.pieces());
        if seq == 5_000 {
            // From here on only what was written tells bytes apart.
            hazards.written_by_host(&Region::of_bytes(0..100_000));
            noted(&mut hazards, &read(500..600), t(7, 5), is_finished);
            most = 0;
        }
    }
    assert!(most <= 200, "{most} pieces for 20 accesses in flight");
    assert!(conflicts(&hazards, &overwrite(0..100_000)).contains(&t(7, 5)));
}

#[test]
fn memory_is_private_again_once_the_work_of_other_lanes_is_swept() {
    let mut hazards = Hazards::new(1_000, Some(t(9, 1)));
    for i in 0..100 {
        noted(&mut hazards, &overwrite(10 * i..10 * i + 10), t(1 + i as u64 % 2, 1), |_| true);
    }
    hazards.sweep(|_| true);
    assert!(private_to(&hazards, 1) && private_to(&hazards, 9));
    assert_eq!(hazards.histories.pieces(), 1);
}

#[test]
fn a_read_taken_back_after_the_write_before_it_leaves_earlier_lanes_known() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(1, 1));
    let write = note(&mut hazards, &overwrite(0..8), t(0, 1));
    let read = note(&mut hazards, &read(0..8), t(0, 2));
    hazards.undo(&mut { write });
    hazards.undo(&mut { read });
    assert!(!private_to(&hazards, 0));
}

#[test]
fn bytes_written_again_before_a_half_refused_write_is_undefined_stay_defined() {
    let mut hazards = Hazards::new(8, None);
    let refused = note(&mut hazards, &overwrite(0..8), t(0, 1));
    note(&mut hazards, &overwrite(2..4), t(1, 1));
    hazards.undefine(&mut { refused });
    assert_eq!(hazards.undefined_in(&Region::of_bytes(2..8)), Some(4..8));
    assert_eq!(hazards.undefined_in(&Region::of_bytes(2..4)), None);
}

/// Columns of 25 bytes as rows of 6: together they have as many places as there are bytes.
#[test]
fn a_write_of_all_bytes_that_is_taken_back_leaves_columns_of_a_ragged_last_row_as_they_were() {
    let mut hazards = Hazards::new(25, Some(t(9, 1)));
    let column = |start, rows, mode| Access { region: Region::of_rows(start, 1, rows, 6), mode };
    note(&mut hazards, &column(0, 5, Mode::Read), t(1, 1));
    note(&mut hazards, &column(5, 4, Mode::Overwrite), t(2, 1));
    hazards.sweep(|ticket| ticket == t(1, 1));
    let before = conflicts(&hazards, &overwrite(0..25));
    assert_eq!(before, [t(2, 1), t(9, 1)]);
    let mut all = note(&mut hazards, &overwrite(0..25), t(3, 1));
    hazards.undo(&mut all);
    assert_eq!(conflicts(&hazards, &overwrite(0..25)), before);
}

/// Opens an access on a lane.
fn open(hazards: &mut Hazards, access: Access, lane: u64) -> std::sync::Arc<OpenState> {
    let state = std::sync::Arc::new(OpenState::new(LaneId(lane)));
    assert!(!hazards.is_open_for(&access, |_| false));
    hazards.open(access, state.clone());
    state
}

#[test]
fn an_open_access_is_met_by_what_conflicts_and_by_nothing_else() {
    let mut hazards = Hazards::new(100, None);
    note(&mut hazards, &overwrite(0..100), t(0, 1));
    let read_open = open(&mut hazards, read(0..50), 1);
    let write_open = open(&mut hazards, overwrite(50..100), 1);
    let mut meets = |access: &Access| hazards.is_open_for(access, |_| false);
    assert!(!meets(&read(0..50)) && meets(&overwrite(49..50)));
    assert!(meets(&read(40..51)) && meets(&overwrite(99..100)));
    assert!(read_open.close(None, false).is_none());
    assert!(!meets(&overwrite(0..50)) && meets(&read(50..51)));
    assert!(write_open.close(Some(3), false).is_none());
    assert!(!meets(&read(0..100)));
    assert!(hazards.open.is_none());
    assert_eq!(conflicts(&hazards, &read(0..100)), [t(0, 1), t(1, 3)]);
}

#[test]
fn a_closed_write_that_failed_defines_nothing_and_is_waited_for() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(0, 1));
    assert!(open(&mut hazards, overwrite(0..4), 1).close(Some(2), true).is_none());
    assert!(!hazards.is_open_for(&read(0..8), |_| false));
    assert_eq!(hazards.undefined_in(&Region::of_bytes(0..8)), Some(0..4));
    assert_eq!(conflicts(&hazards, &overwrite(0..4)), [t(1, 2)]);
    assert!(open(&mut hazards, overwrite(4..8), 1).close(None, true).is_none());
    assert!(!hazards.is_open_for(&read(0..8), |_| false));
    assert_eq!(conflicts(&hazards, &overwrite(4..8)), [t(0, 1)], "nothing was enqueued");
    assert_eq!(hazards.undefined_in(&Region::of_bytes(4..8)), None);
}

#[test]
fn a_read_that_is_noted_late_hides_no_later_one_of_its_lane() {
    let mut hazards = Hazards::new(8, None);
    note(&mut hazards, &overwrite(0..8), t(0, 1));
    let state = open(&mut hazards, read(0..8), 1);
    note(&mut hazards, &read(0..8), t(1, 9));
    assert!(state.close(Some(4), false).is_none());
    assert!(!hazards.is_open_for(&overwrite(0..8), |_| false));
    assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(0, 1), t(1, 9)]);
}
