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
/// A bit of [`Entry::has`]: the process is named by [`Entry::process_text`], not by a number.
pub const NAMED_PROCESS: u16 = 16;
/// A bit of [`Entry::has`]: the thread is named by [`Entry::thread_text`], not by a number.
pub const NAMED_THREAD: u16 = 32;

/// A text. The bytes need not be valid UTF-8 and need not end with a zero byte.
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
    /// The value, if `kind` is [`TEXT`] or [`JSON`].
    pub text: Text,
    /// The value, if `kind` is [`INTEGER`] or [`UNSIGNED`].
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
    /// Scope of an instant event (one without a duration), a letter of Chrome's trace format.
    pub scope: u8,
    /// The fields that have a value: bits such as [`HAS_ID`].
    pub has: u16,
    /// Time of the entry, ns since 1970 UTC.
    pub time_ns: i64,
    /// Duration of the entry in ns, not negative.
    pub duration_ns: i64,
    /// Id of the arrow that starts or ends at this entry. The entries at both ends of an arrow have
    /// the same id.
    pub id: i64,
    /// The process of the entry, if [`NAMED_PROCESS`] is not set.
    pub process: i64,
    /// The thread of the entry, if [`NAMED_THREAD`] is not set.
    pub thread: i64,
    /// Name of the entry.
    pub name: Text,
    /// Category of the entry.
    pub category: Text,
    /// The process of the entry, if [`NAMED_PROCESS`] is set.
    pub process_text: Text,
    /// The thread of the entry, if [`NAMED_THREAD`] is set.
    pub thread_text: Text,
    /// Array of `argument_count` arguments.
    pub arguments: *const Argument,
    /// Number of arguments.
    pub argument_count: usize,
}

/// `counterpoint_torch_trace_t *`: a recording whose events the shim passes on. The address points
/// to data of the agent.
pub type Trace = *mut c_void;

/// The table of functions that the agent offers for recordings.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// Bytes of this struct.
    pub size: u32,
    /// Version of the table: [`VERSION`].
    pub version: u32,
    /// Writes a line to stderr, for the user.
    pub say: unsafe extern "C" fn(*const c_char),
    /// Begins a recording. The argument is the name of the program. Returns null if the agent does
    /// not record this process now.
    pub begin: unsafe extern "C" fn(Text) -> Trace,
    /// Adds a fact about the recording: a key and its JSON value.
    pub field: unsafe extern "C" fn(Trace, Text, Text),
    /// Adds an entry to the recording.
    pub entry: unsafe extern "C" fn(Trace, *const Entry),
    /// Ends the recording.
    pub end: unsafe extern "C" fn(Trace, u32) -> i32,
    /// Copies the path of a trace file to which PyTorch shall write a recording. Returns the path's
    /// length, or -1 if this process is not being recorded or if the path does not fit.
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
