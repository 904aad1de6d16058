//! Describes in words what a loop of the machine code does, from the instructions alone, without
//! those of hooks. `docs/loops.md` states the rules. What depends on values at run time is not
//! described, such as whether data is in a cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::graph::Reader;
use crate::image::{Function, Image, Machine};
use crate::insn::{Class, Flow, Insn, Op, Register};
use crate::region::{MachineLoop, Region, Regions};
use crate::x86::{self, Arithmetic, Detail};

const STACK: Register = 4;
/// At most this many instructions of a loop are looked at.
const MOST: usize = 4096;
/// Names of functions with more bytes than this are left out.
const LONGEST_NAME: usize = 60;

/// Describes an id's code in one line, if the machine is x86-64 and the code was found and has a
/// loop. The code's vectors are compared with vectors of `widest` bits, usually
/// [`Regions::widest`].
pub fn words(image: &Image, regions: &Regions, id: u32, widest: u32) -> Option<String> {
    if image.machine != Machine::X86 {
        return None;
    }
    let region = regions.found.get(&id)?;
    let innermost: Vec<&MachineLoop> = region.loops.iter().filter(|l| l.innermost).collect();
    let width = |l: &&&MachineLoop| (l.counts.vectors, l.counts.instructions);
    let main = innermost.iter().max_by_key(width)?;
    let mut said = String::new();
    if innermost.len() > 1 {
        let _ =
            write!(said, "of {} innermost loops, that at {:#x}: ", innermost.len(), main.header);
    }
    said.push_str(&Facts::of(image, regions, region, main).say(widest));
    Some(said)
}

/// How an operand's address changes in each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stride {
    /// By this many bytes.
    Bytes(i64),
    /// By the value of a register.
    Register,
    /// An instruction that reads memory sets or changes a register of the address.
    Loaded,
    /// In a way that is not followed.
    Unknown,
}

/// Operands whose addresses have the same registers.
#[derive(Debug, Default)]
struct Group {
    count: u64,
    /// The bytes of all operands together.
    bytes: u64,
    /// The bytes of the largest operand.
    each: u64,
}

/// The arithmetic through which a register's value at the end of an iteration depends on its value
/// at the start.
#[derive(Clone, Debug, Default)]
struct Chain {
    kinds: BTreeSet<Arithmetic>,
    /// The number of arithmetic instructions that wait for one another.
    length: u32,
    /// How many numbers each of these instructions computes side by side; `None` if its name does
    /// not show it.
    lanes: BTreeSet<Option<u32>>,
}

#[derive(Debug, Default)]
struct Facts {
    /// The number of arithmetic instructions on floating-point numbers and vectors, by the vectors'
    /// bits (0 for scalars).
    arithmetic: BTreeMap<u32, u64>,
    /// The number of arithmetic instructions in general registers, without those that only count.
    integer: u64,
    /// The chains from iteration to iteration.
    chains: Vec<Chain>,
    loads: BTreeMap<(Stride, Place), Group>,
    stores: BTreeMap<(Stride, Place), Group>,
    /// The numbers of operands that are read and written at a constant offset from the stack
    /// pointer.
    spilled: [u64; 2],
    gathers: u64,
    scatters: u64,
    /// The number of calls by the name of the called function. The name is empty if it is unknown,
    /// too long, or not plain ASCII.
    calls: BTreeMap<String, u64>,
    /// The number of calls of an address that is not known before the program runs.
    indirect: u64,
    /// Whether an iteration executes each instruction once.
    straight: bool,
}

/// The registers of an address.
type Place = (Option<Register>, Option<(Register, u8)>);

impl Facts {
    fn of(image: &Image, regions: &Regions, region: &Region, l: &MachineLoop) -> Self {
        let mut facts = Self { straight: l.straight, ..Self::default() };
        let insns = instructions(image, region, l);
        let steps = steps(&insns);
        for (insn, detail) in &insns {
            facts.add(insn, detail, &steps);
            facts.add_call(image, regions.callees.get(&insn.at).copied(), insn);
        }
        if l.straight {
            facts.chains = chains(&insns, &steps);
        }
        facts
    }

