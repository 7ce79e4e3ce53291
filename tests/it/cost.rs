//! What is not asked for costs nothing: no event, no query, no thread that runs.

use std::time::{Duration, Instant};

use headwater::{Device, Result};

use crate::common::{
    device_buffer, elements, own_device, own_device_with, poll_once, sim, stepped, until, wait,
};
use crate::kernels::increment;

/// Event records of `launches` launches that nobody waits for, on memory that one stream uses, and
/// those of awaiting the last.
fn records(launches: usize) -> Result<(u64, u64)> {
    let device = own_device();
    let stream = device.stream();
    let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
    wait(stream.synchronize())?;
    let records = || device.driver_calls().expect("counted").event_records;

    let before = records();
    for _ in 0..launches {
        stream.in_scope(|| increment(&mut x))?;
    }
    let unasked = records() - before;
    wait(stream.synchronize())?;
    let asked = records() - before - unasked;
    assert_eq!(elements(&x), [launches as u32; 64]);
    Ok((unasked, asked))
}

#[test]
fn launches_that_nobody_waits_for_cost_no_event() -> Result<()> {
    assert_eq!(records(15)?, (0, 1));
    Ok(())
}

#[test]
fn of_a_long_chain_that_nobody_waits_for_one_launch_in_16_has_an_event() -> Result<()> {
    let (unasked, asked) = records(160)?;
    assert!(unasked <= 10, "{unasked} records");
    assert!(asked <= 1, "{asked} more");
    Ok(())
}

#[test]
fn completions_awaited_out_of_order_take_one_record_each_at_most() -> Result<()> {
    let device = own_device();
    let stream = device.stream();
    let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
    wait(stream.synchronize())?;
    let before = device.driver_calls().expect("counted");
    let held = (0..8).map(|_| stream.in_scope(|| increment(&mut x))).collect::<Result<Vec<_>>>()?;
    for completion in held.into_iter().rev() {
        wait(completion)?;
    }
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!((calls.launches, calls.event_records, calls.event_creates), (8, 8, 0));
    Ok(())
}

#[test]
fn events_are_used_again() -> Result<()> {
    let device = own_device();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let before = device.driver_calls().expect("counted");
    for _ in 0..500 {
        wait(increment(&mut x)?)?;
    }
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!((calls.event_records, calls.event_creates), (500, 0));
    Ok(())
}

/// State and number of times it went to sleep of the reactor's thread.
#[cfg(target_os = "linux")]
fn reactor_thread(device: &Device) -> Option<(String, u64)> {
    let name = format!("headwater-{}", device.number());
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() != name {
            continue;
        }
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim_start_matches(':').trim().to_owned())
        };
        let sleeps = field("voluntary_ctxt_switches")?.parse().ok()?;
        return Some((field("State")?, sleeps));
    }
    None
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_runs_and_nothing_is_asked_when_idle() -> Result<()> {
    // So that waiting takes the reactor's thread.
    let device = own_device_with(|builder| builder.inline_spin(Duration::ZERO));
    assert_eq!(reactor_thread(&device), None, "nobody has waited yet");
    let mut x = device_buffer(&device, &[0u32; 64]);
    // What has ended by its first poll takes no thread.
    until("a wait that takes the thread", || {
        let done = (0..16).map(|_| increment(&mut x)).collect::<Result<Vec<_>>>();
        wait(done.expect("enqueuing").pop().expect("there are some")).expect("a wait");
        reactor_thread(&device).is_some()
    });
    let held = increment(&mut x)?;
    wait(device.current_stream().synchronize())?;
    wait(device.stream().synchronize())?;

    // The last wait has been answered; the thread may take a moment to see that nobody is left.
    let state = || (reactor_thread(&device), device.driver_calls());
    let mut last = state();
    until("parked", || {
        std::thread::sleep(Duration::from_millis(50));
        let now = state();
        std::mem::replace(&mut last, now.clone()) == now
    });
    let before = state();
    std::thread::sleep(Duration::from_secs(1)); // what is measured, not what is waited for
    assert_eq!(state(), before, "it woke up, or asked");
    let (thread, _) = before;
    assert!(thread.is_some_and(|(state, _)| state.starts_with('S')));
    drop(held);
    Ok(())
}

/// A look is how the loss of a device is heard of.
#[test]
fn a_device_is_looked_at_every_few_milliseconds_however_long_its_work_is_expected_to_take()
-> Result<()> {
    const MOST_OF_IT: Duration = Duration::from_millis(80);
    const REST: Duration = Duration::from_millis(20);
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let queries = || device.driver_calls().expect("counted").event_queries;
    let mut rounds = Vec::new();
    for _ in 0..14 {
        let mut done = increment(&mut x)?;
        assert!(poll_once(&mut done).is_pending());
        let (before, start) = (queries(), Instant::now());
        std::thread::sleep(MOST_OF_IT);
        rounds.push((queries() - before, start.elapsed()));
        std::thread::sleep(REST);
        sim(&device).step();
        wait(done)?;
    }
    // By then the stream knows well that it takes so long.
    let known = &rounds[10..];
    // Looks at twice the time waited, from 5 ms on, would be 5 at most. A thread that gets no
    // processor looks less often.
    assert!(known.iter().any(|(looks, _)| *looks >= 10), "{known:?}");
    let most = |elapsed: Duration| elapsed.as_millis() as u64 / 5 + 8;
    assert!(known.iter().any(|(looks, elapsed)| *looks <= most(*elapsed)), "{known:?}");
    Ok(())
}

#[test]
fn freeing_what_several_streams_used_needs_few_events() -> Result<()> {
    let device = own_device_with(|builder| builder.keep_memory(false));
    let (a, b) = (device.stream(), device.stream());
    let mut x = device.zeros::<u32>(64)?;
    let round = |x: &mut headwater::DeviceBuffer<u32>| {
        for _ in 0..200 {
            let mut y = a.in_scope(|| device.alloc::<u32>(64))?;
            b.in_scope(|| y.copy_from(x))?;
            a.in_scope(|| x.copy_from(&y))?;
            drop(y);
            wait(a.synchronize())?;
            wait(b.synchronize())?;
        }
        Ok::<_, headwater::Error>(())
    };
    for _ in 0..8 {
        round(&mut x)?;
    }
    let before = device.driver_calls().expect("counted");
    for _ in 0..8 {
        round(&mut x)?;
    }
    let calls = device.driver_calls().expect("counted").since(&before);
    assert_eq!(calls.frees, 1_600);
    assert_eq!(calls.event_creates, 0, "events of the stream that nobody waits for come back");
    Ok(())
}
