//! Finds the details of single ops for the page.

use std::collections::HashMap;

use analysis::details::bins::{Bins, Grid};
use analysis::details::{Drift, LongCall, Options, Rates};
use analysis::{Details, Explained, Key, OpDetails, details, explain};
use model::Unit;
use profile::Profile;

use super::data::{
    BinsOut, CellOut, DriftOut, JointOut, LaneOut, LongRowOut, LongestOut, OpOut, SeriesOut,
    TableOut,
};
use super::goes_with::{self, Related};
use super::timeline::Timeline;
use crate::view::explained;
use crate::view::labels::{labels, op_of, thread_label};
use crate::view::table::Value;
use crate::view::units::{number, plural, time};

/// Only this many ops, those with the most self time, have the sentences that `counterpoint
/// explain` prints.
const EXPLAINED: usize = 8;
const LONGEST: usize = 12;
/// To show how an op's durations changed, the time of the recording is divided into at most this
/// many parts.
const PARTS: usize = 80;
/// The largest number of columns, and of rows, in the picture of an op's durations and the values
/// of a counter.
const CELLS: usize = 32;
/// For the rates of a thread's counter, the time of the recording is divided into at most this many
/// parts.
const RATES: usize = 400;
/// The largest number of series (the rates of one counter on one thread) on the page. The timeline
/// shows a series between the calls of the threads. With more series, the calls of different
/// threads could hardly be compared.
const SERIES: usize = 12;
const SERIES_OF_THREAD: usize = 2;
/// At most this many of an op's threads have their own histograms.
const LANES: usize = 16;

/// The details of the ops, with times that are not yet relative to the start of the timeline.
pub struct Found {
    details: Details,
    related: HashMap<Key, Related>,
    explained: Vec<Explained>,
}

pub fn find(profile: &Profile, raw: bool, keys: &[Key]) -> Found {
    let options = Options {
        ops: keys,
        longest: LONGEST,
        parts: PARTS,
        rates: RATES,
        threads: SERIES,
        raw,
        workers: 0,
    };
    let few: Vec<Vec<Key>> = keys.iter().take(EXPLAINED).map(|key| vec![*key]).collect();
    Found {
        details: details(profile, &options),
        related: goes_with::of(profile, raw),
        explained: explain(profile, &few, raw, 0),
    }
}

/// Returns the details of these ops in the form that the page needs, in the order of `keys`, and
/// the series of the threads' counters. `table` is the page's table of ops.
pub fn of(
    profile: &Profile,
    found: &Found,
    keys: &[Key],
    table: &TableOut,
    timeline: &Timeline,
) -> (Vec<OpOut>, Vec<SeriesOut>) {
    let Found { details: found, related, explained: found_of } = found;
    let names = labels(profile, keys);
    let from = profile.timeline.realtime_ns(found.begin).saturating_sub(timeline.begin);
    let one = |(number, (of, label)): (usize, (&OpDetails, String))| {
        let op = op_of(profile, keys[number]);
        OpOut {
            name: op.map_or_else(|| label.clone(), |op| op.shown_name().to_owned()),
            label,
            place: op.map_or_else(String::new, place),
            facts: facts(table, number),
            times: bins(&of.times()),
            lanes: of.threads.iter().take(LANES).filter_map(|t| lane(profile, t)).collect(),
            drift: drift(profile, &of.drift, from),
            longest: longest(profile, timeline, &of.longest),
            joints: joints(profile, of, related.get(&keys[number])),
            explained: found_of.get(number).map_or_else(Vec::new, |explained| {
                let head = [explained::head(explained)];
                head.into_iter().chain(explained::sentences(profile, explained)).collect()
            }),
            goes_with: related.get(&keys[number]).map(|one| one.table.clone()),
        }
    };
    let ops = found.ops.iter().zip(names).enumerate().map(one).collect();
    (ops, series(profile, timeline, &found.rates, from))
}

/// Returns the rates of the threads' counters. The threads with the most calls come first.
fn series(
    profile: &Profile,
    timeline: &Timeline,
    rates: &[((usize, usize), Vec<Rates>)],
    from: i64,
) -> Vec<SeriesOut> {
    let ns_per_tick = profile.timeline.ns_per_tick();
    let mut series = Vec::new();
    for ((process, thread), counters) in rates {
        let lane = lane_of(profile, timeline, *process, *thread);
        let all = profile.manifest.counters.iter().zip(counters);
        let mut of_thread = 0;
        // Counters in nanoseconds get no series: they measure time in calls, which the timeline
        // shows anyway.
        for (counter, rates) in all.filter(|(c, _)| c.unit() != Unit::Nanoseconds) {
            let per_ns = rates.per_tick().into_iter().map(|rate| Some(rate? / ns_per_tick));
            let per_ns: Vec<Option<f64>> = per_ns.collect();
            let most = per_ns.iter().flatten().copied().fold(0.0, f64::max);
            if most <= 0.0 || series.len() == SERIES || of_thread == SERIES_OF_THREAD {
                continue;
            }
            of_thread += 1;
            let label = match lane {
                -1 => format!("{} of {}", counter.name, thread_label(profile, *process, *thread)),
                _ => format!("{} in calls", counter.name),
            };
            let (scale, unit) = match most {
                most if most >= 1.0 => (1.0, "ns"),
                most if most >= 1e-3 => (1e3, "µs"),
                _ => (1e6, "ms"),
            };
            let width = rates.width() as f64 * ns_per_tick;
            let at = |part: usize| from.saturating_add((part as f64 * width) as i64);
            series.push(SeriesOut {
                lane,
                label,
                about: format!("up to {} per {unit}", number(most * scale)),
                // A part without calls has no value. The last entry has none either, because it is
                // only the end of the last part.
                at: (0..=per_ns.len()).map(at).collect(),
                values: per_ns.into_iter().chain([None]).collect(),
            });
        }
    }
    series
}

