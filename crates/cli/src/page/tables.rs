//! Turns the tables that are also printed as text ([`Table`]) into tables of the page, with numbers
//! by which the page sorts.

use std::collections::HashMap;

use analysis::Key;

use super::data::{CellOut, ColumnOut, TableOut};
use super::explained::{Explained, meaning};
use super::{Form, Group, ROWS};
use crate::view::layout::{Kind, Names};
use crate::view::loops::{Loops, columns, module_name, notes, text, told_apart};
use crate::view::table::{Column, Table, Value};
use crate::view::text::{cell_text, marks, note_of, says_nothing};
use crate::view::units::grouped;

/// The page hides columns of this rank or a higher one at first.
const MINOR: u8 = 8;

pub const LOOPS_SORT: &str = "inclusive_ns";

/// Turns a table that is also printed as text into a table of the page. `known` are the ops of
/// which the page shows details.
pub fn of(form: &Form, known: &[Key]) -> TableOut {
    let table = &form.table;
    let shown: Vec<&Column> = columns_of(table).collect();
    let order = &table.order[..table.order.len().min(ROWS)];
    let line = |row: usize| -> Vec<CellOut> {
        let cells = shown.iter().enumerate();
        cells.map(|(i, column)| cell(column, row, table.names == Names::Tree && i == 0)).collect()
    };
    let of_row = |row: &usize| {
        let key = form.keys.get(*row).copied().flatten()?;
        known.iter().position(|known| *known == key)
    };
    // Only the first [`ROWS`] rows are kept. In a tree, a parent comes before its children, so the
    // parent of a kept row is kept, too.
    let places = places(order);
    let above = |row: &usize| {
        let above = form.parents.as_ref()?.get(*row).copied().flatten()?;
        places.get(&above).copied()
    };
    let left_out = table.left_out + table.order.len() - order.len();
    let of_marks = marks(table, &[]).into_iter().map(|(mark, text)| Explained::mark(mark, text));
    let explained: Vec<Explained> = form.explained.iter().cloned().chain(of_marks).collect();
    TableOut {
        id: form.id.clone(),
        group: form.group.name(),
        title: form.title.clone(),
        lead: form.lead.iter().cloned().chain(not_here(left_out)).collect(),
        marks: explained.iter().filter_map(Explained::of_mark).collect(),
        columns: shown
            .iter()
            .enumerate()
            .map(|(at, column)| ColumnOut {
                name: column.name.clone(),
                title: whole_title(&shown, at),
                is_text: is_text(column),
                is_minor: column.rank >= MINOR || says_nothing(table, column),
                meaning: meaning(&explained, &column.name),
            })
            .collect(),
        explained: explained.iter().map(Explained::line).collect(),
        rows: order.iter().map(|row| line(*row)).collect(),
        parents: form
            .parents
            .as_ref()
            .map(|_| order.iter().map(|row| above(row).map_or(-1, |at| at as i64)).collect()),
        ops: (!form.keys.is_empty()).then(|| order.iter().map(of_row).collect()),
        rest: table.rest.iter().map(|row| line(*row)).collect(),
        sort: form.sort.clone(),
        share: shown.iter().position(|column| column.name == "share").map_or(-1, |at| at as i64),
        left_out,
        plots: Vec::new(),
    }
}

/// Returns the columns that a page shows: the first one, and those with a value in some row, but
/// none that are only for CSV.
pub fn columns_of(table: &Table) -> impl Iterator<Item = &Column> {
    let all = table.columns.iter().enumerate().filter(|(_, column)| !column.csv_only);
    let has_some = |column: &Column| table.shown().any(|row| cell_text(column, row) != "–");
    all.filter(move |(at, column)| *at == 0 || has_some(column)).map(|(_, column)| column)
}

/// Returns the whole title of a column. A title that begins with `/` continues the title of the
/// column before it. The whole title repeats that title, because the page may show the two columns
/// apart.
fn whole_title(shown: &[&Column], at: usize) -> String {
    let title = &shown[at].title;
    match at.checked_sub(1).filter(|_| title.starts_with('/')) {
        Some(before) => format!("{} {title}", whole_title(shown, before)),
        None => title.clone(),
    }
}

fn places(order: &[usize]) -> HashMap<usize, usize> {
    order.iter().enumerate().map(|(at, row)| (*row, at)).collect()
}

fn not_here(rows: usize) -> Vec<String> {
    match rows {
        0 => Vec::new(),
        n => vec![format!("{} more rows are not in this page", grouped(n as u128))],
    }
}

fn is_text(column: &Column) -> bool {
    column.cells.iter().any(|cell| matches!(cell.as_deref(), Some(Value::Text(_))))
}

