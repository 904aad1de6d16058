//! Estimates the cost of announcing ops (calling the recorder before and after each op) from the
//! processor time of a program's steps, such as training steps. This is possible because, in a run
//! with a budget, PyTorch announces its ops only in randomly chosen steps ([`profile::Steps`]).
//!
//! ```text
//!  price of a step   D = median(steps that were seen) − median(steps that were away)
//!                    ± 1.96 · √(e² of the one + e² of the other),    e = 1.2533 · 1.4826 · MAD / √n
//!  announcing        D · number of steps that were seen − brackets and counting, which D contains
//! ```
//!
//! In *seen* steps, ops were announced, and in *away* steps they were not. For a normal
//! distribution, the median distance from the median (MAD) is 1/1.4826 of the standard deviation.
//! The standard error of the median is 1.2533 times that of the mean.

use profile::Steps;

use crate::estimate::Estimate;

/// With fewer timed steps than this of either kind (seen or away), there is no estimate.
const FEWEST: u64 = 10;
/// The factor in the formula of e at the top.
const ERROR: f64 = 1.2533 * 1.4826;
/// The quantile of the normal distribution for a two-sided 95 % interval.
const Z: f64 = 1.96;

/// Estimates the cost of announcing ops, in ns: the additional time of the steps with announced
/// ops, minus `others`. `others` is the cost of brackets (the recorder's work around calls) and of
/// counting calls. `None` if there are too few steps.
///
/// If other programs disturb the steps, the additional time can be too small, or even negative. So
/// neither the result nor the upper end of its interval is below what `announcing` allows: the cost
/// according to the measured times of announcements.
pub(super) fn way(
    steps: Option<&Steps>,
    others: Estimate,
    announcing: Option<Estimate>,
) -> Option<Estimate> {
    let of = steps.filter(|of| of.seen_timed.min(of.away_timed) >= FEWEST)?;
    let each = of.seen_ns as f64 - of.away_ns as f64;
    let error = |spread: u64, n: u64| ERROR * spread as f64 / (n as f64).sqrt();
    let errors = error(of.seen_spread, of.seen_timed).hypot(error(of.away_spread, of.away_timed));
    let away = of.away.saturating_sub(of.away_before);
    let seen = of.steps.saturating_sub(away) as f64;
    let at_least_0 = |each: f64| (each * seen - others.value).max(0.0);
    let known = announcing.unwrap_or(Estimate::exact(0.0));
    Some(Estimate {
        value: at_least_0(each).max(known.low),
        low: at_least_0(each - Z * errors),
        high: at_least_0(each + Z * errors).max(known.high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step took 5,000 ns with announced ops and 4,000 without. Ops were announced in 20 of 100
    /// steps. Of the additional 20,000 ns, brackets took 3,000. e = 1.8581 · 100/√16 = 46.45 for
    /// both kinds of steps, so D is 1,000 ± 1.96 · 65.70, which is ± 128.8.
    #[test]
    fn announcing_is_what_steps_took_longer_without_what_is_known() {
        let of = Steps {
            steps: 100,
            away: 85,
            away_before: 5,
            seen_ns: 5_000,
            seen_timed: 16,
            seen_spread: 100,
            away_ns: 4_000,
            away_timed: 16,
            away_spread: 100,
            ..Steps::default()
        };
        let found = way(Some(&of), Estimate::exact(3_000.0), None).expect("enough steps");
        assert_eq!(found.value, 17_000.0);
        assert!((found.high - 17_000.0 - 20.0 * 128.77).abs() < 1.0, "{found:?}");
        assert!((found.low - 17_000.0 + 20.0 * 128.77).abs() < 1.0, "{found:?}");
        assert_eq!(way(Some(&Steps { away_timed: 9, ..of }), Estimate::exact(0.0), None), None);
        // Noise must not make the cost negative.
        let slower = way(Some(&Steps { away_ns: 6_000, ..of }), Estimate::exact(0.0), None);
        assert_eq!(slower.map(|of| (of.low, of.value)), Some((0.0, 0.0)));
        // The announcements were measured, too, so the cost is not 0.
        let slower = Steps { away_ns: 6_000, ..of };
        let measured = Estimate { value: 3_300.0, low: 2_400.0, high: 4_500.0 };
        let found = way(Some(&slower), Estimate::exact(0.0), Some(measured)).expect("enough steps");
        assert_eq!((found.low, found.value, found.high), (0.0, 2_400.0, 4_500.0));
        let found = way(Some(&of), Estimate::exact(3_000.0), Some(measured));
        assert_eq!(found.map(|of| of.value), Some(17_000.0));
        assert_eq!(way(None, Estimate::exact(0.0), None), None);
    }
}
