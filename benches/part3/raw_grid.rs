//! The stencil grid with events placed by hand.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_uint;
use std::ptr::{self, null_mut};

use cudarc::driver::sys::*;

use crate::Answer;
use crate::grid::{CELL, SIDE, STEPS, neighbours};
use crate::raw::{self, call, primary_context};

const PTX: &str = concat!(include_str!("../../kernels/probe.ptx"), "\0");

/// Streams, events and memory, never destroyed: it lives as long as the process.
pub(crate) struct RawGrid {
    context: CUcontext,
    kernel: CUfunction,
    /// One for each row of cells.
    streams: Vec<CUstream>,
    /// One for each cell of even and of odd steps, recorded after its task.
    events: [Vec<CUevent>; 2],
    cells: [Vec<CUdeviceptr>; 2],
}

impl RawGrid {
    /// On the primary context of device `ordinal`.
    pub(crate) fn new(ordinal: usize) -> Answer<Self> {
        let (_, context) = primary_context(ordinal)?;
        let (mut module, mut kernel) = (null_mut(), null_mut());
        call!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()))?;
        call!(cuModuleGetFunction(&mut kernel, module, c"empty_stencil".as_ptr()))?;
        let stream = |_| raw::stream();
        let event = |_| {
            let mut event = null_mut();
            call!(cuEventCreate(&mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint))?;
            Answer::Ok(event)
        };
        let cell = |_| {
            let mut cell = 0;
            call!(cuMemAlloc_v2(&mut cell, CELL * size_of::<f32>()))?;
            Answer::Ok(cell)
        };
        let all = 0..SIDE * SIDE;
        let grid = RawGrid {
            context,
            kernel,
            streams: (0..SIDE).map(stream).collect::<Answer<_>>()?,
            events: [
                all.clone().map(event).collect::<Answer<_>>()?,
                all.clone().map(event).collect::<Answer<_>>()?,
            ],
            cells: [
                all.clone().map(cell).collect::<Answer<_>>()?,
                all.map(cell).collect::<Answer<_>>()?,
            ],
        };
        call!(cuCtxSetCurrent(null_mut()))?;
        Ok(grid)
    }

    /// A task comes after those of the step before in its own cell and beside it: on its own stream
    /// they are in order, and for those of the rows above and below it waits. These are also the
    /// ones that read what it overwrites.
    pub(crate) fn enqueue(&self) -> Answer<()> {
        call!(cuCtxSetCurrent(self.context))?;
        for step in 0..STEPS {
            let (old, new) = (step % 2, 1 - step % 2);
            for (row, stream) in self.streams.iter().enumerate() {
                for column in 0..SIDE {
                    let beside = neighbours(row, column);
                    for (other, _) in beside.iter().filter(|(other, _)| step > 0 && *other != row) {
                        let event = self.events[old][other * SIDE + column];
                        call!(cuStreamWaitEvent(*stream, event, 0))?;
                    }
                    let cell = |(row, column)| self.cells[old][row * SIDE + column];
                    self.launch(
                        *stream,
                        cell((row, column)),
                        beside.map(cell),
                        self.cells[new][row * SIDE + column],
                    )?;
                    call!(cuEventRecord(self.events[new][row * SIDE + column], *stream))?;
                }
            }
        }
        Ok(())
    }

    fn launch(
        &self,
        stream: CUstream,
        mut cell: CUdeviceptr,
        mut beside: [CUdeviceptr; 4],
        mut next: CUdeviceptr,
    ) -> Answer<()> {
        let mut n = CELL as u32;
        let [up, down, left, right] = &mut beside;
        let mut params = [
            ptr::from_mut(&mut cell).cast(),
            ptr::from_mut(up).cast(),
            ptr::from_mut(down).cast(),
            ptr::from_mut(left).cast(),
            ptr::from_mut(right).cast(),
            ptr::from_mut(&mut next).cast(),
            ptr::from_mut(&mut n).cast(),
        ];
        let (params, block) = (params.as_mut_ptr(), CELL as c_uint);
        call!(cuLaunchKernel(self.kernel, 1, 1, 1, block, 1, 1, 0, stream, params, null_mut()))?;
        Ok(())
    }

    pub(crate) fn finish(&self) -> Answer<()> {
        for stream in &self.streams {
            call!(cuStreamSynchronize(*stream))?;
        }
        call!(cuCtxSetCurrent(null_mut()))?;
        Ok(())
    }
}
