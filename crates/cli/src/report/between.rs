//! `report --by between`: shows the time in which threads were in no call. A row is a pair of ops
//! on one thread: the op before a gap and the op after it. If calls are inside of other calls, a
//! second table shows the gaps on each level of nesting.

use std::io;
use std::process::ExitCode;

use analysis::{By, Gap, Gaps, Key, Level, Options, Side, summarize};
use profile::Profile;
use serde::Serialize;

use super::{Args, Out, output};
use crate::failure::Failure;
use crate::matching;
use crate::object::object;
use crate::output::Format;
use crate::terminal::known_width;
use crate::view::between::{Sides, sentences};
use crate::view::head::ProfileHead;
use crate::view::labels::thread_label;
use crate::view::layout::{Names, THREAD_WIDTH};
use crate::view::losses::{self, losses_out};
use crate::view::names;
use crate::view::table::{Column, Table, Value};
use crate::view::text::table;
use crate::view::wrap::{PROSE_WIDTH, wrapped};

const SCHEMA: &str = "counterpoint.between/1";

/// The smallest and the greatest length, in characters, of names in the second column of a table
/// for people. Names get a quarter of the table's width within these bounds, because the numbers
/// matter more.
const BEFORE: [usize; 2] = [20, 36];

/// The names of columns, each with its label and explanation. An entry without a name explains a
/// word that the cells contain.
pub const EXPLAINED: [(&str, &str, &str); 5] = [
    ("after", "after: ", "the op whose call ended last on the thread"),
    ("before", "before: ", "the op that began next"),
    ("", "(end): ", "the last moment that is known of the thread"),
    (
        "share",
        "share: ",
        "of the time of all threads in no call; what the recorder does between calls is in it",
    ),
    (
        "p50_ns",
        "p50: ",
        "half of the gaps are at most so long; of more than 64 gaps it is known to 0.8 %",
    ),
];

/// Returns the table of gaps for the HTML page, and for each row the op before the gap. Returns
/// `None` if there are no gaps.
pub fn whole(profile: &Profile, gaps: &Gaps) -> Option<(Table, Vec<Option<Key>>)> {
    let rows: Vec<&Gap> = gaps.rows.iter().collect();
    let mut table = columns(profile, gaps, &rows, &Sides::new(profile, gaps), None);
    table.sort("total").ok()?;
    add_recorder(&mut table, gaps);
    let key = |row: &&Gap| if let Side::Op(key) = row.after { Some(key) } else { None };
    (!rows.is_empty()).then(|| (table, rows.iter().map(key).collect()))
}

/// The columns of the table of levels, each with its label and explanation.
pub const LEVELS_EXPLAINED: [(&str, &str, &str); 3] = [
    (
        "level",
        "level: ",
        "how many calls are around a call. Level 0 is in no other call; between its calls is the time that the table of \
         gaps has",
    ),
    (
        "between_ns",
        "between: ",
        "on a deeper level, the time in the calls around these that is in none of these: before, between and after \
         them. It is self time of what is around them. A call that has no call inside of it is in neither column of \
         the next level",
    ),
    ("share", "share: ", "of the time between and in calls of the level together"),
];

/// Returns the table of levels, or `None` if no calls are inside of other calls.
pub fn of_levels(profile: &Profile, gaps: &Gaps) -> Option<Table> {
    levels_of(profile, &gaps.levels, &Sides::new(profile, gaps))
}

fn levels_of(profile: &Profile, levels: &[Level], sides: &Sides) -> Option<Table> {
    let column = |rank, name: &str, title: &str, cell: &dyn Fn(&Level) -> Option<Value>| {
        Column::new(rank, name, title, levels.iter().map(cell).collect())
    };
    let thread = |level: &Level| thread_label(profile, level.thread.0, level.thread.1);
    let columns = vec![
        column(0, "thread", "thread", &|level| Some(Value::Text(thread(level)))),
        column(0, "level", "level", &|level| Some(Value::Count(level.level.into()))),
        column(2, "calls", "calls", &|level| Some(Value::Count(level.calls.into()))),
        column(1, "in_calls_ns", "in calls", &|level| Some(Value::Ns(level.in_calls_ns))),
        column(1, "between_ns", "between", &|level| Some(Value::Ns(level.between_ns))),
        column(3, "share", "share", &|level| level.share().map(Value::Part)),
        column(4, "most", "most time in", &|level| {
            Some(Value::Text(sides.label(Side::Op(level.most)).to_owned()))
        }),
    ];
    (!levels.is_empty()).then(|| Table {
        names: Names::Shortened(THREAD_WIDTH),
        ..Table::new(columns, (0..levels.len()).collect())
    })
}

