//! Follows those values in general registers and stack slots that hooks use: the address of the
//! thread's table, constants, addresses on the stack, and function pointers of the module's
//! descriptor. Also follows entries of jump tables for [`crate::graph`].
//!
//! A store to an unknown address is assumed not to change the stack slots in which the compiler
//! keeps the values that hooks use. These slots hold no variables of the program's source, so the
//! program has no pointers to them.

use std::collections::BTreeMap;

use abi::loops::{Entry, Module};

use crate::image::Machine;
use crate::insn::{Flow, Insn, Memory, Op, Register};

const ENTRY: i64 = size_of::<Entry>() as i64;
/// The offset of the entry's field that points to the statistics of single hits.
const TRIPS: i64 = std::mem::offset_of!(Entry, trips) as i64;

/// The value of a register or slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// Any value.
    #[default]
    Any,
    /// A number, or an address.
    Number(u64),
    /// The thread's table (or null), plus this many bytes.
    Table(i64),
    /// The stack pointer at the function's entry, plus this many bytes.
    Stack(i64),
    /// An address in the statistics of single hits, for the entry at this offset in the table; or
    /// null.
    Trips(i64),
    /// The descriptor's `enter` function.
    Enter,
    /// The descriptor's `log` function.
    Log,
    /// The descriptor's `begin` or `end` function.
    Counters,
    /// The 64 bits at this address of the image.
    InMemory(u64),
    /// A 32-bit entry of the jump table at this address.
    JumpOffset(u64),
    /// A 32-bit entry of the jump table at this address, plus this address.
    JumpTarget(u64),
    /// A 64-bit entry of the table of jump targets at this address.
    JumpAddress(u64),
}

impl Value {
    /// Returns what is known of a value where two paths join.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            // Null on one path is ignored, because the pointer was tested there, or is tested
            // later. Without a runtime, `enter` is null, and the compiler may use this null as the
            // table's address.
            (Self::Number(0), known @ (Self::Table(0) | Self::Enter | Self::Counters))
            | (known @ (Self::Table(0) | Self::Enter | Self::Counters), Self::Number(0)) => known,
            (Self::Enter, Self::Table(0)) | (Self::Table(0), Self::Enter) => Self::Table(0),
            _ => Self::Any,
        }
    }

    fn plus(self, number: i64) -> Self {
        match self {
            Self::Number(n) => Self::Number(n.wrapping_add_signed(number)),
            Self::Table(n) => Self::Table(n.wrapping_add(number)),
            Self::Stack(n) => Self::Stack(n.wrapping_add(number)),
            Self::Trips(_) => self,
            _ if number == 0 => self,
            _ => Self::Any,
        }
    }

    /// Returns the value rounded down to a multiple of a power of two. How far this moves the stack
    /// pointer is not known, so the slots below get offsets in a separate range.
    fn aligned(self) -> Self {
        match self {
            Self::Stack(n) => Self::Stack(n.wrapping_sub(1 << 40)),
            _ => Self::Any,
        }
    }

    fn sum(self, other: Self) -> Self {
        match (self, other) {
            (trips @ Self::Trips(_), _) | (_, trips @ Self::Trips(_)) => trips,
            (known, Self::Number(n)) | (Self::Number(n), known) => match known {
                Self::JumpOffset(table) if table == n => Self::JumpTarget(table),
                _ => known.plus(n as i64),
            },
            _ => Self::Any,
        }
    }
}

/// The largest number of stack slots whose values are remembered at one point of a function.
const MOST_SLOTS: usize = 512;

/// The values at one point of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    registers: [Value; 32],
    slots: BTreeMap<i64, Value>,
}

/// The facts about the image that are needed to follow the values of its code.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The architecture.
    pub machine: Machine,
    /// The descriptor's address.
    pub descriptor: u64,
}

impl World {
    fn stack(&self) -> Register {
        match self.machine {
            Machine::X86 => 4,
            Machine::Arm => 31,
        }
    }

    fn result(&self) -> Register {
        0
    }

    fn clobbered(&self) -> u32 {
        match self.machine {
            // A call may change rax, rcx, rdx, rsi, rdi, and r8 to r11.
            Machine::X86 => 0b1111_1100_0111,
            Machine::Arm => 0x4007_ffff,
        }
    }

    /// Returns the registers of the first three arguments.
    pub fn arguments(&self) -> [Register; 3] {
        match self.machine {
            Machine::X86 => [7, 6, 2],
            Machine::Arm => [0, 1, 2],
        }
    }

