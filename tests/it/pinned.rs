//! Page-locked memory: how much there is, who gets which block, and when it goes.

mod resize;
mod vec;

use std::collections::HashMap;
use std::thread;

use headwater::sim::{DriverCall, Fault, Schedule, SimOptions};
use headwater::testing::Step;
use headwater::{
    Device, DeviceBuffer, DriverCalls, DriverError, Error, HostBuffer, HostOptions, PinnedStats,
    Result,
};

use crate::common::{
    Random, any_device, device_buffer, elements, on_gpu, pinned_buffer, poll_once, run_to_end, sim,
    simulated_with, step_at_random, stepped, until, wait, watched,
};
use crate::kernels::increment;
use crate::lost::fail;
use crate::unreturned::{device_with_a_hook, not_released};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const OUT_OF_MEMORY: u32 = DriverError::OUT_OF_MEMORY;
const INVALID_VALUE: u32 = DriverError::INVALID_VALUE;

fn limited(bytes: usize) -> Device {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    simulated_with(options, |builder| builder.pinned_limit(bytes))
}

/// A stepped device whose calls are logged.
fn logged() -> Device {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    simulated_with(options, |builder| builder.log_calls(true))
}

fn calls(device: &Device) -> DriverCalls {
    device.driver_calls().expect("counted")
}

/// In use, in flight, idle.
fn states(device: &Device) -> (usize, usize, usize) {
    let PinnedStats { in_use, in_flight, idle, .. } = device.pinned_memory();
    (in_use, in_flight, idle)
}

fn write_combined() -> HostOptions {
    HostOptions::new().write_combined(true)
}

/// Of that many bytes, which are what a download writes that has not run.
fn in_flight(device: &Device, bytes: usize) -> Result<HostBuffer<u8>> {
    let x = device.zeros::<u8>(bytes)?;
    let mut host = device.alloc_host(bytes)?;
    x.copy_to(&mut host)?;
    Ok(host)
}

/// The elements of a registered buffer, and where they were.
pub(crate) fn registered(device: &Device, len: usize) -> (HostBuffer<u32>, *const u32) {
    let elements: Vec<u32> = (0..len as u32).collect();
    let at = elements.as_ptr();
    (wait(HostBuffer::from_vec(device, elements)).expect("registered"), at)
}

/// What the tenth element is. (A transfer of all would be in pieces, each to be stepped.)
fn tenth(x: &DeviceBuffer<u32>) -> Result<u32> {
    let read = x.slice(..10)?.to_vec();
    run_to_end(&x.device());
    Ok(wait(read)?[9])
}

/// Large enough to be registered.
pub(crate) const LARGE: usize = MIB / 4;

#[test]
fn every_byte_is_in_use_in_flight_or_idle_and_all_of_them_are_counted() -> Result<()> {
    let device = stepped();
    assert_eq!(device.pinned_memory(), PinnedStats::default());
    let a = device.alloc_host::<u8>(4 * KIB)?;
    let b = in_flight(&device, 64 * KIB)?;
    assert_eq!(states(&device), (68 * KIB, 0, 0));
    drop(a);
    assert_eq!(states(&device), (64 * KIB, 0, 4 * KIB));
    drop(b);
    assert_eq!(states(&device), (0, 64 * KIB, 4 * KIB));
    sim(&device).run_all();
    assert_eq!(states(&device), (0, 0, 68 * KIB));
    let c = device.alloc_host::<u8>(60 * KIB)?;
    assert_eq!(states(&device), (64 * KIB, 0, 4 * KIB), "a block is what its class is");
    assert_eq!(wait(device.trim_pinned(0))?, 4 * KIB);
    assert_eq!(states(&device), (64 * KIB, 0, 0));
    drop(c);
    assert_eq!(wait(device.trim_pinned(0))?, 64 * KIB);
    let stats = device.pinned_memory();
    assert_eq!((stats.idle, stats.high_water, stats.limit), (0, 68 * KIB, None));
    assert_eq!(sim(&device).live_pinned_bytes(), 0);
    Ok(())
}

