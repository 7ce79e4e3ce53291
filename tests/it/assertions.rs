//! What `headwater::testing` counts and asserts.

use headwater::sim::{Schedule, SimMachine, SimOptions};
use headwater::testing::{self, Explore, Gate};
use headwater::{Device, DeviceBuilder, Result};

use crate::common::{own_device, sim, step_through, wait};
use crate::kernels::{copy_u32, delay, increment};
use crate::testing::{busy_program, report};

#[test]
fn waits_on_the_device_are_counted() -> Result<()> {
    let device = own_device();
    let (a, b) = (device.stream(), device.stream());
    let gate = Gate::new(&device)?;
    gate.hold(&a)?; // or it may be known to be finished
    let mut x = a.in_scope(|| device.zeros::<u32>(64))?;
    let mut y = b.in_scope(|| device.alloc::<u32>(64))?;
    let (again, waits) = testing::waits(&device, || a.in_scope(|| increment(&mut x)));
    again?;
    assert_eq!(waits, 0, "on one stream");
    let (copied, waits) = testing::waits(&device, || b.in_scope(|| copy_u32(&x, &mut y)));
    copied?;
    assert_eq!(waits, 1, "reads what another stream writes");
    assert!(!gate.gave_up());
    gate.open();
    wait(b.synchronize())
}

