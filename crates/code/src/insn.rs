//! A machine instruction, in a form that x86-64 and AArch64 share.

/// A general register, by its number in the encoding. On AArch64, 31 is the stack pointer, and the
/// zero register has no number.
pub type Register = u8;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// The address.
    pub at: u64,
    /// Length in bytes.
    pub length: u8,
    /// Where control continues.
    pub flow: Flow,
    /// The effect on general registers and the stack.
    pub op: Op,
    /// The general registers that are written: bit N for register N.
    pub writes: u32,
    /// The memory operand.
    pub memory: Option<Memory>,
    /// The classes to which the instruction belongs.
    pub class: Class,
}

impl Insn {
    /// Returns the address after the instruction.
    pub fn end(&self) -> u64 {
        self.at.wrapping_add(u64::from(self.length))
    }
}

/// Where control continues after an instruction.
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
    /// Calls the address in a register or, for `None`, in the memory operand.
    CallTo(Option<Register>),
    /// The caller after a return, or nowhere after a trap or an invalid instruction.
    End,
}

/// An effect on general registers and the stack, if it is simple enough for [`crate::values`] to
/// follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Not followed: the registers in `writes` become unknown.
    Other,
    /// Copies a register.
    Move(Register, Register),
    /// Sets a register to a number.
    Set(Register, u64),
    /// Sets 16 bits of a register to the number in the second field, and keeps the other bits. The
    /// third field is the index of the lowest of these bits.
    Insert(Register, u16, u8),
    /// `to = from + number`.
    Add(Register, Register, i64),
    /// `to = from`, rounded down to a multiple of a power of two.
    Align(Register, Register),
    /// `to = a + b`.
    Sum(Register, Register, Register),
    /// Loads the memory operand into a register. The other fields are the number of bytes, and
    /// whether the sign is extended to 64 bits.
    Load(Register, u8, bool),
    /// Loads two 64-bit registers.
    LoadPair(Register, Register),
    /// Stores a 64-bit register, or, for `None`, unknown bytes. The second field is the number of
    /// stored bytes.
    Store(Option<Register>, u16),
    /// Stores a 64-bit number.
    StoreNumber(u64),
    /// Stores two 64-bit registers. `None` is the zero register.
    StorePair(Option<Register>, Option<Register>),
    /// Decreases the stack pointer by 8 and stores a register, or, for `None`, an unknown value.
    Push(Option<Register>),
    /// Loads a register, or, for `None`, an operand that is not followed, from the top of the
    /// stack. Increases the stack pointer by 8.
    Pop(Option<Register>),
    /// Reads the clock that hooks use.
    Clock,
}

/// A memory operand at `base + index * scale + displacement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The base register; `None` if there is none, because the displacement is itself an address.
    pub base: Option<Register>,
    /// The index register and its scale.
    pub index: Option<(Register, u8)>,
    /// The number that is added.
    pub displacement: i64,
    /// Whether the address cannot be computed here: for example, it depends on a thread-local
    /// segment, on a vector, or on a 32-bit register.
    pub strange: bool,
    /// Whether the instruction reads the memory.
    pub read: bool,
    /// Whether the instruction writes the memory.
    pub written: bool,
    /// What is added to the base register, and whether that happens before the access.
    pub adjust: Option<(i64, bool)>,
}

/// The classes to which an instruction belongs, as any of the bits below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub bits: u16,
    /// Bytes read from memory operands.
    pub loaded: u16,
    /// Bytes written to memory operands.
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
    /// A scalar operation in a vector register, usually on floating-point numbers.
    pub const SCALAR: u16 = 1 << 4;
    /// Vectors of 64 bits (AArch64, MMX).
    pub const VECTOR_64: u16 = 1 << 5;
    /// Vectors of 128 bits.
    pub const VECTOR_128: u16 = 1 << 6;
    /// Vectors of 256 bits.
    pub const VECTOR_256: u16 = 1 << 7;
    /// Vectors of 512 bits.
    pub const VECTOR_512: u16 = 1 << 8;
    /// Vectors whose width the processor decides (SVE).
    pub const SCALABLE: u16 = 1 << 9;
}
