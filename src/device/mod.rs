//! A device, its streams and what is current.

mod close;
mod current;
mod default_streams;
mod event;
mod flow;
mod functions;
mod lanes;
mod memory;
#[cfg(all(test, headwater_loom))]
#[allow(clippy::unwrap_used)]
pub(crate) mod models;
mod pinned;
mod staging;
mod stream;
mod stream_pool;
mod synchronize;
mod task_streams;
mod unwind;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use current::{
    Frame, FrameGuard, Frames, budget, current_frame, current_frames, install_task_id,
};
pub use event::{Elapsed, Event};
pub(crate) use flow::{Admitted, Flow};
pub use flow::{DeviceReady, InFlight};
pub(crate) use functions::{FunctionTable, LoadedFunction};
pub(crate) use lanes::MOST as MOST_LANES;
pub(crate) use memory::{Before, Budget, DeviceBlock, MemoryRequest, Users};
pub use memory::{MemoryStats, Tenant, TenantStats, Trim};
pub(crate) use pinned::{Answer, PinnedBlock, Registered, Unregistered, VecMemory};
pub use pinned::{PinnedStats, TrimPinned};
pub use staging::StagingOptions;
pub(crate) use staging::{InLine, Staged};
pub use stream::{Priority, Ready, Stream, StreamOptions};
pub use synchronize::Synchronize;

use self::default_streams::DefaultStreams;
use self::lanes::Lanes;
use self::memory::MemoryPool;
use self::pinned::PinnedPool;
use self::staging::Staging;
use self::stream_pool::StreamPool;
use self::task_streams::TaskStreams;
use crate::driver::sim::Simulator;
use crate::driver::{DeviceInfo, Driver, DriverCalls, LoggedStep, Race, Watched};
use crate::error::Result;
use crate::reactor::{ErrorHook, Lane, LaneId, Reactor, ReactorOptions, Ticket};

/// A device and everything of this process on it: a handle, cheap to clone.
///
/// Made by [`Device::from_env`], [`Device::cuda`], [`Device::simulated`] or [`Device::builder`].
/// Buffers and streams keep it open. When the last of them is gone, it is closed in the
/// background once its work is done; dropping never blocks. The process may end at any time: its
/// exit waits for a driver call that is being made there, for a second at most.
///
/// A service that catches panics can go on with it: a panic leaves nothing half done.
#[derive(Clone)]
pub struct Device {
    core: Arc<DeviceCore>,
}

/// What a device is opened with; [`DeviceBuilder`](crate::DeviceBuilder) is its public form.
#[derive(Clone, Debug)]
pub(crate) struct DeviceOptions {
    pub(crate) inline_spin: Duration,
    pub(crate) single_stream: bool,
    pub(crate) queue_limit: u64,
    /// As [`ReactorOptions::by_hand`].
    pub(crate) by_hand: bool,
    /// Events made when the device is opened; more are made where they are needed.
    pub(crate) events_in_advance: usize,
    /// Streams shared out among tasks and threads.
    pub(crate) task_streams: u16,
    /// Streams for scopes and for `Device::stream`, of each priority.
    pub(crate) leased_streams: u16,
    /// Bytes of device memory, where it is not to be all of it.
    pub(crate) memory_limit: Option<u64>,
    /// Limits to what is in flight.
    pub(crate) in_flight_bytes: Option<u64>,
    pub(crate) in_flight_operations: Option<u64>,
    /// Whether device memory is kept for reuse.
    pub(crate) keeps_memory: bool,
    /// Checked.
    pub(crate) staging: StagingOptions,
    /// Bytes of page-locked memory in all.
    pub(crate) pinned_limit: Option<usize>,
    pub(crate) hook: ErrorHook,
}

/// What a device is opened on.
pub(crate) struct Backend {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) watched: Option<Arc<Watched>>,
    pub(crate) simulator: Option<Simulator>,
}

pub(crate) struct DeviceCore {
    /// Among the devices this process opened, from 0.
    number: u32,
    reactor: Arc<Reactor>,
    lanes: Lanes,
    streams: StreamPool,
    tasks: TaskStreams,
    default_streams: Arc<DefaultStreams>,
    memory: MemoryPool,
    /// `None` where there is no limit.
    flow: Option<Flow>,
    pinned: Arc<PinnedPool>,
    staging: Staging,
    /// Set once, when the registered modules are loaded.
    functions: OnceLock<FunctionTable>,
    /// Set once, when the first gate is made.
    gate: OnceLock<FunctionTable>,
    watched: Option<Arc<Watched>>,
    simulator: Option<Simulator>,
}

static OPENED: AtomicU32 = AtomicU32::new(0);

