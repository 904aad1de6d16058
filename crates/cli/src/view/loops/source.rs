//! Prints the texts of functions (their source and the compiler's IR), with the numbers of their
//! loops in the margin. Also prints the texts and the machine code of one loop side by side.
//!
//! ```text
//!   id     hits  of function │ line
//!    1        1       99.8 % │   12  ┌ for.body:
//!    2      256       99.1 % │   14  │┌ for.body4:
//!                            │   15  ││  %k = phi i64 …
//! ```

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::rc::Rc;

use analysis::loops::{LoopNode, LoopTree};
use ir::kept::{KeptText, TextError};
use ir::table::{Entry, Kind};

use super::code::{Found, Line, listing};
use super::files::Files;
use super::{Loops, readable_full_name};
use crate::terminal::visible;
use crate::view::units::{count, percent, shorten};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// Texts and code are printed side by side only if each column is at least this wide.
const COLUMN: usize = 48;
const GAP: &str = " │ ";
/// A listing has at most this many instructions.
pub const MOST_LINES: usize = 100_000;

/// The lines of a text (source or IR), by their numbers, or the reason why they cannot be shown.
pub type Lines = Result<BTreeMap<u32, String>, String>;

/// Text files with more bytes are not read.
const MOST_TEXT: u64 = 1 << 30;
/// The memory in bytes that all texts of a report may take, besides [`MOST_UNPACKED`] for each byte
/// of packed text. The texts of compilers become less than 40 times as large when they are
/// unpacked.
const UNPACKED_ANYWAY: u64 = 64 << 20;
/// The additional memory in bytes that texts may take for each byte of packed text.
const MOST_UNPACKED: u64 = 128;

/// The texts of the side tables. A text is unpacked when it is first shown.
#[derive(Debug, Default)]
pub struct Texts {
    sources: Files,
    /// The memory in bytes that texts may still take.
    room: Cell<u64>,
    /// The unpacked texts, by the address of the packed text. The report owns the packed texts, so
    /// their addresses do not change. Name and hash cannot be the key: two texts with the same name
    /// and hash may have different lines.
    known: RefCell<HashMap<usize, Rc<Lines>>>,
}

impl Texts {
    /// A text that is not in its side table is looked for as a file in `sources`.
    pub fn new(loops: &Loops<'_>, sources: Files) -> Self {
        let tables = loops.table.modules.iter().filter_map(|tree| tree.table.as_ref());
        let packed: u64 = tables.flat_map(|table| &table.texts).map(KeptText::packed).sum();
        let room = Cell::new(UNPACKED_ANYWAY + MOST_UNPACKED * packed);
        Self { sources, room, known: RefCell::default() }
    }

    /// Returns the lines of a text. They are in the side table, or else in the file with the text's
    /// path.
    pub fn lines(&self, text: &KeptText) -> Rc<Lines> {
        let key = std::ptr::from_ref(text).addr();
        if let Some(known) = self.known.borrow().get(&key) {
            return Rc::clone(known);
        }
        let lines = Rc::new(self.read(text));
        self.known.borrow_mut().insert(key, Rc::clone(&lines));
        lines
    }

    fn read(&self, text: &KeptText) -> Lines {
        let mut room = self.room.get();
        let kept = text.numbered(&mut room);
        self.room.set(room);
        match kept {
            Err(why @ TextError::NotKept(_)) => {
                let read = self.sources.read(&text.path, MOST_TEXT, "--sources");
                let (bytes, _) = read.map_err(|also| format!("{why}; {also}"))?;
                text.of_file(&bytes).map_err(|e| e.to_string())
            }
            kept => kept.map_err(|e| e.to_string()),
        }
    }
}

/// Returns the first and the last line of a function or loop in this text. `is_first` marks the
/// first text of the side table: the IR that was instrumented.
pub fn range_of(entry: &Entry, text: &KeptText, is_first: bool) -> Option<[u32; 2]> {
    let place = entry.places.iter().find(|place| place.language == text.language);
    place.map(|place| place.lines).or_else(|| is_first.then_some(entry.text))
}

