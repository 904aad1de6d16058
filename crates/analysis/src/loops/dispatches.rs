//! Finds the IREE dispatches that contain instrumented loops. The profile contains a dispatch as
//! calls of an export (a numbered function of a library) with the name of the instrumented
//! function.
//!
//! For a module in a library of IREE, the profile contains the id of the library's first export
//! ([`LoopModule::export`](profile::loops::LoopModule::export)), and this id identifies the
//! library. So each function is matched with an export of its own library, even if functions of
//! several models have equal names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use profile::columns::Columns;
use profile::loops::LoopModule;
use profile::{OpId, Profile};

use super::{LoopNode, LoopTable, LoopTree};
use crate::amounts::Brackets;
use crate::sampled::Sample;
use crate::table::{Key, Places, Selection};

/// The recorded calls of one instrumented function, in all processes that loaded its module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatch {
    /// The ops of the function's exports, in ascending order. There are several ops if the same
    /// instrumented module is in several libraries.
    pub ops: Vec<OpId>,
    /// Number of workgroup calls (calls of the function for one workgroup each), timed or not.
    pub workgroups: u64,
    /// Number of dispatches, found by counting the calls with the workgroup id 0,0,0: each dispatch
    /// has one such call. `None` if the workgroup of some call is not known.
    pub dispatches: Option<u64>,
    /// Sum of the durations of the workgroup calls, in ticks of the profile's clock. In a run with
    /// a budget (a limit for the cost of recording), the sum is an estimate.
    pub ticks: u128,
}

impl Dispatch {
    /// Returns the sum of the durations of the workgroup calls, in ns.
    pub fn total_ns(&self, profile: &Profile) -> f64 {
        self.ticks as f64 * profile.timeline.ns_per_tick()
    }
}

/// The dispatches of all modules, by identity of the module and name of the function. The map
/// contains no functions without recorded calls.
pub type Dispatches = BTreeMap<[u8; 16], BTreeMap<String, Dispatch>>;

#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    workgroups: u64,
    first: u64,
    unplaced: bool,
    ticks: u128,
}

/// Finds the dispatches of the functions of all modules. If no instrumented function has an export,
/// the calls of the profile are not read.
pub fn dispatches(profile: &Profile, modules: &[LoopModule], table: &LoopTable) -> Dispatches {
    let mut found: BTreeMap<[u8; 16], BTreeMap<String, BTreeSet<OpId>>> = BTreeMap::new();
    for tree in &table.modules {
        let names: BTreeSet<&str> = tree
            .table
            .iter()
            .flat_map(|table| &table.entries)
            .map(|entry| entry.function.as_str())
            .collect();
        for module in tree.registrations.iter().filter_map(|index| modules.get(*index)) {
            for (name, op) in exports(profile, module) {
                if names.contains(name) {
                    let of_tree = found.entry(tree.id).or_default();
                    of_tree.entry(name.to_owned()).or_default().insert(op);
                }
            }
        }
    }
    if found.is_empty() {
        return Dispatches::new();
    }
    let calls = calls(profile);
    let dispatch = |ops: BTreeSet<OpId>| {
        let mut sum = Dispatch { dispatches: Some(0), ..Dispatch::default() };
        for of in ops.iter().filter_map(|op| calls.get(op)) {
            sum.workgroups += of.workgroups;
            sum.ticks += of.ticks;
            sum.dispatches = sum.dispatches.filter(|_| !of.unplaced).map(|n| n + of.first);
        }
        sum.ops = ops.into_iter().collect();
        sum
    };
    found
        .into_iter()
        .map(|(id, functions)| {
            let functions = functions.into_iter().map(|(name, ops)| (name, dispatch(ops)));
            (id, functions.filter(|(_, dispatch)| dispatch.workgroups > 0).collect())
        })
        .collect()
}

