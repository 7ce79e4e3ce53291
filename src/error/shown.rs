//! What a program shows that returns the error from `main`, or unwraps it, and what messages say of
//! numbers.

use std::fmt;

use super::{Error, KernelError};
use crate::driver::DriverError;

impl Error {
    /// The variant's name.
    fn variant(&self) -> &'static str {
        match self {
            Error::NoDriver => "NoDriver",
            Error::DriverTooOld { .. } => "DriverTooOld",
            Error::DriverBroken { .. } => "DriverBroken",
            Error::NoDevice { .. } => "NoDevice",
            Error::BadSetting { .. } => "BadSetting",
            Error::FeatureMissing(_) => "FeatureMissing",
            Error::Refused { .. } => "Refused",
            Error::PartlyRefused { .. } => "PartlyRefused",
            Error::DeviceLost(_) => "DeviceLost",
            Error::QueueFull { .. } => "QueueFull",
            Error::TooMuchInFlight { .. } => "TooMuchInFlight",
            Error::Uninitialised { .. } => "Uninitialised",
            Error::LengthMismatch { .. } => "LengthMismatch",
            Error::OutOfRange { .. } => "OutOfRange",
            Error::EmptyPieces => "EmptyPieces",
            Error::NotRows { .. } => "NotRows",
            Error::NotPlanes { .. } => "NotPlanes",
            Error::NotElements { .. } => "NotElements",
            Error::Misaligned { .. } => "Misaligned",
            Error::ShapeMismatch { .. } => "ShapeMismatch",
            Error::RowsTooFarApart { .. } => "RowsTooFarApart",
            Error::NoParts => "NoParts",
            Error::PartsOfSeveral { .. } => "PartsOfSeveral",
            Error::PartsMissing { .. } => "PartsMissing",
            Error::FillTooWide { .. } => "FillTooWide",
            Error::WrongDevice { .. } => "WrongDevice",
            Error::WrongThread { .. } => "WrongThread",
            Error::TooManyStreams { .. } => "TooManyStreams",
            Error::OutOfMemory { .. } => "OutOfMemory",
            Error::OverBudget { .. } => "OverBudget",
            Error::OutOfPinnedMemory { .. } => "OutOfPinnedMemory",
            Error::TooLarge { .. } => "TooLarge",
            Error::InFlight { .. } => "InFlight",
            Error::Busy { .. } => "Busy",
            Error::UnfinishedElement { .. } => "UnfinishedElement",
            Error::TooMuchBorrowed { .. } => "TooMuchBorrowed",
            Error::StagingTooSmall { .. } => "StagingTooSmall",
            Error::Kernel(why) => why.variant(),
            Error::NoCurrentDevice { .. } => "NoCurrentDevice",
            Error::Thread(_) => "Thread",
            Error::NotReleased { .. } => "NotReleased",
        }
    }
}

/// The variant and the message, which says what to do: `main` shows an error so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.variant())
    }
}

impl KernelError {
    /// The variant's name.
    fn variant(&self) -> &'static str {
        match self {
            KernelError::Requirement { .. } => "Requirement",
            KernelError::Geometry { .. } => "Geometry",
            KernelError::NotPtx { .. } => "NotPtx",
            KernelError::PtxRejected { .. } => "PtxRejected",
            KernelError::PtxTooNew { .. } => "PtxTooNew",
            KernelError::NoSuchKernel { .. } => "NoSuchKernel",
            KernelError::SignatureMismatch { .. } => "SignatureMismatch",
            KernelError::NoTwin { .. } => "NoTwin",
            KernelError::NotLoaded { .. } => "NotLoaded",
        }
    }
}

impl fmt::Debug for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.variant())
    }
}

/// What can be done about an error of the driver's, where that can be said.
pub(super) fn advice(cause: &DriverError) -> &'static str {
    match cause.code() {
        2 => "; memory of this kind is used up: drop some first",
        701 => "; its blocks need more registers or shared memory than there are: use smaller ones",
        900..=908 => "; a graph capture under way forbids it: end that first",
        _ => "",
    }
}

/// Planes, rows and columns, for a message.
pub(super) fn sides([planes, rows, columns]: &[usize; 3]) -> String {
    match planes {
        1 => format!("{rows} rows of {columns}"),
        _ => format!("{planes} planes of {rows} rows of {columns}"),
    }
}

/// What was given, for a message.
pub(super) fn sizes(given: &[(&'static str, usize)]) -> String {
    let each = |(what, size): &(&str, usize)| format!("{what} = {size}");
    match given {
        [] => String::new(),
        given => format!("; given {}", given.iter().map(each).collect::<Vec<_>>().join(", ")),
    }
}
