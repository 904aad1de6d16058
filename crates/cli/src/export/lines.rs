//! Writes rows as lines of text: as CSV, or as the rows of a JSON document.
//!
//! Arrow's own writers are not used. They depend on Arrow's sorting and on its casts between all
//! types. Compiling these took a third of the time of a release build. An export has only six types
//! of columns, so this module can be short. Each text of a dictionary is quoted once per batch and
//! not once per row.
//!
//! A `double` is the shortest decimal number that reads back as the same value (`1.0`, `2.5e-7`).
//! Texts follow RFC 4180 in CSV and RFC 8259 in JSON. A missing value is an empty field in CSV and
//! `null` in JSON. A number that is not finite is `NaN`, `inf` or `-inf` in CSV, and `null` in
//! JSON, which has no such numbers.
//!
//! A profile stores each text once, but an export repeats the text in each row. So the total size
//! of long texts is limited ([`Texts`]). Otherwise a small profile could become an extremely large
//! export.

use std::borrow::Cow;
use std::io::{self, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, UInt32Array,
    UInt64Array,
};
use arrow_schema::{DataType, Schema};

use crate::view::csv::field;

/// A text with more bytes than this counts as long.
pub const LONG: usize = 256;
/// The limit on the total size of the long texts of an export, in bytes.
pub const MOST_OF_LONG: u64 = 64 << 20;

/// Limits the long texts of an export. `left` is the number of their bytes that may still be
/// written. If a batch needs more, its long texts and those of later batches are cut to [`LONG`]
/// bytes and `…`.
#[derive(Debug)]
pub struct Texts {
    left: u64,
    pub were_cut: bool,
}

impl Default for Texts {
    fn default() -> Self {
        Self { left: MOST_OF_LONG, were_cut: false }
    }
}

impl Texts {
    /// Returns the greatest length in bytes that the texts of the batch may have, and updates
    /// `left`.
    fn longest(&mut self, batch: &RecordBatch) -> usize {
        let wanted: u64 = batch.columns().iter().map(bytes_of_long).sum();
        if wanted <= self.left {
            self.left -= wanted;
            return usize::MAX;
        }
        self.left = 0;
        self.were_cut = true;
        LONG
    }
}

/// Returns the total size in bytes of the long texts in a column. A text counts once for each row
/// that has it, although the dictionary stores it only once.
fn bytes_of_long(column: &ArrayRef) -> u64 {
    let Some(dictionary) = column.as_dictionary_opt::<Int32Type>() else { return 0 };
    let Some(texts) = dictionary.values().as_string_opt::<i32>() else { return 0 };
    let lengths: Vec<u64> =
        texts.iter().map(|text| text.map_or(0, str::len)).map(|n| n as u64).collect();
    if lengths.iter().all(|length| *length <= LONG as u64) {
        return 0;
    }
    let of = |key: Option<i32>| key.and_then(|key| lengths.get(key as usize)).copied();
    let all = dictionary.keys().iter().filter_map(of);
    all.filter(|length| *length > LONG as u64).sum()
}

fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Cow::Owned(format!("{}…", &text[..end]))
}

pub fn csv_header(schema: &Schema) -> String {
    let names: Vec<String> = schema.fields().iter().map(|column| field(column.name())).collect();
    names.join(",") + "\n"
}

