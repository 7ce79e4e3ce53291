//! What the calls of a program were: how many waits, and whether they leave a race.

use headwater::testing::{WaitCount, wait_count};
use headwater::{Device, Result};

use super::device;

/// The device, with someone looking on.
pub(crate) fn open() -> Result<Device> {
    device::open_with(|builder| builder.log_calls(true).race_check(true))
}

/// Tells what came of the device's work so far, and asserts that it is in order and that no wait of
/// it is one too many.
pub(crate) fn verdict(device: &Device) -> WaitCount {
    let (Some(log), Some(races)) = (device.call_log(), device.races()) else {
        panic!("nobody looks on");
    };
    let waits = wait_count(&log);
    println!("waits on the device: {} issued, {} is the minimum", waits.issued, waits.needed);
    println!("race checker: {} races", races.len());
    for race in &races {
        println!("{race}");
    }
    assert!(races.is_empty());
    assert_eq!(waits.issued, waits.needed);
    waits
}