    fn add(&mut self, insn: &Insn, detail: &Detail, steps: &Steps) {
        let has = |bit: u16| insn.class.bits & bit != 0;
        match detail.arithmetic {
            Some(Arithmetic::Integer) => self.integer += 1,
            Some(_) => *self.arithmetic.entry(detail.bits).or_default() += 1,
            None => {}
        }
        self.gathers += u64::from(detail.is_gather && has(Class::LOAD));
        self.scatters += u64::from(detail.is_gather && has(Class::STORE));
        let Some(memory) = insn.memory.filter(|_| !detail.is_gather) else { return };
        if memory.base == Some(STACK) && memory.index.is_none() {
            self.spilled[0] += u64::from(memory.read);
            self.spilled[1] += u64::from(memory.written);
            return;
        }
        let stride = match (memory.strange, self.straight) {
            (true, _) | (_, false) => Stride::Unknown,
            _ => steps.of(memory.base, memory.index),
        };
        let place = (memory.base, memory.index);
        let both = [
            (memory.read, insn.class.loaded, &mut self.loads),
            (memory.written, insn.class.stored, &mut self.stores),
        ];
        for (_, bytes, groups) in both.into_iter().filter(|(is_used, ..)| *is_used) {
            let group = groups.entry((stride, place)).or_default();
            group.count += 1;
            group.bytes += u64::from(bytes);
            group.each = group.each.max(bytes.into());
        }
    }

