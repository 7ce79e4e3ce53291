//! Several simulated devices of one machine.

use headwater::sim::{SimMachine, SimOptions};
use headwater::{Device, Error, Result};

use crate::common::{device_buffer, elements, sim, wait};
use crate::kernels::increment;

fn opened(machine: &SimMachine, ordinal: usize) -> Result<Device> {
    Device::builder().simulated_on(machine, ordinal).open()
}

#[test]
fn a_machine_has_1_to_1024_devices_and_no_others() -> Result<()> {
    for devices in [0, 1_025] {
        let refused = SimMachine::new(devices, SimOptions::new()).map(drop);
        assert!(matches!(refused, Err(Error::BadSetting { .. })), "{refused:?}");
    }
    let machine = SimMachine::new(1_024, SimOptions::new())?;
    assert_eq!(machine.devices(), 1_024);
    let refused = opened(&machine, 1_024).map(drop);
    assert!(matches!(refused, Err(Error::BadSetting { .. })), "{refused:?}");
    let last = opened(&machine, 1_023)?;
    assert_eq!((last.info().ordinal, last.info().peers.len()), (1_023, 1_023));
    assert_eq!(elements(&device_buffer(&last, &[5u32])), [5]);
    Ok(())
}

#[test]
fn a_program_uses_each_device_by_itself() -> Result<()> {
    let machine = SimMachine::new(3, SimOptions::new())?;
    let devices = (0..3).map(|ordinal| opened(&machine, ordinal)).collect::<Result<Vec<_>>>()?;
    let mut parts: Vec<_> =
        devices.iter().map(|device| device_buffer(device, &[1u32; 8])).collect();
    for part in &mut parts {
        increment(part)?;
    }
    for (device, part) in devices.iter().zip(&parts) {
        assert_eq!(elements(part), [2; 8]);
        assert_eq!(sim(device).device(), Some(device.info().ordinal));
    }
    assert_eq!(machine.simulator().violations(), []);
    Ok(())
}

#[test]
fn devices_that_do_not_share_their_fate_are_lost_one_by_one() -> Result<()> {
    let machine = SimMachine::new(2, SimOptions::new().shared_fate(false))?;
    let (lost, other) = (opened(&machine, 0)?, opened(&machine, 1)?);
    let (mut x, mut y) = (device_buffer(&lost, &[1u32]), device_buffer(&other, &[1u32]));
    sim(&lost).fail(719);
    let refused = increment(&mut x).map(drop);
    assert!(matches!(refused, Err(Error::DeviceLost(_))), "{refused:?}");
    wait(increment(&mut y)?)?;
    assert_eq!(elements(&y), [2]);
    Ok(())
}
