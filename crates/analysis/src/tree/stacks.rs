//! Converts the tree of calls to stacks. The values of a stack are those of its last node alone,
//! without the nodes below it.
//!
//! ```text
//!  thread ─ call ─ call ─ loop        a stack is a node with all nodes above it,
//!       └─ call                       and its values are of this node alone
//! ```
//!
//! The times of all stacks, except those of loops for which no dispatch or op is known, add up to
//! the time in calls that `report --tree` shows. Each time is rounded such that the rounded times
//! add up to their exact sum, rounded once.

use std::collections::HashMap;

use profile::Profile;

use super::{CallTree, Detailed, detailed};
use crate::answer::passes;
use crate::loops::ops::OpsAround;
use crate::loops::{LoopTable, LoopThread, Numbers};
use crate::table::{By, Key};

/// What a node shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackPart {
    /// A thread, as process and thread index. Its calls are below this node.
    Thread(usize, usize),
    /// Calls of a function.
    Calls {
        /// The function, as the key of its row in a table by op.
        key: Key,
        /// Whether all calls below the parent that are too deep for nodes of their own share this
        /// node.
        is_deeper: bool,
    },
    /// An instrumented function or loop, as the index of its module in [`LoopTable::modules`] and
    /// its index in the module's nodes.
    Loop(usize, usize),
    /// The node above all instrumented functions and loops for which no dispatch or op is known.
    /// Their times are not part of the time in calls.
    InNoCall,
}

/// One node. Its values do not include those of the nodes below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Index of the node above.
    pub parent: Option<usize>,
    pub what: StackPart,
    /// The number of calls, or of hits (entries into a function or loop); 0 for a thread, and for
    /// [`StackPart::InNoCall`]. With several passes (repetitions of the program with other
    /// counters), the mean over the passes, rounded down.
    pub calls: u64,
    /// The time in ns, without that of the nodes below.
    pub own_ns: u64,
    /// For each element of [`Stacks::counters`], the counts without those of the nodes below; 0 for
    /// a function or loop. The counts that the recorder added are not subtracted.
    pub values: Vec<u64>,
}

/// All nodes, with the indices of their counters and the time in calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacks {
    /// The nodes. Each node comes after the node above it.
    pub nodes: Vec<Stack>,
    /// The counters of which at least one call has a value, as indices in the profile's counters.
    pub counters: Vec<usize>,
    /// The time in calls, in ns: the sum over all nodes, except those below
    /// [`StackPart::InNoCall`].
    pub calls_ns: u64,
}

/// Makes the stacks. `None` in a run with a budget: only a sample of the calls has records then, so
/// the calls around a call are not known.
///
/// With several passes (repetitions of the program), there are no nodes for threads, because each
/// pass had threads of its own. For loops, the values of counters are 0. The loops of a dispatch or
/// op are placed below the node of its calls, and their times are subtracted from the node's self
/// time. If the calls have several nodes on a thread, or no node, the loops are left out. If the
/// estimated times of the loops exceed the node's self time, they are scaled down to fit.
pub fn stacks(
    profile: &Profile,
    loops: &LoopTable,
    around: &OpsAround,
    raw: bool,
) -> Option<Stacks> {
    let passes = passes(profile, By::Op);
    let detail = Detailed { by_thread: passes == 1, counters: true };
    let tree = detailed(profile, raw, 0, detail)?;
    let has = |counter: &usize| tree.nodes.iter().any(|node| node.values[*counter].is_some());
    let counters: Vec<usize> = (0..profile.groups.counters()).filter(has).collect();
    let values = own_values(&tree, &counters);
    let mut nodes_of: HashMap<(Option<(usize, usize)>, Key), usize> = HashMap::new();
    tree.nodes.iter().for_each(|node| *nodes_of.entry((node.thread, node.key)).or_default() += 1);
    let tick = profile.timeline.ns_per_tick() / passes as f64;
    let nothing = vec![0; counters.len()];
    let mut maker = Maker { profile, loops, raw, passes, nothing, rounded: 0.0, out: Vec::new() };
    let (mut places, mut last_thread) = (Vec::with_capacity(tree.nodes.len()), None);
    for (node, values) in tree.nodes.iter().zip(values) {
        let parent = match (node.parent, node.thread) {
            (Some(parent), _) => Some(places[parent]),
            (None, None) => None,
            (None, Some(thread)) => Some(match last_thread {
                Some((known, place)) if known == thread => place,
                _ => {
                    let what = StackPart::Thread(thread.0, thread.1);
                    let place = maker.push(None, what, 0, 0.0, None);
                    last_thread = Some((thread, place));
                    place
                }
            }),
        };
        let is_only = nodes_of.get(&(node.thread, node.key)) == Some(&1);
        let inside = match node.key {
            Key::Op(op) if is_only => maker.loops(node.thread, |module, id| {
                let tree = &loops.modules[module];
                around.of(tree, &tree.nodes[id]).contains(&op)
            }),
            _ => Vec::new(),
        };
        let (own, in_loops) = (node.own.value * tick, inside.iter().map(|one| one.ns).sum::<f64>());
        // Estimated times of loops can be longer than the dispatch around them.
        let fitting = if in_loops > own { own / in_loops } else { 1.0 };
        let what = StackPart::Calls { key: node.key, is_deeper: node.is_deeper };
        let rest = (own - in_loops * fitting).max(0.0);
        let place = maker.push(parent, what, node.calls / passes, rest, Some(values));
        places.push(place);
        maker.add_loops(place, &inside, fitting);
    }
    let calls_ns = maker.out.iter().map(|stack| stack.own_ns).sum();
    let others = maker.loops(None, |module, id| {
        let tree = &loops.modules[module];
        around.of(tree, &tree.nodes[id]).is_empty()
    });
    if !others.is_empty() {
        let place = maker.push(None, StackPart::InNoCall, 0, 0.0, None);
        maker.add_loops(place, &others, 1.0);
    }
    Some(Stacks { nodes: maker.out, counters, calls_ns })
}

