//! Breaks prose into lines of a given width.

use std::io::{self, Write};

use crate::terminal::visible;

/// The width of prose if it is not known.
pub const PROSE_WIDTH: usize = 120;

/// `text` in lines of at most `width` columns, broken between words. A longer word gets a line of
/// its own. Line breaks in `text` are kept. Characters that a terminal would obey or hide are
/// replaced.
pub fn lines(text: &str, width: usize) -> Vec<String> {
    text.split('\n').flat_map(|line| broken(line, width)).collect()
}

fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(&visible(word));
            used += length;
        }
    }
    lines
}

/// Writes `head` and then `text`, broken between words. Further lines are indented to the start of
/// the text. Control characters, including line breaks, are replaced.
pub fn wrapped(out: &mut impl Write, head: &str, text: &str, width: usize) -> io::Result<()> {
    let indent = head.chars().count();
    let mut before = head.to_owned();
    for line in broken(text, width.saturating_sub(indent)) {
        writeln!(out, "{}", format!("{before}{line}").trim_end())?;
        before = " ".repeat(indent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_between_words() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(lines("one two three", 6), ["one", "two", "three"]);
        assert_eq!(lines("a-long-word b", 4), ["a-long-word", "b"]);
        assert_eq!(lines("a\nb c", 9), ["a", "b c"]);
        assert_eq!(lines("", 9), [""]);
    }

    #[test]
    fn further_lines_are_indented_to_the_text() {
        let mut out = Vec::new();
        wrapped(&mut out, "note: ", "one two\nthree", 10).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "note: one\n      two\u{fffd}three\n");
    }
}
