//! A device for models: it does nothing but keep account of what it is told, and what is finished is
//! the model's to say.
//!
//! Every call is a place where threads can be switched, and two calls are never taken to be independent of
//! each other. It orders nothing in memory that a driver does not: only a query that sees an end
//! does.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::races::Checker;
use super::step::{Step, Touched};
use super::{
    ContextHandle, CopyRows, DefaultStream, DeviceInfo, DevicePtr, Driver, DriverCall, DriverError,
    DriverResult, EventHandle, Fact, Fill, FunctionHandle, HostKind, Launch, ModuleHandle,
    PoolUsage, PtxError, StreamHandle,
};
use crate::sync::Condvar;
use crate::sync::atomic::{AtomicU64, Ordering::*};

pub(crate) struct ModelDriver {
    info: DeviceInfo,
    /// Nobody waits for it. Every call notifies it, so that their order is explored.
    calls: Condvar,
    /// Not held over anything that loom sees.
    state: std::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: Vec<Step>,
    last_handle: u64,
    streams: BTreeMap<u64, Queue>,
    /// Of each event its last recording.
    events: BTreeMap<u64, Option<Place>>,
    /// Calls that are refused the next time they are made on that stream.
    refused: Vec<(DriverCall, u64)>,
}

struct Queue {
    enqueued: u64,
    /// What a wait at that place of the stream is for.
    waits: Vec<(u64, Place)>,
    /// How far the device is.
    reached: Arc<AtomicU64>,
}

#[derive(Clone, Copy)]
struct Place {
    stream: u64,
    at: u64,
}

impl ModelDriver {
    pub(crate) fn new() -> Arc<Self> {
        let info = DeviceInfo {
            name: "model".to_owned(),
            ordinal: 0,
            simulated: true,
            compute_capability: (9, 0),
            total_memory: 1 << 30,
            copy_engines: 1,
            concurrent_kernels: true,
            multiprocessors: 1,
            max_block_threads: 1,
            max_grid: [1; 3],
            max_block: [1; 3],
            max_shared_bytes: 0,
            priorities: Some((0, 0)),
            peers: Vec::new(),
            hardware_queues: 1,
            driver_version: 0,
        };
        Arc::new(ModelDriver { info, calls: Condvar::default(), state: Default::default() })
    }

    /// The device gets as far as it can with everything that is on `stream` now, and with what that
    /// waits for.
    pub(crate) fn run(&self, stream: u64) {
        let mut reached = Vec::new();
        self.with(|state| {
            let all = Place { stream, at: state.streams[&stream].enqueued };
            state.run(all, &mut reached);
        });
        for (queue, at) in reached {
            queue.fetch_max(at, Release);
        }
    }

    /// A launch, copy or fill.
    pub(crate) fn work(
        &self,
        name: &'static str,
        touched: impl IntoIterator<Item = Touched>,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let (call, touched) = (DriverCall::Launch, touched.into_iter().collect());
        let stream = stream.raw();
        self.enqueue(call, stream, Step::Work { call, name, stream, function: 0, touched })
    }

    /// The next call of that kind on that stream is refused.
    pub(crate) fn refuse(&self, call: DriverCall, stream: u64) {
        self.with(|state| state.refused.push((call, stream)));
    }

    /// Nothing that was called races.
    pub(crate) fn assert_ordered(&self) {
        self.with(|state| {
            let mut checker = Checker::default();
            for step in &state.steps {
                checker.step(0, step);
            }
            let races = checker.races();
            assert!(races.is_empty(), "{races:#?} in {:#?}", state.steps);
        });
    }

