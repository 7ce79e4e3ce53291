//! Streams as a user holds them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::event::Event;
use super::{Device, DeviceCore, current};
use crate::driver::Fact;
use crate::error::Result;
use crate::reactor::{Completion, Lane, StreamRole};

/// How urgent a stream's kernels are where blocks of several wait for room on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// The device's least urgent, CUDA's default.
    #[default]
    Normal,
    /// The device's most urgent. Blocks that run already are not interrupted.
    High,
}

/// What to ask of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    priority: Priority,
    name: Option<Arc<str>>,
}

impl StreamOptions {
    /// Normal priority, no name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets a name, which [`Stream`]'s `Debug` and reports of races show.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// A stream: an in-order queue of work on a device. A handle, cheap to clone.
///
/// Work goes to it inside [`Stream::scope`] and [`Stream::in_scope`], or after
/// [`Stream::set_current`]. What streams share is ordered by the library, so a stream decides what
/// may overlap and never what a program computes.
///
/// Streams are made when the device is opened (`cuStreamCreateWithPriority`, non-blocking) and lent
/// out. Dropping the last handle gives the stream back; its work still runs.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Lease>,
}

struct Lease {
    core: Arc<DeviceCore>,
    lane: Arc<Lane>,
    options: StreamOptions,
    /// Out of the pool, to be given back.
    owned: bool,
}

impl Stream {
    pub(super) fn lease(core: &Arc<DeviceCore>, options: StreamOptions) -> Stream {
        let lane = core.streams().lease(options.priority);
        let lease = Lease { core: core.clone(), lane, options, owned: true };
        lease.is_named(lease.options.name.clone());
        Stream { inner: Arc::new(lease) }
    }

    pub(super) fn shared(core: &Arc<DeviceCore>, lane: Arc<Lane>) -> Stream {
        let (least, most) = core.lanes.priorities();
        let urgent = lane.priority() == most && most != least;
        let priority = if urgent { Priority::High } else { Priority::Normal };
        let options = StreamOptions::new().priority(priority);
        Stream { inner: Arc::new(Lease { core: core.clone(), lane, options, owned: false }) }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.inner.lane
    }

    pub(crate) fn device_number(&self) -> u32 {
        self.inner.core.number()
    }

    /// The stream's device.
    pub fn device(&self) -> Device {
        Device::from_core(self.inner.core.clone())
    }

    /// The stream's priority.
    pub fn priority(&self) -> Priority {
        self.inner.options.priority
    }

    /// What the stream was made for.
    pub fn role(&self) -> StreamRole {
        self.lane().role()
    }

    /// The stream's number in its device: errors name it by that.
    pub fn number(&self) -> usize {
        self.lane().id().index()
    }

    /// The name given in [`StreamOptions`].
    pub fn name(&self) -> Option<&str> {
        self.inner.options.name.as_deref()
    }

    /// Whether both are handles of one stream of the device.
    pub fn same_stream(&self, other: &Stream) -> bool {
        Arc::ptr_eq(self.lane(), other.lane())
    }

    /// The `CUstream`, or what the simulated device calls the stream
    /// ([`SimOp::stream`](crate::sim::SimOp::stream)).
    ///
    /// For comparison and display: what is enqueued on it behind the library's back is not tracked.
    pub fn as_raw(&self) -> u64 {
        self.lane().raw()
    }

    /// Driver calls enqueued for copies, fills, launches and timed records that are not known to be
    /// finished: what counts against the limit of [`QueueFull`](crate::Error::QueueFull).
    pub fn in_flight(&self) -> u64 {
        self.lane().counted_in_flight()
    }

    /// Has the calling task (the calling thread outside of tasks) use this stream from here on,
    /// wherever no scope says otherwise.
    ///
    /// In a task made by [`spawn`](crate::spawn) the setting lasts as long as the task. In others
    /// the library cannot tell when a task ends; the setting is then a preference that many later
    /// tasks can displace.
    ///
    /// A thread's [default stream](Device::per_thread_default_stream) can be used on its thread alone.
    /// A task made by [`spawn`](crate::spawn) that a runtime moves to another worker is refused there
    /// ([`WrongThread`](crate::Error::WrongThread)), as in a scope; for any other the setting ends with
    /// its first operation elsewhere, which goes to a stream as if none had been set.
    pub fn set_current(&self) {
        current::set_stream(&self.inner.core, self);
    }

