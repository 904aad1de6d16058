//! Decodes protobuf's wire format from untrusted bytes.

/// Why a message cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// In bytes from the start of the message.
    pub at: usize,
    pub what: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    Uint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub fn uint(self) -> Option<u64> {
        match self {
            Self::Uint(n) | Self::Fixed64(n) => Some(n),
            Self::Fixed32(n) => Some(n.into()),
            Self::Bytes(_) => None,
        }
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Iterates over the fields of a message, up to the first damage.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A field's number, its value, and the place where the value begins.
pub type Found<'a> = (u32, Field<'a>, usize);

impl<'a> Fields<'a> {
    /// Creates the iterator over the fields of this message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn damage(&self, what: &'static str) -> Damage {
        Damage { at: self.at, what }
    }

    fn varint(&mut self) -> Result<u64, Damage> {
        let (n, length) = varint(&self.bytes[self.at..]).map_err(|what| self.damage(what))?;
        self.at += length;
        Ok(n)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| self.damage("a length beyond the end"))?;
        self.at += length;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<Found<'a>, Damage> {
        let start = self.at;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n));
        let number = number.ok_or(Damage { at: start, what: "an impossible field number" })?;
        let value = match tag & 7 {
            0 => {
                let at = self.at;
                return Ok((number, Field::Uint(self.varint()?), at));
            }
            1 => {
                let bytes = self.take(8)?;
                Field::Fixed64(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => {
                let bytes = self.take(4)?;
                Field::Fixed32(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
            _ => return Err(Damage { at: start, what: "an unknown wire type" }),
        };
        let length = match value {
            Field::Bytes(bytes) => bytes.len(),
            Field::Fixed64(_) => 8,
            _ => 4,
        };
        Ok((number, value, self.at - length))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Found<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

/// Returns the varint at the start of `bytes`, and its length.
pub fn varint(bytes: &[u8]) -> Result<(u64, usize), &'static str> {
    let mut n = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        n |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((n, i + 1));
        }
    }
    Err(if bytes.len() < 10 { "the end in the middle of a number" } else { "an endless number" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perfetto::encode::Encoder;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> Vec<Result<Found<'_>, Damage>> {
        Fields::new(bytes).collect()
    }

    #[test]
    fn damage_is_reported_with_its_place() {
        fn place(bytes: &[u8]) -> Option<Result<Found<'_>, (usize, &'static str)>> {
            all(bytes).pop().map(|last| last.map_err(|d| (d.at, d.what)))
        }
        assert_eq!(place(b"\x08\x01\x12\x05ab"), Some(Err((4, "a length beyond the end"))));
        assert_eq!(place(b"\x08\x80"), Some(Err((1, "the end in the middle of a number"))));
        assert_eq!(place(b"\x0b"), Some(Err((0, "an unknown wire type"))));
        assert_eq!(place(b"\x00"), Some(Err((0, "an impossible field number"))));
        assert_eq!(place(&[0xff; 12]), Some(Err((0, "an endless number"))));
        assert_eq!(place(b""), None);
    }

    proptest! {
        #[test]
        fn encoded_fields_decode_to_themselves(
            fields in prop::collection::vec((1u32..1000, any::<u64>(), 0..4u8), 0..20)
        ) {
            let mut e = Encoder::default();
            for (field, n, kind) in &fields {
                match kind {
                    0 => e.uint(*field, *n),
                    1 => e.fixed(*field, *n),
                    2 => e.bytes(*field, &n.to_le_bytes()[..(*n % 9) as usize]),
                    _ => e.message(*field, |m| m.uint(1, *n)),
                }
            }
            let read = all(&e.bytes);
            prop_assert_eq!(read.len(), fields.len());
            for (read, (field, n, kind)) in read.into_iter().zip(&fields) {
                let (number, value, _) = read.unwrap();
                prop_assert_eq!(number, *field);
                match kind {
                    0 => prop_assert_eq!(value, Field::Uint(*n)),
                    1 => prop_assert_eq!(value, Field::Fixed64(*n)),
                    2 => prop_assert_eq!(
                        value.bytes().unwrap(), &n.to_le_bytes()[..(*n % 9) as usize]
                    ),
                    _ => {
                        let inner = all(value.bytes().unwrap());
                        prop_assert_eq!(inner[0].unwrap().1, Field::Uint(*n));
                    }
                }
            }
        }

        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(all(&bytes).len() <= bytes.len());
        }
    }
}
