//! Listing the devices there are, and opening one.

use std::sync::Arc;
use std::time::Duration;

use crate::device::{Backend, Device, DeviceOptions, StagingOptions};
#[cfg(feature = "cuda")]
use crate::driver::cuda::{self, Unavailable};
use crate::driver::sim::{self, SimMachine, SimOptions, Simulator};
use crate::driver::{DeviceInfo, Watch, Watched, Witness};
use crate::error::{Error, Result};
use crate::op::load_registered;
use crate::reactor::ErrorHook;
use crate::task;

/// Operations a stream takes before [`Error::QueueFull`]: the driver blocks the caller, and others
/// with it, at 1,021.
const QUEUE_LIMIT: u64 = 1_000;
/// How long the first poll of a completion may spin, unless told otherwise.
const INLINE_SPIN: Duration = Duration::from_micros(20);

const LONGEST_SPIN: Duration = Duration::from_millis(1);

/// Opens a device with other than the default settings.
///
/// ```
/// let device = headwater::Device::builder().single_stream(true).simulated().open()?;
/// # Ok::<_, headwater::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct DeviceBuilder {
    target: Option<Target>,
    inline_spin: Option<Duration>,
    single_stream: Option<bool>,
    count_driver_calls: bool,
    watch: Watch,
    watch_with: Option<Together>,
    queue_limit: u64,
    memory_limit: Option<u64>,
    in_flight_bytes: Option<u64>,
    in_flight_operations: Option<u64>,
    keep_memory: bool,
    staging: StagingOptions,
    pinned_limit: Option<usize>,
    by_hand: bool,
    hook: ErrorHook,
}

/// A device that another one's calls are to be seen with.
#[derive(Clone, Debug)]
struct Together {
    number: u32,
    witness: Option<Arc<Witness>>,
    simulator: Option<Simulator>,
}

#[derive(Clone, Debug)]
enum Target {
    Cuda(usize),
    Simulated(Box<SimOptions>),
    SimulatedOn(SimMachine, usize),
}

