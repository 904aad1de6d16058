//! Merges datasets: each recording is taken once, and each table of a run becomes one file.
//!
//! ```text
//!  members of all datasets, by run, rank and part ─► of equal ones, the one that has most
//!    for each run and table: rows of each member, in this order ─► rows of 8,192 ─► one file
//! ```
//!
//! The order of the datasets does not matter: the same recordings give the same files, byte by
//! byte. Rows are copied and never added up, so merging the result with the same datasets again
//! changes nothing. Files with rows of several ranks are open at the same time, with some thousands
//! of rows of each in memory. Files of one rank are opened one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use crate::error::{Error, Result};
use crate::export::write_part;
use crate::file::{TableWriter, replace};
use crate::gaps::{self, Gap};
use crate::keys::hash_of;
use crate::layout::{self, DATASET_NAME, Member, PARTS_NAME, Part};
use crate::open::{Dataset, place};
use crate::schema::Table;
use crate::steps::step;

const BATCH: usize = 8192;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The members of the result, sorted.
    pub members: Vec<Member>,
    /// How many times a recording was found that had been found before.
    pub repeated: usize,
    /// The gaps of the result.
    pub gaps: Vec<Gap>,
}

/// Merges these datasets into a directory that exists and is empty.
///
/// # Errors
/// Fails if a file cannot be read or written, or does not match the description in its part, or if
/// the ranks of a run have too many counters together.
pub fn merge(datasets: &[Dataset], out: &Path) -> Result<Merged> {
    let mut merged = Merged::default();
    let mut chosen: BTreeMap<(&str, u32, &str), (&Member, &Dataset, &Part)> = BTreeMap::new();
    for dataset in datasets {
        merged.gaps.extend(dataset.gaps.iter().cloned());
        for part in &dataset.parts {
            for member in &part.members {
                let new = (member, dataset, part);
                let old = chosen.get(&member.id());
                merged.repeated += usize::from(old.is_some());
                if old.is_none_or(|old| has_more(&new, old)) {
                    chosen.insert(member.id(), new);
                }
            }
        }
    }
    merged.gaps.retain(|gap| match gap {
        // These gaps are found below, for all datasets together.
        Gap::NoPart { .. } | Gap::Several { .. } | Gap::Unfinished { .. } => false,
        Gap::Broken { run, rank, part, .. } => !chosen.contains_key(&(&**run, *rank, &**part)),
        Gap::Unreadable { .. } => true,
    });
    let of_ranks = gaps::of_ranks(chosen.values().map(|(member, ..)| *member), &merged.gaps);
    merged.gaps.extend(of_ranks);
    merged.gaps.sort();
    merged.gaps.dedup();
    let all: Vec<(&Member, &Dataset, &Part)> = chosen.into_values().collect();
    for run in all.chunk_by(|a, b| a.0.run == b.0.run) {
        // A thousand ranks may have the same counters, so each name is copied once.
        let counters: BTreeSet<&String> =
            run.iter().flat_map(|(_, _, part)| &part.counters).collect();
        let counters: Vec<String> = counters.into_iter().cloned().collect();
        let members: Vec<Member> = run.iter().map(|(member, ..)| (*member).clone()).collect();
        let mut part = Part { members, counters, ..Part::default() };
        if let Some(why) = part.problem() {
            let path = out.join(PARTS_NAME);
            return Err(Error::Unknown { path, why: format!("the merged part: {why}") });
        }
        let below = layout::run_directory(&part.members[0].run);
        for table in Table::ALL {
            let within = format!("{table}/{below}");
            let schema = table.schema(&part.counters);
            let mut writer = TableWriter::create(&out.join(&within), table, schema.clone())?;
            copy(run, table, schema, &mut writer)?;
            let written = writer.finish(&within, |hash| format!("part-{hash}.parquet"))?;
            if let Some(file) = written {
                part.add(table, file);
            }
        }
        let texts: Vec<String> =
            part.members.iter().map(|m| format!("{} {}", m.rank, m.part)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let name = format!("part-{}.json", hash_of(&texts));
        merged.members.extend(part.members.iter().cloned());
        write_part(&out.join(PARTS_NAME).join(&below).join(name), &mut part)?;
    }
    replace(&out.join(DATASET_NAME), &layout::dataset_json())?;
    Ok(merged)
}

/// Moves the merged directory to its place in one step. A directory that was at `out` is at `stage`
/// afterwards. On some file systems, a directory at `out` must be empty, and is removed.
///
/// # Errors
/// Fails if the directory cannot be moved.
pub fn move_into_place(stage: &Path, out: &Path) -> Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    step();
    let failed = |e: rustix::io::Errno| Error::io("create", out)(e.into());
    match renameat_with(CWD, stage, CWD, out, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => {
            renameat_with(CWD, stage, CWD, out, RenameFlags::EXCHANGE).map_err(failed)?;
        }
        // The file system does not support these flags. A plain rename succeeds if there is no
        // directory at `out`, or an empty one.
        Err(rustix::io::Errno::INVAL) => {
            fs::rename(stage, out).map_err(Error::io("create", out))?
        }
        other => other.map_err(failed)?,
    }
    step();
    Ok(())
}

