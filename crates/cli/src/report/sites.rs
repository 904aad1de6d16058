//! `report --by site`: shows one row for each place (site) in a run of a model at which the program
//! launches a dispatch of IREE.

use std::io::{self, Write};
use std::process::ExitCode;

use analysis::{By, Key, Site, Sites, passes, sites, sites_as};
use profile::Profile;

use super::{Args, Out, output};
use crate::failure::Failure;
use crate::matching;
use crate::object::object;
use crate::view::head::ProfileHead;
use crate::view::held_back::gaps;
use crate::view::labels::{labels, op_of};
use crate::view::losses::{self, losses_out};
use crate::view::table::{Column, Table, Value};
use crate::view::text::table;
use crate::view::units::{percent, plural, time};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

const SITES_SCHEMA: &str = "counterpoint.sites/1";
/// The name of the column with the site's number. Rows that are sorted by this column are in the
/// order in which the program launches the dispatches.
const SITE: &str = "site";

/// The names of columns, each with its label and explanation.
pub const EXPLAINED: [(&str, &str, &str); 9] = [
    (SITE, "site: ", "place in one run of the model; – for what ran before the first run"),
    ("share", "share: ", "of the walls of all dispatches, added up"),
    ("mean_ns", "mean: ", "from a dispatch's first workgroup to the end of its last one"),
    ("workers", "workers: ", "threads of the process that ran workgroups"),
    ("workers_ns", "in workers: ", "the workgroups' durations together"),
    ("efficiency", "efficiency: ", "part of all workers' time in which they ran workgroups"),
    ("imbalance", "imbalance: ", "the busiest worker's time / an equal part of the work"),
    ("gap_ns", "gap before: ", "mean time since a dispatch of the process ended"),
    (
        "gap_p50_ns",
        "gap p50: ",
        "median of the same; a few long gaps can make the mean much larger",
    ),
];

/// The table of all sites, for the HTML page.
pub struct Whole {
    pub table: Table,
    /// The op of each row.
    pub keys: Vec<Option<Key>>,
    /// Sentences that say during which part of the time a further thread would have had work.
    pub lead: Vec<String>,
}

/// Returns the table of all sites, or `None` if there are none. With `raw`, the time that the
/// recorder added is not subtracted.
pub fn whole(profile: &Profile, raw: bool) -> Option<Whole> {
    let found = sites_as(profile, raw)?;
    let rows: Vec<&Site> = found.rows.iter().collect();
    let mut table = columns(profile, &found, &rows);
    table.sort("share").ok()?;
    let keys = rows.iter().map(|site| Some(Key::Op(site.op))).collect();
    Some(Whole { table, keys, lead: room(profile, &found) })
}

/// Returns sentences that say during which part of the time a further thread would have had work.
/// The sentences do not say how much faster the program would be, because that has not been
/// measured.
fn room(profile: &Profile, found: &Sites) -> Vec<String> {
    let room = &found.room;
    if room.span <= 0.0 {
        return Vec::new();
    }
    let text = |ticks: f64| {
        let of = time(ticks * profile.timeline.ns_per_tick());
        format!("{of} ({})", percent((ticks / room.span).clamp(0.0, 1.0)))
    };
    let workers = plural(room.workers as u128, "worker");
    let span = time(room.span * profile.timeline.ns_per_tick());
    let whole = format!("of {span} from the first dispatch to the end of the last one");
    let (mut outside, alone) = (text(room.outside), text(room.alone));
    let run = found.run().filter(|run| run.dispatches > 1 && run.before.total > 0.0);
    if let Some(run) = run {
        let between = time(run.before.total * profile.timeline.ns_per_tick());
        outside.push_str(&format!(", {between} of it between runs of the model"));
    }
    let mut lines = vec![match (room.outside > 0.0, room.alone > 0.0) {
        (true, true) => format!(
            "{whole}, no dispatch runs for {outside}, and only one workgroup can run for {alone}: more \
             threads cannot shorten these"
        ),
        (true, false) => {
            format!("{whole}, no dispatch runs for {outside}: more threads cannot shorten this")
        }
        (false, true) => format!(
            "{whole}, only one workgroup can run for {alone}: more threads cannot shorten this"
        ),
        (false, false) => format!("{whole}, a dispatch with several workgroups runs all the time"),
    }];
    if room.few > 0.0 {
        lines.push(format!(
            "for {}, a dispatch runs that has no more workgroups than there are workers: a further \
             thread would have nothing to do",
            text(room.few)
        ));
    }
    lines.push(match room.many > 0.0 {
        true => format!(
            "for {}, a dispatch runs that has more workgroups than workers: only there would a further \
             thread have work, and what it would gain is not known from this recording",
            text(room.many)
        ),
        false => "no dispatch has more workgroups than there are workers".to_owned(),
    });
    lines.push(format!(
        "in dispatches, the {workers} ran workgroups for {} of the time",
        percent(room.efficiency)
    ));
    lines
}

