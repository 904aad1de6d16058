//! What a trace format cannot carry: the top-level object `counterpoint` of Chrome JSON, which
//! other readers ignore. `docs/traces.md` describes it.

use profile::{LossCount, Profile, merge_losses};
use serde::Serialize;
use serde_json::{Value, json};

/// The version of the object.
pub const TRACE_SCHEMA: &str = "counterpoint.trace/1";

/// A loss and where it happened.
#[derive(Serialize)]
struct LossOf<'a> {
    /// Process id; `null`: the run as a whole.
    pid: Option<u32>,
    #[serde(flatten)]
    loss: &'a LossCount,
}

/// The object for a profile. `found`: what visiting the pages found, by process.
///
/// # Errors
/// The manifest holds a number that JSON cannot say.
pub fn of_profile(profile: &Profile, found: &[Vec<LossCount>]) -> Result<Value, serde_json::Error> {
    let mut losses: Vec<Value> = Vec::new();
    for loss in &profile.losses {
        losses.push(serde_json::to_value(LossOf { pid: None, loss })?);
    }
    let mut processes = Vec::new();
    for (i, process) in profile.processes.iter().enumerate() {
        let more = found.get(i).into_iter().flatten();
        let pid = process.id.pid;
        for loss in &merge_losses(process.losses.iter().chain(more)) {
            losses.push(serde_json::to_value(LossOf { pid: Some(pid), loss })?);
        }
        let info = process.info.as_ref();
        let calibrations = process.calibrations.iter().map(|c| {
            json!({
                "calls": c.calls,
                "counters": c.counters,
                "inside_ticks": c.inside_ticks,
                "total_ticks": c.total_ticks,
                "inside_values": c.inside_values,
            })
        });
        processes.push(json!({
            "pid": pid,
            "start_time": process.id.start_time,
            "generation": process.id.generation,
            "program": info.map(|i| &i.program),
            "arguments": info.map(|i| &i.arguments),
            "dispatches_pid": crate::calls::DEVICE_ROWS + i as i64,
            "calibrations": calibrations.collect::<Vec<_>>(),
        }));
    }
    let mut kinds = vec![json!({ "producer": "iree", "name": "workgroup", "kineto": "cpu_op" })];
    if profile.processes.iter().any(|process| !process.op_exports.is_empty()) {
        let kind = |name| json!({ "producer": "tvm", "name": name, "kineto": "cpu_op" });
        kinds.extend(["region", "task"].map(kind));
    }
    Ok(json!({
        "schema": TRACE_SCHEMA,
        "manifest": serde_json::to_value(&profile.manifest)?,
        "clock": {
            "ns_per_tick": profile.timeline.ns_per_tick(),
            "calibrated": profile.timeline.calibrated,
            "snapshots": profile.snapshots,
        },
        "processes": processes,
        "losses": losses,
        "kinds": kinds,
    }))
}
