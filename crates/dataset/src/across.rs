//! Reads the rows of all ranks of a dataset, for [`analysis::across`]. Instead of the rows,
//! [`across`] keeps sums for each rank and op, and a histogram for each op, in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use analysis::across::{About, Gathered, Input, RunAcross, Sums};
use analysis::exact::Histogram;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, Int32Array, Int64Array, RecordBatch, StringArray};
use model::buckets::BUCKETS;
use model::{Loss, Severity};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use crate::error::{Error, Result};
use crate::layout::{Member, Part};
use crate::open::{Dataset, place};
use crate::schema::Table;

const BATCH: usize = 8192;

/// The recordings to read.
#[derive(Clone, Debug, Default)]
pub struct Only {
    /// The run to read; `None` for all runs.
    pub run: Option<String>,
    /// The ranks to read, sorted; `None` for all ranks.
    pub ranks: Option<Vec<u32>>,
}

impl Only {
    fn has(&self, run: &str, rank: u32) -> bool {
        self.run.as_deref().is_none_or(|only| only == run)
            && self.ranks.as_ref().is_none_or(|only| only.binary_search(&rank).is_ok())
    }

    fn has_any(&self, part: &Part) -> bool {
        part.members.iter().any(|member| self.has(&member.run, member.rank))
    }
}

/// Compares the ranks of each run.
///
/// # Errors
/// Fails if a file cannot be read, is not inside the dataset's directory, has rows of a recording
/// that its part does not list, or has a column or value that is not valid.
pub fn across(dataset: &Dataset, only: &Only) -> Result<Vec<RunAcross>> {
    let mut all = Gathered::default();
    for part in &dataset.parts {
        for member in part.members.iter().filter(|of| only.has(&of.run, of.rank)) {
            // Ranks without calls are ranks of the run, too.
            all.place(&member.run, member.rank);
        }
    }
    let wanted = ["process", "host", "clock", "clock_uncertainty_ns"];
    each(dataset, Table::Processes, &wanted, only, |rows, run, rank, at| {
        let place = all.place(run, rank);
        place.processes += 1;
        let host = rows.text("host")?.value(at);
        if let Err(there) = place.hosts.binary_search_by(|known| known.as_str().cmp(host)) {
            place.hosts.insert(there, host.to_owned());
        }
        rows.text("clock")?.value(at).clone_into(&mut place.clock);
        let of_process = whole(rows.whole("clock_uncertainty_ns")?, at);
        place.clock_uncertainty_ns = place.clock_uncertainty_ns.max(of_process);
        Ok(())
    })?;
    each(dataset, Table::Losses, &["loss"], only, |rows, run, rank, at| {
        let name = rows.text("loss")?.value(at);
        let known = Loss::ALL.iter().find(|known| known.name() == name);
        // A loss that this version does not know may be severe, so it is counted.
        if known.is_none_or(|loss| loss.severity() != Severity::Note) {
            all.place(run, rank).losses += 1;
        }
        Ok(())
    })?;
    const STATS: [&str; 8] =
        ["op_key", "op", "known", "calls", "total_ns", "total_low_ns", "total_high_ns", "self_ns"];
    each(dataset, Table::Stats, &STATS, only, |rows, run, rank, at| {
        let number = |name| Ok(whole(rows.whole(name)?, at).map(i128::from));
        let range = (number("total_low_ns")?, number("total_high_ns")?);
        let sums = Sums {
            calls: number("calls")?,
            total_ns: number("total_ns")?,
            total_range_ns: range.0.zip(range.1),
            own_ns: number("self_ns")?,
            is_estimate: rows.text("known")?.value(at) == "estimate",
        };
        let (key, name) = (rows.text("op_key")?.value(at), rows.text("op")?.value(at));
        all.add(run, rank, Input { key, name, sums });
        Ok(())
    })?;
    let wanted = ["op_key", "role", "library", "arguments", "source"];
    each(dataset, Table::Ops, &wanted, only, |rows, run, _, at| {
        let text = |name| {
            let column = rows.text(name)?;
            Ok(column.is_valid(at).then(|| column.value(at).to_owned()))
        };
        let known = |name| Ok::<_, Error>(text(name)?.unwrap_or_default());
        let about = About {
            role: known("role")?,
            library: known("library")?,
            arguments: known("arguments")?,
            source: text("source")?,
        };
        all.about(run, rows.text("op_key")?.value(at), about);
        Ok(())
    })?;
    // Rows of the same op follow each other, so they are added up first, and the histogram of the
    // op is looked up once for all of them. A look-up for each row would be slow, because a rank
    // may have tens of thousands of rows.
    let mut of_op = (String::new(), String::new(), Histogram::default());
    each(dataset, Table::Hist, &["op_key", "bucket", "calls"], only, |rows, run, _, at| {
        let bucket = rows.small("bucket")?.value(at);
        let calls = u64::try_from(rows.whole("calls")?.value(at));
        let (Ok(bucket @ 0..BUCKETS), Ok(calls)) = (u16::try_from(bucket), calls) else {
            return Err(rows.wrong(format!("there is no bucket {bucket} with such a number")));
        };
        let key = rows.text("op_key")?.value(at);
        if of_op.1 != key || of_op.0 != run {
            all.histogram(&of_op.0, &of_op.1).merge(&of_op.2);
            of_op = (run.to_owned(), key.to_owned(), Histogram::default());
        }
        of_op.2.count(bucket, calls);
        Ok(())
    })?;
    all.histogram(&of_op.0, &of_op.1).merge(&of_op.2);
    let mut found = all.finish();
    found.retain(|run| !run.ranks.is_empty());
    Ok(found)
}

