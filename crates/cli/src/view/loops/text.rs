//! Prints trees of loops for people.
//!
//! ```text
//!  name     id    hits            inclusive                self  of parent  source
//!  matmul    0       1     21.0 ms ±1.10 µs     1.20 µs ±300 ns          –  mm.c:3
//!    i       1     256     21.0 ms ±1.10 µs     0.90 ms ±310 µs    100.0 %  mm.c:4
//!      k     2  65,536  ≈ 20.1 ms ±0.30 ms     20.1 ms ±0.30 ms     95.7 %  mm.c:6
//! ```

use std::io::{self, Write};

use analysis::loops::{Estimate, LoopNode, LoopTree, Numbers, unrolled};
use model::Unit;

use super::schedule;
use super::trips::{NAME_WIDTH, SCALED};
use super::{Loops, estimated_iterations, iterations, readable_name, source, thread_name, trips};
use crate::terminal::visible;
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::names::place;
use crate::view::units::{below, count, grouped, number, percent, time};

const COUNTERS: u8 = 12;
/// The width to which the source file and line are shortened.
const SOURCE_WIDTH: usize = 20;
const ITERATIONS: &str = "iterations";
const UNROLLED: &str = "schedule iterations";
/// Marks rough estimates: timing a hit costs too much compared with the hit.
const SAMPLED_ONLY: &str = "≈ ";

#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    /// Whether a row for each thread follows the row of a function or loop.
    pub threads: bool,
    /// Whether functions and loops that were never entered have rows, too.
    pub all: bool,
    /// Whether the identity, instrumenter and mode of each module are shown.
    pub verbose: bool,
}

struct Line<'a> {
    name: String,
    node: &'a LoopNode,
    numbers: &'a Numbers,
    of_thread: bool,
}

/// Returns the columns of the chosen rows of one module, for the HTML page.
pub fn cells<'a>(loops: &Loops<'a>, module: usize) -> Vec<Shown<'a>> {
    let rows = Rows { threads: false, all: false, verbose: false };
    columns(loops, &loops.table.modules[module], &lines(loops, module, rows))
}

/// Prints the chosen rows of one module. Returns the marks in these rows.
pub fn tree(
    out: &mut impl Write,
    loops: &Loops<'_>,
    module: usize,
    rows: Rows,
    width: Option<usize>,
) -> io::Result<Marks> {
    let tree = &loops.table.modules[module];
    let lines = lines(loops, module, rows);
    let columns = columns(loops, tree, &lines);
    let laid = layout(out, columns, Names::Shortened(NAME_WIDTH), width)?;
    if loops.left_out[module] > 0 {
        let more = grouped(loops.left_out[module] as u128);
        writeln!(out, "… and {more} more (--top 0 shows all)")?;
    }
    laid.say_left_out(out, width)?;
    let has_room = |title: &str| !laid.left_out.contains(&title);
    let mut marks = marks_of(loops, tree, &lines);
    marks.iterations &= has_room(ITERATIONS);
    marks.unrolled &= has_room(UNROLLED);
    Ok(marks)
}

/// Returns the marks in the chosen rows of one module, for the HTML page.
pub fn marks(loops: &Loops<'_>, module: usize) -> Marks {
    let rows = Rows { threads: false, all: false, verbose: false };
    marks_of(loops, &loops.table.modules[module], &lines(loops, module, rows))
}

fn marks_of(loops: &Loops<'_>, tree: &LoopTree, lines: &[Line<'_>]) -> Marks {
    let times = || lines.iter().filter_map(|line| line.numbers.times(loops.raw));
    let doubtful = |of: fn(&Estimate) -> bool| {
        times().any(|t| of(&t.inclusive) || t.own.is_some_and(|own| of(&own)))
    };
    let is_counted = |line: &Line<'_>| {
        iterations(tree.entry(line.node), line.numbers).is_some()
            || line.numbers.estimated_iterations.is_some()
    };
    Marks {
        sampled_only: lines.iter().any(|line| line.numbers.sampled_only),
        below: doubtful(|e| is_below_resolution(*e)),
        intervals: doubtful(|e| e.margin.is_some_and(|m| m > 0.0) && !is_below_resolution(*e)),
        unknown: doubtful(|e| e.margin.is_none()),
        scaled: lines.iter().any(|line| {
            let (entry, numbers) = (tree.entry(line.node), line.numbers);
            iterations(entry, numbers).is_none() && numbers.estimated_iterations.is_some()
        }),
        iterations: lines.iter().any(is_counted),
        unrolled: lines.iter().any(|line| unrolled(tree, line.node).is_some()),
    }
}

