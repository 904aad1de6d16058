//! Reads activities.

use std::ffi::OsStr;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_schema::SchemaRef;
use model::Loss;

use super::{
    ACTIVITIES_NAME, Activity, DOCUMENT_NAME, EVENTS_NAME, NAMES_NAME, NameId, ROWS_NAME, RowId,
    events_schema, names_schema, rows_schema,
};
use crate::Profile;
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::LossCount;
use crate::safe_dir::Dir;
use crate::stream::{Ending, StreamReader, has_columns};

/// One directory of activities. Names and rows are in memory, and events are read when they are
/// needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Activities {
    /// The directory's name.
    pub name: String,
    /// What the trace contains besides its events; `null` if unknown.
    pub document: serde_json::Value,
    /// The damage in the files with the names and rows, or one loss if a file of the directory was
    /// refused.
    pub losses: Vec<LossCount>,
    /// Index of the member (one of the profiles that were merged) to which the activities belong; 0
    /// if the profile is not merged.
    pub member: usize,
    names: Vec<String>,
    rows: Vec<(Option<String>, Option<String>)>,
    /// The directory that contains all directories of activities; `None` if these activities were
    /// refused.
    all: Option<Dir>,
}

/// Maximum size of a `document.json` in bytes.
const MOST_DOCUMENT: u64 = 1 << 28;

impl Activities {
    /// Opens the directories of activities of the profile in `dir`, sorted by name.
    ///
    /// # Errors
    /// Fails if a directory or file cannot be read or does not have the expected form. A directory
    /// is returned without events and with a loss if it is refused (as links are), or if a file
    /// that this function reads is.
    pub fn open_all(dir: &Path) -> Result<Vec<Self>> {
        Self::open_in(&Dir::open(dir)?)
    }

    pub(crate) fn open_in(root: &Dir) -> Result<Vec<Self>> {
        let all = match root.dir(ACTIVITIES_NAME) {
            Ok(all) => all,
            Err(e) if e.is_not_found() => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut found = Vec::new();
        for name in all.names()? {
            match all.dir(&name).and_then(|dir| Self::open(&all, &dir, &name)) {
                Ok(one) => found.push(one),
                Err(e) if e.is_refused() => found.push(Self {
                    name: name.to_string_lossy().into_owned(),
                    document: serde_json::Value::Null,
                    losses: vec![LossCount::new(Loss::FileRefused, 1)],
                    member: 0,
                    names: Vec::new(),
                    rows: Vec::new(),
                    all: None,
                }),
                Err(e) => return Err(e),
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn open(all: &Dir, dir: &Dir, name: &OsStr) -> Result<Self> {
        let mut losses = Vec::new();
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        read(dir, NAMES_NAME, &names_schema(), &mut losses, |batch| {
            let texts = batch.column(1).as_string::<i32>();
            names.extend(texts.iter().map(|text| text.unwrap_or_default().to_owned()));
        })?;
        read(dir, ROWS_NAME, &rows_schema(), &mut losses, |batch| {
            let of = |column: usize| batch.column(column).as_string::<i32>();
            let owned = |text: Option<&str>| text.map(str::to_owned);
            let both = of(1).iter().zip(of(2).iter());
            rows.extend(both.map(|(process, thread)| (owned(process), owned(thread))));
        })?;
        let document = match dir.read(DOCUMENT_NAME, MOST_DOCUMENT) {
            Ok(text) => {
                let path = dir.path_of(DOCUMENT_NAME);
                serde_json::from_slice(&text).map_err(Error::on("read", &path))?
            }
            Err(e) if e.is_not_found() => serde_json::Value::Null,
            Err(e) => return Err(e),
        };
        let name = name.to_string_lossy().into_owned();
        Ok(Self { name, document, losses, member: 0, names, rows, all: Some(all.clone()) })
    }

    /// Returns the text of a name; `None` if `names.arrows` does not contain the name.
    pub fn text(&self, name: NameId) -> Option<&str> {
        self.names.get(name.0 as usize).map(String::as_str)
    }

    /// Returns the number of rows in `rows.arrows`. Events may refer to rows that are not in the
    /// file.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns the process and the thread of a row, as JSON.
    pub fn row(&self, row: RowId) -> (Option<&str>, Option<&str>) {
        let row = self.rows.get(row.0 as usize);
        row.map_or((None, None), |(process, thread)| (process.as_deref(), thread.as_deref()))
    }

    /// Opens the events for reading, in the order of the trace.
    ///
    /// # Errors
    /// Fails if the directory no longer exists, or if `events.arrows` cannot be read or has other
    /// columns.
    pub fn events(&self) -> Result<Events> {
        let Some(all) = &self.all else { return Ok(Events { stream: None }) };
        let dir = all.dir(&self.name)?;
        Ok(Events { stream: open(&dir, EVENTS_NAME, &events_schema())? })
    }
}

impl Profile {
    /// Opens the imported activities of the profile, ordered by member. Activities that
    /// [`Profile::keep_rank`] has removed are left out.
    ///
    /// # Errors
    /// Same as for [`Activities::open_all`].
    pub fn activities(&self) -> Result<Vec<Activities>> {
        let mut all = Vec::new();
        for (member, root) in &self.roots {
            let of_member = Activities::open_in(root)?.into_iter();
            all.extend(of_member.map(|one| Activities { member: *member, ..one }));
        }
        Ok(all)
    }
}

fn open(dir: &Dir, name: &str, schema: &SchemaRef) -> Result<Option<StreamReader>> {
    let stream = match StreamReader::open(dir, name) {
        Err(e) if e.is_not_found() => return Ok(None),
        other => other?,
    };
    match stream {
        Some(stream) if !has_columns(stream.schema(), schema) => {
            let path = dir.path_of(name);
            Err(Error::new("read", &path, ErrorKind::NotAStream("other columns")))
        }
        stream => Ok(stream),
    }
}

fn read(
    dir: &Dir,
    name: &str,
    schema: &SchemaRef,
    losses: &mut Vec<LossCount>,
    mut each: impl FnMut(&RecordBatch),
) -> Result<()> {
    let Some(mut stream) = open(dir, name, schema)? else { return Ok(()) };
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

/// Several consecutive events.
#[derive(Clone, Debug)]
pub struct EventBatch(RecordBatch);

impl Events {
    /// Returns the next events; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<EventBatch>> {
        let batch = self.stream.as_mut().map(StreamReader::next_batch).transpose()?;
        Ok(batch.flatten().map(EventBatch))
    }

    /// Returns the damage that was found so far.
    pub fn losses(&self) -> Vec<LossCount> {
        self.stream.as_ref().and_then(|stream| torn(stream.ending())).into_iter().collect()
    }
}

impl EventBatch {
    /// Calls `each` with each event.
    ///
    /// # Errors
    /// Returns the first error of `each`.
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
