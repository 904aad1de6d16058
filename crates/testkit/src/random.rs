//! Numbers that look random and are the same in every run, so that a failure is found again.

/// Marsaglia's xorshift with 13, 7 and 17; the state must not be 0.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Any number but 0.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One that is smaller than `end`; 0 if nothing is.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A place in a list of so many.
    pub fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place(all.len())]
    }

    /// True once in so many times.
    pub fn odd(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// Small numbers, and the ends of the range.
    pub fn number(&mut self) -> u64 {
        let any = self.below(u64::MAX);
        let small = self.below(1000);
        self.of(&[0, 1, small, small, any, 1 << 53, (1 << 53) + 1, u64::MAX / 3])
    }
}
