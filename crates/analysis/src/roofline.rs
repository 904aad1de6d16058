//! Compares ops with the roofs of their machine (roofline model): how fast they worked, and how
//! fast they could have worked.
//!
//! A call that does `flop` operations and moves `bytes` bytes takes at least
//!
//! ```text
//!  least = max(flop / peak, bytes / bandwidth)
//! ```
//!
//! where *peak* and *bandwidth* are the highest rates of as many cores as there were threads
//! working on the call. *Bandwidth* is the rate of the nearest level of memory that has room for
//! all bytes of the call. An op is *compute* bound if the first term is larger, and *memory* bound
//! otherwise. `least / duration` is the part of the roof that the op reaches. In the usual plot of
//! operations per second over operations per byte, this part is the op's height divided by the
//! height of the roof above the op.

use std::collections::{BTreeMap, HashSet};

use model::Unit;
use model::metric::{Bound, Operand};
use profile::{Op, Profile, Role};

use crate::ops::{OpFilter, OpRowKind, OpTable, OpTrees};
use crate::sites::sites;
use crate::summary::{Summary, is_contradicted};
use crate::table::Key;
use crate::torch::ShapeRow;
use crate::work::{Number, Rules, Work};

/// The roofs of a machine: its highest measured rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roofs {
    /// Number of cores that worked at the same time when all cores were measured together.
    pub cores: u32,
    /// The highest numbers of operations per second, by kind of number and number of cores.
    pub peaks: Vec<Peak>,
    /// The highest numbers of bytes per second, by level of memory and number of cores.
    pub bandwidths: Vec<Bandwidth>,
    /// Caches, from the nearest to the farthest.
    pub caches: Vec<Cache>,
}

/// The highest number of operations per second that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Bits of the floating-point numbers.
    pub number: u32,
    /// Number of cores that did the operations.
    pub cores: u32,
    /// Operations per second of all these cores together.
    pub rate: f64,
}

/// The highest number of bytes per second that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    pub level: Level,
    /// Number of cores that moved the bytes.
    pub cores: u32,
    /// Bytes per second of all these cores together.
    pub rate: f64,
}

/// A level of memory: the number of a level of caches, or `None` for main memory.
pub type Level = Option<u32>;

/// A level of caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cache {
    pub level: u32,
    pub bytes: f64,
    /// Number of cores that share a cache of this level.
    pub shared_by: u32,
    pub instances: u32,
}

/// Returns the highest rate of `threads` threads on a machine with `cores` cores. With fewer
/// threads than cores, this is the rate of one core times the number of threads, but at most the
/// rate of all cores if that is known. Otherwise, it is the higher of the rates of all cores and of
/// one core or, if all cores were not measured, the rate of one core times the number of cores.
fn of_cores(values: impl Iterator<Item = (u32, f64)>, threads: u32, cores: u32) -> Option<f64> {
    let (mut one, mut all) = (None, None);
    for (of, rate) in values.filter(|(_, rate)| *rate > 0.0) {
        let place = if of <= 1 { &mut one } else { &mut all };
        *place = Some(place.map_or(rate, |known: f64| known.max(rate)));
    }
    match (one, all) {
        (one, Some(all)) if threads >= cores => Some(one.map_or(all, |one: f64| one.max(all))),
        (Some(one), all) => {
            Some((one * f64::from(threads.min(cores).max(1))).min(all.unwrap_or(f64::MAX)))
        }
        (None, _) => None,
    }
}

impl Roofs {
    /// Returns the highest number of operations per second for this kind of numbers and this many
    /// threads. `None` for integers, and if the measured rates do not suffice.
    pub fn peak(&self, number: Number, threads: u32) -> Option<f64> {
        let of = self.peaks.iter().filter(|peak| number.is_float && peak.number == number.bits);
        of_cores(of.map(|peak| (peak.cores, peak.rate)), threads, self.cores)
    }

    /// Returns the highest number of bytes per second for this level of memory and this many
    /// threads. `None` if the measured rates do not suffice.
    pub fn bandwidth(&self, level: Level, threads: u32) -> Option<f64> {
        let of = self.bandwidths.iter().filter(|bandwidth| bandwidth.level == level);
        of_cores(of.map(|bandwidth| (bandwidth.cores, bandwidth.rate)), threads, self.cores)
    }

