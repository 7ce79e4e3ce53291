//! The processor time of this process, all threads.
#![allow(unsafe_code, reason = "calls libc")]

use std::time::Duration;

/// Used so far (`CLOCK_PROCESS_CPUTIME_ID`).
pub(crate) fn used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call. The clock exists on every Linux, so the call succeeds.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
