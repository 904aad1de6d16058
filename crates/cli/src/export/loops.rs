//! Writes data of loops as Arrow record batches: the counts of each thread as they were recorded,
//! and the starts and ends of loops that were instrumented with `--mode log`. `docs/loops.md`
//! describes the columns.

use std::io;
use std::sync::Arc;

use analysis::loops::LoopTree;
use analysis::loops::trips::bucket;
use analysis::loops::workgroups::{Workgroup, workgroups};
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, StringDictionaryBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Field, Schema};
use profile::loops::{LoopEvent, LoopModule, LoopRow, LoopTrips, Loops as Recorded};

use crate::view::loops::columns::kind;
use crate::view::loops::trips::histogram_cell;
use crate::view::loops::{Loops, counters_of_processes, full_name_of, pid, place};

#[derive(Default)]
struct Batch {
    columns: Vec<(String, ArrayRef)>,
}

impl Batch {
    fn add(&mut self, name: &str, column: impl arrow_array::Array + 'static) {
        self.columns.push((name.to_owned(), Arc::new(column)));
    }

    fn text(&mut self, name: &str, cells: impl Iterator<Item = Option<String>>) {
        let mut builder = StringDictionaryBuilder::<Int32Type>::new();
        cells.for_each(|cell| builder.append_option(cell));
        self.add(name, builder.finish());
    }

    fn small(&mut self, name: &str, cells: impl Iterator<Item = Option<u32>>) {
        let mut builder = UInt32Builder::new();
        cells.for_each(|cell| builder.append_option(cell));
        self.add(name, builder.finish());
    }

    fn whole(&mut self, name: &str, cells: impl Iterator<Item = Option<u64>>) {
        let mut builder = UInt64Builder::new();
        cells.for_each(|cell| builder.append_option(cell));
        self.add(name, builder.finish());
    }

    fn real(&mut self, name: &str, cells: impl Iterator<Item = Option<f64>>) {
        let mut builder = Float64Builder::new();
        cells.for_each(|cell| builder.append_option(cell));
        self.add(name, builder.finish());
    }

    fn flag(&mut self, name: &str, cells: impl Iterator<Item = bool>) {
        let mut builder = BooleanBuilder::new();
        cells.for_each(|cell| builder.append_value(cell));
        self.add(name, builder.finish());
    }

    fn finish(self) -> io::Result<RecordBatch> {
        let field = |(name, column): &(String, ArrayRef)| {
            Field::new(name, column.data_type().clone(), true)
        };
        let schema = Schema::new(self.columns.iter().map(field).collect::<Vec<Field>>());
        let columns = self.columns.into_iter().map(|(_, column)| column).collect();
        RecordBatch::try_new(Arc::new(schema), columns).map_err(|error| match error {
            ArrowError::IoError(_, io) => io,
            other => io::Error::other(other),
        })
    }
}

#[derive(Clone, Copy)]
struct Owner<'a> {
    tree: &'a LoopTree,
    module: &'a LoopModule,
    id: u32,
    tid: u32,
}

impl Owner<'_> {
    fn name(&self) -> Option<String> {
        self.entry().map(|entry| full_name_of(Some(entry), self.id))
    }

    fn entry(&self) -> Option<&ir::table::Entry> {
        self.tree.table.as_ref()?.entries.get(self.id as usize)
    }
}

/// Returns the tree of loops for each element of `loops.recorded.modules`. An element is one
/// registration of a module; a module registers itself when it is loaded.
fn trees<'a>(loops: &'a Loops<'_>) -> Vec<Option<&'a LoopTree>> {
    let mut trees = vec![None; loops.recorded.modules.len()];
    for tree in &loops.table.modules {
        tree.registrations.iter().for_each(|index| trees[*index] = Some(tree));
    }
    trees
}

fn matches(owner: &Owner<'_>, filter: Option<&str>) -> bool {
    filter
        .is_none_or(|glob| owner.name().is_some_and(|name| profile::demangle::matches(glob, &name)))
}

fn owners(batch: &mut Batch, loops: &Loops<'_>, owners: &[Owner<'_>]) {
    let all = || owners.iter();
    batch.text("module", all().map(|o| Some(o.tree.identity())));
    batch.text("mode", all().map(|o| Some(o.tree.mode.name().to_owned())));
    batch.small("pid", all().map(|o| pid(loops.profile, o.module.process)));
    batch.small("tid", all().map(|o| Some(o.tid)));
    batch.small("registration", all().map(|o| Some(o.module.number)));
    batch.text("object", all().map(|o| o.module.object.clone()));
    batch.small("id", all().map(|o| Some(o.id)));
    batch.text("kind", all().map(|o| o.entry().map(|e| kind(e.kind).to_owned())));
    batch.text("function", all().map(|o| o.entry().map(|e| e.function.clone())));
    batch.text("name", all().map(Owner::name));
    batch.small("parent", all().map(|o| o.entry()?.parent));
    batch.small("depth", all().map(|o| o.entry()?.depth));
    batch.text("source", all().map(|o| place(o.entry()?)));
    batch.real("ticks_per_second", all().map(|o| o.tree.ticks_per_second));
}