#[test]
fn more_than_the_limit_is_refused_with_all_the_numbers() -> Result<()> {
    let device = limited(256 * KIB);
    let _a = device.alloc_host::<u8>(128 * KIB)?;
    drop(in_flight(&device, 64 * KIB)?);
    drop(device.alloc_host::<u8>(32 * KIB)?);
    let refused = device.alloc_host::<u8>(100 * KIB);
    let Err(Error::OutOfPinnedMemory { requested, in_use, in_flight, idle, limit, cause, .. }) =
        refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((requested, limit, cause), (100 * KIB, Some(256 * KIB), None));
    assert_eq!((in_use, in_flight, idle), (128 * KIB, 64 * KIB, 32 * KIB));
    assert_eq!(device.pinned_memory().limit, Some(256 * KIB));
    assert_eq!(calls(&device).host_allocs, 3);
    Ok(())
}

#[test]
fn a_larger_block_that_is_idle_is_handed_out_where_the_limit_is_reached() -> Result<()> {
    let device = limited(128 * KIB);
    drop(device.alloc_host::<u8>(64 * KIB)?);
    let a = device.alloc_host::<u8>(64 * KIB)?;
    let b = device.alloc_host::<u8>(48 * KIB)?;
    drop((a, b));
    // Two blocks, one of 48 KiB: 16 are left.
    let c = device.alloc_host::<u8>(20 * KIB)?;
    assert_eq!(states(&device), (48 * KIB, 0, 64 * KIB), "the smallest that is large enough");
    drop(c);
    assert_eq!((calls(&device).host_allocs, calls(&device).host_frees), (2, 0));
    Ok(())
}

#[test]
fn idle_blocks_make_room_for_who_asks_again_and_another_thread_frees_them() -> Result<()> {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |b| b.pinned_limit(128 * KIB).log_calls(true));
    drop([0, 1].map(|_| device.alloc_host::<u8>(32 * KIB).expect("there is room")));
    let blocks = [0, 1].map(|_| device.alloc_host::<u8>(32 * KIB).expect("there is room"));
    drop(blocks);
    assert!(matches!(device.alloc_host::<u8>(112 * KIB), Err(Error::OutOfPinnedMemory { .. })));
    until("there is room", || device.alloc_host::<u8>(112 * KIB).is_ok());
    let log = device.call_log().expect("logged");
    let frees = log.iter().filter(|logged| matches!(logged.step, Step::HostFreed { .. }));
    let frees: Vec<_> = frees.map(|logged| logged.thread).collect();
    assert_eq!(frees.len(), 2);
    assert!(!frees.contains(&thread::current().id()), "freeing waits for kernels");
    Ok(())
}

#[test]
fn nothing_is_freed_where_that_would_not_make_room() -> Result<()> {
    let device = limited(128 * KIB);
    let _used = device.alloc_host::<u8>(64 * KIB)?;
    drop(device.alloc_host::<u8>(32 * KIB)?);
    for _ in 0..3 {
        assert!(matches!(device.alloc_host::<u8>(80 * KIB), Err(Error::OutOfPinnedMemory { .. })));
    }
    wait(device.trim_pinned(usize::MAX))?; // whatever was asked for is done by then
    assert_eq!((states(&device), calls(&device).host_frees), ((64 * KIB, 0, 32 * KIB), 0));
    Ok(())
}

#[test]
fn a_system_without_memory_to_lock_has_idle_blocks_used_or_freed() -> Result<()> {
    let device = stepped();
    drop(device.alloc_host::<u8>(64 * KIB)?);
    sim(&device).inject(Fault::of_call(DriverCall::HostAlloc, OUT_OF_MEMORY));
    drop(device.alloc_host::<u8>(16 * KIB)?);
    sim(&device).inject(Fault::of_call(DriverCall::HostAlloc, OUT_OF_MEMORY));
    let refused = device.alloc_host::<u8>(128 * KIB);
    assert!(matches!(refused, Err(Error::OutOfPinnedMemory { cause: Some(_), .. })), "{refused:?}");
    until("the idle block is freed", || calls(&device).host_frees == 1);
    until("and counted", || device.pinned_memory().idle == 0);
    device.alloc_host::<u8>(128 * KIB)?;
    assert_eq!(device.pinned_memory().high_water, 128 * KIB, "what was not made was never there");
    Ok(())
}