    /// Returns the nearest cache level, of those with a measured bandwidth, that has room for
    /// `bytes` in the caches that `threads` threads use. `None` (main memory) if there is no such
    /// level.
    pub fn level(&self, bytes: f64, threads: u32) -> Level {
        let holds = |cache: &&Cache| {
            let used = threads.min(self.cores).max(1).div_ceil(cache.shared_by.max(1));
            bytes <= cache.bytes * f64::from(used.min(cache.instances.max(1)))
                && self.bandwidth(Some(cache.level), threads).is_some()
        };
        self.caches.iter().find(holds).map(|cache| cache.level)
    }
}

model::named! {
    /// What limits an op.
    pub enum Holds {
        /// Moving the op's bytes takes at least as long as its operations.
        Memory = "memory",
        /// The op's operations take longer than moving its bytes.
        Compute = "compute",
    }
}

/// The roof above an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roof {
    /// What limits the op.
    pub holds: Holds,
    /// The nearest level of memory that has room for the op's bytes. If memory limits the op, the
    /// roof is the bandwidth of this level.
    pub level: Level,
    /// The shortest possible time of one call, in ns.
    pub least_ns: f64,
    /// `least_ns` as a part of the time of a call. More than 1 means that the op is faster than the
    /// measured roofs allow, or that the rule for the op's work is wrong.
    pub part: f64,
}

/// A row of [`roofline`]: an op, or a function of IREE with all its dispatches, with its work and
/// its roof.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The op's name.
    pub name: String,
    /// The op's arguments, as far as they were recorded.
    pub arguments: String,
    /// Number of the function's dispatches, or of the op's calls that are not inside another call
    /// of the same op.
    pub calls: u64,
    pub dispatches: Option<u64>,
    /// The time of all these calls, in ns. The time of a dispatch is from the start of its first
    /// workgroup to the end of its last one.
    pub ns: f64,
    /// The mean number of threads that worked on a call or could work on a dispatch, rounded.
    pub threads: u32,
    pub work: Work,
    /// The roof above the op or function. `None` if the row's work or the rates of the machine are
    /// not known.
    pub roof: Option<Roof>,
}

/// The operands that metrics of a [`Placed`] can use: its operations and its bytes.
pub const WORK_COUNTERS: [Operand<'static>; 2] = [
    Operand { name: "flop", unit: Unit::Count, scale: 1.0, group: 0 },
    Operand { name: "bytes", unit: Unit::Bytes, scale: 1.0, group: 0 },
];

impl Placed {
    fn per_second(&self, each: Option<f64>) -> Option<f64> {
        let rate = each? * self.calls as f64 * 1e9 / self.ns;
        rate.is_finite().then_some(rate)
    }

    /// Returns the operations per second.
    pub fn flop_rate(&self) -> Option<f64> {
        self.per_second(self.work.flop)
    }

    /// Returns the bytes per second.
    pub fn byte_rate(&self) -> Option<f64> {
        self.per_second(self.work.bytes)
    }

    /// Returns the operations per byte.
    pub fn intensity(&self) -> Option<f64> {
        let intensity = self.work.flop? / self.work.bytes?;
        intensity.is_finite().then_some(intensity)
    }

    /// Returns the value of a metric that is bound to [`WORK_COUNTERS`]. `None` if the metric uses
    /// work that is not known, or if its value is not defined (such as 0 / 0).
    pub fn metric(&self, metric: &Bound) -> Option<f64> {
        let calls = self.calls as f64;
        let sums = [self.work.flop, self.work.bytes].map(|each| each.map(|each| each * calls));
        let of = |at: &usize| sums.get(*at).copied().flatten();
        let values: Vec<f64> = metric.counters.iter().map(of).collect::<Option<_>>()?;
        metric.value_of(calls, self.dispatches.map(|n| n as f64), self.ns, &values)
    }

