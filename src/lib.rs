//! Await GPU work.
//!
//! A copy or a kernel is on its stream when the call returns, and what comes back is a future of
//! its end: a CUDA event, found done by `cuEventQuery`. Each task has a stream of its own. What
//! tasks share is ordered by waits on the GPU, which the library places where two operations
//! conflict and nowhere else. The host waits where the program awaits, and only there.
//!
//! ```
//! use headwater::{Device, Result};
//!
//! #[headwater::kernels(ptx = include_str!("../kernels/pipeline.ptx"))]
//! // SAFETY: thread i < n touches input[i] and output[i] only; n is the length of both.
//! unsafe extern "C" {
//!     #[launch(items = output.len(), block = 256, require = input.len() == output.len(),
//!              fills = [output])]
//!     #[args(input, output, output.len() as u32, rounds)]
//!     #[twin(work_on_host)]
//!     pub safe fn work(input: &[f32], output: &mut [f32], rounds: u32);
//! }
//!
//! /// What the kernel computes, for the simulated device.
//! fn work_on_host(input: &[f32], output: &mut [f32], rounds: u32) {
//!     for (x, y) in input.iter().zip(output) {
//!         *y = (0..rounds).fold(*x, |v, _| v * 0.99 + 0.01);
//!     }
//! }
//!
//! async fn run(device: &Device) -> Result<()> {
//!     let x = device.upload(vec![1.0f32; 1000]).await?;
//!     let mut y = device.alloc::<f32>(1000)?;
//!     work(&x, &mut y, 500)?; // on this task's stream: & reads, &mut writes
//!     let mut out = device.alloc_host::<f32>(1000)?;
//!     y.copy_to(&mut out)?; // after the kernel; the host has not waited for it
//!     let out = out.read().await?; // waits; a guard over the bytes
//!     assert!(out.iter().all(|v| (v - 1.0).abs() < 1e-3));
//!     Ok(())
//! }
//!
//! # fn main() -> Result<()> {
//! // Device::from_env() for a GPU; this one is simulated, and runs anywhere.
//! let device = Device::simulated()?;
//! headwater::block_on(run(&device))
//! # }
//! ```
//!
//! # Where things are
//!
//! - [`Device`]: opened by [`Device::from_env`], [`Device::cuda`], [`Device::simulated`] or a
//!   [`DeviceBuilder`]; makes buffers and streams. [`visible_devices`] lists them without opening one.
//! - Memory: [`DeviceBuffer`]; [`HostBuffer`], which is pinned, also [in place](HostBuffer::from_vec), with guards [`HostRef`]
//!   and [`HostMut`]. Borrowed parts of either: [`DeviceSlice`], [`HostSlice`]; of a matrix: columns and
//!   tiles, [`DeviceTile`], [`HostTile`], with guards [`TileRef`] and [`TileMut`]; of a volume: blocks and
//!   planes, [`DeviceVolume`], [`HostVolume`]. [Casts](DeviceBuffer::cast). Owned parts for tasks:
//!   [`DevicePart`], [`HostPart`]. What is only read: [`SharedBuffer`].
//! - Operations: [`DeviceBuffer::copy_from`], [`DeviceBuffer::copy_to`], [`DeviceBuffer::copy_within`],
//!   [`HostBuffer::copy_from_host`], [`DeviceBuffer::fill`], kernels declared with [`kernels`]; for ordinary memory
//!   [`Device::upload`] of any [`Source`], [`DeviceBuffer::refill`], [`DeviceBuffer::to_vec`] and [`Prefetch`].
//! - Futures: [`Completion`] of an operation or of a [stream so far](Stream::synchronize),
//!   [`Synchronize`] of a device, [`Read`] and [`Write`] of pinned memory, [`Ready`] of a stream with
//!   room. Each says what dropping it does: it stops the waiting, never the work.
//! - Streams: chosen by [`Device::scope`], [`Stream::scope`], [`Stream::in_scope`], [`Stream::set_current`]; CUDA's own [default ones](Device::legacy_default_stream); [`Event`]s for orders that no buffer shows.
//! - Tasks: [`spawn`]; [`block_on`] where there is no runtime.
//! - [`guide::memory`]: which buffer to use when, with figures. [`testing`]: how to test a program without a GPU, under every
//!   order of things, and how many waits it needs ([`testing::wait_count`]). [`sim`]: the simulated device itself.
//! - Errors: one [`Error`]; a call that is refused enqueued nothing. A kernel that faults ends every
//!   wait with [`Error::DeviceLost`], which names it or its [suspects](DeviceFailure::suspects). What no call returns goes to [`DeviceBuilder::on_error`].
//!
//! # Which stream
//!
//! The innermost scope's on that device; else the one the task has set; else the task's own; else
//! the thread's. (A task is one of tokio's. A device has 32 streams for tasks and threads: more of
//! them than that share some, and what is on a shared stream runs in order.) So two spawned tasks overlap on the device unless
//! what they touch conflicts, and the branches of a `join!`, being one task, do not unless each is
//! in a [`Device::scope`].
//!
//! # In a service
//!
//! - A request that is given up (a timeout, a closed connection) may just be dropped: its work runs
//!   to its end, nothing waits, and its memory comes back after that.
//! - [`Error::QueueFull`]: await [`Stream::ready`] and try again, or answer "busy".
//! - [`Error::OutOfMemory`], [`Error::OutOfPinnedMemory`]: pass as requests end. Bound how many are
//!   let in: [`Device::alloc_wait`], [`Device::tenant`], [`Device::ready`].
//! - [`Error::DeviceLost`]: nothing on that device comes back; every request on it ends with this.
//!   On a GPU only a new process can use it again, so report it and exit.
//! - Weights are a [`SharedBuffer`]: reading them costs no wait, no lock and no record.
//! - Tests run on [`sim`], with `HEADWATER_DEVICE=sim` where the code says [`Device::from_env`].
//!
//! # Features
//!
//! `cuda` (default): the CUDA driver, loaded when a CUDA device is opened. The crate builds and runs where there is none.
//!
//! # Environment
//!
//! | variable | meaning |
//! | --- | --- |
//! | `HEADWATER_DEVICE` | what [`Device::from_env`] opens: `cuda:N` or `sim`; unset: `cuda:0` |
//! | `HEADWATER_INLINE_SPIN_US` | see [`DeviceBuilder::inline_spin`] |
//! | `HEADWATER_SEED` | the one seed to run: see [`testing::Explore`] |
//! | `HEADWATER_SINGLE_STREAM` | `1`: see [`DeviceBuilder::single_stream`] |

