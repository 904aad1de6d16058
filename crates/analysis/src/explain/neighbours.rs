//! Counts the neighbours of an op's calls: the calls that were running on other threads of the
//! process when the op's call began. Calls that begin later are not counted, because a long call
//! would have many of them merely by being long.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{Columns, PageDecoder, PageKey, Profile, on_threads};

use super::drawn::Call;
use crate::table::Key;

/// The result contains at most this many ops: those whose calls were counted most often.
const OPS: usize = 6;
/// For each analysed op, each worker counts the neighbours of at most this many ops: those that it
/// finds first.
const MOST_OPS: usize = 256;

/// The calls of other threads that were running at the start of each call of an op.
pub(super) struct Meanwhile {
    /// For each call, the number of other threads that were in any call when this call began.
    pub threads: Vec<u16>,
    /// For each of some ops: how many of its calls were running on other threads when each analysed
    /// call began.
    pub ops: Vec<(Key, Vec<u16>)>,
}

/// The counts of neighbours that all workers together keep at once are limited to about this many
/// bytes. A single op may need more. If the counts for all ops need more, the pages (blocks of
/// recorded calls) are read several times, each time for some of the ops.
const MEMORY: usize = 256 << 20;

struct Found {
    threads: Vec<u16>,
    ops: BTreeMap<Key, Vec<u16>>,
    /// For each call, the last thread that was counted in `threads`, so that nested calls of a
    /// thread count once.
    seen: Vec<u32>,
    /// The index that the previous search for calls found. The next search starts there.
    at: usize,
}

impl Found {
    fn new(calls: usize) -> Self {
        let (threads, seen) = (vec![0; calls], vec![u32::MAX; calls]);
        Self { threads, ops: BTreeMap::new(), seen, at: 0 }
    }

    /// Returns the index of the first call that begins no earlier than `begin`.
    fn seek(&mut self, begins: &[u64], begin: u64) -> usize {
        while begins.get(self.at).is_some_and(|at| *at < begin) {
            self.at += 1;
        }
        while self.at > 0 && begins[self.at - 1] >= begin {
            self.at -= 1;
        }
        self.at
    }
}

/// Counts the calls that were running on other threads of the process when the calls of each of
/// these ops began. The calls of each op must be sorted by start.
pub(super) fn meanwhile(profile: &Profile, ops: &[&[Call]], workers: usize) -> Vec<Meanwhile> {
    let each = 4 + 2 * profile.ops.all().len().min(MOST_OPS);
    let mut all = Vec::new();
    let mut rest = ops;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fit = rest.iter().take_while(|calls| {
            bytes += calls.len() * each * workers;
            bytes <= MEMORY
        });
        let (now, later) = rest.split_at(fit.count().max(1));
        all.extend(at_once(profile, now, workers));
        rest = later;
    }
    all
}

fn at_once(profile: &Profile, ops: &[&[Call]], workers: usize) -> Vec<Meanwhile> {
    let begins: Vec<Vec<u64>> =
        ops.iter().map(|calls| calls.iter().map(|call| call.begin).collect()).collect();
    let mut threads = Vec::new();
    for (process, p) in profile.processes.iter().enumerate() {
        let is_asked = ops.iter().any(|calls| calls.iter().any(|c| c.process as usize == process));
        if is_asked && !p.id.is_of_plugins() && p.threads.len() > 1 {
            threads.extend((0..p.threads.len()).map(|thread| (process, thread)));
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found: Vec<Found> = ops.iter().map(|calls| Found::new(calls.len())).collect();
        let mut decoder = PageDecoder::new(profile);
        while let Some(place) = threads.get(next.fetch_add(1, Ordering::Relaxed)) {
            for page in 0..profile.processes[place.0].threads[place.1].headers().len() {
                let key = PageKey { process: place.0, thread: place.1, page };
                let columns = decoder.decode(key);
                for ((found, calls), begins) in found.iter_mut().zip(ops).zip(&begins) {
                    beside(profile, columns, calls, begins, found);
                }
            }
            found.iter_mut().for_each(|found| found.seen.fill(u32::MAX));
        }
        found
    };
    let workers = workers.clamp(1, threads.len().max(1));
    let mut all: Vec<Vec<Found>> = ops.iter().map(|_| Vec::new()).collect();
    for found in on_threads(workers, work) {
        all.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
    }
    all.into_iter().zip(ops).map(|(found, calls)| together(found, calls.len())).collect()
}

fn beside(profile: &Profile, columns: &Columns, calls: &[Call], begins: &[u64], found: &mut Found) {
    let (process, thread) = (columns.process as u32, columns.thread as u32);
    let mut keys: HashMap<u32, Key> = HashMap::new();
    found.at = begins.partition_point(|at| *at < columns.start_ticks.first().copied().unwrap_or(0));
    for (i, begin) in columns.start_ticks.iter().enumerate() {
        let end = begin.saturating_add(columns.duration(i));
        let from = found.seek(begins, *begin);
        for at in (from..begins.len()).take_while(|at| begins[*at] < end) {
            if calls[at].process != process || calls[at].thread == thread {
                continue;
            }
            if found.seen[at] != thread {
                found.seen[at] = thread;
                found.threads[at] = found.threads[at].saturating_add(1);
            }
            let export = columns.export[i];
            let key = *keys.entry(export).or_insert_with(|| {
                match profile.ops.of(columns.process, export) {
                    Some(op) => Key::Op(profile.ops.row_of(op)),
                    None => Key::Unknown(columns.process, export),
                }
            });
            if found.ops.len() < MOST_OPS || found.ops.contains_key(&key) {
                let of = found.ops.entry(key).or_insert_with(|| vec![0; calls.len()]);
                of[at] = of[at].saturating_add(1);
            }
        }
    }
}

fn together(found: Vec<Found>, calls: usize) -> Meanwhile {
    let mut all = Found::new(calls);
    let add = |to: &mut Vec<u16>, of: &[u16]| {
        to.iter_mut().zip(of).for_each(|(to, of)| *to = to.saturating_add(*of));
    };
    for found in found {
        add(&mut all.threads, &found.threads);
        for (key, numbers) in found.ops {
            add(all.ops.entry(key).or_insert_with(|| vec![0; calls]), &numbers);
        }
    }
    let mut ops: Vec<(Key, Vec<u16>)> = all.ops.into_iter().collect();
    let sum = |numbers: &[u16]| numbers.iter().map(|n| u64::from(*n)).sum::<u64>();
    ops.sort_by_key(|(key, numbers)| (std::cmp::Reverse(sum(numbers)), *key));
    ops.truncate(OPS);
    Meanwhile { threads: all.threads, ops }
}
