//! For `stats`: prints the mean and the standard deviation of the times of hits, for each function
//! and loop. Only mode log keeps times of single hits, and only of the first ones, so quantiles are
//! not known.

use std::io::{self, Write};

use analysis::loops::{LoopNode, LoopTree};
use serde::Serialize;

use super::{Loops, full_name, is_called, readable_full_name};
use crate::object::object;
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::units::{count, percent, time};

const NAME_WIDTH: usize = 28;

/// Returns the functions and loops that were timed and whose name matches `glob`.
fn chosen<'a>(loops: &'a Loops<'_>, glob: Option<&str>) -> Vec<(&'a LoopTree, &'a LoopNode)> {
    let wanted = |(tree, node): &(&LoopTree, &LoopNode)| {
        node.all.ended > 0 && glob.is_none_or(|glob| is_called(glob, tree, node))
    };
    loops.entered().filter(wanted).collect()
}

/// Returns the mean time of the timed hits. The cost of measuring is not subtracted.
fn mean_ns(tree: &LoopTree, node: &LoopNode) -> Option<f64> {
    tree.ns(node.all.ticks as f64 / node.all.ended as f64)
}

fn deviation_ns(tree: &LoopTree, node: &LoopNode) -> Option<f64> {
    tree.ns(node.all.deviation?)
}

/// Returns the functions and loops that `chosen` selects.
pub fn json(loops: &Loops<'_>, glob: Option<&str>) -> Vec<impl Serialize> {
    let out = |(tree, node): (&LoopTree, &LoopNode)| {
        object! {
            module: tree.identity(),
            id: node.id,
            name: full_name(tree, node),
            hits: node.all.hits,
            timed_hits: node.all.ended,
            mean_ns: mean_ns(tree, node),
            standard_deviation_ns: deviation_ns(tree, node),
        }
    };
    chosen(loops, glob).into_iter().map(out).collect()
}

/// Prints a table of the functions and loops that `chosen` selects. Returns false if there are
/// none.
pub fn print(
    out: &mut impl Write,
    loops: &Loops<'_>,
    glob: Option<&str>,
    width: Option<usize>,
) -> io::Result<bool> {
    let all = chosen(loops, glob);
    if all.is_empty() {
        return Ok(false);
    }
    writeln!(out, "Statistics for loops and functions, of the hits that were timed:")?;
    type Pair<'a> = (&'a LoopTree, &'a LoopNode);
    let column = |rank, title: &'static str, kind, cell: &dyn Fn(&Pair<'_>) -> Option<String>| {
        let cells = all.iter().map(|pair| cell(pair).unwrap_or_else(|| "–".to_owned()));
        Shown { name: title, title: title.to_owned(), rank, kind, cells: cells.collect() }
    };
    let columns = vec![
        column(0, "loop", Kind::Text, &|(tree, node)| Some(readable_full_name(tree, node))),
        column(4, "hits", Kind::Number, &|(_, node)| Some(count(node.all.hits))),
        column(3, "timed", Kind::Number, &|(_, node)| Some(count(node.all.ended))),
        column(1, "mean", Kind::Number, &|(tree, node)| mean_ns(tree, node).map(time)),
        column(2, "standard deviation", Kind::Number, &|(tree, node)| {
            deviation_ns(tree, node).map(time)
        }),
        column(5, "of mean", Kind::Number, &|(tree, node)| {
            let mean = mean_ns(tree, node).filter(|mean| *mean > 0.0)?;
            Some(percent(deviation_ns(tree, node)? / mean))
        }),
    ];
    let laid = layout(out, columns, Names::Shortened(NAME_WIDTH), width)?;
    laid.say_left_out_but_in(out, width, "json")?;
    Ok(true)
}
