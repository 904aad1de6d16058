//! Our loops are LLVM's: `opt -passes='print<loops>'` says the same of every function of every
//! text. What we write, `opt -passes=verify` accepts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use ir::choice::{Functions, Options};
use ir::dominators::NONE;
use ir::instrument::{Analysis, instrument};
use ir::module::Module;
use ir::scan::name;
use support::{Llvm, Made, by_clang, by_rustc, run};
use testkit::{Scratch, skip_this};

/// A loop: its depth from 1, its header, and its blocks.
type Found = (u32, String, BTreeSet<String>);

/// The loops of each function of a text that has some, as we find them.
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

/// The same as LLVM finds them.
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

/// Checks a text, and everything that can be made of it.
fn check(llvm: Llvm, made: &Made, scratch: &Scratch) -> usize {
    let text = std::fs::read(&made.path).unwrap();
    let found = ours(&text);
    assert_eq!(found, llvms(llvm, &made.path), "{}", made.name);
    for mode in abi::loops::Mode::ALL {
        for (max_depth, min_height, functions) in [
            (None, None, Functions::WithLoops),
            (Some(0), None, Functions::None),
            (Some(99), Some(0), Functions::All),
            (Some(99), Some(0), Functions::None),
        ] {
            let options = Options { mode, max_depth, min_height, functions, ..Options::default() };
            let done = instrument(&text, &options).unwrap();
            let path = scratch.path().join("instrumented.ll");
            std::fs::write(&path, &done.text).unwrap();
            let verdict = llvm.verify(&path);
            assert!(verdict.is_ok(), "{} {mode:?} {max_depth:?}: {verdict:?}", made.name);
        }
    }
    found.values().map(BTreeSet::len).sum()
}

#[test]
fn loops_of_clangs_text_are_llvms() {
    let Some(llvm) = Llvm::with(&["clang", "opt"]) else {
        return skip_this("clang and opt of LLVM 15 or later are not installed");
    };
    let scratch = Scratch::new();
    let loops: usize =
        by_clang(llvm, &scratch).iter().map(|made| check(llvm, made, &scratch)).sum();
    assert!(loops > 100, "{loops}");
}

#[test]
fn loops_of_rustcs_text_are_llvms() {
    let scratch = Scratch::new();
    let Some(made) = by_rustc(&scratch) else { return skip_this("rustc does not run") };
    let version = made[0].version;
    let Some(llvm) = Llvm::at_least(version, &["opt"]) else {
        return skip_this(&format!("opt of LLVM {version} or later is not installed"));
    };
    let loops: usize = made.iter().map(|made| check(llvm, made, &scratch)).sum();
    assert!(loops > 20, "{loops}");
}
