//! Reads recordings of IREE's own profiler: the lines that `iree-profile export --format=ireeperf-jsonl`
//! writes.
//!
//! | record | becomes |
//! |---|---|
//! | `host_execution_event` | a slice on the row of its queue: a dispatch, or an operation of the queue |
//! | `dispatch_event`, `queue_device_event` | a slice on the row of the device's queue, if its time is known |
//! | `queue_event` | an asynchronous span: from the time when the host enqueued an operation until the queue was ready for it |
//! | `command_region_event` | an asynchronous span with the number of its workers |
//! | `memory_event` | an instant, and the bytes of its pool as a counter |
//! | `counter_sample` of a dispatch | values among the dispatch's arguments |
//! | `clock_correlation` | no event; relates the driver's clock to the host's |
//! | `diagnostic` with `dropped_records` | a number of lost events |
//! | all others | no event; most of them describe things to which those records refer |
//!
//! Times are nanoseconds on the monotonic clock of the host. A device's times are on the driver's
//! clock, and are converted with the device's first and last `clock_correlation`. Times of devices
//! have only been tested with made-up records, because IREE's CPU drivers write no such times.
//!
//! The reader keeps everything in memory, because two things are only known at the end: how many
//! rows a queue needs and, if the recording is added to a profile, which of the profile's
//! dispatches it contains.

mod emit;
mod lanes;
mod parse;

use std::io::Read;

use serde_json::{Map, Value};

use crate::chrome::event::Event;
use crate::chrome::read::{EventSink, ReadError, ReadErrorKind, ReadSummary};
use crate::kind::{self, FileKind};

/// A line of this many bytes or more is an error.
const MOST_LINE: u64 = 1 << 26;
/// A file with more slices is refused.
const MOST_SLICES: usize = 20_000_000;

/// A row of the timeline: one kind of work for one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// Ordinal of the physical device.
    pub device: u64,
    /// Ordinal of the queue.
    pub queue: u64,
    pub kind: RowKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKind {
    /// What the host does for the queue.
    Host,
    /// What the device does, at the times that were measured on the device.
    Device,
    /// Regions of command buffers, with several dispatches each.
    Regions,
}

/// A piece of work with a start and a duration.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The row.
    pub row: Row,
    /// The function of a dispatch, the name of another operation, or `region`.
    pub name: String,
    /// The start, in ns on the host's monotonic clock.
    pub begin_ns: i64,
    pub duration_ns: i64,
    /// The number of workgroups of a dispatch.
    pub workgroups: Option<u64>,
    pub submission: u64,
    pub args: Map<String, Value>,
    /// The index of the slice's lane. Slices of a row that overlap, but must not be shown as
    /// nested, are in different lanes. The name of each lane but the first contains the lane's
    /// number.
    lane: usize,
    /// Whether the profile to which the bundle is added already has the slice. If so, the slice
    /// does not become a call.
    pub is_known: bool,
}

/// How long an operation waited until its queue was ready.
#[derive(Clone, Debug)]
struct Wait {
    row: Row,
    name: String,
    begin_ns: i64,
    end_ns: i64,
    id: u64,
    args: Map<String, Value>,
}

#[derive(Clone, Debug)]
struct Memory {
    row: Row,
    name: String,
    at_ns: i64,
    args: Map<String, Value>,
    /// The number of a memory pool, and how many of its bytes are reserved, committed and free.
    pool: Option<(u64, [u64; 3])>,
}

/// The content of a bundle (a recording of IREE's own profiler, exported as lines).
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    /// In the order of their starts.
    pub slices: Vec<Slice>,
    waits: Vec<Wait>,
    memory: Vec<Memory>,
    pub summary: ReadSummary,
}

impl Bundle {
    /// Reads a bundle, which may be compressed with gzip.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is too large, or if it is not a bundle.
    pub fn read(source: &mut dyn Read) -> Result<Self, ReadError> {
        let error = |kind| ReadError { at: 0, kind };
        let (kind, mut source) = kind::open(source).map_err(|e| error(ReadErrorKind::Io(e)))?;
        match kind {
            FileKind::IreeLines => parse::bundle(&mut source),
            FileKind::Other(what) => Err(error(ReadErrorKind::Other(what))),
            _ => Err(error(ReadErrorKind::Other("it is not a bundle of IREE"))),
        }
    }

    /// Returns the dispatches, as indices in [`Bundle::slices`].
    pub fn dispatches(&self) -> impl Iterator<Item = usize> {
        let all = self.slices.iter().enumerate();
        all.filter(|(_, slice)| slice.workgroups.is_some()).map(|(at, _)| at)
    }

    /// Passes the bundle's events on to `sink`, and returns the number of events.
    ///
    /// # Errors
    /// Fails if the sink returns an error.
    pub fn emit(&self, sink: &mut dyn Sink) -> Result<u64, String> {
        emit::emit(self, sink)
    }
}

/// Receives the events of a bundle.
pub trait Sink {
    /// See [`Slice::is_known`].
    ///
    /// # Errors
    /// If the function returns an error, [`Bundle::emit`] ends with this error.
    fn event(&mut self, event: &Event<'_>, is_known: bool) -> Result<(), String>;
}

/// Passes events to a sink that does not need `is_known`.
struct Alone<'a>(&'a mut dyn EventSink);

impl Sink for Alone<'_> {
    fn event(&mut self, event: &Event<'_>, _: bool) -> Result<(), String> {
        self.0.event(0, event)
    }
}

/// Reads a bundle that is not compressed, and passes it on to `sink` as events of Chrome's format.
///
/// # Errors
/// Fails if the file cannot be read or is too large, or if `sink` returns an error.
pub fn read(source: &mut dyn Read, sink: &mut dyn EventSink) -> Result<ReadSummary, ReadError> {
    let bundle = parse::bundle(source)?;
    let events = bundle
        .emit(&mut Alone(sink))
        .map_err(|why| ReadError { at: 0, kind: ReadErrorKind::Refused(why) })?;
    Ok(ReadSummary { events, ..bundle.summary })
}
