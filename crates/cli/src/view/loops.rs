//! Prepares the data about loops from which all views and formats of loops are made.
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
pub mod show;
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
use analysis::loops::ops::OpsAround;
use analysis::loops::{
    LoopData, LoopNode, LoopTable, LoopThread, LoopTree, UnfitTable, fits, loops,
};
pub use analysis::loops::{estimated_iterations, iterations, iterations_per_hit};
use ir::table::{Entry, Kind, SideTable};
use profile::Profile;
use profile::demangle::{Detail, demangle};
use profile::loops::Loops as Recorded;

use super::forest::{self, Choice};
use super::labels::process_label;
use super::units::shorten;
use crate::failure::Failure;

pub struct Loops<'a> {
    pub profile: &'a Profile,
    /// What the instrumented program recorded.
    pub recorded: &'a Recorded,
    /// The trees of functions and loops, with sums over all threads.
    pub table: LoopTable,
    pub dispatches: Dispatches,
    /// The op that each function or loop ran in: a dispatch, or an op of a virtual machine.
    pub around: OpsAround,
    /// For each module, the indices of the nodes that are shown, in the order of the rows.
    pub rows: Vec<Vec<usize>>,
    /// For each module, the number of rows that `--top` leaves out.
    pub left_out: Vec<usize>,
    /// Whether a filter chose the rows. If so, modules without rows are hidden.
    pub is_chosen: bool,
    /// Whether times are as measured, without subtracting the cost of hits.
    pub raw: bool,
    pub more: More,
}

#[derive(Default)]
pub struct More {
    /// The machine code of each module, if the user asked for it.
    pub codes: Option<Vec<code::Found>>,
    pub source: bool,
    pub texts: source::Texts,
    /// Ids and name patterns of the functions and loops whose code and texts are shown (`--only`).
    /// If the list is empty, a table of each module's code and the texts of its functions are
    /// shown.
    pub of: Vec<String>,
}

