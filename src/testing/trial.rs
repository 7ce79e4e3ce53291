//! One run of a program on a fresh machine, and what was wrong with it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::failure::Cause;
use super::panics;
use crate::builder::DeviceBuilder;
use crate::device::Device;
use crate::driver::DriverError;
use crate::error::Result;
use crate::random::SplitMix64;
use crate::sim::{
    Schedule, SimMachine, SimOptions, SimSpan, Simulator, Stuck, Violation, WaitsFor,
};
use crate::task::{Chooser, Ended, OUT_OF_BLOCK_ON, Stall, run};

/// A program on so many devices, its type forgotten. It yields the error that it returned.
pub(super) type Program<'p> =
    dyn Fn(Vec<Device>) -> Pin<Box<dyn Future<Output = Option<String>> + 'p>> + 'p;

/// How a program is run.
pub(super) struct Setting {
    pub(super) options: SimOptions,
    pub(super) settings: Box<dyn Fn(DeviceBuilder) -> DeviceBuilder>,
    pub(super) devices: usize,
    pub(super) patience: Duration,
}

/// How often what is chosen at random may differ from the tame choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deviations {
    /// Operations of the devices that another one is run before.
    pub(super) device: u32,
    /// Tasks that let others go first.
    pub(super) host: u32,
}

impl Deviations {
    pub(super) const ANY: Self = Deviations { device: u32::MAX, host: u32::MAX };
}

/// What became of one run.
#[derive(Debug)]
pub(super) struct Trial {
    /// None where all went well.
    pub(super) causes: Vec<Cause>,
    /// How often it did deviate.
    pub(super) made: Deviations,
    pub(super) ran: Ran,
}

/// What ran on all devices, in that order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    pub(super) spans: Vec<SimSpan>,
    /// So many of them by the time the program had ended, or could not go on.
    pub(super) by_the_end: usize,
    /// Of each device, by its ordinal, its number in the process.
    pub(super) devices: Vec<u32>,
    /// The numbers of streams by their handles, as far as there still are any.
    pub(super) streams: Vec<(u64, usize)>,
}

/// Runs the program with the choices of `seed`. `quietly`: its panics are not printed.
pub(super) fn run_once(
    setting: &Setting,
    seed: u64,
    limit: Deviations,
    quietly: bool,
    program: &Program<'_>,
) -> Trial {
    let made = Deviations { device: 0, host: 0 };
    let not_run =
        |why: String| Trial { causes: vec![Cause::NotRun(why)], made, ran: Ran::default() };
    let (machine, devices) =
        match open(setting, Schedule::Random { seed, deviations: limit.device }) {
            Ok(opened) => opened,
            Err(error) => return not_run(error.to_string()),
        };
    let sim = machine.simulator();
    let choices = Choices::new(seed, limit.host, sim.clone());
    let chosen = choices.clone();
    let (ended, heard) = panics::listen(quietly, || {
        run(devices.clone(), Box::new(choices), setting.patience, || program(devices.clone()))
    });
    let mut causes = Vec::new();
    match ended {
        Ok(Ended::Output(None)) => {}
        Ok(Ended::Output(Some(error))) => causes.push(Cause::Returned(error)),
        Ok(Ended::Panicked(payloads)) => {
            causes.push(Cause::Panicked(panics::with_unheard(heard, payloads)));
        }
        Ok(Ended::Stalled(stall)) => causes.push(Cause::Stuck(describe(&stall, &heard))),
        Err(error) => return not_run(error.to_string()),
    }
    let made = Deviations { device: sim.deviations(), host: chosen.made() };
    // What nobody waited for runs as well: it may be wrong, and it frees memory.
    sim.set_schedule(Schedule::Eager);
    sim.settle();
    let mut spans = sim.timeline();
    // What is kept for reuse is no buffer's: the driver gets it back. A device that was lost keeps it.
    // Events that were not recorded yet are by the first turn, and reached by the second.
    for _ in 0..2 {
        // Nothing settles on a device that is stuck, which takes its time to tell.
        if sim.stuck().is_some() {
            break;
        }
        for core in devices.iter().map(Device::core) {
            let _ = core.memory().release_idle(core, u64::MAX);
        }
        sim.settle();
    }
    wrongs(&devices, &sim, &mut causes);
    let by_the_end = chosen.ran_by_the_end().min(spans.len());
    if matches!(causes[..], [Cause::Stuck(_), ..]) {
        spans.truncate(by_the_end); // the rest was let go by dropping who held it
    }
    let streams = devices.iter().flat_map(|device| device.core().reactor().streams()).collect();
    let numbers = devices.iter().map(Device::number).collect();
    let ran = Ran { spans, by_the_end, devices: numbers, streams };
    // Nobody waits for what never ends, nor does the thread that closes the device.
    sim.give_up();
    Trial { causes, made, ran }
}

/// One machine with all the devices, which one witness sees.
fn open(setting: &Setting, schedule: Schedule) -> Result<(SimMachine, Vec<Device>)> {
    let options = setting.options.clone().schedule(schedule);
    let machine = SimMachine::new(setting.devices, options.clone())?;
    let mut devices: Vec<Device> = Vec::new();
    for ordinal in 0..setting.devices {
        let mut builder = (setting.settings)(device(options.clone()));
        let witness = |first: &&Device| first.core().watched()?.witness().cloned();
        if let Some(first) = devices.first().filter(|first| witness(first).is_some()) {
            builder = builder.watch_with(first);
        }
        devices.push(builder.simulated_on(&machine, ordinal).by_hand().open()?);
    }
    Ok((machine, devices))
}

