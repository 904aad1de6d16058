//! Writes several traces as one JSON file, as `trace merge` does.

use std::collections::HashMap;
use std::io::{self, Write};

use profile::activities::{Activities, RowId};

use super::categories::Categories;
use super::keep::{Keep, visit_kept};
use super::{Exact, Options, Written, look, scalar};
use crate::chrome::write::{ChromeHead, RawEvent, Writer};
use crate::export::filter::LeftOut;
use crate::merge::{self, Moved};

/// Writes the wanted events of all traces. Each trace has its own rows. `names` are the names of
/// the traces' files, and `title` is the name of the output.
pub fn write_merged<W: Write>(
    traces: &[Activities],
    names: &[String],
    options: &Options,
    out: W,
    title: &str,
) -> io::Result<Written<W>> {
    let files = traces.iter().zip(names).map(|(trace, name)| look(trace, name));
    let files = files.collect::<io::Result<Vec<_>>>()?;
    let (alignments, labels) = (merge::align(&files), merge::labels(&files));
    let near_ns = merge::first_ns(&files, &alignments);
    let mut writer = Writer::new(out, &ChromeHead { near_ns, ..ChromeHead::default() })?;
    merge::write_rows(&files, &labels, &mut writer)?;
    let filter = options.wish.since(near_ns);
    let (mut losses, mut left_out) = (Vec::new(), LeftOut::default());
    for (i, trace) in traces.iter().enumerate() {
        let moved = Moved { index: i as i64, label: &labels[i] };
        let base = files[i].base_ns.unwrap_or(0).saturating_sub(writer.base_ns());
        let shift_ns = base.saturating_add(alignments[i].shift_ns);
        let keep = match options.wish.is_all() {
            true => None,
            false => {
                let base = shift_ns.saturating_add(writer.base_ns());
                Some(Keep::of(trace, &filter, options.vocabulary, base)?)
            }
        };
        let mut categories = Categories::new(options.vocabulary, trace);
        let mut processes = HashMap::<RowId, Option<String>>::new();
        let mut id = Vec::new();
        losses.extend(visit_kept(trace, keep.as_ref(), |event| {
            let name = event.name.and_then(|id| trace.text(id));
            if event.form == b'M' && name.is_some_and(merge::names_process) {
                return Ok(());
            }
            let (process, thread) = trace.row(event.row);
            let process = processes.entry(event.row).or_insert_with(|| {
                let mut json = Vec::new();
                moved.process(&scalar(process?)?, &mut json);
                String::from_utf8(json).ok()
            });
            id.clear();
            if let Some(flow) = event.id.and_then(scalar) {
                moved.flow(&flow, &mut id);
            }
            let exact = Exact::of(event.more);
            let exact_time = exact.time.map(|text| merge::later(text, shift_ns));
            let (category, others) = categories.of(event, exact.others, trace);
            writer.raw(&RawEvent {
                phase: event.form,
                category: category.as_deref(),
                name,
                process: process.as_deref(),
                thread,
                time_ns: event.time_ns.map(|ns| merge::moved_ns(ns, shift_ns, event.form)),
                duration_ns: event.duration_ns,
                exact_time: exact_time.as_deref(),
                exact_duration: exact.duration,
                id: str::from_utf8(&id).ok().filter(|id| !id.is_empty()),
                args: event.args,
                more: &[],
                others: others.as_deref(),
            })
        })?);
        left_out = left_out.and(keep.map(|keep| keep.left_out).unwrap_or_default());
    }
    let mut facts = merge::facts(&files, &alignments);
    if !options.wish.is_all() {
        facts["filter"] = serde_json::to_value(&filter)?;
    }
    Ok(Written { out: writer.finish("counterpoint", &facts, title)?, losses, left_out })
}
