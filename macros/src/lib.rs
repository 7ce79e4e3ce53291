//! The attribute macro of the `headwater` crate.
