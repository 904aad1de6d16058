//! Decodes x86-64 with iced-x86.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as Name,
};

use crate::insn::{Class, Flow, Insn, Memory, Op, Register};

/// A decoder.
pub struct X86 {
    info: InstructionInfoFactory,
}

impl Default for X86 {
    fn default() -> Self {
        Self { info: InstructionInfoFactory::new() }
    }
}

impl X86 {
    /// Decodes the first instruction of `bytes`, whose address is `at`.
    pub fn decode(&mut self, bytes: &[u8], at: u64) -> Option<Insn> {
        let instruction = one(bytes, at)?;
        let info = self.info.info(&instruction);
        let memory = memory(&instruction, info);
        Some(Insn {
            at,
            length: instruction.len() as u8,
            flow: flow(&instruction),
            op: op(&instruction),
            writes: writes(info),
            memory,
            class: class(&instruction, info, memory.is_some()),
        })
    }
}

fn one(bytes: &[u8], at: u64) -> Option<Instruction> {
    let bytes = bytes.get(..bytes.len().min(15))?;
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return None;
    }
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Returns an instruction's text in the syntax of GNU's assembler.
pub fn text(bytes: &[u8], at: u64) -> Option<String> {
    let instruction = one(bytes, at)?;
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_branch_leading_zeros(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_uppercase_hex(false);
    options.set_rip_relative_addresses(false);
    options.set_space_after_operand_separator(false);
    let mut text = String::new();
    formatter.format(&instruction, &mut text);
    Some(text)
}

/// Returns the number of the general register that has this name, or that contains the named part.
fn general(name: Name) -> Option<Register> {
    let full = name.full_register();
    full.is_gpr64().then(|| full.number() as Register)
}

/// Returns the number of a general register, if `name` means all of its 64 bits.
fn whole(name: Name) -> Option<Register> {
    if name.is_gpr64() { Some(name.number() as Register) } else { None }
}

fn flow(instruction: &Instruction) -> Flow {
    let register =
        || (instruction.op0_kind() == OpKind::Register).then(|| instruction.op0_register());
    match instruction.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(instruction.near_branch_target()),
        FlowControl::ConditionalBranch => Flow::Branch(instruction.near_branch_target()),
        FlowControl::XbeginXabortXend if instruction.mnemonic() == Mnemonic::Xbegin => {
            Flow::Branch(instruction.near_branch_target())
        }
        FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::IndirectBranch => Flow::JumpTo(register().and_then(general)),
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => {
            Flow::Call(instruction.near_branch_target())
        }
        FlowControl::IndirectCall => Flow::CallTo(register().and_then(general)),
        FlowControl::Call | FlowControl::Interrupt => Flow::Next,
        FlowControl::Return | FlowControl::Exception => Flow::End,
    }
}

fn writes(info: &InstructionInfo) -> u32 {
    let mut mask = 0;
    for used in info.used_registers() {
        let written = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        if let Some(register) = general(used.register()).filter(|_| written) {
            mask |= 1 << register;
        }
    }
    mask
}

fn is_memory(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Memory
            | OpKind::MemorySegSI
            | OpKind::MemorySegESI
            | OpKind::MemorySegRSI
            | OpKind::MemorySegDI
            | OpKind::MemorySegEDI
            | OpKind::MemorySegRDI
            | OpKind::MemoryESDI
            | OpKind::MemoryESEDI
            | OpKind::MemoryESRDI
    )
}

/// Returns whether explicit memory operands are read, and whether they are written.
fn use_of_memory(instruction: &Instruction, info: &InstructionInfo) -> (bool, bool) {
    let (mut read, mut written) = (false, false);
    for i in (0..instruction.op_count()).filter(|i| is_memory(instruction.op_kind(*i))) {
        let access = info.op_access(i);
        read |= matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        written |= matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
    }
    (read, written)
}

fn memory(instruction: &Instruction, info: &InstructionInfo) -> Option<Memory> {
    if !(0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory) {
        return None;
    }
    let (read, written) = use_of_memory(instruction, info);
    if !read && !written {
        return None;
    }
    let mut memory = Memory { read, written, ..Memory::default() };
    memory.strange = matches!(instruction.memory_segment(), Name::FS | Name::GS);
    if instruction.is_ip_rel_memory_operand() {
        memory.displacement = instruction.ip_rel_memory_address() as i64;
        return Some(memory);
    }
    memory.displacement = instruction.memory_displacement64() as i64;
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    match (base, whole(base)) {
        (Name::None, _) => {}
        (_, None) => memory.strange = true,
        (_, known) => memory.base = known,
    }
    match (index, whole(index)) {
        (Name::None, _) => {}
        (_, None) => memory.strange = true,
        (_, Some(register)) => {
            memory.index = Some((register, instruction.memory_index_scale() as u8));
        }
    }
    Some(memory)
}