pub fn main(args: &Args, profile: &Profile) -> Result<ExitCode, Failure> {
    let Some(found) = sites(profile, args.raw) else {
        let why = match profile.is_sampled() {
            true => "a run with a budget recorded only some workgroups of each dispatch",
            false => "the profile has no dispatches of which the workgroups are known",
        };
        return Err(Failure::new(format!("--by site: {why}"))
            .hint("`report` without --by has one row for each function"));
    };
    let op = |site: &Site| op_of(profile, Key::Op(site.op));
    let matches = |site: &&Site| {
        let name = op(site).map_or("", |op| op.name.as_str());
        args.filter.as_deref().is_none_or(|glob| profile::demangle::matches(glob, name))
    };
    let rows: Vec<&Site> = found.rows.iter().filter(matches).collect();
    if let (true, Some(glob)) = (rows.is_empty(), &args.filter) {
        matching::no_op(profile, "--filter", glob);
        return Ok(ExitCode::from(1));
    }
    let ns = |ticks: f64| ticks * profile.timeline.ns_per_tick();
    let mut table = columns(profile, &found, &rows);
    let sort = match args.sort.as_deref() {
        None | Some("total") => "share",
        Some(name) => name,
    };
    if sort != SITE {
        table.sort(sort)?;
    }
    table.keep_first(args.top());
    let document = || {
        let row = |i: &usize| {
            let site = rows[*i];
            object! {
                op: op(site).map_or("", |op| &op.name),
                op_id: site.op,
                library: op(site).map_or("", |op| &*op.library),
                site: site.position.map(|n| n + 1),
                sites: site.of,
                dispatches: site.dispatches,
                workgroups: site.workgroups,
                workers: site.workers,
                incomplete: site.incomplete,
                wall_ns: ns(site.wall),
                mean_ns: ns(site.mean),
                min_ns: ns(site.range[0]),
                max_ns: ns(site.range[1]),
                share: found.share(site),
                workers_ns: ns(site.sum),
                efficiency: site.efficiency,
                imbalance: site.imbalance,
                gap_ns: site.gaps().map(|gaps| ns(gaps.mean)),
                gap_p50_ns: site.gaps().map(|gaps| ns(gaps.median)),
                gap_max_ns: site.gaps().map(|gaps| ns(gaps.longest)),
            }
        };
        object! {
            schema: SITES_SCHEMA,
            profile: ProfileHead::new(&profile.manifest, profile),
            sort,
            filter: args.filter.as_deref(),
            // `busy_ns` is the time in which some dispatch ran. `busy_ns` and `dispatches` include
            // sites that a filter leaves out.
            busy_ns: ns(found.busy),
            dispatches: found.dispatches,
            run: found.run().map(|run| object! {
                runs: run.runs,
                dispatches: run.dispatches,
                busy_ns: ns(run.busy),
                between_ns: ns(run.between),
                // The next five members describe the gaps before runs of the model.
                before_ns: ns(run.before.mean),
                before_p50_ns: ns(run.before.median),
                before_max_ns: ns(run.before.longest),
                before_total_ns: ns(run.before.total),
                gaps: run.before.times,
            }),
            room: object! {
                span_ns: ns(found.room.span),
                outside_ns: ns(found.room.outside),
                one_workgroup_ns: ns(found.room.alone),
                no_more_than_workers_ns: ns(found.room.few),
                more_than_workers_ns: ns(found.room.many),
                workers: found.room.workers,
                efficiency: found.room.efficiency,
            },
            rows: table.order.iter().map(row).collect::<Vec<_>>(),
            losses: losses_out(&profile.all_losses()),
        }
    };
    let text = |out: &mut Out, width: Option<usize>| text(out, width, profile, &found, &table);
    output(args, &table, text, document)
}