    /// Ready once everything enqueued on this stream so far is finished. Does not wait for what is
    /// enqueued later. Costs an event unless there is one at the stream's end (`cuEventRecord`), and
    /// nothing where the stream is known to be idle.
    #[must_use = "waits only if awaited"]
    pub fn synchronize(&self) -> Completion {
        self.lane().synchronize()
    }

    /// Whether everything enqueued on this stream so far is finished. Never waits: at most one event
    /// is recorded (`cuEventRecord`) and asked for (`cuEventQuery`, in place of `cuStreamQuery`), and
    /// where the stream is known to be idle nothing is called. While another thread is enqueuing
    /// here or asking, a `false` may be of just before.
    ///
    /// # Errors
    ///
    /// The device is lost.
    pub fn is_idle(&self) -> Result<bool> {
        self.lane().completion(self.lane().submitted()).is_finished()
    }

    /// Ready once the stream has room for the operation that it refused last with
    /// [`Error::QueueFull`](crate::Error::QueueFull): await it, then try again.
    pub fn ready(&self) -> Ready {
        Ready { stream: self.clone(), room: None }
    }

    /// Records an event after everything enqueued on this stream so far (`cuEventRecord`), unless
    /// there is one. On a [default stream](Device::legacy_default_stream), where others enqueue too,
    /// one is recorded each time, and takes a place in the queue.
    ///
    /// # Errors
    ///
    /// The driver refused, or the device is lost; of default streams also
    /// [`QueueFull`](crate::Error::QueueFull) and [`WrongThread`](crate::Error::WrongThread).
    pub fn record(&self) -> Result<Event> {
        Event::record(self.lane(), false)
    }

    /// Records an event that can be told apart in time from another one, see
    /// [`Event::elapsed_since`]. Costs the stream about 2 us, where [`Stream::record`] is free.
    ///
    /// # Errors
    ///
    /// The driver refused, the queue is full, or the device is lost.
    pub fn record_timed(&self) -> Result<Event> {
        Event::record(self.lane(), true)
    }

    /// Has later work on this stream wait, on the device, until `event` was reached
    /// (`cuStreamWaitEvent`). The host goes on.
    ///
    /// What buffers ask for is waited for by the library; this is for orders that no buffer shows.
    ///
    /// # Errors
    ///
    /// [`WrongDevice`](crate::Error::WrongDevice) where one is simulated and they are not of one
    /// device; the driver refused; or the device is lost.
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.wait_on(self.lane())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.device_number())
            .field("number", &self.number())
            .field("role", &self.role())
            .field("name", &self.name())
            .field("priority", &self.priority())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}

impl Lease {
    /// Tells who watches what the stream is called, if its holder has a name for it.
    fn is_named(&self, name: Option<Arc<str>>) {
        if self.options.name.is_some() {
            let (stream, number) = (self.lane.stream_id(), self.lane.id().index() as u32);
            self.core.driver().tell(Fact::Stream { stream, number, name });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.owned {
            self.is_named(None);
            self.core.streams().give_back(self.options.priority, &self.lane);
        }
    }
}

/// The future of [`Stream::ready`].
///
/// # Cancel safety
///
/// Dropping it loses nothing; no place in a line is held.
#[derive(Debug)]
#[must_use = "waits only if awaited"]
pub struct Ready {
    stream: Stream,
    room: Option<Completion>,
}

impl Future for Ready {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if let Some(room) = &mut self.room {
                let ended = std::task::ready!(Pin::new(room).poll(cx));
                self.room = None;
                ended?;
            }
            self.stream.lane().reactor().check()?;
            self.room = self.stream.lane().room();
            if self.room.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
