//! Lays out tables. To fit a table into a terminal, columns are left out, names are shortened
//! (`names.rs` has the rule), and prose is broken into lines.
//!
//! ```text
//!  name      number  number  prose
//!  …matmul       12    1.00  what does not fit in one line
//!                            continues under itself
//! ```

use std::io::{self, Write};

use super::names;
use super::units::shorten;
use super::wrap::{PROSE_WIDTH, lines, wrapped};
use crate::terminal::{Style, visible};

/// Other columns are left out before names of ops get narrower than this.
const OP_WIDTH: usize = 28;
/// Other columns are left out before names in a tree get narrower than this.
const TREE_WIDTH: usize = 30;
/// Other columns are left out before names of threads, processes and tracks get narrower than this.
pub const THREAD_WIDTH: usize = 16;
/// A source location is shortened to this width before its column is left out.
const PLACE_WIDTH: usize = 16;
/// Prose in a narrower column is hard to read, so another column is left out first.
const PROSE_LEAST: usize = 24;
const GAP: &str = "  ";
/// The rank of a column whose cells contain no useful value.
pub const SAYS_NOTHING: u8 = u8::MAX;
/// At most this many left-out columns are named.
const NAMED: usize = 3;

/// The kind of a column, which decides how cells are aligned and what happens if the table is too
/// wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Aligned left.
    Text,
    /// Aligned right.
    Number,
    /// Source locations. They are shortened first, and their column is left out before more than
    /// the common beginning of names is cut.
    Place,
    /// Sentences, which are broken into lines. Only the last column may be of this kind.
    Prose,
}

/// How the names in the first column may be shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The common beginning of the names is cut first, and is stored in [`Layout::common`].
    Ops,
    /// Names with indentation, which have no common beginning.
    Tree,
    /// Shortened in the middle, but other columns are left out before names get narrower than this.
    Shortened(usize),
    /// Never shortened, because people copy them. A name that is too long gets a line of its own.
    Whole,
}

pub struct Shown<'a> {
    /// The column's name in [`Layout::left_out`].
    pub name: &'a str,
    /// The column's heading. A table without any headings has no heading line.
    pub title: String,
    /// The column with the largest rank is left out first; among equals, the last one.
    pub rank: u8,
    pub kind: Kind,
    pub cells: Vec<String>,
}

/// What was left out because the table was too wide.
#[derive(Debug, Default)]
pub struct Layout<'a> {
    pub left_out: Vec<&'a str>,
    pub headings: Vec<String>,
    /// The common beginning of the names, if it was replaced by `…`.
    pub common: Option<String>,
}

