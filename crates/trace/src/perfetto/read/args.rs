//! Converts the annotations of an event to a JSON object.

use std::cell::Cell;
use std::collections::HashMap;

use serde::de::IgnoredAny;

use crate::perfetto::decode::{Field, Fields};
use crate::perfetto::fields::annotation;
use crate::text;

/// Maximum depth of nested values.
const MOST_DEPTH: usize = 100;

/// Texts to which packets refer by numbers.
pub(super) struct Texts<'a> {
    pub(super) names: &'a HashMap<u64, Box<str>>,
    pub(super) values: &'a HashMap<u64, Box<str>>,
    pub(super) room: &'a Room,
}

/// Limits how many bytes are copied into events from texts to which packets refer by numbers.
/// Without this limit, a million events of 20 bytes could each use a text of a megabyte.
#[derive(Debug, Default)]
pub(super) struct Room {
    used: Cell<u64>,
    /// Bytes of the packets that were read.
    pub(super) read: u64,
}

impl Room {
    /// How many bytes are allowed for any trace, and how many more for each byte of its packets.
    const ALWAYS: u64 = 16 << 20;
    const FACTOR: u64 = 128;

    /// Returns the text, unless the limit is exceeded.
    pub(super) fn take<'a>(&self, text: &'a str) -> Option<&'a str> {
        let used = self.used.get() + text.len() as u64;
        let most = Self::ALWAYS.saturating_add(self.read.saturating_mul(Self::FACTOR));
        (used <= most).then(|| {
            self.used.set(used);
            text
        })
    }
}

impl Texts<'_> {
    /// Returns the name with this number, and how many names are missing (0 or 1).
    fn name(&self, iid: Field<'_>) -> (String, u32) {
        let name = iid.uint().and_then(|iid| self.room.take(self.names.get(&iid)?));
        (name.unwrap_or_default().to_owned(), u32::from(name.is_none()))
    }
}

/// Appends an annotation as a member of an object. Returns how many values could not be read.
pub(super) fn member(out: &mut Vec<u8>, bytes: &[u8], texts: &Texts<'_>) -> u32 {
    member_at(out, bytes, texts, 0)
}

fn member_at(out: &mut Vec<u8>, bytes: &[u8], texts: &Texts<'_>, depth: usize) -> u32 {
    let (mut name, mut lost) = (String::new(), 0);
    for (number, value, _) in Fields::new(bytes).flatten() {
        match number {
            annotation::NAME_IID => (name, lost) = texts.name(value),
            annotation::NAME => name = value.bytes().map(lossy).unwrap_or_default(),
            _ => {}
        }
    }
    if !matches!(out.last(), None | Some(b'{')) {
        out.push(b',');
    }
    text::string(out, &name);
    out.push(b':');
    lost + value_of(out, bytes, texts, depth)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn value_of(out: &mut Vec<u8>, bytes: &[u8], texts: &Texts<'_>, depth: usize) -> u32 {
    let mut lost = 0;
    let (mut entries, mut elements) = (Vec::new(), Vec::new());
    let mut found: Option<(u32, Field<'_>)> = None;
    for (number, value, _) in Fields::new(bytes).flatten() {
        match number {
            annotation::ENTRIES => entries.extend(value.bytes()),
            annotation::ELEMENTS => elements.extend(value.bytes()),
            annotation::NAME_IID | annotation::NAME => {}
            _ => found = Some((number, value)),
        }
    }
    if depth > MOST_DEPTH {
        out.extend_from_slice(b"null");
        return 1;
    }
    if !entries.is_empty() {
        out.push(b'{');
        for entry in entries {
            lost += member_at(out, entry, texts, depth + 1);
        }
        out.push(b'}');
        return lost;
    }
    if !elements.is_empty() {
        out.push(b'[');
        for (at, element) in elements.into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            lost += value_of(out, element, texts, depth + 1);
        }
        out.push(b']');
        return lost;
    }
    match found {
        Some((annotation::BOOL, value)) => {
            out.extend_from_slice(if value.uint() == Some(0) { b"false" } else { b"true" });
        }
        Some((annotation::UINT, Field::Uint(n))) => text::uint(out, n),
        Some((annotation::INT, Field::Uint(n))) => text::int(out, n as i64),
        Some((annotation::DOUBLE, Field::Fixed64(bits))) => {
            return double(out, f64::from_bits(bits));
        }
        Some((annotation::TEXT, Field::Bytes(bytes))) => text::string(out, &lossy(bytes)),
        Some((annotation::TEXT_IID, Field::Uint(iid))) => {
            match texts.values.get(&iid).and_then(|known| texts.room.take(known)) {
                Some(known) => text::string(out, known),
                None => {
                    out.extend_from_slice(b"null");
                    return 1;
                }
            }
        }
        Some((annotation::POINTER, Field::Uint(n))) => text::string(out, &format!("{n:#x}")),
        Some((annotation::JSON, Field::Bytes(bytes))) => {
            let json = lossy(bytes);
            match serde_json::from_str::<IgnoredAny>(&json) {
                Ok(_) => out.extend_from_slice(json.trim().as_bytes()),
                Err(_) => text::string(out, &json),
            }
        }
        Some((annotation::NESTED, Field::Bytes(bytes))) => return nested(out, bytes, depth + 1),
        None => out.extend_from_slice(b"null"),
        Some(_) => {
            out.extend_from_slice(b"null");
            return 1;
        }
    }
    0
}

fn double(out: &mut Vec<u8>, n: f64) -> u32 {
    text::float(out, n);
    u32::from(!n.is_finite())
}

/// Appends a `NestedValue` of older writers.
fn nested(out: &mut Vec<u8>, bytes: &[u8], depth: usize) -> u32 {
    const KIND: u32 = 1;
    const KEYS: u32 = 2;
    const VALUES: u32 = 3;
    const ELEMENTS: u32 = 4;
    if depth > MOST_DEPTH {
        out.extend_from_slice(b"null");
        return 1;
    }
    let (mut kind, mut keys, mut values, mut elements) = (0, Vec::new(), Vec::new(), Vec::new());
    let mut plain = None;
    for (number, value, _) in Fields::new(bytes).flatten() {
        match number {
            KIND => kind = value.uint().unwrap_or(0),
            KEYS => keys.extend(value.bytes()),
            VALUES => values.extend(value.bytes()),
            ELEMENTS => elements.extend(value.bytes()),
            _ => plain = Some((number, value)),
        }
    }
    let mut lost = 0;
    match (kind, plain) {
        (1, _) => {
            out.push(b'{');
            for (at, (key, value)) in keys.into_iter().zip(values).enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                text::string(out, &lossy(key));
                out.push(b':');
                lost += nested(out, value, depth + 1);
            }
            out.push(b'}');
        }
        (2, _) => {
            out.push(b'[');
            for (at, element) in elements.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                lost += nested(out, element, depth + 1);
            }
            out.push(b']');
        }
        (_, Some((5, Field::Uint(n)))) => text::int(out, n as i64),
        (_, Some((6, Field::Fixed64(bits)))) => return double(out, f64::from_bits(bits)),
        (_, Some((7, Field::Uint(n)))) => {
            out.extend_from_slice(if n == 0 { b"false" } else { b"true" });
        }
        (_, Some((8, Field::Bytes(bytes)))) => text::string(out, &lossy(bytes)),
        _ => out.extend_from_slice(b"null"),
    }
    lost
}
