//! Which operation made the device fail? It is named where there is only one that can have, and is
//! always among those that are listed.

use std::time::Duration;

use headwater::sim::{DriverCall, Fault, Schedule, SimOpKind, SimOptions};
use headwater::{DeviceFailure, DriverError, Error, Result};

use crate::common::{
    device_buffer, pinned_buffer, poll_once, sim, simulated, stepped, until, wait,
};
use crate::kernels::{copy_u32, increment};
use crate::lost::{fail, failure_of};

fn names(failure: &DeviceFailure) -> Vec<(&'static str, u64)> {
    failure.suspects.iter().map(|suspect| (suspect.name, suspect.number)).collect()
}

#[test]
fn the_kernel_that_failed_is_named_with_its_stream_where_no_other_was_in_flight() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let mut pinned = pinned_buffer(&device, &[0u32; 64]);
    let finished = increment(&mut y)?;
    sim(&device).run_all();
    wait(finished)?;
    // What is copied from and to the host meanwhile runs no code that could do such a thing.
    y.copy_to(&mut pinned)?;
    let stream = device.stream();
    let failing = stream.in_scope(|| fail(&mut x))?;
    let copied = stream.in_scope(|| x.copy_to(&mut pinned))?;
    sim(&device).run_all();
    for wait_for in [failing, copied] {
        let failure = failure_of(wait(wait_for));
        let operation = failure.culprit().expect("one kernel was in flight");
        assert_eq!((operation.name, operation.number), ("fail", 1));
        assert!(format!("{stream:?}").contains(&format!("number: {}", operation.stream)));
        let message = failure.to_string();
        let named = format!("`fail` on stream {} failed", operation.stream);
        assert!(message.contains(&named), "{message}");
    }
    Ok(())
}

#[test]
fn where_several_kernels_were_in_flight_all_are_listed_the_oldest_of_each_stream_first()
-> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    let mut ended = increment(&mut y)?;
    sim(&device).run_all();
    until("it is known to be finished", || poll_once(&mut ended).is_ready());
    a.in_scope(|| fail(&mut x))?;
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| increment(&mut y))?;
    let last = b.in_scope(|| fail(&mut y))?;
    sim(&device).step_stream(a.as_raw());
    let failure = failure_of(wait(last));
    assert_eq!(failure.culprit(), None);
    let suspects: Vec<_> = failure.suspects.iter().map(|s| (s.name, s.number)).collect();
    assert_eq!(suspects, [("fail", 1), ("increment", 1), ("increment", 2), ("fail", 2)]);
    let message = failure.to_string();
    assert!(message.contains("one of kernel `fail` on stream "), "{message}");
    Ok(())
}

#[test]
fn the_call_that_is_told_of_a_failure_is_not_taken_for_its_cause() -> Result<()> {
    const LAUNCH_FAILED: u32 = DriverError::LAUNCH_FAILED;
    for in_flight in [false, true] {
        let device = stepped();
        let mut x = device_buffer(&device, &[0u32; 64]);
        let mut y = device_buffer(&device, &[0u32; 64]);
        if in_flight {
            device.stream().in_scope(|| increment(&mut x))?;
        }
        sim(&device).inject(Fault::of_call(DriverCall::Launch, LAUNCH_FAILED));
        let failure = failure_of(copy_u32(&x, &mut y));
        let named = failure.suspects.iter().map(|suspect| suspect.name);
        assert_eq!(named.collect::<Vec<_>>(), ["increment"][..usize::from(in_flight)]);
        assert_eq!(failure.to_string().contains("with nothing in flight"), !in_flight);
    }
    Ok(())
}

#[test]
fn the_culprit_is_listed_however_many_allocations_came_after_it() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let stream = device.stream();
    let failing = stream.in_scope(|| fail(&mut x))?;
    stream.in_scope(|| {
        for _ in 0..600 {
            drop(device.alloc::<u32>(64)?);
        }
        Ok::<_, Error>(())
    })?;
    assert_eq!(stream.in_flight(), 1);
    sim(&device).step();
    let failure = failure_of(wait(failing));
    assert_eq!(names(&failure), [("fail", 1)], "{failure}");
    Ok(())
}

#[test]
fn an_allocation_is_no_suspect_nor_is_a_call_that_was_refused() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let stream = device.stream();
    let filled = stream.in_scope(|| x.fill(1))?;
    sim(&device).inject(Fault::of_call(DriverCall::Alloc, DriverError::OUT_OF_MEMORY).always());
    assert!(stream.in_scope(|| device.alloc::<u32>(64)).is_err());
    sim(&device).inject(Fault::of_call(DriverCall::Launch, DriverError::INVALID_VALUE));
    assert!(stream.in_scope(|| increment(&mut x)).is_err());
    sim(&device).fail(DriverError::ECC_UNCORRECTABLE);
    let failure = failure_of(wait(filled));
    assert_eq!(names(&failure), [("filling device memory", 1)], "{failure}");
    assert_eq!(failure.culprit(), None, "memory that breaks is no operation's fault");
    Ok(())
}