    /// How often a step was made of which `which` says so.
    pub(crate) fn count(&self, which: impl Fn(&Step) -> bool) -> usize {
        self.with(|state| state.steps.iter().filter(|step| which(step)).count())
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call that takes no place in a stream.
    fn call<R>(&self, made: impl FnOnce(&mut State) -> R) -> R {
        self.calls.notify_one();
        self.with(made)
    }

    fn make(&self, made: impl FnOnce(&mut State, u64) -> Step) -> u64 {
        self.call(|state| {
            state.last_handle += 0x1000;
            let handle = state.last_handle;
            let step = made(state, handle);
            state.steps.push(step);
            handle
        })
    }

    fn enqueue(&self, call: DriverCall, stream: u64, step: Step) -> DriverResult<()> {
        self.call(|state| {
            state.accepts(call, stream)?;
            state.enqueue(stream);
            state.steps.push(step);
            Ok(())
        })
    }
}

impl State {
    fn accepts(&mut self, call: DriverCall, stream: u64) -> DriverResult<()> {
        match self.refused.iter().position(|refused| *refused == (call, stream)) {
            Some(at) => {
                self.refused.swap_remove(at);
                Err(DriverError::new(call.name(), DriverError::INVALID_VALUE))
            }
            None => Ok(()),
        }
    }

    /// The place of what is put onto that stream.
    fn enqueue(&mut self, stream: u64) -> Place {
        let queue = self.streams.get_mut(&stream).expect("a stream that there is");
        queue.enqueued += 1;
        Place { stream, at: queue.enqueued }
    }

    /// What is reached if everything up to that place is, what is waited for first.
    fn run(&self, Place { stream, at }: Place, reached: &mut Vec<(Arc<AtomicU64>, u64)>) {
        let queue = &self.streams[&stream];
        for (_, awaited) in queue.waits.iter().filter(|wait| wait.0 <= at) {
            self.run(*awaited, reached);
        }
        reached.push((queue.reached.clone(), at));
    }
}

fn not_modelled<R>(call: DriverCall) -> DriverResult<R> {
    Err(DriverError::new(call.name(), DriverError::NOT_SUPPORTED))
}

impl Driver for ModelDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn tell(&self, _fact: Fact) {}

    fn stream_create(&self, _priority: i32) -> DriverResult<StreamHandle> {
        let reached = Arc::new(AtomicU64::new(0));
        let queue = Queue { enqueued: 0, waits: Vec::new(), reached };
        Ok(StreamHandle::new(self.make(|state, stream| {
            state.streams.insert(stream, queue);
            Step::StreamCreated { stream }
        })))
    }

    /// No model has one.
    fn default_stream(&self, _which: DefaultStream) -> StreamHandle {
        StreamHandle::new(0)
    }

    fn stream_destroy(&self, stream: StreamHandle) -> DriverResult<()> {
        let stream = stream.raw();
        self.call(|state| state.steps.push(Step::StreamDestroyed { stream }));
        Ok(())
    }

    fn stream_wait(&self, stream: &StreamHandle, event: &EventHandle) -> DriverResult<()> {
        let (stream, event) = (stream.raw(), event.raw());
        self.call(|state| {
            state.accepts(DriverCall::StreamWait, stream)?;
            let (at, awaited) = (state.enqueue(stream).at, state.events[&event]);
            let queue = state.streams.get_mut(&stream).expect("a stream that there is");
            queue.waits.extend(awaited.map(|place| (at, place)));
            state.steps.push(Step::Waited { stream, event, lost: false, nth: 0 });
            Ok(())
        })
    }

    fn event_create(&self, _timed: bool) -> DriverResult<EventHandle> {
        Ok(EventHandle::new(self.make(|state, event| {
            state.events.insert(event, None);
            Step::EventCreated { event }
        })))
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        let event = event.raw();
        self.call(|state| state.steps.push(Step::EventDestroyed { event }));
        Ok(())
    }

    fn event_record(&self, event: &EventHandle, stream: &StreamHandle) -> DriverResult<()> {
        let (event, stream) = (event.raw(), stream.raw());
        self.call(|state| {
            state.accepts(DriverCall::EventRecord, stream)?;
            let place = state.enqueue(stream);
            state.events.insert(event, Some(place));
            state.steps.push(Step::Recorded { event, stream });
            Ok(())
        })
    }

    fn event_query(&self, event: &EventHandle) -> DriverResult<bool> {
        let event = event.raw();
        let recording = self.with(|state| {
            let place = state.events[&event]?;
            Some((state.streams[&place.stream].reached.clone(), place.at))
        });
        let finished = recording.is_none_or(|(reached, at)| reached.load(Acquire) >= at);
        self.call(|state| state.steps.push(Step::Queried { event, finished }));
        Ok(finished)
    }

