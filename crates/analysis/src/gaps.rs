//! Adds up the gaps between the calls of a thread. For each pair of ops whose calls follow one
//! another, computes the number of gaps between these calls, and their length.
//!
//! ```text
//!  a thread   ├─ a ─┤      ├──── b ────┤   ├─ a ─┤      ├──── b ────┤            ┊ last moment
//!                             ├ c ┤
//!                    a ─ b               b ─ a    a ─ b               b ─ (end)
//! ```
//!
//! A gap is a part of a thread's life in which no call of the thread was running. The gaps of a
//! thread, plus the time that the recorder added to the calls' durations, are the time that a
//! report calls *between*. Times are as recorded, so the recorder's own time between calls is part
//! of the gaps.
//!
//! Workers read pages (blocks of recorded calls) in any order. A cluster is a page with nested
//! calls, or several pages that overlap in time. For each cluster, and for each page that is not in
//! a cluster, the worker adds up the gaps inside, and stores the first and the last call. The gaps
//! between these pages and clusters are added when all pages have been read. Memory: 48 bytes for
//! each page or cluster, and some 200 bytes for each pair of ops that follow one another on a
//! thread (at most `MOST_PAIRS` for each worker). In addition, the lengths of a pair's gaps take up
//! to 512 bytes if there are at most `FEW` gaps. With more gaps, they take 512 bytes for each
//! doubling between the shortest and the longest gap.

mod levels;

use std::collections::{BTreeMap, HashMap};

use profile::{Columns, Profile};

pub use self::levels::Level;
pub(crate) use self::levels::{Ended, LevelSums};
use crate::amounts::Brackets;
use crate::exact::Histogram;
use crate::table::{Key, devices};
use crate::threads::{ThreadTime, threads_of_program};

/// Each worker keeps separate sums for at most this many pairs of ops. Further pairs of a thread
/// share one row.
const MOST_PAIRS: usize = 100_000;

/// At most this many lengths of a pair's gaps are stored one by one. If a pair has more gaps, all
/// lengths are counted in a histogram.
const FEW: usize = 64;

/// What was directly before or after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// A call of this op: [`Key::Op`] or [`Key::Unknown`].
    Op(Key),
    /// The last known moment of the thread, after its last call.
    End,
    /// Any op. Both sides of a row have this value if the row adds up a thread's gaps beyond the
    /// limit of `MOST_PAIRS` pairs of ops.
    Any,
}

/// All gaps of one thread with the same sides before and after them. Times are in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Process index and thread index.
    pub thread: (usize, usize),
    /// The op of the call that ended last before the gap.
    pub after: Side,
    /// The op of the call that began next after the gap, or [`Side::End`].
    pub before: Side,
    /// Number of gaps.
    pub times: u64,
    /// The sum of the gaps' lengths.
    pub total: u64,
    /// The median of the gaps. For more than 64 gaps, its relative error is at most 1/128.
    pub median: f64,
    pub longest: u64,
    /// The start of the longest gap.
    pub longest_at: u64,
}

/// The gaps of all threads of the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gaps {
    /// The rows, one per thread and pair of ops, the longest sum first.
    pub rows: Vec<Gap>,
    /// The time in ns in which threads were in no call, added up over all threads. It is the sum of
    /// the rows, plus `recorder_ns`.
    pub between_ns: f64,
    /// The part of the durations of calls that the recorder added, in ns.
    pub recorder_ns: f64,
    /// The sum over all threads of the time from the first call to the last known moment, in ns.
    pub wall_ns: f64,
    /// The times between the calls of each level of nesting, for threads that have calls inside of
    /// calls. Empty if not requested.
    pub levels: Vec<Level>,
    /// For each thread with calls, its time in calls and its wall time, in ns.
    lives: HashMap<(usize, usize), (f64, f64)>,
    ns_per_tick: f64,
}

impl Gaps {
    /// Returns the sum of a row's gaps, in ns.
    pub fn total_ns(&self, row: &Gap) -> f64 {
        row.total as f64 * self.ns_per_tick
    }

    /// Returns the mean of a row's gaps, in ns.
    pub fn mean_ns(&self, row: &Gap) -> f64 {
        self.total_ns(row) / row.times as f64
    }

    /// Returns the median of a row's gaps, in ns.
    pub fn p50_ns(&self, row: &Gap) -> f64 {
        row.median * self.ns_per_tick
    }

