//! What the suite runs on: a driver, and how to see work through to its end on it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::kernels::Kernels;
use crate::driver::sim::{self, Pageable, Schedule, SimMachine, SimOptions, Simulator};
use crate::driver::step::LoggedStep;
use crate::driver::{Driver, EventHandle, Race, StreamHandle, Watch, Watched};

/// Nothing in these tests takes so long: what does, hangs.
pub(super) const WATCHDOG: Duration = Duration::from_secs(30);

/// The device under test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum On {
    /// A device of its own for each test, on which copies of ordinary memory come as late as may be.
    Simulated(Schedule),
    /// As that, but copies of ordinary memory are made by their calls, as CUDA mostly has it.
    Staged(Schedule),
    /// The first GPU, opened once: opening loads modules, which waits for the kernels of others. For
    /// two devices the first two GPUs.
    #[cfg(feature = "cuda")]
    Cuda,
}

/// What stands between the tests and the device. A decorator keeps the contract it passes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Around {
    Nothing,
    /// The call log and the race checker.
    Watched,
}

/// A driver held to its contract.
pub(super) struct Subject {
    pub(super) driver: Arc<dyn Driver>,
    /// The handle of a simulated device; `None` on a GPU.
    pub(super) sim: Option<Simulator>,
    /// Nothing runs on it unless it is stepped.
    stepped: bool,
    watched: Option<Arc<Watched>>,
    pub(super) kernels: Arc<Kernels>,
    /// Only [`Subject::let_pass`] uses it.
    clock: StreamHandle,
}

/// Runs a test on a thread of its own, on which no context is current.
pub(super) fn run(on: On, around: Around, test: fn(&Subject), _path: &str) {
    let _alone = on.alone();
    in_time(move || {
        let subject = on.subject(around);
        test(&subject);
        subject.check();
    });
}

/// As [`run`], for a test after which the device is of no use.
pub(super) fn run_alone(on: On, around: Around, test: fn(&Subject), path: &str) {
    let _alone = on.alone();
    match on {
        On::Simulated(_) | On::Staged(_) => in_time(move || test(&on.subject(around))),
        #[cfg(feature = "cuda")]
        On::Cuda => gpu::in_a_process(path, || {
            in_time(move || test(&on.subject(around)));
        }),
    }
    // Without CUDA nobody asks.
    let _ = path;
}

/// As [`run`], for a test of two devices.
pub(super) fn run_on_two(on: On, around: Around, test: fn(&Subject, &Subject), _path: &str) {
    let _alone = on.alone();
    in_time(move || {
        let [one, other] = on.two_subjects(around);
        test(&one, &other);
        one.check();
        other.check();
    });
}

/// What hangs fails.
fn in_time(f: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        f();
        let _ = ended.send(());
    });
    if end.recv_timeout(WATCHDOG) == Err(RecvTimeoutError::Timeout) {
        panic!("the test hangs");
    }
    if let Err(panicked) = thread.join() {
        resume_unwind(panicked);
    }
}

impl On {
    /// Tests on the one GPU run one at a time, however many threads there are.
    fn alone(self) -> Option<MutexGuard<'static, ()>> {
        #[cfg(feature = "cuda")]
        static GPU: std::sync::Mutex<()> = std::sync::Mutex::new(());
        match self {
            On::Simulated(_) | On::Staged(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda => Some(GPU.lock().unwrap_or_else(std::sync::PoisonError::into_inner)),
        }
    }

    pub(super) fn subject(self, around: Around) -> Subject {
        let device = match self {
            On::Simulated(schedule) | On::Staged(schedule) => {
                Opened::simulated(sim::open(self.options(schedule)), schedule)
            }
            #[cfg(feature = "cuda")]
            On::Cuda => gpu::opened(0),
        };
        Subject::new(device, around, None)
    }

    /// Devices of one machine.
    fn two_subjects(self, around: Around) -> [Subject; 2] {
        let devices = match self {
            On::Simulated(schedule) | On::Staged(schedule) => {
                let machine = SimMachine::with(2, self.options(schedule));
                [0, 1].map(|ordinal| Opened::simulated(machine.open(ordinal).unwrap(), schedule))
            }
            #[cfg(feature = "cuda")]
            On::Cuda => {
                gpu::require(2);
                [0, 1].map(gpu::opened)
            }
        };
        let [one, other] = devices;
        let one = Subject::new(one, around, None);
        let other = Subject::new(other, around, one.watched.as_deref());
        [one, other]
    }

    fn options(self, schedule: Schedule) -> SimOptions {
        let pageable = match self {
            On::Staged(_) => Pageable::Staged,
            _ => Pageable::Delayed,
        };
        SimOptions::new().schedule(schedule).pageable(pageable)
    }
}

/// A device, opened.
#[derive(Clone)]
struct Opened {
    driver: Arc<dyn Driver>,
    kernels: Arc<Kernels>,
    sim: Option<Simulator>,
    stepped: bool,
}

impl Opened {
    fn new(driver: Arc<dyn Driver>) -> Self {
        let kernels = Arc::new(Kernels::load(&*driver));
        Opened { driver, kernels, sim: None, stepped: false }
    }

    fn simulated((driver, sim): (Arc<dyn Driver>, Simulator), schedule: Schedule) -> Self {
        let stepped = schedule == Schedule::Stepped;
        Opened { sim: Some(sim), stepped, ..Opened::new(driver) }
    }
}

