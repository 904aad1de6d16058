//! Appends data in protobuf's wire format, as far as traces need it.

/// Appends fields.
#[derive(Debug, Default)]
pub struct Encoder {
    /// What was appended.
    pub bytes: Vec<u8>,
}

/// Fields that are encoded once and written many times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields {
    bytes: [u8; 24],
    length: usize,
}

impl Fields {
    /// The fields that `fill` appends must have at most 24 bytes.
    pub fn new(fill: impl FnOnce(&mut Encoder)) -> Self {
        let mut all = Encoder::default();
        fill(&mut all);
        let mut fields = Self { bytes: [0; 24], length: all.bytes.len() };
        fields.bytes[..fields.length].copy_from_slice(&all.bytes);
        fields
    }
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

impl Encoder {
    #[inline]
    fn varint(&mut self, n: u64) {
        match short_varint(n) {
            Some((digits, length)) => self.push(digits.to_le_bytes(), length),
            None => self.long_varint(n),
        }
    }

    /// Appends a number whose varint has more than eight bytes.
    #[cold]
    fn long_varint(&mut self, mut n: u64) {
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

    /// Appends fields that are already encoded.
    #[inline]
    pub fn fields(&mut self, fields: &Fields) {
        self.push(fields.bytes, fields.length);
    }

    /// Appends the first `length` bytes of an array. Copying a fixed number of bytes and then
    /// shortening the buffer is faster than copying a variable number of bytes.
    #[inline]
    fn push<const N: usize>(&mut self, bytes: [u8; N], length: usize) {
        let end = self.bytes.len() + length;
        self.bytes.extend_from_slice(&bytes);
        self.bytes.truncate(end);
    }

    /// Appends an unsigned number, a boolean, or a value of an enumeration. The function is
    /// inlined, because callers pass a constant `field`, so the compiler can compute the tag.
    #[inline(always)]
    pub fn uint(&mut self, field: u32, n: u64) {
        let tag = field << 3 | VARINT;
        match short_varint(n) {
            Some((digits, length)) if tag < 0x80 && length < 8 => {
                self.push((digits << 8 | u64::from(tag)).to_le_bytes(), 1 + length);
            }
            _ => self.long_uint(tag, n),
        }
    }

    /// Appends a number that [`Encoder::uint`] cannot append in one step.
    fn long_uint(&mut self, tag: u32, n: u64) {
        self.varint(tag.into());
        self.varint(n);
    }

    /// Appends three unsigned numbers, which are usually small.
    #[inline]
    pub fn three(&mut self, a: (u32, u64), b: (u32, u64), c: (u32, u64)) {
        let all = [a, b, c];
        if all.iter().all(|(field, n)| *field < 16 && *n < 0x80) {
            let [a, b, c] = all.map(|(field, n)| u64::from(field << 3 | VARINT) | n << 8);
            self.push((a | b << 16 | c << 32).to_le_bytes(), 6);
        } else {
            all.iter().for_each(|(field, n)| self.uint(*field, *n));
        }
    }

    /// Appends a number of the type `int32` or `int64`.
    #[inline]
    pub fn int(&mut self, field: u32, n: i64) {
        self.uint(field, n as u64);
    }

    #[inline]
    pub fn fixed(&mut self, field: u32, n: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&n.to_le_bytes());
    }

    #[inline]
    pub fn double(&mut self, field: u32, n: f64) {
        self.fixed(field, n.to_bits());
    }

    /// Appends text or bytes.
    #[inline]
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a message of two numbers, as most arguments of slices are. The function is inlined,
    /// because callers pass constant field numbers, so the compiler can compute the tags.
    #[inline(always)]
    pub fn pair(&mut self, field: u32, (first, a): (u32, u64), (second, b): (u32, u64)) {
        let tags = [field << 3 | LENGTH, first << 3, second << 3];
        let small = a < 0x80 && tags.iter().all(|tag| *tag < 0x80);
        let (Some((digits, length)), true) = (short_varint(b), small) else {
            return self.long_pair(field, (first, a), (second, b));
        };
        let [tag, first, second] = tags.map(u64::from);
        let start = tag | (3 + length as u64) << 8 | first << 16 | a << 24 | second << 32;
        let all = u128::from(digits) << 40 | u128::from(start);
        self.push(all.to_le_bytes(), 5 + length);
    }

    #[cold]
    fn long_pair(&mut self, field: u32, (first, a): (u32, u64), (second, b): (u32, u64)) {
        self.message(field, |m| {
            m.uint(first, a);
            m.uint(second, b);
        });
    }

    /// Appends a message of a number and of fields that are already encoded.
    #[inline]
    pub fn number_and(&mut self, field: u32, (first, n): (u32, u64), fields: &Fields) {
        let tags = [field << 3 | LENGTH, first << 3];
        let small = tags.iter().all(|tag| *tag < 0x80);
        let (Some((digits, length)), true) = (short_varint(n), small) else {
            return self.message(field, |m| {
                m.uint(first, n);
                m.fields(fields);
            });
        };
        let [tag, first] = tags.map(u128::from);
        // This is at most 33, so it takes one byte as a varint.
        let inside = (1 + length + fields.length) as u128;
        let all = u128::from(digits) << 24 | first << 16 | inside << 8 | tag;
        self.push(all.to_le_bytes(), 3 + length);
        self.fields(fields);
    }

