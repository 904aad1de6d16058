//! Protobuf's wire format, appended to bytes: as much of it as a trace needs.

/// Appends fields.
#[derive(Debug, Default)]
pub struct Encoder {
    /// What was appended so far.
    pub bytes: Vec<u8>,
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

impl Encoder {
    #[inline]
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }

    #[inline]
    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// An unsigned number, a boolean or a value of an enumeration.
    #[inline]
    pub fn uint(&mut self, field: u32, n: u64) {
        self.tag(field, VARINT);
        self.varint(n);
    }

    /// A signed number as `int32` and `int64` have it.
    #[inline]
    pub fn int(&mut self, field: u32, n: i64) {
        self.uint(field, n as u64);
    }

    /// A `fixed64`.
    #[inline]
    pub fn fixed(&mut self, field: u32, n: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }

    /// A `double`.
    #[inline]
    pub fn double(&mut self, field: u32, n: f64) {
        self.fixed(field, n.to_bits());
    }

    /// Text or bytes.
    #[inline]
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// A message that `fill` appends. Its length is known afterwards: one byte is kept free for
    /// it, and a longer message is moved.
    #[inline]
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        self.tag(field, LENGTH);
        let at = self.bytes.len();
        self.bytes.push(0);
        fill(self);
        let length = self.bytes.len() - at - 1;
        if length < 0x80 {
            self.bytes[at] = length as u8;
            return;
        }
        let end = self.bytes.len();
        self.varint(length as u64);
        let more = self.bytes.len() - end - 1;
        let prefix: [u8; 10] =
            std::array::from_fn(|i| self.bytes.get(end + i).copied().unwrap_or(0));
        self.bytes.truncate(end + more);
        self.bytes.copy_within(at + 1..end, at + 1 + more);
        self.bytes[at..=at + more].copy_from_slice(&prefix[..=more]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of protobuf's description of its encoding.
    #[test]
    fn published_examples() {
        let mut e = Encoder::default();
        e.uint(1, 150);
        e.bytes(2, b"testing");
        e.message(3, |e| e.uint(1, 150));
        let expected: &[u8] = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(e.bytes, expected);
        let mut e = Encoder::default();
        e.int(1, -2);
        assert_eq!(e.bytes, b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        let mut e = Encoder::default();
        e.double(1, 1.0);
        assert_eq!(e.bytes, b"\x09\0\0\0\0\0\0\xf0\x3f");
    }

    #[test]
    fn long_messages_are_moved() {
        for length in [0usize, 127, 128, 200, 16_383, 16_384, 100_000] {
            let content: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let (mut whole, mut nested) = (Encoder::default(), Encoder::default());
            whole.bytes(5, &content);
            nested.message(5, |e| e.bytes.extend_from_slice(&content));
            assert_eq!(nested.bytes, whole.bytes, "{length}");
        }
    }
}
