//! Adds up calls by op, arguments and device, for the table of ops.

use std::collections::{BTreeMap, HashMap};

use profile::{OpId, Process, Profile, Role, ValueKey, ValueKind};

use super::{Amount, OpCall, OpFilter, OpTrees, OpVisitor, Region, RunCall, Serial, Task};
use crate::empty::{EmptyCall, together};
use crate::estimate::Estimate;
use crate::metrics::is_clock_of_threads;
use crate::probe::ProbeCost;
use crate::summary::costs_of;
use crate::table::compensate;

/// In rows of book-keeping calls, this is the device of calls without tensors.
const HOST: &str = "cpu0";

/// The calls, parts of runs, or regions that a row contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpRowKind {
    /// Calls of one op with these arguments on this device.
    Op {
        name: String,
        /// See [`profile::Op::arguments`].
        arguments: String,
        /// See [`profile::Op::device`].
        device: String,
        /// Whether the op is asynchronous, so that its durations are the time to launch it.
        asynchronous: bool,
        /// Whether the row is for a range that the program marked with a name.
        range: bool,
    },
    /// Book-keeping calls of one device.
    Bookkeeping {
        /// The common part of the calls' names: `vm.builtin.*`.
        names: String,
        /// The device; `cpu0` for calls without tensors.
        device: String,
    },
    /// The gaps between the ops of runs (calls of entry functions).
    Between,
    /// The time of runs before their first op and after the last one.
    Entry,
    /// Parallel regions outside of ops. This row has no self time.
    NoOp,
}

/// One row. A row of the table. Times are in ticks, without the recorder's time unless the trees
/// were read with `raw`.
#[derive(Clone, Debug)]
pub struct OpRow {
    /// What the row contains.
    pub kind: OpRowKind,
    /// The rank of the row's processes, if the table separates ranks and the processes have a rank.
    pub rank: Option<u32>,
    /// Whether the row's calls are outside of all runs.
    pub outside: bool,
    /// Number of calls of ops. In the rows `Between` and `Entry`, number of runs.
    pub calls: u64,
    /// Number of calls inside of other calls of the row. `calls` includes them.
    pub inner: u64,
    /// Sum of the durations of the row's calls, except calls inside of other calls of the row.
    pub total: Estimate,
    /// Self time.
    pub own: Estimate,
    /// For each counter, the sum of its counts on the threads that called the op, without the
    /// counts of ops inside. The counts of [`OpRowKind::Between`] are included in
    /// [`OpRowKind::Entry`].
    pub counters: Vec<CounterSum>,
    /// For each counter, the sum of its counts in the op's tasks on other threads.
    pub workers: Vec<CounterSum>,
    /// Number of calls with regions.
    pub with_regions: u64,
    /// Bytes of storage that were allocated. `None` if no call reported any.
    pub storage: Option<u128>,
    /// Bytes of workspace that were allocated. `None` if no call reported any.
    pub workspace: Option<u128>,
    /// The sums of the values of users' collectors, in the order of [`OpTable::values`].
    pub values: Vec<ValueSum>,
    /// The sums of the op's parallel regions.
    pub regions: RegionSum,
}

/// The sum of a counter over the calls that have a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterSum {
    /// Sum of the values.
    pub total: u128,
    pub calls: u64,
    /// What the recorder added to `total`, in the calls for which this is known.
    pub empty: Estimate,
    /// Number of calls for which it is known what the recorder added (`empty`).
    pub calibrated: u64,
}

impl CounterSum {
    /// Adds the value of a call. `empty` is what the recorder added to it, if that was calibrated.
    fn add(&mut self, value: Option<u64>, empty: Option<Estimate>) {
        let Some(value) = value else { return };
        self.total += u128::from(value);
        self.calls += 1;
        self.empty = together(self.empty, empty.unwrap_or_default());
        self.calibrated += u64::from(empty.is_some());
    }

    /// Returns the part of the sum that the recorder added, from 0 to 1. `None` if nothing was
    /// counted, or if it is not known for all calls what the recorder added.
    pub fn empty_share(&self) -> Option<f64> {
        let known = self.total > 0 && self.calibrated == self.calls;
        known.then(|| (self.empty.value / self.total as f64).clamp(0.0, 1.0))
    }

    /// Returns the sum without what the recorder added. If it is not known for all calls what the
    /// recorder added, nothing is subtracted.
    pub fn compensated(&self) -> Estimate {
        let empty = (self.calibrated == self.calls).then_some(self.empty);
        let rest = compensate(Estimate::exact(self.total as f64), empty);
        Estimate { value: rest.value.max(0.0), high: rest.high.max(0.0), ..rest }
    }
}

