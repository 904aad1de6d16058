//! Writes the calls of hosts (runtimes) that call ops: runs, ranges, ops, parallel regions and the
//! tasks of regions.
//!
//! ```text
//!  main     ▐── run ────────────────────────────▌
//!             ▐── op ────────────▌ ▐─ op ──▌
//!               ▐─ region ─────▌
//!               ▐─ task 0 ─▌ │
//!  worker                    └►▐─ task 1 ─▌        an arrow from the region to each task
//! ```

use std::collections::{HashMap, HashSet};

use model::activity::{FlowKind, Value};
use profile::columns::{
    Columns, KEY_CORRELATION, KEY_FAILED, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES,
};
use profile::{Op, PageDecoder, PageKey, Profile, Role, ValueKind};

use super::ProcessExport;
use super::slice::What;
use crate::export::relay::Gone;
use crate::timeline::{Arg, ArgValue, Flow, FlowEnd};

/// The number of the first arrow from a region to a task, above the numbers of arrows to
/// dispatches.
const FIRST_ARROW: u64 = 1 << 40;

/// The arrows of one region, one to each of its tasks.
#[derive(Debug, Default)]
struct Arrows {
    region: bool,
    /// The recorded tasks, sorted and without duplicates.
    tasks: Vec<u32>,
    first: u64,
}

/// What must be known before the calls of a process are exported, if a host in the process calls
/// ops.
#[derive(Debug)]
pub struct Machines {
    arrows: HashMap<u64, Arrows>,
    arrow: FlowKind,
    exports: HashMap<u32, Export>,
}

/// What is known about the arguments of the calls of an export (an exported function).
#[derive(Debug)]
struct Export {
    /// `Input Dims` and `Input type`, as JSON.
    inputs: (String, String),
    /// Whether the library is shown under the key that the host defines for it; false if another
    /// argument of a call has this key.
    own_key: bool,
}

/// The keys of the arguments of calls, other than counters and the values that hosts define.
const KEYS: [&str; 24] = [
    "Input Dims",
    "Input type",
    "device_name",
    "asynchronous",
    "task",
    "tasks",
    "workgroup",
    "worker",
    "cpu",
    "node",
    "External id",
    "region",
    "storage_bytes",
    "workspace_bytes",
    "failed",
    "start_ticks",
    "duration_ticks",
    "weight",
    "skipped",
    "counter_weight",
    "dispatch",
    "correlation",
    "device",
    "stream",
];

/// Returns whether a process has calls of a host that calls ops.
pub fn has_machines(profile: &Profile, index: usize) -> bool {
    !profile.processes[index].op_exports.is_empty()
}

