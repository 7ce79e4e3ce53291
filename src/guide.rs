//! How to do things: pages that go beyond what a type's own documentation says. (How to test is a page of
//! [`testing`](crate::testing).)

#[doc = include_str!("guide/memory.md")]
pub mod memory {}