    fn pointer_at(&self, address: u64) -> Value {
        let field = address.wrapping_sub(self.descriptor) as usize;
        match field {
            _ if field == std::mem::offset_of!(Module, enter) => Value::Enter,
            _ if field == std::mem::offset_of!(Module, begin) => Value::Counters,
            _ if field == std::mem::offset_of!(Module, end) => Value::Counters,
            _ if field == std::mem::offset_of!(Module, log) => Value::Log,
            _ => Value::InMemory(address),
        }
    }
}

impl State {
    /// Returns the values at a function's entry.
    pub fn entry(world: &World) -> Self {
        let mut registers = [Value::Any; 32];
        registers[usize::from(world.stack())] = Value::Stack(0);
        // Without symbols, the code is read from a point where the stack frame exists already. So
        // the slots that are addressed through the frame pointer get offsets in a separate range.
        let frame = match world.machine {
            Machine::X86 => 5,
            Machine::Arm => 29,
        };
        registers[frame] = Value::Stack(1 << 41);
        Self { registers, slots: BTreeMap::new() }
    }

    /// Returns how many slots are remembered.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    pub fn of(&self, register: Register) -> Value {
        self.registers[usize::from(register) & 31]
    }

    fn set(&mut self, register: Register, value: Value) {
        self.registers[usize::from(register) & 31] = value;
    }

    /// Returns the address of a memory operand. An unknown index is left out if the base register
    /// points into the statistics of single hits.
    pub fn address(&self, memory: &Memory) -> Value {
        if memory.strange {
            return Value::Any;
        }
        let before = memory.adjust.filter(|(_, before)| *before).map_or(0, |(by, _)| by);
        let base = match memory.base {
            Some(base) => self.of(base),
            None => Value::Number(0),
        };
        let start = base.plus(memory.displacement.wrapping_add(before));
        match memory.index.map(|(register, scale)| (self.of(register), scale)) {
            None => start,
            Some((Value::Number(n), scale)) => start.plus((n as i64).wrapping_mul(scale.into())),
            // Compilers may put the address in the table or in the statistics into the index
            // register, and the offset into the base register.
            Some((Value::Table(n), 1)) => start.sum(Value::Number(0)).sum_table(n),
            Some((trips @ Value::Trips(_), 1)) => trips,
            Some(_) if matches!(start, Value::Trips(_)) => start,
            Some(_) => Value::Any,
        }
    }

    /// Returns the address of the jump table from which a memory operand with an unknown index
    /// reads.
    fn picked(&self, memory: &Memory) -> Option<u64> {
        let (index, _) = memory.index?;
        if memory.strange || matches!(self.of(index), Value::Number(_)) {
            return None;
        }
        match memory.base.map_or(Value::Number(0), |base| self.of(base)).plus(memory.displacement) {
            Value::Number(table) => Some(table),
            _ => None,
        }
    }

    /// Joins these values with those of another path, and returns whether a value has changed.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (own, theirs) in self.registers.iter_mut().zip(&other.registers) {
            let joined = own.join(*theirs);
            changed |= joined != *own;
            *own = joined;
        }
        self.slots.retain(|at, own| {
            let joined = own.join(other.slots.get(at).copied().unwrap_or_default());
            changed |= joined != *own;
            *own = joined;
            joined != Value::Any
        });
        changed
    }

    fn load(&self, world: &World, memory: &Memory, bytes: u8, signed: bool) -> Value {
        if let Some(table) = self.picked(memory) {
            return match (bytes, signed) {
                (4, true) => Value::JumpOffset(table),
                (8, _) => Value::JumpAddress(table),
                _ => Value::Any,
            };
        }
        match self.address(memory) {
            Value::Stack(at) if bytes == 8 => self.slots.get(&at).copied().unwrap_or_default(),
            Value::Number(at) if bytes == 8 => world.pointer_at(at),
            Value::Table(at) if bytes == 8 && at.rem_euclid(ENTRY) == TRIPS => {
                Value::Trips(at - TRIPS)
            }
            _ => Value::Any,
        }
    }

    fn store(&mut self, at: Value, bytes: u16, value: Value) {
        let Value::Stack(at) = at else { return };
        let overlapping: Vec<i64> = self
            .slots
            .range(at.saturating_sub(7)..at.saturating_add(bytes.into()))
            .map(|(slot, _)| *slot)
            .collect();
        for slot in overlapping {
            self.slots.remove(&slot);
        }
        if bytes == 8 && value != Value::Any && self.slots.len() < MOST_SLOTS {
            self.slots.insert(at, value);
        }
    }

    /// Applies an instruction.
    pub fn step(&mut self, world: &World, insn: &Insn) {
        let memory = insn.memory.as_ref();
        let at = memory.map_or(Value::Any, |memory| self.address(memory));
        let stack = world.stack();
        let mut results: [Option<(Register, Value)>; 2] = [None, None];
        let known = |register: Option<Register>| register.map_or(Value::Any, |r| self.of(r));
        match insn.op {
            Op::Other | Op::Clock => {}
            Op::Move(to, from) => results[0] = Some((to, self.of(from))),
            Op::Set(to, number) => results[0] = Some((to, Value::Number(number))),
            Op::Insert(to, number, shift) => {
                if let Value::Number(old) = self.of(to) {
                    let mask = 0xffff_u64 << shift;
                    let value = old & !mask | u64::from(number) << shift;
                    results[0] = Some((to, Value::Number(value)));
                }
            }
            Op::Add(to, from, number) => results[0] = Some((to, self.of(from).plus(number))),
            Op::Align(to, from) => results[0] = Some((to, self.of(from).aligned())),
            Op::Sum(to, a, b) => results[0] = Some((to, self.of(a).sum(self.of(b)))),
            Op::Load(to, bytes, signed) => {
                let value = memory.map_or(Value::Any, |m| self.load(world, m, bytes, signed));
                results[0] = Some((to, value));
            }
            Op::LoadPair(a, b) => {
                let load = |after: i64| match at.plus(after) {
                    Value::Stack(at) => self.slots.get(&at).copied().unwrap_or_default(),
                    Value::Number(at) => world.pointer_at(at),
                    _ => Value::Any,
                };
                results = [Some((a, load(0))), Some((b, load(8)))];
            }
            Op::Store(from, bytes) => self.store(at, bytes, known(from)),
            Op::StoreNumber(number) => self.store(at, 8, Value::Number(number)),
            Op::StorePair(a, b) => {
                // The zero register.
                let value = |r: Option<Register>| r.map_or(Value::Number(0), |r| self.of(r));
                let (a, b) = (value(a), value(b));
                self.store(at, 8, a);
                self.store(at.plus(8), 8, b);
            }
            Op::Push(from) => {
                let value = known(from);
                let top = self.of(stack).plus(-8);
                self.store(top, 8, value);
                results[0] = Some((stack, top));
            }
            Op::Pop(to) => {
                let top = self.of(stack);
                let value = match top {
                    Value::Stack(at) => self.slots.get(&at).copied().unwrap_or_default(),
                    _ => Value::Any,
                };
                self.set(stack, top.plus(8));
                results[0] = to.map(|to| (to, value));
            }
        }
        let callee = self.callee(world, insn);
        let adjusted = memory.and_then(|m| Some((m.base?, m.adjust?.0)));
        let adjusted = adjusted.map(|(base, by)| (base, self.of(base).plus(by)));
        let keeps_stack = matches!(insn.op, Op::Push(_) | Op::Pop(_));
        for register in 0..32_u8 {
            let is_kept = register == stack && (keeps_stack || callee.is_some());
            if insn.writes >> register & 1 == 1 && !is_kept {
                self.set(register, Value::Any);
            }
        }
        if let Some((base, value)) = adjusted {
            self.set(base, value);
        }
        for (register, value) in results.into_iter().flatten() {
            self.set(register, value);
        }
        if let Some(callee) = callee {
            for register in 0..32_u8 {
                if world.clobbered() >> register & 1 == 1 {
                    self.set(register, Value::Any);
                }
            }
            if callee == Value::Enter {
                self.set(world.result(), Value::Table(0));
            }
        }
    }

    /// Returns the target of a call (`Any` if the call is direct); `None` for other instructions.
    pub fn callee(&self, world: &World, insn: &Insn) -> Option<Value> {
        match insn.flow {
            Flow::CallTo(Some(register)) => Some(self.of(register)),
            Flow::CallTo(None) => {
                let memory = insn.memory.as_ref();
                Some(memory.map_or(Value::Any, |m| self.load(world, m, 8, false)))
            }
            Flow::Call(_) => Some(Value::Any),
            _ => None,
        }
    }

    /// Returns the target of a jump to a register or to the memory operand.
    pub fn jump(&self, world: &World, insn: &Insn) -> Value {
        match insn.flow {
            Flow::JumpTo(Some(register)) => self.of(register),
            Flow::JumpTo(None) => {
                insn.memory.as_ref().map_or(Value::Any, |m| self.load(world, m, 8, false))
            }
            _ => Value::Any,
        }
    }
}

impl Value {
    /// Returns the address in the thread's table at the offset `n` plus `self`; `Any` if `self` is
    /// not a known number.
    fn sum_table(self, n: i64) -> Self {
        match self {
            Self::Number(number) => Self::Table(n.wrapping_add(number as i64)),
            _ => Self::Any,
        }
    }
}
