//! Defines the interface of a source of counter names.

use model::{Scale, Scope, Source, Unit};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::syntax::{Head, Modifiers};

/// A source of counter names: perf's own names, the PMUs of the machine, and so on.
pub trait NameSource {
    /// Returns the counters that `head` stands for, or `None` to ask the next source. There are
    /// several counters if several PMUs have the name (`cycles` of two kinds of cores,
    /// `uncore_imc/data_reads/` of eight controllers).
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>>;

    /// Returns the names that the command `list` shows and that errors suggest. This must be quick.
    fn entries(&self) -> Vec<Entry>;

    /// Returns further names, possibly thousands ([`Entry::bulk`]), for a search or for suggestions
    /// about an unknown name.
    fn bulk(&self) -> Vec<Entry> {
        Vec::new()
    }
}

/// The counter that a name stands for, before modifiers and grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Where the values come from.
    pub source: Source,
    /// The unit after multiplication by `scale`.
    pub unit: Unit,
    /// The factor that converts a raw value to `unit`.
    pub scale: Scale,
    /// The scope of the counter: the recording's threads, or certain CPUs.
    pub scope: Scope,
    /// The counter's PMU, if the name stands for counters of several PMUs: counters of different
    /// PMUs cannot be in one group.
    pub pmu: Option<String>,
    /// Modifiers that are part of the name (`perf::CYCLES:u`).
    pub modifiers: Modifiers,
    /// The name in views.
    pub name: Called,
}

/// How views name a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Called {
    #[default]
    AsTyped,
    /// This text, followed by the modifiers that were typed.
    Instead(String),
    /// This text.
    Exactly(String),
}

impl Resolved {
    /// Makes a counter of threads that is named as it was typed.
    pub fn new(source: Source, unit: Unit) -> Self {
        Self {
            source,
            unit,
            scale: Scale::ONE,
            scope: Scope::Thread,
            pmu: None,
            modifiers: Modifiers::default(),
            name: Called::AsTyped,
        }
    }
}

/// An error of a source of names. The resolver converts it to a [`NameError`](crate::NameError).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub(crate) kind: NameErrorKind,
    pub(crate) at: Option<usize>,
    pub(crate) cause: Option<NameCause>,
}

impl Trouble {
    /// Makes an error about the whole item.
    pub fn new(kind: NameErrorKind) -> Self {
        Self { kind, at: None, cause: None }
    }

    /// Sets the byte of the list at which the error is.
    pub fn at(mut self, at: usize) -> Self {
        self.at = Some(at);
        self
    }

    /// Removes the place from the error, so that the error is about the whole item.
    pub(crate) fn anywhere(self) -> Self {
        Self { at: None, ..self }
    }

    /// Adds the cause of the error.
    pub fn because(mut self, cause: NameCause) -> Self {
        self.cause = Some(cause);
        self
    }
}

/// One row of the catalogue of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The text to type.
    pub name: String,
    /// Other texts that can be typed.
    pub aliases: Vec<String>,
    /// For example `software`, `AMD`, `pmu msr`, `tracepoint` or `device cuda`.
    pub source: String,
    /// The unit of the values.
    pub unit: Unit,
    /// A description of one line.
    pub description: String,
    /// Whether the name is a pattern to fill in (`rNNNN`).
    pub is_pattern: bool,
    /// Whether there are thousands of such entries. `list` tries to open such counters only if it
    /// shows few of them, or if the user asks for that.
    pub bulk: bool,
}

impl Entry {
    /// Makes an entry for one counter.
    pub fn new(
        name: impl Into<String>,
        source: impl Into<String>,
        unit: Unit,
        description: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            aliases: Vec::new(),
            source: source.into(),
            unit,
            description: description.into(),
            is_pattern: false,
            bulk: false,
        }
    }

    /// Makes an entry for a pattern to fill in.
    pub fn pattern(name: &str, source: &str, description: &str) -> Self {
        Self { is_pattern: true, ..Self::new(name, source, Unit::Count, description) }
    }
}