#[test]
fn the_only_operation_of_the_device_is_named_though_its_memory_was_just_made() -> Result<()> {
    let device = stepped();
    sim(&device).inject(Fault::when_run(SimOpKind::Fill, DriverError::LAUNCH_FAILED));
    let x = device.stream().in_scope(|| device.zeros::<u32>(64))?;
    let done = device.current_stream().synchronize();
    sim(&device).step();
    drop(done);
    let failure = failure_of(wait(x.to_vec()));
    assert_eq!(
        failure.culprit().map(|culprit| culprit.name),
        Some("filling device memory"),
        "{failure}"
    );
    Ok(())
}

#[test]
fn a_fill_that_fails_is_listed_beside_the_kernels_in_flight() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    sim(&device).inject(Fault::when_run(SimOpKind::Fill, DriverError::ILLEGAL_ADDRESS));
    let (a, b) = (device.stream(), device.stream());
    let _innocent = a.in_scope(|| increment(&mut x))?;
    let filling = b.in_scope(|| y.fill(1))?;
    sim(&device).step_stream(b.as_raw());
    let failure = failure_of(wait(filling));
    assert_eq!(names(&failure), [("increment", 1), ("filling device memory", 1)], "{failure}");
    Ok(())
}

#[test]
fn what_a_query_said_is_finished_is_no_suspect() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let stream = device.stream();
    let first = stream.in_scope(|| increment(&mut x))?;
    let second = stream.in_scope(|| fail(&mut x))?;
    // Records second's event.
    drop(stream.synchronize());
    sim(&device).step();
    // The first query finds the first finished; then the kernel faults; the second query tells.
    sim(&device)
        .inject(Fault::of_call(DriverCall::EventQuery, DriverError::LAUNCH_FAILED).after(1));
    let first_is = first.is_finished();
    let failure = failure_of(wait(second));
    assert_eq!(names(&failure), [("fail", 2)], "first: {first_is:?}; {failure}");
    Ok(())
}

#[test]
fn the_oldest_that_can_have_failed_comes_first_of_each_stream() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let mut y = device_buffer(&device, &[0u32; 64]);
    let pinned = pinned_buffer(&device, &[1u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    a.in_scope(|| {
        for _ in 0..20 {
            pinned.copy_to(&mut x)?;
        }
        fail(&mut x)
    })?;
    let last = b.in_scope(|| {
        for _ in 0..11 {
            increment(&mut y)?;
        }
        increment(&mut y)
    })?;
    while sim(&device).step_stream(a.as_raw()).is_some() {}
    let failure = failure_of(wait(last));
    let position = failure.suspects.iter().position(|s| s.name == "fail");
    assert!(position.is_some_and(|p| p < 2), "{position:?}: {failure}");
    Ok(())
}

#[test]
fn the_number_of_an_operation_is_its_place_among_those_of_its_stream() -> Result<()> {
    let device = stepped();
    let mut w = device_buffer(&device, &[[0u32; 3]; 64]);
    let mut x = device_buffer(&device, &[0u32; 64]);
    let stream = device.stream();
    stream.in_scope(|| w.fill([1, 2, 3]))?; // 1
    sim(&device).inject(Fault::of_call(DriverCall::Launch, DriverError::INVALID_VALUE));
    assert!(stream.in_scope(|| increment(&mut x)).is_err()); // enqueued nothing
    let failing = stream.in_scope(|| fail(&mut x))?; // 2
    sim(&device).run_all();
    let failure = failure_of(wait(failing));
    assert_eq!(names(&failure), [("filling device memory", 1), ("fail", 2)]);
    Ok(())
}

#[test]
fn what_is_in_flight_is_listed_after_its_stream_and_device_are_gone() -> Result<()> {
    // Without modules there is nothing to close a device for.
    let options = SimOptions::new()
        .schedule(Schedule::Stepped)
        .fault(Fault::of_call(DriverCall::ModuleLoad, DriverError::NOT_SUPPORTED).always());
    let device = simulated(options);
    let sim = sim(&device).clone();
    let (a, b) = (device.stream(), device.stream());
    let faulting = b.as_raw();
    let mut x = a.in_scope(|| device.alloc::<u32>(64))?;
    let mut y = b.in_scope(|| device.alloc::<u32>(64))?;
    let innocent = a.in_scope(|| x.fill(1))?;
    b.in_scope(|| y.fill(2))?;
    sim.inject(Fault::when_run(SimOpKind::Fill, DriverError::ILLEGAL_ADDRESS));
    drop((x, y, a, b, device));
    sim.step_stream(faulting);
    let failure = failure_of(wait(innocent));
    assert_eq!((failure.culprit(), failure.suspects.len()), (None, 2), "{failure}");
    Ok(())
}

#[test]
fn a_copy_that_never_ends_is_among_what_was_in_flight() {
    let options = SimOptions::new()
        .fault(Fault::never_finishes(SimOpKind::CopyD2H))
        .stall_limit(Duration::from_millis(50));
    let device = simulated(options);
    let x = device_buffer(&device, &[1u32; 64]);
    let mut out = device.alloc_host::<u32>(64).unwrap();
    x.copy_to(&mut out).unwrap();
    let message = wait(out.read()).unwrap_err().to_string();
    assert!(message.contains("copying"), "{message}");
    assert!(!message.contains("filling") && !message.contains("nothing in flight"), "{message}");
}
