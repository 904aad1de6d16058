//! Represents one machine instruction by its control flow, its memory operand, its effect on
//! registers, and its kinds for counting. The decoders of both architectures return this form.

/// The number of a general register in the architecture's encoding. On AArch64, 31 is the stack
/// pointer; the zero register has no number here.
pub type Register = u8;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// The instruction's address.
    pub at: u64,
    /// The instruction's length in bytes.
    pub length: u8,
    /// Where control continues.
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
    /// Returns the address after the instruction.
    pub fn end(&self) -> u64 {
        self.at.wrapping_add(u64::from(self.length))
    }
}

/// The place at which control continues after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction.
    Next,
    /// This address.
    Jump(u64),
    /// This address, or the next instruction.
    Branch(u64),
    /// The address in a register, or, for `None`, in the memory operand.
    JumpTo(Option<Register>),
    /// This address is called.
    Call(u64),
    /// The address in a register, or, for `None`, in the memory operand is called.
    CallTo(Option<Register>),
    /// The caller (a return), or nowhere (traps and invalid instructions).
    End,
}

/// The effect of an instruction, if it is simple enough to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// An effect that is not followed: the registers in `writes` have unknown values afterwards.
    Other,
    /// Copies a register.
    Move(Register, Register),
    /// Sets a register to a number.
    Set(Register, u64),
    /// Sets the 16 bits from this bit on, and keeps the other bits.
    Insert(Register, u16, u8),
    /// `to = from + number`.
    Add(Register, Register, i64),
    /// `to = from`, rounded down to a multiple of a power of two.
    Align(Register, Register),
    /// `to = a + b`.
    Sum(Register, Register, Register),
    /// Loads the memory operand: register, bytes, whether the sign is extended to 64 bits.
    Load(Register, u8, bool),
    /// Loads two registers of 64 bits each from the memory operand.
    LoadPair(Register, Register),
    /// Stores 64 bits of a register, or, for `None`, this many bytes of an unknown value.
    Store(Option<Register>, u16),
    /// Stores a number of 64 bits.
    StoreNumber(u64),
    /// Stores two registers of 64 bits each. `None` is the zero register.
    StorePair(Option<Register>, Option<Register>),
    /// Decreases the stack pointer by 8 and stores a register, or, for `None`, an unknown value.
    Push(Option<Register>),
    /// Loads a register (`None`: no register that is followed), and increases the stack pointer by
    /// 8.
    Pop(Option<Register>),
    /// Reads the clock that hooks read.
    Clock,
}

/// A memory operand. Its address is `base + index * scale + displacement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The base register. `None` if the displacement is an address by itself.
    pub base: Option<Register>,
    /// The index register and its factor.
    pub index: Option<(Register, u8)>,
    /// The number that is added.
    pub displacement: i64,
    /// Whether the address cannot be computed here, for example because it is in a thread-local
    /// segment or in a vector of addresses.
    pub strange: bool,
    /// Whether the instruction reads the memory.
    pub read: bool,
    /// Whether the instruction writes the memory.
    pub written: bool,
    /// The number that is added to the base register, and whether that happens before the access.
    pub adjust: Option<(i64, bool)>,
}

/// The kinds of an instruction for counting: any combination of these bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub bits: u16,
    /// Bytes that the instruction reads from its memory operands.
    pub loaded: u16,
    /// Bytes that the instruction writes to its memory operands.
    pub stored: u16,
}

impl Class {
    /// The instruction reads a memory operand.
    pub const LOAD: u16 = 1 << 0;
    /// The instruction writes a memory operand.
    pub const STORE: u16 = 1 << 1;
    /// The instruction is a jump, conditional or not.
    pub const BRANCH: u16 = 1 << 2;
    pub const CALL: u16 = 1 << 3;
    /// The instruction is a scalar floating-point operation in a vector register.
    pub const SCALAR: u16 = 1 << 4;
    /// The instruction works on vectors of 64 bits (AArch64, MMX).
    pub const VECTOR_64: u16 = 1 << 5;
    /// The instruction works on vectors of 128 bits.
    pub const VECTOR_128: u16 = 1 << 6;
    /// The instruction works on vectors of 256 bits.
    pub const VECTOR_256: u16 = 1 << 7;
    /// The instruction works on vectors of 512 bits.
    pub const VECTOR_512: u16 = 1 << 8;
    /// The instruction works on vectors whose width the processor decides (SVE).
    pub const SCALABLE: u16 = 1 << 9;
}
