//! Makes the rows of `report --tree`: calls below the calls around them, and loops below the
//! dispatch or op in which they ran.

use std::collections::{HashMap, HashSet};

use profile::Profile;

use super::CallTree;
use crate::answer::passes;
use crate::estimate::Estimate;
use crate::loops::ops::OpsAround;
use crate::loops::{LoopNode, LoopTable, LoopTree};
use crate::table::{By, Key};

/// What a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreePart {
    /// The calls of a node, as the node's index in [`CallTree::nodes`].
    Calls(usize),
    /// An instrumented function or loop, as the index of its module in [`LoopTable::modules`] and
    /// its index in [`LoopTree::nodes`].
    Loop(usize, usize),
}

/// A row. Times are in ns. With several passes (repetitions of the program with other counters),
/// values are means over the passes.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeRow {
    /// Index of the parent row in [`TreeRows::rows`].
    pub parent: Option<usize>,
    /// The number of ancestors (the parent row, its parent, and so on).
    pub depth: u32,
    pub what: TreePart,
    /// The number of calls, or of hits (entries into a function or loop). `None` if the mean over
    /// the passes is not a whole number: then not all passes had equally many.
    pub calls: Option<u128>,
    /// The time including the calls and loops inside. `None` if it is not known.
    pub total: Option<Estimate>,
    /// Self time of the calls, or of the loop. `None` if it is not known.
    pub own: Option<Estimate>,
    /// The time without the time of all rows below. `None` if it is not known. Unlike `own`, it
    /// excludes the times of loops below calls.
    pub rest: Option<Estimate>,
    /// `rest` divided by [`TreeRows::own_ns`]. `None` if `rest` is not known or the time in calls
    /// is 0, and for loops that are not below a call.
    pub share: Option<f64>,
    /// `total` divided by [`TreeRows::own_ns`]. `None` if `total` is not known or the time in calls
    /// is 0, and for loops that are not below a call.
    pub total_share: Option<f64>,
}

/// All rows. Each row comes after its parent row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeRows {
    pub rows: Vec<TreeRow>,
    /// The time in calls, in ns (with several passes, the mean over the passes).
    pub own_ns: f64,
}

/// Places the loops of a dispatch or op below the node of its calls, if all of these calls are in a
/// single node. All other loops are placed at the top. They have no share, because their time can
/// already be part of the time of calls, and would count twice. With several nodes, it is not known
/// to which of them a loop's hits belong. If the loops of a node took longer than its calls, they
/// also ran outside of these calls, so they are placed at the top, too. The calls around loops that
/// ran in no dispatch or op are not known. With `raw`, times of loops are as measured.
pub fn rows(
    profile: &Profile,
    calls: &CallTree,
    loops: &LoopTable,
    around: &OpsAround,
    raw: bool,
) -> TreeRows {
    // Each pass repeats all calls, so the values are divided by the number of passes.
    build(calls, loops, around, raw, profile.timeline.ns_per_tick(), passes(profile, By::Op))
}

/// Makes the rows. `tick` is the length of a tick in ns.
fn build(
    calls: &CallTree,
    loops: &LoopTable,
    around: &OpsAround,
    raw: bool,
    tick: f64,
    passes: u64,
) -> TreeRows {
    let mut nodes_of: HashMap<Key, Vec<usize>> = HashMap::new();
    for (index, node) in calls.nodes.iter().enumerate() {
        nodes_of.entry(node.key).or_default().push(index);
    }
    let candidate = |tree: &LoopTree, node: &LoopNode| {
        let ops = around.of(tree, node);
        let mut all = ops.iter().filter_map(|op| nodes_of.get(&Key::Op(*op))).flatten();
        all.next().filter(|_| all.next().is_none()).copied()
    };
    let too_long = longer_than_their_calls(calls, loops, raw, tick, candidate);
    // Returns the node of calls below which a loop is placed. `None` if the loop is placed at the
    // top.
    let home = |tree: &LoopTree, node: &LoopNode| {
        candidate(tree, node).filter(|index| !too_long.contains(index))
    };
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
            rest: Some(node.own.times(tick)),
            share: None,
            total_share: None,
        });
        if nodes_of[&node.key].len() == 1 {
            adder.add(Some(places[index]), |tree, node| home(tree, node) == Some(index));
        }
    }
    let in_some = adder.rows.len();
    adder.add(None, |tree, node| home(tree, node).is_none());
    let mut rows = adder.rows;
    let own_ns = calls.own() * tick / passes as f64;
    for row in &mut rows {
        let n = u128::from(passes);
        row.calls = row.calls.filter(|calls| calls % n == 0).map(|calls| calls / n);
        for time in [&mut row.total, &mut row.own, &mut row.rest] {
            *time = time.map(|time| time.times(1.0 / passes as f64));
        }
        let part =
            |time: Option<Estimate>| time.map(|time| time.value / own_ns).filter(|_| own_ns > 0.0);
        (row.share, row.total_share) = (part(row.rest), part(row.total));
    }
    rows[in_some..].iter_mut().for_each(|row| (row.share, row.total_share) = (None, None));
    TreeRows { rows, own_ns }
}

