//! One machine instruction, as far as it matters where control goes, which addresses it touches, and
//! what it is counted as. The decoders of both architectures produce it.

/// The number of a general register, as the architecture's encoding numbers it. On AArch64, 31 is
/// the stack pointer; the zero register does not appear.
pub type Register = u8;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// The instruction's address.
    pub at: u64,
    /// The instruction's length in bytes.
    pub length: u8,
    /// Where control goes next.
    pub flow: Flow,
    /// The effect of the instruction on general registers and the stack.
    pub op: Op,
    /// The general registers that the instruction writes, as bits.
    pub writes: u32,
    /// The instruction's memory operand.
    pub memory: Option<Memory>,
    /// The kinds that the instruction is counted as.
    pub class: Class,
}

impl Insn {
    /// The address after the instruction.
    pub fn end(&self) -> u64 {
        self.at.wrapping_add(u64::from(self.length))
    }
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To this address.
    Jump(u64),
    /// To this address, or to the next instruction.
    Branch(u64),
    /// To the address in a register, or in the memory operand.
    JumpTo(Option<Register>),
    /// Calls this address.
    Call(u64),
    /// Calls the address in a register, or in the memory operand.
    CallTo(Option<Register>),
    /// To the caller, or nowhere (traps and invalid instructions).
    End,
}

/// The effect of an instruction, where it is simple enough to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Something else: the registers in `writes` have unknown values afterwards.
    Other,
    /// Copies a register.
    Move(Register, Register),
    /// Sets a register to a number.
    Set(Register, u64),
    /// Sets the 16 bits from this bit on, and keeps the others.
    Insert(Register, u16, u8),
    /// `to = from + number`
    Add(Register, Register, i64),
    /// `to = from`, rounded down to a multiple of a power of two
    Align(Register, Register),
    /// `to = a + b`
    Sum(Register, Register, Register),
    /// Loads the memory operand: register, bytes, whether the sign is extended to 64 bits.
    Load(Register, u8, bool),
    /// Loads two registers of 64 bits each from the memory operand.
    LoadPair(Register, Register),
    /// Stores 64 bits of a register, or something unknown, of this many bytes.
    Store(Option<Register>, u16),
    /// Stores a number of 64 bits.
    StoreNumber(u64),
    /// Stores two registers of 64 bits each.
    StorePair(Option<Register>, Option<Register>),
    /// Decreases the stack pointer by 8 and stores.
    Push(Option<Register>),
    /// Loads, and increases the stack pointer by 8.
    Pop(Option<Register>),
    /// Reads the clock that hooks read.
    Clock,
}

/// A memory operand. Its address is `base + index * scale + displacement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The base register. `None`: the displacement is an address by itself.
    pub base: Option<Register>,
    /// The index register and its factor.
    pub index: Option<(Register, u8)>,
    /// The operand that is added.
    pub displacement: i64,
    /// The address cannot be followed: a thread-local segment, or a vector of addresses.
    pub strange: bool,
    /// Whether the instruction reads the memory.
    pub read: bool,
    /// Whether the instruction writes the memory.
    pub written: bool,
    /// The number that the base register is increased by, and whether that happens before the access.
    pub adjust: Option<(i64, bool)>,
}

/// The kinds of an instruction for counting: any number of these bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub bits: u16,
    /// Bytes that the instruction reads from its memory operands.
    pub loaded: u16,
    /// Bytes that the instruction writes to its memory operands.
    pub stored: u16,
}

impl Class {
    /// Reads a memory operand.
    pub const LOAD: u16 = 1 << 0;
    /// Writes a memory operand.
    pub const STORE: u16 = 1 << 1;
    /// A jump, conditional or not.
    pub const BRANCH: u16 = 1 << 2;
    pub const CALL: u16 = 1 << 3;
    /// A scalar floating-point operation in a vector register.
    pub const SCALAR: u16 = 1 << 4;
    /// Works on vectors of 64 bits (AArch64, MMX).
    pub const VECTOR_64: u16 = 1 << 5;
    /// Works on vectors of 128 bits.
    pub const VECTOR_128: u16 = 1 << 6;
    /// Works on vectors of 256 bits.
    pub const VECTOR_256: u16 = 1 << 7;
    /// Works on vectors of 512 bits.
    pub const VECTOR_512: u16 = 1 << 8;
    /// Works on vectors whose width the processor decides (SVE).
    pub const SCALABLE: u16 = 1 << 9;
}
