//! Turns records into events of a trace.
//!
//! The records of a launch and of its work have the same correlation number, but come in different
//! buffers, often seconds apart. The arrow between them needs both. So the launch waits in
//! [`Output`] for its work's record, or for the end of the recording.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use plugin::{Event, Kind, Trace};

use crate::attach;
use crate::collect::{Named, Range, What};
use crate::counter::unit_of;
use crate::cupti::{self, EXTERNAL_OP, EXTERNAL_RANGE};
use crate::functions;
use crate::names::Names;
use crate::records::{Call, Mark, Record, Work};
use crate::sampler::Value;

/// The largest number of entries that a hand-over leaves in each of `waiting`, `open`, `ops` and
/// `worked`. A launch may get no arrow if the records of more than this many later launches come
/// before its work's record.
const MOST: usize = 1 << 20;

/// The stream number of the row for counted ranges. CUPTI numbers streams from 1, so it is unlikely
/// to use this number.
const COUNTED_ROW: i32 = 1_000_000;

#[derive(Debug)]
pub struct Output {
    requested: Vec<Kind>,
    names: Names,
    /// The name and the label of each device, by its number. Each hand-over adds the clock's
    /// accuracy to the label.
    devices: BTreeMap<u32, (Arc<str>, String)>,
    /// The number of each context's device, by the context's number.
    contexts: HashMap<u32, u32>,
    /// The thread of each call in the current records, by correlation. The records of waits
    /// (synchronizations) have no thread, so their threads are looked up here.
    callers: HashMap<u32, u32>,
    threads: BTreeSet<u32>,
    /// The streams that had work, each with the numbers of the device and of the stream.
    streams: BTreeSet<(u32, u32)>,
    counted: BTreeSet<u32>,
    /// The ids of the op and the range around a call, by correlation.
    ops: BTreeMap<u32, [Option<u64>; 2]>,
    waiting: BTreeMap<u32, Call>,
    worked: BTreeSet<u32>,
    /// Open ranges of NVTX, by id: begin, thread and name.
    open: BTreeMap<u32, (u64, Option<u32>, Arc<str>)>,
    /// The number of kernels, copies and fills for which CUPTI gave no times, since the last
    /// `take_untimed`.
    untimed: u64,
    /// Whether some call launched work for a device.
    launched: bool,
    /// Whether CUPTI reported any work of a device.
    given: bool,
}

impl Output {
    pub fn new(requested: &[Kind]) -> Self {
        Self {
            requested: requested.to_vec(),
            names: Names::default(),
            devices: BTreeMap::new(),
            contexts: HashMap::new(),
            callers: HashMap::new(),
            threads: BTreeSet::new(),
            streams: BTreeSet::new(),
            counted: BTreeSet::new(),
            ops: BTreeMap::new(),
            waiting: BTreeMap::new(),
            worked: BTreeSet::new(),
            open: BTreeMap::new(),
            untimed: 0,
            launched: false,
            given: false,
        }
    }

    pub fn requested(&self) -> &[Kind] {
        &self.requested
    }

    fn wants_work(&self) -> bool {
        [Kind::KERNEL, Kind::MEMCPY, Kind::MEMSET].into_iter().any(|kind| self.wants(kind))
    }

    fn wants(&self, kind: Kind) -> bool {
        self.requested.contains(&kind)
    }

