//! How devices end.

use super::queue::{Item, Queued};
use super::state::{Garbage, State};
use super::stuck::Stuck;
use super::violation::Violation;
use crate::driver::DriverError;

impl State {
    /// Ends a device with a sticky error, or all of them where they share their fate: what is pending
    /// there never runs.
    pub(super) fn fail(&mut self, device: usize, code: u32, garbage: &mut Garbage) {
        let all = match self.shared_fate {
            true => 0..self.devices.len(),
            false => device..device + 1,
        };
        all.for_each(|device| self.fail_one(device, code, garbage));
    }

    fn fail_one(&mut self, device: usize, code: u32, garbage: &mut Garbage) {
        self.devices[device].failed.get_or_insert(code);
        self.turn.next = None;
        self.moved += 1;
        let streams = self.streams.iter();
        let mut on_it: Vec<u64> =
            streams.filter(|(_, stream)| stream.device == device).map(|(&id, _)| id).collect();
        on_it.sort_unstable();
        let mut dropped = Vec::new();
        for id in &on_it {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            let endless = stream.endless.take();
            stream.running &= endless.is_none();
            let queued = std::mem::take(&mut stream.queue).into_iter();
            let queued = queued.map(|Queued { seq, item, .. }| (seq, item));
            for (seq, item) in
                endless.map(|(seq, work)| (seq, Item::Work(work))).into_iter().chain(queued)
            {
                self.ready.remove(seq);
                if let Item::Work(work) = item {
                    stream.unfinished -= 1;
                    self.pending.remove(&seq);
                    garbage.works.push(work);
                }
                dropped.push(seq);
            }
            self.reap(*id);
        }
        dropped.into_iter().for_each(|seq| self.permit_ran(seq, false));
        for waiting in self.blocked.values_mut().chain(self.gates.values_mut()) {
            waiting.retain(|id| !on_it.contains(id));
        }
        self.blocked.retain(|_, waiting| !waiting.is_empty());
    }

    /// The executor has ended, by itself or by a panic: nothing runs any more.
    pub(super) fn end(&mut self, code: u32, garbage: &mut Garbage) {
        for device in 0..self.devices.len() {
            self.fail_one(device, code, garbage);
        }
        self.executor_ended = true;
        self.running = None;
        self.pending.clear();
        if let Some(permit) = &mut self.permit {
            permit.ran.get_or_insert(false);
        }
    }

    /// Ends the devices that are stuck.
    pub(super) fn give_up(&mut self, stuck: &Stuck, garbage: &mut Garbage) {
        self.report(Violation::Stuck { report: stuck.clone() });
        for stream in &stuck.streams {
            if let Some(device) = self.streams.get(&stream.stream).map(|stream| stream.device) {
                self.fail(device, DriverError::LAUNCH_TIMEOUT, garbage);
            }
        }
    }
}
