//! The pipeline of `overlap` on ordinary memory: each chunk goes through the device's staging both ways.
#![allow(dead_code, reason = "the example and the benchmark use different parts of it")]

use std::iter::zip;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{try_join, try_join_all};
use headwater::{Device, DeviceBuffer, Result, Stream};

use super::clock::{Clock, device_time};
use super::kernels::work;
use super::pipeline::{ROUNDS, check_chunk, element};

/// An array of ordinary memory for each direction, by chunks, and a pair of device buffers with a stream
/// for each of several lanes.
pub(crate) struct Pageable {
    device: Device,
    source: Vec<Arc<[f32]>>,
    result: Vec<Vec<f32>>,
    lanes: Vec<Lane>,
}

struct Lane {
    stream: Stream,
    input: DeviceBuffer<f32>,
    output: DeviceBuffer<f32>,
}

/// A chunk, and where it goes.
type Chunk<'a> = (Arc<[f32]>, &'a mut Vec<f32>);

impl Pageable {
    /// `chunks` chunks of `len` elements, and `lanes` lanes.
    pub(crate) fn new(device: &Device, chunks: usize, len: usize, lanes: usize) -> Result<Self> {
        let source = (0..chunks).map(|_| (0..len).map(element).collect()).collect();
        // Written, so that no run is the first to touch it.
        let result = vec![vec![f32::NAN; len]; chunks];
        let lanes = (0..lanes)
            .map(|_| {
                let stream = device.stream();
                let (input, output) =
                    stream.in_scope(|| Ok((device.alloc(len)?, device.alloc(len)?)))?;
                Ok(Lane { stream, input, output })
            })
            .collect::<Result<_>>()?;
        Ok(Pageable { device: device.clone(), source, result, lanes })
    }

    /// Does the whole job on the first `lanes` lanes, chunks dealt in turn, each lane in a scope of its own.
    /// Returns how long that took.
    pub(crate) async fn run(&mut self, lanes: usize) -> Result<Duration> {
        let clock = Clock::start(&self.device);
        let mut dealt: Vec<Vec<Chunk<'_>>> = (0..lanes).map(|_| Vec::new()).collect();
        for (i, chunk) in zip(self.source.iter().cloned(), &mut self.result).enumerate() {
            dealt[i % lanes].push(chunk);
        }
        try_join_all(zip(&mut self.lanes, dealt).map(|(lane, chunks)| {
            let stream = lane.stream.clone();
            stream.scope(lane.run(chunks))
        }))
        .await?;
        Ok(clock.elapsed())
    }

    /// What the last run came to, chunk after chunk.
    pub(crate) fn results(&self) -> impl Iterator<Item = &[f32]> {
        self.result.iter().map(Vec::as_slice)
    }

    /// Checks every element of every result, then wipes them.
    pub(crate) fn check(&mut self) {
        self.result.iter_mut().enumerate().for_each(|(chunk, result)| check_chunk(chunk, result));
    }

    /// Device time of the kernels alone, by events.
    pub(crate) async fn kernels_alone(&mut self) -> Result<Duration> {
        let chunks = self.source.len();
        let Lane { stream, input, output } = &mut self.lanes[0];
        device_time(stream, || {
            (0..chunks).try_for_each(|_| work(&*input, &mut *output, ROUNDS).map(drop))
        })
        .await
    }

    /// Time of the copies alone, both ways in turn, each awaited before the next one.
    pub(crate) async fn copies_alone(&mut self) -> Result<Duration> {
        let clock = Clock::start(&self.device);
        let Lane { input, output, .. } = &mut self.lanes[0];
        for (source, result) in zip(&self.source, &mut self.result) {
            input.refill(source.clone()).await?;
            *result = output.to_vec_in(take(result)).await?;
        }
        Ok(clock.elapsed())
    }
}

impl Lane {
    /// Chunk after chunk: what the kernel has read makes room for the next one, which comes in while what
    /// it wrote goes out. So a lane keeps both directions busy, also where all lanes are in step.
    async fn run(&mut self, chunks: Vec<Chunk<'_>>) -> Result<()> {
        let Lane { input, output, .. } = self;
        let mut chunks = chunks.into_iter();
        let Some((first, mut result)) = chunks.next() else { return Ok(()) };
        input.refill(first).await?;
        for (source, next) in chunks {
            work(&*input, &mut *output, ROUNDS)?;
            let out = output.to_vec_in(take(result));
            ((), *result) = try_join(input.refill(source), out).await?;
            result = next;
        }
        work(&*input, &mut *output, ROUNDS)?;
        *result = output.to_vec_in(take(result)).await?;
        Ok(())
    }
}
