//! Reads the blocks of a function.

use std::collections::HashMap;

use crate::error::IrError;
use crate::function::{Block, Body, Edge, Terminator, show};
use crate::scan::Span;

use super::read::Function;
use super::scan::{Cursor, is_name, name_end};

/// An argument of a block.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The name with its `%`.
    pub name: Span,
    /// The type, without its location.
    pub kind: Span,
}

/// The blocks of a function. The operand of an edge is the whole successor, for example `^bb2(%25 :
/// i64)`.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Blocks and edges.
    pub body: Body,
    pub arguments: Vec<Argument>,
    pub of_block: Vec<(u32, u32)>,
    /// The statements with an operation of `LOOKED_AT`, by the name (with `%`) of their result.
    pub defined: HashMap<Vec<u8>, Span>,
    /// The blocks by name, with `^`.
    names: HashMap<Vec<u8>, u32>,
}

/// The operations that compute the counters of loops and compare them with limits.
const LOOKED_AT: [&[u8]; 3] = [b"llvm.mlir.constant", b"llvm.add", b"llvm.icmp"];

impl Blocks {
    /// Reads the body of a function. If its syntax is not understood, `Body::strange` says so.
    pub fn read(text: &[u8], function: &Function) -> Result<Self, IrError> {
        let mut blocks = Self::default();
        let end = function.body.end as usize;
        let mut cursor = Cursor {
            text: &text[..end],
            at: function.body.start as usize,
            line: function.body_line,
        };
        blocks.body.entry = function.body.start;
        let mut open = false;
        loop {
            cursor.blank();
            let Some(byte) = cursor.peek() else { break };
            let (start, line) = (cursor.at, cursor.line);
            if byte == b'^' {
                blocks.unfinished(open);
                let label = Span::new(start, name_end(cursor.text, start + 1));
                cursor.at = label.end as usize;
                if blocks.label(&mut cursor, label, line)?.is_none() {
                    blocks.strange(|| {
                        format!("the arguments of {} cannot be read", show(label.of(text)))
                    });
                    return Ok(blocks);
                }
                open = true;
                continue;
            }
            if blocks.body.blocks.is_empty() {
                blocks.begin(Span::default(), start, line);
                open = true;
            } else if !open {
                blocks.strange(|| format!("line {line}: a block has no label"));
            }
            let end = cursor.statement()?;
            if end == start {
                // This is a bracket that belongs to no statement.
                blocks.strange(|| format!("line {line}: this is not an operation"));
                return Ok(blocks);
            }
            let statement = Span::new(start, end);
            open = blocks.statement(text, statement, line) && open;
            if let Some(block) = blocks.body.blocks.last_mut() {
                block.lines[1] = cursor.line;
                block.text.end = end as u32;
            }
        }
        blocks.unfinished(open);
        if blocks.body.blocks.is_empty() {
            blocks.strange(|| "it has no blocks".to_owned());
        }
        blocks.resolve(text).map_err(|(line, why)| IrError::Branch {
            line,
            function: function.name.clone(),
            why,
        })?;
        Ok(blocks)
    }

    fn strange(&mut self, why: impl FnOnce() -> String) {
        self.body.strange.get_or_insert_with(why);
    }

    fn unfinished(&mut self, open: bool) {
        if open {
            self.strange(|| "a block does not end with a known terminator".to_owned());
        }
    }

    fn begin(&mut self, label: Span, at: usize, line: u32) {
        let arguments = self.arguments.len() as u32;
        self.of_block.push((arguments, arguments));
        self.body.blocks.push(Block {
            label,
            text: Span::new(at, at),
            lines: [line, line],
            ..Block::default()
        });
    }

    /// Begins a block, and reads what follows its label: arguments, if any, and a colon.
    fn label(
        &mut self,
        cursor: &mut Cursor,
        label: Span,
        line: u32,
    ) -> Result<Option<()>, IrError> {
        let text = cursor.text;
        self.begin(label, label.end as usize, line);
        let index = self.body.blocks.len() as u32 - 1;
        let key = label.of(text).to_vec();
        if key.starts_with(b"^cpt.") {
            self.strange(|| "it has a block whose name begins with cpt.".to_owned());
        }
        if let Some(key) = self.names.insert(key.clone(), index).map(|_| key) {
            self.strange(|| format!("two blocks are named {}", show(&key)));
        }
        cursor.spaces();
        if cursor.peek() == Some(b'(') {
            let from = cursor.at + 1;
            cursor.balanced()?;
            let inside = Span::new(from, cursor.at - 1);
            if self.read_arguments(text, inside).is_none() {
                return Ok(None);
            }
            cursor.spaces();
        }
        if cursor.peek() != Some(b':') {
            return Ok(None);
        }
        cursor.at += 1;
        if let Some(block) = self.body.blocks.last_mut() {
            block.text = Span::new(cursor.at, cursor.at);
        }
        if index == 0 {
            self.body.entry = cursor.at as u32;
        }
        Ok(Some(()))
    }

