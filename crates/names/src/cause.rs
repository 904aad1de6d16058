//! Defines the facts about an error in a counter list that advice needs in addition to the error's
//! message. This crate gives no advice: `crates/cli/src/advice` decides which other input to
//! suggest.

/// The cause of a [`NameError`](crate::NameError), with values. The command line has advice for
/// each variant; it matches all variants, so the compiler reports a variant without advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameCause {
    /// Other names with a similar spelling, the nearest first. The list is never empty.
    Near(Vec<String>),
    /// A text that can be typed in place of the name.
    Instead(String),
    /// A quote or slash at this byte of the list is not closed.
    OpenedAt(usize),
    /// All letters after the name are modifiers, but a second colon separates them.
    SeparatedModifiers,
    /// Only a number can follow `mem:`.
    AddressExpected,
    /// A tracepoint can have only one term, `filter=`.
    OneFilter,
    /// The list has more counters than fit into a profile.
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
    /// The typed PMU does not exist; the machine has these PMUs.
    Pmus(Vec<String>),
    /// The typed term does not exist. These are some of the PMU's events, followed by some of its
    /// terms.
    Terms(Vec<String>),
    /// The name is not a term, but a file in `caps`, which describes an ability of the PMU: `NAME =
    /// VALUE`.
    Capability(String),
    /// Uprobes have a syntax of their own.
    UprobePmu,
    /// Kernel probes are counted as tracepoints.
    KprobePmu,

    /// A pattern stands for several tracepoints, but a list takes single tracepoints.
    TracepointPattern(String),
    /// This user may not read tracefs.
    ClosedTracefs,
    /// tracefs is not mounted.
    NoTracefs,
    /// The tracepoint has these fields.
    Fields(Vec<String>),

    /// The kernel cannot count uprobes.
    NoUprobes,
    /// The file was searched for in PATH, which contains programs but no libraries.
    NotInPath,
    /// The place is not the entry of a function, so a return probe there could damage the program's
    /// stack.
    NotAnEntry,
    /// An offset was added to the name of an indirect function. An offset only has a meaning in one
    /// of its implementations.
    OffsetIntoIndirect,
    /// The probed code chooses an implementation of an indirect function. The value is the text
    /// that counts the function itself.
    ChoosingCode(String),
    /// The file has the function in these versions.
    Versions(Vec<String>),
    /// The name stands for several versions, and none of them is the default.
    NoDefaultVersion(Vec<String>),
    /// The name stands for functions at these offsets of the file.
    Places(Vec<String>),
    /// The file calls the function, and another file defines it.
    Imported(String),
    /// The file has no symbols.
    NoSymbols,
    /// The file has symbols, but none with a similar spelling.
    NoSuchSymbol,
    /// The function is indirect and has these implementations; the list is empty if they are not
    /// known.
    Implementations(Vec<String>),

    /// The list of presets has no name with a similar spelling.
    NoSuchPreset,
    /// The nearest counter to the PAPI preset, in words.
    NearestPreset(&'static str),
    /// No generic counter has the preset's meaning. The processor's vendor may have one under a
    /// name of its own.
    VendorOnly,
    /// The name is a vendor's name in a spelling that is not known; only perf's spelling of such
    /// names is known.
    VendorSpelling,
    /// perf has no name with a similar spelling.
    NoSuchPerfName,
    /// The attribute after `perf::NAME` is not known.
    PerfAttribute,
    /// The preset has variants for single and double precision.
    Precisions(&'static [&'static str]),
    /// The preset is a sum of these counters, each multiplied by its weight.
    WeightedSum(&'static [(u32, &'static str)]),

    /// The processor's counters belong to no component.
    NoComponent,
    Components(Vec<String>),
}
