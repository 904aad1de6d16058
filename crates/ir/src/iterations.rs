//! Computes the number of iterations of a loop from a value that the loop has anyway: a phi node of
//! the header that begins at a known value and changes by a constant. The phi node's value at the
//! end of the loop gives the number of iterations, without any work inside the loop. The phi node
//! is an integer, or a pointer that moves over an array.
//!
//! An iteration is one run of the loop's body as it is in the text; a vectorised body counts as
//! one. If the header only decides (`while`), its last run is not counted. If the header works
//! ([`crate::header`]), or if the loop is left in the body or after it, the last run is counted,
//! even if it was left in the middle.

use std::collections::HashMap;

use crate::function::Body;
use crate::header::{Uses, definition, stores_or_calls};
use crate::hooks::Writer;
use crate::loops::Loops;
use crate::phi::{Incoming, incoming};
use crate::scan::{Span, Token, Tokens, name};

/// The unit of a counter's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// An integer of this many bits, at most 64.
    Integer(u32),
    /// A pointer, with the type of its elements as in the text.
    Pointer(String),
}

/// A value that counts the iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The phi node, with `%`.
    pub value: String,
    /// The counter's type.
    pub unit: Unit,
    /// The first value, as in the text.
    pub start: String,
    /// What each iteration adds, in `unit`. It is not 0.
    pub step: i64,
    /// The name (with `%`) of the value that the phi node gets from inside of the loop.
    pub next: String,
    /// The number of edges back to the header.
    pub latches: u32,
    /// Whether the last run of the header is an iteration, too, because the header works or has an
    /// edge to itself.
    pub whole: bool,
}

/// The largest number of elements by which a pointer may move in each iteration. A pointer that
/// moves by more could wrap around within a day.
const LARGEST_STRIDE: u64 = 1 << 16;

impl Counter {
    /// Writes the computation of the number of iterations, for an edge out of the loop. Returns the
    /// name of the result, an `i64`.
    pub fn at_exit(&self, writer: &mut Writer, from_header: bool) -> Option<String> {
        let Self { value, unit, start, step, whole, .. } = self;
        let (from, to) = if *step > 0 { (start, value) } else { (value, start) };
        let stride = step.unsigned_abs();
        let mut count = match unit {
            Unit::Integer(bits) => {
                let difference = writer.value(format_args!("sub i{bits} {to}, {from}"));
                match bits {
                    64 => difference,
                    _ => writer.value(format_args!("zext i{bits} {difference} to i64")),
                }
            }
            Unit::Pointer(_) => {
                let [to, from] =
                    [to, from].map(|p| writer.value(format_args!("ptrtoint ptr {p} to i64")));
                writer.value(format_args!("sub i64 {to}, {from}"))
            }
        };
        match unit {
            Unit::Integer(_) if stride == 1 => {}
            Unit::Integer(_) => count = writer.value(format_args!("udiv i64 {count}, {stride}")),
            Unit::Pointer(element) => {
                // Only LLVM knows the size of a type. An empty type counts as size 1, because a
                // division by 0 would kill the program.
                let second =
                    writer.value(format_args!("getelementptr {element}, ptr null, i64 {stride}"));
                let size = writer.value(format_args!("ptrtoint ptr {second} to i64"));
                let empty = writer.value(format_args!("icmp eq i64 {size}, 0"));
                let size = writer.value(format_args!("select i1 {empty}, i64 1, i64 {size}"));
                count = writer.value(format_args!("udiv i64 {count}, {size}"));
            }
        }
        if !from_header || *whole {
            count = writer.value(format_args!("add i64 {count}, 1"));
        }
        Some(count)
    }
}

/// Looks for counters in the loops of one function.
pub struct Search<'a> {
    pub text: &'a [u8],
    /// The blocks of the function.
    pub body: &'a Body,
    /// The function's blocks by name.
    pub names: &'a HashMap<&'a [u8], u32>,
    /// The function's loops.
    pub loops: &'a Loops,
    /// How much of the function the search may still read: bytes of blocks and phi nodes, and
    /// entries of `uses`. This limit makes the time of all searches linear in the length of the
    /// function.
    pub budget: usize,
    /// The uses of values; `None` until they are needed.
    pub uses: Option<Uses<'a>>,
}

