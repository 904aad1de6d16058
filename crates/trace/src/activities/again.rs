//! One trace as JSON: every event as it was.

use std::io::{self, Write};

use model::activity::Vocabulary;
use profile::LossCount;
use profile::activities::Activities;

use super::{Categories, Exact, visit};
use crate::chrome::write::{RawEvent, Writer};

/// Writes every event as it was, but for the category in the generic vocabulary. Returns the
/// output and the losses that were found.
///
/// # Errors
/// Writing or reading failed.
pub fn write_again<W: Write>(
    trace: &Activities,
    vocabulary: Vocabulary,
    out: W,
) -> io::Result<(W, Vec<LossCount>)> {
    let none = serde_json::Map::new();
    let mut writer = Writer::again(out, trace.document.as_object().unwrap_or(&none))?;
    let mut categories = Categories::new(vocabulary);
    let losses = visit(trace, |event| {
        let (process, thread) = trace.row(event.row);
        let exact = Exact::of(event.more);
        writer.raw(&RawEvent {
            phase: event.form,
            category: event.category.and_then(|id| categories.name(id, trace)),
            name: event.name.and_then(|id| trace.text(id)),
            process,
            thread,
            time_ns: event.time_ns,
            duration_ns: event.duration_ns,
            exact_time: exact.time,
            exact_duration: exact.duration,
            id: event.id,
            args: event.args,
            more: &[],
            others: exact.others,
        })
    })?;
    Ok((writer.finish_again()?, losses))
}
