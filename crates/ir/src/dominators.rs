//! Computes dominators by Lengauer and Tarjan's algorithm with path compression (TOPLAS 1979), in
//! O(m log n). The iterative algorithm of Cooper, Harvey and Kennedy is shorter, but it is
//! quadratic in deep nests of loops, which a text may have.

/// Stands for a missing node, block or loop.
pub const NONE: u32 = u32::MAX;

/// A directed graph: the successors of node `i` are `targets[starts[i]..starts[i + 1]]`.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// For each node, the index of its first successor; at the end, the length of `targets`.
    pub starts: Vec<u32>,
    /// The successors of all nodes.
    pub targets: Vec<u32>,
}

impl Graph {
    /// Returns the successors of a node.
    pub fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.targets[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Returns whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the graph with all edges reversed.
    pub fn reversed(&self) -> Self {
        let mut starts = vec![0_u32; self.starts.len()];
        for target in &self.targets {
            starts[*target as usize + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; self.targets.len()];
        for node in 0..self.len() as u32 {
            for target in self.of(node) {
                let place = &mut next[*target as usize];
                targets[*place as usize] = node;
                *place += 1;
            }
        }
        Self { starts, targets }
    }
}

/// The dominator tree of the nodes that node 0 reaches.
#[derive(Clone, Debug, Default)]
pub struct Dominators {
    /// The immediate dominator of each node; [`NONE`] for node 0 and for unreached nodes.
    pub idom: Vec<u32>,
    /// Nodes in the order of a depth-first search, parents before children.
    pub order: Vec<u32>,
    /// For each node, the steps at which a walk over the dominator tree enters and leaves it; 0 for
    /// unreached nodes.
    spans: Vec<(u32, u32)>,
    /// Nodes of the dominator tree, children before parents.
    pub postorder: Vec<u32>,
}

impl Dominators {
    /// Computes the dominators of a graph from its node 0.
    pub fn of(graph: &Graph, reversed: &Graph) -> Self {
        let n = graph.len();
        let (order, parent) = depth_first(graph);
        let mut number = vec![NONE; n];
        for (i, node) in order.iter().enumerate() {
            number[*node as usize] = i as u32;
        }
        // The following arrays are indexed by a node's number in the depth-first search.
        let mut semi: Vec<u32> = (0..order.len() as u32).collect();
        let mut idom = vec![0_u32; order.len()];
        let mut forest = Forest::new(order.len());
        let mut bucket_head = vec![NONE; order.len()];
        let mut bucket_next = vec![NONE; order.len()];
        for w in (1..order.len() as u32).rev() {
            let wi = w as usize;
            for predecessor in reversed.of(order[wi]) {
                let v = number[*predecessor as usize];
                if v != NONE {
                    let u = forest.eval(v, &semi);
                    semi[wi] = semi[wi].min(semi[u as usize]);
                }
            }
            let s = semi[wi] as usize;
            bucket_next[wi] = bucket_head[s];
            bucket_head[s] = w;
            let p = parent[wi];
            forest.ancestor[wi] = p;
            let mut v = std::mem::replace(&mut bucket_head[p as usize], NONE);
            while v != NONE {
                let u = forest.eval(v, &semi);
                idom[v as usize] = if semi[u as usize] < semi[v as usize] { u } else { p };
                v = bucket_next[v as usize];
            }
        }
        for w in 1..order.len() {
            if idom[w] != semi[w] {
                idom[w] = idom[idom[w] as usize];
            }
        }
        let mut by_node = vec![NONE; n];
        for w in 1..order.len() {
            by_node[order[w] as usize] = order[idom[w] as usize];
        }
        let (spans, postorder) = walk(&order, &by_node, n);
        Self { idom: by_node, order, spans, postorder }
    }

    /// Returns whether node 0 reaches a node.
    pub fn reached(&self, node: u32) -> bool {
        self.spans[node as usize].1 != 0
    }

    /// Returns whether every path from node 0 to `node` passes through `above`. Node 0 must reach
    /// both nodes.
    pub fn dominates(&self, above: u32, node: u32) -> bool {
        let (above, node) = (self.spans[above as usize], self.spans[node as usize]);
        above.0 <= node.0 && node.1 <= above.1
    }
}

/// Returns the nodes in the order of a depth-first search, and each node's parent as a number in
/// this order.
fn depth_first(graph: &Graph) -> (Vec<u32>, Vec<u32>) {
    let mut order = Vec::new();
    let mut parent = Vec::new();
    if graph.is_empty() {
        return (order, parent);
    }
    let mut seen = vec![false; graph.len()];
    // Each element is a node, its number, and the index of its next successor.
    let mut stack = vec![(0_u32, 0_u32, 0_usize)];
    seen[0] = true;
    order.push(0);
    parent.push(0);
    while let Some((node, number, next)) = stack.last_mut() {
        let Some(target) = graph.of(*node).get(*next).copied() else {
            stack.pop();
            continue;
        };
        *next += 1;
        if !std::mem::replace(&mut seen[target as usize], true) {
            let own = order.len() as u32;
            order.push(target);
            parent.push(*number);
            stack.push((target, own, 0));
        }
    }
    (order, parent)
}

/// The forest of the algorithm: it links the nodes that have been processed, with compressed paths
/// to their roots.
struct Forest {
    ancestor: Vec<u32>,
    label: Vec<u32>,
    path: Vec<u32>,
}

impl Forest {
    fn new(n: usize) -> Self {
        Self { ancestor: vec![NONE; n], label: (0..n as u32).collect(), path: Vec::new() }
    }

    /// Returns the node with the smallest semidominator among those on the path from `v` to its
    /// root, without the root. If `v` is a root, returns `v`.
    fn eval(&mut self, v: u32, semi: &[u32]) -> u32 {
        let mut u = v;
        while self.ancestor[u as usize] != NONE
            && self.ancestor[self.ancestor[u as usize] as usize] != NONE
        {
            self.path.push(u);
            u = self.ancestor[u as usize];
        }
        while let Some(u) = self.path.pop() {
            let above = self.ancestor[u as usize] as usize;
            let (own, upper) = (self.label[u as usize], self.label[above]);
            if semi[upper as usize] < semi[own as usize] {
                self.label[u as usize] = upper;
            }
            self.ancestor[u as usize] = self.ancestor[above];
        }
        if self.ancestor[v as usize] == NONE { v } else { self.label[v as usize] }
    }
}

/// Walks over the dominator tree. Returns the steps at which it enters and leaves each node, and
/// the nodes in the order of leaving.
fn walk(order: &[u32], idom: &[u32], n: usize) -> (Vec<(u32, u32)>, Vec<u32>) {
    let mut spans = vec![(0_u32, 0_u32); n];
    // Linked lists of children: the first child, and the next child of the same parent.
    let mut first = vec![NONE; n];
    let mut next = vec![NONE; n];
    for node in order.iter().skip(1).rev() {
        let above = idom[*node as usize] as usize;
        next[*node as usize] = first[above];
        first[above] = *node;
    }
    let mut postorder = Vec::with_capacity(order.len());
    let mut clock = 0;
    let mut stack: Vec<u32> = order.first().copied().into_iter().collect();
    while let Some(node) = stack.last().copied() {
        let i = node as usize;
        if spans[i].0 == 0 {
            clock += 1;
            spans[i].0 = clock;
        }
        match first[i] {
            NONE => {
                clock += 1;
                spans[i].1 = clock;
                postorder.push(node);
                stack.pop();
            }
            child => {
                first[i] = next[child as usize];
                stack.push(child);
            }
        }
    }
    (spans, postorder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(u32, u32)], n: usize) -> Graph {
        let mut starts = vec![0];
        let mut targets = Vec::new();
        for node in 0..n as u32 {
            targets.extend(edges.iter().filter(|e| e.0 == node).map(|e| e.1));
            starts.push(targets.len() as u32);
        }
        Graph { starts, targets }
    }

    /// Returns whether `above` dominates `node` by the definition: without `above`, node 0 does not
    /// reach `node`.
    fn by_definition(graph: &Graph, above: u32, node: u32) -> bool {
        let mut seen = vec![false; graph.len()];
        let mut stack = if above == 0 { vec![] } else { vec![0] };
        while let Some(at) = stack.pop() {
            if !std::mem::replace(&mut seen[at as usize], true) {
                stack.extend(graph.of(at).iter().filter(|t| **t != above));
            }
        }
        above == node || !seen[node as usize]
    }

    #[test]
    fn random_graphs_have_the_dominators_of_the_definition() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..300 {
            let n = 1 + random(12) as usize;
            let edges: Vec<(u32, u32)> = (0..random(3 * n as u64))
                .map(|_| (random(n as u64) as u32, random(n as u64) as u32))
                .collect();
            let graph = graph(&edges, n);
            let found = Dominators::of(&graph, &graph.reversed());
            for node in 0..n as u32 {
                let reached = node == 0 || !by_definition(&graph, n as u32, node);
                assert_eq!(found.reached(node), reached, "{edges:?} {node}");
                for above in (0..n as u32).filter(|_| reached) {
                    if found.reached(above) {
                        let expected = by_definition(&graph, above, node);
                        assert_eq!(
                            found.dominates(above, node),
                            expected,
                            "{edges:?} {above} {node}"
                        );
                    }
                }
            }
        }
    }
}
