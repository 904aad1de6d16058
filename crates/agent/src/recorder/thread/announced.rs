//! Measures how long a host takes to announce an op to the recorder, before and after its own code runs.
//!
//! As soon as an observer is registered, PyTorch makes an object for each op and looks up which
//! observers to call. No bracket can see this, and without the observer no op would be seen. So
//! PyTorch is asked to announce some more ops, which do nothing, to an observer that does nothing,
//! and the shim takes the time of these.
//!
//! ```text
//!  op begins ─► ops inside of it ─► op ends      after an op: its code has displaced PyTorch's
//!  op begins ─► op begins                        right after another one: PyTorch's code is warm
//! ```
//!
//! How long it takes depends on the code that ran since the last announcement. So ops are drawn
//! among all ops that begin, and an announcement is measured in the situation that the drawn op
//! had. It is measured at the end of an op that has called no others, when that op has been
//! recorded: its code ran last, as before most ops. For an op that began right after the one around
//! it, an unmeasured announcement comes first and loads the code into the caches.

use record::brackets::{BUCKETS, Brackets, Histogram, bucket_of};

use super::Thread;

/// The first ops of a thread find cold caches in a way that later ones do not.
const FIRST: u16 = 8;
/// The number of first announcements that are timed soon after one another, so that short programs
/// have some; later ones are timed rarely.
const SOON: u32 = 48;

/// The times that the host took for announcements.
pub(crate) struct Times {
    /// Number of ops that were drawn.
    drawn: u32,
    /// State of the random numbers, which is never 0.
    random: u32,
    /// The numbers of times before and after an op, by bucket.
    counts: [[u32; BUCKETS]; 2],
}

impl Times {
    /// Sets all fields at `this`. The state is too large for a small stack.
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

    /// Returns the number of ops that begin until the next one that is drawn.
    fn draw(&mut self) -> u16 {
        // Marsaglia's xorshift.
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

/// The data about announcements in the first cache line of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Announcing {
    /// Number of ops until the one that is drawn.
    until: u16,
    /// Number of times that an op shall be announced; 0 if no announcement is due.
    due: u8,
    /// Whether the last announcement was about the start of an op.
    has_begun: bool,
}

impl Announcing {
    /// Nothing was announced so far.
    pub(crate) const NEW: Self = Self { until: FIRST, due: 0, has_begun: false };

    /// Notes that an op begins.
    #[inline(always)]
    pub(crate) fn begins(&mut self) {
        self.until = self.until.wrapping_sub(1);
        if self.until == 0 {
            self.due = 1 + u8::from(self.has_begun);
        }
        self.has_begun = true;
    }

    /// Notes that an op has ended. Returns whether an announcement is due, and may be made now.
    #[inline(always)]
    fn ends(&mut self) -> bool {
        std::mem::replace(&mut self.has_begun, false) && self.due != 0
    }
}

impl Thread {
    /// Notes that an op has ended. Returns how many times another one shall be announced now.
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

    /// Counts an announcement that took this many ticks before and after the op.
    pub(crate) fn count_announced(&mut self, took: [u64; 2]) {
        for (counts, ticks) in self.announced.counts.iter_mut().zip(took) {
            if let Some(count) = counts.get_mut(bucket_of(ticks)) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// Returns the times so far; `None` if there are none.
    pub(crate) fn announced_times(&self) -> Option<Brackets> {
        let [before, after] = self.announced.counts.each_ref().map(|of| Histogram::new(of));
        let thread_uid = self.start.thread_uid;
        (before.count() > 0).then(|| Brackets { thread_uid, before, after, ..Brackets::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(` is the start of an op and `)` its end. Returns the announcements that are due at each
    /// end.
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
        // An announcement is due after the second of three ops in a row.
        assert_eq!(due(2, "()()()"), [0, 1, 0]);
        // The outer op began after another one had ended. The inner one is the first to end.
        assert_eq!(due(2, "()(())"), [0, 1, 0]);
        // The inner one began right after the outer one.
        assert_eq!(due(3, "()(())"), [0, 2, 0]);
        // The second op inside began after the first one had ended.
        assert_eq!(due(3, "(()())"), [0, 1, 0]);
        // A program that is never told of an end has none.
        assert_eq!(due(1, "((("), [0; 0]);
    }
}
