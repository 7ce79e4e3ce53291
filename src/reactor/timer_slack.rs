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
        let before = timer_slack(libc::PR_GET_TIMERSLACK, 0);
        timer_slack(libc::PR_SET_TIMERSLACK, 1);
        PreciseSleeps { before }
    }
}

#[cfg(target_os = "linux")]
impl Drop for PreciseSleeps {
    fn drop(&mut self) {
        if self.before > 0 {
            timer_slack(libc::PR_SET_TIMERSLACK, self.before as libc::c_ulong);
        }
    }
}

/// Gets or sets this thread's timer slack, in nanoseconds.
#[cfg(target_os = "linux")]
fn timer_slack(option: libc::c_int, nanoseconds: libc::c_ulong) -> libc::c_int {
    const NONE: libc::c_ulong = 0;
    // SAFETY: neither option takes a pointer. The function takes five arguments, whatever they are
    // for: left out, they would be what happens to lie there.
    unsafe { libc::prctl(option, nanoseconds, NONE, NONE, NONE) }
}

#[cfg(not(target_os = "linux"))]
impl PreciseSleeps {
    pub(super) fn for_this_thread() -> Self {
        PreciseSleeps {}
    }
}
