//! How often a loop ran, from a value that it has anyway: a phi node of the header that begins at
//! a known value and changes by a constant. What it has become when the loop is left gives the
//! number of iterations, without any work inside the loop.
//!
//! An iteration is one run of the loop's body, of the loop as the text has it: of the vectorised
//! one, if the text is vectorised. Where the header alone decides whether to go on (`while`), the
//! run of the header that ends the loop is not counted; where the decision is in the body or after
//! it, the last run is counted, even if it was left in the middle.

use std::collections::HashMap;

use crate::function::Body;
use crate::hooks::Writer;
use crate::loops::Loops;
use crate::phi::{Incoming, incoming};
use crate::scan::{Span, Token, Tokens, name};

/// A value that counts the iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The phi node, with `%`.
    pub value: String,
    /// Its type: `i` and this number of bits, at most 64.
    pub bits: u32,
    /// What it begins with, as the text has it.
    pub start: String,
    /// What is added in each iteration; not 0.
    pub step: i64,
    /// What the phi node gets from inside of the loop, with `%`.
    pub next: String,
    /// How many edges go back to the header.
    pub latches: u32,
    /// Whether the header has an edge to itself: then its last run is an iteration, too.
    pub rotated: bool,
}

impl Counter {
    /// Computes the iterations on an edge out of the loop: a value of type `i64`.
    pub fn at_exit(&self, writer: &mut Writer, from_header: bool) -> Option<String> {
        let Self { value, bits, start, step, rotated, .. } = self;
        let difference = match step {
            1.. => writer.value(format_args!("sub i{bits} {value}, {start}")),
            _ => writer.value(format_args!("sub i{bits} {start}, {value}")),
        };
        let mut count = difference;
        if *bits < 64 {
            count = writer.value(format_args!("zext i{bits} {count} to i64"));
        }
        let stride = step.unsigned_abs();
        if stride > 1 {
            count = writer.value(format_args!("udiv i64 {count}, {stride}"));
        }
        if !from_header || *rotated {
            count = writer.value(format_args!("add i64 {count}, 1"));
        }
        Some(count)
    }
}

/// Looks for counters in the loops of one function.
pub struct Search<'a> {
    /// The whole text.
    pub text: &'a [u8],
    /// The blocks of the function.
    pub body: &'a Body,
    /// Its blocks by name.
    pub names: &'a HashMap<&'a [u8], u32>,
    /// Its loops.
    pub loops: &'a Loops,
    /// How many bytes of blocks may still be looked at, so that the time stays linear.
    pub budget: usize,
}

/// An addition of a constant.
struct Step {
    constant: i64,
    /// Whether the result is known not to wrap.
    exact: bool,
}

impl Search<'_> {
    /// The counter of a loop.
    pub fn counter(&mut self, l: u32) -> Option<Counter> {
        let header = self.loops.all[l as usize].header;
        let body = self.body;
        body.phis_of(header).iter().find_map(|phi| self.phi(l, header, *phi))
    }

    fn phi(&mut self, l: u32, header: u32, phi: Span) -> Option<Counter> {
        self.budget = self.budget.checked_sub((phi.end - phi.start) as usize)?;
        let mut tokens = Tokens::new(self.text, phi);
        let (_, counted) = tokens.next().filter(|(token, _)| *token == Token::Local)?;
        let kind = tokens.nth(2).map(|(_, kind)| kind.of(self.text))?;
        let bits: u32 = std::str::from_utf8(kind.strip_prefix(b"i")?).ok()?.parse().ok()?;
        if !(2..=64).contains(&bits) {
            return None;
        }
        let (mut start, mut next): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        let mut latch = None;
        let mut rotated = false;
        let mut latches = 0;
        for Incoming { value, block, .. } in incoming(self.text, phi) {
            let from = self.names.get(name(block.of(self.text))).copied();
            let value = value.of(self.text).trim_ascii();
            let inside = from.is_some_and(|from| self.loops.contains(l, from));
            let known = if inside { &mut next } else { &mut start };
            if known.is_some_and(|known| known != value) {
                return None;
            }
            *known = Some(value);
            if inside {
                latches += 1;
                rotated |= from == Some(header);
                latch = latch.or(from);
            }
        }
        let (start, next, latch) = (start?, next?, latch?);
        if !plain_value(start) || next.first() != Some(&b'%') {
            return None;
        }
        let value = counted.of(self.text);
        let step = self.step(next, value, latch).or_else(|| self.step(next, value, header))?;
        // Without this the value may come around several times; by one it takes an age.
        let certain = step.exact || (bits == 64 && step.constant.unsigned_abs() == 1);
        if step.constant == 0 || !certain {
            return None;
        }
        Some(Counter {
            value: String::from_utf8(value.to_vec()).ok()?,
            bits,
            start: String::from_utf8(start.to_vec()).ok()?,
            step: step.constant,
            next: String::from_utf8(next.to_vec()).ok()?,
            latches,
            rotated,
        })
    }

    /// What `next` adds to `value`, if the block defines it so.
    fn step(&mut self, next: &[u8], value: &[u8], block: u32) -> Option<Step> {
        let span = self.body.blocks[block as usize].text;
        self.budget = self.budget.checked_sub((span.end - span.start) as usize)?;
        let lines = span.of(self.text).split(|b| *b == b'\n');
        let line = lines
            .map(<[u8]>::trim_ascii_start)
            .filter_map(|line| line.strip_prefix(next))
            .find_map(|line| line.strip_prefix(b" = "))?;
        let tokens: Vec<(Token, Span)> =
            Tokens::new(line, Span::new(0, line.len())).take(8).collect();
        let word = |i: usize| tokens.get(i).map(|(_, span)| span.of(line));
        let negative = match word(0)? {
            b"add" => false,
            b"sub" => true,
            _ => return None,
        };
        let flags = tokens.iter().skip(1);
        let flags = flags.take_while(|(_, s)| matches!(s.of(line), b"nuw" | b"nsw")).count();
        let operands = (word(flags + 2)?, word(flags + 4)?);
        let constant = match operands {
            (first, second) if first == value => second,
            (first, second) if second == value && !negative => first,
            _ => return None,
        };
        let constant: i64 = std::str::from_utf8(constant).ok()?.parse().ok()?;
        let constant = if negative { constant.checked_neg()? } else { constant };
        Some(Step { constant, exact: flags > 0 })
    }
}

/// Whether a value is a number, or a local name.
fn plain_value(value: &[u8]) -> bool {
    match value {
        [b'%', ..] => true,
        [b'-', digits @ ..] | digits => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
    }
}
