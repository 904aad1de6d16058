//! Helps to find out whether the first block of a loop works, or only decides whether the loop
//! continues (`while (i < n)`). If it works, its last run is an iteration, too; `iterations.rs` has
//! the whole rule.
//!
//! A block works if its effect can be seen after the loop: it stores, calls a function, or computes
//! a value such as a sum, which each iteration passes on and which is used after the loop. A
//! variable that changes by a constant is not such a value: the first block of `while (i++ < n)`
//! only decides.

use std::collections::HashMap;

use crate::function::Body;
use crate::scan::{Span, Token, Tokens};

/// How the names of LLVM's intrinsics that count as writing memory begin, without `llvm.`.
const WRITING: [&[u8]; 7] = [
    b"memcpy",
    b"memmove",
    b"memset",
    b"masked.store",
    b"masked.scatter",
    b"masked.compressstore",
    b"vp.store",
];

/// Returns a statement without the name of its result.
pub fn statement(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii_start();
    match line.first() {
        Some(b'%') => {
            let value = line.iter().position(|b| *b == b'=').map_or(line.len(), |at| at + 1);
            line[value..].trim_ascii_start()
        }
        _ => line,
    }
}

/// Returns whether a statement of a block stores or calls. Calls of LLVM's intrinsics count only if
/// they write memory.
pub fn stores_or_calls(block: &[u8]) -> bool {
    block.split(|b| *b == b'\n').any(|line| {
        let statement = statement(line);
        let begins = |words: &[&[u8]]| words.iter().any(|word| statement.starts_with(word));
        if begins(&[b"store ", b"atomicrmw ", b"cmpxchg ", b"fence ", b"invoke ", b"callbr "]) {
            return true;
        }
        if !begins(&[b"call ", b"tail call ", b"musttail call ", b"notail call "]) {
            return false;
        }
        // In a direct call, the first global name is the called function. A call of assembly or
        // through a pointer may have no global name.
        let called = statement.iter().position(|b| *b == b'@').map(|at| &statement[at + 1..]);
        match called.and_then(|name| name.strip_prefix(b"llvm.")) {
            Some(intrinsic) => WRITING.iter().any(|name| intrinsic.starts_with(name)),
            None => true,
        }
    })
}

/// The blocks in which each local value (`%name`) is used or defined.
#[derive(Debug)]
pub struct Uses<'a> {
    blocks: HashMap<&'a [u8], Vec<u32>>,
}

impl<'a> Uses<'a> {
    /// Collects the uses and definitions of local values in a whole function.
    pub fn of(text: &'a [u8], body: &Body) -> Self {
        let mut blocks: HashMap<&[u8], Vec<u32>> = HashMap::new();
        for (i, block) in body.blocks.iter().enumerate() {
            let i = i as u32;
            let locals = Tokens::new(text, block.text).filter(|(token, _)| *token == Token::Local);
            for (_, name) in locals {
                let known = blocks.entry(name.of(text)).or_default();
                if known.last() != Some(&i) {
                    known.push(i);
                }
            }
        }
        Self { blocks }
    }

    /// Returns the blocks in which a value is used or defined, each once, in the order of the text.
    /// The value's name includes `%`.
    pub fn blocks(&self, value: &[u8]) -> &[u32] {
        self.blocks.get(value).map_or(&[], Vec::as_slice)
    }
}

/// Returns the statement in a block that defines `value`, without the value's name and ` = `.
pub fn definition<'a>(text: &'a [u8], block: Span, value: &[u8]) -> Option<&'a [u8]> {
    let lines = block.of(text).split(|b| *b == b'\n');
    lines
        .map(<[u8]>::trim_ascii_start)
        .filter_map(|line| line.strip_prefix(value))
        .find_map(|line| line.strip_prefix(b" = "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_what_is_seen_afterwards() {
        for (statement, works) in [
            ("store i32 %x, ptr %p, align 4", true),
            ("%v = atomicrmw add ptr %p, i32 1 seq_cst", true),
            ("%v = tail call i32 @next(ptr %p)", true),
            ("call void asm sideeffect \"\", \"r\"(i32 %x)", true),
            ("call void %f()", true),
            ("tail call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 8, i1 false)", true),
            (
                "call void @llvm.dbg.value(metadata i32 %x, metadata !1, metadata !2), !dbg !3",
                false,
            ),
            ("%v = call i32 @llvm.smax.i32(i32 %x, i32 0)", false),
            ("%call = load i32, ptr %p", false),
            ("#dbg_value(i32 %x, !1, !DIExpression(), !2)", false),
            ("br i1 %c, label %call, label %store", false),
        ] {
            assert_eq!(
                stores_or_calls(format!("\n  {statement}\n").as_bytes()),
                works,
                "{statement}"
            );
        }
    }
}
