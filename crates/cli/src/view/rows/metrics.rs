//! Formats metrics for tables and JSON.

use model::metric::Bound;
use serde::Serialize;

use crate::object::object;
use crate::view::units;

/// Returns the [`crate::view::table::Column::rank`] of a metric, which decides when a narrow table
/// leaves the metric out. Metrics that the user asked for stay as long as counters. Built-in
/// metrics are left out earlier: first the rates over time and those that repeat another metric.
pub fn rank(metric: &Bound) -> u8 {
    const LESS: [&str; 5] = ["cpi", "frequency", "cpu-utilisation", "fault-rate", "switch-rate"];
    let name = metric.name.split(':').next().unwrap_or_default();
    match metric.builtin {
        false => 3,
        true if LESS.contains(&name) => 11,
        true => 5,
    }
}

pub fn metrics_out(metrics: &[Bound]) -> Vec<impl Serialize> {
    let out = |metric| {
        let Bound { name, expression, unit, builtin, .. }: &Bound = metric;
        object! { name, expression, unit: &unit.name, builtin: *builtin }
    };
    metrics.iter().map(out).collect()
}

pub fn text(value: f64, unit: &str, declared: bool) -> String {
    if value < 0.0 {
        return format!("-{}", text(-value, unit, declared));
    }
    // Values below 1 keep three significant digits.
    let number = |value: f64| match value {
        v if v == 0.0 || v >= 0.995 => units::number(v),
        v => units::general(v, 3),
    };
    match (unit, declared) {
        ("%", _) => units::percent(value / 100.0),
        ("ratio" | "count", _) => number(value),
        ("ns", false) => units::time(value),
        ("bytes", false) => units::bytes(value),
        ("bytes/s", false) => format!("{}/s", units::bytes(value)),
        ("/s", _) => format!("{}/s", number(value)),
        ("Hz", false) if value >= 999.5 => {
            let scaled = [(1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz")];
            let (step, unit) =
                scaled.into_iter().find(|(s, _)| value >= 0.9995 * s).unwrap_or((1e3, "kHz"));
            format!("{} {unit}", units::number(value / step))
        }
        _ => format!("{} {unit}", number(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn values_for_people() {
        for (value, unit, declared, expected) in [
            (1.5, "ratio", false, "1.5"),
            (0.0, "ratio", false, "0"),
            (0.00123, "ratio", false, "0.00123"),
            (-0.25, "ratio", false, "-0.25"),
            (12.34, "%", true, "12.3 %"),
            (3.2e9, "Hz", false, "3.2 GHz"),
            (999.6e6, "Hz", false, "1 GHz"),
            (12.0, "Hz", false, "12 Hz"),
            (3.2, "GHz", true, "3.2 GHz"),
            (1.23e9, "bytes/s", false, "1.23 GB/s"),
            (1_234.0, "bytes", false, "1,234 B"),
            (12_345.0, "/s", false, "12,345/s"),
            (1_500.0, "ns", false, "1.50 µs"),
            (1_500.0, "ns", true, "1,500 ns"),
            (0.5, "W", false, "0.5 W"),
            (2e15, "bytes^2/s", false, "2.00 P bytes^2/s"),
        ] {
            assert_eq!(text(value, unit, declared), expected);
        }
    }
}