    /// Returns the longest of a row's gaps, in ns.
    pub fn max_ns(&self, row: &Gap) -> f64 {
        row.longest as f64 * self.ns_per_tick
    }

    /// Returns the sum of the gaps directly after and directly before the calls of an op, in ns.
    pub fn around_ns(&self, op: Key) -> f64 {
        let is_beside = |row: &&Gap| [row.after, row.before].contains(&Side::Op(op));
        self.rows.iter().filter(is_beside).map(|row| self.total_ns(row)).sum()
    }

    /// Returns a row's part of all time between calls, from 0 to 1.
    pub fn share(&self, row: &Gap) -> Option<f64> {
        self.part(self.total_ns(row))
    }

    /// Returns the part of all time between calls that the recorder added, from 0 to 1.
    pub fn recorder_share(&self) -> Option<f64> {
        self.part(self.recorder_ns)
    }

    /// Returns the part of the threads' wall time in which they were in no call; 0 without any wall
    /// time.
    pub fn part_of_wall(&self) -> f64 {
        if self.wall_ns > 0.0 { self.between_ns / self.wall_ns } else { 0.0 }
    }

    /// Returns the time between calls of each thread that has gaps. The thread with the most time
    /// in calls is first. The other threads follow, sorted by the sum of their gaps, the longest
    /// sum first.
    pub fn of_threads(&self) -> Vec<OfThread<'_>> {
        let mut threads: HashMap<(usize, usize), (u64, &Gap)> = HashMap::new();
        for row in &self.rows {
            let (sum, _) = threads.entry(row.thread).or_insert((0, row));
            *sum = sum.saturating_add(row.total);
        }
        let mut threads: Vec<_> = threads.into_values().collect();
        threads.sort_by_key(|(sum, most)| (std::cmp::Reverse(*sum), most.thread));
        let life = |most: &Gap| self.lives.get(&most.thread).copied().unwrap_or_default();
        let in_calls = |(_, most): &(u64, &Gap)| life(most).0;
        // `max_by` chooses the last of several equal threads. With `rev`, that is the first one in
        // the list.
        let busiest = (0..threads.len())
            .rev()
            .max_by(|a, b| in_calls(&threads[*a]).total_cmp(&in_calls(&threads[*b])));
        if let Some(busiest) = busiest {
            threads[..=busiest].rotate_right(1);
        }
        // The time that the recorder added to calls counts as time between calls.
        let of = |(sum, most): (u64, _)| {
            let (in_calls, wall_ns) = life(most);
            let gaps_ns = sum as f64 * self.ns_per_tick;
            let is_known = wall_ns > 0.0;
            let total_ns = if is_known { (wall_ns - in_calls).max(0.0) } else { gaps_ns };
            OfThread { total_ns, wall_ns, most }
        };
        threads.into_iter().map(of).collect()
    }

    fn part(&self, ns: f64) -> Option<f64> {
        (self.between_ns > 0.0).then(|| (ns / self.between_ns).clamp(0.0, 1.0))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct OfThread<'a> {
    /// The sum of the thread's gaps, plus the time that the recorder added to its calls, in ns.
    pub total_ns: f64,
    /// The time from the thread's first call to its last known moment, in ns.
    pub wall_ns: f64,
    /// Of the thread's rows, the one with the longest sum.
    pub most: &'a Gap,
}

type Beside = ((usize, usize), Side, Side);

/// Identifies the op of a call before names are looked up: by the process index and the number of
/// the called function in the process (its export number).
type Place = (u32, u32);

/// The thread and the two ops of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    thread: (usize, usize),
    /// The ops before and after the gap. `None` for the gaps of all pairs of ops beyond
    /// [`MOST_PAIRS`].
    ops: Option<(Place, Place)>,
}

#[derive(Clone, Debug)]
struct Sum {
    pair: Pair,
    times: u64,
    total: u64,
    longest: u64,
    longest_at: u64,
    lengths: Lengths,
    /// Index of the pair that followed this pair the last time. A model makes the same calls in
    /// each run, so the same pair usually follows again.
    then: usize,
}

impl Sum {
    fn add(&mut self, from: u64, ticks: u64) {
        self.times += 1;
        self.total = self.total.saturating_add(ticks);
        self.lengths.add(ticks);
        if ticks > self.longest || (ticks == self.longest && from < self.longest_at) {
            (self.longest, self.longest_at) = (ticks, from);
        }
    }
}

