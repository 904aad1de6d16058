//! Writes imported traces again.
//!
//! ```text
//!  one trace ──► again      JSON: every event as it was
//!  several ────► merged     JSON: as `trace merge` writes them, each with rows of its own
//!  any number ─► timeline   Perfetto's format
//! ```
//!
//! A separate thread reads the activities (the events of the traces). They are read more than once
//! where something must be known before the first event is written, such as the names of rows.

mod args;
mod categories;
mod chrome;
mod keep;
mod lanes;
mod merged;
mod perfetto;
mod recorded;

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread;

use model::activity::Vocabulary;
use profile::LossCount;
use profile::activities::{Activities, Activity};

pub use chrome::write_again;
pub use merged::write_merged;
pub use perfetto::{Timeline, write_perfetto};
pub use profile::launches::PLUGIN_ROWS;
pub use recorded::export_recorded;

use crate::chrome::event::{Raw, Scalar};
use crate::merge::Look;

use crate::export::filter::{LeftOut, Wish};

#[derive(Debug)]
pub struct Written<W> {
    pub out: W,
    pub losses: Vec<LossCount>,
    /// What a filter left out.
    pub left_out: LeftOut,
}

/// The options for writing traces.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The vocabulary (set of names) to which categories are converted; `None` keeps the names in
    /// the traces.
    pub vocabulary: Option<Vocabulary>,
    /// Which part of the traces is written.
    pub wish: Wish,
}

/// How many batches of events may wait in the channel from the reading thread.
const AHEAD: usize = 1;

/// Calls `each` with every event while another thread reads the next ones. Returns the losses (the
/// damage in the trace) that were found.
fn visit(
    trace: &Activities,
    mut each: impl FnMut(&Activity<'_>) -> io::Result<()>,
) -> io::Result<Vec<LossCount>> {
    let mut events = trace.events().map_err(io::Error::other)?;
    let (batches, read) = sync_channel(AHEAD);
    let found = thread::scope(|scope| {
        let read_all = move || {
            while let Some(batch) = events.next_batch()? {
                if batches.send(batch).is_err() {
                    break; // The receiver needs no more of them.
                }
            }
            Ok::<_, profile::Error>(events.losses())
        };
        let reader = thread::Builder::new().name("trace reader".into());
        let reader = reader.spawn_scoped(scope, read_all)?;
        let shown = read.iter().try_for_each(|batch| batch.visit(&mut each));
        drop(read);
        let found = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        shown.and(found.map_err(io::Error::other))
    })?;
    Ok(trace.losses.iter().cloned().chain(found).collect())
}

/// Returns what must be known about the trace before its events are written. `name` is the name of
/// its file.
fn look(trace: &Activities, name: &str) -> io::Result<Look> {
    let mut look = Look { name: name.to_owned(), ..Look::default() };
    for (key, value) in trace.document.as_object().into_iter().flatten() {
        look.add_top(key, value.clone());
    }
    visit(trace, |event| {
        let (process, _) = trace.row(event.row);
        let metadata = event.form == b'M';
        if !metadata {
            look.first_ns = look.first_ns.into_iter().chain(event.time_ns).min();
        }
        if let Some(pid) = process.and_then(scalar) {
            let name = event.name.and_then(|id| trace.text(id)).filter(|_| metadata);
            look.add(&pid, name.map(|name| (name, event.args.unwrap_or(""))));
        }
        Ok(())
    })?;
    Ok(look)
}

/// Parses an id that is stored as JSON.
fn scalar(json: &str) -> Option<Scalar<'_>> {
    if let Ok(n) = json.parse() {
        return Some(Scalar::Int(n));
    }
    match serde_json::from_str(json).ok()? {
        serde_json::Value::String(text) => Some(Scalar::Text(text.into())),
        serde_json::Value::Number(n) => Some(match n.as_u64() {
            Some(n) => Scalar::Big(n),
            None => Scalar::Float(json.into()),
        }),
        _ => None,
    }
}

/// The parts of an event that a profile stores together, in [`Activity::more`]: the texts of times
/// that nanoseconds cannot express exactly, and other keys.
#[derive(Default)]
struct Exact<'a> {
    time: Option<&'a str>,
    duration: Option<&'a str>,
    /// See [`RawEvent::others`](crate::chrome::write::RawEvent::others).
    others: Option<&'a str>,
}

impl<'a> Exact<'a> {
    /// Parses [`Activity::more`]. An import puts the texts of times that nanoseconds cannot express
    /// at the start of this JSON object, under the keys `ts` and `dur`.
    fn of(more: Option<&'a str>) -> Self {
        let none = Self { others: more, ..Self::default() };
        let Some(mut rest) = more.and_then(|more| more.strip_prefix('{')) else { return none };
        let mut exact = Self::default();
        for (key, to) in [("\"ts\":", &mut exact.time), ("\"dur\":", &mut exact.duration)] {
            let Some(value) = rest.strip_prefix(key) else { continue };
            let mut values = serde_json::Deserializer::from_str(value).into_iter::<Raw<'a>>();
            let Some(Ok(raw)) = values.next() else { return none };
            let end = values.byte_offset();
            *to = Some(raw.get());
            rest = &value[end..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        match (exact.time, exact.duration) {
            (None, None) => none,
            _ => Self { others: Some(rest).filter(|rest| *rest != "}"), ..exact },
        }
    }
}
