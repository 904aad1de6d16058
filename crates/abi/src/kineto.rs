//! Kineto's interface for profiler plugins and Counterpoint's extension of it:
//! `include/counterpoint/kineto_plugin.h` and `kineto_plugin_extension.h`, in Rust.
//!
//! Functions are `Option`s, because a plugin may leave any of them null; types of events and
//! flows are plain numbers, because a plugin may write any number.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;

/// What a plugin exports.
pub const REGISTER_SYMBOL: &core::ffi::CStr = c"KinetoPlugin_register";
/// What a plugin that uses the extension exports as well.
pub const EXTEND_SYMBOL: &core::ffi::CStr = c"CounterpointPlugin_extend";
/// The directory of plugins.
pub const DIRECTORY_VARIABLE: &core::ffi::CStr = c"KINETO_PLUGIN_LIB_DIR_PATH";
/// Bytes of a profiler's name, without the zero byte.
pub const NAME_BYTES: usize = 31;
/// Version of the extension.
pub const EXTENSION_VERSION: u32 = 3;
/// The first number of a type that a plugin declared.
pub const FIRST_OWN_TYPE: u32 = 1024;

/// A state of the published interface, of which there are several: it is versioned by the sizes of its
/// structs, and was changed three times without a change of those sizes that a host could see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The commit of Kineto's pull request 1148 that ends with this state, abbreviated.
    pub commit: &'static str,
    /// Bytes of a profiler's table of functions in this state ([`ProfilerInterface`]).
    pub interface_bytes: usize,
    /// How the revision differs from [`REVISION`]; empty for that one.
    pub differs: &'static str,
}

/// Number of Kineto's pull request that published the interface.
pub const PULL_REQUEST: u32 = 1148;

/// The state of the interface that Counterpoint implements.
pub const REVISION: Revision = Revision { commit: "92fa2ffc", interface_bytes: 88, differs: "" };

/// Earlier states, which differ in ways that matter. Counterpoint does not load plugins of these.
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

/// A published type of events: its number, and the name that Kineto's traces give it. What it means
/// on every accelerator is in `model::activity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventType {
    /// The type's number.
    pub number: u32,
    /// `cat` in a trace of Kineto's, and the name in a list of kinds.
    pub name: &'static str,
}

const fn event(number: u32, name: &'static str) -> EventType {
    EventType { number, name }
}

/// The published types; the type with the number `n` is at `n - 1`.
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
/// The type of counters.
pub const TYPE_COUNTER: u32 = 22;
/// The type of moments.
pub const TYPE_INSTANT: u32 = 10;

/// The published type with this number.
pub fn event_type(number: u32) -> Option<EventType> {
    let index = (number as usize).checked_sub(1)?;
    EVENT_TYPES.get(index).copied()
}

/// Flows between the forward and the backward pass.
pub const FLOW_FWD_BWD: u32 = 1;
/// Flows from a launch to the device.
pub const FLOW_ASYNC_CPU_GPU: u32 = 2;

/// One event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileEvent {
    /// [`ProfileEvent::SIZE`] or more.
    pub size: usize,
    /// Number of the type.
    pub event_type: u32,
    /// Begin, ns since 1970 UTC.
    pub start_ns: i64,
    /// End, ns since 1970 UTC.
    pub end_ns: i64,
    /// Correlation id.
    pub id: i64,
    /// Device, or process on the CPU.
    pub device: i32,
    /// Stream, or thread on the CPU.
    pub resource: i32,
}

/// An arrow's end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileEventFlow {
    /// [`ProfileEventFlow::SIZE`] or more.
    pub size: usize,
    /// [`FLOW_FWD_BWD`] or [`FLOW_ASYNC_CPU_GPU`].
    pub flow_type: u32,
    /// The id of the flow, which both ends have. It is not 0.
    pub id: u32,
    /// 0: this is where the arrow ends.
    pub is_start: u8,
}

