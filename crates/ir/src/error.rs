//! Why a text is not instrumented.

use crate::table::TableError;

/// Why a text is not instrumented.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IrError {
    /// The file is recognised as something other than the text of LLVM IR.
    #[error("this is {0}, not the text of LLVM IR")]
    Other(&'static str),
    /// The text contains nothing that belongs to LLVM IR.
    #[error("this is not the text of LLVM IR: line 1 is {0:?}")]
    Unknown(String),
    /// The text is too long for 32-bit offsets.
    #[error("the text has {0} bytes, at most {max} can be read", max = u32::MAX)]
    Long(usize),
    /// The text ends in the middle of a construct.
    #[error("the text ends inside of {what} that begins in line {line}")]
    Truncated {
        /// The construct that is not closed.
        what: &'static str,
        /// The line in which the construct begins, from 1.
        line: u32,
    },
    /// A closing bracket has no opening bracket.
    #[error("line {line}: {bracket:?} closes nothing")]
    Unbalanced {
        /// The line, from 1.
        line: u32,
        /// The bracket.
        bracket: char,
    },
    /// A definition has no name, no argument list or no body.
    #[error("line {line}: this definition has no {what}")]
    Definition {
        /// The line, from 1.
        line: u32,
        /// The part that the definition lacks.
        what: &'static str,
    },
    /// A jump has too few or too many targets, or a target that it cannot have.
    #[error("line {line}: this jump of {function} is malformed: {why}")]
    Branch {
        /// The line in which the jump ends, from 1.
        line: u32,
        /// The function, as the text names it.
        function: String,
        /// The defect.
        why: String,
    },
    /// The text has typed pointers, which LLVM writes by default only up to version 14.
    #[error("line {line}: pointers with a type (as in i8*) are of LLVM 14 or older")]
    TypedPointers {
        /// The line of the first such pointer (or of the definition that contains it), from 1.
        line: u32,
    },
    /// The text is already instrumented: it has a descriptor.
    #[error("the text is already instrumented: it defines @{0}")]
    Instrumented(String),
    /// The instrumenter knows no instruction that reads a clock on this target.
    #[error("target {0}: loops can be timed on x86_64 and aarch64 with 64-bit pointers only")]
    Target(String),
    /// Neither the text nor the caller names a target.
    #[error("the text names no target")]
    NoTarget,
    /// A list of constructors or destructors does not have the form that LLVM writes.
    #[error("line {line}: @{name} is not a list as LLVM writes it")]
    Constructors {
        /// The line, from 1.
        line: u32,
        /// `llvm.global_ctors` or `llvm.global_dtors`.
        name: &'static str,
    },
    /// The file is recognised as something other than MLIR's text.
    #[error("this is {0}, not the text of MLIR")]
    NotMlir(&'static str),
    /// The text is MLIR in its generic form, in which every operation's name is in quotes.
    #[error("line {line}: MLIR's generic form cannot be read")]
    Generic {
        /// The line, from 1.
        line: u32,
    },
    /// The text has no function of the `llvm` dialect with a body.
    #[error("there is no function of the llvm dialect in it (llvm.func in a builtin.module)")]
    NoFunctions,
    /// The side table cannot be written.
    #[error(transparent)]
    Table(#[from] TableError),
}