pub fn main(args: &Args, profile: &Profile) -> Result<ExitCode, Failure> {
    let options =
        Options { by: By::Thread, raw: args.raw, gaps: true, levels: true, ..Options::default() };
    let summary = summarize(profile, &options);
    let Some(gaps) = summary.gaps else {
        let why = match profile.is_sampled() {
            true => "with a budget, calls that were only counted are in the gaps",
            false => "the gaps of several passes differ; record without more counters than fit",
        };
        return Err(Failure::new(format!("--by between: {why}")));
    };
    if gaps.rows.is_empty() {
        return Err(Failure::new("--by between: there is no time between calls of a thread")
            .hint("`report --by thread` shows how long threads lived"));
    }
    let sides = Sides::new(profile, &gaps);
    let is_match = |side: Side| {
        let matches = |glob: &str| profile::demangle::matches(glob, sides.label(side));
        args.filter.as_deref().is_none_or(matches)
    };
    let rows = gaps.rows.iter().filter(|row| is_match(row.after) || is_match(row.before));
    let rows: Vec<&Gap> = rows.collect();
    if let (true, Some(glob)) = (rows.is_empty(), &args.filter) {
        matching::no_op(profile, "--filter", glob);
        return Ok(ExitCode::from(1));
    }
    let [least, most] = BEFORE;
    let quarter =
        args.width.or_else(known_width).map_or(most, |width| (width / 4).clamp(least, most));
    let longest = (args.format == Format::Table).then_some(quarter);
    let mut table = columns(profile, &gaps, &rows, &sides, longest);
    let sort = args.sort.as_deref().unwrap_or("total");
    table.sort(sort)?;
    table.keep_first(args.top());
    if args.filter.is_none() {
        add_recorder(&mut table, &gaps);
    }
    // Levels are about whole threads, so they are not shown with a filter.
    let mut by_level = match args.filter {
        Some(_) => None,
        None => levels_of(profile, &gaps.levels, &sides),
    };
    if let Some(levels) = &mut by_level {
        levels.keep_first(args.top());
    }
    let level = |row: &usize| level_out(profile, &gaps.levels[*row], &sides);
    let document = || {
        object! {
            schema: SCHEMA,
            profile: ProfileHead::new(&profile.manifest, profile),
            sort,
            filter: args.filter.as_deref(),
            // The next three members are sums over all threads and gaps, even over gaps that a
            // filter leaves out.
            wall_ns: gaps.wall_ns,
            between_ns: gaps.between_ns,
            recorder_ns: gaps.recorder_ns,
            rows: table
                .order
                .iter()
                .map(|row| out_of(profile, &gaps, rows[*row], &sides))
                .collect::<Vec<_>>(),
            levels: by_level
                .iter()
                .flat_map(|levels| levels.order.iter().map(level))
                .collect::<Vec<_>>(),
            losses: losses_out(&profile.all_losses()),
        }
    };
    let text = |out: &mut Out, width: Option<usize>| {
        text(out, width, profile, &gaps, &table)?;
        if let Some(levels) = &by_level {
            print_levels(out, levels, width)?;
        }
        losses::print_brief(out, &profile.all_losses(), width.unwrap_or(PROSE_WIDTH))
    };
    output(args, &table, text, document)
}

