//! A launch returns while its kernel runs: the host goes on, and waits where it awaits.
//!
//! 2^20 elements on a GPU, each through 20,000 rounds of slow arithmetic; fewer on the simulated
//! device, whose times are virtual. Whether the kernel is finished is asked right after the launch
//! and again once it was awaited, and every element is checked.

#[path = "common/clock.rs"]
mod clock;
#[path = "common/device.rs"]
mod device;
#[path = "common/digest.rs"]
mod digest;
#[path = "common/kernels.rs"]
mod kernels;

use std::time::Duration;

use headwater::Result;
use headwater::sim::Schedule;

use clock::Clock;
use digest::Digest;
use kernels::{busy, busy_on_host};

/// Of `v * 0.999 + 0.001`, for each element.
const ROUNDS: u32 = 20_000;
/// Elements repeat after so many.
const PERIOD: usize = 256;
/// No GPU does 20,000 rounds on 2^20 elements in `f64` in less, nor the simulated device on fewer
/// in so little of the host's time.
const SHORTEST: Duration = Duration::from_millis(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let device = device::open()?;
    let len = if device.info().simulated { 1 << 12 } else { 1 << 20 };
    let elements: Vec<f32> = (0..len).map(|i| (i % PERIOD) as f32 / PERIOD as f32).collect();
    let mut expected = elements[..PERIOD].to_vec();
    busy_on_host(&mut expected, 1);
    busy_on_host(&mut expected, ROUNDS);

    let mut x = device.upload(elements).await?;
    busy(&mut x, 1)?.await?; // warm up
    if let Some(simulator) = device.simulator() {
        simulator.set_schedule(Schedule::Stepped); // holds the kernel back until it is awaited
    }

    let clock = Clock::start(&device);
    let mut done = busy(&mut x, ROUNDS)?; // on the stream when this returns, not done
    let launched = clock.elapsed();
    let early = done.is_finished()?;
    let asked = clock.elapsed();
    println!("right after the launch, finished: {early}");
    // Certain, unless this thread was kept from asking for longer than the kernel may take.
    assert!(!early || asked >= SHORTEST);

    if let Some(simulator) = device.simulator() {
        simulator.set_schedule(Schedule::Eager);
    }
    (&mut done).await?;
    let finished = clock.elapsed();
    println!("after awaiting it, finished: {}", done.is_finished()?);
    assert!(done.is_finished()?);
    println!(
        "launch took {:.3} ms, waiting took {:.3} ms{}",
        ms(launched),
        ms(finished - asked),
        if device.info().simulated { " (virtual times)" } else { "" },
    );

    let x = x.to_vec().await?;
    for (i, x) in x.iter().enumerate() {
        let expected = expected[i % PERIOD];
        assert_eq!(x.to_bits(), expected.to_bits(), "element {i}: {x}, not {expected}");
    }
    println!("every element is right");
    Digest::of(&x).tell();
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