/// The marks that occur in a table and must be explained below it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// `≈`: a time is a rough estimate.
    pub sampled_only: bool,
    /// `<`: a time is an upper bound.
    pub below: bool,
    /// `±`: a time has an interval.
    pub intervals: bool,
    /// `±?`: the interval of a time is not known.
    pub unknown: bool,
    /// `~`: iterations were counted in only some of the hits.
    pub scaled: bool,
    /// For a row, the number of iterations of the loop in the machine code is known or estimated.
    pub iterations: bool,
    /// A row has a value in the column `schedule iterations`.
    pub unrolled: bool,
}

impl Marks {
    pub fn and(self, other: Self) -> Self {
        Self {
            sampled_only: self.sampled_only | other.sampled_only,
            below: self.below | other.below,
            intervals: self.intervals | other.intervals,
            unknown: self.unknown | other.unknown,
            scaled: self.scaled | other.scaled,
            iterations: self.iterations | other.iterations,
            unrolled: self.unrolled | other.unrolled,
        }
    }
}

fn lines<'a>(loops: &'a Loops<'_>, module: usize, rows: Rows) -> Vec<Line<'a>> {
    let tree = &loops.table.modules[module];
    let several = tree.threads.windows(2).any(|pair| pair[0].process != pair[1].process);
    let mut lines = Vec::new();
    for node in loops.chosen(module) {
        let indent = |level: u32| "  ".repeat(level.min(40) as usize);
        lines.push(Line {
            name: indent(node.level) + &readable_name(tree, node),
            node,
            numbers: &node.all,
            of_thread: false,
        });
        for (thread, numbers) in node.threads.iter().filter(|_| rows.threads) {
            let thread = thread_name(loops.profile, tree.threads[*thread], several);
            lines.push(Line {
                name: format!("{}· {thread}", indent(node.level)),
                node,
                numbers,
                of_thread: true,
            });
        }
    }
    lines
}