/// The value of a user's collector, added up over the calls that have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueSum {
    pub calls: u64,
    /// Sum of the values, if they are counts.
    pub count: i128,
    /// Sum of the values, if they are numbers other than counts.
    pub sum: f64,
    /// The text, if all calls have the same one.
    pub text: Option<String>,
}

/// Sums over the parallel regions of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionSum {
    pub regions: u64,
    /// Number of regions with missing tasks, which the sums of tasks below do not include.
    pub incomplete: u64,
    /// Sum of the durations of the regions, except regions inside of other ones.
    pub ticks: u128,
    pub tasks: u64,
    /// Sum, over the regions without missing tasks, of the duration of the longest task.
    pub longest_ticks: u128,
    /// Sum, over the regions without missing tasks, of the mean duration of a task.
    pub mean_ticks: f64,
    /// The largest imbalance of a region.
    pub worst: Option<f64>,
    /// Number of regions with tasks that ran one after the other on one thread.
    pub serial_threads: u64,
    /// For each CPU, number of regions with tasks that ran one after the other on this CPU although
    /// the region used enough threads.
    pub serial_cpus: BTreeMap<u32, u64>,
}

impl RegionSum {
    fn add(&mut self, region: &Region) {
        self.regions += 1;
        if !region.inner {
            self.ticks += u128::from(region.duration);
        }
        match region.serial {
            Some(Serial::Thread) => self.serial_threads += 1,
            Some(Serial::Cpu(cpu)) => *self.serial_cpus.entry(cpu).or_default() += 1,
            None => {}
        }
        if !region.is_whole() {
            self.incomplete += 1;
            return;
        }
        let durations = || region.tasks.iter().map(|task| task.duration);
        let sum: u128 = durations().map(u128::from).sum();
        self.tasks += region.tasks.len() as u64;
        self.longest_ticks += u128::from(durations().max().unwrap_or(0));
        self.mean_ticks += sum as f64 / region.tasks.len().max(1) as f64;
        self.worst = self.worst.into_iter().chain(region.imbalance).max_by(f64::total_cmp);
    }

    /// Returns `longest_ticks` divided by `mean_ticks`; `None` if `mean_ticks` is 0.
    pub fn imbalance(&self) -> Option<f64> {
        (self.mean_ticks > 0.0).then(|| self.longest_ticks as f64 / self.mean_ticks)
    }

    /// Returns the number of regions with tasks that ran one after the other although more could
    /// have run at once.
    pub fn serial(&self) -> u64 {
        self.serial_threads + self.serial_cpus.values().sum::<u64>()
    }
}

#[derive(Clone, Debug)]
pub struct OpTable {
    /// The rows, in no particular order.
    pub rows: Vec<OpRow>,
    /// Names and kinds of the values of users' collectors.
    pub values: Vec<(String, ValueKind)>,
    /// Number of runs that are not inside of another run.
    pub runs: u64,
    /// Number of runs that failed.
    pub failed: u64,
    /// For each op in which a run failed, by name: the number of runs that failed there.
    pub threw: BTreeMap<String, u64>,
    /// Number of calls of book-keeping ops for which no counter was read, although the profile has
    /// counters.
    pub uncounted: u64,
    /// Time of the runs that are not inside of another run. It equals the sum of the self times of
    /// all rows inside of runs.
    pub wall: Estimate,
    /// Self time of the ops that are not inside of a run.
    pub outside: Estimate,
    /// Number of calls of ops.
    pub ops: u64,
    /// Number of recorded runs, ops, regions and tasks in the trees that the filter selects.
    pub probe_calls: u64,
    /// The estimated cost of the probes (the recorder's work before and after a call) of the calls
    /// in `probe_calls`, without [`Self::way_ns`]. `None` if the cost of some of these calls is not
    /// known.
    pub probe_ns: Option<f64>,
    /// An estimate of the time that hosts (such as PyTorch) needed to call the recorder before and
    /// after each op; see [`crate::ProbeCost::way`]. `None` if it is known for no process.
    pub way_ns: Option<f64>,
    /// The cost of recording the calls of each process, including the calls that the filter leaves
    /// out.
    pub costs: Vec<ProbeCost>,
    /// The index in `rows` for calls of an op, by op, by rank, and by whether the calls are outside
    /// of all runs.
    places: HashMap<(OpId, Option<u32>, bool), usize>,
    /// Whether the ranks have separate rows.
    by_rank: bool,
}

fn rank_of(profile: &Profile, process: usize) -> Option<u32> {
    Some(profile.processes.get(process)?.job?.rank)
}

