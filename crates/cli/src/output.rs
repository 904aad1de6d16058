//! The output formats that several commands share, and parsers for the values of options.

use clap::ValueEnum;

use crate::terminal::Kind;

/// `--format` of commands that print a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table that fits the terminal.
    #[default]
    #[value(alias = "text")]
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

pub fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms >= 0.0 && ms.is_finite() => Ok(ms),
        _ => Err("not a number of milliseconds".to_owned()),
    }
}

/// Parses a number of bytes: 65536, 512K, 128M, 2G.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("", 1)];
    let upper = text.trim().to_ascii_uppercase();
    let found = units.iter().find_map(|(unit, factor)| Some((upper.strip_suffix(unit)?, *factor)));
    let (number, factor) = found.unwrap_or((&upper, 1));
    let number = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    match number {
        Some(number) if number > 0 => Ok(number),
        _ => Err("not a number of bytes: 65536, 512K, 128M".to_owned()),
    }
}

/// Parses a time with its unit, and returns nanoseconds.
pub fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let parsed = units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let Some((number, ns)) = parsed else {
        return Err("add a unit to the time: s, ms, us or ns".to_owned());
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number * ns < 2f64.powi(63) => {
            Ok((number * ns).round() as u64)
        }
        _ => Err(format!(
            "{number:?} is not a number of {} of at least 0",
            text.trim_start_matches(number)
        )),
    }
}