impl More {
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
    /// Makes the trees, in which the numbers of a node are sums over the threads.
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
        let around = OpsAround::new(profile, &recorded.modules, &table, &dispatches);
        let rows = all_rows(&table);
        let left_out = vec![0; table.modules.len()];
        let more = More::default();
        Self {
            profile,
            recorded,
            table,
            dispatches,
            around,
            rows,
            left_out,
            is_chosen: false,
            raw,
            more,
        }
    }

    /// Returns the shown nodes of a module, in the order of the rows.
    pub fn chosen(&self, module: usize) -> impl Iterator<Item = &LoopNode> {
        let nodes = &self.table.modules[module].nodes;
        self.rows[module].iter().filter_map(|index| nodes.get(*index))
    }

    /// Keeps the functions and loops that match `filter`, and those around and inside of them. Of
    /// these, the `top` with the most time (or hits, if no times are known) are kept, and those
    /// around them. Rows directly below the same row are sorted by the column `sort`. Without
    /// `all`, functions and loops that were never entered are left out.
    pub fn choose(
        &mut self,
        filter: Option<&str>,
        sort: Option<&str>,
        top: Option<usize>,
        all: bool,
    ) -> Result<(), Failure> {
        self.rows = all_rows(&self.table);
        let mut of = Vec::new();
        let mut parents = Vec::new();
        for (module, tree) in self.table.modules.iter().enumerate() {
            let first = of.len();
            for (index, node) in tree.nodes.iter().enumerate() {
                parents.push(node.parent.map(|parent| first + parent));
                of.push((module, index));
            }
        }
        let node = |(module, index): (usize, usize)| {
            let tree = &self.table.modules[module];
            (tree, &tree.nodes[index])
        };
        let is_match = of.iter().map(|at| {
            let (tree, node) = node(*at);
            (all || node.all.hits > 0) && filter.is_none_or(|glob| is_called(glob, tree, node))
        });
        let is_match: Vec<bool> = is_match.collect();
        let times = of.iter().map(|at| {
            let (tree, node) = node(*at);
            let ticks = node.all.times(self.raw)?.inclusive.value;
            Some(tree.ns(ticks).unwrap_or(ticks))
        });
        let times: Vec<Option<f64>> = times.collect();
        let any = times.iter().any(Option::is_some);
        let hidden = |row: usize| !all && node(of[row]).1.all.hits == 0;
        let weights = of.iter().zip(times).enumerate().map(|(row, (at, time))| match time {
            _ if hidden(row) => -1.0,
            Some(time) => time,
            None if any => 0.0,
            None => node(*at).1.all.hits as f64,
        });
        let weights: Vec<f64> = weights.collect();
        let mut table = columns::full(self, false);
        let sort = sort.map(|sort| columns::of_title(&table, sort));
        let choice = Choice {
            parents: &parents,
            is_match: &is_match,
            weights: &weights,
            sort: sort.as_deref(),
            top,
        };
        forest::choose(&mut table, &choice)?;
        let order: Vec<usize> = table.order.into_iter().filter(|row| !hidden(*row)).collect();
        let wanted = forest::with_around_and_inside(&parents, &is_match);
        for module in 0..self.rows.len() {
            let in_module = |row: &&usize| of[**row].0 == module;
            self.rows[module] = order.iter().filter(in_module).map(|row| of[*row].1).collect();
            let all = (0..of.len()).filter(|row| wanted[*row] && !hidden(*row));
            let all = all.filter(|row| of[*row].0 == module).count();
            self.left_out[module] = all.saturating_sub(self.rows[module].len());
        }
        self.is_chosen = filter.is_some();
        Ok(())
    }

    /// Returns the dispatch that a node ran in, and how the node's numbers compare with the
    /// dispatch's.
    pub fn inside(&self, tree: &LoopTree, node: &LoopNode) -> Option<(&Dispatch, Inside)> {
        let dispatch = dispatch_of(&self.dispatches, tree, node)?;
        let times = node.all.times(self.raw);
        let inclusive = times.and_then(|times| tree.ns(times.inclusive.value));
        Some((dispatch, inside(self.profile, dispatch, tree, node, inclusive)))
    }

    /// Returns the nodes that were entered, each with the tree that contains it.
    pub fn entered(&self) -> impl Iterator<Item = (&LoopTree, &LoopNode)> {
        let all =
            self.table.modules.iter().flat_map(|tree| tree.nodes.iter().map(move |n| (tree, n)));
        all.filter(|(_, node)| node.all.hits > 0)
    }
}

fn all_rows(table: &LoopTable) -> Vec<Vec<usize>> {
    table.modules.iter().map(|tree| (0..tree.nodes.len()).collect()).collect()
}

/// Returns for each process the counters that were read in it, as indices into the profile's
/// counters (each pass of `run --passes` reads different ones).
pub fn counters_of_processes(profile: &Profile) -> Vec<Vec<usize>> {
    let of = |pass: u32| {
        let all = profile.manifest.counters.iter().enumerate();
        let read = all.filter(|(_, counter)| counter.pass.is_none_or(|of| of == pass + 1));
        read.map(|(index, _)| index).collect()
    };
    profile.processes.iter().map(|process| of(process.pass)).collect()
}

/// Reads side tables. Fails if a table differs from the one that its module contains, or if no
/// table of a file belongs to a module of the profile. A file may have several tables, one in each
/// line, for the parts of a module of IREE.
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

/// Returns the name of a function or loop. The name of a loop is its variable, or else the label of
/// its block, or else `loop` and its id.
pub fn name(tree: &LoopTree, node: &LoopNode) -> String {
    name_of(tree.entry(node), node.id)
}

