//! Columns in a terminal's width: which are left out, and how names are shortened.

use std::io::{self, Write};

use super::names;
use super::source::SOURCE;
use super::units::shorten;
use crate::terminal::{Style, visible};

/// Names are not shortened below this, as long as there are other columns to leave out.
pub const NAME_WIDTH: usize = 28;
/// What a place in the source is shortened to before the column is left out.
const SOURCE_WIDTH: usize = 16;
const GAP: &str = "  ";

/// A column as it is printed.
pub struct Shown<'a> {
    pub name: &'a str,
    pub title: String,
    /// See [`Column::rank`].
    pub rank: u8,
    /// Aligned left.
    pub is_text: bool,
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

/// Prints columns in at most `width`, as far as that is possible: shortens places in the source,
/// leaves out columns of the highest rank, and shortens what is in the first one.
pub fn layout<'a>(
    out: &mut impl Write,
    mut shown: Vec<Shown<'a>>,
    name_width: usize,
    width: Option<usize>,
) -> io::Result<Layout<'a>> {
    let length = |text: &String| text.chars().count();
    let needs = |column: &Shown<'_>| {
        column.cells.iter().map(length).chain([length(&column.title)]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = shown.iter().map(needs).collect();
    let Some(name) = shown.first() else { return Ok(Layout::default()) };
    // Only of ops it is said what was cut.
    let cut = name_width == NAME_WIDTH;
    let (title, name_needs) = (length(&name.title), widths[0]);
    // Names without what they have in common.
    let least = names::least(&name.cells, cut).max(title);
    let is_source = |column: &Shown<'_>| column.name == SOURCE;
    // A place in the source is shortened before anything else.
    let source_needs = shown.iter().position(is_source).map(|i| widths[i]).unwrap_or(0);
    if let Some(i) = shown.iter().position(is_source) {
        widths[i] = source_needs.min(SOURCE_WIDTH);
    }
    let others = |widths: &[usize]| widths[1..].iter().map(|w| w + GAP.len()).sum::<usize>();
    let width = width.unwrap_or(usize::MAX);
    let mut left_out = Vec::new();
    while shown.len() > 2 {
        let taken = others(&widths);
        let worst = match (1..shown.len()).find(|i| is_source(&shown[*i])) {
            // And goes before a name is shortened to less than tells it apart.
            Some(source) if taken.saturating_add(least) > width => Some(source),
            _ if taken.saturating_add(least.min(name_width)) > width => {
                (1..shown.len()).max_by_key(|i| (shown[*i].rank, *i))
            }
            _ => None,
        };
        let Some(worst) = worst else { break };
        widths.remove(worst);
        left_out.push(shown.remove(worst).name);
    }
    let room = width.saturating_sub(others(&widths)).max(8);
    widths[0] = name_needs.min(room);
    let fitted = names::fit(&shown[0].cells, widths[0], cut);
    widths[0] = fitted.names.iter().map(length).chain([title.min(widths[0])]).max().unwrap_or(0);
    shown[0].cells = fitted.names;
    if let Some(i) = shown.iter().position(is_source) {
        let free = width.saturating_sub(widths[0]).saturating_sub(others(&widths));
        widths[i] = source_needs.min(widths[i].saturating_add(free));
        let cells = &mut shown[i].cells;
        cells.iter_mut().for_each(|cell| *cell = names::place(cell, widths[i]));
    }
    let line = |out: &mut dyn Write, cell: &dyn Fn(&Shown<'_>) -> String| -> io::Result<()> {
        let mut text = String::new();
        for (i, (column, width)) in shown.iter().zip(&widths).enumerate() {
            let cell = shorten(&visible(&cell(column)), *width);
            if i > 0 {
                text.push_str(GAP);
            }
            // Not by `{:width$}`, which panics from 65,536 on: names can be longer.
            let gap = " ".repeat(width.saturating_sub(length(&cell)));
            match column.is_text {
                true => text.extend([cell, gap]),
                false => text.extend([gap, cell]),
            }
        }
        out.write_all(text.trim_end().as_bytes())
    };
    write!(out, "{}", Style::Bold.mark())?;
    line(out, &|column| column.title.clone())?;
    writeln!(out, "{}", Style::Off.mark())?;
    for row in 0..shown.first().map_or(0, |name| name.cells.len()) {
        line(out, &|column| column.cells[row].clone())?;
        writeln!(out)?;
    }
    Ok(Layout { left_out, common: fitted.common })
}