/// Returns, for each rank, the begin and the end of each call of the ops with these keys, in order
/// of time. The times are those of the rank's own clock. A rank whose calls are not in the dataset
/// has an empty list.
///
/// # Errors
/// Fails for the same reasons as [`across`].
pub fn calls_of(
    dataset: &Dataset,
    only: &Only,
    keys: &[&str],
) -> Result<BTreeMap<u32, Vec<(i64, i64)>>> {
    let mut all: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for part in &dataset.parts {
        for member in part.members.iter().filter(|of| only.has(&of.run, of.rank)) {
            all.entry(member.rank).or_default();
        }
    }
    let columns = ["op_key", "start_unix_ns", "duration_ns"];
    each(dataset, Table::Calls, &columns, only, |rows, _, rank, at| {
        if keys.contains(&rows.text("op_key")?.value(at)) {
            let begin = rows.whole("start_unix_ns")?.value(at);
            let duration = rows.whole("duration_ns")?.value(at);
            all.entry(rank).or_default().push((begin, begin.saturating_add(duration)));
        }
        Ok(())
    })?;
    all.values_mut().for_each(|calls| calls.sort_unstable());
    Ok(all)
}

fn whole(column: &Int64Array, at: usize) -> Option<i64> {
    column.is_valid(at).then(|| column.value(at))
}

struct Rows<'a> {
    path: &'a Path,
    batch: RecordBatch,
}

impl Rows<'_> {
    fn wrong(&self, why: String) -> Error {
        Error::Unknown { path: self.path.to_owned(), why }
    }

    fn column<'a, T>(&'a self, name: &str, of: impl Fn(&'a dyn Array) -> Option<T>) -> Result<T> {
        let found = self.batch.column_by_name(name).and_then(|column| of(column));
        found.ok_or_else(|| self.wrong(format!("column {name} is not of its type")))
    }

    fn text(&self, name: &str) -> Result<&StringArray> {
        self.column(name, |column| column.as_string_opt::<i32>())
    }

    fn small(&self, name: &str) -> Result<&Int32Array> {
        self.column(name, |column| column.as_primitive_opt::<Int32Type>())
    }

    fn whole(&self, name: &str) -> Result<&Int64Array> {
        self.column(name, |column| column.as_primitive_opt::<Int64Type>())
    }
}

/// Calls `row` for each row of a table that `only` selects. The arguments are the batch of rows
/// that contains the row, its run and rank, and its index in the batch.
fn each(
    dataset: &Dataset,
    table: Table,
    columns: &[&str],
    only: &Only,
    mut row: impl FnMut(&Rows<'_>, &str, u32, usize) -> Result<()>,
) -> Result<()> {
    let parts = dataset.parts.iter().filter(|part| only.has_any(part));
    for (part, file) in parts.flat_map(|part| part.files_of(table.name()).map(move |f| (part, f))) {
        let path: PathBuf = place(&dataset.dir, table.name(), file).ok_or_else(|| {
            let why = format!("{:?} is not a place inside of it", file.path);
            Error::Unknown { path: dataset.dir.clone(), why }
        })?;
        let failed = |e| Error::parquet(&path)(e);
        let opened = File::open(&path).map_err(Error::io("open", &path))?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(opened, options)
            .map_err(failed)?
            .with_batch_size(BATCH);
        let wanted = ["run", "rank", "part"].iter().chain(columns).copied();
        let mask = ProjectionMask::columns(builder.parquet_schema(), wanted);
        let reader = builder.with_projection(mask).build().map_err(failed)?;
        // The rows of a recording follow each other, so only the first of them is looked up in the
        // part.
        let mut last: Option<(String, u32, String)> = None;
        for batch in reader {
            let batch = batch.map_err(|e| Error::parquet(&path)(e.into()))?;
            let rows = Rows { path: &path, batch };
            let (runs, ranks, parts) = (rows.text("run")?, rows.small("rank")?, rows.text("part")?);
            for at in 0..rows.batch.num_rows() {
                let (run, id) = (runs.value(at), parts.value(at));
                let rank = u32::try_from(ranks.value(at)).unwrap_or(u32::MAX);
                let same =
                    |last: &(String, u32, String)| last.1 == rank && last.0 == run && last.2 == id;
                if !last.as_ref().is_some_and(same) {
                    let is_of = |member: &Member| member.id().cmp(&(run, rank, id));
                    if part.members.binary_search_by(is_of).is_err() {
                        let why = format!(
                            "it has rows of rank {rank} of run {run}, recording {id}, which its part does \
                             not have"
                        );
                        return Err(rows.wrong(why));
                    }
                    last = Some((run.to_owned(), rank, id.to_owned()));
                }
                if only.has(run, rank) {
                    row(&rows, run, rank, at)?;
                }
            }
        }
    }
    Ok(())
}