/// Returns the index of the thread's lane; -1 if there is none, or if it cannot be told which one
/// it is.
fn lane_of(profile: &Profile, timeline: &Timeline, process: usize, thread: usize) -> i64 {
    let p = &profile.processes[process];
    // In a merged profile, processes of several recordings may have the same process id.
    let is_only = profile.processes.iter().filter(|other| other.id.pid == p.id.pid).count() == 1;
    match is_only || profile.members.is_empty() {
        true => timeline.lane_of(p.id.pid, p.threads[thread].tid),
        false => -1,
    }
}

fn place(op: &profile::Op) -> String {
    let source = match (&*op.source_path, op.source_line) {
        ("", _) => String::new(),
        (path, 0) => path.to_owned(),
        (path, line) => format!("{path}:{line}"),
    };
    let all = [op.library.to_string(), source, op.arguments.clone()];
    all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// Returns the cells of the op's row that are not empty, without the first cell, each after the
/// title of its column.
fn facts(table: &TableOut, number: usize) -> Vec<(String, String)> {
    let of = |ops: &Vec<Option<usize>>| ops.iter().position(|op| *op == Some(number));
    let Some(row) = table.ops.as_ref().and_then(of) else { return Vec::new() };
    let cells = table.columns.iter().zip(&table.rows[row]).skip(1);
    cells
        .filter_map(|(column, cell)| match cell {
            CellOut::Missing(()) => None,
            CellOut::Text(text) | CellOut::Number(text, _) => {
                Some((column.title.clone(), text.clone()))
            }
            // Below the table, marks are explained for all rows. Here, only this row's note is
            // added.
            CellOut::Noted(text, _, note) => {
                Some((column.title.clone(), format!("{text} ({note})")))
            }
        })
        .collect()
}

fn bins(of: &Bins) -> Option<BinsOut> {
    let (first, counts) = of.counts()?;
    Some(BinsOut { first, counts: counts.to_vec() })
}

fn lane(profile: &Profile, (at, of): &((usize, usize), Bins)) -> Option<LaneOut> {
    Some(LaneOut { label: thread_label(profile, at.0, at.1), times: bins(of)? })
}

fn drift(profile: &Profile, of: &Drift, from: i64) -> Option<DriftOut> {
    let parts = of.parts();
    let width = of.width() as f64 * profile.timeline.ns_per_tick();
    let parts: Vec<_> =
        parts.into_iter().map(|p| p.map(|p| [p.p10, p.p50, p.p90, p.longest])).collect();
    (parts.len() > 1).then_some(DriftOut { from, width, parts })
}

fn longest(profile: &Profile, timeline: &Timeline, calls: &[LongCall]) -> LongestOut {
    let titles = ["at", "time", "thread", "CPU", "workgroup"].map(str::to_owned);
    // The durations do not contain the time that the recorder added, unless the page shows raw
    // durations. The values of counters are shown as read, so a call's processor time may be
    // greater than its duration.
    let counters = profile.manifest.counters.iter();
    let titles: Vec<String> =
        titles.into_iter().chain(counters.map(|c| format!("{}, as read", c.name))).collect();
    let row = |call: &LongCall| {
        let begin = profile.timeline.realtime_ns(call.begin).saturating_sub(timeline.begin);
        let (process, thread) = (call.process, call.thread);
        let workgroup = call.workgroup.map(|[x, y, z]| format!("{x},{y},{z}"));
        let mut cells = vec![
            Some(time(begin as f64)),
            Some(time(call.ticks() * profile.timeline.ns_per_tick())),
            Some(thread_label(profile, process, thread)),
            Some(call.cpu.to_string()),
            workgroup,
        ];
        let values = profile.manifest.counters.iter().zip(&call.counters);
        cells.extend(values.map(|(counter, value)| Some(text(counter.unit(), (*value)? as f64))));
        let lane = lane_of(profile, timeline, process, thread);
        LongRowOut { cells, at: begin, thread: lane }
    };
    let mut found = LongestOut { titles, rows: calls.iter().map(row).collect() };
    // Columns without any value are removed, for example the workgroup if no call has one.
    for at in (0..found.titles.len()).rev() {
        if found.rows.iter().all(|row| row.cells[at].is_none()) {
            found.titles.remove(at);
            found.rows.iter_mut().for_each(|row| drop(row.cells.remove(at)));
        }
    }
    found
}

/// Formats a value as the report does.
fn text(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Nanoseconds => Value::Ns(value),
        Unit::Bytes => Value::Bytes(value),
        _ => Value::Count(value.round() as u128),
    }
    .to_text()
}

fn joints(profile: &Profile, of: &OpDetails, related: Option<&Related>) -> Vec<JointOut> {
    let counters = profile.manifest.counters.iter().zip(&of.joints).enumerate();
    let mark = if profile.is_sampled() { "~" } else { "" };
    counters
        .filter_map(|(at, (counter, joint))| {
            let Grid { x, y, counts } = joint.grid(CELLS)?;
            let words = related.and_then(|related| related.words.get(at)?.as_deref());
            Some(JointOut {
                counter: counter.name.clone(),
                mark,
                text: match words {
                    Some(words) => format!("correlation {words}"),
                    // In a run with a budget (a limit for the cost of recording), the number of
                    // calls is an estimate.
                    None => {
                        let calls = plural(counts.iter().sum::<u64>().into(), "call");
                        format!("{mark}{calls} with a value")
                    }
                },
                x_text: x.iter().map(|edge| time(*edge)).collect(),
                y_text: y.iter().map(|edge| text(counter.unit(), *edge)).collect(),
                x,
                y,
                counts,
            })
        })
        .collect()
}