    /// Adds a call. `callee` is the called function's first address, if known.
    fn add_call(&mut self, image: &Image, callee: Option<u64>, insn: &Insn) {
        match (insn.flow, callee) {
            (Flow::CallTo(_), None) => self.indirect += 1,
            (Flow::Call(_) | Flow::CallTo(_), _) => {
                let is_start = |function: &&Function| Some(function.start) == callee;
                let found = callee.and_then(|callee| image.function_at(callee)).filter(is_start);
                let name = found.map_or("", |function| function.name.as_str());
                let is_plain = |c: char| c.is_ascii_graphic();
                let known = name.len() <= LONGEST_NAME && name.chars().all(is_plain);
                *self.calls.entry(if known { name } else { "" }.to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn say(&self, widest: u32) -> String {
        let mut parts = vec![self.kind()];
        parts.extend(self.chain());
        parts.extend(accesses("loads", &self.loads));
        parts.extend(counted(self.gathers, "gather"));
        parts.extend(accesses("stores", &self.stores));
        parts.extend(counted(self.scatters, "scatter"));
        let [read, written] = self.spilled;
        let spilled = [counted(read, "load"), counted(written, "store")];
        let spilled: Vec<String> = spilled.into_iter().flatten().collect();
        if !spilled.is_empty() {
            parts.push(format!("{} of values on the stack", spilled.join(" and ")));
        }
        for (name, calls) in &self.calls {
            let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
            parts.extend(counted(*calls, "call").map(|calls| calls + &of));
        }
        parts.extend(counted(self.indirect, "indirect call"));
        if !self.straight {
            parts.push("branches inside".to_owned());
        }
        let mut said = parts.join(", ");
        let all: u64 = self.arithmetic.values().sum();
        if all > 0 {
            let own = self.arithmetic.keys().next_back().copied().unwrap_or(0);
            let bits = widest.max(own).max(128);
            let wide = self.arithmetic.get(&bits).copied().unwrap_or(0);
            let use_of = if all == 1 { "instruction uses" } else { "instructions use" };
            let _ = write!(said, "; {wide} of {all} arithmetic {use_of} vectors of {bits} bits");
        }
        said
    }

    fn kind(&self) -> String {
        let vectors: Vec<u32> = self.arithmetic.keys().copied().filter(|bits| *bits > 0).collect();
        let scalar = self.arithmetic.contains_key(&0);
        match (vectors.last(), scalar) {
            (Some(bits), false) => format!("vectors of {bits} bits"),
            (Some(bits), true) => format!("vectors of {bits} bits and scalars"),
            (None, true) => "scalar".to_owned(),
            (None, false) if self.integer > 0 => "integers in general registers".to_owned(),
            (None, false) => "no arithmetic".to_owned(),
        }
    }

    fn chain(&self) -> Option<String> {
        if !self.straight || self.arithmetic.is_empty() && self.chains.is_empty() {
            return None;
        }
        let all = self.chains.iter().flat_map(|chain| &chain.kinds);
        let kinds: BTreeSet<Arithmetic> = all.copied().collect();
        let longest = self.chains.iter().map(|chain| chain.length).max().unwrap_or(0);
        // In a chain of several additions, the terms are added one after the other.
        let is_sum = kinds.iter().eq([&Arithmetic::Add]) && longest > 1;
        let in_order = match is_sum {
            true => format!(", {longest} of them one after the other in each iteration"),
            false => String::new(),
        };
        // The sums in the lanes of one register are computed together, and are one chain.
        let lanes = self.chains.iter().flat_map(|chain| &chain.lanes);
        let lanes: BTreeSet<Option<u32>> = lanes.copied().collect();
        let same = lanes.first().copied().flatten().filter(|n| lanes.len() == 1 && *n > 1);
        let at_once = same.map_or(String::new(), |n| format!(" of {n} numbers at once"));
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let of = kinds.join(" and ") + &at_once + &in_order;
        Some(match self.chains.len() {
            0 => "no chain from iteration to iteration".to_owned(),
            1 => format!("one dependent chain of {of}"),
            n => format!("{n} independent chains of {of}"),
        })
    }
}

/// Returns a number with its noun, such as `1 call` or `2 calls`, or `None` for 0.
fn counted(n: u64, one: &str) -> Option<String> {
    let end = if n == 1 { "" } else { "s" };
    (n > 0).then(|| format!("{n} {one}{end}"))
}

fn accesses(what: &str, groups: &BTreeMap<(Stride, Place), Group>) -> Vec<String> {
    let mut said: BTreeSet<String> = BTreeSet::new();
    for ((stride, _), group) in groups {
        said.insert(match stride {
            Stride::Bytes(0) => format!("{what} at the same address"),
            Stride::Bytes(n) if n.unsigned_abs() == group.bytes => {
                format!("{what} one after the other")
            }
            Stride::Bytes(n) if n.unsigned_abs() < group.bytes => {
                format!("{what} that overlap those of the next iteration")
            }
            Stride::Bytes(n) => format!("{what} with a stride of {} bytes", grouped(*n)),
            Stride::Register => format!("{what} with a stride that is in a register"),
            Stride::Loaded => format!("{what} at addresses that it loads"),
            Stride::Unknown => format!("{what} at addresses that are not followed"),
        });
    }
    said.into_iter().collect()
}

/// Writes a number with a comma before each group of three digits.
fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut said = if n < 0 { "-".to_owned() } else { String::new() };
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            said.push(',');
        }
        said.push(digit);
    }
    said
}

/// Returns a loop's instructions from its header on, without those of hooks.
fn instructions(image: &Image, region: &Region, l: &MachineLoop) -> Vec<(Insn, Detail)> {
    let mut reader = Reader::new(image);
    let mut all = Vec::new();
    for range in &l.ranges {
        let mut at = range.start;
        while at < range.end && all.len() < MOST {
            let Some(insn) = reader.at(at) else { break };
            let detail = image.code(at).and_then(|bytes| x86::detail(bytes, at));
            if let Some(detail) = detail.filter(|_| !region.hooks.contains(&at)) {
                all.push((insn, detail));
            }
            at = insn.end();
        }
    }
    let header = all.iter().position(|(insn, _)| insn.at == l.header).unwrap_or(0);
    all.rotate_left(header);
    all
}

/// How each general register changes in an iteration.
#[derive(Debug, Default)]
struct Steps(BTreeMap<Register, Stride>);

fn steps(insns: &[(Insn, Detail)]) -> Steps {
    let written = insns.iter().fold(0, |all, (insn, _)| all | insn.writes);
    let mut steps = BTreeMap::new();
    for (insn, detail) in insns {
        for register in (0..16).filter(|r| insn.writes & 1 << r != 0) {
            let step = match (insn.op, detail.step) {
                (Op::Add(to, from, n), _) if to == register && from == to => Stride::Bytes(n),
                (_, Some(n)) => Stride::Bytes(n),
                (Op::Sum(to, a, b), _) if to == register && (a == to || b == to) => {
                    let other = if a == to { b } else { a };
                    match written & 1 << other {
                        0 => Stride::Register,
                        _ => Stride::Unknown,
                    }
                }
                _ if insn.memory.is_some_and(|memory| memory.read) => Stride::Loaded,
                _ => Stride::Unknown,
            };
            let known = steps.entry(register).or_insert(Stride::Bytes(0));
            *known = match (*known, step) {
                (Stride::Bytes(a), Stride::Bytes(b)) => Stride::Bytes(a.wrapping_add(b)),
                (known, step) => known.max(step),
            };
        }
    }
    Steps(steps)
}

impl Steps {
    fn register(&self, register: Option<Register>) -> Stride {
        register.and_then(|r| self.0.get(&r)).copied().unwrap_or(Stride::Bytes(0))
    }

