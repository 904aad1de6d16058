//! Inserts hooks into a function of MLIR: code that records the start and end of each execution of
//! a function or loop.

use std::fmt::Write;

use abi::loops::Mode;

use crate::choice::Choice;
use crate::dominators::{Dominators, NONE};
use crate::edit::Edits;
use crate::function::Terminator;
use crate::hooks::Hook;
use crate::loops::Loops;
use crate::scan::Span;

use super::body::Blocks;
use super::hooks::Hooks;
use super::iterations::Counter;
use super::read::Function;

/// A function that is to be rewritten.
pub struct Work<'a> {
    pub text: &'a [u8],
    /// The function.
    pub definition: &'a Function,
    /// The function's blocks.
    pub blocks: &'a Blocks,
    /// The function's dominators.
    pub dominators: &'a Dominators,
    /// The function's loops.
    pub loops: &'a Loops,
    /// Says whether the function itself is instrumented, and which of its loops are.
    pub choice: &'a Choice,
    /// The function's hook, if the function has an id.
    pub function: Option<Hook>,
    /// One hook for each element of [`Choice::loops`].
    pub hooks: &'a [Hook],
    /// For each element of `hooks`: the counter of its loop, if there is one.
    pub counters: &'a [Option<Counter>],
    /// The functions that hooks call.
    pub calls: &'a Hooks,
}

const TOO_MANY: &str = "its edges leave too many loops at once";

#[derive(Debug, Default)]
struct Lines {
    out: String,
    next: u32,
}

impl Lines {
    fn line(&mut self, operation: std::fmt::Arguments) {
        let _ = write!(self.out, "\n          {operation} loc(unknown)");
    }

    fn value(&mut self, operation: std::fmt::Arguments) -> String {
        self.next += 1;
        let name = format!("%cpt.v{}", self.next);
        let _ = write!(self.out, "\n          {name} = {operation} loc(unknown)");
        name
    }
}

