//! Measures how long an empty bracket takes (the recorder's work around a function that does
//! nothing), and how much the thread's counters count in it. The measured code is the same as for
//! real calls. A thread is calibrated when it attaches. In a run with a budget (a limit for the
//! cost of recording), only the first thread of a process is calibrated. With the budget 0, no
//! thread is calibrated. The calibration also warms up the code for real calls, so that the first
//! execution of this code is not counted in any call.

use record::meta::{Calibration, Frame, Moments, Spread, Sums};
use record::page::{PAGE_BYTES, PageReader};
use record::{GroupLayout, Record};

use crate::os::sys;
use crate::process::cost;
use crate::process::part::Process;
use crate::recorder::adapter::{Adapter, Took};
use crate::recorder::thread::{self, Thread};

/// Number of empty calls on the first thread of a process. It is large enough for a stable median;
/// with counters, the calls take about half a millisecond.
const CALLS: usize = 200;
/// Number of empty calls on every other thread. The measurements on several threads show how much
/// threads differ. The number is smaller because a program may start many threads.
const CALLS_LATER: usize = 64;
/// Number of empty calls in a run with a budget. It is small because they use up a part of the
/// budget.
const FEW_CALLS: usize = 24;
/// The records of all empty calls must fit into one page of records. The longest record of an empty
/// call (two clock reads, times and 32 counters) takes less than 200 bytes.
const _: () = assert!(CALLS * 200 < PAGE_BYTES);

/// Calibrates the thread, and appends the results to the metadata of the process's part of the
/// profile. The thread must have a state and must not be recording yet.
pub fn calibrate(thread: &mut Thread, process: &Process, adapter: &Adapter) {
    point!(Calibrate);
    let first = process.is_first_to_calibrate();
    let calls = match (thread.draws.is_on(), first) {
        (true, true) => FEW_CALLS,
        (true, false) => return,
        (false, true) => CALLS,
        (false, false) => CALLS_LATER,
    };
    if first {
        process.append(&Frame::Clock(thread.run.clock.granularity()));
    }
    measure(thread, process, adapter, calls, false, first);
    if adapter.has_uncounted && thread.counting && !thread.run.bookkeeping {
        measure(thread, process, adapter, calls, true, first);
    }
}

/// Measures one kind of call. `uncounted` selects calls for which no counter is read.
fn measure(
    thread: &mut Thread,
    process: &Process,
    adapter: &Adapter,
    calls: usize,
    uncounted: bool,
    first: bool,
) {
    let Ok(scratch) = sys::map_wiped_on_fork(PAGE_BYTES) else { return };
    let thread_pointer: *mut Thread = thread;
    let took = thread::with_current(thread_pointer, || {
        // SAFETY: the pointer was made from the reference `thread`, which is not used while the
        // closure runs.
        unsafe { &mut *thread_pointer }
            .with_scratch(scratch, |thread| (adapter.rehearse)(thread, calls, uncounted))
    });
    thread.time_some_brackets();
    thread.counters.rewind_scripts();
    // SAFETY: `scratch` was mapped above, is PAGE_BYTES long, and is not written to any more.
    let page = unsafe { std::slice::from_raw_parts(scratch, PAGE_BYTES) };
    if let Some(calibration) = evaluate(thread, page, took, uncounted) {
        process.append(&Frame::Calibration(calibration));
    }
    time_brackets(thread, process, adapter, scratch, calls.min(CALLS_LATER), uncounted);
    if first && !uncounted {
        cost::set_after_reading(after_reading(thread, scratch));
        thread.counters.rewind_scripts();
        process.append(&Frame::Cost(cost::so_far()));
    }
    sys::unmap(scratch, PAGE_BYTES);
}