fn name_of(entry: Option<&Entry>, id: u32) -> String {
    let Some(entry) = entry else { return format!("id {id}") };
    match (entry.kind, &entry.variable, &entry.label) {
        (Kind::Function, ..) => entry.function.clone(),
        (Kind::Loop, Some(name), _) => name.clone(),
        // The label of a block without a name is a number, which `%` tells apart from an id.
        (Kind::Loop, None, Some(label)) if label.bytes().all(|b| b.is_ascii_digit()) => {
            format!("%{label}")
        }
        (Kind::Loop, None, Some(label)) => label.clone(),
        (Kind::Loop, None, None) => format!("loop {id}"),
    }
}

/// Returns the name of a function, or the name of a loop with its function, as in `matmul:k`. This
/// name is for places where no heading names the function.
pub fn full_name(tree: &LoopTree, node: &LoopNode) -> String {
    full_name_of(tree.entry(node), node.id)
}

pub fn full_name_of(entry: Option<&Entry>, id: u32) -> String {
    let name = name_of(entry, id);
    match entry {
        Some(entry) if entry.kind == Kind::Loop => format!("{}:{name}", entry.function),
        _ => name,
    }
}

/// Like [`name`], but for people: a function of C++ or Rust has its readable name.
pub fn readable_name(tree: &LoopTree, node: &LoopNode) -> String {
    demangle(&name(tree, node), Detail::Whole).into_owned()
}

/// Like [`full_name`], but for people: `add<float>:k`.
pub fn readable_full_name(tree: &LoopTree, node: &LoopNode) -> String {
    match tree.entry(node) {
        Some(entry) if entry.kind == Kind::Loop => {
            format!("{}:{}", demangle(&entry.function, Detail::Short), name(tree, node))
        }
        _ => readable_name(tree, node),
    }
}

/// Whether the pattern matches the node's full name in its original or readable form.
pub fn is_called(glob: &str, tree: &LoopTree, node: &LoopNode) -> bool {
    profile::demangle::matches(glob, &full_name(tree, node))
        || model::glob::matches(glob, &readable_full_name(tree, node))
}

/// Returns the file and line of a function or loop in the source or, if they are not known, in the
/// instrumented IR.
pub fn source(tree: &LoopTree, node: &LoopNode) -> Option<String> {
    let entry = tree.entry(node)?;
    place(entry).or_else(|| {
        let text = &tree.table.as_ref()?.source;
        Some(format!("{text}:{}", entry.text[0]))
    })
}

/// Returns the source file and line of an entry (a function or loop). Some compilers write line 0
/// for an unknown line.
pub fn place(entry: &Entry) -> Option<String> {
    let line = entry.line.filter(|line| *line > 0)?;
    Some(format!("{}:{line}", entry.file.as_deref()?))
}

/// Returns the name of the file from which the module was made, or else the module's identity.
pub fn module_name(tree: &LoopTree) -> String {
    match &tree.table {
        Some(table) if !table.source.is_empty() => table.source.clone(),
        _ => tree.identity(),
    }
}

/// If other modules have the same file name as this module, returns a text about the functions of
/// this module that were entered: `add_1`, or `add_1 and 2 more`. `None` if the file name is
/// unique, or if no function was entered.
pub fn told_apart(loops: &Loops<'_>, tree: &LoopTree) -> Option<String> {
    const LONGEST: usize = 60;
    let same = |other: &&LoopTree| module_name(other) == module_name(tree);
    if loops.table.modules.iter().filter(same).count() < 2 {
        return None;
    }
    let is_entered = |node: &&LoopNode| {
        node.all.hits > 0 && tree.entry(node).is_some_and(|entry| entry.kind == Kind::Function)
    };
    let mut functions = tree.nodes.iter().filter(is_entered);
    let first = shorten(&readable_name(tree, functions.next()?), LONGEST);
    match functions.count() {
        0 => Some(first),
        more => Some(format!("{first} and {more} more")),
    }
}

/// Returns the name of a thread, such as `worker-0 (4712)`. With `several`, the name of the process
/// follows.
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

pub fn pid(profile: &Profile, process: usize) -> Option<u32> {
    profile.processes.get(process).map(|process| process.id.pid)
}
