//! Defines one event of a trace, as the file contains it. The event borrows most of its texts from
//! the reader's window (the part of the file that is in memory).

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::time::micros;

/// An event. A missing field is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// `ph`: its first byte (`X`, `B`, `E`, …); 0 if it is missing or not ASCII.
    pub phase: u8,
    /// `name`
    pub name: Option<Cow<'a, str>>,
    /// `cat`
    pub category: Option<Cow<'a, str>>,
    /// `pid`: a number or a string.
    pub pid: Option<Scalar<'a>>,
    /// `tid`: a number or a string.
    pub tid: Option<Scalar<'a>>,
    /// `ts` in nanoseconds.
    pub time_ns: Option<i64>,
    /// `dur` in nanoseconds.
    pub duration_ns: Option<i64>,
    /// The text of `ts`, if it says more than `time_ns`: the time is more precise than nanoseconds,
    /// or the value is no time.
    pub exact_time: Option<Raw<'a>>,
    /// The text of `dur`, if it says more than `duration_ns`.
    pub exact_duration: Option<Raw<'a>>,
    /// `id` of a flow or an asynchronous event.
    pub id: Option<Scalar<'a>>,
    /// `bp`: the value `e` binds the end of a flow to the slice around it.
    pub binding: Option<Cow<'a, str>>,
    /// `s`: the scope of an instant event.
    pub scope: Option<Cow<'a, str>>,
    /// `args`, as text; see [`args`].
    pub args: Option<Raw<'a>>,
    /// Other keys, and known keys whose value has an impossible type, such as a list for a `name`.
    pub other: Vec<(Cow<'a, str>, Raw<'a>)>,
    /// Number of values that do not fit their keys, or that are not JSON (`NaN`).
    pub lost: u32,
    /// A key that appears more than once. Empty if this key contains escapes and belongs to
    /// [`Event::other`].
    pub twice: Option<&'a str>,
}

/// A value exactly as in the document: JSON without white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// Wraps a text, which must be one JSON value.
    pub fn of(text: &'a str) -> Self {
        Self(text)
    }

    pub fn get(self) -> &'a str {
        self.0
    }

    /// # Errors
    /// Fails if the value is not a `T`.
    pub fn parse<T: Deserialize<'a>>(self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Raw<'de> {
    /// Works only with a deserializer of serde_json.
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(d).map(|raw| Self(raw.get()))
    }
}

impl Event<'_> {
    pub(super) fn clear(&mut self) {
        let mut other = std::mem::take(&mut self.other);
        other.clear();
        *self = Self { other, ..Self::default() };
    }
}

/// An id: a number or a string.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    Int(i64),
    /// An integer above `i64::MAX`.
    Big(u64),
    /// Any other number, as text, because it may have more digits than a double.
    Float(Cow<'a, str>),
    Text(Cow<'a, str>),
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => n.fmt(f),
            Self::Big(n) => n.fmt(f),
            Self::Float(x) => x.fmt(f),
            Self::Text(s) => s.fmt(f),
        }
    }
}

/// Calls `each` with the keys and values of an `args` object, in the order of the document. Does
/// nothing if `args` is not an object.
pub fn args<'a>(args: Raw<'a>, mut each: impl FnMut(&str, Raw<'a>)) {
    struct Entries<F>(F);
    impl<'de, F: FnMut(&str, Raw<'de>)> Visitor<'de> for Entries<F> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
            while let Some(Text(key)) = map.next_key()? {
                (self.0)(&key, map.next_value()?);
            }
            Ok(())
        }
    }
    // An error is ignored, because `args` may be something other than an object.
    let _ = serde_json::Deserializer::from_str(args.get()).deserialize_map(Entries(&mut each));
}

struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(s)))
            }
            fn visit_str<E>(self, s: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(s.to_owned())))
            }
        }
        d.deserialize_str(V)
    }
}

/// A field that should be a string. Numbers and booleans are converted to text, because some
/// writers omit the quotes around a name that is a number. `null` counts as missing.
struct Loose<'a>(Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Loose<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Loose<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Loose<'de>, E> {
                Ok(Loose(Some(Cow::Borrowed(s))))
            }
            fn visit_str<E>(self, s: &str) -> Result<Loose<'de>, E> {
                Ok(Loose(Some(Cow::Owned(s.to_owned()))))
            }
            fn visit_i64<E>(self, n: i64) -> Result<Loose<'de>, E> {
                Ok(Loose(Some(Cow::Owned(n.to_string()))))
            }
            fn visit_u64<E>(self, n: u64) -> Result<Loose<'de>, E> {
                Ok(Loose(Some(Cow::Owned(n.to_string()))))
            }
            fn visit_f64<E>(self, x: f64) -> Result<Loose<'de>, E> {
                Ok(Loose(Some(Cow::Owned(x.to_string()))))
            }
            fn visit_bool<E>(self, b: bool) -> Result<Loose<'de>, E> {
                Ok(Loose(Some(Cow::Borrowed(if b { "true" } else { "false" }))))
            }
            fn visit_unit<E>(self) -> Result<Loose<'de>, E> {
                Ok(Loose(None))
            }
        }
        d.deserialize_any(V)
    }
}

