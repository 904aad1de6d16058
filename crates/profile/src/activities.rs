//! Stores activities: the complete content of an imported trace, event by event. Reports compute
//! times from the calls in pages. Activities are used to write the trace again, and to find the op
//! that launched work on a device ([`crate::launches`]).
//!
//! ```text
//!  x.cpt/activities/NAME/names.arrows    a row per text that names something: number, text
//!                        rows.arrows     a row per row of the timeline: number, process, thread
//!                        events.arrows   a row per event, in the order of the trace
//!                        document.json   what the trace contains besides its events
//! ```
//!
//! All files except the last one are streams ([`crate::stream`]). The writer stores a name or row
//! in its file before the first event that refers to it. Ids (of processes, threads, flows) are
//! stored as JSON, because traces use both numbers and strings. `args` and `more` are JSON objects,
//! with exactly the text that they have in the trace.
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
/// The writer also writes a batch when its strings have this many bytes in total.
const BATCH_TEXT: usize = 8 << 20;

const NAMES_NAME: &str = "names.arrows";
const ROWS_NAME: &str = "rows.arrows";
const EVENTS_NAME: &str = "events.arrows";
const DOCUMENT_NAME: &str = "document.json";

/// One event of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Activity<'a> {
    /// Chrome's letter for the form of the event: `X` for a slice, `B` and `E` for the ends of a
    /// slice, `i` for an instant, `C` for a counter, `M` for the name of a row, and `s`, `t` and
    /// `f` for a flow. Other letters are kept unchanged. 0 if the event has no letter.
    pub form: u8,
    /// Name of the event.
    pub name: Option<NameId>,
    /// The kind of activity, with the spelling of the trace.
    pub category: Option<NameId>,
    /// The row of the timeline that the activity is on.
    pub row: RowId,
    /// Start of the activity, in ns on the clock of the trace.
    pub time_ns: Option<i64>,
    /// Duration of the activity, in ns.
    pub duration_ns: Option<i64>,
    /// The id of the activity or of its flow, as JSON.
    pub id: Option<&'a str>,
    /// The activity's arguments, as a JSON object.
    pub args: Option<&'a str>,
    /// All other keys of the event, as a JSON object.
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
