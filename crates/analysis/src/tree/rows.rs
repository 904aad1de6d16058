//! The rows of a report as a tree: calls inside of calls, and the loops inside of dispatches.

use std::collections::HashMap;

use profile::Profile;

use super::CallTree;
use crate::answer::passes;
use crate::estimate::Estimate;
use crate::loops::dispatches::{Dispatches, dispatch_of};
use crate::loops::{LoopNode, LoopTable, LoopTree};
use crate::table::{By, Key};

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreePart {
    /// The calls of a node of the [`CallTree`].
    Calls(usize),
    /// A function or a loop: the index of its module, and its index in that module's nodes.
    Loop(usize, usize),
}

/// A row. Times are in ns. If the program ran once for each pass, all values are means of the passes.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeRow {
    /// Index of the row above.
    pub parent: Option<usize>,
    /// The number of rows above.
    pub depth: u32,
    /// What it stands for.
    pub what: TreePart,
    /// The number of calls or hits. `None`: the passes cannot have had the same number.
    pub calls: Option<u128>,
    /// The time with what is inside; `None` if it is not known.
    pub total: Option<Estimate>,
    /// The time without what is inside; `None` if it is not known.
    pub own: Option<Estimate>,
    /// `own` as a part of [`TreeRows::own_ns`].
    pub share: Option<f64>,
}

/// All rows, each after the one above it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeRows {
    /// The rows.
    pub rows: Vec<TreeRow>,
    /// The time in calls, in ns.
    pub own_ns: f64,
}

/// Puts the loops of each dispatch below its calls, if these are in one place of the tree, and all other
/// loops below nothing. With `raw`, times of loops are as they were measured.
pub fn rows(
    profile: &Profile,
    calls: &CallTree,
    loops: &LoopTable,
    dispatches: &Dispatches,
    raw: bool,
) -> TreeRows {
    let mut nodes_of: HashMap<Key, usize> = HashMap::new();
    calls.nodes.iter().for_each(|node| *nodes_of.entry(node.key).or_default() += 1);
    let tick = profile.timeline.ns_per_tick();
    let mut adder = Adder { rows: Vec::new(), loops, raw };
    let mut places = Vec::with_capacity(calls.nodes.len());
    for (index, node) in calls.nodes.iter().enumerate() {
        places.push(adder.rows.len());
        adder.rows.push(TreeRow {
            parent: node.parent.map(|parent| places[parent]),
            depth: node.depth,
            what: TreePart::Calls(index),
            calls: Some(node.calls.into()),
            total: Some(node.total.times(tick)),
            own: Some(node.own.times(tick)),
            share: None,
        });
        let is_only = nodes_of.get(&node.key) == Some(&1);
        if let (Key::Op(op), true) = (node.key, is_only) {
            adder.add(Some(places[index]), |tree, node| {
                dispatch_of(dispatches, tree, node).is_some_and(|found| found.ops.contains(&op))
            });
        }
    }
    adder.add(None, |tree, node| dispatch_of(dispatches, tree, node).is_none());
    let mut rows = adder.rows;
    // Each pass repeats all calls.
    let passes = passes(profile, By::Op);
    let own_ns = calls.own() * tick / passes as f64;
    for row in &mut rows {
        let n = u128::from(passes);
        row.calls = row.calls.filter(|calls| calls % n == 0).map(|calls| calls / n);
        for time in [&mut row.total, &mut row.own] {
            *time = time.map(|time| time.times(1.0 / passes as f64));
        }
        row.share = row.own.map(|own| own.value / own_ns).filter(|_| own_ns > 0.0);
    }
    TreeRows { rows, own_ns }
}

struct Adder<'a> {
    rows: Vec<TreeRow>,
    loops: &'a LoopTable,
    raw: bool,
}

impl Adder<'_> {
    /// Adds the functions and loops that were entered and that `of` selects below a row.
    fn add(&mut self, above: Option<usize>, of: impl Fn(&LoopTree, &LoopNode) -> bool) {
        let rows = &mut self.rows;
        let depth = above.map_or(0, |above| rows[above].depth + 1);
        // The rows of the loops around the next one, by their levels.
        let mut around: Vec<(u32, usize)> = Vec::new();
        let mut inside: Option<Estimate> = Some(Estimate::exact(0.0));
        for (module, tree) in self.loops.modules.iter().enumerate() {
            around.clear();
            let nodes = tree.nodes.iter().enumerate().filter(|(_, node)| node.all.hits > 0);
            for (index, node) in nodes.filter(|(_, node)| of(tree, node)) {
                around.retain(|(level, _)| *level < node.level);
                let parent = around.last().map(|(_, row)| *row).or(above);
                let times = node.all.times(self.raw);
                let total = times.and_then(|times| ns(tree, times.inclusive));
                if around.is_empty() {
                    inside = inside.zip(total).map(|(sum, more)| sum.plus(more));
                }
                around.push((node.level, rows.len()));
                rows.push(TreeRow {
                    parent,
                    depth: depth + around.len() as u32 - 1,
                    what: TreePart::Loop(module, index),
                    calls: Some(node.all.hits),
                    total,
                    own: times.and_then(|times| times.own).and_then(|own| ns(tree, own)),
                    share: None,
                });
            }
        }
        // What belongs to loops does not belong to the dispatch around them as well.
        if let Some(above) = above.filter(|above| rows.len() > above + 1) {
            rows[above].own = rows[above].own.zip(inside).map(|(own, inside)| {
                let rest = own.minus(inside);
                let [value, low, high] = [rest.value, rest.low, rest.high].map(|end| end.max(0.0));
                Estimate { value, low, high }
            });
        }
    }
}

/// A time of a loop with its interval, in ns. A time cannot be negative.
fn ns(tree: &LoopTree, of: crate::loops::Estimate) -> Option<Estimate> {
    let value = tree.ns(of.value)?;
    let margin = of.margin.and_then(|margin| tree.ns(margin)).unwrap_or(0.0);
    Some(Estimate { value, low: (value - margin).max(0.0), high: value + margin })
}
