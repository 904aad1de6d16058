//! Links steps to the steps that they waited for, and finds the longest path through them.

use profile::OpId;

use super::Links;
use super::calls::{Calls, NO};
use super::ranges::{RangeSet, RangeSets};
use super::segments::{Joins, Step};

/// The owner and the line (thread or stream) of a node that is no step.
pub(super) const NONE: u32 = u32::MAX;

/// A step, or the moment at which dispatches (of IREE) have ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub begin: u64,
    pub end: u64,
    /// Ticks from the latest end of the nodes that this node waits for to the start of this node.
    /// If it waits for none, the ticks are counted from the start of the first node.
    pub gap: u64,
    pub owner: OpId,
    /// The ranges (stretches of time that the program named) around the step.
    pub ranges: RangeSet,
    pub line: u32,
}

impl Node {
    pub fn length(&self) -> u64 {
        self.end - self.begin
    }
}

/// The nodes. Each node comes after all nodes that it waits for.
#[derive(Debug)]
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    /// Node `n` waits for the nodes `before[from[n]..from[n + 1]]`.
    from: Vec<u32>,
    before: Vec<u32>,
    pub links: Links,
}

struct Builder<'a> {
    calls: &'a Calls,
    steps: &'a [Step],
    nodes: Vec<Node>,
    /// Pairs of a node and a node that it waits for.
    edges: Vec<(u32, u32)>,
    /// The first step of each call.
    first: Vec<u32>,
    /// The last step of each call.
    last: Vec<u32>,
    links: Links,
}

impl Graph {
    /// Builds the graph of these steps. `None` if there are no steps.
    pub fn new(calls: &Calls, steps: &[Step], joins: &Joins) -> Option<Self> {
        let node = |step: &Step| {
            let Step { begin, end, line, owner, ranges, .. } = *step;
            Node { begin, end, gap: 0, owner, ranges, line }
        };
        let mut builder = Builder {
            calls,
            steps,
            nodes: steps.iter().map(node).collect(),
            edges: Vec::new(),
            first: vec![NO; calls.all.len()],
            last: vec![NO; calls.all.len()],
            links: Links::default(),
        };
        for (at, step) in (0u32..).zip(steps) {
            let call = step.call as usize;
            if step.first {
                builder.first[call] = at;
            }
            builder.last[call] = at;
            if at > 0 && steps[at as usize - 1].line == step.line {
                builder.edges.push((at, at - 1));
            }
            if let Some(joined) = joins.get(step.join as usize) {
                let last = joined.iter().map(|of| (at, *of));
                // The last step of the call `of` may not have been reached yet, so the edge
                // contains the index of the call for now.
                builder.edges.extend(last.map(|(at, of)| (at, of | LATER)));
                builder.links.waits += u64::from(calls.waits.contains_key(&step.call));
            }
        }
        let Builder { last, edges, .. } = &mut builder;
        edges.retain_mut(|(_, of)| {
            if *of & LATER != 0 {
                *of = last[(*of & !LATER) as usize];
            }
            *of != NO
        });
        builder.forks();
        builder.launches();
        builder.dispatches();
        builder.finish()
    }

    /// Returns the ticks from the start of the first step to the end of the last one.
    pub fn length(&self) -> u64 {
        let begin = self.nodes.iter().map(|node| node.begin).min().unwrap_or(0);
        self.nodes.iter().map(|node| node.end - begin).max().unwrap_or(0)
    }

    fn before(&self, node: usize) -> &[u32] {
        &self.before[self.from[node] as usize..self.from[node + 1] as usize]
    }

    /// Returns the critical path, from its first node to its last one.
    pub fn path(&self) -> Vec<usize> {
        // Of nodes that end at the same time, the first is chosen.
        let last = |nodes: &mut dyn Iterator<Item = usize>| {
            nodes.reduce(|a, b| if self.nodes[b].end > self.nodes[a].end { b } else { a })
        };
        let mut path = Vec::new();
        let mut next = last(&mut (0..self.nodes.len()));
        while let Some(node) = next {
            path.push(node);
            next = last(&mut self.before(node).iter().map(|before| *before as usize));
        }
        path.reverse();
        path
    }

