//! Stores the kinds and names that are added to the published ones at run time.
//!
//! ```text
//!  label   0 … 65,535                    row of the table of published names
//!          producer << 16 | number       registered; producers from 1, numbers from 0
//! ```
//!
//! Each producer (an adapter, a plugin, an imported file) has its own range of numbers, so a
//! producer's numbers do not depend on what other producers register. The numbers of registered
//! names have a meaning only within one registry, so files also store the names.

use std::collections::HashMap;
use std::fmt;

use super::names::ROWS;
use super::{Generic, Kind, Vocabulary};

/// The number of a name with which an activity was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u32);

/// The number, from 1, of a producer that registers kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Producer(u16);

const RANGE: u32 = 1 << 16;

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    /// The generic kind that the name stands for; `None` if the name is a new kind.
    alias_of: Option<Generic>,
    /// The name in Kineto's vocabulary; `None` if it is the same as `name`.
    kineto: Option<&'static str>,
}

/// Names and their meanings, including the published names.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    producers: Vec<(String, Vec<Entry>)>,
    by_name: HashMap<String, Label>,
    /// The labels of registered names, by the name in lower case. Of several names that differ only
    /// in case, the first one is kept.
    by_lower_name: HashMap<String, Label>,
}

/// A name in a list of kinds that is not a known kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind {
    pub name: String,
    /// Byte offset of the name in the list.
    pub at: usize,
}

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "activity kind {:?} at byte {}: unknown", self.name, self.at)
    }
}

impl std::error::Error for UnknownKind {}

/// The reason why a kind was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is empty, contains a comma, or has spaces at its ends.
    BadName,
    /// The name already has a meaning.
    Taken(Label),
    /// The producer has used all 65,536 numbers of its range, or there are already 65,535
    /// producers.
    Full,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName => write!(f, "the name is empty, or has a comma or blanks at its ends"),
            Self::Taken(_) => write!(f, "the name is in use"),
            Self::Full => write!(f, "no number is left"),
        }
    }
}

impl std::error::Error for RegisterError {}

impl Label {
    /// Returns the label's number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl From<Generic> for Label {
    fn from(kind: Generic) -> Self {
        Self(kind as u32)
    }
}

impl Registry {
    /// Creates a registry with the published names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the producer with this name, and adds it if it is new.
    ///
    /// # Errors
    /// Fails if the name is new and there are already 65,535 producers.
    pub fn producer(&mut self, name: &str) -> Result<Producer, RegisterError> {
        let known = self.producers.iter().position(|(known, _)| known == name);
        let index = match known {
            Some(index) => index,
            None if self.producers.len() >= usize::from(u16::MAX) => {
                return Err(RegisterError::Full);
            }
            None => {
                self.producers.push((name.to_owned(), Vec::new()));
                self.producers.len() - 1
            }
        };
        Ok(Producer(index as u16 + 1))
    }

    /// Adds a new kind. `kineto` is the kind's name in Kineto's vocabulary; the default is `name`.
    ///
    /// # Errors
    /// Fails if the name is not valid, if it already has a meaning, or if the producer's range of
    /// numbers is full.
    pub fn register(
        &mut self,
        producer: Producer,
        name: &str,
        kineto: Option<&'static str>,
    ) -> Result<Label, RegisterError> {
        let bad = name.is_empty() || name.contains(',') || name.trim() != name;
        if bad {
            return Err(RegisterError::BadName);
        }
        match self.parse(name) {
            Some(label) => Err(RegisterError::Taken(label)),
            None => self.add(producer, name, None, kineto),
        }
    }

    /// Returns the label of a name from a file, and adds the name if it is new. If a new name
    /// differs from a name of a generic kind only in case, it becomes another name of that kind.
    /// Otherwise, it becomes a new kind.
    ///
    /// # Errors
    /// Fails if the name is new and the producer's range of numbers is full.
    pub fn note(&mut self, producer: Producer, name: &str) -> Result<Label, RegisterError> {
        if let Some(label) = self.exactly(name) {
            return Ok(label);
        }
        let alias_of = self.parse(name).and_then(|label| match self.kind(label) {
            Kind::Generic(generic) => Some(generic),
            Kind::Registered(_) => None,
        });
        self.add(producer, name, alias_of, None)
    }

