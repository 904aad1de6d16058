//! Defines the names of the parts of a profile, and of the files in the parts. A part is a
//! directory with data of one process. A process may have several parts, for example because of an
//! `exec`.

/// Name of the metadata file in a process's part.
pub const META_NAME: &str = "meta.cps";
/// Name of the file in a process's part to which the pages of records are appended.
pub const PAGES_NAME: &str = "pages.cps";
/// The directory in a profile that contains the parts.
pub const PARTS_NAME: &str = "processes";
/// The prefix and the suffix of the names of a part's event files ([`events_name`]).
pub const EVENTS_NAMES: (&str, &str) = ("plugins-", ".events");

/// Returns the name of the part of a process: `PID-STARTTIME-GENERATION`.
pub fn part_name(pid: u32, start_time: u64, generation: u32) -> String {
    format!("{pid}-{start_time}-{generation}")
}

/// Parts whose generation is at least this number contain events of profiler plugins, and no
/// records of a program. Their process id is that of the plugins' process.
pub const FIRST_PLUGIN_GENERATION: u32 = 1 << 20;

/// Returns the name of a part's event file with this number. The crate `plugin_host` defines the
/// content of such a file.
pub fn events_name(number: u32) -> String {
    format!("{}{number}{}", EVENTS_NAMES.0, EVENTS_NAMES.1)
}

/// The prefix and the suffix of the names of a part's trace files ([`trace_name`]).
pub const TRACE_NAMES: (&str, &str) = ("trace-", ".json");

/// Returns the name of a part's trace file with this number. PyTorch's profiler writes such files.
pub fn trace_name(number: u32) -> String {
    format!("{}{number}{}", TRACE_NAMES.0, TRACE_NAMES.1)
}

/// If `name` is the name of a part's trace file, returns the number in the name. PyTorch adds
/// `.tmp` to the name while it writes the file.
pub fn trace_number(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    let number = name.strip_prefix(TRACE_NAMES.0)?.strip_suffix(TRACE_NAMES.1)?;
    number.parse().ok()
}

/// If `name` is the name of a part's event file, returns the number in the name.
pub fn events_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix(EVENTS_NAMES.0)?.strip_suffix(EVENTS_NAMES.1)?;
    number.parse().ok()
}
