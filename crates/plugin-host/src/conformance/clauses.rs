//! The clauses of the interface on which findings are based.

use std::fmt;

/// Where a clause comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The published header (`libkineto/include/KinetoDynamicPluginInterface.h`).
    Header,
    /// What the published host does or expects (`libkineto/src/dynamic_plugin`).
    Host,
    /// Neither the header nor the published host demands what the clause says, but other hosts, or
    /// later versions, may depend on it.
    Custom,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "published header",
            Self::Host => "published host",
            Self::Custom => "not in the published interface",
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Clause {
    /// The clause's name, which stays the same from version to version.
    pub id: &'static str,
    /// Where the clause comes from.
    pub source: Source,
    pub text: &'static str,
}

macro_rules! clauses {
    ($( $name:ident $id:literal $source:ident $text:literal; )*) => {
        $(
            #[doc = $text]
            pub(super) const $name: &Clause =
                &Clause { id: $id, source: Source::$source, text: $text };
        )*
        /// All clauses, in a sensible order for reading.
        pub const CLAUSES: &[&Clause] = &[ $( $name, )* ];
    };
}

clauses! {
    ENTRY "entry" Header
        "A plugin is a shared object that exports KinetoPlugin_register, which registers its profilers \
         and returns 0.";
    TABLE "table" Host
        "A profiler's table has at least the published size, and all functions but the four for \
         correlation ids. The host refuses any other.";
    QUERY "query" Header
        "profilerQuery writes the profiler's name, with a zero byte at its end, and the types that it \
         supports, and no more of either than the host has room for.";
    TYPES "types" Header
        "Types of events and flows are those of the header. A profiler supports at least one, and can \
         be created with any of them.";
    RESULT "result" Header
        "Each function returns 0 if it succeeded. The host calls profilerCreate, profilerStart, \
         profilerStop, profilerProcessEvents and profilerDestroy in this order, once for each recording.";
    RETURNS "returns" Header
        "The interface is one of C: each function returns to its caller, and throws nothing.";
    CORRELATION "correlation" Host
        "Ids are pushed and popped by any thread, by several at once, between profilerCreate and \
         profilerDestroy. The functions for it are optional.";
    BUILDER "builder" Header
        "A plugin hands over its events in profilerProcessEvents, with structs of the published sizes, \
         and addEvent comes before the calls about the last event. Each call may return -1.";
    NAMES "names" Header
        "For each event, a plugin calls addEvent and then setLastEventName.";
    METADATA "metadata" Header
        "A value of metadata is JSON: a text must have its own quotes, a list its brackets.";
    TIMES "times" Header
        "Times are nanoseconds since 1970 in UTC, and an event does not end before it begins.";
    FLOW "flow" Header
        "The two ends of a flow have the same id, which is not 0.";
    SIZES "sizes" Header
        "Structs are versioned by their size: fields are only added at the end, so a larger struct is \
         one of a later version, and a field that the size does not cover is not there.";
    ENABLED "enabled" Header
        "profilerCreate says which types are enabled.";
    HANDLE "handle" Host
        "After a profilerCreate that failed, the published host pushes and pops ids with a null handle.";
    ROBUST "robust" Custom
        "Calls with null pointers, or in an order that the published host never uses, are declined with \
         an error, and do not crash.";
    OVERLAP "overlap" Custom
        "Two recordings of one profiler may exist at the same time.";
    WRITERS "writers" Custom
        "Kineto's writers keep 32 bits of an event's id, and write names that are not ASCII, or have \
         quotes or backslashes, wrongly in some versions.";
    PYTORCH "pytorch" Custom
        "PyTorch requests the types cpu_op, cuda_runtime, cuda_driver, privateuse1_runtime and \
         privateuse1_driver for activity on the CPU, and does not start a profiler without any of them.";
    STATE "state" Header
        "The interface is that of state 92fa2ffc of Kineto's pull request 1148.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clause_has_a_name_of_its_own() {
        let mut ids: Vec<&str> = CLAUSES.iter().map(|clause| clause.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), CLAUSES.len());
        assert!(STATE.text.contains(abi::kineto::REVISION.commit));
        assert!(STATE.text.contains(&abi::kineto::PULL_REQUEST.to_string()));
    }
}
