//! Breaks prose into lines of a given width.

use std::io::{self, Write};

use crate::terminal::visible;

/// The width of prose if the width of the terminal is not known.
pub const PROSE_WIDTH: usize = 120;

/// Units and signs that stay on the same line as the number before them.
const UNITS: [&str; 17] =
    ["%", "s", "ms", "µs", "ns", "B", "kB", "MB", "GB", "TB", "PB", "M", "G", "T", "P", "E", "KiB"];

/// Breaks `text` between words into lines of at most `width` columns. A number and its unit count
/// as one word. A word that is longer than `width` gets its own line. Line breaks in `text` are
/// kept. Characters that a terminal would obey or hide are replaced.
pub fn lines(text: &str, width: usize) -> Vec<String> {
    text.split('\n').flat_map(|line| broken(line, width)).collect()
}

fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(text) {
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

fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let line = rest?;
        let mut end = line.find(' ').unwrap_or(line.len());
        let next = line.get(end + 1..).unwrap_or("").split(' ').next().unwrap_or("");
        let unit = next.trim_end_matches(['.', ',', ';', ':', ')']);
        if line[..end].ends_with(|last: char| last.is_ascii_digit()) && UNITS.contains(&unit) {
            end += 1 + next.len();
        }
        rest = line.get(end + 1..);
        Some(&line[..end])
    })
}

/// Writes `head` and then `text`. If `text` takes several lines, all of them begin below the first
/// character of `text`. Control characters, also line breaks, are replaced.
pub fn wrapped(out: &mut impl Write, head: &str, text: &str, width: usize) -> io::Result<()> {
    let indent = head.chars().count();
    let mut before = head.to_owned();
    for line in broken(text, width.saturating_sub(indent)) {
        writeln!(out, "{}", format!("{before}{line}").trim_end())?;
        before = " ".repeat(indent);
    }
    Ok(())
}

/// Joins the explanations of columns (name, label, text) to one paragraph.
pub fn in_one_line(explained: &[(&str, &str, &str)]) -> String {
    let each = explained.iter().map(|(_, label, text)| format!("{label}{text}"));
    each.collect::<Vec<_>>().join("; ")
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
        assert_eq!(lines("one  two ", 20), ["one  two "]);
    }

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(lines("took 12.3 ms, or", 10), ["took", "12.3 ms,", "or"]);
        assert_eq!(lines("it is 7 % (1 s)", 8), ["it is", "7 %", "(1 s)"]);
        assert_eq!(lines("after 3 calls", 8), ["after 3", "calls"], "a noun is no unit");
        assert_eq!(lines("is s", 3), ["is", "s"], "there is no number");
        assert_eq!(lines("6 µs", 2), ["6 µs"]);
    }

    #[test]
    fn further_lines_are_indented_to_the_text() {
        let mut out = Vec::new();
        wrapped(&mut out, "note: ", "one two\nthree", 10).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "note: one\n      two\u{fffd}three\n");
    }
}
