//! Calls that never end, because an exception or `longjmp` has left them. The thread's next call finds
//! them: their frames lie at or below its own.

use model::Loss;

use crate::recorder::bracket::{Newcomer, WRAPPERS, stack_address};
use crate::recorder::busy::while_busy;
use crate::recorder::collectors;
use crate::recorder::thread::{DEEPEST, Thread};

impl Thread {
    /// Forgets abandoned calls before anything is started for a new call with this frame. Plugins take
    /// back the innermost id of the thread, so the ids of abandoned calls must be taken back before the
    /// new call has one.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_before(&mut self, frame: usize, newcomer: Newcomer) {
        if self.depth == 0 || self.busy.is_set() {
            return;
        }
        while_busy!(self, {
            let before = self.depth;
            self.forget_left(frame, newcomer);
            if self.depth != before {
                // SAFETY: a page is attached.
                unsafe { self.writer.set_open(self.depth, self.apart[0].export) };
            }
        });
    }

    /// Begins a call within a call. Forgets calls that were abandoned (their frames are at or below
    /// the new one), and refuses a call that is nested too deeply.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_nested(&mut self, frame: usize, newcomer: Newcomer) -> bool {
        point!(BeginNested);
        self.forget_left(frame, newcomer);
        if self.depth as usize >= DEEPEST {
            self.process().lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        true
    }

    /// Forgets the calls that were abandoned if a new call has this frame.
    fn forget_left(&mut self, frame: usize, newcomer: Newcomer) {
        let wrapped = if newcomer == Newcomer::Synchronous { self.is_wrapped } else { 0 };
        let frame = if newcomer == Newcomer::Held { stack_address() } else { frame };
        self.forget_abandoned(|at, open| open + WRAPPERS * (wrapped >> at & 1) as usize <= frame);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn forget_abandoned(&mut self, abandoned: impl Fn(u32, usize) -> bool) {
        while self.depth > 0 {
            let open = self.frames.get(self.depth as usize - 1).copied().unwrap_or(0);
            if !abandoned(self.depth - 1, open) {
                return;
            }
            self.depth -= 1;
            collectors::abandon(self, self.depth as usize);
            self.is_apart &= !(1 << self.depth);
            self.is_wrapped &= !(1 << self.depth);
            self.has_slot &= !(1 << self.depth);
            self.uncounted &= !(1 << self.depth);
            self.abandon_draw(self.depth as usize);
            self.process().lose(Loss::CallAbandoned, 1, 0);
        }
    }
}
