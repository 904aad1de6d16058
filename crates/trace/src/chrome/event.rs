//! One event of a trace as it stands in the file, borrowed from the reader's window.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::time::micros_to_ns;

/// An event. Fields that are not there are `None`; fields that this version does not know are
/// kept in `other`. Of a key that stands there twice, the last value counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// `ph`: its first byte (`X`, `B`, `E`, `C`, `M`, `s`, `f`, `i`, …), 0 where it is missing or
    /// no ASCII.
    pub phase: u8,
    /// `name`
    pub name: Option<Cow<'a, str>>,
    /// `cat`
    pub category: Option<Cow<'a, str>>,
    /// `pid`: a number as a rule, sometimes a string.
    pub pid: Option<Scalar<'a>>,
    /// `tid`, likewise.
    pub tid: Option<Scalar<'a>>,
    /// `ts` in nanoseconds.
    pub time_ns: Option<i64>,
    /// `dur` in nanoseconds.
    pub duration_ns: Option<i64>,
    /// `id`: of a flow or an asynchronous event.
    pub id: Option<Scalar<'a>>,
    /// `bp`: `e` binds the end of a flow to the slice around it.
    pub binding: Option<Cow<'a, str>>,
    /// `s`: the scope of an instant event.
    pub scope: Option<Cow<'a, str>>,
    /// `args`, as text; see [`args`].
    pub args: Option<Raw<'a>>,
    /// Everything else.
    pub other: Vec<(Cow<'a, str>, Raw<'a>)>,
}

/// A value as it stands in the document: JSON without space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// Of a text that is known to be a value, and nothing else.
    pub(super) fn of(text: &'a str) -> Self {
        Self(text)
    }

    /// Its text.
    pub fn get(self) -> &'a str {
        self.0
    }

    /// What it says.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse<T: Deserialize<'a>>(self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Raw<'de> {
    /// By serde_json only.
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(d).map(|raw| Self(raw.get()))
    }
}

impl Event<'_> {
    /// Makes it an event without any field again.
    pub(super) fn clear(&mut self) {
        let mut other = std::mem::take(&mut self.other);
        other.clear();
        *self = Self { other, ..Self::default() };
    }
}

/// A number or a string, as ids are.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// A whole number.
    Int(i64),
    /// A whole number above `i64::MAX`.
    Big(u64),
    /// Any other number.
    Float(f64),
    /// A string.
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

/// Calls `each` with every key and value of an `args` object, in order. Nothing if it is not an
/// object.
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
    // It was validated when the event was read, so the only error left is another type.
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

/// Strings of fields that ought to be strings; other types are taken as their text, because
/// writers exist that leave a name's quotes out when it is a number.
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

struct Id<'a>(Option<Scalar<'a>>);

impl<'de> Deserialize<'de> for Id<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Id<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a string")
            }
            fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Id<'de>, E> {
                Ok(Id(Some(Scalar::Text(Cow::Borrowed(s)))))
            }
            fn visit_str<E>(self, s: &str) -> Result<Id<'de>, E> {
                Ok(Id(Some(Scalar::Text(Cow::Owned(s.to_owned())))))
            }
            fn visit_i64<E>(self, n: i64) -> Result<Id<'de>, E> {
                Ok(Id(Some(Scalar::Int(n))))
            }
            fn visit_u64<E>(self, n: u64) -> Result<Id<'de>, E> {
                let small = i64::try_from(n).map(Scalar::Int);
                Ok(Id(Some(small.unwrap_or(Scalar::Big(n)))))
            }
            fn visit_f64<E>(self, x: f64) -> Result<Id<'de>, E> {
                Ok(Id(Some(Scalar::Float(x))))
            }
            fn visit_unit<E>(self) -> Result<Id<'de>, E> {
                Ok(Id(None))
            }
        }
        d.deserialize_any(V)
    }
}

enum Key<'a> {
    Phase,
    Name,
    Category,
    Pid,
    Tid,
    Time,
    Duration,
    Id,
    Binding,
    Scope,
    Args,
    Other(Cow<'a, str>),
}

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(d)?;
        Ok(match &*text {
            "ph" => Self::Phase,
            "name" => Self::Name,
            "cat" => Self::Category,
            "pid" => Self::Pid,
            "tid" => Self::Tid,
            "ts" => Self::Time,
            "dur" => Self::Duration,
            "id" => Self::Id,
            "bp" => Self::Binding,
            "s" => Self::Scope,
            "args" => Self::Args,
            _ => Self::Other(text),
        })
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
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    match key {
                        Key::Phase => {
                            let Loose(text) = map.next_value()?;
                            event.phase = text.map_or(0, |text| phase(&text));
                        }
                        Key::Name => event.name = map.next_value::<Loose<'de>>()?.0,
                        Key::Category => event.category = map.next_value::<Loose<'de>>()?.0,
                        Key::Pid => event.pid = map.next_value::<Id<'de>>()?.0,
                        Key::Tid => event.tid = map.next_value::<Id<'de>>()?.0,
                        Key::Time => event.time_ns = time_of(map.next_value()?, "ts")?,
                        Key::Duration => event.duration_ns = time_of(map.next_value()?, "dur")?,
                        Key::Id => event.id = map.next_value::<Id<'de>>()?.0,
                        Key::Binding => event.binding = map.next_value::<Loose<'de>>()?.0,
                        Key::Scope => event.scope = map.next_value::<Loose<'de>>()?.0,
                        Key::Args => event.args = Some(map.next_value()?),
                        Key::Other(key) => event.other.push((key, map.next_value()?)),
                    }
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

/// The first byte of a `ph`.
pub(crate) fn phase(text: &str) -> u8 {
    text.bytes().next().filter(u8::is_ascii).unwrap_or(0)
}

/// Times are numbers, or strings with numbers inside. `None`: it is something else.
pub(super) fn time(raw: Raw<'_>) -> Option<Option<i64>> {
    let text = raw.get();
    if text == "null" {
        return Some(None);
    }
    let digits = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    micros_to_ns(digits.as_bytes()).map(Some)
}

fn time_of<E: de::Error>(raw: Raw<'_>, key: &str) -> Result<Option<i64>, E> {
    time(raw).ok_or_else(|| {
        // It may be as long as it likes.
        let (text, more) = match raw.get().char_indices().nth(40) {
            Some((end, _)) => (&raw.get()[..end], "…"),
            None => (raw.get(), ""),
        };
        E::custom(format!("{key} is no time in microseconds: {text}{more}"))
    })
}