fn level_out(profile: &Profile, level: &Level, sides: &Sides) -> impl Serialize {
    let (process, thread) = level.thread;
    let of = &profile.processes[process];
    object! {
        thread: thread_label(profile, process, thread),
        pid: of.id.pid,
        tid: of.threads[thread].tid,
        level: level.level,
        calls: level.calls,
        in_calls_ns: level.in_calls_ns,
        between_ns: level.between_ns,
        most: sides.label(Side::Op(level.most)).to_owned(),
        most_op_id: match level.most {
            Key::Op(id) => Some(id),
            _ => None,
        },
    }
}

fn out_of(profile: &Profile, gaps: &Gaps, row: &Gap, sides: &Sides) -> impl Serialize {
    let (process, thread) = row.thread;
    let of = &profile.processes[process];
    object! {
        after: sides.label(row.after).to_owned(),
        before: sides.label(row.before).to_owned(),
        thread: thread_label(profile, process, thread),
        pid: of.id.pid,
        tid: of.threads[thread].tid,
        gaps: row.times,
        total_ns: gaps.total_ns(row),
        share: gaps.share(row),
        mean_ns: gaps.mean_ns(row),
        p50_ns: gaps.p50_ns(row),
        max_ns: gaps.max_ns(row),
        max_at_unix_ns: profile.timeline.realtime_ns(row.longest_at),
    }
}

fn columns(
    profile: &Profile,
    gaps: &Gaps,
    rows: &[&Gap],
    sides: &Sides,
    longest: Option<usize>,
) -> Table {
    let ns = |ns: f64| Some(Value::Ns(ns));
    let side = |side: Side| Some(Value::Text(sides.label(side).to_owned()));
    let column = |rank, name: &str, title: &str, cell: &dyn Fn(&Gap) -> Option<Value>| {
        Column::new(rank, name, title, rows.iter().map(|row| cell(row)).collect())
    };
    let before: Vec<String> = rows.iter().map(|row| sides.label(row.before).to_owned()).collect();
    let before = match longest {
        Some(most) => names::fit(&before, most, false).names,
        None => before,
    };
    let before = before.into_iter().map(|name| Some(Value::Text(name))).collect();
    let columns = vec![
        column(0, "after", "after", &|row| side(row.after)),
        Column::new(2, "before", "before", before),
        column(4, "thread", "thread", &|row| {
            Some(Value::Text(thread_label(profile, row.thread.0, row.thread.1)))
        }),
        column(6, "gaps", "gaps", &|row| Some(Value::Count(row.times.into()))),
        column(1, "total_ns", "total", &|row| ns(gaps.total_ns(row))),
        column(3, "share", "share", &|row| gaps.share(row).map(Value::Part)),
        column(5, "mean_ns", "mean", &|row| ns(gaps.mean_ns(row))),
        column(8, "p50_ns", "p50", &|row| ns(gaps.p50_ns(row))),
        column(7, "max_ns", "max", &|row| ns(gaps.max_ns(row))),
    ];
    Table::new(columns, (0..rows.len()).collect())
}

/// Adds a row for the time of the recorder between calls. With this row, the rows add up to the
/// whole time between calls.
fn add_recorder(table: &mut Table, gaps: &Gaps) {
    if gaps.recorder_ns >= 0.5 {
        table.add_rest(|column| match column {
            "after" => Some(Value::Text("(recorder)".to_owned())),
            "total_ns" => Some(Value::Ns(gaps.recorder_ns)),
            "share" => gaps.recorder_share().map(Value::Part),
            _ => None,
        });
    }
}

fn text(
    out: &mut Out,
    width: Option<usize>,
    profile: &Profile,
    gaps: &Gaps,
    rows: &Table,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    for line in sentences(profile, gaps) {
        wrapped(out, "", &line, prose)?;
    }
    io::Write::write_all(out, b"\n")?;
    table(out, rows, width)?;
    for (_, label, text) in EXPLAINED {
        wrapped(out, label, text, prose)?;
    }
    Ok(())
}

fn print_levels(out: &mut Out, rows: &Table, width: Option<usize>) -> io::Result<()> {
    io::Write::write_all(out, b"\n")?;
    table(out, rows, width)?;
    LEVELS_EXPLAINED
        .iter()
        .try_for_each(|(_, label, text)| wrapped(out, label, text, width.unwrap_or(PROSE_WIDTH)))
}
