//! Finds the op that each parallel region belongs to, and the ranges (stretches of time that the
//! program named) around the region.
//!
//! ```text
//!  main      ├ step: ├ conv: ├ region 1 ────────────────────┤ ┤ ┤
//!  worker                      ├ task of 1: ├ region 2 ──┤ ┤
//!  worker                                     ├ task of 2 ┤
//! ```
//!
//! Both regions belong to `conv` and are inside of `step`. The calls `conv` and `step` around
//! region 2 are on another thread than this region. So [`of_threads`] first finds what is around
//! each region on its own thread (`Known`), up to the innermost task. [`owners`] then continues
//! from this task to its region, and so on outwards.

use profile::{OpId, Role};

use super::calls::{Call, Calls, NO};
use super::ranges::{RangeSet, RangeSets};

/// The op and the ranges that the steps of a region and of its tasks belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub op: OpId,
    pub ranges: RangeSet,
}

/// Returns the op to which the steps of a call belong, if the call is not a task of a known region.
/// `around` is the op of the call around it.
pub(super) fn owner(call: &Call, around: Option<OpId>) -> OpId {
    match call.role {
        Role::Region | Role::Task => around.unwrap_or(call.op),
        _ => call.op,
    }
}

/// The op and the ranges around a region, as far as they are on its own thread.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The op around the region. `None` if there is no op between the region and the task around
    /// it: the op is then that of the region `task_of`.
    op: Option<OpId>,
    /// The ranges around the region on its own thread, up to the innermost task around it.
    ranges: RangeSet,
    /// The region of the innermost task around this region. [`NO`] if there is no such task.
    task_of: u32,
}

/// Returns the owner of each region. `None` for regions that were not recorded as calls.
pub(super) fn owners(calls: &Calls, ranges: &mut RangeSets) -> Vec<Option<Owner>> {
    let known = of_threads(calls, ranges);
    let mut owners: Vec<Option<Owner>> = vec![None; known.len()];
    let mut is_waiting = vec![false; known.len()];
    let mut chain = Vec::new();
    for region in 0..known.len() {
        let mut next = region;
        while let (Some(Some(of)), Some(None)) = (known.get(next), owners.get(next)) {
            // In damaged profiles, each of two regions can be inside of a task of the other.
            if std::mem::replace(&mut is_waiting[next], true) {
                break;
            }
            chain.push((next, *of));
            next = of.task_of as usize;
        }
        while let Some((region, of)) = chain.pop() {
            let outer = owners.get(of.task_of as usize).copied().flatten();
            let own = || calls.all.get(calls.regions[region] as usize).map(|call| call.op);
            let op = of.op.or(outer.map(|outer| outer.op)).or_else(own);
            let around = outer.map_or(RangeSet::EMPTY, |outer| outer.ranges);
            let ranges = ranges.joined(around, of.ranges);
            owners[region] = op.map(|op| Owner { op, ranges });
        }
    }
    owners
}

/// Returns, for each region, what the calls around it on its own thread show about its owner.
fn of_threads(calls: &Calls, ranges: &mut RangeSets) -> Vec<Option<Known>> {
    let mut regions = vec![None; calls.regions.len()];
    let mut open: Vec<(u32, u64, Known)> = Vec::new();
    for call in &calls.all {
        let is_over = |line: u32, end: u64| line != call.line || end <= call.begin;
        while open.last().is_some_and(|(line, end, _)| is_over(*line, *end)) {
            open.pop();
        }
        let around = open.last().map(|(.., known)| *known);
        let is_of_known = calls.regions.get(call.of as usize).is_some_and(|call| *call != NO);
        let known = if call.role == Role::Task && is_of_known {
            Known { op: None, ranges: RangeSet::EMPTY, task_of: call.of }
        } else {
            let op = match around {
                Some(Known { op: None, .. }) if matches!(call.role, Role::Region | Role::Task) => {
                    None
                }
                around => Some(owner(call, around.and_then(|around| around.op))),
            };
            let outer = around.map_or(RangeSet::EMPTY, |around| around.ranges);
            let task_of = around.map_or(NO, |around| around.task_of);
            Known { op, ranges: ranges.of_call(call, outer), task_of }
        };
        if call.role == Role::Region && call.of != NO {
            regions[call.of as usize] = Some(known);
        }
        open.push((call.line, call.end, known));
    }
    regions
}
