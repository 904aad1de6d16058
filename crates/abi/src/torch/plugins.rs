//! The tables through which profiler plugins run inside PyTorch's own profiler:
//! `include/counterpoint/torch_plugins.h`.

use core::ffi::{c_char, c_void};

/// The version of [`Table`].
pub const VERSION: u32 = 1;

/// A bit of [`Table::switches`]: PyTorch's profiler shall not use CUPTI.
pub const NO_CUPTI: u32 = 1;

/// A key and its JSON value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The key.
    pub key: *const c_char,
    /// One JSON value.
    pub json: *const c_char,
}

/// One value of a counter event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The name of the series.
    pub series: *const c_char,
    /// The value, a finite number.
    pub value: f64,
}

/// One event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Bytes of this struct.
    pub size: u32,
    /// Number of the event's type; see [`crate::kineto::EVENT_TYPES`].
    pub kind: u32,
    /// Begin, ns since 1970 UTC.
    pub start_ns: i64,
    /// End, ns since 1970 UTC, not before the begin.
    pub end_ns: i64,
    /// Correlation id; 0 if the event has none.
    pub id: i32,
    /// Number of the device; for work of the CPU, the process id.
    pub device: i32,
    /// Number of the stream; for work of the CPU, the thread id.
    pub resource: i32,
    /// Type of the flow; 0 if the event has no flow.
    pub flow_type: u32,
    /// Id of the flow, unique among the flows of plugins in a recording.
    pub flow_id: u32,
    /// 0 if the flow (an arrow between events) ends at this event, another number if the flow
    /// starts here.
    pub flow_is_start: u32,
    /// Name of the event; for a counter event, the name of the track.
    pub name: *const c_char,
    /// Array of `metadata_count` keys with JSON values.
    pub metadata: *const Pair,
    /// Number of keys.
    pub metadata_count: usize,
    /// Array of the `value_count` values of a counter event.
    pub values: *const Value,
    /// Number of values.
    pub value_count: usize,
}

/// The functions of the shim that receive events during a call of [`Table::process`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sink {
    /// Bytes of this struct.
    pub size: u32,
    /// The first argument of the functions below.
    pub handle: *mut c_void,
    /// Receives an event.
    pub event: Option<unsafe extern "C" fn(*mut c_void, *const Event)>,
    /// Receives the description of a device's row in the trace: device, sort index, name, label.
    pub device: Option<unsafe extern "C" fn(*mut c_void, i64, i64, *const c_char, *const c_char)>,
    /// Receives the description of a row for a stream or thread: device, resource, order, name.
    pub resource: Option<unsafe extern "C" fn(*mut c_void, i64, i64, i64, *const c_char)>,
}

/// A recording of one profiler. The address points to data of the agent, which the shim only passes
/// back.
pub type Session = *mut c_void;

/// The table `counterpoint_torch_plugins`: the functions that the agent offers for plugins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Bytes of this table.
    pub size: u32,
    /// Version of the table: [`VERSION`].
    pub version: u32,
    /// Writes a line to stderr, for the user.
    pub say: unsafe extern "C" fn(*const c_char),
    /// Returns the settings for PyTorch's profiler from the environment, as bits such as
    /// [`NO_CUPTI`].
    pub switches: extern "C" fn() -> u32,
    /// Loads the plugins and returns the number of profilers.
    pub load: extern "C" fn() -> u32,
    /// Returns the name of a profiler.
    pub name: extern "C" fn(u32) -> *const c_char,
    /// Creates a recording. The arguments are the number of the profiler, the types of events, the
    /// number of these types, and the configuration.
    pub create: unsafe extern "C" fn(u32, *const u32, usize, *const c_char) -> Session,
    /// Returns which stacks of correlation ids the plugin wants, as bits: 1 for ids of ops, 2 for
    /// ids of ranges that the program marks.
    pub stacks: unsafe extern "C" fn(Session) -> u32,
    /// Starts to collect events.
    pub start: unsafe extern "C" fn(Session) -> i32,
    /// Pauses or continues collecting.
    pub toggle: unsafe extern "C" fn(Session, u32) -> i32,
    /// Stops collecting events.
    pub stop: unsafe extern "C" fn(Session) -> i32,
    /// Hands over the events of a recording.
    pub process: unsafe extern "C" fn(Session, *const Sink) -> i32,
    /// Destroys a recording.
    pub destroy: unsafe extern "C" fn(Session),
    /// Pushes an id on a stack of the calling thread.
    pub push: unsafe extern "C" fn(Session, u32, u64),
    /// Pops the last id from a stack of the calling thread.
    pub pop: unsafe extern "C" fn(Session, u32),
}

const _: () = {
    assert!(size_of::<Pair>() == 16 && size_of::<Value>() == 16);
    assert!(size_of::<Event>() == 88 && core::mem::offset_of!(Event, name) == 48);
    assert!(core::mem::offset_of!(Event, id) == 24);
    assert!(core::mem::offset_of!(Event, value_count) == 80);
    assert!(size_of::<Sink>() == 40 && core::mem::offset_of!(Sink, resource) == 32);
    assert!(size_of::<Table>() == 112 && core::mem::offset_of!(Table, pop) == 104);
};