/// Makes empty calls again. In these calls, the recorder itself times each bracket, as it times
/// some brackets of the program's calls. The difference from the durations in [`measure`], which
/// are taken around whole calls, shows which part of a bracket the recorder cannot time itself.
fn time_brackets(
    thread: &mut Thread,
    process: &Process,
    adapter: &Adapter,
    scratch: *mut u8,
    calls: usize,
    uncounted: bool,
) {
    let thread_pointer: *mut Thread = thread;
    thread::with_current(thread_pointer, || {
        // SAFETY: the pointer was made from the reference `thread`, which is not used while the
        // closure runs.
        unsafe { &mut *thread_pointer }.with_scratch(scratch, |thread| {
            thread.time_all_brackets();
            (adapter.rehearse)(thread, calls, uncounted)
        })
    });
    for brackets in thread.bracket_times(true) {
        process.append(&Frame::Brackets(brackets));
    }
    thread.time_some_brackets();
    thread.counters.rewind_scripts();
}

/// Returns how much longer some code takes immediately after counters were read: the median, in
/// ticks. This slowdown is a part of the cost of counters for a program, but it happens after the
/// bracket. If counters are read with a system call, the processor afterwards mispredicts the
/// addresses to which functions return. So the timed code returns from several functions. After
/// these returns, the timed code reads 8 KiB, like the loop of a small compute kernel.
fn after_reading(thread: &mut Thread, scratch: *mut u8) -> u64 {
    if !thread.counting {
        return 0;
    }
    let clock = thread.run.clock;
    let mut more = Vec::with_capacity(CALLS_LATER);
    for _ in 0..CALLS_LATER {
        let mut took = |read: bool| {
            let began = descend(RETURNS, &mut || {
                if read {
                    let _ = thread.counters.read(&mut thread.after);
                }
                clock.begin()
            });
            touch(scratch);
            clock.begin().wrapping_sub(began)
        };
        took(false);
        let warm = took(false);
        more.push(took(true).saturating_sub(warm));
    }
    Sorted::new(more).at(5).unwrap_or(0)
}

/// The approximate number of functions of a runtime that return between two dispatches.
const RETURNS: u32 = 8;

#[inline(never)]
fn descend(depth: u32, body: &mut dyn FnMut() -> u64) -> u64 {
    let result = match depth {
        0 => body(),
        _ => descend(depth - 1, body),
    };
    std::hint::black_box(result)
}

#[inline(never)]
fn touch(scratch: *mut u8) {
    let mut sum = 0u64;
    for at in (0..8192).step_by(64) {
        // SAFETY: `at` is inside of the scratch page, which is mapped and which only this thread
        // uses.
        let value = unsafe { scratch.add(at).read_volatile() };
        sum = if value & 1 == 0 { sum.wrapping_add(u64::from(value)) } else { sum ^ at as u64 };
    }
    std::hint::black_box(sum);
}

/// Computes medians and ranges from the records on the scratch page. The first calls, whose code is
/// not cached yet, are too few to influence these values much.
fn evaluate(thread: &Thread, page: &[u8], took: Took, uncounted: bool) -> Option<Calibration> {
    let groups: Vec<u16> = thread.run.plan.counters().iter().map(|c| c.group).collect();
    let mask = if thread.counting { thread.run.counter_mask } else { 0 };
    let layout = GroupLayout::new(&groups, mask);
    let mut reader = PageReader::new(page, &layout).ok()?;
    let mut inside = Vec::with_capacity(CALLS);
    let mut values = vec![Vec::with_capacity(CALLS); reader.values().len()];
    let mut enabled = vec![Vec::with_capacity(CALLS); reader.groups().len()];
    while let Some(Ok(record)) = reader.next_record() {
        let Record::Call(call) = record else { continue };
        inside.push(call.end.wrapping_sub(call.start));
        if reader.groups().iter().all(|g| g.read) {
            values.iter_mut().zip(reader.values()).for_each(|(all, v)| all.push(*v));
            enabled.iter_mut().zip(reader.groups()).for_each(|(all, g)| all.push(g.enabled));
        }
    }
    let bare = Sorted::new(took.bare).at(5).unwrap_or(0);
    let sums = sums(thread.start.thread_uid, bare, &took.probed, &inside, &values);
    let (inside, probed) = (Sorted::new(inside), Sorted::new(took.probed));
    let values: Vec<Sorted> = values.into_iter().map(Sorted::new).collect();
    let more = |ticks: u64| ticks.saturating_sub(bare);
    Some(Calibration {
        calls: inside.0.len() as u32,
        counters: if uncounted { 0 } else { mask },
        inside_ticks: inside.at(5)?,
        total_ticks: more(probed.at(5).unwrap_or(0)),
        inside_values: values.iter().map(|v| v.at(5).unwrap_or(0)).collect(),
        spread: Some(Spread {
            inside_ticks: inside.range(),
            total_ticks: probed.range().map(more),
            inside_values: values.iter().map(Sorted::range).collect(),
            enabled_ns: enabled.into_iter().map(|ns| Sorted::new(ns).at(5).unwrap_or(0)).collect(),
        }),
        sums,
    })
}

