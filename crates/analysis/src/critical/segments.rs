//! Cuts the time of each thread into steps, in which one call is the innermost one.
//!
//! ```text
//!  op        ├ 1 ┤         ├ 4 ┤
//!  region        ├ 2 ┤         (the wait for other threads' tasks is no step)
//!  own task          ├ 3 ┤
//! ```
//!
//! The innermost call is the running call that began last, as in [`crate::innermost`]. Steps of
//! parallel regions and of their tasks belong to the op around the region, and to the ranges
//! (stretches of time that the program named) around it. A region with tasks on other threads, and
//! a call that waited for a device, end with a *join*. This is a step that begins when the last of
//! these tasks, or the device's activity, ends.

use profile::{OpId, Role};

use super::calls::{Call, Calls, NO};
use super::owners::{Owner, owner, owners};
use super::ranges::{RangeSet, RangeSets};

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub begin: u64,
    pub end: u64,
    pub line: u32,
    pub owner: OpId,
    /// The ranges around the step.
    pub ranges: RangeSet,
    /// The innermost call during the step.
    pub call: u32,
    /// Whether the step is the first one of its call.
    pub first: bool,
    /// The calls that must end before the step begins, as an index in [`Joins`], or [`NO`].
    pub join: u32,
}

/// Lists of calls for which a step waits, in addition to the step before it.
pub(super) type Joins = Vec<Vec<u32>>;

struct Open {
    call: u32,
    owner: OpId,
    ranges: RangeSet,
    stepped: bool,
}

struct Cutter<'a> {
    calls: &'a Calls,
    /// For each region, the tasks that ran on threads other than the region's.
    tasks: Vec<Vec<u32>>,
    /// The owner of each region; `None` if the region was not recorded as a call.
    owners: Vec<Option<Owner>>,
    ranges: RangeSets,
    open: Vec<Open>,
    now: u64,
    steps: Vec<Step>,
    joins: Joins,
}

/// Returns the steps of all threads. The steps of a thread are sorted by time.
pub(super) fn steps(calls: &Calls) -> (Vec<Step>, Joins, RangeSets) {
    let mut tasks = vec![Vec::new(); calls.regions.len()];
    for (at, call) in (0u32..).zip(&calls.all) {
        let region = (call.role == Role::Task && call.of != NO).then_some(call.of as usize);
        let by = region.and_then(|region| calls.all.get(calls.regions[region] as usize));
        if let (Some(region), Some(by)) = (region, by)
            && by.line != call.line
        {
            tasks[region].push(at);
        }
    }
    let mut ranges = RangeSets::default();
    let mut cutter = Cutter {
        calls,
        tasks,
        owners: owners(calls, &mut ranges),
        ranges,
        open: Vec::new(),
        now: 0,
        steps: Vec::with_capacity(calls.all.len()),
        joins: Vec::new(),
    };
    for (at, call) in (0u32..).zip(&calls.all) {
        let other = cutter.open.last().map(|open| calls.all[open.call as usize].line);
        if other.is_some_and(|line| line != call.line) {
            cutter.advance(u64::MAX);
        }
        if cutter.open.is_empty() {
            cutter.now = 0;
        }
        cutter.begin(at, call);
    }
    cutter.advance(u64::MAX);
    (cutter.steps, cutter.joins, cutter.ranges)
}

impl Cutter<'_> {
    fn begin(&mut self, at: u32, call: &Call) {
        self.advance(call.begin);
        let ends = |open: &Open| self.calls.all[open.call as usize].end;
        while self.open.last().is_some_and(|top| ends(top) < call.end) {
            self.open.pop();
        }
        let around = self.open.last().map(|open| open.owner);
        let region = self.owners.get(call.of as usize).copied().flatten();
        let region = region.filter(|_| call.role == Role::Task);
        let owner = region.map_or_else(|| owner(call, around), |region| region.op);
        let outer = self.open.last().map_or(RangeSet::EMPTY, |open| open.ranges);
        let ranges = match region {
            Some(region) => region.ranges,
            None => self.ranges.of_call(call, outer),
        };
        self.open.push(Open { call: at, owner, ranges, stepped: false });
    }

    /// Makes steps for the time until `to`, from the calls that have begun, and ends the calls that
    /// end by then.
    fn advance(&mut self, to: u64) {
        while let Some(top) = self.open.last_mut() {
            let call = &self.calls.all[top.call as usize];
            let until = call.end.min(to);
            let of = (top.call, top.owner, top.ranges);
            let first = !top.stepped;
            let is_over = call.end <= to;
            let from = self.now.max(call.begin);
            top.stepped = true;
            if is_over {
                self.open.pop();
            }
            self.step(of, (from, until.max(from)), first, is_over);
            self.now = self.now.max(until);
            if !is_over {
                break;
            }
        }
        self.now = self.now.max(if to == u64::MAX { self.now } else { to });
    }

    fn step(
        &mut self,
        (at, owner, ranges): (u32, OpId, RangeSet),
        (begin, end): (u64, u64),
        first: bool,
        is_over: bool,
    ) {
        let call = &self.calls.all[at as usize];
        let step = Step { begin, end, line: call.line, owner, ranges, call: at, first, join: NO };
        let joined = if is_over { self.joined(at, call) } else { Vec::new() };
        let last = joined.iter().map(|of| self.calls.all[*of as usize].end).max();
        let Some(last) = last else {
            if end > begin || first {
                self.steps.push(step);
            }
            return;
        };
        // If the join would be the call's first step but begins late, a step without duration comes
        // before it. What this call launches waits for that step, and not for the join.
        if first && last > begin {
            self.steps.push(Step { end: begin, ..step });
        }
        let join = self.joins.len() as u32;
        self.joins.push(joined);
        let first = first && last <= begin;
        self.steps.push(Step { begin: last.max(begin), first, join, ..step });
    }

    /// Returns the calls for which this call waited: tasks of a region on other threads, or an
    /// activity of a device. Leaves out calls that ended after this call.
    fn joined(&self, at: u32, call: &Call) -> Vec<u32> {
        let over = |of: &u32| self.calls.all[*of as usize].end <= call.end;
        let of_region = (call.role == Role::Region && call.of != NO)
            .then(|| self.tasks[call.of as usize].iter().copied());
        let waited = self.calls.waits.get(&at).copied();
        of_region.into_iter().flatten().chain(waited).filter(over).collect()
    }
}
