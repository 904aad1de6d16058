//! Converts the data that a plugin hands over to events of a Chrome trace, in the form that Kineto
//! writes.
//!
//! | of the plugin | in the trace |
//! |---|---|
//! | event | slice (`X`) with its metadata as arguments, or a moment (`i`) |
//! | flow | an end of an arrow (`s`, `f`), category `ac2g` or `fwdbwd` |
//! | `gpu_pm_counter`, a counter of the extension | counter (`C`) with its series as arguments |
//! | device | name, labels and place of the process with the device's number |
//! | stream, thread | name and place of a thread |
//!
//! A slice on a device gets the arguments `device` and `stream`, and a slice with an id gets
//! `correlation`, if the plugin did not add them. Other tools recognise work on a device by these
//! arguments.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use abi::kineto::{FLOW_FWD_BWD, MISSING_COUNTERS, MISSING_OVERFLOW, TYPE_COUNTER, TYPE_INSTANT};
use model::Loss;
use model::activity::{Kind, Registry};
use plugin_host::entry::Entry;
use plugin_host::{Counter, Event as Given, Message, Metadata, Sink};
use profile::tracks::Scope;
use profile::{Host, LossCount};
use serde_json::{Map, Value};
use trace::chrome::event::{Event, Raw, Scalar};
use trace::chrome::read::EventSink as _;
use trace::import::trace::{CounterValue, OneTrace};

use super::owner::{Name, Owner};

/// Facts about a recording by another profiler ([`super::recording`]).
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// What the recording contains besides its events, as keys and values.
    pub fields: Map<String, Value>,
    pub any: bool,
    /// Whether Counterpoint itself recorded the framework's ops as calls, in the same process.
    pub ops_are_calls: bool,
}

#[derive(Clone, Debug)]
pub struct Said {
    pub loses: bool,
    pub count: u64,
    pub text: String,
}

pub struct Events<'a, 'b> {
    pub(super) trace: &'a mut OneTrace<'b>,
    pub(super) owner: &'a mut Owner,
    /// Facts about the other profiler's recording that contains the events. It has its default
    /// value if the events come from a plugin.
    pub(super) recording: Recording,
    pub(super) host: &'a Host,
    /// The name of the plugin; empty if the stream does not contain it.
    pub plugin: String,
    /// What the plugin was doing when its stream of events ended, such as `in profilerStop`.
    pub doing: String,
    pub said: Vec<Said>,
    /// The types of events that the plugin declared, by number: the name, and the number of the
    /// Kineto type that is most like it.
    declared: HashMap<u32, (String, u32)>,
    registry: Registry,
    /// A cache of [`Events::kind_of`]: number, name, and whether such events are on a device.
    kinds: Vec<(u32, Rc<str>, bool)>,
    pub(super) arguments: String,
    /// Number of events, including values of counters.
    pub events: u64,
    /// The number of values that should be JSON but are not. They are kept as texts.
    pub not_json: u64,
    pub example: Option<String>,
    /// Invalid bytes of a text are replaced by other characters, and such texts are counted here.
    pub not_text: u64,
    /// Three numbers: events that did not fit into the plugin's buffer, device commands without
    /// times, and device commands without the requested counters.
    pub missing: [u64; 3],
    pub error: Option<String>,
}

impl<'a, 'b> Events<'a, 'b> {
    pub fn new(trace: &'a mut OneTrace<'b>, owner: &'a mut Owner, host: &'a Host) -> Self {
        Self {
            trace,
            owner,
            recording: Recording::default(),
            host,
            plugin: String::new(),
            doing: String::new(),
            said: Vec::new(),
            declared: HashMap::new(),
            registry: Registry::new(),
            kinds: Vec::new(),
            arguments: String::new(),
            events: 0,
            not_json: 0,
            example: None,
            not_text: 0,
            missing: [0; 3],
            error: None,
        }
    }

    fn process(&mut self, number: i64, on_device: bool) -> i64 {
        let row = self.owner.row(number, on_device, self.trace);
        self.owner.id(row)
    }

    pub(super) fn process_of(&mut self, id: &Scalar<'_>) -> i64 {
        match id {
            Scalar::Int(number) => self.process(*number, false),
            other => {
                let row = self.owner.row_of_text(&other.to_string(), self.trace);
                self.owner.id(row)
            }
        }
    }

