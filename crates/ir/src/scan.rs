//! Reads a text of LLVM IR as statements and tokens.
//!
//! LLVM prints most statements on one line. A statement continues on the next line if a bracket is
//! open (`switch`), or, in a function, if the next line begins with a certain word or sign (`invoke
//! … to label`, `landingpad … catch`). Brackets in strings, quoted names and comments do not count.

use crate::error::IrError;

/// A piece of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// Makes a span in a text that is shorter than 4 GiB.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    pub fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.end as usize]
    }

    /// Returns whether the span has no bytes.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Makes a table that is true for these bytes.
pub(crate) const fn table_of(bytes: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] = true;
        i += 1;
    }
    table
}

/// The bytes at which [`Cursor::next_special`] stops, and those with which strings and comments
/// begin.
static SPECIAL: [bool; 256] = table_of(b"\"\n;(){}[]/*");

/// Makes the table of the bytes that can be in a name without quotes.
const fn plain() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric() || matches!(b, b'-' | b'$' | b'.' | b'_');
        byte += 1;
    }
    table
}

static PLAIN: [bool; 256] = plain();

/// Returns whether a byte can be in a name without quotes.
pub fn is_plain(byte: u8) -> bool {
    PLAIN[byte as usize]
}

/// Returns the end of the name without quotes that begins at `at`.
pub fn plain_end(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|b| !is_plain(*b)).map_or(text.len(), |n| at + n)
}

/// Returns the offset of the next `byte` at or after `at`.
pub fn find(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    text[at..].iter().position(|b| *b == byte).map(|n| at + n)
}

/// A position in a text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    pub text: &'a [u8],
    /// The next byte.
    pub at: usize,
    /// The line of the next byte, from 1.
    pub line: u32,
}

/// What [`Cursor::statement`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Between functions.
    Module,
    /// In the body of a function.
    Body,
}

impl<'a> Cursor<'a> {
    /// Makes a cursor at the start of the text.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// Returns the next byte.
    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Skips blanks, empty lines and comments.
    pub fn blank(&mut self) -> Result<(), IrError> {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b';' => self.at = find(self.text, self.at, b'\n').unwrap_or(self.text.len()),
                b'/' if self.text.get(self.at + 1) == Some(&b'*') => self.comment()?,
                _ => break,
            }
        }
        Ok(())
    }

    /// Skips a comment of the form `/* */`.
    fn comment(&mut self) -> Result<(), IrError> {
        let line = self.line;
        self.at += 2;
        while let Some(star) = find(self.text, self.at, b'*') {
            self.line += newlines(&self.text[self.at..star]);
            self.at = star + 1;
            if self.peek() == Some(b'/') {
                self.at += 1;
                return Ok(());
            }
        }
        Err(IrError::Truncated { what: "a comment", line })
    }

    fn string(&mut self) -> Result<(), IrError> {
        let open = || IrError::Truncated { what: "a string", line: self.line };
        let end = find(self.text, self.at + 1, b'"').ok_or_else(open)?;
        self.line += newlines(&self.text[self.at..end]);
        self.at = end + 1;
        Ok(())
    }

    /// Moves to the next bracket or end of line outside of strings and comments, and returns it.
    /// Returns `None` at the end of the text. Fails at a `*` (a typed pointer).
    fn next_special(&mut self) -> Result<Option<u8>, IrError> {
        loop {
            let rest = &self.text[self.at..];
            let Some(skipped) = rest.iter().position(|b| SPECIAL[*b as usize]) else {
                self.at = self.text.len();
                return Ok(None);
            };
            self.at += skipped;
            match self.text[self.at] {
                b'"' => self.string()?,
                b';' => self.at = find(self.text, self.at, b'\n').unwrap_or(self.text.len()),
                b'/' if self.text.get(self.at + 1) == Some(&b'*') => self.comment()?,
                b'/' => self.at += 1,
                b'*' => return Err(IrError::TypedPointers { line: self.line }),
                other => return Ok(Some(other)),
            }
        }
    }

    /// Moves past a statement, and returns its end: the end of its last line, or the brace that
    /// closes the body.
    pub fn statement(&mut self, place: Place) -> Result<usize, IrError> {
        let first = self.line;
        let mut depth = 0_u32;
        while let Some(byte) = self.next_special()? {
            match byte {
                b'\n' => {
                    let end = self.at;
                    self.at += 1;
                    self.line += 1;
                    if depth == 0 && !(place == Place::Body && self.continues()) {
                        return Ok(end);
                    }
                }
                b'(' | b'[' | b'{' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' if depth == 0 && place == Place::Body => return Ok(self.at),
                bracket => {
                    self.at += 1;
                    depth = depth
                        .checked_sub(1)
                        .ok_or(IrError::Unbalanced { line: self.line, bracket: bracket.into() })?;
                }
            }
        }
        if depth > 0 {
            return Err(IrError::Truncated { what: "brackets", line: first });
        }
        Ok(self.text.len())
    }

    /// Returns whether the statement from the line before continues on this line.
    fn continues(&self) -> bool {
        let mut at = self.at;
        while matches!(self.text.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        match self.text.get(at) {
            Some(b'a'..=b'z') => {
                let end = plain_end(self.text, at);
                let word = &self.text[at..end];
                matches!(word, b"to" | b"unwind" | b"catch" | b"cleanup" | b"filter")
                    && self.text.get(end) != Some(&b':')
            }
            Some(b'(' | b'[' | b',' | b'!' | b'|') => true,
            _ => false,
        }
    }

    /// Moves past the body of a function, from just after its opening brace. Returns the offset of
    /// the closing brace.
    pub fn body(&mut self) -> Result<usize, IrError> {
        let first = self.line;
        let mut depth = 1_u32;
        while let Some(byte) = self.next_special()? {
            self.at += 1;
            match byte {
                b'\n' => self.line += 1,
                b'(' | b'[' | b'{' => depth += 1,
                _ => depth -= 1,
            }
            if depth == 0 {
                return match byte {
                    b'}' => Ok(self.at - 1),
                    bracket => {
                        Err(IrError::Unbalanced { line: self.line, bracket: bracket.into() })
                    }
                };
            }
        }
        Err(IrError::Truncated { what: "a function", line: first })
    }
}

