//! The control-flow graph of a function in machine code. It contains the instructions that control
//! can reach from the function's start.
//!
//! A call is assumed to return, unless the function ends with it. A jump to the beginning of
//! another function leaves this one. A jump through a table is followed if the table is found.
//! Otherwise the jump counts as unknown, and code that only this jump reaches is missing.

use std::collections::{BTreeMap, BTreeSet};

use ir::dominators::{Dominators, Graph};
use ir::loops::Loops;

use crate::error::CodeError;
use crate::image::{Image, Machine};
use crate::insn::{Flow, Insn};
use crate::values::{State, Value, World};
use crate::x86::X86;
use crate::{arm, x86};

/// The largest number of instructions of one function.
const MOST_INSNS: usize = 1 << 18;
/// The largest number of stack slots whose values are remembered, added up over all blocks of a
/// function.
const MOST_SLOTS: usize = 1 << 22;
/// The largest number of entries of a jump table.
const MOST_JUMPS: u64 = 4096;
/// A function is read at most this often. Its code is read again whenever new jump tables were
/// found.
const MOST_ROUNDS: usize = 8;

/// A basic block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The index of the first instruction.
    pub first: usize,
    /// The index after that of the last instruction.
    pub end: usize,
}

/// A function in machine code.
#[derive(Clone, Debug)]
pub struct Code {
    /// The instructions, sorted by address.
    pub insns: Vec<Insn>,
    /// The basic blocks, sorted by address.
    pub blocks: Vec<Block>,
    /// The blocks and their successors. Node 0 is an additional node before the entry block, so
    /// block `i` is node `i + 1`.
    pub graph: Graph,
    /// The same graph with reversed edges.
    pub reversed: Graph,
    pub dominators: Dominators,
    pub loops: Loops,
    /// The values of registers and stack slots at the start of each block; `None` if control does
    /// not reach the block.
    pub states: Vec<Option<State>>,
    /// The number of jumps whose targets are not known.
    pub unknown_jumps: usize,
    /// The block that control enters first.
    pub entry: usize,
}

/// Decodes instructions of an image.
pub struct Reader<'a> {
    image: &'a Image,
    x86: X86,
}

impl<'a> Reader<'a> {
    pub fn new(image: &'a Image) -> Self {
        Self { image, x86: X86::default() }
    }

    /// Returns the instruction at an address, if there is one.
    pub fn at(&mut self, address: u64) -> Option<Insn> {
        let bytes = self.image.code(address)?;
        match self.image.machine {
            Machine::X86 => self.x86.decode(bytes, address),
            Machine::Arm if address.is_multiple_of(4) => arm::decode(bytes, address),
            Machine::Arm => None,
        }
    }

    /// Returns an instruction's text.
    pub fn text(&self, insn: &Insn) -> String {
        let bytes = self.image.code(insn.at).unwrap_or_default();
        let text = match self.image.machine {
            Machine::X86 => x86::text(bytes, insn.at),
            Machine::Arm => arm::text(bytes, insn.at),
        };
        text.unwrap_or_else(|| "(bad)".to_owned())
    }
}

impl Code {
    /// Reads the function at `start`.
    pub fn read(image: &Image, world: &World, start: u64) -> Result<Self, CodeError> {
        let mut tables: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for _ in 0..MOST_ROUNDS {
            let found = image.function_at(start).map(|f| (f.start, f.end));
            let insns = reach(image, start, found, &tables)?;
            let mut code = Self::blocks(insns, start, found, image, &tables);
            code.interpret(world)?;
            let new = code.jumps(image, world, found, &tables);
            if new.is_empty() {
                return Ok(code);
            }
            tables.extend(new);
        }
        Err(CodeError::TooLarge {
            what: "nest of jump tables",
            size: MOST_ROUNDS as u64,
            unit: "levels",
        })
    }

