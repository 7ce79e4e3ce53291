//! Which device an example runs on.

use headwater::{Device, Result};

/// The device that `HEADWATER_DEVICE` names. Where it is not set and there is no GPU: a simulated
/// device, so that the examples run anywhere. A program of your own would not fall back.
pub(crate) fn open() -> Result<Device> {
    let device = match Device::from_env() {
        Err(error) if std::env::var_os("HEADWATER_DEVICE").is_none() => {
            println!("no GPU here, so this runs on the simulated device ({error})");
            Device::simulated()?
        }
        opened => opened?,
    };
    println!("device: {}", device.info().name);
    Ok(device)
}
