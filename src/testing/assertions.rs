//! Devices to test on, and what to assert of them.

use std::fmt::Write;

use super::trial;
use crate::device::Device;
use crate::sim::{SimOptions, SimSpan, Simulator};

/// A simulated device that runs everything as soon as it can, checks for races, counts calls and logs
/// them: for [`assert_no_races`], [`waits`] and [`wait_count`](super::wait_count()).
///
/// It is a [`Device::builder`] with `simulated()`, `race_check(true)`, `count_driver_calls(true)`,
/// `log_calls(true)` and `single_stream(false)`, whatever the environment says. The log grows with every
/// call: where a test makes millions, open one without it.
///
/// # Panics
///
/// It cannot be opened: the machine has no memory for it.
#[track_caller]
pub fn device() -> Device {
    device_with(SimOptions::new())
}

/// The same with other options: a schedule, costs, memory, faults.
///
/// ```
/// use headwater::sim::{Schedule, SimOptions};
/// use headwater::testing;
///
/// let device = testing::device_with(SimOptions::new().schedule(Schedule::Stepped));
/// let mut x = device.alloc::<u32>(100)?;
/// let mut filled = x.fill(7)?;
/// assert!(!filled.is_finished()?); // nothing runs before the test says so
/// device.simulator().map(|simulator| simulator.run_all());
/// assert!(filled.is_finished()?);
/// # Ok::<_, headwater::Error>(())
/// ```
///
/// # Panics
///
/// As [`device()`].
#[track_caller]
pub fn device_with(options: SimOptions) -> Device {
    match trial::device(options).log_calls(true).open() {
        Ok(device) => device,
        Err(error) => panic!("a simulated device was not opened: {error}"),
    }
}

/// Asserts that no race was found on the device so far.
///
/// # Panics
///
/// With the report of each race; or the device was opened without
/// [`race_check`](crate::DeviceBuilder::race_check).
#[track_caller]
pub fn assert_no_races(device: &Device) {
    let Some(races) = device.races() else {
        panic!("the device was opened without `race_check(true)`");
    };
    if !races.is_empty() {
        let reports: String = races.iter().map(|race| format!("\n\n{race}")).collect();
        let count =
            if races.len() == 1 { "a race".to_owned() } else { format!("{} races", races.len()) };
        panic!("{count} on the device:{reports}");
    }
}

/// Asserts that the device was used correctly so far: none of what
/// [`violations`](Simulator::violations) tells.
///
/// # Panics
///
/// With each violation; or the device is not simulated.
#[track_caller]
pub fn assert_no_violations(device: &Device) {
    let violations = simulator(device).violations();
    assert!(violations.is_empty(), "the device was used wrongly: {violations:#?}");
}

/// Runs what is still to be run, gives to the driver what is kept for reuse, then asserts that no device memory is allocated.
///
/// Page-locked memory is not looked at: the device keeps what is given back, for reuse. Nor is
/// anything of a device that was lost, which takes nothing back: that passes.
///
/// # Panics
///
/// Some is, or what would free it cannot run: the message says who waits for whom. Or the device is not
/// simulated.
#[track_caller]
pub fn assert_all_freed(device: &Device) {
    let simulator = simulator(device);
    finish(simulator);
    let core = device.core();
    // What is kept for reuse is no buffer's. A device that was lost keeps it. Events that were not recorded yet are by the
    // first turn, and reached by the second.
    for _ in 0..2 {
        if core.memory().release_idle(core, u64::MAX).is_ok() {
            finish(simulator);
        }
    }
    let bytes = simulator.live_device_bytes();
    if bytes == 0 || simulator.has_failed() || device.core().reactor().check().is_err() {
        return;
    }
    let held = simulator.stuck().map_or(String::new(), |stuck| format!("; {stuck}"));
    panic!("{bytes} bytes of device memory are still allocated (in units of 256){held}");
}

/// Runs `code`, and counts the waits on the device that it had streams make (`cuStreamWaitEvent`): the
/// library places one where two operations on different streams conflict, and nowhere else.
///
/// Waits that other threads have made meanwhile are among them.
///
/// # Panics
///
/// The device was opened without [`count_driver_calls`](crate::DeviceBuilder::count_driver_calls).
#[track_caller]
pub fn waits<R>(device: &Device, code: impl FnOnce() -> R) -> (R, u64) {
    let counted = device.driver_calls();
    let Some(before) = counted else {
        panic!("the device was opened without `count_driver_calls(true)`");
    };
    let result = code();
    let after = device.driver_calls().unwrap_or(before);
    (result, after.since(&before).stream_waits)
}

