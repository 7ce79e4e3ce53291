//! One run of a program on fresh devices, and what was wrong with it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::failure::Cause;
use super::panics;
use crate::builder::DeviceBuilder;
use crate::device::Device;
use crate::random::SplitMix64;
use crate::sim::{Schedule, SimOptions, SimSpan, Simulator};
use crate::task::{Chooser, Ended, Stall, run};

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
    /// Operations of a device that another one is run before.
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
    /// What ran on each device, by its number in the process.
    pub(super) ran: Vec<(u32, Vec<SimSpan>)>,
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
    let open = |number: u64| {
        let seed = seed.wrapping_add(number << 32);
        let schedule = Schedule::Random { seed, deviations: limit.device };
        let options = setting.options.clone().schedule(schedule);
        (setting.settings)(device(options.clone())).simulated_with(options).by_hand().open()
    };
    let devices = match (0..setting.devices as u64).map(open).collect::<Result<Vec<_>, _>>() {
        Ok(devices) => devices,
        Err(error) => {
            return Trial { causes: vec![Cause::NotRun(error.to_string())], made, ran: Vec::new() };
        }
    };
    let choices = Choices::new(seed, limit.host);
    let made_by = choices.clone();
    let (ended, heard) = panics::listen(quietly, || {
        run(devices.clone(), Box::new(choices), setting.patience, || program(devices.clone()))
    });
    let mut causes = Vec::new();
    match ended {
        Ok(Ended::Output(None)) => {}
        Ok(Ended::Output(Some(error))) => causes.push(Cause::Returned(error)),
        Ok(Ended::Panicked) => causes.push(Cause::Panicked(heard.join("\n"))),
        Ok(Ended::Stalled(stall)) => causes.push(Cause::Stuck(describe(stall))),
        Err(error) => causes.push(Cause::NotRun(error.to_string())),
    }
    let deviations = devices.iter().filter_map(Device::simulator).map(Simulator::deviations);
    let made = Deviations { device: deviations.max().unwrap_or(0), host: made_by.made() };
    let mut ran = Vec::new();
    for device in &devices {
        let Some(sim) = device.simulator() else { continue };
        // What nobody waited for runs as well: it may be wrong, and it frees memory.
        sim.set_schedule(Schedule::Eager);
        sim.settle();
        wrongs(device, sim, &mut causes);
        ran.push((device.number(), sim.timeline()));
        // Nobody waits for what never ends, nor does the thread that closes the device.
        sim.give_up();
    }
    Trial { causes, made, ran }
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

/// What the device tells that was wrong, the program having ended.
fn wrongs(device: &Device, sim: &Simulator, causes: &mut Vec<Cause>) {
    let races = device.races();
    if !races.is_empty() {
        causes.push(Cause::Raced(races));
    }
    let violations = sim.violations();
    if !violations.is_empty() {
        causes.push(Cause::Misused(violations));
    }
    // Where something went wrong before, what it left behind says nothing; a device that was lost, or is
    // stuck, takes nothing back.
    let bytes = sim.live_device_bytes();
    let works = device.core().reactor().check().is_ok() && sim.stuck().is_none();
    if bytes > 0 && causes.is_empty() && works {
        causes.push(Cause::Leaked { bytes });
    }
}

fn describe(stall: Stall) -> String {
    match stall {
        Stall::Device(why) => why,
        Stall::Host { tasks } => format!(
            "no task can run, and none waits for a device: each waits for another one, or for what \
             never comes (a message, a lock, a timer); tasks that have not ended: {tasks}"
        ),
        Stall::Blocked => {
            "block_on waits for what only another task can do, and no other task can \
                           run until it returns: await it instead"
                .to_owned()
        }
    }
}

/// The host's choices in one run, and where the devices stand.
#[derive(Clone, Debug)]
struct Choices(Rc<State>);

#[derive(Debug)]
struct State {
    /// Not from the seed itself, from which the device draws.
    numbers: Cell<SplitMix64>,
    /// How often a task may still let others go first.
    left: Cell<u32>,
    limit: u32,
}

impl Choices {
    fn new(seed: u64, limit: u32) -> Self {
        let state =
            State { numbers: Cell::new(SplitMix64::new(!seed)), left: Cell::new(limit), limit };
        Choices(Rc::new(state))
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
    fn stuck(&self, awaited: &[&Device]) -> Option<String> {
        let report = |device: &&Device| Some(device.simulator()?.stuck()?.to_string());
        let reports: Option<Vec<_>> = awaited.iter().map(report).collect();
        Some(reports?.join("\n"))
    }

    fn defers(&self) -> bool {
        let left = self.0.left.get();
        let defers = left > 0 && self.next().is_multiple_of(4);
        self.0.left.set(left - u32::from(defers));
        defers
    }
}
