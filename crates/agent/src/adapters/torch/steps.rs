//! Decides in which steps of the program (such as iterations of a training loop) PyTorch announces
//! its ops to the recorder. This is needed only in a recording with a budget (a limit for its
//! cost).
//!
//! As soon as an observer (a callback for `RecordFunction`) is registered with PyTorch, each op
//! takes some hundred nanoseconds longer, even if the recorder only counts the op. In a loop of
//! short ops, this cost alone can exceed a small budget. PyTorch has separate observers for named
//! ranges (`record_function`) and for ops. So the shim (a small library compiled against the user's
//! PyTorch) keeps the observer of ranges enabled, and disables the observer of ops for whole steps
//! of the program ([`crate::recorder::budget::steps`]). A step without the observer of ops is
//! called *away*:
//!
//! ```text
//!  range begins ─► is it the start of a step? ─► the step before has ended ─► draw ─► observer there, or away
//!                  the first range that recurs:                │
//!                  an optimizer's, or the data loader's        └─► durations: what announcing costs here
//! ```
//!
//! The first steps are all seen (their ops are announced). A later step is seen with the
//! probability 1/`period`, which is at least 1/16, unless it must be seen in any case. The period
//! is computed from the additional processor time that the process needs for a seen step. The
//! additional time of one thread alone would be too small: while that thread is in the recorder,
//! OpenMP's other threads wait actively, which also takes processor time.
//!
//! A step that is away ends when the next step begins. If no step follows, because the loop is
//! over, the rest of the program must not stay unseen. So in a step that is away, PyTorch announces
//! one of several hundred ops, chosen at random, to another observer. This observer checks whether
//! the step takes too long ([`is_overdue`]).

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::adapters::op_calls::bracket;
use crate::adapters::torch::ADAPTER;
use crate::os::sys::ErrnoGuard;
use crate::process::panics::guarded;
use crate::recorder::budget::steps::{self, Step};
use crate::recorder::collectors;
use crate::recorder::thread::{self, Thread};
use crate::state::{epoch, run};

/// The number of first steps that are all seen.
const ALL_SEEN: u64 = 8;
/// The number of first steps that are not in the sample of seen steps, because they make calls that
/// later steps do not make. The calls of steps that are away are estimated from this sample.
const WARM: u64 = 4;
/// Until the cost of announcing ops was measured, an assumed cost is used. The assumed cost may be
/// too low. So if this many times that cost would exceed the budget, some steps are away. Then the
/// real cost is computed from the durations of steps.
const UNSURE: f64 = 3.0;
/// The longest period: on average, at least one of this many steps is seen.
const LONGEST: u32 = 16;
/// As soon as this many steps that were away have been timed, the cost of announcing is computed
/// from the durations of steps.
const FEWEST: usize = 5;
/// The assumed cost of announcing an op, in ns. Measured: 280 to 580 ns, including the cost of
/// counting the op.
const ASSUMED_NS: f64 = 500.0;
/// When a range inside of other ranges begins for the `INSIDE`-th time, it is regarded as the start
/// of a step. The number is high, so that an outer range is found first if the step itself is a
/// range: the ranges of a model's layers occur several times in each step.
const INSIDE: u32 = 32;
/// What a step that is away costs the recorder and the shim, in ns of the process's processor time.
/// Measured with PyTorch 2.15 on one thread: reading the process's clock takes 250 to 730 ns, and
/// reading the thread's clock about as much; removing or adding the observer, together with the
/// thread's next look-up of its observers, takes 790 to 1,320 ns (970 ns of the thread's own time).
/// The look-ups by other threads were not measured.
const AWAY_NS: f64 = 2_500.0;
/// A step that is away is overdue if it takes longer than SHORTEST_OVERDUE_NS, and also longer than
/// this many times the longest step so far.
const TIMES_LONGEST: u64 = 4;
const SHORTEST_OVERDUE_NS: u64 = 20_000_000;

/// Time on the monotonic clock at which the step in progress becomes overdue, if it is away.
static OVERDUE_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// A number for each of the latest steps: the processor time in ns of steps of one kind (seen or
/// away), or [`State::of_thread`].
#[derive(Debug)]
struct Latest {
    last: [u64; 32],
    count: usize,
}

impl Latest {
    const NONE: Self = Self { last: [0; 32], count: 0 };

    fn add(&mut self, number: u64) {
        self.last[self.count % 32] = number;
        self.count += 1;
    }

