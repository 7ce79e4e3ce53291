//! Random programs compute what they say, line by line, in whatever order the device may run them.
//!
//! A program is a value (`program`, `names`; `shown` is how it reads), made at random and made smaller
//! where it fails (`generate`, `operands`). Its lines work on whole buffers, on slices and tiles of them,
//! on parts that are owned, rejoined or dropped, and on shared buffers, in device memory and pinned. It
//! runs on a device (`run`, `world`, `memory`, `host`, `dealt`) beside a model that does each line at
//! once, element by element (`model`): what is read has to be what the model holds, and a read is refused
//! exactly where it is of an element that nobody has written. What is read is the same on one stream.
//!
//! The calls that it makes are logged, and judged by the race checker and by the
//! [oracle](crate::oracle) (`watched`), also with one of its waits lost (`mutation`), and for waits made
//! for nothing (`minimality`). Programs of several threads (`threads`), whose order is that of their
//! locks, are judged by the same two.
//!
//! Each test runs the programs of seeds 0, 1, 2 and so on, says in a line what came of them, and fails
//! where they did less than such programs do (`done`). For long runs, of other seeds or of one:
//!
//! ```text
//! HEADWATER_PROGRAMS=10000 cargo test --release --test it programs::random -- --nocapture
//! HEADWATER_PROGRAMS=1000 cargo test --release --test it programs::every -- --nocapture
//! HEADWATER_PROGRAMS=1000 cargo test --release --test it programs::threads -- --nocapture
//! HEADWATER_SEED=123 HEADWATER_PROGRAMS=1 cargo test --test it programs:: -- --nocapture
//! ```

mod dealt;
mod done;
mod generate;
mod host;
mod memory;
mod minimality;
mod model;
mod mutation;
mod names;
mod operands;
mod program;
mod run;
mod shown;
mod threads;
mod watched;
mod world;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

use headwater::Device;
use headwater::sim::{Schedule, SimOptions};
use headwater::testing::LoggedStep;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::common::{any_device, eager, on_gpu, run_to_end, sim, simulated, wait};
use crate::oracle::acts;
use done::{Done, at_least};
use generate::{Shape, programs};
use minimality::{Tally as Waits, each_wait_has_a_conflict};
use mutation::{Tally as Losses, lose_each_wait};
use program::Program;
use run::{Settings, Waiting, run};
use watched::{calls, judged, watched};

/// What programs are made of where nothing else is said.
const SHAPE: Shape = Shape { lines: 60, refusals: false, events: true, shared: true, timely: true };
const IN_THREAD: Settings = Settings { waiting: Waiting::InThread, refusals: false };
const FOR_REACTOR: Settings = Settings { waiting: Waiting::ForReactor, refusals: false };

/// How often a program that may be a smaller form of one that failed is run.
const THROWS: u64 = 20;

/// Where a device has refused so many calls, the next program gets another one: it counts them only up to
/// some number.
const REFUSED: usize = 500;

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// The seeds of a test's programs: `usual` of them from 0 on, unless the environment says otherwise.
fn seeds(usual: u64) -> Range<u64> {
    let first = setting("HEADWATER_SEED").unwrap_or(0);
    first..first + setting("HEADWATER_PROGRAMS").unwrap_or(usual)
}

