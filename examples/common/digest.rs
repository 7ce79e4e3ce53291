//! A digest: what results came to, in one number. The same bytes give the same.
#![allow(
    dead_code,
    reason = "whoever includes this file has its results in one piece or in several"
)]

/// FNV-1a over the elements' bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn of(elements: &[f32]) -> Self {
        Digest::new().and(elements)
    }

    /// Of what was there before, and of these elements behind it.
    pub(crate) fn and(self, elements: &[f32]) -> Self {
        self.and_words(elements.iter().map(|element| element.to_bits()))
    }

    /// Of what was there before, and of these words behind it.
    pub(crate) fn and_words(self, words: impl Iterator<Item = u32>) -> Self {
        let step =
            |hash: u64, word: u32| (hash ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01b3);
        Digest(words.fold(self.0, step))
    }

    /// The line that runs are compared by: on many streams, and on one.
    pub(crate) fn tell(self) {
        println!("digest of the results (one number for all their bytes): {:016x}", self.0);
    }
}