    /// Names a row. For the recorded process itself, `name` is ignored: the row is named after the
    /// framework (such as PyTorch) whose profiler made the recording.
    pub(super) fn name_process(&mut self, number: i64, name: &str) {
        let Some((id, own)) = self.owner.process() else { return };
        if number == i64::from(id.pid) {
            // The row with Counterpoint's own calls has the plain name of the program.
            let name = format!("{} of {own}", self.host.title);
            return self.owner.name_process(name, self.trace);
        }
        let row = self.owner.row(number, false, self.trace);
        self.owner.name(row, Name::Whole(name.to_owned()));
    }

    pub(super) fn text<'t>(&mut self, bytes: &'t [u8]) -> Cow<'t, str> {
        let text = String::from_utf8_lossy(bytes);
        self.not_text += u64::from(matches!(text, Cow::Owned(_)));
        text
    }

    fn put(&mut self, event: &Event<'_>) {
        if let Err(error) = self.trace.event(0, event) {
            self.error.get_or_insert(error);
        }
    }

    /// Returns the name of an event type, and whether events of this type are on a device.
    fn kind_of(&mut self, number: u32) -> (Rc<str>, bool) {
        if let Some((_, name, on_device)) = self.kinds.iter().find(|known| known.0 == number) {
            return (Rc::clone(name), *on_device);
        }
        let declared = self.declared.get(&number);
        let published = abi::kineto::event_type(declared.map_or(number, |declared| declared.1));
        let on_device =
            published.and_then(|known| self.registry.parse(known.name)).is_some_and(|label| {
                match self.registry.kind(label) {
                    Kind::Generic(generic) => generic.on_device(),
                    Kind::Registered(_) => false,
                }
            });
        let name: Rc<str> = match (declared, published) {
            (Some(declared), _) => declared.0.as_str().into(),
            (None, Some(known)) => known.name.into(),
            (None, None) => format!("type {number}").into(),
        };
        // A plugin may invent many types, so the cache is limited.
        if self.kinds.len() < 64 {
            self.kinds.push((number, Rc::clone(&name), on_device));
        }
        (name, on_device)
    }

    fn begin_argument(&mut self, key: &str) {
        self.arguments.push(if self.arguments.is_empty() { '{' } else { ',' });
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        if key.bytes().all(is_plain) {
            self.arguments.extend(["\"", key, "\":"]);
        } else {
            self.arguments.push_str(&Value::from(key).to_string());
            self.arguments.push(':');
        }
    }

    fn metadata(&mut self, metadata: &Metadata) {
        for (key, value) in metadata.iter() {
            let key = self.text(key);
            self.begin_argument(&key);
            match std::str::from_utf8(value) {
                Ok(value) if is_json(value.as_bytes()) => {
                    self.arguments.push_str(value.trim());
                }
                _ => {
                    self.not_json += 1;
                    let text = String::from_utf8_lossy(value);
                    self.example.get_or_insert_with(|| format!("{key} = {text}"));
                    self.arguments.push_str(&Value::from(&*text).to_string());
                }
            }
        }
    }

    /// Adds an argument, unless the plugin has added it already.
    fn usual(&mut self, metadata: &Metadata, key: &str, value: i64) {
        if !metadata.iter().any(|(known, _)| known == key.as_bytes()) {
            self.begin_argument(key);
            let _ = write!(self.arguments, "{value}");
        }
    }

    fn with_arguments(&mut self, event: Event<'_>) {
        if self.arguments.is_empty() {
            return self.put(&event);
        }
        self.arguments.push('}');
        let arguments = std::mem::take(&mut self.arguments);
        self.put(&Event { args: Some(Raw::of(&arguments)), ..event });
        self.arguments = arguments;
    }

    /// Adds the values of counters that a plugin handed over as an event of Kineto's interface.
    fn counters(&mut self, event: Event<'_>, number: i32, on_device: bool) {
        let pid = self.owner.process().map_or(number as u32, |(id, _)| id.pid);
        let scope = match u32::try_from(number) {
            Ok(number) if on_device => Scope::Device(number),
            _ => Scope::Process(pid),
        };
        if !self.arguments.is_empty() {
            self.arguments.push('}');
        }
        let arguments = std::mem::take(&mut self.arguments);
        let args = (!arguments.is_empty()).then_some(Raw::of(&arguments));
        let put =
            self.trace.counter_values(&Event { args, ..event }, scope, self.owner.source(scope));
        if let Err(error) = put {
            self.error.get_or_insert(error);
        }
        self.arguments = arguments;
    }

    /// Adds an `M` event with one argument. `row` contains the process id in the trace and, for an
    /// event about a thread or stream, its thread id.
    fn about(&mut self, row: (i64, Option<i64>), what: &'static str, key: &str, value: &Value) {
        self.arguments.clear();
        self.begin_argument(key);
        self.arguments.push_str(&value.to_string());
        let event = Event {
            phase: b'M',
            name: Some(Cow::Borrowed(what)),
            pid: Some(Scalar::Int(row.0)),
            tid: Some(Scalar::Int(row.1.unwrap_or(0))),
            ..Event::default()
        };
        self.with_arguments(event);
    }
}

