//! Compares the loops that this crate finds in the test texts with those that LLVM finds (`opt
//! -passes='print<loops>'`). `opt -passes=verify` must accept the instrumented texts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use ir::choice::{Functions, Options};
use ir::dominators::NONE;
use ir::instrument::{Analysis, instrument};
use ir::module::Module;
use ir::scan::name;
use support::{Llvm, Made, by_clang, by_rustc, run, without_llvm};
use testkit::{Random, Scratch};

/// A loop's depth (from 1), header, and blocks.
type Found = (u32, String, BTreeSet<String>);

/// Returns the loops that this crate finds, by function. Functions without loops are left out.
fn ours(text: &[u8]) -> BTreeMap<String, BTreeSet<Found>> {
    let module = Module::read(text).unwrap();
    let mut analysis = Analysis::default();
    let mut names = HashMap::new();
    let mut all: BTreeMap<String, BTreeSet<Found>> = BTreeMap::new();
    for definition in &module.definitions {
        analysis.read(text, definition, &mut names).unwrap();
        assert_eq!(analysis.body.strange, None);
        let loops = &analysis.loops;
        let block = |b: u32| {
            let label = name(analysis.body.blocks[b as usize].label.of(text));
            String::from_utf8(label.to_vec()).unwrap()
        };
        let mut blocks = vec![BTreeSet::new(); loops.all.len()];
        for b in 0..analysis.body.blocks.len() as u32 {
            let mut at = loops.innermost[b as usize];
            while at != NONE {
                blocks[at as usize].insert(block(b));
                at = loops.all[at as usize].parent;
            }
        }
        let function = String::from_utf8(definition.name.of(text).to_vec()).unwrap();
        for (found, blocks) in loops.all.iter().zip(blocks) {
            let found = (found.depth + 1, block(found.header), blocks);
            assert!(all.entry(function.clone()).or_default().insert(found));
        }
    }
    all
}

/// Returns the loops that LLVM finds, by function. Functions without loops are left out.
fn llvms(llvm: Llvm, path: &Path) -> BTreeMap<String, BTreeSet<Found>> {
    let mut opt = llvm.command("opt");
    let output = run(opt.args(["-passes=print<loops>", "-disable-output"]).arg(path));
    let text = String::from_utf8(output.stderr).unwrap();
    let mut all: BTreeMap<String, BTreeSet<Found>> = BTreeMap::new();
    let mut function = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("Loop info for function '") {
            function = name.trim_end_matches("':").to_owned();
        } else if line.starts_with("Loop at depth ") || line.starts_with("Parallel Loop at depth ")
        {
            let rest = line.split_once("depth ").unwrap().1;
            let (depth, blocks) = rest.split_once(" containing: ").unwrap();
            let mut header = None;
            let mut all_blocks = BTreeSet::new();
            for block in blocks.split(',') {
                let (block, marks) = block.split_once('<').unwrap_or((block, ""));
                let block = String::from_utf8(name(block.as_bytes()).to_vec()).unwrap();
                if marks.contains("header") {
                    header = Some(block.clone());
                }
                all_blocks.insert(block);
            }
            let found = (depth.parse().unwrap(), header.unwrap(), all_blocks);
            assert!(all.entry(function.clone()).or_default().insert(found));
        }
    }
    all
}

/// Checks that LLVM finds the same loops in a text, and accepts instrumented versions of it.
fn check(llvm: Llvm, made: &Made, scratch: &Scratch) -> usize {
    let text = std::fs::read(&made.path).unwrap();
    let found = ours(&text);
    assert_eq!(found, llvms(llvm, &made.path), "{}", made.name);
    for (mode, (max_depth, min_height, functions)) in abi::loops::Mode::ALL.into_iter().zip([
        (None, None, Functions::WithLoops),
        (Some(99), Some(0), Functions::All),
        (Some(0), None, Functions::None),
        (Some(99), Some(0), Functions::None),
    ]) {
        let options = Options { mode, max_depth, min_height, functions, ..Options::default() };
        let done = instrument(&text, &options).unwrap();
        let path = scratch.path().join("instrumented.ll");
        std::fs::write(&path, &done.text).unwrap();
        assert_eq!(llvm.verify(&path), Ok(()), "{} {mode:?} {max_depth:?}", made.name);
    }
    found.values().map(BTreeSet::len).sum()
}

