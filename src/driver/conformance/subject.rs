//! What the suite runs on: a driver, and how to see work through to its end on it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::kernels::Kernels;
use crate::driver::sim::{self, Schedule, SimOptions, Simulator};
use crate::driver::step::LoggedStep;
use crate::driver::watched::{Watch, Watched};
use crate::driver::{Driver, EventHandle, StreamHandle};

/// Nothing in these tests takes so long: what does, hangs.
pub(super) const WATCHDOG: Duration = Duration::from_secs(30);

/// The device under test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum On {
    /// A device of its own for each test.
    Simulated(Schedule),
    /// The first GPU, opened once: opening loads modules, which waits for the kernels of others.
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
        On::Simulated(_) => in_time(move || test(&on.subject(around))),
        #[cfg(feature = "cuda")]
        On::Cuda => gpu::in_a_process(path, || {
            in_time(move || test(&on.subject(around)));
        }),
    }
    // Without CUDA nobody asks.
    let _ = path;
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
            On::Simulated(_) => None,
            #[cfg(feature = "cuda")]
            On::Cuda => Some(GPU.lock().unwrap_or_else(std::sync::PoisonError::into_inner)),
        }
    }

    fn subject(self, around: Around) -> Subject {
        match self {
            On::Simulated(schedule) => {
                let (driver, sim) = sim::open(SimOptions::new().schedule(schedule));
                let kernels = Arc::new(Kernels::load(&*driver));
                let mut subject = Subject::new(driver, around, kernels);
                subject.stepped = schedule == Schedule::Stepped;
                subject.sim = Some(sim);
                subject
            }
            #[cfg(feature = "cuda")]
            On::Cuda => {
                let (driver, kernels) = gpu::opened();
                Subject::new(driver, around, kernels)
            }
        }
    }
}

impl Subject {
    /// Functions of the driver are as good through what is around it.
    fn new(driver: Arc<dyn Driver>, around: Around, kernels: Arc<Kernels>) -> Self {
        let (driver, watched): (Arc<dyn Driver>, _) = match around {
            Around::Nothing => (driver, None),
            Around::Watched => {
                let watch = Watch { log: true, races: true, ..Watch::default() };
                let watched = Watched::new(driver, watch);
                (watched.clone(), Some(watched))
            }
        };
        let clock = driver.stream_create(0).unwrap();
        Subject { driver, sim: None, stepped: false, watched, kernels, clock }
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
        if let Some(witness) = self.watched.as_ref().and_then(|watched| watched.witness()) {
            assert_eq!(witness.races().unwrap(), []);
            let refused = |step: &LoggedStep| step.refused.is_some_and(|error| error.is_sticky());
            assert!(!witness.log().unwrap().iter().any(refused));
        }
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
    use std::sync::{Arc, OnceLock};

    use super::{Driver, Kernels};
    use crate::driver::cuda;

    /// What a test in a process of its own prints when it has come to its end.
    const AS_PROMISED: &str = "all as promised";
    /// Set in such a process.
    const PROCESS_OF: &str = "HEADWATER_TEST_PROCESS";

    /// The GPU that this process opened. Fails where none is required to be there.
    pub(super) fn opened() -> (Arc<dyn Driver>, Arc<Kernels>) {
        static OPENED: OnceLock<(Arc<dyn Driver>, Arc<Kernels>)> = OnceLock::new();
        let required = std::env::var("HEADWATER_REQUIRE_GPU").unwrap_or_default();
        let gpus = required.parse().unwrap_or(0);
        assert!(gpus >= 1_u32, "set HEADWATER_REQUIRE_GPU=1 where there is a GPU");
        let open = || match cuda::open(0) {
            Ok(driver) => {
                let kernels = Arc::new(Kernels::load(&*driver));
                (driver, kernels)
            }
            Err(why) => panic!("{why:?}"),
        };
        OPENED.get_or_init(open).clone()
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
