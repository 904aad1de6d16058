//! Prints how many iterations a loop had in its hits (a hit is one entry into the loop): a range,
//! and a histogram.

use std::io::{self, Write};

use analysis::loops::trips::bucket;
use analysis::loops::{LoopTree, Numbers};
use ir::table::Entry;

use super::readable_full_name;
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::units::{count, percent};

/// Marks iterations that were counted in only some of the hits.
pub(super) const SCALED: &str = "~";
/// The table leaves out other columns before names get narrower than this.
pub(super) const NAME_WIDTH: usize = 22;

/// Returns the smallest and the largest number of iterations among the counted hits. If these
/// numbers are not known, both are the number that the compiler's IR determines, unless a timed hit
/// did not end. Returns `None` if neither is known, or if there was no hit.
pub fn range(entry: Option<&Entry>, numbers: &Numbers) -> Option<(u64, u64)> {
    let counted = numbers.trips.as_ref().map(|trips| (trips.least, trips.most));
    let said = entry.and_then(|entry| entry.trip_count).filter(|_| numbers.unended() == 0);
    counted.or_else(|| said.filter(|_| numbers.hits > 0).map(|each| (each, each)))
}

/// Returns the numbers of iterations of single hits as text: `8`, or `1 to 1,000`.
pub fn each(entry: Option<&Entry>, numbers: &Numbers) -> Option<String> {
    let (least, most) = range(entry, numbers)?;
    let is_known =
        numbers.iterated == numbers.hits || entry.is_some_and(|e| e.trip_count.is_some());
    let mark = if is_known { "" } else { SCALED };
    Some(match least == most {
        true => format!("{mark}{}", count(least.into())),
        false => format!("{mark}{} to {}", count(least.into()), count(most.into())),
    })
}

/// Returns the histogram without empty buckets. A bucket has its smallest and its largest number of
/// iterations, and its number of hits.
pub fn buckets(numbers: &Numbers) -> impl Iterator<Item = ((u64, u64), u128)> {
    let all = numbers.trips.as_ref().map_or(&[][..], |trips| &trips.buckets);
    let taken = all.iter().enumerate().filter(|(_, hits)| **hits > 0);
    taken.map(|(index, hits)| (bucket(index), *hits))
}

/// Returns the histogram as the text of one cell: `1:100 8-15:20` is 100 hits with 1 iteration and
/// 20 with 8 to 15.
pub fn histogram_cell(buckets: impl Iterator<Item = ((u64, u64), u128)>) -> Option<String> {
    let cell = |((from, to), hits): ((u64, u64), u128)| match (from == to, to == u64::MAX) {
        (true, _) => format!("{from}:{hits}"),
        (_, true) => format!("{from}-:{hits}"),
        _ => format!("{from}-{to}:{hits}"),
    };
    let cells: Vec<String> = buckets.map(cell).collect();
    (!cells.is_empty()).then(|| cells.join(" "))
}

/// Prints the histograms of all loops of a module. Returns false if no loop has a histogram.
pub fn histograms(out: &mut impl Write, tree: &LoopTree, width: Option<usize>) -> io::Result<bool> {
    let nodes = || tree.nodes.iter().filter(|node| buckets(&node.all).next().is_some());
    let lines: Vec<_> =
        nodes().flat_map(|node| buckets(&node.all).map(move |bucket| (node, bucket))).collect();
    if lines.is_empty() {
        return Ok(false);
    }
    let column = |name: &'static str, rank, kind, cells| Shown {
        name,
        title: name.to_owned(),
        rank,
        kind,
        cells,
    };
    // Only the first line of a loop has its name and id.
    let first = |at: usize| at == 0 || lines[at - 1].0.id != lines[at].0.id;
    let named = |at: usize, text: String| if first(at) { text } else { String::new() };
    let all = || lines.iter().enumerate();
    let columns = vec![
        column(
            "name",
            0,
            Kind::Text,
            all().map(|(at, (node, _))| named(at, readable_full_name(tree, node))).collect(),
        ),
        column(
            "id",
            1,
            Kind::Number,
            all().map(|(at, (n, _))| named(at, n.id.to_string())).collect(),
        ),
        column(
            "iterations",
            0,
            Kind::Number,
            all().map(|(_, (_, ((from, to), _)))| one_of(*from, *to)).collect(),
        ),
        column("hits", 0, Kind::Number, all().map(|(_, (_, (_, hits)))| count(*hits)).collect()),
        column(
            "of counted hits",
            2,
            Kind::Number,
            all()
                .map(|(_, (node, (_, hits)))| percent(*hits as f64 / node.all.iterated as f64))
                .collect(),
        ),
    ];
    writeln!(out)?;
    layout(out, columns, Names::Shortened(NAME_WIDTH), width)?.say_left_out(out, width)?;
    Ok(true)
}

fn one_of(from: u64, to: u64) -> String {
    match (from == to, to == u64::MAX) {
        (true, _) => count(from.into()),
        (_, true) => format!("{} or more", count(from.into())),
        _ => format!("{} to {}", count(from.into()), count(to.into())),
    }
}
