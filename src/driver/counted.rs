//! Counts the calls that cross the seam.
