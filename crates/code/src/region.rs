//! Finds the code of each id, which stands for a loop or function. It is the code that control
//! reaches from the start of a hit (a run of the loop or function) without passing the end of the
//! hit.
//!
//! A region is a list of ranges, because compilers move rarely executed code elsewhere. Its machine
//! loops are the natural loops whose headers it contains. If the compiler did not transform a loop,
//! its region has one machine loop for it, besides those of the loops inside. If the compiler made
//! a vectorised body and a remainder from a loop, the region has two machine loops for it.

use std::collections::{BTreeMap, BTreeSet};

use abi::loops::Mode;

use crate::callees;
use crate::error::CodeError;
use crate::gates::{self, Gates, Hooks};
use crate::graph::Code;
use crate::image::{Image, Machine};
use crate::insn::{Class, Insn};
use crate::values::World;

/// At most this many functions of a module are read.
const MOST_FUNCTIONS: usize = 1 << 16;
/// At most this many instructions of a module are read.
const MOST_INSNS: usize = 1 << 22;
/// A function is left out if the product of its numbers of ids, loops and blocks is larger than
/// this.
const MOST_WORK: usize = 1 << 30;
/// Only ids below this number are listed as missing.
const MOST_IDS: u32 = 1 << 20;

/// The module whose code is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The descriptor's address.
    pub descriptor: u64,
    /// How many ids the module has.
    pub ids: u32,
    /// The mode in which the module records hits.
    pub mode: Mode,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The address after the range.
    pub end: u64,
}

/// Numbers of instructions by class. An instruction may be in several classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All instructions, except those of hooks.
    pub instructions: u64,
    /// The instructions of hooks, which no other number includes.
    pub hooks: u64,
    /// The instructions that read memory operands.
    pub loads: u64,
    /// The instructions that write memory operands.
    pub stores: u64,
    /// Jumps.
    pub branches: u64,
    pub calls: u64,
    /// Scalar floating-point operations.
    pub scalar: u64,
    /// The instructions with vectors of 64, 128, 256 and 512 bits.
    pub vectors: [u64; 4],
    /// The instructions with vectors whose width the processor decides.
    pub scalable: u64,
    /// The instructions in none of these classes.
    pub other: u64,
    /// The bytes that the loads read, if each load runs once.
    pub bytes_loaded: u64,
    /// The bytes that the stores write, if each store runs once.
    pub bytes_stored: u64,
}

impl Counts {
    fn add(&mut self, insn: &Insn, is_hook: bool) {
        if is_hook {
            self.hooks += 1;
            return;
        }
        let Class { bits, loaded, stored } = insn.class;
        let has = |bit: u16| u64::from(bits & bit != 0);
        self.instructions += 1;
        self.loads += has(Class::LOAD);
        self.stores += has(Class::STORE);
        self.branches += has(Class::BRANCH);
        self.calls += has(Class::CALL);
        self.scalar += has(Class::SCALAR);
        let widths = [Class::VECTOR_64, Class::VECTOR_128, Class::VECTOR_256, Class::VECTOR_512];
        for (count, width) in self.vectors.iter_mut().zip(widths) {
            *count += has(width);
        }
        self.scalable += has(Class::SCALABLE);
        self.other += u64::from(bits == 0);
        self.bytes_loaded += u64::from(loaded);
        self.bytes_stored += u64::from(stored);
    }

