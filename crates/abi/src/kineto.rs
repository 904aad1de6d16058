//! Kineto's interface for profiler plugins and Counterpoint's extension of it:
//! `include/counterpoint/kineto_plugin.h` and `kineto_plugin_extension.h`, in Rust.
//!
//! Function pointers are `Option`s, because any of them may be null in a struct that a plugin or a
//! host has filled in. Types of events and flows are plain numbers, because a plugin may write any
//! number.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;

/// The name of the function that a plugin exports to register its profilers.
pub const REGISTER_SYMBOL: &core::ffi::CStr = c"KinetoPlugin_register";
/// The name of the function that a plugin also exports if it uses the extension.
pub const EXTEND_SYMBOL: &core::ffi::CStr = c"CounterpointPlugin_extend";
/// The environment variable that names the directory of plugins.
pub const DIRECTORY_VARIABLE: &core::ffi::CStr = c"KINETO_PLUGIN_LIB_DIR_PATH";
/// The maximum length of a profiler's name in bytes, without the zero byte.
pub const NAME_BYTES: usize = 31;
/// The version of the extension.
pub const EXTENSION_VERSION: u32 = 3;
/// The smallest number of an event type that a plugin declares itself.
pub const FIRST_OWN_TYPE: u32 = 1024;

/// A state in which the interface was published. The interface has no version number, and some of
/// its changes kept the sizes of the structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The abbreviated id of the last commit of pull request [`PULL_REQUEST`] in which the
    /// interface has this state.
    pub commit: &'static str,
    /// Size of a profiler's table of functions ([`ProfilerInterface`]) in this state, in bytes.
    pub interface_bytes: usize,
    /// The differences between this state and [`REVISION`]; empty for [`REVISION`] itself.
    pub differs: &'static str,
}

/// Number of Kineto's pull request that published the interface.
pub const PULL_REQUEST: u32 = 1148;

/// The state of the interface that Counterpoint implements.
pub const REVISION: Revision = Revision { commit: "92fa2ffc", interface_bytes: 88, differs: "" };

/// Earlier states that are incompatible with [`REVISION`].
pub const OLDER: [Revision; 2] = [
    Revision {
        commit: "a5ccd64b",
        interface_bytes: 56,
        differs: "a profiler has no functions for correlation ids, and profilerQuery has no types",
    },
    Revision {
        commit: "30c7bd1c",
        interface_bytes: 88,
        differs: "the enabled types are arguments of profilerStart and not of profilerCreate",
    },
];

/// A published type of events. `model::activity` describes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventType {
    /// The type's number.
    pub number: u32,
    /// The type's name, as in `cat` of Kineto's traces and in Counterpoint's lists of kinds of
    /// events.
    pub name: &'static str,
}

const fn event(number: u32, name: &'static str) -> EventType {
    EventType { number, name }
}

/// The published types. The type with the number `n` has the index `n - 1`.
pub const EVENT_TYPES: [EventType; 24] = [
    event(1, "cpu_op"),
    event(2, "user_annotation"),
    event(3, "gpu_user_annotation"),
    event(4, "gpu_memcpy"),
    event(5, "gpu_memset"),
    event(6, "kernel"),
    event(7, "external_correlation"),
    event(8, "cuda_runtime"),
    event(9, "cuda_driver"),
    event(10, "cpu_instant_event"),
    event(11, "python_function"),
    event(12, "overhead"),
    event(13, "mtia_runtime"),
    event(14, "mtia_ccp_events"),
    event(15, "mtia_insight"),
    event(16, "cuda_sync"),
    event(17, "glow_runtime"),
    event(18, "cuda_profiler_range"),
    event(19, "hpu_op"),
    event(20, "xpu_runtime"),
    event(21, "collective_comm"),
    event(22, "gpu_pm_counter"),
    event(23, "privateuse1_runtime"),
    event(24, "privateuse1_driver"),
];
/// The number of the event type for values of counters.
pub const TYPE_COUNTER: u32 = 22;
/// The number of the event type for moments (events without a duration).
pub const TYPE_INSTANT: u32 = 10;

/// Returns the published type with this number.
pub fn event_type(number: u32) -> Option<EventType> {
    let index = (number as usize).checked_sub(1)?;
    EVENT_TYPES.get(index).copied()
}

