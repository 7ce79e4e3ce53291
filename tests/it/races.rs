//! The race checker around a whole device.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use headwater::sim::{Schedule, SimMachine, SimOptions};
use headwater::testing::{Explore, LoggedStep, Step};
use headwater::{Device, DeviceBuilder, Error, Race, Result, StreamOptions};

use crate::common::{device_buffer, elements, pinned_buffer, run_to_end, until, wait};
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
    device.races().unwrap()
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
    let report = race.to_string();
    let part = "because: wait 0 of device";
    assert!(race.lost_wait == Some(0) && report.contains(part), "{report}");
}

#[test]
fn a_report_calls_streams_as_errors_do_and_by_their_names() {
    let device = checked(Some(0));
    let named = |name: &str| device.stream_with(StreamOptions::new().name(name));
    let (a, b) = (named("producer"), named("consumer"));
    let mut x = a.in_scope(|| device.zeros::<u32>(64)).unwrap();
    b.in_scope(|| increment(&mut x)).unwrap();
    let races = device.races().unwrap();
    assert_eq!(races[0].first.stream, Some(a.as_raw()));
    let report = races[0].to_string();
    for part in [
        format!("of stream {} (\"producer\") on device {}", a.number(), device.number()),
        format!("of stream {} (\"consumer\") on device {}", b.number(), device.number()),
        format!("stream {} does not wait for `fill` before `increment`", b.number()),
    ] {
        assert!(report.contains(&part), "{part:?} in\n{report}");
    }
}

#[test]
fn a_stream_has_no_name_in_reports_that_its_last_holder_gave_it() {
    let device = checked(Some(0));
    let mut streams: Vec<_> = Vec::new();
    for _ in 0..2 {
        let name = |i: usize| StreamOptions::new().name(format!("last holder's {i}"));
        streams = (0..16).map(|i| device.stream_with(name(i))).collect();
    }
    drop(streams);
    let (a, b) = (device.stream(), device.stream());
    let mut x = a.in_scope(|| device.zeros::<u32>(64)).unwrap();
    b.in_scope(|| increment(&mut x)).unwrap();
    let race = device.races().unwrap().remove(0);
    assert_eq!((race.first.stream_name, race.second.stream_name), (None, None));
}

#[test]
#[should_panic(expected = "`copy_u32` reads bytes 0..256")]
fn a_race_panics_at_the_operation_where_that_is_asked_for() {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    hand_over(&builder.panic_on_race(true).lose_wait(0).open().unwrap());
}

/// The locks that the call held are free when it panics, and the operation is as enqueued as any.
#[test]
fn a_device_works_on_after_a_panic_for_a_race() {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    let device = builder.panic_on_race(true).lose_wait(0).open().unwrap();
    let (a, b) = (device.stream(), device.stream());
    let mut x = a.in_scope(|| device.zeros::<u32>(64)).unwrap();
    let raced = catch_unwind(AssertUnwindSafe(|| b.in_scope(|| increment(&mut x))));
    assert!(raced.unwrap_err().downcast_ref::<String>().unwrap().starts_with("race on bytes"));
    run_to_end(&device);
    wait(b.synchronize()).unwrap();
    assert_eq!(elements(&x), [1; 64], "it was enqueued");
    b.in_scope(|| increment(&mut x)).unwrap();
    run_to_end(&device);
    assert_eq!(elements(&x), [2; 64]);
}

/// Each half of an element is filled by itself, in rows.
#[test]
fn a_fill_of_rows_touches_its_rows_and_nothing_else() {
    let device = checked(None);
    let mut x = device.alloc::<u64>(1_000_000).unwrap();
    let before = device.call_log().unwrap().len();
    x.fill(1 << 32 | 2).unwrap();
    let log = device.call_log().unwrap();
    let fills: Vec<_> = log[before..].iter().map(|logged| &logged.step).collect();
    let [Step::Work { touched: low, .. }, Step::Work { touched: high, .. }] = fills[..] else {
        panic!("{fills:#?}")
    };
    assert_eq!(high[0].start, low[0].start + 4);
    for touched in [low, high] {
        assert_eq!((touched[0].bytes, touched[0].row, touched[0].pitch), (7_999_996, 4, 8));
    }
    run_to_end(&device);
    assert_eq!(device.races().unwrap(), []);
}

