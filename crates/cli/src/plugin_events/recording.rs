//! Reads recordings that PyTorch's own profiler made in the programs of a profile. A recording is a
//! stream that Counterpoint's bridge to PyTorch wrote, or a trace file if the bridge does not
//! support the version of PyTorch.
//!
//! ```text
//!  stream:     entry, field ─┐
//!  trace file: event, top   ─┴─► Events::recorded ─► OneTrace     numbers of processes, times and ids
//!                                                                of the profile
//! ```
//!
//! Ids of arrows (flow events) are unique only within a recording, so the number of the stream is
//! added to each id. If Counterpoint recorded ops of PyTorch in the same process, the ops in the
//! profiler's recording do not become calls, because a table should count each op once.

use std::borrow::Cow;
use std::io::Read;

use plugin_host::entry::{Entry, Id, Value as Given};
use serde_json::Value;
use trace::chrome::event::{Event, Raw, Scalar};
use trace::chrome::read::{EventSink, ReadError, ReadSummary, read};

use super::sink::{Events, is_json};

/// Slices of these categories are ops, which Counterpoint may also have recorded as calls.
const OPS: [&str; 2] = ["cpu_op", "user_annotation"];

fn scalar<'t>(id: Id<'t>) -> Scalar<'t> {
    match id {
        Id::Number(number) => Scalar::Int(number),
        Id::Text(text) => Scalar::Text(String::from_utf8_lossy(text)),
    }
}

impl Events<'_, '_> {
    /// Adds an event, whose times are ns since 1970, and whose ids come from the recording.
    fn recorded(&mut self, mut event: Event<'_>) {
        self.events += 1;
        self.recording.any = true;
        if event.phase == b'M'
            && event.name.as_deref() == Some("process_name")
            && let Some(Scalar::Int(pid)) = event.pid
            && let Some(name) = event.args.and_then(name_in)
        {
            return self.name_process(pid, &name);
        }
        event.pid = event.pid.map(|pid| Scalar::Int(self.process_of(&pid)));
        event.time_ns = event.time_ns.map(|time| self.owner.time_ns(time));
        if let Some(Scalar::Int(id)) = &event.id {
            event.id = Some(Scalar::Int(self.owner.arrow(*id)));
        }
        let is_op = || event.category.as_deref().is_some_and(|category| OPS.contains(&category));
        let put = if event.phase == b'X' && self.recording.ops_are_calls && is_op() {
            self.trace.keep_only(&event)
        } else {
            self.trace.event(0, &event)
        };
        if let Err(error) = put {
            self.error.get_or_insert(error);
        }
    }

    pub(super) fn put_entry(&mut self, entry: &Entry<'_>) {
        let name = self.text(entry.name);
        let category = entry.category.map(|category| self.text(category));
        let mut arguments = std::mem::take(&mut self.arguments);
        arguments.clear();
        for argument in entry.arguments {
            arguments.push(if arguments.is_empty() { '{' } else { ',' });
            let key = self.text(argument.key);
            push_text(&mut arguments, &key);
            arguments.push(':');
            match argument.value {
                Given::Integer(value) => push_integer(&mut arguments, value),
                Given::Unsigned(value) => arguments.push_str(&value.to_string()),
                Given::Text(text) => {
                    let text = self.text(text);
                    push_text(&mut arguments, &text);
                }
                Given::Json(json) => match std::str::from_utf8(json) {
                    Ok(text) if is_json(json) => arguments.push_str(text.trim()),
                    _ => {
                        self.not_json += 1;
                        let text = String::from_utf8_lossy(json);
                        self.example.get_or_insert_with(|| format!("{key} = {text}"));
                        push_text(&mut arguments, &text);
                    }
                },
            }
        }
        if !arguments.is_empty() {
            arguments.push('}');
        }
        let scope = entry.scope.map(|scope| Cow::Owned(char::from(scope).to_string()));
        self.recorded(Event {
            phase: entry.phase,
            name: Some(name),
            category,
            pid: Some(scalar(entry.process)),
            tid: Some(scalar(entry.thread)),
            time_ns: Some(entry.time_ns),
            duration_ns: entry.duration_ns.map(|ns| i64::try_from(ns).unwrap_or(i64::MAX)),
            id: entry.id.map(Scalar::Int),
            // `e` means that the arrow ends at the slice that encloses this event.
            binding: (entry.phase == b'f').then_some(Cow::Borrowed("e")),
            scope,
            args: (!arguments.is_empty()).then_some(Raw::of(&arguments)),
            ..Event::default()
        });
        self.arguments = arguments;
    }

    pub(super) fn put_field(&mut self, key: &[u8], json: &[u8]) {
        let key = self.text(key).into_owned();
        let value = serde_json::from_slice(json).unwrap_or_else(|_| {
            self.not_json += 1;
            let text = String::from_utf8_lossy(json).into_owned();
            self.example.get_or_insert_with(|| format!("{key} = {text}"));
            Value::String(text)
        });
        self.recording.any = true;
        self.recording.fields.insert(key, value);
    }

    /// Reads a trace file. `head` is the beginning of the file. The times in the file are relative
    /// to the `baseTimeNanoseconds` in `head`, or to 1970 if `head` does not contain this field.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read to its end. The events before the error are in
    /// the profile.
    pub fn read_file(&mut self, source: impl Read, head: &[u8]) -> Result<ReadSummary, ReadError> {
        let base_ns = base_of(head).unwrap_or(0);
        read(source, &mut File { events: self, base_ns })
    }
}

fn name_in(arguments: Raw<'_>) -> Option<String> {
    let arguments: Value = serde_json::from_str(arguments.get()).ok()?;
    Some(arguments.get("name")?.as_str()?.to_owned())
}

/// Returns the value of `baseTimeNanoseconds`, which PyTorch writes before the events, and to which
/// their times are relative.
fn base_of(head: &[u8]) -> Option<i64> {
    const KEY: &[u8] = b"\"baseTimeNanoseconds\":";
    let at = head.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let number = head[at..].iter().skip_while(|byte| byte.is_ascii_whitespace());
    let number = number.take_while(|byte| byte.is_ascii_digit() || **byte == b'-');
    String::from_utf8(number.copied().collect()).ok()?.parse().ok()
}

struct File<'e, 'a, 'b> {
    events: &'e mut Events<'a, 'b>,
    base_ns: i64,
}

impl EventSink for File<'_, '_, '_> {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        let time_ns = event.time_ns.map(|ns| ns.saturating_add(self.base_ns));
        self.events.recorded(Event { time_ns, ..event.clone() });
        self.events.error.clone().map_or(Ok(()), Err)
    }

    fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        self.events.put_field(key.as_bytes(), value.get().as_bytes());
        Ok(())
    }
}

/// Appends a text as a string of JSON.
fn push_text(json: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&Value::from(text).to_string());
    }
}

fn push_integer(json: &mut String, value: i64) {
    use std::fmt::Write;
    let _ = write!(json, "{value}");
}

#[cfg(test)]
mod tests {
    use super::base_of;

    #[test]
    fn the_base_is_found_in_the_beginning_of_a_file() {
        let head =
            b"{ \"a\": \"\xc3\xa9\", \"baseTimeNanoseconds\": 1790857026000000000,\n \"x\": \"\xc3";
        assert_eq!(base_of(head), Some(1_790_857_026_000_000_000));
        assert_eq!(base_of(b"{\"traceEvents\": []}"), None);
        assert_eq!(base_of(b"\"baseTimeNanoseconds\":-5"), Some(-5));
    }
}