mod buffer;
mod builder;
mod device;
mod driver;
mod error;
mod foreign;
pub mod guide;
mod op;
mod random;
mod reactor;
pub mod sim;
mod sync;
mod task;
pub mod testing;

pub use buffer::{
    CopyOnHost, DeviceBuffer, DevicePart, DeviceSlice, DeviceSliceMut, DeviceTile, DeviceTileMut,
    DeviceVolume, DeviceVolumeMut, FromVec, HostBuffer, HostMut, HostOptions, HostPart, HostRef,
    HostSlice, HostSliceMut, HostTile, HostTileMut, HostVolume, HostVolumeMut, IntoDeviceSlice,
    IntoDeviceSliceMut, IntoDeviceTile, IntoDeviceTileMut, IntoVec, NotCast, NotDivided, NotPinned,
    NotRejoined, NotUnpinned, OnHost, Pieces, Read, ReadTile, Resize, SharedBuffer, TileMut,
    TileRef, Write, WriteTile,
};
pub use builder::{DeviceBuilder, visible_devices};
pub use bytemuck::Pod;
pub use device::{
    Device, DeviceReady, Elapsed, Event, InFlight, MemoryStats, PinnedStats, Priority, Ready,
    StagingOptions, Stream, StreamOptions, Synchronize, Tenant, TenantStats, Trim, TrimPinned,
};
pub use driver::{DeviceInfo, DriverCalls, DriverError, Race, RaceAccess, RacedMemory};
pub use error::{DeviceFailure, Error, KernelError, Result, Suspect};
pub use headwater_macros::kernels;
pub use op::{
    AllocWait, CopySource, CopyTarget, OnDevice, Prefetch, Progress, Refill, Source, ToVec, Upload,
};
pub use reactor::{Completion, StreamRole};
pub use task::{Scope, block_on, spawn};

/// What the `kernels` attribute expands to. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use inventory;

    pub use crate::driver::{KernelCost, TwinFault, TwinJob, TwinMemory};
    pub use crate::op::{
        Argument, Geometry, KernelDecl, KernelMemory, LaunchCall, ModuleDecl, Registration,
        TwinSlice, TwinSliceMut, TwinTile, TwinTileMut, argument, launch, param, pointer,
        requirement, twin,
    };
}
