//! What the values of calls mean, and their texts.

use crate::wire::{Decoder, Encoder, Truncated, Wire, wire};

/// The meaning of a key of values; see [`crate::page`]. Keys below [`crate::page::FIRST_USER_KEY`]
/// have a fixed meaning and no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueKey {
    /// The key.
    pub id: u32,
    /// The name that views show.
    pub name: String,
    /// How to interpret the value's 64 bits.
    pub kind: ValueKind,
}

/// How the 64 bits of a value are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// A signed integer.
    Count = 0,
    /// Microseconds, as a double.
    Duration = 1,
    /// Percent, as a double.
    Percent = 2,
    /// A double.
    Ratio = 3,
    /// The number of a [`Text`].
    Text = 4,
}

impl ValueKind {
    /// Returns the kind that has this number.
    pub fn from_u8(kind: u8) -> Option<Self> {
        [Self::Count, Self::Duration, Self::Percent, Self::Ratio, Self::Text]
            .get(usize::from(kind))
            .copied()
    }
}

/// See [`ValueKind::Text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text's number in the process.
    pub id: u32,
    /// The text.
    pub text: String,
}

wire!(ValueKey { id, kind, name });
wire!(Text { id, text });

impl Wire for ValueKind {
    fn put(&self, e: &mut Encoder) {
        e.u8(*self as u8);
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        Self::from_u8(d.u8()?).ok_or(Truncated { at: 0 })
    }
}