/// A plugin's JSON whose objects and arrays are nested deeper than this is kept as a text.
/// Perfetto's reader crashes at a depth of some tens of thousands.
const DEEPEST: usize = 64;

pub fn losses(failed: u64, full: u64, untimed: u64, uncounted: u64) -> [LossCount; 4] {
    let counts = [
        (Loss::PluginFailed, failed),
        (Loss::PluginBufferFull, full),
        (Loss::DeviceWorkUntimed, untimed),
        (Loss::CounterReadFailed, uncounted),
    ];
    counts.map(|(loss, count)| LossCount::new(loss, count))
}

pub fn is_json(bytes: &[u8]) -> bool {
    is_shallow(bytes) && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

/// Whether objects and arrays are nested at most [`DEEPEST`] deep. The bytes are assumed to be
/// JSON.
fn is_shallow(bytes: &[u8]) -> bool {
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return false;
        }
    }
    true
}

impl Sink for Events<'_, '_> {
    fn kind(&mut self, number: u32, name: &str, base: u32) {
        self.kinds.clear();
        self.declared.entry(number).or_insert_with(|| (name.to_owned(), base));
    }

    fn plugin(&mut self, name: &[u8]) {
        self.plugin = String::from_utf8_lossy(name).into_owned();
        if let Some((id, _)) = self.owner.process() {
            self.owner.begin_plugin(&self.plugin, id.pid);
        }
    }

    fn field(&mut self, key: &[u8], json: &[u8]) {
        self.put_field(key, json);
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.put_entry(entry);
    }

    fn missing(&mut self, what: u32, count: u64) {
        let index = match what {
            MISSING_OVERFLOW => 0,
            MISSING_COUNTERS => 2,
            _ => 1,
        };
        self.missing[index] = self.missing[index].saturating_add(count);
    }

    fn doing(&mut self, what: &[u8]) {
        self.doing = String::from_utf8_lossy(what).into_owned();
    }

    fn message(&mut self, message: &Message<'_>) {
        let text = String::from_utf8_lossy(message.text).into_owned();
        let Message { loses, count, .. } = *message;
        self.said.push(Said { loses, count, text });
    }

