//! Reading activities.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_schema::SchemaRef;
use model::Loss;

use super::{
    ACTIVITIES_NAME, Activity, DOCUMENT_NAME, EVENTS_NAME, NAMES_NAME, NameId, ROWS_NAME, RowId,
    events_schema, names_schema, rows_schema,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::LossCount;
use crate::stream::{Ending, StreamReader, has_columns};

/// One directory of activities, opened for reading: its names and rows; its events are read on
/// demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Activities {
    /// The directory's name: who imported it.
    pub name: String,
    /// What the trace said beside its events; `null` if that was never written.
    pub document: serde_json::Value,
    /// Damage found in its names and rows.
    pub losses: Vec<LossCount>,
    names: Vec<String>,
    rows: Vec<(Option<String>, Option<String>)>,
    dir: PathBuf,
}

impl Activities {
    /// The directories of activities in the profile in `dir`, by name.
    ///
    /// # Errors
    /// A directory or file is there and cannot be read, or is something else.
    pub fn open_all(dir: &Path) -> Result<Vec<Self>> {
        let all = dir.join(ACTIVITIES_NAME);
        let entries = match fs::read_dir(&all) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::new("read", &all, e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::on("read", &all))?;
            if entry.path().is_dir() {
                let name = entry.file_name().to_string_lossy().into_owned();
                found.push(Self::open(entry.path(), name)?);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn open(dir: PathBuf, name: String) -> Result<Self> {
        let mut losses = Vec::new();
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        read(&dir.join(NAMES_NAME), &names_schema(), &mut losses, |batch| {
            let texts = batch.column(1).as_string::<i32>();
            names.extend(texts.iter().map(|text| text.unwrap_or_default().to_owned()));
        })?;
        read(&dir.join(ROWS_NAME), &rows_schema(), &mut losses, |batch| {
            let of = |column: usize| batch.column(column).as_string::<i32>();
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let both = of(1).iter().zip(of(2).iter());
            rows.extend(both.map(|(process, thread)| (owned(process), owned(thread))));
        })?;
        let path = dir.join(DOCUMENT_NAME);
        let document = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(Error::on("read", &path))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => serde_json::Value::Null,
            Err(e) => return Err(Error::new("read", &path, e)),
        };
        Ok(Self { name, document, losses, names, rows, dir })
    }

    /// The text of a name; `None` if it is damaged.
    pub fn text(&self, name: NameId) -> Option<&str> {
        self.names.get(name.0 as usize).map(String::as_str)
    }

    /// Process and thread of a row, as JSON.
    pub fn row(&self, row: RowId) -> (Option<&str>, Option<&str>) {
        let row = self.rows.get(row.0 as usize);
        row.map_or((None, None), |(process, thread)| (process.as_deref(), thread.as_deref()))
    }

    /// Reads its events from the start, in the order of the trace.
    ///
    /// # Errors
    /// The file is not there any more or not readable.
    pub fn events(&self) -> Result<Events> {
        let path = self.dir.join(EVENTS_NAME);
        Ok(Events { stream: open(&path, &events_schema())? })
    }
}

fn open(path: &Path, schema: &SchemaRef) -> Result<Option<StreamReader>> {
    let stream = match StreamReader::open(path) {
        Err(e) if e.is_not_found() => return Ok(None),
        other => other?,
    };
    match stream {
        Some(stream) if !has_columns(stream.schema(), schema) => {
            Err(Error::new("read", path, ErrorKind::NotAStream("other columns")))
        }
        stream => Ok(stream),
    }
}

fn read(
    path: &Path,
    schema: &SchemaRef,
    losses: &mut Vec<LossCount>,
    mut each: impl FnMut(&RecordBatch),
) -> Result<()> {
    let Some(mut stream) = open(path, schema)? else { return Ok(()) };
    while let Some(batch) = stream.next_batch()? {
        each(&batch);
    }
    losses.extend(torn(stream.ending()));
    Ok(())
}

fn torn(ending: Ending) -> Option<LossCount> {
    matches!(ending, Ending::Torn { .. }).then(|| LossCount::new(Loss::TornTrack, 1))
}

/// The events of one directory.
#[derive(Debug)]
pub struct Events {
    stream: Option<StreamReader>,
}

/// Some events that follow one another.
#[derive(Clone, Debug)]
pub struct EventBatch(RecordBatch);

impl Events {
    /// The next events; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<EventBatch>> {
        let batch = self.stream.as_mut().map(StreamReader::next_batch).transpose()?;
        Ok(batch.flatten().map(EventBatch))
    }

    /// Damage found so far.
    pub fn losses(&self) -> Vec<LossCount> {
        self.stream.as_ref().and_then(|stream| torn(stream.ending())).into_iter().collect()
    }
}

impl EventBatch {
    /// Shows each event to `each`.
    ///
    /// # Errors
    /// What `each` returned.
    pub fn visit<E>(&self, mut each: impl FnMut(&Activity<'_>) -> Result<(), E>) -> Result<(), E> {
        let Self(batch) = self;
        let forms = batch.column(0).as_primitive::<UInt8Type>();
        let [names, categories, rows] =
            [1, 2, 3].map(|column| batch.column(column).as_primitive::<UInt32Type>());
        let number = |of: &UInt32Array, row: usize| of.is_valid(row).then(|| of.value(row));
        let [times, durations] =
            [4, 5].map(|column| batch.column(column).as_primitive::<Int64Type>());
        let ns = |of: &Int64Array, row: usize| of.is_valid(row).then(|| of.value(row));
        let [ids, args, more] = [6, 7, 8].map(|column| batch.column(column).as_string::<i32>());
        for row in 0..batch.num_rows() {
            each(&Activity {
                form: forms.value(row),
                name: number(names, row).map(NameId),
                category: number(categories, row).map(NameId),
                row: RowId(number(rows, row).unwrap_or(u32::MAX)),
                time_ns: ns(times, row),
                duration_ns: ns(durations, row),
                id: text(ids, row),
                args: text(args, row),
                more: text(more, row),
            })?;
        }
        Ok(())
    }
}

fn text(of: &StringArray, row: usize) -> Option<&str> {
    of.is_valid(row).then(|| of.value(row))
}
