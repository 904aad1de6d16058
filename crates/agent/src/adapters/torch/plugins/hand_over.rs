//! Converts a plugin's events, and passes them to PyTorch. Texts are made safe for PyTorch's JSON
//! writer ([`super::safe_text`]), and ids are made to fit into PyTorch's 32 bits. Flows (arrows
//! between events) get numbers that neither PyTorch nor another plugin uses.
//!
//! | a plugin passes | PyTorch gets |
//! |---|---|
//! | a counter event (type `gpu_pm_counter`) | a counter event; the numbers in its metadata are its values |
//! | successive calls of `addCounter` with the same time, device and track, but different series | one counter event |
//! | a type that the plugin has declared | the published type that is its base; the argument "kind" is the declared name |
//! | an id that is negative or too large for an `i32` | a new number; the argument "correlation" is the plugin's id |
//! | a metadata value that is not JSON | the value as a JSON string; a line is printed for the user |

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU32, Ordering};

use abi::kineto::{TYPE_COUNTER, event_type};
use abi::torch::plugins::{Event as RawEvent, Pair, Sink as RawSink, Value};
use model::activity::{Kind, Registry};
use plugin_host::{Counter, Event, Host, Metadata, Sink};

use super::safe_text;

/// The first number for flows of plugins. It is high, because PyTorch numbers its own flows from 1.
const FIRST_FLOW: u32 = 0x4000_0000;
static FLOWS: AtomicU32 = AtomicU32::new(0);

const KERNEL: u32 = 6;

/// Types of events that describe the program: `cpu_op`, `user_annotation` and `python_function`.
/// The ids of such events are not passed on, because PyTorch would link an event that has an id
/// with an operator.
const OF_THE_PROGRAM: [u32; 3] = [1, 2, 11];

/// Receives the events of one profiler of a plugin, and hands them over to PyTorch's sink.
pub struct HandOver<'s> {
    sink: &'s RawSink,
    /// The types of events that the plugin has declared: the name of each, and the published type
    /// that is its base.
    declared: Vec<(String, u32)>,
    /// One bit for each type of event: set if the type's events are on a device.
    on_device: u32,
    /// The new numbers of this recording's flows, by the flow's type and the number that the plugin
    /// gave to the flow.
    flows: HashMap<(u32, u32), u32>,
    /// The new numbers of ids that are negative or too large for an `i32`.
    wide: HashMap<i64, i32>,
    /// A counter event to which the next call of [`Sink::counter`] may add a value.
    pending: Option<Pending>,
    not_json: u64,
    example: Option<String>,
    not_numbers: u64,
    missing: u64,
}

struct Pending {
    time_ns: i64,
    device: i32,
    track: CString,
    values: Vec<(CString, f64)>,
}

impl<'s> HandOver<'s> {
    pub fn new(sink: &'s RawSink, host: &Host) -> Self {
        Self {
            sink,
            declared: host.types(),
            on_device: on_device(),
            flows: HashMap::new(),
            wide: HashMap::new(),
            pending: None,
            not_json: 0,
            example: None,
            not_numbers: 0,
            missing: 0,
        }
    }

    /// Hands over the pending counter event, if there is one. Returns a line for the user if there
    /// were problems with metadata or events.
    pub fn finish(mut self) -> Option<String> {
        self.finish_counter();
        let mut complaints = Vec::new();
        if let Some(example) = self.example {
            complaints.push(format!(
                "gave {} metadata values that are not JSON and are kept as text, such as {example}",
                self.not_json
            ));
        }
        if self.missing > 0 {
            complaints.push(format!("could not give {} events, or their times", self.missing));
        }
        if self.not_numbers > 0 {
            complaints.push(format!(
                "gave {} values of counters that are not numbers and are left out",
                self.not_numbers
            ));
        }
        (!complaints.is_empty()).then(|| complaints.join("; "))
    }