/// The lengths of gaps. The variant depends on the number of gaps, and not on the order in which
/// the workers' gaps are merged.
#[derive(Clone, Debug)]
enum Lengths {
    Few(Vec<u64>),
    Many(Histogram),
}

impl Default for Lengths {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Lengths {
    fn add(&mut self, ticks: u64) {
        match self {
            Self::Few(all) if all.len() < FEW => all.push(ticks),
            Self::Few(_) => self.many().add(ticks),
            Self::Many(all) => all.add(ticks),
        }
    }

    /// Converts the lengths to a histogram, if they are not in one yet.
    fn many(&mut self) -> &mut Histogram {
        if let Self::Few(few) = self {
            let mut all = Histogram::default();
            few.iter().for_each(|ticks| all.add(*ticks));
            *self = Self::Many(all);
        }
        match self {
            Self::Many(all) => all,
            Self::Few(_) => unreachable!("it was made above"),
        }
    }

    fn merge(&mut self, other: Self) {
        match other {
            Self::Few(few) => few.into_iter().for_each(|ticks| self.add(ticks)),
            Self::Many(all) => self.many().merge(&all),
        }
    }

    /// Returns the median in ticks; 0 without lengths. A histogram returns the middle of a bucket,
    /// which may be above `longest`, so the result is at most `longest`.
    fn median(self, longest: u64) -> f64 {
        match self {
            Self::Few(mut all) if !all.is_empty() => {
                all.sort_unstable();
                let middle = all.len() / 2;
                let low = all[middle - usize::from(all.len() % 2 == 0)];
                (low as f64 + all[middle] as f64) / 2.0
            }
            Self::Few(_) => 0.0,
            Self::Many(all) => all.quantile(0.5).unwrap_or(0).min(longest) as f64,
        }
    }
}

/// The first and the last call of a page, or of a cluster of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    thread: (usize, usize),
    begin: u64,
    first: Place,
    end: u64,
    last: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Gaps,
    GapsAndLevels,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    sums: Vec<Sum>,
    places: HashMap<Pair, usize>,
    last: usize,
    edges: Vec<Edge>,
    /// The sums over the calls of each level of nesting, if requested.
    pub levels: Option<LevelSums>,
}

impl Gathered {
    pub fn new(wanted: Wanted) -> Self {
        let levels = (wanted == Wanted::GapsAndLevels).then(LevelSums::default);
        Self { levels, ..Self::default() }
    }

    fn add(&mut self, thread: (usize, usize), ops: (Place, Place), from: u64, to: u64) {
        let ticks = to.saturating_sub(from);
        if ticks == 0 {
            return;
        }
        let pair = Pair { thread, ops: Some(ops) };
        let then = self.sums.get(self.last).map_or(usize::MAX, |last| last.then);
        let at = match self.sums.get(then) {
            Some(sum) if sum.pair == pair => then,
            _ => {
                let at = self.find(pair);
                if let Some(last) = self.sums.get_mut(self.last) {
                    last.then = at;
                }
                at
            }
        };
        self.last = at;
        self.sums[at].add(from, ticks);
    }

    fn find(&mut self, pair: Pair) -> usize {
        if let Some(at) = self.places.get(&pair) {
            return *at;
        }
        if self.sums.len() >= MOST_PAIRS && pair.ops.is_some() {
            return self.find(Pair { ops: None, ..pair });
        }
        let at = self.sums.len();
        let (longest, longest_at, then) = (0, u64::MAX, usize::MAX);
        let lengths = Lengths::default();
        self.sums.push(Sum { pair, times: 0, total: 0, longest, longest_at, lengths, then });
        self.places.insert(pair, at);
        at
    }

    /// Adds a page without nested calls. `thread` is the thread on which its calls ran.
    pub fn page(&mut self, columns: &Columns, thread: (usize, usize), brackets: &Brackets) {
        if let Some(levels) = &mut self.levels {
            levels.page(columns, thread, brackets);
        }
        let mut stretch = Stretch::new(thread);
        for (i, begin) in columns.start_ticks.iter().enumerate() {
            let place = (columns.process as u32, columns.export[i]);
            stretch.call(self, place, *begin, begin.saturating_add(columns.duration(i)));
        }
        stretch.finish(self);
    }

