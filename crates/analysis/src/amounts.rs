//! Computes how much the recorder itself added to a recorded time or counter, with an interval.
//!
//! A *bracket* is the recorder's work before and after a call, with the readings of the clock and
//! of counters. The *class* of a bracket says in which process it was, with which set of counters,
//! and whether the counters were read around the call. The recorder's work for an inner call also
//! makes the outer call longer. How much longer it becomes depends on the class of the inner call's
//! bracket. The outer call can have another class. For example, in a run with counters, a virtual
//! machine's bookkeeping ops (which only manage its data) are only timed.
//!
//! Times of single calls are in units of 1/[`PARTS`] tick. So the subtracted time need not be a
//! whole number of ticks, and sums are still exact.

use std::collections::HashMap;

use profile::{Columns, Profile, Status};

use crate::empty::{Bracket, EmptyCall, Place, empty_call, together};
use crate::estimate::Estimate;

/// Number of parts into which a tick is divided.
pub(crate) const PARTS: u64 = 16;

/// The time in ns to enter and leave the recorder for a call that is only timed. It was measured,
/// and does not include the clock readings.
const ENTERING_NS: Estimate = Estimate { value: 20.0, low: 10.0, high: 40.0 };

pub(crate) fn parts(ticks: u64) -> u64 {
    ticks.saturating_mul(PARTS)
}

pub(crate) fn ticks(parts: u128) -> f64 {
    parts as f64 / PARTS as f64
}

/// The time that is subtracted for one bracket, in units of 1/[`PARTS`] tick: from the call itself,
/// and from the call around it.
#[derive(Clone, Copy, Debug, Default)]
struct Price {
    in_duration: u64,
    outside: u64,
}

/// What the recorder adds to an empty call (of a function that does nothing), for each class. A
/// class is identified by its index in `all`.
#[derive(Debug, Default)]
pub(crate) struct Brackets {
    /// For each process and set of counters: the class of calls whose counters were read, and the
    /// class of calls that were only timed.
    numbers: HashMap<(usize, u32), [u32; 2]>,
    all: Vec<EmptyCall>,
    prices: Vec<Price>,
    raw: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageBrackets {
    /// The two classes, as in [`Brackets::numbers`]; `None` if a set of counters of the process was
    /// not calibrated.
    numbers: Option<[u32; 2]>,
    any_counters: bool,
}

impl PageBrackets {
    /// Returns the class of call `i`.
    #[inline]
    pub fn of(&self, columns: &Columns, i: usize) -> Option<u32> {
        let [read, timed] = self.numbers?;
        let was_read = || {
            let mut groups = columns.groups.iter();
            groups.any(|group| group.status.get(i).is_some_and(|s| *s != Status::NotRead))
        };
        Some(if !self.any_counters || was_read() { read } else { timed })
    }
}

impl Brackets {
    /// Computes the values of empty calls from the calibrations (measured empty calls) of a
    /// profile. With `raw`, nothing is subtracted from any call.
    ///
    /// A process is left out if one of its sets of counters was not calibrated. Otherwise, a sum
    /// over corrected and uncorrected calls would be neither the corrected sum nor the recorded
    /// one.
    pub fn new(profile: &Profile, raw: bool) -> Self {
        let mut brackets = Self { raw, ..Self::default() };
        for (index, process) in profile.processes.iter().enumerate() {
            let headers = || process.threads.iter().flat_map(|thread| thread.headers());
            let masks = headers().filter(|header| header.calls > 0).map(|h| h.start.counters);
            let mut masks: Vec<u32> = masks.collect();
            masks.extend(process.calibrations.iter().map(|c| c.counters));
            masks.sort_unstable();
            masks.dedup();
            let found: Option<Vec<(u32, EmptyCall)>> = masks
                .iter()
                .map(|mask| Some((*mask, empty_call(profile, index, *mask)?)))
                .collect();
            for (mask, empty) in found.unwrap_or_default() {
                let timed = match mask {
                    0 => None,
                    _ => Some(timed_only(profile, index, &empty)),
                };
                let read = brackets.push(empty);
                let timed = timed.map_or(read, |timed| brackets.push(timed));
                brackets.numbers.insert((index, mask), [read, timed]);
            }
        }
        if !raw {
            brackets.prices = brackets.all.iter().map(Price::of).collect();
        }
        brackets
    }