    fn place(&mut self, roofs: &Roofs) {
        let each = self.ns / self.calls.max(1) as f64;
        if each > 0.0 {
            self.roof = roof(&self.work, self.threads, each, roofs);
        }
    }
}

/// Returns the roof for a call with this work that took `ns`.
pub fn roof(work: &Work, threads: u32, ns: f64, roofs: &Roofs) -> Option<Roof> {
    let bytes = work.bytes?;
    let level = roofs.level(bytes, threads);
    let moving = bytes / roofs.bandwidth(level, threads)? * 1e9;
    let computing = match work.flop {
        Some(flop) if flop > 0.0 => flop / roofs.peak(work.number?, threads)? * 1e9,
        _ => 0.0,
    };
    let holds = if computing > moving { Holds::Compute } else { Holds::Memory };
    let least_ns = computing.max(moving);
    let part = least_ns / ns;
    part.is_finite().then_some(Roof { holds, level, least_ns, part })
}

/// Returns rows for the functions of IREE and the ops whose work is known, the most time first.
/// `recorded` contains ops from recordings of PyTorch's profiler. These ops are used if `profile`
/// has no op whose work is known from its arguments. Without `roofs`, no row has a roof.
pub fn roofline(
    profile: &Profile,
    rules: &Rules,
    roofs: Option<&Roofs>,
    recorded: &[ShapeRow],
) -> Vec<Placed> {
    let mut rows = dispatches(profile, rules);
    let ops = ops(profile, rules);
    match ops.is_empty() {
        true => rows.extend(recorded.iter().filter_map(of_recording)),
        false => rows.extend(ops),
    }
    if let Some(roofs) = roofs {
        rows.iter_mut().for_each(|row| row.place(roofs));
    }
    let key = |row: &Placed| (row.name.clone(), row.arguments.clone());
    rows.sort_by(|a, b| b.ns.total_cmp(&a.ns).then_with(|| key(a).cmp(&key(b))));
    rows
}

/// The ops that no row of [`roofline`] includes.
#[derive(Clone, Debug, PartialEq)]
pub struct Unplaced {
    /// The part of all self times that these ops take, from 0 to 1.
    pub share: f64,
    /// The ops, as [`Key::Op`] or [`Key::Unknown`], the most time first.
    pub ops: Vec<Key>,
}

/// Returns the ops of `summary` that have no row in `placed`. The rows of `summary` must be ops.
/// `None` if the ops without a row have no self time.
pub fn unplaced(profile: &Profile, summary: &Summary, placed: &[Placed]) -> Option<Unplaced> {
    let known: HashSet<&str> = placed.iter().map(|row| row.name.as_str()).collect();
    let is_known = |key: Key| match key {
        Key::Op(op) => profile.ops.get(op).is_some_and(|op| known.contains(&*op.name)),
        _ => false,
    };
    let rows = summary.rows.iter().filter(|row| !row.key.is_apart(profile));
    let all: f64 = rows.clone().map(|row| row.own.value).sum();
    let mut without: Vec<(f64, Key)> = rows
        .filter(|row| !is_known(row.key))
        .map(|row| (row.own.value, row.key))
        .filter(|(own, _)| *own > 0.0)
        .collect();
    without.sort_by(|a, b| b.0.total_cmp(&a.0));
    let own: f64 = without.iter().map(|(own, _)| own).sum();
    let share = own / all;
    let ops = without.into_iter().map(|(_, key)| key).collect();
    (share > 0.0).then_some(Unplaced { share, ops })
}

