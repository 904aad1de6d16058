//! What the bracket costs when there is nothing in it, measured once per process with the very
//! code that brackets real calls. Also warms that code up, so that its own first execution is in
//! no call's counts.

use record::meta::{Calibration, Frame, Spread};
use record::page::{PAGE_BYTES, PageReader};
use record::{GroupLayout, Record};

use crate::os::sys;
use crate::process::part::Process;
use crate::recorder::adapter::{Adapter, Took};
use crate::recorder::thread::{self, Thread};

/// Enough for a stable median, few enough for about half a millisecond with counters.
const CALLS: usize = 200;
/// Their records must fit into one page: 200 of the longest that two clock reads, times and 32
/// counters of an empty call make (under 200 bytes).
const _: () = assert!(CALLS * 200 < PAGE_BYTES);

/// Measures and appends the result to the process's metadata. The thread is attached but not yet
/// recording.
pub fn calibrate(thread: &mut Thread, process: &Process, adapter: &Adapter) {
    point!(Calibrate);
    measure(thread, process, adapter, false);
    if adapter.has_uncounted && thread.counting && !thread.run.bookkeeping {
        measure(thread, process, adapter, true);
    }
}

/// Measures one kind of call. `uncounted`: one for which no counter is read.
fn measure(thread: &mut Thread, process: &Process, adapter: &Adapter, uncounted: bool) {
    let Ok(scratch) = sys::map_wiped_on_fork(PAGE_BYTES) else { return };
    let thread_pointer: *mut Thread = thread;
    let took = thread::with_current(thread_pointer, || {
        // SAFETY: the pointer is `thread`; the closure is the only user meanwhile.
        unsafe { &mut *thread_pointer }
            .with_scratch(scratch, |thread| (adapter.rehearse)(thread, CALLS, uncounted))
    });
    thread.counters.rewind_scripts();
    // SAFETY: mapped above, PAGE_BYTES long, not written any more.
    let page = unsafe { std::slice::from_raw_parts(scratch, PAGE_BYTES) };
    if let Some(calibration) = evaluate(thread, page, took, uncounted) {
        process.append(&Frame::Calibration(calibration));
    }
    sys::unmap(scratch, PAGE_BYTES);
}

/// Medians and ranges of what the scratch page recorded. The first calls (cold code) do not matter
/// to them.
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

/// What was read in the empty calls, smallest first.
struct Sorted(Vec<u64>);

impl Sorted {
    fn new(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        Self(values)
    }

    /// The value with `tenths` of ten below it.
    fn at(&self, tenths: usize) -> Option<u64> {
        self.0.get(self.0.len() * tenths / 10).copied()
    }

    /// From the 10th to the 90th percentile.
    fn range(&self) -> [u64; 2] {
        [1, 9].map(|tenths| self.at(tenths).unwrap_or(0))
    }
}
