//! A map whose keys are numbers or short texts that a profile gave: hashed by one multiplication
//! for each eight bytes, where std's hash costs as much as the rest of a call. Whoever makes up a
//! profile can make it slow, and gains nothing by it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by number or short text.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        words.for_each(|word| self.write_u64(word.try_into().map_or(0, u64::from_le_bytes)));
        let rest = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.write_u64(rest ^ (bytes.len() as u64) << 56);
    }

    /// Ends a text, whose length is in its hash already.
    fn write_u8(&mut self, _: u8) {}

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_i64(&mut self, n: i64) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        // Fibonacci hashing; the rotation brings the good bits to where the map looks.
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