    /// Appends a message, whose content `fill` appends.
    #[inline]
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        self.message_like(field, &mut Width::default(), fill);
    }

    /// Appends a message, whose length is known only after `fill` has appended its content. One
    /// byte is reserved for the length, or two if `width` says that the previous message's length
    /// needed more than one. If the length needs more or fewer bytes, the content is moved.
    #[inline]
    pub fn message_like(&mut self, field: u32, width: &mut Width, fill: impl FnOnce(&mut Self)) {
        self.tag(field, LENGTH);
        let (at, room) = (self.bytes.len(), if width.wide { 2 } else { 1 });
        self.push([0; 2], room);
        fill(self);
        let length = self.bytes.len() - at - room;
        match (room, length) {
            (1, ..0x80) => self.bytes[at] = length as u8,
            (2, 0x80..0x4000) => {
                self.bytes[at] = length as u8 | 0x80;
                self.bytes[at + 1] = (length >> 7) as u8;
            }
            _ => {
                width.wide = length >= 0x80;
                self.make_room(at, room, length);
            }
        }
    }

    /// Replaces the `room` bytes at `at` by the encoded length.
    #[cold]
    fn make_room(&mut self, at: usize, room: usize, length: usize) {
        let mut prefix = Self::default();
        prefix.varint(length as u64);
        self.bytes.splice(at..at + room, prefix.bytes);
    }
}

/// Whether the length took more than one byte in the last message that was written with this
/// `Width`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Width {
    wide: bool,
}

/// Returns the varint of a number below 2⁵⁶, and the varint's length in bytes. The varint's first
/// byte is the lowest byte of the result.
#[inline]
fn short_varint(n: u64) -> Option<(u64, usize)> {
    if n < 0x80 {
        return Some((n, 1));
    }
    if n >= 1 << 56 {
        return None;
    }
    let length = (64 - n.leading_zeros() as usize).div_ceil(7);
    // The groups of seven bits are separated in three steps: into halves, quarters and eighths.
    let n = (n & 0x0fff_ffff) | (n & 0x00ff_ffff_f000_0000) << 4;
    let n = (n & 0x0000_3fff_0000_3fff) | (n & 0x0fff_c000_0fff_c000) << 2;
    let n = (n & 0x007f_007f_007f_007f) | (n & 0x3f80_3f80_3f80_3f80) << 1;
    let more = 0x8080_8080_8080_8080 & ((1 << (8 * (length - 1))) - 1);
    Some((n | more, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a varint byte by byte, as in the specification.
    fn slow(mut n: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while n >= 0x80 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    }

    fn uint(field: u32, n: u64) -> Vec<u8> {
        [slow(u64::from(field) << 3), slow(n)].concat()
    }

    #[test]
    fn numbers_of_every_length() {
        for bit in 0..64 {
            for n in [1 << bit, (1 << bit) - 1, u64::MAX >> bit, 0xA5A5_A5A5_A5A5_A5A5 >> bit] {
                let mut e = Encoder::default();
                e.varint(n);
                assert_eq!(e.bytes, slow(n), "{n:#x}");
                for a in [1, 127, 128, n] {
                    for field in [4, 15, 16, 200] {
                        let mut e = Encoder::default();
                        e.pair(field, (1, a), (3, n));
                        let inside = [vec![8], slow(a), vec![24], slow(n)].concat();
                        let length = vec![inside.len() as u8];
                        let tag = slow(u64::from(field) << 3 | 2);
                        assert_eq!(e.bytes, [tag, length, inside].concat(), "{field} {a} {n}");
                        e.bytes.clear();
                        let more = Fields::new(|e| e.uint(5, a));
                        e.number_and(field, (8, n), &more);
                        let inside = [uint(8, n), uint(5, a)].concat();
                        let length = vec![inside.len() as u8];
                        let tag = slow(u64::from(field) << 3 | 2);
                        assert_eq!(e.bytes, [tag, length, inside].concat(), "{field} {a} {n}");
                        e.bytes.clear();
                        e.three((field, a), (1, n), (9, 5));
                        let fields = [(field, a), (1, n), (9, 5)];
                        assert_eq!(e.bytes, fields.map(|(field, n)| uint(field, n)).concat());
                        e.bytes.clear();
                        e.uint(field, n);
                        assert_eq!(e.bytes, uint(field, n));
                    }
                }
            }
        }
    }

    /// The examples come from protobuf's description of its encoding.
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
            // The result does not depend on the length of the previous message.
            for wide in [false, true] {
                let (mut nested, mut width) = (Encoder::default(), Width { wide });
                nested.message_like(5, &mut width, |e| e.bytes.extend_from_slice(&content));
                assert_eq!(nested.bytes, whole.bytes, "{length}");
                assert_eq!(width.wide, length >= 128);
            }
        }
    }
}
