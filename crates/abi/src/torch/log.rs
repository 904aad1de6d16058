//! PyTorch's recordings without JSON: `include/counterpoint/torch_log.h`.

use core::ffi::{c_char, c_void};

/// The version of [`Table`].
pub const VERSION: u32 = 1;

/// Kinds of [`Argument`].
pub const INTEGER: u32 = 0;
/// The integer's bits are those of one without a sign.
pub const UNSIGNED: u32 = 1;
/// A text.
pub const TEXT: u32 = 2;
/// One JSON value.
pub const JSON: u32 = 3;

/// A bit of [`Entry::has`]: the entry has a category.
pub const HAS_CATEGORY: u16 = 1;
/// The entry has a duration.
pub const HAS_DURATION: u16 = 2;
/// The entry has an id.
pub const HAS_ID: u16 = 4;
/// The entry has a scope.
pub const HAS_SCOPE: u16 = 8;
/// The process of the entry is a text.
pub const NAMED_PROCESS: u16 = 16;
/// The thread of the entry is a text.
pub const NAMED_THREAD: u16 = 32;

/// Any bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// The bytes; may be null if there are none.
    pub data: *const u8,
    /// How many.
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
    /// [`INTEGER`], [`UNSIGNED`], [`TEXT`] or [`JSON`].
    pub kind: u32,
    /// 0.
    pub reserved: u32,
}

/// One event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Bytes of this struct.
    pub size: u32,
    /// The phase of Chrome's trace format.
    pub phase: u8,
    /// The scope of a moment.
    pub scope: u8,
    /// Which fields have a value: bits as above.
    pub has: u16,
    /// When, ns since 1970 UTC.
    pub time_ns: i64,
    /// How long, ns, not negative.
    pub duration_ns: i64,
    /// The number of an arrow.
    pub id: i64,
    /// The process, if it is a number.
    pub process: i64,
    /// The thread, if it is a number.
    pub thread: i64,
    /// The name.
    pub name: Text,
    /// The category.
    pub category: Text,
    /// The process, if it is a text.
    pub process_text: Text,
    /// The thread, if it is a text.
    pub thread_text: Text,
    /// The arguments.
    pub arguments: *const Argument,
    /// How many.
    pub argument_count: usize,
}

/// `counterpoint_torch_trace_t *`.
pub type Trace = *mut c_void;

/// The functions.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// Bytes of this struct.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// Writes a line for the user.
    pub say: unsafe extern "C" fn(*const c_char),
    /// Begins a recording.
    pub begin: unsafe extern "C" fn(Text) -> Trace,
    /// A fact about the trace.
    pub field: unsafe extern "C" fn(Trace, Text, Text),
    /// An event.
    pub entry: unsafe extern "C" fn(Trace, *const Entry),
    /// Ends the trace.
    pub end: unsafe extern "C" fn(Trace, u32) -> i32,
    /// A path for a recording as a trace file.
    pub file: unsafe extern "C" fn(*mut c_char, usize) -> i64,
    /// Counts a recording that PyTorch left invalid.
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
