//! Which functions and loops are instrumented.

use abi::loops::Mode;

use crate::dominators::NONE;
use crate::function::{Body, Terminator};
use crate::loops::Loops;
use crate::schedule::Schedule;

/// Which functions get an id of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Functions {
    /// Functions with a loop that is instrumented.
    #[default]
    WithLoops,
    /// All that have a body.
    All,
    /// None.
    None,
}

/// What is instrumented, and how.
pub struct Options<'a> {
    /// How hits are recorded.
    pub mode: Mode,
    /// Loops with more loops around them are left out. `None`: 2, or no limit with `siblings`.
    pub max_depth: Option<u32>,
    /// Loops with fewer levels of loops inside are left out. `None`: 0 for an outermost loop, and
    /// 1 for others.
    pub min_height: Option<u32>,
    /// Only loops that have siblings.
    pub siblings: bool,
    /// Which functions get an id.
    pub functions: Functions,
    /// Only functions with such a name, as the text has it without `@`.
    pub filter: Option<&'a dyn Fn(&str) -> bool>,
    /// The loops of the schedule that the text was compiled from. It then says which loops are
    /// instrumented, instead of their depth and height.
    pub schedule: Option<&'a Schedule>,
    /// The target triple, for a text without one.
    pub target: Option<&'a str>,
    /// The file, as the side table is to name it.
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
    /// Whether a loop is one of those that are asked for.
    fn takes(&self, loops: &Loops, l: u32) -> bool {
        let found = &loops.all[l as usize];
        let deepest = self.max_depth.unwrap_or(if self.siblings { u32::MAX } else { 2 });
        let lowest = self.min_height.unwrap_or(u32::from(found.depth > 0));
        let alone = self.siblings && loops.siblings(l) == 0;
        found.depth <= deepest && found.height >= lowest && !alone
    }
}

/// What is instrumented of a function.
#[derive(Debug, Default)]
pub struct Choice {
    /// Whether the function has an id.
    pub function: bool,
    /// Loops that have ids, in the order of [`Loops::all`].
    pub loops: Vec<u32>,
    /// Loops that nobody asked for.
    pub left: usize,
    /// For each loop, itself if it is chosen, else the next one around it that is, or [`NONE`].
    pub nearest: Vec<u32>,
    /// Loops that cannot be instrumented, and why.
    pub unfit: Vec<(u32, &'static str)>,
}

impl Choice {
    /// Chooses among the loops of a function.
    pub fn make(options: &Options, body: &Body, loops: &Loops) -> Self {
        Self::among(options.functions, body, loops, |l| options.takes(loops, l))
    }

    /// Chooses the loops that `takes` takes.
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

    /// The chosen loops that an edge of the function leaves, innermost first.
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

    /// The chosen loop that an edge of the function enters, or [`NONE`].
    pub fn loop_entered(&self, loops: &Loops, from: u32, to: u32) -> u32 {
        let l = loops.innermost[to as usize];
        let chosen = l != NONE && self.nearest[l as usize] == l;
        let enters = chosen && loops.all[l as usize].header == to && !loops.contains(l, from);
        if enters { l } else { NONE }
    }

    /// The chosen loop that is nearest around a chosen one, or [`NONE`].
    pub fn parent(&self, loops: &Loops, l: u32) -> u32 {
        loops_parent(&self.nearest, loops.all[l as usize].parent)
    }
}

fn loops_parent(nearest: &[u32], parent: u32) -> u32 {
    nearest.get(parent as usize).copied().unwrap_or(NONE)
}

/// Indirect jumps times depth of loops, above which nobody looks which ones they leave.
const MOST_WORK: u64 = 10_000_000;

/// Why each loop cannot be instrumented, if it cannot.
///
/// A hook needs a block of its own on its edge. An edge to a landing pad or from an `indirectbr`
/// cannot have one. A loop that is left by an exception is measured all the same; this hit has
/// then begun and not ended.
fn unfit(body: &Body, loops: &Loops) -> Vec<Option<&'static str>> {
    let mut why = vec![None; loops.all.len()];
    let indirect = body.blocks.iter().filter(|block| block.end == Terminator::Indirect);
    let indirect: u32 = indirect.map(|block| block.edges.1 - block.edges.0).sum();
    let deepest = loops.all.iter().map(|found| found.depth).max().unwrap_or(0);
    if u64::from(indirect) * u64::from(deepest) > MOST_WORK {
        return vec![Some("too many indirect jumps are around it"); loops.all.len()];
    }
    // For each loop, the smallest depth of the loops that an indirect jump leaves from inside.
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
                // The loops from `inner` outwards, until one contains the target.
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

/// How many of `inner` and the loops around it also contain `target`. A jump from `inner` to `target`
/// leaves the others, which have this depth and more.
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