    fn push(&mut self, empty: EmptyCall) -> u32 {
        self.all.push(empty);
        self.all.len() as u32 - 1
    }

    /// Whether nothing is subtracted from any call.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// Returns the classes of the calls of this page (a block of one thread's records).
    pub fn page(&self, columns: &Columns) -> PageBrackets {
        let mask = columns.header().map_or(0, |header| header.start.counters);
        PageBrackets {
            numbers: self.numbers.get(&(columns.process, mask)).copied(),
            any_counters: mask != 0,
        }
    }

    /// Returns the time that a bracket of this class adds to the duration of its own call, in parts
    /// of a tick.
    #[inline]
    pub fn in_duration(&self, class: Option<u32>) -> u64 {
        self.price(class).in_duration
    }

    /// Returns the time that a bracket of this class adds to the self time of the call around it,
    /// in parts of a tick.
    #[inline]
    pub fn outside(&self, class: Option<u32>) -> u64 {
        self.price(class).outside
    }

    fn price(&self, class: Option<u32>) -> Price {
        class.and_then(|class| self.prices.get(class as usize)).copied().unwrap_or_default()
    }

    /// Corrects the counters of empty calls whose counters were read. `place` returns how long
    /// readings of these counters took in the program and in the calibration.
    pub fn place(
        &mut self,
        profile: &Profile,
        place: impl Fn(usize, u32, &EmptyCall) -> Option<Place>,
    ) {
        for ((process, mask), [read, _]) in &self.numbers {
            if let Some(empty) = self.all.get_mut(*read as usize) {
                let found = place(*process, *mask, empty);
                *empty = std::mem::take(empty).placed(profile, found);
            }
        }
    }

    pub fn all(&self) -> &[EmptyCall] {
        &self.all
    }

    /// Returns, for each process and set of counters, the values of an empty call whose counters
    /// were read. The order is not defined.
    pub fn by_set(&self) -> impl Iterator<Item = (usize, u32, &EmptyCall)> {
        let one = |((process, counters), [read, _]): (&(usize, u32), &[u32; 2])| {
            Some((*process, *counters, self.get(*read)?))
        };
        self.numbers.iter().filter_map(one)
    }

    pub fn get(&self, class: u32) -> Option<&EmptyCall> {
        self.all.get(class as usize)
    }

    /// Returns the time that was subtracted from a call of this class, in ticks, with its interval.
    /// `taken` is this time in parts of a tick. It includes the brackets of the calls inside.
    pub fn doubt(&self, class: Option<u32>, taken: u64) -> Estimate {
        let nothing = Estimate::exact(0.0);
        if self.raw {
            return nothing;
        }
        let own = class.and_then(|class| self.get(class)).map_or(nothing, |e| e.duration.mean);
        let taken = ticks(taken.into());
        let rest = (taken - own.value).max(0.0);
        let [low, high] = self.of_others();
        Estimate {
            value: taken,
            low: (own.low + rest * low).min(taken),
            high: (own.high + rest * high).max(taken),
        }
    }

    /// Returns the lowest and the highest bound of a bracket's time over all classes, as multiples
    /// of the class's mean.
    fn of_others(&self) -> [f64; 2] {
        let ends = self.all.iter().map(|empty| empty.whole.mean).filter(|mean| mean.value > 0.0);
        ends.fold([1.0, 1.0], |[low, high], mean| {
            [low.min(mean.low / mean.value), high.max(mean.high / mean.value)]
        })
    }
}

impl Price {
    fn of(empty: &EmptyCall) -> Self {
        let parts = |ticks: f64| (ticks.max(0.0) * PARTS as f64).round() as u64;
        let (whole, inside) = (empty.whole.mean.value, empty.duration.mean.value);
        Self { in_duration: parts(inside), outside: parts(whole - inside) }
    }
}

/// Returns what a bracket adds to a call that was only timed, on a thread with counters. If
/// brackets without counters were not calibrated, their whole time is estimated: the time of the
/// clock readings, which is the same as with counters, plus [`ENTERING_NS`].
fn timed_only(profile: &Profile, process: usize, empty: &EmptyCall) -> EmptyCall {
    if let Some(timed) = empty_call(profile, process, 0) {
        return timed;
    }
    let clock = Estimate { low: 0.0, ..empty.duration.mean.times(2.0) };
    let mean = clock.plus(ENTERING_NS.times(1.0 / profile.timeline.ns_per_tick()));
    let counters = vec![None; empty.counters.len()];
    EmptyCall { whole: Bracket { mean, deviation: 0.0 }, counters, ..empty.clone() }
}

/// The time that was subtracted from the calls of a row, and the number of these calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    /// Time for the calls' own brackets and for the brackets of the calls inside, in ticks.
    pub taken: f64,
    /// Number of all calls of the row. Each counter may have been read in only some of these calls.
    pub calls: u64,
}

