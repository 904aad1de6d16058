//! Reads the modules of a text of MLIR, and their functions of the `llvm` dialect.

use crate::error::IrError;
use crate::scan::{Span, find};

use super::scan::{Cursor, closes, name_end};

/// Prefix of the names of functions and globals that the instrumenter adds to a module.
pub const PREFIX: &[u8] = b"counterpoint_loops_";

/// A module with functions of the `llvm` dialect.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The text from the module's first word to its closing brace.
    pub whole: Span,
    /// The text between the braces.
    pub inside: Span,
    /// The offset of the closing brace, or of the blanks before it: definitions can be added there.
    pub end: u32,
    /// The target triple.
    pub triple: Option<String>,
    /// The functions with a body.
    pub functions: Vec<Function>,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name without `@` and quotes.
    pub name: String,
    /// The text from the first word to the opening brace.
    pub header: Span,
    /// The text between the braces.
    pub body: Span,
    /// Line of the first word, from 1.
    pub line: u32,
    /// Line of the opening brace.
    pub body_line: u32,
    /// Line of the closing brace.
    pub last_line: u32,
    /// The rest of the line after the closing brace, with the location (`loc(…)`) if there is one.
    pub tail: Span,
}

struct Open {
    bracket: u8,
    /// The index of the module that this bracket opens, if it opens one.
    module: Option<usize>,
}

/// Reads the modules of a text, except those without functions of the `llvm` dialect.
pub fn modules(text: &[u8]) -> Result<Vec<Module>, IrError> {
    if u32::try_from(text.len()).is_err() {
        return Err(IrError::Long(text.len()));
    }
    recognise(text)?;
    let mut cursor = Cursor::new(text);
    let mut found: Vec<Module> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut first_line = 1;
    loop {
        // A module or a function begins at the start of a line, or after a brace.
        cursor.spaces();
        let start = cursor.at;
        let word = &text[start..name_end(text, start)];
        let inside = open.last().and_then(|open| open.module);
        match (word, inside) {
            (b"builtin.module" | b"module", _) => {
                if let Some(module) = module(&mut cursor)? {
                    open.push(Open { bracket: b'{', module: Some(found.len()) });
                    found.push(module);
                    first_line = cursor.line;
                    continue;
                }
            }
            (b"llvm.func", Some(module)) => {
                if let Some(function) = function(&mut cursor)? {
                    found[module].functions.push(function);
                }
            }
            (b"llvm.mlir.global", Some(_)) => {
                if let Some(name) = instrumented(text, start) {
                    return Err(IrError::Instrumented(name));
                }
            }
            _ if text[start..].starts_with(b"\"builtin.module\"")
                || text[start..].starts_with(b"\"llvm.func\"") =>
            {
                return Err(IrError::Generic { line: cursor.line });
            }
            _ => {}
        }
        // Moves past the end of the line, and notes which brackets the line opens and closes.
        loop {
            let Some(byte) = cursor.next_special()? else {
                if !open.is_empty() {
                    return Err(IrError::Truncated { what: "a region", line: first_line });
                }
                found.retain(|module| !module.functions.is_empty());
                return Ok(found);
            };
            let at = cursor.at;
            cursor.at += 1;
            match byte {
                b'\n' => {
                    cursor.line += 1;
                    break;
                }
                b'(' | b'[' | b'{' => open.push(Open { bracket: byte, module: None }),
                _ => {
                    let last = open.pop();
                    closes(last.as_ref().map(|open| open.bracket), byte, cursor.line)?;
                    if let Some(module) = last.and_then(|open| open.module) {
                        close(text, &mut found[module], at);
                    }
                }
            }
        }
    }
}

fn close(text: &[u8], module: &mut Module, at: usize) {
    module.whole.end = at as u32 + 1;
    module.inside.end = at as u32;
    let blanks = text[..at].iter().rev().take_while(|b| matches!(b, b' ' | b'\t')).count();
    module.end = (at - blanks) as u32;
}

/// Fails if the text is clearly in another format, such as MLIR bytecode.
fn recognise(text: &[u8]) -> Result<(), IrError> {
    if text.starts_with(b"ML\xefR") {
        return Err(IrError::NotMlir("MLIR bytecode"));
    }
    if text.starts_with(b"BC\xc0\xde") || text.starts_with(b"\xde\xc0\x17\x0b") {
        return Err(IrError::NotMlir("LLVM bitcode"));
    }
    if text.starts_with(b"\x7fELF") {
        return Err(IrError::NotMlir("an ELF file"));
    }
    if text.starts_with(b"PK\x03\x04") {
        return Err(IrError::NotMlir("a compiled module (.vmfb)"));
    }
    if text.contains(&0) {
        return Err(IrError::NotMlir("a binary file"));
    }
    Ok(())
}

/// Moves into a module's region (the text in its braces). Returns `None` if no region follows.
fn module(cursor: &mut Cursor) -> Result<Option<Module>, IrError> {
    let start = cursor.at;
    let mut triple = None;
    let mut at = *cursor;
    loop {
        match at.next_special()? {
            Some(b'{') => {
                let word = text_before(at.text, start, at.at);
                if word != b"attributes" {
                    break;
                }
                let from = at.at;
                at.balanced()?;
                triple = attribute(at.text, at.span(from), b"llvm.target_triple");
            }
            Some(b'(' | b'[') => at.balanced()?,
            _ => return Ok(None),
        }
    }
    at.at += 1;
    *cursor = at;
    let whole = Span::new(start, at.at);
    Ok(Some(Module { whole, inside: Span::new(at.at, at.at), triple, ..Module::default() }))
}