impl Device {
    pub(crate) fn open(backend: Backend, options: DeviceOptions) -> Result<Device> {
        let number = OPENED.fetch_add(1, Relaxed);
        if let Some(watched) = &backend.watched {
            watched.is_of(number);
        }
        let DeviceOptions { inline_spin, by_hand, ref hook, .. } = options;
        let hook = hook.clone();
        let reactor_options = ReactorOptions { device: number, inline_spin, by_hand, hook };
        let reactor = Reactor::new(backend.driver, reactor_options);
        let refused = |cause| {
            let error = reactor.refused("opening a device", cause);
            reactor.announce();
            error
        };
        reactor.make_events(options.events_in_advance).map_err(refused)?;
        let lanes = Lanes::new(number, reactor.clone(), options.queue_limit);
        let streams = StreamPool::new(&lanes, &options).map_err(refused)?;
        let tasks = TaskStreams::new(&lanes, streams.single(), &options).map_err(refused)?;
        let total = reactor.driver().info().total_memory;
        let memory = MemoryPool::new(total, options.memory_limit, options.keeps_memory);
        let core = DeviceCore {
            number,
            reactor,
            lanes,
            streams,
            tasks,
            default_streams: Arc::default(),
            memory,
            flow: Flow::new(options.in_flight_bytes, options.in_flight_operations),
            pinned: PinnedPool::new(number, options.pinned_limit),
            staging: Staging::new(options.staging),
            functions: OnceLock::new(),
            gate: OnceLock::new(),
            watched: backend.watched,
            simulator: backend.simulator,
        };
        Ok(Device { core: Arc::new(core) })
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.core
    }

    pub(crate) fn from_core(core: Arc<DeviceCore>) -> Device {
        Device { core }
    }

    /// What the device says of itself.
    pub fn info(&self) -> &DeviceInfo {
        self.core.driver().info()
    }

    /// The device's number in this process: the order of opening, from 0. Errors name it.
    pub fn number(&self) -> u32 {
        self.core.number
    }

    /// A stream of its own out of the device's pool, with normal priority.
    ///
    /// The streams were made when the device was opened. Where more are held at once than there
    /// are, the least busy one is handed out twice: work on it is then ordered more than need be.
    #[must_use = "dropping it gives the stream back"]
    pub fn stream(&self) -> Stream {
        self.stream_with(StreamOptions::default())
    }

    /// A stream of its own out of the device's pool.
    #[must_use = "dropping it gives the stream back"]
    pub fn stream_with(&self, options: StreamOptions) -> Stream {
        Stream::lease(&self.core, options)
    }

    /// The stream that an operation enqueued here and now goes to.
    pub fn current_stream(&self) -> Stream {
        current::scoped_stream(self.core.number)
            .unwrap_or_else(|| Stream::shared(&self.core, self.core.current_lane()))
    }

    /// How often each driver call was made on this device, or `None` if it was opened without
    /// [`count_driver_calls`](crate::DeviceBuilder::count_driver_calls).
    pub fn driver_calls(&self) -> Option<DriverCalls> {
        self.core.watched.as_ref().map(|watched| watched.calls())
    }

    /// What crossed the seam to the driver since the device was opened, in order, or `None` if it was
    /// opened without [`log_calls`](crate::DeviceBuilder::log_calls).
    pub fn call_log(&self) -> Option<Vec<LoggedStep>> {
        self.core.watched()?.witness()?.log()
    }

    /// The races found so far, in the order in which they were: the first 1,024. `None` if the
    /// device was opened without [`race_check`](crate::DeviceBuilder::race_check).
    pub fn races(&self) -> Option<Vec<Race>> {
        self.core.watched()?.witness()?.races()
    }

    /// The control of a simulated device; `None` on a GPU.
    pub fn simulator(&self) -> Option<&Simulator> {
        self.core.simulator.as_ref()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("number", &self.core.number)
            .field("name", &self.info().name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DeviceCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceCore").field("number", &self.number).finish_non_exhaustive()
    }
}

impl DeviceCore {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        self.reactor.driver()
    }

    pub(crate) fn watched(&self) -> Option<&Arc<Watched>> {
        self.watched.as_ref()
    }

    /// Panics where this thread has made a race and is to panic with it. Whoever calls it holds no
    /// lock.
    pub(crate) fn raise_race(&self) {
        if let Some(watched) = &self.watched {
            watched.raise();
        }
    }

    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    pub(crate) fn flow(&self) -> Option<&Flow> {
        self.flow.as_ref()
    }

    pub(crate) fn memory(&self) -> &MemoryPool {
        &self.memory
    }

    pub(crate) fn pinned(&self) -> &Arc<PinnedPool> {
        &self.pinned
    }

    pub(crate) fn staging(&self) -> &Staging {
        &self.staging
    }

    pub(crate) fn streams(&self) -> &StreamPool {
        &self.streams
    }

    pub(crate) fn functions(&self) -> &OnceLock<FunctionTable> {
        &self.functions
    }

    /// The kernel of gates.
    pub(crate) fn gate(&self) -> &OnceLock<FunctionTable> {
        &self.gate
    }

    /// The lane of that name, if it is one of this device.
    pub(crate) fn lane(&self, id: LaneId) -> Option<&Arc<Lane>> {
        self.lanes.get(id)
    }

    /// Whether an operation of this device is known to be finished. A lane that is gone has nothing on it.
    pub(crate) fn is_known_finished(&self, ticket: Ticket) -> bool {
        self.lane(ticket.lane).is_none_or(|lane| lane.is_known_finished(ticket.seq))
    }

    /// The lane that an operation enqueued here and now goes to: the innermost scope's, else the
    /// task's, else the thread's.
    pub(crate) fn current_lane(&self) -> Arc<Lane> {
        current::scoped_lane(self.number)
            .unwrap_or_else(|| self.tasks.lane_of(&self.lanes, current::caller()))
    }

    /// Has the calling task, or thread outside any, use `lane` from here on.
    pub(crate) fn set_caller_lane(&self, lane: &Arc<Lane>) {
        self.tasks.set(current::caller(), lane.id());
    }
}
