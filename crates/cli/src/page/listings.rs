//! Makes listings of instrumented functions: source, intermediate code and machine code, with
//! measurements at the first line of each entered loop. The lines are those of `loops report
//! --source --asm`.

use ::code::region::Range;
use analysis::loops::{LoopNode, LoopTree};
use ir::table::Kind;

use super::data::{ListingColumnOut, ListingLineOut, ListingOut};
use super::tables::table_id;
use crate::terminal::visible;
use crate::view::loops::code::{self, Found};
use crate::view::loops::{Loops, assembly, readable_full_name, readable_name, source, text};
use crate::view::units::{count, grouped, percent, plural};

/// At most this many functions have listings: those that took the most time.
const FUNCTIONS: usize = 50;
/// The largest number of lines in all listings together.
const LINES: usize = 12_000;
/// The largest number of lines in a column: one text (source, intermediate code or machine code) of
/// one function.
const LINES_OF_ONE: usize = 3_000;
/// Lines with more characters than this are shortened.
const CHARACTERS: usize = 400;

struct Function<'a> {
    module: usize,
    tree: &'a LoopTree,
    node: &'a LoopNode,
    /// The function's loops that were entered, in the order of the tree.
    loops: Vec<&'a LoopNode>,
}

/// Returns the listings, and a sentence about the functions that are left out.
pub fn of(loops: &Loops<'_>) -> (Vec<ListingOut>, String) {
    let mut functions = functions(loops);
    let weight = |of: &Function<'_>| {
        let ticks = of.node.all.times(loops.raw).map(|times| times.inclusive.value);
        (ticks.map_or(-1.0, |ticks| of.tree.ns(ticks).unwrap_or(ticks)), of.node.all.hits)
    };
    functions
        .sort_by(|a, b| weight(b).0.total_cmp(&weight(a).0).then(weight(b).1.cmp(&weight(a).1)));
    let mut room = LINES;
    let mut listings = Vec::new();
    let mut looked_at = 0;
    for function in functions.iter().take(FUNCTIONS) {
        if room == 0 {
            break;
        }
        looked_at += 1;
        listings.extend(one(loops, function, &mut room));
    }
    let left = functions.len() - looked_at;
    let about = match left {
        0 => String::new(),
        1 => "1 more function is not in this page".to_owned(),
        _ => format!("{} are not in this page", plural(left as u128, "more function")),
    };
    (listings, about)
}

fn functions<'a>(loops: &'a Loops<'_>) -> Vec<Function<'a>> {
    let mut functions: Vec<Function<'_>> = Vec::new();
    for (module, tree) in loops.table.modules.iter().enumerate() {
        for node in &tree.nodes {
            let kind = tree.entry(node).map(|entry| entry.kind);
            match (kind, functions.last_mut()) {
                _ if node.all.hits == 0 => {}
                (Some(Kind::Function), _) => {
                    functions.push(Function { module, tree, node, loops: Vec::new() });
                }
                (Some(Kind::Loop), Some(last)) if last.module == module => {
                    let name = |node: &LoopNode| tree.entry(node).map(|entry| &entry.function);
                    if name(node) == name(last.node) {
                        last.loops.push(node);
                    }
                }
                _ => {}
            }
        }
    }
    functions
}

/// Makes the listing of a function; `None` if there is nothing to show.
fn one(loops: &Loops<'_>, function: &Function<'_>, room: &mut usize) -> Option<ListingOut> {
    let Function { module, tree, node, .. } = *function;
    let found = loops.more.codes.as_ref().and_then(|codes| codes.get(module));
    let mut words = Vec::new();
    let mut columns = Vec::new();
    if let (Some(table), Some(entry)) = (&tree.table, tree.entry(node)) {
        // The columns are in the order of compilation: the source comes first.
        for (i, text) in table.texts.iter().enumerate().rev() {
            let Some([from, to]) = source::range_of(entry, text, i == 0) else { continue };
            let known = loops.more.texts.lines(text);
            let lines = match &*known {
                Ok(lines) => lines.range(from..=to.max(from)),
                Err(why) => {
                    words.push(format!("{} is not shown: {why}", text.path));
                    continue;
                }
            };
            let range = |node: &&LoopNode| source::range_of(tree.entry(node)?, text, i == 0);
            let ranges: Vec<Option<[u32; 2]>> = function.loops.iter().map(range).collect();
            let lines = lines.filter(|(_, line)| !source::is_for_debuggers(line));
            let lines = lines.map(|(number, line)| {
                let line = &source::without_places(&text.language, line);
                let is_in = |at: usize| {
                    let [from, to] = ranges[at]?;
                    (from..=to).contains(number).then_some(from == *number)
                };
                line_out(loops, function, number.to_string(), line, is_in)
            });
            let title = format!("{} ({})", visible(&text.path), text.language);
            columns.extend(column(title, lines, room));
        }
    }
    match found.map(|found| machine_code(loops, function, found, room)) {
        Some(Ok(code)) => columns.extend(code),
        Some(Err(why)) => words.push(format!("its machine code is not shown: {why}")),
        None => {}
    }
    words.extend(found.and_then(|found| source::in_words(found, node.id)));
    if columns.is_empty() && words.is_empty() {
        return None;
    }
    words.insert(0, in_numbers(loops, function));
    let name = |node: &&LoopNode| readable_name(tree, node);
    let loops_out = function.loops.iter().map(name).collect();
    let label = readable_full_name(tree, node);
    Some(ListingOut { table: table_id(module), label, words, loops: loops_out, columns })
}

