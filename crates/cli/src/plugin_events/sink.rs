//! What a plugin hands over, as events of a Chrome trace in Kineto's shape: a [`plugin_host::Sink`]
//! in front of the importer.
//!
//! | of the plugin | in the trace |
//! |---|---|
//! | event | slice (`X`) with its metadata as arguments, or a moment (`i`) |
//! | flow | an end of an arrow (`s`, `f`), category `ac2g` or `fwdbwd` |
//! | `gpu_pm_counter`, a counter of the extension | counter (`C`) with its series as arguments |
//! | device | name, labels and place of the process with the device's number |
//! | stream, thread | name and place of a thread |
//!
//! A slice on a device has the arguments `device`, `stream` and `correlation`, by which other tools
//! know work of a device, also if the plugin did not add them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use abi::kineto::{FLOW_FWD_BWD, TYPE_COUNTER, TYPE_INSTANT};
use model::activity::{Kind, Registry};
use plugin_host::entry::Entry;
use plugin_host::{Counter, Event as Given, Message, Metadata, Sink};
use profile::{PLUGIN_PARTS, PartId, UtcClock};
use serde_json::{Map, Value, json};
use trace::chrome::event::{Event, Raw, Scalar};
use trace::chrome::read::EventSink as _;
use trace::export::activities::PLUGIN_ROWS;
use trace::import::trace::{CounterValue, OneTrace};

/// A process of a recorded profile, whose plugins have handed over events. Its plugins share the
/// numbers of devices and of arrows; in the profile, those of different processes differ.
#[derive(Debug)]
pub struct Owner {
    id: PartId,
    /// What it is called: its program and its process id.
    name: String,
    /// The number of its first row of events among those of all processes.
    first: i64,
    /// Numbers of devices and processes that events named, each with a row of its own, and whether a
    /// plugin has named that row.
    rows: Vec<(i64, bool)>,
    /// The rows by these numbers.
    by_number: HashMap<i64, usize>,
    /// Rows of processes whose ids are texts.
    texts: HashMap<String, usize>,
    /// What is added to the ids of arrows.
    arrows: u64,
    /// Number of recordings of PyTorch's profiler, whose arrows are numbered from 0 in each.
    recordings: u64,
    clock: UtcClock,
}

impl Owner {
    /// `index` distinguishes the processes of one conversion.
    pub fn new(id: PartId, name: String, index: usize, clock: UtcClock) -> Self {
        let first = PLUGIN_ROWS + index as i64 * i64::from(PLUGIN_PARTS);
        let arrows = (index as u64 + 1) << 32;
        Self {
            id,
            name,
            first,
            rows: Vec::new(),
            by_number: HashMap::new(),
            texts: HashMap::new(),
            arrows,
            recordings: 0,
            clock,
        }
    }

    /// The process whose events are numbered from 0.
    pub fn id(&self) -> PartId {
        self.id
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The row of a device's or process's number. It is created if it is new.
    fn row(&mut self, number: i64, trace: &mut OneTrace<'_>) -> usize {
        if let Some(row) = self.by_number.get(&number) {
            return *row;
        }
        // A plugin that names thousands of devices gets no more rows.
        if self.rows.len() + 1 < PLUGIN_PARTS as usize {
            self.rows.push((number, false));
            let row = self.rows.len() - 1;
            self.by_number.insert(number, row);
            trace.place(self.first + row as i64, self.id.of_plugins(row as u32));
        }
        self.rows.len() - 1
    }

    /// The row of a process whose id is a text, which is also its name. Such rows have numbers that no
    /// device has.
    fn row_of_text(&mut self, text: &str, trace: &mut OneTrace<'_>) -> (usize, bool) {
        if let Some(row) = self.texts.get(text) {
            return (*row, false);
        }
        let row = self.row(i64::MIN + self.texts.len() as i64, trace);
        self.rows[row].1 = true;
        self.texts.insert(text.to_owned(), row);
        (row, true)
    }

    /// A new recording of PyTorch's profiler begins.
    pub fn begin_recording(&mut self) {
        self.recordings += 1;
    }

    /// The id of an arrow of the recording that came last.
    pub fn arrow(&self, id: i64) -> i64 {
        (self.recordings << 48).wrapping_add(self.arrows).wrapping_add(id as u64) as i64
    }

    /// Names the rows that no plugin has named.
    ///
    /// # Errors
    /// The profile is not writable.
    pub fn finish(&mut self, trace: &mut OneTrace<'_>) -> Result<(), String> {
        for row in 0..self.rows.len() {
            let (number, named) = self.rows[row];
            if named {
                continue;
            }
            let name = match number {
                n if n == i64::from(self.id.pid) => format!("plugins of {}", self.name),
                n => format!("{n} of {}", self.name),
            };
            let args = json!({ "name": name }).to_string();
            trace.event(
                0,
                &Event {
                    phase: b'M',
                    name: Some(Cow::Borrowed("process_name")),
                    pid: Some(Scalar::Int(self.first + row as i64)),
                    tid: Some(Scalar::Int(0)),
                    args: Some(Raw::of(&args)),
                    ..Event::default()
                },
            )?;
        }
        Ok(())
    }
}

/// What is known of the recording of another profiler whose events come ([`super::recording`]).
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Facts about it.
    pub fields: Map<String, Value>,
    /// Whether there was anything of it.
    pub any: bool,
    /// Whether the ops of PyTorch in this process are calls of the profile already.
    pub ops_are_calls: bool,
}

