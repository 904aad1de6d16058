//! Removes *abandoned* calls from a thread's list of open calls. An abandoned call never ends,
//! because an exception or `longjmp` has left it. The recorder usually recognises an abandoned call
//! when a call around it ends, or when the thread begins a new call whose stack frame is not below
//! that of the abandoned call.

use model::Loss;

use crate::recorder::bracket::{Ending, WRAPPERS, stack_address};
use crate::recorder::busy::while_busy;
use crate::recorder::collectors;
use crate::recorder::thread::{DEEPEST, OpenCall, State, Thread};

impl Thread {
    /// Forgets abandoned calls before a new call with this frame. Called before users' collectors
    /// (which measure values for each op) are started for the new call, or profiler plugins get an
    /// id for it. Plugins can only pop the innermost id of the thread, so the ids of abandoned
    /// calls must be popped before plugins get a new id.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_before(&mut self, frame: usize, ending: Ending) {
        if self.depth == 0 || self.busy.is_set() {
            return;
        }
        while_busy!(self, {
            let before = self.depth;
            self.forget_left(frame, ending);
            if self.depth != before {
                self.note_open_calls();
            }
        });
    }

    /// Prepares for a call that begins while other calls are open: forgets abandoned calls. Returns
    /// false, and counts a loss, if the new call is nested too deeply to be recorded.
    #[cold]
    #[inline(never)]
    pub(super) fn make_way(&mut self, frame: usize, ending: Ending) -> bool {
        point!(BeginNested);
        self.forget_left(frame, ending);
        if self.depth as usize >= DEEPEST {
            self.process().lose(Loss::ProbeReentered, 1, 0);
            return false;
        }
        true
    }

    /// Forgets the open calls that must have been abandoned, because a new call with this frame
    /// could not begin inside of them.
    fn forget_left(&mut self, frame: usize, ending: Ending) {
        // Calls inside of an op can have frames above the stored frame of the op ([`WRAPPERS`]),
        // but only if they end with [`Ending::Here`].
        let allows = if ending == Ending::Here { WRAPPERS } else { 0 };
        let frame = if ending == Ending::Held { stack_address() } else { frame };
        self.forget_abandoned(|open| {
            let above = if open.state.has(State::WRAPPED) { allows } else { 0 };
            open.frame + above <= frame
        });
    }

    #[cold]
    #[inline(never)]
    pub(super) fn abandon_inside(&mut self, at: usize) {
        while self.depth as usize > at + 1 {
            self.forget_innermost();
        }
    }

    /// Forgets calls from the innermost one outwards, until `is_abandoned` returns false.
    #[cold]
    #[inline(never)]
    pub(super) fn forget_abandoned(&mut self, is_abandoned: impl Fn(&OpenCall) -> bool) {
        while let Some(open) = self.open_calls().last() {
            if !is_abandoned(open) {
                return;
            }
            self.forget_innermost();
        }
    }

    #[inline(always)]
    fn forget_innermost(&mut self) {
        self.depth -= 1;
        let at = self.depth as usize;
        collectors::abandon(self, at);
        self.abandon_draw(at);
        self.calls[at % DEEPEST].state = State::PLAIN;
        // If a session ends while calibration makes empty calls, these calls begin, but do not end.
        if !self.rehearsing {
            self.process().lose(Loss::CallAbandoned, 1, 0);
        }
    }
}