/// Finds nodes whose calls took less time than the loops that seem to be inside of them. The upper
/// end of a node's time is compared with the lower ends of the loops' times. Loops that took longer
/// must also have run outside of recorded calls, for example on threads on which no calls were
/// recorded.
fn longer_than_their_calls(
    calls: &CallTree,
    loops: &LoopTable,
    raw: bool,
    tick: f64,
    candidate: impl Fn(&LoopTree, &LoopNode) -> Option<usize>,
) -> HashSet<usize> {
    let mut inside: HashMap<usize, f64> = HashMap::new();
    for tree in &loops.modules {
        for node in tree.nodes.iter().filter(|node| node.all.hits > 0) {
            let Some(at) = candidate(tree, node) else { continue };
            let around = node.parent.and_then(|parent| candidate(tree, tree.nodes.get(parent)?));
            let time = node.all.times(raw).and_then(|times| ns(tree, times.inclusive));
            if around != Some(at) {
                *inside.entry(at).or_default() += time.map_or(0.0, |time| time.low);
            }
        }
    }
    // The times of loops are measured with another clock, whose rate may be slightly different.
    let most = |at: &usize| calls.nodes.get(*at).map_or(0.0, |node| 1.01 * node.total.high * tick);
    inside.into_iter().filter(|(at, ns)| *ns > most(at) + 1e3).map(|(at, _)| at).collect()
}

struct Adder<'a> {
    rows: Vec<TreeRow>,
    loops: &'a LoopTable,
    raw: bool,
}

impl Adder<'_> {
    /// Adds, below the row `above`, the functions and loops that were entered and that `of`
    /// selects.
    fn add(&mut self, above: Option<usize>, of: impl Fn(&LoopTree, &LoopNode) -> bool) {
        let rows = &mut self.rows;
        let depth = above.map_or(0, |above| rows[above].depth + 1);
        // The functions and loops around the next one, each with its level and row.
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
                let own = times.and_then(|times| times.own).and_then(|own| ns(tree, own));
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
                    own,
                    rest: own,
                    share: None,
                    total_share: None,
                });
            }
        }
        // `rest` of a dispatch or op does not include the loops inside of it.
        if let Some(above) = above.filter(|above| rows.len() > above + 1) {
            rows[above].rest = rows[above].rest.zip(inside).map(|(own, inside)| {
                let rest = own.minus(inside);
                let [value, low, high] = [rest.value, rest.low, rest.high].map(|end| end.max(0.0));
                Estimate { value, low, high }
            });
        }
    }
}

