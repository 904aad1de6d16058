//! Options that several views share.

use clap::ValueEnum;

use crate::terminal::Kind;

/// `--format` of commands that print a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table that fits the terminal.
    #[default]
    Table,
    /// One JSON document; docs/schema.md describes it.
    Json,
    /// RFC 4180 with one header line.
    Csv,
}

impl From<Format> for Kind {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::People,
            Format::Json => Self::Json,
            Format::Csv => Self::Csv,
        }
    }
}

/// Parses the value of an option that takes milliseconds.
pub fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms >= 0.0 && ms.is_finite() => Ok(ms),
        _ => Err("not a number of milliseconds".to_owned()),
    }
}