    fn plus(&mut self, other: &Self) {
        let pairs = [
            (&mut self.instructions, other.instructions),
            (&mut self.hooks, other.hooks),
            (&mut self.loads, other.loads),
            (&mut self.stores, other.stores),
            (&mut self.branches, other.branches),
            (&mut self.calls, other.calls),
            (&mut self.scalar, other.scalar),
            (&mut self.scalable, other.scalable),
            (&mut self.other, other.other),
            (&mut self.bytes_loaded, other.bytes_loaded),
            (&mut self.bytes_stored, other.bytes_stored),
        ];
        pairs.into_iter().for_each(|(own, other)| *own += other);
        self.vectors.iter_mut().zip(other.vectors).for_each(|(own, other)| *own += other);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineLoop {
    /// The header's address.
    pub header: u64,
    /// The number of machine loops of the same region around this one.
    pub depth: u32,
    /// Whether this loop contains no other machine loop.
    pub innermost: bool,
    /// The numbers of instructions, including those of the loops inside.
    pub counts: Counts,
    /// The ranges, by address.
    pub ranges: Vec<Range>,
    /// Whether an iteration executes each of the loop's instructions once, except those of hooks.
    pub straight: bool,
}

/// Why the code of an id is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No code was found that begins a hit of this id: the function was optimised away, or its code
    /// was not read.
    NoBegin,
    /// The end of the hits cannot be found, because nothing is counted there.
    NoEnd,
}

/// The machine code of one id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    pub id: u32,
    /// The ranges, by address.
    pub ranges: Vec<Range>,
    /// Where hits begin: one address for each copy of the loop or function.
    pub begins: Vec<u64>,
    /// The first address of the function that contains the code. Without symbols, it is the address
    /// from which the code was read. If several functions contain code of this id, it is the lowest
    /// of their first addresses.
    pub function: u64,
    /// That function's name; empty without symbols.
    pub name: String,
    /// Outer loops come before inner ones.
    pub loops: Vec<MachineLoop>,
    /// The numbers of instructions of the whole region.
    pub counts: Counts,
    /// The instructions of hooks.
    pub hooks: BTreeSet<u64>,
    /// The number of jumps with unknown targets in the functions that contain the code. Code that
    /// only such a jump reaches is missing.
    pub unknown_jumps: usize,
}

/// The regions of a module.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    /// The ids whose code was found.
    pub found: BTreeMap<u32, Region>,
    /// The ids whose code was not found, except very large ids.
    pub missing: BTreeMap<u32, Missing>,
    /// The first addresses of functions that were not read completely, with the reasons.
    pub failed: Vec<(u64, CodeError)>,
    /// The first addresses of called functions, as far as known, by the addresses of the calls.
    pub callees: BTreeMap<u64, u64>,
    /// The number of bits of the widest vectors in the found code; 0 if it has none with a fixed
    /// width.
    pub widest: u32,
}

/// Finds the code of a module's ids.
pub fn regions(image: &Image, wanted: &Wanted) -> Result<Regions, CodeError> {
    let world = World { machine: image.machine, descriptor: wanted.descriptor };
    let mut all = Regions::default();
    let mut parts: BTreeMap<u32, Vec<Region>> = BTreeMap::new();
    let mut unended = BTreeSet::new();
    let mut budget = MOST_INSNS;
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    let mut read = 0;
    for start in starts(image, wanted.descriptor) {
        if seen.contains(&start) {
            continue;
        }
        let code = match Code::read(image, &world, start) {
            Ok(code) => code,
            Err(why) => {
                all.failed.push((start, why));
                continue;
            }
        };
        read += 1;
        budget = budget.saturating_sub(code.insns.len());
        if budget == 0 || read > MOST_FUNCTIONS {
            let size = (MOST_INSNS - budget) as u64;
            let what = "code of the module";
            all.failed.push((start, CodeError::TooLarge { what, size, unit: "instructions" }));
            break;
        }
        // If the function's start is not known, its code was read from an instruction that reads
        // the descriptor's `enter`. Other instructions of this code that read `enter` are not
        // starts of further functions.
        if image.function_at(start).is_none() {
            seen.extend(code.insns.iter().map(|insn| insn.at));
        }
        let hooks = gates::find(&code, &world, wanted.mode, wanted.ids);
        let loops = 1 + code.loops.all.len();
        let work = hooks.gates.len().saturating_mul(loops).saturating_mul(code.blocks.len());
        if work > MOST_WORK {
            let (what, size) = ("nest of loops", code.insns.len() as u64);
            all.failed.push((start, CodeError::TooLarge { what, size, unit: "instructions" }));
            continue;
        }
        if !hooks.gates.is_empty() {
            all.callees.extend(callees::find(&code, &world, image));
        }
        for (id, gates) in &hooks.gates {
            match region(&code, &hooks, *id, gates, start, image) {
                Some(part) => parts.entry(*id).or_default().push(part),
                None if gates.begins.is_empty() => {}
                None => drop(unended.insert(*id)),
            }
        }
    }
    for (id, parts) in parts {
        all.found.extend(joined(parts).map(|region| (id, region)));
    }
    all.widest = widest(all.found.values());
    for id in (0..wanted.ids.min(MOST_IDS)).filter(|id| !all.found.contains_key(id)) {
        let why = if unended.contains(&id) { Missing::NoEnd } else { Missing::NoBegin };
        all.missing.insert(id, why);
    }
    if all.found.is_empty() && unended.is_empty() && all.failed.is_empty() {
        return Err(CodeError::NoFunction);
    }
    Ok(all)
}