/// Returns the word at the end of the text between `from` and `at`, or an empty one.
fn text_before(text: &[u8], from: usize, at: usize) -> &[u8] {
    let before = text[from..at].trim_ascii_end();
    let word = before.iter().rev().take_while(|b| super::scan::is_name(**b)).count();
    &before[before.len() - word..]
}

/// Returns a string attribute of a dictionary: `key = "value"`.
fn attribute(text: &[u8], dictionary: Span, key: &[u8]) -> Option<String> {
    let text = dictionary.of(text);
    let at = text.windows(key.len()).position(|window| window == key)? + key.len();
    let rest = text[at..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let end = find(rest, 0, b'"')?;
    String::from_utf8(rest[..end].to_vec()).ok()
}

/// Returns the first `@name` in the rest of the line, without `@` and quotes.
fn symbol(text: &[u8], at: usize) -> Option<Span> {
    let line = find(text, at, b'\n').unwrap_or(text.len());
    let sign = find(&text[..line], at, b'@')? + 1;
    match text.get(sign) {
        Some(b'"') => find(&text[..line], sign + 1, b'"').map(|end| Span::new(sign + 1, end)),
        _ => Some(Span::new(sign, name_end(&text[..line], sign))),
    }
}

/// Returns the name of the global at `at`, if the name has the instrumenter's prefix.
fn instrumented(text: &[u8], at: usize) -> Option<String> {
    let name = symbol(text, at)?.of(text);
    name.starts_with(PREFIX).then(|| String::from_utf8_lossy(name).into_owned())
}

/// Reads a function and moves past it. Returns `None` for a declaration.
fn function(cursor: &mut Cursor) -> Result<Option<Function>, IrError> {
    let (text, start, line) = (cursor.text, cursor.at, cursor.line);
    let lacks = |what| IrError::Definition { line, what };
    let symbol = symbol(text, start).ok_or_else(|| lacks("name"))?;
    let name = String::from_utf8_lossy(symbol.of(text)).into_owned();
    cursor.at = symbol.end as usize + usize::from(text.get(symbol.end as usize) == Some(&b'"'));
    if cursor.next_special()? != Some(b'(') {
        return Err(lacks("arguments"));
    }
    cursor.balanced()?;
    loop {
        match cursor.next_special()? {
            Some(b'{') => {
                if text_before(text, start, cursor.at) != b"attributes" {
                    break;
                }
                cursor.balanced()?;
            }
            Some(b'(' | b'[') => cursor.balanced()?,
            Some(b'\n' | b'}') | None => return Ok(None),
            Some(bracket) => {
                return Err(IrError::Unbalanced { line: cursor.line, bracket: bracket.into() });
            }
        }
    }
    let header = cursor.span(start);
    let (open, body_line) = (cursor.at, cursor.line);
    cursor.balanced()?;
    let (close, last_line) = (cursor.at - 1, cursor.line);
    let tail = Span::new(cursor.at, find(text, cursor.at, b'\n').unwrap_or(text.len()));
    let body = Span::new(open + 1, close);
    Ok(Some(Function { name, header, body, line, body_line, last_line, tail }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_regions_attributes_and_strings() {
        let text = br#"#map = affine_map<(d0) -> (d0)>
module @outer attributes {x = "builtin.module { \" {"} {
  hal.executable private @e { hal.executable.variant public @v target(<"llvm-cpu", {a = [{}]}>) {
      hal.executable.export public @d ordinal(0) count(%a: index) -> (index) {
        %c = arith.constant 1 : index
      }
      builtin.module attributes {llvm.target_triple = "x86_64-unknown-linux-gnu"} {
        llvm.func @memcpy(!llvm.ptr, !llvm.ptr) -> !llvm.struct<(i32, i32)>
        llvm.mlir.global private constant @c("{ \22 }")
        llvm.func internal @"a b"(%x: i32 {llvm.noundef}) -> i32 attributes {passthrough = ["{"]} {
          llvm.return %x : i32 // }
        } loc("m.mlir":3:4)
      }
    }
  }
  util.func public @f() { util.return }
}
{-# dialect_resources: { builtin: { a: "0x00" } } #-}
"#;
        let found = modules(text).expect("reads");
        assert_eq!(found.len(), 1);
        let module = &found[0];
        assert_eq!(module.triple.as_deref(), Some("x86_64-unknown-linux-gnu"));
        assert!(module.whole.of(text).ends_with(b"3:4)\n      }"));
        assert!(text[module.end as usize..].starts_with(b"      }\n    }"));
        let names: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["a b"]);
        let function = &module.functions[0];
        assert_eq!((function.line, function.body_line, function.last_line), (10, 10, 12));
        assert_eq!(function.tail.of(text), b" loc(\"m.mlir\":3:4)");
        assert_eq!(function.body.of(text).trim_ascii(), b"llvm.return %x : i32 // }");
    }
}
