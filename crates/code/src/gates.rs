//! Finds the hooks (the code that instrumentation added) of each id (a loop or function) in the
//! machine code of a function.
//!
//! Each thread has a table in which hooks count: the entry of an id is at `table + id × 128`. Hooks
//! get the table's address from the function `enter`, to which the module's descriptor points. So
//! the search follows the table's address through registers and stack slots ([`crate::values`]).
//! The offset of an access from that address gives the id and the field of the entry. So the
//! machine code needs neither symbols nor debug information.
//!
//! ```text
//!   begin: the block that adds to `hits`      end: the block that adds to `ended`
//!   (mode log: that calls `log` with 0)       (mode count: `iterated`; mode log: calls `log` with 1)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use abi::loops::{Entry, Mode, Module};

use crate::graph::Code;
use crate::insn::{Flow, Op};
use crate::values::{Value, World};

const ENTRY: i64 = size_of::<Entry>() as i64;

/// The hooks of an id in one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// The blocks in which hits (runs of the loop or function) begin.
    pub begins: BTreeSet<usize>,
    /// The blocks in which hits end.
    pub ends: BTreeSet<usize>,
    /// The blocks with hooks of this id.
    pub blocks: BTreeSet<usize>,
}

/// The hooks of a function.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// The hooks of each id.
    pub gates: BTreeMap<u32, Gates>,
    /// Whether each instruction of the function belongs to a hook.
    pub is_hook: Vec<bool>,
}

/// Finds the hooks of a function. The module has `ids` ids.
pub fn find(code: &Code, world: &World, mode: Mode, ids: u32) -> Hooks {
    let mut gates: BTreeMap<u32, Gates> = BTreeMap::new();
    let mut hook_blocks = BTreeSet::new();
    let mut is_hook = vec![false; code.insns.len()];
    let end_field = match mode {
        Mode::Count => offset_of!(Entry, iterated) as i64,
        _ => offset_of!(Entry, ended) as i64,
    };
    let enter_field = offset_of!(Module, enter) as u64;
    code.walk(world, |block, index, insn, state| {
        let address = insn.memory.map(|memory| (state.address(&memory), memory));
        match address {
            Some((Value::Table(at), memory)) if at >= 0 => {
                let (id, field) = ((at / ENTRY) as u64, at % ENTRY);
                let Some(id) = u32::try_from(id).ok().filter(|id| *id < ids) else { return };
                hook_blocks.insert(block);
                let own = gates.entry(id).or_default();
                own.blocks.insert(block);
                if memory.written && field == 0 && mode != Mode::Log {
                    own.begins.insert(block);
                }
                if memory.written && field == end_field && mode != Mode::Log {
                    own.ends.insert(block);
                }
            }
            Some((Value::Number(at), _)) => {
                let field = at.wrapping_sub(world.descriptor);
                if field < size_of::<Module>() as u64 {
                    is_hook[index] = true;
                    // A read of `enter` does not make the whole block a hook: the block is at the
                    // function's start, and also contains the function's own instructions.
                    if field != enter_field {
                        hook_blocks.insert(block);
                    }
                }
            }
            Some((Value::Trips(at), _)) if (0..i64::from(ids) * ENTRY).contains(&at) => {
                hook_blocks.insert(block);
                gates.entry((at / ENTRY) as u32).or_default().blocks.insert(block);
            }
            _ => {}
        }
        if insn.op == Op::Clock {
            hook_blocks.insert(block);
        }
        let Some(callee) = state.callee(world, insn) else { return };
        match callee {
            Value::Enter | Value::Counters => drop(hook_blocks.insert(block)),
            Value::Log => {
                hook_blocks.insert(block);
                let [entry, id, end] = world.arguments().map(|register| state.of(register));
                let id = match (id, entry) {
                    (Value::Number(id), _) => u32::try_from(id & 0xffff_ffff).ok(),
                    (_, Value::Table(at)) => u32::try_from(at / ENTRY).ok(),
                    _ => None,
                };
                let Some(id) = id.filter(|id| *id < ids) else { return };
                let own = gates.entry(id).or_default();
                own.blocks.insert(block);
                match end {
                    Value::Number(0) => drop(own.begins.insert(block)),
                    Value::Number(1) => drop(own.ends.insert(block)),
                    _ => {}
                }
            }
            _ => {}
        }
    });
    // A function in which no hit begins is not instrumented: if it reads the clock, that is for its
    // own purposes.
    if gates.values().all(|gates| gates.begins.is_empty()) {
        return Hooks { gates: BTreeMap::new(), is_hook: vec![false; code.insns.len()] };
    }
    for block in &hook_blocks {
        let range = code.blocks[*block].first..code.blocks[*block].end;
        is_hook[range].iter_mut().for_each(|hook| *hook = true);
        for before in code.before(*block).filter(|before| !hook_blocks.contains(before)) {
            branch_to_hook(code, before, &mut is_hook);
        }
    }
    Hooks { gates, is_hook }
}

/// If `block`, which precedes a hook, ends with a conditional branch, marks the branch and a
/// comparison directly before it as parts of the hook.
fn branch_to_hook(code: &Code, block: usize, is_hook: &mut [bool]) {
    let insns = code.of(block);
    let first = code.blocks[block].first;
    let Some((last, before)) = insns.split_last() else { return };
    if !matches!(last.flow, Flow::Branch(_)) {
        return;
    }
    is_hook[first + before.len()] = true;
    if let Some(test) = before.last()
        && (test.op, test.writes, test.flow) == (Op::Other, 0, Flow::Next)
        && !test.memory.is_some_and(|memory| memory.written)
    {
        is_hook[first + before.len() - 1] = true;
    }
}
