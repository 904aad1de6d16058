//! Prints the section of `report` about loops: the totals of all loops in one line, the dispatches
//! with their loops, and the loops that took the most time.

use std::io::{self, Write};

use analysis::loops::{Estimate, LoopNode, LoopTree};
use serde::Serialize;

use super::dispatches;
use super::text::timed;
use super::{Loops, full_name, readable_full_name, source};
use crate::object::{object, unless_empty};
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::units::{count, percent, plural};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// The largest number of functions and loops in the list of those that took the most time.
const LISTED: usize = 5;
const NAME_WIDTH: usize = 28;

/// Returns the functions and loops that were entered, sorted by self time, or else inclusive time.
/// Those without any time come last, sorted by hits.
fn most_expensive<'a>(loops: &'a Loops<'_>) -> Vec<(&'a LoopTree, &'a LoopNode)> {
    let mut all: Vec<(&LoopTree, &LoopNode)> = loops.entered().collect();
    let key = |(tree, node): &(&LoopTree, &LoopNode)| {
        let times = node.all.times(loops.raw);
        let ticks = times.map(|times| times.own.unwrap_or(times.inclusive).value);
        ticks.map(|ticks| tree.ns(ticks).unwrap_or(ticks))
    };
    all.sort_by(|a, b| {
        let (x, y) = (key(a), key(b));
        y.is_some()
            .cmp(&x.is_some())
            .then_with(|| y.unwrap_or(0.0).total_cmp(&x.unwrap_or(0.0)))
            .then_with(|| b.1.all.hits.cmp(&a.1.all.hits))
    });
    all
}

/// Returns how many functions and loops were entered, how many hits they had, and how many of these
/// hits were timed. `None` if nothing was entered.
fn totals(loops: &Loops<'_>) -> Option<(usize, u128, u128)> {
    let sum = |of: fn(&LoopNode) -> u128| loops.entered().map(|(_, node)| of(node)).sum();
    let entered = loops.entered().count();
    (entered > 0).then(|| (entered, sum(|node| node.all.hits), sum(|node| node.all.begun)))
}

/// Prints the section, or nothing if no function and no loop was entered.
pub fn print(out: &mut impl Write, loops: &Loops<'_>, width: Option<usize>) -> io::Result<()> {
    let Some((entered, hits, begun)) = totals(loops) else { return Ok(()) };
    let prose = width.unwrap_or(PROSE_WIDTH);
    let text = format!(
        "{} of {} entered; {} hits, {} timed; `counterpoint loops report` shows all",
        match entered {
            1 => "1 function or loop".to_owned(),
            n => format!("{} functions and loops", count(n as u128)),
        },
        plural(loops.table.modules.len() as u128, "module"),
        count(hits),
        count(begun)
    );
    wrapped(out, "loops: ", &text, prose)?;
    let in_dispatches = dispatches::print(out, loops, width)?;
    let is_alone = |(tree, node): &(&LoopTree, &LoopNode)| loops.inside(tree, node).is_none();
    if in_dispatches && !loops.entered().any(|pair| is_alone(&pair)) {
        return Ok(());
    }
    let all = most_expensive(loops);
    let some = &all[..all.len().min(LISTED)];
    let missing = || "–".to_owned();
    type Pair<'a> = (&'a LoopTree, &'a LoopNode);
    let column =
        |rank, title: &'static str, kind, cell: &dyn Fn(&Pair<'_>) -> Option<String>| Shown {
            name: title,
            title: title.to_owned(),
            rank,
            kind,
            cells: some.iter().map(|pair| cell(pair).unwrap_or_else(missing)).collect(),
        };
    let times = |pair: &Pair<'_>| pair.1.all.times(loops.raw).copied();
    let mark = |(tree, node): &Pair<'_>, estimate: Estimate| {
        let text = timed(tree, estimate);
        if node.all.sampled_only { format!("≈ {text}") } else { text }
    };
    let columns = vec![
        column(0, "loop", Kind::Text, &|(tree, node)| Some(readable_full_name(tree, node))),
        column(1, "self", Kind::Number, &|pair| Some(mark(pair, times(pair)?.own?))),
        column(2, "inclusive", Kind::Number, &|pair| Some(mark(pair, times(pair)?.inclusive))),
        column(4, "of parent", Kind::Number, &|pair| Some(percent(times(pair)?.share?.value))),
        column(3, "hits", Kind::Number, &|(_, node)| Some(count(node.all.hits))),
        column(5, "source", Kind::Place, &|(tree, node)| source(tree, node)),
    ];
    let laid = layout(out, columns, Names::Shortened(NAME_WIDTH), width)?;
    laid.say_left_out_but_in(out, width, "json")?;
    writeln!(out)
}

pub fn json(loops: &Loops<'_>) -> Option<impl Serialize> {
    let (entered, hits, timed_hits) = totals(loops)?;
    let ns = |tree: &LoopTree, estimate: Option<Estimate>| match estimate {
        Some(e) => (tree.ns(e.value), e.margin.and_then(|margin| tree.ns(margin))),
        None => (None, None),
    };
    let out = |(tree, node): &(&LoopTree, &LoopNode)| {
        let times = node.all.times(loops.raw);
        let (self_ns, self_ns_95) = ns(tree, times.and_then(|times| times.own));
        let (inclusive_ns, inclusive_ns_95) = ns(tree, times.map(|times| times.inclusive));
        object! {
            module: tree.identity(),
            id: node.id,
            name: full_name(tree, node),
            source: source(tree, node),
            hits: node.all.hits,
            self_ns,
            self_ns_95,
            inclusive_ns,
            inclusive_ns_95,
        }
    };
    Some(object! {
        modules: loops.table.modules.len(),
        entered,
        hits,
        timed_hits,
        most_expensive: most_expensive(loops).iter().take(LISTED).map(out).collect::<Vec<_>>(),
        in_dispatches?: unless_empty(dispatches::json(loops)),
    })
}
