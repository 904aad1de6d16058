//! Where events go.

use crate::entry::Entry;

/// One event. Times are ns since 1970 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Number of the type; see [`abi::kineto::EVENT_TYPES`].
    pub event_type: u32,
    /// When the event began.
    pub start_ns: i64,
    /// When the event ended.
    pub end_ns: i64,
    /// Correlation id, all 64 bits of it.
    pub id: i64,
    /// Device, or process on the CPU.
    pub device: i32,
    /// Stream, or thread on the CPU.
    pub resource: i32,
    /// The arrow that begins or ends here.
    pub flow: Option<Flow>,
}

/// An end of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// [`abi::kineto::FLOW_FWD_BWD`] or [`abi::kineto::FLOW_ASYNC_CPU_GPU`].
    pub flow_type: u32,
    /// The number of the flow, which both ends have. Never 0.
    pub id: u32,
    /// Whether the arrow begins here.
    pub is_start: bool,
}

/// Keys and values of one event, in the order of the plugin's calls; a key comes once.
#[derive(Debug, Default)]
pub struct Metadata {
    bytes: Vec<u8>,
    /// End of each key and of its value in `bytes`.
    ends: Vec<(u32, u32)>,
}

impl Metadata {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a pair, unless the key is there or there is no room for it.
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

    /// Keys and values. A value should be JSON; it was not checked yet.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|ends| ends.1 as usize));
        begins.zip(&self.ends).map(|(begin, ends)| {
            let (key_end, end) = (ends.0 as usize, ends.1 as usize);
            (&self.bytes[begin..key_end], &self.bytes[key_end..end])
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Bytes of all keys and values of one event at most.
pub const MOST_METADATA: usize = 1 << 20;

/// Keys of one event at most.
pub const MOST_PAIRS: usize = 1024;

/// A value of a counter track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter<'a> {
    /// When, ns since 1970 UTC.
    pub time_ns: i64,
    /// The device; -1: the machine.
    pub device: i32,
    /// Name of the track.
    pub track: &'a [u8],
    /// Name of the series.
    pub series: &'a [u8],
    /// Unit, or empty.
    pub unit: &'a [u8],
    /// A finite number.
    pub value: f64,
}

/// A message for the user about a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// As KINETO_LOG_LEVEL has them: 0 verbose, 1 information, 2 warning, 3 stage, 4 error.
    pub level: u32,
    /// Whether data is missing because of it.
    pub loses: bool,
    /// How often the problem happened, at least 1.
    pub count: u64,
    /// The text, without the plugin's name.
    pub text: &'a [u8],
}

/// Receives what one profiler hands over, during its call. Texts are what the plugin wrote, up to
/// the zero byte: any bytes.
pub trait Sink {
    /// A kind that a plugin declared, before the first event: its number in events, its name, and
    /// the published type that it is most like.
    fn kind(&mut self, _number: u32, _name: &str, _base: u32) {}
    /// The plugin whose events follow: its file, or another name.
    fn plugin(&mut self, _name: &[u8]) {}
    /// The activity of the plugin from now on. It is reported if the stream ends here: `in profilerStop`.
    fn doing(&mut self, _what: &[u8]) {}
    /// A message for the user about the plugin.
    fn message(&mut self, _message: &Message<'_>) {}
    /// `count` more of `what` are missing: [`abi::kineto::MISSING_OVERFLOW`] or
    /// [`abi::kineto::MISSING_TIMES`].
    fn missing(&mut self, _what: u32, _count: u64) {}
    /// A field of a whole trace: its name, and one JSON value.
    fn field(&mut self, _key: &[u8], _json: &[u8]) {}
    /// An event of a whole trace.
    fn entry(&mut self, _entry: &Entry<'_>) {}
    /// An event, complete.
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata);
    /// A device's row. No name: the device's number is to be shown.
    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]);
    /// A stream's or thread's row.
    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>);
    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]);
    fn counter(&mut self, counter: &Counter<'_>);
}