    fn blocks(
        insns: Vec<Insn>,
        start: u64,
        own: Option<(u64, u64)>,
        image: &Image,
        tables: &BTreeMap<u64, Vec<u64>>,
    ) -> Self {
        let mut leaders = BTreeSet::from([start]);
        for (i, insn) in insns.iter().enumerate() {
            leaders.extend(targets(insn, tables));
            let ends = !matches!(insn.flow, Flow::Next | Flow::Call(_) | Flow::CallTo(_));
            let gap = insns.get(i + 1).is_some_and(|next| next.at != insn.end());
            if ends || gap {
                leaders.insert(insn.end());
            }
        }
        let mut blocks: Vec<Block> = Vec::new();
        for (i, insn) in insns.iter().enumerate() {
            match blocks.last_mut() {
                // An instruction that overlaps with the one before it begins a block, too.
                Some(block) if !leaders.contains(&insn.at) && insns[i - 1].end() == insn.at => {
                    block.end = i + 1;
                }
                _ => blocks.push(Block { first: i, end: i + 1 }),
            }
        }
        let at = |address: u64| {
            let found =
                blocks.binary_search_by_key(&address, |block: &Block| insns[block.first].at);
            found.ok().map(|i| i as u32 + 1)
        };
        let mut graph = Graph { starts: vec![0], targets: Vec::new() };
        graph.targets.extend(at(start));
        graph.starts.push(graph.targets.len() as u32);
        for block in &blocks {
            let last = &insns[block.end - 1];
            let mut next: Vec<u32> = targets(last, tables)
                .into_iter()
                .filter(|to| !leaves(*to, own, image))
                .filter_map(at)
                .collect();
            if !matches!(last.flow, Flow::Jump(_) | Flow::JumpTo(_) | Flow::End) {
                next.extend(at(last.end()));
            }
            next.sort_unstable();
            next.dedup();
            graph.targets.extend(next);
            graph.starts.push(graph.targets.len() as u32);
        }
        let reversed = graph.reversed();
        let dominators = Dominators::of(&graph, &reversed);
        let loops = Loops::of(&graph, &reversed, &dominators, |node| [node, node]);
        let entry = at(start).map_or(0, |node| node as usize - 1);
        let states = vec![None; blocks.len()];
        Self { insns, blocks, graph, reversed, dominators, loops, states, unknown_jumps: 0, entry }
    }

    /// Returns the instructions of a block.
    pub fn of(&self, block: usize) -> &[Insn] {
        let Block { first, end } = self.blocks[block];
        &self.insns[first..end]
    }

    /// Returns the blocks that follow a block.
    pub fn after(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.of(block as u32 + 1).iter().map(|node| *node as usize - 1)
    }

    /// Returns the blocks that precede a block.
    pub fn before(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        self.reversed.of(block as u32 + 1).iter().filter(|node| **node > 0).map(|n| *n as usize - 1)
    }