#[test]
fn a_trim_keeps_what_it_is_told_and_what_is_in_flight() -> Result<()> {
    let device = logged();
    let busy = in_flight(&device, 128 * KIB)?;
    let idle: Vec<_> = [16, 32, 64].map(|k| device.alloc_host::<u8>(k * KIB)).into_iter().collect();
    drop((busy, idle));
    assert_eq!(states(&device), (0, 128 * KIB, 112 * KIB));
    assert_eq!(wait(device.trim_pinned(100 * KIB))?, 16 * KIB, "no more than need be");
    assert_eq!(wait(device.trim_pinned(40 * KIB))?, 64 * KIB);
    assert_eq!(wait(device.trim_pinned(32 * KIB))?, 0);
    assert_eq!(states(&device), (0, 128 * KIB, 32 * KIB));
    sim(&device).run_all();
    assert_eq!(wait(device.trim_pinned(0))?, 160 * KIB);
    let log = device.call_log().expect("logged");
    let mut freed = log.iter().filter(|logged| matches!(logged.step, Step::HostFreed { .. }));
    assert!(freed.all(|logged| logged.thread != thread::current().id()));
    Ok(())
}

#[test]
fn a_trim_that_is_dropped_goes_on() -> Result<()> {
    let device = stepped();
    drop(device.alloc_host::<u8>(64 * KIB)?);
    drop(device.trim_pinned(0));
    until("it is freed", || device.pinned_memory().idle == 0);
    assert_eq!(calls(&device).host_frees, 1);
    Ok(())
}

/// On a GPU the thread that frees waits for the kernel, and nobody else does.
fn a_trim_beside_a_kernel(device: &Device) -> Result<()> {
    let mut x = device_buffer(device, &[0u32; 64]);
    let mut out = pinned_buffer(device, &[0u32; 64]);
    drop(device.alloc_host::<u8>(3 * MIB)?);
    let stream = device.stream();
    let gate = headwater::testing::Gate::new(device)?;
    stream.in_scope(|| increment(&mut x))?;
    wait(stream.synchronize())?; // a first launch can wait for what runs
    gate.hold(&stream)?;
    stream.in_scope(|| increment(&mut x))?;
    let trim = device.trim_pinned(0);
    let copied = stream.in_scope(|| x.copy_to(&mut out))?;
    assert!(!copied.is_finished()?, "none of the calls so far has waited for it");
    gate.open();
    assert!(!gate.gave_up());
    assert!(wait(trim)? >= 3 * MIB);
    assert_eq!(*wait(out.read())?, [2; 64]);
    Ok(())
}

#[test]
fn a_trim_beside_a_running_kernel_holds_up_nobody() -> Result<()> {
    let device = any_device();
    watched(move || a_trim_beside_a_kernel(&device))
}

#[test]
#[ignore = "needs a GPU"]
fn a_trim_beside_a_running_kernel_holds_up_nobody_on_a_gpu() -> Result<()> {
    assert!(on_gpu(), "set HEADWATER_REQUIRE_GPU=1");
    let device = any_device();
    watched(move || a_trim_beside_a_kernel(&device))
}

#[test]
fn a_block_is_used_again_for_what_is_of_its_class() -> Result<()> {
    let device = stepped();
    for bytes in [MIB - 5, MIB, MIB - 100 * KIB] {
        drop(device.alloc_host::<u8>(bytes)?);
    }
    assert_eq!(calls(&device).host_allocs, 1);
    drop(device.alloc_host::<u8>(MIB / 2)?);
    assert_eq!(calls(&device).host_allocs, 2, "half of a block is not worth a larger one");
    Ok(())
}

