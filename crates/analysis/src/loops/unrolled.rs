//! Computes how many iterations of a loop of the schedule are contained in one iteration of the
//! optimised loop.
//!
//! The iterations of a loop are counted in the optimised text. Assume that the loop of the schedule
//! has 256 iterations. If LLVM moved the first iteration out of the loop and unrolled the rest by
//! three, the loop in the optimised text has (256 - 1) / 3 = 85 iterations. The schedule contains
//! the number of iterations of its loop in each hit (the *extent*). Together with the counted
//! iterations, the extent shows what LLVM did:
//!
//! ```text
//!  each  = extent / iterations of a hit, rounded down       apart = extent - each · iterations of a hit
//! ```
//!
//! There is no result if it would be a guess. This is so if hits differ in their iterations, if
//! some hits did not end, or if the optimiser made several loops of the schedule's loop. It is also
//! so if more iterations are apart (outside of the loop) than unrolling, vectorising and peeling
//! leave over.

use super::{LoopNode, LoopTree};

/// How the iterations of the schedule's loop are distributed inside and outside of a loop in the
/// instrumented text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrolled {
    /// Number of iterations of the schedule's loop in each iteration of this loop.
    pub each: u64,
    /// Number of iterations of the schedule's loop, per hit, before or after this loop.
    pub apart: u64,
}

/// Compares a loop with the schedule. `None` if the result is not known.
pub fn unrolled(tree: &LoopTree, node: &LoopNode) -> Option<Unrolled> {
    let (_, scheduled) = tree.scheduled(node)?;
    let [_] = scheduled.ids.as_slice() else { return None };
    let of_text = tree.entry(node).and_then(|entry| entry.trip_count);
    of(scheduled.extent?, counted(node).or(of_text)?).filter(|_| node.all.unended() == 0)
}

/// Returns the number of iterations of a hit, if all counted hits have the same number. If the
/// numbers of single hits are not known, returns their mean, provided that it is a whole number. If
/// hits differ, the mean is rarely a whole number.
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
    // The rest after unrolling has fewer iterations than one iteration of the unrolled loop
    // contains, and one more iteration may be peeled.
    (apart <= each).then_some(Unrolled { each, apart })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_on_paper() {
        let found = |extent, iterations| of(extent, iterations).map(|of| (of.each, of.apart));
        // Five loops: not unrolled; with the first iteration peeled; unrolled by four; unrolled by
        // three with the first iteration peeled; vectorised by 16 with a rest.
        assert_eq!(found(256, 256), Some((1, 0)));
        assert_eq!(found(256, 255), Some((1, 1)));
        assert_eq!(found(256, 64), Some((4, 0)));
        assert_eq!(found(256, 85), Some((3, 1)));
        assert_eq!(found(260, 16), Some((16, 4)));
        // In these three cases, the optimised loop has two thirds as many iterations as the
        // schedule's loop, more iterations than the schedule's loop, or none.
        assert_eq!(found(256, 170), None);
        assert_eq!(found(8, 64), None);
        assert_eq!(found(8, 0), None);
    }
}
