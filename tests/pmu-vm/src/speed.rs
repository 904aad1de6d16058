//! Measures how many instructions a pair of readings, as at the begin and the end of a call, takes
//! on the emulated machine. There is nearly no noise, so an increase of a few instructions is
//! visible.
//!
//! Each row is `name.n value`. The value is the number of instructions for a pair of readings of n
//! counters and for computing the differences, in user mode and in the kernel together:
//!
//! | row | what is measured |
//! |---|---|
//! | `user.n` | our readings, in user mode |
//! | `c-group.n` | `c/reader.c`, which reads values and times, as our readings do |
//! | `c-values.n` | `c/reader.c`, which reads values only, each counter separately |
//! | `read.n` | our readings, by the kernel (a group read each) |
//! | `bare.n` | two group reads by the system call `read` alone |

use counters::{Plan, ReadStatus, Readings, ThreadCounters};

use crate::{kernel, set, user};

/// The counters to read. Each set leaves at least one of the PMU's six event counters for the
/// measurement itself.
const SETS: [&str; 4] = [
    "instructions:u",
    "{instructions:u,cycles:u}",
    "{instructions:u,cycles:u,r8:u}",
    "{instructions:u,cycles:u,r8:u,r11:u}",
];

const PAIRS: u64 = 200;
const BATCHES: usize = 30;

#[link(name = "pmu_vm_reader", kind = "static")]
unsafe extern "C" {
    fn pmu_vm_c_values_pair(pages: *const *const u8, n: u64) -> u64;
    fn pmu_vm_c_group_pair(pages: *const *const u8, n: u64) -> u64;
}

pub struct Row {
    pub name: String,
    pub instructions: f64,
}

/// Returns the number of instructions that one `pair` takes, from the cheapest of several batches,
/// because a timer interrupt can only add instructions.
fn cost(outer: &mut ThreadCounters<'_>, mut pair: impl FnMut() -> u64) -> f64 {
    let mut batch = |pair: &mut dyn FnMut() -> u64| {
        (0..BATCHES)
            .map(|_| {
                let [begin, end] = set::measure(outer, || {
                    for _ in 0..PAIRS {
                        std::hint::black_box(pair());
                    }
                });
                end.since(&begin, 0).expect("the counter was read")
            })
            .min()
            .expect("some batches")
    };
    let full = batch(&mut pair);
    let empty = batch(&mut || 0);
    (full - empty) as f64 / PAIRS as f64
}

#[inline(always)]
fn ours(counters: &mut ThreadCounters<'_>, state: &mut [Readings; 2], n: usize) -> u64 {
    let [begin, end] = state;
    let ok = counters.read(begin) == ReadStatus::Complete;
    if !(counters.read(end) == ReadStatus::Complete && ok) {
        return 0;
    }
    (0..n).filter_map(|i| end.since(begin, i)).sum()
}

fn bare(fd: i32, state: &mut [[u64; 67]; 2], n: usize) -> u64 {
    let [begin, end] = state;
    kernel::raw_read(fd, begin, n);
    kernel::raw_read(fd, end, n);
    (0..n).map(|i| end[3 + 2 * i].wrapping_sub(begin[3 + 2 * i])).sum()
}

pub fn rows() -> Vec<Row> {
    user::user_access(true);
    let outer = set::plan("instructions").kernel_reads_only();
    let mut outer = set::open(&outer);
    let mut rows = Vec::new();
    for (n, names) in SETS.iter().enumerate().map(|(i, names)| (i + 1, names)) {
        let mut row = |name: &str, instructions| {
            rows.push(Row { name: format!("{name}.{n}"), instructions });
        };
        let plan = set::plan(names);
        let mut state = [const { Readings::new() }; 2];
        let mut counters = user::open(&plan);
        row("user", cost(&mut outer, || ours(&mut counters, &mut state, n)));
        counters.close();

        let mapped = kernel::open_and_map(names);
        let pages: Vec<*const u8> = mapped.iter().map(|counter| counter.page).collect();
        // SAFETY: `pages` has `n` mapped pages of this thread's counters.
        let group = || unsafe { pmu_vm_c_group_pair(pages.as_ptr(), n as u64) };
        row("c-group", cost(&mut outer, group));
        // SAFETY: `pages` has `n` mapped pages of this thread's counters.
        let values = || unsafe { pmu_vm_c_values_pair(pages.as_ptr(), n as u64) };
        row("c-values", cost(&mut outer, values));
        mapped.iter().for_each(|counter| {
            counter.close();
            counter.unmap();
        });

        let plan: Plan = plan.kernel_reads_only();
        let mut counters = set::open(&plan);
        row("read", cost(&mut outer, || ours(&mut counters, &mut state, n)));
        let leader = counters.descriptors().next().expect("a counter is open");
        let mut blocks = [[0; 67]; 2];
        row("bare", cost(&mut outer, || bare(leader, &mut blocks, n)));
        counters.close();
    }
    outer.close();
    rows
}
