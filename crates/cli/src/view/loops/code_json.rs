//! The machine code and the texts of functions and loops in JSON; docs/loops.md describes it.

use analysis::loops::traffic::Bounds;
use code::image::Machine;
use code::region::{Counts, MachineLoop, Region};
use ir::table::Entry;
use serde::Serialize;

use super::code::{Found, Line, ModuleCode, listing, missing};
use super::source::{MOST_LINES, Texts, in_words, range_of};

/// The machine code of a module.
#[derive(Serialize)]
pub struct ModuleCodeOut<'a> {
    object: Option<&'a str>,
    kept: bool,
    machine: &'static str,
    build_id: Option<String>,
    failed_functions: Vec<FailedOut>,
}

#[derive(Serialize)]
struct FailedOut {
    address: u64,
    why: String,
}

/// The machine code of an id.
#[derive(Serialize)]
pub struct CodeOut<'a> {
    function: Option<&'a str>,
    function_address: Option<u64>,
    begins: Vec<u64>,
    ranges: Vec<RangeOut>,
    machine_loops: Vec<MachineLoopOut>,
    instructions: CountsOut,
    unknown_jumps: Option<usize>,
    problem: Option<&'static str>,
    words: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listing: Option<Vec<LineOut>>,
}

#[derive(Serialize)]
struct RangeOut {
    start: u64,
    end: u64,
    start_offset: i128,
    end_offset: i128,
}

#[derive(Serialize)]
struct MachineLoopOut {
    header: u64,
    depth: u32,
    innermost: bool,
    straight: bool,
    instructions: CountsOut,
}

#[derive(Default, Serialize)]
struct CountsOut {
    all: Option<u64>,
    hooks: Option<u64>,
    loads: Option<u64>,
    stores: Option<u64>,
    branches: Option<u64>,
    calls: Option<u64>,
    scalar: Option<u64>,
    vector_64: Option<u64>,
    vector_128: Option<u64>,
    vector_256: Option<u64>,
    vector_512: Option<u64>,
    scalable: Option<u64>,
    other: Option<u64>,
    bytes_loaded: Option<u64>,
    bytes_stored: Option<u64>,
}

#[derive(Serialize)]
struct LineOut {
    address: u64,
    text: String,
    hook: bool,
    machine_loops: u32,
}

/// Bounds of the data that a loop moved.
#[derive(Serialize)]
pub struct TrafficOut {
    requested: Option<BoundsOut>,
    arguments: Option<BoundsOut>,
}

#[derive(Serialize)]
struct BoundsOut {
    bytes_at_most: u128,
    bytes_at_least: Option<u128>,
    bytes_per_second_at_most: Option<f64>,
}

/// The bounds of a loop's code and of an op's arguments.
pub fn traffic(requested: Option<Bounds>, arguments: Option<Bounds>) -> TrafficOut {
    let out = |bounds: Bounds| BoundsOut {
        bytes_at_most: bounds.bytes_at_most,
        bytes_at_least: bounds.bytes_at_least,
        bytes_per_second_at_most: bounds.rate_at_most,
    };
    TrafficOut { requested: requested.map(out), arguments: arguments.map(out) }
}

/// A text that a module was made from.
#[derive(Serialize)]
pub struct TextOut<'a> {
    language: &'a str,
    path: &'a str,
    hash: &'a str,
    problem: Option<String>,
    lines: Vec<TextLineOut>,
}

#[derive(Serialize)]
struct TextLineOut {
    line: u32,
    text: String,
}

/// Where an entry is in a text.
#[derive(Serialize)]
pub struct PlaceOut<'a> {
    language: &'a str,
    path: &'a str,
    first_line: u32,
    last_line: u32,
}

/// What is known of a module's code as a whole.
pub fn module(found: &Found) -> (Option<ModuleCodeOut<'_>>, Option<&str>) {
    match found {
        Ok(code) => (Some(of_module(code)), None),
        Err(why) => (None, Some(why)),
    }
}

