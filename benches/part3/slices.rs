//! Streams on slices of one array, and on arrays of their own.

use std::time::Instant;

use headwater::{Device, DeviceBuffer, DeviceSliceMut, Stream};

use crate::kernels::empty;
use crate::kernels::pipeline::busy;
use crate::report::{Pair, Ratio, Report, percentile};
use crate::{Answer, Bench, Plan};

const STREAMS: usize = 8;
/// Elements of a slice, and of an array: 16 blocks, so that all streams' fit on the device at once.
const LEN: usize = 1 << 12;

/// The same memory twice: in one array, and in several.
struct Memory {
    streams: Vec<Stream>,
    whole: DeviceBuffer<f32>,
    apart: Vec<DeviceBuffer<f32>>,
    read: DeviceBuffer<f32>,
}

impl Memory {
    fn new(device: &Device) -> Answer<Self> {
        Ok(Memory {
            streams: (0..STREAMS).map(|_| device.stream()).collect(),
            whole: device.zeros(STREAMS * LEN)?,
            apart: (0..STREAMS).map(|_| device.zeros(LEN)).collect::<Result<_, _>>()?,
            read: device.zeros(LEN)?,
        })
    }

    /// Microseconds that `rounds` operations on each stream take, till all are done and till they are
    /// enqueued. Each is of a place of its stream's: of the one array, or an array.
    fn run(
        &mut self,
        in_one: bool,
        rounds: usize,
        mut operation: impl FnMut(&DeviceBuffer<f32>, DeviceSliceMut<'_, f32>) -> Answer<()>,
    ) -> Answer<(f64, f64)> {
        let start = Instant::now();
        for _ in 0..rounds {
            for (i, stream) in self.streams.iter().enumerate() {
                let place = match in_one {
                    true => self.whole.slice_mut(i * LEN..(i + 1) * LEN)?,
                    false => self.apart[i].as_slice_mut(),
                };
                stream.in_scope(|| operation(&self.read, place))?;
            }
        }
        let enqueued = crate::micros(start);
        self.finish()?;
        Ok((crate::micros(start), enqueued))
    }

    /// The same where each operation comes after the one before, as if it were of the whole array.
    fn run_in_turn(&mut self, rounds: usize, work: u32) -> Answer<f64> {
        let start = Instant::now();
        let mut last = None;
        for _ in 0..rounds {
            for (i, stream) in self.streams.iter().enumerate() {
                if let Some(last) = &last {
                    stream.wait(last)?;
                }
                let place = self.whole.slice_mut(i * LEN..(i + 1) * LEN)?;
                drop(stream.in_scope(|| busy(place, work))?);
                last = Some(stream.record()?);
            }
        }
        self.finish()?;
        Ok(crate::micros(start))
    }

    fn finish(&self) -> Answer<()> {
        for stream in &self.streams {
            headwater::block_on(stream.synchronize())?;
        }
        Ok(())
    }
}

/// Kernels of some 80 us, in which the host enqueues one on each stream; empty ones, where what the host does
/// for each is all there is; and the first ones again, one after the other. Each kind for itself, since the
/// library expects a wait to take as long as those before it.
pub(crate) fn slices(bench: &Bench, report: &mut Report) -> Answer<()> {
    let Plan { rounds, work, .. } = bench.plan;
    let mut memory = Memory::new(&bench.device)?;
    // Else it is handed over to the streams in flight, and is memory that several share.
    headwater::block_on(bench.device.synchronize())?;
    let works = |_: &_, place: DeviceSliceMut<'_, f32>| {
        drop(busy(place, work)?);
        Ok(())
    };
    let long = in_pairs(bench, |in_one| Ok(memory.run(in_one, rounds, works)?.0))?;
    let short = in_pairs(bench, |in_one| {
        let kernel = |read: &_, place: DeviceSliceMut<'_, f32>| {
            drop(empty(read, place)?);
            Ok(())
        };
        Ok(memory.run(in_one, rounds, kernel)?.1)
    })?;
    let in_turn = in_pairs(bench, |in_turn| {
        if in_turn {
            memory.run_in_turn(rounds, work)
        } else {
            Ok(memory.run(true, rounds, works)?.0)
        }
    })?;
    if bench.dry {
        report.ours_alone("slices_vs_arrays", long.iter().map(|pair| pair.ours));
        return Ok(());
    }
    let base_is = "the same on 8 arrays";
    report.ratio("slices_vs_arrays", Ratio::OfOurs, base_is, &long)?;
    report.ratio("extra_enqueue_slices_vs_arrays", Ratio::OfOurs, base_is, &short)?;
    let base_is = "slices that are not ordered with each other";
    report.ratio("extra_whole_array_order", Ratio::OfOurs, base_is, &in_turn)
}

/// What `measure` says of both, in turn: medians of every run's repetitions.
fn in_pairs(bench: &Bench, mut measure: impl FnMut(bool) -> Answer<f64>) -> Answer<Vec<Pair>> {
    let mut pairs = Vec::new();
    for _ in 0..=bench.plan.runs {
        let mut times = [Vec::new(), Vec::new()];
        for repetition in 0..bench.plan.grids {
            for turn in 0..2 {
                let ours = (turn + repetition) % 2 == 0;
                times[usize::from(ours)].push(measure(ours)?);
            }
        }
        let [base, ours] = times.map(|t| percentile(&t, 0.5));
        pairs.push(Pair { ours, base });
    }
    pairs.remove(0); // only to warm up
    Ok(pairs)
}