    /// Adds the gaps that another worker has found, and its sums for the levels.
    pub fn merge(&mut self, other: Self) {
        for sum in other.sums {
            let at = self.find(sum.pair);
            let own = &mut self.sums[at];
            own.times += sum.times;
            own.total = own.total.saturating_add(sum.total);
            own.lengths.merge(sum.lengths);
            if (sum.longest, own.longest_at) > (own.longest, sum.longest_at) {
                (own.longest, own.longest_at) = (sum.longest, sum.longest_at);
            }
        }
        self.edges.extend(other.edges);
        if let Some((levels, more)) = self.levels.as_mut().zip(other.levels) {
            levels.merge(more);
        }
    }

    /// Adds the gaps between pages or clusters, and the gap after the last call of each thread.
    /// Returns the gaps of each thread and pair of ops.
    pub fn finish(mut self, profile: &Profile, threads: &[ThreadTime]) -> Gaps {
        let mut edges = std::mem::take(&mut self.edges);
        edges.sort_by_key(|edge| (edge.thread, edge.begin, edge.end));
        for two in edges.windows(2).filter(|two| two[0].thread == two[1].thread) {
            self.add(two[0].thread, (two[0].last, two[1].first), two[0].end, two[1].begin);
        }
        let mut ends: BTreeMap<(usize, usize), (u64, Edge)> = BTreeMap::new();
        for edge in edges {
            let known = ends.entry(edge.thread).or_insert((edge.begin, edge));
            known.0 = known.0.min(edge.begin);
            if edge.end >= known.1.end {
                known.1 = edge;
            }
        }
        let levels = self.levels.take().map(|levels| levels.finish(profile, threads));
        let key = |op: Place| key(profile, op);
        let ns_per_tick = profile.timeline.ns_per_tick();
        let on_device = devices(profile);
        let is_thread = |process: usize| on_device.get(process) == Some(&false);
        // An op can have several export numbers in a process; their gaps are added up.
        let mut rows: BTreeMap<Beside, (Gap, Lengths)> = BTreeMap::new();
        let mut put = |gap: Gap, lengths: Lengths| {
            let known = rows.entry((gap.thread, gap.after, gap.before));
            let none = || (Gap { times: 0, total: 0, longest: 0, ..gap }, Lengths::default());
            let (row, all) = known.or_insert_with(none);
            all.merge(lengths);
            row.times += gap.times;
            row.total = row.total.saturating_add(gap.total);
            if gap.longest > row.longest {
                (row.longest, row.longest_at) = (gap.longest, gap.longest_at);
            }
        };
        for Sum { pair, times, total, longest, longest_at, lengths, .. } in self.sums {
            let (after, before) = match pair.ops {
                Some((after, before)) => (Side::Op(key(after)), Side::Op(key(before))),
                None => (Side::Any, Side::Any),
            };
            if is_thread(pair.thread.0) {
                let (thread, median) = (pair.thread, 0.0);
                put(
                    Gap { thread, after, before, times, total, median, longest, longest_at },
                    lengths,
                );
            }
        }
        let levels = levels.unwrap_or_default();
        let mut found = Gaps { ns_per_tick, levels, ..Gaps::default() };
        for time in threads_of_program(profile, threads) {
            found.between_ns += time.no_dispatch_ns();
            found.wall_ns += time.wall_ns;
            let thread = (time.process, time.thread);
            found.lives.insert(thread, (time.dispatch_ns, time.wall_ns));
            let Some((begin, last)) = ends.get(&thread) else { continue };
            let lived = (time.wall_ns / ns_per_tick).round() as u64;
            let rest = lived.saturating_sub(last.end.saturating_sub(*begin));
            if rest > 0 {
                let (after, before) = (Side::Op(key(last.last)), Side::End);
                let (total, longest, longest_at) = (rest, rest, last.end);
                let median = 0.0;
                put(
                    Gap { thread, after, before, times: 1, total, median, longest, longest_at },
                    Lengths::Few(vec![rest]),
                );
            }
        }
        let finished = |(gap, lengths): (Gap, Lengths)| {
            let median = lengths.median(gap.longest);
            Gap { median, ..gap }
        };
        found.rows = rows.into_values().map(finished).collect();
        found.rows.sort_by_key(|row| std::cmp::Reverse(row.total));
        let sum: f64 = found.rows.iter().map(|row| found.total_ns(row)).sum();
        found.recorder_ns = (found.between_ns - sum).max(0.0);
        found
    }
}