fn columns<'a>(loops: &Loops<'a>, tree: &LoopTree, lines: &[Line<'_>]) -> Vec<Shown<'a>> {
    let mut columns = Vec::new();
    let missing = || "–".to_owned();
    let mut add =
        |rank: u8, title: &'a str, kind: Kind, cell: &dyn Fn(&Line<'_>) -> Option<String>| {
            let cells: Vec<Option<String>> = lines.iter().map(cell).collect();
            // A column is left out if none of its values is known. In the row of a thread, a cell
            // is empty if its column has values only for all threads together.
            if rank == 0 || cells.iter().flatten().any(|cell| !cell.is_empty()) {
                let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(missing)).collect();
                columns.push(Shown { name: title, title: title.to_owned(), rank, kind, cells });
            }
        };
    let of_node = |line: &Line<'_>, text: Option<String>| match line.of_thread {
        true => Some(String::new()),
        false => text,
    };
    let times = |line: &Line<'_>| line.numbers.times(loops.raw).copied();
    let ticks = |estimate: Estimate| timed(tree, estimate);
    add(0, "name", Kind::Text, &|line| Some(line.name.clone()));
    add(1, "id", Kind::Number, &|line| of_node(line, Some(line.node.id.to_string())));
    add(8, "depth", Kind::Number, &|line| {
        of_node(line, tree.entry(line.node)?.depth.map(|depth| depth.to_string()))
    });
    if tree.table.as_ref().is_some_and(|table| !table.schedule.is_empty()) {
        add(6, "schedule", Kind::Text, &|line| {
            of_node(line, tree.scheduled(line.node).map(|(_, one)| schedule::words(one)))
        });
    }
    add(0, "hits", Kind::Number, &|line| Some(count(line.numbers.hits)));
    add(7, ITERATIONS, Kind::Number, &|line| {
        let (entry, numbers) = (tree.entry(line.node), line.numbers);
        let scaled = || Some(format!("{SCALED}{}", count(estimated_iterations(numbers)?)));
        iterations(entry, numbers).map(count).or_else(scaled)
    });
    if lines.iter().any(|line| unrolled(tree, line.node).is_some()) {
        add(7, UNROLLED, Kind::Number, &|line| {
            of_node(line, unrolled(tree, line.node).map(schedule::unrolled))
        });
    }
    add(8, "each hit", Kind::Number, &|line| trips::each(tree.entry(line.node), line.numbers));
    add(2, "inclusive", Kind::Number, &|line| inclusive_of(loops, tree, line.numbers));
    add(2, "self", Kind::Number, &|line| times(line)?.own.map(ticks));
    add(5, "mean per hit", Kind::Number, &|line| times(line)?.mean.map(ticks));
    add(3, "of parent", Kind::Number, &|line| times(line)?.share.map(|share| percent(share.value)));
    let inside = |line: &Line<'_>| match line.of_thread {
        true => None,
        false => loops.inside(tree, line.node).map(|(_, inside)| inside),
    };
    if loops.dispatches.contains_key(&tree.id) {
        add(3, "of dispatch", Kind::Number, &|line| {
            of_node(line, inside(line).and_then(|inside| inside.share).map(percent))
        });
        add(4, "per workgroup", Kind::Number, &|line| {
            of_node(line, inside(line).map(|inside| number(inside.per_workgroup)))
        });
    }
    add(9, "threads", Kind::Number, &|line| {
        of_node(line, Some(line.node.threads.len().to_string()))
    });
    add(10, "imbalance", Kind::Number, &|line| of_node(line, line.node.imbalance.map(number)));
    let unended = lines.iter().any(|line| line.numbers.unended() > 0);
    if unended {
        add(3, "not ended", Kind::Number, &|line| Some(count(line.numbers.unended())));
    }
    add(11, "timed", Kind::Number, &|line| Some(count(line.numbers.timed_hits()?.0)));
    for (i, counter) in loops.profile.manifest.counters.iter().enumerate() {
        add(COUNTERS, &counter.name, Kind::Number, &|line| {
            let mean = line.numbers.counter(i)?.per_hit();
            Some(if counter.unit() == Unit::Nanoseconds { time(mean) } else { number(mean) })
        });
    }
    // Long source locations are shortened at the beginning, because the end is the most useful
    // part.
    let short = |text: String| place(&visible(&text), SOURCE_WIDTH);
    add(4, "source", Kind::Text, &|line| of_node(line, source(tree, line.node).map(short)));
    let counters = columns.iter_mut().filter(|column| column.rank == COUNTERS);
    counters.for_each(|column| column.title += "/hit");
    columns
}

/// Returns the inclusive time as the table shows it; `None` without times.
pub fn inclusive(loops: &Loops<'_>, tree: &LoopTree, node: &LoopNode) -> Option<String> {
    inclusive_of(loops, tree, &node.all)
}

fn inclusive_of(loops: &Loops<'_>, tree: &LoopTree, numbers: &Numbers) -> Option<String> {
    let text = timed(tree, numbers.times(loops.raw)?.inclusive);
    Some(match numbers.sampled_only {
        true => format!("{SAMPLED_ONLY}{text}"),
        false => text,
    })
}

/// Formats a time with its interval, in ticks if their rate is not known.
pub fn timed(tree: &LoopTree, estimate: Estimate) -> String {
    let text = |ticks: f64| {
        let positive = match tree.ns(ticks.abs()) {
            Some(ns) => time(ns),
            None => format!("{} ticks", number(ticks.abs())),
        };
        match ticks < 0.0 {
            true => format!("-{positive}"),
            false => positive,
        }
    };
    let value = text(estimate.value);
    match estimate.margin {
        Some(margin) if is_below_resolution(estimate) => {
            below(&text((estimate.value + margin).max(0.0)))
        }
        Some(margin) if margin > 0.0 => format!("{value} ±{}", text(margin)),
        Some(_) => value,
        None => format!("{value} ±?"),
    }
}

/// Whether the interval of a time begins at or below zero, so that the time is shown as an upper
/// bound.
fn is_below_resolution(estimate: Estimate) -> bool {
    estimate.margin.is_some_and(|margin| margin > 0.0 && estimate.value <= margin)
}
