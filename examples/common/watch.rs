//! What the calls of a program were: how many waits, and whether they leave a race.

use headwater::testing::{WaitCount, wait_count};
use headwater::{Device, Result};

use super::device;

/// The device, with someone looking on.
pub(crate) fn open() -> Result<Device> {
    device::open_with(|builder| builder.log_calls(true).race_check(true))
}

/// Tells what came of the device's work so far, and why there are so many waits; asserts that it is in
/// order and that no wait of it is one too many.
pub(crate) fn verdict(device: &Device, why: &str) -> WaitCount {
    let (Some(log), Some(races)) = (device.call_log(), device.races()) else {
        panic!("nobody looks on");
    };
    let waits = wait_count(&log);
    let why = if device::has_many_streams(device) { why } else { "all on one stream" };
    println!(
        "waits of a stream for another: {} issued, {} is the minimum ({why})",
        waits.issued, waits.needed
    );
    println!("race checker: {} races", races.len());
    for race in &races {
        println!("{race}");
    }
    assert!(races.is_empty());
    assert_eq!(waits.issued, waits.needed);
    waits
}
