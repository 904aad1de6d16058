//! Writes the rows of the table, the runs, and the calls of ops as JSON, in the format that
//! `docs/schema.md` describes. Missing values are `null`. Each run or call is written as soon as it
//! is read, so the use of memory does not grow with their number.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use analysis::Key;
use analysis::ops::{OpCall, OpVisitor, Region, RunCall, Serial, Task};
use profile::Drawn;
use profile::{OpId, Profile, ValueKind};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{View, columns, machines, sampled};
use crate::failure::Failure;
use crate::object::object;
use crate::view::head::ProfileHead;
use crate::view::losses::losses_out;
use crate::view::price;
use crate::view::table::{RowsOut, Table};

const SCHEMA: &str = "counterpoint.ops/2";

#[derive(Serialize)]
struct ValueOut<'a> {
    key: u32,
    name: &'a str,
    kind: &'static str,
}

/// The counter values of a call, by name. An empty list of values is written as an empty object:
/// the worker threads of a call without parallel regions have no values.
struct Counters<'a> {
    names: &'a [(&'a str, usize)],
    values: &'a [Option<u64>],
}

/// A value from a user's collector.
#[derive(Serialize)]
#[serde(untagged)]
enum Given<'a> {
    Count(i64),
    Number(f64),
    Text(Option<&'a str>),
}

struct Regions<'a> {
    context: &'a Context<'a>,
    process: usize,
    regions: &'a [Region],
}

struct Tasks<'a> {
    context: &'a Context<'a>,
    process: usize,
    tasks: &'a [Task],
}

pub fn print(out: &mut impl Write, view: &View<'_>) -> Result<(), Failure> {
    let (profile, table) = (view.profile, view.table);
    let machines = machines(profile);
    let vms = machines.iter().enumerate().map(|(vm, (process, name))| {
        object! {
            vm,
            name,
            process: profile.processes[*process].id.pid,
        }
    });
    let counters = profile.manifest.counters.iter().map(|c| {
        object! {
            name: &c.name,
            unit: &c.unit,
            group: c.group,
        }
    });
    let probe = object! {
        calls: table.probe_calls,
        per_call_ns: table.probe_ns.map(|ns| ns / table.probe_calls.max(1) as f64),
        way_ns: table.way_ns,
        estimated_ns: table.probe_ns.map(|ns| ns + table.way_ns.unwrap_or(0.0)),
    };
    let rows = Rows::new(view)?;
    write!(out, "{{\"schema\":\"{SCHEMA}\"")?;
    member(out, "profile", &ProfileHead::new(&profile.manifest, profile))?;
    member(out, "by", if view.chosen.by_rank { "rank" } else { "arguments" })?;
    member(out, "sort", rows.sort)?;
    member(out, "filter", &view.chosen.filter)?;
    member(out, "probe_subtracted", &!view.raw)?;
    member(out, "rows", &rows.table.as_ref().map(RowsOut::new))?;
    member(out, "counters", &counters.collect::<Vec<_>>())?;
    member(out, "values", &values(profile))?;
    member(out, "vms", &vms.collect::<Vec<_>>())?;
    let context = Context::new(view);
    for what in [What::Runs, What::Ops] {
        let mut writer = Writer::new(out, &context, &machines, what, &rows);
        view.trees.visit(&view.chosen.trees, &mut writer);
        writer.finish()?;
    }
    member(out, "probe", &probe)?;
    member(out, "cost", &price::json_of_costs(&table.costs, profile.bracketed_calls()))?;
    member(out, "losses", &losses_out(&view.losses))?;
    Ok(out.write_all(b"}\n")?)
}

struct Rows<'a> {
    sort: &'a str,
    /// The table of the rows. `None` in a run with a budget if `--since` or `--until` is given,
    /// because the times of calls that were only counted are unknown.
    table: Option<Table>,
    /// The rows whose calls are shown; `None` for all.
    shown: Option<HashSet<usize>>,
    /// For a run with a budget: the index of each op's row in `table`.
    ops: HashMap<OpId, usize>,
}

