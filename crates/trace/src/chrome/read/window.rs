//! Defines the window: the part of a document that is in memory.

use std::io::{ErrorKind, Read};

use super::{ReadError, ReadErrorKind};

/// The size of a new window in bytes. The window is enlarged if a value does not fit.
const START: usize = 1 << 20;
/// The maximum size of a value in bytes.
const LIMIT: usize = 256 << 20;

pub(super) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    /// The bytes of `buffer` from `start` to `end` are read, but not consumed yet.
    /// `buffer[start..end]`.
    start: usize,
    end: usize,
    /// How many bytes of the document are before `start`.
    consumed: u64,
    ended: bool,
}

impl<R: Read> Window<R> {
    pub(super) fn new(source: R) -> Self {
        Self::of_size(source, START)
    }

    pub(super) fn of_size(source: R, bytes: usize) -> Self {
        Self { source, buffer: vec![0; bytes], start: 0, end: 0, consumed: 0, ended: false }
    }

    /// Returns the position of the window's start in the document.
    pub(super) fn at(&self) -> u64 {
        self.consumed
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        debug_assert!(self.start + bytes <= self.end);
        self.start += bytes;
        self.consumed += bytes as u64;
    }

    /// Reads more of the document into the window, and returns false at the end of the document.
    pub(super) fn more(&mut self) -> Result<bool, ReadError> {
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            if self.end >= LIMIT {
                let kind = ReadErrorKind::TooLarge(LIMIT);
                return Err(ReadError { at: self.consumed, kind });
            }
            self.buffer.resize(self.end * 2, 0);
        }
        // The loop fills the whole buffer. So the caller does not try to parse an incomplete value
        // again after each small read.
        let before = self.end;
        while self.end < self.buffer.len() {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => self.end += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The compressed data is truncated, damaged, or followed by something else. The
                // part that was decompressed is used.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput
                    ) && self.consumed + self.end as u64 > 0 =>
                {
                    self.ended = true;
                    break;
                }
                Err(error) => {
                    let at = self.consumed + self.end as u64;
                    return Err(ReadError { at, kind: ReadErrorKind::Io(error) });
                }
            }
        }
        Ok(self.end > before)
    }

    /// Consumes white space and returns the byte after it.
    pub(super) fn next_byte(&mut self) -> Result<Option<u8>, ReadError> {
        loop {
            let white = |b: &u8| matches!(b, b' ' | b'\n' | b'\r' | b'\t');
            let spaces = self.bytes().iter().position(|b| !white(b));
            match spaces {
                Some(n) => {
                    self.advance(n);
                    return Ok(self.bytes().first().copied());
                }
                None => {
                    self.advance(self.end - self.start);
                    if !self.more()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    pub(super) fn skip_byte_order_mark(&mut self) -> Result<(), ReadError> {
        self.more()?;
        if self.bytes().starts_with(b"\xef\xbb\xbf") {
            self.advance(3);
        }
        Ok(())
    }
}
