//! `headwater::testing`: what the report of a failure says, and what it does not.

use std::time::Duration;

use headwater::testing::{self, Cause, Explore, Gate, explore};
use headwater::{Device, Result, spawn};
use tokio::sync::oneshot;

use crate::kernels::increment;
use crate::testing::{report, soon, who_is_first};

#[test]
fn the_report_names_the_seed_how_to_run_it_and_what_ran() {
    let seed = Explore::new().find(who_is_first).expect("it is found").seed();
    let report = report(|| explore(0..100, who_is_first));
    for part in [
        &format!("fails with seed {seed} ({seed} before it passed)"),
        &format!(
            "HEADWATER_SEED={seed} cargo test explore_report::the_report_names_the_seed_how_to_run_it"
        ),
        &format!("explore({seed}..={seed}"),
        "a planted mistake",
        "the tame order (run as enqueued)",
        "What ran on device ",
        "increment",
    ] {
        assert!(report.contains(part), "{part:?} is not in\n{report}");
    }
}

#[test]
fn a_runtime_of_another_kind_is_refused_with_what_to_write_and_no_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let report = runtime.block_on(async { report(|| explore(0..1, async |_| ())) });
    assert!(report.contains("`#[test]`, not `#[tokio::test]`"), "{report}");
    for untrue in ["seed", "tame", "What ran"] {
        assert!(!report.contains(untrue), "{untrue:?} is in\n{report}");
    }
}

#[test]
fn a_timer_is_refused_with_what_to_do() {
    let report = report(|| {
        explore(0..1, async |_| tokio::time::sleep(Duration::from_millis(1)).await);
    });
    assert!(report.contains("timers do not run under `explore`"), "{report}");
    assert!(report.contains("Timeouts"), "{report}");
}

#[test]
fn what_only_the_end_let_go_is_not_among_what_ran() {
    let failure = Explore::new().seeds([3]).find(async |device: Device| -> Result<()> {
        let stream = device.stream();
        let gate = Gate::new(&device)?;
        let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
        gate.hold(&stream)?;
        stream.in_scope(|| increment(&mut x))?.await
    });
    let failure = failure.expect("it is stuck");
    assert!(matches!(failure.causes(), [Cause::Stuck(_)]), "{failure}");
    assert!(failure.order().iter().all(|span| span.name == "fill"), "{:?}", failure.order());
    let report = failure.to_string();
    let (_, listed) = report.split_once("What ran").expect("the zeros did");
    assert!(!listed.contains("gate") && !listed.contains("increment"), "{report}");
}

#[test]
fn what_ran_after_the_program_had_ended_is_listed_as_such() {
    let failure = Explore::new().seeds([3]).find(async |device: Device| -> Result<()> {
        let mut x = device.zeros::<u32>(64)?;
        x.fill(1)?.await?;
        drop(increment(&mut x)?);
        std::mem::forget(x);
        Ok(())
    });
    let failure = failure.expect("it leaks");
    assert!(failure.order().iter().all(|span| span.name == "fill"), "{:?}", failure.order());
    let report = failure.to_string();
    let (_, after) = report.split_once("when the program had ended:").expect(&report);
    assert!(after.contains("increment") && !after.contains("fill"), "{report}");
}

#[test]
fn a_program_that_waits_in_vain_counts_among_what_has_not_ended() {
    let patience = Explore::new().seeds([3]).patience(Duration::from_millis(50));
    let cause = soon(|| patience.find(async |_| std::future::pending::<()>().await));
    let Cause::Stuck(why) = cause else { panic!("{cause}") };
    assert!(why.contains("the program has not ended") && !why.contains(" 0 "), "{why}");
    assert!(why.contains("spawn_blocking") && why.contains("Explore::patience"), "{why}");
}

#[test]
fn a_panic_that_left_the_program_waiting_is_told() {
    let patience = Explore::new().seeds([3]).patience(Duration::from_millis(50));
    let cause = soon(|| {
        patience.find(async |_| {
            let (sender, receiver) = oneshot::channel::<()>();
            drop(tokio::spawn(async { panic!("of a task that nobody looks at") }));
            let _ = receiver.await;
            drop(sender);
        })
    });
    let told = "of a task that nobody looks at";
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains(told)), "{cause}");
}

#[test]
fn panics_are_told_one_by_one_the_first_as_such() {
    let report = report(|| {
        explore(0..1, async |_| {
            let first = spawn(async { panic!("this one") });
            first.await.expect("no panic");
        });
    });
    assert!(report.contains("\n- first, a panic: this one"), "{report}");
    assert!(report.contains("\n- then a panic: no panic"), "{report}");
}

#[test]
fn a_report_has_no_headings_with_nothing_below_and_no_choices_that_nobody_had() {
    let report = report(|| explore(7..8, async |_| Err("not today")));
    assert!(report.contains("returned an error: \"not today\"") && report.contains("seed 7"));
    for empty in ["What ran", "0 of", "the host's"] {
        assert!(!report.contains(empty), "{empty:?} is in\n{report}");
    }
}

#[test]
fn what_is_not_freed_behind_a_closed_gate_is_told_with_who_waits() -> Result<()> {
    let device = testing::device();
    let gate = Gate::new(&device)?;
    let stream = device.stream();
    gate.hold(&stream)?;
    drop(stream.in_scope(|| device.zeros::<u8>(1_000))?);
    let message = report(|| testing::assert_all_freed(&device));
    assert!(message.contains("1024 bytes") && message.contains("gate"), "{message}");
    gate.open();
    testing::assert_all_freed(&device);
    Ok(())
}

#[test]
fn a_device_that_is_lost_is_asked_for_no_memory() -> Result<()> {
    let device = testing::device();
    let x = device.zeros::<u32>(64)?;
    crate::common::sim(&device).fail(719);
    drop(x);
    testing::assert_all_freed(&device);
    Ok(())
}
