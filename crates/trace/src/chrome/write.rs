//! Writes Chrome's trace event format, event by event, with the schema of Kineto (PyTorch's tracing
//! library).
//!
//! ```text
//!  { head …, "baseTimeNanoseconds": B, "counterpoint": {…}, "traceEvents": [
//!    {"ph":"X","cat":…,"name":…,"pid":…,"tid":…,"ts":µs since B,"dur":µs,"args":{…}},   one per line
//!    … ], "counterpoint_end": {…}, "traceName": … }
//! ```
//!
//! `docs/traces.md` describes the keys. As in Kineto, the time since 1970 is divided into periods
//! of three months, and the base time B is the start of one. So traces of the same period share one
//! time axis, and microseconds with three decimals fit in a double.

use profile::Job;
use std::io::{self, Write};

use crate::text;
use crate::timeline::{
    Arg, ArgValue, Flow, FlowEnd, Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow,
    TimelineSink,
};
use model::activity::Value;

/// Kineto's unit of base times: three Gregorian months, in ns.
const BASE_UNIT_NS: i64 = 7_889_238 * 1_000_000_000;
/// The buffer is written when it has this size.
const FLUSH_BYTES: usize = 1 << 16;
const DEL: u8 = 0x7f;

/// What precedes the events.
#[derive(Clone, Debug, Default)]
pub struct ChromeHead<'a> {
    /// A moment of the trace, in ns since 1970. The base time is at most three months earlier.
    pub near_ns: i64,
    pub host_name: &'a str,
    /// As JSON objects.
    pub devices: &'a [serde_json::Value],
    /// The rank in a distributed job, and the size of this job, if all processes have the same
    /// rank.
    pub rank: Option<Job>,
    /// The object `counterpoint`, for data that the format cannot express.
    pub facts: Option<&'a serde_json::Value>,
}

/// An event that was read from another trace and will be written to this one. Values that are given
/// as JSON are written unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawEvent<'a> {
    /// `ph`; 0 if the event had none.
    pub phase: u8,
    /// `cat`
    pub category: Option<&'a str>,
    /// `name`
    pub name: Option<&'a str>,
    /// `pid`, as JSON.
    pub process: Option<&'a str>,
    /// `tid`, as JSON.
    pub thread: Option<&'a str>,
    /// `ts`, in ns since the base time of the output.
    pub time_ns: Option<i64>,
    /// `dur`, in ns.
    pub duration_ns: Option<i64>,
    /// `ts` as JSON, if it says more than `time_ns`.
    pub exact_time: Option<&'a str>,
    /// `dur` as JSON, if it says more than `duration_ns`.
    pub exact_duration: Option<&'a str>,
    /// `id`, as JSON.
    pub id: Option<&'a str>,
    /// `args`, as JSON.
    pub args: Option<&'a str>,
    /// Other keys, with their values as JSON.
    pub more: &'a [(&'a str, &'a str)],
    /// Other keys and values, as a JSON object. Its opening brace may be missing.
    pub others: Option<&'a str>,
}

#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    text: Text,
}

/// The text that was not yet written to the output. The type does not depend on the type of the
/// output, so its code is compiled once, in this crate.
#[derive(Debug)]
struct Text {
    buffer: Vec<u8>,
    base_ns: i64,
    first: bool,
}

/// Returns the base time of a trace that contains the moment `near_ns` (in ns since 1970).
pub fn base_time_ns(near_ns: i64) -> i64 {
    near_ns.div_euclid(BASE_UNIT_NS).saturating_mul(BASE_UNIT_NS)
}

/// Returns the value of `baseTimeNanoseconds`; 0 if it is missing or not an integer.
pub fn base_of(base: Option<&serde_json::Value>) -> i64 {
    base.and_then(|base| base.as_i64().or_else(|| base.as_str()?.parse().ok())).unwrap_or(0)
}