fn op(instruction: &Instruction) -> Op {
    let kinds = (instruction.op0_kind(), instruction.op1_kind());
    let (first, second) = (instruction.op0_register(), instruction.op1_register());
    let number = || instruction.immediate(1) as i64;
    match (instruction.mnemonic(), kinds) {
        (Mnemonic::Mov, (OpKind::Register, OpKind::Register)) => {
            match (whole(first), whole(second)) {
                (Some(to), Some(from)) => Op::Move(to, from),
                _ => Op::Other,
            }
        }
        (Mnemonic::Mov, (OpKind::Register, OpKind::Memory)) => {
            whole(first).map_or(Op::Other, |to| Op::Load(to, 8, false))
        }
        (Mnemonic::Movsxd, (OpKind::Register, OpKind::Memory)) => {
            whole(first).map_or(Op::Other, |to| Op::Load(to, 4, true))
        }
        (Mnemonic::Mov, (OpKind::Memory, OpKind::Register)) => match whole(second) {
            Some(from) => Op::Store(Some(from), 8),
            None => Op::Store(None, instruction.memory_size().size() as u16),
        },
        (Mnemonic::Mov, (OpKind::Memory, _)) if instruction.memory_size().size() == 8 => {
            Op::StoreNumber(instruction.immediate(1))
        }
        // A move to the low 32 bits of a register clears its other bits.
        (Mnemonic::Mov, (OpKind::Register, kind)) if kind != OpKind::Register => {
            match (general(first), first.is_gpr32() || first.is_gpr64()) {
                (Some(to), true) => {
                    let mask = if first.is_gpr32() { u64::from(u32::MAX) } else { u64::MAX };
                    Op::Set(to, instruction.immediate(1) & mask)
                }
                _ => Op::Other,
            }
        }
        (Mnemonic::Xor | Mnemonic::Sub, (OpKind::Register, OpKind::Register))
            if first == second && (first.is_gpr32() || first.is_gpr64()) =>
        {
            general(first).map_or(Op::Other, |to| Op::Set(to, 0))
        }
        (Mnemonic::Lea, _) => lea(instruction),
        (Mnemonic::Add, (OpKind::Register, OpKind::Register)) => {
            match (whole(first), whole(second)) {
                (Some(to), Some(other)) => Op::Sum(to, to, other),
                _ => Op::Other,
            }
        }
        (Mnemonic::Add, (OpKind::Register, kind)) if !is_memory(kind) => {
            whole(first).map_or(Op::Other, |to| Op::Add(to, to, number()))
        }
        (Mnemonic::Sub, (OpKind::Register, kind))
            if !is_memory(kind) && kind != OpKind::Register =>
        {
            whole(first).map_or(Op::Other, |to| Op::Add(to, to, number().wrapping_neg()))
        }
        (Mnemonic::And, (OpKind::Register, kind))
            if !is_memory(kind) && kind != OpKind::Register && is_alignment(number()) =>
        {
            whole(first).map_or(Op::Other, |to| Op::Align(to, to))
        }
        (Mnemonic::Push, (OpKind::Register, _)) => Op::Push(whole(first)),
        (Mnemonic::Push, _) => Op::Push(None),
        (Mnemonic::Pop, (OpKind::Register, _)) => Op::Pop(whole(first)),
        (Mnemonic::Pop, _) => Op::Pop(None),
        (Mnemonic::Rdtsc | Mnemonic::Rdtscp, _) => Op::Clock,
        (_, (OpKind::Memory, _)) => Op::Store(None, instruction.memory_size().size() as u16),
        _ => Op::Other,
    }
}

/// Returns whether an AND with this mask clears low bits only, as -16 does.
fn is_alignment(mask: i64) -> bool {
    mask < 0 && mask.unsigned_abs().is_power_of_two()
}

fn lea(instruction: &Instruction) -> Op {
    let Some(to) = whole(instruction.op0_register()) else { return Op::Other };
    if instruction.is_ip_rel_memory_operand() {
        return Op::Set(to, instruction.ip_rel_memory_address());
    }
    let displacement = instruction.memory_displacement64() as i64;
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    match (base, whole(base), index) {
        (Name::None, _, Name::None) => Op::Set(to, displacement as u64),
        (_, Some(base), Name::None) => Op::Add(to, base, displacement),
        (_, Some(base), _) if displacement == 0 && instruction.memory_index_scale() == 1 => {
            whole(index).map_or(Op::Other, |index| Op::Sum(to, base, index))
        }
        _ => Op::Other,
    }
}

