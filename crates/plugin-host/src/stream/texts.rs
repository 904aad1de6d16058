//! Numbers the texts of a stream; each text is written once.

#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// Hash, start and end in `bytes` of each text.
    all: Vec<(u64, u32, u32)>,
    /// A hash table with open addressing: each slot holds the number of a text plus 1, or 0 if it
    /// is empty. Its length is a power of two.
    slots: Vec<u32>,
}

/// Multiplies, and combines both halves of the product by exclusive or, so that a bit of the result
/// depends on many bits of both factors.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    (product >> 64) as u64 ^ product as u64
}

/// Hashes sixteen bytes at a time, as wyhash does. The salt is fixed, so a program could craft texts
/// with equal hashes. That would slow down only its own recording.
#[inline]
fn hash(bytes: &[u8]) -> u64 {
    const SALT: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xe703_7ed1_a0b4_28db];
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let (pairs, rest) = bytes.as_chunks::<16>();
    let mut hash = bytes.len() as u64 ^ SALT[0];
    for pair in pairs {
        let (words, _) = pair.as_chunks::<8>();
        hash = fold(word(&words[0]) ^ hash, word(&words[1]) ^ SALT[1]);
    }
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let (words, _) = last.as_chunks::<8>();
    fold(word(&words[0]) ^ hash, word(&words[1]) ^ SALT[1])
}

impl Texts {
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn number(&mut self, text: &[u8]) -> (u32, bool) {
        if self.slots.len() < 2 * (self.all.len() + 1) {
            self.grow();
        }
        let hash = hash(text);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at] {
                0 => break,
                slot => {
                    let (known, begin, end) = self.all[slot as usize - 1];
                    if known == hash && &self.bytes[begin as usize..end as usize] == text {
                        return (slot - 1, false);
                    }
                }
            }
            at = (at + 1) & mask;
        }
        let begin = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        self.all.push((hash, begin, self.bytes.len() as u32));
        self.slots[at] = self.all.len() as u32;
        (self.all.len() as u32 - 1, true)
    }

    fn grow(&mut self) {
        let size = (4 * (self.all.len() + 1)).next_power_of_two().max(64);
        self.slots = vec![0; size];
        for (number, (hash, _, _)) in self.all.iter().enumerate() {
            let mut at = *hash as usize & (size - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = number as u32 + 1;
        }
    }
}
