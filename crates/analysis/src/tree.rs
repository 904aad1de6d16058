//! Builds the tree of calls. A function has one node for each different chain of calls that leads
//! to it.
//!
//! ```text
//!  main ─► layer ─► matmul      two nodes of matmul, because it is called
//!      └─► matmul                in two places
//! ```
//!
//! A node's self time is the time of its calls without the calls inside of them. Its total time is
//! its self time plus the total times of the nodes directly below it. So the self times of all
//! nodes add up to the time in calls. The table by op has a row for each function. Unless calls are
//! nested more deeply than `DEEPEST`, the self times of a function's nodes add up to the self time
//! of that row. Their numbers of calls add up to the row's outermost and inner calls.

mod rows;
mod stacks;

pub use rows::{TreePart, TreeRow, TreeRows, rows};
pub use stacks::{Stack, StackPart, Stacks, stacks};

use std::collections::HashMap;

use profile::{Columns, Profile};

use crate::amounts::{Brackets, parts, ticks};
use crate::checks::may_contradict;
use crate::estimate::Estimate;
use crate::forest::{Mark, Marks, NO_ROW, Rows};
use crate::summary::contradictions;
use crate::table::{By, Key, Places, Selection};
use crate::walk::{Adder, apart, walk};

/// Calls with more than this many calls around them have no nodes of their own. All such calls
/// below a node share one node, which has the key of the node above it.
const DEEPEST: u32 = 100;
/// This bit is set in the node number of a call that is inside of another call of the same node.
const INSIDE: u32 = 1 << 31;
/// A parent number of at least this value stands for a thread, except [`NO_ROW`].
const THREADS: u32 = 1 << 30;

/// One node. Times are in ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeNode {
    /// Index of the node above. `None` for calls that are not inside of another call.
    pub parent: Option<usize>,
    /// The function, as the key of its row in a table by op.
    pub key: Key,
    /// The number of nodes above this one.
    pub depth: u32,
    /// Whether this node is shared by calls below the parent: by all that are too deep to have
    /// their own nodes.
    pub is_deeper: bool,
    pub calls: u64,
    /// Sum of the durations of the calls. A call inside of another call of this node is left out.
    pub total: Estimate,
    /// Sum of the self times of the calls.
    pub own: Estimate,
    /// The thread on which the calls ran, as process and thread index. `None` if calls of all
    /// threads share nodes.
    pub thread: Option<(usize, usize)>,
    /// For each counter of the profile, the sum over the calls that have a value. A call's value
    /// includes the calls inside of it. Empty if counters were not requested.
    pub values: Vec<Option<u128>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Detailed {
    /// Whether calls on different threads get different nodes.
    pub by_thread: bool,
    /// Whether nodes get values of counters.
    pub counters: bool,
}

/// The calls of a profile as a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallTree {
    /// The nodes. Each node comes after the node above it. The nodes directly below a node are
    /// sorted by total time, the largest first.
    pub nodes: Vec<TreeNode>,
}

impl CallTree {
    /// Returns the time in calls, in ticks: the sum of the self times of all nodes.
    pub fn own(&self) -> f64 {
        self.nodes.iter().map(|node| node.own.value).sum()
    }
}

/// Builds the tree of the calls of all threads. Calls that belong to no thread are left out. With
/// `raw`, or if subtracting the recorder's time would lead to contradictions, the tree has the
/// times as recorded. `None` in a run with a budget: only a sample of the calls has records then,
/// so the calls around a call are not known.
pub fn call_tree(profile: &Profile, raw: bool, workers: usize) -> Option<CallTree> {
    detailed(profile, raw, workers, Detailed::default())
}

/// Builds the tree as [`call_tree`] does, with more options.
pub(crate) fn detailed(
    profile: &Profile,
    raw: bool,
    workers: usize,
    detail: Detailed,
) -> Option<CallTree> {
    if profile.is_sampled() {
        return None;
    }
    let workers = match workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let (tree, exhausted) = once(profile, raw, workers, detail);
    let is_wrong =
        !raw && may_contradict(exhausted) && !contradictions(profile, workers).is_empty();
    Some(if is_wrong { once(profile, true, workers, detail).0 } else { tree })
}

/// Returns the tree, and the number of calls whose self time is 0 after the recorder's time was
/// subtracted.
fn once(profile: &Profile, raw: bool, workers: usize, detail: Detailed) -> (CallTree, u64) {
    let places = Places::new(profile, &Selection { by: By::Op, ..Selection::default() });
    let brackets = Brackets::new(profile, raw);
    let walked = walk(profile, workers, &brackets, None, || Nodes::new(profile, &places, detail));
    let mut all = Nodes::new(profile, &places, detail);
    walked.parts.into_iter().for_each(|part| all.merge(&part));
    let exhausted = all.exhausted;
    (all.finish(&brackets), exhausted)
}