/// Returns whether an instruction works on vectors although its name looks scalar.
fn spreads(mnemonic: Mnemonic) -> bool {
    matches!(mnemonic, Mnemonic::Vbroadcastss | Mnemonic::Vbroadcastsd)
}

fn class(instruction: &Instruction, info: &InstructionInfo, has_memory: bool) -> Class {
    let mut class = Class::default();
    let (read, written) = use_of_memory(instruction, info);
    let bytes = instruction.memory_size().size() as u16;
    let mnemonic = instruction.mnemonic();
    // A `nop` or a prefetch does not access its memory operand, so it does not count as a load.
    if read && (has_memory || instruction.is_string_instruction()) {
        class.bits |= Class::LOAD;
        class.loaded = bytes;
    }
    if written {
        class.bits |= Class::STORE;
        class.stored = bytes;
    }
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::ConditionalBranch
        | FlowControl::IndirectBranch => class.bits |= Class::BRANCH,
        FlowControl::Call if mnemonic == Mnemonic::Call => class.bits |= Class::CALL,
        FlowControl::IndirectCall => class.bits |= Class::CALL,
        _ => {}
    }
    let mut widest = 0;
    let mut see = |name: Name| {
        let width = match name {
            _ if name.is_zmm() => Class::VECTOR_512,
            _ if name.is_ymm() => Class::VECTOR_256,
            _ if name.is_xmm() => Class::VECTOR_128,
            _ if name.is_mm() => Class::VECTOR_64,
            _ => 0,
        };
        widest = widest.max(width);
    };
    for i in 0..instruction.op_count() {
        if instruction.op_kind(i) == OpKind::Register {
            see(instruction.op_register(i));
        }
    }
    if instruction.memory_index() != Name::None {
        see(instruction.memory_index());
    }
    if widest == Class::VECTOR_128 && !spreads(mnemonic) {
        let name = format!("{mnemonic:?}");
        if ["ss", "sd", "sh"].iter().any(|end| name.ends_with(end)) {
            widest = Class::SCALAR;
        }
    }
    class.bits |= widest;
    class
}

/// A kind of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arithmetic {
    /// Multiplications with additions or subtractions in one instruction, such as `a * b + c`.
    MultiplyAdd,
    /// Additions and subtractions.
    Add,
    /// Multiplications.
    Multiply,
    /// Divisions, square roots and reciprocals.
    Divide,
    /// The smaller or the larger of two numbers.
    Choose,
    /// Other operations on vectors.
    Bits,
    /// Arithmetic in general registers.
    Integer,
}

impl Arithmetic {
    /// Returns the words for this kind of arithmetic.
    pub fn name(self) -> &'static str {
        match self {
            Self::MultiplyAdd => "multiply-add",
            Self::Add => "additions",
            Self::Multiply => "multiplications",
            Self::Divide => "divisions and roots",
            Self::Choose => "minima and maxima",
            Self::Bits => "logic and shifts",
            Self::Integer => "integer arithmetic",
        }
    }
}

/// What a description in words needs to know about an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Moves, conversions and comparisons are not arithmetic. Adding a constant to a general
    /// register, or subtracting one from it, is not arithmetic either, because it usually moves a
    /// counter or an address.
    pub arithmetic: Option<Arithmetic>,
    /// The number of bits of the instruction's widest vector; 0 if it uses no vectors.
    pub bits: u32,
    /// How many numbers the instruction computes side by side, if its name shows it.
    pub lanes: Option<u32>,
    /// The registers whose values are used, except in addresses: general registers from bit 0,
    /// vector registers from bit 16.
    pub reads: u64,
    /// The registers that are written, with the same bits.
    pub writes: u64,
    /// Whether a vector contains the addresses of the accesses.
    pub is_gather: bool,
    /// What `inc` and `dec` add.
    pub step: Option<i64>,
}

