//! How a device came to be lost, and what was on it.

use std::fmt;

use crate::driver::DriverError;

/// How a device came to be lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceFailure {
    /// Number of the device among those this process opened.
    pub device: u32,
    /// Its index among CUDA's visible devices; `None`: it is simulated.
    pub ordinal: Option<usize>,
    /// What the driver said first, and to which call: often one that has nothing to do with it.
    pub cause: DriverError,
    /// The operations of this crate's that can have failed: those on a stream, or about to be, and
    /// not known to be finished, the oldest of each stream first and of those the kernels. Copies
    /// between host and device only where the error is of a kind that they can meet. Work
    /// of another library, or of another [`Device`](crate::Device) opened on the same GPU, is not known
    /// and may be what failed.
    ///
    /// Empty where nothing of that sort was in flight, and where the device was given up because its
    /// driver would not say how far it is.
    pub suspects: Vec<Suspect>,
}

/// An operation that can have failed on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Suspect {
    /// A kernel's name as declared, or what the operation does.
    pub name: &'static str,
    /// Whether it is the launch of a kernel.
    pub is_kernel: bool,
    /// The stream's number in its device, as [`Stream::number`](crate::Stream::number).
    pub stream: usize,
    /// Its place among the launches, copies and fills of its stream, from 1.
    pub number: u64,
}

impl DeviceFailure {
    /// Suspects that the message names.
    const NAMED: usize = 8;

    /// The operation that failed, where there is no other of this [`Device`](crate::Device)'s that can
    /// have: the driver told of a kernel's error, and there is one suspect.
    pub fn culprit(&self) -> Option<&Suspect> {
        match &*self.suspects {
            [only] if self.cause.is_of_kernel() => Some(only),
            _ => None,
        }
    }

    fn fmt_suspects(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, suspect) in self.suspects.iter().take(Self::NAMED).enumerate() {
            write!(f, "{}{suspect}", if at == 0 { "" } else { ", " })?;
        }
        match self.suspects.len().saturating_sub(Self::NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_kernel {
            true => write!(f, "kernel `{}` on stream {}", self.name, self.stream),
            false => write!(f, "{} on stream {}", self.name, self.stream),
        }
    }
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceFailure { device, ordinal, cause, suspects } = self;
        match ordinal {
            Some(ordinal) => write!(f, "device {device} (cuda:{ordinal}) ")?,
            None => write!(f, "device {device} (simulated) ")?,
        }
        if !cause.is_sticky() {
            return write!(
                f,
                "was given up: its driver would not say how far its streams are ({cause}, again and \
                 again); open it anew, or restart the process"
            );
        }
        write!(f, "is lost: ")?;
        match (self.culprit(), suspects.is_empty()) {
            (Some(culprit), _) => write!(f, "{culprit} failed ({cause})")?,
            (None, true) => write!(f, "{cause}, with nothing in flight that can have failed so")?,
            (None, false) => {
                let what = if cause.is_of_kernel() { "one of " } else { "in flight were " };
                write!(f, "{what}")?;
                self.fmt_suspects(f)?;
                let end = if cause.is_of_kernel() { " failed" } else { "" };
                write!(f, "{end} ({cause})")?;
            }
        }
        f.write_str(match ordinal {
            Some(_) => {
                "; CUDA does not let this process use the device again, nor, where it was tried, \
                 another one: restart the process"
            }
            // The violations have it, as the error knows of nothing but the code.
            None if cause.code() == DriverError::LAUNCH_TIMEOUT => {
                "; a simulated device ends so when it is stuck: who waited for whom, such as for a closed \
                 gate, is in the log and in `Simulator::violations`"
            }
            None => "; open another one",
        })
    }
}

impl std::error::Error for DeviceFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: u32, suspects: &[(&'static str, usize)]) -> String {
        let suspect = |(name, stream): &(&'static str, usize)| Suspect {
            name,
            is_kernel: *name != "copying",
            stream: *stream,
            number: 1,
        };
        let cause = DriverError::new("cuEventQuery", code);
        let suspects = suspects.iter().map(suspect).collect();
        DeviceFailure { device: 3, ordinal: Some(1), cause, suspects }.to_string()
    }

    #[test]
    fn a_simulated_device_that_was_stuck_says_where_to_look() {
        let message = |ordinal, code| {
            let cause = DriverError::new("cuEventQuery", code);
            DeviceFailure { device: 3, ordinal, cause, suspects: Vec::new() }.to_string()
        };
        assert!(
            message(None, 702)
                .contains("closed gate, is in the log and in `Simulator::violations`")
        );
        assert!(!message(Some(0), 702).contains("gate"));
        assert!(!message(None, 719).contains("gate"));
    }

    #[test]
    fn one_suspect_is_named_and_several_are_listed() {
        let none = message(719, &[]);
        assert!(none.starts_with("device 3 (cuda:1) is lost: cuEventQuery returned 719"), "{none}");
        let one = message(719, &[("a", 1)]);
        assert!(one.contains(": kernel `a` on stream 1 failed (cuEventQuery"), "{one}");
        let two = message(719, &[("a", 1), ("copying", 2)]);
        assert!(
            two.contains(": one of kernel `a` on stream 1, copying on stream 2 failed ("),
            "{two}"
        );
    }

    #[test]
    fn of_many_suspects_the_message_names_eight() {
        let suspects: Vec<_> = (0..20).map(|stream| ("a", stream)).collect();
        let message = message(719, &suspects);
        assert!(message.contains("stream 7 and 12 more failed"), "{message}");
        assert!(!message.contains("stream 8"), "{message}");
    }

    #[test]
    fn the_hardware_s_failure_is_nobody_s_fault() {
        let message = message(214, &[("copying", 1)]);
        assert!(message.contains("in flight were copying on stream 1 (cuEvent"), "{message}");
    }

    #[test]
    fn a_driver_that_would_not_answer_accuses_nobody_and_may_be_tried_again() {
        let message = message(1, &[]);
        assert!(
            message.contains("was given up") && !message.contains("restart the process, or go")
        );
    }
}
