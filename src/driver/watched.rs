//! What watches the calls that cross the seam: counts them, logs them, checks them for races.
//!
//! A decorator around either driver, chosen when a device is built: where nobody watches there is
//! nothing in the way. Every call counts, whether it succeeded or not, and counts before it is made.
//!
//! The log and the race checker see one order of steps, whichever threads they are made on. No lock
//! is held over a call, so that order is made so: a step that ends something's life (a free, a
//! destroy) is seen before its call, since another thread can be given the address or handle anew
//! as soon as the call is made; every other step is seen when its call has succeeded, before the
//! caller can tell anyone of it.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::counted::{Counters, DriverCalls, one};
use super::races::{Checker, Race, TakeBack};
use super::step::{LoggedStep, Step, Touched};
use super::{
    ContextHandle, DeviceInfo, DevicePtr, Driver, DriverCall, DriverError, DriverResult,
    EventHandle, Fact, Fill, FunctionHandle, Launch, ModuleHandle, PtxError, StreamHandle,
};
use crate::sync::Mutex;

/// What is to be watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) log: bool,
    pub(crate) races: bool,
    /// Panics at the step that makes a race.
    pub(crate) panic_on_race: bool,
    /// Of the waits asked for, counted from 0, the one that is not made.
    pub(crate) lose_wait: Option<u64>,
    /// Another device's witness, so that the two are seen in one order.
    pub(crate) with: Option<Arc<Witness>>,
}

impl Watch {
    /// Whether any of it is.
    pub(crate) fn is_wanted(&self) -> bool {
        self.log || self.races || self.lose_wait.is_some() || self.with.is_some()
    }
}

/// A driver that is watched.
pub(crate) struct Watched {
    inner: Arc<dyn Driver>,
    /// The device's number in this process, once it has one.
    device: AtomicU32,
    counters: Counters,
    /// Where steps go, if anywhere.
    witness: Option<Arc<Witness>>,
    panic_on_race: bool,
    lose_wait: Option<u64>,
    waits: AtomicU64,
}

/// Who sees the steps of one device, or of several that share memory, in one order.
#[derive(Debug)]
pub(crate) struct Witness(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    log: Option<Vec<LoggedStep>>,
    checker: Option<Checker>,
}

impl Witness {
    pub(crate) fn log(&self) -> Option<Vec<LoggedStep>> {
        self.0.lock().log.clone()
    }

    pub(crate) fn races(&self) -> Option<Vec<Race>> {
        self.0.lock().checker.as_ref().map(|checker| checker.races().to_vec())
    }
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn Driver>, watch: Watch) -> Arc<Self> {
        let Watch { log, races, panic_on_race, lose_wait, with } = watch;
        let witness = with.or_else(|| {
            let seen = Seen { log: log.then(Vec::new), checker: races.then(Checker::default) };
            (log || races).then(|| Arc::new(Witness(Mutex::new(seen))))
        });
        Arc::new(Watched {
            inner,
            device: AtomicU32::new(0),
            counters: Counters::default(),
            witness,
            panic_on_race,
            lose_wait,
            waits: AtomicU64::new(0),
        })
    }

    /// The device is known by that number from here on.
    pub(crate) fn is_of(&self, device: u32) {
        self.device.store(device, Relaxed);
    }

    pub(crate) fn calls(&self) -> DriverCalls {
        self.counters.snapshot()
    }

    pub(crate) fn witness(&self) -> Option<&Arc<Witness>> {
        self.witness.as_ref()
    }

    /// After its call: `step` is made only where somebody sees it.
    fn saw<T>(&self, made: &DriverResult<T>, step: impl FnOnce(Option<&T>) -> Step) {
        let Some(witness) = &self.witness else { return };
        let refused = made.as_ref().err();
        let step = step(made.as_ref().ok());
        let device = self.device.load(Relaxed);
        let race = {
            let mut seen = witness.0.lock();
            let found = seen.checker.as_ref().map_or(0, |checker| checker.races().len());
            if refused.is_none()
                && let Some(checker) = &mut seen.checker
            {
                checker.step(device, &step);
            }
            let races = seen.checker.as_ref().map_or(&[][..], |checker| checker.races());
            let race = races.get(found).cloned().filter(|_| self.panic_on_race);
            seen.note(device, step, refused.copied());
            race
        };
        if let Some(race) = race
            && !thread::panicking()
        {
            panic!("{race}");
        }
    }

    /// Around a call that ends something's life.
    fn ends<T>(
        &self,
        step: impl FnOnce() -> Step,
        call: impl FnOnce() -> DriverResult<T>,
    ) -> DriverResult<T> {
        let Some(witness) = &self.witness else { return call() };
        let device = self.device.load(Relaxed);
        let step = step();
        let (take_back, logged) = {
            let mut seen = witness.0.lock();
            let checker = seen.checker.as_mut();
            let take_back =
                checker.map_or(TakeBack::nothing(), |checker| checker.step(device, &step));
            seen.note(device, step, None);
            (take_back, seen.log.as_ref().map(Vec::len))
        };
        let made = call();
        if let Err(error) = &made {
            let mut seen = witness.0.lock();
            if let Some(checker) = &mut seen.checker {
                checker.take_back(take_back);
            }
            let log = seen.log.as_mut().zip(logged);
            if let Some(logged) = log.and_then(|(log, len)| log.get_mut(len - 1)) {
                logged.refused = Some(*error);
            }
        }
        made
    }

    fn other<T>(&self, call: DriverCall, made: &DriverResult<T>) {
        self.saw(made, |_| Step::Other { call });
    }

    fn work(
        &self,
        made: &DriverResult<()>,
        (call, name): (DriverCall, &'static str),
        stream: &StreamHandle,
        touched: impl IntoIterator<Item = Touched>,
    ) {
        let stream = stream.raw();
        self.saw(made, |_| {
            let touched = touched.into_iter().collect();
            Step::Work { call, name, stream, touched }
        });
    }
}

