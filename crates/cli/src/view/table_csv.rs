//! The table as CSV (RFC 4180): an empty field is a missing value.

use std::io::{self, Write};

use super::columns::{Table, Value};
use super::csv::field;

pub fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    let names: Vec<String> = table.columns.iter().map(|c| field(&c.name)).collect();
    write!(out, "{}\r\n", names.join(","))?;
    for row in &table.order {
        let cells = table.columns.iter().map(|column| {
            field(&column.cells[*row].as_ref().map(Value::to_csv).unwrap_or_default())
        });
        write!(out, "{}\r\n", cells.collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}
