//! Devices to test on, waiting with a watchdog, and random numbers that are the same every time.

use std::ffi::OsStr;
use std::future::Future;
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use headwater::sim::{CostModel, Schedule, SimOp, SimOptions, Simulator};
use headwater::{Device, DeviceBuffer, DeviceBuilder, HostBuffer, Pod};

/// Nothing in these tests takes so long: what does, hangs.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(30);

/// Whether tests that hold on any device are to run on a GPU.
pub(crate) fn on_gpu() -> bool {
    let asked = std::env::var("HEADWATER_REQUIRE_GPU").unwrap_or_default();
    asked.parse::<u32>().is_ok_and(|gpus| gpus >= 1)
}

/// A GPU where one is required, else a simulated device that runs everything as soon as it can.
///
/// The GPU is opened once: opening loads modules, which waits for the kernels of other tests.
pub(crate) fn any_device() -> Device {
    static GPU: OnceLock<Device> = OnceLock::new();
    match on_gpu() {
        true => GPU.get_or_init(own_device).clone(),
        false => own_device(),
    }
}

/// As [`any_device`], opened for this test alone: for counting calls.
pub(crate) fn own_device() -> Device {
    own_device_with(|builder| builder)
}

/// As [`own_device`], with other settings.
pub(crate) fn own_device_with(settings: impl FnOnce(DeviceBuilder) -> DeviceBuilder) -> Device {
    let builder = settings(Device::builder().count_driver_calls(true).panic_on_race(true));
    let builder = if on_gpu() { builder.cuda(0) } else { builder.simulated_with(unattended()) };
    builder.open().expect("opening the device to test on")
}

/// A simulated device that nobody has to step: see [`unattended`].
pub(crate) fn eager() -> Device {
    simulated(unattended())
}

/// Options of a simulated device that nobody has to step. What holds on one holds whenever operations
/// run: `HEADWATER_TEST_SCHEDULE` says when. Unset it is `eager`; else `lazy`, or `random:` and a seed.
pub(crate) fn unattended() -> SimOptions {
    let asked = std::env::var("HEADWATER_TEST_SCHEDULE").unwrap_or_default();
    let schedule = match (asked.as_str(), asked.strip_prefix("random:")) {
        ("" | "eager", _) => Schedule::Eager,
        ("lazy", _) => Schedule::Lazy,
        (_, Some(seed)) => Schedule::random(seed.parse().expect("a seed")),
        _ => panic!("{asked:?} is no schedule: eager, lazy or random:SEED"),
    };
    SimOptions::new().schedule(schedule)
}

/// A simulated device on which no launch, copy or fill runs before it is stepped.
pub(crate) fn stepped() -> Device {
    stepped_with(|builder| builder)
}

/// The same with other settings.
pub(crate) fn stepped_with(settings: impl FnOnce(DeviceBuilder) -> DeviceBuilder) -> Device {
    simulated_with(SimOptions::new().schedule(Schedule::Stepped), settings)
}

/// A stepped device whose kernels and fills take at least a (virtual) millisecond: long beside
/// what the calls that enqueue them cost.
pub(crate) fn stepped_and_slow() -> Device {
    let mut cost = CostModel::h200();
    cost.kernel_minimum_ns = 1_000_000;
    simulated(SimOptions::new().schedule(Schedule::Stepped).cost(cost))
}

pub(crate) fn simulated(options: SimOptions) -> Device {
    simulated_with(options, |builder| builder)
}

pub(crate) fn simulated_with(
    options: SimOptions,
    settings: impl FnOnce(DeviceBuilder) -> DeviceBuilder,
) -> Device {
    let builder = Device::builder().simulated_with(options).single_stream(false);
    let builder = builder.panic_on_race(true);
    settings(builder.count_driver_calls(true)).open().expect("opening a simulated device")
}

pub(crate) fn sim(device: &Device) -> &Simulator {
    device.simulator().expect("the device is simulated")
}

/// The operation that was enqueued last.
pub(crate) fn last_op(sim: &Simulator) -> SimOp {
    sim.pending().pop().expect("an operation is pending")
}

/// Whether the operation of that id could run now; false where it has run.
pub(crate) fn is_runnable(sim: &Simulator, id: u64) -> bool {
    sim.pending().iter().any(|op| op.id == id && op.runnable)
}

/// Whether the operation that was enqueued last waits for another.
pub(crate) fn last_waits(sim: &Simulator) -> bool {
    let last = last_op(sim).id;
    !is_runnable(sim, last)
}

/// Runs what is pending, and checks that the device was used correctly.
pub(crate) fn run_to_end(device: &Device) {
    let sim = sim(device);
    sim.run_all();
    sim.settle();
    assert_eq!(sim.pending(), []);
    assert_eq!(sim.violations(), []);
}

/// A device buffer with these elements, written and known to be.
pub(crate) fn device_buffer<T: Pod>(device: &Device, elements: &[T]) -> DeviceBuffer<T> {
    let upload = device.upload(elements);
    step_through(device);
    wait(upload).expect("uploading")
}

