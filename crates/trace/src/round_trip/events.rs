//! What an import needs besides what viewers show: more arguments of each call, and for each page
//! of the profile a metadata event, which viewers ignore. `docs/traces.md` describes both.

use std::collections::HashMap;
use std::fmt::Write;

use profile::raw::PageFacts;
use profile::tracks::{Reading, Sample};
use profile::{Columns, Profile, Status};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Name of the metadata event of a page.
pub const PAGE_EVENT: &str = "counterpoint_page";
/// Name of a metadata event with the same arguments, of which only the workgroups of exports
/// matter. In Perfetto's format, a page may wait for slices that are around it, but calls of other
/// threads must not wait for these workgroups.
pub const COUNTS_EVENT: &str = "counterpoint_counts";
/// Name of the metadata event of samples of tracks.
pub const SAMPLES_EVENT: &str = "counterpoint_samples";

/// The arguments of a [`PAGE_EVENT`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageArgs {
    /// The page.
    #[serde(flatten)]
    pub page: PageFacts,
    /// Workgroups of the dispatches of exports that appear in the process for the first time:
    /// export, x, y, z. A call whose dispatch has other workgroups says so itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<[u32; 4]>,
    /// For each call of the page in the order of the events, its index in the page. Empty if the
    /// calls were recorded in the order of their ends (at equal ends, the one that began later
    /// first).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<u32>,
}

/// The arguments of a [`SAMPLES_EVENT`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplesArgs {
    /// Index of the directory in the object's `tracks`.
    pub tracks: usize,
    /// Series, time, and the reading: raw, enabled and running; or a number, as text if JSON does
    /// not have it; or nothing.
    pub samples: Vec<serde_json::Value>,
}

/// Samples that are collected for an event.
pub(crate) struct RawSamples(SamplesArgs);

impl RawSamples {
    /// For a directory of tracks.
    pub fn new(tracks: usize) -> Self {
        Self(SamplesArgs { tracks, samples: Vec::new() })
    }

    /// Adds a sample. Returns the arguments of an event when there are enough.
    pub fn add(&mut self, sample: &Sample) -> Option<String> {
        let (series, time) = (sample.series, sample.time);
        self.0.samples.push(match sample.reading {
            None => json!([series, time]),
            Some(Reading::Count { raw, enabled_ns, running_ns }) => {
                json!([series, time, raw, enabled_ns, running_ns])
            }
            Some(Reading::Value(x)) if x.is_finite() => json!([series, time, x]),
            Some(Reading::Value(x)) => json!([series, time, x.to_string()]),
        });
        (self.0.samples.len() >= MOST_SAMPLES).then(|| self.take())?
    }

    /// The arguments of an event with the rest.
    pub fn finish(mut self) -> Option<String> {
        self.take()
    }

    fn take(&mut self) -> Option<String> {
        let text = serde_json::to_string(&self.0).ok();
        let any = !self.0.samples.is_empty();
        self.0.samples.clear();
        text.filter(|_| any)
    }
}

/// Number of samples in one event.
const MOST_SAMPLES: usize = 256;

/// Writes these events and arguments for one process.
#[derive(Debug)]
pub(crate) struct RawCalls<'a> {
    profile: &'a Profile,
    index: usize,
    alive: bool,
    /// Whether another process of the profile has the same id.
    same_pid: bool,
    /// For each thread, whether another one has the same id.
    same_tid: Vec<bool>,
    /// For each group, whether no other argument has the name of one of its counters.
    plain: Vec<bool>,
    /// For each export, the workgroups of its first dispatch.
    counts: HashMap<u32, [u32; 3]>,
    pages: Vec<(usize, String)>,
}

/// Arguments of calls that are not counters.
pub(crate) const OTHERS: [&str; 18] = [
    "workgroup",
    "worker",
    "cpu",
    "node",
    "dispatch",
    "correlation",
    "start_ticks",
    "duration_ticks",
    "process",
    "thread",
    "export",
    "workgroups",
    "groups",
    "values",
    "weight",
    "skipped",
    "counter_weight",
    "drawn",
];

impl<'a> RawCalls<'a> {
    pub fn new(profile: &'a Profile, index: usize) -> Self {
        let all = &profile.processes;
        let process = &all[index];
        let twice = |tid: u32| process.threads.iter().filter(|t| t.tid == tid).count() > 1;
        let counters = &profile.manifest.counters;
        let plain = profile.groups.all().iter().map(|group| {
            counters[group.counters.clone()].iter().all(|c| {
                !OTHERS.contains(&c.name.as_str())
                    && counters.iter().filter(|other| other.name == c.name).count() == 1
            })
        });
        Self {
            profile,
            index,
            alive: process.alive,
            same_pid: all.iter().filter(|p| p.id.pid == process.id.pid).count() > 1,
            same_tid: process.threads.iter().map(|t| twice(t.tid)).collect(),
            plain: plain.collect(),
            counts: HashMap::new(),
            pages: Vec::new(),
        }
    }

