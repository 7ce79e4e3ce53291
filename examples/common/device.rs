//! Which device an example runs on.
#![allow(dead_code, reason = "whoever includes this file opens one device or several")]

use headwater::{Device, DeviceBuilder, Error, Result};

/// The device that `HEADWATER_DEVICE` names. Where it names none and there is no GPU: a simulated
/// device, so that the examples run anywhere. A program of your own would not fall back.
pub(crate) fn open() -> Result<Device> {
    let device = open_with(|builder| builder)?;
    tell(&device);
    Ok(device)
}

/// The same device with other settings.
pub(crate) fn open_with(set: impl Fn(DeviceBuilder) -> DeviceBuilder) -> Result<Device> {
    match set(Device::builder()).open() {
        Err(
            Error::NoDriver
            | Error::NoDevice { .. }
            | Error::DriverTooOld { .. }
            | Error::DriverBroken { .. }
            | Error::FeatureMissing(_),
        ) if !is_named() => set(Device::builder().simulated()).open(),
        opened => opened,
    }
}

/// Says which it is.
pub(crate) fn tell(device: &Device) {
    if device.info().simulated && !is_named() {
        println!("no GPU that this can use, so it runs on the simulated device");
    }
    println!("device: {}", device.info().name);
}

fn is_named() -> bool {
    std::env::var_os("HEADWATER_DEVICE").is_some_and(|name| !name.is_empty())
}

/// Whether there are several streams, and not one for everything (`HEADWATER_SINGLE_STREAM=1`).
pub(crate) fn has_many_streams(device: &Device) -> bool {
    !device.stream().same_stream(&device.stream())
}