    fn relax_capture(&self) -> DriverResult<()> {
        Ok(())
    }

    fn event_elapsed(&self, _start: &EventHandle, _end: &EventHandle) -> DriverResult<Duration> {
        not_modelled(DriverCall::EventElapsed)
    }

    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DriverResult<DevicePtr> {
        let stream = stream.raw();
        Ok(DevicePtr(self.make(|state, ptr| {
            state.enqueue(stream);
            Step::Allocated { ptr: DevicePtr(ptr), bytes, stream }
        })))
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()> {
        let stream = stream.raw();
        self.enqueue(DriverCall::Free, stream, Step::Freed { ptr, stream })
    }

    fn memory_free(&self) -> DriverResult<u64> {
        Ok(self.info.total_memory)
    }

    fn pool_trim(&self, _keep: u64, _freed: Option<&EventHandle>) -> DriverResult<()> {
        Ok(())
    }

    fn pool_usage(&self) -> DriverResult<PoolUsage> {
        Ok(PoolUsage::default())
    }

    fn host_alloc(&self, _bytes: usize, _kind: HostKind) -> DriverResult<NonNull<u8>> {
        not_modelled(DriverCall::HostAlloc)
    }

    unsafe fn host_free(&self, _ptr: NonNull<u8>) -> DriverResult<()> {
        not_modelled(DriverCall::HostFree)
    }

    unsafe fn host_register(&self, _ptr: NonNull<u8>, _bytes: usize) -> DriverResult<()> {
        not_modelled(DriverCall::HostRegister)
    }

    unsafe fn host_unregister(&self, _ptr: NonNull<u8>) -> DriverResult<()> {
        not_modelled(DriverCall::HostUnregister)
    }

    unsafe fn copy_h2d(
        &self,
        _dst: DevicePtr,
        _src: NonNull<u8>,
        _bytes: usize,
        _stream: &StreamHandle,
    ) -> DriverResult<()> {
        not_modelled(DriverCall::CopyH2D)
    }

    unsafe fn copy_d2h(
        &self,
        _dst: NonNull<u8>,
        _src: DevicePtr,
        _bytes: usize,
        _stream: &StreamHandle,
    ) -> DriverResult<()> {
        not_modelled(DriverCall::CopyD2H)
    }

    unsafe fn copy_rows(&self, copy: &CopyRows, _: &StreamHandle) -> DriverResult<()> {
        not_modelled(copy.call())
    }

    unsafe fn copy_d2d(
        &self,
        _dst: DevicePtr,
        _src: DevicePtr,
        _bytes: usize,
        _stream: &StreamHandle,
    ) -> DriverResult<()> {
        not_modelled(DriverCall::CopyD2D)
    }

    fn context(&self) -> ContextHandle {
        ContextHandle::new(0)
    }

    unsafe fn copy_peer(
        &self,
        _dst: DevicePtr,
        _dst_context: ContextHandle,
        _src: DevicePtr,
        _src_context: ContextHandle,
        _bytes: usize,
        _stream: &StreamHandle,
    ) -> DriverResult<()> {
        not_modelled(DriverCall::CopyPeer)
    }

    unsafe fn fill(&self, _fill: Fill, _stream: &StreamHandle) -> DriverResult<()> {
        not_modelled(DriverCall::Fill)
    }

    fn module_load(&self, _ptx: &CStr) -> Result<ModuleHandle, PtxError> {
        not_modelled(DriverCall::ModuleLoad).map_err(PtxError::from)
    }

    fn module_unload(&self, _module: ModuleHandle) -> DriverResult<()> {
        not_modelled(DriverCall::ModuleUnload)
    }

    fn module_function(
        &self,
        _module: &ModuleHandle,
        _name: &CStr,
    ) -> DriverResult<FunctionHandle> {
        not_modelled(DriverCall::ModuleFunction)
    }

    unsafe fn launch(&self, _launch: &Launch<'_>, _stream: &StreamHandle) -> DriverResult<()> {
        not_modelled(DriverCall::Launch)
    }
}
