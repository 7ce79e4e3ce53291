//! Machines of several devices.

use std::ptr::NonNull;
use std::sync::mpsc;

use super::{
    Bench, CostModel, Schedule, SimEngine, SimMachine, SimOptions, Violation, bench_on, bytes_at,
    code, stepped,
};
use crate::driver::{DevicePtr, HostKind, KernelCost, TwinJob};

/// Every device of a machine that a test steps.
fn devices(count: usize, options: SimOptions) -> Vec<Bench> {
    let machine = SimMachine::with(count, options.schedule(Schedule::Stepped));
    (0..count).map(|ordinal| bench_on(machine.open(ordinal).unwrap())).collect()
}

/// What device memory holds, by a copy that is stepped alone.
fn read(b: &Bench, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
    b.read(ptr, bytes)
}

#[test]
fn devices_say_who_they_are_and_whom_they_reach() {
    let machine = SimMachine::with(3, SimOptions::h200());
    let infos: Vec<_> =
        (0..3).map(|ordinal| machine.open(ordinal).unwrap().0.info().clone()).collect();
    assert_eq!(infos.iter().map(|info| info.ordinal).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(infos[1].peers, [0, 2]);
    assert!(machine.open(3).is_none());
    let apart = SimMachine::with(3, SimOptions::t4());
    let info = apart.open(1).unwrap().0.info().clone();
    assert_eq!((info.peers, info.multiprocessors, info.compute_capability), (vec![], 40, (7, 5)));
}

#[test]
fn a_machine_can_have_1024_devices_each_with_memory_of_its_own() {
    let machine = SimMachine::with(1_024, SimOptions::new());
    let mut seen = std::collections::HashSet::new();
    for ordinal in [0, 1, 511, 1_023] {
        let b = bench_on(machine.open(ordinal).unwrap());
        let s = b.stream();
        let ptr = b.alloc(256, &s);
        assert!(seen.insert(ptr));
        b.fill(ptr, ordinal as u8, 256, &s);
        b.sim.settle();
        assert_eq!(b.sim.live_device_bytes(), 256);
        assert_eq!(read(&b, ptr, 256), [ordinal as u8; 256]);
    }
    assert_eq!(machine.simulator().live_device_bytes(), 4 * 256);
    assert_eq!(machine.simulator().violations(), []);
}

#[test]
fn device_addresses_are_nowhere_near_the_hosts() {
    let b = stepped();
    let ptr = b.alloc(1, &b.stream());
    let here = [
        NonNull::from(&ptr).as_ptr().addr() as u64,
        b.driver.host_alloc(1, HostKind::Cacheable).unwrap().addr().get() as u64,
    ];
    assert!(here.iter().all(|host| *host < 1 << 56 && ptr.0 >= 1 << 56), "{ptr:?} {here:x?}");
}

#[test]
fn devices_work_beside_each_other_on_one_clock() {
    let all = devices(2, SimOptions::new());
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    for b in &all {
        let s = b.stream();
        for _ in 0..2 {
            b.try_launch(&[], KernelCost::Nanoseconds(50_000), 4_096, &s, Some(&twin)).unwrap();
        }
    }
    let sim = &all[0].sim;
    assert_eq!(sim.run_all(), 4, "of all devices");
    let spans: Vec<_> = sim.timeline().iter().map(|s| (s.device, s.start, s.end)).collect();
    let of = |device, start| (device, start, start + 50_000);
    assert_eq!(spans, [of(0, 3_000), of(0, 53_000), of(1, 9_000), of(1, 59_000)]);
    assert_eq!(all[1].sim.host_now(), 12_000);
}

#[test]
fn a_stream_waits_for_an_event_of_another_device() {
    let all = devices(2, SimOptions::new());
    let [a, b] = &all[..] else { unreachable!() };
    let (s, t) = (a.stream(), b.stream());
    let (x, y) = (a.alloc(4, &s), b.alloc(4, &t));
    a.fill(x, 1, 4, &s);
    let filled = a.record(&s);
    b.driver.stream_wait(&t, &filled).unwrap();
    b.fill(y, 2, 4, &t);
    assert_eq!(b.sim.step_stream(t.raw()), None, "it waits");
    assert!(a.sim.step_stream(s.raw()).is_some());
    assert!(b.sim.step_stream(t.raw()).is_some());
    let spans = a.sim.timeline();
    assert!(spans[1].start >= spans[0].end, "{spans:?}");
    assert_eq!((spans[0].device, spans[1].device), (0, 1));
}

#[test]
fn what_is_one_devices_is_no_other_devices() {
    let all = devices(2, SimOptions::new().shared_fate(false));
    let [a, b] = &all[..] else { unreachable!() };
    let (s, t) = (a.stream(), b.stream());
    let (x, event) = (a.alloc(4, &s), a.event());
    assert_eq!(code(b.driver.event_record(&event, &t)), Some(400));
    assert_eq!(code(b.driver.event_query(&event)), Some(400));
    assert_eq!(code(b.driver.event_record(&b.event(), &s)), Some(400));
    assert_eq!(code(b.driver.alloc(4, &s)), Some(400));
    assert_eq!(code(b.try_free(x, &t)), Some(1));
    b.fill(x, 1, 4, &t);
    b.sim.run_all();
    let illegal = Violation::IllegalAddress { name: "fill", ptr: x, bytes: 4 };
    assert_eq!(b.sim.violations(), [illegal]);
    assert_eq!(code(b.driver.event_create(false)), Some(700));
    a.event();
    let live = |b: &Bench| (b.sim.live_streams(), b.sim.live_modules(), b.sim.live_device_bytes());
    assert_eq!(live(a), (1, 1, 256));
    assert_eq!(live(b), (1, 1, 0));
    assert_eq!((a.sim.live_events(), b.sim.live_events()), (2, 1));
}

#[test]
fn the_failure_of_one_device_leaves_the_others_going_where_they_do_not_share_their_fate() {
    let all = devices(3, SimOptions::new().shared_fate(false));
    let [a, b, c] = &all[..] else { unreachable!() };
    let (s, t, u) = (a.stream(), b.stream(), c.stream());
    let (x, y) = (a.alloc(4, &s), b.alloc(4, &t));
    a.fill(x, 1, 4, &s);
    let never = a.record(&s);
    b.fill(y, 2, 4, &t);
    c.driver.stream_wait(&u, &never).unwrap();
    c.launch(&u, |_| Ok(()));
    a.sim.fail(719);
    assert_eq!(code(a.driver.event_query(&never)), Some(719));
    assert_eq!(b.sim.run_all(), 1);
    assert_eq!(read(b, y, 4), [2; 4]);
    assert_eq!(c.pending(), [("kernel", u.raw(), false)], "it waits for what never comes");
    all[0].sim.fail(700);
    assert_eq!(code(a.driver.event_create(false)), Some(719), "its first error stays");
}

#[test]
fn devices_of_one_machine_fail_together() {
    let all = devices(2, SimOptions::new());
    let [a, b] = &all[..] else { unreachable!() };
    let (s, t) = (a.stream(), b.stream());
    b.launch(&t, |_| Ok(()));
    a.fill(DevicePtr(1), 1, 4, &s);
    assert!(a.sim.step_stream(s.raw()).is_some());
    for b in &all {
        assert_eq!(code(b.driver.event_create(false)), Some(700));
    }
    assert_eq!(b.pending(), []);
}

#[test]
fn what_is_pending_is_dropped_by_device_stream_and_the_order_enqueued() {
    let all = devices(3, SimOptions::new());
    let (told, heard) = mpsc::channel();
    let streams: Vec<_> = all.iter().map(|b| [b.stream(), b.stream()]).collect();
    for name in 0..2 {
        for (device, b) in all.iter().enumerate().rev() {
            for (stream, on) in streams[device].iter().enumerate().rev() {
                let dropped = Tells((device, stream, name), told.clone());
                let captured = std::sync::Mutex::new(Some(dropped));
                let twin = || -> TwinJob {
                    let captured = captured.lock().unwrap().take();
                    Box::new(move |_| {
                        drop(captured);
                        Ok(())
                    })
                };
                b.try_launch(&[], KernelCost::Unknown, 1, on, Some(&twin)).unwrap();
            }
        }
    }
    all[1].sim.fail(719);
    let order: Vec<_> = heard.iter().take(12).collect();
    assert!(order.is_sorted(), "{order:?}");
}

type Place = (usize, usize, usize);

/// Tells where it was when it is dropped.
struct Tells(Place, mpsc::Sender<Place>);

impl Drop for Tells {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

#[test]
fn the_machines_own_handle_is_of_all_devices() {
    let machine = SimMachine::with(2, SimOptions::new());
    let all: Vec<_> = (0..2).map(|ordinal| bench_on(machine.open(ordinal).unwrap())).collect();
    assert_eq!(all.iter().map(|b| b.sim.device()).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!((machine.simulator().device(), machine.simulator().live_modules()), (None, 2));
    machine.simulator().fail(719);
    for b in &all {
        assert_eq!(code(b.driver.event_create(false)), Some(719));
    }
}

#[test]
fn a_machine_goes_on_while_it_is_held_and_its_devices_come_and_go() {
    let machine = SimMachine::with(1, SimOptions::new());
    for _ in 0..2 {
        let b = bench_on(machine.open(0).unwrap());
        let s = b.stream();
        let ptr = b.alloc(4, &s);
        assert_eq!(read(&b, ptr, 1), [0xCB]);
    }
}

#[test]
fn the_handle_is_sent_each_time_a_device_is_opened() {
    let (to, sent) = mpsc::channel();
    let machine = SimMachine::with(2, SimOptions::new().send_simulator(to));
    drop(machine.open(1).unwrap());
    drop(machine.open(0).unwrap());
    let devices: Vec<_> = sent.try_iter().map(|simulator| simulator.device()).collect();
    assert_eq!(devices, [Some(1), Some(0)]);
}

/// x on the first device, y on the second, and a stream of each.
fn copied(options: SimOptions, bytes: usize) -> Vec<Bench> {
    let all = devices(2, options);
    let [a, b] = &all[..] else { unreachable!() };
    let (s, t) = (a.stream(), b.stream());
    let (x, y) = (a.alloc(bytes, &s), b.alloc(bytes, &t));
    a.fill(x, 7, bytes, &s);
    b.fill(y, 0, bytes, &t);
    a.sim.run_all();
    a.try_peer(b, DevicePtr(y.0 + 1), x, bytes - 1, &s).unwrap();
    a.sim.run_all();
    let got = read(b, y, bytes);
    assert!(got[0] == 0 && got[1..].iter().all(|byte| *byte == 7));
    assert_eq!(a.sim.violations(), []);
    all
}

#[test]
fn a_peer_copy_goes_over_the_link_of_its_two_devices() {
    const BYTES: usize = 1 << 20;
    let all = copied(SimOptions::h200(), BYTES + 1);
    let span = all[0].sim.timeline()[2].clone();
    // 1 MiB at 393 GB/s, behind 1.3 us.
    assert_eq!((span.device, span.engine), (0, SimEngine::CopyPeer));
    assert_eq!((span.name, span.bytes, span.end - span.start), ("copy_peer", BYTES as u64, 3_969));
}

#[test]
fn where_devices_do_not_reach_each_other_a_peer_copy_goes_through_the_host() {
    const BYTES: usize = 1 << 20;
    let all = copied(SimOptions::t4(), BYTES + 1);
    let span = all[0].sim.timeline()[2].clone();
    let rate = CostModel::t4().h2d_bytes_per_second;
    let ns = 1_300 + (BYTES as u64 * 1_000_000_000).div_ceil(rate);
    assert_eq!((span.engine, span.end - span.start), (SimEngine::CopyPeer, ns));
}

#[test]
fn a_peer_copy_finds_each_range_on_the_device_it_was_said_to_be_on() {
    let all = devices(2, SimOptions::new().shared_fate(false));
    let [a, b] = &all[..] else { unreachable!() };
    let (s, t) = (a.stream(), b.stream());
    let (x, y) = (a.alloc(8, &s), b.alloc(8, &t));
    let other = stepped();
    assert_eq!(code(a.try_peer(&other, y, x, 8, &s)), Some(201), "of another machine");
    a.try_peer(b, y, x, 0, &s).unwrap();
    a.sim.run_all();
    a.try_peer(b, y, x, 9, &s).unwrap();
    a.sim.run_all();
    let illegal = Violation::IllegalAddress { name: "copy_peer", ptr: x, bytes: 9 };
    assert_eq!(a.sim.violations(), [illegal]);
    assert_eq!(code(a.driver.event_create(false)), Some(700), "the stream's device ends");
    assert_eq!(code(b.try_peer(a, x, y, 8, &t)), Some(201), "the other one has failed");
    b.fill(y, 1, 8, &t);
    assert_eq!(b.sim.run_all(), 1);
}

#[test]
fn a_peer_copy_within_one_device_is_a_copy() {
    let b = stepped();
    let s = b.stream();
    let (x, y) = (b.alloc(8, &s), b.alloc(8, &s));
    b.fill(x, 3, 8, &s);
    b.try_peer(&b, y, x, 8, &s).unwrap();
    b.sim.run_all();
    assert_eq!(b.sim.timeline()[1].engine, SimEngine::CopyD2D);
    assert_eq!(read(&b, y, 8), [3; 8]);
}

#[test]
fn memory_on_a_host_is_page_locked_for_all_devices() {
    let all = devices(2, SimOptions::new());
    let host = all[0].driver.host_alloc(8, HostKind::Cacheable).unwrap();
    for (i, b) in all.iter().enumerate() {
        let s = b.stream();
        let ptr = b.alloc(8, &s);
        b.fill(ptr, i as u8 + 1, 8, &s);
        b.down(host, ptr, 8, &s);
        b.sim.run_all();
        assert_eq!(bytes_at(host, 8), [i as u8 + 1; 8]);
    }
    assert_eq!(all[1].sim.live_pinned_bytes(), 8);
    all[1].host_free(host);
}
