//! Computes how much a row, or all rows together, contribute to the difference between A and B.

use super::ranks::{deviation, median};
use crate::interval::student::t95;

/// A contribution to the difference between the times of runs (B minus A), in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// The mean of the pairs' differences or, if the runs are not paired, the difference of the
    /// medians.
    pub ns: f64,
    /// The 95 % interval by Student's t. `None` if the runs are not paired, or if there is only one
    /// pair.
    pub interval: Option<[f64; 2]>,
}

/// Returns the difference B minus A. `None` without values.
pub fn difference(a: &[f64], b: &[f64], is_paired: bool) -> Option<Part> {
    if !is_paired {
        return Some(Part { ns: median(b)? - median(a)?, interval: None });
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    let n = differences.len() as f64;
    let ns = differences.iter().sum::<f64>() / n;
    let half = deviation(&differences).map(|sd| t95(n - 1.0) * sd / n.sqrt());
    ns.is_finite().then_some(Part { ns, interval: half.map(|half| [ns - half, ns + half]) })
}
