//! What watches the calls that cross the seam: counts them, and makes them known to a witness.
//!
//! A decorator around either driver, chosen when a device is built: where nobody watches there is
//! nothing in the way. Every call counts, whether it succeeded or not, and counts before it is made.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::counted::{Counters, DriverCalls, one};
use super::races::Race;
use super::step::{Step, Touched};
use super::witness::{Watch, Witness};
use super::{
    ContextHandle, CopyRows, DefaultStream, DeviceInfo, DevicePtr, Driver, DriverCall,
    DriverResult, EventHandle, Fact, Fill, FunctionHandle, HostKind, Launch, MemAccess,
    ModuleHandle, PoolUsage, PtxError, StreamHandle,
};
use crate::sync::Mutex;

/// A driver that is watched.
pub(crate) struct Watched {
    inner: Arc<dyn Driver>,
    /// The device's number in this process, once it has one.
    device: AtomicU32,
    counters: Counters,
    /// Where steps go, if anywhere.
    witness: Option<Arc<Witness>>,
    panic_on_race: bool,
    /// Races found in steps of a thread that it is still to panic with.
    raised: Mutex<Vec<(ThreadId, Race)>>,
    lose_wait: Option<u64>,
    waits: AtomicU64,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn Driver>, watch: Watch) -> Arc<Self> {
        let Watch { log, races, panic_on_race, lose_wait, with } = watch;
        let witness = with.or_else(|| (log || races).then(|| Witness::new(log, races)));
        Arc::new(Watched {
            inner,
            device: AtomicU32::new(0),
            counters: Counters::default(),
            witness,
            panic_on_race,
            raised: Mutex::default(),
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
        let (step, refused) = (step(made.as_ref().ok()), made.as_ref().err().copied());
        let race = witness.saw(self.device.load(Relaxed), step, refused);
        if let Some(race) = race.filter(|_| self.panic_on_race) {
            self.raised.lock().push((thread::current().id(), race));
        }
    }

    /// Panics where a step of this thread has made a race since the last time. Not in the step itself,
    /// which comes from within locks: whoever calls this holds none.
    #[track_caller]
    pub(crate) fn raise(&self) {
        if !self.panic_on_race || thread::panicking() {
            return;
        }
        let own = thread::current().id();
        let mut raised = self.raised.lock();
        let first = raised.iter().position(|(thread, _)| *thread == own);
        let race = first.map(|first| raised.remove(first).1);
        raised.retain(|(thread, _)| *thread != own);
        drop(raised);
        if let Some(race) = race {
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
        let ending = witness.sees_end(self.device.load(Relaxed), step());
        let made = call();
        if let Err(error) = &made {
            witness.was_refused(ending, *error);
        }
        made
    }

    fn work(
        &self,
        made: &DriverResult<()>,
        (call, name, function): (DriverCall, &'static str, u64),
        stream: &StreamHandle,
        touched: impl IntoIterator<Item = Touched>,
    ) {
        let stream = stream.id();
        self.saw(made, |_| {
            let touched = touched.into_iter().collect();
            Step::Work { call, name, stream, function, touched }
        });
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

fn filled(fill: &Fill) -> Touched {
    let row = fill.columns.saturating_mul(usize::from(fill.unit));
    Touched::in_rows(fill.dst.0, (row, fill.rows, fill.pitch), true)
}

// SAFETY (all unsafe calls in here): the inner driver has the same contract, the caller keeps it,
// and every argument is passed on as it came.
#[allow(unsafe_code)]
impl Driver for Watched {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn sees_accesses(&self) -> bool {
        self.witness.is_some() || self.inner.sees_accesses()
    }

    fn tell(&self, fact: Fact) {
        self.saw(&Ok(()), |_| match fact.clone() {
            Fact::Stream { stream, number, name } => Step::Named { stream, number, name },
            Fact::DeviceMemory { ptr, made_at } => Step::Owned { ptr: ptr.0, bytes: 0, made_at },
            Fact::HostMemory { ptr, bytes, made_at } => {
                Step::Owned { ptr: host(ptr), bytes, made_at }
            }
            Fact::HostAccess { ptr, row, rows, pitch, writes } => {
                Touched::in_rows(host(ptr), (row, rows, pitch), writes).by_host()
            }
        });
        self.inner.tell(fact);
    }

    fn stream_create(&self, priority: i32) -> DriverResult<StreamHandle> {
        one(&self.counters.stream_creates);
        let made = self.inner.stream_create(priority);
        self.saw(&made, |stream| Step::StreamCreated {
            stream: stream.map_or(0, StreamHandle::id),
        });
        made
    }

    fn default_stream(&self, which: DefaultStream) -> StreamHandle {
        self.inner.default_stream(which)
    }

    fn stream_destroy(&self, stream: StreamHandle) -> DriverResult<()> {
        one(&self.counters.stream_destroys);
        let step = Step::StreamDestroyed { stream: stream.id() };
        self.ends(|| step, || self.inner.stream_destroy(stream))
    }

    fn stream_wait(&self, stream: &StreamHandle, event: &EventHandle) -> DriverResult<()> {
        one(&self.counters.stream_waits);
        let nth = self.waits.fetch_add(1, Relaxed);
        let lost = self.lose_wait == Some(nth);
        let made = if lost { Ok(()) } else { self.inner.stream_wait(stream, event) };
        let (stream, event) = (stream.id(), event.raw());
        self.saw(&made, |_| Step::Waited { stream, event, lost, nth });
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
        let (event, stream) = (event.raw(), stream.id());
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
        self.saw(&made, |_| Step::Elapsed { start: start.raw(), end: end.raw() });
        made
    }

    fn relax_capture(&self) -> DriverResult<()> {
        let made = self.inner.relax_capture();
        self.saw(&made, |_| Step::Other { call: DriverCall::RelaxCapture });
        made
    }

    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DriverResult<DevicePtr> {
        one(&self.counters.allocs);
        let made = self.inner.alloc(bytes, stream);
        let stream = stream.id();
        self.saw(&made, |ptr| {
            let ptr = ptr.copied().unwrap_or(DevicePtr(0));
            Step::Allocated { ptr, bytes, stream }
        });
        made
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.frees);
        self.ends(
            || Step::Freed { ptr, stream: stream.id() },
            // SAFETY: as said at the impl.
            || unsafe { self.inner.free(ptr, stream) },
        )
    }

    fn memory_free(&self) -> DriverResult<u64> {
        one(&self.counters.memory_queries);
        let made = self.inner.memory_free();
        self.saw(&made, |_| Step::Other { call: DriverCall::MemoryFree });
        made
    }

    fn pool_trim(&self, keep: u64, freed: Option<&EventHandle>) -> DriverResult<()> {
        one(&self.counters.pool_trims);
        let made = self.inner.pool_trim(keep, freed);
        self.saw(&made, |_| Step::Other { call: DriverCall::PoolTrim });
        made
    }

    fn pool_usage(&self) -> DriverResult<PoolUsage> {
        one(&self.counters.memory_queries);
        let made = self.inner.pool_usage();
        self.saw(&made, |_| Step::Other { call: DriverCall::PoolUsage });
        made
    }

    fn host_alloc(&self, bytes: usize, kind: HostKind) -> DriverResult<NonNull<u8>> {
        one(&self.counters.host_allocs);
        let made = self.inner.host_alloc(bytes, kind);
        let write_combined = kind == HostKind::WriteCombined;
        self.saw(&made, |ptr| {
            let ptr = ptr.map_or(0, |&ptr| host(ptr));
            Step::HostAllocated { ptr, bytes, write_combined }
        });
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

    unsafe fn host_register(&self, ptr: NonNull<u8>, bytes: usize) -> DriverResult<()> {
        one(&self.counters.host_registers);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.host_register(ptr, bytes) };
        self.saw(&made, |_| Step::HostRegistered { ptr: host(ptr), bytes });
        made
    }

    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        one(&self.counters.host_unregisters);
        self.ends(
            || Step::HostUnregistered { ptr: host(ptr) },
            // SAFETY: as said at the impl.
            || unsafe { self.inner.host_unregister(ptr) },
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
        self.work(&made, (DriverCall::CopyH2D, "copy_h2d", 0), stream, touched);
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
        self.work(&made, (DriverCall::CopyD2H, "copy_d2h", 0), stream, touched);
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
        self.work(&made, (DriverCall::CopyD2D, "copy_d2d", 0), stream, touched);
        made
    }

    unsafe fn copy_rows(&self, copy: &CopyRows, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.copy_rows(copy, stream) };
        self.work(&made, (copy.call(), copy.name(), 0), stream, copy.touched());
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
        self.work(&made, (DriverCall::CopyPeer, "copy_peer", 0), stream, touched);
        made
    }

    unsafe fn fill(&self, fill: Fill, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.fills);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.fill(fill, stream) };
        self.work(&made, (DriverCall::Fill, "fill", 0), stream, [filled(&fill)]);
        made
    }

    fn module_load(&self, ptx: &CStr) -> Result<ModuleHandle, PtxError> {
        one(&self.counters.module_loads);
        let made = self.inner.module_load(ptx);
        let loaded = made.as_ref().map(ModuleHandle::raw).map_err(|refused| refused.error);
        self.saw(&loaded, |module| Step::ModuleLoaded { module: module.copied().unwrap_or(0) });
        made
    }

    fn module_unload(&self, module: ModuleHandle) -> DriverResult<()> {
        one(&self.counters.module_unloads);
        let step = Step::ModuleUnloaded { module: module.raw() };
        self.ends(|| step, || self.inner.module_unload(module))
    }

    fn module_function(&self, module: &ModuleHandle, name: &CStr) -> DriverResult<FunctionHandle> {
        one(&self.counters.function_lookups);
        let made = self.inner.module_function(module, name);
        self.saw(&made, |function| Step::FunctionFound {
            module: module.raw(),
            function: function.map_or(0, FunctionHandle::raw),
        });
        made
    }

    unsafe fn launch(&self, launch: &Launch<'_>, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.launches);
        // SAFETY: as said at the impl.
        let made = unsafe { self.inner.launch(launch, stream) };
        let touched = launch.accesses.iter().map(MemAccess::touched);
        let what = (DriverCall::Launch, launch.name, launch.function.raw());
        self.work(&made, what, stream, touched);
        made
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

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

    /// Makes a race, on this thread.
    #[allow(unsafe_code)]
    fn race(watched: &Watched) {
        let (a, b) = (watched.stream_create(0).unwrap(), watched.stream_create(0).unwrap());
        let ptr = watched.alloc(4, &a).unwrap();
        let fill = Fill { dst: ptr, unit: 4, value: 1, columns: 1, rows: 1, pitch: 0 };
        // SAFETY: the memory lives on; what is not ordered is a simulated device's own to do.
        unsafe { watched.fill(fill, &b) }.unwrap();
    }

    #[test]
    fn a_race_panics_where_it_is_raised_and_not_in_the_call() {
        let watch = Watch { races: true, panic_on_race: true, ..Watch::default() };
        let watched = Watched::new(open(SimOptions::new()).0, watch);
        race(&watched);
        thread::scope(|scope| scope.spawn(|| watched.raise()).join()).unwrap(); // it is another's
        let raised = catch_unwind(AssertUnwindSafe(|| watched.raise())).unwrap_err();
        assert!(raised.downcast_ref::<String>().unwrap().starts_with("race on bytes 0..4"));
        watched.raise();
    }

    #[test]
    fn a_race_is_raised_where_that_is_asked_for_only() {
        let watch = Watch { races: true, ..Watch::default() };
        let watched = Watched::new(open(SimOptions::new()).0, watch);
        race(&watched);
        watched.raise();
        assert_eq!(watched.witness().unwrap().races().unwrap().len(), 1);
    }
}