/// Prints the texts of the `wanted` functions and loops.
pub fn texts(
    out: &mut impl Write,
    loops: &Loops<'_>,
    tree: &LoopTree,
    wanted: &dyn Fn(&LoopNode) -> bool,
    width: Option<usize>,
) -> io::Result<()> {
    let prose = width.unwrap_or(PROSE_WIDTH);
    let Some(table) = &tree.table else { return Ok(()) };
    if table.texts.is_empty() {
        let why = "the side table has no text: it was made by an earlier version";
        return wrapped(out, "note: ", why, prose);
    }
    for (i, text) in table.texts.iter().enumerate() {
        let known = loops.more.texts.lines(text);
        let lines = match &*known {
            Ok(lines) => lines,
            Err(why) => {
                wrapped(out, "note: ", why, prose)?;
                continue;
            }
        };
        let nodes: Vec<(&LoopNode, [u32; 2])> = tree
            .nodes
            .iter()
            .filter(|node| wanted(node))
            .filter_map(|node| Some((node, range_of(tree.entry(node)?, text, i == 0)?)))
            .collect();
        writeln!(out, "{} ({})", visible(&text.path), text.language)?;
        writeln!(out, "{:>6}  {:>9}  {:>11} {GAP}{:>6}", "id", "hits", "of function", "line")?;
        let mut last = None;
        for (number, line) in lines {
            if !nodes.iter().any(|(_, [from, to])| (from..=to).contains(&number)) {
                continue;
            }
            if is_for_debuggers(line) {
                last = last.map(|_| *number);
                continue;
            }
            if last.is_some_and(|last| last + 1 != *number) {
                writeln!(out)?;
            }
            last = Some(*number);
            let margin = margin(loops, tree, &nodes, *number);
            let bars = bars(tree, &nodes, *number);
            let line = without_places(&text.language, line);
            let line = format!("{margin} {GAP}{number:>6}  {bars}{}", visible(&line));
            writeln!(out, "{}", width.map_or(line.clone(), |width| shorten_end(&line, width)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Returns the id, the hits and the share of the innermost function or loop that begins in this
/// line, or blanks.
fn margin(
    loops: &Loops<'_>,
    tree: &LoopTree,
    nodes: &[(&LoopNode, [u32; 2])],
    line: u32,
) -> String {
    let Some((node, _)) = nodes.iter().rev().find(|(_, [from, _])| *from == line) else {
        return format!("{:>6}  {:>9}  {:>11}", "", "", "");
    };
    let share = share_of_function(loops, tree, node).map_or("–".to_owned(), percent);
    format!("{:>6}  {:>9}  {share:>11}", node.id, count(node.all.hits))
}

/// Returns the share of its function's time that a loop took. Without functions (`--no-functions`),
/// the outermost loop takes the place of the function. `None` if a time is not known, or if the
/// function took none.
pub fn share_of_function(loops: &Loops<'_>, tree: &LoopTree, node: &LoopNode) -> Option<f64> {
    let mut top = node;
    while let Some(parent) = top.parent.and_then(|parent| tree.nodes.get(parent)) {
        top = parent;
    }
    let time = |node: &LoopNode| Some(node.all.times(loops.raw)?.inclusive.value);
    let (own, whole) = (time(node)?, time(top)?);
    (whole > 0.0).then(|| own / whole)
}

fn bars(tree: &LoopTree, nodes: &[(&LoopNode, [u32; 2])], line: u32) -> String {
    let is_loop = |node: &LoopNode| tree.entry(node).is_some_and(|e| e.kind == Kind::Loop);
    let inside =
        nodes.iter().filter(|(node, [from, to])| is_loop(node) && (from..=to).contains(&&line));
    inside
        .map(|(_, [from, to])| match line {
            _ if *from == line => '┌',
            _ if *to == line => '└',
            _ => '│',
        })
        .collect()
}

fn shorten_end(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Prints the texts and the machine code of one node: in columns if they fit, or else one after the
/// other.
pub fn side_by_side(
    out: &mut impl Write,
    loops: &Loops<'_>,
    tree: &LoopTree,
    node: &LoopNode,
    code: Option<&Found>,
    source: bool,
    width: Option<usize>,
) -> io::Result<()> {
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    if let (true, Some(table), Some(entry)) = (source, &tree.table, tree.entry(node)) {
        // The columns are in the order of compilation: the source first.
        for (i, text) in table.texts.iter().enumerate().rev() {
            let Some([from, to]) = range_of(entry, text, i == 0) else { continue };
            let rows = match &*loops.more.texts.lines(text) {
                Ok(lines) => lines
                    .range(from..=to.max(from))
                    .filter(|(_, line)| !is_for_debuggers(line))
                    .map(|(number, line)| {
                        let line = without_places(&text.language, line);
                        format!("{number:>5}  {}", visible(&line))
                    })
                    .collect(),
                Err(why) => vec![why.clone()],
            };
            columns.push((format!("{}:{from} ({})", visible(&text.path), text.language), rows));
        }
    }
    if let Some(found) = code {
        let (title, rows) = match found {
            Ok(code) => match code.regions.found.get(&node.id) {
                Some(region) => (
                    format!("machine code: {}", super::assembly::start(region)),
                    listing(code, region, MOST_LINES).iter().map(instruction).collect(),
                ),
                None => {
                    let why = super::code::missing(code.regions.missing.get(&node.id));
                    ("machine code".to_owned(), vec![why.to_owned()])
                }
            },
            Err(why) => ("machine code".to_owned(), vec![why.clone()]),
        };
        columns.push((title, rows));
    }
    let share = share_of_function(loops, tree, node);
    let share = share.map_or(String::new(), |part| format!(", {} of its function", percent(part)));
    let hits = count(node.all.hits);
    let title = readable_full_name(tree, node);
    writeln!(out, "{} (id {}): {hits} hits{share}", visible(&title), node.id)?;
    if let Some(words) = code.and_then(|found| in_words(found, node.id)) {
        wrapped(out, "code: ", &words, width.unwrap_or(PROSE_WIDTH))?;
    }
    let each = width.map(|width| {
        let gaps = GAP.chars().count() * columns.len().saturating_sub(1);
        width.saturating_sub(gaps) / columns.len().max(1)
    });
    match each {
        Some(each) if columns.len() > 1 && each >= COLUMN => {
            let rows = columns.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
            let titles = columns.iter().map(|(title, _)| pad(&shorten(title, each), each));
            writeln!(out, "{}", titles.collect::<Vec<_>>().join(GAP).trim_end())?;
            for row in 0..rows {
                let cells = columns.iter().map(|(_, rows)| {
                    pad(&shorten_end(rows.get(row).map_or("", String::as_str), each), each)
                });
                writeln!(out, "{}", cells.collect::<Vec<_>>().join(GAP).trim_end())?;
            }
        }
        _ => {
            for (title, rows) in &columns {
                writeln!(out, "{title}")?;
                for row in rows {
                    writeln!(
                        out,
                        "{}",
                        width.map_or(row.clone(), |width| shorten_end(row, width))
                    )?;
                }
                writeln!(out)?;
            }
        }
    }
    writeln!(out)
}

pub fn in_words(found: &Found, id: u32) -> Option<String> {
    let code = found.as_ref().ok()?;
    code::words::words(&code.image, &code.regions, id, code.regions.widest)
}

/// Whether a line only describes variables for debuggers.
pub fn is_for_debuggers(line: &str) -> bool {
    let line = line.trim_start();
    let call = line.strip_prefix("tail ").unwrap_or(line);
    let begins = |words: &[&str]| words.iter().any(|word| call.starts_with(word));
    begins(&["#dbg_", "call void @llvm.dbg.", "llvm.intr.dbg.", "\"llvm.intr.dbg."])
}

/// Returns a line of MLIR without source locations, such as `loc(callsite("a" at "b.mlir":2:1))`,
/// which are often longer than the code. Lines of other languages, and incomplete locations, are
/// unchanged.
pub fn without_places<'a>(language: &str, line: &'a str) -> Cow<'a, str> {
    const PLACE: &str = " loc(";
    if language != "mlir" || !line.contains(PLACE) {
        return Cow::Borrowed(line);
    }
    let mut shown = String::new();
    let mut rest = line;
    while let Some(at) = outside_of_strings(rest, |rest| rest.starts_with(PLACE)) {
        let inside = &rest[at + PLACE.len()..];
        let mut open = 1;
        let end = outside_of_strings(inside, |rest| {
            open += i32::from(rest.starts_with('('));
            open -= i32::from(rest.starts_with(')'));
            open == 0
        });
        let Some(end) = end else { return Cow::Borrowed(line) };
        shown.push_str(&rest[..at]);
        rest = &inside[end + 1..];
    }
    Cow::Owned(shown + rest)
}

/// Returns the first position outside of string literals at which `is_wanted` accepts the rest of
/// the line.
fn outside_of_strings(line: &str, mut is_wanted: impl FnMut(&str) -> bool) -> Option<usize> {
    let (mut is_string, mut is_escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_string => is_escaped = true,
            '"' => is_string = !is_string,
            _ if !is_string && is_wanted(&line[at..]) => return Some(at),
            _ => {}
        }
    }
    None
}

fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// Formats an instruction. `›` marks the first instruction of a range, `·` marks a hook, and there
/// is a bar for each machine loop around the instruction.
fn instruction(line: &Line) -> String {
    let mut bars = "│".repeat(line.depth as usize);
    if line.is_header {
        bars.pop();
        bars.push('┌');
    }
    let hook = if line.is_hook { '·' } else { ' ' };
    let gap = if line.is_first { "›" } else { " " };
    format!("{gap}{:>8x} {hook}{bars:<4} {}", line.address, visible(&line.text))
}

#[cfg(test)]
mod tests {
    use super::{is_for_debuggers, without_places};

    #[test]
    fn places_of_mlir_are_left_out() {
        let shown = |line| without_places("mlir", line).into_owned();
        assert_eq!(
            shown(
                r#"  %1 = arith.addf %a, %b : f32 loc(callsite("x"("a.mlir":1:2) at "b) loc(c"))"#
            ),
            "  %1 = arith.addf %a, %b : f32"
        );
        assert_eq!(
            shown("^bb1(%3: i64 loc(#loc3), %4: f32 loc(unknown)):  // 2 preds"),
            "^bb1(%3: i64, %4: f32):  // 2 preds"
        );
        // What only looks like a location, or is not closed, stays unchanged.
        for line in [r#"x "a \" loc(b)" loc(#loc"#, r#"f " loc(a)""#, "call @loc(%a)", ""] {
            assert_eq!(shown(line), line);
        }
        assert_eq!(without_places("llvm", "a loc(b)"), "a loc(b)");
    }

    #[test]
    fn lines_for_debuggers_are_left_out() {
        for (line, is_one) in [
            ("    #dbg_value(i32 %x, !1, !DIExpression(), !2)", true),
            (
                "  tail call void @llvm.dbg.value(metadata i32 %x, metadata !1, metadata !2), !dbg !3",
                true,
            ),
            ("  call void @llvm.dbg.declare(metadata ptr %x, metadata !1, metadata !2)", true),
            ("    llvm.intr.dbg.value #di_local_variable = %3 : i64", true),
            ("  %1 = load i32, ptr %p, align 4, !dbg !12", false),
            ("  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 8, i1 false)", false),
        ] {
            assert_eq!(is_for_debuggers(line), is_one, "{line}");
        }
    }
}
