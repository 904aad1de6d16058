//! What the bracket costs when there is nothing in it, measured once per process with the very
//! code that brackets real calls. Also warms that code up, so that its own first execution is in
//! no call's counts.

use std::ffi::c_int;

use abi::iree::{DispatchState, Environment, WorkgroupState};
use record::meta::{Calibration, Frame, Spread};
use record::page::{PAGE_BYTES, PageReader};
use record::{GroupLayout, Record};

use crate::adapters::tvm;
use crate::os::sys;
use crate::process::part::Process;
use crate::recorder::bracket;
use crate::recorder::thread::{self, Probe, Thread};

/// Enough for a stable median, few enough for about half a millisecond with counters.
const CALLS: usize = 200;
/// Their records must fit into one page: 200 of the longest that two clock reads, times and 32
/// counters of an empty call make (under 200 bytes).
const _: () = assert!(CALLS * 200 < PAGE_BYTES);

unsafe extern "C-unwind" fn nothing(
    _: *const Environment,
    _: *const DispatchState,
    _: *const WorkgroupState,
) -> c_int {
    0
}

/// Measures and appends the result to the process's metadata. The thread is attached but not yet
/// recording.
pub fn calibrate(thread: &mut Thread, process: &Process, probe: Probe) {
    point!(Calibrate);
    measure(thread, process, probe, false);
    // Book-keeping ops are timed only, which costs less.
    if probe == Probe::Op && thread.counting && !thread.run.bookkeeping {
        measure(thread, process, probe, true);
    }
}

/// Measures one kind of call. `uncounted`: one for which no counter is read.
fn measure(thread: &mut Thread, process: &Process, probe: Probe, uncounted: bool) {
    let Ok(scratch) = sys::map_wiped_on_fork(PAGE_BYTES) else { return };
    let thread_pointer: *mut Thread = thread;
    let took = thread::with_current(thread_pointer, || {
        // SAFETY: the pointer is `thread`; the closure is the only user meanwhile.
        unsafe { &mut *thread_pointer }.with_scratch(scratch, |thread| match probe {
            Probe::Dispatch => run_empty_calls(thread),
            Probe::Op => run_empty_ops(thread, uncounted),
        })
    });
    thread.counters.rewind_scripts();
    // SAFETY: mapped above, PAGE_BYTES long, not written any more.
    let page = unsafe { std::slice::from_raw_parts(scratch, PAGE_BYTES) };
    if let Some(calibration) = evaluate(thread, page, took, uncounted) {
        process.append(&Frame::Calibration(calibration));
    }
    sys::unmap(scratch, PAGE_BYTES);
}

/// Ticks of each empty call without and with the probe.
struct Took {
    bare: Vec<u64>,
    probed: Vec<u64>,
}

/// Empty ops of three tensors. `bookkeeping`: of the kind for which no counter is read.
fn run_empty_ops(thread: &mut Thread, bookkeeping: bool) -> Took {
    let (bare, probed) = tvm::rehearse(thread, CALLS, bookkeeping).unwrap_or_default();
    Took { bare, probed }
}

/// Empty dispatches.
fn run_empty_calls(thread: &mut Thread) -> Took {
    let clock = thread.run.clock;
    let dispatch = DispatchState {
        workgroup_size_x: 1,
        workgroup_size_y: 1,
        workgroup_size_z: 1,
        constant_count: 0,
        workgroup_count_x: 1,
        workgroup_count_y: 1,
        workgroup_count_z: 1,
        max_concurrency: 1,
        binding_count: 0,
        constants: std::ptr::null(),
        binding_ptrs: std::ptr::null(),
        binding_lengths: std::ptr::null(),
    };
    let workgroup = WorkgroupState {
        workgroup_id_x: 0,
        workgroup_id_y: 0,
        workgroup_id_z: 0,
        reserved: 0,
        processor_id: 0,
        local_memory: std::ptr::null_mut(),
        local_memory_size: 0,
    };
    let empty = std::hint::black_box(nothing as abi::iree::Dispatch);
    let mut bare = Vec::with_capacity(CALLS);
    let mut probed = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begin = clock.begin();
        // SAFETY: `empty` takes what a dispatch function takes and reads none of it.
        unsafe { empty(&Environment::ZERO, &dispatch, &workgroup) };
        bare.push(clock.begin().wrapping_sub(begin));
        let begin = clock.begin();
        // SAFETY: as above.
        unsafe { bracket::call(0, empty, &Environment::ZERO, &dispatch, &workgroup) };
        probed.push(clock.begin().wrapping_sub(begin));
    }
    Took { bare, probed }
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