pub fn csv(batch: &RecordBatch, texts: &mut Texts) -> io::Result<Vec<u8>> {
    let longest = texts.longest(batch);
    let columns = columns(batch, &|text| Ok(field(&cut(text, longest))))?;
    let mut out = Vec::new();
    for row in 0..batch.num_rows() {
        for (position, column) in columns.iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            match column.value(row) {
                None => {}
                Some(Cell::Double(value)) if !value.is_finite() => write!(out, "{value}")?,
                Some(cell) => cell.write(&mut out)?,
            }
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// Formats each row as an object. `first` is written before the batch's first object, and
/// `separator` before its other objects.
pub fn json(
    batch: &RecordBatch,
    first: &str,
    separator: &str,
    texts: &mut Texts,
) -> io::Result<Vec<u8>> {
    let longest = texts.longest(batch);
    let quote = |text: &str| serde_json::to_string(&cut(text, longest)).map_err(io::Error::from);
    let columns = columns(batch, &quote)?;
    let mut keys = Vec::new();
    for (position, column) in batch.schema_ref().fields().iter().enumerate() {
        let before = if position == 0 { "{" } else { "," };
        keys.push(format!("{before}{}:", serde_json::to_string(column.name())?));
    }
    let mut out = Vec::new();
    for row in 0..batch.num_rows() {
        out.extend_from_slice(if row == 0 { first } else { separator }.as_bytes());
        for (key, column) in keys.iter().zip(&columns) {
            out.extend_from_slice(key.as_bytes());
            match column.value(row) {
                None => out.extend_from_slice(b"null"),
                Some(cell) => cell.write(&mut out)?,
            }
        }
        out.push(b'}');
    }
    Ok(out)
}

enum Column<'a> {
    UInt32(&'a UInt32Array),
    UInt64(&'a UInt64Array),
    Int64(&'a Int64Array),
    Double(&'a Float64Array),
    Boolean(&'a BooleanArray),
    /// The index of each row's text, and the quoted texts.
    Text(&'a Int32Array, Vec<Option<String>>),
}

enum Cell<'a> {
    Unsigned(u64),
    Signed(i64),
    Double(f64),
    Boolean(bool),
    /// The text is already quoted.
    Text(&'a str),
}

fn columns<'a>(
    batch: &'a RecordBatch,
    quote: &dyn Fn(&str) -> io::Result<String>,
) -> io::Result<Vec<Column<'a>>> {
    batch.columns().iter().map(|column| Column::new(column, quote)).collect()
}

impl<'a> Column<'a> {
    fn new(column: &'a ArrayRef, quote: &dyn Fn(&str) -> io::Result<String>) -> io::Result<Self> {
        Ok(match column.data_type() {
            DataType::UInt32 => Self::UInt32(column.as_primitive::<UInt32Type>()),
            DataType::UInt64 => Self::UInt64(column.as_primitive::<UInt64Type>()),
            DataType::Int64 => Self::Int64(column.as_primitive::<Int64Type>()),
            DataType::Float64 => Self::Double(column.as_primitive::<Float64Type>()),
            DataType::Boolean => Self::Boolean(column.as_boolean()),
            DataType::Dictionary(key, value)
                if (&**key, &**value) == (&DataType::Int32, &DataType::Utf8) =>
            {
                let dictionary = column.as_dictionary::<Int32Type>();
                let texts = dictionary.values().as_string::<i32>();
                let quoted = texts.iter().map(|text| text.map(quote).transpose());
                Self::Text(dictionary.keys(), quoted.collect::<io::Result<_>>()?)
            }
            other => return Err(io::Error::other(format!("a column of type {other}"))),
        })
    }

    fn value(&self, row: usize) -> Option<Cell<'_>> {
        match self {
            Self::UInt32(all) => all.is_valid(row).then(|| Cell::Unsigned(all.value(row).into())),
            Self::UInt64(all) => all.is_valid(row).then(|| Cell::Unsigned(all.value(row))),
            Self::Int64(all) => all.is_valid(row).then(|| Cell::Signed(all.value(row))),
            Self::Double(all) => all.is_valid(row).then(|| Cell::Double(all.value(row))),
            Self::Boolean(all) => all.is_valid(row).then(|| Cell::Boolean(all.value(row))),
            Self::Text(keys, texts) => {
                let key = keys.is_valid(row).then(|| keys.value(row))?;
                texts[key as usize].as_deref().map(Cell::Text)
            }
        }
    }
}

impl Cell<'_> {
    fn write(&self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Unsigned(value) => serde_json::to_writer(out, value)?,
            Self::Signed(value) => serde_json::to_writer(out, value)?,
            Self::Double(value) => serde_json::to_writer(out, value)?,
            Self::Boolean(value) => serde_json::to_writer(out, value)?,
            Self::Text(quoted) => out.extend_from_slice(quoted.as_bytes()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{DictionaryArray, StringArray};
    use arrow_schema::Field;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let fields = columns.iter().map(|(name, c)| Field::new(*name, c.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new(schema, columns.into_iter().map(|(_, c)| c).collect()).unwrap()
    }

    fn texts(texts: &[Option<&str>]) -> ArrayRef {
        Arc::new(texts.iter().copied().collect::<DictionaryArray<Int32Type>>())
    }

    fn extremes() -> RecordBatch {
        batch(vec![
            ("a,\"b\"", Arc::new(UInt32Array::from(vec![Some(0), None, Some(u32::MAX)]))),
            ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 10, 0]))),
            ("i", Arc::new(Int64Array::from(vec![i64::MIN, -1, i64::MAX]))),
            ("f", Arc::new(Float64Array::from(vec![Some(0.1), Some(-0.0), None]))),
            ("b", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
            ("=t", texts(&[Some("say \"x\",\n\u{1}"), None, Some("=1+1")])),
        ])
    }

    /// The expected text follows RFC 4180, section 2, rules 5 to 7. The function `field` of
    /// `view/print/csv.rs` puts the apostrophe before a text that a spreadsheet would take for a
    /// formula.
    #[test]
    fn rows_of_csv() {
        let batch = extremes();
        assert_eq!(csv_header(batch.schema_ref()), "\"a,\"\"b\"\"\",u,i,f,b,'=t\n");
        let lines = String::from_utf8(csv(&batch, &mut Texts::default()).unwrap()).unwrap();
        assert_eq!(
            lines,
            "0,18446744073709551615,-9223372036854775808,0.1,true,\"say \"\"x\"\",\n\u{1}\"\n\
             ,10,-1,-0.0,,\n\
             4294967295,0,9223372036854775807,,false,'=1+1\n"
        );
    }

    /// The expected text follows RFC 8259, sections 6 and 7.
    #[test]
    fn rows_of_json() {
        let lines =
            String::from_utf8(json(&extremes(), "[", ";", &mut Texts::default()).unwrap()).unwrap();
        assert_eq!(
            lines,
            "[{\"a,\\\"b\\\"\":0,\"u\":18446744073709551615,\"i\":-9223372036854775808,\"f\":0.1,\
             \"b\":true,\"=t\":\"say \\\"x\\\",\\n\\u0001\"}\
             ;{\"a,\\\"b\\\"\":null,\"u\":10,\"i\":-1,\"f\":-0.0,\"b\":null,\"=t\":null}\
             ;{\"a,\\\"b\\\"\":4294967295,\"u\":0,\"i\":9223372036854775807,\"f\":null,\
             \"b\":false,\"=t\":\"=1+1\"}"
        );
    }

    #[test]
    fn non_finite_numbers_and_a_null_in_the_dictionary() {
        let values = Arc::new(StringArray::from(vec![None, Some("x")]));
        let missing = DictionaryArray::new(Int32Array::from(vec![0, 1, 1]), values);
        let batch = batch(vec![
            ("f", Arc::new(Float64Array::from(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]))),
            ("t", Arc::new(missing)),
        ]);
        assert_eq!(csv(&batch, &mut Texts::default()).unwrap(), b"NaN,\ninf,x\n-inf,x\n");
        assert_eq!(
            json(&batch, "", ",", &mut Texts::default()).unwrap(),
            b"{\"f\":null,\"t\":null},{\"f\":null,\"t\":\"x\"},{\"f\":null,\"t\":\"x\"}"
        );
    }

    #[test]
    fn doubles_are_the_shortest_that_read_back_as_the_same() {
        let numbers = [5e-324, f64::MAX, 1e21, 1e-7, 123456789.125, 1.0 / 3.0, 2e0];
        let batch = batch(vec![("f", Arc::new(Float64Array::from(numbers.to_vec())))]);
        let lines = String::from_utf8(csv(&batch, &mut Texts::default()).unwrap()).unwrap();
        let read: Vec<f64> = lines.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(read, numbers);
    }

    #[test]
    fn an_unsupported_column_type_is_an_error() {
        let batch = batch(vec![("x", Arc::new(StringArray::from(vec!["a"])))]);
        assert_eq!(
            csv(&batch, &mut Texts::default()).unwrap_err().to_string(),
            "a column of type Utf8"
        );
    }

    /// Three rows have the long text, which is 300 bytes long. A text of 256 bytes is not long.
    #[test]
    fn long_texts_are_cut_when_there_are_too_many() {
        let (long, short) = ("é".repeat(150), "x".repeat(LONG));
        let all = [Some(&*long), Some(&*short), None, Some(&*long), Some(&*long)];
        let batch = batch(vec![("t", texts(&all))]);
        let whole = format!("{long}\n{short}\n\n{long}\n{long}\n");
        let mut enough = Texts { left: 900, were_cut: false };
        assert_eq!(csv(&batch, &mut enough).unwrap(), whole.as_bytes());
        assert_eq!((enough.left, enough.were_cut), (0, false));
        let cut = format!("{}…", "é".repeat(128));
        let lines = format!("{cut}\n{short}\n\n{cut}\n{cut}\n");
        let mut few = Texts { left: 899, were_cut: false };
        assert_eq!(csv(&batch, &mut few).unwrap(), lines.as_bytes());
        // The long text of the next batch is also cut.
        assert_eq!((few.left, few.were_cut), (0, true));
        let one = super::tests::batch(vec![("t", texts(&[Some(&*long)]))]);
        assert_eq!(
            json(&one, "", ",", &mut few).unwrap(),
            format!("{{\"t\":\"{cut}\"}}").as_bytes()
        );
    }
}
