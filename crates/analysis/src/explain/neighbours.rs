//! What other threads were in when calls began. It is the moment of the begin that is looked at, not the
//! whole call: a longer call has more neighbours just because it is longer.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{PageDecoder, PageKey, Profile, on_threads};

use super::drawn::Call;
use crate::table::Key;

/// Of so many ops the neighbours are kept: those that ran beside the most calls.
const OPS: usize = 6;
/// While they are counted, at most so many ops are kept, in the order in which they are found.
const MOST_OPS: usize = 256;

/// What ran when each call began.
pub(super) struct Meanwhile {
    /// How many other threads were in a call.
    pub threads: Vec<u16>,
    /// For each of some ops, how many of its calls other threads were in.
    pub ops: Vec<(Key, Vec<u16>)>,
}

/// What one worker has found.
struct Found {
    threads: Vec<u16>,
    ops: BTreeMap<Key, Vec<u16>>,
}

/// Looks what ran when these calls began, which are in order. Reads all pages of the processes that the
/// calls are of, unless these have only one thread.
pub(super) fn meanwhile(profile: &Profile, calls: &[Call], workers: usize) -> Meanwhile {
    let begins: Vec<u64> = calls.iter().map(|call| call.begin).collect();
    let mut threads = Vec::new();
    for (process, p) in profile.processes.iter().enumerate() {
        let is_asked = calls.iter().any(|call| call.process as usize == process);
        if is_asked && !p.id.is_of_plugins() && p.threads.len() > 1 {
            threads.extend((0..p.threads.len()).map(|thread| (process, thread)));
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Found { threads: vec![0; calls.len()], ops: BTreeMap::new() };
        let mut decoder = PageDecoder::new(profile);
        // The thread that was counted last for each call, so that nested calls count once.
        let mut seen = vec![u32::MAX; calls.len()];
        while let Some((process, thread)) = threads.get(next.fetch_add(1, Ordering::Relaxed)) {
            let own =
                |call: &Call| (call.process as usize, call.thread as usize) == (*process, *thread);
            for page in 0..profile.processes[*process].threads[*thread].headers().len() {
                let key = PageKey { process: *process, thread: *thread, page };
                let columns = decoder.decode(key);
                let mut keys: HashMap<u32, Key> = HashMap::new();
                for (i, begin) in columns.start_ticks.iter().enumerate() {
                    let end = begin.saturating_add(columns.duration(i));
                    let from = begins.partition_point(|at| at < begin);
                    for at in (from..begins.len()).take_while(|at| begins[*at] < end) {
                        if own(&calls[at]) || calls[at].process as usize != *process {
                            continue;
                        }
                        if seen[at] != *thread as u32 {
                            seen[at] = *thread as u32;
                            found.threads[at] = found.threads[at].saturating_add(1);
                        }
                        let export = columns.export[i];
                        let key = *keys.entry(export).or_insert_with(|| {
                            match profile.ops.of(*process, export) {
                                Some(op) => Key::Op(profile.ops.row_of(op)),
                                None => Key::Unknown(*process, export),
                            }
                        });
                        if found.ops.len() < MOST_OPS || found.ops.contains_key(&key) {
                            let of = found.ops.entry(key).or_insert_with(|| vec![0; calls.len()]);
                            of[at] = of[at].saturating_add(1);
                        }
                    }
                }
            }
            seen.fill(u32::MAX);
        }
        found
    };
    let workers = workers.clamp(1, threads.len().max(1));
    let mut all = Found { threads: vec![0; calls.len()], ops: BTreeMap::new() };
    let add = |to: &mut Vec<u16>, of: &[u16]| {
        to.iter_mut().zip(of).for_each(|(to, of)| *to = to.saturating_add(*of));
    };
    for found in on_threads(workers, work) {
        add(&mut all.threads, &found.threads);
        for (key, numbers) in found.ops {
            add(all.ops.entry(key).or_insert_with(|| vec![0; calls.len()]), &numbers);
        }
    }
    let mut ops: Vec<(Key, Vec<u16>)> = all.ops.into_iter().collect();
    let sum = |numbers: &[u16]| numbers.iter().map(|n| u64::from(*n)).sum::<u64>();
    ops.sort_by_key(|(key, numbers)| (std::cmp::Reverse(sum(numbers)), *key));
    ops.truncate(OPS);
    Meanwhile { threads: all.threads, ops }
}