/// Returns the details of the first instruction of `bytes`, whose address is `at`.
pub fn detail(bytes: &[u8], at: u64) -> Option<Detail> {
    let instruction = one(bytes, at)?;
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let mnemonic = format!("{:?}", instruction.mnemonic()).to_lowercase();
    let class = class(&instruction, info, true).bits;
    let bits = match class {
        c if c & Class::VECTOR_512 != 0 => 512,
        c if c & Class::VECTOR_256 != 0 => 256,
        c if c & Class::VECTOR_128 != 0 => 128,
        c if c & Class::VECTOR_64 != 0 => 64,
        _ => 0,
    };
    let is_vector = bits > 0 || class & Class::SCALAR != 0;
    let number = |name: Name| match name {
        _ if name.is_vector_register() => Some(16 + name.number() as u64),
        _ => general(name).map(u64::from),
    };
    let mut detail = Detail { bits, ..Detail::default() };
    for i in 0..instruction.op_count() {
        if instruction.op_kind(i) != OpKind::Register {
            continue;
        }
        let Some(register) = number(instruction.op_register(i)) else { continue };
        let access = info.op_access(i);
        if matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ) {
            detail.reads |= 1 << register;
        }
        if matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ) {
            detail.writes |= 1 << register;
        }
    }
    // The results of x ^ x and x - x do not depend on x. A conversion from an integer only keeps
    // the upper part of its first operand. The integer does not count as read either.
    let last = instruction.op_count().saturating_sub(1);
    let is_same = last > 0
        && instruction.op_kind(last) == OpKind::Register
        && instruction.op_kind(last - 1) == OpKind::Register
        && instruction.op_register(last) == instruction.op_register(last - 1);
    let plain = mnemonic.strip_prefix('v').filter(|_| is_vector).unwrap_or(&mnemonic);
    if is_same && (plain.contains("xor") || plain.starts_with("psub") || plain == "sub")
        || plain.starts_with("cvtsi2")
    {
        detail.reads = 0;
    }
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    detail.is_gather = index.is_vector_register() && base != Name::RIP;
    detail.arithmetic =
        if is_vector { vector_kind(plain) } else { integer_kind(plain, &instruction) };
    if is_same && plain.contains("xor") {
        detail.arithmetic = None;
    }
    detail.lanes = detail.arithmetic.and_then(|kind| lanes(plain, bits, kind));
    detail.step = match instruction.mnemonic() {
        Mnemonic::Inc => Some(1),
        Mnemonic::Dec => Some(-1),
        _ => None,
    };
    Some(detail)
}

/// Returns the kind of arithmetic of an instruction on vectors or floating-point scalars, by its
/// name without the first `v`.
fn vector_kind(name: &str) -> Option<Arithmetic> {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let begins = |parts: &[&str]| parts.iter().any(|part| name.starts_with(part));
    Some(match name {
        _ if has(&[
            "fmadd", "fmsub", "fnmadd", "fnmsub", "pmadd", "pdpb", "pdpw", "dpbf16", "dpps",
        ]) =>
        {
            Arithmetic::MultiplyAdd
        }
        _ if begins(&["add", "sub", "padd", "psub", "hadd", "hsub", "phadd", "psad"]) => {
            Arithmetic::Add
        }
        _ if begins(&["mul", "pmul"]) => Arithmetic::Multiply,
        _ if begins(&["div", "sqrt", "rsqrt", "rcp"]) => Arithmetic::Divide,
        _ if begins(&["min", "max", "pmin", "pmax"]) => Arithmetic::Choose,
        _ if begins(&[
            "and", "or", "xor", "pand", "por", "pxor", "psll", "psrl", "psra", "pternlog",
        ]) =>
        {
            Arithmetic::Bits
        }
        _ => return None,
    })
}

/// Returns how many numbers an instruction computes side by side, by its name without the first
/// `v`; `None` if the name does not show it.
fn lanes(name: &str, bits: u32, kind: Arithmetic) -> Option<u32> {
    use Arithmetic::{Add, Choose, Divide, Multiply, MultiplyAdd};
    if !matches!(kind, Add | Choose | Divide | Multiply | MultiplyAdd) {
        return None;
    }
    if bits == 0 {
        return Some(1);
    }
    // Instructions whose names begin with these letters add neighbouring numbers, or products of
    // numbers, to each other.
    let across = ["hadd", "hsub", "phadd", "phsub", "psad", "pmadd", "dp", "pdp"];
    let across = across.iter().any(|first| name.starts_with(first));
    let is_integer = name.starts_with('p');
    let each = match name.as_bytes() {
        _ if across => return None,
        [.., b'p', b'h'] if !is_integer => 16,
        [.., b'p', b's'] if !is_integer => 32,
        [.., b'p', b'd'] if !is_integer => 64,
        [.., b'b'] if is_integer => 8,
        [.., b'w'] if is_integer => 16,
        [.., b'd'] if is_integer => 32,
        [.., b'q'] if is_integer => 64,
        _ => return None,
    };
    Some(bits / each)
}

fn integer_kind(name: &str, instruction: &Instruction) -> Option<Arithmetic> {
    let is_one = matches!(
        name,
        "add"
            | "adc"
            | "sub"
            | "sbb"
            | "imul"
            | "mul"
            | "mulx"
            | "div"
            | "idiv"
            | "and"
            | "or"
            | "xor"
            | "shl"
            | "shr"
            | "sar"
            | "rol"
            | "ror"
            | "neg"
            | "not"
            | "popcnt"
    );
    let counts = matches!(name, "add" | "sub")
        && instruction.op1_kind() != OpKind::Register
        && !is_memory(instruction.op1_kind());
    (is_one && !counts).then_some(Arithmetic::Integer)
}
