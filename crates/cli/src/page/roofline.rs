//! Makes the roofline chart, which shows ops below the limits (roofs) of their machine. Positions
//! on the logarithmic axes are from 0 to 1.

use analysis::roofline::{Level, Placed, Roofs};
use analysis::work::Number;

use super::data::{PointOut, RoofOut, RooflineOut};
use crate::view::units::{general, number, percent, plural};

/// What the chart shows. `rows` are in the same order as in the table of the roofline.
pub struct Roofline {
    pub rows: Vec<Placed>,
    pub roofs: Option<Roofs>,
    /// The reason why there are no roofs, and how to measure them.
    pub no_roofs: Option<&'static str>,
}

/// A roof limits an op that reaches at least this part of the roof.
pub const NEAR: f64 = 0.25;

const MOST_TICKS: i32 = 9;

struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Makes an axis for these values; `None` if no value is positive and finite.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = values
            .filter(|value| *value > 0.0 && value.is_finite())
            .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        (low <= high).then(|| Self { low: low / 2.0, high: high * 2.0 })
    }

    fn place(&self, value: f64) -> f64 {
        ((value / self.low).ln() / (self.high / self.low).ln()).clamp(0.0, 1.0)
    }

    /// Returns ticks (position and text) at `unit` times powers of ten. If there are many powers,
    /// some are left out.
    fn ticks(&self, unit: f64) -> Vec<(f64, String)> {
        let (low, high) = (self.low / unit, self.high / unit);
        let powers = low.log10().ceil() as i32..=high.log10().floor() as i32;
        let step = (powers.end() - powers.start() + 1).div_euclid(MOST_TICKS).max(0) + 1;
        let tick = |power: i32| {
            let value = 10f64.powi(power);
            // [`number`] would print several small values as the same text.
            let text = if power < 0 { general(value, 1) } else { number(value) };
            (self.place(value * unit), text)
        };
        powers.step_by(step as usize).map(tick).collect()
    }
}

/// Makes the chart. Rows with unknown positions are left out.
pub fn of(wanted: &Roofline) -> RooflineOut {
    let place = |row: &Placed| Some((row.intensity()?, row.flop_rate()?));
    let known: Vec<(&Placed, (f64, f64))> =
        wanted.rows.iter().filter_map(|row| Some((row, place(row)?))).collect();
    let threads = known.iter().map(|(row, _)| row.threads).max().unwrap_or(1);
    let (peak, slopes) = match &wanted.roofs {
        Some(roofs) => roofs_of(roofs, &known, threads),
        None => (None, Vec::new()),
    };
    let x = Axis::of(known.iter().map(|(_, (x, _))| *x).chain(ridges(peak, &slopes)));
    let y = Axis::of(known.iter().map(|(_, (_, y))| *y).chain(peak));
    let (Some(x), Some(y)) = (x, y) else {
        let about = wanted
            .no_roofs
            .map_or_else(String::new, |why| format!("{why}. Then write this page again."));
        return RooflineOut { about, ..RooflineOut::default() };
    };
    let mut roofs: Vec<RoofOut> = Vec::new();
    let steepest = slopes.iter().map(|(_, slope)| *slope).fold(0.0, f64::max);
    if let Some(peak) = peak {
        let from = if steepest > 0.0 { (peak / steepest).max(x.low) } else { x.low };
        let at = y.place(peak);
        let text = format!("{} GFLOP/s, 32-bit", number(peak / 1e9));
        roofs.push(RoofOut { text, ends: [x.place(from), at, 1.0, at] });
    }
    for (level, slope) in &slopes {
        // The line of a bandwidth goes from an edge of the chart to the peak or, if the peak is not
        // known, to another edge.
        let from = x.low.max(y.low / slope);
        let to = x.high.min(peak.unwrap_or(y.high) / slope);
        if from < to {
            let name = level.map_or_else(|| "memory".to_owned(), |level| format!("L{level}"));
            let text = format!("{name}, {} GB/s", number(slope / 1e9));
            let ends = [x.place(from), y.place(slope * from), x.place(to), y.place(slope * to)];
            roofs.push(RoofOut { text, ends });
        }
    }
    let point = |(row, (intensity, rate)): &(&Placed, (f64, f64))| {
        let rate_text = format!("{} GFLOP/s", number(rate / 1e9));
        let of_roof = row.roof.map_or(String::new(), |roof| {
            let why = match roof.part < NEAR {
                true => "far below both roofs".to_owned(),
                false => format!("bound by {}", roof.holds.name()),
            };
            format!(", {} of its roof, {why}", percent(roof.part))
        });
        PointOut {
            name: row.name.clone(),
            at: [x.place(*intensity), y.place(*rate)],
            holds: match row.roof {
                None => "unknown",
                Some(roof) if roof.part < NEAR => "far",
                Some(roof) => roof.holds.name(),
            },
            text: format!("{}: {rate_text}{of_roof}", row.name),
        }
    };
    let ops = plural(known.len() as u128, "op");
    let about = match &wanted.roofs {
        Some(_) => format!("{ops} under the roofs of {}.", plural(threads.into(), "core")),
        None => {
            let why = wanted.no_roofs.unwrap_or("the roofs of their machine are not known");
            format!("{ops}; {why}. Then write this page again.")
        }
    };
    RooflineOut {
        about,
        x: x.ticks(1.0),
        y: y.ticks(1e9),
        roofs,
        points: known.iter().map(point).collect(),
    }
}

