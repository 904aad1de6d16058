//! Chooses the functions and loops that are instrumented.

use abi::loops::Mode;

use crate::dominators::NONE;
use crate::function::{Body, Terminator};
use crate::loops::Loops;
use crate::schedule::Schedule;

/// The functions whose calls are recorded in the same way as the hits of loops. Each of them gets
/// an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Functions {
    /// Functions with an instrumented loop.
    #[default]
    WithLoops,
    /// Functions with a body.
    All,
    /// No functions.
    None,
}

/// Options that decide what is instrumented, and how.
pub struct Options<'a> {
    /// How hits are recorded.
    pub mode: Mode,
    /// The largest number of loops around an instrumented loop. `None` means 2, or no limit with
    /// `siblings`.
    pub max_depth: Option<u32>,
    /// The smallest number of levels of loops inside an instrumented loop. `None` means 0 for an
    /// outermost loop, and 1 for others.
    pub min_height: Option<u32>,
    /// Whether a loop must have siblings (other loops directly inside the same loop or function).
    pub siblings: bool,
    /// The functions whose calls are recorded.
    pub functions: Functions,
    /// Returns whether a function may be instrumented, by its name in the text, without `@`. `None`
    /// accepts all functions.
    pub filter: Option<&'a dyn Fn(&str) -> bool>,
    /// The schedule that the text was compiled from. If it is set, it chooses the loops, and
    /// `max_depth`, `min_height` and `siblings` do not matter.
    pub schedule: Option<&'a Schedule>,
    /// The target triple, for a text without one.
    pub target: Option<&'a str>,
    /// The name of the file with the text, as the side table shows it.
    pub source: &'a str,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            mode: Mode::Sampled,
            max_depth: None,
            min_height: None,
            siblings: false,
            functions: Functions::WithLoops,
            filter: None,
            schedule: None,
            target: None,
            source: "",
        }
    }
}

impl Options<'_> {
    fn takes(&self, loops: &Loops, l: u32) -> bool {
        let found = &loops.all[l as usize];
        let deepest = self.max_depth.unwrap_or(if self.siblings { u32::MAX } else { 2 });
        let lowest = self.min_height.unwrap_or(u32::from(found.depth > 0));
        let alone = self.siblings && loops.siblings(l) == 0;
        found.depth <= deepest && found.height >= lowest && !alone
    }
}

/// The chosen loops of one function, and whether its calls are recorded.
#[derive(Debug, Default)]
pub struct Choice {
    /// Whether the calls of the function are recorded, so that it needs an id.
    pub function: bool,
    /// The chosen loops, in the order of [`Loops::all`].
    pub loops: Vec<u32>,
    /// The number of loops that were not selected.
    pub left: usize,
    /// For each loop: the loop itself if it is chosen, or else the nearest chosen loop around it,
    /// or [`NONE`].
    pub nearest: Vec<u32>,
    /// The selected loops that cannot be instrumented, with the reasons.
    pub unfit: Vec<(u32, &'static str)>,
}

impl Choice {
    /// Chooses the loops that `options` select and that can be instrumented.
    pub fn make(options: &Options, body: &Body, loops: &Loops) -> Self {
        Self::among(options.functions, body, loops, |l| options.takes(loops, l))
    }

    /// Chooses the loops that `takes` accepts and that can be instrumented.
    pub fn among(
        functions: Functions,
        body: &Body,
        loops: &Loops,
        takes: impl Fn(u32) -> bool,
    ) -> Self {
        let mut choice = Self { nearest: vec![NONE; loops.all.len()], ..Self::default() };
        let reasons = unfit(body, loops);
        for (i, found) in loops.all.iter().enumerate() {
            let l = i as u32;
            let mut own = loops_parent(&choice.nearest, found.parent);
            if !takes(l) {
                choice.left += 1;
            } else if let Some(why) = reasons[i] {
                choice.unfit.push((l, why));
            } else {
                choice.loops.push(l);
                own = l;
            }
            choice.nearest[i] = own;
        }
        choice.function = match functions {
            Functions::All => true,
            Functions::None => false,
            Functions::WithLoops => !choice.loops.is_empty(),
        };
        choice
    }

