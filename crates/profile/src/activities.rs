//! Stores activities: the content of an imported trace, event by event. They are used, for example,
//! to write the trace again, and to find the op that launched work on a device
//! ([`crate::launches`]). Reports by shape, module, line of code or launch read activities; most
//! other reports use only the recorded calls.
//!
//! ```text
//!  x.cpt/activities/NAME/names.arrows    a row per name or category: number, text
//!                        rows.arrows     a row per row of the timeline: number, process, thread
//!                        events.arrows   a row per event, in the order of the trace
//!                        document.json   what the trace contains besides its events
//! ```
//!
//! All files except the last one are streams ([`crate::stream`]). A name or row is stored before
//! the first event that refers to it. Ids (of processes, threads, flows) are stored as JSON,
//! because traces use both numbers and strings. The columns `args` and `more` of the events contain
//! JSON objects, written exactly as in the trace.
//!
//! Memory use: one batch of events, and each name and row once.

mod reader;
mod writer;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

pub use reader::{Activities, EventBatch, Events};
pub use writer::{ActivitiesWriter, NameId, RowId};

/// The directory in a profile that contains the activities.
pub const ACTIVITIES_NAME: &str = "activities";
/// Maximum number of events in a batch.
pub const BATCH_ROWS: usize = 16_384;
/// The writer also ends a batch when its strings have this many bytes in total.
const BATCH_TEXT: usize = 8 << 20;

const NAMES_NAME: &str = "names.arrows";
const ROWS_NAME: &str = "rows.arrows";
const EVENTS_NAME: &str = "events.arrows";
const DOCUMENT_NAME: &str = "document.json";

/// One event of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Activity<'a> {
    /// Chrome's letter for the form of the event, such as `X` for a slice, `i` for an instant or
    /// `C` for a counter. 0 if the event has none.
    pub form: u8,
    /// Name of the event.
    pub name: Option<NameId>,
    /// The kind of activity, as spelled in the trace.
    pub category: Option<NameId>,
    /// The activity's row of the timeline.
    pub row: RowId,
    /// Start in ns on the clock of the trace.
    pub time_ns: Option<i64>,
    /// Duration in ns.
    pub duration_ns: Option<i64>,
    /// The id of the activity or of its flow, as JSON.
    pub id: Option<&'a str>,
    /// The arguments, as a JSON object.
    pub args: Option<&'a str>,
    /// The other keys of the event, as a JSON object.
    pub more: Option<&'a str>,
}

fn names_schema() -> SchemaRef {
    schema(&[("number", DataType::UInt32, false), ("text", DataType::Utf8, false)])
}

fn rows_schema() -> SchemaRef {
    schema(&[
        ("number", DataType::UInt32, false),
        ("process", DataType::Utf8, true),
        ("thread", DataType::Utf8, true),
    ])
}

fn events_schema() -> SchemaRef {
    schema(&[
        ("form", DataType::UInt8, false),
        ("name", DataType::UInt32, true),
        ("category", DataType::UInt32, true),
        ("row", DataType::UInt32, false),
        ("time_ns", DataType::Int64, true),
        ("duration_ns", DataType::Int64, true),
        ("id", DataType::Utf8, true),
        ("args", DataType::Utf8, true),
        ("more", DataType::Utf8, true),
    ])
}

fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    let fields: Vec<Field> =
        fields.iter().map(|(n, t, null)| Field::new(*n, t.clone(), *null)).collect();
    Arc::new(Schema::new(fields))
}
