//! The primitive encodings of Counterpoint's own binary files. Numbers are little-endian.
//!
//! A *prefix varint* stores its length in the trailing bits of its first byte. So a varint of at
//! most 8 bytes can be written with one 8-byte store, without a loop:
//!
//! ```text
//!  …vvvvvvv1                       1 byte,  7 bits
//!  …vvvvvv10 vvvvvvvv              2 bytes, 14 bits
//!  …
//!  10000000  7 × vvvvvvvv          8 bytes, 56 bits
//!  00000000  8 × vvvvvvvv          9 bytes, 64 bits
//! ```

/// Number of bytes that must be writable where a varint is written, because whole words are stored.
pub const VARINT_SLACK: usize = 9;

/// Writes `value` at `at`, and returns the address after the written varint.
///
/// # Safety
/// `at .. at + VARINT_SLACK` must be writable.
#[inline(always)]
pub unsafe fn put_varint(at: *mut u8, value: u64) -> *mut u8 {
    let log = (value | 1).ilog2();
    if log < 56 {
        // This is log / 7 + 1 for each `log` up to 55, without a division.
        let bytes = (log * 9 + 73) >> 6;
        let word = (value << 1 | 1) << (bytes - 1);
        // SAFETY: by contract, eight bytes from `at` are writable.
        unsafe { at.cast::<u64>().write_unaligned(word.to_le()) };
        // SAFETY: `bytes` is at most 8, so the result is within the writable bytes.
        unsafe { at.add(bytes as usize) }
    } else {
        // SAFETY: by contract, nine bytes from `at` are writable.
        unsafe {
            at.write(0);
            at.add(1).cast::<u64>().write_unaligned(value.to_le());
            at.add(9)
        }
    }
}

/// Reads the varint at the start of `bytes`, and returns its value and its length.
#[inline(always)]
pub fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first == 0 {
        let raw = bytes.get(1..9)?;
        return Some((u64::from_le_bytes(raw.try_into().ok()?), 9));
    }
    let len = first.trailing_zeros() as usize + 1;
    let word = if let Some(whole) = bytes.first_chunk::<8>() {
        u64::from_le_bytes(*whole)
    } else {
        let mut padded = [0u8; 8];
        let part = bytes.get(..len)?;
        padded[..len].copy_from_slice(part);
        u64::from_le_bytes(padded)
    };
    let kept = if len == 8 { word } else { word & ((1u64 << (8 * len)) - 1) };
    Some((kept >> len, len))
}

/// Converts a signed integer to an unsigned one, which is small if the magnitude is small.
#[inline(always)]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Reverses [`zigzag`].
#[inline(always)]
pub fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// Appends values to a growing buffer. It allocates, so it is meant for files that are written
/// rarely.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a length as u32, then the bytes. Data longer than 2³²−1 bytes is cut off.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let kept = &value[..value.len().min(u32::MAX as usize)];
        self.u32(kept.len() as u32);
        self.bytes.extend_from_slice(kept);
        self
    }

    /// Appends text in the same form as [`Encoder::bytes`].
    pub fn str(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The error if the bytes end before a value is complete, or are not a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Offset of the value that ends too early, in bytes from the start of the buffer; 0 for an
    /// invalid value.
    pub at: usize,
}

/// Reads values that [`Encoder`] wrote.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Truncated> {
        let end = self.at.checked_add(count).ok_or(Truncated { at: self.at })?;
        let part = self.bytes.get(self.at..end).ok_or(Truncated { at: self.at })?;
        self.at = end;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let at = self.at;
        self.take(N)?.try_into().map_err(|_| Truncated { at })
    }

    pub fn u8(&mut self) -> Result<u8, Truncated> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Truncated> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Truncated> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Truncated> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a length, then that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], Truncated> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// Reads text. Invalid UTF-8 is replaced.
    pub fn string(&mut self) -> Result<String, Truncated> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// Returns the number of bytes left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }
}

/// A type whose values are stored in files. `wire!` implements it for structs.
pub trait Wire: Sized {
    /// Appends the value.
    fn put(&self, e: &mut Encoder);

    /// Reads a value.
    ///
    /// # Errors
    /// Fails if the bytes end too early, or are not a valid value of this type.
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated>;
}