impl Machines {
    /// Collects the exports and arrows of a process. Its pages (blocks of calls) are read only if
    /// it has parallel regions. `last` counts the arrows of all processes so far.
    pub fn new(profile: &Profile, index: usize, last: &mut u64) -> Self {
        let arrow = FlowKind::Named("region".to_owned());
        let mut arrows: HashMap<u64, Arrows> = HashMap::new();
        let process = &profile.processes[index];
        let counters = profile.manifest.counters.iter().map(|counter| counter.name.as_str());
        let values = process.value_keys.iter().map(|key| key.name.as_str());
        let keys: HashSet<&str> = KEYS.into_iter().chain(counters).chain(values).collect();
        let exports = process.op_exports.iter().map(|export| {
            let host = op_of(profile, index, export.id).map(|op| profile.ops.host_of(op));
            let own_key = host.is_some_and(|host| !keys.contains(&*host.library_key));
            (export.id, Export { inputs: inputs(&export.arguments), own_key })
        });
        let exports = exports.collect();
        if !process.op_exports.iter().any(|export| export.role == Role::Region) {
            return Self { arrows, arrow, exports };
        }
        let mut decoder = PageDecoder::new(profile);
        for (thread, t) in process.threads.iter().enumerate() {
            for page in 0..t.headers().len() {
                let columns = decoder.decode(PageKey { process: index, thread, page });
                for extra in columns.extras.iter().filter(|extra| extra.key == KEY_CORRELATION) {
                    let role = op_of(profile, index, columns.export[extra.call]).map(|op| op.role);
                    let of = arrows.entry(extra.bits).or_default();
                    match role {
                        Some(Role::Region) => of.region = true,
                        Some(Role::Task) => of.tasks.push(columns.workgroup[0][extra.call]),
                        _ => {}
                    }
                }
            }
        }
        // Arrows get their numbers in the order of the regions, so that the same profile gives the
        // same file.
        let mut numbers: Vec<u64> = arrows.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(of) = arrows.get_mut(&number) else { continue };
            of.tasks.sort_unstable();
            of.tasks.dedup();
            of.first = FIRST_ARROW + *last;
            *last += of.tasks.len() as u64;
        }
        Self { arrows, arrow, exports }
    }

    /// Returns the arrows that start or finish at a call. All arrows of a region start at the
    /// region, and one arrow finishes at each task.
    fn flows(&self, role: Role, region: Option<u64>, task: u32) -> Vec<(u64, FlowEnd)> {
        let Some(of) = region.and_then(|region| self.arrows.get(&region)) else {
            return Vec::new();
        };
        let at = of.tasks.binary_search(&task).ok().map(|place| of.first + place as u64);
        match role {
            Role::Region if of.region => {
                let all = of.first..of.first + of.tasks.len() as u64;
                all.map(|id| (id, FlowEnd::Start)).collect()
            }
            Role::Task if of.region => at.map(|id| (id, FlowEnd::Finish)).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

pub fn op_of(profile: &Profile, process: usize, export: u32) -> Option<&Op> {
    profile.ops.get(profile.ops.of(process, export)?)
}

/// Converts `float32[1, 64], int64[2]` to `[[1,64],[2]]` and `["float","long int"]`, as Kineto
/// writes them. A dimension that is not a number becomes a text.
fn inputs(arguments: &str) -> (String, String) {
    let (mut dims, mut types) = (Vec::new(), Vec::new());
    let mut rest = arguments;
    while let Some((head, tail)) = rest.split_once('[') {
        let (inside, after) = tail.split_once(']').unwrap_or((tail, ""));
        let of = inside.split(',').map(str::trim).filter(|dim| !dim.is_empty());
        let of = of.map(|dim| match dim.parse::<u64>() {
            Ok(number) => serde_json::Value::from(number),
            Err(_) => serde_json::Value::from(dim),
        });
        dims.push(of.collect::<Vec<_>>());
        types.push(c_type(head.trim_start_matches([',', ' '])));
        rest = after;
    }
    (serde_json::json!(dims).to_string(), serde_json::json!(types).to_string())
}

/// Returns PyTorch's name for an element type, or `name` itself if it is none of these types.
fn c_type(name: &str) -> &str {
    match name {
        "float64" => "double",
        "float32" => "float",
        "float16" => "c10::Half",
        "bfloat16" => "c10::BFloat16",
        "int64" => "long int",
        "int32" => "int",
        "int16" => "short int",
        "int8" => "signed char",
        "uint8" => "unsigned char",
        other => other,
    }
}

impl<'a> ProcessExport<'a, '_> {
    pub(super) fn machine_call(
        &mut self,
        columns: &Columns,
        i: usize,
        op: &'a Op,
        values: &mut [Option<u64>],
    ) -> Result<(), Gone> {
        let times = self.times(columns, i);
        let category = self.categories.of(op.host, op.role);
        let what = What { category, name: op.name.as_str().into(), shape: None, label: None };
        if !self.arguments {
            return self.slice(columns, i, times, values, false, what);
        }
        self.read_counters(columns, i, values);
        let region = columns.extra(i, KEY_CORRELATION);
        let number = columns.workgroup[0][i];
        let machines = self.machines;
        for (id, end) in machines.flows(op.role, region, number) {
            self.relay.flow(Flow { kind: &machines.arrow, id, end });
        }

        let args = self.relay.args();
        let export = machines.exports.get(&columns.export[i]);
        // Regions and tasks have the tensor arguments of their op, which are not repeated.
        let inputs = match op.role.is_of_machine() && op.role != Role::Op {
            true => None,
            false => export.map(|export| &export.inputs),
        };
        if let Some((dims, types)) = inputs.filter(|_| !op.arguments.is_empty()) {
            let json = |key, json| Arg { key, value: ArgValue::Plain(Value::Json(json)) };
            args.extend([json("Input Dims", dims), json("Input type", types)]);
        }
        let yes = |key| Arg { key, value: ArgValue::Plain(Value::Bool(true)) };
        if !op.device.is_empty() {
            args.push(Arg::text("device_name", &op.device));
        }
        let key = match export.is_some_and(|export| export.own_key) {
            true => &*self.profile.ops.host_of(op).library_key,
            false => "library",
        };
        args.push(Arg::text(key, &op.library));
        if op.asynchronous {
            args.push(yes("asynchronous"));
        }
        if op.role == Role::Task {
            args.push(Arg::uint("task", number.into()));
            args.push(Arg::uint("tasks", columns.count[0][i].into()));
        }
        self.push_place(columns, i);
        self.plugin_id(columns, i);
        let args = self.relay.args();
        let process = self.process;
        for extra in columns.extras_of(i) {
            match extra.key {
                KEY_CORRELATION => args.push(Arg::uint("region", extra.bits)),
                KEY_STORAGE_BYTES => args.push(Arg::uint("storage_bytes", extra.bits)),
                KEY_WORKSPACE_BYTES => args.push(Arg::uint("workspace_bytes", extra.bits)),
                KEY_FAILED if extra.bits != 0 => args.push(yes("failed")),
                id => {
                    let Some(key) = process.value_keys.iter().find(|key| key.id == id) else {
                        continue;
                    };
                    let text = u32::try_from(extra.bits).ok().and_then(|t| process.texts.get(&t));
                    let value = match key.kind {
                        ValueKind::Count => Value::Int(extra.bits as i64),
                        ValueKind::Text => text.map_or(Value::Null, |text| Value::Text(text)),
                        // JSON cannot express infinities.
                        _ => match f64::from_bits(extra.bits) {
                            number if number.is_finite() => Value::Float(number),
                            _ => Value::Null,
                        },
                    };
                    args.push(Arg { key: &key.name, value: ArgValue::Plain(value) });
                }
            }
        }
        // The counters of a call include those of the calls inside of it. So only calls of ops are
        // points of time series; with other calls, some counts would be shown twice.
        let series = self.counter_tracks && op.role == Role::Op;
        self.slice(columns, i, times, values, series, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_as_kineto_writes_them() {
        let (dims, types) = inputs("float32[1, 64], int64[], bool[n, 2]");
        assert_eq!(dims, r#"[[1,64],[],["n",2]]"#);
        assert_eq!(types, r#"["float","long int","bool"]"#);
        assert_eq!(inputs(""), ("[]".to_owned(), "[]".to_owned()));
        assert_eq!(
            inputs("shape, uint8[3"),
            (r"[[3]]".to_owned(), r#"["shape, uint8"]"#.to_owned())
        );
    }
}