/// The type of a flow (an arrow between two events) from the forward to the backward pass.
pub const FLOW_FWD_BWD: u32 = 1;
/// The type of a flow from an event on the CPU to the work that the event launched on a device.
pub const FLOW_ASYNC_CPU_GPU: u32 = 2;

/// One event that a plugin hands over.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileEvent {
    /// Size of the plugin's struct: at least [`ProfileEvent::SIZE`].
    pub size: usize,
    /// Number of the type.
    pub event_type: u32,
    /// Begin, ns since 1970 UTC.
    pub start_ns: i64,
    /// End, ns since 1970 UTC.
    pub end_ns: i64,
    /// Correlation id of the event.
    pub id: i64,
    /// Number of the device; for work of the CPU, the process id.
    pub device: i32,
    /// Number of the stream; for work of the CPU, the thread id.
    pub resource: i32,
}

/// One end of an arrow between two events.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileEventFlow {
    /// Size of the plugin's struct: at least [`ProfileEventFlow::SIZE`].
    pub size: usize,
    /// Type of the flow: [`FLOW_FWD_BWD`] or [`FLOW_ASYNC_CPU_GPU`].
    pub flow_type: u32,
    /// Id of the flow, the same at both ends and not 0.
    pub id: u32,
    /// Not 0 where the arrow starts; 0 where it ends.
    pub is_start: u8,
}

/// The row that a view shows for a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProfileDeviceInfo {
    /// Size of the plugin's struct: at least [`ProfileDeviceInfo::SIZE`].
    pub size: usize,
    /// Number of the device.
    pub device: i64,
    /// Position of the row: a lower number is higher up.
    pub sort_index: i64,
    /// Name of the device, or null.
    pub name: *const c_char,
    /// Label of the row, or null.
    pub label: *const c_char,
}

/// The row that a view shows for a stream or a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProfileResourceInfo {
    /// Size of the plugin's struct: at least [`ProfileResourceInfo::SIZE`].
    pub size: usize,
    /// Number of the device; for a thread of the CPU, the process id.
    pub device: i32,
    /// Number of the stream, or the thread id.
    pub resource: i32,
    /// Position of the row: a lower number is higher up.
    pub order: i32,
    /// Name of the stream or thread, or null.
    pub name: *const c_char,
}

/// The functions through which a plugin hands over its events.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceBuilder {
    /// Size of the host's struct: at least [`TraceBuilder::SIZE`].
    pub size: usize,
    /// First argument of the functions; only the host knows its meaning.
    pub handle: *mut c_void,
    /// Begins an event. The functions whose names contain `last` complete it.
    pub add_event: Option<unsafe extern "C" fn(*mut c_void, *const ProfileEvent) -> c_int>,
    /// Names the event that was begun last.
    pub set_last_name: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>,
    /// Makes an arrow begin or end at the event that was begun last.
    pub set_last_flow: Option<unsafe extern "C" fn(*mut c_void, *const ProfileEventFlow) -> c_int>,
    /// Adds a key with a JSON value to the event that was begun last.
    pub add_last_metadata:
        Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> c_int>,
    /// Describes the row of a device.
    pub add_device: Option<unsafe extern "C" fn(*mut c_void, *const ProfileDeviceInfo) -> c_int>,
    /// Describes the row of a stream or thread.
    pub add_resource:
        Option<unsafe extern "C" fn(*mut c_void, *const ProfileResourceInfo) -> c_int>,
}

/// Arguments of `profilerCreate`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CreateParams {
    /// Size of the host's struct: at least [`CreateParams::SIZE`].
    pub size: usize,
    /// Result: an address by which the plugin recognises the recording.
    pub profiler: *mut c_void,
    /// The types of events to record.
    pub types: *mut u32,
    /// Number of types.
    pub types_length: usize,
}

/// Arguments of `profilerDestroy`, `profilerStart`, `profilerStop` and the two pop functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HandleParams {
    /// Size of the host's struct: at least [`HandleParams::SIZE`].
    pub size: usize,
    /// The address that `profilerCreate` returned.
    pub profiler: *mut c_void,
}

/// Arguments of `profilerQuery`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueryParams {
    /// Size of the host's struct: at least [`QueryParams::SIZE`].
    pub size: usize,
    /// Null, because the host asks before there is a recording.
    pub profiler: *mut c_void,
    /// Room for the name with its zero byte.
    pub name: *mut c_char,
    /// The maximum length of the name, without the zero byte: [`NAME_BYTES`].
    pub name_length: usize,
    /// Room for the types that the profiler supports.
    pub types: *mut u32,
    /// Number of types for which there is room.
    pub types_length: usize,
}

