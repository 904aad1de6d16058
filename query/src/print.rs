//! Prints rows as text, CSV or JSON.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use datafusion::arrow::array::Array;
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::hidden::{is_hidden, visible};

/// The values of `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people. A missing value is `–`.
    #[default]
    #[value(alias = "table")]
    Text,
    /// RFC 4180 with one header line. An empty field is a missing value.
    Csv,
    /// One object per line. Numbers of more than 64 bits are texts.
    Json,
}

pub fn print(
    out: &mut impl Write,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    format: Format,
) -> io::Result<()> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let types: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
    let mut rows: Vec<Vec<Option<String>>> = Vec::new();
    for batch in batches {
        let options = FormatOptions::default();
        let columns = batch.columns().iter();
        let formatters = columns
            // A column of the type NULL has no bitmap of missing values, but `logical_nulls`
            // computes one.
            .map(|c| Ok((c.logical_nulls(), ArrayFormatter::try_new(c.as_ref(), &options)?)))
            .collect::<Result<Vec<_>, datafusion::arrow::error::ArrowError>>()
            .map_err(io::Error::other)?;
        for row in 0..batch.num_rows() {
            let cell = |(nulls, formatter): &(Option<NullBuffer>, ArrayFormatter)| {
                let is_there = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                is_there.then(|| formatter.value(row).to_string())
            };
            rows.push(formatters.iter().map(cell).collect());
        }
    }
    // If stdout is a file or a pipe, CSV and JSON contain hidden characters unchanged. The format
    // `text` never contains hidden characters: they are replaced.
    let is_shown = io::stdout().is_terminal();
    match format {
        Format::Csv => csv(out, &names, &rows, is_shown),
        Format::Json => {
            let mut whole = Vec::new();
            json(&mut whole, &names, &types, &rows)?;
            out.write_all(&if is_shown { escaped(&whole) } else { whole })
        }
        Format::Text => text(out, &names, &types, &rows),
    }
}

fn csv(
    out: &mut impl Write,
    names: &[&str],
    rows: &[Vec<Option<String>>],
    is_shown: bool,
) -> io::Result<()> {
    let quoted = |text: &str| {
        let text = if is_shown { visible(text) } else { Cow::Borrowed(text) };
        match text.contains(['"', ',', '\n', '\r']) || text.is_empty() {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.into_owned(),
        }
    };
    let header: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    writeln!(out, "{}", header.join(","))?;
    for row in rows {
        let cells = row.iter().map(|cell| cell.as_deref().map_or_else(String::new, quoted));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

fn json(
    out: &mut impl Write,
    names: &[&str],
    types: &[&DataType],
    rows: &[Vec<Option<String>>],
) -> io::Result<()> {
    for row in rows {
        let cells = row.iter().zip(names).zip(types).map(|((cell, name), data_type)| {
            let name = serde_json::Value::from(*name);
            let value = match cell {
                None => "null".to_owned(),
                Some(text) if is_plain_number(data_type, text) => text.clone(),
                Some(text) => serde_json::Value::from(text.as_str()).to_string(),
            };
            format!("{name}:{value}")
        });
        writeln!(out, "{{{}}}", cells.collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

/// Writes each hidden character in JSON, except line breaks, as `\uXXXX`.
fn escaped(json: &[u8]) -> Vec<u8> {
    let mut all = String::new();
    for c in String::from_utf8_lossy(json).chars() {
        match c != '\n' && is_hidden(c) {
            true => {
                let mut units = [0; 2];
                let units = c.encode_utf16(&mut units).iter();
                units.for_each(|unit| all.push_str(&format!("\\u{unit:04x}")));
            }
            false => all.push(c),
        }
    }
    all.into_bytes()
}

/// Whether a cell can be written to JSON without quotes: a boolean, a finite float, or a whole
/// number that fits into a signed 64-bit integer.
fn is_plain_number(data_type: &DataType, text: &str) -> bool {
    match data_type {
        DataType::Boolean => true,
        DataType::Float64 | DataType::Float32 => {
            serde_json::from_str::<serde_json::Number>(text).is_ok()
        }
        data_type if data_type.is_numeric() => text.parse::<i64>().is_ok(),
        _ => false,
    }
}

fn text(
    out: &mut impl Write,
    names: &[&str],
    types: &[&DataType],
    rows: &[Vec<Option<String>>],
) -> io::Result<()> {
    let header: Vec<Cow<'_, str>> = names.iter().map(|name| visible(name)).collect();
    let cells = |row: &Vec<Option<String>>| -> Vec<String> {
        row.iter().map(|c| c.as_deref().map_or("–".into(), visible).into_owned()).collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..header.len())
        .map(|at| {
            let of_rows = rows.iter().map(|row| width(&row[at]));
            of_rows.chain([width(&header[at])]).max().unwrap_or(0)
        })
        .collect();
    let mut line = |cells: Vec<&str>| -> io::Result<()> {
        let mut text = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let room = " ".repeat(widths[at] - width(cell));
            let gap = if at == 0 { "" } else { "  " };
            match types[at].is_numeric() {
                true => text.push_str(&format!("{gap}{room}{cell}")),
                false => text.push_str(&format!("{gap}{cell}{room}")),
            }
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(header.iter().map(AsRef::as_ref).collect())?;
    rows.iter().try_for_each(|row| line(row.iter().map(String::as_str).collect()))
}
