//! Defines libraries, the functions in them, and exports that are not functions of a library.

use crate::role::Role;
use crate::wire::{Decoder, Encoder, Truncated, wire};

/// Length in bytes of the longest name or path that is recorded; see `Loss::NameTruncated`.
pub const LONGEST_NAME: usize = 4095;

/// See [`crate::meta::Frame::Library`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The library's number in its process, starting at 0.
    pub id: u32,
    /// The name that the compiler gave the library, or the name of the host's virtual machine.
    pub name: String,
    /// The number of the library's host in [`crate::meta::Frame::Host`].
    pub host: u8,
    /// Version of IREE's executable library ABI: 5 or 6; 0 for other libraries.
    pub abi: u32,
    /// The feature bits in the library's header.
    pub features: u32,
    /// The kind of sanitizer in the library's header.
    pub sanitizer: u32,
    /// The moment when the library was first seen, in ticks.
    pub ticks: u64,
    /// The library's functions, in the order of their ordinals. Empty for a virtual machine.
    pub exports: Vec<Export>,
}

/// One function of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The export's number in the process. Records of calls contain this number.
    pub id: u32,
    /// The export's position in the library.
    pub ordinal: u32,
    /// Whether the user's filters let the function's calls be recorded. Calls may be missing
    /// nevertheless, if all stubs (code that replaces an exported function) were in use: see
    /// `Loss::SlotsExhausted`.
    pub recorded: bool,
    /// The name that the compiler gave the function.
    pub name: String,
    /// The tag that the compiler gave the function; often empty.
    pub tag: String,
    /// Source file of the function; empty if the compiler did not store it.
    pub source_path: String,
    /// Source line; 0 if unknown.
    pub source_line: u32,
    /// Workgroup size in x, y, z as declared; 0 if unknown.
    pub workgroup_size: [u32; 3],
    pub bindings: u32,
    /// Number of push constants.
    pub constants: u32,
    /// Local memory in pages of 4 KiB.
    pub local_memory_pages: u32,
}

/// See [`crate::meta::Frame::Op`]. For the parallel regions of an op and for their tasks, the name,
/// arguments and device are those of the op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpExport {
    /// The export's number in the process, which differs from every [`Export::id`].
    pub id: u32,
    /// The [`Library::id`] of the [`Library`] to which the export is assigned. It usually stands
    /// for a virtual machine of the host.
    pub library: u32,
    /// The role of the export's calls.
    pub role: Role,
    /// Name of the op or run, or of another range of time that is recorded as a call.
    pub name: String,
    /// Types and shapes of the op's tensor arguments: `float32[1, 64], float32[64, 64]`. Results
    /// that are passed as arguments are included. Empty if the op has no tensor arguments, or if
    /// they are not stored.
    pub arguments: String,
    /// Type and number of the device of the op's last tensor argument: `cpu0`. Empty if the op has
    /// no tensor arguments, or if they are not stored.
    pub device: String,
    /// Whether calls may return before the device has finished. If so, the recorded durations
    /// contain only the time for launching the work.
    pub asynchronous: bool,
}

wire!(Library { id, name as name, host, abi, features, sanitizer, ticks, exports });
wire!(Export {
    id, ordinal, recorded, name as name, tag as name, source_path as name, source_line,
    workgroup_size, bindings, constants, local_memory_pages
});
wire!(OpExport { id, library, role, asynchronous, name as name, arguments, device as name });

/// Writes and reads a name. The reader shortens a name that is longer than [`LONGEST_NAME`].
/// Otherwise, long names in a damaged file would make reports very large, because reports repeat
/// names.
mod name {
    use super::{Decoder, Encoder, LONGEST_NAME, Truncated};

    pub(super) fn put(name: &str, e: &mut Encoder) {
        e.str(name);
    }
    pub(super) fn get(d: &mut Decoder<'_>) -> Result<String, Truncated> {
        let bytes = d.bytes()?;
        Ok(String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_NAME)]).into_owned())
    }
}
