//! The table of a report as columns with names and units: what text, CSV and `--sort` share.

use std::collections::{HashMap, HashSet};

use analysis::{CounterTotal, Hidden, Key, MOSTLY_EMPTY, PassTotal, Row, Summary, ThreadTime};
use model::Unit;
use model::metric::Bound;
use profile::batch::unknown_op;
use profile::{Op, Profile, Role, Usage};

use super::source::{self, SOURCE};
use super::units;
use crate::failure::Failure;
use crate::metrics;
use crate::report::RowKind;
use crate::terminal::visible;

/// What is in a cell. Missing is `None`, never zero.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Count(u128),
    Number(f64),
    Ns(f64),
    Bytes(f64),
    Part(f64),
    /// A metric's value, its unit, and whether that was asked for.
    Metric(f64, String, bool),
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name in CSV and for `--sort`, unit included.
    pub name: String,
    /// Head in the table for people.
    pub title: String,
    /// Not in the table for people.
    pub csv_only: bool,
    /// Where there is no room for all, the column with the largest number is left out first;
    /// of equal ones the last.
    pub rank: u8,
    pub cells: Vec<Option<Value>>,
    /// For a counter, in each row how many calls have a value, of how many.
    pub coverage: Option<Vec<(u64, u64)>>,
    /// For a counter that took turns, in each row whose value is (in part) an estimate: the part
    /// of the time for which it counted.
    pub estimated: Option<Vec<Option<f64>>>,
    /// For a counter, in each row of whose value more than half is what an empty call reads: that
    /// part.
    pub mostly_empty: Option<Vec<Option<f64>>>,
    /// For a metric, in each row where it is not shown although it could be computed: why.
    pub hidden: Option<Vec<Option<Hidden>>>,
}

impl Column {
    /// A column of these cells.
    pub fn new(rank: u8, name: &str, title: &str, cells: Vec<Option<Value>>) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            csv_only: false,
            rank,
            cells,
            coverage: None,
            estimated: None,
            mostly_empty: None,
            hidden: None,
        }
    }

    /// The same for programs only.
    pub fn for_programs(name: &str, cells: Vec<Option<Value>>) -> Self {
        Self { csv_only: true, ..Self::new(u8::MAX, name, "", cells) }
    }

    /// How many calls of this row have a value of how many, if they have one but not all do.
    pub fn partly(&self, row: usize) -> Option<(u64, u64)> {
        let (counted, calls) = *self.coverage.as_ref()?.get(row)?;
        (counted > 0 && counted < calls).then_some((counted, calls))
    }

    /// The part of this row's value that an empty call reads, if that is more than half.
    pub fn is_mostly_empty(&self, row: usize) -> Option<f64> {
        *self.mostly_empty.as_ref()?.get(row)?
    }

    /// For which part of the time the counter was on, if this row's value is an estimate.
    pub fn estimate(&self, row: usize) -> Option<f64> {
        *self.estimated.as_ref()?.get(row)?
    }
}

/// The rows, sorted.
pub struct Table {
    pub columns: Vec<Column>,
    /// Place in the summary of each row.
    pub order: Vec<usize>,
}

impl Value {
    fn as_number(&self) -> Option<f64> {
        match self {
            Self::Text(_) => None,
            Self::Count(n) => Some(*n as f64),
            Self::Number(x) | Self::Ns(x) | Self::Bytes(x) | Self::Part(x) => Some(*x),
            Self::Metric(x, ..) => Some(*x),
        }
    }

    /// For people.
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(n) => units::count(*n),
            Self::Number(x) => units::number(*x),
            Self::Ns(x) => units::time(*x),
            Self::Bytes(x) => units::bytes(*x),
            Self::Part(x) => units::percent(*x),
            Self::Metric(x, unit, declared) => metrics::text(*x, unit, *declared),
        }
    }

    /// For programs: the shortest text that gives the same number.
    pub fn to_csv(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(n) => n.to_string(),
            Self::Number(x)
            | Self::Ns(x)
            | Self::Bytes(x)
            | Self::Part(x)
            | Self::Metric(x, ..) => x.to_string(),
        }
    }
}

