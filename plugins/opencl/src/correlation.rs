//! Keeps track of the ops that each thread is in. Each thread has two stacks. The host (the program
//! that loaded the plugin) pushes the ids of ops on one of them, and the ids of ranges on the
//! other. The ids belong to one recording, whose number is in `Stacks::generation`.

use std::cell::RefCell;

/// The largest number of ids in a stack. Further ids are only counted, so that each pop still
/// matches its push.
const MOST: usize = 1024;

#[derive(Debug)]
struct Stacks {
    generation: u32,
    /// The stack of ops and the stack of ranges. Each consists of its ids, and of the number of
    /// further ids beyond [`MOST`].
    stacks: [(Vec<u64>, usize); 2],
}

/// One of the two stacks of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Op = 0,
    Range = 1,
}

thread_local! {
    static STACKS: RefCell<Stacks> =
        const { RefCell::new(Stacks { generation: 0, stacks: [(Vec::new(), 0), (Vec::new(), 0)] }) };
}

fn with<T>(generation: u32, call: impl FnOnce(&mut Stacks) -> T) -> Option<T> {
    // The stacks of an ending thread may have been freed already.
    let done = STACKS.try_with(|stacks| {
        let mut stacks = stacks.try_borrow_mut().ok()?;
        if stacks.generation != generation {
            stacks.generation = generation;
            for (ids, beyond) in &mut stacks.stacks {
                ids.clear();
                *beyond = 0;
            }
        }
        Some(call(&mut stacks))
    });
    done.ok().flatten()
}

/// Pushes the id of an op or range that begins on this thread.
pub fn push(generation: u32, kind: Kind, id: u64) {
    with(generation, |stacks| {
        let (ids, beyond) = &mut stacks.stacks[kind as usize];
        if ids.len() < MOST { ids.push(id) } else { *beyond += 1 }
    });
}

/// Pops the id of the innermost op or range.
pub fn pop(generation: u32, kind: Kind) {
    with(generation, |stacks| match &mut stacks.stacks[kind as usize] {
        (ids, 0) => drop(ids.pop()),
        (_, beyond) => *beyond -= 1,
    });
}

/// Returns the id of this thread's innermost op, or else of its innermost range. Ids beyond
/// [`MOST`] are not considered.
pub fn current(generation: u32) -> Option<u64> {
    with(generation, |stacks| {
        let [(ops, _), (ranges, _)] = &stacks.stacks;
        ops.last().or(ranges.last()).copied()
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_by_kind_and_recording() {
        assert_eq!(current(1), None);
        push(1, Kind::Range, 7);
        assert_eq!(current(1), Some(7));
        push(1, Kind::Op, 8);
        push(1, Kind::Op, 9);
        assert_eq!(current(1), Some(9));
        pop(1, Kind::Op);
        assert_eq!(current(1), Some(8));
        assert_eq!(std::thread::spawn(|| current(1)).join().ok(), Some(None));
        assert_eq!(current(2), None, "another recording");
        pop(2, Kind::Op);
        for id in 0..2_000 {
            push(2, Kind::Op, id);
        }
        for _ in 0..1_999 {
            pop(2, Kind::Op);
        }
        assert_eq!(current(2), Some(0), "pops match although the stack is bounded");
    }
}