/// Returns the peak of 32-bit floating-point operations, and the bandwidths of main memory and of
/// the caches that ops are compared with.
fn roofs_of(
    roofs: &Roofs,
    known: &[(&Placed, (f64, f64))],
    threads: u32,
) -> (Option<f64>, Vec<(Level, f64)>) {
    let peak = roofs.peak(Number { is_float: true, bits: 32 }, threads);
    let caches = roofs.caches.iter().map(|cache| Some(cache.level));
    let used = |level: &Level| {
        level.is_none()
            || known.iter().any(|(row, _)| row.roof.is_some_and(|roof| roof.level == *level))
    };
    let levels = caches.chain([None]).filter(used);
    let slopes = levels.filter_map(|level| Some((level, roofs.bandwidth(level, threads)?)));
    (peak, slopes.collect())
}

/// Returns the intensities at which the lines of the bandwidths reach the peak.
fn ridges(peak: Option<f64>, slopes: &[(Level, f64)]) -> Vec<f64> {
    peak.map_or_else(Vec::new, |peak| slopes.iter().map(|(_, slope)| peak / slope).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests, which may panic")]
mod tests {
    use analysis::roofline::{Bandwidth, Peak};
    use analysis::work::Work;

    use super::*;

    fn row(name: &str, flop: f64, bytes: f64, ns: f64) -> Placed {
        Placed {
            name: name.to_owned(),
            arguments: String::new(),
            calls: 1,
            dispatches: None,
            ns,
            threads: 1,
            work: Work { flop: Some(flop), bytes: Some(bytes), number: None },
            roof: None,
        }
    }

    /// The roofs of 10 GB/s and 100 GFLOP/s meet at 10 operations per byte. Each of the two ops
    /// lies on one of these roofs.
    #[test]
    fn places_on_paper() {
        let roofs = Roofs {
            cores: 1,
            peaks: vec![Peak { number: 32, cores: 1, rate: 100e9 }],
            bandwidths: vec![Bandwidth { level: None, cores: 1, rate: 10e9 }],
            caches: Vec::new(),
        };
        let rows = vec![row("slope", 1e9, 1e9, 1e8), row("top", 1e9, 1e7, 1e7)];
        let found = of(&Roofline { rows, roofs: Some(roofs), no_roofs: None });
        // The axes go from 0.5 to 200 operations per byte, and from 5 to 200 GFLOP/s.
        let x = |value: f64| (value / 0.5).ln() / 400f64.ln();
        let y = |value: f64| (value / 5.0).ln() / 40f64.ln();
        let near = |a: &[f64], b: &[f64]| {
            assert_eq!(a.len(), b.len());
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} and {b:?}");
        };
        near(&found.points[0].at, &[x(1.0), y(10.0)]);
        near(&found.points[1].at, &[x(100.0), y(100.0)]);
        assert_eq!(found.roofs.len(), 2);
        near(&found.roofs[0].ends, &[x(10.0), y(100.0), 1.0, y(100.0)]);
        near(&found.roofs[1].ends, &[x(0.5), 0.0, x(10.0), y(100.0)]);
        assert_eq!(found.roofs[1].text, "memory, 10 GB/s");
        let texts =
            |ticks: &[(f64, String)]| ticks.iter().map(|(_, t)| t.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&found.x).len(), 3, "1, 10, 100");
        assert_eq!(texts(&found.y).len(), 2, "10, 100");
        assert_eq!(found.points[0].holds, "unknown");
    }

    /// Ticks of one axis have different texts, even if the values are small.
    #[test]
    fn ticks_are_told_apart() {
        let axis = Axis { low: 2e-6, high: 3e7 };
        let texts: Vec<String> = axis.ticks(1.0).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["1e-05", "0.001", "0.1", "10", "1,000", "100,000", "10.0 M"]);
        let small = Axis { low: 0.0008, high: 2.0 };
        let texts: Vec<String> = small.ticks(1.0).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["0.001", "0.01", "0.1", "1"]);
    }

    #[test]
    fn without_places_there_is_no_chart() {
        let mut unknown = row("x", 1.0, 1.0, 1.0);
        unknown.work.bytes = None;
        let nothing = row("y", 0.0, 0.0, 1.0);
        let no_roofs = Some("no roofs: measure them");
        let found = of(&Roofline { rows: vec![unknown, nothing], roofs: None, no_roofs });
        assert!(found.points.is_empty());
        assert_eq!(found.about, "no roofs: measure them. Then write this page again.");
        let one = of(&Roofline { rows: vec![row("z", 1.0, 1.0, 1.0)], roofs: None, no_roofs });
        assert_eq!(found.about, one.about.replacen("1 op; ", "", 1));
        let all = one.x.iter().chain(&one.y).map(|(at, _)| *at).chain(one.points[0].at);
        assert!(all.into_iter().all(f64::is_finite));
    }
}
