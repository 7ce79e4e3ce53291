//! What comes before what, among the items that streams have not come past. Pure.

use rustc_hash::FxHashMap;

use super::queue::{Item, Stream};
use crate::driver::DevicePtr;

/// The blocks whose frees come before whatever `stream` is given next: they are on it, or before a recording that it
/// waits for, directly or by others.
pub(super) fn frees_before(streams: &FxHashMap<u64, Stream>, stream: u64) -> Vec<DevicePtr> {
    let mut frees = Vec::new();
    // Of each stream, the number that was looked up to.
    let mut seen = FxHashMap::<u64, u64>::default();
    let mut next = vec![(stream, u64::MAX)];
    while let Some((id, end)) = next.pop() {
        let from = seen.entry(id).or_default();
        let (start, Some(stream)) = (*from, streams.get(&id)) else { continue };
        *from = end.max(start);
        for queued in stream.queue.iter().filter(|queued| (start..end).contains(&queued.seq)) {
            match &queued.item {
                Item::Free(ptr) => frees.push(*ptr),
                Item::Wait(recording) if recording.reached().is_none() => {
                    next.push((recording.stream, recording.id));
                }
                _ => {}
            }
        }
    }
    frees
}
