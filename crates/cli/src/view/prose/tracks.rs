//! Prepares the time series of a report, for a table and for JSON.

use std::collections::HashMap;

use analysis::SeriesSummary;
use analysis::tracks::{Values, series_of};
use profile::Profile;
use profile::tracks::{ScopeNames, Series};
use serde::Serialize;

use super::overview::Overview;
use crate::object::object;
use crate::terminal::visible;
use crate::view::units::{bytes, grouped, number, percent, time};

/// The table lists at most this many time series.
pub const LISTED: usize = 32;

pub fn json(overview: &Overview<'_>) -> Vec<impl Serialize> {
    let all = overview.tracks.series.iter();
    all.filter_map(|summary| out(overview.profile, summary)).collect()
}

fn out(profile: &Profile, summary: &SeriesSummary) -> Option<impl Serialize> {
    let (tracks, series) = series_of(profile, summary)?;
    let any = summary.samples > 0;
    let mut result = object! {
        tracks: &tracks.name,
        series: summary.series,
        track: &series.track,
        name: &series.name,
        unit: &series.unit,
        scope: series.scope.kind(),
        scope_number: series.scope.number(),
        source: &series.source,
        cumulative: series.cumulative,
        interval_ns: Some(series.interval_ns).filter(|ns| *ns > 0),
        samples: summary.samples,
        failed: summary.failed,
        overruns: summary.overruns,
        first_ns: any.then_some(summary.first_ns),
        last_ns: any.then_some(summary.last_ns),
        step_min_ns: summary.steps_ns.map(|(min, _)| min),
        step_max_ns: summary.steps_ns.map(|(_, max)| max),
        total: None,
        over_ns: None,
        rate: None,
        rate_unit: None,
        rate_min: None,
        rate_max: None,
        coverage: None,
        mean: None,
        min: None,
        max: None,
        last: None,
    };
    match summary.values {
        Some(Values::Counted { total, over_ns, rate, min_rate, max_rate, coverage }) => {
            (result.total, result.over_ns) = (Some(total), Some(over_ns));
            (result.rate, result.rate_unit) = (Some(rate), Some(rate_unit(&series.unit)));
            (result.rate_min, result.rate_max) = (Some(min_rate), Some(max_rate));
            result.coverage = Some(coverage);
        }
        Some(Values::Level { mean, min, max, last }) => {
            (result.mean, result.min) = (Some(mean), Some(min));
            (result.max, result.last) = (Some(max), Some(last));
        }
        None => {}
    }
    Some(result)
}

fn rate_unit(unit: &str) -> String {
    match unit {
        "J" => "W".to_owned(),
        "" => "1/s".to_owned(),
        unit => format!("{unit}/s"),
    }
}

/// Returns a row for each time series: track, scope, total, mean, lowest and highest value, and
/// number of samples. The flag of a row says whether its total is an estimate.
pub fn rows(overview: &Overview<'_>) -> Vec<([String; 7], bool)> {
    let dash = || "–".to_owned();
    let scopes: Vec<ScopeNames<'_>> = overview.profile.tracks.iter().map(ScopeNames::of).collect();
    let row = |summary: &SeriesSummary| {
        let (_, series) = series_of(overview.profile, summary)?;
        let name = match series.name.as_str() {
            "" => series.track.clone(),
            name => format!("{} {name}", series.track),
        };
        let mut estimated = false;
        let [total, mean, min, max] = match summary.values {
            None => [dash(), dash(), dash(), dash()],
            Some(Values::Counted { total, rate, min_rate, max_rate, coverage, .. }) => {
                estimated = coverage < 1.0;
                let total = amount(total, &series.unit) + if estimated { "~" } else { "" };
                let [rate, min, max] = [rate, min_rate, max_rate].map(|r| per_second(r, series));
                [total, rate, min, max]
            }
            Some(Values::Level { mean, min, max, .. }) => {
                let [mean, min, max] = [mean, min, max].map(|v| amount(v, &series.unit));
                [dash(), mean, min, max]
            }
        };
        let samples = grouped(summary.samples.into());
        let scope = visible(&scopes.get(summary.tracks)?.name(series)).into_owned();
        Some(([visible(&name).into_owned(), scope, total, mean, min, max, samples], estimated))
    };
    // Keeps the series of a track together. Tracks keep their order.
    let mut order: Vec<&SeriesSummary> = overview.tracks.series.iter().collect();
    let track = |summary: &SeriesSummary| {
        series_of(overview.profile, summary).map(|(tracks, series)| (&tracks.name, &series.track))
    };
    let mut first = HashMap::new();
    for (at, summary) in order.iter().enumerate() {
        first.entry(track(summary)).or_insert(at);
    }
    order.sort_by_key(|summary| first.get(&track(summary)));
    order.into_iter().filter_map(row).collect()
}

fn amount(value: f64, unit: &str) -> String {
    if value < 0.0 || !value.is_finite() {
        return format!("{value} {unit}").trim_end().to_owned();
    }
    match unit {
        "ns" => time(value),
        "bytes" => bytes(value),
        "" | "count" | "cycles" | "other" => number(value),
        unit => format!("{} {unit}", number(value)),
    }
}

fn per_second(rate: f64, series: &Series) -> String {
    match series.unit.as_str() {
        "J" => format!("{} W", number(rate)),
        // The rate of a counter in ns is in ns per second, so it is formatted as a time.
        "ns" => format!("{}/s", time(rate)),
        unit => format!("{}/s", amount(rate, unit)),
    }
}

/// Returns a text about how regularly the time series were sampled. Empty if none of them has a
/// fixed sampling interval.
pub fn evenness(overview: &Overview<'_>) -> String {
    let sampled = || {
        overview.tracks.series.iter().filter_map(|summary| {
            let (_, series) = series_of(overview.profile, summary)?;
            (series.interval_ns > 0).then_some((summary, series.interval_ns as f64))
        })
    };
    let Some((_, interval)) = sampled().next() else { return String::new() };
    let steps = sampled().filter_map(|(summary, _)| summary.steps_ns);
    let Some((min, max)) = steps.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
        return format!("meant to be sampled every {}", time(interval));
    };
    let off = (max - interval).abs().max((interval - min).abs()) / interval;
    format!(
        "sampled every {}; time between samples from {} to {} (at most {} off)",
        time(interval),
        time(min),
        time(max),
        percent(off)
    )
}
