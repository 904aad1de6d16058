//! Why machine code cannot be analysed.

/// Why machine code cannot be analysed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The file is not a 64-bit ELF file, or is damaged.
    #[error("not an ELF file that can be read: {0}")]
    Elf(String),
    /// The code is neither for x86-64 nor for little-endian AArch64.
    #[error("code of {0} cannot be decoded (only x86-64 and little-endian AArch64 can)")]
    Machine(String),
    /// A part of the input, which `what` names, exceeds its limit.
    #[error("the {what} has {size} {unit}, more than can be read")]
    TooLarge {
        /// The part: `file`, `function`, …
        what: &'static str,
        /// The part's size.
        size: u64,
        /// The unit of the size: `bytes`, `instructions`, …
        unit: &'static str,
    },
    /// No function with hooks of the wanted module was found.
    #[error("no instrumented function was found in the code")]
    NoFunction,
}
