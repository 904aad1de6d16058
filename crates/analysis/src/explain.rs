//! Finds the recorded variables whose values differ between the slow calls of an op and its other
//! calls.
//!
//! ```text
//!  Profile ─ walk ─► drawn: at most 100,000 calls ─┬─► variables ─► findings: what stands out
//!  other threads ─► neighbours: what ran meanwhile ┘
//! ```
//!
//! The analysed calls are the outermost ones of the op (those that are not inside of another call
//! of the op). Unless raw durations are requested, the time that the recorder added is subtracted
//! from each call's duration. Counters are as they were read: the recorder adds about the same
//! amount to each call, which does not change which calls differ. A counter in nanoseconds, such as
//! `task-clock`, mostly measures the duration itself, so it is not a variable. But the duration
//! minus the value of a clock of the thread is a variable: the time for which the thread was not on
//! a CPU.
//!
//! A variable that is associated with slow calls need not be the reason why they are slow.

pub mod association;
mod drawn;
pub mod effect;
pub mod findings;
mod neighbours;
mod permuted;
pub mod variable;

use std::collections::BTreeMap;

use model::Unit;
use profile::{OpId, Profile, columns::cpu_of};

use crate::amounts::PARTS;
use crate::metrics::is_clock_of_threads;
use crate::table::Key;
use drawn::{Call, Drawn, draw};
pub use effect::{Effect, Level};
use findings::stand_out;
pub use findings::{Answer, Finding, Silent, Slow};
use neighbours::{Meanwhile, meanwhile};
use variable::MOST_CLASSES;
pub use variable::{Values, Variable};

/// The largest number of an op's calls in the sample. The first call of each thread is analysed in
/// addition.
pub const MOST_CALLS: usize = 100_000;

/// A recorded variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Whether the call is the op's first recorded call on its thread.
    First,
    /// The position of the call among the analysed calls of the op, sorted by start.
    Time,
    /// The thread of the call.
    Thread,
    /// The process of the call.
    Process,
    /// The CPU on which the call ended.
    Cpu,
    /// The workgroup of the call.
    Workgroup,
    /// The types and shapes of the call's arguments.
    Arguments,
    /// Whether the call ended on another CPU than the call before it in the same page (a block of
    /// one thread's recorded calls).
    Moved,
    /// A counter of the run, by its index.
    Counter(usize),
    /// The part of the call's duration for which its thread was not on a CPU.
    OffCpu,
    /// The number of other threads of the process that were in a recorded call when this call
    /// began.
    OtherThreads,
    /// The number of calls of the op with this key that were running on other threads of the
    /// process when the call began.
    Beside(Key),
}

/// A class of calls with the same value, or similar values, of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A thread: process index and thread index.
    Thread(usize, usize),
    Process(usize),
    Cpu(u32),
    /// Workgroups with linear numbers from the first to the last, inclusive.
    Workgroups(u32, u32),
    /// Calls with the types and shapes of the arguments of this op.
    Arguments(OpId),
    /// The calls whose values are too rare for classes of their own.
    Others,
}

/// The variables that are associated with the slow calls of an op. Durations are in ns.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The keys of the op's rows, which differ in the arguments of their calls.
    pub keys: Vec<Key>,
    /// Number of the op's recorded outermost calls.
    pub calls: u64,
    /// Number of analysed calls: a sample of at most [`MOST_CALLS`], and the first call of each
    /// thread.
    pub used: usize,
    /// The variables that were analysed.
    pub asked: Vec<What>,
    pub answer: Answer,
    classes: BTreeMap<What, Vec<Class>>,
}

impl Explained {
    /// Returns the class of this variable that has this number in [`Effect::Class`].
    pub fn class(&self, what: What, class: u32) -> Option<Class> {
        self.classes.get(&what)?.get(class as usize).copied()
    }

    /// Returns the number of classes of a variable; 0 if it has no classes.
    pub fn classes(&self, what: What) -> usize {
        self.classes.get(&what).map_or(0, Vec::len)
    }
}

/// Explains the slow calls of each of these ops. An op is given by its rows, which differ in their
/// arguments. With `raw`, durations are used as recorded. `workers` is the number of threads; 0 for
/// as many as the machine has processors.
///
/// Pages (blocks of recorded calls) with nested calls are read twice. The pages of processes with
/// analysed calls and several threads are read at least once more. Memory: each worker keeps up to
/// 200,000 calls of each op, and the first call of each thread. A call takes 64 bytes, plus 8 for
/// each counter. Counting the calls on other threads takes up to another 256 MiB, or more if a
/// single op needs it.
pub fn explain(profile: &Profile, ops: &[Vec<Key>], raw: bool, workers: usize) -> Vec<Explained> {
    let workers = match workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let drawn = draw(profile, ops, raw, workers);
    let calls: Vec<&[Call]> = drawn.iter().map(|drawn| drawn.calls.as_slice()).collect();
    let meanwhile = meanwhile(profile, &calls, workers);
    let each = ops.iter().zip(drawn).zip(meanwhile);
    each.map(|((keys, drawn), meanwhile)| one(profile, keys, drawn, meanwhile, workers)).collect()
}

/// Page faults in the sampled calls of an op, without the first call on each thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaterFaults {
    /// Number of calls for which the counter of page faults has a value, which may be 0.
    pub calls: usize,
    /// Number of calls with at least one fault.
    pub with_some: usize,
    /// The mean number of faults in the calls that `calls` counts.
    pub mean: f64,
}

