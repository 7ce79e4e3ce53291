//! `headwater::testing`: programs that have to do with other threads, other devices and other runs.

use std::time::Duration;

use headwater::sim::SimOptions;
use headwater::testing::{Cause, Explore, explore};
use headwater::{Device, Result, block_on, spawn};
use tokio::task::spawn_blocking;

use crate::common::sim;
use crate::kernels::increment;
use crate::testing::soon;

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: thread i < n touches element i only; n is the length.
unsafe extern "C" {
    #[launch(entry = "increment", items = x.len(), block = 256)]
    #[args(x, x.len() as u32)]
    #[twin(forever_on_host)]
    safe fn forever(x: &mut [u32]);
}

fn forever_on_host(_: &mut [u32]) {
    loop {
        std::thread::park();
    }
}

#[test]
fn blocking_on_a_device_that_is_not_the_run_s_works() {
    explore(0..3, async |_| -> Result<()> {
        let other = Device::simulated()?;
        let mut x = other.zeros::<u32>(64)?;
        block_on(increment(&mut x)?)?;
        increment(&mut x)?.await?;
        assert_eq!(block_on(x.to_vec())?, [2; 64]);
        Ok(())
    });
}

#[test]
fn another_thread_may_await_the_device() {
    explore(0..3, async |device| -> Result<()> {
        let mut x = device.zeros::<u32>(64)?;
        let thread = spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(20)); // the run sleeps by then
            futures::executor::block_on(async { increment(&mut x)?.await })?;
            block_on(x.to_vec())
        });
        assert_eq!(thread.await.expect("no panic")?, [1; 64]);
        Ok(())
    });
}

#[test]
fn another_thread_may_await_the_device_while_the_program_blocks() {
    explore(0..3, async |device| -> Result<()> {
        let mut x = device.zeros::<u32>(64)?;
        let thread = spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(20));
            futures::executor::block_on(async { increment(&mut x)?.await })
        });
        block_on(thread).expect("no panic")
    });
}

#[test]
fn a_device_that_outlives_its_run_is_looked_after_by_a_thread() -> Result<()> {
    let kept = std::cell::RefCell::new(None);
    explore([1], async |device| -> Result<()> {
        kept.replace(Some(device.clone()));
        device.zeros::<u32>(64)?.to_vec().await.map(drop)
    });
    let device = kept.take().expect("it ran");
    let mut x = device.zeros::<u32>(64)?;
    futures::executor::block_on(async { increment(&mut x)?.await })?;
    assert!(sim(&device).violations().is_empty());
    Ok(())
}

#[test]
fn a_run_inside_of_a_run_is_refused_and_takes_nothing_from_the_outer_one() {
    let failure = Explore::new().seeds([1]).find(async |_| {
        let inner = Explore::new().seeds([1]).find(async |_| ());
        let inner = inner.expect("it is refused");
        assert!(matches!(inner.causes(), [Cause::NotRun(_)]), "{inner}");
        assert!(inner.seed() > 1, "heard all the same");
    });
    let failure = failure.expect("it fails");
    assert!(failure.to_string().contains("heard all the same"), "{failure}");
}

#[test]
fn the_devices_of_a_run_are_of_one_machine_and_watched_together() {
    let log = |builder: headwater::DeviceBuilder| builder.log_calls(true);
    Explore::new().seeds(0..3).settings(log).run_on(async |[a, b]| -> Result<()> {
        assert_eq!((&a.info().peers, &b.info().peers), (&vec![1], &vec![0]));
        let (mut x, mut y) = (a.zeros::<u32>(64)?, b.zeros::<u32>(64)?);
        let (x, y) = (spawn(increment(&mut x)?), spawn(increment(&mut y)?));
        x.await.expect("no panic")?;
        y.await.expect("no panic")?;
        assert_eq!(sim(&a).host_now(), sim(&b).host_now());
        assert_eq!(a.call_log(), b.call_log());
        Ok(())
    });
}

fn short_of_patience() -> Explore {
    let limit = Duration::from_millis(100);
    let options = SimOptions::new().stall_limit(limit);
    Explore::new().seeds([1]).patience(limit).options(options)
}

#[test]
fn a_twin_that_never_returns_ends_the_run() {
    let find = || {
        short_of_patience().find(async |device: Device| -> Result<()> {
            forever(&mut device.zeros::<u32>(64)?)?.await
        })
    };
    let cause = soon(find);
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("forever")), "{cause}");
}

#[test]
fn a_twin_that_never_returns_is_a_failure_though_nobody_waits_for_it() {
    let find = || {
        short_of_patience().find(async |device: Device| -> Result<()> {
            forever(&mut device.zeros::<u32>(64)?).map(drop)
        })
    };
    let cause = soon(find);
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("forever")), "{cause}");
}
