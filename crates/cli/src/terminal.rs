//! Determines how text from other programs and files is printed for people.
//!
//! Names of ops, threads and counters, paths, commands and arguments come from other people's
//! programs and files. A terminal would execute escape sequences in such text, hide zero-width
//! characters, and reorder text after a right-to-left mark. Therefore:
//!
//! | destination | what happens |
//! |---|---|
//! | tables and text on stdout ([`Kind::People`]), and everything on stderr ([`say!`]) | each such character becomes `U+FFFD` (`�`) |
//! | CSV on a terminal | the same, also for a line break in a cell; in a file or a pipe nothing is changed |
//! | lines for a shell on a terminal | the same; in a pipe nothing is changed |
//! | JSON on a terminal | such a character is written as `\uXXXX`, which means the same; in a file or a pipe nothing is changed |
//! | Parquet and compressed files on a terminal | refused ([`crate::whole`]) |
//!
//! [`Screen`] applies the rules for stdout to everything that is written to it, even if the caller
//! has applied them before. Counterpoint's own colours are passed to [`Screen`] as Unicode
//! noncharacters ([`Style`]), so an escape sequence in other text never becomes a colour. Code that
//! lays out text calls [`visible`] first, because only that code can distinguish a line break in a
//! name from a line break of the layout.

mod hidden;
pub mod progress;

use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use hidden::STAND_IN;
pub use hidden::{is_hidden, visible};

/// Prints one line on stderr, with the prefix `counterpoint:`.
macro_rules! say {
    ($($words:tt)*) => { $crate::terminal::say_line(format_args!($($words)*)) };
}
pub(crate) use say;

/// Prints one line on stderr about what was made or found. With `--quiet`, such lines are not
/// printed.
macro_rules! note {
    ($($words:tt)*) => {
        if !$crate::terminal::is_quiet() {
            $crate::terminal::say_line(format_args!($($words)*));
        }
    };
}
pub(crate) use note;

pub fn say_line(words: Arguments<'_>) {
    let words = words.to_string();
    let line = format!("counterpoint: {}\n", visible(&words));
    progress::write_in_place(line.as_bytes());
}

/// Prints several lines on stderr, without a prefix.
pub fn say_lines(text: &str) {
    let mut lines: String = text.lines().map(|line| format!("{}\n", visible(line))).collect();
    if lines.is_empty() {
        lines.push('\n');
    }
    progress::write_in_place(lines.as_bytes());
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal, unless the variable NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

/// The value of [`When`] that [`choose_colour`] has set, as a number.
static COLOUR: AtomicU8 = AtomicU8::new(0);
/// The width in columns, plus 1, of the terminal on which the pager runs; 0 without a pager.
static PAGED: AtomicUsize = AtomicUsize::new(0);

/// Whether anything was written to a [`Screen`].
static BEGUN: AtomicBool = AtomicBool::new(false);

static IS_QUIET: AtomicBool = AtomicBool::new(false);
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

pub fn choose_words(quiet: bool, verbose: bool) {
    IS_QUIET.store(quiet, Ordering::Relaxed);
    IS_VERBOSE.store(verbose, Ordering::Relaxed);
}

/// Whether only results and errors are printed (`--quiet`).
pub fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Whether details that are usually left out are printed as well (`--verbose`).
pub fn is_verbose() -> bool {
    IS_VERBOSE.load(Ordering::Relaxed)
}

pub fn choose_colour(when: When) {
    COLOUR.store(when as u8, Ordering::Relaxed);
}

/// Whether anything was written to a [`Screen`]. This function is async-signal-safe.
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// Stores that a pager reads stdout and shows it on a terminal with this many columns.
pub fn is_paged(columns: usize) {
    PAGED.store(columns.saturating_add(1), Ordering::Relaxed);
}

/// Whether stdout is shown on a terminal, directly or through the pager.
pub fn is_screen() -> bool {
    PAGED.load(Ordering::Relaxed) != 0 || io::stdout().is_terminal()
}

/// Returns the width in columns of the terminal that shows stdout, directly or through the pager.
/// Without a terminal, returns the number in the environment variable `COLUMNS`.
pub fn known_width() -> Option<usize> {
    match PAGED.load(Ordering::Relaxed) {
        0 => {}
        columns => return Some(columns - 1),
    }
    if let Some((terminal_size::Width(columns), _)) =
        terminal_size::terminal_size_of(std::io::stdout())
    {
        return Some(columns.into());
    }
    std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok())
}

