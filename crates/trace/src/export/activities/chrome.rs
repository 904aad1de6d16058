//! Writes one trace as JSON again.

use std::borrow::Cow;
use std::io::{self, Write};

use profile::activities::Activities;

use super::categories::Categories;
use super::keep::{Keep, visit_kept};
use super::{Exact, Options, Written, look};
use crate::chrome::write::{RawEvent, Writer};

/// Writes the wanted events as they were in the original trace, with categories in the wanted
/// vocabulary.
pub fn write_again<W: Write>(
    trace: &Activities,
    options: &Options,
    out: W,
) -> io::Result<Written<W>> {
    let none = serde_json::Map::new();
    let document = trace.document.as_object().unwrap_or(&none);
    let (mut document, mut keep) = (Cow::Borrowed(document), None);
    if !options.wish.is_all() {
        let look = look(trace, "")?;
        let filter = options.wish.since(look.start_ns());
        let base_ns = look.base_ns.unwrap_or(0);
        keep = Some(Keep::of(trace, &filter, options.vocabulary, base_ns)?);
        document.to_mut().entry("counterpoint").or_insert_with(|| filter.facts());
    }
    let mut writer = Writer::again(out, &document)?;
    let mut categories = Categories::new(options.vocabulary, trace);
    let losses = visit_kept(trace, keep.as_ref(), |event| {
        let (process, thread) = trace.row(event.row);
        let exact = Exact::of(event.more);
        let (category, others) = categories.of(event, exact.others, trace);
        writer.raw(&RawEvent {
            phase: event.form,
            category: category.as_deref(),
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
            others: others.as_deref(),
        })
    })?;
    let left_out = keep.map(|keep| keep.left_out).unwrap_or_default();
    Ok(Written { out: writer.finish_again()?, losses, left_out })
}