impl<'a> Rows<'a> {
    fn new(view: &View<'a>) -> Result<Self, Failure> {
        let chosen = view.chosen;
        let mut ops = HashMap::new();
        let (usual, table) = if view.profile.is_sampled() {
            let found = sampled::rows(view.profile, chosen)?;
            if found.is_none()
                && (chosen.filter.is_some() || chosen.sort.is_some() || chosen.top.is_some())
            {
                return Err(Failure::new(
                    "--filter, --sort and --top choose rows, and with --since and --until, a run with \
                     a budget has none: only of timed calls is the time known",
                )
                .hint("leave them out: the document then has all timed calls of this time"));
            }
            let table = found.map(|(summary, table)| {
                let keys = summary.rows.iter().map(|row| row.key).enumerate();
                let op = |(row, key)| if let Key::Op(op) = key { Some((op, row)) } else { None };
                ops = keys.filter_map(op).collect();
                table
            });
            (sampled::SORT, table)
        } else {
            let mut table = columns::ops(view, columns::Readers::Programs);
            chosen.arrange(&mut table)?;
            (super::SELF, Some(table))
        };
        let chooses = chosen.filter.is_some() || chosen.top.is_some_and(|rows| rows > 0);
        let rows = table.as_ref().filter(|_| chooses);
        let shown = rows.map(|table| table.order.iter().copied().collect());
        Ok(Self { sort: chosen.sort.unwrap_or(usual), table, shown, ops })
    }

    fn has(&self, view: &View<'_>, op: &OpCall<'_>) -> bool {
        let Some(shown) = &self.shown else { return true };
        let row = match view.profile.is_sampled() {
            true => self.ops.get(&view.profile.ops.row_of(op.op)).copied(),
            false => view.table.row_of(view.profile, op),
        };
        row.is_some_and(|row| shown.contains(&row))
    }
}

fn member(out: &mut impl Write, name: &str, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    write!(out, ",\n\"{name}\":")?;
    serde_json::to_writer(&mut *out, value)?;
    Ok(())
}

/// Returns the key, name and kind of each value that users' collectors record, without duplicates.
fn values(profile: &Profile) -> Vec<ValueOut<'_>> {
    let mut all: Vec<ValueOut<'_>> = Vec::new();
    for key in profile.processes.iter().flat_map(|process| &process.value_keys) {
        let value = ValueOut { key: key.id, name: &key.name, kind: key.kind.name() };
        let same = |known: &ValueOut<'_>| {
            (known.key, known.name, known.kind) == (value.key, value.name, value.kind)
        };
        if !all.iter().any(same) {
            all.push(value);
        }
    }
    all
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Runs,
    Ops,
}

impl Serialize for Counters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, place) in self.names {
            if let Some(value) = self.values.get(*place) {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

impl Regions<'_> {
    fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

impl Serialize for Regions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { context, process, regions } = *self;
        serializer.collect_seq(regions.iter().map(|region| {
            object! {
                start_ns: context.at(region.start),
                duration_ns: context.ns(region.duration),
                // Null if the number of tasks was not recorded.
                task_count: region.of,
                tasks: Tasks { context, process, tasks: &region.tasks },
                imbalance: region.imbalance,
                shared_cpu: region.serial.is_some(),
                serial: region.serial.map(|serial| match serial {
                    Serial::Thread => "thread",
                    Serial::Cpu(_) => "cpu",
                }),
            }
        }))
    }
}

impl Serialize for Tasks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { context, process, tasks } = *self;
        serializer.collect_seq(tasks.iter().map(|task| {
            object! {
                task: task.number,
                thread: context.place(process, task.thread).1,
                cpu: task.cpu,
                start_ns: context.at(task.start),
                duration_ns: context.ns(task.duration),
                counters: context.counters(&task.counters),
            }
        }))
    }
}

struct Context<'a> {
    view: &'a View<'a>,
    profile: &'a Profile,
    first_tick: u64,
    /// The names of counters, sorted and without duplicates, each with the index of one counter of
    /// this name.
    names: Vec<(&'a str, usize)>,
    /// Whether the run had a budget. In a run with a budget, some calls were counted and not timed.
    sampled: bool,
}

