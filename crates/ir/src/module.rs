//! Reads the top-level statements of a module of LLVM IR. Statements that instrumentation does not
//! need stay unchanged in the text.

use std::collections::{HashMap, HashSet};

use crate::error::IrError;
use crate::scan::{Cursor, Place, Span, Token, Tokens, name, number};

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The name without `@` and without unnecessary quotes.
    pub name: Span,
    /// The text from `define` to before the opening brace of the body.
    pub header: Span,
    /// The text from the closing parenthesis of the arguments to the opening brace.
    pub tail: Span,
    /// The text between the braces.
    pub body: Span,
    /// Line of `define`, from 1.
    pub line: u32,
    /// Line in which the body begins, from 1.
    pub body_line: u32,
    /// Line of the closing brace, from 1.
    pub last_line: u32,
}

/// The parts of a module's top level that instrumentation needs.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The functions with bodies, in the order of the text.
    pub definitions: Vec<Definition>,
    /// Functions without bodies.
    pub declared: HashSet<Vec<u8>>,
    /// Functions with bodies.
    pub defined: HashSet<Vec<u8>>,
    /// The target triple.
    pub triple: Option<String>,
    /// The attribute groups by number: the text between the braces.
    pub attributes: HashMap<u32, Span>,
    /// The metadata nodes by number: the text after the equals sign of `!12 = …`. The text is empty
    /// if there is no node with this number.
    pub metadata: Vec<Span>,
    /// The operands of `!llvm.ident`.
    pub ident: Option<Span>,
    /// `@llvm.global_ctors` and `@llvm.global_dtors`, with their lines.
    pub constructors: [Option<(Span, u32)>; 2],
    /// LLVM's directives about the order of uses (`uselistorder`). The directives are removed,
    /// because they would be wrong after a change.
    pub use_orders: Vec<Span>,
    /// A name with the instrumenter's prefix, if the module defines one.
    pub instrumented: Option<Span>,
    /// Lines of the module.
    pub lines: u32,
}

/// Metadata nodes from this number on are ignored. No real module has so many.
const MOST_METADATA: u32 = 1 << 26;

/// The prefix of the names of functions and global variables that the instrumenter adds.
pub const PREFIX: &str = "counterpoint_loops_";

impl Module {
    /// Reads the top level of a text.
    pub fn read(text: &[u8]) -> Result<Self, IrError> {
        if let Some(what) = other(text) {
            return Err(IrError::Other(what));
        }
        if text.len() > u32::MAX as usize {
            return Err(IrError::Long(text.len()));
        }
        let mut module = Self::default();
        let mut cursor = Cursor::new(text);
        let mut known = false;
        loop {
            cursor.blank()?;
            let Some(byte) = cursor.peek() else { break };
            let start = cursor.at;
            match module.item(&mut cursor, byte) {
                Ok(own) => known |= own,
                // In a text that is not LLVM IR, brackets and quotes need not match. An error about
                // them would hide that the text is not LLVM IR.
                Err(_) if !known && !is_keyword(&text[start..]) => break,
                Err(error) => return Err(error),
            }
        }
        module.lines = cursor.line;
        if !known {
            let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
            let line = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
            return Err(IrError::Unknown(line));
        }
        Ok(module)
    }

    /// Reads a top-level item, and returns whether it is LLVM IR.
    fn item(&mut self, cursor: &mut Cursor, byte: u8) -> Result<bool, IrError> {
        let text = cursor.text;
        let (start, line) = (cursor.at, cursor.line);
        if byte.is_ascii_lowercase() {
            let end = crate::scan::plain_end(text, start);
            match &text[start..end] {
                b"define" => {
                    let definition = definition(cursor)?;
                    self.defined.insert(definition.name.of(text).to_vec());
                    self.definitions.push(definition);
                    return Ok(true);
                }
                b"declare" => {
                    let span = Span::new(end, cursor.statement(Place::Module)?);
                    let mut tokens = Tokens::new(text, span);
                    if let Some((_, found)) = tokens.find(|(token, _)| *token == Token::Global) {
                        self.declared.insert(name(found.of(text)).to_vec());
                    }
                    return Ok(true);
                }
                b"target" => {
                    let span = Span::new(end, cursor.statement(Place::Module)?);
                    self.target(text, span);
                    return Ok(true);
                }
                b"attributes" => {
                    let span = Span::new(end, cursor.statement(Place::Module)?);
                    self.group(text, span);
                    return Ok(true);
                }
                b"module" => {
                    let span = Span::new(end, cursor.statement(Place::Module)?);
                    let second = Tokens::new(text, span).next();
                    return Ok(second.is_some_and(|(_, word)| word.of(text) == b"asm"));
                }
                b"uselistorder" | b"uselistorder_bb" => {
                    let end = cursor.statement(Place::Module)?;
                    self.use_orders.push(Span::new(start, end));
                    return Ok(true);
                }
                b"source_filename" => {
                    cursor.statement(Place::Module)?;
                    return Ok(true);
                }
                _ => {
                    cursor.statement(Place::Module)?;
                    return Ok(false);
                }
            }
        }
        let end = cursor.statement(Place::Module)?;
        match byte {
            b'!' => self.node(text, start, end),
            b'@' => self.global(text, Span::new(start, end), line),
            // A comdat or a type.
            b'$' | b'%' => {}
            _ => return Ok(false),
        }
        Ok(matches!(byte, b'@' | b'!' | b'%' | b'$'))
    }

