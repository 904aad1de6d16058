//! How many iterations of the schedule's loop an iteration of the machine code's loop is.
//!
//! A loop is counted in the optimised text. If LLVM unrolled it by three and took the first iteration out, a loop of
//! 256 iterations in the schedule has 85 there: (256 - 1) / 3. The schedule says how often its loop runs in each hit,
//! so both numbers together say what was done:
//!
//! ```text
//!  each  = extent / iterations of a hit, rounded down       apart = extent - each · iterations of a hit
//! ```
//!
//! Nothing is said where that would be a guess: if hits differ in their iterations, if the optimiser made several
//! loops of the schedule's loop (each runs a part of it), or if more iterations are apart than unrolling, vectorising
//! and peeling leave over.

use super::{LoopNode, LoopTree};

/// What an iteration of a loop in the instrumented text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrolled {
    /// Iterations of the schedule's loop in each iteration.
    pub each: u64,
    /// Iterations of the schedule's loop in each hit that are outside of the loop: before it or after it.
    pub apart: u64,
}

/// `None` if it is not known.
pub fn unrolled(tree: &LoopTree, node: &LoopNode) -> Option<Unrolled> {
    let (_, scheduled) = tree.scheduled(node)?;
    let [_] = scheduled.ids.as_slice() else { return None };
    let of_text = tree.entry(node).and_then(|entry| entry.trip_count);
    of(scheduled.extent?, counted(node).or(of_text)?).filter(|_| node.all.unended() == 0)
}

/// The iterations of each hit that was counted, if all of these have the same number of them. If only the sum is known,
/// hits that differ rarely have a mean that is a whole number.
fn counted(node: &LoopNode) -> Option<u64> {
    let all = &node.all;
    match &all.trips {
        Some(trips) => (trips.least == trips.most).then_some(trips.least),
        None => {
            let sum = all.iterations.filter(|_| all.iterated > 0)?;
            (sum % all.iterated == 0).then(|| u64::try_from(sum / all.iterated).ok())?
        }
    }
}

fn of(extent: u64, iterations: u64) -> Option<Unrolled> {
    let each = extent.checked_div(iterations).filter(|each| *each > 0)?;
    let apart = extent - each * iterations;
    // The rest of a loop is shorter than a step of it, and one iteration may be peeled.
    (apart <= each).then_some(Unrolled { each, apart })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_on_paper() {
        let found = |extent, iterations| of(extent, iterations).map(|of| (of.each, of.apart));
        // Not unrolled; the first one peeled; by four; by three with the first one peeled; vectors of 16 and a rest.
        assert_eq!(found(256, 256), Some((1, 0)));
        assert_eq!(found(256, 255), Some((1, 1)));
        assert_eq!(found(256, 64), Some((4, 0)));
        assert_eq!(found(256, 85), Some((3, 1)));
        assert_eq!(found(260, 16), Some((16, 4)));
        // A part of the loop, more than the loop, and none of it.
        assert_eq!(found(256, 170), None);
        assert_eq!(found(8, 64), None);
        assert_eq!(found(8, 0), None);
    }
}