/// Returns a loop's time with its interval, in ns.
fn ns(tree: &LoopTree, of: crate::loops::Estimate) -> Option<Estimate> {
    let value = tree.ns(of.value)?;
    let margin = of.margin.and_then(|margin| tree.ns(margin)).unwrap_or(0.0);
    Some(Estimate { value, low: (value - margin).max(0.0), high: value + margin })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ir::table::SideTable;

    use super::*;
    use crate::loops::dispatches::{Dispatch, Dispatches};
    use crate::loops::{Estimate as Margin, Mode, Numbers, TableChoice, Times};
    use crate::tree::TreeNode;

    const ID: [u8; 16] = [1; 16];

    /// A function `f` that was entered 5 times, and a loop in it that was entered 50 times.
    fn loops() -> LoopTable {
        let entries = serde_json::json!([
            {"id": 0, "kind": "function", "function": "f", "height": 1, "siblings": 0, "text": [1, 2]},
            {"id": 1, "kind": "loop", "function": "f", "parent": 0, "depth": 0, "height": 0, "siblings": 0, "text": [1, 2]},
        ]);
        let table =
            SideTable { entries: serde_json::from_value(entries).unwrap(), ..SideTable::default() };
        // The function and the loop each take 20 ns, twice the time of a node that `calls` makes.
        let all = Margin { value: 20.0, margin: None };
        let times = Times { inclusive: all, own: Some(all), mean: None, share: None };
        let node = |id: u32, parent, level, hits| LoopNode {
            id,
            parent,
            level,
            all: Numbers { hits, raw: Some(times), ..Numbers::default() },
            threads: Vec::new(),
            imbalance: None,
            hit_imbalance: None,
        };
        let tree = LoopTree {
            id: ID,
            mode: Mode::Count,
            ids: 2,
            ticks_per_second: Some(1e9),
            registrations: Vec::new(),
            table: Some(table),
            choice: TableChoice::default(),
            scheduled: HashMap::new(),
            nodes: vec![node(0, None, 0, 5), node(1, Some(0), 1, 50)],
            threads: Vec::new(),
            beyond: 0,
            damaged: 0,
            uncalibrated: 0,
        };
        LoopTable { modules: vec![tree], strays: 0 }
    }

    /// `nodes` contains, for each node, its op and the index of the node above it.
    fn calls(nodes: &[(u32, Option<usize>)]) -> CallTree {
        let node = |(op, parent): &(u32, Option<usize>)| TreeNode {
            parent: *parent,
            key: Key::Op(*op),
            depth: u32::from(parent.is_some()),
            is_deeper: false,
            calls: 1,
            total: Estimate::exact(10.0),
            own: Estimate::exact(5.0),
            thread: None,
            values: Vec::new(),
        };
        CallTree { nodes: nodes.iter().map(node).collect() }
    }

    /// Returns, for each row of a function or loop, its hits, the index of the row above it, and
    /// whether it has a share.
    fn placed(nodes: &[(u32, Option<usize>)], ops: &[u32]) -> Vec<(u128, Option<usize>, bool)> {
        let dispatch = Dispatch { ops: ops.to_vec(), workgroups: 5, ..Dispatch::default() };
        let functions = BTreeMap::from([("f".to_owned(), dispatch)]);
        let dispatches = match ops {
            [] => Dispatches::new(),
            _ => Dispatches::from([(ID, functions)]),
        };
        let around = OpsAround::of_dispatches(&dispatches);
        let found = build(&calls(nodes), &loops(), &around, true, 1.0, 1);
        let loops = found.rows.iter().filter(|row| matches!(row.what, TreePart::Loop(..)));
        loops.map(|row| (row.calls.unwrap(), row.parent, row.share.is_some())).collect()
    }

    /// The op takes 10 ns, 5 of them as self time. Its function `f` takes 3 ns, so 2 ns of the op's
    /// self time remain.
    #[test]
    fn self_has_one_meaning_and_the_rest_another() {
        let dispatch = Dispatch { ops: vec![8], workgroups: 5, ..Dispatch::default() };
        let functions = BTreeMap::from([("f".to_owned(), dispatch)]);
        let around = OpsAround::of_dispatches(&Dispatches::from([(ID, functions)]));
        let mut loops = loops();
        for node in &mut loops.modules[0].nodes {
            let times = node.all.raw.as_mut().unwrap();
            times.inclusive.value = 3.0;
            times.own = Some(Margin { value: 1.0, margin: None });
        }
        let found = build(&calls(&[(7, None), (8, None)]), &loops, &around, true, 1.0, 1);
        let values = |row: &TreeRow| [row.own, row.rest].map(|time| time.unwrap().value);
        let of: Vec<[f64; 2]> = found.rows.iter().map(values).collect();
        assert_eq!(of, [[5.0, 5.0], [5.0, 2.0], [1.0, 1.0], [1.0, 1.0]]);
        assert_eq!(found.rows[1].share, Some(0.2));
    }

    #[test]
    fn loops_are_below_the_only_place_of_their_dispatch_and_never_lost() {
        let below =
            |at: Option<usize>, of| vec![(5, at, at.is_some()), (50, Some(of), at.is_some())];
        assert_eq!(placed(&[(7, None), (8, None)], &[8]), below(Some(1), 2));
        // The loops are placed at the top, once, if the dispatch's calls have two nodes, no node,
        // or nodes of two ops, or if no dispatch contains the loops.
        assert_eq!(
            placed(&[(7, None), (8, Some(0)), (9, None), (8, Some(2))], &[8]),
            below(None, 4)
        );
        assert_eq!(placed(&[(7, None)], &[8]), below(None, 1));
        assert_eq!(placed(&[(7, None), (8, None)], &[7, 8]), below(None, 2));
        assert_eq!(placed(&[(7, None)], &[]), below(None, 1));
    }
}