impl Layout<'_> {
    pub fn say_left_out(&self, out: &mut impl Write, width: Option<usize>) -> io::Result<()> {
        self.say_left_out_but_in(out, width, "csv")
    }

    /// Prints which columns were left out, and that the output in `format` has them.
    pub fn say_left_out_but_in(
        &self,
        out: &mut impl Write,
        width: Option<usize>,
        format: &str,
    ) -> io::Result<()> {
        if self.left_out.is_empty() {
            return Ok(());
        }
        // The most important of these columns were left out last.
        let mut names: Vec<&str> =
            self.headings.iter().rev().map(String::as_str).take(NAMED).collect();
        let more = match self.left_out.len() - names.len() {
            0 => String::new(),
            n => format!("{n} more"),
        };
        names.extend(Some(more.as_str()).filter(|more| !more.is_empty()));
        let text = format!("{} (wider terminal, --format {format})", names.join(", "));
        wrapped(out, "not shown: ", &text, width.unwrap_or(PROSE_WIDTH))
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Prints the columns in lines of at most `width` characters, if that is possible. Where necessary,
/// shortens source locations, leaves out the columns of the highest ranks, breaks prose, and
/// shortens the first column. If `width` is `None`, everything is as wide as it needs to be.
pub fn layout<'a>(
    out: &mut impl Write,
    mut shown: Vec<Shown<'a>>,
    names: Names,
    width: Option<usize>,
) -> io::Result<Layout<'a>> {
    let mut needs: Vec<usize> = shown.iter().map(needed).collect();
    let Some(name) = shown.first() else { return Ok(Layout::default()) };
    let width = width.unwrap_or(usize::MAX);
    let title = length(&name.title);
    // For ops, the width of names is counted without their common beginning, which can be cut.
    let cut = names == Names::Ops;
    let apart = names::least(&name.cells, cut).max(title);
    let least = match names {
        // In a wide terminal, columns are left out before names get narrower than a quarter of the
        // width.
        Names::Ops => apart.min(OP_WIDTH.max(width / 4)),
        Names::Tree => apart.min(TREE_WIDTH.max(width / 4)),
        Names::Shortened(least) => apart.min(least.max(width / 4)),
        Names::Whole => needs[0].min(width / 5 * 2),
    };
    let mut widths: Vec<usize> = shown.iter().zip(&needs).map(at_first).collect();
    let others = |widths: &[usize]| widths[1..].iter().map(|w| w + GAP.len()).sum::<usize>();
    let (mut left_out, mut headings) = (Vec::new(), Vec::new());
    while shown.len() > 2 {
        let taken = others(&widths);
        let worst = match (1..shown.len()).find(|i| shown[*i].kind == Kind::Place) {
            Some(place) if taken.saturating_add(apart) > width => Some(place),
            _ if taken.saturating_add(needs[0]) > width && says_nothing(&shown).is_some() => {
                says_nothing(&shown)
            }
            _ if taken.saturating_add(least) > width => {
                (1..shown.len()).max_by_key(|i| (shown[*i].rank, *i))
            }
            _ => None,
        };
        let Some(worst) = worst else { break };
        widths.remove(worst);
        needs.remove(worst);
        let column = shown.remove(worst);
        left_out.push(column.name);
        headings.push(heading(&column));
    }
    let common = match names {
        Names::Whole => {
            let all = needs.iter().fold(GAP.len() * (needs.len() - 1), |sum, n| sum + n);
            widths[0] = if all > width { least.max(title) } else { needs[0] };
            None
        }
        Names::Ops | Names::Tree | Names::Shortened(_) => {
            let room = width.saturating_sub(others(&widths)).max(8);
            let fitted = names::fit(&shown[0].cells, needs[0].min(room), cut);
            let longest = fitted.names.iter().map(|name| length(name));
            widths[0] = longest.chain([title.min(needs[0].min(room))]).max().unwrap_or(0);
            shown[0].cells = fitted.names;
            fitted.common
        }
    };
    // Columns that are too narrow get the remaining width.
    for i in 1..shown.len() {
        let free = width.saturating_sub(widths[0]).saturating_sub(others(&widths));
        widths[i] = needs[i].min(widths[i].saturating_add(free));
    }
    print(out, &shown, &widths, names == Names::Whole)?;
    Ok(Layout { left_out, headings, common })
}

/// Returns the heading of a column for a text outside of the table. In the table, a column with the
/// heading `/call` follows the column of its counter. Elsewhere, the heading must name the counter.
fn heading(column: &Shown<'_>) -> String {
    match column.name.strip_suffix("_per_call") {
        Some(counter) if column.title == "/call" => format!("{counter}/call"),
        _ => visible(&column.title).into_owned(),
    }
}

