//! The lines below a table: what its columns, its marks and its words mean. The page shows a meaning also where the
//! pointer rests on a title, and beside a number with a mark that stands elsewhere, so each line says what it is of.

use serde::Serialize;

/// A line below a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    of: Of,
    /// Stands before the text in the line: a title, a mark, a word. Empty for a sentence.
    label: String,
    text: String,
}

/// The meaning of a mark on values, as a whole line. Without a mark, it is of all values that have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeaningOut {
    pub mark: &'static str,
    pub text: String,
}

/// What a line is of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// The columns of these names.
    Columns(Vec<String>),
    /// A mark on values, without the space after it.
    Mark(&'static str),
    /// All marks on values.
    AnyMark,
    /// A word in the names of rows, or the table as a whole.
    Table,
}

/// Marks that stand instead of a value, and not on one.
const OF_MISSING: [&str; 1] = ["–"];

impl Explained {
    /// Makes a line about the column of this name.
    pub fn column(name: &str, label: &str, text: impl Into<String>) -> Self {
        Self::columns([name.to_owned()], label, text)
    }

    /// Makes a line about the columns of these names.
    pub fn columns(
        names: impl IntoIterator<Item = String>,
        label: &str,
        text: impl Into<String>,
    ) -> Self {
        let of = Of::Columns(names.into_iter().collect());
        Self { of, label: label.to_owned(), text: text.into() }
    }

    /// Makes a line about a mark. `label` is the mark with what separates it from the text.
    pub fn mark(label: &'static str, text: impl Into<String>) -> Self {
        let mark = label.trim_end_matches([' ', ':']);
        let of = if OF_MISSING.contains(&mark) { Of::Table } else { Of::Mark(mark) };
        Self { of, label: label.to_owned(), text: text.into() }
    }

    /// Makes a line about all values with a mark.
    pub fn any_mark(label: &str, text: impl Into<String>) -> Self {
        Self { of: Of::AnyMark, label: label.to_owned(), text: text.into() }
    }

    /// Makes a line about a word in the names of rows.
    pub fn word(label: &str, text: impl Into<String>) -> Self {
        Self { of: Of::Table, label: label.to_owned(), text: text.into() }
    }

    /// Makes a sentence about the table.
    pub fn sentence(text: impl Into<String>) -> Self {
        Self::word("", text)
    }

    /// Returns the whole line.
    pub fn line(&self) -> String {
        format!("{}{}", self.label, self.text)
    }

    /// Returns the meaning of the column of this name, if the line is about it.
    pub fn of_column(&self, name: &str) -> Option<&str> {
        match &self.of {
            Of::Columns(names) => names.iter().any(|of| of == name).then_some(&*self.text),
            _ => None,
        }
    }

    /// Returns the meaning of a mark, if the line is about one.
    pub fn of_mark(&self) -> Option<MeaningOut> {
        let mark = match self.of {
            Of::Mark(mark) => mark,
            Of::AnyMark => "",
            Of::Columns(_) | Of::Table => return None,
        };
        Some(MeaningOut { mark, text: self.line() })
    }
}

/// Returns what these lines say of a column; `None` if they say nothing.
pub fn meaning(lines: &[Explained], column: &str) -> Option<String> {
    let all: Vec<&str> = lines.iter().filter_map(|line| line.of_column(column)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_is_of() {
        let lines = [
            Explained::columns(
                ["p50_ns".to_owned(), "p99_ns".to_owned()],
                "p50, p99: ",
                "of a call",
            ),
            Explained::column("self_ns", "self: ", "without the calls inside: of all"),
            Explained::mark("±? ", "too few calls"),
            Explained::mark("≤: ", "at most"),
            Explained::mark("– ", "left out"),
            Explained::any_mark("sample: ", "estimates"),
            Explained::word("(run): ", "a call of a model"),
        ];
        assert_eq!(meaning(&lines, "p99_ns").as_deref(), Some("of a call"));
        assert_eq!(meaning(&lines, "self_ns").as_deref(), Some("without the calls inside: of all"));
        assert_eq!(meaning(&lines, "self"), None);
        let marks = lines.iter().filter_map(Explained::of_mark);
        let marks: Vec<_> = marks.map(|of| (of.mark, of.text)).collect();
        let expected = [("±?", "±? too few calls"), ("≤", "≤: at most"), ("", "sample: estimates")];
        assert_eq!(marks, expected.map(|(mark, text)| (mark, text.to_owned())));
        assert_eq!(lines[6].line(), "(run): a call of a model");
    }
}