    fn event(&mut self, given: &Given, name: &[u8], metadata: &Metadata) {
        self.events += 1;
        let name = self.text(name);
        let (category, on_device) = self.kind_of(given.event_type);
        self.arguments.clear();
        self.metadata(metadata);
        let time_ns = self.owner.time_ns(given.start_ns);
        let is_counter = given.event_type == TYPE_COUNTER;
        let on_device = on_device || is_counter && !self.owner.is_process(given.device.into());
        let process = self.process(given.device.into(), on_device);
        let event = Event {
            phase: match given.event_type {
                TYPE_COUNTER => b'C',
                TYPE_INSTANT => b'i',
                _ => b'X',
            },
            name: Some(Cow::Borrowed(&name)),
            category: Some(Cow::Borrowed(&category)),
            pid: Some(Scalar::Int(process)),
            tid: Some(Scalar::Int(given.resource.into())),
            time_ns: Some(time_ns),
            duration_ns: Some(given.end_ns.saturating_sub(given.start_ns)),
            ..Event::default()
        };
        match event.phase {
            b'X' => {
                if on_device {
                    self.usual(metadata, "device", given.device.into());
                    self.usual(metadata, "stream", given.resource.into());
                }
                if given.id != 0 {
                    self.usual(metadata, "correlation", given.id);
                }
                self.with_arguments(event);
            }
            b'i' => self.with_arguments(Event {
                duration_ns: None,
                scope: Some(Cow::Borrowed("t")),
                ..event
            }),
            _ => self.counters(Event { duration_ns: None, ..event }, given.device, on_device),
        }
        if let Some(flow) = given.flow {
            let category = if flow.flow_type == FLOW_FWD_BWD { "fwdbwd" } else { "ac2g" };
            let is_backward = flow.flow_type == FLOW_FWD_BWD;
            let id = i64::from(is_backward) << 32 | i64::from(flow.id);
            self.put(&Event {
                phase: if flow.is_start { b's' } else { b'f' },
                name: Some(Cow::Borrowed(category)),
                category: Some(Cow::Borrowed(category)),
                pid: Some(Scalar::Int(process)),
                tid: Some(Scalar::Int(given.resource.into())),
                time_ns: Some(time_ns),
                id: Some(Scalar::Int(self.owner.arrow(id))),
                binding: (!flow.is_start).then_some(Cow::Borrowed("e")),
                ..Event::default()
            });
        }
    }

    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        let label = self.text(label);
        let on_device = !self.owner.is_process(device);
        let row = self.owner.row(device, on_device, self.trace);
        if let Some(name) = name {
            let name = self.text(name).into_owned();
            self.owner.name(row, Name::Given(name));
        }
        let row = (self.owner.id(row), None);
        if !label.is_empty() {
            self.about(row, "process_labels", "labels", &Value::from(&*label));
        }
        self.about(row, "process_sort_index", "sort_index", &Value::from(sort_index));
    }

    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        let name = name.map_or(Cow::Owned(resource.to_string()), |name| self.text(name));
        let row = (self.process(device.into(), false), Some(resource.into()));
        self.about(row, "thread_name", "name", &Value::from(&*name));
        self.about(row, "thread_sort_index", "sort_index", &Value::from(order));
    }

    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        let name = self.text(name);
        let row = (self.process(process.into(), false), Some(thread.into()));
        self.about(row, "thread_name", "name", &Value::from(&*name));
    }

    fn counter(&mut self, counter: &Counter<'_>) {
        self.events += 1;
        let (track, name) = (self.text(counter.track), self.text(counter.series));
        let unit = self.text(counter.unit);
        // In Kineto's own counters, the unit is a part of the series' name, too.
        let key = match &*unit {
            "" => name.clone(),
            unit => Cow::Owned(format!("{name} {unit}")),
        };
        self.arguments.clear();
        self.begin_argument(&key);
        self.arguments.push_str(&Value::from(counter.value).to_string());
        self.arguments.push('}');
        let arguments = std::mem::take(&mut self.arguments);
        let device = u32::try_from(counter.device).ok();
        let pid = match device {
            Some(device) => Scalar::Int(self.process(device.into(), true)),
            None => Scalar::Text(Cow::Owned(self.owner.machine().to_owned())),
        };
        let event = Event {
            phase: b'C',
            name: Some(track.clone()),
            category: Some(Cow::Borrowed("gpu_pm_counter")),
            pid: Some(pid),
            tid: Some(Scalar::Int(0)),
            time_ns: Some(self.owner.time_ns(counter.time_ns)),
            args: Some(Raw::of(&arguments)),
            ..Event::default()
        };
        let scope = device.map_or(Scope::Machine, Scope::Device);
        let value = CounterValue {
            scope,
            source: self.owner.source(scope),
            track: &track,
            series: &name,
            unit: &unit,
            value: counter.value,
        };
        if let Err(error) = self.trace.counter_value(&event, &value) {
            self.error.get_or_insert(error);
        }
        self.arguments = arguments;
    }
}

#[cfg(test)]
mod tests {
    use super::is_json;

    #[test]
    fn deep_metadata_is_not_taken_for_json() {
        let nested =
            |open: &str, close: &str, depth| open.repeat(depth) + "1" + &close.repeat(depth);
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            assert!(is_json(nested(open, close, 64).as_bytes()));
            assert!(!is_json(nested(open, close, 65).as_bytes()));
            assert!(!is_json(nested(open, close, 50_000).as_bytes()));
        }
        // Brackets side by side or in a text do not nest.
        assert!(is_json(format!("[{}1]", "[],".repeat(1000)).as_bytes()));
        assert!(is_json(format!("[\"\\\"{}\"]", "[".repeat(1000)).as_bytes()));
        assert!(!is_json(b"[\"[]"));
    }
}