impl Device {
    /// Opens the device that `HEADWATER_DEVICE` names: `cuda:N`, or `sim` for the simulated device.
    /// Unset, it is `cuda:0`.
    ///
    /// Opening loads the kernels registered in the program (`cuModuleLoadData`), which blocks while
    /// another kernel runs, and can hold up the driver calls of other threads meanwhile: open
    /// devices at the start.
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`], [`Error::DriverTooOld`], [`Error::DriverBroken`], [`Error::NoDevice`],
    /// [`Error::BadSetting`], [`Error::FeatureMissing`] without the `cuda` feature,
    /// [`Error::DeviceLost`], or the driver refused.
    pub fn from_env() -> Result<Device> {
        Device::builder().open()
    }

    /// Opens CUDA device `ordinal`, whatever the environment says.
    ///
    /// # Errors
    ///
    /// As [`Device::from_env`].
    pub fn cuda(ordinal: usize) -> Result<Device> {
        Device::builder().cuda(ordinal).open()
    }

    /// Opens a simulated device with default options.
    ///
    /// # Errors
    ///
    /// [`Error::BadSetting`].
    pub fn simulated() -> Result<Device> {
        Device::builder().simulated().open()
    }

    /// Settings to open a device with.
    pub fn builder() -> DeviceBuilder {
        DeviceBuilder {
            target: None,
            inline_spin: None,
            single_stream: None,
            count_driver_calls: false,
            watch: Watch::default(),
            watch_with: None,
            queue_limit: QUEUE_LIMIT,
            memory_limit: None,
            in_flight_bytes: None,
            in_flight_operations: None,
            keep_memory: true,
            staging: StagingOptions::default(),
            pinned_limit: None,
            by_hand: false,
            hook: ErrorHook::default(),
        }
    }
}

/// What each CUDA device says of itself that the process can see, by ordinal: all of them, or those
/// that `CUDA_VISIBLE_DEVICES` names. None where there is a driver and no device.
///
/// Opens none and makes no context, which would take hundreds of megabytes on each for as long as
/// the process lives: `priorities`, which needs one, is `None`. The first call loads the driver and
/// initialises it (`cuInit`).
///
/// # Errors
///
/// [`Error::NoDriver`], [`Error::DriverTooOld`], [`Error::DriverBroken`];
/// [`Error::FeatureMissing`] without the `cuda` feature; [`Error::Refused`] where one of the devices
/// does not answer, which the log names: a list is whole or it is none.
pub fn visible_devices() -> Result<Vec<DeviceInfo>> {
    visible_cuda()
}

impl DeviceBuilder {
    /// CUDA device `ordinal` instead of what `HEADWATER_DEVICE` says.
    pub fn cuda(mut self, ordinal: usize) -> Self {
        self.target = Some(Target::Cuda(ordinal));
        self
    }

    /// A simulated device instead of what `HEADWATER_DEVICE` says.
    pub fn simulated(self) -> Self {
        self.simulated_with(SimOptions::new())
    }

    /// A simulated device with these options.
    pub fn simulated_with(mut self, options: SimOptions) -> Self {
        self.target = Some(Target::Simulated(Box::new(options)));
        self
    }

    /// Device `ordinal` of a simulated machine instead of what `HEADWATER_DEVICE` says. Where it has
    /// no such device, that is a [`BadSetting`](Error::BadSetting) when it is opened.
    pub fn simulated_on(mut self, machine: &SimMachine, ordinal: usize) -> Self {
        self.target = Some(Target::SimulatedOn(machine.clone(), ordinal));
        self
    }

    /// How long the first poll of a completion may ask for its event again and again, inside the
    /// poll, before it leaves that to the reactor's thread. Zero turns it off; more than 1 ms is
    /// taken for that, since nothing else runs on the thread meanwhile.
    ///
    /// Default: `HEADWATER_INLINE_SPIN_US`, else 20 us on a GPU, where waking a task costs more
    /// than a short kernel takes, and zero on a simulated device.
    pub fn inline_spin(mut self, longest: Duration) -> Self {
        self.inline_spin = Some(longest);
        self
    }

    /// Runs everything on one stream: what a program computes must not change by that. For finding
    /// out whether a bug has to do with ordering. The one stream takes no more unfinished operations
    /// than another: a program that comes near the limit has to await [`Stream::ready`].
    ///
    /// [`Stream::ready`]: crate::Stream::ready
    ///
    /// Default: whether `HEADWATER_SINGLE_STREAM` is `1`.
    pub fn single_stream(mut self, on: bool) -> Self {
        self.single_stream = Some(on);
        self
    }

    /// Counts driver calls, for [`Device::driver_calls`].
    pub fn count_driver_calls(mut self, on: bool) -> Self {
        self.count_driver_calls = on;
        self
    }

    /// Logs every call of the driver, for [`Device::call_log`]. The log grows with every call.
    pub fn log_calls(mut self, on: bool) -> Self {
        self.watch.log = on;
        self
    }

    /// Checks every call of the driver for races, for [`Device::races`]: two operations, or an
    /// operation and the host, that touch the same bytes with nothing to order them. It goes by
    /// what is called and not by when things happen to run, and sees what this crate orders and
    /// what the program orders by itself alike. Works on a simulated device and on a GPU.
    ///
    /// An access by the host is a point in time to it, when a guard is given out: what is enqueued
    /// while the guard is there is kept in order by the compiler, and not looked at. Memory of the
    /// checker is bounded by the operations in flight, the blocks there are, and what was freed and
    /// not handed out again by the driver: the latest 32,768 blocks of that at least.
    pub fn race_check(mut self, on: bool) -> Self {
        self.watch.races = on;
        self
    }

    /// As [`race_check`](DeviceBuilder::race_check), and panics at the operation, or the host's
    /// access, that makes a race, with the report: for tests. None of the crate's locks is held then,
    /// and the operation is enqueued. A free that races panics nowhere.
    pub fn panic_on_race(mut self, on: bool) -> Self {
        self.watch.races |= on;
        self.watch.panic_on_race = on;
        self
    }

    /// Has the calls seen in one order with those of `device`, in its log and by its race checker:
    /// for devices that wait for each other or copy between each other.
    ///
    /// Handles and addresses must not be taken for each other's: both are CUDA devices, or devices of
    /// one [`SimMachine`]. `device` was opened with [`log_calls`](DeviceBuilder::log_calls) or
    /// [`race_check`](DeviceBuilder::race_check), with each of them that is asked for here. Anything
    /// else is a [`BadSetting`](Error::BadSetting) when the device is opened.
    pub fn watch_with(mut self, device: &Device) -> Self {
        let core = device.core();
        let witness = core.watched().and_then(|watched| watched.witness()).cloned();
        let (number, simulator) = (device.number(), device.simulator().cloned());
        self.watch_with = Some(Together { number, witness, simulator });
        self
    }

    /// Of the waits that streams are told to make (`cuStreamWaitEvent`), counted from 0 when the device
    /// is opened, has the `nth` not made, while its caller is told that it was: for tests that have to
    /// notice. [`Step::Waited`](crate::testing::Step::Waited) in the log has each one's number, and the
    /// report of a race says that a wait was lost. On a simulated device only; on another, opening is a
    /// [`BadSetting`](Error::BadSetting).
    pub fn lose_wait(mut self, nth: u64) -> Self {
        self.watch.lose_wait = Some(nth);
        self
    }

    /// How many unfinished operations a stream takes before
    /// [`Error::QueueFull`](crate::Error::QueueFull): 1 to 1,000, the default. Anything else is a
    /// [`BadSetting`](Error::BadSetting) when the device is opened.
    pub fn queue_limit(mut self, operations: u64) -> Self {
        self.queue_limit = operations;
        self
    }

    /// How many bytes of device memory this `Device` may have, what it keeps for reuse and what is in flight
    /// included. More is [`Error::OutOfMemory`](crate::Error::OutOfMemory), after the same has been tried as where the
    /// device has no more. Default: as much as the device has.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// How many bytes of page-locked memory the blocks of this `Device` may have together: of buffers, of transfers of
    /// ordinary memory, and those kept for reuse. What would be more is
    /// [`OutOfPinnedMemory`](Error::OutOfPinnedMemory), where no idle block is large enough either. Default: no limit but the
    /// system's. What [`HostBuffer::from_vec`](crate::HostBuffer::from_vec) page-locks in place is not counted.
    pub fn pinned_limit(mut self, bytes: usize) -> Self {
        self.pinned_limit = Some(bytes);
        self
    }

    /// How many bytes copies between the device and pinned memory may have in flight together, on all streams:
    /// one more is [`TooMuchInFlight`](crate::Error::TooMuchInFlight), unless nothing is in flight. [`Device::ready`] waits for room.
    /// Transfers of ordinary memory are bounded by the pinned memory that they go through, and not counted.
    ///
    /// For programs that take in work faster than the device does it: what waits then waits in the program, where it
    /// can be refused or put in another order. Default: no limit, which costs nothing; a stream takes 1,000
    /// operations in any case.
    pub fn in_flight_bytes(mut self, bytes: u64) -> Self {
        self.in_flight_bytes = Some(bytes);
        self
    }

    /// How many launches, copies and fills may be in flight on all streams together, as
    /// [`in_flight_bytes`](DeviceBuilder::in_flight_bytes). Default: no limit.
    pub fn in_flight_operations(mut self, operations: u64) -> Self {
        self.in_flight_operations = Some(operations);
        self
    }

    /// Whether the device memory of buffers that are dropped is kept for the next ones (default), or goes to the
    /// driver at once. Kept, an allocation of a size that was there before costs no call of the driver. Given
    /// back, every buffer is an allocation of its own, which `compute-sanitizer` and the like can tell from others.
    pub fn keep_memory(mut self, on: bool) -> Self {
        self.keep_memory = on;
        self
    }

    /// How ordinary memory is staged: threads, and pinned memory for it. Options that mean nothing are a
    /// [`BadSetting`](Error::BadSetting), or [`StagingTooSmall`](Error::StagingTooSmall), when the
    /// device is opened.
    pub fn staging(mut self, options: StagingOptions) -> Self {
        self.staging = options;
        self
    }

    /// Has errors told to `hook` that no call returns: memory, events, streams or modules that
    /// could not be given back when their last handle was dropped
    /// ([`Error::NotReleased`](crate::Error::NotReleased)), and, once, the loss of the device
    /// ([`Error::DeviceLost`](crate::Error::DeviceLost)), which every waiting future is told as well.
    /// They go to the log (`tracing`) with or without a hook, which need not log them again.
    ///
    /// It is called on whatever thread met the error, the reactor's among them, from within any call
    /// of this crate or a drop, with none of the crate's locks held: it must not block, nor take a
    /// lock that the program holds over such a call. It may use the device, but a handle that it owns
    /// keeps the device open for ever. Its panic is caught and stops nothing. A second hook replaces
    /// the first.
    pub fn on_error(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.hook = ErrorHook::new(hook);
        self
    }

    /// Has no thread look after what is awaited: for a program whose one thread does so by hand.
    pub(crate) fn by_hand(mut self) -> Self {
        self.by_hand = true;
        self
    }

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// As [`Device::from_env`].
    pub fn open(mut self) -> Result<Device> {
        if !(1..=QUEUE_LIMIT).contains(&self.queue_limit) {
            let given = self.queue_limit.to_string();
            return Err(Error::BadSetting { name: "queue_limit", given, allowed: "1 to 1000" });
        }
        self.staging.check()?;
        task::install();
        let target = match self.target {
            Some(target) => target,
            None => target_from_env()?,
        };
        let simulated = !matches!(target, Target::Cuda(_));
        if let Some(nth) = self.watch.lose_wait
            && !simulated
        {
            let (given, allowed) = (nth.to_string(), "a simulated device");
            return Err(Error::BadSetting { name: "lose_wait", given, allowed });
        }
        let inline_spin = match self.inline_spin {
            Some(longest) => longest,
            None => match env("HEADWATER_INLINE_SPIN_US", "microseconds", |v| v.parse().ok())? {
                Some(longest) => Duration::from_micros(longest),
                None if simulated => Duration::ZERO,
                None => INLINE_SPIN,
            },
        };
        let single_stream = match self.single_stream {
            Some(on) => on,
            None => {
                let parse = |v: &str| ["0", "1"].iter().position(|known| *known == v);
                env("HEADWATER_SINGLE_STREAM", "0 or 1", parse)?.unwrap_or(0) == 1
            }
        };
        let options = DeviceOptions {
            inline_spin: inline_spin.min(LONGEST_SPIN),
            single_stream,
            queue_limit: self.queue_limit,
            by_hand: self.by_hand,
            events_in_advance: 64,
            task_streams: 32,
            leased_streams: 16,
            memory_limit: self.memory_limit,
            in_flight_bytes: self.in_flight_bytes,
            in_flight_operations: self.in_flight_operations,
            keeps_memory: self.keep_memory,
            staging: self.staging,
            pinned_limit: self.pinned_limit,
            hook: self.hook,
        };
        let mut backend = match target {
            Target::Cuda(ordinal) => open_cuda(ordinal)?,
            Target::Simulated(options) => {
                let (driver, simulator) = sim::open(*options);
                Backend { driver, watched: None, simulator: Some(simulator) }
            }
            Target::SimulatedOn(machine, ordinal) => {
                let Some((driver, simulator)) = machine.open(ordinal) else {
                    let given = ordinal.to_string();
                    let allowed = "an ordinal below the number of the machine's devices";
                    return Err(Error::BadSetting { name: "simulated_on", given, allowed });
                };
                Backend { driver, watched: None, simulator: Some(simulator) }
            }
        };
        if let Some(together) = &self.watch_with {
            self.watch.with = Some(together.witness_of(backend.simulator.as_ref(), &self.watch)?);
        }
        if self.count_driver_calls || self.watch.is_wanted() {
            let watched = Watched::new(backend.driver, self.watch);
            backend.driver = watched.clone();
            backend.watched = Some(watched);
        }
        let device = Device::open(backend, options)?;
        load_registered(&device)?;
        Ok(device)
    }
}

impl Together {
    /// Who is to see another device, of which that is wanted.
    fn witness_of(&self, simulator: Option<&Simulator>, watch: &Watch) -> Result<Arc<Witness>> {
        let together = match (&self.simulator, simulator) {
            (Some(one), Some(other)) => one.shares_machine(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let refused = |allowed| {
            let given = format!("device {}", self.number);
            Err(Error::BadSetting { name: "watch_with", given, allowed })
        };
        match &self.witness {
            _ if !together => refused("CUDA devices, or devices of one SimMachine"),
            Some(witness) if witness.does(watch.log, watch.races) => Ok(witness.clone()),
            _ => refused("a device opened with the log_calls or race_check that is asked for here"),
        }
    }
}

fn target_from_env() -> Result<Target> {
    let parse = |given: &str| match given.split_once(':') {
        Some(("cuda", ordinal)) => ordinal.parse().ok().map(Target::Cuda),
        None if given == "sim" => Some(Target::Simulated(Box::default())),
        _ => None,
    };
    let target = env("HEADWATER_DEVICE", "cuda:N, such as cuda:0, or sim", parse)?;
    Ok(target.unwrap_or(Target::Cuda(0)))
}

/// A variable of the environment; `None` where it is unset or empty.
fn env<T>(
    name: &'static str,
    allowed: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>> {
    let Some(given) = std::env::var_os(name).filter(|given| !given.is_empty()) else {
        return Ok(None);
    };
    match given.to_str().and_then(parse) {
        Some(value) => Ok(Some(value)),
        None => {
            let given = given.to_string_lossy().into_owned();
            Err(Error::BadSetting { name, given, allowed })
        }
    }
}

#[cfg(feature = "cuda")]
fn visible_cuda() -> Result<Vec<DeviceInfo>> {
    cuda::visible().map_err(|why| without_cuda("listing the CUDA devices", why))
}

#[cfg(feature = "cuda")]
fn open_cuda(ordinal: usize) -> Result<Backend> {
    const OPENING: &str = "opening a CUDA device";
    let visible = cuda::device_count().map_err(|why| without_cuda(OPENING, why))?;
    if ordinal >= visible {
        return Err(Error::NoDevice { ordinal, visible });
    }
    let driver = cuda::open(ordinal).map_err(|why| without_cuda(OPENING, why))?;
    Ok(Backend { driver, watched: None, simulator: None })
}

/// What kept `operation` from being done, before there was a device.
#[cfg(feature = "cuda")]
fn without_cuda(operation: &'static str, why: Unavailable) -> Error {
    match why {
        Unavailable::NoLibrary => Error::NoDriver,
        Unavailable::TooOld { found } => {
            Error::DriverTooOld { found, needed: cuda::MINIMUM_VERSION }
        }
        Unavailable::Broken(cause) => Error::DriverBroken { cause },
        Unavailable::Refused(cause) => Error::Refused { operation, cause },
    }
}

#[cfg(not(feature = "cuda"))]
fn visible_cuda() -> Result<Vec<DeviceInfo>> {
    Err(Error::FeatureMissing("cuda"))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_ordinal: usize) -> Result<Backend> {
    Err(Error::FeatureMissing("cuda"))
}
