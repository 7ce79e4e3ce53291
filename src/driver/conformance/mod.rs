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
//! HEADWATER_REQUIRE_GPU=1 cargo test --lib -- driver::conformance:: --include-ignored --test-threads=1
//! ```

/// One `#[test]` for each subject out of each function named. A subject is added here, once.
macro_rules! on_every_subject {
    ($($test:ident,)*) => { on_every_subject! { @run run $($test,)* } };
    // Each in a process of its own where the subject is a GPU, and whatever was done wrong.
    (in_a_process_of_its_own: $($test:ident,)*) => { on_every_subject! { @run run_alone $($test,)* } };
    (@run $run:ident $($test:ident,)*) => {$(
        mod $test {
            use crate::driver::conformance::subject::{Around, On, $run};
            use crate::driver::sim::Schedule;

            fn on(on: On, around: Around, name: &str) {
                $run(on, around, super::$test, concat!(module_path!(), "::"), name);
            }

            #[test]
            fn eager() {
                on(On::Simulated(Schedule::Eager), Around::Nothing, "eager");
            }

            #[test]
            fn stepped() {
                on(On::Simulated(Schedule::Stepped), Around::Nothing, "stepped");
            }

            #[test]
            fn eager_watched() {
                on(On::Simulated(Schedule::Eager), Around::Watched, "eager_watched");
            }

            #[cfg(feature = "cuda")]
            #[test]
            #[ignore = "needs a GPU"]
            fn cuda() {
                on(On::Cuda, Around::Nothing, "cuda");
            }

            #[cfg(feature = "cuda")]
            #[test]
            #[ignore = "needs a GPU"]
            fn cuda_watched() {
                on(On::Cuda, Around::Watched, "cuda_watched");
            }
        }
    )*};
}

mod allocation;
mod calls;
mod copies;
mod events;
mod gate;
mod kernels;
mod launches;
mod modules;
mod order;
mod page_locked;
mod queue;
mod sticky;
mod streams;
mod subject;
mod threads;
mod waits;
