//! Makes the rows of the tables, except `calls`, from a profile. The statistics come from the crate
//! `analysis`, as those of `counterpoint report` do. Times are rounded to whole numbers of ns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use analysis::exact::{Exact, Sum};
use analysis::{Estimate, Key, Row, Summary};
use arrow_array::builder::{
    Decimal128Builder, Int32Builder, Int64Builder, StringBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use model::Loss;
use profile::merged::AlignedBy;
use profile::{LossCount, Profile};

use crate::error::{Error, Result};
use crate::keys::{OpName, hash_of};
use crate::layout::Member;
use crate::schema::{Kind, Table};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Missing,
    Text(&'a str),
    Whole(i64),
    Counter(u64),
    Wide(i128),
}

impl Cell<'_> {
    pub fn or_missing(number: Option<i64>) -> Self {
        number.map_or(Self::Missing, Self::Whole)
    }

    fn text(text: &Option<String>) -> Cell<'_> {
        text.as_deref().map_or(Cell::Missing, Cell::Text)
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

pub(crate) struct Rows {
    schema: SchemaRef,
    columns: Vec<Builder>,
    rows: usize,
}

enum Builder {
    Text(StringBuilder),
    Small(Int32Builder),
    Whole(Int64Builder),
    Counter(UInt64Builder),
    Wide(Decimal128Builder),
}

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Small => Self::Small(Int32Builder::new()),
            Kind::Whole => Self::Whole(Int64Builder::new()),
            Kind::Counter => Self::Counter(UInt64Builder::new()),
            Kind::Wide => {
                Self::Wide(Decimal128Builder::new().with_data_type(Kind::Wide.data_type()))
            }
        }
    }

    /// A cell of another type than the column counts as missing.
    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Text(all), Cell::Text(text)) => all.append_value(text),
            (Self::Text(all), _) => all.append_null(),
            (Self::Small(all), Cell::Whole(n)) => all.append_option(i32::try_from(n).ok()),
            (Self::Small(all), _) => all.append_null(),
            (Self::Whole(all), Cell::Whole(n)) => all.append_value(n),
            (Self::Whole(all), _) => all.append_null(),
            (Self::Counter(all), Cell::Counter(n)) => all.append_value(n),
            (Self::Counter(all), _) => all.append_null(),
            (Self::Wide(all), Cell::Wide(n)) => all.append_value(n),
            (Self::Wide(all), _) => all.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(all) => std::sync::Arc::new(all.finish()),
            Self::Small(all) => std::sync::Arc::new(all.finish()),
            Self::Whole(all) => std::sync::Arc::new(all.finish()),
            Self::Counter(all) => std::sync::Arc::new(all.finish()),
            Self::Wide(all) => std::sync::Arc::new(all.finish()),
        }
    }
}

impl Rows {
    pub fn new(table: Table, counters: &[String]) -> Self {
        let kinds = table.columns().map(|column| column.kind);
        let counters_of = counters.iter().filter(|_| table == Table::Calls).map(|_| Kind::Counter);
        let columns = kinds.chain(counters_of).map(Builder::new).collect();
        Self { schema: table.schema(counters), columns, rows: 0 }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    /// Adds a row: the columns that all tables have, then those of this table.
    pub fn push<'a>(
        &mut self,
        member: &'a Member,
        process: Option<usize>,
        cells: impl IntoIterator<Item = Cell<'a>>,
    ) {
        let process = Cell::or_missing(process.map(|process| process as i64));
        let rank = Cell::Whole(member.rank.into());
        let common = [Cell::Text(&member.run), rank, Cell::Text(&member.part), process];
        let mut cells = common.into_iter().chain(cells);
        for column in &mut self.columns {
            column.push(cells.next().unwrap_or(Cell::Missing));
        }
        self.rows += 1;
    }

    /// Returns the rows that were added, as columns, and removes them from `self`.
    pub fn take(&mut self, path: &Path) -> Result<RecordBatch> {
        self.rows = 0;
        let columns = self.columns.iter_mut().map(Builder::finish).collect();
        RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|e| Error::parquet(path)(e.into()))
    }
}

/// Rounds to ns. Returns `None` if the number may not fit into 64 bits.
fn whole(ns: f64) -> Option<i64> {
    // Slightly below 2⁶³.
    (ns.abs() < 9.2e18).then(|| ns.round() as i64)
}

/// Makes a cell of the rounded number; a number with more than 38 digits counts as missing.
fn wide(value: f64) -> Cell<'static> {
    match value.abs() < 1e38 {
        true => Cell::Wide(value.round() as i128),
        false => Cell::Missing,
    }
}

/// Returns how the times of a row are known: as measured, as an estimate, or not at all
/// (`counted`).
fn known(row: &Row) -> &'static str {
    match &row.sampled {
        None => "measured",
        Some(sampled) if sampled.total.is_none() => "counted",
        Some(sampled) if sampled.calls == Some(sampled.timed) => "measured",
        Some(_) => "estimate",
    }
}

