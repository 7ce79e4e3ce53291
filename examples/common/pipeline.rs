//! The pipeline of `overlap`: chunks of one pinned array, each copied in, worked on and copied back to
//! the same place of another.
#![allow(dead_code, reason = "the example and the benchmark use different parts of it")]

use std::time::Duration;

use headwater::{Device, DeviceBuffer, HostBuffer, HostRef, Result, Stream};

use super::clock::{Clock, device_time};
use super::kernels::{work, work_on_host};

/// Rounds of `v * 0.99 + 0.01` for each element.
pub(crate) const ROUNDS: u32 = 500;
/// Elements repeat after so many.
const PERIOD: usize = 4096;

/// An array of host memory for each direction, and a pair of device buffers with a stream for each of
/// several lanes.
pub(crate) struct Pipeline {
    device: Device,
    source: HostBuffer<f32>,
    result: HostBuffer<f32>,
    /// Elements of a chunk.
    len: usize,
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
        let mut source = device.alloc_host(chunks * len)?;
        for chunk in source.write().await?.chunks_mut(len) {
            for (i, x) in chunk.iter_mut().enumerate() {
                *x = element(i);
            }
        }
        let result = device.alloc_host(chunks * len)?;
        let lanes = (0..lanes)
            .map(|_| {
                let stream = device.stream();
                let (input, output) =
                    stream.in_scope(|| Ok((device.alloc(len)?, device.alloc(len)?)))?;
                Ok(Lane { stream, input, output })
            })
            .collect::<Result<_>>()?;
        Ok(Pipeline { device: device.clone(), source, result, len, lanes })
    }

    /// Puts the whole job on the first `lanes` lanes, chunks dealt in turn, and awaits it. Returns
    /// how long that took.
    pub(crate) async fn run(&mut self, lanes: usize) -> Result<Duration> {
        let clock = Clock::start(&self.device);
        let chunks = self.source.chunks(self.len)?.zip(self.result.chunks_mut(self.len)?);
        for (chunk, (source, mut result)) in chunks.enumerate() {
            let Lane { stream, input, output } = &mut self.lanes[chunk % lanes];
            stream.in_scope(|| {
                input.copy_from(&source)?;
                work(&*input, &mut *output, ROUNDS)?;
                output.copy_to(&mut result)
            })?;
        }
        self.result.read().await?;
        Ok(clock.elapsed())
    }

    /// What the last run came to.
    pub(crate) async fn results(&self) -> Result<HostRef<'_, f32>> {
        self.result.read().await
    }

    /// Checks every element of every result, then wipes them.
    pub(crate) async fn check(&mut self) -> Result<()> {
        let mut result = self.result.write().await?;
        let chunks = result.chunks_mut(self.len).enumerate();
        chunks.for_each(|(chunk, result)| check_chunk(chunk, result));
        Ok(())
    }

    /// Device time of the kernels alone, by events.
    pub(crate) async fn kernels_alone(&mut self) -> Result<Duration> {
        let Lane { stream, input, output } = &mut self.lanes[0];
        let chunks = self.source.chunks(self.len)?.count();
        device_time(stream, || {
            (0..chunks).try_for_each(|_| work(&*input, &mut *output, ROUNDS).map(drop))
        })
        .await
    }

    /// Device time of the copies alone, both ways in turn on one stream, by events.
    pub(crate) async fn copies_alone(&mut self) -> Result<Duration> {
        let Lane { stream, input, output } = &mut self.lanes[0];
        let mut chunks = self.source.chunks(self.len)?.zip(self.result.chunks_mut(self.len)?);
        device_time(stream, || {
            chunks.try_for_each(|(source, mut result)| {
                input.copy_from(&source)?;
                output.copy_to(&mut result).map(drop)
            })
        })
        .await
    }

    /// Device time of the uploads alone, by events.
    pub(crate) async fn uploads_alone(&mut self) -> Result<Duration> {
        let Lane { stream, input, .. } = &mut self.lanes[0];
        let mut chunks = self.source.chunks(self.len)?;
        device_time(stream, || chunks.try_for_each(|s| input.copy_from(&s).map(drop))).await
    }

    /// Device time of the downloads alone, by events.
    pub(crate) async fn downloads_alone(&mut self) -> Result<Duration> {
        let Lane { stream, output, .. } = &mut self.lanes[0];
        let mut chunks = self.result.chunks_mut(self.len)?;
        device_time(stream, || chunks.try_for_each(|mut r| output.copy_to(&mut r).map(drop))).await
    }

    /// Time of all copies, uploads on two streams beside downloads on two others: a stream alone
    /// leaves its copy engine idle between two copies. Needs four lanes that have run.
    pub(crate) async fn copies_both_ways(&mut self) -> Result<Duration> {
        let clock = Clock::start(&self.device);
        let chunks = self.source.chunks(self.len)?.zip(self.result.chunks_mut(self.len)?);
        for (chunk, (source, mut result)) in chunks.enumerate() {
            let Lane { stream, input, .. } = &mut self.lanes[chunk % 2];
            stream.in_scope(|| input.copy_from(&source))?;
            let Lane { stream, output, .. } = &self.lanes[2 + chunk % 2];
            stream.in_scope(|| output.copy_to(&mut result))?;
        }
        for lane in &self.lanes {
            lane.stream.synchronize().await?;
        }
        Ok(clock.elapsed())
    }
}

/// Checks every element of a chunk after the work, then wipes it.
pub(crate) fn check_chunk(chunk: usize, result: &mut [f32]) {
    let expected = expected();
    for (i, x) in result.iter_mut().enumerate() {
        let expected = expected[i % PERIOD];
        assert_eq!(x.to_bits(), expected.to_bits(), "chunk {chunk}, element {i}: {x}");
        *x = f32::NAN;
    }
}

/// What element `i` of a chunk is before the work.
pub(crate) fn element(i: usize) -> f32 {
    (i % PERIOD) as f32 / PERIOD as f32
}

/// What the first elements of a chunk are after the work.
fn expected() -> Vec<f32> {
    let before: Vec<f32> = (0..PERIOD).map(element).collect();
    let mut after = vec![0.0; PERIOD];
    work_on_host(&before, &mut after, ROUNDS);
    after
}
