//! Reads the lines of a bundle.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use serde_json::{Map, Value};

use super::{Bundle, MOST_LINE, MOST_SLICES, Memory, Row, RowKind, Slice, Wait, lanes};
use crate::chrome::read::{ReadError, ReadErrorKind, ReadSummary};

/// Keys of numbers that become arguments of an event, each with the number that IREE writes if
/// there is no value.
const KEPT: [(&str, u64); 22] = [
    ("event_id", 0),
    ("submission_id", 0),
    ("command_buffer_id", 0),
    ("command_index", u32::MAX as u64),
    ("executable_id", 0),
    ("function_ordinal", u32::MAX as u64),
    ("allocation_id", 0),
    ("pool_id", 0),
    ("status_code", 0),
    ("tile_count", 0),
    ("tile_duration_sum_ns", 0),
    ("operation_count", 0),
    ("payload_length", 0),
    ("length", 0),
    ("duration_ticks", 0),
    ("wait_count", 0),
    ("signal_count", 0),
    ("barrier_count", 0),
    ("worker_count", 0),
    ("region_dispatch_count", 0),
    ("region_tile_count", 0),
    ("result", 0),
];
/// Texts that become arguments.
const KEPT_AS_THEY_ARE: [&str; 2] = ["dependency_strategy", "timing_source"];
/// Types of records that become no events. Most of them describe things to which events refer.
const DESCRIPTIONS: [&str; 14] = [
    "schema",
    "session",
    "device",
    "queue",
    "command_buffer",
    "command_operation",
    "executable",
    "executable_function",
    "executable_code_object",
    "executable_code_object_load",
    "event_relationship",
    "counter_set",
    "counter",
    "diagnostic",
];

type Record = Map<String, Value>;

/// One moment on the driver's clock and on the host's clock.
#[derive(Clone, Copy, Debug)]
struct Correlated {
    driver_ns: i64,
    host_ns: i64,
}

#[derive(Default)]
struct Reading {
    bundle: Bundle,
    /// For each device: the first and the last correlation.
    clocks: HashMap<u64, [Correlated; 2]>,
    /// Indices of the slices whose times are on the driver's clock.
    by_driver: Vec<usize>,
    /// By the id of a set of counters: each counter's name, the index of its first value in a
    /// sample, and the number of its values.
    counters: HashMap<u64, Vec<(String, usize, usize)>>,
    /// By the event id of a dispatch: its samples, each with the id of the set of counters.
    samples: HashMap<u64, Vec<(u64, Vec<Value>)>>,
    /// By the event id of a dispatch: the index of its slice.
    by_event: HashMap<u64, usize>,
    /// By the id of a memory pool: a number from 0, in the order in which the pools were found.
    pools: HashMap<u64, u64>,
}

fn number(record: &Record, key: &str) -> Option<u64> {
    record.get(key)?.as_u64()
}

fn time(record: &Record, key: &str) -> Option<i64> {
    record.get(key)?.as_i64()
}

fn text<'a>(record: &'a Record, key: &str) -> Option<&'a str> {
    record.get(key)?.as_str()
}