impl Work<'_> {
    /// Writes the changes. An error says why the function is left unchanged.
    pub fn rewrite(&self, edits: &mut Edits) -> Result<(), &'static str> {
        let body = &self.blocks.body;
        let limit = 64 + 8 * (body.edges.len() + body.blocks.len());
        let mut count = 0;
        for from in 0..body.blocks.len() as u32 {
            for edge in body.leaving(from) {
                count += self.choice.loops_left(self.loops, from, edge.to).take(limit + 1).count();
                if count > limit {
                    return Err(TOO_MANY);
                }
            }
        }
        let mut lines = Lines::default();
        self.entry(&mut lines);
        edits.insert(body.entry, &lines.out);
        self.returns(edits);
        self.edges(&mut lines, edits);
        Ok(())
    }

    /// Returns the hook of a chosen loop, and its counter.
    fn hook(&self, l: u32) -> Option<(&Hook, Option<&Counter>)> {
        let i = self.choice.loops.binary_search(&l).ok()?;
        Some((self.hooks.get(i)?, self.counters.get(i)?.as_ref()))
    }

    /// Writes the code at the function's start: constants, stack memory (for hits, and for the
    /// times of inner loops), and a call that returns the thread's table. If the function has an
    /// id, its hit (execution) begins there.
    fn entry(&self, lines: &mut Lines) {
        let one = "llvm.mlir.constant(1 : i64) : i64";
        lines.line(format_args!("%cpt.one = {one}"));
        for (name, value) in [("yes", "true"), ("no", "false")] {
            lines.line(format_args!("%cpt.{name} = llvm.mlir.constant({value}) : i1"));
        }
        lines.line(format_args!("%cpt.unknown = llvm.mlir.constant(-1 : i64) : i64"));
        lines.line(format_args!("%cpt.null = llvm.mlir.zero : !llvm.ptr"));
        for hook in self.function.iter().chain(self.hooks) {
            let id = hook.id;
            lines.line(format_args!("%cpt.i{id} = llvm.mlir.constant({id} : i32) : i32"));
            lines.line(format_args!(
                "%cpt.k{id} = llvm.alloca %cpt.one x !llvm.array<3 x i64> : (i64) -> !llvm.ptr"
            ));
            if hook.slot {
                lines.line(format_args!(
                    "%cpt.s{id} = llvm.alloca %cpt.one x i64 : (i64) -> !llvm.ptr"
                ));
            }
        }
        let enter = &self.calls.enter;
        lines.line(format_args!("%cpt.table = llvm.call {enter}() : () -> !llvm.ptr"));
        if let Some(hook) = &self.function {
            self.begin(hook, lines);
        }
    }

    fn begin(&self, hook: &Hook, lines: &mut Lines) {
        let (id, child, counters) = (hook.id, child(hook), flag(hook.counters));
        lines.line(format_args!(
            "llvm.call {}(%cpt.table, %cpt.i{id}, %cpt.k{id}, {child}, {counters}) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i1) -> ()",
            self.calls.begin
        ));
    }

    fn end(&self, hook: &Hook, iterations: Option<&str>, lines: &mut Lines) {
        if self.calls.mode == Mode::Count && iterations.is_none() {
            return;
        }
        let (id, child, counters) = (hook.id, child(hook), flag(hook.counters));
        let parent = match hook.parent {
            Some(parent) => format!("%cpt.s{parent}"),
            None => "%cpt.null".to_owned(),
        };
        let iterations = iterations.unwrap_or("%cpt.unknown");
        lines.line(format_args!(
            "llvm.call {}(%cpt.table, %cpt.i{id}, %cpt.k{id}, {child}, {parent}, {iterations}, {counters}) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i1) -> ()",
            self.calls.end
        ));
    }

    /// Writes new blocks for the edges into and out of chosen loops.
    fn edges(&self, lines: &mut Lines, edits: &mut Edits) {
        let body = &self.blocks.body;
        lines.out.clear();
        let mut block = 0;
        for from in (0..body.blocks.len() as u32).filter(|from| self.dominators.reached(*from)) {
            for edge in body.leaving(from) {
                let entered = self.choice.loop_entered(self.loops, from, edge.to);
                let mut left = self.choice.loops_left(self.loops, from, edge.to).peekable();
                if entered == NONE && left.peek().is_none() {
                    continue;
                }
                block += 1;
                edits.replace(edge.operand, &format!("^cpt.e{block}"));
                let _ = write!(lines.out, "\n        ^cpt.e{block}:");
                for (l, (hook, counter)) in left.filter_map(|l| Some((l, self.hook(l)?))) {
                    let from_header = from == self.loops.all[l as usize].header;
                    let iterations = counter.map(|c| at_exit(c, from_header, lines));
                    self.end(hook, iterations.as_deref(), lines);
                }
                if let Some((hook, _)) = self.hook(entered) {
                    self.begin(hook, lines);
                }
                let target = String::from_utf8_lossy(edge.operand.of(self.text));
                lines.line(format_args!("llvm.br {target}"));
            }
        }
        if block > 0 {
            // The blocks are inserted before the blanks in front of the closing brace.
            let inside = Span { start: self.definition.body.start, end: self.definition.body.end };
            let kept = inside.of(self.text).trim_ascii_end().len() as u32;
            edits.insert(inside.start + kept, &lines.out);
        }
    }

    /// Ends the function's hit (execution) before each return that control can reach.
    fn returns(&self, edits: &mut Edits) {
        let Some(hook) = &self.function else { return };
        for (i, block) in self.blocks.body.blocks.iter().enumerate() {
            if block.end == Terminator::Return && self.dominators.reached(i as u32) {
                let mut lines = Lines::default();
                self.end(hook, None, &mut lines);
                if !lines.out.is_empty() {
                    let before = &self.text[..block.terminator.start as usize];
                    let blanks = before.iter().rev().take_while(|b| **b == b' ').count();
                    let call = lines.out.trim_start();
                    edits
                        .insert(block.terminator.start, &format!("{call}\n{}", " ".repeat(blanks)));
                }
            }
        }
    }
}

/// Writes the computation of the number of iterations, for an edge out of a loop. Returns the name
/// of the result, an `i64`.
fn at_exit(counter: &Counter, from_header: bool, lines: &mut Lines) -> String {
    let Counter { value, bits, start, step, whole, .. } = counter;
    let (upper, lower) = if *step > 0 { (value, start) } else { (start, value) };
    let mut count = lines.value(format_args!("llvm.sub {upper}, {lower} : i{bits}"));
    if *bits < 64 {
        count = lines.value(format_args!("llvm.zext {count} : i{bits} to i64"));
    }
    let stride = step.unsigned_abs();
    if stride > 1 {
        let by = lines.value(format_args!("llvm.mlir.constant({} : i64) : i64", stride as i64));
        count = lines.value(format_args!("llvm.udiv {count}, {by} : i64"));
    }
    if !from_header || *whole {
        count = lines.value(format_args!("llvm.add {count}, %cpt.one : i64"));
    }
    count
}

/// Returns the slot (a word of the stack) to which the loops inside add their times, or a null
/// pointer if there is no slot.
fn child(hook: &Hook) -> String {
    if hook.slot { format!("%cpt.s{}", hook.id) } else { "%cpt.null".to_owned() }
}

fn flag(set: bool) -> &'static str {
    if set { "%cpt.yes" } else { "%cpt.no" }
}
