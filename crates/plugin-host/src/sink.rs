//! Events, and the interface of their receivers.

use crate::entry::Entry;

/// One event. Times are ns since 1970 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The type; see [`abi::kineto::EVENT_TYPES`].
    pub event_type: u32,
    /// Begin.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Correlation id, with 64 bits.
    pub id: i64,
    /// The device; for work of the CPU, the process.
    pub device: i32,
    /// The stream; for work of the CPU, the thread.
    pub resource: i32,
    /// The arrow that begins or ends at this event.
    pub flow: Option<Flow>,
}

/// One end of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// [`abi::kineto::FLOW_FWD_BWD`] or [`abi::kineto::FLOW_ASYNC_CPU_GPU`].
    pub flow_type: u32,
    /// The arrow's id, which is the same at both ends and not 0.
    pub id: u32,
    /// Whether the arrow begins at this event.
    pub is_start: bool,
}

/// Keys and values of one event, in the order of the plugin's calls. The keys are different.
#[derive(Debug, Default)]
pub struct Metadata {
    bytes: Vec<u8>,
    /// Where each key and its value end in `bytes`.
    ends: Vec<(u32, u32)>,
}

impl Metadata {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a pair, unless there is a pair with the same key. Returns false if there is no room
    /// for the pair.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let room = self.bytes.len() + key.len() + value.len() <= MOST_METADATA
            && self.ends.len() < MOST_PAIRS;
        if !room || self.iter().any(|(other, _)| other == key) {
            return room;
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len() as u32));
        true
    }

    /// Iterates over keys and values. A value should be JSON, but a plugin may have passed any
    /// bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|ends| ends.1 as usize));
        begins.zip(&self.ends).map(|(begin, ends)| {
            let (key_end, end) = (ends.0 as usize, ends.1 as usize);
            (&self.bytes[begin..key_end], &self.bytes[key_end..end])
        })
    }

    /// Returns whether there is no metadata.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// The largest number of bytes of an event's keys and values.
pub const MOST_METADATA: usize = 1 << 20;

/// The largest number of an event's keys.
pub const MOST_PAIRS: usize = 1024;

/// A value of a counter track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter<'a> {
    /// ns since 1970 UTC.
    pub time_ns: i64,
    /// The device; -1 if the counter belongs to the whole machine.
    pub device: i32,
    /// Name of the track.
    pub track: &'a [u8],
    /// Name of the series.
    pub series: &'a [u8],
    /// Unit; empty if there is none.
    pub unit: &'a [u8],
    /// A finite number.
    pub value: f64,
}

/// A message for the user about a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// As in KINETO_LOG_LEVEL: 0 verbose, 1 information, 2 warning, 3 stage, 4 error.
    pub level: u32,
    /// Whether data is missing.
    pub loses: bool,
    /// How often the message's cause has happened, at least 1.
    pub count: u64,
    /// The text, without the plugin's name.
    pub text: &'a [u8],
}

/// Receives events, from a profiler or from a stream. Texts are as the plugin wrote them, up to the
/// zero byte, and may contain any bytes.
pub trait Sink {
    /// Receives an event type that a plugin declared, before the first event: its number, its name,
    /// and the published type that is most like it.
    fn kind(&mut self, _number: u32, _name: &str, _base: u32) {}
    /// Receives the name of the plugin whose events follow.
    fn plugin(&mut self, _name: &[u8]) {}
    /// Receives what the plugin does from now on, such as `in profilerStop`. If the stream ends
    /// before this method is called again, the plugin may have crashed while doing this.
    fn doing(&mut self, _what: &[u8]) {}
    /// Receives a message for the user.
    fn message(&mut self, _message: &Message<'_>) {}
    /// Counts missing events of the kind `what`: [`abi::kineto::MISSING_OVERFLOW`],
    /// [`abi::kineto::MISSING_TIMES`] or [`abi::kineto::MISSING_COUNTERS`].
    fn missing(&mut self, _what: u32, _count: u64) {}
    /// Receives a top-level field of a trace, with one JSON value, from a profiler that writes
    /// whole traces.
    fn field(&mut self, _key: &[u8], _json: &[u8]) {}
    /// Receives an event from a profiler that writes whole traces.
    fn entry(&mut self, _entry: &Entry<'_>) {}
    /// Receives an event with its name and all its metadata.
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata);
    /// Receives a device's row. If the device has no name, its number is to be shown.
    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]);
    /// Receives the row of a stream or thread.
    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>);
    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]);
    fn counter(&mut self, counter: &Counter<'_>);
}