/// Arguments of `profilerProcessEvents` and of the extension's flush.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProcessParams {
    /// Size of the host's struct: at least [`ProcessParams::SIZE`].
    pub size: usize,
    /// The address that `profilerCreate` returned.
    pub profiler: *mut c_void,
    /// The functions to which the plugin passes its events. They are valid during the call.
    pub builder: *const TraceBuilder,
}

/// Arguments of the two push functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PushParams {
    /// Size of the host's struct: at least [`PushParams::SIZE`].
    pub size: usize,
    /// The correlation id.
    pub id: u64,
    /// The address that `profilerCreate` returned.
    pub profiler: *mut c_void,
}

/// A function of a profiler.
pub type Function<P> = Option<unsafe extern "C" fn(*mut P) -> c_int>;

/// The functions of a profiler, which a plugin registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProfilerInterface {
    /// Size of the plugin's struct: at least [`ProfilerInterface::SIZE`].
    pub size: usize,
    /// Creates a recording.
    pub create: Function<CreateParams>,
    /// Destroys a recording.
    pub destroy: Function<HandleParams>,
    /// Returns the profiler's name and the types that it supports.
    pub query: Function<QueryParams>,
    /// Starts to collect events.
    pub start: Function<HandleParams>,
    /// Stops collecting events.
    pub stop: Function<HandleParams>,
    /// Pushes the correlation id of an op. May be null.
    pub push_correlation: Function<PushParams>,
    /// Pops the correlation id of an op. May be null.
    pub pop_correlation: Function<HandleParams>,
    /// Pushes the correlation id of a range that the program marked. May be null.
    pub push_user_correlation: Function<PushParams>,
    /// Pops the correlation id of a range that the program marked. May be null.
    pub pop_user_correlation: Function<HandleParams>,
    /// Hands over the events of a recording.
    pub process_events: Function<ProcessParams>,
}

/// The argument of `KinetoPlugin_register`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    /// Size of the host's struct: at least [`Registry::SIZE`].
    pub size: usize,
    /// First argument of the function; only the host knows its meaning.
    pub handle: *mut c_void,
    /// Registers a profiler. The host copies the struct with the profiler's functions.
    pub register_profiler:
        Option<unsafe extern "C" fn(*mut c_void, *const ProfilerInterface) -> c_int>,
}

/// The type of `KinetoPlugin_register`.
pub type Register = unsafe extern "C" fn(*const Registry) -> c_int;

/// A value of a counter track.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Size of the plugin's struct: at least [`Counter::SIZE`].
    pub size: usize,
    /// Time of the value, ns since 1970 UTC.
    pub time_ns: i64,
    /// Number of the device; -1 if the value is about the whole machine.
    pub device: i32,
    /// Reserved, 0.
    pub reserved: i32,
    /// Name of the track.
    pub track: *const c_char,
    /// Name of the series in the track.
    pub series: *const c_char,
    /// Unit of the value; null or empty if it has none.
    pub unit: *const c_char,
    /// The value, a finite number.
    pub value: f64,
}

/// The functions that a host offers to plugins as a part of the extension. The struct lives as long
/// as the process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Size of the host's struct: at least [`Host::FIRST_SIZE`].
    pub size: usize,
    /// Version of the extension that the host implements.
    pub version: u32,
    /// First argument of `declare_type`, `log` and `request_flush`; only the host knows its
    /// meaning.
    pub handle: *mut c_void,
    /// Declares a type of events and returns its number.
    pub declare_type: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u32) -> u32>,
    /// Adds a counter's value. The first argument is the handle of a trace builder.
    pub add_counter: Option<unsafe extern "C" fn(*mut c_void, *const Counter) -> c_int>,
    /// Names a thread. The first argument is the handle of a trace builder.
    pub set_thread_name:
        Option<unsafe extern "C" fn(*mut c_void, i32, i32, *const c_char) -> c_int>,
    /// Shows a line to the user.
    pub log: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char)>,
    /// Since version 2: asks the host to call the plugin's `flush` for a recording on the calling
    /// thread, before this function returns. The second argument is the address that
    /// `profilerCreate` returned.
    pub request_flush: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
    /// Since version 3: adds the third argument to the amount of missing data of one kind. The
    /// second argument is the kind, a number such as [`MISSING_TIMES`]. The first argument is the
    /// handle of a trace builder.
    pub add_missing: Option<unsafe extern "C" fn(*mut c_void, u32, u64) -> c_int>,
}

