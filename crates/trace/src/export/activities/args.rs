//! Converts arguments from JSON to typed values.

use std::borrow::Cow;
use std::fmt;

use model::activity::Value;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::chrome::event::Raw;
use crate::timeline::{Arg, ArgValue};

/// If a repetition of a key is noticed, the last value of the key counts. A repetition is noticed
/// only if the first occurrence of the key is among this many first keys.
const MOST_SEARCHED: usize = 256;

/// The keys and values of an object, in their order.
#[derive(Debug, Default)]
pub struct Args<'a>(Vec<(Cow<'a, str>, Typed<'a>)>);

#[derive(Debug)]
enum Typed<'a> {
    Text(Cow<'a, str>),
    Other(Value<'a>),
}

impl<'a> Args<'a> {
    /// Parses a JSON object; the result is empty if `json` is missing or not an object.
    pub fn of(json: Option<&'a str>) -> Self {
        json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
    }

    /// Returns the arguments in the form that a [`TimelineSink`](crate::timeline::TimelineSink)
    /// takes.
    pub fn list(&self) -> Vec<Arg<'_>> {
        self.0.iter().map(|(key, typed)| Arg { key, value: typed.value() }).collect()
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).and_then(|(_, typed)| match typed {
            Typed::Text(text) => Some(&**text),
            Typed::Other(_) => None,
        })
    }

    /// Returns the value of a key, if it is an integer that fits in `i64`.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.0.iter().find(|(known, _)| known == key).and_then(|(_, typed)| match typed {
            Typed::Other(Value::Uint(n)) => i64::try_from(*n).ok(),
            Typed::Other(Value::Int(n)) => Some(*n),
            _ => None,
        })
    }
}

impl<'a> Typed<'a> {
    fn value(&self) -> ArgValue<'_> {
        ArgValue::Plain(match self {
            Self::Text(text) => Value::Text(text),
            Self::Other(value) => *value,
        })
    }

    /// Nested values, numbers that are too large, and strings that cannot be decoded are kept as
    /// JSON.
    fn of(raw: Raw<'a>) -> Self {
        let json = raw.get();
        let value = match json.as_bytes().first() {
            Some(b'"') => match raw.parse::<Key<'_>>() {
                Ok(Key(text)) => return Self::Text(text),
                Err(_) => Value::Json(json),
            },
            Some(b'n') => Value::Null,
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'[' | b'{') | None => Value::Json(json),
            Some(_) => number(json),
        };
        Self::Other(value)
    }
}

fn number(json: &str) -> Value<'_> {
    if let Ok(n) = json.parse() {
        return Value::Uint(n);
    }
    if let Ok(n) = json.parse() {
        return Value::Int(n);
    }
    let is_float = json.contains(['.', 'e', 'E']);
    match json.parse::<f64>() {
        Ok(n) if is_float && n.is_finite() => Value::Float(n),
        _ => Value::Json(json),
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Args<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Args<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Args<'de>, M::Error> {
                let mut all = Args::default();
                while let Some(Key(key)) = map.next_key()? {
                    let typed = Typed::of(map.next_value()?);
                    let mut known = all.0.iter_mut().take(MOST_SEARCHED);
                    match known.find(|(known, _)| *known == key) {
                        Some((_, known)) => *known = typed,
                        None => all.0.push((key, typed)),
                    }
                }
                Ok(all)
            }
        }
        d.deserialize_map(V)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type() {
        let json = r#"{"a":"x\n\u00e9\"","b":true,"c":null,"d":18446744073709551615,"e":-3,"f":1.5,
            "g":[1,{"h":2}],"i":18446744073709551616,"j":1e999,"b":false,"k":-0,"l":"plain"}"#;
        let args = Args::of(Some(json));
        let plain = |key, value| Arg { key, value: ArgValue::Plain(value) };
        let expected = [
            plain("a", Value::Text("x\né\"")),
            plain("b", Value::Bool(false)),
            plain("c", Value::Null),
            plain("d", Value::Uint(u64::MAX)),
            plain("e", Value::Int(-3)),
            plain("f", Value::Float(1.5)),
            plain("g", Value::Json(r#"[1,{"h":2}]"#)),
            plain("i", Value::Json("18446744073709551616")),
            plain("j", Value::Json("1e999")),
            plain("k", Value::Int(0)),
            plain("l", Value::Text("plain")),
        ];
        assert_eq!(args.list(), expected);
        assert_eq!((args.text("l"), args.number("e")), (Some("plain"), Some(-3)));
        assert_eq!((args.text("e"), args.number("l"), args.number("d")), (None, None, None));
        assert_eq!(Args::of(Some("[1]")).list(), []);
        assert_eq!(Args::of(None).list(), []);
    }
}
