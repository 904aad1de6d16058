//! Compares summaries of time series with numbers that were computed on paper.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::tracks::Values;
use analysis::{SeriesSummary, tracks};
use profile::safe_dir::Dir;
use profile::tracks::{Reading, Readings, Scope, Series, Times};
use profile::{Profile, Sample, TracksWriter};
use testkit::ProfileScript;

fn series(scale: f64, interval_ns: u64, cumulative: bool) -> Series {
    Series {
        track: "t".to_owned(),
        name: String::new(),
        unit: "J".to_owned(),
        scale,
        scope: Scope::Cpu(0),
        times: if cumulative { Times::Ticks } else { Times::Monotonic },
        cumulative,
        interval_ns,
        source: "perf".to_owned(),
    }
}

/// Returns the summary of one series with these samples, and the losses. A tick of the profile's
/// clock is 1 ns.
fn summary(
    series: Series,
    samples: &[(i64, Option<Reading>)],
) -> (SeriesSummary, Vec<(String, u64)>) {
    let (_scratch, dir) = ProfileScript::monotonic().written();
    let kind = if series.cumulative { Readings::Counts } else { Readings::Values };
    let mut writer = TracksWriter::create(&Dir::open(&dir).unwrap(), "run", kind).unwrap();
    let id = writer.describe(series);
    for (time, reading) in samples {
        writer.push(Sample { series: id, time: *time, reading: *reading }).unwrap();
    }
    writer.finish().unwrap();
    let mut all = tracks(&Profile::open(&dir).unwrap()).unwrap();
    assert_eq!(all.series.len(), 1);
    let losses = all.losses.into_iter().map(|loss| (loss.name, loss.count));
    (all.series.remove(0), losses.collect())
}

fn count(raw: u64, enabled_ns: u64, running_ns: u64) -> Option<Reading> {
    Some(Reading::Count { raw, enabled_ns, running_ns })
}

/// The samples are taken every 100 ms. The raw value grows by 10 and then by 30, and each unit of
/// it is 2 J. The counter wraps around at 2⁶⁴ in the first interval.
#[test]
fn totals_and_rates_of_a_counter() {
    let ms = 1_000_000;
    let (one, losses) = summary(
        series(2.0, 100 * ms as u64, true),
        &[
            (1_000 * ms, count(u64::MAX - 4, 0, 0)),
            (1_100 * ms, count(5, 100, 100)),
            (1_200 * ms, count(35, 200, 200)),
        ],
    );
    let expected = Values::Counted {
        total: 80.0,
        over_ns: 2e8,
        rate: 400.0,
        min_rate: 200.0,
        max_rate: 600.0,
        coverage: 1.0,
    };
    assert_eq!(one.values, Some(expected));
    assert_eq!((one.samples, one.failed, one.overruns), (3, 0, 0));
    assert_eq!((one.first_ns, one.last_ns), (1_000 * ms, 1_200 * ms));
    // The time between the last two samples is left out, because the end of the program may have
    // shortened it.
    assert_eq!(one.steps_ns, Some((1e8, 1e8)));
    assert_eq!(losses, []);
}

/// The reading at 200 ns failed. Three samples are missing between 200 ns and 600 ns, and the last
/// sample comes only 10 ns after the previous one.
#[test]
fn missed_and_failed_samples() {
    let times = [0i64, 100, 200, 600, 700, 710];
    let raws = [Some(0), Some(1), None, Some(6), Some(7), Some(8)];
    let samples = times
        .iter()
        .zip(raws)
        .map(|(time, raw)| (*time, raw.and_then(|raw| count(raw, *time as u64, *time as u64))));
    let (one, losses) = summary(series(1.0, 100, true), &samples.collect::<Vec<_>>());
    assert_eq!((one.samples, one.failed, one.overruns), (6, 1, 3));
    assert_eq!(one.steps_ns, Some((100.0, 400.0)));
    let Some(Values::Counted { total, over_ns, .. }) = one.values else { panic!("{one:?}") };
    assert_eq!((total, over_ns), (8.0, 710.0), "the interval spans the failed sample");
    assert_eq!(losses, [("track_overrun".to_owned(), 3), ("track_read_failed".to_owned(), 1)]);
}

/// A late sample is not a missed sample: the next sample is on time again.
#[test]
fn late_samples() {
    let samples: Vec<_> =
        [7, 101, 290, 301, 405, 501].iter().map(|t| (*t, count(*t as u64, 1, 1))).collect();
    let (one, losses) = summary(series(1.0, 100, true), &samples);
    assert_eq!((one.samples, one.overruns, losses), (6, 0, vec![]));
    assert_eq!(one.steps_ns, Some((11.0, 189.0)));
}

/// The counter counts all the time in the first interval, a quarter of the time in the second, and
/// not at all in the third.
#[test]
fn partial_counts_are_scaled_and_a_counter_that_never_ran_is_missing() {
    let (one, _) = summary(
        series(1.0, 1_000, true),
        &[
            (0, count(0, 0, 0)),
            (1_000, count(50, 1_000, 1_000)),
            (2_000, count(60, 2_000, 1_250)),
            (3_000, count(60, 3_000, 1_250)),
        ],
    );
    let expected = Values::Counted {
        // The total is 50 from the first interval plus 40 from the second, where the counter
        // counted 10 in a quarter of the time.
        total: 90.0,
        over_ns: 2_000.0,
        rate: 45e6,
        min_rate: 40e6,
        max_rate: 50e6,
        coverage: 1_250.0 / 2_000.0,
    };
    assert_eq!(one.values, Some(expected));
}

#[test]
fn one_reading_makes_no_interval() {
    let (one, _) = summary(series(1.0, 100, true), &[(0, count(7, 1, 1)), (100, None)]);
    assert_eq!(one.values, None, "the total is missing, not 0");
    assert_eq!(one.steps_ns, Some((100.0, 100.0)));
    let (none, _) = summary(series(1.0, 100, true), &[]);
    assert_eq!((none.samples, none.values, none.steps_ns), (0, None, None));
}

/// In the first series, the value is 1 for 300 ns, then 5 for 100 ns, and −3 at the end. The scale
/// multiplies these values by 10. In the second series, both readings have the same time.
#[test]
fn levels_are_weighted_by_time() {
    let value = |value| Some(Reading::Value(value));
    let samples = [(-300, value(1.0)), (0, value(5.0)), (50, None), (100, value(-3.0))];
    let (one, losses) = summary(series(10.0, 0, false), &samples);
    let expected = Values::Level { mean: 20.0, min: -30.0, max: 50.0, last: -30.0 };
    assert_eq!(one.values, Some(expected));
    assert_eq!(losses, [("track_read_failed".to_owned(), 1)]);
    let (one, _) = summary(series(1.0, 0, false), &[(5, value(1.0)), (5, value(2.0))]);
    let expected = Values::Level { mean: 1.5, min: 1.0, max: 2.0, last: 2.0 };
    assert_eq!(one.values, Some(expected));
}
