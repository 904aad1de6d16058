//! Values that are not quite JSON, made so: names that were cut in the middle of a character,
//! that came from another encoding, or that hold control characters.

use std::fmt::Write;

/// A copy of the value at the start of `bytes` in which every byte that cannot stand in JSON is
/// replaced, and the number of bytes that it takes here. `None` if the value is not complete or
/// is not one of those (objects, arrays and strings) that can need it.
pub(super) fn value(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let used = extent(bytes)?;
    let text = String::from_utf8_lossy(&bytes[..used]);
    let mut out = String::with_capacity(text.len() + 16);
    let mut in_string = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                out.push(c);
                out.extend(rest.next());
                continue;
            }
            '\0'..='\x1f' if in_string => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    Some((without_lone_surrogates(out).into_bytes(), used))
}

/// Where the value that starts at byte 0 ends.
fn extent(bytes: &[u8]) -> Option<usize> {
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
            // Numbers and words never need mending.
            return matches!(bytes[0], b'{' | b'[' | b'"').then_some(at.min(bytes.len()));
        }
    }
    None
}

/// `\ud800` without its second half, as some writers leave when they cut a name.
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