    fn of(&self, base: Option<Register>, index: Option<(Register, u8)>) -> Stride {
        let scale = index.map_or(1, |(_, scale)| i64::from(scale));
        match (self.register(base), self.register(index.map(|(r, _)| r))) {
            (Stride::Bytes(a), Stride::Bytes(b)) => {
                Stride::Bytes(a.wrapping_add(b.wrapping_mul(scale)))
            }
            (a, b) => a.max(b),
        }
    }
}

/// Finds the chains from iteration to iteration. A register has a chain if its value at the end of
/// an iteration is computed by arithmetic from its value at the start, and if it does not only
/// count.
fn chains(insns: &[(Insn, Detail)], steps: &Steps) -> Vec<Chain> {
    type Origin = BTreeMap<u8, Chain>;
    // For each register: from which registers' values at the start of the iteration its value was
    // computed, and by what arithmetic.
    let mut from: BTreeMap<u8, Origin> = BTreeMap::new();
    for (_, detail) in insns {
        let mut origin = Origin::new();
        for register in (0..64u8).filter(|r| detail.reads & 1 << r != 0) {
            let own = Origin::from([(register, Chain::default())]);
            for (first, chain) in from.get(&register).unwrap_or(&own) {
                let known = origin.entry(*first).or_default();
                known.kinds.extend(&chain.kinds);
                known.length = known.length.max(chain.length);
                known.lanes.extend(&chain.lanes);
            }
        }
        if let Some(kind) = detail.arithmetic {
            for chain in origin.values_mut() {
                chain.kinds.insert(kind);
                chain.length += 1;
                chain.lanes.insert(detail.lanes);
            }
        }
        for register in (0..64u8).filter(|r| detail.writes & 1 << r != 0) {
            from.insert(register, origin.clone());
        }
    }
    let is_counter =
        |r: u8| r < 16 && matches!(steps.0.get(&r), Some(Stride::Bytes(_) | Stride::Register));
    let carried = from.iter().filter(|(register, _)| !is_counter(**register));
    carried
        .filter_map(|(register, origin)| origin.get(register))
        .filter(|chain| !chain.kinds.is_empty())
        .cloned()
        .collect()
}