/// Whether to use colours on stdout. By default, colours are used if stdout is shown on a terminal
/// and the variable `NO_COLOR` is unset or empty.
pub fn colour() -> bool {
    match COLOUR.load(Ordering::Relaxed) {
        n if n == When::Always as u8 => true,
        n if n == When::Never as u8 => false,
        _ => is_screen() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    }
}

/// The kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text and tables.
    People,
    /// Lines for programs, for example variables for a shell.
    Lines,
    Csv,
    Json,
    /// Data that is not text.
    Binary,
}

/// Counterpoint's own styles. They are written as special characters, for which [`Screen`] writes
/// escape sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Bold,
    Red,
    Yellow,
    Off,
}

impl Style {
    const ALL: [(Self, char, &'static str); 4] = [
        (Self::Bold, '\u{fdd0}', "\x1b[1m"),
        (Self::Red, '\u{fdd1}', "\x1b[31m"),
        (Self::Yellow, '\u{fdd2}', "\x1b[33m"),
        (Self::Off, '\u{fdd3}', "\x1b[0m"),
    ];

    /// Returns the character of this style, or nothing if colours are off.
    pub fn mark(self) -> &'static str {
        match self {
            _ if !colour() => "",
            Self::Bold => "\u{fdd0}",
            Self::Red => "\u{fdd1}",
            Self::Yellow => "\u{fdd2}",
            Self::Off => "\u{fdd3}",
        }
    }
}

/// How [`Screen`] writes hidden characters ([`is_hidden`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Pass,
    Replace,
    /// Replaces hidden characters, and also line breaks inside of quotes.
    Cells,
    /// Writes hidden characters as `\uXXXX`. JSON has such characters only inside of strings.
    Escape,
}

#[derive(Debug)]
pub struct Screen<W: Write> {
    out: W,
    rule: Rule,
    terminal: bool,
    /// Whether the last character was inside of a quoted cell of CSV.
    quoted: bool,
    /// The first bytes of a character, or of a line ending, that is not complete yet.
    rest: Vec<u8>,
}

pub fn stdout(kind: Kind) -> Screen<io::Stdout> {
    Screen::new(io::stdout(), kind, is_screen())
}

impl<W: Write> Screen<W> {
    pub fn new(out: W, kind: Kind, terminal: bool) -> Self {
        let rule = match kind {
            Kind::People => Rule::Replace,
            Kind::Lines if terminal => Rule::Replace,
            Kind::Csv if terminal => Rule::Cells,
            Kind::Json if terminal => Rule::Escape,
            _ => Rule::Pass,
        };
        Self { out, rule, terminal, quoted: false, rest: Vec::new() }
    }

    pub fn inner(&self) -> &W {
        &self.out
    }

