//! Computes how much stack a built shared library uses, from its machine code. `tidy/stacks.rs`
//! compares the result with the amount that a library inside another program may use.
//!
//! No flag of stable Rust prints the sizes of frames, and unwind tables lack them for assembly. So
//! the sizes are read from the machine code: the decoder goes once through each reachable
//! instruction of a function. It tracks how far the stack pointer is from its value at the entry,
//! and which registers contain an address on the stack or the address of a function.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use code::insn::{Flow, Insn, Op};
use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionKind, SymbolKind,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A function of this library.
    Inside(u64),
    /// A function of another library.
    Outside(String),
    /// An address that is only known when the program runs.
    Pointer,
}

/// A call, or a jump to another function.
#[derive(Clone, Debug)]
pub struct Call {
    /// The number of bytes that the caller has on the stack when the callee begins. If a call
    /// pushes a return address, it is included.
    pub depth: u64,
    pub callee: Callee,
}

#[derive(Debug)]
pub struct Function {
    pub name: String,
    /// The largest number of bytes of stack that the function uses without its callees.
    pub frame: u64,
    pub calls: Vec<Call>,
}

pub struct Library {
    pub functions: BTreeMap<u64, Function>,
    /// Exported functions, constructors and destructors, by address.
    pub entries: BTreeMap<u64, String>,
    /// Functions whose addresses occur in code or data, so that they can be called through
    /// pointers.
    pub taken: BTreeSet<u64>,
}

impl Library {
    /// Reads a library, which must not be stripped of its symbols.
    pub fn read(path: &Path) -> Result<Self> {
        let what = || format!("read {}", path.display());
        let data = std::fs::read(path).with_context(what)?;
        let file = object::File::parse(data.as_slice()).with_context(what)?;
        let arm = match file.architecture() {
            Architecture::X86_64 => false,
            Architecture::Aarch64 => true,
            other => bail!("{}: frames of {other:?} cannot be read", path.display()),
        };
        let text: Vec<(u64, &[u8])> = file
            .sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .map(|section| Ok((section.address(), section.data()?)))
            .collect::<Result<_>>()
            .with_context(what)?;
        let mut names: BTreeMap<u64, (u64, String)> = BTreeMap::new();
        for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition()) {
            let name = demangled(symbol.name().with_context(what)?);
            let place = names.entry(symbol.address()).or_insert((0, String::new()));
            if (symbol.size(), place.1.is_empty()) > (place.0, false) || place.1.is_empty() {
                *place = (symbol.size(), name);
            }
        }
        if names.is_empty() {
            bail!("{}: has no symbols, so nobody can say what its functions are", path.display());
        }
        let slots = slots(&file);
        let mut decoder = Decoder { text, arm, x86: code::x86::X86::default(), slots };
        let mut library =
            Self { functions: BTreeMap::new(), entries: BTreeMap::new(), taken: BTreeSet::new() };
        let starts: Vec<u64> = names.keys().copied().collect();
        let mut lea = HashSet::new();
        for (index, (start, (size, name))) in names.iter().enumerate() {
            let end = match size {
                0 => starts.get(index + 1).copied().unwrap_or(start + 1),
                size => start + size,
            };
            // A table of stubs (many equal jumps) counts as one function, because it has a single
            // symbol.
            if let Some(function) = decoder.function(*start, end, name.clone(), &mut lea) {
                library.functions.insert(*start, function);
            }
        }
        let known = |address: &u64| library.functions.contains_key(address);
        library.taken = lea.into_iter().filter(known).collect();
        for slot in decoder.slots.values() {
            if let Callee::Inside(address) = slot
                && library.functions.contains_key(address)
            {
                library.taken.insert(*address);
            }
        }
        for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
            if symbol.kind() == SymbolKind::Text {
                let name = symbol.name().with_context(what)?.to_owned();
                library.entries.insert(symbol.address(), name);
            }
        }
        for section in file.sections() {
            let name = section.name().with_context(what)?;
            if name != ".init_array" && name != ".fini_array" {
                continue;
            }
            for at in (section.address()..section.address() + section.size()).step_by(8) {
                if let Some(Callee::Inside(address)) = decoder.slots.get(&at) {
                    library.entries.insert(*address, name.to_owned());
                }
            }
        }
        Ok(library)
    }
}

