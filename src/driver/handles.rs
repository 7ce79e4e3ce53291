//! Names of what a driver made, or found.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        /// The default names nothing: it is left behind in a `Drop`, and given to no driver.
        #[derive(Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) struct $name(u64);
        impl $name {
            pub(in crate::driver) fn new(raw: u64) -> Self {
                $name(raw)
            }
            /// The driver's own value.
            pub(crate) fn raw(&self) -> u64 {
                self.0
            }
        }
    )*};
}

handles! {
    /// A `CUevent`.
    EventHandle
    /// A `CUmodule`.
    ModuleHandle
    /// A `CUfunction`; lives as long as its module.
    FunctionHandle
}

/// A `CUstream`: one made non-blocking (not ordered with the legacy default stream), or a default
/// stream. The default names nothing, as that of other handles.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StreamHandle(u64);

/// The streams that there are without their being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DefaultStream {
    /// `CU_STREAM_LEGACY`, one for each device.
    Legacy,
    /// `CU_STREAM_PER_THREAD`, one for each device and thread.
    PerThread,
}

impl StreamHandle {
    pub(in crate::driver) fn new(id: u64) -> Self {
        StreamHandle(id)
    }

    /// What this stream alone is called among all that a process sees: by the log, by the race checker
    /// and by the simulated device. The driver's own value, but of CUDA's default streams.
    pub(crate) fn id(&self) -> u64 {
        self.0
    }

    /// The driver's own value. CUDA calls the default streams of all threads and devices the same.
    pub(crate) fn raw(&self) -> u64 {
        StreamHandle::raw_of(self.0)
    }

    /// [`StreamHandle::raw`] of the stream of that id.
    pub(crate) fn raw_of(id: u64) -> u64 {
        match id {
            id if id & CUDA_DEFAULT == 0 => id,
            id if id & THREADS == 0 => CU_STREAM_LEGACY,
            _ => CU_STREAM_PER_THREAD,
        }
    }
}

/// Set in the id of a default stream of CUDA's: no `CUstream`, which is an address of this process, has
/// it. Above [`DEVICE`] is the device's ordinal, below it the thread's number, 0 for the legacy stream.
const CUDA_DEFAULT: u64 = 1 << 63;
const DEVICE: u32 = 48;
const THREADS: u64 = (1 << DEVICE) - 1;
const CU_STREAM_LEGACY: u64 = 1;
const CU_STREAM_PER_THREAD: u64 = 2;

#[cfg(feature = "cuda")]
impl StreamHandle {
    /// Of a CUDA device; of the calling thread.
    pub(in crate::driver) fn cuda_default(ordinal: usize, which: DefaultStream) -> Self {
        let thread = match which {
            DefaultStream::Legacy => 0,
            DefaultStream::PerThread => thread_number(),
        };
        StreamHandle(CUDA_DEFAULT | (ordinal as u64) << DEVICE | thread)
    }

    pub(in crate::driver) fn is_cuda_default(&self) -> bool {
        self.0 & CUDA_DEFAULT != 0
    }

    /// Whether CUDA takes its value for another stream than it names, on this thread.
    pub(in crate::driver) fn is_another_threads(&self) -> bool {
        self.raw() == CU_STREAM_PER_THREAD && self.0 & THREADS != thread_number()
    }
}

/// The calling thread's number: from 1, far below 2^47, and never another thread's of this process,
/// nor one's that has ended. By it all layers tell whose a thread's default stream is.
pub(crate) fn thread_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NUMBER: u64 = LAST.fetch_add(1, Relaxed) + 1);
    NUMBER.with(|number| *number)
}

/// The context of a device, to say on which device memory is. It is there for as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContextHandle(u64);

impl ContextHandle {
    pub(in crate::driver) fn new(raw: u64) -> Self {
        ContextHandle(raw)
    }

    /// The driver's own value: a `CUcontext` on CUDA.
    pub(in crate::driver) fn raw(self) -> u64 {
        self.0
    }
}

#[cfg(all(test, feature = "cuda"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn default_streams_have_cudas_names_and_each_an_id_of_its_own() {
        let of = |ordinal| {
            [DefaultStream::Legacy, DefaultStream::PerThread]
                .map(|which| StreamHandle::cuda_default(ordinal, which))
        };
        let (here, again, other_device) = (of(0), of(0), of(1));
        assert_eq!(here, again);
        let there = thread::spawn(move || {
            let there = of(0);
            assert!(here[1].is_another_threads() && !there[1].is_another_threads());
            (here, there)
        });
        let (here, there) = there.join().unwrap();
        assert_eq!(here[0], there[0]);
        let mut all = [&here[0], &here[1], &there[1], &other_device[0], &other_device[1]];
        assert_eq!(all.map(StreamHandle::raw), [1, 2, 2, 1, 2]);
        assert!(all.iter().all(|stream| stream.is_cuda_default()));
        all.sort_unstable_by_key(|stream| stream.id());
        assert!(all.windows(2).all(|two| two[0] != two[1]), "{all:?}");
        assert!(!here[0].is_another_threads() && !here[1].is_another_threads());
        let made = StreamHandle::new(0x7fff_dead_beef);
        assert_eq!((made.id(), made.raw()), (0x7fff_dead_beef, 0x7fff_dead_beef));
        assert!(!made.is_cuda_default() && !made.is_another_threads());
    }
}