/// Returns a row for each function of IREE whose dispatches do a known amount of work.
fn dispatches(profile: &Profile, rules: &Rules) -> Vec<Placed> {
    #[derive(Default)]
    struct Sum {
        dispatches: u64,
        workgroups: u64,
        wall: f64,
        /// Sum over the sites: wall time times the number of threads that could have worked.
        room: f64,
    }
    // The names of most functions do not show their work. If no name does, the calls need not be
    // read.
    let is_known = |op: &Op| op.role == Role::Workgroup && rules.of(&op.name, "").is_some();
    if !profile.ops.all().iter().any(is_known) {
        return Vec::new();
    }
    let Some(found) = sites(profile, false) else { return Vec::new() };
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for site in &found.rows {
        let Some(op) = profile.ops.get(site.op) else { continue };
        let sum = sums.entry(&op.name).or_default();
        sum.dispatches += site.dispatches;
        sum.workgroups += site.workgroups;
        sum.wall += site.wall;
        sum.room += if site.efficiency > 0.0 { site.sum / site.efficiency } else { site.wall };
    }
    let placed = |(name, sum): (&str, Sum)| {
        let work = rules.of(name, "")?;
        let could = (sum.room / sum.wall).round().max(1.0);
        let workgroups = (sum.workgroups as f64 / sum.dispatches.max(1) as f64).ceil().max(1.0);
        Some(Placed {
            name: name.to_owned(),
            arguments: String::new(),
            calls: sum.dispatches,
            dispatches: Some(sum.dispatches),
            ns: sum.wall * profile.timeline.ns_per_tick(),
            threads: could.min(workgroups) as u32,
            work,
            roof: None,
        })
    };
    sums.into_iter().filter(|(_, sum)| sum.wall > 0.0).filter_map(placed).collect()
}

fn ops(profile: &Profile, rules: &Rules) -> Vec<Placed> {
    // With a budget, the time of calls that were only counted is not known, so no op gets a row.
    if profile.is_sampled() || !profile.ops.all().iter().any(|op| op.role == Role::Op) {
        return Vec::new();
    }
    let trees = OpTrees::new(profile, is_contradicted(profile));
    let table = OpTable::new(&trees, &OpFilter::default(), true, false);
    #[derive(Default)]
    struct Sum {
        calls: u64,
        ticks: f64,
        regions: u64,
        tasks: u64,
    }
    let mut sums: BTreeMap<(&str, &str), Sum> = BTreeMap::new();
    for row in &table.rows {
        let OpRowKind::Op { name, arguments, asynchronous: false, range: false, .. } = &row.kind
        else {
            continue;
        };
        if !row.total.is_resolved() {
            continue;
        }
        let sum = sums.entry((name, arguments)).or_default();
        sum.calls += row.calls.saturating_sub(row.inner);
        sum.ticks += row.total.value;
        sum.regions += row.regions.regions - row.regions.incomplete;
        sum.tasks += row.regions.tasks;
    }
    let placed = |((name, arguments), sum): ((&str, &str), Sum)| {
        let work = rules.of(name, arguments)?;
        let threads = match sum.regions {
            0 => 1,
            regions => (sum.tasks as f64 / regions as f64).round().max(1.0) as u32,
        };
        Some(Placed {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            calls: sum.calls,
            dispatches: None,
            ns: sum.ticks * profile.timeline.ns_per_tick(),
            threads,
            work,
            roof: None,
        })
    };
    sums.into_iter()
        .filter(|(_, sum)| sum.calls > 0 && sum.ticks > 0.0)
        .filter_map(placed)
        .collect()
}