#[test]
fn write_combined_blocks_and_cacheable_ones_are_never_taken_for_each_other() -> Result<()> {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |b| b.pinned_limit(128 * KIB).log_calls(true));
    let mut x = device.alloc::<u8>(64 * KIB)?;
    let mut host = device.alloc_host_with::<u8>(64 * KIB, write_combined())?;
    wait(host.write())?.fill(7);
    x.copy_from(&host)?;
    run_to_end(&device);
    assert_eq!(elements(&x)[..3], [7; 3]);
    drop(host);
    wait(device.synchronize())?;
    drop(device.alloc_host::<u8>(40 * KIB)?);
    drop(device.alloc_host_with::<u8>(64 * KIB, HostOptions::new())?);
    // There is no room for another cacheable block, and a write-combined one would be large enough.
    let _all = [device.alloc_host::<u8>(64 * KIB), device.alloc_host::<u8>(4 * KIB)];
    drop(device.alloc_host_with::<u8>(64 * KIB, write_combined()));
    // Whose memory a block is from then on is told with the place in this test.
    let (mut kinds, mut of_line) = (HashMap::new(), HashMap::new());
    for logged in device.call_log().expect("logged") {
        match logged.step {
            Step::HostAllocated { ptr, write_combined, .. } => {
                kinds.insert(ptr, write_combined);
            }
            Step::Owned { ptr, made_at, .. } if kinds.contains_key(&ptr) => {
                let (kind, line) = (kinds[&ptr], made_at.line());
                assert_eq!(*of_line.entry(line).or_insert(kind), kind, "line {line}");
            }
            _ => {}
        }
    }
    assert!(of_line.values().any(|&kind| kind) && of_line.values().any(|&kind| !kind));
    Ok(())
}

#[test]
fn a_block_that_the_driver_does_not_take_is_told_counted_and_tried_again() -> Result<()> {
    let (device, sim, told) = device_with_a_hook();
    drop(device.alloc_host::<u8>(64 * KIB)?);
    sim.inject(Fault::of_call(DriverCall::HostFree, INVALID_VALUE));
    assert_eq!(wait(device.trim_pinned(0))?, 0);
    let errors = told.take();
    let [error] = &*errors else { panic!("{errors:?}") };
    assert_eq!(not_released(error), ("65536 bytes of pinned memory", "cuMemFreeHost"));
    let stats = device.pinned_memory();
    assert_eq!((stats.idle, stats.unreleased), (0, 64 * KIB));
    drop(device.alloc_host::<u8>(64 * KIB)?);
    assert_eq!(calls(&device).host_allocs, 2, "it is not used again");
    assert_eq!(device.pinned_memory().high_water, 128 * KIB);
    assert_eq!(wait(device.trim_pinned(64 * KIB))?, 64 * KIB);
    let stats = device.pinned_memory();
    assert_eq!((stats.idle, stats.unreleased), (64 * KIB, 0));
    assert_eq!(sim.live_pinned_bytes(), 64 * KIB as u64);
    assert_eq!((wait(device.trim_pinned(0))?, sim.live_pinned_bytes()), (64 * KIB, 0));
    Ok(())
}

#[test]
fn memory_that_is_not_unregistered_when_its_buffer_goes_is_told_and_stays() {
    let (device, sim, told) = device_with_a_hook();
    let (buffer, _) = registered(&device, LARGE);
    sim.inject(Fault::of_call(DriverCall::HostUnregister, INVALID_VALUE));
    drop(buffer);
    until("it is told", || told.count() == 1);
    let errors = told.take();
    let expected = ("1048576 bytes of registered memory", "cuMemHostUnregister");
    assert_eq!(not_released(&errors[0]), expected);
    assert_eq!(device.pinned_memory().registered, MIB);
}

#[test]
fn on_a_lost_device_nothing_hangs_and_nothing_is_freed() -> Result<()> {
    let device = stepped();
    let (kept, at) = registered(&device, LARGE);
    let (dropped, _) = registered(&device, LARGE);
    let mut y = device_buffer(&device, &[1u32; 64]);
    let mut x = device.alloc::<u32>(LARGE)?;
    x.copy_from(&dropped)?;
    drop(device.alloc_host::<u8>(64 * KIB)?);
    drop(dropped);
    let other = device.stream();
    let calls_before = calls(&device);
    let failed = other.in_scope(|| fail(&mut y))?;
    while sim(&device).step_stream(other.as_raw()).is_some() {}
    assert!(matches!(wait(failed), Err(Error::DeviceLost(_))));
    assert!(matches!(wait(device.trim_pinned(0)), Err(Error::DeviceLost(_))));
    let refused = wait(HostBuffer::from_vec(&device, vec![1u32; LARGE])).expect_err("lost");
    assert!(matches!(refused.error, Error::DeviceLost(_)));
    assert_eq!(refused.elements.len(), LARGE);
    let refused = wait(kept.into_vec()).expect_err("lost");
    assert!(matches!(refused.error, Error::DeviceLost(_)));
    assert_eq!(refused.buffer.try_read()?.as_ptr(), at);
    let mut host = refused.buffer;
    assert!(matches!(wait(host.resize(10)), Err(Error::DeviceLost(_))));
    assert_eq!(host.len(), LARGE);
    assert_eq!(calls(&device).host_frees, calls_before.host_frees);
    assert_eq!(calls(&device).host_registers, 2);
    Ok(())
}