    /// Adds a page that was decoded. Its calls are shown in this order.
    pub fn page(&mut self, columns: &Columns, order: &[u32]) {
        let Some(page) = PageFacts::of(columns, self.alive) else { return };
        let mut counts = Vec::new();
        for (i, export) in columns.export.iter().enumerate() {
            if columns.knows_workgroup(i) {
                self.counts.entry(*export).or_insert_with(|| {
                    let [x, y, z] = [0, 1, 2].map(|axis| columns.count[axis][i]);
                    counts.push([*export, x, y, z]);
                    [x, y, z]
                });
            }
        }
        let ends = order.iter().map(|i| {
            let begin = columns.start_ticks[*i as usize];
            (begin, begin.saturating_add(columns.duration(*i as usize)))
        });
        let usual = by_ends(ends).into_iter().map(|at| order[at]).eq(0..order.len() as u32);
        let order = if usual { Vec::new() } else { order.to_vec() };
        let args = PageArgs { page, counts, order };
        // These are plain numbers and texts, so this cannot fail.
        if let Ok(text) = serde_json::to_string(&args) {
            self.pages.push((columns.thread, text));
        }
    }

    /// The pages since the last call: thread and arguments.
    pub fn pages(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.pages)
    }

    /// Appends more arguments of a call, as the members of a JSON object. With `times`, adds its
    /// raw ticks, because the event's times do not express them.
    pub fn call(&self, columns: &Columns, i: usize, times: bool, text: &mut String) {
        text.push_str("\"export\":");
        push(text, columns.export[i].into());
        let put = |text: &mut String, key: &str| {
            text.push_str(",\"");
            text.push_str(key);
            text.push_str("\":");
        };
        if self.same_pid {
            put(text, "process");
            push(text, self.index as u64);
        }
        if self.same_tid.get(columns.thread) == Some(&true) {
            let thread = self.profile.processes[self.index].threads[columns.thread].uid;
            put(text, "thread");
            push(text, thread.into());
        }
        if columns.knows_workgroup(i) {
            let count = [0, 1, 2].map(|axis| columns.count[axis][i]);
            if self.counts.get(&columns.export[i]) != Some(&count) {
                put(text, "workgroups");
                let _ = write!(text, "[{},{},{}]", count[0], count[1], count[2]);
            }
        }
        if times {
            put(text, "start_ticks");
            push(text, columns.start_ticks[i]);
            put(text, "duration_ticks");
            push(text, columns.duration_ticks[i]);
        }
        if columns.sampled {
            let drawn = columns.drawn(i);
            put(text, "drawn");
            let _ = write!(text, "[{},{},{}]", drawn.period, drawn.counter_period, drawn.skipped);
        }
        if !self.plain.is_empty() {
            put(text, "groups");
            let groups = self.profile.groups.all().iter().zip(&columns.groups).zip(&self.plain);
            for (at, ((group, times), plain)) in groups.enumerate() {
                text.push(if at == 0 { '[' } else { ',' });
                let (enabled, running) = match times.status.get(i) {
                    None | Some(Status::NotRead) => {
                        text.push_str("null");
                        continue;
                    }
                    Some(_) => (times.enabled_ns[i], times.running_ns[i]),
                };
                if times.status[i] == Status::Whole && enabled == running && *plain {
                    push(text, enabled);
                    continue;
                }
                let _ = write!(text, "[{enabled},{running}");
                for counter in group.counters.clone() {
                    match columns.values[counter].get(i) {
                        Some(value) => {
                            text.push(',');
                            push(text, *value);
                        }
                        None => text.push_str(",null"),
                    }
                }
                text.push(']');
            }
            text.push(']');
        }
        let first = columns.extras.partition_point(|extra| extra.call < i);
        for (at, extra) in columns.extras[first..].iter().take_while(|e| e.call == i).enumerate() {
            if at == 0 {
                put(text, "values");
            }
            let _ =
                write!(text, "{}[{},{}]", if at == 0 { '[' } else { ',' }, extra.key, extra.bits);
        }
        if columns.extras.get(first).is_some_and(|extra| extra.call == i) {
            text.push(']');
        }
    }
}

fn push(text: &mut String, n: u64) {
    text.push_str(itoa::Buffer::new().format(n));
}

/// The indices of calls, given by begin and end, in the order in which they are usually recorded:
/// by their ends. Of calls that end together, the one that began later comes first.
pub(crate) fn by_ends(calls: impl Iterator<Item = (u64, u64)>) -> Vec<usize> {
    let calls: Vec<(u64, u64)> = calls.collect();
    let mut places: Vec<usize> = (0..calls.len()).collect();
    let key = |at: usize| (calls[at].1, std::cmp::Reverse(calls[at].0), at);
    if !places.is_sorted_by_key(|at| key(*at)) {
        places.sort_by_key(|at| key(*at));
    }
    places
}