    /// Returns the chosen loops that an edge leaves, innermost first.
    pub fn loops_left(&self, loops: &Loops, from: u32, to: u32) -> impl Iterator<Item = u32> {
        let inner = loops.innermost[from as usize];
        let mut at = self.nearest.get(inner as usize).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let own = at;
            if own == NONE || loops.contains(own, to) {
                return None;
            }
            at = self.parent(loops, own);
            Some(own)
        })
    }

    /// Returns the chosen loop that an edge enters, or [`NONE`].
    pub fn loop_entered(&self, loops: &Loops, from: u32, to: u32) -> u32 {
        let l = loops.innermost[to as usize];
        let chosen = l != NONE && self.nearest[l as usize] == l;
        let enters = chosen && loops.all[l as usize].header == to && !loops.contains(l, from);
        if enters { l } else { NONE }
    }

    /// Returns the nearest chosen loop around a chosen loop, or [`NONE`].
    pub fn parent(&self, loops: &Loops, l: u32) -> u32 {
        loops_parent(&self.nearest, loops.all[l as usize].parent)
    }
}

fn loops_parent(nearest: &[u32], parent: u32) -> u32 {
    nearest.get(parent as usize).copied().unwrap_or(NONE)
}

/// The limit for the number of targets of a function's indirect jumps times the depth of its
/// deepest loop. Above the limit, none of the function's loops is instrumented, because finding the
/// loops that these jumps leave would take too long.
const MOST_WORK: u64 = 10_000_000;

/// Returns for each loop why it cannot be instrumented, or `None`.
///
/// A hook is code at the beginning or end of a hit (an execution of the loop from its entry to its
/// exit). It needs a new block on an edge of the control flow. An edge to a landing pad or from an
/// `indirectbr` cannot have a new block. A loop that an exception leaves can be instrumented
/// nevertheless: its hit begins, and no hook records the end.
fn unfit(body: &Body, loops: &Loops) -> Vec<Option<&'static str>> {
    let mut why = vec![None; loops.all.len()];
    let indirect = body.blocks.iter().filter(|block| block.end == Terminator::Indirect);
    let indirect: u32 = indirect.map(|block| block.edges.1 - block.edges.0).sum();
    let deepest = loops.all.iter().map(|found| found.depth).max().unwrap_or(0);
    if u64::from(indirect) * u64::from(deepest) > MOST_WORK {
        return vec![Some("too many indirect jumps are around it"); loops.all.len()];
    }
    // For each loop: the smallest depth of the loops that an indirect jump inside of it leaves.
    let mut left = vec![u32::MAX; loops.all.len()];
    for (from, block) in body.blocks.iter().enumerate() {
        let inner = loops.innermost[from];
        for edge in body.leaving(from as u32) {
            let target = loops.innermost[edge.to as usize];
            let header = |l: u32| loops.all[l as usize].header == edge.to;
            let enters = target != NONE && header(target) && !loops.contains(target, from as u32);
            if enters && body.blocks[edge.to as usize].pad {
                why[target as usize] = Some("an exception enters it");
            }
            if block.end != Terminator::Indirect {
                continue;
            }
            if enters {
                why[target as usize] = Some("an indirect jump enters it");
            }
            if inner != NONE && !(target != NONE && loops.encloses(inner, target)) {
                // The jump leaves the loops around its block whose depth is `kept` or larger.
                let kept = common_depth(loops, inner, target);
                let least = &mut left[inner as usize];
                *least = (*least).min(kept);
            }
        }
    }
    for i in (0..loops.all.len()).rev() {
        let found = &loops.all[i];
        if left[i] <= found.depth {
            why[i].get_or_insert("an indirect jump leaves it");
            let own = left[i];
            if let Some(above) = left.get_mut(found.parent as usize) {
                *above = (*above).min(own);
            }
        }
    }
    why
}

/// Returns how many of `inner` and the loops around it also contain `target`. A jump from `inner`
/// to `target` leaves the others, whose depth is this number or larger.
fn common_depth(loops: &Loops, inner: u32, target: u32) -> u32 {
    if target == NONE {
        return 0;
    }
    let mut at = target;
    while at != NONE && !loops.encloses(at, inner) {
        at = loops.all[at as usize].parent;
    }
    loops.all.get(at as usize).map_or(0, |common| common.depth + 1)
}