fn newlines(bytes: &[u8]) -> u32 {
    bytes.iter().filter(|b| **b == b'\n').count() as u32
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A keyword, a type, or a number.
    Word,
    /// `%name`.
    Local,
    /// `@name`.
    Global,
    /// `!12`, `!name`, or `!` before a brace or a string.
    Meta,
    /// `#12`.
    Attributes,
    /// A string with its quotes.
    Text,
    /// Any other byte.
    Mark(u8),
}

/// The tokens of a statement, without comments.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Tokens<'a> {
    /// Makes the tokens of a piece of the text.
    pub fn new(text: &'a [u8], span: Span) -> Self {
        Self { text, at: span.start as usize, end: span.end as usize }
    }

    fn name(&self, at: usize) -> usize {
        match self.text.get(at) {
            Some(b'"') if at < self.end => self.quoted(at),
            _ => plain_end(&self.text[..self.end], at),
        }
    }

    fn quoted(&self, at: usize) -> usize {
        find(&self.text[..self.end], at + 1, b'"').map_or(self.end, |quote| quote + 1)
    }
}

impl Iterator for Tokens<'_> {
    type Item = (Token, Span);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.at;
            if start >= self.end {
                return None;
            }
            let (token, end) = match self.text[start] {
                b' ' | b'\t' | b'\r' | b'\n' => {
                    self.at += 1;
                    continue;
                }
                b';' => {
                    self.at = find(&self.text[..self.end], start, b'\n').unwrap_or(self.end);
                    continue;
                }
                b'/' if self.text[start..self.end].starts_with(b"/*") => {
                    let rest = &self.text[start + 2..self.end];
                    let close = rest.windows(2).position(|two| two == b"*/");
                    self.at = close.map_or(self.end, |n| start + 4 + n);
                    continue;
                }
                b'%' => (Token::Local, self.name(start + 1)),
                b'@' => (Token::Global, self.name(start + 1)),
                b'!' => (Token::Meta, plain_end(&self.text[..self.end], start + 1)),
                b'#' => (Token::Attributes, plain_end(&self.text[..self.end], start + 1)),
                b'"' => (Token::Text, self.quoted(start)),
                byte if is_plain(byte) => (Token::Word, plain_end(&self.text[..self.end], start)),
                byte => (Token::Mark(byte), start + 1),
            };
            self.at = end;
            return Some((token, Span::new(start, end)));
        }
    }
}

/// Returns a name for comparisons: without `%` or `@`, and without quotes unless the name consists
/// of digits.
pub fn name(bytes: &[u8]) -> &[u8] {
    let bytes = match bytes {
        [b'%' | b'@', rest @ ..] => rest,
        all => all,
    };
    match bytes {
        [b'"', inner @ .., b'"'] if !inner.iter().all(u8::is_ascii_digit) => inner,
        all => all,
    }
}

/// Returns the number in `!12`, `#12` or `12`.
pub fn number(bytes: &[u8]) -> Option<u32> {
    let digits = match bytes {
        [b'!' | b'#', rest @ ..] => rest,
        all => all,
    };
    std::str::from_utf8(digits).ok()?.parse().ok()
}
