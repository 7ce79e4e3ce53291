//! How much may be in flight on a device at a time, for programs that enqueue faster than it goes.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Device, DeviceCore};
use crate::error::{Error, Result};
use crate::reactor::{Completion, Ticket};
use crate::sync::Mutex;

/// What is in flight on a device, as far as is known, or may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Bytes that copies between the device and pinned memory move.
    pub bytes: u64,
    /// Launches, copies and fills.
    pub operations: u64,
}

/// The operations of one device that are not known to be finished, where there is a limit to them.
#[derive(Debug)]
pub(crate) struct Flow {
    limit: InFlight,
    /// Leaf lock.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were enqueued; some may be finished.
    enqueued: VecDeque<Enqueued>,
    /// Of these and of those that were admitted and are being enqueued.
    all: InFlight,
    /// What was refused last needs so much.
    wanted: InFlight,
}

#[derive(Clone, Copy, Debug)]
struct Enqueued {
    ticket: Ticket,
    amount: InFlight,
}

impl InFlight {
    fn add(&mut self, more: InFlight) {
        self.bytes += more.bytes;
        self.operations += more.operations;
    }

    fn remove(&mut self, less: InFlight) {
        self.bytes -= less.bytes;
        self.operations -= less.operations;
    }

    /// What of it is over `limit`, with `more`: its name, how much there is, what is to be added, and the limit.
    /// Where nothing is in flight, anything may be added, so that nothing is refused for ever.
    fn exceeds(&self, more: InFlight, limit: InFlight) -> Option<(&'static str, u64, u64, u64)> {
        let over = |now: u64, more: u64, limit: u64| now > 0 && more > limit.saturating_sub(now);
        if over(self.operations, more.operations, limit.operations) {
            return Some(("operations", self.operations, more.operations, limit.operations));
        }
        over(self.bytes, more.bytes, limit.bytes).then_some((
            "bytes",
            self.bytes,
            more.bytes,
            limit.bytes,
        ))
    }
}

impl State {
    /// Forgets what is known to be finished.
    fn sweep(&mut self, core: &DeviceCore) {
        let State { enqueued, all, .. } = self;
        enqueued.retain(|one| {
            let finished = core.is_known_finished(one.ticket);
            if finished {
                all.remove(one.amount);
            }
            !finished
        });
    }
}

/// When there is room.
enum Room {
    Now,
    /// When that has ended, unless others take it.
    After(Completion),
    /// All that takes it is being enqueued by other threads.
    Soon,
}

/// The right to enqueue one operation. What is dropped without having been enqueued is not in flight.
#[derive(Debug)]
pub(crate) struct Admitted<'f> {
    flow: &'f Flow,
    amount: InFlight,
    ticket: Option<Ticket>,
}

impl Admitted<'_> {
    /// The operation is on its stream.
    pub(crate) fn enqueued(mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let Admitted { flow, amount, ticket } = self;
        let mut state = flow.state.lock();
        match *ticket {
            Some(ticket) => state.enqueued.push_back(Enqueued { ticket, amount: *amount }),
            None => state.all.remove(*amount),
        }
    }
}

impl Flow {
    /// `None` where there is no limit.
    pub(super) fn new(bytes: Option<u64>, operations: Option<u64>) -> Option<Self> {
        let limit = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        let is_limited = bytes.is_some() || operations.is_some();
        let limit = InFlight { bytes: limit(bytes), operations: limit(operations) };
        is_limited.then(|| Flow { limit, state: Mutex::default() })
    }

    /// Lets one operation of `calls` driver calls that moves `bytes` bytes go ahead, if there is room.
    pub(crate) fn admit(
        &self,
        core: &DeviceCore,
        operation: &'static str,
        bytes: u64,
        calls: u64,
    ) -> Result<Admitted<'_>> {
        let amount = InFlight { bytes, operations: calls };
        let mut exceeded = None;
        for look in [false, true] {
            if look {
                self.look(core);
            }
            let mut state = self.state.lock();
            if state.all.exceeds(amount, self.limit).is_some() {
                state.sweep(core);
            }
            exceeded = state.all.exceeds(amount, self.limit);
            if exceeded.is_none() {
                state.all.add(amount);
                state.wanted = InFlight { bytes: 0, operations: 1 };
                return Ok(Admitted { flow: self, amount, ticket: None });
            }
            state.wanted = amount;
        }
        let (what, in_flight, needed, limit) = exceeded.unwrap_or_default();
        Err(Error::TooMuchInFlight { operation, what, in_flight, needed, limit })
    }

    /// Asks how far streams are: each once at most.
    fn look(&self, core: &DeviceCore) {
        let tickets: Vec<_> = self.state.lock().enqueued.iter().map(|one| one.ticket).collect();
        core.look(tickets);
    }

    /// What to wait for until there is room for what was refused last.
    fn room(&self, core: &DeviceCore) -> Room {
        let mut state = self.state.lock();
        let exceeds = |all: InFlight, wanted| all.exceeds(wanted, self.limit).is_some();
        state.sweep(core);
        let mut left = state.all;
        if !exceeds(left, state.wanted) {
            return Room::Now;
        }
        // The first after which there would be room, were they finished in the order enqueued.
        let wanted = state.wanted;
        let last = state.enqueued.iter().find(|one| {
            left.remove(one.amount);
            !exceeds(left, wanted)
        });
        let last = last.or(state.enqueued.back()).map(|one| one.ticket);
        let completion =
            last.and_then(|last| core.lane(last.lane).map(|lane| lane.completion(last.seq)));
        completion.map_or(Room::Soon, Room::After)
    }
}

impl Device {
    /// Ready once there is room for what the device's limits to what is in flight refused last
    /// ([`TooMuchInFlight`](Error::TooMuchInFlight)): at once where there is, or where there are no such limits. Others may have taken
    /// the room by the time that the operation is tried again.
    ///
    /// See [`DeviceBuilder::in_flight_bytes`](crate::DeviceBuilder::in_flight_bytes). A single stream has a limit of its own:
    /// [`Stream::ready`](crate::Stream::ready).
    pub fn ready(&self) -> DeviceReady {
        DeviceReady { core: self.core().clone(), waits_for: None }
    }

    /// What is in flight, as far as is known; asks nobody. `None` where the device was opened without a limit
    /// to it.
    pub fn in_flight(&self) -> Option<InFlight> {
        let flow = self.core().flow()?;
        let mut state = flow.state.lock();
        state.sweep(self.core());
        Some(state.all)
    }
}

/// The future of [`Device::ready`].
///
/// # Errors
///
/// [`Error::DeviceLost`].
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else.
#[must_use = "waits only if awaited"]
pub struct DeviceReady {
    core: Arc<DeviceCore>,
    waits_for: Option<Completion>,
}

impl Future for DeviceReady {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if let Some(waits_for) = &mut self.waits_for {
                let ended = std::task::ready!(Pin::new(waits_for).poll(cx));
                self.waits_for = None;
                ended?;
            }
            let core = self.core.clone();
            core.reactor().check()?;
            match core.flow().map_or(Room::Now, |flow| flow.room(&core)) {
                Room::Now => return Poll::Ready(Ok(())),
                Room::After(next) => self.waits_for = Some(next),
                Room::Soon => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }
}

impl fmt::Debug for DeviceReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceReady").field("waits_for", &self.waits_for).finish_non_exhaustive()
    }
}
