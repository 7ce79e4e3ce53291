//! A watch over sleeps: one that takes too long is ended from another thread.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::sync::{Condvar, Mutex};

/// Watches one sleep at a time, on a thread of its own that the first one starts.
#[derive(Debug)]
pub(super) struct Watch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Wakes the sleeper.
    sleeper: Waker,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// When the sleep that is being watched has taken too long. `None`: the sleeper is awake.
    until: Option<Instant>,
    /// The last sleep that was watched took too long.
    too_long: bool,
    started: bool,
    /// The thread sleeps until it is told of a change.
    idle: bool,
    /// The thread is to end.
    closed: bool,
}

impl Watch {
    pub(super) fn new(sleeper: Waker) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::default());
        Watch(Arc::new(Shared { sleeper, state, changed }))
    }

    /// A sleep begins, which is not to go on after `until`: no earlier than that of the one before.
    pub(super) fn begin(&self, until: Instant) -> std::io::Result<()> {
        let mut state = self.0.state.lock();
        state.until = Some(until);
        state.too_long = false;
        if !state.started {
            let shared = self.0.clone();
            let thread = std::thread::Builder::new().name("headwater-watch".into());
            thread.spawn(move || shared.watch())?;
            state.started = true;
        }
        // One that waits for an earlier end sees the later one by itself.
        if std::mem::take(&mut state.idle) {
            self.0.changed.notify_one();
        }
        Ok(())
    }

    /// The sleeper is awake: this sleep is not ended from here on.
    pub(super) fn end(&self) {
        self.0.state.lock().until = None;
    }

    /// Whether the last sleep was ended since it took too long. Said once.
    pub(super) fn take_too_long(&self) -> bool {
        std::mem::take(&mut self.0.state.lock().too_long)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn watch(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            state = match state.until {
                None => {
                    state.idle = true;
                    self.changed.wait(state)
                }
                Some(until) if Instant::now() < until => self.changed.wait_until(state, until),
                Some(_) => {
                    state.until = None;
                    state.too_long = true;
                    drop(state);
                    self.sleeper.wake_by_ref();
                    self.state.lock()
                }
            };
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    struct Tell(Sender<()>);

    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    fn watch() -> (Watch, Receiver<()>) {
        let (tell, told) = channel();
        (Watch::new(Arc::new(Tell(tell)).into()), told)
    }

    #[test]
    fn a_sleep_that_takes_too_long_is_ended_and_told_of_once() {
        let (watch, told) = watch();
        for _ in 0..2 {
            watch.begin(Instant::now()).expect("a thread");
            told.recv().expect("it is told");
            assert!(watch.take_too_long());
            assert!(!watch.take_too_long());
            watch.end();
        }
    }

    #[test]
    fn a_sleep_that_has_ended_by_itself_took_not_too_long_nor_does_the_next() {
        let (watch, told) = watch();
        watch.begin(Instant::now() + Duration::from_millis(5)).expect("a thread");
        watch.end();
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        watch.begin(Instant::now() + Duration::from_secs(100)).expect("a thread");
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        assert!(!watch.take_too_long());
    }

    #[test]
    fn one_that_took_too_long_is_forgotten_where_another_begins() {
        let (watch, told) = watch();
        watch.begin(Instant::now()).expect("a thread");
        told.recv().expect("it is told");
        watch.end();
        watch.begin(Instant::now() + Duration::from_secs(100)).expect("a thread");
        assert!(!watch.take_too_long());
    }
}