/// The number of brackets of each class, for the calls of a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct BracketCounts {
    /// One entry for each class that occurs, in no particular order.
    classes: Vec<ClassCount>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ClassCount {
    number: u32,
    pub calls: u64,
    /// For each counter, the number of calls that have a value.
    pub counted: Vec<u64>,
}

impl BracketCounts {
    /// Returns the entry of a class. Adds it first if it is missing.
    #[inline]
    pub fn of(&mut self, number: u32, counters: usize) -> &mut ClassCount {
        let at = self.classes.iter().position(|class| class.number == number);
        let at = at.unwrap_or_else(|| {
            let counted = vec![0; counters];
            self.classes.push(ClassCount { number, counted, ..ClassCount::default() });
            self.classes.len() - 1
        });
        &mut self.classes[at]
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: Self) {
        for more in other.classes {
            let class = self.of(more.number, more.counted.len());
            class.calls += more.calls;
            class.counted.iter_mut().zip(more.counted).for_each(|(sum, more)| *sum += more);
        }
    }

    /// Adds up what the brackets of `calls` calls added to a duration or a counter. `None` unless
    /// all these brackets were calibrated. `of` returns the number of calls of a class, and
    /// `bracket` what the bracket of one such call added.
    fn sum(
        &self,
        calls: u64,
        of: impl Fn(&ClassCount) -> u64,
        bracket: impl Fn(&ClassCount) -> Option<Bracket>,
    ) -> Option<Estimate> {
        let (mut known, mut sum) = (0, Estimate::exact(0.0));
        for class in self.classes.iter().filter(|class| of(class) > 0) {
            known += of(class);
            sum = together(sum, bracket(class)?.of_calls(of(class)));
        }
        (known == calls).then_some(sum)
    }

    /// Returns how much of the calls' durations their own brackets take, in ticks.
    pub fn durations(&self, calls: u64, brackets: &Brackets) -> Option<Estimate> {
        let duration = |class: &ClassCount| Some(brackets.get(class.number)?.duration);
        self.sum(calls, |class| class.calls, duration)
    }

    /// Returns the time that was subtracted from `calls` calls, in ticks, with its interval.
    /// `taken` is this time. It includes the brackets of the calls inside.
    pub fn taken(&self, calls: u64, taken: f64, brackets: &Brackets) -> Option<Estimate> {
        let own = self.durations(calls, brackets)?;
        let rest = (taken - own.value).max(0.0);
        let [low, high] = brackets.of_others();
        Some(Estimate {
            value: taken,
            low: (own.low + rest * low).min(taken),
            high: (own.high + rest * high).max(taken),
        })
    }

    /// Returns the number of calls whose class is known.
    pub fn calls(&self) -> u64 {
        self.classes.iter().map(|class| class.calls).fold(0, u64::saturating_add)
    }

    /// Returns the same classes with each number of calls divided by `by`, and rounded.
    pub fn divided(&self, by: u64) -> Self {
        let of = |count: u64| count.saturating_add(by / 2) / by;
        let class = |class: &ClassCount| ClassCount {
            number: class.number,
            calls: of(class.calls),
            counted: class.counted.iter().map(|count| of(*count)).collect(),
        };
        Self { classes: self.classes.iter().map(class).collect() }
    }

