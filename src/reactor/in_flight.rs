//! What the operations in flight are called, for the report of a device that was lost.
//!
//! Who enqueues writes a name down at the cost of a store; who reports reads without a lock, since
//! a failure can be met under any of them.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// What an operation is called in messages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    name: &'static str,
    is_kernel: bool,
}

impl Operation {
    /// The launch of a kernel.
    pub(crate) const fn kernel(name: &'static str) -> Self {
        Operation { name, is_kernel: true }
    }

    /// What the library itself makes of a call.
    pub(crate) const fn other(name: &'static str) -> Self {
        Operation { name, is_kernel: false }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it runs code of the program's, which can fault.
    pub(super) fn is_kernel(&self) -> bool {
        self.is_kernel
    }
}

/// The names of a lane's last operations, by ticket.
#[derive(Debug)]
pub(super) struct Names {
    /// Null, or from a `&'static Operation`.
    slots: Box<[AtomicPtr<Operation>]>,
}

impl Names {
    /// More than a stream takes: the oldest in flight are those that are likely to have failed.
    const KEPT: usize = 1024;

    pub(super) fn new() -> Self {
        Names { slots: (0..Self::KEPT).map(|_| AtomicPtr::default()).collect() }
    }

    /// Ticket `seq` names `operation`, or nothing. Ordered for readers by what publishes the ticket.
    pub(super) fn set(&self, seq: u64, operation: Option<&'static Operation>) {
        let operation = operation.map_or(ptr::null_mut(), |named| ptr::from_ref(named).cast_mut());
        self.slot(seq).store(operation, Relaxed);
    }

    /// What ticket `seq` names, of which `newest` is the last given out; `None` for one that names
    /// nothing or is too long ago.
    pub(super) fn get(&self, seq: u64, newest: u64) -> Option<&'static Operation> {
        if newest - seq >= Self::KEPT as u64 {
            return None;
        }
        // SAFETY: not null, a slot holds what `set` put there: a `&'static Operation`.
        unsafe { self.slot(seq).load(Relaxed).as_ref() }
    }

    fn slot(&self, seq: u64) -> &AtomicPtr<Operation> {
        &self.slots[seq as usize % Self::KEPT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILL: Operation = Operation::other("fill");
    static WORK: Operation = Operation::kernel("work");

    #[test]
    fn a_ticket_is_called_what_it_was_called_last() {
        let names = Names::new();
        names.set(1, Some(&FILL));
        names.set(2, Some(&WORK));
        assert_eq!(names.get(1, 2), Some(&FILL));
        assert_eq!(names.get(2, 2), Some(&WORK));
        names.set(2, None);
        assert_eq!(names.get(2, 2), None);
    }

    #[test]
    fn a_name_too_long_ago_is_not_taken_for_another() {
        let names = Names::new();
        for seq in 1..=Names::KEPT as u64 + 1 {
            names.set(seq, Some(if seq == 1 { &WORK } else { &FILL }));
        }
        let newest = Names::KEPT as u64 + 1;
        assert_eq!(names.get(1, newest), None);
        assert_eq!(names.get(2, newest), Some(&FILL));
    }
}