/// Returns the name and the op of each export of the library that contains a module.
fn exports<'a>(
    profile: &'a Profile,
    module: &LoopModule,
) -> impl Iterator<Item = (&'a str, OpId)> + use<'a> {
    let process = module.process;
    let of_process = module.export.and_then(|_| profile.processes.get(process));
    let libraries = of_process.map_or(&[][..], |process| &process.libraries);
    let first = module.export;
    let library = libraries.iter().find(|library| library.exports.first().map(|e| e.id) == first);
    let exports = library.map_or(&[][..], |library| &library.exports);
    exports
        .iter()
        .filter_map(move |export| Some((export.name.as_str(), profile.ops.of(process, export.id)?)))
}

fn calls(profile: &Profile) -> HashMap<OpId, Calls> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let add = |all: &mut HashMap<OpId, Calls>, columns: &Columns| {
        for i in 0..columns.len() {
            let Some(op) = profile.ops.of(columns.process, columns.export[i]) else { continue };
            let sum = all.entry(op).or_default();
            let [x, y, z] = &columns.workgroup;
            sum.workgroups += 1;
            sum.first += u64::from(x[i] | y[i] | z[i] == 0);
            sum.unplaced |= !columns.knows_workgroup(i);
            sum.ticks += u128::from(columns.duration(i));
        }
    };
    let (states, _) = profile.visit(workers, HashMap::new, add);
    let mut all: HashMap<OpId, Calls> = HashMap::new();
    for (op, calls) in states.into_iter().flatten() {
        let sum = all.entry(op).or_default();
        sum.workgroups += calls.workgroups;
        sum.first += calls.first;
        sum.unplaced |= calls.unplaced;
        sum.ticks += calls.ticks;
    }
    if profile.is_sampled() {
        estimate(profile, workers, &mut all);
    }
    all
}

/// In a run with a budget, replaces the sums over timed calls by exact numbers of calls and
/// estimated times. Removes ops whose number of calls or time is not known.
fn estimate(profile: &Profile, workers: usize, all: &mut HashMap<OpId, Calls>) {
    let places = Places::new(profile, &Selection::default());
    let sample = Sample::read(profile, &places, workers, &Brackets::new(profile, true));
    for (key, found) in sample.rows(&places).0 {
        let Key::Op(op) = key else { continue };
        match (found.row.calls, found.row.total) {
            (Some(calls), Some(total)) => {
                let sum = all.entry(op).or_default();
                sum.unplaced |= calls != sum.workgroups;
                sum.workgroups = calls;
                sum.ticks = total.value.max(0.0).round() as u128;
            }
            _ => {
                all.remove(&op);
            }
        }
    }
}

/// How a function or loop compares with its dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inside {
    /// Number of hits (entries into the function or loop) per workgroup call.
    pub per_workgroup: f64,
    /// The inclusive time of the function or loop, as a part of the time of the dispatch's
    /// workgroup calls. The share may be above 1, because both times are measured and have errors.
    /// `None` if the inclusive time is not known, or if the workgroup calls have no time.
    pub share: Option<f64>,
}

/// Returns the dispatch that contains a node.
pub fn dispatch_of<'a>(
    dispatches: &'a Dispatches,
    tree: &LoopTree,
    node: &LoopNode,
) -> Option<&'a Dispatch> {
    dispatches.get(&tree.id)?.get(&tree.entry(node)?.function)
}

/// Compares a function or loop with its dispatch. `inclusive_ns` is the node's inclusive time.
pub fn inside(
    profile: &Profile,
    dispatch: &Dispatch,
    tree: &LoopTree,
    node: &LoopNode,
    inclusive_ns: Option<f64>,
) -> Inside {
    // If the hits of the function around the node were counted, their number is the number of
    // workgroup calls. Like the node's hits, this number includes calls that were not recorded, and
    // leaves out calls of a copy of the module without instrumented loops.
    let entered = root(tree, node).filter(|_| is_function(tree, node)).map(|root| root.all.hits);
    let entered = entered.filter(|hits| *hits > 0).map(|hits| hits as f64);
    let workgroups = dispatch.workgroups as f64;
    let ran = entered.unwrap_or(workgroups);
    let total_ns = dispatch.total_ns(profile) * (ran / workgroups);
    Inside {
        per_workgroup: node.all.hits as f64 / ran,
        share: inclusive_ns.filter(|_| total_ns > 0.0).map(|ns| ns / total_ns),
    }
}

fn root<'a>(tree: &'a LoopTree, node: &'a LoopNode) -> Option<&'a LoopNode> {
    let mut at = node;
    while let Some(parent) = at.parent {
        at = tree.nodes.get(parent)?;
    }
    Some(at)
}

fn is_function(tree: &LoopTree, node: &LoopNode) -> bool {
    let root = root(tree, node).and_then(|root| tree.entry(root));
    root.is_some_and(|entry| entry.kind == ir::table::Kind::Function)
}