impl OpTable {
    /// Returns the sum of a counter over the calls of a row, without what the recorder added. If
    /// all calls have a value of a clock of processor time, its sum is limited to the row's time,
    /// because a thread is on a CPU for no longer than its calls take.
    pub fn counter(&self, profile: &Profile, row: &OpRow, counter: usize) -> Estimate {
        let Some(sum) = row.counters.get(counter) else { return Estimate::default() };
        let value = sum.compensated();
        if sum.calls != row.calls || !is_clock_of_threads(profile, counter) {
            return value;
        }
        let own = match row.kind {
            // The counters of the row `Entry` include the counters of the gaps between ops.
            OpRowKind::Entry => {
                let of_runs = |other: &&OpRow| {
                    other.kind == OpRowKind::Between
                        && (other.rank, other.outside) == (row.rank, row.outside)
                };
                let between = self.rows.iter().find(of_runs).map(|other| other.own);
                together(row.own, between.unwrap_or_default())
            }
            OpRowKind::NoOp => return value,
            _ => row.own,
        };
        value.at_most(own.times(profile.timeline.ns_per_tick()))
    }

    /// Returns the index of the row for calls of this op in the same rank, inside or outside of
    /// runs like this call. `None` if the filter left out all such calls.
    pub fn row_of(&self, profile: &Profile, op: &OpCall<'_>) -> Option<usize> {
        let rank = self.by_rank.then(|| rank_of(profile, op.process)).flatten();
        self.places.get(&(op.op, rank, op.run.is_none())).copied()
    }

    /// Adds up the trees that `filter` selects. With `fold`, all book-keeping calls of a device are
    /// in one row. With `by_rank`, each rank has rows of its own.
    pub fn new(trees: &OpTrees<'_>, filter: &OpFilter, fold: bool, by_rank: bool) -> Self {
        let profile = trees.profile;
        let costs = costs_of(profile);
        let processes = profile.processes.iter();
        let times_regions_only =
            processes.map(|process| process.seen_hosts().any(|host| host.times_regions_only));
        let mut empty = vec![None; profile.processes.len()];
        for cost in costs.iter().filter(|cost| cost.calls > 0) {
            empty[cost.process] = Some(&cost.empty_call);
        }
        let mut adder = Adder {
            profile,
            fold,
            counters: profile.groups.counters(),
            columns: value_columns(profile),
            by_kind: HashMap::new(),
            around: Vec::new(),
            inside: Vec::new(),
            calls: vec![0; profile.processes.len()],
            uncounted: vec![0; profile.processes.len()],
            silent: vec![0; profile.processes.len()],
            times_regions_only: times_regions_only.collect(),
            empty,
            table: Self {
                rows: Vec::new(),
                values: Vec::new(),
                runs: 0,
                failed: 0,
                threw: BTreeMap::new(),
                uncounted: 0,
                wall: Estimate::default(),
                outside: Estimate::default(),
                ops: 0,
                probe_calls: 0,
                probe_ns: Some(0.0),
                way_ns: None,
                costs: Vec::new(),
                places: HashMap::new(),
                by_rank,
            },
        };
        adder.table.values = adder.columns.0.clone();
        trees.visit(filter, &mut adder);
        let (mut table, calls, uncounted) = (adder.table, adder.calls, adder.uncounted);
        let silent = adder.silent;
        for (process, calls) in calls.into_iter().enumerate().filter(|(_, calls)| *calls > 0) {
            let cost = costs.iter().find(|cost| cost.process == process);
            let known = cost.filter(|cost| cost.calls == cost.of_calls);
            table.uncounted += uncounted[process];
            let timed = uncounted[process] + silent[process];
            // If the filter leaves out some calls, the cost is reduced in proportion. Profiles of
            // earlier versions have no calibration for calls that were timed without counters, so
            // the cost of these calls is not known.
            let ns = known.and_then(|cost| {
                let uncounted = if timed > 0 { cost.uncounted_call_ns? } else { 0.0 };
                let counted = cost.counted_call_ns() * (calls - timed) as f64;
                Some(counted + uncounted * timed as f64)
            });
            if let Some((cost, way)) = known.and_then(|cost| Some((cost, cost.way?))) {
                let part = calls as f64 / cost.calls.max(1) as f64;
                table.way_ns = Some(table.way_ns.unwrap_or(0.0) + way.value * part);
            }
            table.probe_ns = table.probe_ns.zip(ns).map(|(sum, ns)| sum + ns);
            table.probe_calls += calls;
        }
        table.costs = costs;
        table
    }
}

