//! A device that is stuck ends, and who waited for it learns why.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater::sim::{SimOptions, Violation, WaitsFor};
use headwater::testing::Gate;
use headwater::{Error, Result};

use crate::common::{AS_PROMISED, Child, in_process_of, sim, simulated, until, wait, watched};

/// A log subscriber that keeps what it is told.
struct Keeps(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Keeps {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn Debug) {
        self.0.lock().unwrap().push(format!("{value:?}"));
    }
}

impl tracing::Subscriber for Keeps {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Keeps(self.0.clone()));
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_gate_that_was_forgotten_is_named_in_the_log() {
    // The log of a process is for all of its threads.
    Child::new("stuck::a_process_that_forgets_a_gate", "forgets").run();
}

#[test]
#[ignore = "the process of another test"]
fn a_process_that_forgets_a_gate() -> Result<()> {
    if in_process_of().is_none() {
        return Ok(());
    }
    let said = Arc::<Mutex<Vec<String>>>::default();
    tracing::subscriber::set_global_default(Keeps(said.clone())).expect("it is the first");
    watched(move || {
        let device = simulated(SimOptions::new().stall_limit(Duration::from_millis(20)));
        let stream = device.stream();
        let gate = Gate::new(&device)?;
        gate.hold(&stream)?;
        let lost = wait(stream.synchronize());
        assert!(matches!(lost, Err(Error::DeviceLost(_))), "{lost:?}");
        assert!(lost.unwrap_err().to_string().contains("`Simulator::violations`"));
        let violations = sim(&device).violations();
        let [Violation::Stuck { report }] = &violations[..] else { panic!("{violations:?}") };
        assert!(matches!(report.streams[0].waits_for, WaitsFor::Gate { .. }));
        let report = report.to_string();
        let is_said = || said.lock().unwrap().iter().any(|line| line.contains(&report));
        until("the log has the report", is_said);
        println!("{AS_PROMISED}");
        Ok(())
    })
}