/// A node while calls are added to it. Times are in units of 1/[`crate::amounts::PARTS`] tick.
#[derive(Debug)]
struct Node {
    parent: u32,
    key: u32,
    depth: u32,
    is_deeper: bool,
    calls: u64,
    total: u128,
    taken: u128,
    own: u128,
    own_taken: u128,
    /// For each counter, the number of calls with a value, and the sum of the values.
    values: Vec<(u64, u128)>,
}

struct Nodes<'a> {
    profile: &'a Profile,
    places: &'a Places<'a>,
    keys: Vec<Key>,
    numbers: HashMap<Key, u32>,
    nodes: Vec<Node>,
    below: HashMap<(u32, u32), u32>,
    page_rows: Vec<u32>,
    /// The number that outermost calls have as their parent. If calls on different threads get
    /// different nodes, this number stands for the thread of the current page.
    root: u32,
    by_thread: bool,
    /// The number of counters whose values are added up in nodes.
    counters: usize,
    /// For each process, the number of its first thread, where all threads of the profile are
    /// numbered from `THREADS` on.
    first_threads: Vec<u32>,
    /// Number of calls whose self time is 0 after the recorder's time was subtracted.
    exhausted: u64,
}

impl<'a> Nodes<'a> {
    fn new(profile: &'a Profile, places: &'a Places<'a>, detail: Detailed) -> Self {
        let first = |next: &mut u32, process: &profile::Process| {
            let first = *next;
            *next += process.threads.len() as u32;
            Some(first)
        };
        Self {
            root: NO_ROW,
            by_thread: detail.by_thread,
            counters: if detail.counters { profile.groups.counters() } else { 0 },
            first_threads: profile.processes.iter().scan(THREADS, first).collect(),
            profile,
            places,
            keys: Vec::new(),
            numbers: HashMap::new(),
            nodes: Vec::new(),
            below: HashMap::new(),
            page_rows: Vec::new(),
            exhausted: 0,
        }
    }

    fn number(&mut self, key: Key) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() as u32 - 1
        })
    }

    fn find_rows(&mut self, columns: &Columns) {
        let mut rows = std::mem::take(&mut self.page_rows);
        rows.clear();
        let thread = (columns.process, columns.thread);
        if self.by_thread {
            let (process, of_process) = self.places.home(thread);
            self.root = self.first_threads[process] + of_process as u32;
        }
        let mut last: Option<(u32, u32)> = None;
        let is_apart = apart(self.profile, columns).is_some();
        for export in &columns.export {
            let row = match last {
                Some((known, row)) if known == *export => row,
                _ if is_apart => NO_ROW,
                _ => match self.places.row(self.profile, thread, *export) {
                    Some(key) => self.number(key),
                    None => NO_ROW,
                },
            };
            last = Some((*export, row));
            rows.push(row);
        }
        self.page_rows = rows;
    }

    /// Returns the thread for which the number `parent` stands. `None` if it is the number of a
    /// node or [`NO_ROW`].
    fn thread(&self, parent: u32) -> Option<(usize, usize)> {
        if parent == NO_ROW || parent < THREADS {
            return None;
        }
        let process = self.first_threads.partition_point(|first| *first <= parent) - 1;
        Some((process, (parent - self.first_threads[process]) as usize))
    }

    /// Returns the number of the node below `parent` for the function with the number `key`. Adds
    /// the node if it is missing.
    fn node(&mut self, parent: u32, key: u32, is_deeper: bool) -> u32 {
        let depth = self.nodes.get(parent as usize).map_or(0, |parent| parent.depth + 1);
        let counters = self.counters;
        *self.below.entry((parent, key)).or_insert_with(|| {
            let (calls, total, taken, own, own_taken) = (0, 0, 0, 0, 0);
            self.nodes.push(Node {
                parent,
                key,
                depth,
                is_deeper,
                calls,
                total,
                taken,
                own,
                own_taken,
                values: vec![(0, 0); counters],
            });
            self.nodes.len() as u32 - 1
        })
    }

    fn merge(&mut self, other: &Self) {
        self.exhausted += other.exhausted;
        // Each node of `other` comes after the node above it, so the upper node's number in `self`
        // is already known.
        let mut places: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let parent = places.get(node.parent as usize).copied().unwrap_or(node.parent);
            let key = self.number(other.keys[node.key as usize]);
            let place = self.node(parent, key, node.is_deeper);
            places.push(place);
            let sum = &mut self.nodes[place as usize];
            sum.calls += node.calls;
            sum.total += node.total;
            sum.taken += node.taken;
            sum.own += node.own;
            sum.own_taken += node.own_taken;
            for (sum, more) in sum.values.iter_mut().zip(&node.values) {
                *sum = (sum.0 + more.0, sum.1 + more.1);
            }
        }
    }

    fn finish(self, brackets: &Brackets) -> CallTree {
        let mut below: HashMap<u32, Vec<u32>> = HashMap::new();
        for (place, node) in (0..).zip(&self.nodes) {
            below.entry(node.parent).or_default().push(place);
        }
        for places in below.values_mut() {
            let of = |place: u32| &self.nodes[place as usize];
            places.sort_by_key(|place| {
                let node = of(*place);
                (node.total, std::cmp::Reverse(self.keys[node.key as usize]))
            });
        }
        let rest = |left: u128, taken: u128| {
            let taken = u64::try_from(taken).unwrap_or(u64::MAX);
            let value = ticks(left) + ticks(taken.into());
            let rest = Estimate::exact(value).minus(brackets.doubt(None, taken));
            Estimate { value: rest.value.max(0.0), high: rest.high.max(0.0), ..rest }
        };
        let mut nodes: Vec<TreeNode> = Vec::new();
        // Of the nodes below the same parent, the one with the largest total time is last on the
        // stack, so it is taken first.
        let mut open: Vec<(u32, Option<usize>)> = Vec::new();
        let push = |open: &mut Vec<(u32, Option<usize>)>, of: u32, parent: Option<usize>| {
            open.extend(below.get(&of).into_iter().flatten().map(|place| (*place, parent)));
        };
        let mut roots: Vec<u32> = below.keys().copied().filter(|of| *of >= THREADS).collect();
        roots.sort_unstable_by(|a, b| b.cmp(a));
        roots.into_iter().for_each(|root| push(&mut open, root, None));
        while let Some((place, parent)) = open.pop() {
            let node = &self.nodes[place as usize];
            let above = parent.and_then(|parent| nodes[parent].thread);
            nodes.push(TreeNode {
                thread: above.or_else(|| self.thread(node.parent)),
                values: node.values.iter().map(|(n, sum)| (*n > 0).then_some(*sum)).collect(),
                parent,
                key: self.keys[node.key as usize],
                depth: node.depth,
                is_deeper: node.is_deeper,
                calls: node.calls,
                total: rest(node.total, node.taken),
                own: rest(node.own, node.own_taken),
            });
            push(&mut open, place, Some(nodes.len() - 1));
        }
        CallTree { nodes }
    }
}