fn cell(column: &Column, row: usize, is_indented: bool) -> CellOut {
    let text = cell_text(column, row);
    let Some(value) = column.cells.get(row) else {
        // A missing value can have a mark, and then its text is not just `–`.
        return if text == "–" { CellOut::Missing(()) } else { CellOut::Text(text) };
    };
    let text = if is_indented { text.trim_start().to_owned() } else { text };
    match note_of(column, row) {
        Some(note) => CellOut::Noted(text, value.as_number().filter(|n| n.is_finite()), note),
        None => with_number(text, value.as_number()),
    }
}

fn with_number(text: String, number: Option<f64>) -> CellOut {
    match number.filter(|number| number.is_finite()) {
        Some(number) => CellOut::Number(text, number),
        None => CellOut::Text(text),
    }
}

/// Returns the tables of loops, one for each module that has rows. The module with the most time
/// comes first.
pub fn of_loops(loops: &Loops<'_>) -> Vec<TableOut> {
    let full = columns::full(loops, false);
    let mut first = 0;
    let mut tables = Vec::new();
    for (module, tree) in loops.table.modules.iter().enumerate() {
        let rows = &loops.rows[module];
        let begin = first;
        first += rows.len();
        if rows.is_empty() {
            continue;
        }
        tables.push(module_of(loops, module, &full, begin, table_id(module)));
        let last = tables.len() - 1;
        tables[last].lead.insert(0, notes::first(loops, tree));
    }
    // The first row of a table took the most time of its rows, so its time is the key for sorting
    // the modules.
    let most = |table: &TableOut| {
        let at = table.columns.iter().position(|column| column.name == LOOPS_SORT)?;
        match table.rows.first()?.get(at)? {
            CellOut::Number(_, ns) => Some(*ns),
            _ => None,
        }
    };
    tables.sort_by(|a, b| most(b).unwrap_or(-1.0).total_cmp(&most(a).unwrap_or(-1.0)));
    tables
}

/// Returns the id of a module's table, to which the listings of the module refer.
pub fn table_id(module: usize) -> String {
    format!("loop{module}")
}

fn module_of(loops: &Loops<'_>, module: usize, full: &Table, begin: usize, id: String) -> TableOut {
    let tree = &loops.table.modules[module];
    let rows = &loops.rows[module];
    let kept = rows.len().min(ROWS);
    let shown = text::cells(loops, module);
    let number = |name: &str, row: usize| {
        let name = columns::of_title(full, name);
        let column = full.columns.iter().find(|column| column.name == name)?;
        column.cells.get(begin + row).and_then(|value| value.as_number())
    };
    let cell = |column: &crate::view::layout::Shown<'_>, row: usize| {
        let text = column.cells[row].trim_start();
        match (text, matches!(column.kind, Kind::Number)) {
            ("–", _) => CellOut::Missing(()),
            (text, false) => CellOut::Text(text.to_owned()),
            (text, true) => with_number(text.to_owned(), number(&column.title, row)),
        }
    };
    let places = places(rows);
    let above = |row: usize| {
        let parent = tree.nodes[rows[row]].parent?;
        places.get(&parent).copied()
    };
    let title = told_apart(loops, tree).unwrap_or_else(|| module_name(tree));
    let legend = notes::legend(text::marks(loops, module)).into_iter();
    let facts = notes::facts(loops, tree, false).into_iter();
    let legend = legend.map(|(label, text)| {
        // A line of the legend about a column begins with the column's title, which has letters.
        // The other lines explain marks in cells.
        match label.contains(char::is_alphabetic) {
            true => {
                let title = label.trim_end_matches([' ', ':']);
                Explained::column(&columns::of_title(full, title), label, text)
            }
            false => Explained::mark(label, text),
        }
    });
    let explained: Vec<Explained> =
        legend.chain(facts.map(|(label, text)| Explained::word(label, text))).collect();
    TableOut {
        id,
        group: Group::Loops.name(),
        title,
        lead: not_here(rows.len() - kept),
        marks: explained.iter().filter_map(Explained::of_mark).collect(),
        columns: shown
            .iter()
            .map(|column| {
                let name = columns::of_title(full, &column.title);
                ColumnOut {
                    title: column.title.clone(),
                    is_text: !matches!(column.kind, Kind::Number),
                    is_minor: column.rank >= MINOR,
                    meaning: meaning(&explained, &name),
                    name,
                }
            })
            .collect(),
        explained: explained.iter().map(Explained::line).chain(notes::notes(tree, false)).collect(),
        rows: (0..kept).map(|row| shown.iter().map(|column| cell(column, row)).collect()).collect(),
        parents: Some((0..kept).map(|row| above(row).map_or(-1, |at| at as i64)).collect()),
        ops: None,
        rest: Vec::new(),
        sort: LOOPS_SORT.to_owned(),
        share: shown
            .iter()
            .position(|column| column.title == "of parent")
            .map_or(-1, |at| at as i64),
        left_out: rows.len() - kept,
        plots: Vec::new(),
    }
}
