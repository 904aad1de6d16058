//! Defines the numbers of fields in Perfetto's published messages (protos/perfetto/trace, release
//! 54), and the values of enumerations. The numbers of published fields do not change.

/// `Trace`.
pub mod trace {
    pub const PACKET: u32 = 1;
}

/// `TracePacket`.
pub mod packet {
    pub const STATE_WAS_CLEARED: u32 = 41;
    pub const PREVIOUS_DROPPED: u32 = 42;
    pub const PROCESS: u32 = 43;
    pub const THREAD: u32 = 44;
    pub const ZSTD_PACKETS: u32 = 133;
    pub const CHROME_EVENTS: u32 = 5;
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const COMPRESSED_PACKETS: u32 = 50;
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    /// A field that exists only in our traces. It says that a track is part of another track's row.
    /// Perfetto's readers skip the field.
    pub const JOIN: u32 = 2041;
    pub const JOIN_TRACK: u32 = 3;
    pub const JOIN_ROW: u32 = 4;
    /// Values of `SequenceFlags`.
    pub const STATE_CLEARED: u64 = 1;
    pub const NEEDS_STATE: u64 = 2;
}

/// `TracePacketDefaults`.
pub mod defaults {
    pub const EXTRA_DOUBLE_TRACKS: u32 = 45;
    pub const TRACK_EVENT: u32 = 11;
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;
    /// Fields of `TrackEventDefaults`.
    pub const TRACK_UUID: u32 = 11;
    pub const EXTRA_COUNTER_TRACKS: u32 = 31;
}

/// `ClockSnapshot` and its `Clock`.
pub mod clocks {
    pub const UNIT_NS: u32 = 4;
    pub const CLOCKS: u32 = 1;
    pub const PRIMARY: u32 = 2;
    pub const ID: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const IS_INCREMENTAL: u32 = 3;
    /// Values of `BuiltinClock`.
    pub const REALTIME: u64 = 1;
    pub const MONOTONIC: u64 = 3;
    pub const BOOTTIME: u64 = 6;
    /// Clock ids from 64 to 127 are local to a sequence of packets: in each sequence, they mean
    /// other clocks.
    pub const OF_SEQUENCE: u64 = 64;
}

/// `InternedData`, with its messages `EventCategory`, `EventName` and `DebugAnnotationName`.
pub mod interned {
    pub const TEXT_VALUES: u32 = 29;
    pub const CATEGORIES: u32 = 1;
    pub const NAMES: u32 = 2;
    pub const ANNOTATION_NAMES: u32 = 3;
    pub const IID: u32 = 1;
    pub const TEXT: u32 = 2;
}

/// `TrackEvent`.
pub mod event {
    pub const DELTA_US: u32 = 1;
    pub const LEGACY: u32 = 6;
    pub const ABSOLUTE_US: u32 = 16;
    pub const CATEGORIES: u32 = 22;
    pub const NAME: u32 = 23;
    pub const OLD_FLOW_IDS: u32 = 36;
    pub const OLD_TERMINATING_FLOW_IDS: u32 = 42;
    pub const EXTRA_DOUBLE_TRACKS: u32 = 45;
    pub const EXTRA_DOUBLE_VALUES: u32 = 46;
    pub const CATEGORY_IIDS: u32 = 3;
    pub const ANNOTATIONS: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
    pub const EXTRA_COUNTER_VALUES: u32 = 12;
    pub const COUNTER_VALUE: u32 = 30;
    pub const EXTRA_COUNTER_TRACKS: u32 = 31;
    pub const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub const FLOW_IDS: u32 = 47;
    pub const TERMINATING_FLOW_IDS: u32 = 48;
    /// Values of `Type`.
    pub const SLICE_BEGIN: u64 = 1;
    pub const SLICE_END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
}

/// `DebugAnnotation`.
pub mod annotation {
    pub const NAME: u32 = 10;
    pub const POINTER: u32 = 7;
    pub const NESTED: u32 = 8;
    pub const ENTRIES: u32 = 11;
    pub const ELEMENTS: u32 = 12;
    pub const TEXT_IID: u32 = 17;
    pub const NAME_IID: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const UINT: u32 = 3;
    pub const INT: u32 = 4;
    pub const DOUBLE: u32 = 5;
    pub const TEXT: u32 = 6;
    pub const JSON: u32 = 9;
}

/// `TrackDescriptor` with its messages `ProcessDescriptor`, `ThreadDescriptor` and
/// `CounterDescriptor`.
pub mod track {
    pub const STATIC_NAME: u32 = 10;
    pub const ATRACE_NAME: u32 = 13;
    pub const COUNTER_MULTIPLIER: u32 = 4;
    pub const COUNTER_INCREMENTAL: u32 = 5;
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const CHILD_ORDERING: u32 = 11;
    pub const RANK: u32 = 12;
    /// Value of `ChildTracksOrdering`: sorted by `RANK`.
    pub const EXPLICIT: u64 = 3;
    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_SORT_INDEX: u32 = 3;
    pub const PROCESS_NAME: u32 = 6;
    pub const PROCESS_LABELS: u32 = 8;
    pub const THREAD_PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_SORT_INDEX: u32 = 3;
    pub const THREAD_NAME: u32 = 5;
    pub const COUNTER_UNIT: u32 = 3;
    pub const COUNTER_UNIT_NAME: u32 = 6;
}

/// `TrackEvent.LegacyEvent`.
pub mod legacy {
    pub const NAME_IID: u32 = 1;
    pub const PHASE: u32 = 2;
    pub const DURATION_US: u32 = 3;
    pub const UNSCOPED_ID: u32 = 6;
    pub const ID_SCOPE: u32 = 7;
    pub const LOCAL_ID: u32 = 10;
    pub const GLOBAL_ID: u32 = 11;
    pub const PID: u32 = 18;
    pub const TID: u32 = 19;
}

/// `ChromeEventBundle` and its `ChromeMetadata`.
pub mod chrome {
    pub const METADATA: u32 = 2;
    pub const NAME: u32 = 1;
    pub const TEXT: u32 = 2;
    pub const BOOL: u32 = 3;
    pub const INT: u32 = 4;
    pub const JSON: u32 = 5;
}