/// Converts an op from a recording of PyTorch's profiler. Such a recording does not contain the
/// type of the op's numbers.
fn of_recording(row: &ShapeRow) -> Option<Placed> {
    let flop = row.flops? as f64 / row.calls.max(1) as f64;
    (row.total_ns > 0).then(|| Placed {
        name: row.op.clone(),
        arguments: row.shapes.clone().unwrap_or_default(),
        calls: row.calls,
        dispatches: None,
        ns: row.total_ns as f64,
        threads: 1,
        work: Work { flop: Some(flop), bytes: None, number: None },
        roof: None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests, which may panic")]
mod tests {
    use super::*;

    /// One core has 100 GFLOP/s and 10 GB/s, and four cores have 400 and 20. Each core has a cache
    /// of 1 MB with 50 GB/s.
    fn paper() -> Roofs {
        let peak = |cores, rate| Peak { number: 32, cores, rate };
        let bandwidth = |level, cores, rate| Bandwidth { level, cores, rate };
        Roofs {
            cores: 4,
            peaks: vec![peak(1, 25e9), peak(1, 100e9), peak(4, 400e9)],
            bandwidths: vec![
                bandwidth(Some(2), 1, 50e9),
                bandwidth(Some(2), 4, 200e9),
                bandwidth(None, 1, 10e9),
                bandwidth(None, 4, 20e9),
            ],
            caches: vec![Cache { level: 2, bytes: 1e6, shared_by: 1, instances: 4 }],
        }
    }

    const F32: Number = Number { is_float: true, bits: 32 };

    #[test]
    fn roofs_of_some_cores() {
        let roofs = paper();
        assert_eq!(roofs.peak(F32, 1), Some(100e9));
        assert_eq!(roofs.peak(F32, 3), Some(300e9));
        assert_eq!(roofs.peak(F32, 9), Some(400e9), "more threads than cores");
        assert_eq!(roofs.peak(Number { is_float: true, bits: 64 }, 1), None, "not measured");
        assert_eq!(roofs.peak(Number { is_float: false, bits: 32 }, 1), None);
        assert_eq!(roofs.bandwidth(None, 3), Some(20e9), "not 30: all four have no more");
        assert_eq!(roofs.bandwidth(Some(1), 1), None);
        assert_eq!(roofs.level(1e6, 1), Some(2));
        assert_eq!(roofs.level(1.1e6, 1), None);
        assert_eq!(roofs.level(1.1e6, 2), Some(2), "in the caches of two cores");
    }

    #[test]
    fn roofs_on_paper() {
        let roofs = paper();
        let of = |flop, bytes, threads, ns| {
            let work = Work { flop, bytes, number: Some(F32) };
            roof(&work, threads, ns, &roofs)
        };
        // 1e9 operations take 10 ms at 100e9; 8e6 bytes take 0.8 ms at 10e9.
        let compute = of(Some(1e9), Some(8e6), 1, 20e6).unwrap();
        assert_eq!((compute.holds, compute.level), (Holds::Compute, None));
        assert_eq!((compute.least_ns, compute.part), (10e6, 0.5));
        // 1e6 operations take 10 µs, and moving 1e6 bytes from the cache takes 20 µs.
        let memory = of(Some(1e6), Some(1e6), 1, 80e3).unwrap();
        assert_eq!((memory.holds, memory.level), (Holds::Memory, Some(2)));
        assert_eq!((memory.least_ns, memory.part), (20e3, 0.25));
        // A copy does no operations.
        assert_eq!(of(None, Some(20e6), 4, 2e6).unwrap().part, 0.5);
        assert_eq!(of(Some(1e6), None, 1, 1e6), None);
        let doubles = Work { flop: Some(1.0), bytes: Some(1.0), number: None };
        assert_eq!(roof(&doubles, 1, 1.0, &roofs), None);
        assert_eq!(roof(&doubles, 1, 1.0, &Roofs::default()), None);
    }

    #[test]
    fn metrics_of_work() {
        let work = Work { flop: Some(2e6), bytes: Some(1e6), number: Some(F32) };
        let row = |dispatches, work| Placed {
            name: "x".into(),
            arguments: String::new(),
            calls: 10,
            dispatches,
            ns: 1e7,
            threads: 1,
            work,
            roof: None,
        };
        let value = |row: &Placed, text: &str| {
            let metric = model::Metric::parse(text).unwrap();
            row.metric(&metric.bind(&WORK_COUNTERS).unwrap())
        };
        // In 10 ms, the op does 20e6 operations.
        let known = row(Some(10), work);
        assert_eq!(value(&known, "rate = flop / duration in G/s"), Some(2.0));
        assert_eq!(value(&known, "rate = bytes / duration in GB/s"), Some(1.0));
        assert_eq!(value(&known, "each = flop / calls"), Some(2e6));
        assert_eq!(value(&known, "each = bytes / dispatches"), Some(1e6));
        assert_eq!(known.flop_rate(), Some(2e9));
        assert_eq!(known.intensity(), Some(2.0));
        let unknown = row(None, Work { bytes: None, ..work });
        assert_eq!(value(&unknown, "rate = bytes / duration in GB/s"), None);
        assert_eq!(value(&unknown, "each = flop / dispatches"), None);
        assert_eq!(unknown.intensity(), None);
    }
}
