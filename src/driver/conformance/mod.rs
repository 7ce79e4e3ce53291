//! What each method of [`Driver`](super::Driver) must do, as tests that run on every device.
//!
//! A test is a function of a [`Subject`](subject::Subject) that uses no more than the contract
//! promises; `on_every_subject!` makes of it one `#[test]` for each subject, named after both. Where
//! CUDA and the simulated device disagree, CUDA is right. What the simulated device does beyond the
//! contract has its tests in `sim/tests`.
//!
//! No test has a race, whatever the schedule: what watches the calls finds nothing to report. On a
//! GPU they run one at a time and share one opened device:
//!
//! ```text
//! HEADWATER_REQUIRE_GPU=1 cargo test --lib -- driver::conformance:: --include-ignored --test-threads=1 --skip two_gpus
//! ```
//!
//! and where there are two, with `HEADWATER_REQUIRE_GPU=2` and without `--skip`. A test of two devices
//! fails where there is but one: it is left out, and not passed over.

/// One `#[test]` for each subject out of each function named. A subject is added here, once; one of two
/// devices below.
macro_rules! on_every_subject {
    ($($test:ident,)*) => { on_every_subject! { @by run $($test,)* } };
    // Each in a process of its own where the subject is a GPU, which is of no use afterwards.
    (in_a_process_of_its_own: $($test:ident,)*) => {
        on_every_subject! { @by run_alone $($test,)* }
    };
    (@by $run:ident $($test:ident,)*) => {$(
        mod $test {
            use crate::driver::conformance::subject::{Around, On, $run};
            use crate::driver::sim::Schedule;

            on_every_subject! { @tests $run $test
                eager: On::Simulated(Schedule::Eager), Nothing;
                stepped: On::Simulated(Schedule::Stepped), Nothing;
                lazy: On::Simulated(Schedule::Lazy), Nothing;
                random_1: On::Simulated(Schedule::random(1)), Nothing;
                random_2: On::Simulated(Schedule::random(2)), Nothing;
                staged_eager: On::Staged(Schedule::Eager), Nothing;
                staged_lazy: On::Staged(Schedule::Lazy), Nothing;
                staged_random: On::Staged(Schedule::random(3)), Nothing;
                watched_eager: On::Simulated(Schedule::Eager), Watched;
                watched_stepped: On::Simulated(Schedule::Stepped), Watched;
                watched_lazy: On::Simulated(Schedule::Lazy), Watched;
                watched_random: On::Simulated(Schedule::random(4)), Watched;
                #[cfg(feature = "cuda")] #[ignore = "needs a GPU"] cuda: On::Cuda, Nothing;
                #[cfg(feature = "cuda")] #[ignore = "needs a GPU"] watched_cuda: On::Cuda, Watched;
            }
        }
    )*};
    (@tests $run:ident $test:ident
        $($(#[$attribute:meta])* $subject:ident: $on:expr, $around:ident;)*
    ) => {$(
        $(#[$attribute])*
        #[test]
        fn $subject() {
            let path = concat!(module_path!(), "::", stringify!($subject));
            $run($on, Around::$around, super::$test, path);
        }
    )*};
}

/// As `on_every_subject!`, for functions of two devices that may use each other's events and memory.
macro_rules! on_every_two_subjects {
    ($($test:ident,)*) => {$(
        mod $test {
            use crate::driver::conformance::subject::{Around, On, run_on_two};
            use crate::driver::sim::Schedule;

            on_every_subject! { @tests run_on_two $test
                eager: On::Simulated(Schedule::Eager), Nothing;
                stepped: On::Simulated(Schedule::Stepped), Nothing;
                lazy: On::Simulated(Schedule::Lazy), Nothing;
                random_1: On::Simulated(Schedule::random(1)), Nothing;
                random_2: On::Simulated(Schedule::random(2)), Nothing;
                watched_eager: On::Simulated(Schedule::Eager), Watched;
                watched_stepped: On::Simulated(Schedule::Stepped), Watched;
                watched_lazy: On::Simulated(Schedule::Lazy), Watched;
                watched_random: On::Simulated(Schedule::random(4)), Watched;
                #[cfg(feature = "cuda")] #[ignore = "needs two GPUs"] two_gpus: On::Cuda, Nothing;
                #[cfg(feature = "cuda")] #[ignore = "needs two GPUs"] watched_two_gpus: On::Cuda, Watched;
            }
        }
    )*};
}

mod allocation;
mod calls;
mod copies;
mod default_streams;
mod definition;
mod events;
mod gate;
mod kernels;
mod launches;
mod modules;
mod order;
mod ordinary;
mod page_locked;
mod planes;
mod programs;
mod queue;
mod rows;
mod sticky;
mod streams;
mod subject;
mod threads;
mod two_devices;
mod waits;
