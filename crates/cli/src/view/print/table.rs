//! Tables: columns with names, headings and cells. Text, Markdown, CSV and JSON are made from these
//! tables, and `--sort` sorts their rows.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use analysis::{Estimate, Hidden};
use serde::{Serialize, Serializer};

use super::layout::Names;
pub use super::quantity::Quantity;
use super::units;
use crate::failure::Failure;
use crate::output::Format;
use crate::view::metrics;

/// The content of a cell. A missing value is `None` in the column, never zero.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Count(u128),
    /// A count that was estimated.
    About(u128),
    Number(f64),
    Ns(f64),
    /// An upper bound of a duration. In CSV, such a cell is empty; in JSON, it is null.
    AtMostNs(f64),
    Bytes(f64),
    Part(f64),
    /// A value with its interval, and whether people see how wide the interval is.
    Estimated(Quantity, Estimate, bool),
    /// The value of a metric, its unit, and whether the user declared that unit.
    Metric(f64, Rc<str>, bool),
}

/// A fact about each row, which is computed when it is needed. Many columns, such as those of
/// metrics, may be computed from the same values. Storing the cells of all these columns would take
/// much more memory than storing these values.
#[derive(Clone)]
pub struct Found<T>(Rc<dyn Fn(usize) -> Option<T>>);

impl<T: 'static> Found<T> {
    pub fn by(find: impl Fn(usize) -> Option<T> + 'static) -> Self {
        Self(Rc::new(find))
    }

    pub fn get(&self, row: usize) -> Option<T> {
        (self.0)(row)
    }
}

/// Stores one fact for each row, in the order of the rows.
impl<T: Clone + 'static> FromIterator<T> for Found<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let all: Vec<T> = all.into_iter().collect();
        Self::by(move |row| all.get(row).cloned())
    }
}

impl<T> fmt::Debug for Found<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Found(…)")
    }
}

#[derive(Clone, Debug)]
pub enum Cells {
    Stored(Vec<Option<Value>>),
    /// The number of rows, and a function that computes the value of a row.
    Found(usize, Found<Value>),
}

impl Cells {
    pub fn get(&self, row: usize) -> Option<Cow<'_, Value>> {
        match self {
            Self::Stored(cells) => cells.get(row)?.as_ref().map(Cow::Borrowed),
            Self::Found(_, found) => found.get(row).map(Cow::Owned),
        }
    }

    pub fn rows(&self) -> usize {
        match self {
            Self::Stored(cells) => cells.len(),
            Self::Found(rows, _) => *rows,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<Cow<'_, Value>>> {
        (0..self.rows()).map(|row| self.get(row))
    }

    /// Returns the cells as a stored list, after storing them if necessary.
    pub fn stored(&mut self) -> &mut Vec<Option<Value>> {
        if let Self::Found(..) = self {
            *self = Self::Stored(self.iter().map(|cell| cell.map(Cow::into_owned)).collect());
        }
        match self {
            Self::Stored(cells) => cells,
            Self::Found(..) => unreachable!("they were stored above"),
        }
    }
}

/// The default number of rows of a table for people.
const ROWS: usize = 30;

/// Returns the number of rows to show, or `None` for all. `given` is the value of `--top`, in which
/// 0 means all.
pub fn top(given: Option<usize>, format: Format) -> Option<usize> {
    let usual = (format == Format::Table).then_some(ROWS);
    let set = crate::config::number(crate::config::Key::Top).map(|top| top as usize);
    let usual = usual.map(|usual| set.unwrap_or(usual));
    given.or(usual).filter(|rows| *rows > 0)
}

#[derive(Clone, Debug)]
pub struct Column {
    /// The name in CSV and for `--sort`. The name of a time includes its unit, such as `self_ns`.
    pub name: String,
    /// The heading in the table for people.
    pub title: String,
    /// Whether the table for people leaves the column out.
    pub csv_only: bool,
    /// The column with the largest rank is left out of a narrow table first; among equals, the last
    /// one.
    pub rank: u8,
    pub cells: Cells,
    /// For a counter, a metric or a collector's value: how many calls of a row have a value, and
    /// how many calls the row has.
    pub coverage: Option<Found<(u64, u64)>>,
    /// For a counter that took turns with others: the part of the time in which the counter was
    /// counting. Only estimates have it.
    pub estimated: Option<Vec<Option<f64>>>,
    /// For a counter: the part of the value that the recorder itself caused, as measured with empty
    /// calls. `None` if this part is at most half.
    pub mostly_empty: Option<Vec<Option<f64>>>,
    /// In a run with a budget: half of the 95 % interval of an estimate, as a part of the value.
    /// Infinity if the interval is not known.
    pub margin: Option<Vec<Option<f64>>>,
    /// For a metric: why a row that could have a value does not show it.
    pub hidden: Option<Found<Hidden>>,
}

