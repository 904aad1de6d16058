//! Inserts hooks into a function of LLVM IR: code that records the start and end of each execution
//! of a function or loop.
//!
//! An edge into or out of a chosen loop gets a new block with the hooks, if control can reach the
//! edge. Edges to landing pads are an exception: a new block is not possible there, so these edges
//! have no hooks. Added names begin with `cpt.`, so that the numbers of unnamed values do not
//! change.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use abi::loops::Mode;

use crate::choice::Choice;
use crate::dominators::{Dominators, Graph, NONE};
use crate::edit::Edits;
use crate::function::{Block, Body, Terminator};
use crate::hit::Print;
use crate::hooks::{Hook, Kept, Writer, slot};
use crate::iterations::Counter;
use crate::loops::Loops;
use crate::phi::incoming;
use crate::scan::{Span, name};

/// The label of the second half of the entry block, which is split.
const TAIL: &str = "cpt.tail";

/// A function that is to be rewritten.
pub struct Work<'a> {
    pub text: &'a [u8],
    /// The function's blocks.
    pub body: &'a Body,
    /// The function's dominators.
    pub dominators: &'a Dominators,
    /// The control-flow graph with reversed edges.
    pub reversed: &'a Graph,
    /// The function's loops.
    pub loops: &'a Loops,
    /// Says whether the function itself is instrumented, and which of its loops are.
    pub choice: &'a Choice,
    /// The function's hook, if the function has an id.
    pub function: Option<Hook>,
    /// One hook for each element of [`Choice::loops`].
    pub hooks: &'a [Hook],
    /// How hits are recorded.
    pub mode: Mode,
    /// For each element of `hooks`: the counter of its loop, if there is one.
    pub counters: &'a [Option<Counter>],
}

/// An edge that was replaced by new blocks with hooks.
struct Split {
    from: u32,
    to: u32,
    first: String,
    last: String,
}

const TOO_MANY: &str = "its edges leave too many loops at once";