/// Returns the addresses that the dynamic linker writes into memory. The key of each entry is the
/// address of the word that the linker overwrites.
fn slots(file: &object::File<'_>) -> HashMap<u64, Callee> {
    const RELATIVE: [u32; 2] =
        [object::elf::R_X86_64_RELATIVE.0, object::elf::R_AARCH64_RELATIVE.0];
    let mut slots = HashMap::new();
    let symbols: HashMap<_, _> = file.dynamic_symbols().map(|s| (s.index(), s)).collect();
    for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let callee = match (relocation.flags(), relocation.target()) {
            (RelocationFlags::Elf { r_type }, _) if RELATIVE.contains(&r_type.0) => {
                Callee::Inside(relocation.addend() as u64)
            }
            (_, RelocationTarget::Symbol(index)) => match symbols.get(&index) {
                Some(symbol) if symbol.is_definition() => Callee::Inside(symbol.address()),
                Some(symbol) => Callee::Outside(symbol.name().unwrap_or("?").to_owned()),
                None => continue,
            },
            _ => continue,
        };
        slots.insert(at, callee);
    }
    slots
}

/// The content of a register.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Unknown,
    /// An address on the stack, this many bytes below the stack pointer at the function's entry.
    Stack(i64),
    Code(Callee),
}

#[derive(Clone)]
struct State {
    registers: [Value; 32],
}

struct Decoder<'a> {
    text: Vec<(u64, &'a [u8])>,
    arm: bool,
    x86: code::x86::X86,
    slots: HashMap<u64, Callee>,
}

