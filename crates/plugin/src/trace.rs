//! Hands over events.

use std::ffi::CString;
use std::fmt::Write as _;
use std::marker::PhantomData;

use abi::kineto::{
    Counter as RawCounter, FLOW_ASYNC_CPU_GPU, FLOW_FWD_BWD, MISSING_COUNTERS, MISSING_OVERFLOW,
    MISSING_TIMES, ProfileDeviceInfo, ProfileEvent, ProfileEventFlow, ProfileResourceInfo,
    TYPE_COUNTER, TraceBuilder,
};

use crate::extended::Extended;
use crate::kind::Kind;

/// An event for [`Trace::event`]. Times are ns since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    kind: Kind,
    raw: ProfileEvent,
    stream: bool,
    correlation: bool,
}

impl Event {
    /// Makes an event from `start_ns` to `end_ns`. For an event without duration, pass the same
    /// time twice.
    pub fn new(kind: Kind, start_ns: i64, end_ns: i64) -> Self {
        let raw = ProfileEvent { size: ProfileEvent::SIZE, start_ns, end_ns, ..Default::default() };
        Self { kind, raw, stream: false, correlation: false }
    }

    /// Puts the event on this device.
    #[must_use]
    pub fn device(mut self, device: i32) -> Self {
        self.raw.device = device;
        self
    }

    /// Puts the event on this stream or queue of the device. Also adds the arguments `device` and
    /// `stream`, by which tools recognise the work of a device.
    #[must_use]
    pub fn stream(mut self, stream: i32) -> Self {
        self.raw.resource = stream;
        self.stream = true;
        self
    }

    /// Puts the event on a row of the device that is not a stream. [`Trace::resource`] names the
    /// row.
    #[must_use]
    pub fn row(mut self, row: i32) -> Self {
        self.raw.resource = row;
        self
    }

    /// Puts the event on this thread of this process.
    #[must_use]
    pub fn thread(mut self, process: i32, thread: i32) -> Self {
        self.raw.device = process;
        self.raw.resource = thread;
        self
    }

    /// Joins the event of a launch with the event of the launched work: give both the same number.
    /// Also adds the argument `correlation`. Use numbers from 0 to 2,147,483,647, because hosts of
    /// Kineto keep 32 bits.
    #[must_use]
    pub fn correlation(mut self, id: i64) -> Self {
        self.raw.id = id;
        self.correlation = true;
        self
    }
}

/// A value of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A whole number.
    Int(i64),
    /// An unsigned whole number.
    Unsigned(u64),
    /// A floating-point number; if it is not finite, it is written as a text such as `NaN`.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// Text.
    Text(&'a str),
    /// Numbers.
    List(&'a [i64]),
}

macro_rules! values {
    ($( $type:ty => $variant:ident as $wide:ty; )*) => { $(
        impl From<$type> for Value<'_> {
            fn from(value: $type) -> Self {
                Self::$variant(<$wide>::from(value))
            }
        }
    )* };
}

values! {
    i32 => Int as i64;
    i64 => Int as i64;
    u32 => Unsigned as u64;
    u64 => Unsigned as u64;
    f32 => Float as f64;
    f64 => Float as f64;
    bool => Bool as bool;
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [i64]> for Value<'a> {
    fn from(list: &'a [i64]) -> Self {
        Self::List(list)
    }
}

impl Value<'_> {
    /// Returns the value as JSON.
    pub fn to_json(self) -> String {
        let mut json = String::new();
        // Writing to a String does not fail.
        let _ = match self {
            Self::Int(value) => write!(json, "{value}"),
            Self::Unsigned(value) => write!(json, "{value}"),
            Self::Float(value) if value.is_finite() => write!(json, "{value}"),
            Self::Float(value) => write!(json, "\"{value}\""),
            Self::Bool(value) => write!(json, "{value}"),
            Self::Text(text) => write_text(&mut json, text),
            Self::List(values) => write!(json, "{values:?}"),
        };
        json
    }
}

/// Writes a text as JSON in ASCII. Kineto's own writer replaces an event's name that has other
/// bytes, so arguments avoid such bytes, too.
fn write_text(json: &mut String, text: &str) -> std::fmt::Result {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            ' '..='~' => json.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(json, "\\u{unit:04x}")?;
                }
            }
        }
    }
    json.push('"');
    Ok(())
}

