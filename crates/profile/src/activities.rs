//! Activities: what an imported trace says, event by event, nothing left out. Calls in pages are
//! what views compute with; this is what a trace is written from again.
//!
//! ```text
//!  x.cpt/activities/NAME/names.arrows    a row per text that names something: number, text
//!                        rows.arrows     a row per row of the timeline: number, process, thread
//!                        events.arrows   a row per event, in the order of the trace
//!                        document.json   what the trace says beside its events
//! ```
//!
//! All but the last are streams ([`crate::stream`]). A name or row is in its file before the first
//! event that needs it. Ids (of processes, threads, flows) are kept as JSON, because traces have
//! numbers and texts; `args` and `more` are JSON objects as they stood in the trace.
//!
//! Memory: a batch, and every name and row once.

mod reader;
mod writer;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

pub use reader::{Activities, EventBatch, Events};
pub use writer::{ActivitiesWriter, NameId, RowId};

/// The directory of activities in a profile.
pub const ACTIVITIES_NAME: &str = "activities";
/// Events that are written at once at the latest.
pub const BATCH_ROWS: usize = 16_384;
/// Bytes of texts in a batch from which it is written before it is full.
const BATCH_TEXT: usize = 8 << 20;

const NAMES_NAME: &str = "names.arrows";
const ROWS_NAME: &str = "rows.arrows";
const EVENTS_NAME: &str = "events.arrows";
const DOCUMENT_NAME: &str = "document.json";

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Activity<'a> {
    /// Chrome's letter for its form: `X` slice, `B` and `E` its ends, `i` instant, `C` counter,
    /// `M` name of a row, `s`, `t`, `f` flow; others as they came. 0: it had none.
    pub form: u8,
    /// What it is called.
    pub name: Option<NameId>,
    /// The kind of activity in the words of the trace.
    pub category: Option<NameId>,
    /// Where it happened.
    pub row: RowId,
    /// When it began, ns, in the time of the trace.
    pub time_ns: Option<i64>,
    /// How long it took, ns.
    pub duration_ns: Option<i64>,
    /// Its id, or its flow's, as JSON.
    pub id: Option<&'a str>,
    /// What else is known, a JSON object.
    pub args: Option<&'a str>,
    /// Every other key that it had, a JSON object.
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
