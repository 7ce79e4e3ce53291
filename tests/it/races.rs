//! The race checker around a whole device.

use std::collections::HashSet;

use headwater::sim::{Schedule, SimOptions};
use headwater::testing::{LoggedStep, Step};
use headwater::{Device, Error, Race};

use crate::common::{device_buffer, pinned_buffer, run_to_end, until, wait};
use crate::kernels::{copy_u32, increment};

/// A stepped device that is checked, on which the `nth` wait is lost.
fn checked(lose_wait: Option<u64>) -> Device {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    let builder = builder.race_check(true).log_calls(true);
    let builder = match lose_wait {
        Some(nth) => builder.lose_wait(nth),
        None => builder,
    };
    builder.open().unwrap()
}

/// A buffer written on one stream and read on another, by a program that orders nothing itself.
fn hand_over(device: &Device) -> Vec<Race> {
    let mut x = device_buffer(device, &[0u32; 64]);
    let mut y = device_buffer(device, &[0u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    a.in_scope(|| increment(&mut x)).unwrap();
    b.in_scope(|| copy_u32(&x, &mut y)).unwrap();
    run_to_end(device);
    device.races()
}

#[test]
fn what_the_library_orders_is_found_in_order() {
    assert_eq!(hand_over(&checked(None)), []);
}

#[test]
fn a_lost_wait_is_found_and_told_with_everything_one_needs() {
    let races = hand_over(&checked(Some(0)));
    let [race] = &races[..] else { panic!("{races:?}") };
    assert_eq!((race.first.operation, race.second.operation), ("increment", "copy_u32"));
    assert_eq!((race.first.writes, race.second.writes), (true, false));
    assert_eq!(race.range, 0..256);
    assert!(race.memory.made_at.is_some_and(|place| place.file().ends_with("common.rs")));
    println!("{race}");
}

#[test]
#[should_panic(expected = "`copy_u32` reads bytes 0..256")]
fn a_race_panics_at_the_operation_where_that_is_asked_for() {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    hand_over(&builder.panic_on_race(true).lose_wait(0).open().unwrap());
}

#[test]
fn the_log_has_each_call_with_its_stream_in_order() {
    let device = checked(None);
    let before = device.call_log().len();
    let mut x = device.zeros::<u32>(8).unwrap();
    let stream = device.current_stream().as_raw();
    increment(&mut x).unwrap();
    let log = device.call_log();
    let steps: Vec<_> = log[before..].iter().map(|logged| &logged.step).collect();
    let [
        Step::Allocated { ptr, bytes: 32, stream: a },
        Step::Owned { .. },
        Step::Work { name: "fill", stream: b, .. },
        Step::Work { name: "increment", stream: c, touched, .. },
    ] = steps[..]
    else {
        panic!("{steps:#?}")
    };
    assert_eq!([*a, *b, *c], [stream; 3]);
    assert_eq!((touched[0].start, touched[0].bytes, touched[0].writes), (ptr.get(), 32, true));
    assert!(log[before..].iter().all(|logged| logged.refused.is_none()));
}

#[test]
fn devices_watched_together_are_seen_in_one_order() {
    let first = checked(None);
    let second = Device::builder().simulated().watch_with(&first).open().unwrap();
    let log = first.call_log();
    assert!(log.iter().any(|logged| logged.device == second.number()));
    assert_eq!(second.call_log().len(), log.len());
}

#[test]
fn a_host_that_reads_through_guards_never_races() {
    let device = checked(None);
    let mut host = pinned_buffer(&device, &[1u32; 64]);
    let x = device_buffer(&device, &[2u32; 64]);
    x.copy_to(&mut host).unwrap();
    assert!(matches!(host.try_read(), Err(Error::InFlight { .. })));
    run_to_end(&device);
    assert_eq!(host.blocking_read().unwrap()[0], 2);
    assert_eq!(device.races(), []);
    let is_access = |step: &Step| matches!(step, Step::HostAccess { writes: false, .. });
    assert_eq!(device.call_log().iter().filter(|logged| is_access(&logged.step)).count(), 1);
}

#[test]
fn a_wait_is_lost_on_a_simulated_device_only() {
    let refused = Device::builder().cuda(0).lose_wait(0).open();
    assert!(matches!(refused, Err(Error::BadSetting { name: "lose_wait", .. })), "{refused:?}");
}

/// Fails where a call names a stream, an event or memory that is not there, or makes one that is.
fn assert_live_handles_only(log: &[LoggedStep], device: u32) {
    let mut live = HashSet::new();
    let taken = log.iter().filter(|logged| logged.device == device && logged.refused.is_none());
    for logged in taken {
        let (made, ended, named) = match logged.step {
            Step::StreamCreated { stream } => (Some(('s', stream)), None, vec![]),
            Step::EventCreated { event } => (Some(('e', event)), None, vec![]),
            Step::Allocated { ptr, stream, .. } => {
                (Some(('m', ptr.get())), None, vec![('s', stream)])
            }
            Step::HostAllocated { ptr, .. } => (Some(('m', ptr)), None, vec![]),
            Step::StreamDestroyed { stream } => (None, Some(('s', stream)), vec![]),
            Step::EventDestroyed { event } => (None, Some(('e', event)), vec![]),
            Step::Freed { ptr, stream } => (None, Some(('m', ptr.get())), vec![('s', stream)]),
            Step::HostFreed { ptr } => (None, Some(('m', ptr)), vec![]),
            Step::Recorded { event, stream } | Step::Waited { event, stream, .. } => {
                (None, None, vec![('e', event), ('s', stream)])
            }
            Step::Queried { event, .. } => (None, None, vec![('e', event)]),
            Step::Work { stream, .. } => (None, None, vec![('s', stream)]),
            _ => (None, None, vec![]),
        };
        assert!(named.iter().all(|handle| live.contains(handle)), "{logged:?}");
        assert!(ended.is_none_or(|handle| live.remove(&handle)), "{logged:?}");
        assert!(made.is_none_or(|handle| live.insert(handle)), "{logged:?}");
    }
    assert_eq!(live, HashSet::new(), "left behind");
}

#[test]
fn from_opening_to_closing_every_call_names_what_is_alive_and_nothing_stays() {
    let witness = checked(None);
    let device = Device::builder().simulated().watch_with(&witness).open().unwrap();
    let number = device.number();
    let (a, b) = (device.stream(), device.stream());
    for round in 0..50 {
        let mut x = a.in_scope(|| device.zeros::<u32>(64)).unwrap();
        let mut y = b.in_scope(|| device.alloc::<u32>(64)).unwrap();
        let mut host = device.alloc_host::<u32>(64).unwrap();
        let completion = a.in_scope(|| increment(&mut x)).unwrap();
        b.in_scope(|| copy_u32(&x, &mut y)).unwrap();
        b.in_scope(|| y.copy_to(&mut host)).unwrap();
        if round % 3 == 0 {
            wait(completion).unwrap();
        }
        if round % 4 == 0 {
            assert_eq!(wait(host.read()).unwrap()[0], 1);
        }
    }
    drop((a, b, device));
    let closed = |log: &[LoggedStep]| {
        let of = |end: fn(&Step) -> bool| {
            log.iter().filter(|l| l.device == number && end(&l.step)).count()
        };
        of(|s| matches!(s, Step::EventCreated { .. }))
            == of(|s| matches!(s, Step::EventDestroyed { .. }))
            && of(|s| matches!(s, Step::HostFreed { .. })) > 0
            && of(|s| matches!(s, Step::StreamCreated { .. }))
                == of(|s| matches!(s, Step::StreamDestroyed { .. }))
    };
    until("the device is closed", || closed(&witness.call_log()));
    assert_live_handles_only(&witness.call_log(), number);
    assert_eq!(witness.races(), []);
}
