//! Turns values that are almost JSON into JSON. A name in such a value may have been cut in the
//! middle of a character, may have another encoding, or may contain control characters. A number
//! may be one that JSON does not have (Python writes `NaN` and `Infinity`). A comma may follow the
//! last element.

use std::fmt::Write;

use serde::de::IgnoredAny;

pub(super) struct Mended {
    pub(super) bytes: Vec<u8>,
    /// How many bytes the original value has.
    pub(super) used: usize,
    /// How many words are not JSON values and were replaced by `null`.
    pub(super) nulls: u32,
}

/// Copies the value at the start of `bytes`, and removes or replaces what JSON does not allow.
/// Returns `None` if the value is not complete.
pub(super) fn value(bytes: &[u8]) -> Option<Mended> {
    let used = extent(bytes)?;
    let text = String::from_utf8_lossy(&bytes[..used]);
    let mut out = String::with_capacity(text.len() + 16);
    let (mut in_string, mut nulls) = (false, 0);
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                out.push(c);
                out.extend(rest.next().map(|(_, c)| c));
                continue;
            }
            '\0'..='\x1f' if in_string => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
                continue;
            }
            _ if in_string => {}
            '}' | ']' => {
                let end = out.trim_end_matches(is_space).len();
                if out[..end].ends_with(',') {
                    out.truncate(end - 1);
                }
            }
            _ if is_of_word(c) => {
                let mut end = at + c.len_utf8();
                while let Some((at, c)) = rest.next_if(|(_, c)| is_of_word(*c)) {
                    end = at + c.len_utf8();
                }
                let word = &text[at..end];
                match serde_json::from_str::<IgnoredAny>(word) {
                    Ok(_) => out.push_str(word),
                    Err(_) => {
                        nulls += 1;
                        out.push_str("null");
                    }
                }
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    Some(Mended { bytes: without_lone_surrogates(out).into_bytes(), used, nulls })
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}

/// Returns whether a character outside of strings is part of a number or a word.
fn is_of_word(c: char) -> bool {
    !matches!(c, '{' | '}' | '[' | ']' | ',' | ':' | '"') && !is_space(c)
}

/// Returns the end of the value that starts at byte 0, or `None` if `bytes` contains no whole value
/// there.
pub(super) fn extent(bytes: &[u8]) -> Option<usize> {
    if !matches!(bytes.first()?, b'{' | b'[' | b'"') {
        // The value is a number or a word. It ends before the first character that cannot be part
        // of it.
        return bytes.iter().position(|b| !is_of_word(char::from(*b))).filter(|end| *end > 0);
    }
    let mut depth = 0usize;
    let mut in_string = false;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => at += 1,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 && !in_string {
            return Some(at.min(bytes.len()));
        }
    }
    None
}

/// Replaces escapes such as `\ud800` that are one half of a surrogate pair, if the other half is
/// missing. Some writers leave such escapes when they cut a name.
fn without_lone_surrogates(text: String) -> String {
    if !text.contains("\\u") {
        return text;
    }
    let unit = |at: usize| {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(hex, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let len = match (unit(at), unit(at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                out.push('\u{fffd}');
                at += 6;
                continue;
            }
            _ if c == '\\' => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
            _ => c.len_utf8(),
        };
        let end = (at + len).min(text.len());
        out.push_str(text.get(at..end).unwrap_or_default());
        at = end;
    }
    out
}