/// A pinned buffer with these elements.
pub(crate) fn pinned_buffer<T: Pod>(device: &Device, elements: &[T]) -> HostBuffer<T> {
    let mut buffer = device.alloc_host(elements.len()).expect("allocating pinned memory");
    buffer.try_write().expect("nothing uses it").copy_from_slice(elements);
    buffer
}

/// The elements of a device buffer, once everything that is enqueued has run.
pub(crate) fn elements<T: Pod>(buffer: &DeviceBuffer<T>) -> Vec<T> {
    let elements = buffer.to_vec();
    step_through(&buffer.device());
    wait(elements).expect("reading back")
}

/// Runs what is pending, where the device has to be told so.
pub(crate) fn step_through(device: &Device) {
    if let Some(sim) = device.simulator() {
        sim.run_all();
    }
}

/// Awaits a future on this thread, which relies on the reactor's thread for it (as `block_on` does
/// not). Fails where that takes too long.
pub(crate) fn wait<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future.into_future());
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "nobody was woken");
        thread::park_timeout(left);
    }
}

/// Polls once, with a waker that does nothing.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Goes round until `reached`. Fails where that takes too long.
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    let mut rounds = 0u32;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}: not reached");
        rounds += 1;
        match rounds {
            ..200 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)), // others measure time beside this
        }
    }
}

/// What another thread sends. Fails where that takes too long.
pub(crate) fn receive<T>(from: &Receiver<T>) -> T {
    match from.recv_timeout(WATCHDOG) {
        Ok(sent) => sent,
        Err(RecvTimeoutError::Timeout) => panic!("the other thread hangs"),
        Err(RecvTimeoutError::Disconnected) => panic!("the other thread ended early"),
    }
}

/// Runs `f` on a thread of its own, for what would hang if it were wrong.
pub(crate) fn watched<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(f()));
    receive(&receiver)
}

/// A waker that counts how often it was woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Random numbers, the same for the same seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Two different numbers below `bound`.
    pub(crate) fn two_below(&mut self, bound: usize) -> [usize; 2] {
        let first = self.below(bound);
        [first, (first + 1 + self.below(bound - 1)) % bound]
    }
}

/// Runs one operation that could run, chosen at random; false where there is none.
pub(crate) fn step_at_random(sim: &Simulator, random: &mut Random) -> bool {
    let runnable: Vec<_> = sim.pending().into_iter().filter(|op| op.runnable).collect();
    if runnable.is_empty() {
        return false;
    }
    sim.run(runnable[random.below(runnable.len())].id).is_some()
}

/// Runs `f` while another thread runs what could run, one operation at a time, chosen at random.
pub(crate) fn while_stepped_at_random<T>(device: &Device, f: impl FnOnce() -> T) -> T {
    /// Also where a test panics: the thread that steps is waited for.
    struct SetOnDrop<'a>(&'a AtomicBool);
    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(1);
            while !ended.load(SeqCst) {
                step_at_random(sim(device), &mut random);
            }
        });
        let _ended = SetOnDrop(&ended);
        f()
    })
}

/// Leaves no address space for the stack of one more thread, meanwhile. For a process of its own.
#[allow(unsafe_code, reason = "limits are set by libc")]
pub(crate) fn without_threads<T>(f: impl FnOnce() -> T) -> T {
    // The stacks of threads that have ended are there for others: these have them.
    let others = Arc::new([const { Barrier::new(5) }; 2]);
    for _ in 0..4 {
        let others = others.clone();
        thread::spawn(move || {
            for barrier in &*others {
                barrier.wait();
            }
        });
    }
    others[0].wait();
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let limit_to = |bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    };
    limit_to(pages * 4096 + (1 << 20));
    let returned = f();
    limit_to(libc::RLIM_INFINITY);
    others[1].wait();
    returned
}

/// What a test in a process of its own prints when it has come to its end.
pub(crate) const AS_PROMISED: &str = "all as promised";
const PROCESS_OF: &str = "HEADWATER_TEST_PROCESS";

/// A process of its own for one test of this binary: for what cannot be undone in a process.
pub(crate) struct Child {
    command: Command,
}

impl Child {
    /// Of the test of that name, which asks [`in_process_of`] for `what` and does nothing where that
    /// is `None`.
    pub(crate) fn new(test: &str, what: &str) -> Self {
        let binary = std::env::current_exe().expect("this binary has a path");
        let mut command = Command::new(binary);
        command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(PROCESS_OF, what);
        Child { command }
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end, which has to be [`AS_PROMISED`]; returns what it printed.
    pub(crate) fn run(mut self) -> String {
        let child = self.command.output().expect("this binary runs");
        let said = String::from_utf8_lossy(&child.stdout);
        let complained = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && said.contains(AS_PROMISED), "{said}\n{complained}");
        said.into_owned()
    }
}

/// What [`Child::new`] was told, in that process.
pub(crate) fn in_process_of() -> Option<String> {
    std::env::var(PROCESS_OF).ok()
}