/// Adds up the measurements of the calls that ran with warm caches and were not interrupted.
/// `probed`, `inside` and, if counters were read, each element of `values` have one entry per call,
/// in the order of the calls. Returns `None` if an entry is missing for some call, because a
/// reading failed: in this case, it is unknown which entries belong together.
fn sums(
    thread_uid: u32,
    bare: u64,
    probed: &[u64],
    inside: &[u64],
    values: &[Vec<u64>],
) -> Option<Sums> {
    let calls = inside.len();
    let counted = values.iter().any(|of| !of.is_empty());
    if probed.len() != calls || (counted && values.iter().any(|of| of.len() != calls)) {
        return None;
    }
    let sorted = Sorted::new(probed.to_vec());
    let (median, high) = (sorted.at(5)?, sorted.at(8)?);
    // A call that took longer than this limit was probably interrupted: an interrupt takes at least
    // 1 µs, far more than the durations of the other calls vary.
    let most = high.saturating_add(3 * high.saturating_sub(median)).saturating_add(median / 4);
    let mut sums = Sums {
        thread_uid,
        inside_values: vec![Moments::default(); if counted { values.len() } else { 0 }],
        ..Sums::default()
    };
    let kept = (calls / 10..calls).filter(|call| probed.get(*call).is_some_and(|t| *t <= most));
    for call in kept {
        sums.calls += 1;
        sums.inside_ticks.add(*inside.get(call)?);
        sums.total_ticks.add(probed.get(call)?.saturating_sub(bare));
        for (sum, of) in sums.inside_values.iter_mut().zip(values) {
            sum.add(*of.get(call)?);
        }
    }
    Some(sums)
}

struct Sorted(Vec<u64>);

impl Sorted {
    fn new(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        Self(values)
    }

    /// Returns the quantile `tenths` / 10; the median for 5.
    fn at(&self, tenths: usize) -> Option<u64> {
        self.0.get(self.0.len() * tenths / 10).copied()
    }

    /// Returns the 10th and the 90th percentile.
    fn range(&self) -> [u64; 2] {
        [1, 9].map(|tenths| self.at(tenths).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ten calls, the first is cold and one is interrupted. The other eight take 11 to 18 ticks
    /// more than a bare call: together 116.
    #[test]
    fn cold_and_interrupted_calls_are_left_out() {
        let probed = [90, 11, 12, 13, 5_000, 14, 15, 16, 17, 18].map(|t| t + 30);
        let inside = [40, 1, 1, 1, 4_000, 1, 1, 1, 1, 1];
        let values = vec![inside.to_vec(), vec![0; 10]];
        let sums = sums(3, 30, &probed, &inside, &values).expect("complete");
        assert_eq!((sums.thread_uid, sums.calls), (3, 8));
        assert_eq!(sums.inside_ticks, Moments { sum: 8, squares: 8 });
        assert_eq!(sums.total_ticks.sum, 116);
        assert_eq!(sums.inside_values, [Moments { sum: 8, squares: 8 }, Moments::default()]);
    }

    #[test]
    fn calls_without_values_have_no_sums() {
        assert_eq!(sums(0, 0, &[1, 1], &[1, 1], &[vec![5]]), None);
        let timed = sums(0, 0, &[1; 10], &[1; 10], &[vec![]]).expect("only timed");
        assert_eq!((timed.calls, timed.inside_values.len()), (9, 0));
    }
}