    /// Returns the published type (a type in Kineto's plugin header) that PyTorch gets for an
    /// event's type; `kernel` if the event's type or its base is unknown. If the plugin has
    /// declared the event's type, also returns the declared name.
    fn published(&self, number: u32) -> (u32, Option<&str>) {
        if event_type(number).is_some() {
            return (number, None);
        }
        let own = number.checked_sub(abi::kineto::FIRST_OWN_TYPE).map(|index| index as usize);
        match own.and_then(|index| self.declared.get(index)) {
            Some((name, base)) => {
                (event_type(*base).map_or(KERNEL, |known| known.number), Some(name))
            }
            None => (KERNEL, None),
        }
    }

    /// Returns `id` itself if it is not negative and fits into an `i32`. Otherwise returns a number
    /// near `i32::MAX`, which PyTorch's own ids do not reach.
    fn id(&mut self, id: i64) -> i32 {
        match i32::try_from(id) {
            Ok(id) if id >= 0 => id,
            _ => {
                let next = i32::MAX.saturating_sub(self.wide.len() as i32);
                *self.wide.entry(id).or_insert(next)
            }
        }
    }

    fn put(&self, event: &RawEvent) {
        if let Some(function) = self.sink.event {
            // SAFETY: the sink's function is called with the sink's handle, and with an event whose
            // pointers are all valid during the call.
            unsafe { function(self.sink.handle, event) };
        }
    }

    fn put_counter(
        &self,
        time_ns: i64,
        device: i32,
        resource: i32,
        track: &CStr,
        values: &[(CString, f64)],
    ) {
        let values: Vec<Value> = values
            .iter()
            .map(|(series, value)| Value { series: series.as_ptr(), value: *value })
            .collect();
        self.put(&RawEvent {
            kind: TYPE_COUNTER,
            start_ns: time_ns,
            end_ns: time_ns,
            device,
            resource,
            name: track.as_ptr(),
            values: values.as_ptr(),
            value_count: values.len(),
            ..EMPTY
        });
    }

    fn finish_counter(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.put_counter(pending.time_ns, pending.device, 0, &pending.track, &pending.values);
        }
    }

    /// Hands over a counter event. The numbers in the event's metadata are its values.
    fn counter_event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        let mut values: Vec<(CString, f64)> = Vec::new();
        for (key, value) in metadata.iter() {
            let text = std::str::from_utf8(value).ok().filter(|_| safe_text::json(value).is_some());
            match text.and_then(|text| text.trim().parse::<f64>().ok()).filter(|v| v.is_finite()) {
                Some(value) => values.push((safe_text::name(key), value)),
                None => self.not_numbers += 1,
            }
        }
        if !values.is_empty() {
            let track = safe_text::name(name);
            self.put_counter(event.start_ns, event.device, event.resource, &track, &values);
        }
    }

    fn value(&mut self, key: &CStr, value: &[u8]) -> CString {
        let made = safe_text::json(value).unwrap_or_else(|| {
            self.not_json += 1;
            let (key, value) = (key.to_string_lossy(), String::from_utf8_lossy(value));
            self.example.get_or_insert_with(|| format!("{key} = {value}"));
            safe_text::json_string(value.as_bytes())
        });
        // The text is JSON, whose strings contain no control characters, so it contains no zero
        // byte.
        CString::new(made).unwrap_or_default()
    }
}

const EMPTY: RawEvent = RawEvent {
    size: size_of::<RawEvent>() as u32,
    kind: 0,
    start_ns: 0,
    end_ns: 0,
    id: 0,
    device: 0,
    resource: 0,
    flow_type: 0,
    flow_id: 0,
    flow_is_start: 0,
    name: c"".as_ptr(),
    metadata: std::ptr::null(),
    metadata_count: 0,
    values: std::ptr::null(),
    value_count: 0,
};

/// Returns the published types whose events are on a device: one bit for each type.
fn on_device() -> u32 {
    let registry = Registry::new();
    let is_on_device = |name| match registry.parse(name).map(|label| registry.kind(label)) {
        Some(Kind::Generic(generic)) => generic.on_device(),
        _ => false,
    };
    let known = abi::kineto::EVENT_TYPES.iter().filter(|known| is_on_device(known.name));
    known.fold(0, |bits, known| bits | 1 << known.number)
}