    fn target(&mut self, text: &[u8], span: Span) {
        let tokens: Vec<_> = Tokens::new(text, span).take(3).collect();
        if let [(_, what), _, (Token::Text, value)] = tokens[..]
            && what.of(text) == b"triple"
        {
            let value = value.of(text);
            let inner = &value[1..value.len().max(2) - 1];
            self.triple = Some(String::from_utf8_lossy(inner).into_owned());
        }
    }

    fn group(&mut self, text: &[u8], span: Span) {
        let mut tokens = Tokens::new(text, span);
        let Some(group) = tokens.next().and_then(|(_, group)| number(group.of(text))) else {
            return;
        };
        let open = tokens.find(|(token, _)| *token == Token::Mark(b'{'));
        let close = tokens.filter(|(token, _)| *token == Token::Mark(b'}')).last();
        if let (Some((_, open)), Some((_, close))) = (open, close) {
            self.attributes.insert(group, Span { start: open.end, end: close.start });
        }
    }

    fn node(&mut self, text: &[u8], start: usize, end: usize) {
        let key_end = crate::scan::plain_end(&text[..end], start + 1);
        let key = &text[start + 1..key_end];
        let Some(equals) = crate::scan::find(&text[..end], key_end, b'=') else { return };
        let value = Span::new(equals + 1, end);
        match number(key) {
            Some(id) if id < MOST_METADATA => {
                let id = id as usize;
                // Numbers are nearly dense. A number far above those before it is ignored, because
                // it would make the table large.
                if id < self.metadata.len() + (1 << 16) {
                    if id >= self.metadata.len() {
                        self.metadata.resize(id + 1, Span::default());
                    }
                    self.metadata[id] = value;
                }
            }
            Some(_) => {}
            None if key == b"llvm.ident" => self.ident = Some(value),
            None => {}
        }
    }

    fn global(&mut self, text: &[u8], span: Span, line: u32) {
        let Some((Token::Global, first)) = Tokens::new(text, span).next() else { return };
        match name(first.of(text)) {
            b"llvm.global_ctors" => self.constructors[0] = Some((span, line)),
            b"llvm.global_dtors" => self.constructors[1] = Some((span, line)),
            name if name.starts_with(PREFIX.as_bytes()) => self.instrumented = Some(first),
            _ => {}
        }
    }

    /// Returns whether a function has this name.
    pub fn names(&self, name: &[u8]) -> bool {
        self.declared.contains(name) || self.defined.contains(name)
    }

    /// Returns the compiler that made the text, in its own words.
    pub fn producer(&self, text: &[u8]) -> Option<String> {
        let first = Tokens::new(text, self.ident?).find(|(_, span)| span.of(text).len() > 1)?.1;
        let node = *self.metadata.get(number(first.of(text))? as usize)?;
        let (_, string) = Tokens::new(text, node).find(|(token, _)| *token == Token::Text)?;
        let string = string.of(text);
        let inner = string.get(1..string.len() - 1)?;
        Some(String::from_utf8_lossy(inner).into_owned())
    }
}