/// Returns the page faults in the calls of each op. `counter` is the index of the counter of page
/// faults. The first call on each thread is left out, because it has the page faults of memory that
/// later calls use again.
pub(crate) fn later_faults(
    profile: &Profile,
    ops: &[Vec<Key>],
    counter: usize,
) -> Vec<LaterFaults> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let of = |drawn: Drawn| {
        let later = drawn.calls.iter().filter(|call| !call.is_first);
        let values: Vec<u64> = later.filter_map(|call| drawn.value(call, counter)).collect();
        LaterFaults {
            calls: values.len(),
            with_some: values.iter().filter(|value| **value > 0).count(),
            mean: values.iter().map(|value| *value as f64).sum::<f64>()
                / values.len().max(1) as f64,
        }
    };
    draw(profile, ops, true, workers).into_iter().map(of).collect()
}

fn one(
    profile: &Profile,
    keys: &[Key],
    drawn: Drawn,
    meanwhile: Meanwhile,
    workers: usize,
) -> Explained {
    let calls = &drawn.calls;
    let scale = profile.timeline.ns_per_tick() / PARTS as f64;
    let durations: Vec<f64> = calls.iter().map(|call| call.duration as f64 * scale).collect();
    let mut of = Variables { calls, all: Vec::new(), classes: BTreeMap::new() };
    let first = calls.iter().map(|call| call.is_first).collect();
    of.all.push(Variable { what: What::First, values: Values::First(first) });
    of.all.push(Variable { what: What::Time, values: Values::Time });
    let thread = |call: &Call| Some((call.process, call.thread));
    of.classes(What::Thread, thread, |at| Class::Thread(at.0 as usize, at.1 as usize));
    of.classes(What::Process, |call| Some(call.process), |at| Class::Process(*at as usize));
    of.classes(What::Cpu, |call| Some(cpu_of(call.location)), |at| Class::Cpu(*at));
    // If there are more workgroups than classes, several consecutive workgroups share a class.
    let last = calls.iter().filter_map(|call| call.workgroup).max().unwrap_or(0);
    let width = (last / MOST_CLASSES as u32) + 1;
    let group = |call: &Call| call.workgroup.map(|at| at / width);
    of.classes(What::Workgroup, group, |at| {
        Class::Workgroups(at * width, (at * width + width - 1).min(last))
    });
    let operation = |key: &Key| if let Key::Op(op) = key { Some(*op) } else { None };
    let arguments = |call: &Call| keys.get(call.row as usize).and_then(operation);
    of.classes(What::Arguments, arguments, |op| Class::Arguments(*op));
    of.ordered(What::Moved, |call, _| f64::from(u8::from(call.is_moved)));
    for (at, counter) in profile.manifest.counters.iter().enumerate() {
        if counter.unit() != Unit::Nanoseconds {
            let value = |call: &Call, _| drawn.value(call, at).map_or(f64::NAN, |v| v as f64);
            of.ordered(What::Counter(at), value);
        }
    }
    let mut counters = 0..profile.manifest.counters.len();
    if let Some(clock) = counters.find(|at| is_clock_of_threads(profile, *at)) {
        // The clock counter is read before the call's start time and after its end time, so it can
        // count slightly more than the duration. A negative difference is replaced by 0.
        let off = |on: u64, at: usize| (durations[at] - on as f64).max(0.0);
        of.ordered(What::OffCpu, |call, at| {
            drawn.value(call, clock).map_or(f64::NAN, |on| off(on, at))
        });
    }
    of.ordered(What::OtherThreads, |_, at| f64::from(meanwhile.threads[at]));
    for (key, numbers) in &meanwhile.ops {
        of.ordered(What::Beside(*key), |_, at| f64::from(numbers[at]));
    }
    let answer = stand_out(&durations, &of.all, workers);
    Explained {
        keys: keys.to_vec(),
        calls: drawn.of,
        used: calls.len(),
        asked: of.all.iter().map(|variable| variable.what).collect(),
        answer,
        classes: of.classes,
    }
}

/// The variables of some calls. A variable other than `First` and `Time` is left out if it has the
/// same value in all calls in which it is known.
struct Variables<'a> {
    calls: &'a [Call],
    all: Vec<Variable>,
    classes: BTreeMap<What, Vec<Class>>,
}

impl Variables<'_> {
    fn ordered(&mut self, what: What, value: impl Fn(&Call, usize) -> f64) {
        let values: Vec<f64> = self.calls.iter().zip(0..).map(|(c, at)| value(c, at)).collect();
        let mut known = values.iter().filter(|value| !value.is_nan());
        if known.next().is_some_and(|first| known.any(|value| value != first)) {
            self.all.push(Variable { what, values: Values::Ordered(values) });
        }
    }

    /// Adds a variable with classes, unless it has the same value in all calls in which it is
    /// known. The most frequent values get classes of their own, and the others share one.
    fn classes<K: Ord + Copy>(
        &mut self,
        what: What,
        value: impl Fn(&Call) -> Option<K>,
        name: impl Fn(&K) -> Class,
    ) {
        let mut counts: BTreeMap<K, usize> = BTreeMap::new();
        for key in self.calls.iter().filter_map(&value) {
            *counts.entry(key).or_default() += 1;
        }
        if counts.len() < 2 {
            return;
        }
        let mut order: Vec<(K, usize)> = counts.into_iter().collect();
        order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let own = if order.len() > MOST_CLASSES { MOST_CLASSES - 1 } else { order.len() };
        let numbers: BTreeMap<K, u32> = order
            .iter()
            .zip(0..)
            .map(|((key, _), at)| (*key, (at as usize).min(own) as u32))
            .collect();
        let class = |call: &Call| value(call).map_or(u32::MAX, |key| numbers[&key]);
        let values = self.calls.iter().map(class).collect();
        self.all.push(Variable { what, values: Values::Classes(values) });
        let mut names: Vec<Class> = order[..own].iter().map(|(key, _)| name(key)).collect();
        if own < order.len() {
            names.push(Class::Others);
        }
        self.classes.insert(what, names);
    }
}
