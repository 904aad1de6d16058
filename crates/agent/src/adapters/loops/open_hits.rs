//! Mode log: the hits that a thread is in, and which of them were written down ([`super::log`]).

use std::sync::atomic::{AtomicU64, Ordering};

use abi::loops::Entry;

/// Adds one to a number that only this thread writes, and returns the sum.
pub fn add(number: &AtomicU64) -> u64 {
    let next = number.load(Ordering::Relaxed) + 1;
    number.store(next, Ordering::Relaxed);
    next
}

/// Hits of a thread inside of one another that are remembered.
const DEEPEST: usize = 1024;

/// The hits that a thread is in, of all modules in this mode. The innermost is the last.
pub struct OpenHits {
    /// Never longer than what was allocated at first.
    all: Vec<OpenHit>,
}

struct OpenHit {
    entry: *const Entry,
    frame: usize,
    is_written: bool,
}

impl OpenHits {
    pub fn new() -> Self {
        Self { all: Vec::with_capacity(DEEPEST) }
    }

    /// Forgets hits that were left: those in frames below this one, and one of the same id in the same
    /// frame, with all that are inside of it.
    pub fn begins(&mut self, entry: &Entry, frame: usize, is_written: bool) {
        while self.all.last().is_some_and(|hit| hit.frame < frame) {
            self.all.pop();
        }
        let is_same = |hit: &OpenHit| hit.frame == frame && std::ptr::eq(hit.entry, entry);
        if let Some(at) = self.all.iter().position(is_same) {
            self.all.truncate(at);
        }
        if self.all.len() < DEEPEST {
            self.all.push(OpenHit { entry, frame, is_written });
        }
    }

    /// Counts an end if its begin was written down, and says whether it was. A function that takes
    /// memory from the stack meanwhile ends below its begin.
    pub fn ends(&mut self, entry: &Entry, frame: usize) -> bool {
        let same = |hit: &OpenHit| std::ptr::eq(hit.entry, entry);
        let is_full = self.all.len() == DEEPEST;
        let exact = self.all.iter().rposition(|hit| same(hit) && hit.frame == frame);
        let above = || self.all.iter().rposition(|hit| same(hit) && hit.frame > frame);
        // Deeper hits are not remembered, so that what is above may be another call's.
        let Some(at) = exact.or_else(|| if is_full { None } else { above() }) else {
            return false;
        };
        let is_written = self.all[at].is_written;
        self.all.truncate(at);
        if is_written {
            add(&entry.ended);
        }
        is_written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_those_of_begins_that_were_written_down() {
        let (outer, inner) = (Entry::default(), Entry::default());
        let mut open = OpenHits::new();
        // The first hits of both are left by an exception; later ones are not written down.
        open.begins(&outer, 1000, true);
        open.begins(&inner, 900, true);
        open.begins(&outer, 1000, false);
        open.begins(&inner, 900, false);
        assert!(!open.ends(&inner, 900) && !open.ends(&outer, 1000));
        assert_eq!(outer.ended.load(Ordering::Relaxed), 0);
        // Recursion: the inner call's hit is not written down, the outer one's is.
        open.begins(&outer, 1000, true);
        open.begins(&outer, 800, false);
        assert!(!open.ends(&outer, 800));
        assert!(open.ends(&outer, 1000));
        assert_eq!(outer.ended.load(Ordering::Relaxed), 1);
        // In the same frame, and left; and one whose function took memory from the stack.
        open.begins(&inner, 900, true);
        open.begins(&inner, 900, true);
        assert!(open.ends(&inner, 860));
        assert!(!open.ends(&inner, 900));
        // An end without any begin.
        assert!(!open.ends(&outer, 1000));
    }

    #[test]
    fn recursion_deeper_than_the_stack_closes_no_other_hit() {
        let entry = Entry::default();
        let mut open = OpenHits::new();
        for depth in 0..DEEPEST + 10 {
            open.begins(&entry, (DEEPEST + 10 - depth) * 16, true);
        }
        for depth in (0..DEEPEST + 10).rev() {
            let frame = (DEEPEST + 10 - depth) * 16;
            assert_eq!(open.ends(&entry, frame), depth < DEEPEST, "{depth}");
        }
    }
}
