//! Two buffers in turn between a stream that copies and one that computes: no event and no
//! synchronisation in the program, and no wait too many on the device.
//!
//! A kernel reads a buffer when the chunk is there (read after write), and the chunk after the next
//! overwrites it when the kernel has read it (write after read). The library places these waits: 2 for each
//! chunk, but 1 for the second, whose buffer is new (so is that of the first, which waits for the allocation).
//! They are counted and checked for races in one run, and the time taken in others, which nobody watches: on
//! two streams, and on one.
//!
//! 256 MiB in 64 chunks on a GPU, less on the simulated device, whose times are virtual.

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

use headwater::{Device, HostBuffer, Result, testing};

use clock::{Clock, device_time};
use digest::Digest;
use kernels::{work, work_on_host};

/// Elements repeat after so many.
const PERIOD: usize = 4096;

#[derive(Clone, Copy)]
struct Sizes {
    chunks: usize,
    /// Elements of a chunk.
    len: usize,
    /// So that a kernel takes about as long as a copy.
    rounds: u32,
}

impl Sizes {
    fn of(device: &Device) -> Self {
        match device.info().simulated {
            true => Sizes { chunks: 16, len: 1 << 16, rounds: 350 },
            false => Sizes { chunks: 64, len: 1 << 20, rounds: 1_000 },
        }
    }
}

/// The program. Returns what came out, and how long the chunks took.
async fn two_buffers(device: &Device) -> Result<(Digest, Duration)> {
    let Sizes { chunks, len, rounds } = Sizes::of(device);
    let source = source(device).await?;
    let (copying, computing) = (device.stream(), device.stream());
    let mut buffers = [device.alloc::<f32>(len)?, device.alloc::<f32>(len)?];
    let mut results = device.alloc::<f32>(chunks * len)?;

    let clock = Clock::start(device);
    let pieces = source.chunks(len)?.zip(results.chunks_mut(len)?);
    for (chunk, (piece, mut result)) in pieces.enumerate() {
        let buffer = &mut buffers[chunk % 2];
        copying.in_scope(|| buffer.copy_from(&piece))?;
        computing.in_scope(|| work(&*buffer, &mut result, rounds))?;
    }
    computing.synchronize().await?; // for the time only
    let time = clock.elapsed();

    let mut out = device.alloc_host::<f32>(chunks * len)?;
    results.copy_to(&mut out)?;
    let out = out.read().await?;
    check(&out, len, rounds);
    Ok((Digest::of(&out), time))
}

/// Each chunk begins with its number.
async fn source(device: &Device) -> Result<HostBuffer<f32>> {
    let Sizes { chunks, len, .. } = Sizes::of(device);
    let mut source = device.alloc_host::<f32>(chunks * len)?;
    for (number, chunk) in source.write().await?.chunks_mut(len).enumerate() {
        for (i, x) in chunk.iter_mut().enumerate() {
            *x = element(number, i);
        }
    }
    Ok(source)
}

fn element(chunk: usize, i: usize) -> f32 {
    (1 + chunk) as f32 * (1 << 20) as f32 + (i % PERIOD) as f32
}

fn check(out: &[f32], len: usize, rounds: u32) {
    let mut expected = vec![0.0; PERIOD];
    for (number, chunk) in out.chunks(len).enumerate() {
        let before: Vec<f32> = (0..PERIOD).map(|i| element(number, i)).collect();
        work_on_host(&before, &mut expected, rounds);
        for (i, x) in chunk.iter().enumerate() {
            let expected = expected[i % PERIOD];
            assert_eq!(x.to_bits(), expected.to_bits(), "chunk {number}, element {i}: {x}");
        }
    }
}

/// How long the copies take by themselves, and the kernels.
async fn alone(device: &Device) -> Result<[Duration; 2]> {
    let Sizes { chunks, len, rounds } = Sizes::of(device);
    let (source, stream) = (source(device).await?, device.stream());
    let mut buffer = device.alloc::<f32>(len)?;
    let mut result = device.alloc::<f32>(len)?;
    // Behind one more, so that the time does not begin before the host has enqueued the first.
    stream.in_scope(|| buffer.copy_from(&source.slice(..len)?))?;
    let mut pieces = source.chunks(len)?;
    let copies =
        device_time(&stream, || pieces.try_for_each(|piece| buffer.copy_from(&piece).map(drop)));
    let copies = copies.await?;
    stream.in_scope(|| work(&buffer, &mut result, rounds))?;
    let kernels = device_time(&stream, || {
        (0..chunks).try_for_each(|_| work(&buffer, &mut result, rounds).map(drop))
    });
    Ok([copies, kernels.await?])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let device = device::open()?;
    let Sizes { chunks, len, .. } = Sizes::of(&device);
    let times = if device.info().simulated { "virtual" } else { "wall" };
    println!(
        "{chunks} chunks of {} KiB, two buffers; {times} times",
        len * size_of::<f32>() / 1024
    );

    let watched = watch::open()?;
    let (digest, _) = two_buffers(&watched).await?;
    watch::verdict(&watched, "2 for each chunk, but 1 for the second");
    if watched.simulator().is_some() && device::has_many_streams(&watched) {
        testing::assert_overlap(&watched, "copy_h2d", "work");
    }

    let one_stream = device::open_with(|builder| builder.single_stream(true))?;
    two_buffers(&one_stream).await?; // warm up
    two_buffers(&device).await?;
    let (_, one) = two_buffers(&one_stream).await?;
    let (_, two) = two_buffers(&device).await?;
    let [copies, kernels] = alone(&device).await?;
    // The first chunk has to be there before there is a kernel to run, and the last kernel runs alone.
    let (longest, other) = (copies.max(kernels), copies.min(kernels));
    let bound = longest + other / chunks as u32;
    println!("on one stream: {:.3} ms", ms(one));
    println!("on two: {:.3} ms, {:.2} times one", ms(two), one.as_secs_f64() / two.as_secs_f64());
    println!(
        "copies alone {:.3} ms, kernels alone {:.3} ms: {:.3} ms is the bound; two streams took {:.2} times \
         that bound",
        ms(copies),
        ms(kernels),
        ms(bound),
        two.as_secs_f64() / bound.as_secs_f64()
    );
    println!("every element is right");
    digest.tell();
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