/// Asserts that an operation of the one name was running on the device, in virtual time, while one of
/// the other name was. What other devices of its machine ran does not count.
///
/// A kernel's name is that of its function; the others are `copy_h2d`, `copy_d2h`, `copy_d2d`, `copy_rows`,
/// `copy_planes` and `fill`, as in [`SimSpan::name`]. What is still to be run is run first.
///
/// A launch costs the host 3 us of virtual time, as it does in truth, so a kernel of two
/// microseconds has ended before the next one is launched: it never overlaps, however many streams
/// there are. Test with the sizes of the real thing, or have every kernel take longer:
/// [`CostModel::kernel_minimum_ns`](crate::sim::CostModel::kernel_minimum_ns), by [`device_with`].
///
/// Assert it of work that was enqueued before the host first waited for the device, or inside
/// [`Explore`](super::Explore). Elsewhere the times are not the same on each run: the host, which goes on once it has
/// seen an end, sees it now sooner and now later, and enqueues the next operation then.
///
/// # Panics
///
/// None of them did, or none has run: the message lists when each was running, and says what can be the
/// reason. Or the device is not simulated.
#[track_caller]
pub fn assert_overlap(device: &Device, one: &str, other: &str) {
    let (ones, others) = named(device, one, other);
    if meeting(&ones, &others).is_none() {
        let (listed, why) = (list(&ones, &others), why_none(&ones, &others));
        panic!("no `{one}` ran beside a `{other}`:{listed}\n({why})");
    }
}

/// Asserts that no operation of the one name was running, in virtual time, while one of the other
/// name was: as where one needs what the other writes. See [`assert_overlap`].
///
/// # Panics
///
/// Two of them did, or there is a name of which none has run. Or the device is not simulated.
#[track_caller]
pub fn assert_no_overlap(device: &Device, one: &str, other: &str) {
    let (ones, others) = named(device, one, other);
    if let Some((first, second)) = meeting(&ones, &others) {
        let (first, second) = (line(first), line(second));
        panic!("a `{one}` ran beside a `{other}`:{first}{second}");
    }
}

/// The operations of each name that have run.
#[track_caller]
fn named(device: &Device, one: &str, other: &str) -> (Vec<SimSpan>, Vec<SimSpan>) {
    let simulator = simulator(device);
    finish(simulator);
    // The timeline is the machine's, which may have other devices.
    let mut spans = simulator.timeline();
    spans.retain(|span| simulator.device().is_none_or(|device| device == span.device));
    let of = |name: &str| -> Vec<_> { spans.iter().filter(|s| s.name == name).cloned().collect() };
    let found = (of(one), of(other));
    for (name, found) in [(one, &found.0), (other, &found.1)] {
        if found.is_empty() {
            let mut names: Vec<_> = spans.iter().map(|span| span.name).collect();
            names.sort_unstable();
            names.dedup();
            panic!("no `{name}` has run on the device; there are {names:?}");
        }
    }
    found
}

/// The first two that were running at the same time.
fn meeting<'a>(ones: &'a [SimSpan], others: &'a [SimSpan]) -> Option<(&'a SimSpan, &'a SimSpan)> {
    let meet = |a: &SimSpan, b: &SimSpan| a.id != b.id && a.start < b.end && b.start < a.end;
    ones.iter().find_map(|one| Some((one, others.iter().find(|other| meet(one, other))?)))
}

/// What can be the reason that none of them met.
fn why_none(ones: &[SimSpan], others: &[SimSpan]) -> &'static str {
    const LAUNCH_NS: u64 = 3_000;
    let mut all: Vec<_> = ones.iter().chain(others).collect();
    if all.iter().all(|span| span.stream == all[0].stream) {
        return "all of them are on one stream, which runs one at a time";
    }
    all.sort_by_key(|span| (span.start, span.id));
    let same_name = ones[0].name == others[0].name;
    let mut pairs = all.windows(2).filter(|pair| same_name || pair[0].name != pair[1].name);
    // A long one that is still the first of two has not ended for being short.
    match pairs.all(|pair| pair[0].end - pair[0].start < LAUNCH_NS) {
        true => {
            "what takes less than 3 us ends before the host has launched the next: see `assert_overlap` for \
             how to have it take longer"
        }
        false => {
            "one waits for what another writes, or the host has enqueued the later one when the earlier had \
             ended, since it waited for the device in between: see `assert_overlap`"
        }
    }
}

fn list(ones: &[SimSpan], others: &[SimSpan]) -> String {
    /// Of each name.
    const LISTED: usize = 20;
    let shown = ones.iter().take(LISTED).chain(others.iter().take(LISTED));
    let mut lines: String = shown.map(line).collect();
    let hidden = ones.len().saturating_sub(LISTED) + others.len().saturating_sub(LISTED);
    if hidden > 0 {
        let _ = write!(lines, "\n  ... and {hidden} more");
    }
    lines
}

fn line(span: &SimSpan) -> String {
    let SimSpan { name, stream, start, end, .. } = span;
    let (start, end) = (*start as f64 / 1e3, *end as f64 / 1e3);
    format!("\n  {start:10.1} to {end:.1} us: `{name}` on stream {stream}")
}

#[track_caller]
fn simulator(device: &Device) -> &Simulator {
    match device.simulator() {
        Some(simulator) => simulator,
        None => panic!("a device that is not simulated does not tell"),
    }
}

/// Runs all that can run.
fn finish(simulator: &Simulator) {
    simulator.run_all();
    simulator.settle();
}
