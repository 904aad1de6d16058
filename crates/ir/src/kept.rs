//! Keeps the text of instrumented functions in the side table, so that reports can show it even if
//! the text's file was moved.
//!
//! Texts above `PLAIN_BYTES` are compressed (DEFLATE in base64). For texts above `MOST_BYTES`, the
//! table has only the language, and the path and the hash of the file.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// Longer texts are compressed.
const PLAIN_BYTES: usize = 1 << 12;
/// Longer texts are not kept.
const MOST_BYTES: usize = 16 << 20;

/// The assumed memory of a line besides its text, in bytes.
const LINE_BYTES: usize = 64;

/// The text of a module's instrumented functions, in one language.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptText {
    /// `llvm`, `mlir` or `tir`.
    pub language: String,
    /// The path of the file, as the instrumenter was given it.
    pub path: String,
    /// XXH3 (128 bits, hexadecimal) of the whole file.
    pub hash: String,
    /// First and last line of each kept range, from 1, in order.
    pub lines: Vec<[u32; 2]>,
    /// The kept lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The kept lines, compressed. At most one of this field and `text` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deflated: Option<String>,
}

/// Why the lines of a text cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The table has only the language, and the path and the hash of the file.
    #[error("the text of {0} was too long to be kept")]
    NotKept(String),
    /// The compressed text is damaged.
    #[error("the text of {0} in the side table is damaged")]
    Damaged(String),
    /// The text or its lines need more memory than is allowed.
    #[error("the text of {0} in the side table is longer than such a table can have it")]
    TooLong(String),
    /// The file is not the one that was instrumented.
    #[error("{0} is not the text that was instrumented (its hash is different)")]
    Other(String),
}

/// Returns the hash of a text.
pub fn hash(text: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(text))
}

/// Collects the text of functions.
#[derive(Clone, Debug, Default)]
pub struct Keeper {
    lines: Vec<[u32; 2]>,
    text: Vec<u8>,
    is_full: bool,
}

impl Keeper {
    /// Adds the lines `first` to `last`. Offset `start` is in the line `first`.
    pub fn add(&mut self, text: &[u8], start: usize, [first, last]: [u32; 2]) {
        if self.is_full || last < first {
            return;
        }
        let before = text[..start.min(text.len())].iter().rposition(|b| *b == b'\n');
        let begin = before.map_or(0, |newline| newline + 1);
        let mut end = begin;
        for _ in first..=last {
            match text[end..].iter().position(|b| *b == b'\n') {
                Some(newline) => end += newline + 1,
                None => end = text.len(),
            }
        }
        if self.text.len() + (end - begin) > MOST_BYTES {
            (self.is_full, self.text) = (true, Vec::new());
            return;
        }
        self.lines.push([first, last]);
        self.text.extend_from_slice(&text[begin..end]);
        if self.text.last().is_some_and(|last| *last != b'\n') {
            self.text.push(b'\n');
        }
    }

    /// Returns the collected text as the side table contains it. `whole` is the text of the file.
    pub fn finish(self, language: &str, path: &str, whole: &[u8]) -> KeptText {
        let (language, path) = (language.to_owned(), path.to_owned());
        let mut kept = KeptText { language, path, hash: hash(whole), ..KeptText::default() };
        if self.is_full {
            return kept;
        }
        kept.lines = self.lines;
        let text = String::from_utf8_lossy(&self.text).into_owned();
        if text.len() <= PLAIN_BYTES {
            kept.text = Some(text);
            return kept;
        }
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        // Writing to memory does not fail.
        kept.deflated = written.ok().map(|bytes| BASE64_STANDARD.encode(bytes));
        kept
    }
}

impl KeptText {
    /// Returns how many bytes the kept text takes in the side table.
    pub fn packed(&self) -> u64 {
        let texts = self.text.iter().chain(&self.deflated);
        texts.map(|text| text.len() as u64).sum()
    }

