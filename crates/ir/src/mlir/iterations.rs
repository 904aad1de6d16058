//! Computes the number of iterations of a loop from an argument of its header, as
//! [`crate::iterations`] does from phi nodes. The argument must have the same value on all edges
//! into the loop, and change by a constant.

use crate::choice::Choice;
use crate::dominators::NONE;
use crate::function::Edge;
use crate::loops::Loops;
use crate::scan::{Span, find};
use crate::trips::passes;

use super::body::Blocks;
use super::scan::name_end;

/// A value that counts the iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The header's argument, with `%`.
    pub value: String,
    /// The number of bits of the argument's integer type, at most 64.
    pub bits: u32,
    /// The name (with `%`) of the counter's first value.
    pub start: String,
    /// What each iteration adds. It is not 0.
    pub step: i64,
    /// The name (with `%`) of the counter's value for the next iteration.
    next: String,
    /// The number of edges back to the header.
    latches: u32,
    /// Whether the last run of the header is an iteration, too, because the header does part of the
    /// loop's work ([`crate::header`]) or has an edge to itself.
    pub whole: bool,
}

/// The largest step with which a 64-bit counter is assumed not to wrap around. At this step, it
/// wraps after 2^48 iterations, which take a day at a third of a nanosecond each.
const LARGEST_STEP: u64 = 1 << 16;

/// The largest number of a header's arguments that are read. The counter that the compiler made is
/// the first argument.
const MOST_ARGUMENTS: usize = 64;

/// Looks for counters in the loops of one function.
pub struct Search<'a> {
    pub text: &'a [u8],
    /// The blocks of the function.
    pub blocks: &'a Blocks,
    /// The function's loops.
    pub loops: &'a Loops,
    /// For each block, the edges that enter it, each with the block from which it comes.
    pub arriving: &'a [Vec<(u32, Edge)>],
}

