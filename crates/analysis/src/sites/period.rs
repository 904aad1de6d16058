//! Finds the iterations in a sequence of dispatches.

use std::collections::HashMap;

use profile::OpId;

/// If a process makes at most this many dispatches, and does not repeat itself, they count as one
/// iteration.
const ONCE: usize = 1_024;

/// An iteration has at most this many dispatches. Without this limit, numbers of dispatches that
/// have a common divisor by chance could result in an iteration with millions of positions, each
/// with its own row in the table.
const LONGEST: usize = 1 << 16;

/// Returns the functions of one iteration, and the position of each dispatch in its iteration. The
/// position is `None` for dispatches before the first iteration. If there are no iterations, all
/// positions are `None`.
pub(super) fn positions(ops: &[OpId]) -> (Vec<OpId>, Vec<Option<u32>>) {
    if let Some((begin, period)) = repeated(ops) {
        let places =
            (0..ops.len()).map(|i| i.checked_sub(begin).map(|i| (i % period) as u32)).collect();
        return (ops[begin..begin + period].to_vec(), places);
    }
    match counted(ops) {
        Some(found) => found,
        None if ops.len() <= ONCE => (ops.to_vec(), (0..ops.len() as u32).map(Some).collect()),
        None => (Vec::new(), vec![None; ops.len()]),
    }
}

/// Finds the longest suffix of `ops` that is made up of at least two repetitions of one sequence.
/// Returns the start of the suffix, and the length of one repetition. The last repetition may be
/// incomplete, because a program can end at any time. Returns `None` if the suffix is at most half
/// of `ops`, or if a repetition is longer than [`LONGEST`].
fn repeated(ops: &[OpId]) -> Option<(usize, usize)> {
    // A suffix of `ops`, read backwards, is a prefix of the reversed sequence. For each prefix, the
    // failure function of Knuth, Morris and Pratt computes the length of its longest border (a
    // shorter prefix that is also its suffix). The prefix's length minus the border's length is its
    // period.
    let n = ops.len();
    let at = |i: usize| ops[n - 1 - i];
    let mut borders = vec![0usize; n];
    let mut best: Option<(usize, usize)> = None;
    let mut border = 0;
    for i in 1..n {
        while border > 0 && at(i) != at(border) {
            border = borders[border - 1];
        }
        border += usize::from(at(i) == at(border));
        borders[i] = border;
        let (length, period) = (i + 1, i + 1 - border);
        if 2 * period <= length {
            best = Some((length, period));
        }
    }
    let (length, period) = best.filter(|(length, period)| 2 * length > n && *period <= LONGEST)?;
    Some((n - length, period))
}

/// Finds repetitions in which the order of some dispatches changes. The *k*-th dispatch of a
/// function in an iteration gets the position of the *k*-th one in the first iteration.
fn counted(ops: &[OpId]) -> Option<(Vec<OpId>, Vec<Option<u32>>)> {
    let mut counts: HashMap<OpId, usize> = HashMap::new();
    ops.iter().for_each(|op| *counts.entry(*op).or_default() += 1);
    let iterations = counts.values().copied().reduce(gcd)?;
    if iterations < 2 || ops.len() / iterations > LONGEST {
        return None;
    };
    let mut seen: HashMap<OpId, usize> = HashMap::new();
    let mut first: HashMap<(OpId, usize), u32> = HashMap::new();
    let mut sequence = Vec::new();
    let places = ops.iter().map(|op| {
        let each = counts[op] / iterations;
        let of = seen.entry(*op).or_default();
        let place = *first.entry((*op, *of % each)).or_insert_with(|| {
            sequence.push(*op);
            sequence.len() as u32 - 1
        });
        *of += 1;
        Some(place)
    });
    let places: Vec<Option<u32>> = places.collect();
    Some((sequence, places))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> (String, String) {
        let ops: Vec<OpId> = text.bytes().map(OpId::from).collect();
        let (sequence, places) = positions(&ops);
        let sequence = sequence.iter().map(|op| char::from(*op as u8)).collect();
        let places = places.iter().map(|p| p.map_or("-".into(), |p| p.to_string())).collect();
        (sequence, places)
    }

    #[test]
    fn a_program_that_repeats_itself() {
        let found = |sequence: &str, places: &str| (sequence.to_owned(), places.to_owned());
        assert_eq!(places("abcbabcbabcb"), found("abcb", "012301230123"));
        // The program ended in the middle of an iteration.
        assert_eq!(places("abcbabcbab"), found("abcb", "0123012301"));
        // Two dispatches ran once, before the first iteration.
        assert_eq!(places("xyabcabcabc"), found("abc", "--012012012"));
        assert_eq!(places("aaaa"), found("a", "0000"));
    }

    #[test]
    fn a_program_whose_dispatches_swap_places() {
        // b and c run at the same time, so they can swap positions.
        let found = ("abc".to_owned(), "012021021012".to_owned());
        assert_eq!(places("abcacbacbabc"), found);
    }

    #[test]
    fn a_program_without_iterations() {
        assert_eq!(places("abac"), ("abac".to_owned(), "0123".to_owned()));
        assert_eq!(places("a"), ("a".to_owned(), "0".to_owned()));
        assert_eq!(places(""), (String::new(), String::new()));
        // The sequence is too long to be one iteration, and not several ones, because one of the
        // two functions has a single dispatch.
        let ops: Vec<OpId> = [vec![1; 1_500], vec![2], vec![1; 499]].concat();
        assert_eq!(positions(&ops), (Vec::new(), vec![None; 2_000]));
        // Each function has an even number of dispatches by chance, but an iteration of half the
        // sequence would be longer than [`LONGEST`].
        let ops: Vec<OpId> = [vec![1; 100_002], vec![2; 100_000]].concat();
        assert_eq!(positions(&ops), (Vec::new(), vec![None; 200_002]));
    }
}