    fn add(
        &mut self,
        producer: Producer,
        name: &str,
        alias_of: Option<Generic>,
        kineto: Option<&'static str>,
    ) -> Result<Label, RegisterError> {
        let index = usize::from(producer.0) - 1;
        let Some((_, entries)) = self.producers.get_mut(index) else {
            return Err(RegisterError::Full);
        };
        let number = u32::try_from(entries.len()).unwrap_or(RANGE);
        if number >= RANGE {
            return Err(RegisterError::Full);
        }
        entries.push(Entry { name: name.to_owned(), alias_of, kineto });
        let label = Label(u32::from(producer.0) * RANGE + number);
        self.by_name.insert(name.to_owned(), label);
        self.by_lower_name.entry(name.to_ascii_lowercase()).or_insert(label);
        Ok(label)
    }

    fn exactly(&self, name: &str) -> Option<Label> {
        let published = ROWS.iter().position(|row| row.name == name);
        published.map(|at| Label(at as u32)).or_else(|| self.by_name.get(name).copied())
    }

    /// Returns the label of a name, ignoring case, so that the constants of C and C++ headers
    /// (`GPU_MEMCPY`) are names too.
    pub fn parse(&self, name: &str) -> Option<Label> {
        self.exactly(name).or_else(|| {
            let published = ROWS.iter().position(|row| row.name.eq_ignore_ascii_case(name));
            let registered = || self.by_lower_name.get(&name.to_ascii_lowercase()).copied();
            published.map(|at| Label(at as u32)).or_else(registered)
        })
    }

    /// Parses a list such as `runtime, driver,kernel`. Spaces around names are ignored; an empty
    /// list has no kinds.
    ///
    /// # Errors
    /// Returns the first name that is not a kind. An empty name between commas is also an error.
    pub fn parse_list(&self, list: &str) -> Result<Vec<Label>, UnknownKind> {
        let mut labels = Vec::new();
        if list.trim().is_empty() {
            return Ok(labels);
        }
        let mut at = 0;
        for word in list.split(',') {
            let name = word.trim();
            let label = self.parse(name).ok_or_else(|| UnknownKind {
                name: name.to_owned(),
                at: at + (word.len() - word.trim_start().len()),
            })?;
            labels.push(label);
            at += word.len() + 1;
        }
        Ok(labels)
    }

    fn entry(&self, label: Label) -> Option<&Entry> {
        let producer = (label.0 / RANGE).checked_sub(1)? as usize;
        self.producers.get(producer)?.1.get((label.0 % RANGE) as usize)
    }

    /// Returns the kind that a label means.
    pub fn kind(&self, label: Label) -> Kind {
        match ROWS.get(label.0 as usize) {
            Some(row) => Kind::Generic(row.kind),
            None => match self.entry(label) {
                Some(Entry { alias_of: Some(generic), .. }) => Kind::Generic(*generic),
                _ => Kind::Registered(label.0),
            },
        }
    }

    /// Returns the name with which the activity was recorded; empty if this registry does not know
    /// the label.
    pub fn original(&self, label: Label) -> &str {
        match ROWS.get(label.0 as usize) {
            Some(row) => row.name,
            None => self.entry(label).map_or("", |entry| &entry.name),
        }
    }

    pub fn name(&self, label: Label, vocabulary: Vocabulary) -> &str {
        match (vocabulary, self.kind(label)) {
            (Vocabulary::Generic, Kind::Generic(generic)) => generic.name(),
            (Vocabulary::Kineto, Kind::Generic(generic)) if label.0 == generic as u32 => {
                generic.kineto_name()
            }
            (Vocabulary::Kineto, _) => {
                let kineto = self.entry(label).and_then(|entry| entry.kineto);
                kineto.unwrap_or_else(|| self.original(label))
            }
            (Vocabulary::Generic, Kind::Registered(_)) => self.original(label),
        }
    }
}