/// Tests the programs of these seeds; one that fails is made smaller first.
fn each_program(shape: Shape, seeds: Range<u64>, test: impl Fn(&Program) -> Result<(), String>) {
    for seed in seeds {
        let config =
            Config { failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(config, random);
        let tree = programs(shape).new_tree(&mut runner).expect("no program is rejected");
        let failed = Cell::new(false);
        let tested = |mut program: Program| {
            // Without one of its lines a program meets other dice: it gets several throws.
            let throws = if failed.get() { THROWS } else { 1 };
            let tested = (0..throws).try_for_each(|throw| {
                program.dice = program.dice.wrapping_add(throw);
                test(&program)
            });
            failed.set(failed.get() | tested.is_err());
            tested.map_err(TestCaseError::fail)
        };
        match runner.run_one(tree, tested) {
            Ok(_) => {}
            Err(TestError::Fail(why, program)) => {
                panic!("the program of seed {seed}, made smaller, fails: {why}\n{program}")
            }
            Err(TestError::Abort(why)) => panic!("the program of seed {seed}: {why}"),
        }
    }
}

/// The schedules in lock-step: one thread makes the same calls and gets the same answers each time.
type InLockStep = fn(&Program) -> Schedule;
const LAZY: InLockStep = |_| Schedule::Lazy;
const RANDOM: InLockStep = |program| Schedule::random(program.dice);

/// A simulated device of that schedule that is watched and loses the wait of that number.
fn losing(schedule: Schedule, nth: Option<u64>) -> Device {
    let options = SimOptions::new().schedule(schedule);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    // No spinning: how often a spin asks is a matter of time.
    let builder = builder.race_check(true).log_calls(true).inline_spin(Duration::ZERO);
    let builder = match nth {
        Some(nth) => builder.lose_wait(nth),
        None => builder,
    };
    builder.open().expect("opening a simulated device")
}

/// Runs each program on a device of its own, and has its calls judged.
fn on_their_own(
    name: &str,
    shape: Shape,
    seeds: Range<u64>,
    schedule: InLockStep,
    settings: Settings,
) {
    let done = RefCell::new(Done::default());
    each_program(shape, seeds, |program| {
        let device = losing(schedule(program), None);
        let ran = watched(&device, program, settings);
        let came = ran.ended.as_ref().map_err(ToString::to_string)?;
        if let [(first, second), ..] = judged(&ran)?[..] {
            return Err(format!("a race: {:#?}", [&ran.log[first], &ran.log[second]]));
        }
        run_to_end(&device);
        let mut done = done.borrow_mut();
        done.by_log(&ran.log);
        done.add(came.kinds);
        done.refused += sim(&device).injected().len() as u64;
        // Where a free is refused, the memory stays.
        match left(&device) {
            left if left > 0 && !settings.refusals => Err(format!("{left} bytes are left")),
            _ => Ok(()),
        }
    });
    done.into_inner().tell_and_expect(name, settings.refusals);
}

/// Bytes of device memory that are allocated, once what is kept was given back.
fn left(device: &Device) -> u64 {
    let _refused = wait(device.synchronize());
    let _refused = wait(device.trim(0));
    run_to_end(device);
    sim(device).live_device_bytes()
}

/// Runs the programs of these seeds, with events of their own, on a lazy device and returns its log.
pub(crate) fn log_of_random_programs(seeds: Range<u64>) -> Vec<LoggedStep> {
    let builder = Device::builder().simulated_with(SimOptions::new().schedule(Schedule::Lazy));
    let builder = builder.single_stream(false).log_calls(true);
    let device = builder.open().expect("opening a simulated device");
    each_program(SHAPE, seeds, |program| {
        run(&device, program, IN_THREAD).map(drop).map_err(|failed| failed.to_string())
    });
    run_to_end(&device);
    device.call_log().expect("it is logged")
}

/// Runs programs one after the other on one device, which panics on a race; one that a program
/// failed on is left alone.
fn on_one_device(
    name: &str,
    shape: Shape,
    seeds: Range<u64>,
    settings: Settings,
    open: impl Fn() -> Device,
) {
    let device = RefCell::new(open());
    let done = RefCell::new(Done::default());
    let end = |device: &Device| {
        let mut done = done.borrow_mut();
        done.by_calls(&device.driver_calls().expect("they are counted"));
        if device.simulator().is_some() {
            run_to_end(device);
            done.refused += sim(device).injected().len() as u64;
            let left = left(device);
            assert!(left == 0 || settings.refusals, "{left} bytes are left");
        }
    };
    each_program(shape, seeds, |program| {
        let ran = run(&device.borrow(), program, settings);
        done.borrow_mut().programs += 1;
        if let Ok(came) = &ran {
            done.borrow_mut().add(came.kinds);
        }
        if ran.is_err() {
            device.replace(open());
        } else if settings.refusals && sim(&device.borrow()).injected().len() > REFUSED {
            end(&device.replace(open()));
        }
        ran.map(drop).map_err(|failed| failed.to_string())
    });
    end(&device.borrow());
    done.borrow().tell_and_expect(name, settings.refusals);
}

#[test]
fn random_programs_compute_what_they_say_in_any_order_the_device_may_choose() {
    on_their_own("random", SHAPE, seeds(120), RANDOM, IN_THREAD);
}

#[test]
fn random_programs_compute_what_they_say_where_nothing_runs_that_is_not_needed() {
    on_their_own("lazy", SHAPE, seeds(120), LAZY, IN_THREAD);
}

#[test]
fn random_programs_compute_what_they_say_while_other_threads_look_after_the_device() {
    on_one_device("eager, one device", SHAPE, seeds(150), FOR_REACTOR, eager);
    let random = || simulated(SimOptions::new().schedule(Schedule::random(1)));
    on_one_device("random, one device", SHAPE, seeds(75), FOR_REACTOR, random);
}

#[test]
fn random_programs_compute_what_they_say_on_any_device() {
    let device = any_device();
    let usual = if on_gpu() { 500 } else { 150 };
    on_one_device(&device.info().name, SHAPE, seeds(usual), FOR_REACTOR, any_device);
}

#[test]
fn random_programs_compute_what_they_say_where_the_driver_refuses_calls() {
    let shape = Shape { refusals: true, ..SHAPE };
    let refusals = |settings| Settings { refusals: true, ..settings };
    on_their_own("random, refusals", shape, seeds(60), RANDOM, refusals(IN_THREAD));
    on_one_device("eager, refusals, one device", shape, seeds(100), refusals(FOR_REACTOR), eager);
}

#[test]
fn random_programs_make_the_same_calls_at_the_same_times_twice() {
    let done = RefCell::new(Done::default());
    each_program(SHAPE, seeds(20), |program| {
        for schedule in [LAZY, RANDOM] {
            let ran = || {
                let device = losing(schedule(program), None);
                let ran = watched(&device, program, IN_THREAD);
                done.borrow_mut().by_log(&ran.log);
                ran.ended.iter().for_each(|came| done.borrow_mut().add(came.kinds));
                (calls(&ran.log), sim(&device).timeline(), sim(&device).host_now())
            };
            let (first, second) = (ran(), ran());
            if first != second {
                let mut calls = first.0.iter().zip(&second.0);
                let differs = calls.find(|(first, second)| first != second);
                return Err(format!("not the same twice, from {differs:#?} on"));
            }
        }
        Ok(())
    });
    done.into_inner().tell_and_expect("lazy and random, each twice", false);
}

#[test]
fn every_lost_wait_that_matters_is_reported_and_no_other() {
    for (name, schedule, with_wrong_bytes) in [("lazy", LAZY, 3), ("random", RANDOM, 1)] {
        let losses = RefCell::new(Losses::default());
        each_program(SHAPE, seeds(10), |program| {
            let open = |nth| losing(schedule(program), nth);
            lose_each_wait(program, IN_THREAD, open, &mut losses.borrow_mut())
        });
        let losses = losses.into_inner();
        println!("{name}: {losses}");
        at_least(30, losses.programs, "waits lost", losses.lost);
        at_least(20, losses.programs, "waits that mattered", losses.mattered);
        at_least(with_wrong_bytes, losses.programs, "runs with wrong bytes", losses.wrong);
    }
}

/// Has every wait of programs justified, on each of the schedules in lock-step.
fn each_wait(shape: Shape, programs: u64) {
    // No waits of the programs' own.
    let shape = Shape { events: false, ..shape };
    for (name, schedule) in [("lazy", LAZY), ("random", RANDOM)] {
        let waits = RefCell::new(Waits::default());
        each_program(shape, seeds(programs), |program| {
            let ran = watched(&losing(schedule(program), None), program, IN_THREAD);
            ran.ended.map_err(|failed| failed.to_string())?;
            let mut waits = waits.borrow_mut();
            each_wait_has_a_conflict(&ran.log, &acts(&ran.log), shape.shared, &mut waits)
        });
        let waits = waits.into_inner();
        println!("{name}: {waits}");
        at_least(40, waits.programs, "waits", waits.waits);
    }
}

#[test]
fn every_wait_is_for_a_conflict_of_what_comes_next() {
    each_wait(Shape { shared: false, ..SHAPE }, 40);
}

#[test]
fn every_wait_is_for_a_conflict_or_for_streams_that_read_shared_memory() {
    each_wait(SHAPE, 25);
}

/// What was read in each line that waited for it, on one stream or on many.
fn read_on(program: &Program, single: bool, schedule: Schedule) -> Result<Read, String> {
    let options = SimOptions::new().schedule(schedule);
    let builder = Device::builder().simulated_with(options).single_stream(single);
    let device = builder.panic_on_race(true).open().expect("opening a simulated device");
    let came = run(&device, program, IN_THREAD).map_err(|failed| failed.to_string())?;
    let mut read = came.read;
    // Tasks that wait are overtaken by others, here and there by different ones.
    read.sort_by_key(|(line, _)| *line);
    Ok(read)
}

type Read = Vec<(usize, Vec<u32>)>;

#[test]
fn random_programs_read_the_same_bytes_on_one_stream() {
    let shape = Shape { timely: false, ..SHAPE };
    let (programs, reads) = (Cell::new(0), Cell::new(0));
    each_program(shape, seeds(30), |program| {
        let one = read_on(program, true, RANDOM(program))?;
        for many in [Schedule::Eager, LAZY(program), RANDOM(program)] {
            if read_on(program, false, many)? != one {
                return Err("what is read on one stream is not what is read on many".to_owned());
            }
        }
        programs.set(programs.get() + 1);
        reads.set(reads.get() + one.len() as u64);
        Ok(())
    });
    let (programs, reads) = (programs.get(), reads.get());
    println!("one stream and many: {programs} programs, {reads} reads, the same bytes");
    at_least(50, programs, "reads", reads);
}
