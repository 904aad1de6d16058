//! CSV (RFC 4180), for every command that writes some: fields, and whole tables.
//!
//! A spreadsheet evaluates a cell that begins with `=`, `+`, `-` or `@`, whoever wrote it: a name
//! `=HYPERLINK(…)` in a profile from somebody else would become a formula. Such a text gets an
//! apostrophe in front, which spreadsheets take for "this is text". Nothing is lost: a text that
//! begins with an apostrophe gets one, too, so that a program takes one away wherever there is
//! one. Numbers stay as they are.

use std::borrow::Cow;
use std::io::{self, Write};

use super::table::{Table, Value};

/// A field: guarded, and quoted where it must be.
pub fn field(text: &str) -> String {
    let text = guarded(text);
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

/// The text with an apostrophe in front if a spreadsheet could evaluate it (see the top of the file).
/// Covers the characters that OWASP lists (tab, line ends, full-width signs), also after spaces.
pub fn guarded(text: &str) -> Cow<'_, str> {
    const SIGNS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let begins = text.starts_with(['\'', '\t', '\r', '\n']);
    match begins || text.trim_start().starts_with(SIGNS) {
        true if text.parse::<f64>().is_err() => Cow::Owned(format!("'{text}")),
        _ => Cow::Borrowed(text),
    }
}

/// Writes a table with its names as the first line. An empty field is a missing value.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_formula_and_none_is_lost() {
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

    /// RFC 4180, section 2, rules 6 and 7.
    #[test]
    fn quoted_where_it_must_be() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(field("=a,b"), "\"'=a,b\"");
    }
}