    /// Returns, for each of these ops, how much earlier everything would end if the op's steps (for
    /// a range: all steps inside of it) took no time.
    pub fn gains(&self, ops: &[OpId], ranges: &RangeSets) -> Vec<u64> {
        let whole = self.length();
        let mut ends = vec![0u64; self.nodes.len()];
        let without = ops.iter().map(|op| {
            let holders = ranges.holders(*op);
            let is_gone = |node: &Node| node.owner == *op || holders.contain(node.ranges);
            let mut length = 0;
            for (at, node) in self.nodes.iter().enumerate() {
                let before = self.before(at).iter().map(|before| ends[*before as usize]);
                let begin = before.max().unwrap_or(0) + node.gap;
                ends[at] = begin + if is_gone(node) { 0 } else { node.length() };
                length = length.max(ends[at]);
            }
            whole.saturating_sub(length)
        });
        without.collect()
    }
}

/// This bit marks an edge that contains the index of a call, not of a step. The index is later
/// replaced by that of the call's last step.
const LATER: u32 = 1 << 31;

impl Builder<'_> {
    /// Returns the step before the first step of a call, on the call's thread.
    fn before(&self, call: u32) -> Option<u32> {
        let first = self.first[call as usize];
        let before = first.checked_sub(1).filter(|_| first != NO)?;
        let line = |step: u32| self.steps[step as usize].line;
        (line(before) == line(first)).then_some(before)
    }

    /// Links each task (the work of a parallel region on one thread) that ran on another thread
    /// than its region. The task waits for the step before the region.
    fn forks(&mut self) {
        for (at, call) in (0u32..).zip(&self.calls.all) {
            if call.role != profile::Role::Task || call.of == NO {
                continue;
            }
            let region = self.calls.regions[call.of as usize];
            let Some(by) = self.calls.all.get(region as usize) else { continue };
            if by.line == call.line || by.begin > call.begin {
                continue;
            }
            self.links.tasks += 1;
            let edge = self.before(region).zip(Some(self.first[at as usize]));
            self.edges.extend(edge.filter(|(_, first)| *first != NO).map(|(fork, at)| (at, fork)));
        }
    }

    /// Links activities (work of a device) to the calls that launched them. An activity waits for
    /// the launching call's last step that had ended before the activity began. If no step of this
    /// call had ended, the activity waits for the step before the call.
    fn launches(&mut self) {
        for (at, call) in (0u32..).zip(&self.calls.all) {
            let (by, first) = (call.launched_by as usize, self.first[at as usize]);
            let (Some(launcher), true) = (self.calls.all.get(by), first != NO) else { continue };
            if self.first[by] == NO || launcher.begin > call.begin {
                continue;
            }
            let steps = &self.steps[self.first[by] as usize..=self.last[by] as usize];
            let over = steps.partition_point(|step| step.end <= call.begin);
            let launch = match over {
                0 => self.before(call.launched_by),
                n => Some(self.first[by] + n as u32 - 1),
            };
            self.edges.extend(launch.map(|launch| (first, launch)));
        }
    }

    /// Links each dispatch to dispatches of its process that had ended before it began.
    fn dispatches(&mut self) {
        let all = &self.calls.dispatches;
        let mut workgroups: Vec<(u32, u32)> = Vec::new();
        for (at, call) in (0u32..).zip(&self.calls.all) {
            let is_known = call.role == profile::Role::Workgroup && call.of != NO;
            if is_known && self.first[at as usize] != NO {
                workgroups.push((call.of, at));
            }
        }
        workgroups.sort_unstable();
        let of = |dispatch: u32| {
            let from = workgroups.partition_point(|(of, _)| *of < dispatch);
            let to = workgroups.partition_point(|(of, _)| *of <= dispatch);
            &workgroups[from..to]
        };
        let sorted = |key: fn(&super::calls::Dispatch) -> u64| {
            let mut order: Vec<u32> = (0..all.len() as u32).collect();
            order.sort_by_key(|at| {
                let dispatch = &all[*at as usize];
                (dispatch.process, key(dispatch))
            });
            order
        };
        let by_end = sorted(|dispatch| dispatch.end);
        let (mut next, mut ended, mut process) = (0, None, NO);
        for at in sorted(|dispatch| dispatch.begin) {
            let dispatch = &all[at as usize];
            if dispatch.process != process {
                (process, ended) = (dispatch.process, None);
                next = by_end.partition_point(|at| all[*at as usize].process < process);
            }
            let has_ended = |at: &u32| {
                let other = &all[*at as usize];
                other.process == process && other.end <= dispatch.begin
            };
            let mut moment: Option<Node> = None;
            let node = self.nodes.len() as u32;
            while let Some(other) = by_end.get(next).filter(|at| has_ended(at)) {
                let end = all[*other as usize].end;
                let (owner, line, ranges) = (NONE, NONE, RangeSet::EMPTY);
                moment = Some(Node { begin: end, end, gap: 0, owner, ranges, line });
                let last = of(*other).iter().map(|(_, call)| (node, self.last[*call as usize]));
                self.edges.extend(last);
                next += 1;
            }
            if let Some(moment) = moment {
                self.nodes.push(moment);
                self.edges.extend(ended.map(|before| (node, before)));
                ended = Some(node);
            }
            let Some(ended) = ended else { continue };
            self.links.dispatches += 1;
            let first = of(at).iter().map(|(_, call)| (self.first[*call as usize], ended));
            self.edges.extend(first);
        }
    }

    /// Sorts the nodes. `None` if there are no nodes.
    fn finish(mut self) -> Option<Graph> {
        let nodes = self.nodes.len();
        // A node that began before another node ended cannot have waited for that node, so such
        // edges are removed.
        self.edges
            .retain(|(node, of)| self.nodes[*of as usize].end <= self.nodes[*node as usize].begin);
        self.edges.sort_unstable();
        let (from, before) = lists(nodes, &self.edges);
        let order = order(&from, &before);
        let mut places = vec![0u32; nodes];
        for (place, at) in (0u32..).zip(&order) {
            places[*at as usize] = place;
        }
        for (node, of) in &mut self.edges {
            (*node, *of) = (places[*node as usize], places[*of as usize]);
        }
        self.edges.retain(|(node, of)| of < node);
        self.edges.sort_unstable();
        let (from, before) = lists(nodes, &self.edges);
        let mut sorted: Vec<Node> = order.iter().map(|at| self.nodes[*at as usize]).collect();
        let start = sorted.iter().map(|node| node.begin).min()?;
        for at in 0..sorted.len() {
            let list = &before[from[at] as usize..from[at + 1] as usize];
            let ready = list.iter().map(|of| sorted[*of as usize].end).max().unwrap_or(start);
            sorted[at].gap = sorted[at].begin.saturating_sub(ready);
        }
        Some(Graph { nodes: sorted, from, before, links: self.links })
    }
}

