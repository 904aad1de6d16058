//! Finds which function each call in a function's machine code reaches.
//!
//! A direct call names the address of the called function or of a *stub*. A stub jumps to the
//! address in a slot, such as an entry of the GOT. An indirect call is followed if its address is a
//! constant, or was loaded from a slot.

use std::collections::BTreeMap;

use crate::graph::{Code, Reader};
use crate::image::Image;
use crate::insn::{Flow, Insn};
use crate::values::{Value, World};

/// Returns, by the address of each call, the address of the called function; calls whose target is
/// unknown are left out.
pub fn find(code: &Code, world: &World, image: &Image) -> BTreeMap<u64, u64> {
    let mut reader = Reader::new(image);
    let mut found = BTreeMap::new();
    code.walk(world, |_, _, insn, state| {
        let callee = match (insn.flow, state.callee(world, insn)) {
            // In an object file, a relocation may contain the target of a call. If that relocation
            // was not applied, the call seems to reach the next instruction.
            (Flow::Call(to), _) if to != insn.end() => Some(through_stub(&mut reader, image, to)),
            (Flow::CallTo(_), Some(Value::Number(to))) => Some(to),
            (Flow::CallTo(_), Some(Value::InMemory(slot))) => image.in_slot(slot),
            _ => None,
        };
        found.extend(callee.map(|callee| (insn.at, callee)));
    });
    found
}

/// Returns the address of the called function: `to`, or, if `to` is a stub whose slot is known, the
/// address in the slot.
fn through_stub(reader: &mut Reader<'_>, image: &Image, to: u64) -> u64 {
    // A stub may begin with `endbr64`, which marks the targets of indirect jumps.
    let first = reader.at(to);
    let second = first.filter(is_mark).and_then(|insn| reader.at(insn.end()));
    let slot = [first, second].into_iter().flatten().find_map(|insn| match insn.flow {
        Flow::JumpTo(None) => {
            let memory =
                insn.memory.filter(|m| m.base.is_none() && m.index.is_none() && !m.strange)?;
            Some(memory.displacement as u64)
        }
        _ => None,
    });
    slot.and_then(|slot| image.in_slot(slot)).unwrap_or(to)
}

/// Returns whether an instruction neither writes registers, accesses memory nor jumps.
fn is_mark(insn: &Insn) -> bool {
    insn.flow == Flow::Next && insn.writes == 0 && insn.memory.is_none()
}
