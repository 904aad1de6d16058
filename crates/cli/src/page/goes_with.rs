//! Makes a table for each op, with the correlations between counters and the duration of the op's
//! calls, as `stats` prints them.

use std::collections::HashMap;

use analysis::Key;
use analysis::metrics::is_clock_of_threads;
use analysis::stats::{OpStats, Options, Pair, stats};
use profile::Profile;

use super::data::{CellOut, ColumnOut, MarkOut, PlotOut, TableOut};
use crate::view::statistics::coefficients;
use crate::view::units::{general, grouped, plural};

/// With more values (of durations and counters) than this, a page has no correlations. Rank
/// correlations need all values of an op in memory at once.
const VALUES: u64 = 20_000_000;
/// The limit of the memory for the values of several ops at the same time, in bytes.
const MEMORY: usize = 256 << 20;

pub struct Related {
    /// The coefficients and the number of calls as text, for each counter of the profile; `None`
    /// for a counter without a correlation.
    pub words: Vec<Option<String>>,
    /// The strongest correlation comes first.
    pub table: TableOut,
}

/// Returns the correlations of each op that has at least one. Returns an empty map if there are no
/// counters, if there are more than [`VALUES`] values, or if `stats` fails.
pub fn of(profile: &Profile, raw: bool) -> HashMap<Key, Related> {
    let counters = profile.manifest.counters.len() as u64;
    if counters == 0 || profile.calls().saturating_mul(counters + 1) > VALUES {
        return HashMap::new();
    }
    let options = Options { tables: false, raw, memory: Some(MEMORY), ..Options::default() };
    let Ok(found) = stats(profile, &options) else { return HashMap::new() };
    let one = |op: &OpStats| Some((op.key, related(profile, op)?));
    found.ops.iter().filter_map(one).collect()
}

/// Returns the correlations of an op; `None` if no counter has one.
fn related(profile: &Profile, op: &OpStats) -> Option<Related> {
    // In a run with a budget (a limit for the cost of recording), only the timed calls have values.
    let timed = if profile.is_sampled() { "timed " } else { "" };
    let counters = &profile.manifest.counters;
    // In a pair, variable 0 is the duration, and variable `at + 1` is the counter with index `at`.
    let pair = |at: usize| op.all.pairs.iter().find(|pair| (pair.of, pair.given) == (0, at + 1));
    let known = |at: &usize| pair(*at).filter(|p| p.pearson.or(p.spearman).is_some());
    let mut order: Vec<(usize, &Pair)> =
        (0..counters.len()).filter_map(|at| Some((at, known(&at)?))).collect();
    let strength = |pair: &Pair| pair.spearman.or(pair.pearson).map_or(0.0, f64::abs);
    order.sort_by(|a, b| strength(b.1).total_cmp(&strength(a.1)));
    let mut words = vec![None; counters.len()];
    for (at, pair) in &order {
        let calls = plural(pair.calls.into(), &format!("{timed}call"));
        words[*at] = Some(format!("{}, over {calls}", coefficients(pair)));
    }
    let cell = |value: Option<f64>| match value {
        Some(value) => CellOut::Number(general(value, 2), value),
        None => CellOut::Missing(()),
    };
    let mark = |(at, pair): &(usize, &Pair)| {
        let value = pair.spearman.or(pair.pearson)?;
        let kind = if op.all.is_noise(at + 1) { "unknown" } else { "related" };
        let at = (value.clamp(-1.0, 1.0) + 1.0) / 2.0;
        // The mark needs no text, because a cell of the row shows the coefficient.
        Some(MarkOut { at, ends: None, kind, text: String::new() })
    };
    let note = |at: usize| match () {
        () if op.all.is_noise(at + 1) => "mostly noise of the probe",
        () if is_clock_of_threads(profile, at) => {
            "a part of the duration, so it goes with it anyway"
        }
        () => "",
    };
    let row = |(at, pair): &(usize, &Pair)| {
        vec![
            CellOut::Text(counters[*at].name.clone()),
            cell(pair.spearman),
            cell(pair.pearson),
            CellOut::Number(grouped(pair.calls.into()), pair.calls as f64),
            CellOut::Text(note(*at).to_owned()),
        ]
    };
    let ticks = [(0.0, "−1"), (0.5, "0"), (1.0, "1")].map(|(at, text)| (at, text.to_owned()));
    let plot = PlotOut {
        title: "with long calls".to_owned(),
        after: 0,
        ticks: ticks.to_vec(),
        zero: 0.5,
        band: None,
        is_bars: true,
        rows: order.iter().map(mark).collect(),
    };
    let mut columns = vec![
        ColumnOut::new("counter", "counter", true),
        ColumnOut::new("spearman", "Spearman (ranks)", false),
        ColumnOut::new("pearson", "Pearson (values)", false),
        ColumnOut::new("calls", &format!("{timed}calls"), false),
        ColumnOut::new("note", "", true),
    ];
    let mut rows: Vec<Vec<CellOut>> = order.iter().map(row).collect();
    if order.iter().all(|(at, _)| note(*at).is_empty()) {
        columns.pop();
        rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    let title = "Correlations of the counters";
    let plots = vec![plot];
    let table = TableOut { plots, ..TableOut::plain("goes_with", "ops", title, columns, rows) };
    (!order.is_empty()).then_some(Related { words, table })
}