fn id(raw: Raw<'_>) -> Result<Option<Scalar<'_>>, serde_json::Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => Ok(Some(Scalar::Text(raw.parse::<Text<'_>>()?.0))),
        Some(b'-' | b'0'..=b'9') => Ok(Some(match (text.parse(), text.parse()) {
            // The number -0 is kept as text, because an integer would lose the sign.
            _ if text == "-0" => Scalar::Float(Cow::Borrowed(text)),
            (Ok(n), _) => Scalar::Int(n),
            (_, Ok(n)) => Scalar::Big(n),
            _ => Scalar::Float(Cow::Borrowed(text)),
        })),
        _ => Err(de::Error::custom("neither a number nor a string")),
    }
}

const KEYS: [&str; 11] = ["ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "bp", "s", "args"];

enum Key<'a> {
    /// Index in [`KEYS`].
    Known(usize),
    Other(Cow<'a, str>),
}

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(d)?;
        let known = KEYS.iter().position(|key| *key == text);
        Ok(known.map_or_else(|| Self::Other(text), Self::Known))
    }
}

impl<'de> Deserialize<'de> for Event<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Event<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event: an object in braces")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Event<'de>, M::Error> {
                let mut event = Event::default();
                let mut seen = 0u16;
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    let value: Raw<'de> = map.next_value()?;
                    event.put(key, value, &mut seen)?;
                }
                Ok(event)
            }
            fn visit_seq<S: de::SeqAccess<'de>>(self, mut seq: S) -> Result<Event<'de>, S::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Err(de::Error::invalid_type(de::Unexpected::Seq, &self))
            }
        }
        d.deserialize_map(V)
    }
}

impl<'a> Event<'a> {
    /// Stores the value of a key. A value of an impossible type is stored in [`Event::other`]. A
    /// string that cannot be decoded is an error.
    fn put<E: de::Error>(&mut self, key: Key<'a>, raw: Raw<'a>, seen: &mut u16) -> Result<(), E> {
        let (name, again) = match &key {
            Key::Other(key) => ("", self.other.iter().any(|(known, _)| known == key)),
            Key::Known(number) => {
                let again = *seen & 1 << number != 0;
                *seen |= 1 << number;
                (KEYS[*number], again)
            }
        };
        if again {
            self.twice = Some(match &key {
                Key::Other(Cow::Borrowed(key)) => key,
                _ => name,
            });
        }
        let loose = || raw.parse::<Loose<'a>>().map(|Loose(text)| text);
        let done = match name {
            "ph" => loose().map(|text| self.phase = text.map_or(0, |text| phase(&text))),
            "name" => loose().map(|text| self.name = text),
            "cat" => loose().map(|text| self.category = text),
            "bp" => loose().map(|text| self.binding = text),
            "s" => loose().map(|text| self.scope = text),
            "pid" => id(raw).map(|id| self.pid = id),
            "tid" => id(raw).map(|id| self.tid = id),
            "id" => id(raw).map(|id| self.id = id),
            "ts" | "dur" => {
                let (ns, exact, lost) = time(raw);
                match name {
                    "ts" => (self.time_ns, self.exact_time) = (ns, exact),
                    _ => (self.duration_ns, self.exact_duration) = (ns, exact),
                }
                self.lost += u32::from(lost);
                Ok(())
            }
            "args" => {
                self.args = Some(raw);
                Ok(())
            }
            _ => Err(de::Error::custom("another key")),
        };
        let Err(error) = done else { return Ok(()) };
        if let Key::Other(key) = key {
            self.other.push((key, raw));
            return Ok(());
        }
        // A text with half of a surrogate pair cannot be decoded. After the error, the reader mends
        // the text and tries again.
        if raw.get().starts_with('"') {
            return Err(E::custom(error));
        }
        self.lost += 1;
        self.other.push((Cow::Borrowed(name), raw));
        Ok(())
    }
}

/// Returns the first byte of the value of `ph`; 0 if the value is empty or the byte is not ASCII.
pub(crate) fn phase(text: &str) -> u8 {
    text.bytes().next().filter(u8::is_ascii).unwrap_or(0)
}

/// Reads a time: a number, or a string that contains a number. Returns the time in nanoseconds, the
/// value's text if it says more than that, and whether the value cannot be a time.
fn time(raw: Raw<'_>) -> (Option<i64>, Option<Raw<'_>>, bool) {
    let text = raw.get();
    if text == "null" {
        return (None, None, false);
    }
    let digits = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    match micros(digits.as_bytes()) {
        Some(time) => (Some(time.ns), Some(raw).filter(|_| !time.exact), false),
        None => (None, Some(raw), true),
    }
}