impl Column {
    pub fn new(rank: u8, name: &str, title: &str, cells: Vec<Option<Value>>) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            csv_only: false,
            rank,
            cells: Cells::Stored(cells),
            coverage: None,
            estimated: None,
            mostly_empty: None,
            margin: None,
            hidden: None,
        }
    }

    /// Makes a column that only CSV and JSON have.
    pub fn for_programs(name: &str, cells: Vec<Option<Value>>) -> Self {
        Self { csv_only: true, ..Self::new(u8::MAX, name, "", cells) }
    }

    /// Returns how many calls of this row have a value, and how many calls the row has. `None` if
    /// all calls or none have a value, or if the column has no `coverage`.
    pub fn partly(&self, row: usize) -> Option<(u64, u64)> {
        let (counted, calls) = self.coverage.as_ref()?.get(row)?;
        (counted > 0 && counted < calls).then_some((counted, calls))
    }

    /// Returns this row's [`Column::mostly_empty`].
    pub fn is_mostly_empty(&self, row: usize) -> Option<f64> {
        *self.mostly_empty.as_ref()?.get(row)?
    }

    /// Returns this row's [`Column::margin`].
    pub fn margin_of(&self, row: usize) -> Option<f64> {
        *self.margin.as_ref()?.get(row)?
    }

    /// Returns this row's [`Column::estimated`].
    pub fn estimate(&self, row: usize) -> Option<f64> {
        *self.estimated.as_ref()?.get(row)?
    }
}

#[derive(Clone)]
pub struct Table {
    pub columns: Vec<Column>,
    /// The indices of the rows, in the order in which the rows are printed.
    pub order: Vec<usize>,
    /// The indices of rows that always come last in a table for people. Such a row shows what the
    /// other rows do not contain: the time between calls, for example. CSV and JSON do not have
    /// these rows.
    pub rest: Vec<usize>,
    /// How the names of rows may be shortened.
    pub names: Names,
    /// The number of rows that are not shown because of `--top` or its default.
    pub left_out: usize,
}

impl Value {
    /// Returns the number by which rows are sorted; `None` for a text or an upper bound.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Text(_) | Self::AtMostNs(_) => None,
            Self::Count(n) | Self::About(n) => Some(*n as f64),
            Self::Number(x) | Self::Ns(x) | Self::Bytes(x) | Self::Part(x) => Some(*x),
            Self::Estimated(_, of, _) => Some(of.value),
            Self::Metric(x, ..) => Some(*x),
        }
    }

    /// Returns two facts. The first is false for an estimate that cannot be distinguished from
    /// zero; the second is whether the text has an interval.
    pub fn shows(&self) -> (bool, bool) {
        match self {
            Self::Estimated(quantity, of, with_interval) => {
                (of.is_resolved(), quantity.text_of(*of, *with_interval).contains('±'))
            }
            _ => (true, false),
        }
    }

    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(n) => units::count(*n),
            Self::About(n) => format!("~{}", units::count(*n)),
            Self::Number(x) => units::number(*x),
            Self::Ns(x) => units::time(*x),
            Self::AtMostNs(x) => format!("≤ {}", units::time(*x)),
            Self::Bytes(x) => units::bytes(*x),
            Self::Part(x) => units::percent(*x),
            Self::Estimated(quantity, of, with_interval) => quantity.text_of(*of, *with_interval),
            Self::Metric(x, unit, declared) => metrics::text(*x, unit, *declared),
        }
    }

    /// Returns the text of the value in CSV. A floating-point number has just as many digits as are
    /// needed to read back the same number.
    pub fn to_csv(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::AtMostNs(_) => String::new(),
            Self::Count(n) | Self::About(n) => n.to_string(),
            Self::Estimated(_, of, _) => of.value.to_string(),
            Self::Number(x)
            | Self::Ns(x)
            | Self::Bytes(x)
            | Self::Part(x)
            | Self::Metric(x, ..) => x.to_string(),
        }
    }
}

