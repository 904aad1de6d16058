//! Writes activities.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Int64Builder, StringBuilder, UInt8Builder, UInt32Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use hashbrown::{DefaultHashBuilder, HashTable};
use serde::Serialize;

use super::{
    ACTIVITIES_NAME, Activity, BATCH_ROWS, BATCH_TEXT, DOCUMENT_NAME, EVENTS_NAME, NAMES_NAME,
    ROWS_NAME, events_schema, names_schema, rows_schema,
};
use crate::error::{Error, Result};
use crate::manifest::replace_json;
use crate::safe_dir::Dir;
use crate::stream::StreamWriter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// Number of a row of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId(pub u32);

/// Writes one directory of activities.
#[derive(Debug)]
pub struct ActivitiesWriter {
    dir: Dir,
    names: Names,
    rows: Table,
    events: Table,
    columns: Columns,
}

#[derive(Debug)]
struct Table {
    stream: StreamWriter,
    schema: SchemaRef,
}

#[derive(Debug, Default)]
struct Columns {
    form: UInt8Builder,
    name: UInt32Builder,
    category: UInt32Builder,
    row: UInt32Builder,
    time: Int64Builder,
    duration: Int64Builder,
    texts: [StringBuilder; 3],
    bytes: usize,
    fresh_rows: (UInt32Builder, StringBuilder, StringBuilder),
    next_row: u32,
}

impl Table {
    fn create(dir: &Dir, name: &str, schema: SchemaRef) -> Result<Self> {
        Ok(Self { stream: StreamWriter::create(dir, name, &schema)?, schema })
    }

    fn append(&mut self, dir: &Dir, arrays: Vec<ArrayRef>) -> Result<()> {
        let batch: Result<RecordBatch, ArrowError> =
            RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        self.stream.append(&batch.map_err(Error::on("write", dir.path()))?)
    }
}

/// The texts of names, and their numbers. A text is in memory once.
#[derive(Debug)]
struct Names {
    table: Table,
    hasher: DefaultHashBuilder,
    numbers: HashTable<u32>,
    texts: Vec<Box<str>>,
    written: usize,
}

impl ActivitiesWriter {
    /// Creates `activities/NAME` in the profile in `dir`.
    ///
    /// # Errors
    /// Fails if the directory exists or if the profile is not writable.
    pub fn create(dir: &Dir, name: &str) -> Result<Self> {
        let dir = dir.make_dir(ACTIVITIES_NAME)?.create_dir(name)?;
        Ok(Self {
            names: Names {
                table: Table::create(&dir, NAMES_NAME, names_schema())?,
                hasher: DefaultHashBuilder::default(),
                numbers: HashTable::new(),
                texts: Vec::new(),
                written: 0,
            },
            rows: Table::create(&dir, ROWS_NAME, rows_schema())?,
            events: Table::create(&dir, EVENTS_NAME, events_schema())?,
            columns: Columns::default(),
            dir,
        })
    }

    /// Returns the number of a name; a new name is added.
    pub fn name(&mut self, text: &str) -> NameId {
        self.names.number(text)
    }

    pub fn text(&self, name: NameId) -> &str {
        self.names.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// Adds a row of the timeline. The function does not check whether the same row exists already.
    pub fn row(&mut self, process: Option<&str>, thread: Option<&str>) -> RowId {
        let columns = &mut self.columns;
        let id = columns.next_row;
        columns.next_row += 1;
        columns.fresh_rows.0.append_value(id);
        columns.fresh_rows.1.append_option(process);
        columns.fresh_rows.2.append_option(thread);
        RowId(id)
    }

    /// Adds an event. It is written with a full batch or by [`ActivitiesWriter::flush`].
    ///
    /// # Errors
    /// Same as for `flush`.
    #[inline]
    pub fn push(&mut self, event: &Activity<'_>) -> Result<()> {
        let columns = &mut self.columns;
        columns.form.append_value(event.form);
        columns.name.append_option(event.name.map(|n| n.0));
        columns.category.append_option(event.category.map(|n| n.0));
        columns.row.append_value(event.row.0);
        columns.time.append_option(event.time_ns);
        columns.duration.append_option(event.duration_ns);
        for (column, text) in columns.texts.iter_mut().zip([event.id, event.args, event.more]) {
            column.append_option(text);
            columns.bytes += text.map_or(0, str::len);
        }
        let full = columns.form.len() >= BATCH_ROWS || columns.bytes >= BATCH_TEXT;
        if full { self.flush() } else { Ok(()) }
    }

    /// Writes the names, rows and events that are not in the files yet.
    ///
    /// # Errors
    /// Fails if a file cannot be written, for example because the disk is full.
    pub fn flush(&mut self) -> Result<()> {
        let dir = &self.dir;
        self.names.flush(dir)?;
        let columns = &mut self.columns;
        let (number, process, thread) = &mut columns.fresh_rows;
        let rows: [&mut dyn ArrayBuilder; 3] = [number, process, thread];
        self.rows.append(dir, rows.map(|b| b.finish()).into())?;
        let [id, args, more] = &mut columns.texts;
        let events: [&mut dyn ArrayBuilder; 9] = [
            &mut columns.form,
            &mut columns.name,
            &mut columns.category,
            &mut columns.row,
            &mut columns.time,
            &mut columns.duration,
            id,
            args,
            more,
        ];
        columns.bytes = 0;
        self.events.append(dir, events.map(|b| b.finish()).into())
    }

    /// Writes what is not in the files yet, `document` (what the trace contains besides its
    /// events), and the end marks.
    ///
    /// # Errors
    /// Same as for `flush`.
    pub fn finish(mut self, document: &impl Serialize) -> Result<()> {
        self.flush()?;
        for table in [self.names.table, self.rows, self.events] {
            table.stream.finish()?;
        }
        replace_json(&self.dir, DOCUMENT_NAME, document)
    }
}

impl Names {
    fn number(&mut self, text: &str) -> NameId {
        let hash = self.hasher.hash_one(text);
        let texts = &mut self.texts;
        if let Some(known) = self.numbers.find(hash, |n| &*texts[*n as usize] == text) {
            return NameId(*known);
        }
        let number = texts.len() as u32;
        texts.push(text.into());
        let again = |n: &u32| self.hasher.hash_one(&texts[*n as usize]);
        self.numbers.insert_unique(hash, number, again);
        NameId(number)
    }

    fn flush(&mut self, dir: &Dir) -> Result<()> {
        let mut numbers = UInt32Builder::new();
        let mut texts = StringBuilder::new();
        for (number, text) in self.texts.iter().enumerate().skip(self.written) {
            numbers.append_value(number as u32);
            texts.append_value(text);
        }
        let arrays = vec![ArrayBuilder::finish(&mut numbers), ArrayBuilder::finish(&mut texts)];
        self.table.append(dir, arrays)?;
        self.written = self.texts.len();
        Ok(())
    }
}