fn key(profile: &Profile, (process, export): Place) -> Key {
    match profile.ops.of(process as usize, export) {
        Some(op) => Key::Op(profile.ops.row_of(op)),
        None => Key::Unknown(process as usize, export),
    }
}

/// Adds the gaps between the outermost calls of a page or a cluster, and keeps the first and the
/// last call. The caller passes the calls in the order in which they begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    thread: (usize, usize),
    edge: Option<Edge>,
}

impl Stretch {
    pub fn new(thread: (usize, usize)) -> Self {
        Self { thread, edge: None }
    }

    pub fn call(&mut self, gaps: &mut Gathered, op: Place, begin: u64, end: u64) {
        match &mut self.edge {
            Some(edge) => {
                gaps.add(self.thread, (edge.last, op), edge.end, begin);
                (edge.last, edge.end) = (op, end.max(edge.end));
            }
            None => {
                self.edge = Some(Edge { thread: self.thread, begin, first: op, end, last: op });
            }
        }
    }

    pub fn finish(self, gaps: &mut Gathered) {
        gaps.edges.extend(self.edge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(stretches: &[&[(u32, u64, u64)]]) -> Gathered {
        let mut gaps = Gathered::default();
        for calls in stretches {
            let mut stretch = Stretch::new((0, 0));
            for (export, begin, end) in *calls {
                stretch.call(&mut gaps, (0, *export), *begin, *end);
            }
            stretch.finish(&mut gaps);
        }
        gaps
    }

    fn sums(gaps: &Gathered) -> Vec<(u32, u32, u64, u64, u64, u64)> {
        let row = |sum: &Sum| {
            let ((_, after), (_, before)) = sum.pair.ops.unwrap();
            (after, before, sum.times, sum.total, sum.longest, sum.longest_at)
        };
        let mut rows: Vec<_> = gaps.sums.iter().map(row).collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn pairs_of_neighbours_add_up() {
        // The gaps from op 1 to op 2 are 5 and 7, and the gap from 2 to 1 is 10.
        let calls = [(1, 0, 10), (2, 15, 20), (1, 30, 40), (2, 47, 50), (3, 50, 60)];
        let found = sums(&gathered(&[&calls]));
        assert_eq!(found, [(1, 2, 2, 12, 7, 40), (2, 1, 1, 10, 10, 20)]);
        // Two workers read a part of the calls each. `finish` would add the gap between the two
        // parts.
        let mut two = gathered(&[&calls[..2]]);
        two.merge(gathered(&[&calls[2..]]));
        assert_eq!(sums(&two), [(1, 2, 2, 12, 7, 40)]);
        assert_eq!(two.edges.len(), 2);
    }

    #[test]
    fn medians() {
        let of = |all: &[u64]| {
            let mut lengths = Lengths::default();
            all.iter().for_each(|ticks| lengths.add(*ticks));
            lengths
        };
        assert_eq!(of(&[]).median(0), 0.0);
        assert_eq!(of(&[900, 100, 200]).median(900), 200.0);
        assert_eq!(of(&[900, 100, 300, 200]).median(900), 250.0);
        // However the lengths were collected and merged, the relative error of their median is at
        // most 1/128.
        let all: Vec<u64> = (0..1_000).map(|n| (n * 7_919) % 1_000 * 1_000 + 1_000).collect();
        let median = of(&all).median(1_000_000);
        assert!((median / 500_000.0 - 1.0).abs() <= 1.0 / 128.0, "{median}");
        for parts in [40, 64, 65, 990] {
            let (a, b) = all.split_at(parts);
            for (first, second) in [(a, b), (b, a)] {
                let mut merged = of(first);
                merged.merge(of(second));
                assert_eq!(merged.median(1_000_000), median);
            }
        }
        // The median must not be longer than the longest gap.
        assert_eq!(of(&[129_025; 100]).median(129_025), 129_025.0);
    }

    #[test]
    fn too_many_pairs_are_one() {
        let mut gaps = Gathered::default();
        for i in 0..MOST_PAIRS as u32 + 50 {
            gaps.add((0, 0), ((0, i), (0, i + 1)), 0, 3);
        }
        assert_eq!(gaps.sums.len(), MOST_PAIRS + 1);
        let any = gaps.sums.last().unwrap();
        assert_eq!((any.pair.ops, any.times, any.total), (None, 50, 150));
    }
}