/// Returns the two ends of the interval in which the number of calls is; `None` if they are not
/// known. Both ends are equal if the number is exact.
fn calls_within(row: &Row) -> [Option<i64>; 2] {
    let exact = |calls: u64| [whole(calls as f64); 2];
    let Some(sampled) = row.sampled.as_deref() else { return exact(row.calls) };
    match &sampled.by_steps {
        Some(calls) => match calls.interval {
            Some(all) => [whole(all.low.max(0.0).floor()), whole(all.high.ceil())],
            None => [None; 2],
        },
        None => sampled.calls.map_or([None; 2], exact),
    }
}

pub(crate) struct Made<'a> {
    pub profile: &'a Profile,
    pub member: &'a Member,
    pub summary: &'a Summary,
    pub exact: &'a Exact,
    pub names: &'a BTreeMap<Key, OpName>,
    pub labels: Option<String>,
}

impl Made<'_> {
    /// Returns the rows of the summary with their ops, sorted by process and key.
    fn rows(&self) -> Vec<(usize, &OpName, &Row)> {
        let rows = self.summary.rows.iter();
        let mut rows: Vec<_> = rows
            .filter_map(|row| Some((process_of(row.key)?, self.names.get(&row.key)?, row)))
            .collect();
        rows.sort_by(|a, b| (a.0, &a.1.key).cmp(&(b.0, &b.1.key)));
        rows
    }

    /// Adds the statistics of each row, in whole ns, converted as `report --format json` does.
    pub fn stats(&self, out: &mut Rows) {
        let scale = self.profile.timeline.ns_per_tick();
        let ns = |ticks: Estimate| ticks.times(scale);
        for (process, op, row) in self.rows() {
            let sampled = row.sampled.as_deref();
            let total_known = sampled.is_none_or(|sampled| sampled.total.is_some());
            let range_known =
                sampled.is_none_or(|s| s.total.is_some_and(|total| total.interval.is_some()));
            let self_known = sampled.is_none_or(|sampled| sampled.self_known)
                && total_known
                && !row.key.is_apart(self.profile);
            let quantiles_known = sampled.is_none_or(|sampled| sampled.effective.is_some());
            let calls = Some(row.calls).filter(|_| sampled.is_none_or(|s| s.calls.is_some()));
            let (total, own) = (ns(row.total), ns(row.own));
            let timed = |is_known: bool, ticks: f64| {
                let value = ns(row.call(ticks)).value;
                Cell::or_missing(whole(value).filter(|_| is_known && row.is_timed()))
            };
            let if_known =
                |is_known: bool, ns: f64| Cell::or_missing(whole(ns).filter(|_| is_known));
            let [fewest, most] = calls_within(row);
            let first = whole(row.first.total * scale).filter(|_| row.is_timed());
            out.push(
                self.member,
                Some(process),
                [
                    Cell::Text(&op.key),
                    Cell::Text(&op.name),
                    Cell::Text(known(row)),
                    calls.map_or(Cell::Missing, Cell::from),
                    row.inner.into(),
                    sampled.map_or(row.calls, |sampled| sampled.timed).into(),
                    (row.threads.len() as u64).into(),
                    if_known(total_known, total.value),
                    if_known(total_known && range_known, total.low),
                    if_known(total_known && range_known, total.high),
                    if_known(self_known, own.value),
                    timed(true, row.min),
                    timed(quantiles_known, row.p50),
                    timed(quantiles_known, row.p99),
                    timed(true, row.max),
                    row.first.calls.into(),
                    Cell::or_missing(first),
                    Cell::or_missing(fewest),
                    Cell::or_missing(most),
                ],
            );
        }
    }

    /// Adds the sums of the counters. Fails if a sum is too large for its column.
    pub fn counters(&self, out: &mut Rows) -> Result<()> {
        for (process, op, row) in self.rows() {
            let exact = self.exact.rows.get(&row.key);
            for (i, info) in self.profile.manifest.counters.iter().enumerate() {
                let Some(total) = row.counters.get(i).copied().flatten() else { continue };
                let moments = exact.and_then(|exact| exact.counters.get(i));
                let mut sums = [Cell::Missing; 5];
                if let Some(m) = moments.filter(|moments| moments.calls == total.calls) {
                    let all = [
                        (m.x, "durations".to_owned()),
                        (m.y, info.name.clone()),
                        (m.xx, "squares of durations".to_owned()),
                        (m.xy, format!("products of durations and {}", info.name)),
                        (m.yy, format!("squares of {}", info.name)),
                    ];
                    for (cell, (sum, of)) in sums.iter_mut().zip(all) {
                        *cell = of_sum(sum, op, of)?;
                    }
                }
                let value = total.value;
                let range_known = total.sampled.is_some() || row.sampled.is_none();
                let range = |end: f64| if range_known { wide(end) } else { Cell::Missing };
                let [x, y, xx, xy, yy] = sums;
                out.push(
                    self.member,
                    Some(process),
                    [
                        Cell::Text(&op.key),
                        Cell::Text(&info.name),
                        Cell::Text(&info.unit),
                        total.calls.into(),
                        wide(value.value),
                        range(value.low),
                        range(value.high),
                        x,
                        y,
                        xx,
                        xy,
                        yy,
                    ],
                );
            }
        }
        Ok(())
    }

    pub fn hist(&self, out: &mut Rows) {
        for (process, op, row) in self.rows() {
            let Some(exact) = self.exact.rows.get(&row.key) else { continue };
            for (bucket, calls) in exact.durations.buckets() {
                let cells = [Cell::Text(&op.key), Cell::Whole(bucket.into()), calls.into()];
                out.push(self.member, Some(process), cells);
            }
        }
    }

    pub fn ops(&self, out: &mut Rows) {
        let mut seen = BTreeSet::new();
        for (process, op, _) in self.rows() {
            if seen.insert((process, &op.key)) {
                out.push(
                    self.member,
                    Some(process),
                    [
                        Cell::Text(&op.key),
                        Cell::Text(&op.name),
                        Cell::Text(op.role),
                        Cell::text(&op.library),
                        Cell::text(&op.arguments),
                        Cell::text(&op.device),
                        Cell::text(&op.source),
                    ],
                );
            }
        }
    }

    pub fn processes(&self, out: &mut Rows) {
        let redacted = self.member.redacted;
        for (index, process) in self.profile.processes.iter().enumerate() {
            let host = self.profile.host_of(process);
            let host = match redacted {
                true => format!("host {}", hash_of(&[host])),
                false => host.to_owned(),
            };
            let program = process.info.as_ref().filter(|_| !redacted);
            let program = program.map_or(Cell::Missing, |info| Cell::Text(&info.program));
            let aligned = self.profile.members.get(process.member).map(|member| member.aligned);
            let (clock, uncertainty) = match aligned.map(|a| (a.by, a.uncertainty_ns)) {
                None => ("own", None),
                Some((AlignedBy::First, _)) => ("first", None),
                Some((AlignedBy::SameClock, ns)) => ("same_clock", ns),
                Some((AlignedBy::Monotonic, ns)) => ("monotonic", ns),
                Some((AlignedBy::Realtime, ns)) => ("realtime", ns),
            };
            let headers = process.threads.iter().flat_map(|thread| thread.headers());
            let calls: u64 = headers.map(|header| u64::from(header.calls)).sum();
            let labels = self.labels.as_deref().filter(|_| !redacted);
            out.push(
                self.member,
                Some(index),
                [
                    u64::from(process.number()).into(),
                    program,
                    Cell::Text(&host),
                    Cell::or_missing(self.member.world_size.map(i64::from)),
                    self.profile.manifest.created_unix_ns.into(),
                    (process.threads.len() as u64).into(),
                    calls.into(),
                    Cell::Text(clock),
                    Cell::or_missing(uncertainty.and_then(whole)),
                    labels.map_or(Cell::Missing, Cell::Text),
                ],
            );
        }
    }

    pub fn losses(&self, out: &mut Rows) {
        let mut add = |process: Option<usize>, losses: &[LossCount]| {
            for loss in losses.iter().filter(|loss| loss.count > 0) {
                let known = Loss::ALL.iter().find(|known| known.name() == loss.name);
                let severity = known.map(|known| known.severity().name());
                out.push(
                    self.member,
                    process,
                    [
                        Cell::Text(&loss.name),
                        severity.map_or(Cell::Missing, Cell::Text),
                        loss.count.into(),
                    ],
                );
            }
        };
        let own = analysis_losses(self.summary, self.profile);
        add(None, &own);
        for (process, losses) in self.summary.process_losses.iter().enumerate() {
            add(Some(process), losses);
        }
    }
}

/// Returns the losses that belong to no process. If the analysis found contradictions in the
/// profile, these are one more loss, with their number as its count.
fn analysis_losses(summary: &Summary, profile: &Profile) -> Vec<LossCount> {
    let mut own = profile.losses.clone();
    if !summary.violations.is_empty() {
        own.push(LossCount::new(Loss::Inconsistent, summary.violations.len() as u64));
    }
    own
}

fn of_sum(sum: Sum, op: &OpName, of: String) -> Result<Cell<'static>> {
    match sum.get().and_then(|sum| i128::try_from(sum).ok()) {
        Some(sum) => Ok(Cell::Wide(sum)),
        None => Err(Error::TooLarge { op: op.name.clone(), of }),
    }
}

pub(crate) fn process_of(key: Key) -> Option<usize> {
    match key {
        Key::OpIn(process, _) | Key::Unknown(process, _) => Some(process),
        _ => None,
    }
}
