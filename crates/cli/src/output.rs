//! What every command that prints has in common: the choice of a format, the width of the
//! terminal, and numbers as people read them.

use std::io::IsTerminal;

use clap::ValueEnum;

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

/// Columns for prose and for tables that wrap, where nobody says how many there are.
pub const PROSE_WIDTH: usize = 120;

/// Columns of the terminal on stdout; without one, `COLUMNS`; `None` without that.
pub fn known_width() -> Option<usize> {
    if let Some((terminal_size::Width(columns), _)) =
        terminal_size::terminal_size_of(std::io::stdout())
    {
        return Some(columns.into());
    }
    std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok())
}

/// Likewise; 120 if not known.
pub fn width() -> usize {
    known_width().unwrap_or(PROSE_WIDTH)
}

/// Whether to colour stdout: a terminal, and `NO_COLOR` not set.
pub fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}
