//! How precisely a thread's sleeps end.
#![allow(unsafe_code)]

/// Asks for sleeps that end as precisely as the kernel can make them, while it lives.
///
/// Linux lets a sleep end up to 50 us late by default, which is more than most waits here may be.
/// Elsewhere it does nothing.
#[derive(Debug)]
pub(super) struct PreciseSleeps {
    /// Slack to restore, in nanoseconds.
    #[cfg(target_os = "linux")]
    before: libc::c_int,
}

#[cfg(target_os = "linux")]
impl PreciseSleeps {
    pub(super) fn for_this_thread() -> Self {
        // SAFETY: PR_GET_TIMERSLACK takes no pointer and changes nothing.
        let before = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        // SAFETY: PR_SET_TIMERSLACK takes no pointer and sets this thread's slack to 1 ns.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
        PreciseSleeps { before }
    }
}

#[cfg(target_os = "linux")]
impl Drop for PreciseSleeps {
    fn drop(&mut self) {
        if self.before > 0 {
            // SAFETY: as above; the value is one that this thread had before.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.before as libc::c_ulong) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl PreciseSleeps {
    pub(super) fn for_this_thread() -> Self {
        PreciseSleeps {}
    }
}