impl Serialize for Value {
    /// Numbers are written without units. The name of a time's column has the unit.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::AtMostNs(_) => serializer.serialize_none(),
            Self::Count(n) | Self::About(n) => serializer.serialize_u128(*n),
            Self::Estimated(_, of, _) => serializer.serialize_f64(of.value),
            Self::Number(x)
            | Self::Ns(x)
            | Self::Bytes(x)
            | Self::Part(x)
            | Self::Metric(x, ..) => serializer.serialize_f64(*x),
        }
    }
}

/// Serializes the rows as objects, whose keys are the names of columns in CSV. A missing value is
/// null.
pub struct RowsOut<'a> {
    table: &'a Table,
    /// The key of each column: its name, with a number if an earlier column has the same name.
    keys: Vec<String>,
}

impl<'a> RowsOut<'a> {
    pub fn new(table: &'a Table) -> Self {
        let mut keys: Vec<String> = Vec::new();
        for (at, column) in table.columns.iter().enumerate() {
            keys.push(match keys.contains(&column.name) {
                true => format!("{} ({at})", column.name),
                false => column.name.clone(),
            });
        }
        Self { table, keys }
    }
}

impl Serialize for RowsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.table.order.iter().map(|row| RowOut { all: self, row: *row }))
    }
}

struct RowOut<'a> {
    all: &'a RowsOut<'a>,
    row: usize,
}

impl Serialize for RowOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let columns = self.all.keys.iter().zip(&self.all.table.columns);
        serializer.collect_map(columns.map(|(key, column)| (key, column.cells.get(self.row))))
    }
}

impl Table {
    pub fn new(columns: Vec<Column>, order: Vec<usize>) -> Self {
        Self { columns, order, rest: Vec::new(), names: Names::Ops, left_out: 0 }
    }

    /// Adds a row to the columns and to [`Table::rest`]. `value` takes the name of a column, and
    /// returns the value of the new row in this column.
    pub fn add_rest(&mut self, value: impl Fn(&str) -> Option<Value>) {
        let Some(rows) = self.columns.first().map(|column| column.cells.rows()) else { return };
        for column in &mut self.columns {
            column.cells.stored().push(value(&column.name));
        }
        self.rest.push(rows);
    }

    /// Returns the indices of the rows that people see.
    pub fn shown(&self) -> impl Iterator<Item = usize> {
        self.order.iter().chain(&self.rest).copied()
    }

    /// Keeps only the first `rows` rows of [`Table::order`] and of [`Table::rest`]; `None` keeps
    /// all.
    pub fn keep_first(&mut self, rows: Option<usize>) {
        let Some(rows) = rows else { return };
        self.left_out +=
            self.order.len().saturating_sub(rows) + self.rest.len().saturating_sub(rows);
        self.order.truncate(rows);
        self.rest.truncate(rows);
    }

    /// Sorts [`Table::order`] by the column whose name or heading is `key`. In `key`, the unit of a
    /// time may be left out. Numbers are sorted from large to small, and texts from a to z. Missing
    /// values come last. Rows with equal values are sorted by name.
    pub fn sort(&mut self, key: &str) -> Result<(), Failure> {
        let by_name = self.columns.iter().position(|c| c.name == key);
        let by_title = || self.columns.iter().position(|c| !c.csv_only && c.title == key);
        // The heading of a column of times may differ between tables, so the name without `_ns` is
        // accepted, too.
        let by_quantity =
            || self.columns.iter().position(|c| c.name.strip_suffix("_ns") == Some(key));
        let Some(column) = by_name.or_else(by_title).or_else(by_quantity) else {
            let known: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
            return Err(Failure::new(format!("--sort {key}: no such column"))
                .hint(format!("columns: {}", known.join(", "))));
        };
        // The user wants to see this column, so its rank is reduced: it is among the last columns
        // that are left out.
        self.columns[column].rank = self.columns[column].rank.min(1);
        let number =
            |row: usize| self.columns[column].cells.get(row).and_then(|cell| cell.as_number());
        let text = |column: usize, row: usize| match self.columns[column].cells.get(row).as_deref()
        {
            Some(Value::Text(text)) => (false, text.clone()),
            _ => (true, String::new()),
        };
        let mut order = std::mem::take(&mut self.order);
        order.sort_by(|a, b| {
            let (x, y) = (number(*a), number(*b));
            y.is_some()
                .cmp(&x.is_some())
                .then_with(|| y.unwrap_or(0.0).total_cmp(&x.unwrap_or(0.0)))
                .then_with(|| text(column, *a).cmp(&text(column, *b)))
                .then_with(|| text(0, *a).cmp(&text(0, *b)))
                .then_with(|| a.cmp(b))
        });
        self.order = order;
        Ok(())
    }
}