    /// Reads `%a: type loc(…), %b: type`.
    fn read_arguments(&mut self, text: &[u8], inside: Span) -> Option<()> {
        for piece in pieces(text, inside) {
            let trimmed = trim(text, piece);
            let end = name_end(text, trimmed.start as usize + 1) as u32;
            let name = Span { start: trimmed.start, end };
            if text.get(name.start as usize) != Some(&b'%') || end > trimmed.end {
                return None;
            }
            let rest = Span { start: end, end: trimmed.end };
            let colon = rest.of(text).iter().position(|b| *b == b':')? as u32;
            let kind = Span { start: end + colon + 1, end: trimmed.end };
            let length = kind.of(text).windows(5).position(|window| window == b" loc(");
            let end = length.map_or(kind.end, |length| kind.start + length as u32);
            self.arguments.push(Argument { name, kind: trim(text, Span { end, ..kind }) });
        }
        self.of_block.last_mut()?.1 = self.arguments.len() as u32;
        Some(())
    }

    /// Adds a statement, and returns whether its block continues.
    fn statement(&mut self, text: &[u8], span: Span, line: u32) -> bool {
        let (result, op) = operation(text, span);
        if result.of(text).starts_with(b"%cpt.") {
            self.strange(|| "it has a value whose name begins with cpt.".to_owned());
        }
        let word = op.of(text);
        let end = match word {
            b"llvm.br" | b"llvm.cond_br" | b"llvm.switch" => Terminator::Jump,
            b"llvm.return" => Terminator::Return,
            b"llvm.unreachable" => Terminator::Leave,
            _ => {
                if word == b"llvm.alloca" && self.body.blocks.len() == 1 {
                    self.body.entry = span.end;
                }
                if LOOKED_AT.contains(&word) {
                    self.defined.insert(result.of(text).to_vec(), span);
                }
                // A statement is refused if it could be another terminator, have a region with
                // blocks, or be in the generic form. But intrinsics in the generic form are
                // accepted: IREE's compiler uses them for processors with masked vectors
                // (`llvm.intr.vp.reduce.fmax`).
                let is_intrinsic = text[op.start as usize..].starts_with(b"\"llvm.intr.");
                if !(word.contains(&b'.') || is_intrinsic) || has_successor(text, span) {
                    let word = show(first_word(text, op));
                    self.strange(|| format!("line {line}: {word} is not known"));
                }
                return true;
            }
        };
        if let Some(block) = self.body.blocks.last_mut() {
            block.end = end;
            block.terminator = span;
        }
        false
    }

    /// Finds the targets of the terminators. For a malformed terminator, the error contains its
    /// line and its defect.
    fn resolve(&mut self, text: &[u8]) -> Result<(), (u32, String)> {
        for i in 0..self.body.blocks.len() {
            let block = self.body.blocks[i];
            let from = self.body.edges.len() as u32;
            if block.end == Terminator::Jump {
                for operand in successors(text, block.terminator) {
                    let end = name_end(text, operand.start as usize + 1) as u32;
                    let name = Span { start: operand.start, end };
                    match self.names.get(name.of(text)) {
                        Some(to) if *to > 0 => self.body.edges.push(Edge { to: *to, operand }),
                        Some(_) => {
                            return Err((block.lines[1], "it goes to the entry block".to_owned()));
                        }
                        None => {
                            let why = format!("there is no block {}", show(name.of(text)));
                            return Err((block.lines[1], why));
                        }
                    }
                }
                let targets = self.body.edges.len() - from as usize;
                let begins = |word: &[u8]| block.terminator.of(text).starts_with(word);
                let expected = match () {
                    () if begins(b"llvm.br ") => 1,
                    () if begins(b"llvm.cond_br ") => 2,
                    () => targets.max(1),
                };
                if targets == 0 {
                    self.strange(|| "the successors of a jump cannot be read".to_owned());
                } else if targets != expected {
                    let why = format!("its number of targets is {targets} and not {expected}");
                    return Err((block.lines[1], why));
                }
            }
            self.body.blocks[i].edges = (from, self.body.edges.len() as u32);
        }
        Ok(())
    }