/// Something that a plugin did wrong or has logged.
#[derive(Clone, Debug)]
pub struct Said {
    pub loses: bool,
    pub count: u64,
    pub text: String,
}

/// Gives a trace the events of one plugin.
pub struct Events<'a, 'b> {
    pub(super) trace: &'a mut OneTrace<'b>,
    base_ns: i64,
    /// The process of the events, in a recorded profile.
    pub(super) owner: Option<&'a mut Owner>,
    /// The recording of another profiler whose events these are, if they are.
    pub(super) recording: Recording,
    /// The plugin's name, if the stream says it.
    pub plugin: String,
    /// What the plugin was doing when the stream ended.
    pub doing: String,
    /// What it did wrong or has logged.
    pub said: Vec<Said>,
    /// Kinds that the plugin declared: number, name, the published type that each is like.
    declared: HashMap<u32, (String, u32)>,
    registry: Registry,
    /// What is known of each type that came: see [`Events::kind_of`].
    kinds: Vec<(u32, Rc<str>, bool)>,
    pub(super) arguments: String,
    /// Events, counter values included.
    pub events: u64,
    /// Values of metadata that are not JSON; each was kept as text.
    pub not_json: u64,
    /// The first of them.
    pub example: Option<String>,
    /// Texts that are not UTF-8; other characters stand for their bytes.
    pub not_text: u64,
    /// The profile could not be written.
    pub error: Option<String>,
}

impl<'a, 'b> Events<'a, 'b> {
    /// `base_ns`: the trace's time 0, ns since 1970.
    pub fn new(trace: &'a mut OneTrace<'b>, base_ns: i64) -> Self {
        Self {
            trace,
            base_ns,
            owner: None,
            recording: Recording::default(),
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
            error: None,
        }
    }

    /// For events of a process of a recorded profile.
    pub fn of_process(trace: &'a mut OneTrace<'b>, owner: &'a mut Owner) -> Self {
        Self { owner: Some(owner), ..Self::new(trace, 0) }
    }

    /// The number in the trace of what a plugin calls by this number.
    fn process(&mut self, number: i64) -> i64 {
        match &mut self.owner {
            Some(owner) => owner.first + owner.row(number, self.trace) as i64,
            None => number,
        }
    }

    /// The number in the trace of a process of a recording.
    pub(super) fn process_of(&mut self, id: &Scalar<'_>) -> i64 {
        let text = match id {
            Scalar::Int(number) => return self.process(*number),
            other => other.to_string(),
        };
        let Some(owner) = &mut self.owner else { return 0 };
        let (row, new) = owner.row_of_text(&text, self.trace);
        let number = owner.first + row as i64;
        if new {
            let args = json!({ "name": text }).to_string();
            self.put(&Event {
                phase: b'M',
                name: Some(Cow::Borrowed("process_name")),
                pid: Some(Scalar::Int(number)),
                tid: Some(Scalar::Int(0)),
                args: Some(Raw::of(&args)),
                ..Event::default()
            });
        }
        number
    }

    /// Names the row of the process itself, if it has no name yet.
    pub(super) fn name_own_process(&mut self, before: &str) {
        let Some(owner) = &mut self.owner else { return };
        let pid = i64::from(owner.id.pid);
        let row = owner.row(pid, self.trace);
        if !std::mem::replace(&mut owner.rows[row].1, true) {
            let name = format!("{before}{}", owner.name);
            self.about((pid, None), "process_name", "name", &Value::from(name));
        }
    }

