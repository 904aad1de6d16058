//! Recognises whether a trace is one of our exports, by what precedes its events.

use std::collections::HashMap;
use std::io::Read;

use model::MAX_COUNTERS;
use serde_json::Value;

use super::document::{Facts, TRACE_SCHEMA};
use crate::chrome::event::{Event, Raw};
use crate::chrome::read::{Sink, read};

/// What precedes the events of one of our traces.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The object `counterpoint`.
    pub facts: Facts,
    /// `baseTimeNanoseconds`.
    pub base_ns: i64,
    /// Whether its losses are complete, because the object comes after the events.
    pub whole: bool,
}

impl Head {
    /// Parses the keys next to the events. `None` if the trace is not ours.
    pub fn of(facts: Value, base: Option<&Value>) -> Option<Self> {
        if facts.get("schema")?.as_str()? != TRACE_SCHEMA {
            return None;
        }
        let base_ns = base.and_then(|b| b.as_i64().or_else(|| b.as_str()?.parse().ok()))?;
        let facts: Facts = serde_json::from_value(facts).ok()?;
        let manifest = &facts.manifest;
        let passes = manifest.passes;
        let sound = manifest.counters.len() <= MAX_COUNTERS
            && passes as usize <= MAX_COUNTERS
            && facts.processes.iter().all(|p| p.process.pass < passes.max(1))
            && facts.tracks.iter().all(|t| is_word(&t.name));
        sound.then_some(Self { facts, base_ns, whole: false })
    }

    /// Reads a trace up to its first event. `None` if the head is not ours, or if the file is not a
    /// trace.
    pub fn look(file: impl Read) -> Option<Self> {
        #[derive(Default)]
        struct Before(HashMap<String, Value>);
        impl Sink for Before {
            fn event(&mut self, _: u64, _: &Event<'_>) -> Result<(), String> {
                Err(String::new())
            }
            fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
                if ["counterpoint", "baseTimeNanoseconds"].contains(&key) {
                    self.0.extend(value.parse().ok().map(|value| (key.to_owned(), value)));
                }
                Ok(())
            }
        }
        let mut before = Before::default();
        let _ = read(file, &mut before);
        let facts = before.0.remove("counterpoint")?;
        Self::of(facts, before.0.get("baseTimeNanoseconds"))
    }
}

/// Whether a name is a single path component without special meaning.
fn is_word(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}