impl Subject {
    /// Functions of the driver are as good through what is around it. What watches two devices that
    /// are used together has to see both.
    fn new(device: Opened, around: Around, with: Option<&Watched>) -> Self {
        let Opened { driver, kernels, sim, stepped } = device;
        let (driver, watched): (Arc<dyn Driver>, _) = match around {
            Around::Nothing => (driver, None),
            Around::Watched => {
                let number = driver.info().ordinal as u32;
                let with = with.and_then(|other| other.witness()).cloned();
                let watch = Watch { log: true, races: true, with, ..Watch::default() };
                let watched = Watched::new(driver, watch);
                watched.is_of(number);
                (watched.clone(), Some(watched))
            }
        };
        let clock = driver.stream_create(0).unwrap();
        Subject { driver, sim, stepped, watched, kernels, clock }
    }

    /// Sees an event's work through to its end. Fails where that takes too long.
    pub(super) fn finish(&self, event: &EventHandle) {
        let deadline = Instant::now() + WATCHDOG / 2;
        while !self.done(event) {
            assert!(Instant::now() < deadline, "not reached; pending: {:?}", self.pending());
            if !self.step() {
                thread::yield_now();
            }
        }
    }

    /// As [`Subject::finish`], for an event that is not reached because the device fails.
    pub(super) fn fail_at(&self, event: &EventHandle) -> u32 {
        let deadline = Instant::now() + WATCHDOG / 2;
        loop {
            match self.driver.event_query(event) {
                Ok(reached) => assert!(!reached, "the device did not fail"),
                Err(error) => return error.code(),
            }
            assert!(Instant::now() < deadline, "not reached; pending: {:?}", self.pending());
            if !self.step() {
                thread::yield_now();
            }
        }
    }

    /// Gives what can run the time to run, so that what has not run by then was held back.
    pub(super) fn let_pass(&self) {
        self.delay(200_000, &self.clock);
        let passed = self.record(&self.clock);
        self.finish(&passed);
        if let Some(sim) = &self.sim {
            while self.step() {}
            sim.settle();
        }
        // Some devices move only while they are called.
        assert!((0..20).all(|_| self.done(&passed)));
    }

    /// Where nothing runs by itself: runs the newest operation that could, since elsewhere the oldest
    /// mostly comes first; where many are pending, some more of its stream. False where there is none.
    fn step(&self) -> bool {
        let Some(sim) = self.sim.as_ref().filter(|_| self.stepped) else {
            return false;
        };
        let pending = sim.pending();
        let Some(newest) = pending.iter().rev().find(|op| op.runnable) else {
            return false;
        };
        let ran = sim.run(newest.id).is_some();
        for _ in 0..pending.len() / 16 {
            sim.step_stream(newest.stream);
        }
        ran
    }

    fn pending(&self) -> Vec<sim::SimOp> {
        self.sim.as_ref().map_or(Vec::new(), Simulator::pending)
    }

    /// What the test did was in order, as far as the subject can tell.
    fn check(&self) {
        self.let_pass();
        if let Some(sim) = &self.sim {
            assert_eq!(sim.violations(), []);
        }
        if let Some((log, races)) = self.seen() {
            assert_eq!(races, []);
            let refused = |step: &LoggedStep| step.refused.is_some_and(|error| error.is_sticky());
            assert!(!log.iter().any(refused));
        }
    }

    /// The log, and the races found, where the subject is watched.
    pub(super) fn seen(&self) -> Option<(Vec<LoggedStep>, Vec<Race>)> {
        let witness = self.watched.as_ref()?.witness()?;
        Some((witness.log()?, witness.races()?))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // A device that has failed destroys nothing.
        let _ = self.driver.stream_destroy(mem::take(&mut self.clock));
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use std::process::Command;
    use std::sync::OnceLock;

    use super::Opened;
    use crate::driver::cuda;

    /// What a test in a process of its own prints when it has come to its end.
    const AS_PROMISED: &str = "all as promised";
    /// Set in such a process.
    const PROCESS_OF: &str = "HEADWATER_TEST_PROCESS";

    /// Fails where so many GPUs are not required to be there: such a test is to be left out.
    pub(super) fn require(gpus: u32) {
        let required = std::env::var("HEADWATER_REQUIRE_GPU").unwrap_or_default();
        let enough = required.parse().is_ok_and(|required: u32| required >= gpus);
        assert!(enough, "set HEADWATER_REQUIRE_GPU={gpus} where there are so many GPUs");
    }

    /// The GPU of that number, which this process opens once.
    pub(super) fn opened(ordinal: usize) -> Opened {
        static OPENED: [OnceLock<Opened>; 2] = [const { OnceLock::new() }; 2];
        require(1);
        let open = || match cuda::open(ordinal) {
            Ok(driver) => Opened::new(driver),
            Err(why) => panic!("{why:?}"),
        };
        OPENED[ordinal].get_or_init(open).clone()
    }

    /// Has another process run the test of that path, which calls this, and `f` there.
    pub(super) fn in_a_process(path: &str, f: impl FnOnce()) {
        if std::env::var(PROCESS_OF).is_ok_and(|of| of == path) {
            f();
            println!("{AS_PROMISED}");
            return;
        }
        let (_crate, test) = path.split_once("::").unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--include-ignored", "--nocapture"])
            .env(PROCESS_OF, path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(AS_PROMISED), "{said}\n{complained}");
    }
}
