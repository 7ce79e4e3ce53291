//! Await GPU work.

mod driver;
