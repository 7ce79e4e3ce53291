//! A grid of tasks that each need their neighbours' last step: an empty kernel a task.

use std::time::Instant;

use headwater::{Device, DeviceBuffer, Stream};

use crate::kernels::empty_stencil;
use crate::raw_grid::RawGrid;
use crate::report::{Pair, Ratio, Report, percentile};
use crate::{Answer, Bench};

/// Cells in a row, and rows.
pub(crate) const SIDE: usize = 16;
pub(crate) const STEPS: usize = 20;
/// Elements of a cell.
pub(crate) const CELL: usize = 256;
const TASKS: f64 = (SIDE * SIDE * STEPS) as f64;

/// A cell's neighbours above, below, to the left and to the right; itself where there is none.
pub(crate) fn neighbours(row: usize, column: usize) -> [(usize, usize); 4] {
    let last = SIDE - 1;
    [
        (row.saturating_sub(1), column),
        ((row + 1).min(last), column),
        (row, column.saturating_sub(1)),
        (row, (column + 1).min(last)),
    ]
}

/// The grid as a program has it: a stream for each row of cells, and no event in the text.
struct Ours {
    streams: Vec<Stream>,
    /// The cells of even and of odd steps.
    cells: [Vec<DeviceBuffer<f32>>; 2],
}

impl Ours {
    fn new(device: &Device) -> Answer<Self> {
        let streams = (0..SIDE).map(|_| device.stream()).collect();
        let cells = || (0..SIDE * SIDE).map(|_| device.zeros(CELL)).collect::<Result<_, _>>();
        Ok(Ours { streams, cells: [cells()?, cells()?] })
    }

    fn enqueue(&mut self) -> Answer<()> {
        let [even, odd] = &mut self.cells;
        for step in 0..STEPS {
            let (old, new) = if step % 2 == 0 { (&*even, &mut *odd) } else { (&*odd, &mut *even) };
            for row in 0..SIDE {
                self.streams[row].in_scope(|| {
                    for column in 0..SIDE {
                        let cell = |(row, column): (usize, usize)| &old[row * SIDE + column];
                        let [up, down, left, right] = neighbours(row, column).map(cell);
                        let own = cell((row, column));
                        let next = &mut new[row * SIDE + column];
                        drop(empty_stencil(own, up, down, left, right, next)?);
                    }
                    Ok::<_, headwater::Error>(())
                })?;
            }
        }
        Ok(())
    }

    async fn finish(&self) -> Answer<()> {
        for stream in &self.streams {
            stream.synchronize().await?;
        }
        Ok(())
    }
}

/// Microseconds a task, from the first call until the last task is done.
pub(crate) fn stencil(bench: &Bench, report: &mut Report) -> Answer<()> {
    let id = "grid_stencil";
    let mut ours = Ours::new(&bench.device)?;
    let raw = if bench.dry { None } else { Some(RawGrid::new(bench.device.info().ordinal)?) };
    let mut runs = Vec::new();
    for _ in 0..=bench.plan.runs {
        let (mut times, mut base) = (Vec::new(), Vec::new());
        for _ in 0..bench.plan.grids {
            let start = Instant::now();
            ours.enqueue()?;
            headwater::block_on(ours.finish())?;
            times.push(start.elapsed().as_secs_f64() * 1e6 / TASKS);
            if let Some(raw) = &raw {
                let start = Instant::now();
                raw.enqueue()?;
                raw.finish()?;
                base.push(start.elapsed().as_secs_f64() * 1e6 / TASKS);
            }
        }
        runs.push(Pair { ours: percentile(&times, 0.5), base: percentile(&base, 0.5) });
    }
    runs.remove(0); // only to warm up
    if raw.is_none() {
        report.ours_alone(id, runs.iter().map(|run| run.ours));
        return Ok(());
    }
    let base_is = "cuLaunchKernel + cuEventRecord + cuStreamWaitEvent for each neighbouring row's task, by hand";
    report.ratio(id, Ratio::OfOurs, base_is, &runs)
}
