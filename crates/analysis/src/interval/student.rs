//! Computes quantiles of Student's t distribution.

use std::sync::OnceLock;

/// The two-sided 95 % quantile of the normal distribution.
const NORMAL: f64 = 1.959_963_984_540_054;
/// For fewer degrees of freedom than this, the quantile is found by bisection. Otherwise, it is
/// computed by a series with an error below 2e-9.
const EXPANDED: usize = 200;

/// Returns half the width of a 95 % interval, as a multiple of the standard error, for this many
/// degrees of freedom. A number below 1 counts as 1, and other numbers are rounded down.
pub fn t95(freedom: f64) -> f64 {
    static SOLVED: OnceLock<Vec<f64>> = OnceLock::new();
    // Because of rounding errors, a whole number of degrees of freedom may be slightly too small,
    // so a little is added before rounding down.
    let freedom = if freedom >= 1.0 { (freedom + 1e-6).floor() } else { 1.0 };
    if freedom >= EXPANDED as f64 {
        return expanded(freedom);
    }
    let solved = SOLVED.get_or_init(|| (0..EXPANDED).map(|n| solved(n.max(1))).collect());
    solved[freedom as usize]
}

/// Computes the quantile by a series: Abramowitz and Stegun, Handbook of Mathematical Functions,
/// 26.7.5.
fn expanded(freedom: f64) -> f64 {
    let (z, n) = (NORMAL, freedom);
    let odd = |power: i32| z.powi(power);
    z + (odd(3) + z) / (4.0 * n)
        + (5.0 * odd(5) + 16.0 * odd(3) + 3.0 * z) / (96.0 * n * n)
        + (3.0 * odd(7) + 19.0 * odd(5) + 17.0 * odd(3) - 15.0 * z) / (384.0 * n * n * n)
}

/// Finds the quantile by bisection: the probability of a value between −t and t rises with t.
fn solved(freedom: usize) -> f64 {
    let (mut low, mut high) = (1.0, 16.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if within(middle, freedom) < 0.95 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Returns the probability of a value between −t and t: Abramowitz and Stegun, 26.7.3 and 26.7.4.
fn within(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    // The terms of the sum contain the even powers of the cosine from 0 on if `freedom` is even,
    // and otherwise the odd powers from 1 on.
    let (mut term, mut sum, mut k) = if odd { (cos, 0.0, 1) } else { (1.0, 0.0, 0) };
    while k + 2 <= freedom {
        sum += term;
        term *= cos * cos * (k + 1) as f64 / (k + 2) as f64;
        k += 2;
    }
    match odd {
        true => std::f64::consts::FRAC_2_PI * (angle + sin * sum),
        false => sin * sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are from the tables of Abramowitz and Stegun (26.10) and of NIST's
    /// handbook (1.3.6.7.2).
    #[test]
    fn as_in_the_tables() {
        for (freedom, quantile) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (10, 2.228),
            (30, 2.042),
            (60, 2.000),
            (100, 1.984),
            (120, 1.980),
        ] {
            let found = t95(f64::from(freedom));
            assert!((found - quantile).abs() < 0.000_51, "{freedom}: {found}");
        }
        assert!((t95(f64::INFINITY) - 1.96).abs() < 0.001);
        assert_eq!(t95(0.3), t95(1.0));
        assert_eq!(t95(9.9), t95(9.0));
        assert_eq!(t95(9.0f64.next_down()), t95(9.0));
    }

    #[test]
    fn both_ways_agree_where_they_meet() {
        for freedom in [EXPANDED - 1, EXPANDED, EXPANDED + 1] {
            let difference = solved(freedom) - expanded(freedom as f64);
            assert!(difference.abs() < 2e-9, "{freedom}: {difference}");
        }
    }
}