/// Returns the last column without useful values, which is left out before names are shortened.
fn says_nothing(shown: &[Shown<'_>]) -> Option<usize> {
    (1..shown.len()).rev().find(|i| shown[*i].rank == SAYS_NOTHING)
}

/// Returns the width that a column needs if nothing in it is shortened or broken.
fn needed(column: &Shown<'_>) -> usize {
    let lines = column.cells.iter().flat_map(|cell| match column.kind {
        Kind::Prose => cell.split('\n').collect(),
        _ => vec![cell.as_str()],
    });
    lines.map(length).chain([length(&column.title)]).max().unwrap_or(0)
}

fn at_first((column, needed): (&Shown<'_>, &usize)) -> usize {
    match column.kind {
        Kind::Place => PLACE_WIDTH.min(*needed),
        Kind::Prose => PROSE_LEAST.min(*needed),
        Kind::Text | Kind::Number => *needed,
    }
}

fn print(
    out: &mut impl Write,
    shown: &[Shown<'_>],
    widths: &[usize],
    whole: bool,
) -> io::Result<()> {
    if shown.iter().any(|column| !column.title.is_empty()) {
        let titles: Vec<_> =
            shown.iter().map(|column| vec![visible(&column.title).into_owned()]).collect();
        let mut text = Vec::new();
        print_row(&mut text, shown, widths, &titles, false)?;
        let line = text.strip_suffix(b"\n").unwrap_or(&text);
        write!(out, "{}", Style::Bold.mark())?;
        out.write_all(line)?;
        writeln!(out, "{}", Style::Off.mark())?;
    }
    for row in 0..shown.first().map_or(0, |name| name.cells.len()) {
        let cells = shown.iter().zip(widths).map(|(column, width)| {
            let cell = &column.cells[row];
            match column.kind {
                Kind::Prose => lines(cell, *width),
                Kind::Place => vec![names::place(&visible(cell), *width)],
                Kind::Text | Kind::Number => vec![visible(cell).into_owned()],
            }
        });
        print_row(out, shown, widths, &cells.collect::<Vec<_>>(), whole)?;
    }
    Ok(())
}

/// Prints a row, in which cells may have several lines. With `whole`, names are not shortened.
fn print_row(
    out: &mut impl Write,
    shown: &[Shown<'_>],
    widths: &[usize],
    cells: &[Vec<String>],
    whole: bool,
) -> io::Result<()> {
    let mut first = 0;
    if let ([name, _, ..], [width, ..]) = (cells, widths)
        && whole
        && name.iter().any(|name| length(name) > *width)
    {
        // A long name gets a line of its own.
        writeln!(out, "{}", name.concat())?;
        first = 1;
    }
    let most = cells.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..most {
        let mut text = String::new();
        for (i, (column, width)) in shown.iter().zip(widths).enumerate() {
            let cell = if i < first { None } else { cells[i].get(line) };
            let cell = cell.map_or("", String::as_str);
            // A long word in prose is not cut, because people may want to copy it.
            let cell = match column.kind {
                Kind::Prose => cell.to_owned(),
                _ => shorten(cell, *width),
            };
            if i > 0 {
                text.push_str(GAP);
            }
            // `{:width$}` panics for widths of 65,536 or more, and names can be that long.
            let gap = " ".repeat(width.saturating_sub(length(&cell)));
            match column.kind {
                Kind::Number => text.extend([gap, cell]),
                _ => text.extend([cell, gap]),
            }
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column<'a>(name: &'a str, rank: u8, kind: Kind, cells: &[&str]) -> Shown<'a> {
        let cells = cells.iter().map(|cell| (*cell).to_owned()).collect();
        Shown { name, title: name.to_owned(), rank, kind, cells }
    }

    fn printed(columns: Vec<Shown<'_>>, names: Names, width: Option<usize>) -> (String, String) {
        let mut out = Vec::new();
        let left_out = layout(&mut out, columns, names, width).unwrap().left_out.join(", ");
        (String::from_utf8(out).unwrap(), left_out)
    }

    const LONG: &str = "a-name-that-is-as-long-as-a-line";

    fn counters() -> Vec<Shown<'static>> {
        vec![
            column("name", 0, Kind::Text, &["cycles", LONG]),
            column("unit", 2, Kind::Text, &["cycles", "ns"]),
            column("n", 1, Kind::Number, &["1", "22"]),
            column("words", 0, Kind::Prose, &["one two three four five seven\nsix", "eight"]),
        ]
    }

    #[test]
    fn prose_is_broken_and_names_to_copy_stay_whole() {
        let wide = [
            format!("{:<32}  {:<6}  {:>2}  words\n", "name", "unit", "n"),
            format!("{:<32}  {:<6}  {:>2}  one two three four five seven\n", "cycles", "cycles", 1),
            format!("{:<46}six\n", ""),
            format!("{LONG:<32}  {:<6}  {:>2}  eight\n", "ns", 22),
        ];
        assert_eq!(printed(counters(), Names::Whole, None), (wide.concat(), String::new()));
        // Names get 2/5 of the 50 characters of a line, and prose gets 24 characters, so the column
        // "unit" does not fit.
        let narrow = [
            format!("{:<20}  {:>2}  words\n", "name", "n"),
            format!("{:<20}  {:>2}  one two three four five\n", "cycles", 1),
            format!("{:<26}seven\n", ""),
            format!("{:<26}six\n", ""),
            format!("{LONG}\n"),
            format!("{:<20}  {:>2}  eight\n", "", 22),
        ];
        let (text, left_out) = printed(counters(), Names::Whole, Some(50));
        assert_eq!((text.as_str(), left_out.as_str()), (narrow.concat().as_str(), "unit"));
    }

    #[test]
    fn without_titles_there_is_no_heading_line() {
        let untitled = || column("", 0, Kind::Text, &["a"]);
        let words = column("", 0, Kind::Prose, &["b\u{1b}[31m\nc"]);
        let (text, _) = printed(vec![untitled(), words], Names::Whole, Some(80));
        assert_eq!(text, "a  b\u{fffd}[31m\n   c\n");
    }
}
