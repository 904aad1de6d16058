//! Makes the data that the trace formats cannot express. In Chrome JSON, it is in the objects
//! `counterpoint` and `counterpoint_end`, which other readers ignore. `docs/traces.md` describes
//! these objects.

use std::collections::HashMap;

use profile::{LossCount, Manifest, Profile, merge_losses};
use serde_json::{Value, json};

use crate::export::{calls, kinds};

/// The version of the object `counterpoint`.
pub const TRACE_SCHEMA: &str = "counterpoint.trace/1";

#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The losses that were found while the calls of each process were exported.
    pub calls: Vec<Vec<LossCount>>,
    pub tracks: Vec<LossCount>,
}

/// Returns the object `counterpoint` of a profile, with the losses that are known by now.
/// `manifest` is the manifest of the profile, to which the caller may have added facts.
pub fn of_profile(profile: &Profile, manifest: &Manifest, found: &Found) -> Value {
    let processes = profile.processes.iter().enumerate().map(|(i, process)| {
        let info = process.info.as_ref();
        json!({
            "pid": process.id.pid,
            "start_time": process.id.start_time,
            "generation": process.id.generation,
            "parent": info.map(|info| info.parent),
            "program": info.map(|info| &info.program),
            "arguments": info.map(|info| &info.arguments),
            "dispatches_pid": calls::DEVICE_ROWS + i as i64,
        })
    });
    // The profile's id, and the path of its pool (the recorder's memory), are left out, because
    // they have a meaning only on this machine.
    let manifest = Manifest { id: String::new(), pool: None, ..manifest.clone() };
    json!({
        "schema": TRACE_SCHEMA,
        "manifest": manifest,
        "clock": {
            "ns_per_tick": profile.timeline.ns_per_tick(),
            "calibrated": profile.timeline.calibrated,
            "snapshots": profile.snapshots,
        },
        "processes": processes.collect::<Vec<_>>(),
        "losses": losses(profile, found),
        "kinds": kinds::listed(profile),
    })
}

/// Returns the timeline's first moment, and the last part of an address of the profile's HTML page.
/// If a person appends the time that Perfetto shows for a slice, the address leads to this moment.
/// Null if the timeline is empty.
pub fn page(first_ns: Option<i64>) -> Value {
    match first_ns {
        Some(ns) => json!({ "first_ns": ns, "fragment": format!("#timeline?since={ns}&time=") }),
        None => Value::Null,
    }
}

/// Returns the losses of the whole run, whose `pid` is null, and those of each process.
pub fn losses(profile: &Profile, found: &Found) -> Value {
    let row = |pid: Option<u32>, process: Option<usize>, loss: &LossCount| {
        let mut row = json!(loss);
        row["pid"] = json!(pid);
        if let Some(process) = process {
            row["process"] = json!(process);
        }
        row
    };
    let run = merge_losses(profile.losses.iter().chain(&found.tracks));
    let mut all: Vec<Value> = run.iter().map(|loss| row(None, None, loss)).collect();
    let mut given: HashMap<u32, u32> = HashMap::new();
    for process in &profile.processes {
        *given.entry(process.id.pid).or_default() += 1;
    }
    for (i, process) in profile.processes.iter().enumerate() {
        let more = found.calls.get(i).into_iter().flatten();
        let of = merge_losses(process.losses.iter().chain(more));
        // The index of the process is needed only if several processes had the same id.
        let twice = given.get(&process.id.pid).is_some_and(|times| *times > 1);
        let pid = Some(process.id.pid);
        all.extend(of.iter().map(|loss| row(pid, twice.then_some(i), loss)));
    }
    all.into()
}
