//! Finds the op that each parallel region belongs to, and the ranges that it is inside of.
//!
//! ```text
//!  main      ├ step: ├ conv: ├ region 1 ────────────────────┤ ┤ ┤
//!  worker                      ├ task of 1: ├ region 2 ──┤ ┤
//!  worker                                     ├ task of 2 ┤
//! ```
//!
//! Both regions belong to `conv` and are inside of `step`. What is around region 2 on its thread is only a task, and
//! what is around this task is on another thread. So each region is first described by its own thread (`Known`), up to
//! the task around it, and then the regions are followed outwards from task to region.

use profile::{OpId, Role};

use super::calls::{Call, Calls, NO};
use super::ranges::{RangeSet, RangeSets};

/// What the steps of a region and of its tasks belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub op: OpId,
    pub ranges: RangeSet,
}

/// Returns the op that the steps of a call belong to, if the call is no task of a known region. `around` is the owner
/// of the call around it.
pub(super) fn owner(call: &Call, around: Option<OpId>) -> OpId {
    match call.role {
        Role::Region | Role::Task => around.unwrap_or(call.op),
        _ => call.op,
    }
}

/// What the thread of a call says of the op and of the ranges around it.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The op; `None` if it is the one around `task_of`.
    op: Option<OpId>,
    /// The ranges between the call and the task.
    ranges: RangeSet,
    /// The region of the innermost task around the call; [`NO`] outside of such tasks.
    task_of: u32,
}

/// Returns the owner of each region that was recorded as a call.
pub(super) fn owners(calls: &Calls, ranges: &mut RangeSets) -> Vec<Option<Owner>> {
    let known = of_threads(calls, ranges);
    let mut owners: Vec<Option<Owner>> = vec![None; known.len()];
    let mut is_waiting = vec![false; known.len()];
    let mut chain = Vec::new();
    for region in 0..known.len() {
        // Outwards, until the owner is known.
        let mut next = region;
        while let (Some(Some(of)), Some(None)) = (known.get(next), owners.get(next)) {
            // Damaged profiles can have two regions, each in a task of the other one.
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

/// Returns what is known of each region from its own thread.
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
