//! The pipeline of `overlap`: chunks of pinned memory, each copied in, worked on and copied back.
#![allow(dead_code, reason = "the example and the benchmark use different parts of it")]

use std::time::Duration;

use headwater::{Device, DeviceBuffer, Elapsed, HostBuffer, Result, Stream};

use super::clock::Clock;
use super::kernels::{work, work_on_host};

/// Rounds of `v * 0.99 + 0.01` for each element.
pub(crate) const ROUNDS: u32 = 500;
/// Elements repeat after so many.
const PERIOD: usize = 4096;

/// Chunks of host memory, and a pair of device buffers with a stream for each of several lanes.
pub(crate) struct Pipeline {
    device: Device,
    sources: Vec<HostBuffer<f32>>,
    results: Vec<HostBuffer<f32>>,
    lanes: Vec<Lane>,
}

struct Lane {
    stream: Stream,
    input: DeviceBuffer<f32>,
    output: DeviceBuffer<f32>,
}

impl Pipeline {
    /// `chunks` chunks of `len` elements, and `lanes` lanes.
    pub(crate) async fn new(
        device: &Device,
        chunks: usize,
        len: usize,
        lanes: usize,
    ) -> Result<Self> {
        let mut sources = Vec::new();
        let mut results = Vec::new();
        for _ in 0..chunks {
            let mut source = device.alloc_host(len)?;
            for (i, x) in source.write().await?.iter_mut().enumerate() {
                *x = element(i);
            }
            sources.push(source);
            results.push(device.alloc_host(len)?);
        }
        let lanes = (0..lanes)
            .map(|_| {
                let stream = device.stream();
                let (input, output) =
                    stream.in_scope(|| Ok((device.alloc(len)?, device.alloc(len)?)))?;
                Ok(Lane { stream, input, output })
            })
            .collect::<Result<_>>()?;
        Ok(Pipeline { device: device.clone(), sources, results, lanes })
    }

    /// Puts the whole job on the first `lanes` lanes, chunks dealt in turn, and awaits it. Returns
    /// how long that took.
    pub(crate) async fn run(&mut self, lanes: usize) -> Result<Duration> {
        let clock = Clock::start(&self.device);
        for (chunk, source) in self.sources.iter().enumerate() {
            let Lane { stream, input, output } = &mut self.lanes[chunk % lanes];
            let result = &mut self.results[chunk];
            stream.in_scope(|| {
                input.copy_from(source)?;
                work(&*input, &mut *output, ROUNDS)?;
                output.copy_to(result)
            })?;
        }
        for result in &self.results {
            result.read().await?;
        }
        Ok(clock.elapsed())
    }

    /// Checks every element of every result, then wipes them.
    pub(crate) async fn check(&mut self) -> Result<()> {
        let expected = expected();
        for (chunk, result) in self.results.iter_mut().enumerate() {
            let mut result = result.write().await?;
            for (i, x) in result.iter_mut().enumerate() {
                let expected = expected[i % PERIOD];
                assert_eq!(x.to_bits(), expected.to_bits(), "chunk {chunk}, element {i}: {x}");
                *x = f32::NAN;
            }
        }
        Ok(())
    }

    /// Device time of the kernels alone, by events.
    pub(crate) async fn kernels_alone(&mut self) -> Result<Duration> {
        let Lane { stream, input, output } = &mut self.lanes[0];
        let chunks = self.sources.len();
        timed(stream, || {
            (0..chunks).try_for_each(|_| work(&*input, &mut *output, ROUNDS).map(drop))
        })
        .await
    }

    /// Device time of the copies alone, both ways in turn on one stream, by events.
    pub(crate) async fn copies_alone(&mut self) -> Result<Duration> {
        let Lane { stream, input, output } = &mut self.lanes[0];
        let chunks = self.sources.iter().zip(&mut self.results);
        timed(stream, || {
            chunks.into_iter().try_for_each(|(source, result)| {
                input.copy_from(source)?;
                output.copy_to(result).map(drop)
            })
        })
        .await
    }

    /// Device time of the uploads alone, by events.
    pub(crate) async fn uploads_alone(&mut self) -> Result<Duration> {
        let Lane { stream, input, .. } = &mut self.lanes[0];
        timed(stream, || self.sources.iter().try_for_each(|s| input.copy_from(s).map(drop))).await
    }

    /// Device time of the downloads alone, by events.
    pub(crate) async fn downloads_alone(&mut self) -> Result<Duration> {
        let Lane { stream, output, .. } = &mut self.lanes[0];
        timed(stream, || self.results.iter_mut().try_for_each(|r| output.copy_to(r).map(drop)))
            .await
    }

    /// Time of all copies, uploads on two streams beside downloads on two others: a stream alone
    /// leaves its copy engine idle between two copies. Needs four lanes that have run.
    pub(crate) async fn copies_both_ways(&mut self) -> Result<Duration> {
        let clock = Clock::start(&self.device);
        for (chunk, source) in self.sources.iter().enumerate() {
            let Lane { stream, input, .. } = &mut self.lanes[chunk % 2];
            stream.in_scope(|| input.copy_from(source))?;
            let Lane { stream, output, .. } = &self.lanes[2 + chunk % 2];
            stream.in_scope(|| output.copy_to(&mut self.results[chunk]))?;
        }
        for lane in &self.lanes {
            lane.stream.synchronize().await?;
        }
        Ok(clock.elapsed())
    }
}

/// What element `i` of a chunk is before the work.
fn element(i: usize) -> f32 {
    (i % PERIOD) as f32 / PERIOD as f32
}

/// What the first elements of a chunk are after the work.
fn expected() -> Vec<f32> {
    let before: Vec<f32> = (0..PERIOD).map(element).collect();
    let mut after = vec![0.0; PERIOD];
    work_on_host(&before, &mut after, ROUNDS);
    after
}

/// Device time of what `enqueue` puts on `stream`.
async fn timed(stream: &Stream, enqueue: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = stream.record_timed()?;
    stream.in_scope(enqueue)?;
    let end = stream.record_timed()?;
    (&end).await?;
    match end.elapsed_since(&start)? {
        Elapsed::Time(time) => Ok(time),
        other => panic!("both events were recorded with timing and awaited, yet: {other:?}"),
    }
}
