//! Prints the table of `loops report --asm`: where the code of each function and loop is, and how
//! many instructions of each kind it has.
//!
//! ```text
//!  name    id  code             bytes  machine loops  instructions  hooks  loads  …  vector
//!  matmul   0  matmul+0x66 (4)  1,140  3              79            216    16
//!    k      3  matmul+0x159        54  1              12              2     2        128: 1
//! ```

use std::io::{self, Write};

use analysis::loops::LoopTree;
use analysis::loops::traffic::Bounds;
use code::region::{Counts, Region};

use super::code::{Found, ModuleCode, missing};
use super::{Loops, readable_name, traffic};
use crate::terminal::visible;
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::units::{bytes, grouped, plural};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// The table leaves out other columns before names get narrower than this.
const NAME_WIDTH: usize = 22;

type Count = fn(&Counts) -> u64;

pub fn table(
    out: &mut impl Write,
    loops: &Loops<'_>,
    tree: &LoopTree,
    found: &Found,
    all: bool,
    width: Option<usize>,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    let code = match found {
        Ok(code) => code,
        Err(why) => {
            return wrapped(out, "note: ", &format!("machine code is not shown: {why}"), prose);
        }
    };
    wrapped(out, "code      ", &place(code), prose)?;
    writeln!(out)?;
    let entered = |hits: u128| all || hits > 0;
    let nodes: Vec<_> = tree.nodes.iter().filter(|node| entered(node.all.hits)).collect();
    let regions: Vec<Option<&Region>> =
        nodes.iter().map(|node| code.regions.found.get(&node.id)).collect();
    let mut columns = Vec::new();
    let names = nodes
        .iter()
        .map(|node| "  ".repeat(node.level.min(40) as usize) + &readable_name(tree, node));
    let column =
        |name, rank, kind, cells| Shown { name, title: str::to_owned(name), rank, kind, cells };
    columns.push(column("name", 0, Kind::Text, names.collect()));
    columns.push(column(
        "id",
        1,
        Kind::Number,
        nodes.iter().map(|node| node.id.to_string()).collect(),
    ));
    let mut add = |rank: u8, title: &'static str, kind: Kind, cell: &dyn Fn(&Region) -> String| {
        let cells: Vec<String> =
            regions.iter().map(|region| region.map_or_else(|| "–".to_owned(), cell)).collect();
        // The rank says how early a narrow table leaves out the column. A column of rank 4 or more
        // is also left out if it has no number but 0.
        if rank < 4 || cells.iter().any(|cell| cell != "–" && cell != "0") {
            columns.push(column(title, rank, kind, cells));
        }
    };
    add(3, "code", Kind::Text, &|region| visible(&start(region)).into_owned());
    add(6, "bytes", Kind::Number, &|region| {
        grouped(region.ranges.iter().map(|range| u128::from(range.end - range.start)).sum())
    });
    add(0, "machine loops", Kind::Number, &|region| region.loops.len().to_string());
    let count = |of: fn(&Counts) -> u64| move |region: &Region| grouped(of(&region.counts).into());
    add(2, "instructions", Kind::Number, &count(|c| c.instructions));
    add(7, "hooks", Kind::Number, &count(|c| c.hooks));
    add(4, "loads", Kind::Number, &count(|c| c.loads));
    add(4, "stores", Kind::Number, &count(|c| c.stores));
    add(5, "branches", Kind::Number, &count(|c| c.branches));
    add(5, "calls", Kind::Number, &count(|c| c.calls));
    add(4, "scalar", Kind::Number, &count(|c| c.scalar));
    let vectors: [(&'static str, Count); 5] = [
        ("vector 64", |c| c.vectors[0]),
        ("vector 128", |c| c.vectors[1]),
        ("vector 256", |c| c.vectors[2]),
        ("vector 512", |c| c.vectors[3]),
        ("scalable", |c| c.scalable),
    ];
    for (title, of) in vectors {
        add(4, title, Kind::Number, &count(of));
    }
    add(8, "other", Kind::Number, &count(|c| c.other));
    let rate = |bounds: Option<Bounds>| bounds.and_then(|b| b.rate_at_most);
    let requested = nodes.iter().map(|node| rate(traffic::of_code(loops, tree, node, found)));
    let arguments = nodes.iter().map(|node| rate(traffic::of_arguments(loops, tree, node)));
    let bounds: [(&'static str, Vec<Option<f64>>); 2] =
        [("asks for", requested.collect()), ("arguments", arguments.collect())];
    for (title, rates) in bounds {
        if rates.iter().any(Option::is_some) {
            let cells = rates.iter().map(|rate| match rate {
                Some(rate) => format!("≤ {}/s", bytes(*rate)),
                None => "–".to_owned(),
            });
            columns.push(column(title, 3, Kind::Number, cells.collect()));
        }
    }
    layout(out, columns, Names::Shortened(NAME_WIDTH), width)?.say_left_out(out, width)?;
    for text in notes(tree, code, all) {
        wrapped(out, "note: ", &text, prose)?;
    }
    Ok(())
}

fn place(code: &ModuleCode) -> String {
    let object = code.object.as_deref().unwrap_or("without a file");
    match code.is_kept {
        true => format!("{object}, as it was kept in the profile"),
        false => object.to_owned(),
    }
}

/// Says where a region begins and how many ranges it has.
pub fn start(region: &Region) -> String {
    let first = region.ranges.first().map_or(0, |range| range.start);
    let more = match region.ranges.len() {
        0 | 1 => String::new(),
        n => format!(" ({n} ranges)"),
    };
    match (region.name.as_str(), first.checked_sub(region.function)) {
        ("", _) | (_, None) => format!("{first:#x}{more}"),
        (name, Some(offset)) => format!("{name}+{offset:#x}{more}"),
    }
}

fn notes(tree: &LoopTree, code: &ModuleCode, all: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let shown = |id: &u32| tree.nodes.iter().any(|n| n.id == *id && (all || n.all.hits > 0));
    let lost = code.regions.missing.iter().filter(|(id, _)| shown(id));
    let mut reasons: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
    lost.for_each(|(id, why)| reasons.entry(missing(Some(why))).or_default().push(id.to_string()));
    for (why, ids) in reasons {
        notes.push(format!("no code for id {}: {why}", ids.join(", ")));
    }
    if !code.regions.failed.is_empty() {
        let n = plural(code.regions.failed.len() as u128, "function");
        let why = &code.regions.failed[0].1;
        notes.push(format!("{n} could not be followed: {why}"));
    }
    let jumps: usize =
        code.regions.found.values().map(|region| region.unknown_jumps).max().unwrap_or(0);
    if jumps > 0 {
        let jumps = plural(jumps as u128, "jump");
        notes.push(format!(
            "{jumps} through a table could not be followed; the code after may be missing"
        ));
    }
    notes
}
