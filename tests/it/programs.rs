//! Random programs compute what they say, line by line, in whatever order the device may run them.

mod generate;
mod minimality;
mod model;
mod mutation;
mod program;
mod run;
mod watched;

use std::cell::{Cell, RefCell};
use std::ops::Range;

use headwater::Device;
use headwater::sim::{Schedule, SimOptions};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::common::{any_device, eager, run_to_end, sim, stepped};
use crate::oracle::acts;
use generate::{Shape, programs};
use minimality::each_wait_has_a_conflict;
use mutation::{Tally, lose_each_wait};
use program::Program;
use run::{Failed, Settings, Waits, run};
use watched::watched;

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

/// How often a program that may be a smaller form of one that failed is run.
const THROWS: u64 = 20;

/// The program of a seed, to be made smaller where it fails.
fn with_program(shape: Shape, seed: u64, test: impl Fn(&Program) -> Result<(), String>) {
    let config = Config { failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
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

const SHAPE: Shape = Shape { lines: 60, refusals: false, events: true };

/// Runs the programs of these seeds; a new device for every 500, and one that a program failed on is
/// left alone.
fn run_programs(seeds: Range<u64>, shape: Shape, waits: Waits, open: impl Fn() -> Device) {
    let settings = Settings { waits, refusals: shape.refusals };
    let device = RefCell::new(open());
    for seed in seeds {
        with_program(shape, seed, |program| {
            let ran = run(&device.borrow(), program, settings);
            if ran.is_err() {
                device.replace(open());
            }
            ran.map_err(|failed: Failed| failed.to_string())
        });
        if (seed + 1).is_multiple_of(500) && device.borrow().simulator().is_some() {
            let device = device.replace(open());
            run_to_end(&device);
            if shape.refusals {
                assert!(sim(&device).injected().len() > 100, "few calls were refused");
            } else {
                // Where a free is refused, the memory stays.
                assert_eq!(sim(&device).live_device_bytes(), 0, "memory of programs that ended");
            }
        }
    }
}

#[test]
fn random_programs_compute_what_they_say_in_any_order_the_device_may_choose() {
    run_programs(seeds(500), SHAPE, Waits::Stepping, stepped);
}

#[test]
fn random_programs_compute_what_they_say_while_the_device_runs_beside_the_host() {
    run_programs(seeds(500), SHAPE, Waits::ForReactor, eager);
}

#[test]
fn random_programs_compute_what_they_say_on_any_device() {
    run_programs(seeds(300), SHAPE, Waits::ForReactor, any_device);
}

#[test]
fn random_programs_compute_what_they_say_where_the_driver_refuses_calls() {
    let shape = Shape { refusals: true, ..SHAPE };
    run_programs(seeds(500), shape, Waits::Stepping, stepped);
    run_programs(seeds(500), shape, Waits::ForReactor, eager);
}

/// A simulated device of that schedule that is watched and loses the wait of that number.
fn losing(schedule: Schedule, nth: Option<u64>) -> Device {
    let options = SimOptions::new().schedule(schedule);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    let builder = builder.race_check(true).log_calls(true);
    let builder = match nth {
        Some(nth) => builder.lose_wait(nth),
        None => builder,
    };
    builder.open().expect("opening a simulated device")
}

#[test]
fn every_lost_wait_that_matters_is_reported_and_no_other() {
    let settings = Settings { waits: Waits::Stepping, refusals: false };
    let tally = RefCell::new(Tally::default());
    for seed in seeds(40) {
        with_program(SHAPE, seed, |program| {
            let open = |nth| losing(Schedule::Stepped, nth);
            lose_each_wait(program, settings, open, &mut tally.borrow_mut())
        });
    }
    println!("{}", tally.borrow());
}

#[test]
fn every_wait_is_for_a_conflict_of_what_comes_next() {
    let settings = Settings { waits: Waits::Stepping, refusals: false };
    let shape = Shape { events: false, ..SHAPE };
    let (made, implied) = (Cell::new(0), Cell::new(0));
    for seed in seeds(100) {
        with_program(shape, seed, |program| {
            let ran = watched(&losing(Schedule::Stepped, None), program, settings);
            ran.ended.map_err(|failed| failed.to_string())?;
            let acts = acts(&ran.log);
            made.set(made.get() + each_wait_has_a_conflict(&ran.log, &acts)?);
            implied.set(implied.get() + minimality::implied(&acts));
            Ok(())
        });
    }
    println!("{} waits, {} of them implied by others", made.get(), implied.get());
}
