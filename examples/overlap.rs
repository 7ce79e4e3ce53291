//! The same chunked pipeline on one, two and four streams: how much of the copying hides behind
//! the computing.
//!
//! 256 MiB of `f32` in 16 chunks of one pinned array for each direction on a GPU, less on the simulated
//! device, whose times are virtual. Every element is checked after every run.

#[path = "common/clock.rs"]
mod clock;
#[path = "common/device.rs"]
mod device;
#[path = "common/digest.rs"]
mod digest;
#[path = "common/kernels.rs"]
mod kernels;
#[path = "common/pipeline.rs"]
mod pipeline;

use headwater::Result;

use digest::Digest;
use pipeline::Pipeline;

const CHUNKS: usize = 16;
/// The median of so many is told.
const RUNS: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let device = device::open()?;
    let len = if device.info().simulated { 1 << 16 } else { 1 << 22 };
    let kib = CHUNKS * len * size_of::<f32>() / 1024;
    let times = if device.info().simulated { "virtual" } else { "wall" };
    println!("{kib} KiB in {CHUNKS} chunks, pinned; {times} times");

    let mut pipeline = Pipeline::new(&device, CHUNKS, len, 4).await?;
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

    let kernels = pipeline.kernels_alone().await?;
    let copies = pipeline.copies_alone().await?;
    println!("kernels alone, on one stream: {:.2} ms", ms(kernels));
    println!("copies alone, on one stream: {:.2} ms", ms(copies));
    // They are not: the longest stage is the bound.
    let model = (3 * CHUNKS) as f64 / (CHUNKS + 2) as f64;
    println!(
        "were copy in, kernel and copy back equally long, N = {CHUNKS} chunks would take 3N steps on one \
         stream and N + 2 on many: {model:.2} times one stream"
    );
    println!("every element is right");
    digest.tell();
    Ok(())
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
