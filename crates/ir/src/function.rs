//! Reads the body of a function as blocks.

use std::collections::HashMap;

use crate::dominators::Graph;
use crate::error::IrError;
use crate::module::Definition;
use crate::scan::{Cursor, Place, Span, Token, Tokens, find, is_plain, name, plain_end};

/// The kind of instruction that ends a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terminator {
    /// No known terminator.
    #[default]
    None,
    /// `br`, `switch`, `invoke`, `callbr` and others whose labels can be replaced.
    Jump,
    /// `ret`.
    Return,
    /// `indirectbr`, whose targets are addresses of blocks.
    Indirect,
    /// `resume` and `unreachable`.
    Leave,
    /// `catchswitch`, `catchret` or `cleanupret`.
    Funclet,
}

/// A basic block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// The label in the text, without the colon. It is empty for an entry block without a label.
    pub label: Span,
    /// The block's text, from after the label to the end of the last statement.
    pub text: Span,
    /// First and last line, from 1.
    pub lines: [u32; 2],
    /// A range of [`Body::phis`].
    pub phis: (u32, u32),
    /// Whether an exception may enter this block; also set for every block that ends with an
    /// instruction of [`Terminator::Funclet`].
    pub pad: bool,
    pub end: Terminator,
    /// The statement that ends the block.
    pub terminator: Span,
    /// Offset of the call that must stay directly before the `ret`, if any.
    pub last_call: Option<u32>,
    /// A range of [`Body::edges`].
    pub edges: (u32, u32),
}

/// An edge between blocks.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Index of the target.
    pub to: u32,
    /// The operand for the target, with its `%`.
    pub operand: Span,
}

/// A call, an `invoke` or a `callbr`.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The statement.
    pub text: Span,
}

/// The blocks of a function. A `Body` is used again for the next function, which saves allocations.
#[derive(Debug, Default)]
pub struct Body {
    /// The blocks in the order of the text; the first one is the entry.
    pub blocks: Vec<Block>,
    /// The phi nodes of all blocks.
    pub phis: Vec<Span>,
    /// The edges of all blocks.
    pub edges: Vec<Edge>,
    /// The calls of all blocks.
    pub calls: Vec<Call>,
    /// LLVM's directives about the order of uses (`uselistorder`). The directives are removed,
    /// because they would be wrong after a change.
    pub use_orders: Vec<Span>,
    /// Offset after the last `alloca` of constant size in the entry block, or that block's start.
    pub entry: u32,
    /// Whether the module declares `@llvm.experimental.deoptimize`, whose calls must stay directly
    /// before `ret`.
    pub deoptimizes: bool,
    /// Why the function is left unchanged, if it is.
    pub strange: Option<String>,
}