fn of_module(code: &ModuleCode) -> ModuleCodeOut<'_> {
    let hex = |id: &Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect();
    let failed = code.regions.failed.iter();
    ModuleCodeOut {
        object: code.object.as_deref(),
        kept: code.is_kept,
        machine: match code.image.machine {
            Machine::X86 => "x86-64",
            Machine::Arm => "aarch64",
        },
        build_id: code.image.build_id.as_ref().map(hex),
        failed_functions: failed
            .map(|(address, why)| FailedOut { address: *address, why: why.to_string() })
            .collect(),
    }
}

/// The code of an id; with its instructions if they are `wanted`.
pub fn region(found: &Found, id: u32, wanted: bool) -> Option<CodeOut<'_>> {
    let code = found.as_ref().ok()?;
    let Some(region) = code.regions.found.get(&id) else {
        return Some(CodeOut {
            function: None,
            function_address: None,
            begins: Vec::new(),
            ranges: Vec::new(),
            machine_loops: Vec::new(),
            instructions: CountsOut::default(),
            unknown_jumps: None,
            problem: Some(missing(code.regions.missing.get(&id))),
            words: None,
            listing: None,
        });
    };
    let offset = |address: u64| i128::from(address) - i128::from(region.function);
    let ranges = region.ranges.iter().map(|range| RangeOut {
        start: range.start,
        end: range.end,
        start_offset: offset(range.start),
        end_offset: offset(range.end),
    });
    Some(CodeOut {
        function: Some(region.name.as_str()).filter(|name| !name.is_empty()),
        function_address: Some(region.function),
        begins: region.begins.clone(),
        ranges: ranges.collect(),
        machine_loops: region.loops.iter().map(machine_loop).collect(),
        instructions: counts(&region.counts),
        unknown_jumps: Some(region.unknown_jumps),
        problem: None,
        words: in_words(found, id),
        listing: wanted.then(|| lines(code, region)),
    })
}

fn lines(code: &ModuleCode, region: &Region) -> Vec<LineOut> {
    let out = |line: Line| LineOut {
        address: line.address,
        text: line.text,
        hook: line.is_hook,
        machine_loops: line.depth,
    };
    listing(code, region, MOST_LINES).into_iter().map(out).collect()
}

fn machine_loop(l: &MachineLoop) -> MachineLoopOut {
    MachineLoopOut {
        header: l.header,
        depth: l.depth,
        innermost: l.innermost,
        straight: l.straight,
        instructions: counts(&l.counts),
    }
}

fn counts(counts: &Counts) -> CountsOut {
    CountsOut {
        all: Some(counts.instructions),
        hooks: Some(counts.hooks),
        loads: Some(counts.loads),
        stores: Some(counts.stores),
        branches: Some(counts.branches),
        calls: Some(counts.calls),
        scalar: Some(counts.scalar),
        vector_64: Some(counts.vectors[0]),
        vector_128: Some(counts.vectors[1]),
        vector_256: Some(counts.vectors[2]),
        vector_512: Some(counts.vectors[3]),
        scalable: Some(counts.scalable),
        other: Some(counts.other),
        bytes_loaded: Some(counts.bytes_loaded),
        bytes_stored: Some(counts.bytes_stored),
    }
}

/// The texts of a side table.
pub fn texts<'a>(table: &'a ir::table::SideTable, known: &Texts) -> Vec<TextOut<'a>> {
    let out = |text: &'a ir::kept::KeptText| {
        let (lines, problem) = match &*known.lines(text) {
            Ok(lines) => (lines.clone(), None),
            Err(why) => (Default::default(), Some(why.clone())),
        };
        let lines = lines.into_iter().map(|(line, text)| TextLineOut { line, text });
        TextOut {
            language: &text.language,
            path: &text.path,
            hash: &text.hash,
            problem,
            lines: lines.collect(),
        }
    };
    table.texts.iter().map(out).collect()
}

/// Where an entry is in the texts of its table.
pub fn places<'a>(table: &'a ir::table::SideTable, entry: &Entry) -> Vec<PlaceOut<'a>> {
    let place = |(i, text): (usize, &'a ir::kept::KeptText)| {
        let [first_line, last_line] = range_of(entry, text, i == 0)?;
        Some(PlaceOut { language: &text.language, path: &text.path, first_line, last_line })
    };
    table.texts.iter().enumerate().filter_map(place).collect()
}
