//! Measures the cost of an empty bracket, once per process, with the same code that brackets real
//! calls. This also warms that code up, so that its first execution is not part of any call's
//! counts.

use record::meta::{Calibration, Frame, Spread};
use record::page::{PAGE_BYTES, PageReader};
use record::{GroupLayout, Record};

use crate::os::sys;
use crate::process::part::Process;
use crate::recorder::adapter::{Adapter, Took};
use crate::recorder::thread::{self, Thread};

/// Enough for a stable median, and few enough to take about half a millisecond with counters.
const CALLS: usize = 200;
/// Enough for a median in a run with a budget, which pays for calibration.
const FEW_CALLS: usize = 24;
/// All records must fit into one page. The longest record of an empty call (two clock reads, times
/// and 32 counters) takes less than 200 bytes.
const _: () = assert!(CALLS * 200 < PAGE_BYTES);

/// Measures, and appends the result to the process's metadata. The thread is attached but not
/// recording yet.
pub fn calibrate(thread: &mut Thread, process: &Process, adapter: &Adapter) {
    point!(Calibrate);
    measure(thread, process, adapter, false);
    if adapter.has_uncounted && thread.counting && !thread.run.bookkeeping {
        measure(thread, process, adapter, true);
    }
}

/// Measures one kind of call. `uncounted` selects calls for which no counter is read.
fn measure(thread: &mut Thread, process: &Process, adapter: &Adapter, uncounted: bool) {
    let Ok(scratch) = sys::map_wiped_on_fork(PAGE_BYTES) else { return };
    let thread_pointer: *mut Thread = thread;
    let took = thread::with_current(thread_pointer, || {
        // SAFETY: the pointer is `thread`; only the closure uses it meanwhile.
        unsafe { &mut *thread_pointer }
            .with_scratch(scratch, |thread| (adapter.rehearse)(thread, calls(thread), uncounted))
    });
    thread.counters.rewind_scripts();
    // SAFETY: mapped above, PAGE_BYTES long, and not written any more.
    let page = unsafe { std::slice::from_raw_parts(scratch, PAGE_BYTES) };
    if let Some(calibration) = evaluate(thread, page, took, uncounted) {
        process.append(&Frame::Calibration(calibration));
    }
    sys::unmap(scratch, PAGE_BYTES);
}

fn calls(thread: &Thread) -> usize {
    if thread.draws.is_on() { FEW_CALLS } else { CALLS }
}

/// Computes medians and ranges from the records on the scratch page. The first calls, which run
/// cold code, do not affect them.
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
    })
}

/// Values of the empty calls, smallest first.
struct Sorted(Vec<u64>);

impl Sorted {
    fn new(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        Self(values)
    }

    /// Returns the value at this quantile, given in tenths.
    fn at(&self, tenths: usize) -> Option<u64> {
        self.0.get(self.0.len() * tenths / 10).copied()
    }

    /// Returns the 10th and the 90th percentile.
    fn range(&self) -> [u64; 2] {
        [1, 9].map(|tenths| self.at(tenths).unwrap_or(0))
    }
}