/// Returns the number of bits of the widest vectors in `regions`; 0 if there are none with a fixed
/// width.
fn widest<'a>(regions: impl Iterator<Item = &'a Region>) -> u32 {
    let all = regions
        .map(|region| region.counts.vectors)
        .fold([0; 4], |all, own| std::array::from_fn(|i| all[i] | own[i]));
    let widths = [64, 128, 256, 512].into_iter().zip(all);
    widths.filter(|(_, count)| *count > 0).map(|(bits, _)| bits).max().unwrap_or(0)
}

/// Returns the addresses from which to read the code that refers to the descriptor.
fn starts(image: &Image, descriptor: u64) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let bytes = size_of::<abi::loops::Module>() as u64;
    let is_field = |address: u64| address.wrapping_sub(descriptor) < bytes;
    // The code is read from its function's start or, if no function is known there, from an
    // instruction that reads `enter`.
    let mut take = |place: u64, insn: u64, asks: bool| match image.function_at(place) {
        Some(function) => drop(found.insert(function.start)),
        None if asks => drop(found.insert(insn)),
        None => {}
    };
    let enter = descriptor.wrapping_add(std::mem::offset_of!(abi::loops::Module, enter) as u64);
    for (address, code) in image.pieces() {
        match image.machine {
            Machine::X86 => {
                for (at, four) in code.windows(4).enumerate() {
                    let value = i32::from_le_bytes(four.try_into().unwrap_or_default());
                    let place = address.wrapping_add(at as u64);
                    // A relative address counts from the end of the instruction. An immediate
                    // operand may be between the relative address and the end of the instruction.
                    let relative = place.wrapping_add(4).wrapping_add_signed(value.into());
                    let hit = [0, 1, 4].iter().any(|after| is_field(relative.wrapping_add(*after)));
                    if hit || is_field(value as u32 as u64) {
                        let is_load =
                            at >= 3 && code[at - 2] == 0x8b && code[at - 3] & 0xf8 == 0x48;
                        take(place, place.wrapping_sub(3), is_load && relative == enter);
                    }
                }
                for (at, eight) in code.windows(8).enumerate() {
                    if is_field(u64::from_le_bytes(eight.try_into().unwrap_or_default())) {
                        let place = address.wrapping_add(at as u64);
                        take(place, place.wrapping_sub(2), at >= 2 && code[at - 2] & 0xf8 == 0x48);
                    }
                }
            }
            Machine::Arm => {
                for (i, word) in code.chunks_exact(4).enumerate() {
                    let word = u32::from_le_bytes(word.try_into().unwrap_or_default());
                    if word & 0x1f00_0000 != 0x1000_0000 {
                        continue;
                    }
                    let place = address.wrapping_add(4 * i as u64);
                    let insn = crate::arm::decode(&word.to_le_bytes(), place);
                    if let Some(crate::insn::Op::Set(_, value)) = insn.map(|insn| insn.op) {
                        let is_page = word >> 31 == 1;
                        let pages =
                            [descriptor, descriptor.wrapping_add(bytes - 1)].map(|a| a & !0xfff);
                        if if is_page { pages.contains(&value) } else { is_field(value) } {
                            take(place, place, true);
                        }
                    }
                }
            }
        }
    }
    found
}

/// Returns an id's code in one function. Returns `None` if no hit begins in the function, or if the
/// end of the hits cannot be found although control returns to their begin.
fn region(
    code: &Code,
    hooks: &Hooks,
    id: u32,
    gates: &Gates,
    start: u64,
    image: &Image,
) -> Option<Region> {
    if gates.begins.is_empty() {
        return None;
    }
    let ends = decisions(code, gates);
    let mut inside: BTreeSet<usize> = BTreeSet::new();
    let mut work: Vec<usize> = gates.begins.iter().flat_map(|begin| code.after(*begin)).collect();
    let mut returns_to_begin = false;
    while let Some(block) = work.pop() {
        if gates.begins.contains(&block) {
            returns_to_begin = true;
            continue;
        }
        if !inside.insert(block) || ends.contains(&block) {
            continue;
        }
        work.extend(code.after(block));
    }
    // If no end was found, and the start is reached again, the region would contain everything
    // around the loop.
    if gates.ends.is_empty() && returns_to_begin {
        return None;
    }
    inside.retain(|block| !gates.blocks.contains(block));
    let mut ranges: Vec<Range> = Vec::new();
    let mut counts = Counts::default();
    let mut hook_insns = BTreeSet::new();
    for block in &inside {
        let insns = code.of(*block);
        let (Some(first), Some(last)) = (insns.first(), insns.last()) else { continue };
        for (i, insn) in insns.iter().enumerate() {
            let is_hook = hooks.is_hook[code.blocks[*block].first + i];
            counts.add(insn, is_hook);
            if is_hook {
                hook_insns.insert(insn.at);
            }
        }
        extend(&mut ranges, first.at, last.end());
    }
    let (function, name) = match image.function_at(start) {
        Some(function) => (function.start, function.name.clone()),
        None => (start, String::new()),
    };
    let begins = gates.begins.iter().map(|block| code.of(*block)[0].at).collect();
    let loops = machine_loops(code, hooks, gates, &inside);
    let (hooks, unknown_jumps) = (hook_insns, code.unknown_jumps);
    Some(Region { id, ranges, begins, function, name, loops, counts, hooks, unknown_jumps })
}