impl Search<'_> {
    /// Finds the counter of a loop.
    pub fn counter(&self, l: u32) -> Option<Counter> {
        let header = self.loops.all[l as usize].header;
        let arguments = self.blocks.arguments_of(header);
        arguments.iter().take(MOST_ARGUMENTS).enumerate().find_map(|(i, argument)| {
            let kind = argument.kind.of(self.text);
            let bits: u32 = std::str::from_utf8(kind.strip_prefix(b"i")?).ok()?.parse().ok()?;
            if !(2..=64).contains(&bits) {
                return None;
            }
            self.of_argument(l, header, i, argument.name.of(self.text), bits)
        })
    }

    fn of_argument(
        &self,
        l: u32,
        header: u32,
        index: usize,
        value: &[u8],
        bits: u32,
    ) -> Option<Counter> {
        let (mut start, mut next): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        let mut latches = 0;
        let mut rotated = false;
        for (from, edge) in &self.arriving[header as usize] {
            let passed = self.passed(edge.operand, index)?;
            let inside = self.loops.contains(l, *from);
            let known = if inside { &mut next } else { &mut start };
            if known.is_some_and(|known| known != passed) {
                return None;
            }
            *known = Some(passed);
            latches += u32::from(inside);
            rotated |= *from == header;
        }
        let (start, next) = (start?, next?);
        let (step, exact) = self.step(next, value)?;
        if step == 0 || !(exact || bits == 64 && step.unsigned_abs() <= LARGEST_STEP) {
            return None;
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let (value, start, next) = (text(value)?, text(start)?, text(next)?);
        let whole = rotated || self.works(l, header);
        Some(Counter { value, bits, start, step, next, latches, whole })
    }

    /// Returns whether the header does part of the loop's work ([`crate::header`]).
    fn works(&self, l: u32, header: u32) -> bool {
        let block = &self.blocks.body.blocks[header as usize];
        if stores_or_calls(block.text.of(self.text)) {
            return true;
        }
        let own = |value: &&[u8]| {
            let defined = self.blocks.defined.get(*value);
            let is_here =
                |span: &Span| block.text.start <= span.start && span.end <= block.text.end;
            let step = self.blocks.arguments_of(header).iter().take(MOST_ARGUMENTS);
            defined.is_some_and(is_here)
                && !step.into_iter().any(|a| self.step(value, a.name.of(self.text)).is_some())
        };
        let passed = |inside: bool| -> Vec<&[u8]> {
            let back = self.arriving[header as usize].iter().filter(|_| inside);
            let back = back.filter(|(from, _)| self.loops.contains(l, *from)).map(|(_, e)| e);
            let out = self.blocks.body.leaving(header).iter().filter(|_| !inside);
            let out = out.filter(|edge| !self.loops.contains(l, edge.to));
            let all = back.chain(out).map(|edge| edge.operand.of(self.text));
            all.flat_map(|operand| values(operand).take(MOST_ARGUMENTS)).collect()
        };
        let back = passed(true);
        passed(false).iter().filter(|value| own(value)).any(|value| back.contains(value))
    }

    /// Returns the value that an edge passes to argument `index`, with `%`.
    fn passed(&self, operand: Span, index: usize) -> Option<&[u8]> {
        let text = operand.of(self.text);
        let open = find(text, 0, b'(')?;
        let colon = find(text, open, b':')?;
        let value = text[open + 1..colon].split(|b| *b == b',').nth(index)?.trim_ascii();
        let whole = value.first() == Some(&b'%') && name_end(value, 1) == value.len();
        whole.then_some(value)
    }

    /// Returns the operands of `%name = op …`, up to the colon, or `None` if another operation
    /// defines `name`.
    fn operands(&self, name: &[u8], op: &[u8]) -> Option<&[u8]> {
        let statement = self.blocks.defined.get(name)?.of(self.text);
        let rest = statement.get(name.len()..)?.trim_ascii_start().strip_prefix(b"=")?;
        let rest = rest.trim_ascii_start().strip_prefix(op)?;
        let end = find(rest, 0, b':')?;
        Some(rest[..end].trim_ascii())
    }

    /// Returns what `next` adds to `value`, and whether the result is known not to wrap.
    fn step(&self, next: &[u8], value: &[u8]) -> Option<(i64, bool)> {
        let operands = self.operands(next, b"llvm.add ")?;
        let (first, second) = two(operands)?;
        let exact = operands.windows(8).any(|window| window == b"overflow");
        let other = match (first == value, second == value) {
            (true, false) => second,
            (false, true) => first,
            _ => return None,
        };
        Some((self.constant(other)?, exact))
    }

    fn constant(&self, name: &[u8]) -> Option<i64> {
        let inside = self.operands(name, b"llvm.mlir.constant(")?;
        std::str::from_utf8(inside).ok()?.parse().ok()
    }

    /// Returns the iterations of each hit of the chosen loops, if the text determines them.
    pub fn trip_counts(&self, choice: &Choice, counters: &[Option<Counter>]) -> Vec<Option<u64>> {
        let mut exits = vec![(0_u32, NONE); self.loops.all.len()];
        for from in 0..self.blocks.body.blocks.len() as u32 {
            for edge in self.blocks.body.leaving(from) {
                let inner = self.loops.innermost[from as usize];
                let mut at = choice.nearest.get(inner as usize).copied().unwrap_or(NONE);
                while at != NONE && !self.loops.contains(at, edge.to) {
                    exits[at as usize].0 += 1;
                    exits[at as usize].1 = from;
                    at = choice.parent(self.loops, at);
                }
            }
        }
        // For each chosen loop: whether it, or a loop inside of it, calls a function. A call can
        // end the loop, because the called function might never return (`crate::trips`).
        let mut calls = vec![false; self.loops.all.len()];
        for (block, inner) in self.blocks.body.blocks.iter().zip(&self.loops.innermost) {
            let mut at = choice.nearest.get(*inner as usize).copied().unwrap_or(NONE);
            if at == NONE || calls[at as usize] || !calls_out(block.text.of(self.text)) {
                continue;
            }
            while at != NONE && !calls[at as usize] {
                calls[at as usize] = true;
                at = choice.parent(self.loops, at);
            }
        }
        let chosen = choice.loops.iter().zip(counters);
        chosen
            .map(|(l, counter)| match exits[*l as usize] {
                (1, from) if !calls[*l as usize] => self.trips(*l, from, counter.as_ref()?),
                _ => None,
            })
            .collect()
    }

    /// Returns how many iterations each hit of a loop has, if the text determines it. The loop's
    /// only exit is in block `from`.
    fn trips(&self, l: u32, from: u32, counter: &Counter) -> Option<u64> {
        let header = self.loops.all[l as usize].header;
        let body = &self.blocks.body;
        let [first, second] = body.leaving(from) else { return None };
        let latch = [first, second].iter().any(|edge| edge.to == header);
        if from != header && !(latch && counter.latches == 1) {
            return None;
        }
        let terminator = body.blocks[from as usize].terminator.of(self.text);
        let condition = terminator.strip_prefix(b"llvm.cond_br ")?.trim_ascii_start();
        let condition = &condition[..name_end(condition, 1.min(condition.len()))];
        let operands = self.operands(condition, b"llvm.icmp ")?.strip_prefix(b"\"")?;
        let quote = find(operands, 0, b'"')?;
        let (predicate, (value, limit)) = (&operands[..quote], two(&operands[quote + 1..])?);
        let start = i128::from(self.constant(counter.start.as_bytes())?);
        let step = i128::from(counter.step);
        let at = match value {
            value if value == counter.value.as_bytes() => start,
            value if value == counter.next.as_bytes() => start + step,
            _ => return None,
        };
        let limit = i128::from(self.constant(limit)?);
        let passed = passes(predicate, self.loops.contains(l, first.to), at, limit, step)?;
        let last = from != header || counter.whole;
        u64::try_from(passed + i128::from(last)).ok()
    }
}

