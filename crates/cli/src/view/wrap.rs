//! Prose in lines of a width.

use std::io::{self, Write};

use crate::terminal::{known_width, visible};

/// Columns for prose and for tables that wrap, where nobody says how many there are.
pub const PROSE_WIDTH: usize = 120;

/// Columns of the terminal, for prose; 120 if not known.
pub fn width() -> usize {
    known_width().unwrap_or(PROSE_WIDTH)
}

/// Writes `text` behind `head`, broken between words, further lines indented under it. Control
/// characters are replaced, here and in [`layout`]: names and notes can hold anything.
pub fn wrapped(out: &mut impl Write, head: &str, text: &str, width: usize) -> io::Result<()> {
    let indent = head.chars().count();
    let mut line = head.to_owned();
    let mut used = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > indent && used + 1 + length > width {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(indent);
            used = indent;
        }
        if used > indent {
            line.push(' ');
            used += 1;
        }
        line.push_str(&visible(word));
        used += length;
    }
    writeln!(out, "{}", line.trim_end())
}
