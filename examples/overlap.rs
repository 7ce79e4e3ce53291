//! The same chunked pipeline on one, two and four streams: how much of the copying hides behind
//! the computing.
//!
//! 256 MiB of `f32` in 16 chunks of one pinned array for each direction on a GPU, less on the simulated
//! device, whose times are virtual. With `--pageable` the arrays are ordinary memory, which goes through pinned memory
//! piece by piece on threads of the device, and each stream is a lane of its own: a chunk comes in while the one
//! before it goes out. Every element is checked after every run.

#[path = "common/clock.rs"]
mod clock;
#[path = "common/device.rs"]
mod device;
#[path = "common/digest.rs"]
mod digest;
#[path = "common/kernels.rs"]
mod kernels;
#[path = "common/pageable.rs"]
mod pageable;
#[path = "common/pipeline.rs"]
mod pipeline;

use std::process::ExitCode;
use std::time::Duration;

use headwater::{Device, Result};

use digest::Digest;
use pageable::Pageable;
use pipeline::Pipeline;

const CHUNKS: usize = 16;
/// The median of so many is told.
const RUNS: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let pageable = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--pageable"] => true,
        _ => {
            eprintln!("usage: overlap [--pageable]");
            return Ok(ExitCode::from(2));
        }
    };
    let device = device::open()?;
    let len = match device.info().simulated {
        true if pageable => 1 << 17, // as much as goes through threads
        true => 1 << 16,
        false => 1 << 22,
    };
    let kib = CHUNKS * len * size_of::<f32>() / 1024;
    let times = if device.info().simulated { "virtual" } else { "wall" };
    let memory = if pageable { "ordinary memory" } else { "pinned" };
    println!("{kib} KiB in {CHUNKS} chunks, {memory}; {times} times");
    let digest = match pageable {
        true => of_ordinary_memory(&device, len).await?,
        false => of_pinned_memory(&device, len).await?,
    };
    println!("every element is right");
    digest.tell();
    Ok(ExitCode::SUCCESS)
}

async fn of_pinned_memory(device: &Device, len: usize) -> Result<Digest> {
    let mut pipeline = Pipeline::new(device, CHUNKS, len, 4).await?;
    pipeline.run(1).await?; // warm up
    pipeline.check().await?;
    let mut one_stream = None;
    let mut digest = Digest::new();
    for streams in [1, 2, 4] {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(pipeline.run(streams).await?);
            digest = Digest::of(&pipeline.results().await?);
            pipeline.check().await?;
        }
        tell_runs(streams, runs, &mut one_stream);
    }
    tell_parts(pipeline.kernels_alone().await?, pipeline.copies_alone().await?);
    // They are not: the longest stage is the bound.
    let model = (3 * CHUNKS) as f64 / (CHUNKS + 2) as f64;
    println!(
        "were copy in, kernel and copy back equally long, N = {CHUNKS} chunks would take 3N steps on one \
         stream and N + 2 on many: {model:.2} times one stream"
    );
    Ok(digest)
}

async fn of_ordinary_memory(device: &Device, len: usize) -> Result<Digest> {
    let mut pipeline = Pageable::new(device, CHUNKS, len, 4)?;
    pipeline.run(4).await?; // warm up
    pipeline.check();
    let mut one_stream = None;
    let mut digest = Digest::new();
    for streams in [1, 2, 4] {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(pipeline.run(streams).await?);
            digest = pipeline.results().fold(Digest::new(), Digest::and);
            pipeline.check();
        }
        tell_runs(streams, runs, &mut one_stream);
    }
    tell_parts(pipeline.kernels_alone().await?, pipeline.copies_alone().await?);
    let model = (2 * CHUNKS + 1) as f64 / (CHUNKS + 2) as f64;
    println!(
        "were copy in, kernel and copy back equally long, N = {CHUNKS} chunks would take 2N + 1 steps on one \
         stream, with a copy back beside the next copy in, and N + 2 on many: {model:.2} times one stream"
    );
    Ok(digest)
}

fn tell_runs(streams: usize, mut runs: Vec<Duration>, one_stream: &mut Option<Duration>) {
    runs.sort();
    let (least, median, most) = (runs[0], runs[RUNS / 2], runs[RUNS - 1]);
    let speedup = one_stream.get_or_insert(median).as_secs_f64() / median.as_secs_f64();
    println!(
        "{streams} stream(s): {:.2} ms ({:.2} to {:.2}), {speedup:.2} times one",
        ms(median),
        ms(least),
        ms(most)
    );
}

fn tell_parts(kernels: Duration, copies: Duration) {
    println!("kernels alone, on one stream: {:.2} ms", ms(kernels));
    println!("copies alone, on one stream: {:.2} ms", ms(copies));
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
