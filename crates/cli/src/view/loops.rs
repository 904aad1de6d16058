//! Loops of instrumented modules, as every view shows them.
//!
//! ```text
//!  profile.loops() ─► Loops (analysis::loops) ─┬─► text: a tree for people
//!             --table FILE ────────────────────┤   columns: CSV, also that of the original
//!                                              └─► json, notes
//! ```

pub mod assembly;
pub mod code;
pub mod code_json;
pub mod columns;
pub mod dispatches;
pub mod expensive;
pub mod files;
pub mod json;
pub mod notes;
pub mod schedule;
pub mod source;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod text;
pub mod traffic;
pub mod trips;

use std::io::Read;
use std::path::PathBuf;

use analysis::loops::dispatches::{Dispatch, Dispatches, Inside, dispatch_of, dispatches, inside};
use analysis::loops::{
    LoopData, LoopNode, LoopTable, LoopThread, LoopTree, Numbers, UnfitTable, fits, loops,
};
use ir::table::{Entry, Kind, SideTable};
use profile::Profile;
use profile::demangle::{Detail, demangle};
use profile::loops::Loops as Recorded;

use super::labels::process_label;
use crate::failure::Failure;

/// What a view shows.
pub struct Loops<'a> {
    /// Where it is from.
    pub profile: &'a Profile,
    /// What was read of it.
    pub recorded: &'a Recorded,
    /// Its trees.
    pub table: LoopTable,
    /// The dispatches that functions and loops are in.
    pub dispatches: Dispatches,
    /// Times as they were measured are shown, also where the cost of a hit is known.
    pub raw: bool,
    /// What else is shown.
    pub more: More,
}

/// What is shown besides the numbers, on request.
#[derive(Default)]
pub struct More {
    /// The machine code of each module, if it is asked for.
    pub codes: Option<Vec<code::Found>>,
    /// Whether texts are shown.
    pub source: bool,
    /// The texts.
    pub texts: source::Texts,
    /// The functions and loops whose code and texts are shown: ids, and patterns of names. Empty: an
    /// overview of all.
    pub of: Vec<String>,
}

impl More {
    /// Whether the code and the texts of a node are asked for.
    pub fn wants(&self, tree: &LoopTree, node: &LoopNode) -> bool {
        let names = [name(tree, node), node.id.to_string()];
        let is = |wanted: &String| {
            names.iter().any(|name| model::glob::matches(wanted, name))
                || is_called(wanted, tree, node)
        };
        self.of.iter().any(is)
    }
}

impl<'a> Loops<'a> {
    /// Adds up what was recorded.
    pub fn new(
        profile: &'a Profile,
        recorded: &'a Recorded,
        tables: &[SideTable],
        raw: bool,
    ) -> Self {
        let data = LoopData {
            modules: &recorded.modules,
            rows: &recorded.rows,
            events: &recorded.events,
            counters: &counters_of_processes(profile),
        };
        let table = loops(data, tables);
        let dispatches = dispatches(profile, &recorded.modules, &table);
        Self { profile, recorded, table, dispatches, raw, more: More::default() }
    }

    /// The dispatch that a node is in, and how they relate.
    pub fn inside(&self, tree: &LoopTree, node: &LoopNode) -> Option<(&Dispatch, Inside)> {
        let dispatch = dispatch_of(&self.dispatches, tree, node)?;
        let times = node.all.times(self.raw);
        let inclusive = times.and_then(|times| tree.ns(times.inclusive.value));
        Some((dispatch, inside(self.profile, dispatch, tree, node, inclusive)))
    }

    /// The nodes that were entered, with their trees.
    pub fn entered(&self) -> impl Iterator<Item = (&LoopTree, &LoopNode)> {
        let all =
            self.table.modules.iter().flat_map(|tree| tree.nodes.iter().map(move |n| (tree, n)));
        all.filter(|(_, node)| node.all.hits > 0)
    }
}

/// For each process, which of the profile's counters its rows have: those of its pass.
pub fn counters_of_processes(profile: &Profile) -> Vec<Vec<usize>> {
    let of = |pass: u32| {
        let all = profile.manifest.counters.iter().enumerate();
        let read = all.filter(|(_, counter)| counter.pass.is_none_or(|of| of == pass + 1));
        read.map(|(index, _)| index).collect()
    };
    profile.processes.iter().map(|process| of(process.pass)).collect()
}

/// Reads side tables, and refuses those of other modules. A file may have several, one in each line:
/// those of a module of IREE, of which some may not have been loaded.
pub fn side_tables(paths: &[PathBuf], recorded: &Recorded) -> Result<Vec<SideTable>, Failure> {
    let mut tables = Vec::new();
    for path in paths {
        let mut text = Vec::new();
        let name = crate::input::name(path);
        let failed = |why: &dyn std::fmt::Display| Failure::new(format!("--table {name}: {why}"));
        let read = crate::input::once(path).and_then(|mut file| file.read_to_end(&mut text));
        read.map_err(|e| failed(&e))?;
        let mut unfit = None;
        let known = tables.len();
        for table in SideTable::all_from_json(&text).map_err(|e| failed(&e))? {
            match fits(&table, &recorded.modules) {
                Ok(()) => tables.push(table),
                Err(why @ UnfitTable::Differs(_)) => {
                    return Err(failed(&why).hint(
                        "the two are of different texts, or of different versions of \
                         `counterpoint loops instrument`: use the file that was written together \
                         with the program's",
                    ));
                }
                Err(why) => unfit = unfit.or(Some(why)),
            }
        }
        if let (Some(why), true) = (unfit, tables.len() == known) {
            return Err(failed(&why).hint(
                "a side table belongs to the text that was written together with it: use the \
                 .loops.json beside the .ll that the program was compiled from",
            ));
        }
    }
    Ok(tables)
}

