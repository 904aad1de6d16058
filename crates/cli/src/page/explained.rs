//! The lines below a table, which explain its columns, marks and words. The page shows the
//! explanation of a column also at the column's title, and the explanation of a mark also
//! beside numbers outside of the table.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    of: Of,
    /// The title, mark or word before the text. Empty for a sentence.
    label: String,
    text: String,
}

/// What a mark means. If `mark` is empty, the text is about values with any mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeaningOut {
    pub mark: &'static str,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    Columns(Vec<String>),
    /// A mark, without the separator after it.
    Mark(&'static str),
    /// All marks together.
    AnyMark,
    Table,
}

/// These marks replace a missing value.
const OF_MISSING: [&str; 1] = ["–"];

impl Explained {
    pub fn column(name: &str, label: &str, text: impl Into<String>) -> Self {
        Self::columns([name.to_owned()], label, text)
    }

    pub fn columns(
        names: impl IntoIterator<Item = String>,
        label: &str,
        text: impl Into<String>,
    ) -> Self {
        let of = Of::Columns(names.into_iter().collect());
        Self { of, label: label.to_owned(), text: text.into() }
    }

    /// Makes a line about a mark. `label` is the mark with a separator.
    pub fn mark(label: &'static str, text: impl Into<String>) -> Self {
        let mark = label.trim_end_matches([' ', ':']);
        let of = if OF_MISSING.contains(&mark) { Of::Table } else { Of::Mark(mark) };
        Self { of, label: label.to_owned(), text: text.into() }
    }

    /// Makes a line about the values with any mark.
    pub fn any_mark(label: &str, text: impl Into<String>) -> Self {
        Self { of: Of::AnyMark, label: label.to_owned(), text: text.into() }
    }

    /// Makes a line about a word in the names of rows.
    pub fn word(label: &str, text: impl Into<String>) -> Self {
        Self { of: Of::Table, label: label.to_owned(), text: text.into() }
    }

    /// Makes a line about the whole table.
    pub fn sentence(text: impl Into<String>) -> Self {
        Self::word("", text)
    }

    pub fn line(&self) -> String {
        format!("{}{}", self.label, self.text)
    }

    /// Returns the text if the line is about this column.
    pub fn of_column(&self, name: &str) -> Option<&str> {
        match &self.of {
            Of::Columns(names) => names.iter().any(|of| of == name).then_some(&*self.text),
            _ => None,
        }
    }

    /// Returns the line as the meaning of its mark, or `None` if the line is not about marks.
    pub fn of_mark(&self) -> Option<MeaningOut> {
        let mark = match self.of {
            Of::Mark(mark) => mark,
            Of::AnyMark => "",
            Of::Columns(_) | Of::Table => return None,
        };
        Some(MeaningOut { mark, text: self.line() })
    }
}

/// Returns what the lines say about the column; `None` if no line is about it.
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