/// Returns the values that an edge passes: `^bb2(%a, %b : i64, f32)`.
fn values(operand: &[u8]) -> impl Iterator<Item = &[u8]> {
    let open = find(operand, 0, b'(').map_or(operand.len(), |open| open + 1);
    let end = find(operand, open, b':').unwrap_or(open);
    operand[open..end].split(|b| *b == b',').map(<[u8]>::trim_ascii)
}

fn stores_or_calls(block: &[u8]) -> bool {
    let works = [
        &b"llvm.store "[..],
        b"llvm.call ",
        b"llvm.invoke ",
        b"llvm.inline_asm ",
        b"llvm.atomicrmw ",
        b"llvm.cmpxchg ",
        b"llvm.fence ",
        b"\"llvm.intr.mem",
        b"llvm.intr.masked.store ",
    ];
    block.split(|b| *b == b'\n').any(|line| {
        let has = |name: &[u8]| line.windows(name.len()).any(|part| part == name);
        works.iter().any(|name| has(name))
    })
}

fn two(operands: &[u8]) -> Option<(&[u8], &[u8])> {
    let comma = find(operands, 0, b',')?;
    let first = operands[..comma].trim_ascii();
    let rest = operands[comma + 1..].trim_ascii_start();
    let second = &rest[..name_end(rest, 1.min(rest.len()))];
    Some((first, second))
}
/// Returns whether a block calls a function other than an intrinsic.
fn calls_out(block: &[u8]) -> bool {
    let is_call = |line: &[u8]| {
        let operation = [&b"llvm.call "[..], b"llvm.invoke "];
        operation.iter().any(|name| line.windows(name.len()).any(|part| part == *name))
    };
    block.split(|b| *b == b'\n').any(|line| {
        let called = line.iter().position(|b| *b == b'@').map(|at| &line[at..]);
        is_call(line) && !called.is_some_and(|name| name.starts_with(b"@llvm."))
    })
}