impl Seen {
    fn note(&mut self, device: u32, step: Step, refused: Option<DriverError>) {
        if let Some(log) = &mut self.log {
            log.push(LoggedStep { device, thread: thread::current().id(), step, refused });
        }
    }
}

fn host(ptr: NonNull<u8>) -> u64 {
    ptr.as_ptr().addr() as u64
}

fn reads(start: u64, bytes: usize) -> Touched {
    Touched::new(start, bytes, false)
}

fn writes(start: u64, bytes: usize) -> Touched {
    Touched::new(start, bytes, true)
}

/// From the first byte to the last, what lies between the rows with it.
fn filled(fill: &Fill) -> Touched {
    let row = fill.columns.saturating_mul(usize::from(fill.unit));
    let above = fill.rows.saturating_sub(1).saturating_mul(fill.pitch);
    let bytes = if row == 0 || fill.rows == 0 { 0 } else { row.saturating_add(above) };
    writes(fill.dst.0, bytes)
}

// SAFETY (all unsafe calls in here): the inner driver has the same contract, the caller keeps it,
// and every argument is passed on as it came.
#[allow(unsafe_code)]
impl Driver for Watched {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn tell(&self, fact: Fact) {
        self.saw(&Ok(()), |_| match fact {
            Fact::DeviceMemory { ptr, made_at } => Step::Owned { ptr: ptr.0, bytes: 0, made_at },
            Fact::HostMemory { ptr, bytes, made_at } => {
                Step::Owned { ptr: host(ptr), bytes, made_at }
            }
            Fact::HostAccess { ptr, bytes, writes } => {
                Step::HostAccess { ptr: host(ptr), bytes, writes }
            }
        });
        self.inner.tell(fact);
    }

    fn stream_create(&self, priority: i32) -> DriverResult<StreamHandle> {
        one(&self.counters.stream_creates);
        let made = self.inner.stream_create(priority);
        self.saw(&made, |stream| Step::StreamCreated {
            stream: stream.map_or(0, StreamHandle::raw),
        });
        made
    }

    fn stream_destroy(&self, stream: StreamHandle) -> DriverResult<()> {
        one(&self.counters.stream_destroys);
        let step = Step::StreamDestroyed { stream: stream.raw() };
        self.ends(|| step, || self.inner.stream_destroy(stream))
    }

    fn stream_wait(&self, stream: &StreamHandle, event: &EventHandle) -> DriverResult<()> {
        one(&self.counters.stream_waits);
        let lost = self.lose_wait.is_some_and(|lose| self.waits.fetch_add(1, Relaxed) == lose);
        let made = if lost { Ok(()) } else { self.inner.stream_wait(stream, event) };
        let (stream, event) = (stream.raw(), event.raw());
        self.saw(&made, |_| Step::Waited { stream, event, lost });
        made
    }

    fn event_create(&self, timed: bool) -> DriverResult<EventHandle> {
        one(&self.counters.event_creates);
        let made = self.inner.event_create(timed);
        self.saw(&made, |event| Step::EventCreated { event: event.map_or(0, EventHandle::raw) });
        made
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        one(&self.counters.event_destroys);
        let step = Step::EventDestroyed { event: event.raw() };
        self.ends(|| step, || self.inner.event_destroy(event))
    }