/// A device's row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProfileDeviceInfo {
    /// [`ProfileDeviceInfo::SIZE`] or more.
    pub size: usize,
    /// The device.
    pub device: i64,
    /// Lower is higher up.
    pub sort_index: i64,
    /// May be null.
    pub name: *const c_char,
    /// May be null.
    pub label: *const c_char,
}

/// A stream's or thread's row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProfileResourceInfo {
    /// [`ProfileResourceInfo::SIZE`] or more.
    pub size: usize,
    /// Device, or process on the CPU.
    pub device: i32,
    /// Stream, or thread on the CPU.
    pub resource: i32,
    /// Lower is higher up.
    pub order: i32,
    /// May be null.
    pub name: *const c_char,
}

/// What a plugin hands its events to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceBuilder {
    /// [`TraceBuilder::SIZE`] or more.
    pub size: usize,
    /// The host's.
    pub handle: *mut c_void,
    /// Begins an event.
    pub add_event: Option<unsafe extern "C" fn(*mut c_void, *const ProfileEvent) -> c_int>,
    /// Names the event.
    pub set_last_name: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>,
    /// Ties the event to another one.
    pub set_last_flow: Option<unsafe extern "C" fn(*mut c_void, *const ProfileEventFlow) -> c_int>,
    /// Adds a key and a value of JSON.
    pub add_last_metadata:
        Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> c_int>,
    /// Describes a device.
    pub add_device: Option<unsafe extern "C" fn(*mut c_void, *const ProfileDeviceInfo) -> c_int>,
    /// Describes a stream or thread.
    pub add_resource:
        Option<unsafe extern "C" fn(*mut c_void, *const ProfileResourceInfo) -> c_int>,
}

/// Arguments of `profilerCreate`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CreateParams {
    /// [`CreateParams::SIZE`] or more.
    pub size: usize,
    /// Out: the plugin's own.
    pub profiler: *mut c_void,
    /// The types to record.
    pub types: *mut u32,
    /// How many.
    pub types_length: usize,
}

/// Arguments of `profilerDestroy`, `profilerStart`, `profilerStop` and the two pops.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HandleParams {
    /// [`HandleParams::SIZE`] or more.
    pub size: usize,
    /// What create made.
    pub profiler: *mut c_void,
}

/// Arguments of `profilerQuery`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueryParams {
    /// [`QueryParams::SIZE`] or more.
    pub size: usize,
    /// Null.
    pub profiler: *mut c_void,
    /// Room for the name and a zero byte.
    pub name: *mut c_char,
    /// [`NAME_BYTES`].
    pub name_length: usize,
    /// Room for types.
    pub types: *mut u32,
    /// How many fit.
    pub types_length: usize,
}

/// Arguments of `profilerProcessEvents` and of the extension's flush.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProcessParams {
    /// [`ProcessParams::SIZE`] or more.
    pub size: usize,
    /// What create made.
    pub profiler: *mut c_void,
    /// Valid during the call.
    pub builder: *const TraceBuilder,
}

/// Arguments of the two pushes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PushParams {
    /// [`PushParams::SIZE`] or more.
    pub size: usize,
    /// The id; it comes before the handle.
    pub id: u64,
    /// What create made.
    pub profiler: *mut c_void,
}

/// A function of a profiler with these arguments.
pub type Function<P> = Option<unsafe extern "C" fn(*mut P) -> c_int>;

/// A profiler.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProfilerInterface {
    /// [`ProfilerInterface::SIZE`] or more.
    pub size: usize,
    /// Begins a recording.
    pub create: Function<CreateParams>,
    /// Ends the profiler.
    pub destroy: Function<HandleParams>,
    /// The profiler's name and types.
    pub query: Function<QueryParams>,
    /// Collects from now on.
    pub start: Function<HandleParams>,
    /// Collects no more.
    pub stop: Function<HandleParams>,
    /// May be null.
    pub push_correlation: Function<PushParams>,
    /// May be null.
    pub pop_correlation: Function<HandleParams>,
    /// May be null.
    pub push_user_correlation: Function<PushParams>,
    /// May be null.
    pub pop_user_correlation: Function<HandleParams>,
    /// Hands over the events.
    pub process_events: Function<ProcessParams>,
}

