//! CUDA's default streams, adopted: the legacy one of a device, and one of each thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::lanes::Lanes;
use super::{Device, Stream};
use crate::driver::thread_number;
use crate::error::Result;
use crate::reactor::{Lane, StreamRole};
use crate::sync::Mutex;

/// The lanes of a device's default streams, each made when it is first asked for.
#[derive(Default)]
pub(super) struct DefaultStreams {
    /// Held while a lane is made: they get their numbers one after the other.
    adopted: Mutex<Adopted>,
}

#[derive(Default)]
struct Adopted {
    legacy: Option<Arc<Lane>>,
    /// By the number of their thread, which lives.
    of_threads: HashMap<u64, Arc<Lane>>,
    /// Of threads that have ended.
    left: Vec<Arc<Lane>>,
}

thread_local! {
    static ASKED: RefCell<Asked> = const { RefCell::new(Asked(Vec::new())) };
}

/// The devices of which this thread has a default stream: told when it ends.
struct Asked(Vec<Weak<DefaultStreams>>);

impl Asked {
    fn add(&mut self, device: &Arc<DefaultStreams>) {
        self.0.retain(|device| device.strong_count() > 0); // a thread may outlive many devices
        self.0.push(Arc::downgrade(device));
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.drain(..).filter_map(|device| device.upgrade()).for_each(|device| device.leave());
    }
}

impl DefaultStreams {
    fn legacy(&self, lanes: &Lanes) -> Result<Arc<Lane>> {
        let mut adopted = self.adopted.lock();
        if let Some(lane) = &adopted.legacy {
            return Ok(lane.clone());
        }
        let lane = lanes.adopt(StreamRole::LegacyDefault)?;
        adopted.legacy = Some(lane.clone());
        Ok(lane)
    }

    fn of_this_thread(self: &Arc<Self>, lanes: &Lanes) -> Result<Arc<Lane>> {
        let mut adopted = self.adopted.lock();
        if let Some(lane) = adopted.of_threads.get(&thread_number()) {
            return Ok(lane.clone());
        }
        let mut left = adopted.take_left();
        drop(adopted);
        // Without the lock: asking how far a lane is can tell of a loss.
        let looks = if lanes.are_full() { left.len() } else { LOOKS };
        let idle = take_over_one(&mut left, looks);
        let mut adopted = self.adopted.lock();
        adopted.left.append(&mut left);
        let lane = match idle {
            Some(lane) => lane,
            None => lanes.adopt(StreamRole::PerThreadDefault)?,
        };
        adopted.of_threads.insert(thread_number(), lane.clone());
        drop(adopted);
        // Where that has been dropped, the thread is ending: the lane stays its own for good.
        let _ = ASKED.try_with(|asked| asked.borrow_mut().add(self));
        Ok(lane)
    }

    /// The calling thread is ending.
    fn leave(&self) {
        let lane = self.adopted.lock().of_threads.remove(&thread_number());
        if let Some(lane) = lane {
            lane.leave();
            self.adopted.lock().left.push(lane);
        }
    }
}

/// Lanes of ended threads that a new thread asks the driver about, as long as another can be adopted.
const LOOKS: usize = 4;

/// Takes out a lane of which all is finished, and makes it the calling thread's. Those not known to
/// be finished are asked for, `looks` of them at most.
fn take_over_one(left: &mut Vec<Arc<Lane>>, looks: usize) -> Option<Arc<Lane>> {
    for at in 0..left.len() {
        if left[at].is_known_finished(left[at].submitted()) && left[at].take_over() {
            return Some(left.swap_remove(at));
        }
    }
    let looks = looks.min(left.len());
    for at in 0..looks {
        if left[at].take_over() {
            return Some(left.swap_remove(at));
        }
    }
    left.rotate_left(looks); // the next thread looks at others
    None
}

impl Adopted {
    /// Takes out the lanes of threads that have ended which nobody has.
    fn take_left(&mut self) -> Vec<Arc<Lane>> {
        /// Two references: here, and in the list of all lanes.
        const NOBODY_ELSE: usize = 2;
        let nobody_has = |lane: &mut Arc<Lane>| Arc::strong_count(lane) == NOBODY_ELSE;
        self.left.extract_if(.., nobody_has).collect()
    }
}

