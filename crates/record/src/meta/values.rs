//! Defines what the values that are recorded with calls mean, and the texts to which values refer.

use crate::wire::{Decoder, Encoder, Truncated, Wire, wire};

/// The meaning of the values under one key. A call can have values, each under a key. Keys below
/// [`crate::page::FIRST_USER_KEY`] have a fixed meaning, so no frame is written for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueKey {
    pub id: u32,
    /// The name that reports show.
    pub name: String,
    /// The interpretation of the value's 64 bits.
    pub kind: ValueKind,
}

model::numbered! {
    /// The interpretation of the 64 bits of a value.
    pub enum ValueKind {
        /// A signed integer.
        Count = 0 "count",
        /// Microseconds, as a double.
        Duration = 1 "duration",
        /// Percent, as a double.
        Percent = 2 "percent",
        /// A double.
        Ratio = 3 "ratio",
        /// The number of a text: [`Text::id`].
        Text = 4 "text",
    }
}

/// See [`ValueKind::Text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text's number in the process.
    pub id: u32,
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
