//! Why machine code cannot be looked at.

/// Why machine code cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The file is not an ELF file of 64 bits, or is damaged.
    #[error("not an ELF file that can be read: {0}")]
    Elf(String),
    /// The file's code is of another architecture.
    #[error("code of {0} cannot be decoded (only x86-64 and little-endian AArch64 can)")]
    Machine(String),
    /// Something is larger than any real program's.
    #[error("the {what} has {bytes} bytes, more than can be read")]
    TooLarge {
        /// What is too large: `file`, `function`, …
        what: &'static str,
        /// The size of what is too large.
        bytes: u64,
    },
    /// Nothing in the code uses the module's descriptor.
    #[error("no instrumented function was found in the code")]
    NoFunction,
}
