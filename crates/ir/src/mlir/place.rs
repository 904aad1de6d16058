//! Finds an operation's file, line and column in the source, from the operation's MLIR location:
//! `loc("m.mlir":5:13)`, `loc(callsite("m.mlir":5:13 at "m.mlir":1:1))`, `loc(fused[…])`, or a name
//! (`loc(#loc7)`).

use std::collections::HashMap;

use crate::scan::{Span, find};
use crate::source::Place;

use super::scan::{Cursor, name_end};

/// The largest number of locations that are read for one operation, if each refers to the next by
/// name (`#loc7`).
const MOST_LEVELS: usize = 16;
/// Of a longer location, only this number of bytes is read.
const MOST_BYTES: usize = 1 << 16;

/// The named locations: `#loc7 = loc("m.mlir":5:13)`.
#[derive(Debug, Default)]
pub struct Places<'a> {
    named: HashMap<&'a [u8], &'a [u8]>,
}

impl<'a> Places<'a> {
    pub fn read(text: &'a [u8]) -> Self {
        let lines = text.split(|b| *b == b'\n').filter(|line| line.starts_with(b"#loc"));
        let named = lines.filter_map(|line| {
            let name = &line[..name_end(line, 1)];
            let rest = line[name.len()..].trim_ascii_start().strip_prefix(b"=")?;
            Some((name, rest.trim_ascii_start().strip_prefix(b"loc")?))
        });
        Self { named: named.collect() }
    }

    /// Returns the file, line and column that a statement's last `loc(…)` gives.
    pub fn of(&self, text: &[u8], statement: Span) -> Place {
        let bytes = statement.of(text);
        let Some(at) = last_location(bytes) else { return Place::default() };
        self.resolve(&bytes[at..]).unwrap_or_default()
    }

    /// Returns the first file, line and column in a location. In `callsite(A at B)`, A (in the
    /// called function) comes before B (the call).
    fn resolve(&self, location: &[u8]) -> Option<Place> {
        let mut location = location;
        for _ in 0..MOST_LEVELS {
            let mut cursor = Cursor::new(&location[..location.len().min(MOST_BYTES)]);
            loop {
                match cursor.peek()? {
                    b'"' => {
                        let start = cursor.at + 1;
                        cursor.string().ok()?;
                        let file = &cursor.text[start..cursor.at - 1];
                        if let Some(place) = line_and_column(cursor.rest(), file) {
                            return Some(place);
                        }
                    }
                    b'#' if cursor.rest().starts_with(b"#loc") => break,
                    b'\n' => return None,
                    _ => cursor.at += 1,
                }
            }
            let rest = cursor.rest();
            location = self.named.get(&rest[..name_end(rest, 1)])?;
        }
        None
    }
}

/// Returns the offset after the statement's last `loc` that is not in a string or in another
/// location.
fn last_location(bytes: &[u8]) -> Option<usize> {
    let mut cursor = Cursor::new(bytes);
    let mut last = None;
    while let Ok(Some(byte)) = cursor.next_special() {
        if byte == b'(' && cursor.text[..cursor.at].ends_with(b" loc") {
            last = Some(cursor.at);
            // Skips the locations inside of this location.
            if cursor.balanced().is_err() {
                break;
            }
        } else {
            cursor.at += 1;
        }
    }
    last
}

/// Reads `:5:13` after the name of a file.
fn line_and_column(rest: &[u8], file: &[u8]) -> Option<Place> {
    let rest = rest.strip_prefix(b":")?;
    let number = |bytes: &[u8]| -> Option<u32> { std::str::from_utf8(bytes).ok()?.parse().ok() };
    let digits = |bytes: &[u8]| bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let (line, after) = rest.split_at(digits(rest));
    let line = number(line).filter(|line| *line > 0)?;
    let column = after.strip_prefix(b":").map(|after| &after[..digits(after)]);
    let column = column.and_then(number).filter(|column| *column > 0);
    if file.is_empty() || file == b"-" || find(file, 0, b'\\').is_some() {
        return None;
    }
    Some(Place { file: String::from_utf8(file.to_vec()).ok(), line: Some(line), column })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_locations() {
        let text = b"#loc = loc(\"a.mlir\":1:2)\n#loc3 = loc(callsite(#loc at #loc9))\n";
        let places = Places::read(text);
        for (statement, expected) in [
            ("llvm.br ^a loc(\"m.mlir\":5:13)", Some(("m.mlir", 5, 13))),
            ("^a(%1: i64 loc(\"x\":9:9)):  // loc(", Some(("x", 9, 9))),
            (
                "llvm.br ^a loc(callsite(\"m.mlir\":5:13 at \"n.mlir\":1:1))",
                Some(("m.mlir", 5, 13)),
            ),
            ("llvm.br ^a loc(fused<#x<name = \"f\">>[\"m.mlir\":5:13])", Some(("m.mlir", 5, 13))),
            ("llvm.br ^a loc(#loc3)", Some(("a.mlir", 1, 2))),
            ("llvm.br ^a loc(#loc4)", None),
            ("llvm.br ^a loc(unknown)", None),
            ("llvm.br ^a loc(\"-\":5:13)", None),
            ("llvm.br ^a", None),
        ] {
            let bytes = statement.as_bytes();
            let place = places.of(bytes, Span::new(0, bytes.len()));
            let found = place
                .file
                .as_deref()
                .map(|file| (file, place.line.unwrap_or(0), place.column.unwrap_or(0)));
            assert_eq!(found, expected, "{statement}");
        }
    }
}
