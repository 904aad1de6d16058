//! Writes how many calls each op had in a run with `--budget`, as an Arrow record batch.
//! docs/sampling.md describes the columns.

use std::io;
use std::sync::Arc;

use arrow_array::builder::{StringDictionaryBuilder, UInt32Builder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use profile::batch::unknown_op;
use profile::{CountedCalls, Profile};

/// Returns the rows, sorted by process, thread and export (number of the function or op).
pub fn rows(profile: &Profile, filter: Option<&str>) -> io::Result<RecordBatch> {
    let mut who: [UInt32Builder; 4] = Default::default();
    let (mut op_id, mut export) = (UInt32Builder::new(), UInt32Builder::new());
    let mut names: [StringDictionaryBuilder<Int32Type>; 2] = Default::default();
    let mut numbers: [UInt64Builder; 4] = Default::default();
    let mut ends: [UInt64Builder; 2] = Default::default();
    for counted in profile.counted() {
        let Some(process) = profile.processes.get(counted.process) else { continue };
        let id = profile.ops.of(counted.process, counted.export);
        let op = id.and_then(|id| profile.ops.get(id));
        let name = op.map_or_else(|| unknown_op(counted.export), |op| op.name.clone());
        if filter.is_some_and(|glob| !profile::demangle::matches(glob, &name)) {
            continue;
        }
        let thread = process.threads.iter().find(|thread| thread.uid == counted.thread_uid);
        let pid = process.id.pid;
        let ids = [Some(pid), Some(counted.process as u32), Some(counted.thread_uid)];
        let ids = ids.into_iter().chain([thread.map(|thread| thread.tid)]);
        who.iter_mut().zip(ids).for_each(|(builder, value)| builder.append_option(value));
        names[0].append_value(name);
        names[1].append_option(op.map(|op| &op.library));
        op_id.append_option(id);
        export.append_value(counted.export);
        let values = [counted.calls, counted.timed, counted.counted, counted.seen()];
        numbers.iter_mut().zip(values).for_each(|(builder, value)| builder.append_value(value));
        ends.iter_mut().zip(within(counted)).for_each(|(builder, end)| builder.append_option(end));
    }
    let [mut pid, mut process, mut thread, mut tid] = who;
    let [mut op, mut library] = names;
    let [mut calls, mut timed, mut counted, mut seen] = numbers;
    let [mut low, mut high] = ends;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("pid", Arc::new(pid.finish())),
        ("process", Arc::new(process.finish())),
        ("thread", Arc::new(thread.finish())),
        ("tid", Arc::new(tid.finish())),
        ("op", Arc::new(op.finish())),
        ("library", Arc::new(library.finish())),
        ("op_id", Arc::new(op_id.finish())),
        ("export", Arc::new(export.finish())),
        ("calls", Arc::new(calls.finish())),
        ("timed_calls", Arc::new(timed.finish())),
        ("counted_calls", Arc::new(counted.finish())),
        ("seen_calls", Arc::new(seen.finish())),
        ("calls_low", Arc::new(low.finish())),
        ("calls_high", Arc::new(high.finish())),
    ];
    let nullable = ["tid", "library", "op_id", "calls_low", "calls_high"];
    let field = |(name, column): &(&str, ArrayRef)| {
        Field::new(*name, column.data_type().clone(), nullable.contains(name))
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column)| column).collect())
        .map_err(io::Error::other)
}

/// Returns the ends of the interval for the number of calls. If all calls were counted, both ends
/// are the exact number. If the number is an estimate without an interval, both are `None`.
fn within(counted: &CountedCalls) -> [Option<u64>; 2] {
    match analysis::sampled::calls_of(counted) {
        None => [Some(counted.calls); 2],
        Some(calls) => match calls.interval {
            // A number of calls cannot be negative. `as` saturates at 64 bits.
            Some(all) => [Some(all.low.max(0.0).floor() as u64), Some(all.high.ceil() as u64)],
            None => [None; 2],
        },
    }
}
