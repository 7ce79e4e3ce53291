//! How a device came to be lost, and what was on it.

use std::fmt;

use crate::driver::DriverError;

/// How a device came to be lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceFailure {
    /// Number of the device among those this process opened.
    pub device: u32,
    /// What the driver said first, and to which call: often one that has nothing to do with it.
    pub source: DriverError,
    /// The operations one of which failed: those that were on a stream and not known to be
    /// finished, the oldest of each stream first. Kernels only, where there are any and the
    /// driver's error is of a kernel's making.
    ///
    /// Empty where nothing was in flight: what failed is then no operation of this crate's.
    pub suspects: Vec<InFlight>,
}

/// An operation on a stream, not known to be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// A kernel's name as declared, or what the operation does.
    pub operation: &'static str,
    /// The stream's number in its device, as in [`Stream`](crate::Stream)'s `Debug`.
    pub stream: usize,
    /// Its place among the operations of its stream, from 1.
    pub number: u64,
}

impl InFlight {
    pub(crate) fn new(operation: &'static str, stream: usize, number: u64) -> Self {
        InFlight { operation, stream, number }
    }
}

impl DeviceFailure {
    /// Suspects that the message names.
    const NAMED: usize = 8;

    pub(crate) fn new(device: u32, source: DriverError, suspects: Vec<InFlight>) -> Self {
        DeviceFailure { device, source, suspects }
    }

    /// The operation that failed, where there is no other it can have been.
    pub fn operation(&self) -> Option<&InFlight> {
        match &*self.suspects {
            [only] => Some(only),
            _ => None,
        }
    }
}

impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on stream {}", self.operation, self.stream)
    }
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} is lost: ", self.device)?;
        match &*self.suspects {
            [] => write!(f, "{}, with no operation in flight", self.source)?,
            [only] => write!(f, "{only} failed ({})", self.source)?,
            [first, others @ ..] => {
                write!(f, "one of {first}")?;
                for other in others.iter().take(Self::NAMED - 1) {
                    write!(f, ", {other}")?;
                }
                match others.len().saturating_sub(Self::NAMED - 1) {
                    0 => {}
                    more => write!(f, " and {more} more")?,
                }
                write!(f, " failed ({})", self.source)?;
            }
        }
        f.write_str(
            "; CUDA does not let this process use the device again: restart the process, or go \
             on with other devices",
        )
    }
}

impl std::error::Error for DeviceFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(suspects: &[(&'static str, usize)]) -> String {
        let suspects = suspects.iter().map(|(name, stream)| InFlight::new(name, *stream, 1));
        let source = DriverError::new("cuEventQuery", 719);
        DeviceFailure::new(3, source, suspects.collect()).to_string()
    }

    #[test]
    fn one_suspect_is_named_and_several_are_listed() {
        assert!(message(&[]).starts_with("device 3 is lost: cuEventQuery returned 719"));
        assert!(message(&[("a", 1)]).contains(": `a` on stream 1 failed (cuEventQuery"));
        let two = message(&[("a", 1), ("b", 2)]);
        assert!(two.contains(": one of `a` on stream 1, `b` on stream 2 failed ("), "{two}");
    }

    #[test]
    fn of_many_suspects_the_message_names_eight() {
        let suspects: Vec<_> = (0..20).map(|stream| ("a", stream)).collect();
        let message = message(&suspects);
        assert!(message.contains("stream 7 and 12 more failed"), "{message}");
        assert!(!message.contains("stream 8"), "{message}");
    }
}
