//! What every command that prints has in common: the choice of a format, the width of the
//! terminal, and numbers as people read them.

use std::io::IsTerminal;

use clap::ValueEnum;

/// `--format` of commands that print a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: fits the terminal.
    #[default]
    Table,
    /// One JSON document, as docs/schema.md describes.
    Json,
    /// RFC 4180 with one header line.
    Csv,
}

/// Columns of the terminal on stdout; without one, `COLUMNS`, else 120.
pub fn width() -> usize {
    if let Some((terminal_size::Width(columns), _)) = terminal_size::terminal_size() {
        return columns.into();
    }
    std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).unwrap_or(120)
}

/// Whether to colour stdout: a terminal, and `NO_COLOR` not set.
pub fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}
