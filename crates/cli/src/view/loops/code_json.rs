//! Writes the machine code and the texts of functions and loops in JSON, which docs/loops.md
//! describes.

use analysis::loops::traffic::Bounds;
use code::image::Machine;
use code::region::{Counts, MachineLoop, Region};
use ir::table::Entry;
use serde::Serialize;

use super::code::{Found, Line, ModuleCode, listing, missing};
use super::source::{MOST_LINES, Texts, in_words, range_of};
use crate::object::object;

/// Returns bounds for the bytes that a loop's loads and stores requested, and for the bytes of an
/// op's arguments.
pub fn traffic(requested: Option<Bounds>, arguments: Option<Bounds>) -> impl Serialize {
    let out = |bounds: Bounds| {
        object! {
            bytes_at_most: bounds.bytes_at_most,
            bytes_at_least: bounds.bytes_at_least,
            bytes_per_second_at_most: bounds.rate_at_most,
        }
    };
    object! {
        requested: requested.map(out),
        arguments: arguments.map(out),
    }
}

/// Returns the facts about a module's code, or why the code is not known.
pub fn module(found: &Found) -> (Option<impl Serialize>, Option<&str>) {
    match found {
        Ok(code) => (Some(of_module(code)), None),
        Err(why) => (None, Some(why)),
    }
}

fn of_module(code: &ModuleCode) -> impl Serialize {
    let hex = |id: &Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let failed = code.regions.failed.iter();
    object! {
        object: code.object.as_deref(),
        kept: code.is_kept,
        machine: match code.image.machine {
            Machine::X86 => "x86-64",
            Machine::Arm => "aarch64",
        },
        build_id: code.image.build_id.as_ref().map(hex),
        failed_functions: failed
            .map(|(address, why)| object! { address: *address, why: why.to_string() })
            .collect::<Vec<_>>(),
    }
}

/// Returns what is known about the code of the function or loop with this id. If `wanted`, its
/// instructions are listed, too.
pub fn region(found: &Found, id: u32, wanted: bool) -> Option<impl Serialize> {
    let code = found.as_ref().ok()?;
    let region = code.regions.found.get(&id);
    let ranges = region.into_iter().flat_map(|region| {
        let offset = |address: u64| i128::from(address) - i128::from(region.function);
        region.ranges.iter().map(move |range| {
            object! {
                start: range.start,
                end: range.end,
                start_offset: offset(range.start),
                end_offset: offset(range.end),
            }
        })
    });
    let loops = region.into_iter().flat_map(|region| &region.loops);
    Some(object! {
        function: region.map(|region| region.name.as_str()).filter(|name| !name.is_empty()),
        function_address: region.map(|region| region.function),
        begins: region.map(|region| region.begins.as_slice()).unwrap_or_default(),
        ranges: ranges.collect::<Vec<_>>(),
        machine_loops: loops.map(machine_loop).collect::<Vec<_>>(),
        instructions: counts(region.map(|region| &region.counts)),
        unknown_jumps: region.map(|region| region.unknown_jumps),
        problem: region.is_none().then(|| missing(code.regions.missing.get(&id))),
        words: region.and_then(|_| in_words(found, id)),
        listing?: region.filter(|_| wanted).map(|region| lines(code, region)),
    })
}

fn lines(code: &ModuleCode, region: &Region) -> Vec<impl Serialize> {
    let out = |line: Line| {
        object! {
            address: line.address,
            text: line.text,
            hook: line.is_hook,
            machine_loops: line.depth,
        }
    };
    listing(code, region, MOST_LINES).into_iter().map(out).collect()
}

fn machine_loop(l: &MachineLoop) -> impl Serialize {
    object! {
        header: l.header,
        depth: l.depth,
        innermost: l.innermost,
        straight: l.straight,
        instructions: counts(Some(&l.counts)),
    }
}

/// Returns the numbers of instructions; all are null if the code is not known.
fn counts(counts: Option<&Counts>) -> impl Serialize {
    let number = |of: fn(&Counts) -> u64| counts.map(of);
    object! {
        all: number(|c| c.instructions),
        hooks: number(|c| c.hooks),
        loads: number(|c| c.loads),
        stores: number(|c| c.stores),
        branches: number(|c| c.branches),
        calls: number(|c| c.calls),
        scalar: number(|c| c.scalar),
        vector_64: number(|c| c.vectors[0]),
        vector_128: number(|c| c.vectors[1]),
        vector_256: number(|c| c.vectors[2]),
        vector_512: number(|c| c.vectors[3]),
        scalable: number(|c| c.scalable),
        other: number(|c| c.other),
        bytes_loaded: number(|c| c.bytes_loaded),
        bytes_stored: number(|c| c.bytes_stored),
    }
}

pub fn texts<'a>(table: &'a ir::table::SideTable, known: &Texts) -> Vec<impl Serialize> {
    let out = |text: &'a ir::kept::KeptText| {
        let (lines, problem) = match &*known.lines(text) {
            Ok(lines) => (lines.clone(), None),
            Err(why) => (Default::default(), Some(why.clone())),
        };
        let lines = lines.into_iter().map(|(line, text)| object! { line, text });
        object! {
            language: &text.language,
            path: &text.path,
            hash: &text.hash,
            problem,
            lines: lines.collect::<Vec<_>>(),
        }
    };
    table.texts.iter().map(out).collect()
}

/// Returns where an entry (a function or loop) is: its first and last line in each text of the side
/// table that contains it.
pub fn places<'a>(table: &'a ir::table::SideTable, entry: &Entry) -> Vec<impl Serialize> {
    let place = |(i, text): (usize, &'a ir::kept::KeptText)| {
        let [first_line, last_line] = range_of(entry, text, i == 0)?;
        Some(object! {
            language: &text.language,
            path: &text.path,
            first_line,
            last_line,
        })
    };
    table.texts.iter().enumerate().filter_map(place).collect()
}