impl Table {
    pub fn new(profile: &Profile, summary: &Summary, metrics: &[Bound], by: RowKind) -> Self {
        let rows = &summary.rows;
        let line = &profile.timeline;
        let mut columns = names(profile, rows, by);
        let mut push = |rank, name: &str, title: &str, cell: &dyn Fn(&Row) -> Option<Value>| {
            columns.push(Column::new(rank, name, title, rows.iter().map(cell).collect()));
        };
        let ns = |ticks: f64| Some(Value::Ns(ticks * line.ns_per_tick()));
        let all = summary.self_ticks as f64;
        // Of ops, each pass is a repetition.
        let repeated = by == RowKind::Op && profile.manifest.passes > 0;
        let passes = if repeated { profile.passes().max(1) } else { 0 };
        let each = f64::from(passes.max(1));
        push(1, "calls", "calls", &|r| match r.passes.first().filter(|_| passes > 0) {
            None => Some(Value::Count(r.calls.into())),
            Some(pass) if r.passes_agree() => Some(Value::Count(pass.calls.into())),
            Some(_) => None,
        });
        push(7, "dispatches", "dispatches", &|r| {
            let agree = passes == 0 || r.passes_agree();
            let of_pass = |n: u64| n / u64::from(passes.max(1));
            r.dispatches.filter(|_| agree).map(|n| Value::Count(of_pass(n).into()))
        });
        push(1, "total_ns", "total", &|r| ns(r.total_ticks as f64 / each));
        if passes > 0 {
            push(3, "spread", "spread", &|r| spread(r).map(Value::Part));
            push(6, "calls_by_pass", "by pass", &|r| {
                Some(Value::Text(by_pass(r, |pass| pass.calls.to_string())))
            });
        }
        // What is on no thread has no part in the time of threads.
        let of_thread = |r: &Row| !is_apart(profile, r.key);
        push(2, "self_ns", "self", &|r| ns(r.self_ticks as f64 / each).filter(|_| of_thread(r)));
        push(2, "share", "share", &|r| {
            let any = summary.self_ticks > 0 && of_thread(r);
            any.then(|| Value::Part(r.self_ticks as f64 / all))
        });
        push(4, "mean_ns", "mean", &|r| ns(r.mean_ticks()));
        push(6, "p50_ns", "p50", &|r| ns(r.p50_ticks));
        push(5, "p99_ns", "p99", &|r| ns(r.p99_ticks));
        for (i, counter) in profile.manifest.counters.iter().enumerate() {
            let (name, unit) = (&counter.name, counter.unit());
            let of = |row: &Row| row.counters.get(i).copied().flatten();
            push(3, name, name, &|r| of(r).map(|c| total(unit, c)));
            push(10, &format!("{name}_per_call"), "/call", &|r| of(r).map(|c| mean(unit, c)));
        }
        if by == RowKind::Thread {
            usage_columns(summary, rows, &mut push);
        }
        for (i, metric) in metrics.iter().enumerate() {
            let (unit, declared) = (&metric.unit.name, metric.unit.declared);
            push(metrics::rank(metric), &metric.name, &metric.name, &|r| {
                r.metrics[i].value.map(|x| Value::Metric(x, unit.clone(), declared))
            });
        }
        push(8, "threads", "threads", &|r| Some(Value::Count(r.threads.len() as u128)));
        push(8, "cpus", "cpus", &|r| Some(Value::Count(r.cpus.len() as u128)));
        push(11, "min_ns", "min", &|r| ns(r.min_ticks as f64));
        push(11, "max_ns", "max", &|r| ns(r.max_ticks as f64));
        // Where no call lies in another one, it is the total.
        if summary.self_ticks == summary.total_ticks
            && let Some(column) = columns.iter_mut().find(|column| column.name == "self_ns")
        {
            column.csv_only = true;
        }
        for (i, counter) in profile.manifest.counters.iter().enumerate() {
            let calls = rows.iter().map(|row| {
                Some(Value::Count(row.counters[i].map_or(0, |total| total.calls).into()))
            });
            columns.push(Column::for_programs(&format!("{}_calls", counter.name), calls.collect()));
        }
        for (i, counter) in profile.manifest.counters.iter().enumerate() {
            let calls = |row: &Row| row.counters[i].map_or(0, |total| total.calls);
            // A counter of one pass is not missing in the others.
            let of = |row: &Row| match counter.pass {
                Some(pass) => row.passes.get(pass as usize - 1).map_or(0, |pass| pass.calls),
                None => row.calls,
            };
            let coverage: Vec<_> = rows.iter().map(|row| (calls(row), of(row))).collect();
            let per_call = format!("{}_per_call", counter.name);
            for column in columns.iter_mut() {
                if column.name == counter.name || column.name == per_call {
                    column.coverage = Some(coverage.clone());
                    column.mostly_empty = Some(mostly_empty(rows, i));
                }
            }
        }
        for (i, metric) in metrics.iter().enumerate() {
            let calls = rows.iter().map(|row| Some(Value::Count(row.metrics[i].calls.into())));
            let first = metric.counters.first().and_then(|c| profile.manifest.counters.get(*c));
            let of = |row: &Row| match first.and_then(|counter| counter.pass) {
                Some(pass) => row.passes.get(pass as usize - 1).map_or(0, |pass| pass.calls),
                None => row.calls,
            };
            let coverage: Vec<_> = rows.iter().map(|row| (row.metrics[i].calls, of(row))).collect();
            columns.push(Column::for_programs(&format!("{}_calls", metric.name), calls.collect()));
            if let Some(column) = columns.iter_mut().find(|column| column.name == metric.name) {
                column.coverage = Some(coverage);
                column.hidden = Some(rows.iter().map(|row| row.metrics[i].hidden).collect());
            }
        }
        if profile.manifest.multiplex {
            estimates(profile, rows, &mut columns);
        }
        Self { columns, order: (0..rows.len()).collect() }
    }

