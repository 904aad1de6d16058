//! Makes the first pass over the pages: collects the tasks of parallel regions by the number of the
//! region.

use profile::columns::{KEY_CORRELATION, cpu_of};
use profile::{Columns, PageDecoder, PageKey, Profile, Role, merge_losses};

use crate::amounts::Brackets;

use super::{OpTrees, Region, Serial, Task};

#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Sorted by process, by region and by the task's number in the region.
    all: Vec<Recorded>,
    /// The counter values of all tasks, as many for each as the profile has counters.
    values: Vec<u64>,
    counters: usize,
}

#[derive(Clone, Copy, Debug)]
struct Recorded {
    process: u32,
    region: u64,
    number: u32,
    of: u32,
    thread: u32,
    cpu: u32,
    start: u64,
    duration: u64,
    /// Bit *i* is set if the value of counter *i* is known.
    known: u32,
    nested: bool,
    values: usize,
}

/// Appends the counter values of call `i`; an unknown value is 0. Bit *i* of the result is set if
/// the value of counter *i* is known.
pub(super) fn counters_of(
    profile: &Profile,
    columns: &Columns,
    i: usize,
    values: &mut Vec<u64>,
) -> u32 {
    let mut known = 0;
    for (group, g) in profile.groups.all().iter().enumerate() {
        for counter in g.counters.clone() {
            let value = columns.value(group, counter, i);
            known |= u32::from(value.is_some()) << counter;
            values.push(value.unwrap_or(0));
        }
    }
    known
}

pub(super) fn collect(profile: &Profile, brackets: Brackets) -> OpTrees<'_> {
    let counters = profile.groups.counters();
    let mut tasks = Tasks { counters, ..Tasks::default() };
    let mut decoder = PageDecoder::new(profile);
    let (mut later, mut first_tick, mut losses) = (Vec::new(), None::<u64>, Vec::new());
    for (p, process) in profile.processes.iter().enumerate() {
        let mut of_process = Vec::new();
        for (t, thread) in process.threads.iter().enumerate() {
            let mut begins = Vec::new();
            // Tasks that may turn out to be inside of a call that is still to be read.
            let mut open: Vec<usize> = Vec::new();
            for page in 0..thread.headers().len() {
                let columns = decoder.decode(PageKey { process: p, thread: t, page });
                let found = columns.losses();
                if !found.is_empty() {
                    losses = merge_losses(losses.iter().chain(&found));
                }
                begins.push(columns.start_ticks.iter().copied().min().unwrap_or(u64::MAX));
                for i in 0..columns.len() {
                    let start = columns.start_ticks[i];
                    while let Some(last) = open.pop_if(|last| tasks.all[*last].start >= start) {
                        tasks.all[last].nested = true;
                    }
                    if let Some(task) = tasks.task(profile, columns, i) {
                        open.push(tasks.all.len());
                        tasks.all.push(task);
                    }
                }
            }
            first_tick = first_tick.into_iter().chain(begins.iter().copied()).min();
            let mut earliest = u64::MAX;
            for begin in begins.iter_mut().rev() {
                let next = earliest;
                earliest = earliest.min(*begin);
                *begin = next;
            }
            of_process.push(begins);
        }
        later.push(of_process);
    }
    tasks.all.sort_by_key(|task| (task.process, task.region, task.number, task.start));
    let first_tick = first_tick.filter(|tick| *tick < u64::MAX);
    OpTrees { profile, tasks, later, first_tick, losses, brackets }
}

impl Tasks {
    fn task(&mut self, profile: &Profile, columns: &Columns, i: usize) -> Option<Recorded> {
        let op = profile.ops.get(profile.ops.of(columns.process, columns.export[i])?)?;
        if op.role != Role::Task {
            return None;
        }
        let region = columns.extra(i, KEY_CORRELATION)?;
        let values = self.values.len();
        let known = counters_of(profile, columns, i, &mut self.values);
        Some(Recorded {
            process: columns.process as u32,
            region,
            number: columns.workgroup[0][i],
            of: columns.count[0][i],
            thread: columns.thread as u32,
            cpu: cpu_of(columns.location[i]),
            start: columns.start_ticks[i],
            duration: columns.duration(i),
            known,
            nested: false,
            values,
        })
    }

    /// Adds to `base`, a region without tasks, the recorded tasks of the region with this number
    /// and what follows from them.
    pub fn region(&self, process: usize, number: Option<u64>, base: Region, cpus: u32) -> Region {
        let Some(number) = number else { return base };
        let key = (process as u32, number);
        let from = self.all.partition_point(|task| (task.process, task.region) < key);
        let rest = &self.all[from..];
        let found = &rest[..rest.partition_point(|task| (task.process, task.region) == key)];
        let mut region = base;
        region.of = found.iter().map(|task| task.of).max();
        region.tasks.extend(found.iter().map(|task| {
            Task {
                number: task.number,
                thread: task.thread as usize,
                cpu: task.cpu,
                start: task.start,
                duration: task.duration,
                counters: (0..self.counters)
                    .map(|i| (task.known >> i & 1 == 1).then(|| self.values[task.values + i]))
                    .collect(),
                nested: task.nested,
            }
        }));
        if region.is_whole() {
            let sum: u128 = region.tasks.iter().map(|task| u128::from(task.duration)).sum();
            let longest = region.tasks.iter().map(|task| task.duration).max().unwrap_or(0);
            let mean = sum as f64 / region.tasks.len() as f64;
            region.imbalance = (mean > 0.0).then(|| longest as f64 / mean);
        }
        region.serial = serial(&region.tasks, cpus);
        region
    }
}

/// Returns how tasks ran one after the other although more of them could have run at once. All
/// tasks could have run at once or, if there are fewer processors, as many tasks as processors.
/// `cpus` is the number of logical processors; 0 if it is not known.
fn serial(tasks: &[Task], cpus: u32) -> Option<Serial> {
    let room = match cpus {
        0 => tasks.len(),
        n => tasks.len().min(n as usize),
    };
    let distinct = |of: &dyn Fn(&Task) -> usize| {
        let mut all: Vec<usize> = tasks.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    if distinct(&|task| task.thread) < room {
        return Some(Serial::Thread);
    }
    if distinct(&|task| task.cpu as usize) >= room {
        return None;
    }
    let mut order: Vec<&Task> = tasks.iter().collect();
    order.sort_by_key(|task| (task.cpu, task.start));
    let mut first: Option<(u32, u64)> = None;
    for task in order {
        let end = task.start.saturating_add(task.duration);
        first = match first {
            Some((cpu, over)) if cpu == task.cpu && task.start >= over => {
                return Some(Serial::Cpu(cpu));
            }
            Some((cpu, over)) if cpu == task.cpu => Some((cpu, over.min(end))),
            _ => Some((task.cpu, end)),
        };
    }
    None
}
