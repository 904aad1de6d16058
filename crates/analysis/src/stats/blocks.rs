//! Stores values that are added one by one, in blocks. All values of a block take the same number
//! of bytes, which is enough for the largest one.

/// A block has at most this many bytes, plus [`WORD`].
const MOST_BYTES: usize = 1 << 16;
const FEWEST_BYTES: usize = 64;
/// Values are written and read eight bytes at a time, whatever their width.
const WORD: usize = 8;

/// A growing list of values. A stored value is never moved to another block. In a long list, at
/// most about an eighth of the memory is unused.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Blocks to which no value is added any more.
    full: Vec<Block>,
    last: Block,
    in_full: usize,
    bytes_of_full: usize,
}

/// A piece of memory with values of equal width. The width is the number of bytes of a value.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    used: usize,
    width: usize,
    /// Number of values in all earlier blocks.
    before: usize,
    /// The largest value that fits into `width` bytes.
    limit: u64,
    /// The bitwise *or* of all values in the block.
    seen: u64,
}

impl Block {
    fn len(&self) -> usize {
        self.used.checked_div(self.width).unwrap_or(0)
    }

    #[inline]
    fn at(&self, i: usize) -> u64 {
        let word = self.bytes.get(i * self.width..).and_then(|bytes| bytes.first_chunk::<WORD>());
        word.map_or(0, |word| u64::from_le_bytes(*word)) & self.limit
    }
}

impl Blocks {
    #[inline]
    pub fn push(&mut self, value: u64) {
        if value > self.last.limit || self.last.used + WORD > self.last.bytes.len() {
            self.begin(value);
        }
        let block = &mut self.last;
        if let Some(word) = block.bytes[block.used..].first_chunk_mut::<WORD>() {
            *word = value.to_le_bytes();
        }
        block.used += block.width;
        block.seen |= value;
    }

    #[cold]
    fn begin(&mut self, value: u64) {
        let mut block = std::mem::take(&mut self.last);
        let seen = block.seen | value;
        if block.used > 0 {
            if block.bytes.len() - block.used > FEWEST_BYTES {
                block.bytes.truncate(block.used + WORD);
                block.bytes.shrink_to_fit();
            }
            self.in_full += block.len();
            self.bytes_of_full += block.bytes.len();
            self.full.push(block);
        }
        let width = ((u64::BITS - seen.leading_zeros()) as usize).div_ceil(8).max(1);
        let bytes = (self.bytes_of_full / 8).clamp(FEWEST_BYTES, MOST_BYTES) + WORD;
        self.last = Block {
            bytes: vec![0; bytes],
            used: 0,
            width,
            before: self.in_full,
            limit: u64::MAX >> (64 - 8 * width),
            seen: 0,
        };
    }

    pub fn len(&self) -> usize {
        self.in_full + self.last.len()
    }

    /// Returns the number of bytes of memory that the values take.
    pub fn bytes(&self) -> usize {
        self.bytes_of_full + self.last.bytes.len()
    }

    /// Whether no value has more than 32 bits.
    pub fn is_narrow(&self) -> bool {
        self.full.iter().chain([&self.last]).all(|block| u32::try_from(block.seen).is_ok())
    }

    /// Calls `each` for the values with index `from` to `to - 1`, in order.
    pub fn read(&self, from: usize, to: usize, mut each: impl FnMut(u64)) {
        let first = self.full.partition_point(|block| block.before + block.len() <= from);
        let blocks = self.full[first..].iter().chain([&self.last]);
        for block in blocks.take_while(|block| block.before < to) {
            let begin = from.saturating_sub(block.before);
            let end = (to - block.before).min(block.len());
            (begin..end).for_each(|i| each(block.at(i)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_widths_come_back() {
        let value = |i: u64| match i % 1_000 {
            0 => u64::MAX >> (i / 1_000 % 64),
            _ => i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i / 5_000 % 64),
        };
        let mut blocks = Blocks::default();
        let all: Vec<u64> = (0..300_000).map(value).collect();
        assert!(blocks.is_narrow());
        all.iter().for_each(|value| blocks.push(*value));
        assert_eq!(blocks.len(), all.len());
        assert!(!blocks.is_narrow());
        for (from, to) in [(0, all.len()), (0, 0), (7, 8), (1_000, 250_000), (299_999, 300_000)] {
            let mut found = Vec::new();
            blocks.read(from, to, |value| found.push(value));
            assert_eq!(found, all[from..to], "{from} to {to}");
        }
    }

    #[test]
    fn small_values_take_little_memory() {
        let mut blocks = Blocks::default();
        (0..1_000_000u64).for_each(|i| blocks.push(i % 200));
        assert!(blocks.is_narrow());
        assert!(blocks.bytes() < 1_200_000, "{}", blocks.bytes());
    }
}