/// What a loop or a function is called in its function: its variable, or else its block's label.
pub fn name(tree: &LoopTree, node: &LoopNode) -> String {
    name_of(tree.entry(node), node.id)
}

fn name_of(entry: Option<&Entry>, id: u32) -> String {
    let Some(entry) = entry else { return format!("id {id}") };
    match (entry.kind, &entry.variable, &entry.label) {
        (Kind::Function, ..) => entry.function.clone(),
        (Kind::Loop, Some(name), _) => name.clone(),
        // A block without a name has a number, which is not to be taken for an id.
        (Kind::Loop, None, Some(label)) if label.bytes().all(|b| b.is_ascii_digit()) => {
            format!("%{label}")
        }
        (Kind::Loop, None, Some(label)) => label.clone(),
        (Kind::Loop, None, None) => format!("loop {id}"),
    }
}

/// The same, where its function does not stand above it: `matmul:k`.
pub fn full_name(tree: &LoopTree, node: &LoopNode) -> String {
    full_name_of(tree.entry(node), node.id)
}

/// Likewise, of an id.
pub fn full_name_of(entry: Option<&Entry>, id: u32) -> String {
    let name = name_of(entry, id);
    match entry {
        Some(entry) if entry.kind == Kind::Loop => format!("{}:{name}", entry.function),
        _ => name,
    }
}

/// [`name`] for people: a function of C++ or Rust has its readable name.
pub fn readable_name(tree: &LoopTree, node: &LoopNode) -> String {
    demangle(&name(tree, node), Detail::Whole).into_owned()
}

/// [`full_name`] for people: `add<float>:k`.
pub fn readable_full_name(tree: &LoopTree, node: &LoopNode) -> String {
    match tree.entry(node) {
        Some(entry) if entry.kind == Kind::Loop => {
            format!("{}:{}", demangle(&entry.function, Detail::Short), name(tree, node))
        }
        _ => readable_name(tree, node),
    }
}

/// Whether a pattern matches a name of the node with its function.
pub fn is_called(glob: &str, tree: &LoopTree, node: &LoopNode) -> bool {
    profile::demangle::matches(glob, &full_name(tree, node))
        || model::glob::matches(glob, &readable_full_name(tree, node))
}

/// Where it is in the source, or else in the text that was instrumented.
pub fn source(tree: &LoopTree, node: &LoopNode) -> Option<String> {
    let entry = tree.entry(node)?;
    place(entry).or_else(|| {
        let text = &tree.table.as_ref()?.source;
        Some(format!("{text}:{}", entry.text[0]))
    })
}

/// Where it is in the source. Some compilers write line 0 for what they do not know.
pub fn place(entry: &Entry) -> Option<String> {
    let line = entry.line.filter(|line| *line > 0)?;
    Some(format!("{}:{line}", entry.file.as_deref()?))
}

/// What the module was made of, or its identity.
pub fn module_name(tree: &LoopTree) -> String {
    match &tree.table {
        Some(table) if !table.source.is_empty() => table.source.clone(),
        _ => tree.identity(),
    }
}

/// Names a thread: `worker-0 (4712)`, and its process if there are several.
pub fn thread_name(profile: &Profile, thread: LoopThread, several: bool) -> String {
    let process = profile.processes.get(thread.process);
    let known = process.and_then(|p| p.threads.iter().find(|t| t.tid == thread.tid));
    let name = match known.map(|thread| thread.name.as_str()).filter(|name| !name.is_empty()) {
        Some(name) => format!("{name} ({})", thread.tid),
        None => format!("thread {}", thread.tid),
    };
    match several {
        true => format!("{name} of {}", process_label(profile, thread.process)),
        false => name,
    }
}

/// The id of a process of the profile.
pub fn pid(profile: &Profile, process: usize) -> Option<u32> {
    profile.processes.get(process).map(|process| process.id.pid)
}

/// The iterations of all hits: those that were counted if that was done for every hit, else what the
/// text says. Hits that were left in the middle ran less often than the text says.
pub fn iterations(entry: Option<&Entry>, numbers: &Numbers) -> Option<u128> {
    let counted = numbers.iterations.filter(|_| numbers.iterated == numbers.hits);
    let each = entry.and_then(|entry| entry.trip_count).filter(|_| numbers.unended() == 0);
    counted.or_else(|| numbers.hits.checked_mul(each?.into()))
}

/// What the iterations of all hits come to, where not all were counted.
pub fn estimated_iterations(numbers: &Numbers) -> Option<u128> {
    numbers.estimated_iterations.map(|all| all.round() as u128)
}

/// The mean of the hits whose iterations were counted, or what the text says.
pub fn iterations_per_hit(entry: Option<&Entry>, numbers: &Numbers) -> Option<f64> {
    let counted = numbers.iterations.map(|n| n as f64 / numbers.iterated as f64);
    counted.or_else(|| Some(entry?.trip_count? as f64))
}
