//! Fills and copies of rows, and what touches rows.

use super::*;

/// Rows of 4 bytes, one in every 8 of the device block.
fn column(first: u64, writes: bool) -> [Touched; 1] {
    [Touched::in_rows(BLOCK + first, (4, 32, 8), writes)]
}

#[test]
fn columns_beside_each_other_do_not_race_and_a_byte_in_common_does() {
    let mut t = Told::new();
    t.work(1, "even", &column(0, true)).work(2, "odd", &column(4, true));
    assert_eq!(t.races(), NONE);
    t.work(3, "shifted", &column(3, true));
    assert_eq!(t.races(), [("even", "shifted"), ("odd", "shifted")]);
    assert_eq!(t.0.races()[0].range, 3..4);
    assert_eq!(t.0.races()[0].second.range, 3..255);
}

#[test]
fn rows_leave_the_history_of_what_is_between_them() {
    let mut t = Told::new();
    t.work(1, "all", &writes()).record(7, 1).wait(2, 7).work(2, "even", &column(0, true));
    t.work(3, "between", &[at(4..8, false)]);
    assert_eq!(t.races(), [("all", "between")]);
    t.work(1, "row", &[at(8..12, false)]);
    assert_eq!(t.races()[1..], [("even", "row")]);
}

#[test]
fn columns_of_one_stream_do_not_stand_for_each_other_nor_a_read_for_a_write() {
    let mut t = Told::new();
    t.work(1, "even", &column(0, true)).work(1, "odd", &column(4, true));
    t.work(2, "read", &[at(8..12, false)]);
    assert_eq!(t.races(), [("even", "read")]);
    let mut t = Told::new();
    t.work(1, "even", &column(0, true)).work(1, "looks", &reads());
    t.work(2, "read", &[at(8..12, false)]);
    assert_eq!(t.races(), [("even", "read")]);
}

#[test]
fn reads_of_columns_do_not_stand_for_each_other() {
    let mut t = Told::new();
    t.work(1, "even", &column(0, false)).work(1, "odd", &column(4, false));
    t.work(2, "write", &[at(9..11, true)]);
    assert_eq!(t.races(), [("even", "write")]);
    t.work(1, "later", &column(0, false)).record(7, 1).wait(2, 7);
    t.work(2, "in order", &[at(9..11, true)]);
    assert_eq!(t.races()[1..], [("write", "later")]);
}

#[test]
fn a_read_of_rows_meets_a_write_of_rows_at_another_pitch_where_they_have_a_byte_in_common() {
    // Rows at 0, 8, 16 and so on, beside single bytes at 4, 21, 38 and 55, and one at 72.
    let wide = |rows, writes| [Touched::in_rows(BLOCK + 4, (1, rows, 17), writes)];
    for writes in [false, true] {
        let mut t = Told::new();
        t.work(1, "even", &column(0, writes)).work(2, "between", &wide(4, !writes));
        assert_eq!(t.races(), NONE);
        let mut t = Told::new();
        t.work(1, "even", &column(0, writes)).work(2, "one more", &wide(5, !writes));
        assert_eq!(t.races(), [("even", "one more")]);
        assert_eq!(t.0.races()[0].range, 72..73);
    }
}

#[test]
fn the_host_may_use_the_columns_that_no_operation_under_way_touches() {
    let column = |first, writes| Touched::in_rows(PINNED + first, (4, 4, 16), writes);
    let mut t = Told::new();
    t.work(1, "copy", &[column(0, true)]).step(column(4, true).by_host());
    t.step(column(12, true).by_host());
    assert_eq!(t.races(), NONE);
    t.step(column(13, false).by_host());
    assert_eq!(t.races(), [("copy", "read by the host")]);
    assert_eq!(t.0.races()[0].range, 16..17);
}

#[test]
fn what_the_host_has_seen_of_columns_is_let_go_of_and_what_it_has_not_is_kept() {
    let mut t = Told::forgetful();
    t.work(1, "even", &column(0, false)).work(2, "odd", &column(4, false));
    t.record(7, 1).query(7, true);
    t.work(3, "writes even", &column(0, true));
    assert_eq!(t.races(), NONE);
    t.work(3, "writes odd", &column(4, true));
    assert_eq!(t.races(), [("odd", "writes odd")]);
}

#[test]
fn a_write_of_all_replaces_what_rows_had() {
    let mut t = Told::new();
    t.work(1, "even", &column(0, true)).record(7, 1).wait(2, 7).work(2, "all", &writes());
    t.record(8, 2).wait(3, 8).work(3, "read", &reads());
    assert_eq!(t.races(), NONE);
    t.work(1, "late", &[at(0..1, false)]);
    assert_eq!(t.races(), [("all", "late")]);
}

#[test]
fn rows_filled_again_and_again_cost_no_more_than_once() {
    let mut t = Told::new();
    for _ in 0..1_000 {
        t.work(1, "even", &column(0, true)).work(1, "odd", &column(4, true));
    }
    assert!(t.0.history() < 20, "{}", t.0.history());
}