impl Rows for Nodes<'_> {
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
        self.find_rows(columns);
        rows.extend_from_slice(&self.page_rows);
    }

    fn child(&mut self, parent: u32, row: u32) -> u32 {
        // A call without a row has no node. The calls inside of it are treated as outermost calls.
        if row == NO_ROW {
            return NO_ROW;
        }
        let above = if parent == NO_ROW { self.root } else { parent & !INSIDE };
        match self.nodes.get(above as usize) {
            Some(node) if node.is_deeper => above | INSIDE,
            Some(node) if node.depth >= DEEPEST => {
                let key = node.key;
                self.node(above, key, true)
            }
            _ => self.node(above, row, false),
        }
    }
}

impl Adder for Nodes<'_> {
    fn add(&mut self, columns: &Columns, brackets: &Brackets, marks: Option<&Marks>) {
        self.find_rows(columns);
        let classes = brackets.page(columns);
        for i in 0..columns.len() {
            let row = self.page_rows[i];
            let node = match marks {
                Some(marks) => marks.node(i),
                None if row == NO_ROW => NO_ROW,
                None => self.node(self.root, row, false),
            };
            let duration = parts(columns.duration(i));
            let mark = match marks {
                Some(marks) => marks.of(i),
                None => Mark::of_flat(duration, classes.of(columns, i), brackets),
            };
            self.exhausted += u64::from(mark.is_exhausted());
            if node == NO_ROW {
                continue;
            }
            let Some(sum) = self.nodes.get_mut((node & !INSIDE) as usize) else { continue };
            sum.calls += 1;
            sum.own += u128::from(mark.own);
            sum.own_taken += u128::from(mark.own_taken);
            if node & INSIDE == 0 {
                add_values(&mut sum.values, self.profile, columns, i);
                sum.total += u128::from(duration - mark.taken);
                sum.taken += u128::from(mark.taken);
            }
        }
    }
}

fn add_values(sums: &mut [(u64, u128)], profile: &Profile, columns: &Columns, i: usize) {
    if sums.is_empty() {
        return;
    }
    for (g, group) in profile.groups.all().iter().enumerate() {
        for counter in group.counters.clone() {
            if let (Some(value), Some(sum)) = (columns.value(g, counter, i), sums.get_mut(counter))
            {
                *sum = (sum.0 + 1, sum.1 + u128::from(value));
            }
        }
    }
}