    pub fn arguments_of(&self, block: u32) -> &[Argument] {
        let (from, to) = self.of_block[block as usize];
        &self.arguments[from as usize..to as usize]
    }
}

/// Returns the first result and the keyword of a statement.
fn operation(text: &[u8], statement: Span) -> (Span, Span) {
    let (start, end) = (statement.start as usize, statement.end as usize);
    let text = &text[..end];
    let mut at = start;
    let mut result = Span::new(start, start);
    if text.get(at) == Some(&b'%') {
        at = name_end(text, at + 1);
        result = Span::new(start, at);
        // An operation may have several results: `%1:2 =` or `%1, %2 =`.
        while text
            .get(at)
            .is_some_and(|b| is_name(*b) || matches!(b, b' ' | b'\t' | b'=' | b':' | b',' | b'%'))
        {
            if text[at] == b'=' {
                at += 1;
                while matches!(text.get(at), Some(b' ' | b'\t')) {
                    at += 1;
                }
                break;
            }
            at += 1;
        }
    }
    (result, Span::new(at, name_end(text, at)))
}

/// Returns the word at which an operation begins, for a message.
fn first_word(text: &[u8], op: Span) -> &[u8] {
    match op.is_empty() {
        false => op.of(text),
        true => {
            let rest = &text[op.start as usize..];
            let end = rest.iter().take(40).take_while(|b| !b.is_ascii_whitespace()).count();
            &rest[..end]
        }
    }
}

/// Calls `each` for the bytes of a statement outside of strings and comments.
fn outside_strings(text: &[u8], span: Span, mut each: impl FnMut(usize, u8)) {
    let (mut at, end) = (span.start as usize, span.end as usize);
    let text = &text[..end];
    while at < end {
        match text[at] {
            b'"' => {
                let mut cursor = Cursor { text, at, line: 0 };
                match cursor.string() {
                    Ok(()) => at = cursor.at,
                    Err(_) => return,
                }
                continue;
            }
            b'/' if text.get(at + 1) == Some(&b'/') => {
                at = text[at..].iter().position(|b| *b == b'\n').map_or(end, |n| at + n);
                continue;
            }
            byte => each(at, byte),
        }
        at += 1;
    }
}

/// Returns whether a statement names or defines a block.
fn has_successor(text: &[u8], span: Span) -> bool {
    let mut found = false;
    outside_strings(text, span, |_, byte| found |= byte == b'^');
    found
}

/// Returns the successors of a terminator, with the values that they pass. The list is empty if a
/// successor's brackets do not close on the same line, which no printer writes.
pub fn successors(text: &[u8], terminator: Span) -> Vec<Span> {
    let end = terminator.end as usize;
    let mut found: Vec<Span> = Vec::new();
    let mut begins = Vec::new();
    outside_strings(text, terminator, |at, byte| {
        if byte == b'^' {
            begins.push(at);
        }
    });
    for at in begins {
        let name = name_end(&text[..end], at + 1);
        let mut cursor = Cursor { text: &text[..end], at: name, line: 0 };
        if cursor.peek() == Some(b'(') && (cursor.balanced().is_err() || cursor.line > 0) {
            return Vec::new();
        }
        found.push(Span::new(at, cursor.at));
    }
    found
}

/// Returns the pieces between commas outside of brackets. Angle brackets count as brackets, except
/// in arrows (`->`).
pub fn pieces(text: &[u8], inside: Span) -> Vec<Span> {
    let mut found = Vec::new();
    let mut depth = 0_i64;
    let mut start = inside.start;
    let mut previous = 0;
    outside_strings(text, inside, |at, byte| {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if previous == b'-' => {}
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b',' if depth == 0 => {
                found.push(Span { start, end: at as u32 });
                start = at as u32 + 1;
            }
            _ => {}
        }
        previous = byte;
    });
    let last = Span { start, end: inside.end };
    if !last.of(text).trim_ascii().is_empty() {
        found.push(last);
    }
    found
}