    /// Hands the records over to the host. `last` says that no records follow in this recording.
    pub fn hand_over(&mut self, records: &[Named], last: bool, trace: &mut Trace<'_>) {
        // Records to which other records refer are read first, because they may come after the
        // records that refer to them.
        self.callers.clear();
        for (record, name) in records {
            match *record {
                Record::Call(call) => {
                    self.callers.insert(call.correlation, call.thread);
                }
                Record::Device { id, memory, multiprocessors, capability, mig, .. } => {
                    let name = name.clone().unwrap_or_else(|| Arc::from("CUDA device"));
                    let [major, minor] = capability;
                    let mut label = format!(
                        "compute capability {major}.{minor}, {multiprocessors} multiprocessors, {} MiB",
                        memory >> 20
                    );
                    if let Some([gpu, compute]) = mig {
                        let _ = write!(label, ", MIG instance {gpu} of the GPU, {compute} of it");
                    }
                    self.devices.insert(id, (name, label));
                }
                Record::Context { context, device } => {
                    self.contexts.insert(context, device);
                }
                Record::External { kind, id, correlation } => {
                    let ids = self.ops.entry(correlation).or_default();
                    match kind {
                        EXTERNAL_OP => ids[0] = Some(id),
                        EXTERNAL_RANGE => ids[1] = Some(id),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        for (record, name) in records {
            if let Record::Call(call) = record {
                self.name_thread(call.thread, trace);
            }
            self.record(record, name.as_ref(), trace);
        }
        self.release(last, trace);
        if last {
            // Open ranges end with the recording.
            let now = cupti::in_use().and_then(|cupti| cupti.timestamp()).unwrap_or(0);
            for (begin, thread, name) in std::mem::take(&mut self.open).into_values() {
                self.range(begin, now.max(begin), thread, &name, trace);
            }
        }
        forget(&mut self.ops);
        while self.worked.len() > MOST {
            self.worked.pop_first();
        }
    }

    pub fn take_untimed(&mut self) -> u64 {
        std::mem::take(&mut self.untimed)
    }

    /// Hands over samples. The time of a value is the start of its interval, because tools draw a
    /// value up to the time of the next one.
    pub fn counters(&self, values: &[Value], counters: &[String], trace: &mut Trace<'_>) {
        for Value { time, device, counter, value } in values {
            let Some(name) = counters.get(*counter as usize) else { continue };
            let Some(time_ns) = attach::utc(*time) else { continue };
            let series = format!("gpu{device}");
            trace.counter(time_ns, Some(*device as i32), name, &series, unit_of(name), *value);
        }
    }

    /// Hands over a slice for each range, and the values of its counters. The series of a value is
    /// named after the kernel, or is `op`. The slices have a row of their own, because on a
    /// stream's row, tools would take them for the stream's work.
    pub fn ranges(&mut self, ranges: &[Range], counters: &[String], trace: &mut Trace<'_>) {
        if !self.wants(Kind::PROFILER_RANGE) {
            return;
        }
        for range in ranges {
            let Some((start, end)) = times(range.times.0, range.times.1) else { continue };
            self.counted.insert(range.device);
            let name = match &range.what {
                What::Kernel(Some(name)) => self.names.shown(name),
                What::Kernel(None) => Arc::from("kernel without a name"),
                What::OfGraph(number) => Arc::from(format!("kernel {number} of a graph")),
                What::Op(_) => Arc::from("op"),
            };
            let event = Event::new(Kind::PROFILER_RANGE, start, end)
                .device(range.device as i32)
                .row(COUNTED_ROW)
                .correlation(range.correlation.into());
            // With only the kernel's name, sums of times by name would contain the kernel twice.
            let counted = format!("{name} (counted)");
            let mut added = trace.event(&event).name(&counted).arg("thread", range.thread);
            let op = match range.what {
                What::Op(op) => Some(op),
                _ => self.op(range.correlation),
            };
            if let Some(op) = op {
                added = added.arg("External id", op);
            }
            // A ratio whose divisor is 0 has no finite value.
            let values =
                || counters.iter().zip(&range.values).filter(|(_, value)| value.is_finite());
            for (counter, value) in values() {
                added = added.arg(counter, *value);
            }
            let device = Some(range.device as i32);
            for (counter, value) in values() {
                trace.counter(start, device, counter, &name, unit_of(counter), *value);
            }
        }
    }

    pub fn lacks_work(&self) -> bool {
        self.wants_work() && self.launched && !self.given
    }

    fn record(&mut self, record: &Record, name: Option<&Arc<str>>, trace: &mut Trace<'_>) {
        match *record {
            Record::Call(call) => self.call(call, trace),
            Record::Kernel { work, grid, block, registers, shared, .. } => {
                let name = match name {
                    Some(name) => self.names.shown(name),
                    None => Arc::from("kernel without a name"),
                };
                let wide = |numbers: [i32; 3]| numbers.map(i64::from);
                self.work(Kind::KERNEL, &work, &name, trace, |added| {
                    added
                        .arg("grid", &wide(grid)[..])
                        .arg("block", &wide(block)[..])
                        .arg("registers per thread", u32::from(registers))
                        .arg("shared memory", i64::from(shared[0]) + i64::from(shared[1]))
                });
            }
            Record::Copy { work, kinds, bytes, peers } => {
                let name = copy_name(kinds);
                self.work(Kind::MEMCPY, &work, &name, trace, |added| {
                    let added = added.arg("bytes", bytes);
                    match peers {
                        Some([from, to]) => added.arg("from device", from).arg("to device", to),
                        None => added,
                    }
                });
            }
            Record::Fill { work, memory, bytes } => {
                let name = format!("Memset ({})", memory_kind(memory));
                self.work(Kind::MEMSET, &work, &name, trace, |added| added.arg("bytes", bytes));
            }
            Record::Wait { what, start, end, context, stream, correlation } => {
                self.wait(what, (start, end), context, stream, correlation, trace);
            }
            Record::Marker { what, time, id, thread, .. } => {
                let name = name.cloned().unwrap_or_else(|| Arc::from("range without a name"));
                self.marker(what, time, id, thread, name, trace);
            }
            Record::Overhead { what, start, end, thread } => {
                self.overhead(overhead_name(what), (start, end), thread, trace);
            }
            Record::Device { .. } | Record::Context { .. } | Record::External { .. } => {}
        }
    }

    /// Hands over Linux's name of a thread, once, if the thread has not ended yet.
    fn name_thread(&mut self, thread: u32, trace: &mut Trace<'_>) {
        if self.threads.insert(thread) {
            let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
            if let Ok(name) = name {
                trace.thread_name(std::process::id() as i32, thread as i32, name.trim_end());
            }
        }
    }

    fn call(&mut self, call: Call, trace: &mut Trace<'_>) {
        if !self.wants(if call.is_driver { Kind::DRIVER } else { Kind::RUNTIME }) {
            return;
        }
        self.launched |= call.code == 0 && launches(&functions::name_of(&call));
        if self.worked.remove(&call.correlation) {
            self.add_call(&call, true, trace);
        } else if call.code == 0 && self.wants_work() && launches(&functions::name_of(&call)) {
            // A call of the driver inside of a call of the runtime has the same correlation. Of the
            // two, the call whose record comes last is kept until the record of the work comes.
            if let Some(other) = self.waiting.insert(call.correlation, call) {
                self.add_call(&other, false, trace);
            }
        } else {
            self.add_call(&call, false, trace);
        }
    }

    /// Hands over the calls whose work has arrived, and the oldest calls beyond [`MOST`]. With
    /// `last`, hands over all calls.
    fn release(&mut self, last: bool, trace: &mut Trace<'_>) {
        let ready: Vec<u32> = if last {
            self.waiting.keys().copied().collect()
        } else {
            let excess = self.waiting.len().saturating_sub(MOST);
            let oldest = self.waiting.keys().take(excess).copied();
            let worked = self.waiting.keys().filter(|id| self.worked.contains(id)).copied();
            oldest.chain(worked).collect()
        };
        for correlation in ready {
            let has_work = self.worked.remove(&correlation);
            if let Some(call) = self.waiting.remove(&correlation) {
                self.add_call(&call, has_work, trace);
            }
        }
    }

    fn add_call(&self, call: &Call, launches: bool, trace: &mut Trace<'_>) {
        let Some((start, end)) = times(call.start, call.end) else { return };
        let kind = if call.is_driver { Kind::DRIVER } else { Kind::RUNTIME };
        let event = Event::new(kind, start, end)
            .thread(std::process::id() as i32, call.thread as i32)
            .correlation(call.correlation.into());
        let mut added = trace.event(&event).name(&functions::name_of(call));
        if let Some(op) = self.op(call.correlation) {
            added = added.arg("External id", op);
        }
        if call.code != 0 {
            added = added.arg("error", call.code);
        }
        if launches {
            added.launches(call.correlation);
        }
    }

    fn op(&self, correlation: u32) -> Option<u64> {
        let [op, range] = self.ops.get(&correlation)?;
        op.or(*range)
    }

    fn work(
        &mut self,
        kind: Kind,
        work: &Work,
        name: &str,
        trace: &mut Trace<'_>,
        details: impl for<'a, 't> FnOnce(plugin::EventInTrace<'a, 't>) -> plugin::EventInTrace<'a, 't>,
    ) {
        if !self.wants(kind) {
            return;
        }
        self.given = true;
        let Some((start, end)) = times(work.start, work.end) else {
            self.untimed += 1;
            return;
        };
        self.streams.insert((work.device, work.stream));
        let event = Event::new(kind, start, end)
            .device(work.device as i32)
            .stream(work.stream as i32)
            .correlation(work.correlation.into());
        let mut added = details(trace.event(&event).name(name)).arg("context", work.context);
        if work.graph_node != 0 {
            added = added.arg("graph node id", work.graph_node);
        }
        if let Some(op) = self.op(work.correlation) {
            added = added.arg("External id", op);
        }
        let has_call = self.wants(Kind::RUNTIME) || self.wants(Kind::DRIVER);
        if work.correlation != 0 && has_call {
            added.launched_by(work.correlation);
            self.worked.insert(work.correlation);
        }
    }

    /// Hands over a wait (a synchronization), on the row of the thread that made the API call. On
    /// the stream's row it would overlap the work that it waits for, and timelines leave out
    /// overlapping slices. The thread is that of the API call with the same correlation. If this
    /// call is not in the current records, the thread is not known, and the wait is on the stream's
    /// row.
    fn wait(
        &mut self,
        what: u32,
        (start, end): (u64, u64),
        context: u32,
        stream: Option<u32>,
        correlation: u32,
        trace: &mut Trace<'_>,
    ) {
        if !self.wants(Kind::SYNC) {
            return;
        }
        let Some((start, end)) = times(start, end) else { return };
        let event = Event::new(Kind::SYNC, start, end).correlation(correlation.into());
        if let Some(thread) = self.callers.get(&correlation) {
            let event = event.thread(std::process::id() as i32, *thread as i32);
            let added = trace.event(&event).name(wait_name(what)).arg("context", context);
            if let Some(stream) = stream {
                added.arg("of stream", stream);
            }
        } else if let Some(device) = self.contexts.get(&context) {
            // A wait for a whole context is on stream -1, as in Kineto's traces.
            let event = event.device(*device as i32).stream(stream.unwrap_or(u32::MAX) as i32);
            trace.event(&event).name(wait_name(what)).arg("context", context);
        }
    }

    fn marker(
        &mut self,
        what: Mark,
        time: u64,
        id: u32,
        thread: Option<u32>,
        name: Arc<str>,
        trace: &mut Trace<'_>,
    ) {
        match what {
            Mark::Moment => self.range(time, time, thread, &name, trace),
            Mark::Begin => {
                self.open.insert(id, (time, thread, name));
                forget(&mut self.open);
            }
            // A range that began before the recording is left out.
            Mark::End => {
                if let Some((begin, thread, name)) = self.open.remove(&id) {
                    self.range(begin, time, thread, &name, trace);
                }
            }
        }
    }

    fn range(&self, begin: u64, end: u64, thread: Option<u32>, name: &str, trace: &mut Trace<'_>) {
        let Some(thread) = thread.filter(|_| self.wants(Kind::USER_ANNOTATION)) else { return };
        let Some((start, end)) = times(begin, end) else { return };
        let process = std::process::id() as i32;
        trace
            .event(&Event::new(Kind::USER_ANNOTATION, start, end).thread(process, thread as i32))
            .name(name);
    }

    fn overhead(
        &self,
        name: &str,
        (start, end): (u64, u64),
        thread: Option<u32>,
        trace: &mut Trace<'_>,
    ) {
        let Some(thread) = thread.filter(|_| self.wants(Kind::OVERHEAD)) else { return };
        let Some((start, end)) = times(start, end) else { return };
        let process = std::process::id() as i32;
        let event = Event::new(Kind::OVERHEAD, start, end).thread(process, thread as i32);
        trace.event(&event).name(name);
    }

    /// Names devices and their rows. This is done at each hand-over, because the label contains the
    /// clock's accuracy, which improves. The host uses the last label.
    pub fn describe(&self, trace: &mut Trace<'_>) {
        let accuracy = match attach::accuracy_ns() {
            Some(ns) => format!("clock ±{ns} ns"),
            None => "clock unknown".to_owned(),
        };
        let version = cupti::in_use().map_or(0, |cupti| cupti.version);
        for (id, (name, label)) in &self.devices {
            let label = format!("{label}, CUPTI {version}, {accuracy}");
            trace.device(i64::from(*id), name, &label);
        }
        for device in &self.counted {
            trace.resource(*device as i32, COUNTED_ROW, COUNTED_ROW, "counted kernels and ops");
        }
        for (device, stream) in &self.streams {
            let name = format!("stream {stream}");
            trace.resource(*device as i32, *stream as i32, *stream as i32, &name);
        }
    }
}

/// Keeps the [`MOST`] largest keys. CUPTI numbers correlations in increasing order, so these keys
/// are the latest. The same is assumed of the ids of NVTX's ranges.
fn forget<T>(by_correlation: &mut BTreeMap<u32, T>) {
    while by_correlation.len() > MOST {
        by_correlation.pop_first();
    }
}

/// Converts times of CUPTI's clock to UTC. Both times get the same offset, so the duration does not
/// change. Returns `None` if a time is 0, which means that CUPTI does not know it, or if the clocks
/// were not compared.
fn times(start: u64, end: u64) -> Option<(i64, i64)> {
    if start == 0 || end == 0 {
        return None;
    }
    let utc = attach::utc(start)?;
    let length = i64::try_from(end.saturating_sub(start)).ok()?;
    Some((utc, utc.checked_add(length)?))
}

fn launches(name: &str) -> bool {
    ["Launch", "Memcpy", "Memset", "Prefetch"].iter().any(|part| name.contains(part))
}

/// Names a copy by its `CUpti_ActivityMemcpyKind` and two `CUpti_ActivityMemoryKind`s, in the words
/// of PyTorch's traces.
fn copy_name([copy, from, to]: [u8; 3]) -> String {
    let copy = match copy {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "unknown",
    };
    format!("Memcpy {copy} ({} -> {})", memory_kind(from.into()), memory_kind(to.into()))
}

/// Names a `CUpti_ActivityMemoryKind`.
fn memory_kind(kind: u16) -> &'static str {
    match kind {
        1 => "Pageable",
        2 => "Pinned",
        3 => "Device",
        4 => "Array",
        5 => "Managed",
        6 => "Device Static",
        7 => "Managed Static",
        _ => "Unknown",
    }
}

/// Names a `CUpti_ActivitySynchronizationType`.
fn wait_name(what: u32) -> &'static str {
    match what {
        1 => "Event Sync",
        2 => "Stream Wait Event",
        3 => "Stream Sync",
        4 => "Context Sync",
        _ => "Sync",
    }
}

/// Names a `CUpti_ActivityOverheadKind`.
fn overhead_name(what: u32) -> &'static str {
    match what {
        1 => "Driver Compiler",
        0x1_0000 => "Buffer Flush",
        0x2_0000 => "Instrumentation",
        0x3_0000 => "Resource",
        0x4_0000 => "Runtime Triggered Module Loading",
        0x5_0000 => "Lazy Function Loading",
        0x6_0000 => "Command Buffer Full",
        0x7_0000 => "Activity Buffer Request",
        0x8_0000 => "UVM Activity Init",
        _ => "Overhead",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_other_traces() {
        assert_eq!(copy_name([1, 2, 3]), "Memcpy HtoD (Pinned -> Device)");
        assert_eq!(copy_name([8, 3, 3]), "Memcpy DtoD (Device -> Device)");
        assert_eq!(copy_name([77, 9, 9]), "Memcpy unknown (Unknown -> Unknown)");
        assert!(launches("cudaLaunchKernelExC") && launches("cuMemcpyHtoDAsync_v2"));
        assert!(!launches("cudaStreamSynchronize") && !launches("cudaMalloc"));
    }
}
