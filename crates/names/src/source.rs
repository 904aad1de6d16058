//! What a kind of names offers: [`NameSource`], and what it answers.

use model::{Scale, Scope, Source, Unit};

use crate::cause::Cause;
use crate::error::NameErrorKind;
use crate::syntax::{Head, Modifiers};

/// A kind of names: perf's own, a machine's PMUs, …
pub trait NameSource {
    /// What `head` means; `None` if it is not this source's kind of name, so that the next one
    /// is asked. More than one where the machine has several PMUs that a name stands for
    /// (`cycles` of two kinds of cores, `uncore_imc/data_reads/` of eight controllers).
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>>;

    /// What this source can name, for `list` and for suggestions; quick.
    fn entries(&self) -> Vec<Entry>;

    /// Further names by the thousand ([`Entry::bulk`]): read only when a name is looked for.
    fn bulk(&self) -> Vec<Entry> {
        Vec::new()
    }
}

/// What a name stands for, before modifiers and grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Where values come from.
    pub source: Source,
    /// What they are measured in, once multiplied by `scale`.
    pub unit: Unit,
    /// One step of a raw value, in `unit`.
    pub scale: Scale,
    /// Whose occurrences it counts.
    pub scope: Scope,
    /// The PMU, where a name stands for counters of several: they cannot be in one group.
    pub pmu: Option<String>,
    /// Modifiers that are part of the name (`perf::CYCLES:u`).
    pub modifiers: Modifiers,
    /// What views call it.
    pub name: Called,
}

/// What views call a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Called {
    /// What was typed.
    #[default]
    AsTyped,
    /// This, followed by the modifiers that were typed.
    Instead(String),
    /// This and nothing else.
    Exactly(String),
}

impl Resolved {
    /// A counter of threads that is called what was typed.
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

/// A [`NameError`](crate::NameError) in the making: the resolver adds the place unless the source knows it better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub(crate) kind: NameErrorKind,
    pub(crate) at: Option<usize>,
    pub(crate) cause: Option<Cause>,
}

impl Trouble {
    /// At the beginning of the item.
    pub fn new(kind: NameErrorKind) -> Self {
        Self { kind, at: None, cause: None }
    }

    /// At this byte of the list.
    pub fn at(mut self, at: usize) -> Self {
        self.at = Some(at);
        self
    }

    /// At the beginning of the item after all.
    pub(crate) fn anywhere(self) -> Self {
        Self { at: None, ..self }
    }

    /// Adds what led to it.
    pub fn because(mut self, cause: Cause) -> Self {
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
    /// Of its values.
    pub unit: Unit,
    /// One line.
    pub description: String,
    /// The name is a form to fill in, not a counter.
    pub is_pattern: bool,
    /// One of thousands (a tracepoint, a vendor's table): not opened unless asked for.
    pub bulk: bool,
}

impl Entry {
    /// One counter.
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

    /// A form to fill in.
    pub fn pattern(name: &str, source: &str, description: &str) -> Self {
        Self { is_pattern: true, ..Self::new(name, source, Unit::Count, description) }
    }
}
