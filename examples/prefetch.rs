//! Batches of bytes that are uploaded while the batch before them is worked on: `Prefetch`, against
//! uploading each when it is needed.
//!
//! Batches of 64 MiB in ordinary memory on a GPU, with work that takes some 12 ms on an H200; less on the
//! simulated device, whose times are virtual. Every byte of every batch is checked.

#[path = "common/clock.rs"]
mod clock;
#[path = "common/device.rs"]
mod device;
#[path = "common/digest.rs"]
mod digest;
#[path = "common/kernels.rs"]
mod kernels;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use headwater::{Completion, Device, DeviceBuffer, Prefetch, Result};

use clock::Clock;
use digest::Digest;
use kernels::{mix, mix_on_host};

/// Batches of a run. Each is a step: its upload, and the work on it.
const STEPS: usize = 16;
/// The first steps fill the pipeline, and are not timed.
const UNTIMED: usize = 2;
/// The median of so many runs is told.
const RUNS: usize = 5;
/// Words of a batch repeat after so many, so that the host can check them all.
const PERIOD: usize = 4096;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let device = device::open()?;
    let simulated = device.info().simulated;
    let (kib, rounds) = if simulated { (512, 150) } else { (64 << 10, 2_750) };
    let batches: Vec<_> = (0..STEPS).map(|step| batch(step, kib << 10)).collect();
    let times = if simulated { "virtual" } else { "wall" };
    println!("{STEPS} batches of {kib} KiB of ordinary memory; {times} times");

    run(&device, &batches, rounds, 0).await?; // warm up
    run(&device, &batches, rounds, 1).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut digests = Vec::new();
    for _ in 0..RUNS {
        for (depth, steps) in [(0, &mut without), (1, &mut with)] {
            let (step, results) = run(&device, &batches, rounds, depth).await?;
            steps.push(step);
            digests.push(check(results, rounds).await?);
        }
    }
    let (upload, work) = parts_alone(&device, &batches, rounds).await?;
    let (without, with) = (median(without), median(with));
    println!("upload alone: {:.3} ms, work alone: {:.3} ms", ms(upload), ms(work));
    println!("a step without prefetch: {:.3} ms", ms(without));
    println!("a step with prefetch: {:.3} ms", ms(with));
    // Times of different runs differ a little: more than all of it can come out.
    let hidden = (ms(without) - ms(with)) / ms(upload.min(work)) * 100.0;
    println!("hidden: {hidden:.1} % of the shorter of the two");
    assert!(digests.windows(2).all(|two| two[0] == two[1]));
    println!("every byte is right");
    digests[0].tell();
    Ok(())
}

/// Works on all batches, one step after the other, and returns how long a step takes, and what the batches
/// came to.
async fn run(
    device: &Device,
    batches: &[Arc<[u8]>],
    rounds: u32,
    depth: usize,
) -> Result<(Duration, Vec<DeviceBuffer<u8>>)> {
    let sources = stream::iter(batches.iter().cloned());
    let mut batches = Prefetch::new(device, sources).depth(depth).enumerate();
    let mut results = Vec::with_capacity(STEPS);
    let mut clock = Clock::start(device);
    while let Some((step, batch)) = batches.next().await {
        let mut batch = batch?;
        work_on(&mut batch, rounds)?.await?; // the next batch comes in meanwhile
        results.push(batch);
        if step + 1 == UNTIMED {
            clock = Clock::start(device);
        }
    }
    Ok((clock.elapsed() / (STEPS - UNTIMED) as u32, results))
}

/// Mean times of an upload and of the work on a batch, each with nothing beside it.
async fn parts_alone(
    device: &Device,
    batches: &[Arc<[u8]>],
    rounds: u32,
) -> Result<(Duration, Duration)> {
    let (mut upload, mut work) = (Duration::ZERO, Duration::ZERO);
    for batch in batches {
        let clock = Clock::start(device);
        let mut batch = device.upload(batch.clone()).await?;
        upload += clock.elapsed();
        let clock = Clock::start(device);
        work_on(&mut batch, rounds)?.await?;
        work += clock.elapsed();
    }
    Ok((upload / STEPS as u32, work / STEPS as u32))
}

fn work_on(batch: &mut DeviceBuffer<u8>, rounds: u32) -> Result<Completion> {
    mix(batch.cast_mut::<u32>()?, rounds)
}

/// Checks every byte of every batch.
async fn check(results: Vec<DeviceBuffer<u8>>, rounds: u32) -> Result<Digest> {
    let mut digest = Digest::new();
    // Read back one ahead, in the same manner.
    let read = stream::iter(&results).map(|batch| batch.to_vec()).buffered(2).enumerate();
    let mut read = read.map(|(step, bytes)| bytes.map(|bytes| (step, bytes)));
    while let Some((step, bytes)) = read.try_next().await? {
        let mut expected: Vec<u32> = (0..PERIOD).map(|i| word(step, i)).collect();
        mix_on_host(&mut expected, rounds);
        let words = || bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        for (i, (word, expected)) in words().zip(expected.iter().cycle()).enumerate() {
            assert_eq!(word, *expected, "batch {step}, word {i}");
        }
        digest = digest.and_words(words());
    }
    Ok(digest)
}

/// What a loader of data would have read.
fn batch(step: usize, bytes: usize) -> Arc<[u8]> {
    let period: Vec<u8> = (0..PERIOD).flat_map(|i| word(step, i).to_ne_bytes()).collect();
    period.repeat(bytes / period.len()).into()
}

/// Word `i` of the batch of that step, before the work.
fn word(step: usize, i: usize) -> u32 {
    ((step * PERIOD + i % PERIOD) as u32 + 1).wrapping_mul(2_654_435_761)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
