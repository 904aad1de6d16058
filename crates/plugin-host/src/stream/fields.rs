//! Encodes numbers as LEB128, signed ones as zigzag.

pub(super) fn put(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

pub(super) fn put_signed(buffer: &mut Vec<u8>, value: i64) {
    put(buffer, (value << 1 ^ value >> 63) as u64);
}

/// A few fields, which are collected on the stack so that a record goes into the buffer in one
/// step.
pub(super) struct Fields {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Default for Fields {
    #[inline]
    fn default() -> Self {
        Self { bytes: [0; Self::MOST], length: 0 }
    }
}

impl Fields {
    /// Room for 12 fields: a number of 64 bits takes at most 10 bytes as LEB128.
    const MOST: usize = 128;

    #[inline]
    pub(super) fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes[self.length % Self::MOST] = value as u8 | 0x80;
            self.length += 1;
            value >>= 7;
        }
        self.bytes[self.length % Self::MOST] = value as u8;
        self.length += 1;
    }

    #[inline]
    pub(super) fn put_signed(&mut self, value: i64) {
        self.put((value << 1 ^ value >> 63) as u64);
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.min(Self::MOST)]
    }
}
