//! Finds the ops around loops: dispatches, and ops of a virtual machine that runs compiled modules.
//!
//! TVM's virtual machine calls an op by the name of its function in the module
//! (`fused_matmul_add`). The code of an op is in several compiled functions: one for its arguments,
//! one for its body (`fused_matmul_add_compute_`), and one for each parallel loop. The functions of
//! parallel loops also run on other threads. The schedule in the side table contains the op of each
//! loop, so the op need not be derived from the name of the compiled function.

use std::collections::{BTreeMap, BTreeSet};

use ir::table::SideTable;
use profile::loops::LoopModule;
use profile::{OpId, Profile, Role};

use super::dispatches::Dispatches;
use super::{LoopNode, LoopTable, LoopTree};

/// The ops around the functions of modules, by identity of the module and name of the function. The
/// body of a parallel loop is a function that runs as tasks on several threads. For this function,
/// the map contains the tasks, or the op if no tasks are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpsAround(BTreeMap<[u8; 16], BTreeMap<String, Vec<OpId>>>);

impl OpsAround {
    /// Finds the ops around the functions of all modules.
    pub fn new(
        profile: &Profile,
        modules: &[LoopModule],
        table: &LoopTable,
        dispatches: &Dispatches,
    ) -> Self {
        let mut found = Self::of_dispatches(dispatches);
        for tree in &table.modules {
            let Some(table) = &tree.table else { continue };
            let processes: BTreeSet<usize> = tree
                .registrations
                .iter()
                .filter_map(|index| Some(modules.get(*index)?.process))
                .collect();
            for (function, name) in names(table) {
                let ops = called(profile, &processes, name, is_parallel(function));
                if !ops.is_empty() {
                    let functions = found.0.entry(tree.id).or_default();
                    functions.entry(function.to_owned()).or_insert(ops);
                }
            }
        }
        found
    }

    /// Makes a map that contains only the dispatches.
    pub fn of_dispatches(dispatches: &Dispatches) -> Self {
        let functions = |functions: &BTreeMap<String, super::dispatches::Dispatch>| {
            functions.iter().map(|(name, dispatch)| (name.clone(), dispatch.ops.clone())).collect()
        };
        Self(dispatches.iter().map(|(id, all)| (*id, functions(all))).collect())
    }

    /// Returns the ops around a function or loop, in ascending order. Empty if no op is known.
    pub fn of(&self, tree: &LoopTree, node: &LoopNode) -> &[OpId] {
        let of_module = self.0.get(&tree.id);
        let ops = of_module.and_then(|all| all.get(&tree.entry(node)?.function));
        ops.map_or(&[], Vec::as_slice)
    }
}

/// Returns the compiled functions, each with the name of the scheduled function to which it
/// belongs. Compiled functions that belong to several scheduled functions are left out.
fn names(table: &SideTable) -> impl Iterator<Item = (&str, &str)> {
    let mut of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for scheduled in &table.schedule {
        for entry in scheduled.ids.iter().filter_map(|id| table.entries.get(*id as usize)) {
            of.entry(&entry.function).or_default().insert(&scheduled.function);
        }
    }
    of.into_iter().filter_map(|(function, names)| {
        let mut names = names.into_iter();
        let first = names.next()?;
        names.next().is_none().then_some((function, first))
    })
}

/// Whether a function is the body of a parallel loop, according to the name that TVM's code
/// generator gives it.
fn is_parallel(function: &str) -> bool {
    function.contains("parallel_lambda")
}

/// Returns the ops with this name in these processes. With `prefers_tasks`, returns the tasks with
/// this name instead, if there are any.
fn called(
    profile: &Profile,
    processes: &BTreeSet<usize>,
    name: &str,
    prefers_tasks: bool,
) -> Vec<OpId> {
    let with = |role: Role| {
        let calls = processes.iter().flat_map(|process| {
            let exports = profile.processes.get(*process).map(|process| &process.op_exports);
            let exports = exports.into_iter().flatten();
            exports.filter_map(|export| profile.ops.of(*process, export.id))
        });
        let is_it =
            |op: &OpId| profile.ops.get(*op).is_some_and(|op| op.role == role && op.name == name);
        calls.filter(is_it).collect::<BTreeSet<_>>()
    };
    let tasks = if prefers_tasks { with(Role::Task) } else { BTreeSet::new() };
    let found = if tasks.is_empty() { with(Role::Op) } else { tasks };
    found.into_iter().collect()
}