    /// Returns the kept lines by number. `room` is the memory that they may take, in bytes; what
    /// they take is subtracted from it. Without this limit, a few compressed bytes could expand to
    /// very many.
    ///
    /// # Errors
    /// Fails if the text was not kept, if it is damaged or longer than a kept text can be, or if
    /// `room` is too small for it.
    pub fn numbered(&self, room: &mut u64) -> Result<BTreeMap<u32, String>, TextError> {
        let too_long = || TextError::TooLong(self.path.clone());
        let mut need = |bytes: usize| {
            *room = room.checked_sub(bytes as u64).ok_or_else(too_long)?;
            Ok(())
        };
        let damaged = || TextError::Damaged(self.path.clone());
        let text = match (&self.text, &self.deflated) {
            (Some(text), _) => text.clone(),
            (None, Some(deflated)) => {
                let bytes = BASE64_STANDARD.decode(deflated).map_err(|_| damaged())?;
                let mut text = Vec::new();
                let most = 2 * MOST_BYTES;
                let mut packed = DeflateDecoder::new(&bytes[..]).take(most as u64 + 1);
                packed.read_to_end(&mut text).map_err(|_| damaged())?;
                if text.len() > most {
                    return Err(too_long());
                }
                String::from_utf8(text).map_err(|_| damaged())?
            }
            (None, None) => return Err(TextError::NotKept(self.path.clone())),
        };
        need(text.len())?;
        let mut lines = text.lines();
        let mut numbered = BTreeMap::new();
        for [first, last] in &self.lines {
            for number in *first..=*last {
                let Some(line) = lines.next() else { return Ok(numbered) };
                need(LINE_BYTES)?;
                numbered.insert(number, line.to_owned());
            }
        }
        Ok(numbered)
    }

    /// Returns all lines of a file by number, if it is the one from which the text was kept.
    pub fn of_file(&self, bytes: &[u8]) -> Result<BTreeMap<u32, String>, TextError> {
        if hash(bytes) != self.hash {
            return Err(TextError::Other(self.path.clone()));
        }
        let text = String::from_utf8_lossy(bytes);
        Ok((1..).zip(text.lines().map(str::to_owned)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_with_their_numbers() {
        let text = b"one\ntwo\nthree\nfour\nfive";
        let mut keeper = Keeper::default();
        keeper.add(text, 5, [2, 3]);
        keeper.add(text, 19, [5, 5]);
        let kept = keeper.finish("llvm", "x.ll", text);
        let lines = kept.numbered(&mut (1 << 30)).expect("kept");
        let expected = [(2, "two"), (3, "three"), (5, "five")];
        assert_eq!(lines, expected.map(|(n, line)| (n, line.to_owned())).into());
        assert_eq!(kept.of_file(text).expect("the same")[&4], "four");
        assert_eq!(kept.of_file(b"two"), Err(TextError::Other("x.ll".into())));
    }

    #[test]
    fn long_texts_are_compressed_and_longer_ones_left_out() {
        let line = format!("{}\n", "x".repeat(99));
        let text = line.repeat(1000);
        let keep = |text: &str, lines: u32| {
            let mut keeper = Keeper::default();
            keeper.add(text.as_bytes(), 0, [1, lines]);
            keeper.finish("llvm", "x.ll", text.as_bytes())
        };
        let kept = keep(&text, 1000);
        assert!(kept.deflated.as_ref().is_some_and(|text| text.len() < 4000));
        assert_eq!(kept.numbered(&mut (1 << 30)).expect("kept").len(), 1000);
        let long = line.repeat(MOST_BYTES / 100 + 1);
        let left_out = keep(&long, (MOST_BYTES / 100 + 1) as u32);
        assert_eq!(left_out.numbered(&mut (1 << 30)), Err(TextError::NotKept("x.ll".into())));
        for damaged in ["", "AAAA", "!", "x"] {
            let kept = KeptText {
                deflated: Some(damaged.into()),
                lines: vec![[1, u32::MAX]],
                ..kept.clone()
            };
            let _ = kept.numbered(&mut (1 << 30));
        }
    }

    #[test]
    fn a_few_bytes_do_not_become_many() {
        let whole = "\n".repeat(8 << 20);
        let mut keeper = Keeper::default();
        keeper.add(whole.as_bytes(), 0, [1, 8 << 20]);
        let kept = keeper.finish("llvm", "x.ll", whole.as_bytes());
        assert!(kept.packed() < 100_000, "{}", kept.packed());
        let mut room = 64 << 20;
        assert_eq!(kept.numbered(&mut room), Err(TextError::TooLong("x.ll".into())));
    }
}