impl<'a> Context<'a> {
    fn new(view: &'a View<'a>) -> Self {
        let names = view.profile.manifest.counters.iter().zip(0..);
        let names: BTreeMap<&str, usize> =
            names.map(|(counter, place)| (counter.name.as_str(), place)).collect();
        Self {
            view,
            profile: view.profile,
            first_tick: view.trees.first_tick().unwrap_or(0),
            names: names.into_iter().collect(),
            sampled: view.profile.is_sampled(),
        }
    }

    fn at(&self, tick: u64) -> f64 {
        self.ns(tick.saturating_sub(self.first_tick))
    }

    fn ns(&self, ticks: u64) -> f64 {
        self.profile.timeline.duration_ns(ticks)
    }

    fn place(&self, process: usize, thread: usize) -> (u32, u32) {
        let process = &self.profile.processes[process];
        (process.id.pid, process.threads.get(thread).map_or(0, |thread| thread.tid))
    }

    fn counters<'b>(&'b self, values: &'b [Option<u64>]) -> Counters<'b> {
        Counters { names: &self.names, values }
    }

    /// Returns the weight of a timed call (the number of calls that it stands for), the number of
    /// calls that were skipped before it, and the weight of its counter values. `None` if the run
    /// had no budget.
    fn drawn(&self, drawn: Drawn, counters: &[Option<u64>]) -> Option<impl Serialize> {
        let weight = u64::from(drawn.period.max(1));
        let read = counters.iter().any(Option::is_some);
        self.sampled.then(|| {
            object! {
                weight,
                skipped: drawn.skipped,
                counter_weight: read.then(|| weight * u64::from(drawn.counter_period.max(1))),
            }
        })
    }

    fn regions<'b>(&'b self, process: usize, regions: &'b [Region]) -> Regions<'b> {
        Regions { context: self, process, regions }
    }

    fn values(&self, process: usize, values: &[(u32, u64)]) -> BTreeMap<Cow<'a, str>, Given<'a>> {
        let process = &self.profile.processes[process];
        let mut all = BTreeMap::new();
        for (id, bits) in values {
            let Some(key) = process.value_keys.iter().find(|key| key.id == *id) else { continue };
            let value = match key.kind {
                ValueKind::Count => Given::Count(*bits as i64),
                ValueKind::Duration | ValueKind::Percent | ValueKind::Ratio => {
                    Given::Number(f64::from_bits(*bits))
                }
                ValueKind::Text => {
                    let text = u32::try_from(*bits).ok().and_then(|id| process.texts.get(&id));
                    Given::Text(text.map(String::as_str))
                }
            };
            // Two collectors may use the same name. In this case, the second name gets the id of
            // its key in parentheses.
            let name = match all.contains_key(key.name.as_str()) {
                true => Cow::Owned(format!("{} ({id})", key.name)),
                false => Cow::Borrowed(key.name.as_str()),
            };
            all.insert(name, value);
        }
        all
    }
}

struct Writer<'a, W> {
    out: &'a mut W,
    context: &'a Context<'a>,
    what: What,
    machines: &'a [(usize, &'a str)],
    rows: &'a Rows<'a>,
    /// For each process and op that was looked up: the index of its virtual machine in `machines`.
    vms: HashMap<(usize, OpId), Option<usize>>,
    empty: bool,
    result: io::Result<()>,
}