impl Body {
    pub fn read<'a>(
        &mut self,
        text: &'a [u8],
        definition: &Definition,
        names: &mut HashMap<&'a [u8], u32>,
    ) -> Result<(), IrError> {
        self.clear();
        names.clear();
        let mut cursor = Cursor {
            text: &text[..definition.body.end as usize + 1],
            at: definition.body.start as usize,
            line: definition.body_line,
        };
        self.entry = definition.body.start;
        let mut open = false;
        loop {
            cursor.blank()?;
            let Some(byte) = cursor.peek() else { break };
            if byte == b'}' {
                break;
            }
            let (start, line) = (cursor.at, cursor.line);
            if let Some(label) = label(cursor.text, start) {
                self.end_block(open);
                cursor.at = label.end as usize + 1;
                self.begin_block(label, cursor.at, line);
                if self.blocks.len() == 1 {
                    self.entry = cursor.at as u32;
                }
                open = true;
                let index = self.blocks.len() as u32 - 1;
                let key = match label.of(text) {
                    // A quoted label.
                    [b'"', ..] => name(label.of(text)),
                    bare => bare,
                };
                if std::str::from_utf8(key).is_err() {
                    self.strange(|| "the name of a block is not UTF-8".to_owned());
                }
                if names.insert(key, index).is_some() {
                    self.strange(|| format!("two blocks are named {}", show(key)));
                }
                continue;
            }
            let end = cursor.statement(Place::Body)?;
            let statement = Span::new(start, end);
            if byte == b'#' {
                continue;
            }
            let op = operation(cursor.text, statement);
            if !open {
                if !self.blocks.is_empty() && !op.of(text).starts_with(b"uselistorder") {
                    self.strange(|| "a block has no label".to_owned());
                }
                if self.blocks.is_empty() {
                    self.begin_block(Span::default(), start, line);
                    self.entry = definition.body.start;
                }
            }
            open = self.statement(text, statement, op, open || self.blocks.len() == 1);
            if let Some(block) = self.blocks.last_mut() {
                let extra = cursor.text[start..end].iter().filter(|b| **b == b'\n').count();
                block.lines[1] = line + extra as u32;
                block.text.end = end as u32;
            }
        }
        self.end_block(open);
        if self.blocks.is_empty() {
            self.strange(|| "it has no blocks".to_owned());
        }
        self.resolve(text, names).map_err(|(line, why)| IrError::Branch {
            line,
            function: show(definition.name.of(text)),
            why,
        })
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.phis.clear();
        self.edges.clear();
        self.calls.clear();
        self.use_orders.clear();
        self.strange = None;
    }

    fn strange(&mut self, why: impl FnOnce() -> String) {
        self.strange.get_or_insert_with(why);
    }

    fn begin_block(&mut self, label: Span, at: usize, line: u32) {
        let phis = self.phis.len() as u32;
        self.blocks.push(Block {
            label,
            text: Span::new(at, at),
            lines: [line, line],
            phis: (phis, phis),
            ..Block::default()
        });
    }

    /// Ends a block. `open` says that the block's last statement is not a known terminator. The
    /// function is then left unchanged.
    fn end_block(&mut self, open: bool) {
        if open {
            self.strange(|| "a block does not end with a known terminator".to_owned());
        }
    }

    /// Adds a statement, and returns whether its block continues.
    fn statement(&mut self, text: &[u8], span: Span, op: Span, open: bool) -> bool {
        let funclets = || "it has funclets (exceptions of Windows)".to_owned();
        let entry = self.blocks.len() == 1;
        let Some(block) = self.blocks.last_mut() else { return false };
        let word = op.of(text);
        let end = match word {
            b"phi" => {
                self.phis.push(span);
                block.phis.1 = self.phis.len() as u32;
                return open;
            }
            b"landingpad" | b"cleanuppad" | b"catchpad" => {
                block.pad = true;
                if word != b"landingpad" {
                    self.strange(funclets);
                }
                return open;
            }
            b"alloca" => {
                if entry && is_static(text, span, op) {
                    self.entry = span.end;
                }
                return open;
            }
            b"tail" | b"musttail" | b"notail" | b"call" => {
                if word == b"musttail"
                    || self.deoptimizes && mentions(span.of(text), b"@llvm.experimental.deoptimize")
                {
                    block.last_call = Some(span.start);
                }
                self.calls.push(Call { text: span });
                return open;
            }
            b"uselistorder" | b"uselistorder_bb" => {
                self.use_orders.push(span);
                return false;
            }
            b"br" | b"switch" => Terminator::Jump,
            b"invoke" | b"callbr" => {
                self.calls.push(Call { text: span });
                Terminator::Jump
            }
            b"ret" => Terminator::Return,
            b"indirectbr" => Terminator::Indirect,
            b"resume" | b"unreachable" => Terminator::Leave,
            b"catchswitch" | b"catchret" | b"cleanupret" => {
                block.pad = true;
                Terminator::Funclet
            }
            _ => return open,
        };
        block.end = end;
        block.terminator = span;
        if end == Terminator::Funclet {
            self.strange(funclets);
        }
        false
    }

    /// Finds the targets of the terminators. For a malformed terminator, the error contains its
    /// line and its defect. Such a text is refused, because no compiler would read it, and a hook
    /// on a wrong edge would count wrongly.
    fn resolve<'a>(
        &mut self,
        text: &'a [u8],
        names: &HashMap<&'a [u8], u32>,
    ) -> Result<(), (u32, String)> {
        for i in 0..self.blocks.len() {
            let block = self.blocks[i];
            let malformed = |why: String| Err((block.lines[1], why));
            let from = self.edges.len() as u32;
            if matches!(block.end, Terminator::Jump | Terminator::Indirect | Terminator::Funclet) {
                let mut after_label = false;
                let mut labels = 0;
                for (token, operand) in Tokens::new(text, block.terminator) {
                    if after_label && token == Token::Local {
                        match names.get(name(operand.of(text))) {
                            Some(to) if *to > 0 => self.edges.push(Edge { to: *to, operand }),
                            Some(_) => return malformed("it goes to the entry block".to_owned()),
                            None => {
                                let to = show(operand.of(text));
                                return malformed(format!("there is no block {to}"));
                            }
                        }
                    }
                    after_label = token == Token::Word && operand.of(text) == b"label";
                    labels += usize::from(after_label);
                }
                let targets = self.edges.len() - from as usize;
                let expected = expected_targets(text, block.terminator);
                if targets != labels || !expected.contains(&targets) {
                    return malformed(match targets {
                        1 => "it has 1 target".to_owned(),
                        targets => format!("it has {targets} targets"),
                    });
                }
            }
            self.blocks[i].edges = (from, self.edges.len() as u32);
        }
        Ok(())
    }

    pub fn leaving(&self, block: u32) -> &[Edge] {
        let (from, to) = self.blocks[block as usize].edges;
        &self.edges[from as usize..to as usize]
    }

    /// Returns the phi nodes of a block.
    pub fn phis_of(&self, block: u32) -> &[Span] {
        let (from, to) = self.blocks[block as usize].phis;
        &self.phis[from as usize..to as usize]
    }

    /// Returns the graph of the blocks, in which two edges between the same blocks are both
    /// present.
    pub fn graph(&self) -> Graph {
        let mut starts = Vec::with_capacity(self.blocks.len() + 1);
        starts.extend(self.blocks.iter().map(|block| block.edges.0));
        starts.push(self.edges.len() as u32);
        Graph { starts, targets: self.edges.iter().map(|edge| edge.to).collect() }
    }
}

