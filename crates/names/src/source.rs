//! The interface of a source of names ([`NameSource`]), and the types of its answers.

use model::{Scale, Scope, Source, Unit};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::syntax::{Head, Modifiers};

/// A source of counter names: perf's own names, the PMUs of the machine, …
pub trait NameSource {
    /// The counters that `head` stands for; `None` if this source does not have such names, so that
    /// the next source is asked. There are several counters if several PMUs have the name (`cycles`
    /// of two kinds of cores, `uncore_imc/data_reads/` of eight controllers).
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>>;

    /// The names that `list` shows and that are suggested. Must be quick.
    fn entries(&self) -> Vec<Entry>;

    /// Further names, possibly thousands of them ([`Entry::bulk`]). They are read only when the user searches
    /// for a name.
    fn bulk(&self) -> Vec<Entry> {
        Vec::new()
    }
}

/// The thing that a name stands for, before modifiers and grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The source of the counter's values.
    pub source: Source,
    /// The unit of the counter's values after they are multiplied by `scale`.
    pub unit: Unit,
    /// How much one step of a raw value is, in `unit`.
    pub scale: Scale,
    /// Which threads the counter counts.
    pub scope: Scope,
    /// The PMU, if the name stands for counters of several PMUs. Such counters cannot be in one
    /// group.
    pub pmu: Option<String>,
    /// Modifiers that are part of the name (`perf::CYCLES:u`).
    pub modifiers: Modifiers,
    /// How views name the counter.
    pub name: Called,
}

/// How views name a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Called {
    #[default]
    AsTyped,
    /// By this name, followed by the modifiers that were typed.
    Instead(String),
    /// Exactly this name.
    Exactly(String),
}

impl Resolved {
    /// A counter of threads that is named by what was typed.
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

/// An error of a source. The resolver makes a [`NameError`](crate::NameError) of it, and adds the
/// place if the source does not know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub(crate) kind: NameErrorKind,
    pub(crate) at: Option<usize>,
    pub(crate) cause: Option<NameCause>,
}

impl Trouble {
    /// An error about the whole item.
    pub fn new(kind: NameErrorKind) -> Self {
        Self { kind, at: None, cause: None }
    }

    /// Adds the byte of the list at which the error is.
    pub fn at(mut self, at: usize) -> Self {
        self.at = Some(at);
        self
    }

    /// The same error, about the whole item.
    pub(crate) fn anywhere(self) -> Self {
        Self { at: None, ..self }
    }

    /// The same error with its cause.
    pub fn because(mut self, cause: NameCause) -> Self {
        self.cause = Some(cause);
        self
    }
}

/// One row of the catalogue of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What to type.
    pub name: String,
    /// What else can be typed.
    pub aliases: Vec<String>,
    /// `software`, `hardware`, `cache`, `AMD`, `PAPI`, `raw`, `pmu msr`, `table`, `perf list`,
    /// `tracepoint`, `breakpoint`, `uprobe`, `device cuda`, `simulated`.
    pub source: String,
    /// The unit of the row's values.
    pub unit: Unit,
    /// A description of one line.
    pub description: String,
    /// The name is a pattern to fill in (`rNNNN`) and not a counter.
    pub is_pattern: bool,
    /// The entry is one of thousands (a tracepoint, a vendor's name), and is not opened unless the user
    /// asks for it.
    pub bulk: bool,
}

impl Entry {
    /// An entry for one counter.
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

    /// An entry for a pattern to fill in.
    pub fn pattern(name: &str, source: &str, description: &str) -> Self {
        Self { is_pattern: true, ..Self::new(name, source, Unit::Count, description) }
    }
}
