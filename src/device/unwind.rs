//! What users hold may cross `catch_unwind`: a panic leaves nothing half done behind it.
//!
//! No user code runs under a lock of this crate, and the state behind each is consistent between any two
//! statements that can panic: see [`Mutex`](crate::sync::Mutex). What was enqueued runs, whoever panics.
//! All handles, buffers and futures follow from what is here.

use std::panic::{RefUnwindSafe, UnwindSafe};

use super::DeviceCore;
use crate::error::Error;
use crate::reactor::Lane;

impl RefUnwindSafe for DeviceCore {}
impl RefUnwindSafe for Lane {}

// An `io::Error` in it could be anyone's; here it is the system's.
impl UnwindSafe for Error {}
impl RefUnwindSafe for Error {}