/// A kind of missing data: events for which the plugin's memory had no room.
pub const MISSING_OVERFLOW: u32 = 1;
/// A kind of missing data: commands whose times on the device are unknown.
pub const MISSING_TIMES: u32 = 2;
/// A kind of missing data: work of a device without the counters that were asked for.
pub const MISSING_COUNTERS: u32 = 3;

impl Host {
    /// Size of the struct in version 1, which ends with `log`.
    pub const FIRST_SIZE: usize = 56;
}

/// Arguments of `configure`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConfigureParams {
    /// Size of the host's struct: at least [`ConfigureParams::SIZE`].
    pub size: usize,
    /// The address that `profilerCreate` returned.
    pub profiler: *mut c_void,
    /// The text that the user gave; empty if there is none, never null.
    pub configuration: *const c_char,
    /// Planned time between `profilerCreate` and `profilerStart`, in ns.
    pub warmup_ns: i64,
    /// Bytes that the plugin may keep until it hands over its events; 0 if no limit was given.
    pub max_buffer_bytes: u64,
}

/// Arguments of `toggle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ToggleParams {
    /// Size of the host's struct: at least [`ToggleParams::SIZE`].
    pub size: usize,
    /// The address that `profilerCreate` returned.
    pub profiler: *mut c_void,
    /// 0 to collect nothing until the next call of `toggle`; another number to continue.
    pub enabled: u32,
}

/// The functions that a plugin offers to the host if it uses Counterpoint's extension of the
/// interface. Except for `size`, the host passes the struct filled with zeros, and the plugin fills
/// in its functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// Size of the host's struct. The plugin sets only fields within this size.
    pub size: usize,
    /// Receives the user's settings, before `profilerStart` is called. May be null.
    pub configure: Option<unsafe extern "C" fn(*const ConfigureParams) -> c_int>,
    /// Pauses or continues collecting. May be null.
    pub toggle: Option<unsafe extern "C" fn(*const ToggleParams) -> c_int>,
    /// Hands over the events that are complete, while the recording continues. May be null.
    pub flush: Function<ProcessParams>,
}

/// The type of `CounterpointPlugin_extend`.
pub type Extend = unsafe extern "C" fn(*const Host, *mut Extension) -> c_int;

/// Defines the constant `SIZE` of structs whose first field is their size.
macro_rules! sized {
    ($( $type:ident $last:ident $size:literal; )*) => { $(
        impl $type {
            /// Number of bytes up to the end of the last field, without padding: the value to store
            /// in `size`.
            pub const SIZE: usize = $size;
        }
        const _: () = assert!(offset_of!($type, size) == 0);
        const _: () = assert!(size_of::<$type>() == ($size as usize).next_multiple_of(8));
        const _: () = assert!(offset_of!($type, $last) < $size);
    )* };
}

sized! {
    ProfileEvent resource 48;
    ProfileEventFlow is_start 17;
    ProfileDeviceInfo label 40;
    ProfileResourceInfo name 32;
    TraceBuilder add_resource 64;
    CreateParams types_length 32;
    HandleParams profiler 16;
    QueryParams types_length 48;
    ProcessParams builder 24;
    PushParams profiler 24;
    ProfilerInterface process_events 88;
    Registry register_profiler 24;
    Counter value 56;
    Host add_missing 72;
    ConfigureParams max_buffer_bytes 40;
    ToggleParams enabled 20;
    Extension flush 32;
}

const _: () = assert!(offset_of!(Host, request_flush) == Host::FIRST_SIZE);
const _: () = assert!(offset_of!(ProfileEvent, start_ns) == 16);
const _: () = assert!(offset_of!(ProfileEvent, device) == 40);
const _: () = assert!(offset_of!(ProfileEventFlow, is_start) == 16);
const _: () = assert!(offset_of!(PushParams, id) == 8 && offset_of!(PushParams, profiler) == 16);
const _: () = assert!(offset_of!(ProfilerInterface, process_events) == 80);
