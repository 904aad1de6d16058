//! Measures how long it takes a host to announce an op to the recorder: the host's own time before
//! and after its call of the recorder.
//!
//! As soon as an observer is registered, PyTorch makes an object for each op and looks up which
//! observers to call. The recorder cannot measure this time itself, because the time passes before
//! PyTorch calls the recorder and after the recorder returns. The recorder cannot compare ops with
//! and without the observer either, because it sees no op without the observer. So the recorder
//! asks the shim (the library that connects PyTorch to the agent) to have PyTorch announce
//! additional, empty ops to an observer that does nothing. The shim measures how long these
//! announcements take.
//!
//! ```text
//!  op begins ─► ops inside of it ─► op ends      after an op: its code has displaced PyTorch's
//!  op begins ─► op begins                        right after another one: PyTorch's code is warm
//! ```
//!
//! The duration of an announcement depends on the code that ran since the last one. So the recorder
//! draws ops (chooses them at random), and lets the shim measure an announcement in a situation
//! like that of the drawn op. The measurement is made at the end of an op that has called no other
//! ops. At that moment, the code that ran last is the op's own code, as it is before most
//! announcements. If the drawn op began immediately after the op around it, the shim first makes an
//! announcement that it does not measure. This loads PyTorch's code into the caches.

use record::brackets::{BUCKETS, Brackets, Histogram, bucket_of};

use super::Thread;

/// The first drawn op of a thread has this number, counted from 1. In earlier ops, caches are
/// colder.
const FIRST: u16 = 8;
/// The first announcements, up to about this number, are measured in quick succession, so that
/// short programs have some measurements.
const SOON: u32 = 48;

pub(crate) struct Times {
    /// Number of draws up to now.
    drawn: u32,
    /// State of the random number generator, never 0.
    random: u32,
    /// Number of measured announcements in each bucket of durations: first for the part before an
    /// op, then for the part after it.
    counts: [[u32; BUCKETS]; 2],
}

impl Times {
    /// Sets all fields in place, because the struct is too large for a small stack.
    ///
    /// # Safety
    /// `this` must be valid for writes.
    pub(crate) unsafe fn reset(this: *mut Self, seed: u32) {
        // SAFETY: by contract, `this` is valid for writes, and zeros are a value of every field.
        unsafe {
            this.write_bytes(0, 1);
            (*this).random = seed | 1;
        }
    }

    /// Chooses the next drawn op. Returns how many ops begin from now up to and including the drawn
    /// op.
    fn draw(&mut self) -> u16 {
        // This is Marsaglia's xorshift generator.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.drawn = self.drawn.saturating_add(1);
        match self.drawn {
            few if few < SOON => 1 + (self.random % 4) as u16,
            _ => 128 + (self.random % 256) as u16,
        }
    }
}

/// The data about announcements that is needed in each op. It is in the first cache line of a
/// thread's state.
#[derive(Clone, Copy)]
pub(crate) struct Announcing {
    /// Number of ops that will begin up to and including the next drawn op.
    until: u16,
    /// Number of additional announcements to ask for; 0 if none is due.
    due: u8,
    /// Whether the last announcement was about the start of an op.
    has_begun: bool,
}

impl Announcing {
    pub(crate) const NEW: Self = Self { until: FIRST, due: 0, has_begun: false };

    #[inline(always)]
    pub(crate) fn begins(&mut self) {
        self.until = self.until.wrapping_sub(1);
        if self.until == 0 {
            self.due = 1 + u8::from(self.has_begun);
        }
        self.has_begun = true;
    }

    /// Called when an op has ended. Returns whether an additional announcement is due.
    #[inline(always)]
    fn ends(&mut self) -> bool {
        std::mem::replace(&mut self.has_begun, false) && self.due != 0
    }
}

impl Thread {
    /// Called when an op has ended. Returns how many additional ops must be announced now.
    #[inline(always)]
    pub(crate) fn announcements_due(&mut self) -> i32 {
        if self.announcing.ends() { self.draw_announcement() } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn draw_announcement(&mut self) -> i32 {
        if self.rehearsing {
            self.announcing = Announcing::NEW;
            return 0;
        }
        self.announcing.until = self.announced.draw();
        std::mem::take(&mut self.announcing.due).into()
    }

    /// Adds a measured announcement. `took` contains the announcement's durations before and after
    /// the op, in ticks.
    pub(crate) fn count_announced(&mut self, took: [u64; 2]) {
        for (counts, ticks) in self.announced.counts.iter_mut().zip(took) {
            if let Some(count) = counts.get_mut(bucket_of(ticks)) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// Returns the durations of the announcements measured so far; `None` if there are none.
    pub(crate) fn announced_times(&self) -> Option<Brackets> {
        let [before, after] = self.announced.counts.each_ref().map(|of| Histogram::new(of));
        let thread_uid = self.start.thread_uid;
        (before.count() > 0).then(|| Brackets { thread_uid, before, after, ..Brackets::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In `text`, `(` is the start of an op and `)` its end. The `until`-th op to begin is drawn.
    /// Returns how many additional announcements are due at the end of each op.
    fn due(until: u16, text: &str) -> Vec<u8> {
        let mut of = Announcing { until, ..Announcing::NEW };
        let mut all = Vec::new();
        for c in text.chars() {
            match c {
                '(' => of.begins(),
                _ if of.ends() => all.push(std::mem::take(&mut of.due)),
                _ => all.push(0),
            }
        }
        all
    }

    #[test]
    fn an_announcement_is_due_when_an_op_without_others_has_ended() {
        // The second of three successive ops is drawn.
        assert_eq!(due(2, "()()()"), [0, 1, 0]);
        // The outer op is drawn. The inner op ends first.
        assert_eq!(due(2, "()(())"), [0, 1, 0]);
        // The inner op is drawn. It began right after the outer one had begun, so two announcements
        // are due, of which the second is measured.
        assert_eq!(due(3, "()(())"), [0, 2, 0]);
        // The second inner op is drawn. It began after the first one had ended, so one announcement
        // is due.
        assert_eq!(due(3, "(()())"), [0, 1, 0]);
        assert_eq!(due(1, "((("), [0; 0]);
    }
}