fn is_true(record: &Record, key: &str) -> bool {
    record.get(key).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn bundle(source: &mut dyn Read) -> Result<Bundle, ReadError> {
    let mut lines = BufReader::new(source);
    let (mut reading, mut line, mut at) = (Reading::default(), Vec::new(), 0u64);
    loop {
        line.clear();
        let error = |kind| ReadError { at, kind };
        let read = (&mut lines).take(MOST_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(|e| error(ReadErrorKind::Io(e)))? as u64;
        if read == 0 {
            break;
        }
        if read == MOST_LINE {
            return Err(error(ReadErrorKind::TooLarge(MOST_LINE as usize)));
        }
        let text = line.trim_ascii();
        match serde_json::from_slice::<Record>(text) {
            _ if text.is_empty() => {}
            Ok(record) => reading.record(record),
            // A writer that was killed may leave an incomplete last line.
            Err(_) if line.last() != Some(&b'\n') => reading.bundle.summary.truncated = true,
            Err(_) => reading.bundle.summary.damaged += 1,
        }
        at += read;
        if reading.bundle.slices.len() > MOST_SLICES {
            let what = format!("more than {MOST_SLICES} events");
            return Err(ReadError { at, kind: ReadErrorKind::Shape(what) });
        }
    }
    reading.bundle.summary.bytes = at;
    Ok(reading.finish())
}

impl Reading {
    fn record(&mut self, record: Record) {
        let kind = text(&record, "record_type").unwrap_or_default().to_owned();
        let known = match kind.as_str() {
            "host_execution_event" => self.host(&record),
            "dispatch_event" | "queue_device_event" => self.device(&record),
            "command_region_event" => self.region(&record),
            "queue_event" => self.wait(&record),
            "memory_event" => self.memory(&record),
            "clock_correlation" => self.correlation(&record),
            "counter_sample" => self.sample(&record),
            _ => None,
        };
        match kind.as_str() {
            "counter" => self.counter(&record),
            "diagnostic" => {
                let dropped = number(&record, "dropped_records").unwrap_or(0);
                self.bundle.summary.dropped += dropped;
            }
            _ => {}
        }
        let summary: &mut ReadSummary = &mut self.bundle.summary;
        match known {
            Some(()) => {}
            None if DESCRIPTIONS.contains(&kind.as_str()) => {}
            // The record lacks a valid time or another necessary value, or its type is not known.
            None => summary.skipped += 1,
        }
    }

    fn slice(&mut self, record: &Record, kind: RowKind, [begin, end]: [i64; 2]) -> Option<usize> {
        let function = text(record, "key").filter(|key| !key.is_empty());
        let operation = text(record, "op").unwrap_or("dispatch");
        let grid = record.get("workgroup_count").and_then(Value::as_array);
        let is_dispatch = operation == "dispatch" && kind != RowKind::Regions;
        let workgroups =
            || grid?.iter().map(Value::as_u64).try_fold(1u64, |n, of| n.checked_mul(of?));
        let name = match kind {
            RowKind::Regions => "region",
            _ if is_dispatch => function.unwrap_or(operation),
            _ => operation,
        };
        self.bundle.slices.push(Slice {
            row: row(record, kind)?,
            name: name.to_owned(),
            begin_ns: begin,
            duration_ns: end.checked_sub(begin).filter(|duration| *duration >= 0)?,
            workgroups: is_dispatch.then(|| workgroups().unwrap_or(0)),
            submission: number(record, "submission_id").unwrap_or(0),
            args: args(record, is_dispatch),
            lane: 0,
            is_known: false,
        });
        Some(self.bundle.slices.len() - 1)
    }

    fn host(&mut self, record: &Record) -> Option<()> {
        self.slice(record, RowKind::Host, host_times(record)?).map(|_| ())
    }

    fn region(&mut self, record: &Record) -> Option<()> {
        self.slice(record, RowKind::Regions, host_times(record)?).map(|_| ())
    }

    fn device(&mut self, record: &Record) -> Option<()> {
        if !is_true(record, "valid") || !is_true(record, "derived_time_available") {
            return None;
        }
        let times = ["start_driver_host_cpu_time_ns", "end_driver_host_cpu_time_ns"];
        let [begin, end] = times.map(|key| time(record, key));
        let at = self.slice(record, RowKind::Device, [begin?, end?])?;
        self.by_driver.push(at);
        if let Some(id) = number(record, "event_id").filter(|_| record.contains_key("key")) {
            self.by_event.insert(id, at);
        }
        Some(())
    }

    fn wait(&mut self, record: &Record) -> Option<()> {
        let begin_ns = time(record, "host_time_ns")?;
        // An operation whose queue never became ready for it has no `ready_host_time_ns`.
        let end_ns = time(record, "ready_host_time_ns").filter(|end| *end >= begin_ns)?;
        self.bundle.waits.push(Wait {
            row: row(record, RowKind::Host)?,
            name: format!("{} queued", text(record, "op").unwrap_or("operation")),
            begin_ns,
            end_ns,
            id: number(record, "event_id")?,
            args: args(record, false),
        });
        Some(())
    }

    fn memory(&mut self, record: &Record) -> Option<()> {
        let pools = self.pools.len() as u64;
        let pool = number(record, "pool_id").filter(|_| is_true(record, "pool_stats_available"));
        let bytes = ["pool_bytes_reserved", "pool_bytes_committed", "pool_bytes_free"];
        let pool = pool.map(|id| {
            let number_of = *self.pools.entry(id).or_insert(pools);
            (number_of, bytes.map(|key| number(record, key).unwrap_or(0)))
        });
        self.bundle.memory.push(Memory {
            row: row(record, RowKind::Host)?,
            name: text(record, "event_type").unwrap_or("memory").to_owned(),
            at_ns: time(record, "host_time_ns")?,
            args: args(record, false),
            pool,
        });
        Some(())
    }

    fn correlation(&mut self, record: &Record) -> Option<()> {
        let [begin, end] = ["host_time_begin_ns", "host_time_end_ns"].map(|key| time(record, key));
        let driver_ns = time(record, "host_cpu_timestamp_ns")?;
        let host_ns = begin?.checked_add(end?.checked_sub(begin?)? / 2)?;
        let now = Correlated { driver_ns, host_ns };
        let device = number(record, "physical_device_ordinal")?;
        self.clocks.entry(device).and_modify(|[_, last]| *last = now).or_insert([now, now]);
        Some(())
    }

    fn counter(&mut self, record: &Record) {
        let place = ["counter_set_id", "sample_value_offset", "sample_value_count"];
        if let [Some(set), Some(offset), Some(count)] = place.map(|key| number(record, key)) {
            let name = text(record, "name").unwrap_or("counter").to_owned();
            let counter = (name, offset as usize, count as usize);
            self.counters.entry(set).or_default().push(counter);
        }
    }

    fn sample(&mut self, record: &Record) -> Option<()> {
        let set = number(record, "counter_set_id")?;
        let event = number(record, "dispatch_event_id").filter(|id| *id > 0)?;
        let values = record.get("values")?.as_array()?.clone();
        self.samples.entry(event).or_default().push((set, values));
        Some(())
    }

    fn finish(mut self) -> Bundle {
        for at in &self.by_driver {
            let slice = &mut self.bundle.slices[*at];
            let Some(clock) = self.clocks.get(&slice.row.device) else { continue };
            let end = slice.begin_ns.saturating_add(slice.duration_ns);
            let [begin, end] = [slice.begin_ns, end].map(|ns| on_host(clock, ns));
            (slice.begin_ns, slice.duration_ns) = (begin, end.saturating_sub(begin).max(0));
        }
        for (event, samples) in &self.samples {
            let Some(at) = self.by_event.get(event) else { continue };
            let args = &mut self.bundle.slices[*at].args;
            for (set, values) in samples {
                for (name, offset, count) in self.counters.get(set).into_iter().flatten() {
                    // A counter may have several values, one for each part of the device. The
                    // values are added up.
                    let of = values.iter().skip(*offset).take(*count).filter_map(Value::as_u64);
                    args.insert(name.clone(), of.fold(0u64, u64::saturating_add).into());
                }
            }
        }
        let mut bundle = self.bundle;
        bundle.slices.sort_by_key(|slice| (slice.begin_ns, std::cmp::Reverse(slice.duration_ns)));
        bundle.waits.sort_by_key(|wait| wait.begin_ns);
        bundle.memory.sort_by_key(|memory| memory.at_ns);
        lanes::find(&mut bundle.slices);
        bundle
    }
}

/// Converts a time of the driver's clock to the host's clock, with the straight line through the
/// first and the last correlation. If they give no rising line, the clocks are assumed to run at
/// the same rate.
fn on_host([first, last]: &[Correlated; 2], driver_ns: i64) -> i64 {
    let since = driver_ns.saturating_sub(first.driver_ns) as f64;
    let driver = last.driver_ns.saturating_sub(first.driver_ns) as f64;
    let host = last.host_ns.saturating_sub(first.host_ns) as f64;
    let ratio = if driver > 0.0 && host > 0.0 { host / driver } else { 1.0 };
    first.host_ns.saturating_add((since * ratio).round() as i64)
}

fn host_times(record: &Record) -> Option<[i64; 2]> {
    let [begin, end] = ["start_host_time_ns", "end_host_time_ns"].map(|key| time(record, key));
    is_true(record, "valid").then_some([begin?, end?])
}

fn row(record: &Record, kind: RowKind) -> Option<Row> {
    let device = number(record, "physical_device_ordinal")?;
    let queue = number(record, "queue_ordinal").unwrap_or(0);
    Some(Row { device, queue, kind })
}

fn args(record: &Record, is_dispatch: bool) -> Map<String, Value> {
    let mut args = Map::new();
    for (key, none) in KEPT {
        if let Some(value) = number(record, key).filter(|value| *value != none) {
            args.insert(key.to_owned(), value.into());
        }
    }
    for key in KEPT_AS_THEY_ARE {
        if let Some(value) = text(record, key) {
            args.insert(key.to_owned(), value.into());
        }
    }
    for key in ["workgroup_count", "workgroup_size"] {
        if let Some(value) = record.get(key).filter(|value| is_dispatch && value.is_array()) {
            args.insert(key.to_owned(), value.clone());
        }
    }
    args
}
