//! Many tasks launch a kernel each, then one copy takes all their results: it waits for all of them, on
//! the device, and the host does not wait.
//!
//! Each task has a part of one array, and a stream of its own. They give their parts back, and the
//! array is copied as a whole while the kernels run.
//!
//! 4 MiB on a GPU, less on the simulated device, whose times are virtual.

#[path = "common/clock.rs"]
mod clock;
#[path = "common/device.rs"]
mod device;
#[path = "common/digest.rs"]
mod digest;
#[path = "common/kernels.rs"]
mod kernels;
#[path = "common/watch.rs"]
mod watch;

use std::time::Duration;

use headwater::sim::Schedule;
use headwater::{DeviceBuffer, Error, Result, spawn};

use clock::Clock;
use digest::Digest;
use kernels::accumulate;

const TASKS: usize = 16;
/// No GPU does that many sums, each in need of the one before it, in less than `SHORTEST`.
const ROUNDS: u32 = 500_000;
const SHORTEST: Duration = Duration::from_micros(900);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let device = watch::open()?;
    device::tell(&device);
    let simulated = device.info().simulated;
    let (len, rounds) = if simulated { (TASKS << 8, 10_000) } else { (TASKS << 16, ROUNDS) };
    // All sums are whole numbers below 2^24, which an `f32` has exactly.
    let each = len / TASKS;
    let weight = |i: usize| (i % 16) as f32;
    let weights = device.upload((0..each).map(weight).collect::<Vec<_>>()).await?.into_shared();
    let x = device.upload((0..len).map(|i| i as f32).collect::<Vec<_>>()).await?;
    let mut out = device.alloc_host::<f32>(len)?;
    if let Some(simulator) = device.simulator() {
        simulator.set_schedule(Schedule::Stepped); // holds the kernels back until they are awaited
    }

    let clock = Clock::start(&device);
    let tasks =
        x.into_parts(TASKS).map_err(|refused| refused.error)?.into_iter().map(|mut part| {
            let (device, weights) = (device.clone(), weights.clone());
            spawn(device.clone().scope(async move {
                let done = accumulate(part.as_matrix_mut(1)?, &weights, rounds)?;
                Ok::<_, Error>((part, done, device.current_stream().number()))
            }))
        });
    let tasks: Vec<_> = tasks.collect();
    let mut parts = Vec::new();
    let mut kernels = Vec::new();
    let mut streams = Vec::new();
    for task in tasks {
        let Ok(launched) = task.await else { panic!("a task panicked") };
        let (part, done, stream) = launched?;
        parts.push(part);
        kernels.push(done);
        streams.push(stream);
    }
    let x = DeviceBuffer::rejoin(parts).map_err(|refused| refused.error)?;
    x.copy_to(&mut out)?; // enqueued, behind all the kernels
    let enqueued = clock.elapsed();
    let mut early = 0;
    for kernel in &kernels {
        early += usize::from(kernel.is_finished()?);
    }
    let asked = clock.elapsed();
    streams.sort_unstable();
    streams.dedup();
    println!(
        "{TASKS} kernels on {} streams, then one copy: {early} of {TASKS} kernels had finished when the copy's \
         call returned",
        streams.len()
    );
    // Certain, unless this thread was kept from asking for longer than a kernel may take.
    assert!(early == 0 || !simulated && asked >= SHORTEST);

    if let Some(simulator) = device.simulator() {
        simulator.set_schedule(Schedule::Eager);
    }
    let out = out.read().await?;
    let finished = clock.elapsed();
    for kernel in &kernels {
        assert!(kernel.is_finished()?);
    }
    println!(
        "enqueuing it all took {:.3} ms, waiting for the copy {:.3} ms{}",
        ms(enqueued),
        ms(finished - asked),
        if simulated { " (virtual times)" } else { "" },
    );
    for (i, x) in out.iter().enumerate() {
        assert_eq!(*x, i as f32 + rounds as f32 * weight(i % each), "element {i}");
    }
    let waits = watch::verdict(&device, "the copy waits for each stream");
    assert!(early > 0 || streams.len() == 1 || waits.issued >= streams.len() as u64);
    println!("every element is right");
    Digest::of(&out).tell();
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
