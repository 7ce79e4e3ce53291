//! Streams held back until a test lets them go.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use super::calls::Host;
use super::subject::Subject;
use crate::driver::StreamHandle;

/// After so long a gate on a GPU gives up, in ns: a test that hangs leaves the GPU to others.
pub(super) const GIVES_UP_AFTER: u64 = 5_000_000_000;

/// A stream that is held: what is enqueued on it from here on does not run before this is opened, or
/// dropped.
pub(super) struct Held<'s> {
    subject: &'s Subject,
    gate: Gate,
}

enum Gate {
    /// As `Simulator::gate` has it.
    Simulated(u64),
    /// The two words of `kernels/testing.cu`, never freed.
    Words(Host),
}

impl Subject {
    /// Holds a stream. Counts as one launch on it.
    pub(super) fn hold(&self, stream: &StreamHandle) -> Held<'_> {
        let (gate, number, words) = match &self.sim {
            Some(sim) => {
                let number = sim.gate();
                (Gate::Simulated(number), Some(number), 0)
            }
            None => {
                let words = self.pinned(8);
                self.write(words, &[0; 8]);
                let address = words.address() as u64;
                (Gate::Words(words), None, address)
            }
        };
        let held = Held { subject: self, gate };
        self.launch_gate(words, number, stream);
        held
    }
}

impl Held<'_> {
    /// Lets the stream go. Fails where the gate gave up before that: then nothing was held, and some
    /// call waited for the device.
    pub(super) fn open(self) {
        if let Gate::Words(words) = self.gate {
            assert_eq!(word(words, 1).load(Ordering::Acquire), 0, "the gate gave up");
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        match (&self.gate, &self.subject.sim) {
            (Gate::Simulated(gate), Some(sim)) => sim.open_gate(*gate),
            (Gate::Words(words), _) => word(*words, 0).store(1, Ordering::Release),
            (Gate::Simulated(_), None) => {}
        }
    }
}

fn word(words: Host, index: usize) -> &'static AtomicU32 {
    // SAFETY: two aligned words of page-locked memory that is never freed, which after the launch are
    // only read and written through here and by the kernel, whole and with system scope.
    unsafe { AtomicU32::from_ptr(words.at(index * 4).ptr().cast().as_ptr()) }
}