/// Returns how many targets a terminator may have.
fn expected_targets(text: &[u8], terminator: Span) -> std::ops::RangeInclusive<usize> {
    match operation(text, terminator).of(text) {
        b"br" => {
            let first = Tokens::new(text, terminator).nth(1);
            let plain = first.is_some_and(|(_, word)| word.of(text) == b"label");
            if plain { 1..=1 } else { 2..=2 }
        }
        b"invoke" => 2..=2,
        // The default target comes before the list.
        b"switch" => {
            let mut before =
                Tokens::new(text, terminator).take_while(|(t, _)| *t != Token::Mark(b'['));
            if before.any(|(_, word)| word.of(text) == b"label") { 1..=usize::MAX } else { 0..=0 }
        }
        b"callbr" => 1..=usize::MAX,
        _ => 0..=usize::MAX,
    }
}

/// Converts a name to a string for messages.
pub fn show(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the label that begins at offset `at`, if there is one, without its colon.
fn label(text: &[u8], at: usize) -> Option<Span> {
    let end = match text[at] {
        b'"' => find(text, at + 1, b'"')? + 1,
        byte if is_plain(byte) => plain_end(text, at),
        _ => return None,
    };
    (text.get(end) == Some(&b':')).then(|| Span::new(at, end))
}

/// Returns the keyword of a statement.
fn operation(text: &[u8], statement: Span) -> Span {
    let (start, end) = (statement.start as usize, statement.end as usize);
    let text = &text[..end];
    let mut at = start;
    if text.get(at) == Some(&b'%') {
        at = match text.get(at + 1) {
            Some(b'"') => find(text, at + 2, b'"').map_or(end, |quote| quote + 1),
            _ => plain_end(text, at + 1),
        };
        while matches!(text.get(at), Some(b' ' | b'\t' | b'=')) {
            at += 1;
        }
    }
    Span::new(at, plain_end(text, at))
}

fn mentions(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

/// Returns whether the size of an `alloca` is constant: it has no number of elements, or a constant
/// one.
fn is_static(text: &[u8], statement: Span, op: Span) -> bool {
    let rest = Span { start: op.end, end: statement.end };
    let mut depth = 0_u32;
    let mut after_comma = false;
    for (token, _) in Tokens::new(text, rest) {
        match token {
            Token::Mark(b'(' | b'[' | b'{' | b'<') => depth += 1,
            Token::Mark(b')' | b']' | b'}' | b'>') => depth = depth.saturating_sub(1),
            Token::Mark(b',') if depth == 0 => after_comma = true,
            // A local name before the comma belongs to the type; a local name after it is the
            // number of elements.
            Token::Local if after_comma && depth == 0 => return false,
            _ => {}
        }
    }
    true
}
