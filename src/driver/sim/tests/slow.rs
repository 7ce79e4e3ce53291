//! Operations that take long or never end, and ends that are seen late.

use super::{Bench, Schedule, SimOptions, bench, code, eager};
use crate::driver::DriverCall;
use crate::driver::sim::{Fault, Injected, SimOpKind};

fn durations(b: &Bench) -> Vec<u64> {
    b.sim.timeline().iter().map(|span| span.end - span.start).collect()
}

#[test]
fn a_slow_operation_takes_so_much_longer_and_no_other_does() {
    let b = eager();
    let s = b.stream();
    b.sim.inject(Fault::slow(SimOpKind::Kernel, 1_000_000).after(1));
    for _ in 0..3 {
        b.launch(&s, |_| Ok(()));
    }
    b.sim.settle();
    let [first, second, third] = durations(&b)[..] else { panic!("{:?}", b.ran()) };
    assert_eq!((second, third), (first + 1_000_000, first));
    let id = b.sim.timeline()[1].id;
    let slow = Injected::Slow { id, kind: SimOpKind::Kernel, ns: 1_000_000 };
    assert_eq!(b.sim.injected(), [slow]);
}

#[test]
fn an_operation_that_never_ends_holds_its_stream_and_no_other() {
    let b = eager();
    let (s, t) = (b.stream(), b.stream());
    b.sim.inject(Fault::never_finishes(SimOpKind::Kernel));
    b.launch(&s, |_| panic!("it does nothing"));
    let (held, behind) = (b.record(&s), b.stream());
    b.launch(&s, |_| Ok(()));
    b.driver.stream_wait(&behind, &held).unwrap();
    b.sim.settle();
    b.launch(&t, |_| Ok(()));
    b.wait_for(&b.record(&t));
    b.sim.settle();
    assert_eq!(b.ran(), [("kernel", t.raw())]);
    assert!(!b.done(&held));
    assert_eq!(b.sim.pending().len(), 1, "it has begun, what is behind it has not");

    b.driver.stream_destroy(s).unwrap();
    b.sim.fail(719);
    assert_eq!(code(b.driver.event_query(&held)), Some(719));
    b.sim.settle();
}

#[test]
fn an_operation_that_never_ends_can_be_stepped() {
    let b = bench(SimOptions::new().schedule(Schedule::Stepped));
    let s = b.stream();
    b.sim.inject(Fault::never_finishes(SimOpKind::Kernel));
    b.launch(&s, |_| Ok(()));
    assert!(b.sim.step().is_some(), "it was begun");
    assert_eq!(b.sim.step(), None);
}

#[test]
fn what_never_ends_is_dropped_with_the_last_driver() {
    let b = eager();
    let s = b.stream();
    b.sim.inject(Fault::never_finishes(SimOpKind::Kernel));
    let (told, heard) = std::sync::mpsc::channel::<()>();
    b.launch(&s, move |_| {
        drop(told.clone());
        Ok(())
    });
    drop(b);
    assert!(heard.recv().is_err());
}

#[test]
fn an_end_that_is_seen_late_is_late_for_the_host_and_not_for_streams() {
    let b = eager();
    let (s, t) = (b.stream(), b.stream());
    b.sim.inject(Fault::seen_late(2));
    b.launch(&s, |_| Ok(()));
    let (late, other) = (b.record(&s), b.event());
    b.driver.stream_wait(&t, &late).unwrap();
    b.launch(&t, |_| Ok(()));
    b.driver.event_record(&other, &t).unwrap();
    b.sim.settle();
    let before = b.sim.host_now();
    assert!(!b.done(&late));
    assert_eq!(b.sim.host_now(), before, "the host has not seen it");
    assert!(b.done(&other), "the next recording is not late");
    assert!(!b.done(&late));
    assert!(b.done(&late));
    assert!(b.done(&late));
    assert_eq!(b.sim.injected(), [Injected::SeenLate { stream: s.raw(), queries: 2 }]);
    assert_eq!(b.sim.stuck(), None);
}

#[test]
fn by_chance_the_same_calls_are_refused_every_time() {
    let run = || {
        let b = eager();
        let s = b.stream();
        let x = b.alloc(4, &s);
        b.sim.inject(Fault::of_call(DriverCall::Fill, 801).one_in(3, 11));
        let fill = || super::Fill { dst: x, unit: 1, value: 1, columns: 4, rows: 1, pitch: 0 };
        let refused: Vec<_> = (0..60).map(|_| code(b.try_fill(fill(), &s)).is_some()).collect();
        b.sim.settle();
        assert_eq!(b.ran().len(), refused.iter().filter(|&&refused| !refused).count());
        refused
    };
    let refused = run();
    assert_eq!(refused, run());
    let count = refused.iter().filter(|&&refused| refused).count();
    assert!((10..30).contains(&count), "{count} of 60");
}