    /// The trace's time of a moment in ns since 1970.
    pub(super) fn time_ns(&self, utc_ns: i64) -> i64 {
        match &self.owner {
            Some(owner) => owner.clock.profile_utc_ns(utc_ns),
            None => utc_ns.saturating_sub(self.base_ns),
        }
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

    /// The name of a type, and whether events of it are on a device.
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
        // There are few types, but a plugin may invent many.
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

    /// An argument that other tools look for, unless the plugin gave it.
    fn usual(&mut self, metadata: &Metadata, key: &str, value: i64) {
        if !metadata.iter().any(|(known, _)| known == key.as_bytes()) {
            self.begin_argument(key);
            // Writing to a String does not fail.
            let _ = write!(self.arguments, "{value}");
        }
    }

    /// Hands over an event with the arguments that were collected.
    fn with_arguments(&mut self, event: Event<'_>) {
        if self.arguments.is_empty() {
            return self.put(&event);
        }
        self.arguments.push('}');
        let arguments = std::mem::take(&mut self.arguments);
        self.put(&Event { args: Some(Raw::of(&arguments)), ..event });
        self.arguments = arguments;
    }

    /// What the trace says about a row: an `M` event with one argument.
    fn about(&mut self, row: (i64, Option<i64>), what: &'static str, key: &str, value: &Value) {
        self.arguments.clear();
        self.begin_argument(key);
        self.arguments.push_str(&value.to_string());
        let event = Event {
            phase: b'M',
            name: Some(Cow::Borrowed(what)),
            pid: Some(Scalar::Int(self.process(row.0))),
            tid: Some(Scalar::Int(row.1.unwrap_or(0))),
            ..Event::default()
        };
        self.with_arguments(event);
    }
}

/// Whether these bytes are a value of JSON.
pub fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

impl Sink for Events<'_, '_> {
    fn kind(&mut self, number: u32, name: &str, base: u32) {
        self.kinds.clear();
        self.declared.entry(number).or_insert_with(|| (name.to_owned(), base));
    }

    fn plugin(&mut self, name: &[u8]) {
        self.plugin = String::from_utf8_lossy(name).into_owned();
    }

    fn field(&mut self, key: &[u8], json: &[u8]) {
        self.put_field(key, json);
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.put_entry(entry);
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
        let time_ns = self.time_ns(given.start_ns);
        let process = self.process(given.device.into());
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
            _ => self.with_arguments(Event { duration_ns: None, ..event }),
        }
        if let Some(flow) = given.flow {
            let category = if flow.flow_type == FLOW_FWD_BWD { "fwdbwd" } else { "ac2g" };
            let of_process = self.owner.as_ref().map_or(0, |owner| owner.arrows as i64);
            self.put(&Event {
                phase: if flow.is_start { b's' } else { b'f' },
                name: Some(Cow::Borrowed(category)),
                category: Some(Cow::Borrowed(category)),
                pid: Some(Scalar::Int(process)),
                tid: Some(Scalar::Int(given.resource.into())),
                time_ns: Some(time_ns),
                id: Some(Scalar::Int(of_process + i64::from(flow.id))),
                binding: (!flow.is_start).then_some(Cow::Borrowed("e")),
                ..Event::default()
            });
        }
    }

    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        let name = name.map_or(Cow::Owned(device.to_string()), |name| self.text(name));
        let label = self.text(label);
        let row = (device, None);
        let name = match &mut self.owner {
            Some(owner) => {
                let row = owner.row(device, self.trace);
                owner.rows[row].1 = true;
                Cow::Owned(format!("{name} of {}", owner.name))
            }
            None => name,
        };
        self.about(row, "process_name", "name", &Value::from(&*name));
        if !label.is_empty() {
            self.about(row, "process_labels", "labels", &Value::from(&*label));
        }
        self.about(row, "process_sort_index", "sort_index", &Value::from(sort_index));
    }

    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        let name = name.map_or(Cow::Owned(resource.to_string()), |name| self.text(name));
        let row = (device.into(), Some(resource.into()));
        self.about(row, "thread_name", "name", &Value::from(&*name));
        self.about(row, "thread_sort_index", "sort_index", &Value::from(order));
    }

    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        let name = self.text(name);
        let row = (process.into(), Some(thread.into()));
        self.about(row, "thread_name", "name", &Value::from(&*name));
    }

    fn counter(&mut self, counter: &Counter<'_>) {
        self.events += 1;
        let (track, name) = (self.text(counter.track), self.text(counter.series));
        let unit = self.text(counter.unit);
        // As Kineto's counters have it: the unit is part of the series' name.
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
        let event = Event {
            phase: b'C',
            name: Some(track.clone()),
            category: Some(Cow::Borrowed("gpu_pm_counter")),
            // A process called so, as Kineto names those of its own events.
            pid: Some(match device {
                Some(device) => Scalar::Int(self.process(device.into())),
                None => Scalar::Text(Cow::Borrowed("machine")),
            }),
            tid: Some(Scalar::Int(0)),
            time_ns: Some(self.time_ns(counter.time_ns)),
            args: Some(Raw::of(&arguments)),
            ..Event::default()
        };
        let value = CounterValue {
            device,
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