/// Implements [`Wire`] for a struct from its fields, in the order in which they are stored. A field
/// with `as MODULE` is stored by the functions `put` and `get` of that module instead of by
/// [`Wire`].
macro_rules! wire {
    ($name:ty { $($field:tt $(as $codec:ident)?),+ $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, e: &mut $crate::wire::Encoder) {
                $($crate::wire::wire!(@put (&self.$field) e $($codec)?);)+
            }
            fn get(
                d: &mut $crate::wire::Decoder<'_>,
            ) -> Result<Self, $crate::wire::Truncated> {
                Ok(Self { $($field: $crate::wire::wire!(@get d $($codec)?)?),+ })
            }
        }
    };
    (@put ($value:expr) $e:ident) => { $crate::wire::Wire::put($value, $e) };
    (@put ($value:expr) $e:ident $codec:ident) => { $codec::put($value, $e) };
    (@get $d:ident) => { $crate::wire::Wire::get($d) };
    (@get $d:ident $codec:ident) => { $codec::get($d) };
}
pub(crate) use wire;

macro_rules! numbers {
    ($($number:ident)+) => {$(
        impl Wire for $number {
            fn put(&self, e: &mut Encoder) {
                e.$number(*self);
            }
            fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
                d.$number()
            }
        }
    )+};
}
numbers!(u8 u16 u32 u64);

impl Wire for bool {
    fn put(&self, e: &mut Encoder) {
        e.u8((*self).into());
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        Ok(d.u8()? != 0)
    }
}

impl Wire for f64 {
    fn put(&self, e: &mut Encoder) {
        e.u64(self.to_bits());
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        d.u64().map(Self::from_bits)
    }
}

impl Wire for String {
    fn put(&self, e: &mut Encoder) {
        e.str(self);
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        d.string()
    }
}

/// Encodes the number of elements as u32, then the elements.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, e: &mut Encoder) {
        e.u32(self.len() as u32);
        self.iter().for_each(|one| one.put(e));
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        // The stored number of elements may be wrong, so no memory is reserved for that many.
        (0..d.u32()?).map(|_| T::get(d)).collect()
    }
}

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    fn put(&self, e: &mut Encoder) {
        self.iter().for_each(|one| one.put(e));
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::get(d)?;
        }
        Ok(all)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, e: &mut Encoder) {
        self.0.put(e);
        self.1.put(e);
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        Ok((A::get(d)?, B::get(d)?))
    }
}

/// One byte says whether there is a value.
impl<T: Wire> Wire for Option<T> {
    fn put(&self, e: &mut Encoder) {
        self.is_some().put(e);
        self.iter().for_each(|one| one.put(e));
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        if bool::get(d)? { T::get(d).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, e: &mut Encoder) {
        (**self).put(e);
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        T::get(d).map(Self::new)
    }
}

/// Writes and reads an optional value at the end of a payload. `None` takes no bytes, so the
/// payload ends earlier.
pub(crate) mod last {
    use super::{Decoder, Encoder, Truncated, Wire};

    pub(crate) fn put<T: Wire>(value: &Option<T>, e: &mut Encoder) {
        value.iter().for_each(|one| one.put(e));
    }
    pub(crate) fn get<T: Wire>(d: &mut Decoder<'_>) -> Result<Option<T>, Truncated> {
        if d.remaining() > 0 { T::get(d).map(Some) } else { Ok(None) }
    }
}

/// Writes and reads a byte array as a whole, and not byte by byte as for [`Vec`].
pub(crate) mod raw {
    use super::{Decoder, Encoder, Truncated};

