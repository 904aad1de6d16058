//! Texts of a stream and their numbers: each text is written once.

/// Texts and their numbers.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// Hash, begin and end in `bytes`.
    all: Vec<(u64, u32, u32)>,
    /// Open addressing by hash: a number plus 1, or 0. Its length is a power of two.
    slots: Vec<u32>,
}

/// Eight bytes at a time. Not against an attacker, who could only slow down his own recording.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(u64::from_le_bytes(last));
    hash ^ hash >> 32
}

impl Texts {
    /// Bytes of all texts.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The number of a text, and whether it is new.
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
