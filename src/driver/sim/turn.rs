//! Schedules in lock-step: what is needed, and what runs inside of a call.

use super::queue::{Item, Queued, Recording};
use super::schedule::{Schedule, Turn};
use super::state::State;
use crate::driver::DevicePtr;

impl State {
    pub(super) fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
        // Who waits for the turn under way waits for it no more.
        let number = self.turn.number + 1;
        self.turn = Turn::new(schedule);
        self.turn.number = number;
    }

    /// A call lets the device move. Not while tests step: it is theirs to move then.
    pub(super) fn begin_turn(&mut self) {
        if self.stepping > 0 {
            return;
        }
        let State { schedule, turn, ready, streams, .. } = self;
        let needed = |seq, stream| streams.get(&stream).is_some_and(|s| seq < s.needed);
        schedule.begin(turn, ready, needed);
    }

    /// Something has run: chooses what comes next in the turn.
    pub(super) fn go_on(&mut self) {
        if self.stepping > 0 {
            self.turn.next = None;
            return;
        }
        let State { schedule, turn, ready, streams, .. } = self;
        if schedule.is_lock_step() {
            let needed = |seq, stream| streams.get(&stream).is_some_and(|s| seq < s.needed);
            schedule.go_on(turn, ready, needed);
        }
    }

    /// Whether a call has let the device move, and it has not done so yet.
    pub(super) fn is_turn_under_way(&self) -> bool {
        self.turn.next.is_some() || self.running.is_some()
    }

    /// Somebody asked for a recording that is not reached.
    pub(super) fn need_recording(&mut self, recording: &Recording) {
        self.need(recording.stream, recording.id);
    }

    /// Somebody asked for room in the queue of a stream.
    pub(super) fn need_room(&mut self, stream: u64) {
        let oldest = self.streams.get(&stream).and_then(|stream| stream.first_work());
        if let Some(oldest) = oldest {
            self.need(stream, oldest + 1);
        }
    }

    /// Somebody asked for memory that there is only when what is enqueued to be freed is.
    pub(super) fn need_frees(&mut self, device: usize) {
        if !self.schedule.is_lock_step() {
            return;
        }
        let is_free = |queued: &&Queued| matches!(queued.item, Item::Free(DevicePtr(_)));
        let on_it = self.streams.iter().filter(|(_, stream)| stream.device == device);
        let last = on_it
            .filter_map(|(&id, stream)| Some((id, stream.queue.iter().rev().find(is_free)?.seq)));
        for (stream, seq) in last.collect::<Vec<_>>() {
            self.need(stream, seq);
        }
    }

    /// What was given to a stream before `end` is needed, and so is what it waits for there.
    fn need(&mut self, stream: u64, end: u64) {
        match self.schedule {
            Schedule::Eager | Schedule::Stepped => return,
            Schedule::Random { .. } => return self.turn.owed = true,
            Schedule::Lazy => {}
        }
        let mut needs = vec![(stream, end)];
        while let Some((stream, end)) = needs.pop() {
            let Some(stream) = self.streams.get_mut(&stream) else {
                continue;
            };
            // What came before was followed when that was needed.
            let start = stream.queue.partition_point(|queued| queued.seq < stream.needed);
            stream.needed = stream.needed.max(end);
            let more = stream.queue.range(start..).take_while(|queued| queued.seq < end);
            needs.extend(more.filter_map(|queued| match &queued.item {
                Item::Wait(on) if on.reached().is_none() => Some((on.stream, on.id)),
                _ => None,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sim::SimOptions;
    use crate::driver::sim::state::Garbage;

    #[test]
    fn while_tests_step_no_call_lets_anything_run() {
        for schedule in [Schedule::Lazy, Schedule::Random { seed: 0, deviations: 0 }] {
            let mut state = State::new(1, &SimOptions::new().schedule(schedule));
            let stream = state.add_stream(0, 0);
            for _ in 0..2 {
                let recording = state.new_recording(stream);
                state.push(stream, Item::Record(recording), None);
            }
            state.begin_turn();
            assert!(state.is_turn_under_way(), "a record is ready");
            state.stepping = 1;
            state.run_control(stream, &mut Garbage::default());
            assert!(!state.is_turn_under_way());
            state.begin_turn();
            assert!(!state.is_turn_under_way());
        }
    }
}