#[test]
fn loops_of_clangs_text_are_llvms() {
    let Some(llvm) = Llvm::with(&["clang", "opt"]) else {
        return without_llvm("clang and opt of LLVM 15 or later");
    };
    let scratch = Scratch::new();
    let loops: usize =
        by_clang(llvm, &scratch).iter().map(|made| check(llvm, made, &scratch)).sum();
    assert!(loops > 100, "{loops}");
}

#[test]
fn loops_of_rustcs_text_are_llvms() {
    let scratch = Scratch::new();
    let Some(made) = by_rustc(&scratch) else { return without_llvm("rustc") };
    let version = made[0].version;
    let Some(llvm) = Llvm::at_least(version, &["opt"]) else {
        return without_llvm(&format!("clang and opt of LLVM {version} or later"));
    };
    let loops: usize = made.iter().map(|made| check(llvm, made, &scratch)).sum();
    assert!(loops > 20, "{loops}");
}

/// Makes a function whose blocks jump to random blocks, with the phi nodes for these jumps. The
/// function may have cycles with several entries, deep nests, several edges between two blocks,
/// unreachable blocks, and exceptions.
fn tangled(random: &mut Random, function: usize) -> String {
    use std::fmt::Write;
    let n = 1 + random.place(12);
    let pads = 2;
    let mut edges: Vec<(usize, usize)> = Vec::new();
    let mut ends = Vec::new();
    for block in 0..n {
        let [a, b, c] = [0; 3].map(|_| random.place(n));
        let pad = random.place(pads);
        let (to, text): (&[usize], String) = match random.place(7) {
            0 => (&[], "ret i32 %x".to_owned()),
            1 => (&[a], format!("br label %b{a}")),
            2 => (
                &[a, b, b, c],
                format!(
                    "switch i32 %x, label %b{a} [\n    i32 0, label %b{b}\n    i32 1, label %b{b}\n    \
                     i32 2, label %b{c}\n  ]"
                ),
            ),
            3 => (&[a], format!("invoke void @g()\n          to label %b{a} unwind label %p{pad}")),
            4 => (&[a, a], format!("br i1 %c, label %b{a}, label %b{a}")),
            _ => (&[a, b], format!("br i1 %c, label %b{a}, label %b{b}")),
        };
        edges.extend(to.iter().map(|to| (block, *to)));
        ends.push(text);
    }
    let mut text = format!(
        "define i32 @f{function}(i1 %c, i32 %x) personality ptr @p {{\n  %1 = alloca i32\n"
    );
    let first = random.place(n);
    let _ = writeln!(text, "  br i1 %c, label %b{first}, label %b{first}");
    for (block, end) in ends.iter().enumerate() {
        let _ = writeln!(text, "b{block}:");
        let mut incoming: Vec<String> = Vec::new();
        if block == first {
            incoming.extend(["[ 7, %0 ]".to_owned(), "[ 7, %0 ]".to_owned()]);
        }
        let from = edges.iter().filter(|edge| edge.1 == block);
        incoming.extend(from.map(|(from, _)| format!("[ {from}, %b{from} ]")));
        if !incoming.is_empty() {
            let _ = writeln!(text, "  %v{block} = phi i32 {}", incoming.join(", "));
        }
        let _ = writeln!(text, "  {end}");
    }
    for pad in 0..pads {
        let _ = writeln!(text, "p{pad}:\n  %l{pad} = landingpad {{ ptr, i32 }} cleanup");
        // No pad jumps to a block `b…`, whose phi nodes would then need one more entry.
        let end = match pad {
            0 => "resume { ptr, i32 } %l0",
            _ => "br label %more\nmore:\n  br i1 %c, label %more, label %q\nq:\n  ret i32 1",
        };
        let _ = writeln!(text, "  {end}");
    }
    text + "}\n"
}

#[test]
fn loops_of_tangled_functions_are_llvms() {
    let Some(llvm) = Llvm::with(&["opt"]) else {
        return without_llvm("clang and opt of LLVM 15 or later");
    };
    let scratch = Scratch::new();
    let mut random = Random(0x7A9);
    let mut text = "target triple = \"x86_64-linux-gnu\"\n".to_owned();
    text += "declare void @g()\ndeclare i32 @p(...)\n";
    text.extend((0..400).map(|function| tangled(&mut random, function)));
    let path = scratch.join("tangled.ll");
    std::fs::write(&path, text).unwrap();
    let made = Made { name: "tangled".to_owned(), path, version: llvm.version };
    let loops = check(llvm, &made, &scratch);
    assert!(loops > 400, "{loops}");
}