    pub(crate) fn put(value: &[u8], e: &mut Encoder) {
        e.bytes(value);
    }
    pub(crate) fn get(d: &mut Decoder<'_>) -> Result<Vec<u8>, Truncated> {
        d.bytes().map(<[u8]>::to_vec)
    }
}

/// Computes XXH64 with seed 0 (specification: github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
/// Hashing a page (64 KiB) takes about 3 µs.
pub fn xxh64(data: &[u8]) -> u64 {
    const P1: u64 = 0x9E37_79B1_85EB_CA87;
    const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
    const P3: u64 = 0x1656_67B1_9E37_79F9;
    const P4: u64 = 0x85EB_CA77_C2B2_AE63;
    const P5: u64 = 0x27D4_EB2F_1656_67C5;
    fn round(acc: u64, lane: u64) -> u64 {
        acc.wrapping_add(lane.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
    }
    fn lane(chunk: &[u8], i: usize) -> u64 {
        let mut word = [0u8; 8];
        word.copy_from_slice(&chunk[8 * i..8 * i + 8]);
        u64::from_le_bytes(word)
    }
    let mut stripes = data.chunks_exact(32);
    let mut hash = if data.len() >= 32 {
        let mut acc = [P1.wrapping_add(P2), P2, 0, 0u64.wrapping_sub(P1)];
        for stripe in stripes.by_ref() {
            for (i, a) in acc.iter_mut().enumerate() {
                *a = round(*a, lane(stripe, i));
            }
        }
        let mut merged = acc[0]
            .rotate_left(1)
            .wrapping_add(acc[1].rotate_left(7))
            .wrapping_add(acc[2].rotate_left(12))
            .wrapping_add(acc[3].rotate_left(18));
        for a in acc {
            merged = (merged ^ round(0, a)).wrapping_mul(P1).wrapping_add(P4);
        }
        merged
    } else {
        P5
    };
    hash = hash.wrapping_add(data.len() as u64);
    let mut words = stripes.remainder().chunks_exact(8);
    for word in words.by_ref() {
        hash = (hash ^ round(0, lane(word, 0))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    }
    let mut tail = words.remainder();
    if tail.len() >= 4 {
        let half = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        hash = (hash ^ u64::from(half).wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2);
        hash = hash.wrapping_add(P3);
        tail = &tail[4..];
    }
    for byte in tail {
        hash = (hash ^ u64::from(*byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(value: u64) -> usize {
        let mut buffer = [0xAAu8; 32];
        // SAFETY: the buffer is longer than VARINT_SLACK.
        let end = unsafe { put_varint(buffer.as_mut_ptr(), value) };
        let len = end as usize - buffer.as_ptr() as usize;
        assert_eq!(get_varint(&buffer), Some((value, len)), "{value:#x}");
        assert_eq!(get_varint(&buffer[..len]), Some((value, len)));
        assert_eq!(get_varint(&buffer[..len - 1]), None, "{value:#x}");
        len
    }

    #[test]
    fn varints_round_trip_at_every_width() {
        for bits in 0..64 {
            let low = 1u64 << bits;
            for value in [low - 1, low, low + 1, low | (low >> 1)] {
                let len = round_trip(value);
                let needed = (64 - (value | 1).leading_zeros()).div_ceil(7) as usize;
                assert_eq!(len, if needed > 8 { 9 } else { needed }, "{value:#x}");
            }
        }
        assert_eq!(round_trip(u64::MAX), 9);
    }

    #[test]
    fn zigzag_keeps_small_numbers_small() {
        for (signed, unsigned) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MIN, u64::MAX)] {
            assert_eq!(zigzag(signed), unsigned);
            assert_eq!(unzigzag(unsigned), signed);
        }
    }

    /// The expected values come from python-xxhash 3.x (`xxh64_intdigest`).
    #[test]
    fn xxh64_agrees_with_the_reference() {
        assert_eq!(xxh64(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc"), 0x44BC_2CF5_AD77_0999);
        let data: Vec<u8> = (0..1000u32).map(|i| (i * 7 + 3) as u8).collect();
        for (len, expected) in [
            (31, 0xa2aa_5f33_cc4a_6119),
            (32, 0x23c3_c17e_f790_fd97),
            (33, 0x50a7_cfc7_ba58_8784),
            (63, 0x5e3e_54b4_31c7_493c),
            (64, 0x0eb6_4b3e_f6ee_b01f),
            (100, 0xa61f_8d4c_170f_e531),
            (1000, 0x5f23_5fa0_33f1_a3fb),
        ] {
            assert_eq!(xxh64(&data[..len]), expected, "{len} bytes");
        }
    }

    #[test]
    fn decoder_stops_at_the_end() {
        let mut encoder = Encoder::new();
        encoder.u8(1).u16(2).u32(3).u64(4).str("five");
        let bytes = encoder.finish();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::new(&bytes[..cut]);
            let all = (|| {
                decoder.u8()?;
                decoder.u16()?;
                decoder.u32()?;
                decoder.u64()?;
                decoder.string()
            })();
            assert!(all.is_err(), "cut at {cut}");
        }
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(decoder.u8(), Ok(1));
        assert_eq!(decoder.u16(), Ok(2));
        assert_eq!(decoder.u32(), Ok(3));
        assert_eq!(decoder.u64(), Ok(4));
        assert_eq!(decoder.string().as_deref(), Ok("five"));
        assert_eq!(decoder.remaining(), 0);
    }
}