impl<W: Write> Writer<W> {
    /// Writes what comes before the events.
    pub fn new(out: W, head: &ChromeHead<'_>) -> io::Result<Self> {
        let base_ns = base_time_ns(head.near_ns);
        let mut buffer = Vec::with_capacity(2 * FLUSH_BYTES);
        let b = &mut buffer;
        b.extend_from_slice(b"{\n\"schemaVersion\": 1,\n\"deviceProperties\": ");
        serde_json::to_writer(&mut *b, head.devices)?;
        if let Some(Job { rank, size }) = head.rank {
            b.extend_from_slice(b",\n\"distributedInfo\": {\"rank\": ");
            text::uint(b, rank.into());
            if let Some(size) = size {
                b.extend_from_slice(b", \"world_size\": ");
                text::uint(b, size.into());
            }
            b.push(b'}');
        }
        b.extend_from_slice(b",\n\"host_name\": ");
        text::string(b, head.host_name);
        b.extend_from_slice(b",\n\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": ");
        text::int(b, base_ns);
        if let Some(facts) = head.facts {
            b.extend_from_slice(b",\n\"counterpoint\": ");
            serde_json::to_writer(&mut *b, facts)?;
        }
        b.extend_from_slice(b",\n\"traceEvents\": [");
        Ok(Self { out, text: Text { buffer, base_ns, first: true } })
    }

    /// Starts to write a trace that was read from a file. `document` contains the trace's keys
    /// other than `traceEvents`.
    pub fn again(
        out: W,
        document: &serde_json::Map<String, serde_json::Value>,
    ) -> io::Result<Self> {
        let mut buffer = Vec::with_capacity(2 * FLUSH_BYTES);
        buffer.push(b'{');
        for (key, value) in document {
            buffer.push(b'\n');
            text::string(&mut buffer, key);
            buffer.extend_from_slice(b": ");
            serde_json::to_writer(&mut buffer, value)?;
            buffer.push(b',');
        }
        buffer.extend_from_slice(b"\n\"traceEvents\": [");
        let base_ns = base_of(document.get("baseTimeNanoseconds"));
        Ok(Self { out, text: Text { buffer, base_ns, first: true } })
    }

    /// Ends a trace that was begun with [`Writer::again`], and returns the output.
    pub fn finish_again(mut self) -> io::Result<W> {
        self.text.buffer.extend_from_slice(b"\n]\n}\n");
        self.write_buffer()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes what comes after the events: `last` under the key `key`, and the name of the trace.
    /// Returns the output.
    pub fn finish(mut self, key: &str, last: &impl serde::Serialize, name: &str) -> io::Result<W> {
        self.text.buffer.extend_from_slice(b"\n],\n");
        text::string(&mut self.text.buffer, key);
        self.text.buffer.extend_from_slice(b": ");
        serde_json::to_writer(&mut self.text.buffer, last)?;
        self.text.buffer.extend_from_slice(b",\n\"traceName\": ");
        text::string(&mut self.text.buffer, name);
        self.text.buffer.extend_from_slice(b"\n}\n");
        self.write_buffer()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes the buffer and empties it. The character DEL is escaped: JSON allows DEL in a string,
    /// but Perfetto's trace processor (version 55) then calls the whole file corrupt. DEL occurs
    /// only in strings, where this escape is valid.
    fn write_buffer(&mut self) -> io::Result<()> {
        let mut rest = &self.text.buffer[..];
        if rest.contains(&DEL) {
            let mut escaped = Vec::with_capacity(rest.len() + 64);
            while let Some(at) = rest.iter().position(|byte| *byte == DEL) {
                escaped.extend_from_slice(&rest[..at]);
                escaped.extend_from_slice(b"\\u007f");
                rest = &rest[at + 1..];
            }
            self.out.write_all(&escaped)?;
        }
        self.out.write_all(rest)?;
        self.text.buffer.clear();
        Ok(())
    }

    fn write_if_full(&mut self) -> io::Result<()> {
        if self.text.buffer.len() >= FLUSH_BYTES { self.write_buffer() } else { Ok(()) }
    }

    /// Returns the moment to which `ts` is relative, in ns since 1970.
    pub fn base_ns(&self) -> i64 {
        self.text.base_ns
    }

    /// Writes an event of another trace.
    pub fn raw(&mut self, event: &RawEvent<'_>) -> io::Result<()> {
        self.text.raw(event);
        self.write_if_full()
    }
}

impl Text {
    fn begin(&mut self, phase: u8) {
        self.next();
        self.buffer.extend_from_slice(b"\n{\"ph\":\"");
        self.buffer.extend_from_slice(&[phase, b'"']);
    }

    fn next(&mut self) {
        if !self.first {
            self.buffer.push(b',');
        }
        self.first = false;
    }

    fn raw(&mut self, event: &RawEvent<'_>) {
        self.next();
        self.buffer.extend_from_slice(b"\n{");
        let from = self.buffer.len();
        if event.phase != 0 {
            self.text(b",\"ph\":", char::from(event.phase).encode_utf8(&mut [0; 4]));
        }
        for (key, text) in [(&b",\"cat\":"[..], event.category), (b",\"name\":", event.name)] {
            if let Some(text) = text {
                self.text(key, text);
            }
        }
        for (key, json) in [(&b",\"pid\":"[..], event.process), (b",\"tid\":", event.thread)] {
            self.json(key, json);
        }
        let times = [
            (&b",\"ts\":"[..], event.exact_time, event.time_ns),
            (b",\"dur\":", event.exact_duration, event.duration_ns),
        ];
        for (key, exact, ns) in times {
            match (exact, ns) {
                (Some(json), _) => self.json(key, Some(json)),
                (None, Some(ns)) => {
                    self.buffer.extend_from_slice(key);
                    text::microseconds(&mut self.buffer, ns);
                }
                (None, None) => {}
            }
        }
        self.json(b",\"id\":", event.id);
        for (key, json) in event.more {
            self.text(b",", key);
            self.json(b":", Some(json));
        }
        let others = event.others.and_then(|o| o.trim().strip_suffix('}'));
        let others = others.map(|o| o.strip_prefix('{').unwrap_or(o));
        if let Some(others) = others.map(str::trim).filter(|others| !others.is_empty()) {
            self.buffer.push(b',');
            self.buffer.extend_from_slice(others.as_bytes());
        }
        self.json(b",\"args\":", event.args);
        // Each key was written with a comma before it. The comma before the first key is removed.
        if self.buffer.len() > from {
            self.buffer.remove(from);
        }
        self.buffer.push(b'}');
    }

    fn json(&mut self, key: &[u8], json: Option<&str>) {
        if let Some(json) = json {
            self.buffer.extend_from_slice(key);
            self.buffer.extend_from_slice(json.as_bytes());
        }
    }

    fn text(&mut self, key: &[u8], value: &str) {
        self.buffer.extend_from_slice(key);
        text::string(&mut self.buffer, value);
    }

    fn id(&mut self, key: &[u8], id: Id<'_>) {
        self.buffer.extend_from_slice(key);
        match id {
            Id::Number(n) => text::int(&mut self.buffer, n),
            Id::Text(name) => text::string(&mut self.buffer, name),
        }
    }

    fn row(&mut self, row: Row<'_>) {
        self.id(b",\"pid\":", row.process);
        self.id(b",\"tid\":", row.thread);
    }

    fn at(&mut self, at_ns: i64) {
        self.buffer.extend_from_slice(b",\"ts\":");
        text::microseconds(&mut self.buffer, at_ns.saturating_sub(self.base_ns));
    }

    fn args(&mut self, args: &[Arg<'_>]) {
        self.buffer.extend_from_slice(b",\"args\":{");
        for (i, arg) in args.iter().enumerate() {
            if i > 0 {
                self.buffer.push(b',');
            }
            text::string(&mut self.buffer, arg.key);
            self.buffer.push(b':');
            value(&mut self.buffer, &arg.value);
        }
        self.buffer.extend_from_slice(b"}}");
    }

    fn flow(&mut self, row: Row<'_>, at_ns: i64, flow: &Flow<'_>) {
        self.begin(if flow.end == FlowEnd::Start { b's' } else { b'f' });
        self.text(b",\"cat\":", flow.kind.name());
        self.text(b",\"name\":", flow.kind.name());
        self.buffer.extend_from_slice(b",\"id\":");
        text::uint(&mut self.buffer, flow.id);
        self.row(row);
        self.at(at_ns);
        if flow.end == FlowEnd::Finish {
            self.buffer.extend_from_slice(b",\"bp\":\"e\"");
        }
        self.buffer.push(b'}');
    }

    /// Writes a metadata event (`M`) with one argument.
    fn name_row(&mut self, what: &str, row: Row<'_>, at_ns: i64, arg: Arg<'_>) {
        self.begin(b'M');
        self.text(b",\"name\":", what);
        self.row(row);
        self.at(at_ns);
        self.args(&[arg]);
    }

    fn process(&mut self, process: &ProcessRow<'_>) {
        let row = Row { process: process.id, thread: Id::Number(0) };
        let sort = ArgValue::Plain(Value::Int(process.sort_index));
        self.name_row("process_name", row, process.at_ns, Arg::text("name", process.name));
        self.name_row("process_labels", row, process.at_ns, Arg::text("labels", process.labels));
        let arg = Arg { key: "sort_index", value: sort };
        self.name_row("process_sort_index", row, process.at_ns, arg);
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) {
        let sort = ArgValue::Plain(Value::Int(thread.sort_index));
        let (row, at) = (thread.row, thread.at_ns);
        self.name_row("thread_name", row, at, Arg::text("name", thread.name));
        self.name_row("thread_sort_index", row, at, Arg { key: "sort_index", value: sort });
    }

    fn slice(&mut self, slice: &Slice<'_>) {
        self.begin(b'X');
        self.text(b",\"cat\":", slice.category);
        self.text(b",\"name\":", slice.name);
        self.row(slice.row);
        self.at(slice.start_ns);
        self.buffer.extend_from_slice(b",\"dur\":");
        let duration = i64::try_from(slice.duration_ns).unwrap_or(i64::MAX);
        text::microseconds(&mut self.buffer, duration);
        self.args(slice.args);
        slice.flows.iter().for_each(|flow| self.flow(slice.row, slice.start_ns, flow));
        let known = slice.counters.iter().filter(|counter| !counter.series.is_empty());
        known.copied().for_each(|counter| self.counter(&counter));
    }

    fn instant(&mut self, instant: &Instant<'_>) {
        self.begin(b'i');
        self.text(b",\"cat\":", instant.category);
        self.text(b",\"name\":", instant.name);
        self.row(instant.row);
        self.at(instant.at_ns);
        self.buffer.extend_from_slice(b",\"s\":\"t\"");
        self.args(instant.args);
        instant.flows.iter().for_each(|flow| self.flow(instant.row, instant.at_ns, flow));
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) {
        self.begin(b'C');
        self.text(b",\"cat\":", counter.category);
        self.text(b",\"name\":", counter.name);
        self.row(counter.row);
        self.at(counter.at_ns);
        self.args(counter.series);
    }
}

fn value(out: &mut Vec<u8>, value: &ArgValue<'_>) {
    match value {
        ArgValue::Plain(Value::Null) => out.extend_from_slice(b"null"),
        ArgValue::Plain(Value::Bool(yes)) => {
            out.extend_from_slice(if *yes { b"true" } else { b"false" });
        }
        ArgValue::Plain(Value::Int(n)) => text::int(out, *n),
        ArgValue::Plain(Value::Uint(n)) => text::uint(out, *n),
        ArgValue::Plain(Value::Float(n)) => text::float(out, *n),
        ArgValue::Plain(Value::Text(s)) => text::string(out, s),
        ArgValue::Plain(Value::Json(json)) => out.extend_from_slice(json.as_bytes()),
        ArgValue::Triple([x, y, z]) => {
            for (mark, n) in [(b'[', x), (b',', y), (b',', z)] {
                out.push(mark);
                text::uint(out, (*n).into());
            }
            out.push(b']');
        }
    }
}

impl<W: Write> TimelineSink for Writer<W> {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        self.text.process(process);
        self.write_if_full()
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        self.text.thread(thread);
        self.write_if_full()
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.text.slice(slice);
        self.write_if_full()
    }

    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        self.text.instant(instant);
        self.write_if_full()
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        self.text.counter(counter);
        self.write_if_full()
    }
}
