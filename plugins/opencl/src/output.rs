//! Turns records into events and counters of a trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use plugin::{Event, Kind, Trace};

use crate::queues::{self, Queue};
use crate::record::{Call, Name, Work};
use crate::recorder::{Activity, Record, Store};

#[derive(Debug)]
pub struct Output {
    requested: Vec<Kind>,
    /// Changes of the counters that were not handed over yet: the time, the queue, and by how much
    /// its numbers of commands and bytes change.
    changes: Vec<(i64, Arc<Queue>, i64, i64)>,
    /// The values of the counters that were handed over last (commands and bytes), by the queue's
    /// number.
    values: BTreeMap<i32, (i64, i64)>,
}

impl Output {
    /// Makes an output for events of the requested kinds.
    pub fn new(requested: &[Kind]) -> Self {
        Self { requested: requested.to_vec(), changes: Vec::new(), values: BTreeMap::new() }
    }

    fn wants(&self, kind: Kind) -> bool {
        self.requested.contains(&kind)
    }

    /// Hands over to the host the records, the names of threads, devices and queues, and the
    /// counters' values up to `complete_ns`. The records of all commands that were enqueued before
    /// `complete_ns` must be in `store`, or have been handed over earlier.
    pub fn hand_over(&mut self, store: &Store, complete_ns: i64, trace: &mut Trace<'_>) {
        let process = std::process::id() as i32;
        for (thread, name) in &store.threads {
            trace.thread_name(process, *thread, name);
        }
        for device in queues::devices() {
            let accuracy = match device.accuracy_ns() {
                Some(ns) => format!("clock ±{ns} ns"),
                None => "clock unknown".to_owned(),
            };
            let label = format!("{}, {accuracy}", device.label);
            trace.device(device.number.into(), &device.name, &label);
        }
        let mut seen = BTreeMap::new();
        for record in store.records.iter().flatten() {
            if let Some(activity) = &record.activity {
                seen.entry(activity.queue.number).or_insert_with(|| Arc::clone(&activity.queue));
            }
            self.record(process, record, trace);
        }
        for queue in seen.values() {
            let order = if queue.out_of_order { " (out of order)" } else { "" };
            let name = format!("queue {}{order}", queue.number);
            trace.resource(queue.device.number, queue.number, queue.number, &name);
        }
        self.counters(complete_ns, trace);
    }

    fn record(&mut self, process: i32, record: &Record, trace: &mut Trace<'_>) {
        let Record { call, activity } = record;
        let placed = activity.as_ref().and_then(|activity| {
            // The command's start and end get the same offset, so its duration does not change.
            let offset = activity.queue.device.offset(activity.times[2])?;
            let utc = |time: u64| (time as i64).wrapping_add(offset);
            Some((activity, utc(activity.times[2]), utc(activity.times[3])))
        });
        let kind = activity.as_ref().map(|activity| kind_of(activity.command.work));
        let is_shown = placed.is_some() && kind.is_some_and(|kind| self.wants(kind));
        if self.wants(Kind::RUNTIME) {
            let correlation = activity.as_ref().map(|activity| activity.correlation);
            host_call(process, call, correlation, is_shown, trace);
        }
        let (Some((activity, start_ns, end_ns)), Some(kind)) = (placed, kind) else { return };
        if is_shown {
            let flow = self.wants(Kind::RUNTIME);
            device_activity(kind, call, activity, (start_ns, end_ns), flow, trace);
        }
        if self.wants(Kind::COUNTER) {
            let bytes = activity.command.bytes.map_or(0, |bytes| bytes as i64);
            self.changes.push((call.start_ns, Arc::clone(&activity.queue), 1, bytes));
            self.changes.push((end_ns, Arc::clone(&activity.queue), -1, -bytes));
        }
    }

    /// Hands over the counters' values up to the time `complete_ns`.
    fn counters(&mut self, complete_ns: i64, trace: &mut Trace<'_>) {
        // Of a queue's changes with the same time, ends of commands come first: a command that is
        // enqueued when another one ends must not raise the depth by one for a moment.
        self.changes.sort_by_key(|(time, queue, commands, _)| (*time, queue.number, *commands));
        let length = self.changes.partition_point(|(time, ..)| *time <= complete_ns);
        for (time, queue, commands, bytes) in self.changes.drain(..length) {
            let value = self.values.entry(queue.number).or_default();
            *value = (value.0 + commands, value.1 + bytes);
            let series = format!("queue {}", queue.number);
            let device = Some(queue.device.number);
            trace.counter(time, device, "queue depth", &series, "commands", value.0 as f64);
            if bytes != 0 {
                trace.counter(time, device, "bytes in flight", &series, "B", value.1 as f64);
            }
        }
    }
}

fn kind_of(work: Work) -> Kind {
    match work {
        Work::Kernel => Kind::KERNEL,
        Work::Copy => Kind::MEMCPY,
        Work::Fill => Kind::MEMSET,
    }
}

fn host_call(
    process: i32,
    call: &Call,
    correlation: Option<u32>,
    launches: bool,
    trace: &mut Trace<'_>,
) {
    let mut event = Event::new(Kind::RUNTIME, call.start_ns, call.end_ns.max(call.start_ns))
        .thread(process, call.thread);
    if let Some(id) = correlation {
        event = event.correlation(id.into());
    }
    let mut added = trace.event(&event).name(call.name);
    if let Some(queue) = call.queue {
        added = added.arg("queue", queue);
    }
    if let Some(op) = call.op {
        added = added.arg("External id", op);
    }
    if call.code != 0 {
        added = added.arg("error", call.code);
    }
    if let Some(id) = correlation.filter(|_| launches) {
        added.launches(id);
    }
}

fn device_activity(
    kind: Kind,
    call: &Call,
    activity: &Activity,
    (start_ns, end_ns): (i64, i64),
    has_launch: bool,
    trace: &mut Trace<'_>,
) {
    let Activity { command, queue, correlation, times } = activity;
    // The device's clock may be wrong, but no event of a trace may end before it starts.
    let event = Event::new(kind, start_ns, end_ns.max(start_ns))
        .device(queue.device.number)
        .stream(queue.number)
        .correlation((*correlation).into());
    let name = match &command.name {
        Name::Fixed(name) => name,
        Name::Kernel(name) => &**name,
    };
    let between = |from: u64, to: u64| to.saturating_sub(from);
    let mut added = trace
        .event(&event)
        .name(name)
        .arg("queued to submit ns", between(times[0], times[1]))
        .arg("submit to start ns", between(times[1], times[2]));
    if let Some(op) = call.op {
        added = added.arg("External id", op);
    }
    if let Some(sizes) = &command.sizes {
        let used = ..sizes.dimensions;
        added = added.arg("global size", &sizes.global[used]);
        if let Some(local) = &sizes.local {
            added = added.arg("local size", &local[used]);
        }
        if let Some(offset) = &sizes.offset {
            added = added.arg("global offset", &offset[used]);
        }
    }
    if let Some(bytes) = command.bytes {
        added = added.arg("bytes", bytes);
        // Tools for Kineto's traces know the argument `memory bandwidth (GB/s)`.
        if end_ns > start_ns {
            let rate = bytes as f64 / (end_ns - start_ns) as f64;
            added = added.arg("memory bandwidth (GB/s)", rate);
        }
    }
    if has_launch {
        added.launched_by(*correlation);
    }
}