#[test]
fn overlap_is_asserted_in_virtual_time() -> Result<()> {
    const LONG: u64 = 50_000;
    let device = testing::device();
    let (a, b) = (device.stream(), device.stream());
    let mut x = a.in_scope(|| device.zeros::<u32>(64))?;
    let mut y = b.in_scope(|| device.zeros::<u32>(64))?;
    let gate = Gate::new(&device)?;
    [&a, &b].into_iter().try_for_each(|stream| gate.hold(stream).map(drop))?;
    a.in_scope(|| delay(&mut x, LONG))?;
    b.in_scope(|| increment(&mut y))?;
    gate.open();
    testing::assert_overlap(&device, "delay", "increment");
    testing::assert_no_overlap(&device, "fill", "increment");
    let message = report(|| testing::assert_no_overlap(&device, "delay", "increment"));
    assert!(message.contains("ran beside") && message.contains("us: `increment` on"), "{message}");
    let message = report(|| testing::assert_overlap(&device, "fill", "increment"));
    assert!(message.contains("no `fill` ran beside"), "{message}");
    let message = report(|| testing::assert_overlap(&device, "dely", "increment"));
    assert!(message.contains(r#"["delay", "fill", "gate", "increment"]"#), "{message}");
    Ok(())
}

#[test]
fn what_did_not_overlap_is_told_with_the_reason() -> Result<()> {
    const LONG: u64 = 50_000;
    let on_one = testing::device();
    let (mut x, mut y) = (on_one.zeros::<u32>(64)?, on_one.zeros::<u32>(64)?);
    delay(&mut x, LONG)?;
    increment(&mut y)?;
    let message = report(|| testing::assert_overlap(&on_one, "delay", "increment"));
    assert!(message.contains("on one stream"), "{message}");

    let [short, needed] = [testing::device(), testing::device()];
    for (device, first) in [(&short, 100), (&needed, LONG)] {
        let (a, b) = (device.stream(), device.stream());
        let mut x = a.in_scope(|| device.zeros::<u32>(64))?;
        a.in_scope(|| delay(&mut x, first))?;
        b.in_scope(|| increment(&mut x))?;
    }
    let message = report(|| testing::assert_overlap(&needed, "delay", "increment"));
    assert!(message.contains("what another writes") && !message.contains("less than"), "{message}");
    let message = report(|| testing::assert_overlap(&short, "delay", "increment"));
    assert!(message.contains("less than 3 us") && !message.contains("writes"), "{message}");
    Ok(())
}

/// A stream writes buffers that another reads.
fn share(device: &Device) -> Result<()> {
    let (a, b) = (device.stream(), device.stream());
    let mut x = a.in_scope(|| device.zeros::<u32>(64))?;
    let mut y = b.in_scope(|| device.alloc::<u32>(64))?;
    for _ in 0..4 {
        a.in_scope(|| increment(&mut x))?;
        b.in_scope(|| copy_u32(&x, &mut y))?;
        b.in_scope(|| copy_u32(&x, &mut y))?;
    }
    Ok(())
}

#[test]
fn a_lost_wait_changes_nothing_of_how_many_are_needed() -> Result<()> {
    let counted = |lost: Option<u64>| {
        let options = SimOptions::new().schedule(Schedule::Stepped);
        let builder =
            Device::builder().simulated_with(options).single_stream(false).log_calls(true);
        let device = lost.into_iter().fold(builder, DeviceBuilder::lose_wait).open()?;
        share(&device)?;
        let counted = testing::wait_count(&device.call_log().expect("logged"));
        sim(&device).run_all();
        Ok(counted)
    };
    let whole = counted(None)?;
    assert!(whole.issued >= 7 && whole.needed == whole.issued, "{whole}");
    for lost in 0..whole.issued {
        assert_eq!(counted(Some(lost))?, whole, "wait {lost}");
    }
    Ok(())
}

#[test]
fn inside_of_explore_as_many_waits_are_issued_as_are_needed() {
    let explore = Explore::new().seeds(0..30).settings(|builder| builder.log_calls(true));
    explore.run(async |device: Device| -> Result<()> {
        busy_program(device.clone()).await?;
        share(&device)?;
        device.synchronize().await?;
        let waits = testing::wait_count(&device.call_log().expect("logged"));
        assert_eq!(waits.issued, waits.needed);
        Ok(())
    });
}

#[test]
fn a_device_to_test_on_tells_its_races_calls_and_log() {
    let device = testing::device();
    assert!(device.races().is_some() && device.driver_calls().is_some());
    assert!(device.call_log().is_some_and(|log| !log.is_empty()));
}

#[test]
fn a_device_is_asserted_to_be_clean() -> Result<()> {
    let device = testing::device();
    let mut x = device.zeros::<u32>(64)?;
    wait(increment(&mut x)?)?;
    testing::assert_no_races(&device);
    testing::assert_no_violations(&device);
    let message = report(|| testing::assert_all_freed(&device));
    assert!(message.contains("256 bytes"), "{message}");
    drop(x);
    testing::assert_all_freed(&device);
    Ok(())
}

#[test]
fn races_are_shown_by_the_assertion_that_there_are_none() -> Result<()> {
    let device = Device::builder().simulated().race_check(true).lose_wait(0).open()?;
    let (a, b) = (device.stream(), device.stream());
    let mut x = a.in_scope(|| device.zeros::<u32>(64))?;
    a.in_scope(|| increment(&mut x))?;
    b.in_scope(|| increment(&mut x))?;
    step_through(&device);
    let message = report(|| testing::assert_no_races(&device));
    assert!(
        message.starts_with("a race on the device:") && message.contains("missing:"),
        "{message}"
    );
    let unchecked = Device::builder().simulated().open()?;
    assert!(report(|| testing::assert_no_races(&unchecked)).contains("race_check"));
    Ok(())
}

#[test]
fn overlap_is_asserted_of_the_device_s_own_operations() -> Result<()> {
    let machine = SimMachine::new(2, SimOptions::new())?;
    let open = |ordinal| Device::builder().simulated_on(&machine, ordinal).open();
    let (a, b) = (open(0)?, open(1)?);
    let (mut x, mut y) = (a.zeros::<u32>(64)?, b.zeros::<u32>(64)?);
    delay(&mut x, 100_000)?;
    increment(&mut y)?;
    let message = report(|| testing::assert_overlap(&a, "delay", "increment"));
    assert!(
        message.contains(r#"no `increment` has run on the device; there are ["delay""#),
        "{message}"
    );
    Ok(())
}