/// Returns each node's count of each counter in `counters`, without the counts of the nodes
/// directly below. Some calls of a node may have no value, although calls inside of them have one.
/// So a node's count is taken to be at least the sum over the nodes directly below.
fn own_values(tree: &CallTree, counters: &[usize]) -> Vec<Vec<u64>> {
    let mut inside = vec![vec![0u128; counters.len()]; tree.nodes.len()];
    let mut own = vec![Vec::new(); tree.nodes.len()];
    // In reverse order, a node comes before the node above it.
    for (at, node) in tree.nodes.iter().enumerate().rev() {
        let inside_of_node = std::mem::take(&mut inside[at]);
        for (place, inside_of_node) in inside_of_node.into_iter().enumerate() {
            let whole = node.values[counters[place]].unwrap_or(0).max(inside_of_node);
            own[at].push(u64::try_from(whole - inside_of_node).unwrap_or(u64::MAX));
            if let Some(parent) = node.parent {
                inside[parent][place] += whole;
            }
        }
    }
    own
}

/// An instrumented function or loop that was entered.
struct Inside {
    module: usize,
    node: usize,
    /// Number of instrumented functions and loops around this one.
    level: u32,
    hits: u128,
    /// The self time of the function or loop; 0 if it is not known.
    ns: f64,
}

struct Maker<'a> {
    profile: &'a Profile,
    loops: &'a LoopTable,
    raw: bool,
    passes: u64,
    nothing: Vec<u64>,
    /// The exact sum of the times of all nodes added so far, from which their rounded times are
    /// derived.
    rounded: f64,
    out: Vec<Stack>,
}

impl Maker<'_> {
    /// Adds a node. The node's time is rounded such that the rounded times so far add up to their
    /// exact sum, rounded once.
    fn push(
        &mut self,
        parent: Option<usize>,
        what: StackPart,
        calls: u64,
        own_ns: f64,
        values: Option<Vec<u64>>,
    ) -> usize {
        let before = self.rounded.round() as u64;
        self.rounded += own_ns;
        let own_ns = self.rounded.round() as u64 - before;
        let values = values.unwrap_or_else(|| self.nothing.clone());
        self.out.push(Stack { parent, what, calls, own_ns, values });
        self.out.len() - 1
    }

    /// Returns the functions and loops that were entered and that `of` selects. With `thread`,
    /// returns only those that were entered on this thread.
    fn loops(
        &self,
        thread: Option<(usize, usize)>,
        of: impl Fn(usize, usize) -> bool,
    ) -> Vec<Inside> {
        let thread = thread.and_then(|(process, index)| {
            let tid = self.profile.processes.get(process)?.threads.get(index)?.tid;
            Some(LoopThread { process, tid })
        });
        let mut inside = Vec::new();
        for (module, tree) in self.loops.modules.iter().enumerate() {
            let index = thread.map(|thread| tree.threads.iter().position(|one| *one == thread));
            for (at, node) in tree.nodes.iter().enumerate() {
                let numbers: Option<&Numbers> = match index {
                    None => Some(&node.all),
                    Some(index) => {
                        let mut threads = node.threads.iter();
                        threads.find(|(one, _)| Some(*one) == index).map(|(_, numbers)| numbers)
                    }
                };
                let Some(numbers) = numbers.filter(|numbers| numbers.hits > 0) else { continue };
                if !of(module, at) {
                    continue;
                }
                let own = numbers.times(self.raw).and_then(|times| times.own);
                let ns = own.and_then(|own| tree.ns(own.value)).unwrap_or(0.0).max(0.0);
                let (ns, hits) = (ns / self.passes as f64, numbers.hits / u128::from(self.passes));
                inside.push(Inside { module, node: at, level: node.level, hits, ns });
            }
        }
        inside
    }

    fn add_loops(&mut self, above: usize, inside: &[Inside], fitting: f64) {
        // The functions and loops around the next one, each as module, level and node.
        let mut around: Vec<(usize, u32, usize)> = Vec::new();
        for one in inside {
            around.retain(|(module, level, _)| *module == one.module && *level < one.level);
            let parent = around.last().map_or(above, |(_, _, place)| *place);
            let what = StackPart::Loop(one.module, one.node);
            let hits = u64::try_from(one.hits).unwrap_or(u64::MAX);
            let place = self.push(Some(parent), what, hits, one.ns * fitting, None);
            around.push((one.module, one.level, place));
        }
    }
}