    fn shown(&mut self, text: &str, shown: &mut String) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            self.quoted ^= c == '"' && self.rule == Rule::Cells;
            if c == '\r' && chars.peek() == Some(&'\n') && !self.quoted {
                // A terminal needs no carriage return before a line feed.
            } else if (c == '\n' && !self.quoted) || !is_hidden(c) {
                shown.push(c);
            } else if self.rule == Rule::Escape {
                let mut units = [0; 2];
                c.encode_utf16(&mut units)
                    .iter()
                    .for_each(|unit| shown.push_str(&format!("\\u{unit:04x}")));
            } else {
                let own = Style::ALL.iter().find(|(_, mark, _)| *mark == c && colour());
                match own {
                    Some((_, _, sequence)) => shown.push_str(sequence),
                    None => shown.push(STAND_IN),
                }
            }
        }
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BEGUN.store(true, Ordering::Relaxed);
        if self.terminal {
            progress::end();
        }
        let cells = self.rule == Rule::Cells;
        let plain = |b: &u8| matches!(b, b' '..=b'~' | b'\n') && !cells;
        if self.rule == Rule::Pass || (self.rest.is_empty() && bytes.iter().all(plain)) {
            return self.out.write(bytes);
        }
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut shown = String::with_capacity(all.len());
        let mut left = all.as_slice();
        while !left.is_empty() {
            let (valid, invalid) = match std::str::from_utf8(left) {
                Ok(text) => (text.len(), Some(0)),
                Err(e) => (e.valid_up_to(), e.error_len()),
            };
            let mut whole = valid;
            // Only the next bytes show whether this carriage return begins a line ending.
            if valid == left.len() && left.last() == Some(&b'\r') {
                whole -= 1;
            }
            self.shown(std::str::from_utf8(&left[..whole]).unwrap_or_default(), &mut shown);
            left = &left[whole..];
            match invalid {
                _ if whole < valid => break,
                // The next bytes may complete the character.
                None => break,
                Some(0) => {}
                Some(n) => {
                    shown.push(STAND_IN);
                    left = &left[n..];
                }
            }
        }
        self.rest = left.to_vec();
        self.out.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        if !self.rest.is_empty() {
            let _ = self.out.write_all(STAND_IN.to_string().as_bytes());
        }
        let _ = self.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `bytes` in pieces of different lengths, and checks that the output is the same.
    fn printed(kind: Kind, bytes: &[u8]) -> String {
        let of_pieces = |length: usize| {
            let mut out = Vec::new();
            let mut screen = Screen::new(&mut out, kind, true);
            bytes.chunks(length).for_each(|piece| screen.write_all(piece).unwrap());
            drop(screen);
            String::from_utf8(out).unwrap()
        };
        let whole = of_pieces(bytes.len().max(1));
        (1..bytes.len()).for_each(|length| assert_eq!(of_pieces(length), whole, "{length}"));
        whole
    }

    #[test]
    fn what_terminals_obey_or_hide() {
        // ESC, BEL, DEL, C1 CSI, ALM, ZWSP, ZWJ, LRM, PS, RLO, WJ, RLI, BOM, a tag, a soft hyphen,
        // a Hangul filler, variation selectors, noncharacters and others.
        let hidden = "\x1b\x07\0\t\r\n\x7f\u{9b}\u{61c}\u{200b}\u{200d}\u{200e}\u{2028}\u{2029}\
                      \u{202e}\u{2060}\u{2067}\u{feff}\u{e0041}\u{ad}\u{3164}\u{fe0f}\u{e0100}\
                      \u{fdd0}\u{1ffff}";
        for c in hidden.chars() {
            assert_eq!(visible(&format!("a{c}b")), "a\u{fffd}b", "{:x}", c as u32);
        }
        let seen = "aZ~ é漢字שלום عربي 😀 ██ – ≈ × µ ░ \u{301}";
        assert_eq!(visible(seen), seen);
    }

    /// The Python package prints names from JSON, in which nothing was replaced, so it must hide
    /// the same characters itself.
    #[test]
    fn python_hides_the_same_characters() {
        let path = "../../bindings/python/src/counterpoint/_visible.py";
        let source = std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")));
        let source = source.unwrap();
        let (_, table) = source.split_once("HIDDEN = \"\"\"").unwrap();
        let (table, _) = table.split_once("\"\"\"").unwrap();
        let mut theirs = std::collections::BTreeSet::new();
        for part in table.split_whitespace() {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last] = [first, last].map(|end| u32::from_str_radix(end, 16).unwrap());
            assert!(first <= last, "{part}");
            theirs.extend(first..=last);
        }
        for c in '\0'..=char::MAX {
            assert_eq!(is_hidden(c), theirs.contains(&u32::from(c)), "{:x}", u32::from(c));
        }
        assert!(theirs.iter().all(|n| char::from_u32(*n).is_some()));
    }

    #[test]
    fn each_kind_on_a_terminal() {
        let text = "é\x1b[31m\u{202e}x\r\ny\rz\n".as_bytes();
        let replaced = "é\u{fffd}[31m\u{fffd}x\ny\u{fffd}z\n";
        assert_eq!(printed(Kind::People, text), replaced);
        assert_eq!(printed(Kind::Lines, text), replaced);
        assert_eq!(printed(Kind::Csv, text), replaced);
        let cells = b"\"a\r\nb\",c\r\n\"d\"\"\ne\"\r\n";
        assert_eq!(printed(Kind::Csv, cells), "\"a\u{fffd}\u{fffd}b\",c\n\"d\"\"\u{fffd}e\"\n");
        assert_eq!(printed(Kind::Binary, text).as_bytes(), text);
        assert_eq!(printed(Kind::People, b"a\xff\xfe\xe2\x80"), "a\u{fffd}\u{fffd}\u{fffd}");
        let json = "{\"a\u{9b}\u{e0041}\u{7f}\": 1}\n";
        let escaped = printed(Kind::Json, json.as_bytes());
        assert_eq!(escaped, "{\"a\\u009b\\udb40\\udc41\\u007f\": 1}\n");
        let [before, after] =
            [json, &escaped].map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
        assert_eq!(before, after);
    }
}
