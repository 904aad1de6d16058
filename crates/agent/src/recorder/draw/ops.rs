//! Ops of virtual machines and of PyTorch, in a run with a budget.
//!
//! Such a host calls us before and after each op, whether the op is recorded or not. Ops that are only
//! counted are therefore kept on a stack of their own, so that the end of such an op does nothing, and
//! so that its regions are not taken for those of the op around it.

use std::ffi::c_void;

use super::state::{CountedOp, Draws, How};
use crate::recorder::bracket::{Newcomer, WRAPPERS, stack_address};
use crate::recorder::busy::while_busy;
use crate::recorder::thread::{AFTER, BEFORE, Thread};

/// An op that begins.
pub(crate) struct NewOp {
    pub(crate) export: u32,
    pub(crate) frame: usize,
    pub(crate) newcomer: Newcomer,
    /// Whether its counters may be read.
    pub(crate) may_read: bool,
    pub(crate) how: How,
    pub(crate) subject: *const c_void,
}

impl Thread {
    /// Begins an op. Returns whether it is recorded.
    #[inline(always)]
    pub(crate) fn begin_op(&mut self, op: &NewOp) -> bool {
        if !self.draws.is_on() {
            return self.begin_bracket(op.export, op.frame, op.newcomer, op.may_read);
        }
        self.begin_drawn_op(op)
    }

    #[inline(never)]
    fn begin_drawn_op(&mut self, op: &NewOp) -> bool {
        let mut wanted = true;
        if !self.rehearsing {
            let due = self.count_call(op.export);
            // The recorder was interrupted by a signal handler that makes calls. They are only counted.
            if self.busy.is_set() {
                return false;
            }
            self.forget_left_ops(op);
            wanted = due || !matches!(op.how, How::Due | How::Watched(_));
        }
        if wanted && op.newcomer == Newcomer::Held {
            // Brackets of such hosts have no times.
            self.take_entered(BEFORE);
        }
        if wanted && self.begin_due(op.export, op.frame, op.newcomer, op.may_read, op.how, true) {
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
            self.settle_counted_half(BEFORE);
        });
        false
    }

    /// Forgets ops that were left by an exception before this one began. The end of a later op with the
    /// same address would otherwise be taken for theirs.
    #[inline(always)]
    fn forget_left_ops(&mut self, op: &NewOp) {
        let is_held = op.newcomer == Newcomer::Held;
        let limit = if is_held { stack_address() } else { op.frame };
        let top = self.frames.get((self.depth as usize).wrapping_sub(1));
        if top.is_some_and(|top| *top <= limit) {
            self.forget_left_calls(limit);
        }
        if self.draws.counted_ops != 0 {
            self.draws.forget_counted(|counted| counted.frame <= limit);
            if is_held {
                // An op with the same address has ended without telling us.
                self.draws.take_counted(op.frame);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_left_calls(&mut self, limit: usize) {
        while_busy!(self, {
            self.forget_abandoned(|_, open| open <= limit);
            // SAFETY: a page is attached.
            unsafe { self.writer.set_open(self.depth, self.apart[0].export) };
        });
    }

    /// Begins a whole run, a region or a task, whose end is in the same function of ours. Returns
    /// whether it is recorded.
    #[inline(always)]
    pub(crate) fn begin_inside(
        &mut self,
        export: u32,
        frame: usize,
        may_read: bool,
        how: How,
    ) -> bool {
        if !self.draws.is_on() || self.rehearsing {
            return self.begin_bracket(export, frame, Newcomer::Synchronous, may_read);
        }
        let due = self.count_call(export);
        let wanted = how != How::Never && (due || how != How::Due);
        wanted && self.begin_due(export, frame, Newcomer::Synchronous, may_read, how, false)
    }

    /// Ends the op that began at `frame` if it is only counted. Returns false, and has done nothing, in
    /// any other case.
    #[inline(always)]
    pub(crate) fn end_counted_op(&mut self, frame: usize) -> bool {
        self.draws.counted_ops != 0 && self.end_counted(frame)
    }

    #[inline(never)]
    fn end_counted(&mut self, frame: usize) -> bool {
        while_busy!(self, {
            let found = self.draws.take_counted(frame);
            if found {
                self.settle_counted_half(AFTER);
            }
            found
        })
    }

    /// Adds to the account what one of the host's two calls for an op that is only counted took, if that
    /// was measured.
    #[inline(always)]
    fn settle_counted_half(&mut self, half: usize) {
        if let Some(ticks) = self.take_entered(half) {
            self.draws.account.only_counted.measured(2 * ticks);
        }
    }

    /// Returns the subject of the innermost op in progress if it is only counted. `at` is the index of
    /// the innermost op that is recorded, and `frame` is a stack address of the caller.
    #[inline(always)]
    pub(crate) fn counted_op(&self, at: Option<usize>, frame: usize) -> Option<*const c_void> {
        let counted = self.draws.counted();
        let alive = |op: &&CountedOp| op.frame.saturating_add(WRAPPERS) > frame;
        let inside = |op: &&CountedOp| at.is_none_or(|at| op.depth as usize > at);
        counted.iter().rev().find(alive).filter(inside).map(|op| op.subject)
    }

    /// How a region or a task of call `at`, which is recorded, is drawn.
    pub(crate) fn like_call(&self, at: usize) -> How {
        if !self.draws.is_drawn(at) {
            return How::Always;
        }
        let reads = self.draws.reading >> at & 1 == 1;
        self.draws.open.get(at).map_or(How::Always, |open| How::Like(open.drawn, reads))
    }

    /// Whether the counters of call `at` are read.
    #[inline(always)]
    pub(crate) fn reads_call(&self, at: usize) -> bool {
        self.uncounted >> at & 1 == 0
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

    /// Removes the innermost op with this frame, and those inside of it. Returns whether there is one.
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

    /// Called after the call at index `depth` has ended or was abandoned: forgets the ops inside of it.
    #[inline(always)]
    pub(super) fn forget_inside(&mut self, depth: usize) {
        if self.counted_ops != 0 {
            self.forget_counted(|op| op.depth as usize > depth);
        }
    }
}