impl Device {
    /// CUDA's legacy default stream of this device (`CU_STREAM_LEGACY`, 0x1), adopted: what the
    /// library enqueues there is ordered with everything that it conflicts with, as on any stream.
    ///
    /// The default handles of cuBLAS, cuDNN and PyTorch work there. What they enqueue, or anyone
    /// else behind the library's back, is not seen by it: no buffer knows of it, no wait is placed for
    /// it, and [`synchronize`](Stream::synchronize), [`is_idle`](Stream::is_idle) and the limit of the
    /// queue leave it out. Order it by events, which on this stream are recorded anew each time, after
    /// everybody's work:
    ///
    /// ```
    /// # use headwater::{Device, Result, Stream};
    /// # fn foreign_work() {}
    /// # async fn ordered(device: &Device, ours: &Stream) -> Result<()> {
    /// let legacy = device.legacy_default_stream()?;
    /// legacy.wait(&ours.record()?)?; // foreign work sees what ours has written so far,
    /// foreign_work();
    /// let done = legacy.record()?;
    /// ours.wait(&done)?; // and what comes next on ours sees what it has written.
    /// done.await?; // Until here the memory that it touches must not be dropped.
    /// # Ok(()) }
    /// # let device = Device::simulated()?;
    /// # headwater::block_on(ordered(&device, &device.stream()))?;
    /// # Ok::<_, headwater::Error>(())
    /// ```
    ///
    /// CUDA orders this stream with those that were made as blocking ones. The library's were not, so
    /// it holds up none of them and is held up by none. The library never destroys it. A device with
    /// [`single_stream`](crate::DeviceBuilder::single_stream) has but that one, which this returns.
    ///
    /// # Errors
    ///
    /// [`TooManyStreams`](crate::Error::TooManyStreams); the driver refused; the device is lost.
    pub fn legacy_default_stream(&self) -> Result<Stream> {
        self.adopted(|streams, lanes| streams.legacy(lanes))
    }

    /// CUDA's default stream of the calling thread (`CU_STREAM_PER_THREAD`, 0x2), adopted as
    /// [`Device::legacy_default_stream`] is.
    ///
    /// The handle means another stream on every thread. So it is for the calling thread only: an
    /// operation enqueued on it from elsewhere, such as by a scope that a runtime has moved to another
    /// worker, is refused with [`WrongThread`](crate::Error::WrongThread). Use it in
    /// [`Stream::in_scope`], or on a runtime of one thread. Waiting for what it carries, and sharing
    /// memory with it, works from everywhere. For that, an event is recorded after each operation
    /// (`cuEventRecord`): no other thread could do so later.
    ///
    /// A thread has the same stream at each call. What it has enqueued runs after its end.
    ///
    /// # Errors
    ///
    /// [`TooManyStreams`](crate::Error::TooManyStreams) where about a thousand threads have one; the
    /// driver refused; the device is lost.
    pub fn per_thread_default_stream(&self) -> Result<Stream> {
        self.adopted(|streams, lanes| streams.of_this_thread(lanes))
    }

    fn adopted(
        &self,
        lane: impl FnOnce(&Arc<DefaultStreams>, &Lanes) -> Result<Arc<Lane>>,
    ) -> Result<Stream> {
        self.core.reactor.check()?;
        let lane = match self.core.streams.single() {
            Some(single) => Ok(single.clone()),
            None => lane(&self.core.default_streams, &self.core.lanes),
        };
        self.core.reactor.announce(); // a refusal may have been the loss of the device
        Ok(Stream::shared(&self.core, lane?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_forgets_devices_that_are_closed() {
        for _ in 0..10 {
            let device = Device::simulated().unwrap();
            device.per_thread_default_stream().unwrap();
        }
        let remembered = ASKED.with(|asked| asked.borrow().0.len());
        assert!(remembered <= 2, "{remembered}");
    }
}