fn number(value: i64) -> CString {
    CString::new(value.to_string()).unwrap_or_default()
}

impl Sink for HandOver<'_> {
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        self.finish_counter();
        if event.event_type == TYPE_COUNTER {
            return self.counter_event(event, name, metadata);
        }
        let (kind, own) = self.published(event.event_type);
        let own = own.map(|own| safe_text::json_string(own.as_bytes()));
        let mut arguments: Vec<(CString, CString)> = Vec::new();
        for (key, value) in metadata.iter() {
            let key = safe_text::name(key);
            // Two keys can become equal when they are made safe. The first value is then used.
            if !arguments.iter().any(|(known, _)| *known == key) {
                let value = self.value(&key, value);
                arguments.push((key, value));
            }
        }
        // Adds arguments that other tools look for, unless the plugin has passed them.
        let mut usual = |key: &CStr, value: CString| {
            if !arguments.iter().any(|(known, _)| known.as_c_str() == key) {
                arguments.push((key.to_owned(), value));
            }
        };
        if let Some(own) = own {
            usual(c"kind", CString::new(own).unwrap_or_default());
        }
        if self.on_device & 1 << kind != 0 {
            usual(c"device", number(event.device.into()));
            usual(c"stream", number(event.resource.into()));
        }
        if event.id != 0 {
            usual(c"correlation", number(event.id));
        }
        let pairs: Vec<Pair> = arguments
            .iter()
            .map(|(key, value)| Pair { key: key.as_ptr(), json: value.as_ptr() })
            .collect();
        let (flow_type, flow_id, flow_is_start) = match event.flow {
            Some(flow) => {
                let fresh = || FIRST_FLOW + FLOWS.fetch_add(1, Ordering::Relaxed) % FIRST_FLOW;
                let id = *self.flows.entry((flow.flow_type, flow.id)).or_insert_with(fresh);
                (flow.flow_type, id, u32::from(flow.is_start))
            }
            None => (0, 0, 0),
        };
        let name = safe_text::name(name);
        let id = self.id(event.id);
        self.put(&RawEvent {
            kind,
            start_ns: event.start_ns,
            end_ns: event.end_ns,
            id: if OF_THE_PROGRAM.contains(&kind) { 0 } else { id },
            device: event.device,
            resource: event.resource,
            flow_type,
            flow_id,
            flow_is_start,
            name: name.as_ptr(),
            metadata: pairs.as_ptr(),
            metadata_count: pairs.len(),
            ..EMPTY
        });
    }

    fn missing(&mut self, _what: u32, count: u64) {
        self.missing = self.missing.saturating_add(count);
    }

    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        let name = name.map_or_else(|| number(device), safe_text::name);
        let label = safe_text::name(label);
        if let Some(function) = self.sink.device {
            // SAFETY: the sink's function is called with the sink's handle, and with C strings that
            // live during the call.
            unsafe {
                function(self.sink.handle, device, sort_index, name.as_ptr(), label.as_ptr());
            }
        }
    }

    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        let name = name.map_or_else(|| number(resource.into()), safe_text::name);
        if let Some(function) = self.sink.resource {
            let (device, resource, order) = (device.into(), resource.into(), order.into());
            // SAFETY: the sink's function is called with the sink's handle, and with a C string
            // that lives during the call.
            unsafe { function(self.sink.handle, device, resource, order, name.as_ptr()) };
        }
    }

    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        self.resource(process, thread, thread, Some(name));
    }

    fn counter(&mut self, counter: &Counter<'_>) {
        let track = safe_text::name(counter.track);
        // Values that belong to the whole machine are shown with the process that recorded them.
        let device = match counter.device {
            -1 => std::process::id() as i32,
            device => device,
        };
        // As in Kineto's own counters, the unit is part of the name of the series.
        let mut series = counter.series.to_vec();
        if !counter.unit.is_empty() {
            series.push(b' ');
            series.extend_from_slice(counter.unit);
        }
        let series = safe_text::name(&series);
        if let Some(pending) = &mut self.pending
            && (pending.time_ns, pending.device) == (counter.time_ns, device)
            && pending.track == track
            && !pending.values.iter().any(|(known, _)| *known == series)
        {
            return pending.values.push((series, counter.value));
        }
        self.finish_counter();
        let values = vec![(series, counter.value)];
        self.pending = Some(Pending { time_ns: counter.time_ns, device, track, values });
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;

    unsafe extern "C" fn note(handle: *mut c_void, event: *const RawEvent) {
        // SAFETY: the test's sink has a list of texts as its handle, and all pointers in an event
        // are valid during the call.
        unsafe {
            let (list, event) = (&mut *handle.cast::<Vec<String>>(), &*event);
            let text = |pointer| CStr::from_ptr(pointer).to_string_lossy().into_owned();
            let mut line = format!(
                "{} {} at {} @{}",
                event.kind,
                text(event.name),
                event.device,
                event.start_ns
            );
            for i in 0..event.value_count {
                let value = &*event.values.add(i);
                line += &format!(" {}={}", text(value.series), value.value);
            }
            for i in 0..event.metadata_count {
                let pair = &*event.metadata.add(i);
                line += &format!(" {}={}", text(pair.key), text(pair.json));
            }
            list.push(format!("{line} #{}", event.id));
        }
    }

    /// Returns what PyTorch receives when `calls` passes events to a [`HandOver`]: one line for
    /// each event.
    fn handed(declared: &[(&str, u32)], calls: impl FnOnce(&mut HandOver<'_>)) -> Vec<String> {
        let mut list: Vec<String> = Vec::new();
        let sink = RawSink {
            size: size_of::<RawSink>() as u32,
            handle: (&raw mut list).cast(),
            event: Some(note),
            device: None,
            resource: None,
        };
        let host = Host::leak(|_, _| {});
        let mut hand_over = HandOver::new(&sink, host);
        hand_over.declared =
            declared.iter().map(|(name, base)| ((*name).to_owned(), *base)).collect();
        calls(&mut hand_over);
        assert_eq!(hand_over.finish(), None);
        list
    }

    fn counter(time_ns: i64, series: &'static str, value: f64) -> Counter<'static> {
        let (track, series) = (&b"power"[..], series.as_bytes());
        Counter { time_ns, device: 2, track, series, unit: b"W", value }
    }

    #[test]
    fn values_of_the_same_moment_are_one_event() {
        let list = handed(&[], |to| {
            to.counter(&counter(5, "core", 1.0));
            to.counter(&counter(5, "memory", 2.0));
            to.counter(&counter(6, "core", 3.0));
            to.counter(&counter(6, "core", 4.0));
        });
        assert_eq!(
            list,
            [
                "22 power at 2 @5 core W=1 memory W=2 #0",
                "22 power at 2 @6 core W=3 #0",
                "22 power at 2 @6 core W=4 #0"
            ]
        );
    }

    #[test]
    fn kinds_of_a_plugins_own_become_published_ones() {
        // 1024 is the first number that the host assigns to declared types; 9 is `cuda_driver`.
        let list = handed(&[("tile", 6), ("doorbell \"1\"", 9), ("odd", 77)], |to| {
            for event_type in [1024, 1025, 1026, 50] {
                let event = Event { event_type, id: -5, ..Event::default() };
                to.event(&event, b"x", &Metadata::default());
            }
        });
        assert_eq!(
            list,
            [
                "6 x at 0 @0 kind=\"tile\" device=0 stream=0 correlation=-5 #2147483647",
                "9 x at 0 @0 kind=\"doorbell '1'\" correlation=-5 #2147483647",
                "6 x at 0 @0 kind=\"odd\" device=0 stream=0 correlation=-5 #2147483647",
                "6 x at 0 @0 device=0 stream=0 correlation=-5 #2147483647",
            ]
        );
    }
}
