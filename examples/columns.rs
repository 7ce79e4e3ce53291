//! A kernel for each column of a matrix, on the stream of its task: they overlap, though the columns'
//! bytes are interleaved.
//!
//! All of them read one array, which is uploaded once. Each column is copied back as soon as its
//! kernel is done, and then the whole matrix in one copy, which waits on the device for every kernel. No
//! event and no synchronisation is in the program. (Ordered by whole arrays, as elsewhere, one column
//! would wait for the one before it.)
//!
//! Waits are counted and checked for races in one run, and the time taken in others, which nobody
//! watches: on many streams, and on one. 256 rows each; fewer columns on the simulated device, whose
//! times are virtual.

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

use std::collections::HashSet;
use std::time::Duration;

use futures::future::try_join_all;
use headwater::{Device, Error, HostBuffer, Result, testing};

use clock::{Clock, device_time};
use digest::Digest;
use kernels::accumulate;

const ROWS: usize = 256;

#[derive(Clone, Copy)]
struct Sizes {
    columns: usize,
    /// Of a sum that needs the one before it: long enough for many columns to be on their way
    /// together, though one is small.
    rounds: u32,
}

impl Sizes {
    fn of(device: &Device) -> Self {
        match device.info().simulated {
            true => Sizes { columns: 48, rounds: 60_000 },
            // All on one stream, they come near to what a stream takes at a time.
            false => Sizes { columns: 384, rounds: 300_000 },
        }
    }
}

/// Different for each element. All sums are whole numbers below 2^24, which an `f32` has exactly.
fn element(row: usize, column: usize, columns: usize) -> f32 {
    (row * columns + column) as f32
}

fn weight(row: usize) -> f32 {
    (row % 50) as f32
}

/// What came of the program.
struct Outcome {
    digest: Digest,
    /// From the uploads on.
    time: Duration,
    /// How many streams the tasks had.
    streams: usize,
}

/// The program.
async fn columns(device: &Device) -> Result<Outcome> {
    let Sizes { columns, rounds } = Sizes::of(device);
    let at = |i| element(i / columns, i % columns, columns);
    let staged = [pinned(device, ROWS, weight).await?, pinned(device, ROWS * columns, at).await?];
    let mut ready = device.alloc_host::<f32>(columns * ROWS)?; // a column after the other
    let mut whole = device.alloc_host::<f32>(ROWS * columns)?;
    let mut weights = device.alloc::<f32>(ROWS)?;
    let mut x = device.alloc::<f32>(ROWS * columns)?;

    let clock = Clock::start(device);
    weights.copy_from(&staged[0])?;
    x.copy_from(&staged[1])?;
    let weights = weights.into_shared();
    let mut matrix = x.as_matrix_mut(columns)?;
    let tasks =
        matrix.column_chunks_mut(1)?.zip(ready.chunks_mut(ROWS)?).map(|(mut column, mut out)| {
            let weights = &weights;
            device.scope(async move {
                accumulate(&mut column, weights, rounds)?;
                column.copy_to(&mut out)?;
                Ok::<_, Error>(device.current_stream().number())
            })
        });
    let streams: HashSet<_> = try_join_all(tasks).await?.into_iter().collect();
    x.copy_to(&mut whole)?; // enqueued, like all the rest

    let expected = |row, column| element(row, column, columns) + rounds as f32 * weight(row);
    for (number, column) in ready.chunks(ROWS)?.enumerate() {
        for (row, x) in column.read().await?.iter().enumerate() {
            assert_eq!(*x, expected(row, number), "row {row} of column {number}");
        }
    }
    let whole = whole.read().await?;
    let time = clock.elapsed();
    for (i, x) in whole.iter().enumerate() {
        assert_eq!(*x, expected(i / columns, i % columns), "element {i} of the whole");
    }
    let digest = Digest::of(&ready.try_read()?).and(&whole);
    Ok(Outcome { digest, time, streams: streams.len() })
}

async fn pinned(
    device: &Device,
    len: usize,
    element: impl Fn(usize) -> f32,
) -> Result<HostBuffer<f32>> {
    let mut pinned = device.alloc_host::<f32>(len)?;
    for (i, x) in pinned.write().await?.iter_mut().enumerate() {
        *x = element(i);
    }
    Ok(pinned)
}

/// How long one kernel takes by itself.
async fn one_kernel(device: &Device) -> Result<Duration> {
    let Sizes { rounds, .. } = Sizes::of(device);
    let (mut x, weights) = (device.zeros::<f32>(ROWS)?, device.zeros::<f32>(ROWS)?);
    let stream = device.stream();
    let mut launch = || accumulate(x.as_matrix_mut(1)?, &weights, rounds).map(drop);
    // Behind another, so that the time does not begin before the host has enqueued it.
    stream.in_scope(&mut launch)?;
    device_time(&stream, launch).await
}

/// The most kernels that ran at the same time on a simulated device.
fn most_at_once(device: &Device) -> Option<usize> {
    let spans = device.simulator()?.timeline();
    let kernels: Vec<_> = spans.iter().filter(|span| span.name == "accumulate").collect();
    let at = |time| kernels.iter().filter(|k| k.start <= time && time < k.end).count();
    kernels.iter().map(|kernel| at(kernel.start)).max()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let device = device::open()?;
    let Sizes { columns: n, .. } = Sizes::of(&device);
    let times = if device.info().simulated { "virtual" } else { "wall" };
    println!("{ROWS} x {n} matrix, a kernel and a copy for each column; {times} times");

    let watched = watch::open()?;
    let Outcome { digest, streams, .. } = columns(&watched).await?;
    watch::verdict(
        &watched,
        &format!(
            "the {streams} streams wait for the uploads, and the copy of the whole for each of them"
        ),
    );
    if let Some(most) = most_at_once(&watched) {
        println!("kernels at the same time: {most}");
        if device::has_many_streams(&watched) {
            testing::assert_overlap(&watched, "accumulate", "accumulate");
            testing::assert_overlap(&watched, "accumulate", "copy_rows");
            assert!(most >= 8);
        }
    }

    let one_stream = device::open_with(|builder| builder.single_stream(true))?;
    columns(&one_stream).await?; // warm up
    columns(&device).await?;
    let one = columns(&one_stream).await?.time;
    let Outcome { time, streams, .. } = columns(&device).await?;
    let kernel = one_kernel(&device).await?;
    let bound = kernel * n.div_ceil(streams) as u32;
    println!("on one stream: {:.3} ms", ms(one));
    println!(
        "on {streams}: {:.3} ms, {:.2} times one",
        ms(time),
        one.as_secs_f64() / time.as_secs_f64()
    );
    println!(
        "a kernel takes {:.3} ms, so {:.3} ms is the bound; it took {:.2} times that bound",
        ms(kernel),
        ms(bound),
        time.as_secs_f64() / bound.as_secs_f64()
    );
    println!("every element is right");
    digest.tell();
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
