//! Finds natural loops, as LLVM's LoopInfo defines them. A header is a block that dominates the
//! source of an edge to it. Its loop consists of the header and of the blocks from which such an
//! edge is reached without passing the header. A cycle with several entries is not a loop.

use crate::dominators::{Dominators, Graph, NONE};

/// A natural loop.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// The header.
    pub header: u32,
    /// The loop directly around this one, or [`NONE`].
    pub parent: u32,
    /// The number of loops around this one: 0 for an outermost loop.
    pub depth: u32,
    /// Levels of loops inside: 0 for an innermost loop.
    pub height: u32,
    /// Loops directly inside.
    pub children: u32,
    /// First and last line of its blocks, from 1.
    pub lines: [u32; 2],
    /// The steps at which a walk over the tree of loops enters and leaves this loop.
    span: (u32, u32),
}

/// The loops of a function.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    /// Parents come before children. Loops with the same parent are in the order of their headers.
    pub all: Vec<Loop>,
    /// The innermost loop of each block, or [`NONE`].
    pub innermost: Vec<u32>,
    /// Number of outermost loops.
    pub outermost: u32,
    /// Blocks at which a depth-first search enters cycles that are not loops.
    pub irreducible: Vec<u32>,
}

/// Links each loop to a loop around it, so that a search finds the outermost loop known so far
/// (union-find). A search shortens the paths that it follows.
struct Outermost(Vec<u32>);

impl Outermost {
    fn find(&mut self, item: u32) -> u32 {
        let mut root = item;
        while self.0[root as usize] != root {
            root = self.0[root as usize];
        }
        let mut at = item;
        while at != root {
            at = std::mem::replace(&mut self.0[at as usize], root);
        }
        root
    }
}

impl Loops {
    /// Finds the loops of a graph. `lines` gives the first and last line of a block.
    pub fn of(
        graph: &Graph,
        reversed: &Graph,
        dominators: &Dominators,
        lines: impl Fn(u32) -> [u32; 2],
    ) -> Self {
        let n = graph.len();
        let mut headers: Vec<u32> = Vec::new();
        let mut parents: Vec<u32> = Vec::new();
        let mut innermost = vec![NONE; n];
        let mut sets = Outermost(Vec::new());
        let mut work: Vec<u32> = Vec::new();
        // In postorder, the headers of inner loops come before those of outer loops, as in LLVM.
        for header in &dominators.postorder {
            let back = |p: &u32| dominators.reached(*p) && dominators.dominates(*header, *p);
            work.extend(reversed.of(*header).iter().copied().filter(back));
            if work.is_empty() {
                continue;
            }
            let own = headers.len() as u32;
            headers.push(*header);
            parents.push(NONE);
            sets.0.push(own);
            while let Some(block) = work.pop() {
                if !dominators.reached(block) {
                    continue;
                }
                match innermost[block as usize] {
                    NONE => {
                        innermost[block as usize] = own;
                        if block != *header {
                            work.extend(reversed.of(block));
                        }
                    }
                    inner => {
                        let outer = sets.find(inner);
                        if outer != own {
                            parents[outer as usize] = own;
                            sets.0[outer as usize] = own;
                            work.extend(reversed.of(headers[outer as usize]));
                        }
                    }
                }
            }
        }
        let irreducible = irreducible(graph, dominators);
        Self::ordered(&headers, &parents, innermost, irreducible, lines)
    }

    /// Puts parents before children, and computes the fields that follow from the tree of loops.
    fn ordered(
        headers: &[u32],
        parents: &[u32],
        mut innermost: Vec<u32>,
        irreducible: Vec<u32>,
        lines: impl Fn(u32) -> [u32; 2],
    ) -> Self {
        let n = headers.len();
        let mut by_header: Vec<u32> = (0..n as u32).collect();
        by_header.sort_unstable_by_key(|l| std::cmp::Reverse(headers[*l as usize]));
        let mut first = vec![NONE; n + 1];
        let mut next = vec![NONE; n];
        for l in by_header {
            let above = match parents[l as usize] {
                NONE => n,
                parent => parent as usize,
            };
            next[l as usize] = first[above];
            first[above] = l;
        }
        let mut all: Vec<Loop> = Vec::with_capacity(n);
        let mut renamed = vec![NONE; n];
        let mut clock = 0;
        let mut outermost = 0;
        let mut stack = vec![(n, NONE)];
        while let Some((old, own)) = stack.last().copied() {
            let child = first[old];
            if child == NONE {
                stack.pop();
                if let Some(done) = all.get_mut(own as usize) {
                    clock += 1;
                    done.span.1 = clock;
                }
                continue;
            }
            first[old] = next[child as usize];
            clock += 1;
            let depth = stack.len() as u32 - 1;
            let header = headers[child as usize];
            let index = all.len() as u32;
            renamed[child as usize] = index;
            let (parent, span) = (own, (clock, 0));
            let lines = lines(header);
            all.push(Loop { header, parent, depth, height: 0, children: 0, lines, span });
            match all.get_mut(own as usize) {
                Some(parent) => parent.children += 1,
                None => outermost += 1,
            }
            stack.push((child as usize, index));
        }
        for (block, l) in innermost.iter_mut().enumerate().filter(|(_, l)| **l != NONE) {
            *l = renamed[*l as usize];
            let found = &mut all[*l as usize];
            let [from, to] = lines(block as u32);
            found.lines = [found.lines[0].min(from), found.lines[1].max(to)];
        }
        for i in (0..n).rev() {
            let Loop { parent, height, lines, .. } = all[i];
            if let Some(above) = all.get_mut(parent as usize) {
                above.height = above.height.max(height + 1);
                above.lines = [above.lines[0].min(lines[0]), above.lines[1].max(lines[1])];
            }
        }
        Self { all, innermost, outermost, irreducible }
    }

    pub fn contains(&self, l: u32, block: u32) -> bool {
        let inner = self.innermost[block as usize];
        inner != NONE && self.encloses(l, inner)
    }

    /// Returns whether `outer` is the same loop as `inner`, or a loop around it.
    pub fn encloses(&self, outer: u32, inner: u32) -> bool {
        let (outer, inner) = (self.all[outer as usize].span, self.all[inner as usize].span);
        outer.0 <= inner.0 && inner.1 <= outer.1
    }

    /// Returns how many other loops are directly inside the same loop or function.
    pub fn siblings(&self, l: u32) -> u32 {
        match self.all.get(self.all[l as usize].parent as usize) {
            Some(parent) => parent.children - 1,
            None => self.outermost - 1,
        }
    }
}

/// Returns the targets of those edges that close a cycle in a depth-first search, and whose target
/// does not dominate their source. There is such a target if and only if the graph is irreducible.
fn irreducible(graph: &Graph, dominators: &Dominators) -> Vec<u32> {
    let mut found = Vec::new();
    if graph.is_empty() {
        return found;
    }
    // A node's state is 0 (not seen), 1 (on the stack) or 2 (done).
    let mut state = vec![0_u8; graph.len()];
    let mut stack = vec![(0_u32, 0_usize)];
    state[0] = 1;
    while let Some((node, next)) = stack.last_mut() {
        let Some(target) = graph.of(*node).get(*next).copied() else {
            state[*node as usize] = 2;
            stack.pop();
            continue;
        };
        *next += 1;
        match state[target as usize] {
            0 => {
                state[target as usize] = 1;
                stack.push((target, 0));
            }
            1 if !dominators.dominates(target, *node) => found.push(target),
            _ => {}
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
