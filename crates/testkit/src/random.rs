//! Pseudo-random numbers that are the same in every run, so that failures can be reproduced.

/// Marsaglia's xorshift generator with the shifts 13, 7 and 17. The state must not be 0.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns any number except 0.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns an index into a list of this length, or 0 if the list is empty.
    pub fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns one of these values.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place(all.len())]
    }

    /// Returns true with the probability 1 / `one_in`.
    pub fn odd(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// Returns 0, 1, a number below 1,000, a large special number, or any number. Two of the
    /// special numbers are 2^53, up to which an `f64` represents all integers, and 2^53 + 1.
    pub fn number(&mut self) -> u64 {
        let any = self.below(u64::MAX);
        let small = self.below(1000);
        self.of(&[0, 1, small, small, any, 1 << 53, (1 << 53) + 1, u64::MAX / 3])
    }
}
