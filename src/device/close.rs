//! Closing a device when the last handle is gone.

use std::sync::Arc;
use std::time::Duration;

use super::pinned::PinnedBlock;
use super::{DeviceCore, memory};
use crate::driver::{DevicePtr, ModuleHandle, stay};
use crate::error::{Error, Result};
use crate::reactor::Lane;

/// What has to be given back to the driver by calls that wait for running kernels.
struct Closing {
    lanes: Vec<Arc<Lane>>,
    memory: Vec<DevicePtr>,
    blocks: Vec<PinnedBlock>,
    modules: Vec<ModuleHandle>,
}

impl Drop for DeviceCore {
    fn drop(&mut self) {
        let (memory, blocks) = (self.memory.drain(), self.pinned.drain());
        let tables = [self.functions.take(), self.gate.take()];
        let modules: Vec<_> =
            tables.into_iter().flatten().flat_map(|table| table.modules).collect();
        if memory.is_empty() && blocks.is_empty() && modules.is_empty() {
            return;
        }
        let lanes = self.lanes.iter().cloned().collect();
        let closing = Closing { lanes, memory, blocks, modules };
        let thread = std::thread::Builder::new().name(format!("headwater-{}-close", self.number));
        if let Err(error) = thread.spawn(move || closing.close()) {
            let what = || format!("pinned memory and modules of device {}", self.number);
            self.reactor.hook().not_released(what, Error::Thread(Arc::new(error)));
        }
    }
}

impl Closing {
    /// Waits for all work, then frees. On a lost device nothing can be freed, and nothing is.
    fn close(self) {
        let Closing { lanes, memory, blocks, modules } = self;
        let is_idle = lanes.iter().all(|lane| wait_idly(lane).is_ok());
        if let Some(lane) = lanes.first()
            && is_idle
        {
            let reactor = lane.reactor();
            memory::free_all(lane, memory);
            // The frees too: a stream that is destroyed is not asked for again.
            let _refused_or_lost = wait_idly(lane);
            for block in blocks {
                let what = block.describe();
                let _stay = stay();
                if let Err((_, cause)) = block.give_back(&**lane.driver()) {
                    let why = reactor.refused("freeing pinned memory", cause);
                    reactor.hook().not_released(|| what, why);
                }
            }
            for module in modules {
                let _stay = stay();
                if let Err(cause) = lane.driver().module_unload(module) {
                    let why = reactor.refused("unloading a module", cause);
                    reactor.hook().not_released(|| "a module".to_owned(), why);
                }
            }
            reactor.announce();
        }
        // Streams, events and the device itself go with the last lane.
        let _stay = stay();
        drop(lanes);
    }
}

/// Waits for everything on a lane. Nobody is in a hurry: looks get rare.
fn wait_idly(lane: &Arc<Lane>) -> Result<()> {
    const LONGEST: Duration = Duration::from_millis(100);
    let mut pause = Duration::from_micros(100);
    let all = lane.completion(lane.submitted());
    let is_finished = || {
        let _stay = stay();
        all.is_finished()
    };
    while !is_finished()? {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
    Ok(())
}