/// What `KinetoPlugin_register` is given.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    /// [`Registry::SIZE`] or more.
    pub size: usize,
    /// The host's.
    pub handle: *mut c_void,
    /// Copies an interface.
    pub register_profiler:
        Option<unsafe extern "C" fn(*mut c_void, *const ProfilerInterface) -> c_int>,
}

/// The type of `KinetoPlugin_register`.
pub type Register = unsafe extern "C" fn(*const Registry) -> c_int;

/// A value of a counter track.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// [`Counter::SIZE`] or more.
    pub size: usize,
    /// When, ns since 1970 UTC.
    pub time_ns: i64,
    /// -1: of the machine.
    pub device: i32,
    /// 0.
    pub reserved: i32,
    /// Name of the track.
    pub track: *const c_char,
    /// Name of the series in the track.
    pub series: *const c_char,
    /// May be null.
    pub unit: *const c_char,
    /// Finite.
    pub value: f64,
}

/// What the extension's host offers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// [`Host::SIZE`] or more.
    pub size: usize,
    /// [`EXTENSION_VERSION`].
    pub version: u32,
    /// The host's.
    pub handle: *mut c_void,
    /// Declares a type of events.
    pub declare_type: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u32) -> u32>,
    /// Adds a counter's value; the handle is a trace builder's.
    pub add_counter: Option<unsafe extern "C" fn(*mut c_void, *const Counter) -> c_int>,
    /// Names a thread; the handle is a trace builder's.
    pub set_thread_name:
        Option<unsafe extern "C" fn(*mut c_void, i32, i32, *const c_char) -> c_int>,
    /// Says something to the user.
    pub log: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char)>,
    /// Since version 2: has the host call `flush` of a recording now, on the same thread. The second
    /// argument is what create made.
    pub request_flush: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
    /// Since version 3: counts what is missing, by [`MISSING_OVERFLOW`] or [`MISSING_TIMES`]; the handle
    /// is a trace builder's.
    pub add_missing: Option<unsafe extern "C" fn(*mut c_void, u32, u64) -> c_int>,
}

/// Events that did not fit into what the plugin may keep.
pub const MISSING_OVERFLOW: u32 = 1;
/// Commands that a program gave to a device and that have no times.
pub const MISSING_TIMES: u32 = 2;

impl Host {
    /// Bytes of the first version, which ends with `log`.
    pub const FIRST_SIZE: usize = 56;
}

/// Arguments of `configure`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConfigureParams {
    /// [`ConfigureParams::SIZE`] or more.
    pub size: usize,
    /// What create made.
    pub profiler: *mut c_void,
    /// The user's text, never null.
    pub configuration: *const c_char,
    /// The time from create to start.
    pub warmup_ns: i64,
    /// 0: no limit.
    pub max_buffer_bytes: u64,
}

/// Arguments of `toggle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ToggleParams {
    /// [`ToggleParams::SIZE`] or more.
    pub size: usize,
    /// What create made.
    pub profiler: *mut c_void,
    /// 0: collect nothing.
    pub enabled: u32,
}

/// What a plugin adds to its profiler.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// What the host knows.
    pub size: usize,
    /// May be null.
    pub configure: Option<unsafe extern "C" fn(*const ConfigureParams) -> c_int>,
    /// May be null.
    pub toggle: Option<unsafe extern "C" fn(*const ToggleParams) -> c_int>,
    /// May be null.
    pub flush: Function<ProcessParams>,
}

/// The type of `CounterpointPlugin_extend`.
pub type Extend = unsafe extern "C" fn(*const Host, *mut Extension) -> c_int;

/// Structs whose first field is their size without padding at the end.
macro_rules! sized {
    ($( $type:ident $last:ident $size:literal; )*) => { $(
        impl $type {
            /// Bytes up to the end of the last field, which a writer puts into `size`.
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