impl Work<'_> {
    /// Writes the changes. Afterwards, `writer` holds the text that belongs at the end of the
    /// function. An error says why the function is left unchanged.
    pub fn rewrite(&self, writer: &mut Writer, edits: &mut Edits) -> Result<(), &'static str> {
        let limit = 64 + 8 * (self.body.edges.len() + self.body.blocks.len());
        if self.hook_count(limit) > limit {
            return Err(TOO_MANY);
        }
        writer.restart();
        let mut index = vec![NONE; self.loops.all.len()];
        for (i, l) in self.choice.loops.iter().enumerate() {
            index[*l as usize] = i as u32;
        }
        self.entry(writer, edits);
        self.returns(writer, edits);
        writer.out.push('\n');
        let splits = self.edges(&index, writer, edits);
        self.join(&index, &splits, edits);
        Ok(())
    }

    /// Returns the number of hooks on edges out of loops, or some number above `limit`.
    fn hook_count(&self, limit: usize) -> usize {
        let mut count = 0;
        for from in 0..self.body.blocks.len() as u32 {
            for edge in self.body.leaving(from) {
                count += self.choice.loops_left(self.loops, from, edge.to).take(limit + 1).count();
                if count > limit {
                    return count;
                }
            }
        }
        count
    }

    fn live(&self, from: u32) -> bool {
        self.dominators.reached(from)
    }

    /// Splits the entry block. If the function has an id, its hit (execution) begins between the
    /// two halves.
    fn entry(&self, writer: &mut Writer, edits: &mut Edits) {
        writer.out.push('\n');
        for hook in self.function.iter().chain(self.hooks).filter(|hook| hook.slot) {
            writer.line(format_args!("{} = alloca i64, align 8", slot(hook.id)));
        }
        writer.enter();
        if let Some(hook) = &self.function {
            writer.begin(hook, None);
        }
        writer.line(format_args!("br label %{TAIL}"));
        let _ = write!(writer.out, "{TAIL}:");
        edits.insert(self.body.entry, &writer.out);
        writer.out.clear();
    }

    /// Returns, for each chosen loop, the number of new blocks on edges into the loop.
    fn entries(&self, index: &[u32]) -> Vec<u32> {
        let mut entries = vec![0; self.hooks.len()];
        let mut last_from = vec![NONE; self.body.blocks.len()];
        for from in (0..self.body.blocks.len() as u32).filter(|from| self.live(*from)) {
            for edge in self.body.leaving(from) {
                let l = self.choice.loop_entered(self.loops, from, edge.to);
                if l != NONE && last_from[edge.to as usize] != from {
                    last_from[edge.to as usize] = from;
                    entries[index[l as usize] as usize] += 1;
                }
            }
        }
        entries
    }

    /// Writes the new blocks, and makes the terminators jump to them.
    fn edges(&self, index: &[u32], writer: &mut Writer, edits: &mut Edits) -> Vec<Split> {
        let entries = self.entries(index);
        let mut copies = vec![0_u32; self.hooks.len()];
        let mut splits: Vec<Split> = Vec::new();
        // For each target: the last block with an edge to it, and the split of that edge.
        let mut split_to = vec![(NONE, NONE); self.body.blocks.len()];
        for from in (0..self.body.blocks.len() as u32).filter(|from| self.live(*from)) {
            for edge in self.body.leaving(from) {
                let to = edge.to;
                let known = split_to[to as usize];
                if known.0 == from {
                    if let Some(split) = splits.get(known.1 as usize) {
                        edits.replace(edge.operand, &format!("%{}", split.first));
                    }
                    continue;
                }
                split_to[to as usize] = (from, NONE);
                let entered = self.choice.loop_entered(self.loops, from, to);
                let mut left = self.choice.loops_left(self.loops, from, to).peekable();
                let pad = self.body.blocks[to as usize].pad;
                if pad || (entered == NONE && left.peek().is_none()) {
                    continue;
                }
                let first = format!("cpt.e{}", writer.fresh());
                edits.replace(edge.operand, &format!("%{first}"));
                writer.label(first.clone());
                for l in left {
                    let i = index[l as usize] as usize;
                    let iterations = self.counters[i]
                        .as_ref()
                        .and_then(|c| c.at_exit(writer, from == self.loops.all[l as usize].header));
                    writer.end(&self.hooks[i], iterations.as_deref());
                }
                if entered != NONE {
                    let i = index[entered as usize] as usize;
                    let copy = (entries[i] > 1).then_some(copies[i]);
                    copies[i] += 1;
                    writer.begin(&self.hooks[i], copy);
                }
                let mut target = String::new();
                self.push_name(&mut target, &self.body.blocks[to as usize]);
                writer.line(format_args!("br label {target}"));
                split_to[to as usize] = (from, splits.len() as u32);
                splits.push(Split { from, to, first, last: writer.block.clone() });
            }
        }
        splits
    }

    fn push_name(&self, out: &mut String, block: &Block) {
        out.push('%');
        out.push_str(&String::from_utf8_lossy(block.label.of(self.text)));
    }

    /// Corrects phi nodes, and adds phi nodes for kept values (the values that a hit needs at its
    /// end).
    fn join(&self, index: &[u32], splits: &[Split], edits: &mut Edits) {
        let mut order: Vec<u32> = (0..splits.len() as u32).collect();
        order.sort_by_key(|i| splits[*i as usize].to);
        // For each block, the split of its edge to the block `to`.
        let mut by_from = vec![NONE; self.body.blocks.len()];
        let mut touched: Vec<u32> = splits.iter().map(|split| split.to).collect();
        touched.extend(self.body.leaving(0).iter().map(|edge| edge.to));
        touched.sort_unstable();
        touched.dedup();
        let mut at = 0;
        let names = self.names();
        for to in touched {
            let start = at;
            while at < order.len() && splits[order[at] as usize].to == to {
                by_from[splits[order[at] as usize].from as usize] = order[at];
                at += 1;
            }
            let own = &order[start..at];
            let new_name = |from: u32| match by_from[from as usize] {
                NONE => None,
                split => splits.get(split as usize).map(|split| split.last.as_str()),
            };
            for phi in self.body.phis_of(to) {
                self.phi(*phi, &names, &new_name, edits);
            }
            let l = self.loops.innermost[to as usize];
            if l != NONE && index[l as usize] != NONE && self.loops.all[l as usize].header == to {
                let hook = &self.hooks[index[l as usize] as usize];
                self.header_phis(to, l, hook, own, splits, &by_from, edits);
            }
            for i in own {
                by_from[splits[*i as usize].from as usize] = NONE;
            }
        }
    }

    fn names(&self) -> HashMap<&[u8], u32> {
        let label = |block: &Block| match block.label.of(self.text) {
            quoted @ [b'"', ..] => name(quoted),
            bare => bare,
        };
        self.body.blocks.iter().enumerate().map(|(i, block)| (label(block), i as u32)).collect()
    }

    /// Renames blocks in a phi node. If several edges from one block have become one, one entry is
    /// kept.
    fn phi<'s>(
        &self,
        phi: Span,
        names: &HashMap<&[u8], u32>,
        new_name: &dyn Fn(u32) -> Option<&'s str>,
        edits: &mut Edits,
    ) {
        let mut seen: HashSet<u32> = HashSet::new();
        let mut previous_end = None;
        for incoming in incoming(self.text, phi) {
            // The entry block may have no label, so an unknown name stands for it.
            let from = names.get(name(incoming.block.of(self.text))).copied().unwrap_or(0);
            let new = match new_name(from) {
                Some(new) => {
                    if !seen.insert(from) {
                        if let Some(start) = previous_end {
                            edits.replace(Span { start, end: incoming.whole.end }, "");
                        }
                        previous_end = Some(incoming.whole.end);
                        continue;
                    }
                    Some(new)
                }
                None if from == 0 => Some(TAIL),
                None => None,
            };
            if let Some(new) = new {
                edits.replace(incoming.block, &format!("%{new}"));
            }
            previous_end = Some(incoming.whole.end);
        }
    }

    /// Writes the phi nodes of a header that several edges enter, to select the kept values of the
    /// edge that was taken. `own` are the splits of edges to the header, and `by_from` has the same
    /// splits by source.
    #[expect(clippy::too_many_arguments, reason = "it is a part of `join`, and has its state")]
    fn header_phis(
        &self,
        header: u32,
        l: u32,
        hook: &Hook,
        own: &[u32],
        splits: &[Split],
        by_from: &[u32],
        edits: &mut Edits,
    ) {
        let entering = |i: &&u32| !self.loops.contains(l, splits[**i as usize].from);
        if own.iter().filter(entering).count() < 2 {
            return;
        }
        let mut out = String::new();
        for kept in Kept::of(self.mode, hook) {
            let _ = write!(out, "\n  {} = phi {}", kept.name(hook.id, None), kept.kind());
            let mut separator = ' ';
            for (copy, i) in own.iter().filter(entering).enumerate() {
                let value = kept.name(hook.id, Some(copy as u32));
                let _ = write!(out, "{separator}[ {value}, %{} ]", splits[*i as usize].last);
                separator = ',';
            }
            // An edge back to the header that leaves a chosen inner loop also has a new block.
            for split in own.iter().map(|i| &splits[*i as usize]) {
                if self.loops.contains(l, split.from) {
                    let value = kept.name(hook.id, None);
                    let _ = write!(out, "{separator}[ {value}, %{} ]", split.last);
                    separator = ',';
                }
            }
            for from in self.reversed.of(header) {
                if by_from[*from as usize] != NONE {
                    continue;
                }
                let value = match self.loops.contains(l, *from) {
                    true => kept.name(hook.id, None),
                    false => kept.nothing().to_owned(),
                };
                let _ = write!(out, "{separator}[ {value}, ");
                self.push_name(&mut out, &self.body.blocks[*from as usize]);
                out.push_str(" ]");
                separator = ',';
            }
        }
        out.push('\n');
        edits.insert(self.body.blocks[header as usize].text.start, &out);
    }

    /// Ends the function's hit (execution) before each return that control can reach, or before the
    /// call that must stay directly before that return (`musttail`, for example).
    fn returns(&self, writer: &mut Writer, edits: &mut Edits) {
        let Some(hook) = &self.function else { return };
        for (i, block) in self.body.blocks.iter().enumerate() {
            if block.end == Terminator::Return && self.live(i as u32) {
                writer.end(hook, None);
                let at = block.last_call.unwrap_or(block.terminator.start);
                edits.insert(at, writer.out.trim_start_matches(' '));
                writer.out.clear();
            }
        }
    }
}
