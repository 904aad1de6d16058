//! Reads recordings of IREE's own profiler: the lines that `iree-profile export --format=ireeperf-jsonl`
//! writes.
//!
//! | record | becomes |
//! |---|---|
//! | `host_execution_event` | a slice on the row of its queue: a dispatch, or an operation of the queue |
//! | `dispatch_event`, `queue_device_event` | a slice on the row of the device's queue, if its time is known |
//! | `queue_event` | an asynchronous span: from the call of the host until the queue was ready for it |
//! | `command_region_event` | an asynchronous span with the number of its workers |
//! | `memory_event` | an instant, and the bytes of its pool as a counter |
//! | `counter_sample` of a dispatch | values among the dispatch's arguments |
//! | `clock_correlation` | relates the driver's clock to the host's |
//! | `diagnostic` with `dropped_records` | a number of lost events |
//! | all others | describe what those refer to |
//!
//! Times are nanoseconds of the monotonic clock of the host. A device's time stamps come on the driver's
//! clock and are moved there with the first and the last correlation. That has only been tested with
//! made-up records: IREE's CPU drivers have no such events.
//!
//! Everything is in memory: a queue's rows, and which dispatch of a profile is meant, are only known at
//! the end.

mod emit;
mod lanes;
mod parse;

use std::io::Read;

use serde_json::{Map, Value};

use crate::chrome::event::Event;
use crate::chrome::read::{EventSink, ReadError, ReadErrorKind, ReadSummary};
use crate::kind::{self, FileKind};

/// The longest line that is accepted.
const MOST_LINE: u64 = 1 << 26;
/// More slices than this are refused.
const MOST_SLICES: usize = 20_000_000;

/// The row of a slice.
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
    /// The queue's work on the host.
    Host,
    /// The work of the device, by its own time stamps.
    Device,
    /// Regions of command buffers.
    Regions,
}

/// Something that took time.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The row that shows the slice.
    pub row: Row,
    /// A dispatch's function, or the operation.
    pub name: String,
    /// When the slice began, in ns of the monotonic clock.
    pub begin_ns: i64,
    /// How long the slice took.
    pub duration_ns: i64,
    /// The number of workgroups, if the slice is a dispatch.
    pub workgroups: Option<u64>,
    pub submission: u64,
    /// The slice's arguments.
    pub args: Map<String, Value>,
    /// The number of the slice's row among rows with the same name.
    lane: usize,
    /// Whether the slice is already in the profile that the bundle is added to, and so is no call.
    pub is_known: bool,
}

/// A wait of an operation until its queue was ready.
#[derive(Clone, Debug)]
struct Wait {
    row: Row,
    name: String,
    begin_ns: i64,
    end_ns: i64,
    id: u64,
    args: Map<String, Value>,
}

/// A moment in the life of memory.
#[derive(Clone, Debug)]
struct Memory {
    row: Row,
    name: String,
    at_ns: i64,
    args: Map<String, Value>,
    /// The number of the pool that the event is about, and what the pool has reserved, committed and free.
    pool: Option<(u64, [u64; 3])>,
}

/// The contents of a bundle.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    /// Slices, in the order of their starts.
    pub slices: Vec<Slice>,
    waits: Vec<Wait>,
    memory: Vec<Memory>,
    pub summary: ReadSummary,
}

impl Bundle {
    /// Reads a bundle, plain or compressed with gzip.
    ///
    /// # Errors
    /// The file cannot be read, or is not such a file.
    pub fn read(source: &mut dyn Read) -> Result<Self, ReadError> {
        let error = |kind| ReadError { at: 0, kind };
        let (kind, mut source) = kind::open(source).map_err(|e| error(ReadErrorKind::Io(e)))?;
        match kind {
            FileKind::IreeLines => parse::bundle(&mut source),
            FileKind::Other(what) => Err(error(ReadErrorKind::Other(what))),
            _ => Err(error(ReadErrorKind::Other("it is not a bundle of IREE"))),
        }
    }

    /// The dispatches, as places of [`Bundle::slices`].
    pub fn dispatches(&self) -> impl Iterator<Item = usize> {
        let all = self.slices.iter().enumerate();
        all.filter(|(_, slice)| slice.workgroups.is_some()).map(|(at, _)| at)
    }

    /// Hands out the events.
    ///
    /// # Errors
    /// The sink refused something.
    pub fn emit(&self, sink: &mut dyn Sink) -> Result<u64, String> {
        emit::emit(self, sink)
    }
}

/// Receives the events of a bundle.
pub trait Sink {
    /// Receives one event. `is_known`: see [`Slice::is_known`].
    ///
    /// # Errors
    /// Ends the reading.
    fn event(&mut self, event: &Event<'_>, is_known: bool) -> Result<(), String>;
}

/// A bundle that is added to nothing.
struct Alone<'a>(&'a mut dyn EventSink);

impl Sink for Alone<'_> {
    fn event(&mut self, event: &Event<'_>, _: bool) -> Result<(), String> {
        self.0.event(0, event)
    }
}

/// Reads a bundle as the events of Chrome's format.
///
/// # Errors
/// As [`Bundle::read`].
pub fn read(source: &mut dyn Read, sink: &mut dyn EventSink) -> Result<ReadSummary, ReadError> {
    let bundle = parse::bundle(source)?;
    let events = bundle
        .emit(&mut Alone(sink))
        .map_err(|why| ReadError { at: 0, kind: ReadErrorKind::Refused(why) })?;
    Ok(ReadSummary { events, ..bundle.summary })
}
