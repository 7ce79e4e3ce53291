//! Closing a device when the last handle is gone.

use std::sync::Arc;

use super::DeviceCore;
use crate::driver::ModuleHandle;
use crate::reactor::{Lane, block_on_thread};

use super::pinned::PinnedBlock;

/// What has to be given back to the driver by calls that wait for running kernels.
struct Remains {
    lanes: Vec<Arc<Lane>>,
    blocks: Vec<PinnedBlock>,
    modules: Vec<ModuleHandle>,
}

impl Drop for DeviceCore {
    fn drop(&mut self) {
        let blocks = self.pinned.drain();
        let modules = self.functions.take().map(|table| table.modules).unwrap_or_default();
        if blocks.is_empty() && modules.is_empty() {
            return;
        }
        let lanes = self.lanes.iter().cloned().collect();
        let remains = Remains { lanes, blocks, modules };
        let thread = std::thread::Builder::new().name(format!("headwater-{}-close", self.number));
        if let Err(error) = thread.spawn(move || remains.close()) {
            tracing::debug!(%error, "no thread to close a device with: its memory stays");
        }
    }
}

impl Remains {
    /// Waits for all work, then frees. On a lost device nothing can be freed, and nothing is.
    fn close(self) {
        let done = self
            .lanes
            .iter()
            .try_for_each(|lane| block_on_thread(lane.completion(lane.submitted())));
        let Some(lane) = self.lanes.first().filter(|_| done.is_ok()) else { return };
        for block in self.blocks {
            block.free(&**lane.driver());
        }
        for module in self.modules {
            if let Err(error) = lane.driver().module_unload(module) {
                tracing::debug!(%error, "a module could not be unloaded");
            }
        }
    }
}
