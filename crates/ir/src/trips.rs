//! Finds the number of iterations of each hit (execution) of a loop, if the text alone determines
//! it. The counter must begin at a constant, and the loop's only exit must compare the counter with
//! a constant. The exit must be in the header, or in the only block that jumps back to the header.
//! Nothing may leave the loop in another way. A call may throw, `longjmp`, end the thread or the
//! process, or not return. So the number is not known for a loop that calls anything but intrinsics
//! of LLVM and assembly that cannot unwind.

use crate::choice::Choice;
use crate::dominators::NONE;
use crate::function::Body;
use crate::header;
use crate::iterations::Counter;
use crate::loops::Loops;
use crate::scan::{Span, Token, Tokens};

#[derive(Clone, Copy, Debug, Default)]
struct Exits {
    /// Number of edges that leave the loop.
    edges: u32,
    /// The block where the last counted edge begins.
    from: u32,
}

/// Returns each chosen loop's number of iterations, if known, in the order of [`Choice::loops`]. An
/// edge is visited once for each chosen loop that it leaves; [`crate::rewrite`] limits the number
/// of these visits.
pub fn trip_counts(
    text: &[u8],
    body: &Body,
    loops: &Loops,
    choice: &Choice,
    counters: &[Option<Counter>],
) -> Vec<Option<u64>> {
    let mut exits = vec![Exits::default(); loops.all.len()];
    for from in 0..body.blocks.len() as u32 {
        for edge in body.leaving(from) {
            let inner = loops.innermost[from as usize];
            let mut at = choice.nearest.get(inner as usize).copied().unwrap_or(NONE);
            while at != NONE && !loops.contains(at, edge.to) {
                let own = &mut exits[at as usize];
                own.edges += 1;
                own.from = from;
                at = choice.parent(loops, at);
            }
        }
    }
    // For each chosen loop: whether a block inside of it has a call that possibly does not return.
    let mut calls = vec![false; loops.all.len()];
    for (block, inner) in body.blocks.iter().zip(&loops.innermost) {
        let mut at = choice.nearest.get(*inner as usize).copied().unwrap_or(NONE);
        if at == NONE || calls[at as usize] || !calls_out(block.text.of(text)) {
            continue;
        }
        while at != NONE && !calls[at as usize] {
            calls[at as usize] = true;
            at = choice.parent(loops, at);
        }
    }
    let chosen = choice.loops.iter().zip(counters);
    chosen
        .map(|(l, counter)| {
            let (exits, counter) = (exits[*l as usize], counter.as_ref()?);
            let only = (exits.edges == 1).then_some(exits.from)?;
            if calls[*l as usize] {
                return None;
            }
            trips(text, body, loops, *l, only, counter)
        })
        .collect()
}

/// Whether a block has a call that possibly does not return. Calls of LLVM's intrinsics, and of
/// assembly that cannot unwind, are taken to return.
fn calls_out(block: &[u8]) -> bool {
    block.split(|b| *b == b'\n').any(|line| {
        let statement = header::statement(line);
        let words = [&b"call "[..], b"tail call ", b"musttail call ", b"notail call "];
        let is_call = words.iter().any(|words| statement.starts_with(words));
        let is_other = [&b"invoke "[..], b"callbr "].iter().any(|word| statement.starts_with(word));
        // After assembly, control continues in the block, unless the statement is a terminator
        // (`invoke`, `callbr`).
        let has = |word: &[u8]| statement.windows(word.len()).any(|part| part == word);
        if is_call && has(b" asm ") && !has(b" unwind ") {
            return false;
        }
        // If the called function has a name, that is the first global name in the statement.
        // Otherwise a pointer is called.
        let called = statement.iter().position(|b| *b == b'@').map(|at| &statement[at..]);
        is_other || is_call && !called.is_some_and(|name| name.starts_with(b"@llvm."))
    })
}

/// Returns the number of iterations of a loop whose only exit is in block `from`.
fn trips(
    text: &[u8],
    body: &Body,
    loops: &Loops,
    l: u32,
    from: u32,
    counter: &Counter,
) -> Option<u64> {
    let header = loops.all[l as usize].header;
    let [first, second] = body.leaving(from) else { return None };
    // Each iteration must pass the exit.
    let latch = [first, second].iter().any(|edge| edge.to == header);
    if from != header && !(latch && counter.latches == 1) {
        return None;
    }
    let goes_on = loops.contains(l, first.to);
    let tokens: Vec<_> = Tokens::new(text, body.blocks[from as usize].terminator).take(3).collect();
    let (Token::Local, condition) = *tokens.get(2)? else { return None };
    let block = body.blocks[from as usize].text.of(text);
    let condition = condition.of(text);
    let line = block
        .split(|b| *b == b'\n')
        .map(<[u8]>::trim_ascii_start)
        .filter_map(|line| line.strip_prefix(condition))
        .find_map(|line| line.strip_prefix(b" = icmp "))?;
    let words: Vec<&[u8]> =
        Tokens::new(line, Span::new(0, line.len())).map(|(_, span)| span.of(line)).collect();
    let words = words.strip_prefix(&[&b"samesign"[..]]).unwrap_or(&words);
    let [predicate, _, value, comma, limit, ..] = words else { return None };
    let start = decimal(counter.start.as_bytes())?;
    let at = match *value {
        value if value == counter.value.as_bytes() => start,
        value if value == counter.next.as_bytes() => start.checked_add(counter.step.into())?,
        _ => return None,
    };
    let limit = decimal(limit)?;
    if *comma != b"," {
        return None;
    }
    let passed = passes(predicate, goes_on, at, limit, counter.step.into())?;
    let last = from != header || counter.whole;
    u64::try_from(passed + i128::from(last)).ok()
}

/// Returns how often a comparison of `at` with `limit` lets the loop continue. `step` is added to
/// `at` each time. `goes_on` says whether the loop continues if the comparison is true.
pub(crate) fn passes(
    predicate: &[u8],
    goes_on: bool,
    mut at: i128,
    mut limit: i128,
    mut step: i128,
) -> Option<i128> {
    let predicate = if goes_on { predicate } else { inverse(predicate)? };
    if predicate.first() == Some(&b'u') && (at < 0 || limit < 0) {
        return None;
    }
    if predicate == b"ne" {
        let distance = limit - at;
        return (distance % step == 0 && distance / step >= 0).then(|| distance / step);
    }
    // Any comparison by order becomes `at < limit`, for which the step must be positive.
    if predicate.get(1) == Some(&b'g') {
        (at, limit, step) = (-at, -limit, -step);
    }
    if predicate.ends_with(b"e") {
        limit += 1;
    }
    let known =
        matches!(predicate, b"ult" | b"slt" | b"ule" | b"sle" | b"ugt" | b"sgt" | b"uge" | b"sge");
    if step <= 0 || !known {
        return None;
    }
    Some(if at < limit { (limit - at + step - 1) / step } else { 0 })
}

fn decimal(bytes: &[u8]) -> Option<i128> {
    std::str::from_utf8(bytes).ok()?.parse::<i64>().ok().map(i128::from)
}

fn inverse(predicate: &[u8]) -> Option<&'static [u8]> {
    Some(match predicate {
        b"eq" => b"ne",
        b"ult" => b"uge",
        b"ule" => b"ugt",
        b"ugt" => b"ule",
        b"uge" => b"ult",
        b"slt" => b"sge",
        b"sle" => b"sgt",
        b"sgt" => b"sle",
        b"sge" => b"slt",
        _ => return None,
    })
}