fn in_numbers(loops: &Loops<'_>, function: &Function<'_>) -> String {
    let Function { tree, node, .. } = *function;
    let hits = plural(node.all.hits, "hit");
    let time = text::inclusive(loops, tree, node).map_or(String::new(), |time| format!(", {time}"));
    let within = plural(function.loops.len() as u128, "entered loop");
    format!("{hits}{time}, {within}")
}

/// Makes the column with the machine code; `None` if no instruction was found.
fn machine_code(
    loops: &Loops<'_>,
    function: &Function<'_>,
    found: &Found,
    room: &mut usize,
) -> Result<Option<ListingColumnOut>, String> {
    let Function { node, .. } = *function;
    let code = found.as_ref().map_err(Clone::clone)?;
    let regions = &code.regions;
    let Some(region) = regions.found.get(&node.id) else {
        return Err(code::missing(regions.missing.get(&node.id)).to_owned());
    };
    let lines = code::listing(code, region, LINES_OF_ONE + 1);
    let all: Vec<&[Range]> = function
        .loops
        .iter()
        .map(|node| regions.found.get(&node.id).map_or(&[][..], |region| region.ranges.as_slice()))
        .collect();
    let lines = lines.iter().map(|line| {
        let is_in = |at: usize| {
            let ranges = all[at];
            let is_there = ranges.iter().any(|r| (r.start..r.end).contains(&line.address));
            is_there.then(|| ranges.first().is_some_and(|range| range.start == line.address))
        };
        let hook = if line.is_hook { "· " } else { "" };
        let text = format!("{hook}{}", line.text);
        line_out(loops, function, format!("{:x}", line.address), &text, is_in)
    });
    Ok(column(format!("machine code: {}", assembly::start(region)), lines, room))
}

/// Makes a line of a listing. `is_in` gets the index of a loop of the function, and returns whether
/// the line is the loop's first line, or `None` if the loop does not contain the line.
fn line_out(
    loops: &Loops<'_>,
    function: &Function<'_>,
    number: String,
    line: &str,
    is_in: impl Fn(usize) -> Option<bool>,
) -> ListingLineOut {
    let inside = function.loops.iter().enumerate();
    let inside: Vec<(usize, &LoopNode, bool)> =
        inside.filter_map(|(at, node)| Some((at, *node, is_in(at)?))).collect();
    let margins = inside.iter().filter(|(.., is_first)| *is_first);
    let margins: Vec<String> =
        margins.map(|(_, node, _)| margin(loops, function.tree, node)).collect();
    let cut = line.char_indices().nth(CHARACTERS);
    let text = match cut {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    };
    // An outer loop comes before the loops inside of it, so the last loop is the innermost one.
    let innermost = inside.last().map_or(-1, |(at, ..)| *at as i64);
    ListingLineOut { number, text, margin: margins.join("; "), of_loop: innermost }
}

fn margin(loops: &Loops<'_>, tree: &LoopTree, node: &LoopNode) -> String {
    let share = source::share_of_function(loops, tree, node).map(percent);
    match (text::inclusive(loops, tree, node), share) {
        (Some(time), Some(share)) => format!("{time}, {share}"),
        (Some(time), None) => time,
        (None, _) => format!("{} hits", count(node.all.hits)),
    }
}

/// Makes a column with at most [`LINES_OF_ONE`] lines and at most `room` lines. If there are more,
/// another line says so. `None` if there are no lines.
fn column(
    title: String,
    lines: impl Iterator<Item = ListingLineOut>,
    room: &mut usize,
) -> Option<ListingColumnOut> {
    let most = LINES_OF_ONE.min(*room);
    let mut lines: Vec<ListingLineOut> = lines.take(most + 1).collect();
    let is_more = lines.len() > most;
    lines.truncate(most);
    *room -= lines.len();
    if is_more {
        let text = match most {
            0 => "… its lines are not in this page".to_owned(),
            _ => format!("… more lines, after the first {}", grouped(most as u128)),
        };
        lines.push(ListingLineOut {
            number: String::new(),
            text,
            margin: String::new(),
            of_loop: -1,
        });
    }
    (!lines.is_empty()).then_some(ListingColumnOut { title, lines })
}