    /// Returns the median, the number of values, and the median of the values' distances from the
    /// median.
    fn middle(&self) -> [u64; 3] {
        let mut values = self.last;
        let values = &mut values[..self.count.min(32)];
        let median = median(values);
        values.iter_mut().for_each(|value| *value = value.abs_diff(median));
        [median, values.len() as u64, self::median(values)]
    }
}

/// Returns the time on the monotonic clock, the process's processor time, and that of the calling
/// thread, all in ns.
fn now() -> [u64; 3] {
    use record::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
    [monotonic_ns(), process_cpu_ns(), thread_cpu_ns()]
}

/// Returns the median. Sorts by insertion, because the sorting methods of slices are recursive and
/// would use the stack of the program. There are at most 32 values.
fn median(values: &mut [u64]) -> u64 {
    for end in 1..values.len() {
        let mut at = end;
        while at > 0 && values[at - 1] > values[at] {
            values.swap(at - 1, at);
            at -= 1;
        }
    }
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marker {
    name: u64,
    depth: u32,
    /// The thread on which the range begins, as the address of the recorder's state of this thread.
    thread: usize,
}

struct State {
    /// Serial number of the process's part of the profile; 0 if there is none.
    serial: u32,
    /// Ranges that may become the start of a step, and how many times each of them has begun.
    candidates: [(Marker, u32); 32],
    known: usize,
    marker: Option<Marker>,
    /// Number of steps that have begun, and of steps that were cut (ops were announced again in the
    /// middle of the step).
    steps: u64,
    cut: u64,
    now: Step,
    /// Whether the step in progress was cut, because it took too long.
    is_cut: bool,
    /// When the step in progress began, as [`now`] returns it.
    began: [u64; 3],
    longest_ns: u64,
    /// Number of steps until the next step that is seen by chance, including it. Steps that must be
    /// seen do not count.
    left: u64,
    /// The period with which the next seen step was drawn (chosen at random).
    period: u32,
    seen: Latest,
    away: Latest,
    /// See [`record::counts::steps::Steps::of_thread`].
    of_thread: Latest,
}

impl State {
    const fn new(serial: u32) -> Self {
        let nobody = Marker { name: 0, depth: 0, thread: 0 };
        Self {
            serial,
            candidates: [(nobody, 0); 32],
            known: 0,
            marker: None,
            steps: 0,
            cut: 0,
            now: Step::Certain,
            is_cut: false,
            began: [0; 3],
            longest_ns: 0,
            left: 0,
            period: 1,
            seen: Latest::NONE,
            away: Latest::NONE,
            of_thread: Latest::NONE,
        }
    }

    /// Returns whether `range`, which begins now, is the start of a step. The first range that has
    /// begun often enough (twice, or [`INSIDE`] times inside of other ranges) becomes the start of
    /// all steps.
    fn is_begin(&mut self, range: Marker) -> bool {
        if let Some(marker) = self.marker {
            return marker == range;
        }
        let known = &mut self.candidates[..self.known];
        let times = match known.iter_mut().find(|(of, _)| *of == range) {
            Some((_, times)) => {
                *times += 1;
                *times
            }
            None => {
                if let Some(place) = self.candidates.get_mut(self.known) {
                    *place = (range, 1);
                    self.known += 1;
                }
                1
            }
        };
        let is_begin = times >= if range.depth == 0 { 2 } else { INSIDE };
        self.marker = is_begin.then_some(range);
        is_begin
    }

    /// Ends a step and begins the next one. The end and the beginning share one reading of the
    /// clocks, because reading a processor time is a system call. If `must` is set, the next step
    /// must be seen.
    fn next(&mut self, thread: &mut Thread, must: bool) {
        let [wall, cpu, own] = now();
        if self.steps > WARM && !self.is_cut {
            let of = if self.now == Step::Away { &mut self.away } else { &mut self.seen };
            let took = cpu.saturating_sub(self.began[1]);
            of.add(took);
            if let Some(own) = own.checked_sub(self.began[2]).filter(|own| *own > 0) {
                self.of_thread.add(took.saturating_mul(1_000) / own);
            }
            self.longest_ns = self.longest_ns.max(wall.saturating_sub(self.began[0]));
        }
        let ended = self.now;
        self.now = self.draw(thread, must);
        (self.steps, self.is_cut) = (self.steps + 1, false);
        if self.now == Step::Away {
            let ns = self.longest_ns.saturating_mul(TIMES_LONGEST).max(SHORTEST_OVERDUE_NS);
            OVERDUE_NS.store(wall.saturating_add(ns), Ordering::Relaxed);
        }
        self.began = [wall, cpu, own];
        steps::next(ended, self.now);
        thread.draws.change_step();
        let (steps, cut, is_away) = (self.steps, self.cut, self.now == Step::Away);
        thread.draws.tell_of_steps(|to| {
            (to.steps, to.cut, to.is_away) = (steps, cut, is_away.into());
        });
    }

    fn draw(&mut self, thread: &mut Thread, must: bool) -> Step {
        if self.steps < ALL_SEEN {
            return if self.steps < WARM || must { Step::Certain } else { Step::Sampled(1) };
        }
        if self.steps == ALL_SEEN {
            self.tell(thread);
            self.period = self.wanted(thread);
            self.left = thread.draws.gap(self.period);
        }
        if must {
            return Step::Certain;
        }
        self.left -= 1;
        if self.left > 0 {
            return Step::Away;
        }
        let drawn_with = self.period;
        self.period = self.wanted(thread);
        self.left = thread.draws.gap(self.period);
        self.tell(thread);
        Step::Sampled(drawn_with)
    }

    /// Stores what is known about the durations of steps in the thread's table of counts.
    fn tell(&self, thread: &mut Thread) {
        let (seen, away) = (self.seen.middle(), self.away.middle());
        let of_thread = self.of_thread.middle()[0];
        thread.draws.tell_of_steps(|to| {
            [to.seen_ns, to.seen_timed, to.seen_spread] = seen;
            [to.away_ns, to.away_timed, to.away_spread] = away;
            to.of_thread = of_thread;
        });
    }
}

impl State {
    /// Returns the period (one of this many steps is seen) that keeps the cost of announcing ops
    /// within the budget, or [`LONGEST`] if even that is not enough.
    fn wanted(&self, thread: &Thread) -> u32 {
        let (seen, away) = (self.seen.middle()[0] as f64, self.away.middle()[0] as f64);
        let draws = &thread.draws;
        let wanted = |more: f64, without: f64| {
            draws.steps_per_seen(more, without, AWAY_NS, self.period).clamp(1, LONGEST)
        };
        if self.away.count >= FEWEST {
            return wanted((seen - away).max(0.0), away);
        }
        let more = ASSUMED_NS * draws.calls_of_step() as f64;
        let assumed = |more: f64| wanted(more, (seen - more).max(seen / 4.0));
        // If `UNSURE` times the assumed cost would exceed the budget, the period is at least 2.
        // Then some steps are away, and the real cost can be computed from their durations.
        if assumed(UNSURE * more) == 1 { 1 } else { assumed(more).max(2) }
    }
}

/// The state, with a lock for which no thread waits.
struct Locked {
    lock: AtomicBool,
    state: UnsafeCell<State>,
}

// SAFETY: `with` lets only one thread at a time use the state.
unsafe impl Sync for Locked {}

static STATE: Locked =
    Locked { lock: AtomicBool::new(false), state: UnsafeCell::new(State::new(0)) };

impl Locked {
    fn with<T>(&self, body: impl FnOnce(&mut State) -> T) -> Option<T> {
        if self.lock.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: this thread has the lock, so no other reference to the state exists.
        let result = body(unsafe { &mut *self.state.get() });
        self.lock.store(false, Ordering::Release);
        Some(result)
    }
}

/// Called by the shim, while PyTorch announces all ops. Returns whether the shim has to announce
/// ranges, so that steps can be found. `has_forked` is set in a forked child, in which no other
/// thread runs.
pub extern "C" fn steps(has_forked: i32) -> i32 {
    if has_forked != 0 {
        STATE.lock.store(false, Ordering::Release);
    }
    if has_forked != 0 || steps::is_away() {
        STATE.with(|state| *state = State::new(0));
        steps::set(Step::Certain);
    }
    let wanted = guarded(|| {
        let run = run::current().filter(|_| epoch::wanted())?;
        Some(run.budget.is_some() && !run.exact_counts)
    });
    i32::from(wanted.flatten() == Some(true))
}

/// Called by the shim at the start of a named range that is inside of `depth` other ranges on this
/// thread. If `must_see` is set, the next step must be seen. Returns 1 if PyTorch must announce ops
/// from now on, 0 if it must not, and -1 if nothing changes.
///
/// # Safety
/// `name` must be null or a C string.
pub unsafe extern "C" fn range_begins(name: *const c_char, depth: u32, must_see: i32) -> i32 {
    if !epoch::wanted() || name.is_null() {
        return -1;
    }
    let _errno = ErrnoGuard::new();
    let announced = guarded(|| {
        let thread = bracket::thread(&ADAPTER);
        // SAFETY: `bracket::thread` returns null or the calling thread's own state.
        let thread = unsafe { thread.as_mut() }.filter(|thread| thread.draws.is_on())?;
        // SAFETY: `name` is not null, so by contract it is a C string.
        let name = hash(unsafe { CStr::from_ptr(name) }.to_bytes());
        let range = Marker { name, depth, thread: std::ptr::from_ref::<Thread>(thread) as usize };
        STATE.with(|state| {
            if state.serial != thread.serial {
                *state = State::new(thread.serial);
            }
            if !state.is_begin(range) {
                return None;
            }
            let must = must_see != 0 || collectors::any();
            state.next(thread, must);
            Some(state.now != Step::Away)
        })?
    });
    announced.flatten().map_or(-1, i32::from)
}

/// Called by the shim for a few ops that are chosen at random, in a step that is away. Returns
/// whether ops must be announced again, because the step takes too long.
pub extern "C" fn is_overdue() -> i32 {
    if !steps::is_away() || record::clock::monotonic_ns() < OVERDUE_NS.load(Ordering::Relaxed) {
        return 0;
    }
    let cut = || {
        STATE.with(|state| {
            let is_cut = state.now == Step::Away && !state.is_cut;
            if is_cut {
                (state.is_cut, state.cut) = (true, state.cut + 1);
                steps::set(Step::Cut);
                tell_of_cut(state.cut);
            }
            is_cut
        })
    };
    i32::from(guarded(cut).flatten() == Some(true))
}

/// Stores the number of cut steps in the calling thread's table of counts. This cannot wait for the
/// next step, because the loop may be over.
fn tell_of_cut(cut: u64) {
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    let thread = unsafe { thread::current().as_mut() };
    if let Some(thread) = thread.filter(|thread| thread.is_attached() && thread.draws.is_on()) {
        thread.draws.tell_of_steps(|to| to.cut = cut);
    }
}

/// Hashes the name of a range by FNV-1a. The names of PyTorch's own ranges for profiler steps
/// (`ProfilerStep#7`) are hashed without their numbers.
fn hash(name: &[u8]) -> u64 {
    let numbered = b"ProfilerStep#";
    let name = if name.starts_with(numbered) { &numbered[..] } else { name };
    name.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, depth: u32) -> Marker {
        Marker { name: hash(name.as_bytes()), depth, thread: 0 }
    }

    #[test]
    fn a_step_begins_with_the_first_range_that_recurs() {
        let mut state = State::new(1);
        let ranges = ["data", "zero_grad", "step", "data", "zero_grad", "step", "data"];
        let begins: Vec<bool> = ranges.iter().map(|name| state.is_begin(range(name, 0))).collect();
        assert_eq!(begins, [false, false, false, true, false, false, true]);
    }

    /// In a model, the ranges of layers are inside of the range of a step.
    #[test]
    fn ranges_inside_of_others_count_only_if_no_outer_one_recurs() {
        let mut state = State::new(1);
        for _ in 0..12 {
            assert!(!state.is_begin(range("layer", 1)));
        }
        assert!(!state.is_begin(range("step", 0)));
        assert!(!state.is_begin(range("layer", 1)));
        assert!(state.is_begin(range("step", 0)));
        assert!(!state.is_begin(range("layer", 1)));
        let mut state = State::new(1);
        let first = (1..).find(|_| state.is_begin(range("layer", 1)));
        assert_eq!(first, Some(INSIDE));
    }

    #[test]
    fn other_threads_ranges_begin_no_step() {
        let mut state = State::new(1);
        let other = Marker { thread: 1, ..range("step", 0) };
        assert!(!state.is_begin(range("step", 0)) && !state.is_begin(other));
        assert!(state.is_begin(range("step", 0)) && !state.is_begin(other));
    }

    #[test]
    fn middles_are_those_of_the_last_durations() {
        let mut of = Latest::NONE;
        assert_eq!(of.middle(), [0, 0, 0]);
        [7, 1_000, 8, 6, 9].iter().for_each(|ns| of.add(*ns));
        // Sorted: 6, 7, 8, 9 and 1,000. The distances from 8 are 0, 1, 1, 2 and 992.
        assert_eq!(of.middle(), [8, 5, 1]);
        (0..32).for_each(|_| of.add(5));
        assert_eq!(of.middle(), [5, 32, 0]);
    }

    #[test]
    fn steps_of_the_profiler_have_one_name() {
        assert_eq!(hash(b"ProfilerStep#1"), hash(b"ProfilerStep#22"));
        assert_ne!(hash(b"Optimizer.step#SGD.step"), hash(b"Optimizer.step#AdamW.step"));
    }
}
