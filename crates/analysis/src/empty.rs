//! What an empty call reads: the calibration of a process for one set of counters.

use profile::{Calibration, Profile};

/// The recorded values of an empty call, from the calibration of its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmptyCall {
    /// Median duration in ticks.
    pub ticks: u64,
    /// 10th and 90th percentile of the duration. This field and `ranges` are `None` in older
    /// profiles, which do not contain them.
    pub ticks_range: Option<[u64; 2]>,
    /// The median of each counter of the run; `None` if it was not calibrated.
    pub values: Vec<Option<u64>>,
    /// 10th and 90th percentile of each counter.
    pub ranges: Vec<Option<[u64; 2]>>,
}

impl EmptyCall {
    /// How far above the median nine of ten empty calls read at most, for one counter. If the range
    /// is not known, the median itself.
    pub(crate) fn doubt(&self, counter: usize) -> u64 {
        let median = self.values.get(counter).copied().flatten().unwrap_or(0);
        let high = self.ranges.get(counter).copied().flatten().map(|[_, high]| high);
        high.map_or(median, |high| high.saturating_sub(median))
    }

    /// Like [`doubt`](Self::doubt), for the duration, in ticks.
    pub(crate) fn doubt_ticks(&self) -> u64 {
        self.ticks_range.map_or(self.ticks, |[_, high]| high.saturating_sub(self.ticks))
    }
}

/// The calibration of a process for pages with exactly this set of counters. A calibration with
/// another set does not apply.
pub(crate) fn calibration(profile: &Profile, process: usize, mask: u32) -> Option<&Calibration> {
    let all = &profile.processes.get(process)?.calibrations;
    all.iter().find(|c| c.counters == mask)
}

/// What an empty call reads in pages with this set of counters. `None` if it was not calibrated.
pub(crate) fn empty_call(profile: &Profile, process: usize, mask: u32) -> Option<EmptyCall> {
    let calibration = calibration(profile, process, mask)?;
    let spread = calibration.spread.as_ref();
    let counters = || 0..profile.groups.counters();
    let read = |i: &usize| calibration.counters.checked_shr(*i as u32).unwrap_or(0) & 1 == 1;
    let value = |i: usize| calibration.inside_values.get(i).copied().filter(|_| read(&i));
    let range = |i: usize| spread?.inside_values.get(i).copied().filter(|_| read(&i));
    Some(EmptyCall {
        ticks: calibration.inside_ticks,
        ticks_range: spread.map(|spread| spread.inside_ticks),
        values: counters().map(value).collect(),
        ranges: counters().map(range).collect(),
    })
}