/// The columns for values of users' collectors, by name and kind. A value may have another key id
/// in each process.
type ValueColumns = (Vec<(String, ValueKind)>, HashMap<(usize, u32), usize>);

fn value_columns(profile: &Profile) -> ValueColumns {
    let mut names = Vec::new();
    let mut places = HashMap::new();
    for (index, process) in profile.processes.iter().enumerate() {
        for ValueKey { id, name, kind } in &process.value_keys {
            let known = names.iter().position(|known| *known == (name.clone(), *kind));
            let place = known.unwrap_or_else(|| {
                names.push((name.clone(), *kind));
                names.len() - 1
            });
            places.insert((index, *id), place);
        }
    }
    (names, places)
}

struct Adder<'a> {
    profile: &'a Profile,
    fold: bool,
    counters: usize,
    columns: ValueColumns,
    by_kind: HashMap<(OpRowKind, Option<u32>, bool), usize>,
    /// The rows of the op that was received last and of the ops around it, the outermost first.
    around: Vec<usize>,
    /// For each row, the number of its calls that are in `around`.
    inside: Vec<u32>,
    calls: Vec<u64>,
    /// For each process, the number of calls of book-keeping ops that were timed without counters.
    uncounted: Vec<u64>,
    /// For each process, the number of parallel regions and tasks that were timed without counters.
    silent: Vec<u64>,
    /// For each process, whether it has a host whose regions are timed without counters.
    times_regions_only: Vec<bool>,
    empty: Vec<Option<&'a EmptyCall>>,
    table: OpTable,
}

impl Adder<'_> {
    fn rank(&self, process: usize) -> Option<u32> {
        self.table.by_rank.then(|| rank_of(self.profile, process)).flatten()
    }

    fn row(&mut self, kind: OpRowKind, rank: Option<u32>, outside: bool) -> usize {
        let (rows, counters) = (&mut self.table.rows, self.counters);
        let values = self.columns.0.len();
        let by_kind = self.by_kind.entry((kind, rank, outside));
        *by_kind.or_insert_with_key(|(kind, rank, outside)| {
            rows.push(OpRow {
                kind: kind.clone(),
                rank: *rank,
                outside: *outside,
                calls: 0,
                inner: 0,
                total: Estimate::default(),
                own: Estimate::default(),
                counters: vec![CounterSum::default(); counters],
                workers: vec![CounterSum::default(); counters],
                with_regions: 0,
                storage: None,
                workspace: None,
                values: vec![ValueSum::default(); values],
                regions: RegionSum::default(),
            });
            rows.len() - 1
        })
    }

    fn row_of_op(&mut self, op: OpId, rank: Option<u32>, outside: bool) -> usize {
        if let Some(row) = self.table.places.get(&(op, rank, outside)) {
            return *row;
        }
        let found = self.profile.ops.get(op).cloned().unwrap_or_default();
        let kind = match self.fold && found.bookkeeping {
            true => OpRowKind::Bookkeeping {
                names: format!("{}*", self.profile.ops.host_of(&found).bookkeeping),
                device: match found.device.as_str() {
                    "" => HOST.to_owned(),
                    device => device.to_owned(),
                },
            },
            false => OpRowKind::Op {
                name: found.shown_name().to_owned(),
                arguments: found.arguments,
                device: found.device,
                asynchronous: found.asynchronous,
                range: found.role == Role::Range,
            },
        };
        let row = self.row(kind, rank, outside);
        self.table.places.insert((op, rank, outside), row);
        row
    }

    /// Returns what the recorder added to a call's own counts, which exclude those of the `inside`
    /// calls directly inside of it. This is the count of an empty call, plus a count for each inner
    /// call. The latter comes from the part of the recorder's work that is outside of the inner
    /// call's own readings.
    fn empty(&self, process: usize, counter: usize, inside: u32) -> Option<Estimate> {
        let empty = self.empty.get(process).copied().flatten()?;
        let own = empty.counters.get(counter).copied().flatten().map(|bracket| bracket.mean)?;
        let outside = empty.outside(self.profile, counter)?;
        Some(together(own, outside.times(inside.into())))
    }

    fn count(&mut self, row: usize, process: usize, values: &[Option<u64>], inside: u32) {
        for (counter, value) in values.iter().enumerate() {
            let empty = self.empty(process, counter, inside);
            if let Some(sum) = self.table.rows[row].counters.get_mut(counter) {
                sum.add(*value, empty);
            }
        }
    }

    fn regions(&mut self, row: usize, process: usize, regions: &[Region]) {
        for region in regions {
            self.calls[process] += 1 + region.tasks.len() as u64;
            // For some hosts, regions have no counters, and neither has the task on the thread that
            // launched the region. The counts of such regions and tasks are part of the op's
            // counts.
            if self.counters > 0 && self.times_regions_only[process] {
                let silent = |task: &&Task| task.counters.iter().all(Option::is_none);
                self.silent[process] += 1 + region.tasks.iter().filter(silent).count() as u64;
            }
            self.table.rows[row].regions.add(region);
        }
    }
}

