//! Mode log: the open hits of a thread (executions of functions and loops that have not ended), and
//! which of their starts were recorded ([`super::log`]).

use std::sync::atomic::{AtomicU64, Ordering};

use abi::loops::Entry;

use crate::os::sys;

/// Adds one to a number to which only this thread writes, and returns the new value.
pub fn add(number: &AtomicU64) -> u64 {
    let next = number.load(Ordering::Relaxed) + 1;
    number.store(next, Ordering::Relaxed);
    next
}

/// The number of hits in the first piece of memory. Each further piece has twice as many as the one
/// before.
const FIRST_PIECE: usize = 1024;
/// The pieces have space for a million nested hits. A thread with a stack of 8 MiB cannot make
/// nearly as many nested calls.
const PIECES: usize = 10;

/// The open hits of a thread in all modules with mode log. The last hit is the innermost one.
///
/// Recursion may be deep, so the memory grows. It grows by pieces that never move, because a signal
/// handler may add a hit while the interrupted code reads another hit.
pub struct OpenHits {
    pieces: [*mut OpenHit; PIECES],
    length: usize,
    /// Whether there are deeper open hits, for which the list had no space.
    is_full: bool,
}

#[derive(Clone, Copy)]
struct OpenHit {
    entry: *const Entry,
    frame: usize,
    is_written: bool,
}

/// Returns the number of the piece that contains the hit with the index `at`, and the hit's index
/// in the piece.
fn place(at: usize) -> (usize, usize) {
    let piece = (at / FIRST_PIECE + 1).ilog2() as usize;
    (piece, at - FIRST_PIECE * ((1 << piece) - 1))
}

fn bytes_of(piece: usize) -> usize {
    (FIRST_PIECE << piece) * size_of::<OpenHit>()
}

impl Drop for OpenHits {
    fn drop(&mut self) {
        for (i, piece) in self.pieces.iter().enumerate().filter(|(_, piece)| !piece.is_null()) {
            sys::unmap(piece.cast(), bytes_of(i));
        }
    }
}

impl OpenHits {
    pub fn new() -> Self {
        Self { pieces: [std::ptr::null_mut(); PIECES], length: 0, is_full: false }
    }

    fn get(&self, at: usize) -> OpenHit {
        let (piece, at) = place(at);
        // SAFETY: `at` is below the length, so `push` has written this place, in a piece that never
        // moves.
        unsafe { self.pieces[piece].add(at).read() }
    }

    fn push(&mut self, hit: OpenHit) -> bool {
        let (piece, at) = place(self.length);
        let Some(memory) = self.pieces.get_mut(piece) else { return false };
        if memory.is_null() {
            let Ok(mapped) = sys::map_present(bytes_of(piece)) else { return false };
            *memory = mapped.cast();
        }
        let length = self.length + 1;
        // A signal handler may write to this place until `length` is increased, so the hit is
        // written once more afterwards.
        // SAFETY: `place` returns an index inside of the piece, which is mapped.
        unsafe {
            memory.add(at).write(hit);
            self.length = length;
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            memory.add(at).write_volatile(hit);
        }
        true
    }

    /// Returns the index of the innermost matching hit.
    fn rposition(&self, is_it: impl Fn(&OpenHit) -> bool) -> Option<usize> {
        (0..self.length).rev().find(|at| is_it(&self.get(*at)))
    }

    /// Adds a hit. First removes hits that were left by an exception or `longjmp`: those in frames
    /// below `frame`, and a hit of the same id in the same frame, with all hits inside of it.
    /// Returns whether to record the start: `is_written`, but false if there is no memory to
    /// remember the hit. The hit's end could then not be found.
    pub fn begins(&mut self, entry: &Entry, frame: usize, is_written: bool) -> bool {
        while self.length > 0 && self.get(self.length - 1).frame < frame {
            self.length -= 1;
        }
        // The hits in this frame are now the innermost ones.
        let of_frame = (0..self.length).rev().take_while(|at| self.get(*at).frame == frame);
        let is_same = |at: &usize| std::ptr::eq(self.get(*at).entry, entry);
        if let Some(at) = of_frame.filter(is_same).last() {
            self.length = at;
        }
        let remembered = self.push(OpenHit { entry, frame, is_written });
        self.is_full = !remembered;
        remembered && is_written
    }

