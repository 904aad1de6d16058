//! Defines the results of a thread's calibration: the cost of a probe (the recording of one empty
//! call), and what the counters count during an empty call.

use crate::wire::{last, wire};

/// See [`crate::meta::Frame::Calibration`]. The fields `inside…` and `total_ticks` are medians.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Number of empty calls that were recorded.
    pub calls: u32,
    /// Bit *i* is set if counter *i* was read.
    pub counters: u32,
    /// Duration in ticks that is recorded for an empty call.
    pub inside_ticks: u64,
    /// Number of ticks by which one probe delays the program.
    pub total_ticks: u64,
    /// What an empty call adds to each counter, in the order of the run's counters.
    pub inside_values: Vec<u64>,
    /// How much the times and the counters' values vary from call to call. `None` if unknown.
    pub spread: Option<Spread>,
    /// Sums over the empty calls, from which means are computed. `None` if the sums or the spread
    /// are unknown.
    pub sums: Option<Sums>,
}

/// See [`Calibration::sums`]. Interrupted calls are left out. Interrupts are rare, also in the
/// program, but each takes as long as recording a hundred calls and would distort the sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The thread that was calibrated: [`crate::page::PageStart::thread_uid`].
    pub thread_uid: u32,
    /// Number of calls in the sums. Calls with cold caches are left out, too.
    pub calls: u32,
    /// Sums of the recorded durations, in ticks.
    pub inside_ticks: Moments,
    /// Sums of the times that the probes took, in ticks. For each call, this is the time of the
    /// call with its probe, minus the median time of a call without a probe.
    pub total_ticks: Moments,
    /// Sums of what each counter read, in the order of [`Calibration::inside_values`].
    pub inside_values: Vec<Moments>,
}

/// The sum of some values, and the sum of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// Sum of the values.
    pub sum: u64,
    /// Sum of the squares of the values. The sum saturates at the maximum of `u64`, which empty
    /// calls do not reach in practice.
    pub squares: u64,
}

impl Moments {
    pub fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.squares = self.squares.saturating_add(value.saturating_mul(value));
    }

    /// Returns the mean and the standard deviation of `n` values; `None` for fewer than two.
    pub fn mean_and_deviation(&self, n: u32) -> Option<(f64, f64)> {
        if n < 2 {
            return None;
        }
        let (n, sum) = (f64::from(n), self.sum as f64);
        let rest = self.squares as f64 - sum * sum / n;
        Some((sum / n, (rest.max(0.0) / (n - 1.0)).sqrt()))
    }
}

/// See [`Calibration::spread`]. A range goes from the 10th to the 90th percentile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Range of [`Calibration::inside_ticks`].
    pub inside_ticks: [u64; 2],
    /// Range of the times that the probes took, in ticks: see [`Sums::total_ticks`].
    pub total_ticks: [u64; 2],
    /// Range of each counter's values, in the order of [`Calibration::inside_values`].
    pub inside_values: Vec<[u64; 2]>,
    /// For each counter group: the median time for which the group was enabled between its readings
    /// before and after an empty call, in ns. The groups are in the order in which they were read.
    /// This time exceeds the recorded duration of the call by about the time that one reading
    /// takes.
    pub enabled_ns: Vec<u64>,
}

wire!(Calibration {
    calls, counters, inside_ticks, total_ticks, inside_values, spread as last, sums as last
});
wire!(Spread { inside_ticks, total_ticks, inside_values, enabled_ns });
wire!(Sums { thread_uid, calls, inside_ticks, total_ticks, inside_values });
wire!(Moments { sum, squares });