struct Step<'a> {
    constant: i64,
    /// Whether the result is known not to wrap.
    exact: bool,
    /// The type of the elements, if a pointer moves.
    element: Option<&'a [u8]>,
}

impl<'a> Search<'a> {
    /// Finds the counter of a loop.
    pub fn counter(&mut self, l: u32) -> Option<Counter> {
        let header = self.loops.all[l as usize].header;
        let body = self.body;
        body.phis_of(header).iter().find_map(|phi| self.phi(l, header, *phi))
    }

    fn phi(&mut self, l: u32, header: u32, phi: Span) -> Option<Counter> {
        self.budget = self.budget.checked_sub((phi.end - phi.start) as usize)?;
        let Phi { value, kind, start, next, latches, rotated } = self.read(l, header, phi)?;
        let bits = match kind {
            b"ptr" => 64,
            kind => std::str::from_utf8(kind.strip_prefix(b"i")?).ok()?.parse().ok()?,
        };
        if !(2..=64).contains(&bits) || !plain_value(start) {
            return None;
        }
        let step = self.step(l, header, next, value)?;
        let unit = match step.element {
            Some(element) => Unit::Pointer(String::from_utf8(element.to_vec()).ok()?),
            None => Unit::Integer(bits),
        };
        if (kind == b"ptr") != matches!(unit, Unit::Pointer(_)) {
            return None;
        }
        // A value that wraps around does not tell the number of iterations. A 64-bit value that
        // changes by one would need too long to wrap around.
        let certain = match unit {
            Unit::Integer(_) => step.exact || (bits == 64 && step.constant.unsigned_abs() == 1),
            Unit::Pointer(_) => step.constant.unsigned_abs() <= LARGEST_STRIDE,
        };
        if step.constant == 0 || !certain {
            return None;
        }
        Some(Counter {
            value: String::from_utf8(value.to_vec()).ok()?,
            unit,
            start: String::from_utf8(start.to_vec()).ok()?,
            step: step.constant,
            next: String::from_utf8(next.to_vec()).ok()?,
            latches,
            whole: rotated || self.works(l, header, phi)?,
        })
    }

    /// Reads a phi node, if it gets the same value on all edges into the loop, and the same name on
    /// all edges back.
    fn read(&self, l: u32, header: u32, phi: Span) -> Option<Phi<'a>> {
        let mut tokens = Tokens::new(self.text, phi);
        let (_, value) = tokens.next().filter(|(token, _)| *token == Token::Local)?;
        let kind = tokens.nth(2).map(|(_, kind)| kind.of(self.text))?;
        // The type of a pointer of another address space has more words before the bracket, so its
        // phi node is refused.
        tokens.next().filter(|(token, _)| *token == Token::Mark(b'['))?;
        let (mut start, mut next): (Option<&[u8]>, Option<&[u8]>) = (None, None);
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
            }
        }
        let (start, next) = (start?, next.filter(|next| next.first() == Some(&b'%'))?);
        Some(Phi { value: value.of(self.text), kind, start, next, latches, rotated })
    }

    /// Returns whether the header works ([`crate::header`]), or false if no edge leads from the
    /// header out of the loop. `None` if that would take too long to find out.
    fn works(&mut self, l: u32, header: u32, counter: Span) -> Option<bool> {
        let body = self.body;
        if body.leaving(header).iter().all(|edge| self.loops.contains(l, edge.to)) {
            return Some(false); // Nobody asks: it does not leave the loop.
        }
        let block = body.blocks[header as usize].text;
        self.budget = self.budget.checked_sub((block.end - block.start) as usize)?;
        if stores_or_calls(block.of(self.text)) {
            return Some(true);
        }
        for phi in body.phis_of(header).iter().filter(|phi| **phi != counter) {
            self.budget = self.budget.checked_sub((phi.end - phi.start) as usize)?;
            let Some(Phi { value, next, .. }) = self.read(l, header, *phi) else { continue };
            self.budget = self.budget.checked_sub((block.end - block.start) as usize)?;
            let Some(line) = definition(self.text, block, next) else { continue };
            if line.starts_with(b"phi ") || constant_step(line, value).is_some() {
                continue;
            }
            let (text, loops) = (self.text, self.loops);
            let blocks = self.uses.get_or_insert_with(|| Uses::of(text, body)).blocks(next);
            self.budget = self.budget.checked_sub(blocks.len())?;
            if blocks.iter().any(|block| !loops.contains(l, *block)) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Returns the step from `value` to `next`, if a block of the loop defines `next` as `value`
    /// plus a constant.
    fn step(&mut self, l: u32, header: u32, next: &[u8], value: &[u8]) -> Option<Step<'a>> {
        let (text, body) = (self.text, self.body);
        let blocks = self.uses.get_or_insert_with(|| Uses::of(text, body)).blocks(next);
        self.budget = self.budget.checked_sub(blocks.len())?;
        for block in blocks.iter().copied().chain([header]) {
            if !self.loops.contains(l, block) {
                continue;
            }
            let span = body.blocks[block as usize].text;
            self.budget = self.budget.checked_sub((span.end - span.start) as usize)?;
            if let Some(line) = definition(text, span, next) {
                return constant_step(line, value);
            }
        }
        None
    }
}