/// A simulated device as tests want it.
pub(super) fn device(options: SimOptions) -> DeviceBuilder {
    Device::builder()
        .simulated_with(options)
        .single_stream(false)
        .inline_spin(Duration::ZERO)
        .count_driver_calls(true)
        .race_check(true)
}

/// What the devices tell that was wrong, the program having ended.
fn wrongs(devices: &[Device], sim: &Simulator, causes: &mut Vec<Cause>) {
    // One witness sees them all.
    let races = devices.first().and_then(Device::races).unwrap_or_default();
    if !races.is_empty() {
        causes.push(Cause::Raced(races));
    }
    let mut violations = sim.violations();
    if matches!(causes[..], [Cause::Stuck(_), ..]) {
        // It was ended for that, so that a drop which waits for it ends.
        violations.retain(|violation| !matches!(violation, Violation::Stuck { .. }));
    }
    if !violations.is_empty() {
        causes.push(Cause::Misused(violations));
    }
    // What never ends by a fault is the test's doing. A twin that does not return is not.
    let stuck = sim.stuck();
    let of_twin = |stuck: &&Stuck| stuck.streams.iter().any(|s| s.waits_for == WaitsFor::Return);
    if let Some(stuck) = stuck.as_ref().filter(of_twin)
        && causes.is_empty()
    {
        causes.push(Cause::Stuck(stuck.to_string()));
    }
    // Where something went wrong before, what it left behind says nothing; a device that has
    // failed, noticed or not, or is stuck, takes nothing back.
    let bytes = sim.live_device_bytes();
    let lost = |device: &Device| device.core().reactor().check().is_err();
    let works = !sim.has_failed() && !devices.iter().any(lost);
    if bytes > 0 && causes.is_empty() && works && stuck.is_none() {
        causes.push(Cause::Leaked { bytes });
    }
}

fn describe(stall: &Stall, heard: &[String]) -> String {
    let mut why = match stall {
        Stall::Device(why) => why.clone(),
        Stall::Host { tasks } => {
            let tasks = match tasks {
                0 => String::new(),
                1 => ", nor has a task".to_owned(),
                more => format!(", nor have {more} tasks"),
            };
            format!(
                "the program has not ended{tasks}; none of it can run, and none waits for a device: each \
                 waits for another one, or for what never comes (a message, a lock). If it waits for another \
                 thread (`spawn_blocking`) that takes longer, say how long: `Explore::patience`"
            )
        }
        Stall::Yielding => {
            "tasks run again and again and nothing comes of it: each yields until another one has done \
             something, or wakes itself, and none waits for a device. If it is another thread that \
             takes longer, say how long: `Explore::patience`"
                .to_owned()
        }
        Stall::Blocked => {
            "block_on waits for what only another task can do, and no other task can \
                           run until it returns: await it instead. If it waits for another thread \
                           (`spawn_blocking`) that takes longer, say how long: `Explore::patience`"
                .to_owned()
        }
    };
    if let Some(first) = heard.iter().find(|said| !said.starts_with(OUT_OF_BLOCK_ON)) {
        why += &format!("\n  before that, a panic: {first}");
    }
    why
}

/// The host's choices in one run, and where the machine stands.
#[derive(Clone, Debug)]
struct Choices(Rc<State>);

#[derive(Debug)]
struct State {
    /// Not from the seed itself, from which the device draws.
    numbers: Cell<SplitMix64>,
    /// How often a task may still let others go first.
    left: Cell<u32>,
    limit: u32,
    sim: Simulator,
    /// Operations that had run when the program ended.
    ran: Cell<Option<usize>>,
}

impl Choices {
    fn new(seed: u64, limit: u32, sim: Simulator) -> Self {
        let numbers = Cell::new(SplitMix64::new(!seed));
        let (left, ran) = (Cell::new(limit), Cell::new(None));
        Choices(Rc::new(State { numbers, left, limit, sim, ran }))
    }

    fn ran_by_the_end(&self) -> usize {
        self.0.ran.get().unwrap_or(0)
    }

    /// How often a task let others go first.
    fn made(&self) -> u32 {
        self.0.limit - self.0.left.get()
    }

    fn next(&self) -> u64 {
        let mut numbers = self.0.numbers.get();
        let next = numbers.next();
        self.0.numbers.set(numbers);
        next
    }
}

impl Chooser for Choices {
    /// The devices move in the calls that ask for an end.
    fn stuck(&self) -> Option<String> {
        self.0.sim.stuck().map(|stuck| stuck.to_string())
    }

    fn gives_up(&self) -> bool {
        let sim = &self.0.sim;
        if sim.give_up().is_some() {
            return true;
        }
        let work = !sim.has_failed();
        if work {
            sim.fail(DriverError::LAUNCH_TIMEOUT);
        }
        work
    }

    fn ended(&self) {
        if self.0.ran.get().is_none() {
            self.0.ran.set(Some(self.0.sim.timeline().len()));
        }
    }

    fn defers(&self) -> bool {
        let left = self.0.left.get();
        let defers = left > 0 && self.next().is_multiple_of(4);
        self.0.left.set(left - u32::from(defers));
        defers
    }
}
