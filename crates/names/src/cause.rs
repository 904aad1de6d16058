//! What is known about an error beyond its message: the facts that advice needs. This crate gives
//! no advice: `crates/cli/src/advice` says what to type instead.

/// What led to a [`NameError`](crate::NameError), with values. A new variant needs advice in the
/// command line; the enum is exhaustive so that the compiler asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameCause {
    /// Other names are spelled like this one. The nearest is first; never empty.
    Near(Vec<String>),
    /// This can be typed instead.
    Instead(String),
    /// A quote or slash is open, at this byte of the list.
    OpenedAt(usize),
    /// The letters are modifiers, but a second colon separates them.
    SeparatedModifiers,
    /// Only a number can be after `mem:`.
    AddressExpected,
    /// A tracepoint has one term, its filter.
    OneFilter,
    /// The list has more counters than a profile can hold.
    TooMany,
    /// The vendor's tables could not be read, for this reason.
    Tables(String),
    /// The table of the processor has these terms for the counter.
    TableRow(String),
    /// The counter belongs to another processor.
    OtherProcessor,

    /// A simulated counter needs a name and `readings=`.
    ScriptIncomplete,
    /// A simulated counter does not have this term.
    ScriptTerm,

    /// sysfs shows no PMU at all.
    NoPmus,
    /// The machine has only these PMUs.
    Pmus(Vec<String>),
    /// Some events and then some terms of the PMU.
    Terms(Vec<String>),
    /// The name is not a term, but a file in `caps`, which says what the PMU can do: `NAME =
    /// VALUE`.
    Capability(String),
    /// Uprobes have a spelling of their own.
    UprobePmu,
    /// Kernel probes are counted as tracepoints.
    KprobePmu,

    /// A pattern stands for several tracepoints, and a list takes single ones.
    TracepointPattern(String),
    /// tracefs may not be read.
    ClosedTracefs,
    /// tracefs is not mounted.
    NoTracefs,
    /// The tracepoint has these fields.
    Fields(Vec<String>),

    /// The kernel has no uprobes.
    NoUprobes,
    /// The file was looked for in PATH, where libraries are not.
    NotInPath,
    /// The place is not the entry of a function, so a return probe would do damage.
    NotAnEntry,
    /// Only the implementations of an indirect function have offsets.
    OffsetIntoIndirect,
    /// The code chooses an implementation of a function. This is the counter of the function.
    ChoosingCode(String),
    /// The file has the function in these versions.
    Versions(Vec<String>),
    /// The name means several versions, and none of them is the default.
    NoDefaultVersion(Vec<String>),
    /// The name means functions at these offsets of the file.
    Places(Vec<String>),
    /// The file calls the function, and another file defines it.
    Imported(String),
    /// The file has no symbols.
    NoSymbols,
    /// The file has symbols, but none is spelled like this one.
    NoSuchSymbol,
    /// An indirect function with these implementations; none if they are not known.
    Implementations(Vec<String>),

    /// The list of presets has no name that is spelled like this one.
    NoSuchPreset,
    /// The nearest thing to the PAPI preset, in words.
    NearestPreset(&'static str),
    /// Only the vendor has a counter for it.
    VendorOnly,
    /// Only perf's spelling of a vendor's names is known.
    VendorSpelling,
    /// No name of perf's is spelled like this one.
    NoSuchPerfName,
    /// An attribute after `perf::NAME` that is not known.
    PerfAttribute,
    /// The preset has parts for single and double precision.
    Precisions(&'static [&'static str]),
    /// The preset is a sum of these counters, each times its weight.
    WeightedSum(&'static [(u32, &'static str)]),

    /// The processor's counters have no component.
    NoComponent,
    Components(Vec<String>),
}
