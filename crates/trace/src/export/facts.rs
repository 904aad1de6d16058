//! What a trace format cannot express: the top-level objects `counterpoint` and `counterpoint_end`
//! of Chrome JSON, which other readers ignore. `docs/traces.md` describes them.

use std::collections::HashMap;

use profile::raw::{CountsFacts, ProcessFacts};
use profile::tracks::{Readings, Scope, Series, Times};
use profile::{
    CountedCalls, LossCount, Manifest, Moment, Profile, Thread, ThreadSpent, merge_losses,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::export::kinds;

/// The version of the object.
pub const TRACE_SCHEMA: &str = "counterpoint.trace/1";

/// The object `counterpoint`, as far as an import reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// [`TRACE_SCHEMA`].
    pub schema: String,
    /// As in the profile.
    pub manifest: Manifest,
    /// How ticks were converted to times.
    pub clock: ClockFacts,
    /// Each process of the profile.
    pub processes: Vec<ExportedProcess>,
    /// Each directory of tracks.
    pub tracks: Vec<TracksFacts>,
    /// Losses that were known before any call was read.
    pub losses: Vec<LossOf>,
    /// Kinds of activities besides the generic ones.
    pub kinds: Vec<Map<String, Value>>,
}

/// How ticks were converted to times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockFacts {
    /// Nanoseconds in a tick.
    pub ns_per_tick: f64,
    /// Whether that was measured.
    pub calibrated: bool,
    /// Moments on all clocks: those of the manifest, then those of the processes.
    pub snapshots: Vec<Moment>,
}

/// A process and the row of its dispatches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedProcess {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessFacts,
    /// Number of the row of its dispatches.
    pub dispatches_pid: i64,
}

/// A directory of tracks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracksFacts {
    /// Its name.
    pub name: String,
    /// Whether its readings are numbers and not counts with times.
    pub values: bool,
    /// Its series.
    pub series: Vec<SeriesFacts>,
}

/// A series; see [`Series`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "as in Series")]
pub struct SeriesFacts {
    pub id: u32,
    pub track: String,
    pub name: String,
    pub unit: String,
    pub scale: f64,
    pub scope: String,
    pub scope_number: Option<u32>,
    pub times: String,
    pub cumulative: bool,
    pub interval_ns: u64,
    pub source: String,
}

/// A loss and where it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossOf {
    /// Process id; `null` for the run as a whole.
    pub pid: Option<u32>,
    /// Index of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// The loss.
    #[serde(flatten)]
    pub loss: LossCount,
}

/// The object `counterpoint_end`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// All losses, including those that were found while calls and samples were read.
    pub losses: Vec<LossOf>,
}

/// Losses that were found while calls and samples were read.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In calls, by process.
    pub calls: Vec<Vec<LossCount>>,
    /// In tracks.
    pub tracks: Vec<LossCount>,
}

fn losses(profile: &Profile, found: &Found) -> Vec<LossOf> {
    let run = merge_losses(profile.losses.iter().chain(&found.tracks));
    let mut all: Vec<LossOf> =
        run.into_iter().map(|loss| LossOf { pid: None, process: None, loss }).collect();
    let mut given: HashMap<u32, u32> = HashMap::new();
    for process in &profile.processes {
        *given.entry(process.id.pid).or_default() += 1;
    }
    for (i, process) in profile.processes.iter().enumerate() {
        let more = found.calls.get(i).into_iter().flatten();
        let of = merge_losses(process.losses.iter().chain(more)).into_iter();
        let pid = Some(process.id.pid);
        // The process id identifies the process, unless several processes had it.
        let twice = given.get(&process.id.pid).is_some_and(|times| *times > 1);
        all.extend(of.map(|loss| LossOf { pid, process: twice.then_some(i), loss }));
    }
    all
}

/// The object for a profile, from what is known before its calls are read.
pub fn of_profile(profile: &Profile) -> Facts {
    let processes = profile.processes.iter().enumerate().map(|(i, process)| ExportedProcess {
        process: ProcessFacts { counted: counted(profile, i), ..process.into() },
        dispatches_pid: crate::export::calls::DEVICE_ROWS + i as i64,
    });
    Facts {
        schema: TRACE_SCHEMA.to_owned(),
        // Traces are shared with others, but the id is only for this profile and its pool.
        manifest: Manifest { id: String::new(), ..profile.manifest.clone() },
        clock: ClockFacts {
            ns_per_tick: profile.timeline.ns_per_tick(),
            calibrated: profile.timeline.calibrated,
            snapshots: profile.snapshots.clone(),
        },
        processes: processes.collect(),
        tracks: profile.tracks.iter().map(of_tracks).collect(),
        losses: losses(profile, &Found::default()),
        kinds: kinds::listed(profile).iter().filter_map(Value::as_object).cloned().collect(),
    }
}

/// The exact counts of a process, by thread.
fn counted(profile: &Profile, process: usize) -> Vec<CountsFacts> {
    let of_thread = |spent: &ThreadSpent| {
        let of = |one: &&CountedCalls| (one.process, one.thread_uid) == (process, spent.thread_uid);
        let rows = profile.counted().iter().filter(of);
        let tid = |thread: &&Thread| thread.uid == spent.thread_uid;
        CountsFacts {
            thread: spent.thread_uid,
            tid: profile.processes[process].threads.iter().find(tid).map_or(0, |t| t.tid),
            spent: (spent.cpu_ns, spent.price_ns),
            told: (spent.told_calls, spent.told_ns),
            rows: rows.map(|one| (one.export, one.calls, one.timed, one.counted)).collect(),
        }
    };
    profile.processes[process].spent.iter().map(of_thread).collect()
}

/// What follows the events.
pub fn end(profile: &Profile, found: &Found) -> End {
    End { losses: losses(profile, found) }
}

fn of_tracks(tracks: &profile::Tracks) -> TracksFacts {
    let mut series: Vec<SeriesFacts> = tracks
        .series
        .iter()
        .map(|(id, s)| SeriesFacts {
            id: *id,
            track: s.track.clone(),
            name: s.name.clone(),
            unit: s.unit.clone(),
            scale: s.scale,
            scope: s.scope.kind().to_owned(),
            scope_number: s.scope.number(),
            times: s.times.name().to_owned(),
            cumulative: s.cumulative,
            interval_ns: s.interval_ns,
            source: s.source.clone(),
        })
        .collect();
    series.sort_by_key(|s| s.id);
    let values = tracks.readings == Readings::Values;
    TracksFacts { name: tracks.name.clone(), values, series }
}

impl SeriesFacts {
    /// The series; `None` if the facts make no sense.
    pub fn series(&self) -> Option<Series> {
        let times =
            [Times::Ticks, Times::Monotonic].into_iter().find(|t| t.name() == self.times)?;
        Some(Series {
            track: self.track.clone(),
            name: self.name.clone(),
            unit: self.unit.clone(),
            scale: self.scale,
            scope: Scope::from_parts(&self.scope, self.scope_number)?,
            times,
            cumulative: self.cumulative,
            interval_ns: self.interval_ns,
            source: self.source.clone(),
        })
    }
}