    /// Returns how much of the subtracted time was for inner calls (those inside of the row's
    /// calls), in ticks, and an empty call that represents the inner calls. The classes of the
    /// inner calls are not known. So one of the row's own classes is used: the class with the most
    /// calls that have a value of this counter. A class without such calls may have no calibrated
    /// value. `None` if no call has a value of the counter.
    fn of_calls_inside<'b>(
        &self,
        counter: usize,
        inside: Inside,
        brackets: &'b Brackets,
    ) -> Option<(f64, &'b EmptyCall)> {
        let counted = |class: &ClassCount| class.counted.get(counter).copied().unwrap_or(0);
        let most =
            self.classes.iter().filter(|class| counted(class) > 0).max_by_key(|c| counted(c))?;
        let own: f64 = self
            .classes
            .iter()
            .map(|class| brackets.in_duration(Some(class.number)) as f64 * class.calls as f64)
            .sum();
        let rest = (inside.taken - own / PARTS as f64).max(0.0);
        Some((rest, brackets.get(most.number)?))
    }

    /// Returns how much brackets added to a counter, summed over the `calls` calls that have a
    /// value of it. This includes the brackets of the calls inside of them, if it is known what
    /// those brackets add to the counter. The number of these inner brackets is derived from the
    /// time that was subtracted for them. This time is assumed to be spread evenly over the row's
    /// calls, with and without a value.
    pub fn counter(
        &self,
        profile: &Profile,
        counter: usize,
        calls: u64,
        inside: Inside,
        brackets: &Brackets,
    ) -> Option<Estimate> {
        let counted = |class: &ClassCount| class.counted.get(counter).copied().unwrap_or(0);
        let bracket = |class: &ClassCount| *brackets.get(class.number)?.counters.get(counter)?;
        let own = self.sum(calls, counted, bracket)?;
        let part = (calls as f64 / inside.calls.max(1) as f64).min(1.0);
        let inside = self.of_calls_inside(counter, inside, brackets).and_then(|(time, empty)| {
            let own = empty.counters.get(counter).copied().flatten()?.mean;
            let each = together(own, empty.outside(profile, counter)?);
            Some(each.times(time * part / empty.whole.mean.value.max(1.0)))
        });
        Some(together(own, inside.unwrap_or_default()))
    }

    /// Returns the standard deviations of what single brackets add: first to durations, then to
    /// each counter.
    pub fn deviations(&self, counters: usize, brackets: &Brackets) -> Vec<f64> {
        let of = |counter: Option<usize>| {
            let (mut calls, mut squares) = (0.0, 0.0);
            for class in &self.classes {
                let Some(empty) = brackets.get(class.number) else { continue };
                let (n, bracket) = match counter {
                    None => (class.calls, Some(empty.duration)),
                    Some(i) => (
                        class.counted.get(i).copied().unwrap_or(0),
                        empty.counters.get(i).copied().flatten(),
                    ),
                };
                let deviation = bracket.map_or(0.0, |bracket| bracket.deviation);
                calls += n as f64;
                squares += n as f64 * deviation * deviation;
            }
            if calls > 0.0 { (squares / calls).sqrt() } else { 0.0 }
        };
        std::iter::once(None).chain((0..counters).map(Some)).map(of).collect()
    }
}
/// What remains of a call's times after the subtraction, and what was subtracted. Times are in
/// units of 1/[`PARTS`] tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The self time that remains.
    pub own: u64,
    /// The time that was subtracted from the call's self time.
    pub own_taken: u64,
    /// The time that was subtracted from the call's duration.
    pub taken: u64,
    /// Whether the call is inside of another call of the same row.
    pub inner: bool,
}

impl Mark {
    /// Returns the mark of a call on a page (a block of one thread's records) without nested calls.
    pub fn of_flat(duration: u64, class: Option<u32>, brackets: &Brackets) -> Self {
        let taken = brackets.in_duration(class).min(duration);
        Self { own: duration - taken, own_taken: taken, taken, inner: false }
    }

    /// Whether the subtraction left nothing of the call's self time.
    pub fn is_exhausted(&self) -> bool {
        self.own == 0 && self.own_taken > 0
    }
}