#[test]
fn the_log_has_each_call_with_its_stream_in_order() {
    let device = checked(None);
    let before = device.call_log().unwrap().len();
    let mut x = device.zeros::<u32>(8).unwrap();
    let stream = device.current_stream().as_raw();
    increment(&mut x).unwrap();
    let log = device.call_log().unwrap();
    let steps: Vec<_> = log[before..].iter().map(|logged| &logged.step).collect();
    let [
        Step::Allocated { ptr, bytes: 256, stream: a, .. },
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

/// Two devices of one machine, the second watched with the first.
fn together(first: fn(DeviceBuilder) -> DeviceBuilder) -> Result<(Device, Device)> {
    let machine = SimMachine::new(2, SimOptions::new())?;
    let builder = |ordinal| Device::builder().simulated_on(&machine, ordinal).single_stream(false);
    let first = first(builder(0)).open()?;
    let second = builder(1).watch_with(&first).open()?;
    Ok((first, second))
}

fn is_refused<T>(opened: Result<T>) -> bool {
    matches!(opened, Err(Error::BadSetting { name: "watch_with", .. }))
}

#[test]
fn devices_watched_together_are_seen_in_one_order() {
    let (first, second) = together(|builder| builder.log_calls(true).race_check(true)).unwrap();
    let log = first.call_log().unwrap();
    assert!(log.iter().any(|logged| logged.device == second.number()));
    assert_eq!(second.call_log().unwrap().len(), log.len());
    assert_eq!(second.races().unwrap(), []);
}

#[test]
fn devices_whose_handles_can_be_taken_for_each_others_are_not_watched_together() {
    let first = checked(None);
    assert!(is_refused(Device::builder().simulated().watch_with(&first).open()));
    let machine = SimMachine::new(1, SimOptions::new()).unwrap();
    let of_machine = Device::builder().simulated_on(&machine, 0).watch_with(&first);
    assert!(is_refused(of_machine.open()));
}

#[test]
fn a_device_is_watched_with_one_that_is_watched_in_every_way_that_is_asked_for() {
    assert!(is_refused(together(|builder| builder)));
    assert!(is_refused(together(|builder| builder.count_driver_calls(true))));
    let (logged, with) = together(|builder| builder.log_calls(true)).unwrap();
    assert_eq!((logged.races(), with.races()), (None, None));
    assert!(with.call_log().is_some());
    let machine = SimMachine::new(3, SimOptions::new()).unwrap();
    let builder = |ordinal| Device::builder().simulated_on(&machine, ordinal);
    let checked = builder(0).race_check(true).open().unwrap();
    assert!(is_refused(builder(1).log_calls(true).watch_with(&checked).open()));
    assert!(is_refused(builder(1).watch_with(&checked).log_calls(true).open()));
    let logged = builder(2).log_calls(true).open().unwrap();
    assert!(is_refused(builder(1).panic_on_race(true).watch_with(&logged).open()));
}

#[test]
fn a_device_that_nobody_watches_says_so() {
    let device = Device::simulated().unwrap();
    assert_eq!((device.races(), device.call_log()), (None, None));
    let counted = Device::builder().simulated().count_driver_calls(true).open().unwrap();
    assert_eq!((counted.races(), counted.call_log()), (None, None));
}

#[test]
#[should_panic(expected = "without `race_check(true)`")]
fn no_races_are_not_asserted_of_a_device_that_is_only_logged() {
    let device = Device::builder().simulated().log_calls(true).open().unwrap();
    headwater::testing::assert_no_races(&device);
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
    assert_eq!(device.races().unwrap(), []);
    let is_access = |step: &Step| matches!(step, Step::HostAccess { writes: false, .. });
    let log = device.call_log().unwrap();
    assert_eq!(log.iter().filter(|logged| is_access(&logged.step)).count(), 1);
}

#[test]
fn a_wait_is_lost_on_a_simulated_device_only() {
    let refused = Device::builder().cuda(0).lose_wait(0).open();
    assert!(matches!(refused, Err(Error::BadSetting { name: "lose_wait", .. })), "{refused:?}");
}

/// What a step makes, what it ends, and what else it names: each by its kind and its handle.
type Handles = (Option<(char, u64)>, Option<(char, u64)>, Vec<(char, u64)>);

fn handles(step: &Step) -> Handles {
    let stream = |raw: &u64| ('s', *raw);
    let event = |raw: &u64| ('e', *raw);
    let module = |raw: &u64| ('o', *raw);
    match step {
        Step::StreamCreated { stream: s, .. } => (Some(stream(s)), None, vec![]),
        Step::StreamDestroyed { stream: s, .. } => (None, Some(stream(s)), vec![]),
        Step::Named { stream: s, .. } => (None, None, vec![stream(s)]),
        Step::EventCreated { event: e, .. } => (Some(event(e)), None, vec![]),
        Step::EventDestroyed { event: e, .. } => (None, Some(event(e)), vec![]),
        Step::Recorded { event: e, stream: s, .. } | Step::Waited { event: e, stream: s, .. } => {
            (None, None, vec![event(e), stream(s)])
        }
        Step::Queried { event: e, .. } => (None, None, vec![event(e)]),
        Step::Elapsed { start, end, .. } => (None, None, vec![event(start), event(end)]),
        Step::Allocated { ptr, stream: s, .. } => (Some(('m', ptr.get())), None, vec![stream(s)]),
        Step::Freed { ptr, stream: s, .. } => (None, Some(('m', ptr.get())), vec![stream(s)]),
        Step::HostAllocated { ptr, .. } | Step::HostRegistered { ptr, .. } => {
            (Some(('m', *ptr)), None, vec![])
        }
        Step::HostFreed { ptr, .. } | Step::HostUnregistered { ptr, .. } => {
            (None, Some(('m', *ptr)), vec![])
        }
        Step::Owned { ptr, .. } | Step::HostAccess { ptr, .. } => (None, None, vec![('m', *ptr)]),
        Step::Work { stream: s, function: 0, .. } => (None, None, vec![stream(s)]),
        Step::Work { stream: s, function, .. } => (None, None, vec![stream(s), ('f', *function)]),
        Step::ModuleLoaded { module: m, .. } => (Some(module(m)), None, vec![]),
        Step::ModuleUnloaded { module: m, .. } => (None, Some(module(m)), vec![]),
        // A module's functions come and go with it, and can be asked for again.
        Step::FunctionFound { module: m, .. } => (None, None, vec![module(m)]),
        Step::Other { .. } => (None, None, vec![]),
        _ => panic!("a step that names nobody knows what: {step:?}"),
    }
}

/// Fails where a call names a stream, an event, a module, a function or memory that is not there, or
/// makes one that is.
fn assert_live_handles_only(log: &[LoggedStep], device: u32) {
    let mut live = HashSet::new();
    let mut functions = Vec::new();
    let taken = log.iter().filter(|logged| logged.device == device && logged.refused.is_none());
    for logged in taken {
        let (made, ended, named) = handles(&logged.step);
        assert!(named.iter().all(|handle| live.contains(handle)), "{logged:?}");
        assert!(ended.is_none_or(|handle| live.remove(&handle)), "{logged:?}");
        assert!(made.is_none_or(|handle| live.insert(handle)), "{logged:?}");
        match &logged.step {
            Step::FunctionFound { module, function, .. } => {
                functions.push((*module, *function));
                live.insert(('f', *function));
            }
            Step::ModuleUnloaded { module, .. } => {
                let gone = functions.extract_if(.., |(of, _)| of == module);
                gone.for_each(|(_, function)| _ = live.remove(&('f', function)));
            }
            _ => {}
        }
    }
    assert_eq!(live, HashSet::new(), "left behind");
}

#[test]
fn from_opening_to_closing_every_call_names_what_is_alive_and_nothing_stays() {
    let (witness, device) = together(|builder| builder.log_calls(true).race_check(true)).unwrap();
    let number = device.number();
    let (a, b) = (device.stream(), device.stream());
    for round in 0..50 {
        let mut x = a.in_scope(|| device.zeros::<u32>(64)).unwrap();
        let mut y = b.in_scope(|| device.alloc::<u32>(64)).unwrap();
        let mut host = device.alloc_host::<u32>(64).unwrap();
        let completion = a.in_scope(|| increment(&mut x)).unwrap();
        b.in_scope(|| copy_u32(&x, &mut y)).unwrap();
        let start = b.record_timed().unwrap();
        b.in_scope(|| y.copy_to(&mut host)).unwrap();
        let end = b.record_timed().unwrap();
        if round % 3 == 0 {
            wait(completion).unwrap();
        }
        if round % 4 == 0 {
            assert_eq!(wait(host.read()).unwrap()[0], 1);
            end.elapsed_since(&start).unwrap();
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
    until("the device is closed", || closed(&witness.call_log().unwrap()));
    assert_live_handles_only(&witness.call_log().unwrap(), number);
    assert_eq!(witness.races().unwrap(), []);
}

#[test]
fn explored_devices_are_watched_together_only_where_they_are_watched() {
    let unchecked = Explore::new().seeds(0..1).settings(|builder| builder.race_check(false));
    unchecked.run_on(async |devices: [Device; 2]| {
        assert!(devices.iter().all(|device| device.races().is_none()));
    });
}