    /// Ends a hit. Returns whether the hit's start was recorded, and false if the hit is not found.
    /// `frame` may be below the frame of the hit's start, if the function has taken memory from the
    /// stack in between.
    pub fn ends(&mut self, entry: &Entry, frame: usize) -> bool {
        let same = |hit: &OpenHit| std::ptr::eq(hit.entry, entry);
        // From the innermost hit outwards, frames never become smaller (see `begins`), so the
        // search can stop at the first frame above `frame`.
        let exact = (0..self.length)
            .rev()
            .take_while(|at| self.get(*at).frame <= frame)
            .find(|at| same(&self.get(*at)) && self.get(*at).frame == frame);
        let above = || self.rposition(|hit| same(hit) && hit.frame > frame);
        // If deeper hits were not remembered, a hit in a frame above may belong to another call, so
        // it is not used.
        let Some(at) = exact.or_else(|| if self.is_full { None } else { above() }) else {
            return false;
        };
        let is_written = self.get(at).is_written;
        (self.length, self.is_full) = (at, false);
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
        // The first hits of both functions are left by an exception; later hits are not to be
        // recorded.
        open.begins(&outer, 1000, true);
        open.begins(&inner, 900, true);
        open.begins(&outer, 1000, false);
        open.begins(&inner, 900, false);
        assert!(!open.ends(&inner, 900) && !open.ends(&outer, 1000));
        assert_eq!(outer.ended.load(Ordering::Relaxed), 0);
        // Recursion: the outer call's hit is recorded, but not the inner one's.
        open.begins(&outer, 1000, true);
        open.begins(&outer, 800, false);
        assert!(!open.ends(&outer, 800));
        assert!(open.ends(&outer, 1000));
        assert_eq!(outer.ended.load(Ordering::Relaxed), 1);
        // One hit was left by an exception, and a new hit began in the same frame. The function
        // took memory from the stack before the end of the new hit.
        open.begins(&inner, 900, true);
        open.begins(&inner, 900, true);
        assert!(open.ends(&inner, 860));
        assert!(!open.ends(&inner, 900));
        assert!(!open.ends(&outer, 1000));
    }

    #[test]
    fn places_are_in_order() {
        let mut expected = (0, 0);
        for at in 0..FIRST_PIECE * 31 {
            assert_eq!(place(at), expected, "{at}");
            expected.1 += 1;
            if expected.1 == FIRST_PIECE << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn deep_recursion_ends_as_it_began() {
        const DEPTH: usize = 100_000;
        let entry = Entry::default();
        let mut open = OpenHits::new();
        let frame = |depth: usize| (DEPTH + 1 - depth) * 48;
        for depth in 0..DEPTH {
            assert!(open.begins(&entry, frame(depth), true));
        }
        for depth in (0..DEPTH).rev() {
            assert!(open.ends(&entry, frame(depth)), "{depth}");
            assert_eq!(open.length, depth);
        }
    }

    #[test]
    fn recursion_deeper_than_the_memory_closes_no_other_hit() {
        const MOST: usize = FIRST_PIECE * ((1 << PIECES) - 1);
        let entry = Entry::default();
        let mut open = OpenHits::new();
        let frame = |depth: usize| (MOST + 10 - depth) * 16;
        for depth in 0..MOST + 10 {
            assert_eq!(open.begins(&entry, frame(depth), true), depth < MOST, "{depth}");
        }
        for depth in (0..MOST + 10).rev() {
            assert_eq!(open.ends(&entry, frame(depth)), depth < MOST, "{depth}");
        }
    }
}