/// By the calls at the seam: whatever a program does, each block ends once, as it began.
#[test]
fn ten_thousand_uses_free_every_block_once_and_by_its_own_call() -> Result<()> {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |b| b.pinned_limit(8 * MIB).log_calls(true));
    let simulator = sim(&device).clone();
    let mut random = Random::new(7);
    let mut x = device.zeros::<u8>(2 * MIB)?;
    let streams = [device.stream(), device.stream()];
    let mut buffers: Vec<HostBuffer<u8>> = Vec::new();
    let mut trims = Vec::new();
    for _ in 0..10_000 {
        let bytes = 1 + random.below(64 * KIB);
        let one = random.below(buffers.len().max(1));
        match random.below(12) {
            0..3 => {
                let kind = HostOptions::new().write_combined(random.below(4) == 0);
                match device.alloc_host_with(bytes, kind) {
                    Ok(buffer) => buffers.push(buffer),
                    Err(Error::OutOfPinnedMemory { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            3..6 if one < buffers.len() => {
                let host = &mut buffers[one];
                let len = host.len();
                let stream = &streams[random.below(2)];
                let copied = stream.in_scope(|| x.slice(..len)?.copy_to(&mut *host));
                assert!(matches!(copied, Ok(_) | Err(Error::QueueFull { .. })), "{copied:?}");
            }
            6..8 if one < buffers.len() => drop(buffers.swap_remove(one)),
            8 => drop(step_at_random(&simulator, &mut random)),
            9 => while step_at_random(&simulator, &mut random) {},
            10 if random.below(20) == 0 => trims.push(device.trim_pinned(random.below(MIB))),
            10 if one < buffers.len() => {
                let mut resize = buffers[one].resize(bytes);
                let _ = poll_once(&mut resize);
            }
            11 if random.below(20) == 0 => {
                let future = HostBuffer::from_vec(&device, vec![3u8; MIB + bytes]);
                if random.below(2) == 0 {
                    buffers.push(wait(future).map_err(|e| e.error)?);
                }
            }
            _ => {}
        }
        if buffers.len() > 24 {
            buffers.swap_remove(random.below(24));
        }
    }
    buffers.clear();
    finish(&device, &mut x)?;
    for trim in trims {
        wait(trim)?;
    }
    until("all are unregistered", || device.pinned_memory().registered == 0);
    let stats = device.pinned_memory();
    assert_eq!((stats.in_use, stats.in_flight, stats.unreleased), (0, 0, 0));
    assert_eq!(simulator.live_pinned_bytes(), stats.idle as u64);
    assert!(stats.high_water <= 8 * MIB, "{stats:?}");
    assert_eq!(simulator.violations(), []);
    let log_of = || device.call_log().expect("logged");
    wait(device.trim_pinned(0))?;
    let mut alive: HashMap<u64, bool> = HashMap::new();
    for logged in log_of().iter().filter(|logged| logged.refused.is_none()) {
        match logged.step {
            Step::HostAllocated { ptr, .. } => assert_eq!(alive.insert(ptr, false), None),
            Step::HostRegistered { ptr, .. } => assert_eq!(alive.insert(ptr, true), None),
            Step::HostFreed { ptr, .. } => assert_eq!(alive.remove(&ptr), Some(false)),
            Step::HostUnregistered { ptr, .. } => assert_eq!(alive.remove(&ptr), Some(true)),
            _ => {}
        }
    }
    assert_eq!(alive, HashMap::new());
    assert_eq!(simulator.live_pinned_bytes(), 0);
    Ok(())
}

/// Sees to it that all is finished, and known to be.
fn finish(device: &Device, x: &mut DeviceBuffer<u8>) -> Result<()> {
    x.fill(0)?;
    sim(device).run_all();
    wait(device.synchronize())
}
