//! What can be known of devices before one is opened.

use headwater::{Device, Error, Result, visible_devices};

use crate::common::eager;

#[test]
fn visible_devices_are_listed_by_ordinal_or_it_is_said_that_there_is_no_driver() {
    match visible_devices() {
        Ok(visible) => {
            for (at, info) in visible.iter().enumerate() {
                assert_eq!((info.ordinal, info.simulated, info.priorities), (at, false, None));
                assert!(info.peers.iter().all(|&peer| peer != at && peer < visible.len()));
                assert!((1..=32).contains(&info.hardware_queues));
            }
        }
        Err(Error::NoDriver) if cfg!(feature = "cuda") => {}
        Err(Error::FeatureMissing("cuda")) if cfg!(not(feature = "cuda")) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_simulated_device_has_no_peers_and_says_what_else_a_gpu_would() {
    let device = eager();
    let info = device.info();
    assert!(info.simulated && info.name.contains("simulated"));
    assert_eq!((info.copy_engines, info.concurrent_kernels), (3, true));
    assert_eq!(info.priorities, Some((0, -5)));
    assert_eq!((&info.peers[..], info.hardware_queues, info.driver_version), (&[][..], 32, 0));
}

#[test]
#[ignore = "needs a GPU"]
fn the_list_agrees_with_what_an_opened_device_says() -> Result<()> {
    let visible = visible_devices()?;
    assert!(!visible.is_empty(), "no device is visible");
    for listed in visible {
        let device = Device::cuda(listed.ordinal)?;
        let mut opened = device.info().clone();
        let range = opened.priorities.take();
        assert_eq!(opened, listed);
        assert!(range.is_some_and(|(least, most)| most <= least), "{range:?}");
    }
    Ok(())
}
