//! What the helper thread has to say to one who may have gone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::oneshot;

use crate::error::Error;
use crate::foreign::contained;

/// For who asked. Dropping it loses what was said: see [`Answer::abandon`].
#[derive(Debug)]
pub(crate) struct Answer<V>(oneshot::Receiver<V>);

/// For who is to answer.
#[derive(Debug)]
pub(super) struct Told<V>(oneshot::Sender<V>);

pub(super) fn answer<V>() -> (Told<V>, Answer<V>) {
    let (sender, receiver) = oneshot::channel();
    (Told(sender), Answer(receiver))
}

impl<V> Told<V> {
    /// Hands `value` over; back, where nobody waits for it.
    pub(super) fn tell(self, value: V) -> Result<(), V> {
        let mut told = Ok(());
        // Wakes a task, which is foreign code.
        contained(|| told = self.0.send(value));
        told
    }
}

impl<V> Answer<V> {
    /// What was answered; an error where the thread that was to answer is no more.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<V, Error>> {
        Pin::new(&mut self.0).poll(cx).map_err(|_| {
            Error::Thread(Arc::new(io::Error::other("a thread ended before its work was done")))
        })
    }

    /// From here on nobody waits. What was answered and not taken yet.
    pub(crate) fn abandon(&mut self) -> Option<V> {
        self.0.close();
        self.0.try_recv().ok().flatten()
    }
}
