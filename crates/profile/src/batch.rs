//! Calls as Arrow record batches, from which `counterpoint export` makes files. `docs/schema.md`
//! describes the columns.

mod dispatches;
mod drawn;
mod machines;
mod ranks;

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Float64Builder, Int64Builder, StringDictionaryBuilder, UInt32Builder,
    UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use model::metric::Bound;

use self::dispatches::Numbers;
use self::drawn::DrawnRows;
use self::machines::MachineRows;
use self::ranks::RankRows;
use crate::columns::{Columns, Status, cpu_of, node_of};
use crate::ledger::{LossCount, merge_losses};
use crate::profile::Profile;
use crate::visit::{PageDecoder, PageKey};

/// A batch ends with the page (a block of one thread's records) that brings the batch to at least
/// this many rows.
const BATCH_ROWS: usize = 65_536;

/// Computes a metric of one call, instead of the metric's expression. The arguments are the call's
/// duration in ns and the value of the metric's first counter.
pub type Correction<'a> = Box<dyn Fn(f64, f64) -> Option<f64> + 'a>;

/// Selects calls by the index of the process in the profile and the number of the called function
/// (export).
pub type Chooser<'a> = Box<dyn Fn(usize, u32) -> bool + 'a>;

/// The calls of a profile in batches, ordered by process, by thread and by the time of their end.
pub struct Batches<'a> {
    profile: &'a Profile,
    decoder: PageDecoder<'a>,
    pages: std::vec::IntoIter<PageKey>,
    schema: SchemaRef,
    choose: Option<Chooser<'a>>,
    metrics: Vec<Bound>,
    corrections: Vec<Option<Correction<'a>>>,
    losses: Vec<LossCount>,
    /// `None` if the profile does not show which calls belong to which dispatch.
    dispatches: Option<Numbers<'a>>,
}

/// Returns the schema of the batches, without metrics.
pub fn schema(profile: &Profile) -> SchemaRef {
    let text = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let mut fields = vec![
        Field::new("pid", DataType::UInt32, false),
        Field::new("process", DataType::UInt32, false),
        Field::new("thread", DataType::UInt32, false),
        Field::new("tid", DataType::UInt32, false),
        Field::new("thread_name", text(), false),
        Field::new("op", text(), false),
        Field::new("library", text(), true),
        Field::new("op_id", DataType::UInt32, true),
        Field::new("export", DataType::UInt32, false),
    ];
    for name in [
        "workgroup_x",
        "workgroup_y",
        "workgroup_z",
        "count_x",
        "count_y",
        "count_z",
        "worker",
        "cpu",
        "node",
    ] {
        let nullable = !matches!(name, "cpu" | "node");
        fields.push(Field::new(name, DataType::UInt32, nullable));
    }
    fields.push(Field::new("start_ticks", DataType::UInt64, false));
    fields.push(Field::new("duration_ticks", DataType::UInt64, false));
    fields.push(Field::new("start_ns", DataType::Int64, false));
    fields.push(Field::new("duration_ns", DataType::Float64, false));
    if profile.manifest.passes > 0 {
        fields.push(Field::new("pass", DataType::UInt32, false));
    }
    fields.extend(ranks::fields(profile));
    if dispatches::has_any(profile) {
        fields.push(Field::new("dispatch", DataType::UInt64, true));
    }
    fields.extend(drawn::fields(profile));
    for counter in &profile.manifest.counters {
        fields.push(Field::new(&counter.name, DataType::UInt64, true));
    }
    for group in profile.groups.all() {
        for what in ["enabled", "running"] {
            let name = format!("group{}_{what}_ns", group.number);
            fields.push(Field::new(name, DataType::UInt64, true));
        }
    }
    fields.extend(machines::fields(profile));
    Arc::new(Schema::new(fields))
}

impl Profile {
    /// Returns the calls of this profile, or those that `choose` selects, in batches.
    pub fn batches<'a>(&'a self, choose: Option<Chooser<'a>>) -> Batches<'a> {
        Batches {
            profile: self,
            decoder: PageDecoder::new(self),
            pages: self.pages().into_iter(),
            schema: schema(self),
            choose,
            metrics: Vec::new(),
            corrections: Vec::new(),
            losses: Vec::new(),
            dispatches: dispatches::has_any(self).then(|| Numbers::new(self)),
        }
    }
}

