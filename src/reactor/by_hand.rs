//! Threads that look after devices by hand: what they do instead of sleeping.

use std::cell::RefCell;
use std::rc::Rc;

use super::local::Woken;

thread_local! {
    static HAND: RefCell<Option<Rc<dyn Hand>>> = const { RefCell::new(None) };
}

/// What a thread does that blocks on a future which is pending, instead of sleeping.
pub(crate) trait Hand {
    /// Returns when the future may have been woken. Panics where nothing is left that could do so.
    fn wait(&self, woken: &Woken);
    /// The future was woken by its own poll, and is polled again at once.
    fn polls_again(&self);
}

/// While it lives, its thread has a hand.
pub(crate) struct HandGuard(());

/// Gives this thread a hand, which has none.
pub(crate) fn hold(hand: Rc<dyn Hand>) -> HandGuard {
    HAND.set(Some(hand));
    HandGuard(())
}

/// This thread's hand. `None` while the thread is ending.
pub(super) fn hand() -> Option<Rc<dyn Hand>> {
    HAND.try_with(|hand| hand.borrow().clone()).ok()?
}

impl Drop for HandGuard {
    fn drop(&mut self) {
        // What ends is dropped after the borrow.
        let _ended = HAND.try_with(|hand| hand.take());
    }
}
