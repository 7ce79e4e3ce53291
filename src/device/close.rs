//! Closing a device when the last handle is gone.

use std::sync::Arc;
use std::time::Duration;

use super::DeviceCore;
use super::pinned::PinnedBlock;
use crate::driver::ModuleHandle;
use crate::error::Result;
use crate::reactor::Lane;

/// What has to be given back to the driver by calls that wait for running kernels.
struct Closing {
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
        let closing = Closing { lanes, blocks, modules };
        let thread = std::thread::Builder::new().name(format!("headwater-{}-close", self.number));
        if let Err(error) = thread.spawn(move || closing.close()) {
            tracing::debug!(%error, "no thread to close a device with: its memory stays");
        }
    }
}

impl Closing {
    /// Waits for all work, then frees. On a lost device nothing can be freed, and nothing is.
    fn close(self) {
        if self.lanes.iter().any(|lane| wait_idly(lane).is_err()) {
            return;
        }
        let Some(lane) = self.lanes.first() else { return };
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

/// Waits for everything on a lane. Nobody is in a hurry: looks get rare.
fn wait_idly(lane: &Arc<Lane>) -> Result<()> {
    const LONGEST: Duration = Duration::from_millis(100);
    let mut pause = Duration::from_micros(100);
    let all = lane.completion(lane.submitted());
    while !all.is_finished()? {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
    Ok(())
}