type Word = fn(&LoopRow) -> u64;

/// Returns the recorded rows. Each row belongs to one loop or function, one thread, and one
/// registration (loading) of a module. Rows whose name does not match `filter` are left out.
pub fn rows(loops: &Loops<'_>, filter: Option<&str>) -> io::Result<RecordBatch> {
    let trees = trees(loops);
    let mut found: Vec<(Owner<'_>, &LoopRow)> = Vec::new();
    for row in &loops.recorded.rows {
        let Some(tree) = trees.get(row.module).copied().flatten() else { continue };
        let module = &loops.recorded.modules[row.module];
        let owner = Owner { tree, module, id: row.id, tid: row.tid };
        if matches(&owner, filter) {
            found.push((owner, row));
        }
    }
    let (of, rows): (Vec<Owner<'_>>, Vec<&LoopRow>) = found.into_iter().unzip();
    let mut batch = Batch::default();
    owners(&mut batch, loops, &of);
    batch.real("cost_inside_ticks", of.iter().map(|o| Some(o.module.cost?.inside)));
    batch.real("cost_timed_ticks", of.iter().map(|o| Some(o.module.cost?.timed)));
    batch.real("cost_counted_ticks", of.iter().map(|o| Some(o.module.cost?.counted)));
    batch.real("cost_reading_ticks", of.iter().map(|o| Some(o.module.cost?.reading)));
    let words: [(&str, Word); 13] = [
        ("hits", |row| row.hits),
        ("begun", |row| row.begun),
        ("ended", |row| row.ended),
        ("ticks", |row| row.ticks),
        ("squares_low", |row| row.squares as u64),
        ("squares_high", |row| (row.squares >> 64) as u64),
        ("child_ticks", |row| row.child_ticks),
        ("iterations", |row| row.iterations),
        ("iterated", |row| row.iterated),
        ("first_ended", |row| row.first_ended),
        ("first_ticks", |row| row.first_ticks),
        ("first_squares_low", |row| row.first_squares as u64),
        ("first_squares_high", |row| (row.first_squares >> 64) as u64),
    ];
    for (name, word) in words {
        batch.whole(name, rows.iter().map(|row| Some(word(row))));
    }
    let known = || rows.iter().map(|row| row.trips.as_ref());
    batch.whole("least_iterations", known().map(|trips| Some(trips?.least)));
    batch.whole("most_iterations", known().map(|trips| Some(trips?.most)));
    batch.whole("first_iterations", known().map(|trips| Some(trips?.first)));
    batch.text("iterations_histogram", known().map(|trips| histogram(trips?)));
    batch.whole("counted", rows.iter().map(|row| Some(row.counted)));
    let places = counters_of_processes(loops.profile);
    for (i, counter) in loops.profile.manifest.counters.iter().enumerate() {
        let value = |(owner, row): (&Owner<'_>, &&LoopRow)| {
            let at = places.get(owner.module.process)?.iter().position(|place| *place == i)?;
            row.counters.get(at).copied().filter(|_| row.counted > 0)
        };
        batch.whole(&counter.name, of.iter().zip(&rows).map(value));
    }
    batch.finish()
}

fn histogram(trips: &LoopTrips) -> Option<String> {
    let buckets = trips.buckets.iter().enumerate().filter(|(_, hits)| **hits > 0);
    histogram_cell(buckets.map(|(index, hits)| (bucket(index), u128::from(*hits))))
}

/// Returns the events whose loop or function matches `filter` as rows, in the order in which the
/// profile contains them.
pub fn events(loops: &Loops<'_>, filter: Option<&str>) -> io::Result<RecordBatch> {
    let trees = trees(loops);
    let Recorded { modules, events, .. } = loops.recorded;
    let within = workgroups(loops.profile, modules, events);
    let mut found = Vec::new();
    for (event, within) in events.iter().zip(within) {
        let Some(tree) = trees.get(event.module).copied().flatten() else { continue };
        let module = &loops.recorded.modules[event.module];
        let owner = Owner { tree, module, id: event.id, tid: event.tid };
        if matches(&owner, filter) {
            found.push((owner, (event, within)));
        }
    }
    type Found<'a> = (&'a LoopEvent, Option<Workgroup>);
    let (of, found): (Vec<Owner<'_>>, Vec<Found<'_>>) = found.into_iter().unzip();
    let events = || found.iter().map(|(event, _)| event);
    let mut batch = Batch::default();
    owners(&mut batch, loops, &of);
    batch.flag("end", events().map(|event| event.end));
    batch.whole("address", events().map(|event| Some(event.address)));
    batch.whole("ticks", events().map(|event| Some(event.ticks)));
    let within = || found.iter().map(|(_, within)| *within);
    let ops = &loops.profile.ops;
    batch.text("dispatch", within().map(|w| Some(ops.get(w?.op)?.name.clone())));
    for (i, name) in ["workgroup_x", "workgroup_y", "workgroup_z"].into_iter().enumerate() {
        batch.small(name, within().map(|w| Some(w?.id?[i])));
    }
    batch.finish()
}
