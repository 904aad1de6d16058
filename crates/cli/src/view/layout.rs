//! The one renderer of tables: columns in a terminal's width. It leaves columns out, shortens names
//! so that they can still be told apart, and breaks prose into lines.
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

/// Names of ops are not shortened below this, as long as there are other columns to leave out.
const OP_WIDTH: usize = 28;
/// What a place in the source is shortened to before its column is left out.
const PLACE_WIDTH: usize = 16;
/// Prose in a narrower column is hard to read: another column is left out first.
const PROSE_LEAST: usize = 24;
const GAP: &str = "  ";

/// What is in a column, which decides how it is aligned and what happens where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Aligned left.
    Text,
    /// Aligned right.
    Number,
    /// A place in the source: shortened before anything else, and left out before a name is
    /// shortened to less than tells it apart.
    Place,
    /// Sentences, broken into lines between words and at line breaks. Only the last column.
    Prose,
}

/// What may happen to names, which are in the first column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// A common beginning is cut first, and [`Layout::common`] says what it was.
    Ops,
    /// Shortened in the middle, but not below this many columns while others can be left out.
    Shortened(usize),
    /// Never shortened, since people copy them: a name that is too long has a line of its own.
    Whole,
}

/// A column as it is printed.
pub struct Shown<'a> {
    /// What it is called where it is left out.
    pub name: &'a str,
    /// Its head. A table without any has no line of heads.
    pub title: String,
    /// Where there is no room for all, the column with the largest number is left out first; of
    /// equal ones the last.
    pub rank: u8,
    /// What is in it.
    pub kind: Kind,
    /// One for each row.
    pub cells: Vec<String>,
}

/// What [`layout`] had no room for.
#[derive(Debug, Default)]
pub struct Layout<'a> {
    /// Names of the columns that were left out.
    pub left_out: Vec<&'a str>,
    /// A beginning that names had in common, and that is `…` now.
    pub common: Option<String>,
}

impl Layout<'_> {
    /// Says which columns were left out, if any.
    pub fn say_left_out(&self, out: &mut impl Write, width: Option<usize>) -> io::Result<()> {
        if self.left_out.is_empty() {
            return Ok(());
        }
        let names = self.left_out.join(", ");
        let text = format!("{names} (use a wider terminal, or --format json or csv)");
        wrapped(out, "not shown: ", &text, width.unwrap_or(PROSE_WIDTH))
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Prints columns in at most `width`, as far as that is possible: shortens places in the source,
/// leaves out columns of the highest rank, breaks prose, and shortens what is in the first column.
/// Without a width everything is as wide as it needs.
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
    // Names without what they have in common.
    let cut = names == Names::Ops;
    let apart = names::least(&name.cells, cut).max(title);
    let least = match names {
        Names::Ops => apart.min(OP_WIDTH),
        Names::Shortened(least) => apart.min(least),
        Names::Whole => needs[0].min(width / 5 * 2),
    };
    let mut widths: Vec<usize> = shown.iter().zip(&needs).map(at_first).collect();
    let others = |widths: &[usize]| widths[1..].iter().map(|w| w + GAP.len()).sum::<usize>();
    let mut left_out = Vec::new();
    while shown.len() > 2 {
        let taken = others(&widths);
        let worst = match (1..shown.len()).find(|i| shown[*i].kind == Kind::Place) {
            Some(place) if taken.saturating_add(apart) > width => Some(place),
            _ if taken.saturating_add(least) > width => {
                (1..shown.len()).max_by_key(|i| (shown[*i].rank, *i))
            }
            _ => None,
        };
        let Some(worst) = worst else { break };
        widths.remove(worst);
        needs.remove(worst);
        left_out.push(shown.remove(worst).name);
    }
    let common = match names {
        Names::Whole => {
            let all = needs.iter().fold(GAP.len() * (needs.len() - 1), |sum, n| sum + n);
            widths[0] = if all > width { least.max(title) } else { needs[0] };
            None
        }
        Names::Ops | Names::Shortened(_) => {
            let room = width.saturating_sub(others(&widths)).max(8);
            let fitted = names::fit(&shown[0].cells, needs[0].min(room), cut);
            let longest = fitted.names.iter().map(|name| length(name));
            widths[0] = longest.chain([title.min(needs[0].min(room))]).max().unwrap_or(0);
            shown[0].cells = fitted.names;
            fitted.common
        }
    };
    // What is left goes to the columns that were given little at first.
    for i in 1..shown.len() {
        let free = width.saturating_sub(widths[0]).saturating_sub(others(&widths));
        widths[i] = needs[i].min(widths[i].saturating_add(free));
    }
    print(out, &shown, &widths, names == Names::Whole)?;
    Ok(Layout { left_out, common })
}

/// The width of a column in which nothing is shortened or broken.
fn needed(column: &Shown<'_>) -> usize {
    let lines = column.cells.iter().flat_map(|cell| match column.kind {
        Kind::Prose => cell.split('\n').collect(),
        _ => vec![cell.as_str()],
    });
    lines.map(length).chain([length(&column.title)]).max().unwrap_or(0)
}

/// The width with which a column begins, given what it needs.
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

/// A row, whose cells have as many lines as they need. `whole`: names are not shortened.
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
        // Too long for its column: what belongs to it follows on the next line.
        writeln!(out, "{}", name.concat())?;
        first = 1;
    }
    let most = cells.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..most {
        let mut text = String::new();
        for (i, (column, width)) in shown.iter().zip(widths).enumerate() {
            let cell = if i < first { None } else { cells[i].get(line) };
            let cell = cell.map_or("", String::as_str);
            // A long word of prose is not cut: it may be something to copy.
            let cell = match column.kind {
                Kind::Prose => cell.to_owned(),
                _ => shorten(cell, *width),
            };
            if i > 0 {
                text.push_str(GAP);
            }
            // Not by `{:width$}`, which panics from 65,536 on: names can be longer.
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
        // 2/5 of 50 columns are 20 for names; with 24 for prose "unit" has no room.
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
    fn without_titles_there_is_no_line_of_heads() {
        let untitled = || column("", 0, Kind::Text, &["a"]);
        let words = column("", 0, Kind::Prose, &["b\u{1b}[31m\nc"]);
        let (text, _) = printed(vec![untitled(), words], Names::Whole, Some(80));
        assert_eq!(text, "a  b\u{fffd}[31m\n   c\n");
    }
}