impl Decoder<'_> {
    fn insn(&mut self, at: u64) -> Option<Insn> {
        let holds = |(start, bytes): &&(u64, &[u8])| at.wrapping_sub(*start) < bytes.len() as u64;
        let (start, bytes) = self.text.iter().find(holds)?;
        let bytes = &bytes[(at - start) as usize..];
        match self.arm {
            true => code::arm::decode(bytes, at),
            false => self.x86.decode(bytes, at),
        }
    }

    fn pointer(&self) -> usize {
        if self.arm { 31 } else { 4 }
    }

    fn pushed(&self) -> i64 {
        if self.arm { 0 } else { 8 }
    }

    /// Returns the function to which an entry of the procedure linkage table (PLT) jumps, or `None`
    /// if the code at `at` is not such an entry.
    fn through_table(&mut self, at: u64) -> Option<Callee> {
        let mut at = at;
        for _ in 0..4 {
            let insn = self.insn(at)?;
            match (insn.flow, insn.memory) {
                (Flow::JumpTo(_), Some(memory)) => return self.slot(&memory),
                (Flow::Next, _) => at = insn.end(),
                _ => return None,
            }
        }
        None
    }

    fn slot(&self, memory: &code::insn::Memory) -> Option<Callee> {
        let fixed = memory.base.is_none() && memory.index.is_none() && !memory.strange;
        fixed.then(|| self.slots.get(&(memory.displacement as u64)).cloned()).flatten()
    }

    fn function(
        &mut self,
        start: u64,
        end: u64,
        name: String,
        taken: &mut HashSet<u64>,
    ) -> Option<Function> {
        let sp = self.pointer();
        let mut registers = [const { Value::Unknown }; 32];
        registers[sp] = Value::Stack(0);
        let mut function = Function { name, frame: 0, calls: Vec::new() };
        let mut seen = HashSet::new();
        let mut work = vec![(start, State { registers })];
        let mut has_table = false;
        let mut deepest = 0;
        self.insn(start)?;
        loop {
            while let Some((mut at, mut state)) = work.pop() {
                while (start..end).contains(&at) && seen.insert(at) {
                    let Some(insn) = self.insn(at) else { break };
                    self.step(&insn, &mut state, taken);
                    let Value::Stack(depth) = state.registers[sp] else { break };
                    deepest = deepest.max(depth);
                    let inside = |to: u64| (start..end).contains(&to);
                    let call = |callee, pushed: i64| Call {
                        depth: (depth + pushed).max(0) as u64,
                        callee,
                    };
                    match insn.flow {
                        Flow::Next => {}
                        Flow::End => break,
                        Flow::Jump(to) if inside(to) => {
                            at = to;
                            continue;
                        }
                        Flow::Jump(to) => {
                            let callee = self.through_table(to).unwrap_or(Callee::Inside(to));
                            function.calls.push(call(callee, 0));
                            break;
                        }
                        Flow::Branch(to) if inside(to) => {
                            work.push((to, state.clone()));
                            if to <= at {
                                self.take_deepest(&mut state);
                            }
                        }
                        Flow::Branch(to) => function.calls.push(call(Callee::Inside(to), 0)),
                        Flow::JumpTo(register) => {
                            match self.target(&insn, register, &state) {
                                Callee::Pointer if depth > 0 => has_table = true,
                                callee => function.calls.push(call(callee, 0)),
                            }
                            break;
                        }
                        Flow::Call(to) => {
                            let callee = self.through_table(to).unwrap_or(Callee::Inside(to));
                            function.calls.push(call(callee, self.pushed()));
                            self.forget(&mut state);
                        }
                        Flow::CallTo(register) => {
                            let callee = self.target(&insn, register, &state);
                            function.calls.push(call(callee, self.pushed()));
                            self.forget(&mut state);
                        }
                    }
                    at = insn.end();
                }
            }
            // Code that is only reached through a jump table is decoded as if it began at the
            // largest stack depth found so far in the function. In a function without a jump table,
            // only the unwinder uses unreached code.
            let mut at = start;
            while has_table && at < end && seen.contains(&at) {
                at += self.insn(at).map_or(1, |insn| u64::from(insn.length));
            }
            if !has_table || at >= end {
                break;
            }
            if self.insn(at).is_none() {
                seen.insert(at);
                continue;
            }
            let mut registers = [const { Value::Unknown }; 32];
            registers[sp] = Value::Stack(deepest);
            work.push((at, State { registers }));
        }
        function.frame = deepest.max(0) as u64;
        Some(function)
    }

    /// Called after a loop, which may have lowered the stack pointer page by page to make room for
    /// a large frame. So the stack pointer is set to the deepest address on the stack that any
    /// register contains.
    fn take_deepest(&self, state: &mut State) {
        let sp = self.pointer();
        let deepest = state.registers.iter().filter_map(|value| match value {
            Value::Stack(depth) => Some(*depth),
            _ => None,
        });
        if let (Value::Stack(now), Some(most)) = (state.registers[sp].clone(), deepest.max())
            && most > now
        {
            state.registers[sp] = Value::Stack(most);
        }
    }

    fn target(&self, insn: &Insn, register: Option<u8>, state: &State) -> Callee {
        if let Some(callee) = insn.memory.as_ref().and_then(|memory| self.slot(memory)) {
            return callee;
        }
        match register.map(|register| &state.registers[usize::from(register)]) {
            Some(Value::Code(callee)) => callee.clone(),
            _ => Callee::Pointer,
        }
    }

    fn forget(&self, state: &mut State) {
        let kept: &[usize] = match self.arm {
            true => &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 31],
            false => &[3, 4, 5, 12, 13, 14, 15],
        };
        for (number, value) in state.registers.iter_mut().enumerate() {
            if !kept.contains(&number) {
                *value = Value::Unknown;
            }
        }
    }

    fn step(&self, insn: &Insn, state: &mut State, taken: &mut HashSet<u64>) {
        let sp = self.pointer();
        let shift = |value: &Value, by: i64| match value {
            Value::Stack(depth) => Value::Stack(depth - by),
            _ => Value::Unknown,
        };
        let before = state.registers[sp].clone();
        let registers = &mut state.registers;
        let set = match insn.op {
            Op::Move(to, from) => Some((to, registers[usize::from(from)].clone())),
            Op::Add(to, from, by) => Some((to, shift(&registers[usize::from(from)], by))),
            // The stack is aligned to 64 bytes at most (for vectors), so aligning lowers the stack
            // pointer by at most 63 bytes.
            Op::Align(to, from) => Some((to, shift(&registers[usize::from(from)], -63))),
            Op::Set(to, address) => {
                taken.insert(address);
                Some((to, Value::Code(Callee::Inside(address))))
            }
            Op::Load(to, 8, false) => {
                let slot = insn.memory.as_ref().and_then(|memory| self.slot(memory));
                Some((to, slot.map_or(Value::Unknown, Value::Code)))
            }
            _ => None,
        };
        for (register, value) in registers.iter_mut().enumerate() {
            if insn.writes & 1 << register != 0 && register != sp {
                *value = Value::Unknown;
            }
        }
        if let Some((to, value)) = set
            && (usize::from(to) != sp || matches!(value, Value::Stack(_)))
        {
            registers[usize::from(to)] = value;
        }
        match insn.op {
            Op::Push(_) => registers[sp] = shift(&before, -8),
            Op::Pop(_) => registers[sp] = shift(&before, 8),
            _ => {}
        }
        if let Some(memory) = insn.memory
            && let (Some(base), Some((by, _))) = (memory.base, memory.adjust)
            && usize::from(base) == sp
        {
            registers[sp] = shift(&before, by);
        }
    }
}

/// Demangles the name of a Rust function, without its hash.
fn demangled(name: &str) -> String {
    let Some(mut rest) = name.strip_prefix("_ZN") else { return name.to_owned() };
    let mut parts = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0) {
        let Ok(length) = rest[..digits].parse::<usize>() else { break };
        let Some(part) = rest.get(digits..digits + length) else { break };
        parts.push(part);
        rest = &rest[digits + length..];
    }
    if parts.last().is_some_and(|last| last.len() == 17 && last.starts_with('h')) {
        parts.pop();
    }
    let mut text = parts.join("::");
    for (from, to) in [
        ("_$", "$"),
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$RF$", "&"),
        ("$C$", ","),
        ("$u20$", " "),
        ("$u7b$", "{"),
        ("$u7d$", "}"),
        ("$LP$", "("),
        ("$RP$", ")"),
        ("$BP$", "*"),
        ("..", "::"),
    ] {
        text = text.replace(from, to);
    }
    text
}
