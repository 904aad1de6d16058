//! Tables of the report, as the page gets them: the same cells, with the number to sort by.

use analysis::{Key, Row};

use super::ROWS;
use super::data::{CellOut, ColumnOut, TableOut};
use crate::view::table::{Column, Table, Value};
use crate::view::text::{cell_text, marks};
use crate::view::units::grouped;

/// A narrow report leaves out columns of this rank and above.
const MINOR: u8 = 8;

/// The cell of a row.
pub fn cell(column: &Column, row: usize) -> CellOut {
    let Some(value) = column.cells.get(row) else { return CellOut::Missing(()) };
    let text = cell_text(column, row);
    match (&*value, value.as_number()) {
        (Value::Text(_), _) | (_, None) => CellOut::Text(text),
        (_, Some(number)) if number.is_finite() => CellOut::Number(text, number),
        _ => CellOut::Text(text),
    }
}

/// A table of calls. `keys` are the ops that have details; the rows of the table are those of `rows`.
pub fn of(
    table: &Table,
    sort: &str,
    id: &'static str,
    title: &str,
    keys: &[Key],
    rows: &[Row],
) -> TableOut {
    let shown: Vec<&Column> = table.columns.iter().filter(|column| !column.csv_only).collect();
    let order = &table.order[..table.order.len().min(ROWS)];
    let line = |row: usize| shown.iter().map(|column| cell(column, row)).collect();
    let of_row = |row: &usize| {
        let key = rows.get(*row)?.key;
        keys.iter().position(|known| *known == key)
    };
    let left_out = table.left_out + table.order.len() - order.len();
    TableOut {
        id,
        group: match id {
            "kind" | "device" | "stream" => "activities",
            _ => "ops",
        },
        title: title.to_owned(),
        lead: match left_out {
            0 => Vec::new(),
            n => vec![format!("{} more rows are not in this page", grouped(n as u128))],
        },
        explained: explained(table),
        columns: shown
            .iter()
            .map(|column| ColumnOut {
                name: column.name.clone(),
                title: column.title.clone(),
                is_text: column
                    .cells
                    .iter()
                    .any(|cell| matches!(cell.as_deref(), Some(Value::Text(_)))),
                is_minor: column.rank >= MINOR || says_nothing(column, order),
            })
            .collect(),
        rows: order.iter().map(|row| line(*row)).collect(),
        parents: None,
        ops: (!keys.is_empty()).then(|| order.iter().map(of_row).collect()),
        rest: table.rest.map(line),
        sort: sort.to_owned(),
        share: shown.iter().position(|column| column.name == "share").map_or(-1, |at| at as i64),
        left_out,
    }
}

/// What the marks of cells mean.
fn explained(table: &Table) -> Vec<String> {
    marks(table, &[]).into_iter().map(|(mark, text)| format!("{mark}{text}")).collect()
}

fn says_nothing(column: &Column, order: &[usize]) -> bool {
    let number = |row: &usize| column.cells.get(*row).and_then(|value| value.as_number());
    column.rank > 0 && order.iter().all(|row| number(row).is_none_or(|number| number == 0.0))
        && order.iter().all(|row| column.cells.get(*row).is_none_or(|v| v.as_number().is_some()))
}