impl<'a> Batches<'a> {
    /// Adds a column at the end for each of `metrics`, which must be bound to the profile's
    /// counters. A value is null if a counter was not read or did not count all the time, or if the
    /// value is undefined.
    pub fn with_metrics(mut self, metrics: Vec<Bound>) -> Self {
        let mut fields: Vec<_> = self.schema.fields().iter().cloned().collect();
        let column = |m: &Bound| Arc::new(Field::new(&m.name, DataType::Float64, true));
        fields.extend(metrics.iter().map(column));
        self.schema = Arc::new(Schema::new(fields));
        self.metrics = metrics;
        self
    }
}

impl<'a> Batches<'a> {
    /// Replaces the expressions of some metrics by functions. `corrections` has an entry for each
    /// metric; `None` keeps the metric's expression.
    pub fn with_corrections(mut self, corrections: Vec<Option<Correction<'a>>>) -> Self {
        self.corrections = corrections;
        self
    }
}

impl Batches<'_> {
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns the losses in the pages that were decoded so far.
    pub fn losses(&self) -> &[LossCount] {
        &self.losses
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rows = Rows::new(self.profile, self.metrics.len());
        for key in self.pages.by_ref() {
            let columns = self.decoder.decode(key);
            let found = columns.losses();
            if !found.is_empty() {
                self.losses = merge_losses(self.losses.iter().chain(&found));
            }
            let numbers = self.dispatches.as_mut().map(|dispatches| dispatches.of(key));
            if let Err(e) = rows.append(
                self.profile,
                columns,
                numbers,
                self.choose.as_ref(),
                &self.metrics,
                &self.corrections,
            ) {
                return Some(Err(e));
            }
            if rows.len() >= BATCH_ROWS {
                break;
            }
        }
        (rows.len() > 0).then(|| RecordBatch::try_new(self.schema.clone(), rows.finish()))
    }
}

struct Rows {
    who: [UInt32Builder; 4],
    names: [StringDictionaryBuilder<Int32Type>; 3],
    op_id: UInt32Builder,
    small: [UInt32Builder; 10],
    ticks: [UInt64Builder; 2],
    start_ns: Int64Builder,
    duration_ns: Float64Builder,
    /// `None` if the profile has no passes (runs of the program with different counters).
    pass: Option<UInt32Builder>,
    /// `None` if no rank is known and the profile is not merged.
    ranks: Option<RankRows>,
    /// `None` if the profile does not show which calls belong to which dispatch.
    dispatch: Option<UInt64Builder>,
    /// `None` if the run had no budget: then all calls were timed.
    drawn: Option<DrawnRows>,
    values: Vec<UInt64Builder>,
    times: Vec<[UInt64Builder; 2]>,
    /// `None` if [`machines::fields`] returns no columns for the profile.
    machines: Option<MachineRows>,
    metrics: Vec<Float64Builder>,
}

impl Rows {
    fn new(profile: &Profile, metrics: usize) -> Self {
        Self {
            who: Default::default(),
            names: Default::default(),
            op_id: UInt32Builder::new(),
            small: Default::default(),
            ticks: Default::default(),
            start_ns: Int64Builder::new(),
            duration_ns: Float64Builder::new(),
            pass: (profile.manifest.passes > 0).then(UInt32Builder::new),
            ranks: RankRows::new(profile),
            dispatch: dispatches::has_any(profile).then(UInt64Builder::new),
            drawn: DrawnRows::new(profile),
            values: (0..profile.groups.counters()).map(|_| UInt64Builder::new()).collect(),
            times: profile.groups.all().iter().map(|_| Default::default()).collect(),
            machines: MachineRows::new(profile),
            metrics: (0..metrics).map(|_| Float64Builder::new()).collect(),
        }
    }

    fn len(&self) -> usize {
        self.start_ns.len()
    }