fn extend(ranges: &mut Vec<Range>, start: u64, end: u64) {
    match ranges.last_mut() {
        Some(range) if range.end == start => range.end = end,
        _ => ranges.push(Range { start, end }),
    }
}

/// Returns the blocks that decide, at the end of a hit, whether it was timed. The region ends
/// there.
fn decisions(code: &Code, gates: &Gates) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut work: Vec<usize> = gates.ends.iter().copied().collect();
    let mut seen: BTreeSet<usize> = work.iter().copied().collect();
    while let Some(block) = work.pop() {
        for before in code.before(block).filter(|before| !gates.begins.contains(before)) {
            // A block with one successor decides nothing: it just leads to the end.
            if code.after(before).nth(1).is_some() {
                found.insert(before);
            } else if seen.insert(before) {
                work.push(before);
            }
        }
    }
    found
}

fn machine_loops(
    code: &Code,
    hooks: &Hooks,
    gates: &Gates,
    inside: &BTreeSet<usize>,
) -> Vec<MachineLoop> {
    let node = |block: usize| block as u32 + 1;
    let mut found = Vec::new();
    for (l, of) in code.loops.all.iter().enumerate() {
        let l = l as u32;
        let header = of.header as usize - 1;
        // Loops around the region are left out. The header of such a loop can be inside of the
        // region if no end of hits was found.
        let around = gates.begins.iter().any(|begin| code.loops.contains(l, node(*begin)));
        if !inside.contains(&header) || around {
            continue;
        }
        let mut counts = Counts::default();
        let mut straight = of.children == 0;
        let mut ranges = Vec::new();
        for block in inside.iter().filter(|block| code.loops.contains(l, node(**block))) {
            let first = code.blocks[*block].first;
            let insns = code.of(*block);
            if let (Some(first), Some(last)) = (insns.first(), insns.last()) {
                extend(&mut ranges, first.at, last.end());
            }
            for (i, insn) in code.of(*block).iter().enumerate() {
                counts.add(insn, hooks.is_hook[first + i]);
            }
            let last = code.reversed.of(of.header).iter();
            let latches = last.filter(|n| code.loops.contains(l, **n));
            straight &=
                latches.clone().all(|latch| code.dominators.dominates(node(*block), *latch));
        }
        let above = |outer: u32| {
            let of = &code.loops.all[outer as usize];
            inside.contains(&(of.header as usize - 1))
                && !gates.begins.iter().any(|begin| code.loops.contains(outer, node(*begin)))
        };
        let mut depth = 0;
        let mut outer = of.parent;
        while outer != ir::dominators::NONE {
            depth += u32::from(above(outer));
            outer = code.loops.all[outer as usize].parent;
        }
        let innermost = of.children == 0;
        let header = code.of(header)[0].at;
        found.push(MachineLoop { header, depth, innermost, counts, ranges, straight });
    }
    found
}

/// Joins the regions that an id has in several functions to one region.
fn joined(parts: Vec<Region>) -> Option<Region> {
    let mut parts = parts.into_iter();
    let mut first = parts.next()?;
    for part in parts {
        first.ranges.extend(part.ranges);
        first.begins.extend(part.begins);
        first.loops.extend(part.loops);
        first.hooks.extend(part.hooks);
        first.counts.plus(&part.counts);
        first.unknown_jumps += part.unknown_jumps;
    }
    first.ranges.sort_unstable();
    first.begins.sort_unstable();
    Some(first)
}