impl<'a, W: Write> Writer<'a, W> {
    fn new(
        out: &'a mut W,
        context: &'a Context<'a>,
        machines: &'a [(usize, &'a str)],
        what: What,
        rows: &'a Rows<'a>,
    ) -> Self {
        let name = if what == What::Runs { "runs" } else { "ops" };
        let result = write!(out, ",\n\"{name}\":[");
        Self { out, context, what, machines, rows, vms: HashMap::new(), empty: true, result }
    }

    fn finish(self) -> io::Result<()> {
        self.result?;
        self.out.write_all(if self.empty { b"]" } else { b"\n]" })
    }

    fn item(&mut self, item: &impl Serialize) {
        if self.result.is_err() {
            return;
        }
        let comma: &[u8] = if self.empty { b"\n" } else { b",\n" };
        self.empty = false;
        self.result = self
            .out
            .write_all(comma)
            .and_then(|()| Ok(serde_json::to_writer(&mut *self.out, item)?));
    }

    fn machine(&mut self, process: usize, op: OpId) -> Option<usize> {
        let (machines, profile) = (self.machines, self.context.profile);
        *self.vms.entry((process, op)).or_insert_with(|| {
            let name = &*profile.ops.get(op)?.library;
            machines.iter().position(|known| *known == (process, name))
        })
    }
}

impl<W: Write> OpVisitor for Writer<'_, W> {
    fn run(&mut self, run: &RunCall<'_>) {
        if self.what != What::Runs {
            return;
        }
        let context = self.context;
        let sampled = context.sampled;
        let (process, thread) = context.place(run.process, run.thread);
        let vm = self.machine(run.process, run.op);
        self.item(&object! {
            run: run.number,
            vm,
            process,
            thread,
            function: context.profile.ops.get(run.op).map_or("", |op| &op.name),
            parent: run.parent,
            failed: run.failed,
            failed_op: run.failed_op.and_then(|op| context.profile.ops.get(op)).map(|op| &*op.name),
            start_ns: context.at(run.start),
            duration_ns: context.ns(run.duration),
            first_op_ns: run.first_op.filter(|_| !sampled).map(|ticks| context.ns(ticks)),
            // With a budget, `between_ops_ns`, `own_ns` and `own_counters` are null, because calls
            // inside of this run may have been counted and not timed.
            between_ops_ns: (!sampled).then(|| context.ns(run.between)),
            own_ns: (!sampled).then(|| context.ns(run.own)),
            counters: context.counters(run.counters),
            own_counters: (!sampled).then(|| context.counters(run.own_counters)),
            ..drawn: context.drawn(run.drawn, run.counters),
            regions?: Some(context.regions(run.process, run.regions)).filter(|all| !all.is_empty()),
        });
    }

    fn op(&mut self, op: &OpCall<'_>) {
        if self.what != What::Ops || !self.rows.has(self.context.view, op) {
            return;
        }
        let context = self.context;
        let sampled = context.sampled;
        let (process, thread) = context.place(op.process, op.thread);
        let vm = self.machine(op.process, op.op);
        let known = context.profile.ops.get(op.op);
        let text = |of: fn(&profile::Op) -> &String| known.map_or("", |op| of(op).as_str());
        self.item(&object! {
            op: op.number,
            run: op.run,
            parent: op.parent,
            depth: op.depth,
            vm,
            process,
            thread,
            name: text(|op| &op.name),
            range?: Some(op.is_range).filter(|is| *is),
            forward?: op.forward.and_then(|op| context.profile.ops.get(op)).map(|op| &*op.name),
            bookkeeping: known.is_some_and(|op| op.bookkeeping),
            arguments: text(|op| &op.arguments),
            device: text(|op| &op.device),
            asynchronous: known.is_some_and(|op| op.asynchronous),
            start_ns: context.at(op.start),
            duration_ns: context.ns(op.duration),
            // With a budget, `self_ns` and `self_counters` are null, because calls inside of this
            // one may have been counted and not timed.
            self_ns: (!sampled).then(|| context.ns(op.self_ticks)),
            storage_bytes: op.storage,
            workspace_bytes: op.workspace,
            counters: context.counters(op.counters),
            self_counters: (!sampled).then(|| context.counters(op.self_counters)),
            ..drawn: context.drawn(op.drawn, op.counters),
            workers: context.counters(op.workers),
            values: context.values(op.process, op.values),
            regions: context.regions(op.process, op.regions),
        });
    }

    fn region(&mut self, _: usize, _: usize, _: &Region) {}
}