fn lists(nodes: usize, edges: &[(u32, u32)]) -> (Vec<u32>, Vec<u32>) {
    let mut from = vec![0u32; nodes + 1];
    for (node, _) in edges {
        from[*node as usize + 1] += 1;
    }
    for node in 0..nodes {
        from[node + 1] += from[node];
    }
    (from, edges.iter().map(|(_, of)| *of).collect())
}

/// Returns an order in which each node comes after the nodes that it waits for. Steps without
/// duration can wait for each other in a circle. In this case, one of these steps comes before a
/// step that it waits for.
fn order(from: &[u32], before: &[u32]) -> Vec<u32> {
    let nodes = from.len() - 1;
    let mut order = Vec::with_capacity(nodes);
    let mut seen = vec![false; nodes];
    let mut open: Vec<(u32, u32)> = Vec::new();
    for root in 0..nodes as u32 {
        if std::mem::replace(&mut seen[root as usize], true) {
            continue;
        }
        open.push((root, from[root as usize]));
        while let Some((node, at)) = open.last_mut() {
            if *at == from[*node as usize + 1] {
                order.push(*node);
                open.pop();
                continue;
            }
            let next = before[*at as usize];
            *at += 1;
            if !std::mem::replace(&mut seen[next as usize], true) {
                open.push((next, from[next as usize]));
            }
        }
    }
    order
}
