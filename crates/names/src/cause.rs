//! Defines the causes of errors in counter lists, from which advice is made in addition to the
//! error's message. This crate gives no advice: `crates/cli/src/advice` decides which other input
//! to suggest.

/// The cause of a [`NameError`](crate::NameError), with the values that advice about the error can
/// name. The enum is exhaustive, so the compiler reports a variant without advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameCause {
    /// Names with a similar spelling, the nearest first.
    Near(Vec<String>),
    /// A text that can be typed instead.
    Instead(String),
    /// A quote or slash at this byte is not closed.
    OpenedAt(usize),
    /// All letters are modifiers, but a second colon separates them.
    SeparatedModifiers,
    /// Only a number can follow `mem:`.
    AddressExpected,
    /// A tracepoint can have only one term, `filter=`.
    OneFilter,
    /// The list has more counters than fit into a profile.
    TooMany,
    /// Why the vendor's tables could not be read.
    Tables(String),
    /// The table of the processor has these terms for the counter.
    TableRow(String),
    /// The counter belongs to another processor.
    OtherProcessor,

    /// A simulated counter needs a name and `readings=`.
    ScriptIncomplete,
    /// A simulated counter does not have this term.
    ScriptTerm,

    /// sysfs shows no PMU.
    NoPmus,
    /// The PMU does not exist. These are the PMUs that do.
    Pmus(Vec<String>),
    /// The term does not exist. These are some of the PMU's events, followed by some of its terms.
    Terms(Vec<String>),
    /// The name is not a term, but a file in `caps`: `NAME = VALUE`.
    Capability(String),
    /// Uprobes have a syntax of their own.
    UprobePmu,
    /// Kernel probes are counted as tracepoints.
    KprobePmu,

    /// The name is a pattern, but a list takes single tracepoints.
    TracepointPattern(String),
    /// This user may not read tracefs.
    ClosedTracefs,
    /// tracefs is not mounted.
    NoTracefs,
    /// The tracepoint has these fields.
    Fields(Vec<String>),

    /// The kernel cannot count uprobes.
    NoUprobes,
    /// A file name without a slash is searched for in PATH only, whose directories usually hold
    /// programs and no libraries.
    NotInPath,
    /// The place is not the entry of a function, so a return probe could damage the stack there.
    NotAnEntry,
    /// An offset was added to the name of an indirect function, but has a meaning only in one of
    /// its implementations.
    OffsetIntoIndirect,
    /// At the typed offset is the code that chooses an implementation of an indirect function, and
    /// not the function. The text here is a counter that can be typed instead, with the function's
    /// name.
    ChoosingCode(String),
    /// The file has the function in these versions.
    Versions(Vec<String>),
    /// The name stands for several versions, and none of them is the default.
    NoDefaultVersion(Vec<String>),
    /// The functions of this name are at these offsets.
    Places(Vec<String>),
    /// The function is used in the file with this path, but another file defines it.
    Imported(String),
    /// The file has no symbols.
    NoSymbols,
    /// No symbol has a similar spelling.
    NoSuchSymbol,
    /// The function is indirect. These are up to eight of its implementations, if any are known.
    Implementations(Vec<String>),

    /// No preset has a similar spelling.
    NoSuchPreset,
    /// The nearest counter to the PAPI preset, in words.
    NearestPreset(&'static str),
    /// No generic counter has the preset's meaning. The processor's vendor may have one.
    VendorOnly,
    /// The text is a vendor's name in another spelling than perf's.
    VendorSpelling,
    /// perf has no name with a similar spelling.
    NoSuchPerfName,
    /// The attribute after `perf::NAME` is unknown.
    PerfAttribute,
    /// The preset has variants for single and double precision.
    Precisions(&'static [&'static str]),
    /// The preset is a sum of these counters, each multiplied by its weight.
    WeightedSum(&'static [(u32, &'static str)]),

    /// The processor's counters belong to no component in the sense of PAPI (`component:::name`).
    NoComponent,
    Components(Vec<String>),
}
