//! Writes CSV (RFC 4180).
//!
//! A spreadsheet evaluates a cell that begins with `=`, `+`, `-` or `@`, even if the text comes
//! from somebody else. A name such as `=HYPERLINK(…)` in somebody else's profile would become a
//! formula. Therefore an apostrophe, which marks a text, is put before such a cell. An apostrophe
//! is also put before a leading apostrophe, so a program can always remove the first apostrophe.
//! Numbers are not changed.

use std::borrow::Cow;
use std::io::{self, Write};

use super::table::Table;

/// Returns the text as a CSV field, with an apostrophe before it (see [`guarded`]) and with quotes
/// around it where necessary.
pub fn field(text: &str) -> String {
    let text = guarded(text);
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

/// Puts an apostrophe before a text that a spreadsheet could evaluate (see the top of the file).
/// Such a text begins with one of the characters that OWASP lists: `=`, `+`, `-` or `@` (also
/// full-width, and also after spaces), a tab or a line end. Numbers, such as `-1`, stay as they
/// are.
pub fn guarded(text: &str) -> Cow<'_, str> {
    const SIGNS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let begins = text.starts_with(['\'', '\t', '\r', '\n']);
    match begins || text.trim_start().starts_with(SIGNS) {
        true if text.parse::<f64>().is_err() => Cow::Owned(format!("'{text}")),
        _ => Cow::Borrowed(text),
    }
}

/// Writes a table, with the columns' names in the first line; a missing value is an empty field.
pub fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    let names: Vec<String> = table.columns.iter().map(|c| field(&c.name)).collect();
    write!(out, "{}\r\n", names.join(","))?;
    for row in &table.order {
        let cells = table.columns.iter().map(|column| {
            field(&column.cells.get(*row).map(|cell| cell.to_csv()).unwrap_or_default())
        });
        write!(out, "{}\r\n", cells.collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_a_formula_or_is_lost() {
        let guarded_ones = [
            "=1+1",
            "+x",
            "-x",
            "@sum",
            "\t=1",
            "\rx",
            "\nx",
            " =1",
            "＝1",
            "'quoted",
            "'",
            "-5 apples",
            "=",
        ];
        for text in guarded_ones {
            assert_eq!(guarded(text), format!("'{text}"));
        }
        for text in ["", "matmul", "a=b", "-5", "+5", "-1.5e-3", "-inf", "x'", " x", "é", "5-3"] {
            assert_eq!(guarded(text), text);
        }
    }

    /// The expected fields follow RFC 4180, section 2, rules 6 and 7.
    #[test]
    fn fields_are_quoted_where_necessary() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(field("=a,b"), "\"'=a,b\"");
    }
}
