//! Chooses a sample of each op's calls. The choice depends only on the recorded calls, so it is the
//! same with any number of worker threads.

use std::collections::HashMap;

use profile::{Columns, Profile};

use super::MOST_CALLS;
use crate::amounts::{Brackets, parts};
use crate::diff::flips::split_mix;
use crate::forest::{Mark, Marks, NO_ROW, Rows};
use crate::table::Key;
use crate::walk::{Adder, walk};

const MISSING: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// A pseudorandom number that is computed from the call's process, thread, start and function.
    /// The sample consists of the op's calls with the smallest numbers.
    lot: u64,
    /// The start of the call, in ticks.
    pub begin: u64,
    /// The duration in units of 1/16 tick.
    pub duration: u64,
    pub process: u32,
    pub thread: u32,
    pub location: u32,
    /// The workgroup's linear number, if known.
    pub workgroup: Option<u32>,
    /// The index of the call's row among the rows of its op.
    pub row: u32,
    pub is_first: bool,
    pub is_moved: bool,
    /// The index in [`Drawn::values`] at which the call's counter values begin.
    values: usize,
}

/// The sampled calls of one op, and the op's first call on each thread. `finish` sorts them by
/// start.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    /// Number of all outermost calls of the op, in the sample or not.
    pub of: u64,
    pub calls: Vec<Call>,
    values: Vec<u64>,
    first: HashMap<(u32, u32), Call>,
    /// Calls with a [`Call::lot`] above this limit are not part of the sample.
    limit: Option<u64>,
}

impl Drawn {
    /// Returns the call's value of a counter of the run.
    pub fn value(&self, call: &Call, counter: usize) -> Option<u64> {
        self.values.get(call.values + counter).copied().filter(|value| *value != MISSING)
    }

    /// Keeps the `most` calls with the smallest [`Call::lot`], and the first call of each thread.
    fn keep(&mut self, most: usize, counters: usize) {
        if self.calls.len() > most {
            self.calls.select_nth_unstable_by_key(most, |call| call.lot);
            self.calls.truncate(most);
            self.limit = self.calls.iter().map(|call| call.lot).max();
        }
        let old = std::mem::take(&mut self.values);
        for call in self.calls.iter_mut().chain(self.first.values_mut()) {
            let from = call.values;
            call.values = self.values.len();
            self.values.extend_from_slice(&old[from..from + counters]);
        }
    }

    fn merge(&mut self, other: Self, counters: usize) {
        self.of += other.of;
        let from = self.values.len();
        let moved = |call: Call| Call { values: call.values + from, ..call };
        self.values.extend(other.values);
        self.calls.extend(other.calls.into_iter().map(moved));
        for (place, call) in other.first {
            self.note_first(place, moved(call));
        }
        self.keep(MOST_CALLS, counters);
    }

    fn note_first(&mut self, place: (u32, u32), call: Call) {
        let known = self.first.entry(place).or_insert(call);
        if (call.begin, call.lot) < (known.begin, known.lot) {
            *known = call;
        }
    }

    fn finish(&mut self) {
        for (place, first) in std::mem::take(&mut self.first) {
            let is = |call: &&mut Call| {
                (call.process, call.thread) == place
                    && (call.begin, call.lot) == (first.begin, first.lot)
            };
            match self.calls.iter_mut().find(is) {
                Some(call) => call.is_first = true,
                None => self.calls.push(Call { is_first: true, ..first }),
            }
        }
        self.calls.sort_unstable_by_key(|call| (call.begin, call.process, call.thread, call.lot));
    }
}

/// Chooses at most [`MOST_CALLS`] calls of each op, and adds the first call of each thread.
pub(super) fn draw(profile: &Profile, ops: &[Vec<Key>], raw: bool, workers: usize) -> Vec<Drawn> {
    let brackets = Brackets::new(profile, raw);
    let mut numbers = HashMap::new();
    for (op, keys) in (0u32..).zip(ops) {
        numbers.extend((0u32..).zip(keys).map(|(row, key)| (*key, (op, row))));
    }
    let counters = profile.groups.counters();
    let new = || ops.iter().map(|_| Drawn::default()).collect::<Vec<_>>();
    let worker = || Worker { profile, numbers: &numbers, ops: new(), rows: Vec::new() };
    let walked = walk(profile, workers, &brackets, None, worker);
    let mut all = new();
    for part in walked.parts {
        all.iter_mut().zip(part.ops).for_each(|(all, one)| all.merge(one, counters));
    }
    all.iter_mut().for_each(Drawn::finish);
    all
}

