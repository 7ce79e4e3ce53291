//! Who waits for memory, in turn. Pure, but for asking budgets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::budget::Budget;

/// Names a place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

#[derive(Debug)]
struct Waiting {
    place: Place,
    bytes: u64,
    budget: Option<Arc<Budget>>,
    /// To be woken; taken by who wakes it.
    waker: Option<Waker>,
}

impl Waiting {
    /// Whether it waits for the device's memory and not for its budget.
    fn is_within_budget(&self) -> bool {
        self.budget.as_ref().is_none_or(|budget| budget.has_room(self.bytes))
    }

    fn shares_budget(&self, other: &Waiting) -> bool {
        match (&self.budget, &other.budget) {
            (Some(own), Some(their)) => Arc::ptr_eq(own, their),
            _ => false,
        }
    }
}

/// Requests in the order in which they came. The first that its budget has room for is served first, and
/// nobody overtakes it; what waits for its budget holds up the later ones of that budget and no others.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    last: u64,
}

impl Queue {
    pub(super) fn join(&mut self, bytes: u64, budget: Option<Arc<Budget>>) -> Place {
        self.last += 1;
        let place = Place(self.last);
        self.waiting.push_back(Waiting { place, bytes, budget, waker: None });
        place
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many wait that are of this budget.
    pub(super) fn of_budget(&self, budget: &Arc<Budget>) -> usize {
        let is_of = |waiting: &&Waiting| {
            waiting.budget.as_ref().is_some_and(|own| Arc::ptr_eq(own, budget))
        };
        self.waiting.iter().filter(is_of).count()
    }

    /// Whether it is a request's turn to try.
    pub(super) fn is_turn_of(&self, place: Place) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.place == place) else {
            return false;
        };
        let mut before = self.waiting.range(..at);
        !before.any(|other| other.is_within_budget() || other.shares_budget(&self.waiting[at]))
    }

    /// Has it woken once its turn may have come. Returns the waker before, to be dropped without a lock.
    pub(super) fn wake_by(&mut self, place: Place, waker: Waker) -> Option<Waker> {
        let waiting = self.waiting.iter_mut().find(|waiting| waiting.place == place)?;
        waiting.waker.replace(waker)
    }

    /// Takes a request out.
    pub(super) fn leave(&mut self, place: Place) -> Option<Waker> {
        let at = self.waiting.iter().position(|waiting| waiting.place == place)?;
        self.waiting.remove(at)?.waker
    }

    /// Whom to wake, where memory or a budget has come back or a place is left: the one whose turn it is,
    /// unless it is `asker`, who brought that about by trying.
    pub(super) fn take_next(&mut self, asker: Option<Place>) -> Option<Waker> {
        let first = self.waiting.iter_mut().find(|waiting| waiting.is_within_budget())?;
        if Some(first.place) == asker { None } else { first.waker.take() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_served_first_whatever_its_size() {
        let mut queue = Queue::default();
        let (large, small) = (queue.join(1000, None), queue.join(1, None));
        assert!(queue.is_turn_of(large) && !queue.is_turn_of(small));
        queue.leave(large);
        assert!(queue.is_turn_of(small));
        assert!(!queue.is_turn_of(large), "it has no place");
    }

    #[test]
    fn who_waits_for_a_budget_holds_up_that_budget_alone() {
        let mut queue = Queue::default();
        let budget = Budget::new(10);
        let spent = budget.charge(10).unwrap();
        let tenant = queue.join(5, Some(budget.clone()));
        let later = queue.join(1, Some(budget.clone()));
        let other = queue.join(1000, None);
        assert!(queue.is_turn_of(tenant) && !queue.is_turn_of(later) && queue.is_turn_of(other));
        drop(spent);
        assert!(queue.is_turn_of(tenant) && !queue.is_turn_of(later) && !queue.is_turn_of(other));
    }

    #[test]
    fn the_one_whose_turn_it_is_is_woken_and_once() {
        let mut queue = Queue::default();
        let budget = Budget::new(10);
        let spent = budget.charge(10).unwrap();
        let (tenant, other) = (queue.join(5, Some(budget)), queue.join(1000, None));
        for place in [tenant, other] {
            queue.wake_by(place, Waker::noop().clone());
        }
        assert!(queue.take_next(None).is_some(), "the other one");
        assert!(queue.take_next(None).is_none(), "it is awake");
        drop(spent);
        assert!(queue.take_next(Some(tenant)).is_none(), "it is the tenant that asks");
        assert!(queue.take_next(None).is_some(), "the tenant's");
    }
}
