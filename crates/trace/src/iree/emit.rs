//! Converts a bundle to events of Chrome's format.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Bundle, Row, RowKind, Sink, Slice};
use crate::chrome::event::{Event, Raw, Scalar};

/// The categories of events.
const QUEUE: &str = "queue";
const DISPATCH: &str = "dispatch";
const KERNEL: &str = "kernel";
const REGION: &str = "region";
const MEMORY: &str = "memory";

fn process(row: Row) -> String {
    format!("IREE device {}", row.device)
}

fn thread(row: Row, lane: usize) -> String {
    let what = match row.kind {
        RowKind::Host => "",
        RowKind::Device => " on the device",
        RowKind::Regions => " regions",
    };
    let lane = if lane > 0 { format!(" ({})", lane + 1) } else { String::new() };
    format!("queue {}{what}{lane}", row.queue)
}

struct Writer<'a> {
    sink: &'a mut dyn Sink,
    events: u64,
}

impl Writer<'_> {
    fn write(
        &mut self,
        event: Event<'_>,
        place: (Row, usize),
        args: &Map<String, Value>,
        is_known: bool,
    ) -> Result<(), String> {
        let text = Value::Object(args.clone()).to_string();
        let (process, thread) = (process(place.0), thread(place.0, place.1));
        let event = Event {
            pid: Some(Scalar::Text(Cow::Borrowed(&process))),
            tid: Some(Scalar::Text(Cow::Borrowed(&thread))),
            args: (!args.is_empty()).then(|| Raw::of(&text)),
            ..event
        };
        self.events += 1;
        self.sink.event(&event, is_known)
    }
}

/// Passes the bundle's events on to `sink`, and returns their number.
pub(super) fn emit(bundle: &Bundle, sink: &mut dyn Sink) -> Result<u64, String> {
    let mut writer = Writer { sink, events: 0 };
    for (number, slice) in (0..).zip(&bundle.slices) {
        emit_slice(slice, &mut writer, number)?;
    }
    for wait in &bundle.waits {
        for (phase, at) in [(b'b', wait.begin_ns), (b'e', wait.end_ns)] {
            let event = Event {
                phase,
                name: Some(Cow::Borrowed(&wait.name)),
                category: Some(Cow::Borrowed(QUEUE)),
                time_ns: Some(at),
                id: Some(Scalar::Big(wait.id)),
                ..Event::default()
            };
            writer.write(event, (wait.row, 0), &wait.args, false)?;
        }
    }
    for memory in &bundle.memory {
        let at = |phase, name| Event {
            phase,
            name: Some(Cow::Borrowed(name)),
            category: Some(Cow::Borrowed(MEMORY)),
            time_ns: Some(memory.at_ns),
            ..Event::default()
        };
        writer.write(at(b'i', &memory.name), (memory.row, 0), &memory.args, false)?;
        if let Some((pool, [reserved, committed, free])) = memory.pool {
            let bytes = json!({ "reserved": reserved, "committed": committed, "free": free });
            let Value::Object(bytes) = bytes else { continue };
            let name = format!("memory pool {pool} (bytes)");
            writer.write(at(b'C', &name), (memory.row, 0), &bytes, false)?;
        }
    }
    Ok(writer.events)
}

/// A region consists of dispatches, which have their own slices. Therefore, the region becomes an
/// asynchronous span: sums of durations do not include such spans.
fn emit_slice(slice: &Slice, writer: &mut Writer<'_>, number: u64) -> Result<(), String> {
    let category = match (slice.row.kind, slice.workgroups) {
        (RowKind::Device, Some(_)) => KERNEL,
        (RowKind::Regions, _) => REGION,
        (_, Some(_)) => DISPATCH,
        _ => QUEUE,
    };
    let event = Event {
        phase: b'X',
        name: Some(Cow::Borrowed(&slice.name)),
        category: Some(Cow::Borrowed(category)),
        time_ns: Some(slice.begin_ns),
        duration_ns: Some(slice.duration_ns),
        ..Event::default()
    };
    let place = (slice.row, slice.lane);
    if slice.row.kind != RowKind::Regions {
        return writer.write(event, place, &slice.args, slice.is_known);
    }
    let id = Some(Scalar::Big(number));
    let begin = Event { phase: b'b', duration_ns: None, id, ..event };
    let end_ns = slice.begin_ns.saturating_add(slice.duration_ns);
    let end = Event { phase: b'e', time_ns: Some(end_ns), ..begin.clone() };
    writer.write(begin, place, &slice.args, false)?;
    writer.write(end, place, &Map::new(), false)
}