struct Phi<'a> {
    value: &'a [u8],
    kind: &'a [u8],
    /// The value from outside of the loop.
    start: &'a [u8],
    /// The value from inside of the loop, with `%`.
    next: &'a [u8],
    /// The number of edges from inside of the loop.
    latches: u32,
    /// Whether one of the edges that `latches` counts is from the header itself.
    rotated: bool,
}

/// Returns the step if the definition in `line` adds a constant to `value` or subtracts one from
/// it.
fn constant_step<'a>(line: &'a [u8], value: &[u8]) -> Option<Step<'a>> {
    let tokens: Vec<(Token, Span)> =
        Tokens::new(line, Span::new(0, line.len())).take(MOST_TOKENS).collect();
    let word = |i: usize| tokens.get(i).map(|(_, span)| span.of(line));
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<i64>().ok();
    let flags = |of: &[&[u8]]| {
        let all = tokens.iter().skip(1);
        all.take_while(|(_, s)| of.contains(&s.of(line))).count()
    };
    let negative = match word(0)? {
        b"add" => false,
        b"sub" => true,
        b"getelementptr" => {
            // `TYPE, ptr %value, i64 NUMBER`.
            let first = 1 + flags(&[b"inbounds", b"nuw", b"nusw"]);
            let comma = top_comma(&tokens, first)?;
            let element = tokens.get(first)?.1.start..tokens.get(comma)?.1.start;
            let element = line[element.start as usize..element.end as usize].trim_ascii_end();
            let is_one = word(comma + 1) == Some(b"ptr")
                && word(comma + 2) == Some(value)
                && word(comma + 6).is_none_or(|more| more.first() == Some(&b'!') || more == b",")
                && word(comma + 7).is_none_or(|more| more.first() == Some(&b'!'));
            let constant = number(word(comma + 5)?)?;
            return is_one.then_some(Step { constant, exact: true, element: Some(element) });
        }
        _ => return None,
    };
    let flags = flags(&[b"nuw", b"nsw"]);
    let operands = (word(flags + 2)?, word(flags + 4)?);
    let constant = match operands {
        (first, second) if first == value => second,
        (first, second) if second == value && !negative => first,
        _ => return None,
    };
    let constant = number(constant)?;
    let constant = if negative { constant.checked_neg()? } else { constant };
    Some(Step { constant, exact: flags > 0, element: None })
}

/// Returns the index of the first comma outside of brackets, at or after token `from`.
fn top_comma(tokens: &[(Token, Span)], from: usize) -> Option<usize> {
    let mut depth = 0_u32;
    tokens.iter().enumerate().skip(from).find_map(|(i, (token, _))| {
        match token {
            Token::Mark(b'(' | b'[' | b'{' | b'<') => depth += 1,
            Token::Mark(b')' | b']' | b'}' | b'>') => depth = depth.saturating_sub(1),
            Token::Mark(b',') if depth == 0 => return Some(i),
            _ => {}
        }
        None
    })
}

/// At most this many tokens of a definition are read. This leaves room for element types of several
/// tokens.
const MOST_TOKENS: usize = 64;

/// Returns whether a value is a number, `null`, or a name.
fn plain_value(value: &[u8]) -> bool {
    match value {
        b"null" | [b'%' | b'@', ..] => true,
        [b'-', digits @ ..] | digits => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
    }
}
