//! Which device an example runs on.

use headwater::{Device, Error, Result};

/// The device that `HEADWATER_DEVICE` names. Where it names none and there is no GPU: a simulated
/// device, so that the examples run anywhere. A program of your own would not fall back.
pub(crate) fn open() -> Result<Device> {
    let named = std::env::var_os("HEADWATER_DEVICE").is_some_and(|name| !name.is_empty());
    let device = match Device::from_env() {
        Err(
            Error::NoDriver
            | Error::NoDevice { .. }
            | Error::DriverTooOld { .. }
            | Error::DriverBroken { .. }
            | Error::FeatureMissing(_),
        ) if !named => {
            println!("no GPU that this can use, so it runs on the simulated device");
            Device::simulated()?
        }
        opened => opened?,
    };
    println!("device: {}", device.info().name);
    Ok(device)
}
