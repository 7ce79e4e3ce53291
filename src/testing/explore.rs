//! Running a program under many schedules.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::shrink::least;
use super::trial::{Deviations, Program, Setting, Trial, run_once};
use crate::builder::DeviceBuilder;
use crate::device::Device;
use crate::sim::SimOptions;

/// The variable of the environment that names the one seed to run.
const SEED: &str = "HEADWATER_SEED";
const SEEDS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(1);
/// A program that waits a while before it fails is not made as small as it could be.
const LONGEST_SHRINKING: Duration = Duration::from_secs(20);

/// Runs `program` once for each seed, each time on a fresh simulated device whose operations run in
/// an order that the seed chooses, and panics with a report at the first seed with which it fails.
///
/// ```
/// use headwater::Result;
/// use headwater::testing::explore;
///
/// explore(0..20, async |device| -> Result<()> {
///     let mut x = device.upload([1.0f32; 64]).await?;
///     x.fill(2.0)?;
///     assert_eq!(x.to_vec().await?, [2.0; 64]);
///     Ok(())
/// });
/// ```
///
/// Everything happens on the calling thread, so that a seed makes the same run each time: the same
/// calls, bytes and virtual times. See [`Explore`] for what that asks of the program, what counts
/// as failing, and more settings.
///
/// # Panics
///
/// The program fails with one of the seeds.
#[track_caller]
pub fn explore<P, O>(seeds: impl IntoIterator<Item = u64, IntoIter: 'static>, program: P)
where
    P: AsyncFn(Device) -> O,
    O: Outcome,
{
    Explore::new().seeds(seeds).run(program);
}

/// What a program under test ends with: nothing, or a `Result` with any error that can be shown.
pub trait Outcome {
    /// What to show of the error, if it is one.
    fn error(self) -> Option<String>;
}

impl Outcome for () {
    fn error(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Debug> Outcome for Result<(), E> {
    fn error(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// Settings to run a program with under many schedules; [`explore`] is the short form.
///
/// # What the program is run on
///
/// The calling thread, on a tokio runtime with nothing but tasks: [`spawn`](crate::spawn),
/// `tokio::sync` and [`block_on`](crate::block_on) work, timers and sockets do not
/// (what to do about [timeouts](crate::testing#timeouts)). Call it from a `#[test]`, not a
/// `#[tokio::test]`. Each run has its own device, or devices of its own machine, on one clock.
///
/// The seed chooses in what order the device runs what it may, and which of the spawned tasks that
/// can run goes first. **Tasks of `tokio::spawn` are neither reordered nor watched for panics, only
/// those of [`headwater::spawn`](crate::spawn).** Devices that the program opens itself are on no
/// schedule of the seed's, and are not checked.
///
/// A run is the same each time as long as the program is: random numbers of its own, the clock,
/// `tokio::select!` and `futures::select!` without `biased`, and other threads make it differ.
/// Other threads may use and await the device all the same. The devices move on the program's
/// thread, though, so **it must not sleep until another thread's work on a device is done**
/// (`JoinHandle::join`, `recv` of a channel of `std`): that hangs. Await it, or wait for it by
/// [`block_on`](crate::block_on).
///
/// Where no task can run, the devices move until one can. While tasks of
/// [`headwater::spawn`](crate::spawn) or the program itself run again and again (`while !done {
/// yield_now().await }`), the devices move as well after every hundredth poll. Polls of
/// `tokio::spawn`'s tasks are not seen: where nothing but these yields, no device moves and the run
/// does not end.
///
/// # What counts as failing
///
/// - The program panics or returns an error, or a task that [`spawn`](crate::spawn) made panics, be
///   it while it is dropped. What a task yields and nobody takes is the runtime's, though: a panic
///   while *that* is dropped goes unnoticed.
/// - Nothing can happen any more. Where somebody waits for a device that cannot go on, and no task
///   can run, that is known at once, whatever another thread might do about it; where none waits
///   for a device, another thread might still wake one, and gets as long as
///   [`patience`](Explore::patience) says; so do tasks that yield again and again. A twin that does
///   not return is waited for as long as the [stall limit](SimOptions::stall_limit) says, ten
///   seconds unless told otherwise.
/// - A [race](crate::Race): accesses that nothing orders, whichever bytes came out.
/// - A [violation](crate::sim::Violation): memory freed too early, for one, or a twin that panics.
/// - Device memory that is still allocated when the program has ended and all of its tasks are
///   dropped. Not looked at where something else went wrong, where a device has failed, or where
///   something is held on any stream even then (by a gate that is forgotten, by a fault): what is
///   freed there may be behind it.
///
/// A program that cannot go on inside of `block_on` gets out of that by a panic; in a drop while it
/// panics already, by the failure of the device that it waits for. Where it waits for no device
/// there, the process is aborted, as by any panic in such a place.
///
/// # What is reported
///
/// The seed, and of a run that fails in the same way, what was wrong and the order in which operations
/// ran: one with as few deviations as possible from the tame order, in which everything runs as
/// enqueued and no task lets another one go first.
///
/// With `HEADWATER_SEED` set to a number, that seed is run and no other.
#[must_use = "nothing is run before `run`"]
pub struct Explore {
    seeds: Box<dyn Iterator<Item = u64>>,
    setting: Setting,
}

impl Explore {
    /// Seeds 0 to 99, a device with default options, a second of patience.
    pub fn new() -> Self {
        let (options, settings) = (SimOptions::new(), Box::new(|builder| builder));
        let setting = Setting { options, settings, devices: 1, patience: PATIENCE };
        Explore { seeds: Box::new(0..SEEDS), setting }
    }

    /// The seeds, each of which makes one run: the program fails with the first that it fails with.
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = u64, IntoIter: 'static>) -> Self {
        self.seeds = Box::new(seeds.into_iter());
        self
    }

    /// The device's options: memory, costs, faults. Its schedule is the seed's.
    pub fn options(mut self, options: SimOptions) -> Self {
        self.setting.options = options;
        self
    }

    /// Other settings of the device: `settings(|builder| builder.queue_limit(8))`. It stays simulated.
    pub fn settings(mut self, settings: impl Fn(DeviceBuilder) -> DeviceBuilder + 'static) -> Self {
        self.setting.settings = Box::new(settings);
        self
    }

    /// How long a program may wait for what only another thread can bring
    /// (`tokio::task::spawn_blocking`, say) before it counts as stuck. Default: one second.
    pub fn patience(mut self, longest: Duration) -> Self {
        self.setting.patience = longest;
        self
    }

    /// Runs `program` once for each seed.
    ///
    /// # Panics
    ///
    /// With the report of a [`Failure`], where the program fails with one of the seeds; inside of a
    /// runtime; where `HEADWATER_SEED` is no number.
    #[track_caller]
    pub fn run<P: AsyncFn(Device) -> O, O: Outcome>(self, program: P) {
        if let Some(failure) = self.find(program) {
            panic!("{failure}");
        }
    }

    /// Runs a program that uses several devices of one machine: `run_on(async |[a, b]| …)`. They
    /// share the clock and the schedule, and one check for races sees them all.
    ///
    /// # Panics
    ///
    /// As [`run`](Explore::run).
    #[track_caller]
    pub fn run_on<P: AsyncFn([Device; N]) -> O, O: Outcome, const N: usize>(self, program: P) {
        let program = &program;
        let run = |devices: Vec<Device>| -> Pin<Box<dyn Future<Output = Option<String>> + '_>> {
            match devices.try_into() {
                Ok(devices) => Box::pin(async move { program(devices).await.error() }),
                Err(_) => Box::pin(async { Some(format!("there are not {N} devices")) }),
            }
        };
        if let Some(failure) = self.search(N, &run) {
            panic!("{failure}");
        }
    }

    /// Runs `program` once for each seed, and returns the first with which it fails.
    ///
    /// # Panics
    ///
    /// Where `HEADWATER_SEED` is no number.
    #[track_caller]
    pub fn find<P: AsyncFn(Device) -> O, O: Outcome>(self, program: P) -> Option<Failure> {
        let program = &program;
        self.search(1, &move |devices| {
            Box::pin(async move {
                match devices.into_iter().next() {
                    Some(device) => program(device).await.error(),
                    None => Some("there is no device".to_owned()),
                }
            })
        })
    }

    #[track_caller]
    fn search(self, devices: usize, program: &Program<'_>) -> Option<Failure> {
        let Explore { seeds, mut setting } = self;
        setting.devices = devices;
        let seeds = match std::env::var(SEED) {
            Ok(seed) => match seed.parse() {
                Ok(seed) => Box::new(std::iter::once(seed)),
                Err(_) => panic!("{SEED} is {seed:?}, and has to be a number"),
            },
            Err(_) => seeds,
        };
        for (passed, seed) in (0..).zip(seeds) {
            let trial = run_once(&setting, seed, Deviations::ANY, false, program);
            if !trial.causes.is_empty() {
                return Some(shrunk(&setting, seed, passed, trial, program));
            }
        }
        None
    }
}

/// Looks for as few deviations as possible with which the program fails in the same way: with the same
/// kinds of causes.
fn shrunk(
    setting: &Setting,
    seed: u64,
    passed: u64,
    found: Trial,
    program: &Program<'_>,
) -> Failure {
    let kinds = |trial: &Trial| trial.causes.iter().map(std::mem::discriminant).collect::<Vec<_>>();
    let (wanted, made, start) = (kinds(&found), found.made, Instant::now());
    let mut simplest = found;
    let fewer = |limit, simplest: &mut Trial| {
        if start.elapsed() > LONGEST_SHRINKING {
            return false;
        }
        let trial = run_once(setting, seed, limit, true, program);
        let fails = kinds(&trial) == wanted;
        if fails {
            *simplest = trial;
        }
        fails
    };
    let host =
        least(made.host, |host| fewer(Deviations { host, ..Deviations::ANY }, &mut simplest));
    // Not those of the first run: with another host, the device chose among other things.
    let device =
        least(simplest.made.device, |device| fewer(Deviations { device, host }, &mut simplest));
    let least = Deviations { device, host };
    let Trial { causes, ran, .. } = simplest;
    Failure { seed, passed, causes, ran, made, least }
}

impl Default for Explore {
    fn default() -> Self {
        Explore::new()
    }
}

impl fmt::Debug for Explore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explore")
            .field("options", &self.setting.options)
            .field("patience", &self.setting.patience)
            .finish_non_exhaustive()
    }
}