struct Worker<'a> {
    profile: &'a Profile,
    /// For each key, the index of the op, and the index of the row among the op's rows.
    numbers: &'a HashMap<Key, (u32, u32)>,
    ops: Vec<Drawn>,
    /// For each call of the page (a block of one thread's records): the index of its op, and the
    /// index of its row among the op's rows.
    rows: Vec<(u32, u32)>,
}

impl Worker<'_> {
    fn find_rows(&mut self, columns: &Columns) {
        let ops = &self.profile.ops;
        let mut last = None;
        self.rows.clear();
        for export in &columns.export {
            let row = match last {
                Some((known, row)) if known == *export => row,
                _ => {
                    let key = match ops.of(columns.process, *export) {
                        Some(op) => Key::Op(ops.row_of(op)),
                        None => Key::Unknown(columns.process, *export),
                    };
                    self.numbers.get(&key).copied().unwrap_or((NO_ROW, 0))
                }
            };
            last = Some((*export, row));
            self.rows.push(row);
        }
    }
}

impl Rows for Worker<'_> {
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
        self.find_rows(columns);
        rows.extend(self.rows.iter().map(|(op, _)| *op));
    }
}

impl Adder for Worker<'_> {
    fn add(&mut self, columns: &Columns, brackets: &Brackets, marks: Option<&Marks>) {
        self.find_rows(columns);
        let classes = brackets.page(columns);
        let (process, thread) = (columns.process as u32, columns.thread as u32);
        let groups = self.profile.groups.all();
        let counters = self.profile.groups.counters();
        for (i, (op, row)) in self.rows.iter().copied().enumerate() {
            let Some(drawn) = self.ops.get_mut(op as usize) else { continue };
            let duration = parts(columns.duration(i));
            let mark = match marks {
                Some(marks) => marks.of(i),
                None => Mark::of_flat(duration, classes.of(columns, i), brackets),
            };
            if mark.inner {
                continue;
            }
            drawn.of += 1;
            let begin = columns.start_ticks[i];
            let mut state = begin ^ u64::from(process) << 48 ^ u64::from(thread) << 32;
            let lot = split_mix(&mut state) ^ u64::from(columns.export[i]);
            let first = drawn.first.get(&(process, thread));
            let is_first = first.is_none_or(|first| (begin, lot) < (first.begin, first.lot));
            let is_drawn = drawn.limit.is_none_or(|limit| lot <= limit);
            if !is_first && !is_drawn {
                continue;
            }
            let values = drawn.values.len();
            drawn.values.resize(values + counters, MISSING);
            for (g, group) in groups.iter().enumerate() {
                for counter in group.counters.clone() {
                    if let Some(value) = columns.value(g, counter, i) {
                        drawn.values[values + counter] = value;
                    }
                }
            }
            let workgroup = columns.knows_workgroup(i).then(|| {
                let [x, y, z] = [0, 1, 2].map(|axis| columns.workgroup[axis][i]);
                let [of_x, of_y] = [0, 1].map(|axis| columns.count[axis][i].max(1));
                x.saturating_add(of_x.saturating_mul(y.saturating_add(of_y.saturating_mul(z))))
            });
            let location = columns.location[i];
            let cpu = |at: usize| profile::columns::cpu_of(columns.location[at]);
            let call = Call {
                lot,
                begin,
                duration: duration - mark.taken,
                process,
                thread,
                location,
                workgroup,
                row,
                is_first: false,
                is_moved: i.checked_sub(1).is_some_and(|before| cpu(before) != cpu(i)),
                values,
            };
            if is_first {
                drawn.note_first((process, thread), call);
            }
            if is_drawn {
                drawn.calls.push(call);
            }
            if drawn.calls.len() >= 2 * MOST_CALLS {
                drawn.keep(MOST_CALLS, counters);
            }
        }
    }
}
