//! Writes text and tables in Markdown.

use std::io::{self, Write};

use super::table::{Table, Value};
use super::text::cell_text;
use super::units::grouped;
use crate::terminal::visible;

/// Puts a backslash before the characters that could begin markup of Markdown or an HTML tag.
pub fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible(text).chars() {
        if matches!(c, '&' | '|' | '*' | '_' | '`' | '\\' | '<' | '>' | '[' | ']' | '#' | '@' | '~')
        {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Prints a table in GitHub's Markdown, with the columns that people see.
pub fn table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    let columns: Vec<_> = table.columns.iter().filter(|column| !column.csv_only).collect();
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    writeln!(out, "{}", line(columns.iter().map(|column| plain(&column.title)).collect()))?;
    let align = columns.iter().map(|column| {
        let is_text = |cell: Option<_>| matches!(cell.as_deref(), Some(Value::Text(_)));
        if column.cells.iter().any(is_text) { ":---" } else { "---:" }.to_owned()
    });
    writeln!(out, "{}", line(align.collect()))?;
    for row in table.shown() {
        let cells = columns.iter().map(|column| plain(&cell_text(column, row)));
        writeln!(out, "{}", line(cells.collect()))?;
    }
    if table.left_out > 0 {
        writeln!(out, "\n… and {} more", grouped(table.left_out as u128))?;
    }
    Ok(())
}