/// Returns whether a member is preferred to another version of the same recording. The paths of the
/// files are compared last, so that the choice does not depend on the order of the datasets.
fn has_more(new: &(&Member, &Dataset, &Part), old: &(&Member, &Dataset, &Part)) -> bool {
    let rank = |(member, _, part): &(&Member, &Dataset, &Part)| {
        let hashes: Vec<String> = part.all_files().map(|(_, file)| file.path.clone()).collect();
        (member.order(), member.program_version.clone(), hashes)
    };
    rank(new) > rank(old)
}

fn copy(
    run: &[(&Member, &Dataset, &Part)],
    table: Table,
    schema: SchemaRef,
    out: &mut TableWriter,
) -> Result<()> {
    // The key is the address of the file's description, which stays the same while the part is
    // borrowed.
    let mut open: BTreeMap<*const layout::File, Source<'_>> = BTreeMap::new();
    let mut pending = Pending { rows: 0, batches: Vec::new(), schema: schema.clone() };
    let files = |(member, dataset, part)| {
        let part: &Part = part;
        part.files_of(table.name()).map(move |file| (member, dataset, part, file))
    };
    for (member, dataset, part, file) in run.iter().copied().flat_map(files) {
        let source = match open.entry(std::ptr::from_ref(file)) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let dataset: &Dataset = dataset;
                let path =
                    place(&dataset.dir, table.name(), file).ok_or_else(|| Error::Unknown {
                        path: dataset.dir.join(DATASET_NAME),
                        why: format!("{:?} is not a place inside of it", file.path),
                    })?;
                new.insert(Source::open(&path, table, &schema, part)?)
            }
        };
        source.each(member, |batch| pending.push(batch, out))?;
        if part.members.len() == 1
            && let Some(source) = open.remove(&std::ptr::from_ref(file))
        {
            source.finish()?;
        }
    }
    for source in open.into_values() {
        source.finish()?;
    }
    pending.flush(out)
}

/// Rows that are not written yet. They are written in batches of [`BATCH`] rows (the last may have
/// fewer), so that the bytes of a file do not depend on how many rows were read at a time.
struct Pending {
    rows: usize,
    batches: Vec<RecordBatch>,
    schema: SchemaRef,
}

impl Pending {
    fn push(&mut self, mut batch: RecordBatch, out: &mut TableWriter) -> Result<()> {
        while self.rows + batch.num_rows() >= BATCH {
            let room = BATCH - self.rows;
            self.batches.push(batch.slice(0, room));
            batch = batch.slice(room, batch.num_rows() - room);
            self.flush(out)?;
        }
        if batch.num_rows() > 0 {
            self.rows += batch.num_rows();
            self.batches.push(batch);
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut TableWriter) -> Result<()> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let all = concat_batches(&self.schema, &self.batches);
        let all = all.map_err(|e| Error::parquet(Path::new("merged rows"))(e.into()))?;
        self.batches.clear();
        self.rows = 0;
        out.write(&all)
    }
}

/// A file that is read from its start to its end.
struct Source<'a> {
    path: std::path::PathBuf,
    reader: ParquetRecordBatchReader,
    /// For each column of the result, the index of this column in the file; `None` if the file
    /// lacks it.
    places: Vec<Option<usize>>,
    schema: SchemaRef,
    /// The unused rows of the last batch.
    rest: Option<RecordBatch>,
    /// The members of the file's part whose rows may still follow.
    members: &'a [Member],
}