    fn append(
        &mut self,
        profile: &Profile,
        columns: &Columns,
        mut numbers: Option<impl Iterator<Item = Option<u64>>>,
        choose: Option<&Chooser<'_>>,
        metrics: &[Bound],
        corrections: &[Option<Correction<'_>>],
    ) -> Result<(), ArrowError> {
        if columns.is_empty() {
            return Ok(());
        }
        let process = &profile.processes[columns.process];
        let thread = &process.threads[columns.thread];
        let line = &profile.timeline;
        for i in 0..columns.len() {
            let export = columns.export[i];
            let number = numbers.as_mut().and_then(|numbers| numbers.next().flatten());
            if choose.is_some_and(|choose| !choose(columns.process, export)) {
                continue;
            }
            let who = [process.id.pid, columns.process as u32, thread.uid, thread.tid];
            for (builder, value) in self.who.iter_mut().zip(who) {
                builder.append_value(value);
            }
            let [thread_names, op_names, libraries] = &mut self.names;
            thread_names.append(&thread.name)?;
            let op_id = profile.ops.of(columns.process, export);
            let op = op_id.and_then(|id| profile.ops.get(id));
            match op {
                Some(op) => {
                    op_names.append(&op.name)?;
                    libraries.append(&op.library)?;
                }
                None => {
                    op_names.append(unknown_op(export))?;
                    libraries.append_null();
                }
            }
            self.op_id.append_option(op_id);
            let [x, y, z] = &columns.workgroup;
            let [cx, cy, cz] = &columns.count;
            let place = [x[i], y[i], z[i], cx[i], cy[i], cz[i], columns.worker[i]];
            let known = columns.knows_workgroup(i);
            let place = place.map(|value| known.then_some(value));
            let location = columns.location[i];
            let ends = [cpu_of(location), node_of(location)].map(Some);
            let small = [Some(export)].into_iter().chain(place).chain(ends);
            for (builder, value) in self.small.iter_mut().zip(small) {
                builder.append_option(value);
            }
            self.ticks[0].append_value(columns.start_ticks[i]);
            self.ticks[1].append_value(columns.duration_ticks[i]);
            self.start_ns.append_value(line.monotonic_ns(columns.start_ticks[i]));
            self.duration_ns.append_value(line.duration_ns(columns.duration(i)));
            if let Some(pass) = &mut self.pass {
                pass.append_value(process.pass + 1);
            }
            if let Some(ranks) = &mut self.ranks {
                ranks.append(profile, process)?;
            }
            if let Some(dispatch) = &mut self.dispatch {
                dispatch.append_option(number);
            }
            if let Some(drawn) = &mut self.drawn {
                drawn.append(columns, i);
            }
            self.append_counters(profile, columns, i);
            if let Some(machines) = &mut self.machines {
                machines.append(profile, columns, i, op);
            }
            for (m, (builder, metric)) in self.metrics.iter_mut().zip(metrics).enumerate() {
                let correction = corrections.get(m).and_then(Option::as_ref);
                builder.append_option(of_call(metric, correction, profile, columns, i));
            }
        }
        Ok(())
    }

    fn append_counters(&mut self, profile: &Profile, columns: &Columns, i: usize) {
        let groups = profile.groups.all().iter().zip(&columns.groups).zip(&mut self.times);
        for ((group, column), [enabled, running]) in groups {
            let status = column.status.get(i).copied().unwrap_or(Status::NotRead);
            let read = status != Status::NotRead;
            enabled.append_option(read.then(|| column.enabled_ns[i]));
            running.append_option(read.then(|| column.running_ns[i]));
            for counter in group.counters.clone() {
                let value = columns.values[counter].get(i).copied();
                self.values[counter].append_option(value.filter(|_| status.has_values()));
            }
        }
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        let mut arrays: Vec<ArrayRef> = Vec::new();
        arrays.extend(self.who.iter_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.extend(self.names.iter_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.push(ArrayBuilder::finish(&mut self.op_id));
        arrays.extend(self.small.iter_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.extend(self.ticks.iter_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.push(ArrayBuilder::finish(&mut self.start_ns));
        arrays.push(ArrayBuilder::finish(&mut self.duration_ns));
        arrays.extend(self.pass.as_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.extend(self.ranks.iter_mut().flat_map(RankRows::finish));
        arrays.extend(self.dispatch.as_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.extend(self.drawn.iter_mut().flat_map(DrawnRows::finish));
        arrays.extend(self.values.iter_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.extend(self.times.iter_mut().flatten().map(|b| ArrayBuilder::finish(b)));
        arrays.extend(self.machines.iter_mut().flat_map(MachineRows::finish));
        arrays.extend(self.metrics.iter_mut().map(|b| ArrayBuilder::finish(b)));
        arrays
    }
}

fn of_call(
    metric: &Bound,
    correction: Option<&Correction<'_>>,
    profile: &Profile,
    columns: &Columns,
    i: usize,
) -> Option<f64> {
    let mut values = [0.0; model::MAX_COUNTERS];
    if let Some(first) = metric.counters.first() {
        let group = profile.groups.all().iter().position(|g| g.counters.contains(first))?;
        if columns.groups.get(group)?.status.get(i) != Some(&Status::Whole) {
            return None;
        }
    }
    for (value, counter) in values.iter_mut().zip(&metric.counters) {
        *value = *columns.values.get(*counter)?.get(i)? as f64;
    }
    let duration_ns = profile.timeline.duration_ns(columns.duration(i));
    match correction {
        Some(correct) => correct(duration_ns, values[0]),
        None => metric.value(duration_ns, &values),
    }
}

/// Returns a name for an export (function of an executable) whose metadata is missing.
pub fn unknown_op(export: u32) -> String {
    format!("export {export} (name lost)")
}