    /// Sorts by the column with this name or title: numbers from large to small, text from a
    /// to z, what is missing last; equal ones by name.
    pub fn sort(&mut self, key: &str) -> Result<(), Failure> {
        let by_name = self.columns.iter().position(|c| c.name == key);
        let by_title = || self.columns.iter().position(|c| !c.csv_only && c.title == key);
        let Some(column) = by_name.or_else(by_title) else {
            let known: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
            return Err(Failure::new(format!("--sort {key}: no such column"))
                .hint(format!("columns: {}", known.join(", "))));
        };
        let number =
            |row: usize| self.columns[column].cells[row].as_ref().and_then(Value::as_number);
        let text = |column: usize, row: usize| match &self.columns[column].cells[row] {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let mut order = std::mem::take(&mut self.order);
        order.sort_by(|a, b| {
            let (x, y) = (number(*a), number(*b));
            y.is_some()
                .cmp(&x.is_some())
                .then_with(|| y.unwrap_or(0.0).total_cmp(&x.unwrap_or(0.0)))
                .then_with(|| text(column, *a).cmp(&text(column, *b)))
                .then_with(|| text(0, *a).cmp(&text(0, *b)))
                .then_with(|| a.cmp(b))
        });
        self.order = order;
        Ok(())
    }
}

type Push<'a> = dyn FnMut(u8, &str, &str, &dyn Fn(&Row) -> Option<Value>) + 'a;

/// What the kernel counted for each thread, in calls and between them.
fn usage_columns(summary: &Summary, rows: &[Row], push: &mut Push<'_>) {
    let usage = |row: &Row| {
        let Key::Thread(process, thread) = row.key else { return None };
        let of = |time: &&ThreadTime| (time.process, time.thread) == (process, thread);
        summary.threads.iter().find(of)?.usage
    };
    // Profiles of before, and imported ones, know nothing of it.
    if rows.iter().all(|row| usage(row).is_none()) {
        return;
    }
    push(4, "thread_cpu_ns", "on CPU", &|row| usage(row).map(|used| Value::Ns(used.cpu_ns as f64)));
    let mut count = |name: &str, title: &str, of: &dyn Fn(&Usage) -> u64| {
        push(5, name, title, &|row| usage(row).map(|used| Value::Count(of(&used).into())));
    };
    count("thread_minor_faults", "minor faults", &|used| used.minor_faults);
    count("thread_major_faults", "major faults", &|used| used.major_faults);
    count("thread_voluntary_switches", "voluntary switches", &|used| used.voluntary_switches);
    count("thread_involuntary_switches", "involuntary switches", &|used| used.involuntary_switches);
}

/// By how much the passes' total durations differ: largest less smallest, as a part of their mean.
pub fn spread(row: &Row) -> Option<f64> {
    let totals = || row.passes.iter().map(|pass| pass.total_ticks);
    let (least, most) = (totals().min()?, totals().max()?);
    let mean = row.total_ticks as f64 / row.passes.len() as f64;
    (mean > 0.0).then(|| (most - least) as f64 / mean)
}

/// `10` where all passes say the same, else `10|12`.
pub fn by_pass(row: &Row, text: impl Fn(&PassTotal) -> String) -> String {
    let mut all: Vec<String> = row.passes.iter().map(text).collect();
    if all.windows(2).all(|pair| pair[0] == pair[1]) {
        all.truncate(1);
    }
    all.join("|")
}

/// In a run whose counters take turns: which values are estimates, and for how much of the time
/// each counter was on.
fn estimates(profile: &Profile, rows: &[Row], columns: &mut Vec<Column>) {
    for (i, counter) in profile.manifest.counters.iter().enumerate() {
        let of = |row: &Row| row.counters.get(i).copied().flatten();
        let estimated = |row: &Row| of(row).map_or(0, |total| total.estimated);
        let covered: Vec<_> = rows.iter().map(|row| of(row)?.covered()).collect();
        let per_call = format!("{}_per_call", counter.name);
        for column in columns.iter_mut().filter(|c| c.name == counter.name || c.name == per_call) {
            let part = |row: (&Row, &Option<f64>)| row.1.filter(|_| estimated(row.0) > 0);
            column.estimated = Some(rows.iter().zip(&covered).map(part).collect());
        }
        let calls = rows.iter().map(|row| Some(Value::Count(estimated(row).into())));
        let covered = covered.into_iter().map(|part| part.map(Value::Number));
        let all: [(&str, Vec<_>); 2] =
            [("estimated_calls", calls.collect()), ("covered", covered.collect())];
        columns.extend(
            all.map(|(what, cells)| {
                Column::for_programs(&format!("{}_{what}", counter.name), cells)
            }),
        );
    }
}

/// Of a counter, for each row the part that an empty call reads where that is more than half.
fn mostly_empty(rows: &[Row], counter: usize) -> Vec<Option<f64>> {
    let share = |row: &Row| row.counters.get(counter).copied().flatten()?.empty_share();
    rows.iter().map(|row| share(row).filter(|share| *share > MOSTLY_EMPTY)).collect()
}

fn total(unit: Unit, counter: CounterTotal) -> Value {
    match unit {
        Unit::Nanoseconds => Value::Ns(counter.total as f64),
        Unit::Bytes => Value::Bytes(counter.total as f64),
        _ => Value::Count(counter.total),
    }
}

fn mean(unit: Unit, counter: CounterTotal) -> Value {
    match unit {
        Unit::Nanoseconds => Value::Ns(counter.mean()),
        Unit::Bytes => Value::Bytes(counter.mean()),
        _ => Value::Number(counter.mean()),
    }
}

/// The columns that say what a row stands for: the first one is its name.
fn names(profile: &Profile, rows: &[Row], by: RowKind) -> Vec<Column> {
    let labels = labels(profile, &rows.iter().map(|row| row.key).collect::<Vec<_>>());
    let text = |name: &str, title: &str, csv_only, cells: Vec<Option<String>>| {
        let rank = if name == SOURCE { 9 } else { 0 };
        let cells = cells.into_iter().map(|cell| cell.map(Value::Text)).collect();
        Column { csv_only, ..Column::new(rank, name, title, cells) }
    };
    let mut columns =
        vec![text(by.name(), by.name(), false, labels.into_iter().map(Some).collect())];
    if by == RowKind::Op {
        let ops = || rows.iter().map(|row| op_of(profile, row.key));
        let library = ops().map(|op| op.map(|op| op.library.clone())).collect();
        columns.push(text("library", "library", true, library));
        let source: Vec<Option<String>> = ops().map(|op| op.and_then(Op::source)).collect();
        // One place for all is said below the table.
        let hidden = source.iter().all(Option::is_none) || source::one_for_all(&source).is_some();
        columns.push(text(SOURCE, SOURCE, hidden, source));
        if has_roles(profile) {
            let of = |what: fn(&Op) -> &str| -> Vec<Option<String>> {
                ops().map(|op| op.map(|op| what(op).to_owned())).collect()
            };
            columns.push(text("role", "role", true, of(|op| op.role.name())));
            columns.push(text("arguments", "arguments", true, of(|op| &op.arguments)));
            columns.push(text("device", "device", true, of(|op| &op.device)));
        }
    }
    columns
}

/// The op of a row, if it stands for one with known metadata.
pub fn op_of(profile: &Profile, key: Key) -> Option<&Op> {
    match key {
        Key::Op(id) => profile.ops.get(id),
        _ => None,
    }
}

/// What each row is called. Different ops of one name get their arguments, the library's name, and
/// if that does not tell them apart, their number.
pub fn labels(profile: &Profile, keys: &[Key]) -> Vec<String> {
    let mut labels: Vec<String> = keys.iter().map(|key| label(profile, *key)).collect();
    for attempt in 0..3 {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut arguments: HashMap<String, HashSet<&str>> = HashMap::new();
        for (key, label) in keys.iter().zip(&labels) {
            *seen.entry(label.clone()).or_default() += 1;
            let of_op = op_of(profile, *key).map(|op| op.arguments.as_str());
            arguments.entry(label.clone()).or_default().extend(of_op);
        }
        for (key, label) in keys.iter().zip(&mut labels).filter(|(_, l)| seen[l.as_str()] > 1) {
            let op = op_of(profile, *key);
            let differ = arguments[label.as_str()].len() > 1;
            match (attempt, *key) {
                // What tells them apart best, if it does.
                (0, Key::Op(_)) if differ => {
                    label.push_str(&format!(" ({})", op.map_or("", |op| &op.arguments)));
                }
                (1, Key::Op(_)) => {
                    label.push_str(&format!(" [{}]", op.map_or("", |op| op.library.as_str())));
                }
                (2, Key::Op(id)) => label.push_str(&format!(" #{id}")),
                _ => {}
            }
        }
    }
    labels
}

/// The name of an op, and what its calls are if that is not what the name says.
fn op_label(op: &Op) -> String {
    match op.role {
        Role::Workgroup | Role::Op => op.name.clone(),
        Role::Span => format!("{} (async span)", op.name),
        Role::Bookkeeping => format!("{} (profiler's own)", op.name),
        role => format!("{} ({})", op.name, role.name()),
    }
}

/// Whether calls of this row are on no thread: asynchronous spans, a profiler's book-keeping.
pub fn is_apart(profile: &Profile, key: Key) -> bool {
    op_of(profile, key).is_some_and(|op| op.role.is_apart())
}

/// Whether calls of this profile are anything else than workgroups.
pub fn has_roles(profile: &Profile) -> bool {
    profile.ops.all().iter().any(|op| op.role != Role::Workgroup)
}

fn label(profile: &Profile, key: Key) -> String {
    match key {
        Key::Op(id) => profile.ops.get(id).map_or_else(|| format!("op {id}"), op_label),
        Key::Unknown(process, export) => match profile.processes.as_slice() {
            [_] => unknown_op(export),
            all => format!("{} of process {}", unknown_op(export), all[process].id.pid),
        },
        Key::Cpu(cpu, node) => {
            if node == 0 {
                format!("cpu {cpu}")
            } else {
                format!("cpu {cpu} (node {node})")
            }
        }
        Key::Process(process) => process_label(profile, process),
        Key::Thread(process, thread) => thread_label(profile, process, thread),
    }
}

/// `4711 iree-run-module`.
pub fn process_label(profile: &Profile, process: usize) -> String {
    let Some(process) = profile.processes.get(process) else { return String::new() };
    let program = process.info.as_ref().map_or("", |info| info.program.as_str());
    let program = program.rsplit('/').next().unwrap_or_default();
    let again = match process.id.generation {
        0 => String::new(),
        n => format!(" (exec {n})"),
    };
    format!("{} {program}{again}", process.id.pid).trim_end().to_owned()
}

/// `iree-worker-0 (4712)`.
pub fn thread_label(profile: &Profile, process: usize, thread: usize) -> String {
    let process = profile.processes.get(process);
    let Some(thread) = process.and_then(|p| p.threads.get(thread)) else { return String::new() };
    format!("{} ({})", visible(&thread.name), thread.tid)
}