fn columns(profile: &Profile, found: &Sites, rows: &[&Site]) -> Table {
    // Each function gets one label, even if several sites launch it; functions with the same name
    // get different labels.
    let mut keys: Vec<Key> = rows.iter().map(|site| Key::Op(site.op)).collect();
    keys.sort_unstable();
    keys.dedup();
    let labels = labels(profile, &keys);
    let label = |site: &Site| {
        let at = keys.binary_search(&Key::Op(site.op)).ok()?;
        labels.get(at).cloned().map(Value::Text)
    };
    let column = |rank, name: &str, title: &str, cell: &dyn Fn(&Site) -> Option<Value>| {
        Column::new(rank, name, title, rows.iter().map(|site| cell(site)).collect())
    };
    let ns = |ticks: f64| Some(Value::Ns(ticks * profile.timeline.ns_per_tick()));
    let columns = vec![
        column(0, "op", "dispatch", &label),
        column(1, SITE, "site", &|s| s.position.map(|n| Value::Count(u128::from(n) + 1))),
        column(4, "dispatches", "times", &|s| Some(Value::Count(s.dispatches.into()))),
        column(7, "workgroups", "workgroups", &|s| Some(Value::Count(s.workgroups.into()))),
        column(8, "workers", "workers", &|s| Some(Value::Count(s.workers as u128))),
        column(6, "wall_ns", "wall", &|s| ns(s.wall)),
        column(1, "share", "share", &|s| found.share(s).map(Value::Part)),
        column(1, "mean_ns", "mean", &|s| ns(s.mean)),
        column(5, "workers_ns", "in workers", &|s| ns(s.sum)),
        column(2, "efficiency", "efficiency", &|s| Some(Value::Part(s.efficiency))),
        column(3, "imbalance", "imbalance", &|s| Some(Value::Number(s.imbalance))),
        column(2, "gap_ns", "gap before", &|s| s.gaps().and_then(|gaps| ns(gaps.mean))),
        column(3, "gap_p50_ns", "gap p50", &|s| s.gaps().and_then(|gaps| ns(gaps.median))),
        column(9, "gap_max_ns", "longest gap", &|s| s.gaps().and_then(|gaps| ns(gaps.longest))),
        column(8, "min_ns", "min", &|s| ns(s.range[0])),
        column(8, "max_ns", "max", &|s| ns(s.range[1])),
        Column {
            csv_only: true,
            ..column(9, "incomplete", "", &|s| Some(Value::Count(s.incomplete.into())))
        },
    ];
    Table::new(columns, (0..rows.len()).collect())
}

fn text(
    out: &mut Out,
    width: Option<usize>,
    profile: &Profile,
    found: &Sites,
    rows: &Table,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    let busy = time(found.busy * profile.timeline.ns_per_tick());
    let mean = match passes(profile, By::Op) {
        1 => String::new(),
        n => format!(" (mean of {n} passes)"),
    };
    let dispatches = plural(found.dispatches.into(), "dispatch");
    // Time in which several dispatches ran is counted once in `busy`, but once for each of these
    // dispatches in `walls`.
    let walls = match time(found.walls() * profile.timeline.ns_per_tick()) {
        walls if walls == busy => String::new(),
        walls => format!(" (walls of all dispatches, added up: {walls})"),
    };
    let head = format!("{busy} in which some dispatch ran{walls}; {dispatches}{mean}");
    wrapped(out, "", &head, prose)?;
    if let Some(run) = found.run() {
        let to_ns = profile.timeline.ns_per_tick();
        let [busy, between] = [run.busy, run.between].map(|ticks| time(ticks * to_ns));
        let head = format!(
            "a run of the model (mean of {} of {} each): {busy} in dispatches, {between} between them; between \
             runs: {}",
            plural(run.runs.into(), "run"),
            plural(run.dispatches.into(), "dispatch"),
            gaps(run.before.scaled(to_ns))
        );
        wrapped(out, "", &head, prose)?;
    }
    writeln!(out)?;
    let left_out = table(out, rows, width)?;
    for (number, line) in room(profile, found).iter().enumerate() {
        wrapped(out, if number == 0 { "threads: " } else { "         " }, line, prose)?;
    }
    let all_placed = found.rows.iter().all(|site| site.position.is_some());
    for (name, label, text) in EXPLAINED.iter().filter(|(name, ..)| !left_out.contains(name)) {
        let text = match *name == SITE && all_placed {
            true => text.split(';').next().unwrap_or(text),
            false => text,
        };
        wrapped(out, label, text, prose)?;
    }
    let incomplete: u64 = found.rows.iter().map(|site| site.incomplete).sum();
    if incomplete > 0 {
        let text = format!("workgroups of {} are missing", plural(incomplete.into(), "dispatch"));
        wrapped(out, "note: ", &text, prose)?;
    }
    losses::print_brief(out, &profile.all_losses(), prose)
}