    fn event_record(&self, event: &EventHandle, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.event_records);
        let made = self.inner.event_record(event, stream);
        let (event, stream) = (event.raw(), stream.raw());
        self.saw(&made, |_| Step::Recorded { event, stream });
        made
    }

    fn event_query(&self, event: &EventHandle) -> DriverResult<bool> {
        one(&self.counters.event_queries);
        let made = self.inner.event_query(event);
        let event = event.raw();
        self.saw(&made, |finished| Step::Queried { event, finished: finished == Some(&true) });
        made
    }

    fn event_elapsed(&self, start: &EventHandle, end: &EventHandle) -> DriverResult<Duration> {
        one(&self.counters.event_elapsed);
        let made = self.inner.event_elapsed(start, end);
        self.other(DriverCall::EventElapsed, &made);
        made
    }

    fn relax_capture(&self) -> DriverResult<()> {
        let made = self.inner.relax_capture();
        self.other(DriverCall::RelaxCapture, &made);
        made
    }

    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DriverResult<DevicePtr> {
        one(&self.counters.allocs);
        let made = self.inner.alloc(bytes, stream);
        let stream = stream.raw();
        self.saw(&made, |ptr| {
            let ptr = ptr.copied().unwrap_or(DevicePtr(0));
            Step::Allocated { ptr, bytes, stream }
        });
        made
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.frees);
        self.ends(
            || Step::Freed { ptr, stream: stream.raw() },
            // SAFETY: as said at the impl.
            || unsafe { self.inner.free(ptr, stream) },
        )
    }

    fn memory_free(&self) -> DriverResult<u64> {
        one(&self.counters.memory_queries);
        let made = self.inner.memory_free();
        self.other(DriverCall::MemoryFree, &made);
        made
    }

    fn host_alloc(&self, bytes: usize) -> DriverResult<NonNull<u8>> {
        one(&self.counters.host_allocs);
        let made = self.inner.host_alloc(bytes);
        self.saw(&made, |ptr| Step::HostAllocated { ptr: ptr.map_or(0, |&ptr| host(ptr)), bytes });
        made
    }

    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        one(&self.counters.host_frees);
        self.ends(
            || Step::HostFreed { ptr: host(ptr) },
            // SAFETY: as said at the impl.
            || unsafe { self.inner.host_free(ptr) },
        )
    }

    unsafe fn copy_h2d(
        &self,
        dst: DevicePtr,
        src: NonNull<u8>,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.copy_h2d(dst, src, bytes, stream) };
        let touched = [reads(host(src), bytes), writes(dst.0, bytes)];
        self.work(&made, (DriverCall::CopyH2D, "copy_h2d"), stream, touched);
        made
    }

    unsafe fn copy_d2h(
        &self,
        dst: NonNull<u8>,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.copy_d2h(dst, src, bytes, stream) };
        let touched = [reads(src.0, bytes), writes(host(dst), bytes)];
        self.work(&made, (DriverCall::CopyD2H, "copy_d2h"), stream, touched);
        made
    }

    unsafe fn copy_d2d(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.copy_d2d(dst, src, bytes, stream) };
        let touched = [reads(src.0, bytes), writes(dst.0, bytes)];
        self.work(&made, (DriverCall::CopyD2D, "copy_d2d"), stream, touched);
        made
    }

    fn context(&self) -> ContextHandle {
        self.inner.context()
    }

    unsafe fn copy_peer(
        &self,
        dst: DevicePtr,
        dst_context: ContextHandle,
        src: DevicePtr,
        src_context: ContextHandle,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        let made =
            unsafe { self.inner.copy_peer(dst, dst_context, src, src_context, bytes, stream) };
        let touched = [reads(src.0, bytes), writes(dst.0, bytes)];
        self.work(&made, (DriverCall::CopyPeer, "copy_peer"), stream, touched);
        made
    }

    unsafe fn fill(&self, fill: Fill, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.fills);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.fill(fill, stream) };
        self.work(&made, (DriverCall::Fill, "fill"), stream, [filled(&fill)]);
        made
    }

    fn module_load(&self, ptx: &CStr) -> Result<ModuleHandle, PtxError> {
        one(&self.counters.module_loads);
        let made = self.inner.module_load(ptx);
        let outcome = made.as_ref().map(drop).map_err(|refused| refused.error);
        self.other(DriverCall::ModuleLoad, &outcome);
        made
    }

    fn module_unload(&self, module: ModuleHandle) -> DriverResult<()> {
        one(&self.counters.module_unloads);
        let made = self.inner.module_unload(module);
        self.other(DriverCall::ModuleUnload, &made);
        made
    }

    fn module_function(&self, module: &ModuleHandle, name: &CStr) -> DriverResult<FunctionHandle> {
        one(&self.counters.function_lookups);
        let made = self.inner.module_function(module, name);
        self.other(DriverCall::ModuleFunction, &made);
        made
    }

    unsafe fn launch(&self, launch: &Launch<'_>, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.launches);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.launch(launch, stream) };
        let touched = launch.accesses.iter().map(|a| Touched::new(a.ptr.0, a.bytes, a.writes));
        self.work(&made, (DriverCall::Launch, launch.name), stream, touched);
        made
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimOptions, open};

    #[test]
    fn every_call_counts_whether_it_succeeds_or_not() {
        let watched = Watched::new(open(SimOptions::new()).0, Watch::default());
        let stream = watched.stream_create(0).unwrap();
        let before = watched.calls();
        assert!(watched.alloc(0, &stream).is_err());
        let event = watched.event_create(false).unwrap();
        watched.event_record(&event, &stream).unwrap();
        watched.event_query(&event).unwrap();
        watched.event_query(&event).unwrap();
        let expected = DriverCalls {
            allocs: 1,
            event_creates: 1,
            event_records: 1,
            event_queries: 2,
            ..DriverCalls::default()
        };
        assert_eq!(watched.calls().since(&before), expected);
        assert_eq!(before.stream_creates, 1);
    }
}
