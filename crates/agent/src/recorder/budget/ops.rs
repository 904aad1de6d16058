//! In a run with a budget (a limit for the cost of recording), begins and ends the ops of hosts
//! that announce their ops (virtual machines, PyTorch). Also begins and ends tasks (the work of a
//! parallel region on one thread) that are only counted.
//!
//! These hosts call the agent before and after each op that they announce, whether the op is
//! recorded or not. So the recorder has a list of the ops in progress that are only counted (the
//! *stack of counted ops*). With this list, the recorder recognises the end of such an op, and does
//! not attribute the op's parallel regions to an op around it.

use std::ffi::c_void;

use super::sampling::{CountedOp, Draws, How};
use crate::recorder::bracket::{Ending, NewCall, WRAPPERS, stack_address};
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{AFTER, BEFORE, Thread};

impl Thread {
    /// Begins an op. Returns whether it is recorded.
    #[inline(never)]
    pub(crate) fn begin_op_in_budget(&mut self, op: &NewCall) -> bool {
        let mut is_wanted = true;
        if !self.rehearsing {
            self.draws.look_at_step();
            let is_due = self.count_call(op.export);
            // If `busy` is set, this call is made by a signal handler that has interrupted the
            // recorder. Such calls are only counted.
            if self.busy.is_set() {
                return false;
            }
            self.forget_left_ops(op);
            is_wanted = op.how.wants(is_due);
        }
        if is_wanted && op.ending == Ending::Held {
            // For hosts that announce the end of an op even after an exception, the recorder does
            // not measure its own work before and after recorded ops. The measurement of the work
            // before this op may already have begun, so it is ended here.
            self.counted_half_ends(BEFORE);
        }
        if is_wanted && self.open_drawn(op) {
            return true;
        }
        if self.rehearsing {
            return false;
        }
        while_busy!(self, {
            let counted = CountedOp { frame: op.frame, subject: op.subject, depth: self.depth };
            self.draws.push_counted(counted);
            match op.how {
                How::Watched(_) => self.draws.account.add_told_in_watched(),
                _ => self.draws.account.add_told(),
            }
            self.bill_counted_half(BEFORE);
        });
        false
    }

    /// Forgets ops that an exception left before `op` began. Otherwise, the end of a later op with
    /// the same frame could be mistaken for the end of one that was left.
    #[inline(always)]
    fn forget_left_ops(&mut self, op: &NewCall) {
        let is_held = op.ending == Ending::Held;
        let limit = if is_held { stack_address() } else { op.frame };
        if self.open_calls().last().is_some_and(|top| top.frame <= limit) {
            self.forget_left_calls(limit);
        }
        if self.draws.counted_ops != 0 {
            self.draws.forget_counted(|counted| counted.frame <= limit);
            if is_held {
                // If the stack of counted ops has an op with the same frame, that op has ended
                // without an announcement.
                self.draws.take_counted(op.frame);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_left_calls(&mut self, limit: usize) {
        while_busy!(self, {
            self.forget_abandoned(|open| open.frame <= limit);
            self.note_open_calls();
        });
    }

    /// If the op that began at `frame` is only counted, ends it and returns true.
    #[inline(always)]
    pub(crate) fn end_counted_op(&mut self, frame: usize) -> bool {
        self.draws.counted_ops != 0 && self.pop_counted_op(frame)
    }

    #[inline(never)]
    fn pop_counted_op(&mut self, frame: usize) -> bool {
        while_busy!(self, {
            let found = self.draws.take_counted(frame);
            if found {
                self.bill_counted_half(AFTER);
            }
            found
        })
    }

    /// Begins a task that is only counted. Until the task ends, parallel regions inside of it
    /// belong to the op `subject`, and are only counted as well. The task must be ended with
    /// [`Thread::end_counted_task`] and the same frame.
    #[inline(never)]
    pub(crate) fn begin_counted_task(&mut self, frame: usize, subject: *const c_void) {
        if !self.busy.is_set() {
            let depth = self.depth;
            while_busy!(self, self.draws.push_counted(CountedOp { frame, subject, depth }));
        }
    }

    #[inline(never)]
    pub(crate) fn end_counted_task(&mut self, frame: usize) {
        if !self.busy.is_set() {
            while_busy!(self, self.draws.take_counted(frame));
        }
    }

    /// Called at the end of the agent's work before ([`BEFORE`]) or after ([`AFTER`]) an op that is
    /// only counted. If the duration of this work was measured, the account takes twice the
    /// duration as a measurement of the cost of such an op.
    #[inline(always)]
    fn bill_counted_half(&mut self, half: usize) {
        if let Some(ticks) = self.counted_half_ends(half) {
            self.draws.account.only_counted.measured(2 * ticks);
        }
    }

    /// Returns the subject (the address of the adapter's description) of the innermost op in
    /// progress that is only counted. If `at` is given, returns `None` unless the op is inside of
    /// the recorded call with this index. `frame` is a stack address of the caller. It shows which
    /// ops an exception has left.
    #[inline(always)]
    pub(crate) fn counted_op(&self, at: Option<usize>, frame: usize) -> Option<*const c_void> {
        let counted = self.draws.counted();
        let alive = |op: &&CountedOp| op.frame.saturating_add(WRAPPERS) > frame;
        let inside = |op: &&CountedOp| at.is_none_or(|at| op.depth as usize > at);
        counted.iter().rev().find(alive).filter(inside).map(|op| op.subject)
    }

    /// Returns the rule that decides whether a region or a task inside of the recorded call with
    /// the index `at` is recorded.
    pub(crate) fn like_call(&self, at: usize) -> How {
        if !self.is_drawn(at) {
            return How::Always;
        }
        let reads = self.draws.reading >> at & 1 == 1;
        self.draws.open.get(at).map_or(How::Always, |open| How::Like(open.drawn, reads))
    }
}

impl Draws {
    #[inline(always)]
    fn counted(&self) -> &[CountedOp] {
        self.counted_stack.get(..self.counted_ops as usize).unwrap_or_default()
    }

    fn push_counted(&mut self, op: CountedOp) {
        if let Some(place) = self.counted_stack.get_mut(self.counted_ops as usize) {
            *place = op;
            self.counted_ops += 1;
        }
    }

    /// Removes the innermost op that began at the stack address `frame` from the stack of counted
    /// ops, and also the ops inside of that op. Returns whether there was such an op.
    fn take_counted(&mut self, frame: usize) -> bool {
        let found = self.counted().iter().rposition(|op| op.frame == frame);
        if let Some(at) = found {
            self.counted_ops = at as u32;
        }
        found.is_some()
    }

    #[inline(always)]
    fn forget_counted(&mut self, is_over: impl Fn(&CountedOp) -> bool) {
        while self.counted().last().is_some_and(&is_over) {
            self.counted_ops -= 1;
        }
    }

    /// Forgets the counted ops inside of the recorded call with index `depth`, which has ended.
    #[inline(always)]
    pub(super) fn forget_inside(&mut self, depth: usize) {
        if self.counted_ops != 0 {
            self.forget_counted(|op| op.depth as usize > depth);
        }
    }
}
