//! Accesses that are under way while others come.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Access, Hazards, Notes, Stamp};
use crate::buffer::open::{Closed, OpenState};
use crate::reactor::Ticket;

/// Accesses that were opened and not seen to be closed: few, and nearly always none.
#[derive(Debug, Default)]
pub(super) struct Open {
    accesses: SmallVec<[(Access, Arc<OpenState>); 1]>,
}

impl Hazards {
    /// Adds an access that is under way. It met none that conflicts.
    pub(crate) fn open(&mut self, access: Access, state: Arc<OpenState>) {
        self.open.get_or_insert_default().accesses.push((access, state));
    }

    /// Whether an access meets one that conflicts and is under way.
    #[inline(always)]
    pub(crate) fn is_open_for(
        &mut self,
        access: &Access,
        is_finished: impl Fn(Ticket) -> bool,
    ) -> bool {
        self.open.is_some() && self.meets_open(access, is_finished)
    }

    #[cold]
    fn meets_open(&mut self, access: &Access, is_finished: impl Fn(Ticket) -> bool) -> bool {
        self.note_closed(is_finished);
        let conflicts = |(other, _): &(Access, _)| {
            (access.mode.writes() || other.mode.writes()) && access.region.overlaps(&other.region)
        };
        self.open.as_ref().is_some_and(|open| open.accesses.iter().any(conflicts))
    }

    /// Notes what was closed: an access by its last operation. From here on it is one like any other.
    /// Nothing that conflicts was noted since it was opened.
    fn note_closed(&mut self, is_finished: impl Fn(Ticket) -> bool) {
        let Some(mut open) = self.open.take() else { return };
        open.accesses.retain(|(access, state)| {
            let Some(Closed { last, failed }) = state.closed() else { return true };
            if let Some(last) = last {
                self.note(access, last, &is_finished, &mut Notes::default());
                if failed && access.mode.writes() {
                    let by = Stamp::of(last);
                    self.histories.edit(&access.region, |_, history| {
                        history.defined &= history.writer != Some(by);
                    });
                }
            }
            false
        });
        self.open = Some(open).filter(|open| !open.accesses.is_empty());
    }

    /// What is under way, as far as is known.
    pub(crate) fn opened(
        &mut self,
        is_finished: impl Fn(Ticket) -> bool,
    ) -> SmallVec<[Arc<OpenState>; 1]> {
        self.note_closed(is_finished);
        let accesses = self.open.iter().flat_map(|open| &open.accesses);
        accesses.map(|(_, state)| state.clone()).collect()
    }

    /// Whether something is being written, or is not seen to have ended.
    pub(crate) fn is_being_written(&self) -> bool {
        let mut accesses = self.open.iter().flat_map(|open| &open.accesses);
        accesses.any(|(access, _)| access.mode.writes())
    }
}
