//! The streams that the checker knows, each at an index that other streams' clocks name.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::clock::{Clock, Host};
use super::shadow::Access;
use crate::driver::rows::Rows;

/// Streams by index and by handle.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    /// Live ones.
    by_handle: FxHashMap<u64, u32>,
    /// Destroyed ones, whose index can be had again once the host knows all of their work.
    destroyed: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) handle: u64,
    pub(super) device: u32,
    /// What comes before its next operation, beside what the host knows and its own.
    pub(super) clock: Clock,
    /// Operations so far at its index, by it and by those that had the index before it.
    pub(super) number: u64,
    /// Operations of its own.
    nth: u64,
    /// The library's number of it, and the program's name for it.
    label: Option<(u32, Option<Arc<str>>)>,
    /// Operations of its own when it got that name.
    named_at: u64,
    /// Waits that were not made, and what they were to come after.
    lost: SmallVec<[(u64, Clock); 0]>,
}

impl Stream {
    fn new(handle: u64, device: u32, number: u64) -> Self {
        Stream {
            handle,
            device,
            clock: Clock::default(),
            number,
            nth: 0,
            label: None,
            named_at: 0,
            lost: SmallVec::new(),
        }
    }

    /// The library's number of it.
    pub(super) fn known_as(&self) -> Option<u32> {
        self.label.as_ref().map(|label| label.0)
    }

    /// The name it had at its `nth` operation, if it has that still.
    pub(super) fn name_at(&self, nth: u64) -> Option<Arc<str>> {
        let (_, name) = self.label.as_ref()?;
        name.clone().filter(|_| nth > self.named_at)
    }

    pub(super) fn is_named(&mut self, number: u32, name: Option<Arc<str>>) {
        (self.label, self.named_at) = (Some((number, name)), self.nth);
    }

    /// A wait for `recording` that its `nth` of the device was, and that was not made.
    pub(super) fn lost(&mut self, nth: u64, recording: Clock) {
        self.lost.push((nth, recording));
    }

    /// The wait that would have had it come after `access`.
    pub(super) fn lost_wait_for(&self, access: &Access) -> Option<u64> {
        let covers = |recording: &Clock| recording.of(access.stream) >= access.number;
        self.lost.iter().find(|(_, recording)| covers(recording)).map(|lost| lost.0)
    }
}

/// A stream whose end was asked for.
#[derive(Debug)]
pub(super) struct EndedStream {
    index: u32,
    stream: Stream,
}

impl Streams {
    pub(super) fn at(&self, index: u32) -> &Stream {
        &self.all[index as usize]
    }

    pub(super) fn at_mut(&mut self, index: u32) -> &mut Stream {
        &mut self.all[index as usize]
    }

    pub(super) fn create(&mut self, device: u32, handle: u64, host: &Host) -> u32 {
        let all = &self.all;
        let known = |&index: &u32| host.knows(index, all[index as usize].number);
        let index = match self.destroyed.iter().position(known) {
            Some(at) => {
                let index = self.destroyed.swap_remove(at);
                let number = self.at(index).number;
                *self.at_mut(index) = Stream::new(handle, device, number);
                index
            }
            None => self.push(Stream::new(handle, device, 0)),
        };
        self.by_handle.insert(handle, index);
        index
    }

    fn push(&mut self, stream: Stream) -> u32 {
        self.all.push(stream);
        self.all.len() as u32 - 1
    }

    /// One that was made before anybody watched is met here first.
    pub(super) fn get(&mut self, device: u32, handle: u64, host: &Host) -> u32 {
        match self.by_handle.get(&handle) {
            Some(&index) => index,
            None => self.create(device, handle, host),
        }
    }

    pub(super) fn destroy(&mut self, handle: u64) -> Option<EndedStream> {
        let index = self.by_handle.remove(&handle)?;
        self.destroyed.push(index);
        Some(EndedStream { index, stream: self.at(index).clone() })
    }

    /// It lives. Another one may have its index, which was known to be idle then.
    pub(super) fn take_back(&mut self, EndedStream { index, stream }: EndedStream) {
        let handle = stream.handle;
        let index = match self.destroyed.iter().position(|&destroyed| destroyed == index) {
            Some(at) => self.destroyed.swap_remove(at),
            None => self.push(Stream { number: 0, ..stream }),
        };
        self.by_handle.insert(handle, index);
    }

    /// The next operation of the stream; what it touches is still to be said.
    pub(super) fn enqueue(&mut self, index: u32, name: &'static str) -> Access {
        let stream = self.at_mut(index);
        (stream.number, stream.nth) = (stream.number + 1, stream.nth + 1);
        let (number, nth) = (stream.number, stream.nth);
        Access { stream: index, number, nth, name, rows: Rows::one(0..0), writes: false }
    }

    /// The operation was refused: the next one is the `nth` of its stream, if none came meanwhile.
    /// It is another one by its number all the same, since a recording may name this one.
    pub(super) fn withdraw(&mut self, access: &Access) {
        let stream = self.at_mut(access.stream);
        if (stream.number, stream.nth) == (access.number, access.nth) {
            stream.nth -= 1;
        }
    }

    /// What an event recorded on the stream now comes after.
    pub(super) fn recording(&mut self, index: u32, host: &Host) -> Clock {
        let stream = self.at_mut(index);
        stream.clock.forget_known(host);
        let mut recording = stream.clock.clone();
        recording.raise(index, stream.number);
        recording
    }

    pub(super) fn forget_known(&mut self, host: &Host) {
        self.all.iter_mut().for_each(|stream| stream.clock.forget_known(host));
    }

    /// How much there is to look through.
    pub(super) fn len(&self) -> usize {
        self.all.iter().map(|stream| 1 + stream.clock.len()).sum()
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> &[Stream] {
        &self.all
    }
}
