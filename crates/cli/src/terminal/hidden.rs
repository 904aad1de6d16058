//! Determines which characters are not printed on a terminal. `counterpoint-query` also includes
//! this file.

use std::borrow::Cow;

/// The character that replaces a hidden character.
pub const STAND_IN: char = '\u{fffd}';

/// Returns `text` as one line in which all characters are visible. Hidden characters
/// ([`is_hidden`]) are replaced by `U+FFFD`.
pub fn visible(text: &str) -> Cow<'_, str> {
    match text.contains(is_hidden) {
        true => text.chars().map(|c| if is_hidden(c) { STAND_IN } else { c }).collect(),
        false => Cow::Borrowed(text),
    }
}

/// Whether a terminal would execute or hide this character, or reorder other characters because of
/// it. Such characters are control characters (C0, DEL, C1), line and paragraph separators,
/// direction marks, everything that Unicode calls a format character or ignorable by default, and
/// noncharacters. The table below comes from the Unicode Character Database 16 (`Cc`, `Cf`, `Zl`,
/// `Zp`, `Default_Ignorable_Code_Point`, `Noncharacter_Code_Point`).
pub fn is_hidden(c: char) -> bool {
    let n = c as u32;
    if n < 0x80 {
        return c.is_ascii_control();
    }
    n & 0xfffe == 0xfffe
        || matches!(n,
            0x80..=0x9f | 0xad | 0x34f | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890..=0x891
            | 0x8e2 | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
            | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfdd0..=0xfdef | 0xfe00..=0xfe0f
            | 0xfeff | 0xffa0 | 0xfff0..=0xfffb | 0x110bd | 0x110cd | 0x13430..=0x1343f
            | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}
