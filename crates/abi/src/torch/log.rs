//! The table through which the shim (a library inside PyTorch's process) passes the recordings of
//! PyTorch's profiler to the agent: `include/counterpoint/torch_log.h`.

use core::ffi::{c_char, c_void};

/// The version of [`Table`].
pub const VERSION: u32 = 1;

/// A kind of [`Argument`]: the value is a signed integer.
pub const INTEGER: u32 = 0;
/// A kind of [`Argument`]: the value is the bits of an unsigned integer.
pub const UNSIGNED: u32 = 1;
/// A kind of [`Argument`]: the value is a text.
pub const TEXT: u32 = 2;
/// A kind of [`Argument`]: the value is one JSON value.
pub const JSON: u32 = 3;

/// A bit of [`Entry::has`]: the entry has a category.
pub const HAS_CATEGORY: u16 = 1;
/// A bit of [`Entry::has`]: the entry has a duration.
pub const HAS_DURATION: u16 = 2;
/// A bit of [`Entry::has`]: the entry has an id.
pub const HAS_ID: u16 = 4;
/// A bit of [`Entry::has`]: the entry has a scope.
pub const HAS_SCOPE: u16 = 8;
/// A bit of [`Entry::has`]: [`Entry::process_text`] names the process, and not a number.
pub const NAMED_PROCESS: u16 = 16;
/// A bit of [`Entry::has`]: [`Entry::thread_text`] names the thread, and not a number.
pub const NAMED_THREAD: u16 = 32;

/// A sequence of any bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// Address of the bytes; may be null if there are none.
    pub data: *const u8,
    /// Number of bytes.
    pub length: usize,
}

/// An argument of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The argument's name.
    pub key: Text,
    /// The value, if it is a text.
    pub text: Text,
    /// The value, if it is an integer.
    pub integer: i64,
    /// Kind of the value: [`INTEGER`], [`UNSIGNED`], [`TEXT`] or [`JSON`].
    pub kind: u32,
    /// Reserved, 0.
    pub reserved: u32,
}

/// One event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Bytes of this struct.
    pub size: u32,
    /// Phase of the entry, a letter of Chrome's trace format.
    pub phase: u8,
    /// Scope of an entry that is a moment, a letter of Chrome's trace format.
    pub scope: u8,
    /// The fields that have a value: bits such as [`HAS_ID`].
    pub has: u16,
    /// Time of the entry, ns since 1970 UTC.
    pub time_ns: i64,
    /// Duration of the entry in ns, not negative.
    pub duration_ns: i64,
    /// Id of an arrow, which is the same at both ends.
    pub id: i64,
    /// The process, if it is a number.
    pub process: i64,
    /// The thread, if it is a number.
    pub thread: i64,
    /// Name of the entry.
    pub name: Text,
    /// Category of the entry.
    pub category: Text,
    /// The process, if it is a text.
    pub process_text: Text,
    /// The thread, if it is a text.
    pub thread_text: Text,
    /// Array of `argument_count` arguments.
    pub arguments: *const Argument,
    /// Number of arguments.
    pub argument_count: usize,
}

/// `counterpoint_torch_trace_t *`: the agent's address for a recording.
pub type Trace = *mut c_void;

/// The table of functions that the agent offers for recordings.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// Bytes of this struct.
    pub size: u32,
    /// Version of the table: [`VERSION`].
    pub version: u32,
    /// Writes a line for the user.
    pub say: unsafe extern "C" fn(*const c_char),
    /// Begins a recording; the argument names the program.
    pub begin: unsafe extern "C" fn(Text) -> Trace,
    /// Adds a fact about the recording: a key and its JSON value.
    pub field: unsafe extern "C" fn(Trace, Text, Text),
    /// Adds an entry to the recording.
    pub entry: unsafe extern "C" fn(Trace, *const Entry),
    /// Ends the recording.
    pub end: unsafe extern "C" fn(Trace, u32) -> i32,
    /// Writes the path at which PyTorch shall store a recording as a trace file. Returns its
    /// length.
    pub file: unsafe extern "C" fn(*mut c_char, usize) -> i64,
    /// Counts a recording that was not read because PyTorch's JSON is invalid.
    pub invalid: unsafe extern "C" fn(),
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Text>() == 16 && size_of::<Argument>() == 48);
    assert!(core::mem::offset_of!(Argument, kind) == 40);
    assert!(core::mem::offset_of!(Entry, has) == 6 && core::mem::offset_of!(Entry, time_ns) == 8);
    assert!(core::mem::offset_of!(Entry, name) == 48 && size_of::<Entry>() == 128);
    assert!(size_of::<Table>() == 64);
};