fn add(sum: &mut Estimate, time: Amount) {
    let Amount { ticks, taken } = time;
    let (low, high) = (ticks + taken.value - taken.high, ticks + taken.value - taken.low);
    *sum = together(*sum, Estimate { value: ticks, low, high });
}

impl OpVisitor for Adder<'_> {
    fn run(&mut self, run: &RunCall<'_>) {
        self.calls[run.process] += 1;
        self.table.failed += u64::from(run.failed);
        if let Some(op) = run.failed_op.and_then(|op| self.profile.ops.get(op)) {
            *self.table.threw.entry(op.name.clone()).or_default() += 1;
        }
        if run.parent.is_none() {
            self.table.runs += 1;
            add(&mut self.table.wall, run.time);
        }
        for (kind, time) in
            [(OpRowKind::Between, run.between_time), (OpRowKind::Entry, run.own_time)]
        {
            let counts = kind == OpRowKind::Entry;
            let at = self.row(kind, self.rank(run.process), false);
            let row = &mut self.table.rows[at];
            row.calls += 1;
            add(&mut row.total, time);
            add(&mut row.own, time);
            if counts {
                self.count(at, run.process, run.own_counters, run.read_inside);
            }
        }
        if !run.regions.is_empty() {
            let row = self.row(OpRowKind::NoOp, self.rank(run.process), false);
            self.regions(row, run.process, run.regions);
        }
    }

    fn op(&mut self, op: &OpCall<'_>) {
        self.calls[op.process] += 1;
        self.table.ops += 1;
        let outside = op.run.is_none();
        let at = self.row_of_op(op.op, self.rank(op.process), outside);
        for left in self.around.drain((op.depth as usize).min(self.around.len())..) {
            self.inside[left] -= 1;
        }
        self.inside.resize(self.table.rows.len(), 0);
        let again = self.inside[at] > 0;
        self.inside[at] += 1;
        self.around.push(at);
        self.regions(at, op.process, op.regions);
        if outside {
            add(&mut self.table.outside, op.own_time);
        }
        let bookkeeping = || self.profile.ops.get(op.op).is_some_and(|op| op.bookkeeping);
        if self.counters > 0 && op.counters.iter().all(Option::is_none) && bookkeeping() {
            self.uncounted[op.process] += 1;
        }
        let row = &mut self.table.rows[at];
        row.calls += 1;
        row.inner += u64::from(again);
        if !again {
            add(&mut row.total, op.time);
        }
        add(&mut row.own, op.own_time);
        row.workers.iter_mut().zip(op.workers).for_each(|(sum, value)| sum.add(*value, None));
        row.with_regions += u64::from(!op.regions.is_empty());
        for (sum, value) in [(&mut row.storage, op.storage), (&mut row.workspace, op.workspace)] {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0) + u128::from(value));
            }
        }
        self.count(at, op.process, op.self_counters, op.read_inside);
        let process = self.profile.processes.get(op.process);
        let row = &mut self.table.rows[at];
        for (key, bits) in op.values {
            if let Some(place) = self.columns.1.get(&(op.process, *key)) {
                row.values[*place].add(self.columns.0[*place].1, *bits, process);
            }
        }
    }

    fn region(&mut self, process: usize, _: usize, region: &Region) {
        let row = self.row(OpRowKind::NoOp, self.rank(process), true);
        self.regions(row, process, std::slice::from_ref(region));
    }
}

impl ValueSum {
    fn add(&mut self, kind: ValueKind, bits: u64, process: Option<&Process>) {
        match kind {
            ValueKind::Count => self.count += i128::from(bits as i64),
            ValueKind::Duration | ValueKind::Percent | ValueKind::Ratio => {
                let value = f64::from_bits(bits);
                // JSON cannot represent a value that is not finite, so such a value is left out.
                if !value.is_finite() {
                    return;
                }
                self.sum += value;
            }
            ValueKind::Text => {
                let text = u32::try_from(bits).ok().and_then(|id| process?.texts.get(&id).cloned());
                if self.calls == 0 {
                    self.text = text;
                } else if self.text != text {
                    self.text = None;
                }
            }
        }
        self.calls += 1;
    }
}
