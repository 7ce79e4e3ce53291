//! Which waits order an operation after others, and making them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Ticket;
use super::event_pool::EventRef;
use super::lane::{Lane, LaneId};
use super::submit::Enqueue;
use crate::driver::DriverResult;

/// Of some lanes, the last operation of each that was added.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    /// Ascending by lane, if they are not few.
    tickets: SmallVec<[Ticket; FEW]>,
}

/// Among so many a lane is found by looking at all.
const FEW: usize = 8;

impl Latest {
    #[inline]
    pub(crate) fn add(&mut self, ticket: Ticket) {
        let found = match self.tickets.len() {
            ..=FEW => self.tickets.iter().position(|last| last.lane == ticket.lane),
            _ => self.tickets.binary_search_by_key(&ticket.lane, |last| last.lane).ok(),
        };
        match found {
            Some(at) => self.tickets[at].seq = self.tickets[at].seq.max(ticket.seq),
            None => self.add_lane(ticket),
        }
    }

    fn add_lane(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
        if self.tickets.len() > FEW {
            self.tickets.sort_unstable();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Ticket> {
        self.tickets.iter().copied()
    }
}

/// The waits that order an operation after others: none is implied by the rest.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    found: SmallVec<[Wait; 4]>,
    /// A lane that is waited for and was not looked at for a while.
    unseen: Option<LaneId>,
}

#[derive(Debug)]
struct Wait {
    /// The last operation before the event.
    at: Ticket,
    event: EventRef,
}

impl Waits {
    /// For an event after `ticket`.
    pub(crate) fn of(ticket: Ticket, event: &EventRef) -> Self {
        let wait = Wait { at: ticket, event: event.clone() };
        Waits { found: SmallVec::from_iter([wait]), unseen: None }
    }

    /// A lane to [look at](Lane::look_if_due) once no lock is held: what it has finished need not be waited
    /// for the next time.
    pub(crate) fn unseen(&self) -> Option<LaneId> {
        self.unseen
    }

    /// Drops what another one implies: its event comes before the other's. That is an order of events, so
    /// two cannot imply each other, and who is dropped for one that is dropped later is implied all
    /// the same. (Whether what is *wanted* comes before the other's event is no such order: a look beside
    /// this can have taken the earliest event out, and one that knows more stands in for it.)
    fn reduce(&mut self) {
        let mut at = if self.found.len() < 2 { self.found.len() } else { 0 };
        while at < self.found.len() {
            let last = self.found[at].at;
            if self.found.iter().any(|other| other.event.clock().covers(last)) {
                self.found.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
}

impl Enqueue<'_> {
    /// The fewest waits after which the operation comes after all of `after`; `Err` names the
    /// operations that have no event yet. `lanes` finds a lane by its name.
    ///
    /// Nothing needs saying of what is on this lane, is known to be finished, or comes before this
    /// lane's waits. Of the rest, each lane's earliest event after the operation is waited for,
    /// unless another of these events comes after it.
    pub(crate) fn waits<'a>(
        &self,
        after: impl Iterator<Item = Ticket>,
        lanes: impl Fn(LaneId) -> Option<&'a Arc<Lane>>,
    ) -> Result<Waits, SmallVec<[Ticket; 4]>> {
        let (own, mut waits, mut missing) = (self.lane(), Waits::default(), SmallVec::new());
        for ticket in after {
            if ticket.lane == own || self.submit.clock.covers(ticket) {
                continue;
            }
            let Some(other) = lanes(ticket.lane) else { continue };
            if other.is_known_finished(ticket.seq) {
                continue;
            }
            let covering = other.frontier.lock().covering(ticket.seq);
            // Once more: its event is taken out when it was seen to finish, which is known before that. A
            // later one would do, and be waited for in vain.
            if other.is_known_finished(ticket.seq) {
                continue;
            }
            let Some((_, at, event)) = covering else {
                missing.push(ticket);
                continue;
            };
            waits.found.push(Wait { at: other.ticket(at), event });
            if other.is_look_due() {
                waits.unseen = Some(ticket.lane);
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        waits.reduce();
        Ok(waits)
    }

    /// Has what follows on this stream wait (`cuStreamWaitEvent`).
    pub(crate) fn wait(&mut self, waits: &Waits) -> DriverResult<()> {
        for wait in &waits.found {
            self.driver().stream_wait(self.stream(), wait.event.handle())?;
        }
        let own = self.lane();
        let clock = &mut self.submit.clock;
        let was_wide = clock.is_wide();
        // What another device's streams have waited for is of no use here.
        let of_device = |wait: &&Wait| wait.at.lane.device() == own.device();
        for Wait { at, event, .. } in waits.found.iter().filter(of_device) {
            clock.join(event.clock());
            clock.add(*at);
            clock.remove(own);
        }
        if clock.is_wide() && !was_wide {
            // Often by what is finished long ago, and is handed on from lane to lane.
            self.forget_finished_waits();
        }
        Ok(())
    }

    /// Whether what comes next comes after `ticket`, by the waits that were made.
    pub(crate) fn comes_after(&self, ticket: Ticket) -> bool {
        ticket.lane.device() == self.lane().device() && self.submit.clock.covers(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_lane_the_last_operation_counts_however_many_lanes_there_are() {
        for lanes in [1, 8, 9, 40] {
            let mut latest = Latest::default();
            for seq in [3, 7, 5] {
                for lane in (0..lanes).rev() {
                    latest.add(Ticket { lane: LaneId(lane * 7 % 41), seq: seq + lane });
                }
            }
            let mut told: Vec<_> = latest.iter().collect();
            told.sort();
            let mut expected: Vec<_> = (0..lanes)
                .map(|lane| Ticket { lane: LaneId(lane * 7 % 41), seq: 7 + lane })
                .collect();
            expected.sort();
            assert_eq!(told, expected);
        }
    }
}