/// Returns a span without the blanks around it.
pub fn trim(text: &[u8], span: Span) -> Span {
    let bytes = span.of(text);
    let before = bytes.len() - bytes.trim_ascii_start().len();
    let start = span.start + before as u32;
    Span { start, end: start + bytes.trim_ascii().len() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_read(body: &str) -> (Result<Blocks, IrError>, Vec<u8>) {
        let text = body.as_bytes().to_vec();
        let function = Function {
            name: "f".to_owned(),
            header: Span::default(),
            body: Span::new(0, text.len()),
            line: 1,
            body_line: 1,
            last_line: 1,
            tail: Span::default(),
        };
        (Blocks::read(&text, &function), text)
    }

    fn read(body: &str) -> (Blocks, Vec<u8>) {
        let (blocks, text) = try_read(body);
        (blocks.expect("brackets close"), text)
    }

    #[test]
    fn a_malformed_jump_is_an_error() {
        for (body, why) in [
            ("  llvm.br ^b\n", "line 1: this jump of f is malformed: there is no block ^b"),
            (
                "^a:\n  llvm.br ^a\n",
                "line 2: this jump of f is malformed: it goes to the entry block",
            ),
            (
                "  llvm.cond_br %c, ^a\n^a:\n  llvm.return\n",
                "line 1: this jump of f is malformed: its number of targets is 1 and not 2",
            ),
        ] {
            assert_eq!(try_read(body).0.unwrap_err().to_string(), why, "{body}");
        }
    }

    #[test]
    fn blocks_edges_and_arguments() {
        let (blocks, text) = read(
            r#"
  %0 = llvm.mlir.constant(0 : i64) : i64 loc(unknown)
  llvm.cond_br %c weights([1, 2]), ^bb1(%0, %s : i64, !llvm.struct<"a^b", (i32, ptr)>), ^bb2 loc("a ^bb9":1:2)
^bb1(%1: i64 loc("x":1:1), %2: !llvm.struct<"a,b", (i32, ptr)>):  // 2 preds: ^bb0, ^bb1
  llvm.switch %0 : i64, ^bb2 [
    0: ^bb1(%0, %s : i64, !llvm.struct<"a^b", (i32, ptr)>),
    1: ^bb2
  ]
^bb2:  // 2 preds
  llvm.return %x : i32
"#,
        );
        assert_eq!(blocks.body.strange, None);
        let show = |span: Span| String::from_utf8_lossy(span.of(&text)).into_owned();
        let edges: Vec<(u32, String)> =
            blocks.body.edges.iter().map(|e| (e.to, show(e.operand))).collect();
        let passed = "^bb1(%0, %s : i64, !llvm.struct<\"a^b\", (i32, ptr)>)".to_owned();
        let expected = [
            (1, passed.clone()),
            (2, "^bb2".to_owned()),
            (2, "^bb2".to_owned()),
            (1, passed),
            (2, "^bb2".to_owned()),
        ];
        assert_eq!(edges, expected);
        let arguments: Vec<(String, String)> =
            blocks.arguments_of(1).iter().map(|a| (show(a.name), show(a.kind))).collect();
        let kinds = ["i64", "!llvm.struct<\"a,b\", (i32, ptr)>"];
        assert_eq!(
            arguments,
            [("%1", kinds[0]), ("%2", kinds[1])].map(|(a, b)| (a.into(), b.into()))
        );
        assert_eq!(blocks.body.blocks[1].lines, [4, 8]);
    }

    #[test]
    fn intrinsics_in_the_generic_form_are_known() {
        let body = "  %1 = \"llvm.intr.vp.reduce.fmax\"(%a, %b, %m, %n) : (f32, vector<16xf32>, \
                    vector<16xi1>, i32) -> f32\n  llvm.return\n";
        assert_eq!(read(body).0.body.strange, None);
        let jumps = "  \"llvm.intr.x\"()[^a] : () -> ()\n^a:\n  llvm.return\n";
        assert!(read(jumps).0.body.strange.is_some());
    }

    #[test]
    fn what_is_not_known_is_said() {
        for (body, why) in [
            (
                "  llvm.invoke @g() to ^a unwind ^b : () -> ()\n^a:\n  llvm.return\n",
                "line 1: llvm.invoke is not known",
            ),
            (
                "  \"llvm.br\"()[^a] : () -> ()\n^a:\n  llvm.return\n",
                "line 1: \"llvm.br\"()[^a] is not known",
            ),
            ("  llvm.br ^a\n^a(x):\n  llvm.return\n", "the arguments of ^a cannot be read"),
            ("  llvm.br ^a\n^a:\n  llvm.return\n^a:\n  llvm.return\n", "two blocks are named ^a"),
            ("  %0 = llvm.add %1, %2 : i64\n", "a block does not end with a known terminator"),
            ("  llvm.return\n  llvm.return\n", "line 2: a block has no label"),
            (
                "  %cpt.1 = llvm.mlir.zero : !llvm.ptr\n  llvm.return\n",
                "it has a value whose name begins with cpt.",
            ),
            ("", "it has no blocks"),
        ] {
            assert_eq!(read(body).0.body.strange.as_deref(), Some(why), "{body}");
        }
    }
}
