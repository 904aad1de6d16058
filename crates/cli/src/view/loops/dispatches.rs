//! Prints dispatches of IREE and the loops inside of each dispatch. `report` prints this section
//! below its table of calls.
//!
//! ```text
//!  dispatch / loop                       hits  per workgroup  inclusive  of dispatch  source
//!  mm_dispatch_0_matmul_256x256x512_f32    16              1     458 µs       81.8 %  mm.mlir:1
//!    bb1                                   16              1     458 µs       81.8 %  mm.mlir:5
//!      bb2                                128              8     457 µs       81.6 %  mm.mlir:5
//! ```

use std::io::{self, Write};

use analysis::loops::dispatches::Dispatch;
use analysis::loops::{LoopNode, LoopTree};
use serde::Serialize;

use super::text::timed;
use super::{Loops, name, readable_name, source};
use crate::object::object;
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::units::{count, number, percent, plural};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// The largest number of rows that are listed.
const LISTED: usize = 40;
const NAME_WIDTH: usize = 28;

struct Group<'a> {
    name: &'a str,
    dispatch: &'a Dispatch,
    tree: &'a LoopTree,
    nodes: Vec<&'a LoopNode>,
}

/// Returns the dispatches with functions or loops that were entered; the one with the most time
/// comes first.
fn groups<'a>(loops: &'a Loops<'_>) -> Vec<Group<'a>> {
    let mut groups = Vec::new();
    for tree in &loops.table.modules {
        for (name, dispatch) in loops.dispatches.get(&tree.id).into_iter().flatten() {
            let of = |node: &&LoopNode| {
                node.all.hits > 0 && tree.entry(node).is_some_and(|entry| entry.function == *name)
            };
            let nodes: Vec<&LoopNode> = tree.nodes.iter().filter(of).collect();
            if !nodes.is_empty() {
                groups.push(Group { name, dispatch, tree, nodes });
            }
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.dispatch.ticks));
    groups
}

/// Prints the dispatches and their loops. Returns false if there is no dispatch to print.
pub fn print(out: &mut impl Write, loops: &Loops<'_>, width: Option<usize>) -> io::Result<bool> {
    let groups = groups(loops);
    if groups.is_empty() {
        return Ok(false);
    }
    let rows: Vec<(&Group<'_>, &LoopNode)> = groups
        .iter()
        .flat_map(|group| group.nodes.iter().map(move |node| (group, *node)))
        .collect();
    let some = &rows[..rows.len().min(LISTED)];
    let missing = || "–".to_owned();
    type Pair<'a> = (&'a Group<'a>, &'a LoopNode);
    let column =
        |rank, title: &'static str, kind, cell: &dyn Fn(&Pair<'_>) -> Option<String>| Shown {
            name: title,
            title: title.to_owned(),
            rank,
            kind,
            cells: some.iter().map(|pair| cell(pair).unwrap_or_else(missing)).collect(),
        };
    let inside =
        |(group, node): &Pair<'_>| loops.inside(group.tree, node).map(|(_, inside)| inside);
    let columns = vec![
        column(0, "dispatch / loop", Kind::Text, &|(group, node)| {
            let indent = "  ".repeat(node.level.min(40) as usize);
            Some(format!("{indent}{}", readable_name(group.tree, node)))
        }),
        column(1, "hits", Kind::Number, &|(_, node)| Some(count(node.all.hits))),
        column(3, "per workgroup", Kind::Number, &|pair| Some(number(inside(pair)?.per_workgroup))),
        column(1, "inclusive", Kind::Number, &|(group, node)| {
            let text = timed(group.tree, node.all.times(loops.raw)?.inclusive);
            Some(if node.all.sampled_only { format!("≈ {text}") } else { text })
        }),
        column(2, "of dispatch", Kind::Number, &|pair| inside(pair)?.share.map(percent)),
        column(4, "source", Kind::Place, &|(group, node)| source(group.tree, node)),
    ];
    let laid = layout(out, columns, Names::Shortened(NAME_WIDTH), width)?;
    let prose = width.unwrap_or(PROSE_WIDTH);
    if rows.len() > some.len() {
        let more = plural((rows.len() - some.len()) as u128, "row");
        wrapped(out, "… ", &format!("{more} more; `counterpoint loops report` shows all"), prose)?;
    }
    laid.say_left_out_but_in(out, width, "json")?;
    writeln!(out)?;
    Ok(true)
}

pub fn json(loops: &Loops<'_>) -> Vec<impl Serialize> {
    let row = |group: &Group<'_>, node: &LoopNode| {
        let (_, inside) = loops.inside(group.tree, node)?;
        let entry = group.tree.entry(node)?;
        let times = node.all.times(loops.raw);
        Some(object! {
            id: node.id,
            parent: entry.parent,
            name: name(group.tree, node),
            source: source(group.tree, node),
            hits: node.all.hits,
            hits_per_workgroup: inside.per_workgroup,
            inclusive_ns: times.and_then(|times| group.tree.ns(times.inclusive.value)),
            share: inside.share,
        })
    };
    groups(loops)
        .iter()
        .map(|group| {
            object! {
                name: group.name.to_owned(),
                module: group.tree.identity(),
                workgroups: group.dispatch.workgroups,
                dispatches: group.dispatch.dispatches,
                total_ns: group.dispatch.total_ns(loops.profile),
                rows: group.nodes.iter().filter_map(|node| row(group, node)).collect::<Vec<_>>(),
            }
        })
        .collect()
}