/// Returns whether `text` begins with an item of LLVM IR.
fn is_keyword(text: &[u8]) -> bool {
    let words: [&[u8]; 6] =
        [b"define ", b"declare ", b"target ", b"attributes ", b"module asm", b"source_filename"];
    matches!(text.first(), Some(b'@' | b'%' | b'!' | b'$'))
        || words.iter().any(|word| text.starts_with(word))
}

/// Returns the format of `text`, if its start shows that it is not LLVM IR.
fn other(text: &[u8]) -> Option<&'static str> {
    Some(match text {
        [b'B', b'C', 0xC0, 0xDE, ..] | [0xDE, 0xC0, 0x17, 0x0B, ..] => "LLVM bitcode",
        [0x7F, b'E', b'L', b'F', ..] => "an ELF file",
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => "an archive of object files",
        [b'M', b'L', 0xEF, b'R', ..] => "MLIR bytecode",
        [] => "an empty file",
        _ if text[..text.len().min(4096)].contains(&0) => "a binary file",
        _ => return None,
    })
}

/// Reads a function up to its closing brace.
fn definition(cursor: &mut Cursor) -> Result<Definition, IrError> {
    let text = cursor.text;
    let (start, line) = (cursor.at, cursor.line);
    let mut tokens = Tokens::new(text, Span::new(start, text.len()));
    let lacks = |what| IrError::Definition { line, what };
    // A definition without a name must not get the name of the next one.
    let mut named = None;
    for (token, span) in tokens.by_ref() {
        match token {
            Token::Global => {
                named = Some(span);
                break;
            }
            Token::Mark(b'*') => return Err(IrError::TypedPointers { line }),
            Token::Word
                if matches!(span.of(text), b"declare" | b"define") && span.start > start as u32 =>
            {
                break;
            }
            _ => {}
        }
    }
    let named = named.ok_or(lacks("name"))?;
    let mut depth = 0_u32;
    let mut arguments_end = None;
    for (token, span) in tokens.by_ref() {
        match token {
            Token::Mark(b'(' | b'[' | b'{') => depth += 1,
            Token::Mark(b')' | b']' | b'}') => match depth {
                0 => break,
                1 => {
                    arguments_end = Some(span.end);
                    break;
                }
                _ => depth -= 1,
            },
            Token::Mark(b'*') => return Err(IrError::TypedPointers { line }),
            _ if depth == 0 => break,
            _ => {}
        }
    }
    let arguments_end = arguments_end.ok_or(lacks("arguments"))?;
    let open = body_brace(text, tokens).ok_or(lacks("body"))?;
    let header = Span::new(start, open);
    let mut before = Cursor { text, at: open + 1, line };
    before.line += header.of(text).iter().filter(|b| **b == b'\n').count() as u32;
    let body_line = before.line;
    let close = match before.body() {
        // The error names the definition's first line.
        Err(IrError::Truncated { what: "a function", .. }) => {
            return Err(IrError::Truncated { what: "a function", line });
        }
        other => other?,
    };
    *cursor = before;
    let whole = named.of(text);
    let bare = name(whole);
    let shift = if bare.len() + 3 == whole.len() { 2 } else { 1 };
    let name_start = named.start as usize + shift;
    Ok(Definition {
        name: Span::new(name_start, name_start + bare.len()),
        header,
        tail: Span::new(arguments_end as usize, open),
        body: Span::new(open + 1, close),
        line,
        body_line,
        last_line: cursor.line,
    })
}

/// Returns the offset of the brace that opens the body. After `prefix` and `prologue`, constants
/// may have braces; then the brace at the end of a line opens the body.
fn body_brace(text: &[u8], tokens: Tokens) -> Option<usize> {
    let mut depth = 0_u32;
    let mut constants = false;
    for (token, span) in tokens {
        match token {
            Token::Mark(b'{') if depth == 0 => {
                let after = &text[span.end as usize..];
                let line = after.split(|b| *b == b'\n').next().unwrap_or_default();
                let comment = line.trim_ascii_start().first().is_none_or(|b| *b == b';');
                if !constants || comment {
                    return Some(span.start as usize);
                }
                depth += 1;
            }
            Token::Mark(b'(' | b'[' | b'{') => depth += 1,
            Token::Mark(b')' | b']' | b'}') => depth = depth.checked_sub(1)?,
            Token::Word if depth == 0 => match span.of(text) {
                b"prefix" | b"prologue" => constants = true,
                b"define" | b"declare" => return None,
                _ => {}
            },
            _ => {}
        }
    }
    None
}
