//! Computes the cost of a bracket (the recorder's work before and after a call). It is measured
//! with empty calls (the calibration), and corrected by the times of brackets around the program's
//! own calls.
//!
//! ```text
//!  in the program = calibrated + (timed in the program − timed in the calibration)
//! ```
//!
//! In the program as in the calibration, the timed part of a bracket includes neither the jump to
//! the recorder nor the reading of the clock that times the bracket ([`profile::brackets`]). So if
//! brackets take longer in the program, the difference is multiplied by a factor of the host
//! ([`Host::unseen`]).

use std::collections::BTreeMap;

use profile::brackets::{Brackets, Histogram, middle_of};
use profile::{Calibration, Host, Process, Profile};

use super::FEWEST;
use super::in_place::InPlace;
use crate::empty::calibration;
use crate::estimate::Estimate;

/// A bracket that took longer than this, in ns, is assumed to have been interrupted, and is left
/// out.
pub(super) const LONGEST_NS: f64 = 20_000.0;
/// Half the width of a 95 % interval of a mean, in standard errors.
const NORMAL_95: f64 = 1.96;
/// If too few brackets were timed in the program or in the calibration, the upper end of the
/// interval is at least this many times the calibrated cost. The number was measured for brackets
/// without counters, with cold caches. For brackets with counters, the number would be smaller.
const COLD: f64 = 2.0;

/// The part of a bracket without counters that is never timed: the jump to the recorder, and the
/// reading of the clock that times the bracket. It was measured as 20 ns.
const NEVER_TIMED_NS: Estimate = Estimate { value: 20.0, low: 10.0, high: 40.0 };

/// The cost of a bracket in a process, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bracket {
    pub ticks: Estimate,
    /// The mean cost according to the calibration alone, in ticks; equal to the value of `ticks` if
    /// the bracket was not calibrated.
    pub calibrated: f64,
}

/// Returns the host (the runtime, such as IREE or PyTorch) whose factors [`Host::unseen`] are used
/// for a process. Of several hosts, it is the one with the largest factor.
pub(super) fn host(process: &Process) -> Option<&Host> {
    process.seen_hosts().max_by_key(|host| host.unseen[0])
}

/// Returns the cost of a bracket that reads the counters of `mask`. `None` if it was not
/// calibrated.
pub(super) fn bracket(
    profile: &Profile,
    process: usize,
    mask: u32,
    in_place: &InPlace,
) -> Option<Bracket> {
    let known = calibration(profile, process, mask)?;
    let of = profile.processes.get(process)?;
    let calibrated = calibrated(of, known);
    let longest = LONGEST_NS / profile.timeline.ns_per_tick();
    let pools = [false, true].map(|rehearsed| pool(of, mask, rehearsed, longest));
    let [Some(program), Some(empty)] = pools else {
        let ratio = in_place.ratio(process, known, profile.timeline.ns_per_tick());
        let high = ratio.max(COLD) * calibrated.value;
        let ticks = Estimate { value: calibrated.value * ratio, low: calibrated.low, high };
        return Some(Bracket { ticks, calibrated: calibrated.value });
    };
    let timed = program[0].plus(program[1]);
    let rehearsed = empty[0].plus(empty[1]);
    let more = timed.minus(rehearsed);
    let mut ticks = calibrated.plus(more);
    let [unseen, _, highest] = host(of).map_or(Host::UNKNOWN.unseen, |host| host.unseen);
    if more.value > 0.0 {
        let times = |thousandths: u32| f64::from(thousandths) / 1_000.0 - 1.0;
        ticks.value += times(unseen) * more.value;
        ticks.high += times(highest) * more.value;
    }
    // The part that is not timed may be slower in the program by the same factor as the timed part.
    let rest = (calibrated.value - rehearsed.value).max(0.0);
    let slower = (timed.value / rehearsed.value.max(1.0) - 1.0).max(0.0);
    ticks.high += rest * slower;
    ticks.low = ticks.low.max(0.0).min(ticks.value);
    Some(Bracket { ticks, calibrated: calibrated.value })
}

/// Returns the cost of a bracket without counters in a process where such brackets were timed, but
/// not calibrated. This happens with IREE, in a run with a budget in which the counters of some
/// calls were not read.
pub(super) fn only_timed(profile: &Profile, process: usize) -> Option<Bracket> {
    let of = profile.processes.get(process)?;
    let ns_per_tick = profile.timeline.ns_per_tick();
    let [before, after] = pool(of, 0, false, LONGEST_NS / ns_per_tick)?;
    let ticks = before.plus(after).plus(NEVER_TIMED_NS.times(1.0 / ns_per_tick));
    Some(Bracket { ticks, calibrated: ticks.value })
}

/// Returns the mean time of the calibration's empty calls, over all threads.
fn calibrated(process: &Process, known: &Calibration) -> Estimate {
    let of_mask = process.calibrations.iter().filter(|c| c.counters == known.counters);
    let means = of_mask.filter_map(|c| {
        let sums = c.sums.as_ref()?;
        Some((sums.total_ticks.mean_and_deviation(sums.calls)?, f64::from(sums.calls)))
    });
    let (mut n, mut sum, mut variance) = (0.0, 0.0, 0.0);
    for ((mean, deviation), calls) in means {
        n += calls;
        sum += mean * calls;
        variance += deviation * deviation * calls;
    }
    match n > 0.0 {
        true => Estimate::within(sum / n, NORMAL_95 * variance.sqrt() / n),
        false => Estimate::exact(known.total_ticks as f64),
    }
}

/// Returns the mean times of the bracket's parts before and after a call, over all threads. With
/// `rehearsed`, the times are those of the calibration's empty calls. `None` if there are too few
/// times.
fn pool(process: &Process, mask: u32, rehearsed: bool, longest: f64) -> Option<[Estimate; 2]> {
    // The last block of times that a thread wrote contains everything that its earlier blocks
    // contain.
    let of = process.brackets.iter().filter(|b| b.counters == mask && b.rehearsed == rehearsed);
    let last: BTreeMap<u32, &Brackets> = of.map(|b| (b.thread_uid, b)).collect();
    let half = |half: fn(&Brackets) -> &Histogram| mean(last.values().map(|b| half(b)), longest);
    Some([half(|b| &b.before)?, half(|b| &b.after)?])
}

/// Returns the mean over several histograms with its interval. `None` for too few times.
pub(super) fn mean<'a>(all: impl Iterator<Item = &'a Histogram>, longest: f64) -> Option<Estimate> {
    let (mut n, mut sum, mut squares) = (0u64, 0.0, 0.0);
    for (bucket, count) in all.flat_map(|histogram| &histogram.0) {
        let middle = middle_of(usize::from(*bucket));
        if middle < longest {
            n += u64::from(*count);
            sum += middle * f64::from(*count);
            squares += middle * middle * f64::from(*count);
        }
    }
    if n < FEWEST {
        return None;
    }
    let n = n as f64;
    let variance = (squares - sum * sum / n).max(0.0) / (n - 1.0);
    Some(Estimate::within(sum / n, NORMAL_95 * (variance / n).sqrt()))
}
