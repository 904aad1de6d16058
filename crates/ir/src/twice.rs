//! Recognises functions that return twice, such as `setjmp`. A function that calls one of them is
//! not instrumented: the inserted code would keep the start time in a register, which may have any
//! value after the second return.

use std::collections::HashSet;

use crate::module::Module;
use crate::scan::{Span, Token, Tokens, name, number};

/// Why the caller of a function that returns twice is not instrumented.
pub const WHY: &str = "it calls setjmp, or another function that returns twice";

/// Functions of C libraries.
const NAMES: [&[u8]; 7] =
    [b"setjmp", b"_setjmp", b"sigsetjmp", b"__sigsetjmp", b"getcontext", b"savectx", b"vfork"];

/// Whether a function of this name is known to return twice.
pub fn is_one(name: &[u8]) -> bool {
    NAMES.contains(&name) || name.starts_with(b"llvm.eh.sjlj.setjmp")
}

/// Numbers of the attribute groups that contain `returns_twice`. Compilers give such a group to
/// calls of functions that return twice.
#[derive(Debug, Default)]
pub struct Twice {
    groups: HashSet<u32>,
}

impl Twice {
    /// Reads the groups of attributes.
    pub fn new(text: &[u8], module: &Module) -> Self {
        let says =
            |span: Span| Tokens::new(text, span).any(|(_, t)| t.of(text) == b"returns_twice");
        let groups = module.attributes.iter().filter(|(_, span)| says(**span));
        Self { groups: groups.map(|(group, _)| *group).collect() }
    }

    /// Whether the called function returns twice, according to its name or the call's attributes.
    pub fn is_called(&self, text: &[u8], call: Span) -> bool {
        let mut seen = false;
        Tokens::new(text, call).any(|(token, span)| match token {
            // If the called function has a name, that is the first global name in the call.
            Token::Global => !std::mem::replace(&mut seen, true) && is_one(name(span.of(text))),
            Token::Word => span.of(text) == b"returns_twice",
            Token::Attributes => {
                number(span.of(text)).is_some_and(|group| self.groups.contains(&group))
            }
            _ => false,
        })
    }
}

/// Whether an operation of MLIR calls a function that returns twice.
pub fn is_called_in_mlir(line: &[u8]) -> bool {
    let call = b"llvm.call @";
    let at = line.windows(call.len()).position(|part| part == call);
    let name = at.map(|at| &line[at + call.len()..]);
    name.is_some_and(|name| {
        let end = name.iter().position(|b| *b == b'(').unwrap_or(name.len());
        is_one(&name[..end]) || name.windows(13).any(|part| part == b"returns_twice")
    })
}