impl<'a> Source<'a> {
    fn open(path: &Path, table: Table, schema: &SchemaRef, part: &'a Part) -> Result<Self> {
        let failed = |e| Error::parquet(path)(e);
        let file = File::open(path).map_err(Error::io("open", path))?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
            .map_err(failed)?
            .with_batch_size(BATCH);
        let own = builder.schema().clone();
        let place = |field: &Arc<arrow_schema::Field>| -> Result<Option<usize>> {
            let Ok(at) = own.index_of(field.name()) else {
                return match field.is_nullable() {
                    true => Ok(None),
                    false => Err(Error::Unknown {
                        path: path.to_owned(),
                        why: format!("it has no column {}", field.name()),
                    }),
                };
            };
            match own.field(at).data_type() == field.data_type() {
                true => Ok(Some(at)),
                false => Err(Error::OtherType {
                    path: path.to_owned(),
                    table,
                    column: field.name().clone(),
                    found: own.field(at).data_type().to_string(),
                    expected: field.data_type().to_string(),
                }),
            }
        };
        let places = schema.fields().iter().map(place).collect::<Result<Vec<_>>>()?;
        let reader = builder.build().map_err(failed)?;
        let (path, schema) = (path.to_owned(), schema.clone());
        Ok(Self { path, reader, places, schema, rest: None, members: &part.members })
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take().filter(|rest| rest.num_rows() > 0) {
            return Ok(Some(rest));
        }
        let failed = |e: arrow_schema::ArrowError| Error::parquet(&self.path)(e.into());
        let Some(batch) = self.reader.next() else { return Ok(None) };
        let batch = batch.map_err(failed)?;
        let column = |(place, field): (&Option<usize>, &Arc<arrow_schema::Field>)| -> ArrayRef {
            match place {
                Some(at) => batch.column(*at).clone(),
                None => new_null_array(field.data_type(), batch.num_rows()),
            }
        };
        let columns = self.places.iter().zip(self.schema.fields()).map(column).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(failed)?;
        self.check(&batch)?;
        Ok(Some(batch))
    }

    /// Checks that each row belongs to a member of the part, and that the rows are in the order of
    /// the members. Without this check, rows could be skipped without an error.
    fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        let id = ids(batch);
        for row in 0..batch.num_rows() {
            let id = id(row);
            while self.members.first().is_some_and(|member| of(member) < id) {
                self.members = &self.members[1..];
            }
            if self.members.first().is_none_or(|member| of(member) != id) {
                let why = format!(
                    "it has rows of rank {} of run {}, recording {}, at a place where its part has none",
                    id.1, id.0, id.2
                );
                return Err(Error::Unknown { path: self.path.clone(), why });
            }
        }
        Ok(())
    }

    /// Reads the remaining rows, so that they are checked, too.
    fn finish(mut self) -> Result<()> {
        while self.next()?.is_some() {}
        Ok(())
    }

    /// Passes the rows of a member to `take`, and skips rows of earlier members.
    fn each(
        &mut self,
        member: &Member,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        while let Some(batch) = self.next()? {
            let id = ids(&batch);
            let wanted = of(member);
            let first = (0..batch.num_rows()).find(|row| id(*row) >= wanted);
            let Some(first) = first else { continue };
            let end = (first..batch.num_rows()).find(|row| id(*row) != wanted);
            let end = end.unwrap_or(batch.num_rows());
            if end > first {
                take(batch.slice(first, end - first))?;
            }
            if end < batch.num_rows() {
                self.rest = Some(batch.slice(end, batch.num_rows() - end));
                return Ok(());
            }
        }
        Ok(())
    }
}

fn ids<'a>(batch: &'a RecordBatch) -> impl Fn(usize) -> (&'a str, i64, &'a str) {
    let (run, rank, part) = (
        batch.column(0).as_string::<i32>(),
        batch.column(1).as_primitive::<Int32Type>(),
        batch.column(2).as_string::<i32>(),
    );
    move |row| (run.value(row), i64::from(rank.value(row)), part.value(row))
}

fn of(member: &Member) -> (&str, i64, &str) {
    (&member.run, member.rank.into(), &member.part)
}
