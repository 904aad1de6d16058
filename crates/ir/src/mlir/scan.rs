//! Reads a text of MLIR as brackets, strings, comments and statements.
//!
//! MLIR's printer begins an operation on a line of its own, and breaks lines only inside of
//! brackets (`llvm.switch`, regions). So a statement ends with its line, unless a bracket is open
//! there. Angle brackets are not counted, because `->` and comparisons contain them; no line ends
//! inside of them.

use crate::error::IrError;
use crate::scan::{Span, find, table_of};

/// The bytes at which [`Cursor::next_special`] stops, and those with which strings and comments
/// begin.
static SPECIAL: [bool; 256] = table_of(b"\"\n/(){}[]");

/// Returns whether a byte can be in a name without quotes.
pub fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'-')
}

/// Returns the end of the name that begins at `at`.
pub fn name_end(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|b| !is_name(*b)).map_or(text.len(), |n| at + n)
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

impl<'a> Cursor<'a> {
    /// Makes a cursor at the start of a text.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// Returns the next byte.
    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// Skips blanks, empty lines and comments.
    pub fn blank(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.text.get(self.at + 1) == Some(&b'/') => self.comment(),
                _ => break,
            }
        }
    }

    /// Skips blanks within the line.
    pub fn spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn comment(&mut self) {
        self.at = find(self.text, self.at, b'\n').unwrap_or(self.text.len());
    }

    /// Skips a string. The string may have escapes with a backslash, and must end on the line where
    /// it begins.
    pub fn string(&mut self) -> Result<(), IrError> {
        let mut at = self.at + 1;
        loop {
            let stop = self.text[at..].iter().position(|b| matches!(b, b'"' | b'\\' | b'\n'));
            let Some(stop) = stop.map(|n| at + n) else { break };
            match self.text[stop] {
                b'"' => {
                    self.at = stop + 1;
                    return Ok(());
                }
                b'\\' if stop + 1 < self.text.len() => at = stop + 2,
                _ => break,
            }
        }
        Err(IrError::Truncated { what: "a string", line: self.line })
    }

    /// Moves to the next bracket or end of line outside of strings and comments, and returns it.
    /// Returns `None` at the end of the text.
    pub fn next_special(&mut self) -> Result<Option<u8>, IrError> {
        loop {
            let Some(skipped) = self.rest().iter().position(|b| SPECIAL[*b as usize]) else {
                self.at = self.text.len();
                return Ok(None);
            };
            self.at += skipped;
            match self.text[self.at] {
                b'"' => self.string()?,
                b'/' if self.text.get(self.at + 1) == Some(&b'/') => self.comment(),
                b'/' => self.at += 1,
                other => return Ok(Some(other)),
            }
        }
    }

    /// Moves past an opening bracket, its content, and the bracket that closes it.
    pub fn balanced(&mut self) -> Result<(), IrError> {
        let first = self.line;
        let mut open: Vec<u8> = Vec::new();
        while let Some(byte) = self.next_special()? {
            self.at += 1;
            match byte {
                b'\n' => self.line += 1,
                b'(' | b'[' | b'{' => open.push(byte),
                _ => {
                    closes(open.pop(), byte, self.line)?;
                    if open.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
        Err(IrError::Truncated { what: "brackets", line: first })
    }

    /// Moves to the end of the statement that begins here, and returns that offset: the end of the
    /// statement's last line, or a brace that closes the region around it.
    pub fn statement(&mut self) -> Result<usize, IrError> {
        while let Some(byte) = self.next_special()? {
            match byte {
                b'\n' | b'}' => return Ok(self.at),
                b'(' | b'[' | b'{' => self.balanced()?,
                bracket => {
                    return Err(IrError::Unbalanced { line: self.line, bracket: bracket.into() });
                }
            }
        }
        Ok(self.text.len())
    }

    /// Returns the span from `start` to the current position.
    pub fn span(&self, start: usize) -> Span {
        Span::new(start, self.at)
    }
}

/// Checks that the bracket `close` matches the open bracket.
pub fn closes(open: Option<u8>, close: u8, line: u32) -> Result<(), IrError> {
    let right =
        matches!((open, close), (Some(b'('), b')') | (Some(b'['), b']') | (Some(b'{'), b'}'));
    match right {
        true => Ok(()),
        false => Err(IrError::Unbalanced { line, bracket: close.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_hide_brackets() {
        let text = b"{a = \"}\\\" {\", // }\n b = [(1)]} rest";
        let mut cursor = Cursor::new(text);
        cursor.balanced().expect("balanced");
        assert_eq!((cursor.rest(), cursor.line), (&b" rest"[..], 2));
        for (wrong, why) in [
            ("{ [ }", "line 1: '}' closes nothing"),
            ("{ \"a\n\" }", "the text ends inside of a string that begins in line 1"),
            ("{\n (", "the text ends inside of brackets that begins in line 1"),
            ("{ \"\\", "the text ends inside of a string that begins in line 1"),
        ] {
            let error = Cursor::new(wrong.as_bytes()).balanced().expect_err(wrong).to_string();
            assert_eq!(error, why);
        }
    }

    #[test]
    fn a_statement_ends_with_its_line_or_its_region() {
        let text = b"llvm.switch %a : i32, ^b [\n 1: ^c\n ] {x = \"\\\"\"} // [\nnext }";
        let mut cursor = Cursor::new(text);
        let end = cursor.statement().expect("a statement");
        assert_eq!(text[end], b'\n');
        assert_eq!(cursor.line, 3);
        cursor.blank();
        let start = cursor.at;
        let end = cursor.statement().expect("a statement");
        assert_eq!(&text[start..end], b"next ");
    }
}