    fn interpret(&mut self, world: &World) -> Result<(), CodeError> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        self.states[self.entry] = Some(State::entry(world));
        let mut work = vec![self.entry];
        let mut slots = 0;
        let mut queued = vec![false; self.blocks.len()];
        // The number of interpreted instructions is limited, because a block is interpreted again
        // after each change of a value. Real functions need a few visits of each block.
        let mut budget = 64 * self.insns.len() + (1 << 16);
        while let Some(block) = work.pop() {
            queued[block] = false;
            let Some(mut state) = self.states[block].clone() else { continue };
            for insn in &self.insns[self.blocks[block].first..self.blocks[block].end] {
                state.step(world, insn);
            }
            budget = budget.checked_sub(self.blocks[block].end - self.blocks[block].first).ok_or(
                CodeError::TooLarge {
                    what: "function",
                    size: self.insns.len() as u64,
                    unit: "instructions",
                },
            )?;
            for node in self.graph.of(block as u32 + 1) {
                let next = *node as usize - 1;
                let changed = match &mut self.states[next] {
                    Some(known) => known.join(&state),
                    unknown => {
                        slots += state.slots();
                        if slots > MOST_SLOTS {
                            return Err(CodeError::TooLarge {
                                what: "stack of a function",
                                size: slots as u64,
                                unit: "slots",
                            });
                        }
                        *unknown = Some(state.clone());
                        true
                    }
                };
                if changed && !std::mem::replace(&mut queued[next], true) {
                    work.push(next);
                }
            }
        }
        Ok(())
    }

    /// Calls `each` for each instruction that control reaches, with its block, its index, the
    /// instruction, and the values before it.
    pub fn walk(&self, world: &World, mut each: impl FnMut(usize, usize, &Insn, &State)) {
        for (block, state) in self.states.iter().enumerate() {
            let Some(mut state) = state.clone() else { continue };
            for (i, insn) in self.of(block).iter().enumerate() {
                each(block, self.blocks[block].first + i, insn, &state);
                state.step(world, insn);
            }
        }
    }

    /// Finds the targets of jumps through tables, unless these targets are known already.
    fn jumps(
        &mut self,
        image: &Image,
        world: &World,
        own: Option<(u64, u64)>,
        known: &BTreeMap<u64, Vec<u64>>,
    ) -> BTreeMap<u64, Vec<u64>> {
        let mut found = BTreeMap::new();
        let mut unknown = 0;
        self.walk(world, |_, _, insn, state| {
            if !matches!(insn.flow, Flow::JumpTo(_)) || known.contains_key(&insn.at) {
                return;
            }
            let (table, bytes) = match state.jump(world, insn) {
                Value::JumpTarget(table) => (table, 4),
                Value::JumpAddress(table) => (table, 8),
                _ => {
                    unknown += 1;
                    return;
                }
            };
            // The table is assumed to end at the first entry that leads out of the function, so the
            // function's size must be known.
            let Some((start, end)) = own.filter(|(start, end)| end > start) else {
                unknown += 1;
                return;
            };
            let entry = |i: u64| {
                let at = image.bytes(table.checked_add(i.checked_mul(bytes)?)?)?;
                let target = match bytes {
                    4 => table.wrapping_add_signed(i32::from_le_bytes(*at.first_chunk()?).into()),
                    _ => u64::from_le_bytes(*at.first_chunk()?),
                };
                (start..end).contains(&target).then_some(target)
            };
            let targets: Vec<u64> = (0..MOST_JUMPS).map_while(entry).collect();
            if targets.is_empty() {
                unknown += 1;
            } else {
                found.insert(insn.at, targets);
            }
        });
        self.unknown_jumps = unknown;
        found
    }
}

/// Returns whether a jump to the address `to` leaves the function, because another function begins
/// there.
fn leaves(to: u64, own: Option<(u64, u64)>, image: &Image) -> bool {
    match own {
        Some((start, end)) if (start..end).contains(&to) => false,
        Some((start, _)) => {
            // Rarely executed parts of a function have their own symbols with `.cold` in the name,
            // but a jump to them stays in the function.
            let is_part = image.function_at(to).is_some_and(|f| f.name.contains(".cold"));
            to != start && image.is_entry(to) && !is_part
        }
        None => image.is_entry(to),
    }
}

fn targets(insn: &Insn, tables: &BTreeMap<u64, Vec<u64>>) -> Vec<u64> {
    match insn.flow {
        Flow::Jump(to) | Flow::Branch(to) => vec![to],
        Flow::JumpTo(_) => tables.get(&insn.at).cloned().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Returns the instructions that control can reach from `start`, sorted by address.
fn reach(
    image: &Image,
    start: u64,
    own: Option<(u64, u64)>,
    tables: &BTreeMap<u64, Vec<u64>>,
) -> Result<Vec<Insn>, CodeError> {
    let mut reader = Reader::new(image);
    let mut insns: BTreeMap<u64, Insn> = BTreeMap::new();
    let mut work = vec![start];
    while let Some(mut at) = work.pop() {
        while !insns.contains_key(&at) {
            let Some(insn) = reader.at(at) else { break };
            if insns.len() == MOST_INSNS {
                return Err(CodeError::TooLarge {
                    what: "function",
                    size: MOST_INSNS as u64,
                    unit: "instructions",
                });
            }
            insns.insert(at, insn);
            work.extend(targets(&insn, tables).into_iter().filter(|to| !leaves(*to, own, image)));
            let ends = matches!(insn.flow, Flow::Jump(_) | Flow::JumpTo(_) | Flow::End);
            // A call at the end of a function may never return, and the code after it may be the
            // next function.
            let at_end = own.is_some_and(|(start, end)| {
                end > start && insn.end() == end
                    || insn.end() != start && image.is_entry(insn.end())
            });
            if ends || at_end {
                break;
            }
            at = insn.end();
        }
    }
    Ok(insns.into_values().collect())
}