/// Why events can be missing although a plugin works as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Missing {
    /// Events that did not fit into the memory that the plugin may use.
    Overflow = MISSING_OVERFLOW,
    /// Commands of a device for which the plugin got no times.
    Times = MISSING_TIMES,
    /// Kernels or ops whose counters could not be read.
    Counters = MISSING_COUNTERS,
}

/// Receives a recording's events during one call of the plugin.
#[derive(Debug)]
pub struct Trace<'t> {
    builder: TraceBuilder,
    extended: &'t Extended,
    failed: u64,
    _valid: PhantomData<&'t ()>,
}

fn c_text(text: &str) -> CString {
    // A zero byte would end the text early.
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

impl<'t> Trace<'t> {
    /// # Safety
    /// The builder must be the host's and valid for `'t`.
    pub(crate) unsafe fn new(builder: TraceBuilder, extended: &'t Extended) -> Self {
        Self { builder, extended, failed: 0, _valid: PhantomData }
    }

    /// Returns how many calls of this trace, except [`Self::missing`], the host has declined or had
    /// no function for.
    pub fn declined(&self) -> u64 {
        self.failed
    }

    fn note(&mut self, code: Option<i32>) {
        self.failed += u64::from(code != Some(0));
    }

    /// Adds an event. Methods of the result add a name, arguments and arrows to the event.
    pub fn event(&mut self, event: &Event) -> EventInTrace<'_, 't> {
        let mut raw = event.raw;
        raw.event_type = self.extended.number(event.kind);
        // SAFETY: `add` is the host's function and gets the host's handle; `raw` lives during the
        // call.
        let code = self.builder.add_event.map(|add| unsafe { add(self.builder.handle, &raw) });
        self.note(code);
        let mut added = EventInTrace { trace: self };
        if event.stream {
            added = added.arg("device", event.raw.device).arg("stream", event.raw.resource);
        }
        if event.correlation {
            added = added.arg("correlation", event.raw.id);
        }
        added
    }

    /// Adds a value of a counter at a moment. `track` ("memory bandwidth") may have several series
    /// ("read", "write"). A host without Counterpoint's extension gets an event with the unit in
    /// the series' name.
    pub fn counter(
        &mut self,
        time_ns: i64,
        device: Option<i32>,
        track: &str,
        series: &str,
        unit: &str,
        value: f64,
    ) {
        if let Some(add) = self.extended.host.and_then(|host| host.add_counter) {
            let (track, series, unit) = (c_text(track), c_text(series), c_text(unit));
            let raw = RawCounter {
                size: RawCounter::SIZE,
                time_ns,
                device: device.unwrap_or(-1),
                reserved: 0,
                track: track.as_ptr(),
                series: series.as_ptr(),
                unit: unit.as_ptr(),
                value,
            };
            // SAFETY: `add` is the host's function and gets the host's handle; `raw` lives during
            // the call.
            let code = unsafe { add(self.builder.handle, &raw) };
            self.note(Some(code));
            return;
        }
        let kind = Kind::from_number(TYPE_COUNTER);
        let series = if unit.is_empty() { series.to_owned() } else { format!("{series} {unit}") };
        self.event(&Event::new(kind, time_ns, time_ns).device(device.unwrap_or(0)))
            .name(track)
            .arg(&series, value);
    }

    /// Tells the host that this many events are missing. If this function returns false, the host
    /// does not count them, and the plugin should return an error.
    pub fn missing(&mut self, what: Missing, count: u64) -> bool {
        let add = self.extended.host.and_then(|host| host.add_missing);
        // SAFETY: `add` is the host's function and gets the host's handle and two numbers.
        add.is_some_and(|add| unsafe { add(self.builder.handle, what as u32, count) == 0 })
    }

    /// Describes a device.
    pub fn device(&mut self, device: i64, name: &str, label: &str) {
        let (name, label) = (c_text(name), c_text(label));
        let raw = ProfileDeviceInfo {
            size: ProfileDeviceInfo::SIZE,
            device,
            sort_index: device,
            name: name.as_ptr(),
            label: label.as_ptr(),
        };
        // SAFETY: `add` is the host's function and gets the host's handle; `raw` lives during the
        // call.
        let code = self.builder.add_device.map(|add| unsafe { add(self.builder.handle, &raw) });
        self.note(code);
    }

    /// Describes a stream of a device, or a thread of a process. Rows with a lower `order` are
    /// shown above the others.
    pub fn resource(&mut self, device: i32, resource: i32, order: i32, name: &str) {
        let name = c_text(name);
        let raw = ProfileResourceInfo {
            size: ProfileResourceInfo::SIZE,
            device,
            resource,
            order,
            name: name.as_ptr(),
        };
        // SAFETY: `add` is the host's function and gets the host's handle; `raw` lives during the
        // call.
        let code = self.builder.add_resource.map(|add| unsafe { add(self.builder.handle, &raw) });
        self.note(code);
    }

    /// Names a thread of the program. For a host without Counterpoint's extension, this describes
    /// the thread as [`Trace::resource`] does.
    pub fn thread_name(&mut self, process: i32, thread: i32, name: &str) {
        let Some(set) = self.extended.host.and_then(|host| host.set_thread_name) else {
            self.resource(process, thread, 0, name);
            return;
        };
        let name = c_text(name);
        // SAFETY: `set` is the host's function and gets the host's handle; `name` lives during the
        // call.
        let code = unsafe { set(self.builder.handle, process, thread, name.as_ptr()) };
        self.note(Some(code));
    }
}

/// The event that was added last.
#[derive(Debug)]
pub struct EventInTrace<'a, 't> {
    trace: &'a mut Trace<'t>,
}

impl EventInTrace<'_, '_> {
    /// Names the event.
    pub fn name(self, name: &str) -> Self {
        let name = c_text(name);
        let builder = self.trace.builder;
        // SAFETY: `set` is the host's function and gets the host's handle; `name` lives during the
        // call.
        let code = builder.set_last_name.map(|set| unsafe { set(builder.handle, name.as_ptr()) });
        self.trace.note(code);
        self
    }

    /// Adds an argument.
    pub fn arg<'v>(self, key: &str, value: impl Into<Value<'v>>) -> Self {
        let (key, value) = (c_text(key), c_text(&value.into().to_json()));
        let builder = self.trace.builder;
        let code = builder
            .add_last_metadata
            // SAFETY: `add` is the host's function and gets the host's handle; both texts live
            // during the call.
            .map(|add| unsafe { add(builder.handle, key.as_ptr(), value.as_ptr()) });
        self.trace.note(code);
        self
    }

    fn flow(self, flow_type: u32, id: u32, is_start: bool) -> Self {
        let raw = ProfileEventFlow {
            size: ProfileEventFlow::SIZE,
            flow_type,
            id,
            is_start: u8::from(is_start),
        };
        let builder = self.trace.builder;
        // SAFETY: `set` is the host's function and gets the host's handle; `raw` lives during the
        // call.
        let code = builder.set_last_flow.map(|set| unsafe { set(builder.handle, &raw) });
        self.trace.note(code);
        self
    }

    /// An arrow to the device begins at this event. `id` must not be 0.
    pub fn launches(self, id: u32) -> Self {
        self.flow(FLOW_ASYNC_CPU_GPU, id, true)
    }

    /// An arrow from a launch ends at this event. `id` must not be 0.
    pub fn launched_by(self, id: u32) -> Self {
        self.flow(FLOW_ASYNC_CPU_GPU, id, false)
    }

    /// An arrow from the forward to the backward pass begins (`true`) or ends at this event.
    pub fn forward_backward(self, id: u32, is_start: bool) -> Self {
        self.flow(FLOW_FWD_BWD, id, is_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_in_ascii() {
        // See RFC 8259, section 7.
        for (value, json) in [
            (Value::from(-3_i64), "-3"),
            (Value::from(u64::MAX), "18446744073709551615"),
            (Value::from(0.5), "0.5"),
            (Value::from(f64::NAN), "\"NaN\""),
            (Value::from(true), "true"),
            (Value::from("a\"b\\c\n"), r#""a\"b\\c\u000a""#),
            (Value::from("é𝄞"), r#""\u00e9\ud834\udd1e""#),
            (Value::from(&[1_i64, 2][..]), "[1, 2]"),
        ] {
            assert_eq!(value.to_json(), json);
        }
    }
}
