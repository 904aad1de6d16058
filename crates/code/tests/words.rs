//! Checks the descriptions of loops that were written to have a known behaviour. Also compares the
//! descriptions with the listing of `objdump` and with results of `llvm-mca`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use abi::loops::Mode;
use code::region::MachineLoop;
use code::words::words;
use code::{Image, Wanted, regions};
use support::{Compiler, compilers};

/// Returns the description of each function's first loop, and its machine loop.
fn said(
    compiler: &Compiler,
    object: &Path,
    ids: &[(u32, String)],
) -> BTreeMap<String, (String, MachineLoop)> {
    let image = Image::elf(&std::fs::read(object).unwrap()).unwrap();
    let module = &image.modules()[0];
    let wanted = Wanted { descriptor: module.address, ids: module.ids, mode: Mode::Timed };
    let found = regions(&image, &wanted).unwrap();
    let mut all = BTreeMap::new();
    for (id, function) in ids {
        let region = &found.found[id];
        let said = words(&image, &found, *id, 512)
            .unwrap_or_else(|| panic!("{}: {function}", compiler.name()));
        assert_eq!(region.loops.len(), 1, "{function}");
        all.entry(function.clone()).or_insert((said, region.loops[0].clone()));
    }
    all
}

/// Returns a loop's instructions as `objdump` writes them.
fn listed(disassembled: &str, l: &MachineLoop) -> Vec<String> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let address = u64::from_str_radix(fields.next()?.trim().strip_suffix(':')?, 16).ok()?;
        let text = fields.nth(1)?;
        let inside = l.ranges.iter().any(|range| (range.start..range.end).contains(&address));
        inside.then(|| text.split(['#', '<']).next().unwrap_or_default().trim().to_owned())
    };
    disassembled.lines().filter_map(line).collect()
}

/// Returns how many cycles an iteration takes, and how many it would take without any dependence,
/// according to `llvm-mca`.
fn cycles(code: &[String]) -> Option<(f64, f64)> {
    let mca = ["llvm-mca-22", "llvm-mca-19", "llvm-mca"].into_iter();
    let mut mca = mca.filter(|name| Command::new(name).arg("--version").output().is_ok());
    let mut mca = Command::new(mca.next()?);
    mca.args(["-mtriple=x86_64-linux-gnu", "-mcpu=skylake-avx512", "-iterations=100"]);
    let mut mca = mca.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stays = |line: &&str| !line.starts_with('j') && !line.starts_with("call");
    let code: Vec<&str> = code.iter().map(String::as_str).filter(stays).collect();
    mca.stdin.take().unwrap().write_all(code.join("\n").as_bytes()).unwrap();
    let output = String::from_utf8(mca.wait_with_output().unwrap().stdout).unwrap();
    let number = |name: &str| -> f64 {
        let line = output.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    Some((number("Total Cycles:") / 100.0, number("Block RThroughput:")))
}

#[test]
fn kernels_are_what_they_were_written_to_be() {
    let expected = [
        (
            "chain",
            "scalar, one dependent chain of multiply-add, loads one after the other, loads with a stride of \
             1,536 bytes; 0 of 1 arithmetic instruction uses vectors of 512 bits",
        ),
        (
            "vectorised",
            "vectors of 512 bits, no chain from iteration to iteration, loads one after the other, stores \
             one after the other; 1 of 1 arithmetic instruction uses vectors of 512 bits",
        ),
        (
            "sums",
            "vectors of 512 bits, 4 independent chains of additions of 16 numbers at once, loads one \
             after the other; 4 of 4 arithmetic instructions use vectors of 512 bits",
        ),
        (
            "eight",
            "vectors of 256 bits, one dependent chain of additions of 8 numbers at once, loads one after the \
             other; 0 of 1 arithmetic instruction uses vectors of 512 bits",
        ),
        (
            "one",
            "scalar, one dependent chain of additions, loads one after the other; 0 of 1 arithmetic instruction \
             uses vectors of 512 bits",
        ),
        (
            "bytes",
            "vectors of 128 bits, one dependent chain of minima and maxima of 16 numbers at once, loads one after \
             the other; 0 of 1 arithmetic instruction uses vectors of 512 bits",
        ),
        (
            "gather",
            "vectors of 512 bits, no chain from iteration to iteration, loads one after the other, 1 gather, \
             stores one after the other; 1 of 1 arithmetic instruction uses vectors of 512 bits",
        ),
        (
            "list",
            "scalar, one dependent chain of additions, loads at addresses that it loads; 0 of 1 arithmetic \
             instruction uses vectors of 512 bits",
        ),
        (
            "ordered",
            "scalar, one dependent chain of additions, 4 of them one after the other in each iteration, loads one \
             after the other; 0 of 4 arithmetic instructions use vectors of 512 bits",
        ),
        (
            "hash",
            "integers in general registers, one dependent chain of integer arithmetic, loads one after the \
             other",
        ),
        (
            "divide",
            "scalar, no chain from iteration to iteration, loads with a stride that is in a register, stores \
             with a stride of 16 bytes; 0 of 1 arithmetic instruction uses vectors of 512 bits",
        ),
        (
            "branches",
            "scalar, loads at addresses that are not followed, stores at addresses that are not followed, \
             branches inside; 0 of 1 arithmetic instruction uses vectors of 512 bits",
        ),
    ];
    for compiler in compilers("words").into_iter().filter(|compiler| !compiler.is_arm) {
        let (object, table) = compiler.instrumented("words.c", "-O2", Mode::Timed);
        let loops = table.entries.iter().filter(|entry| entry.depth.is_some());
        let ids: Vec<(u32, String)> = loops.map(|e| (e.id, e.function.clone())).collect();
        let said = said(&compiler, &object, &ids);
        let disassembled = compiler.disassembled(&object);
        for (function, words) in expected {
            assert_eq!(said[function].0, words, "{} {function}", compiler.name());
        }
        let calls = &said["calls"].0;
        assert!(calls.contains("1 call of half, 1 indirect call"), "{calls}");
        assert!(said["spilled"].0.contains(" of values on the stack"), "{}", said["spilled"].0);
        for (function, (words, l)) in &said {
            let code = listed(&disassembled, l);
            let is_arithmetic = |line: &&String| {
                let name = line.split_whitespace().next().unwrap_or_default();
                let ends = ["ss", "sd", "ps", "pd"].iter().any(|end| name.ends_with(end));
                ends && ["add", "mul", "div"].iter().any(|part| name.contains(part))
            };
            let arithmetic = code.iter().filter(is_arithmetic).count();
            let says = format!(" of {arithmetic} arithmetic ");
            assert_eq!(words.contains(&says), arithmetic > 0, "{function}: {words}\n{code:#?}");
            let gathers = code.iter().filter(|line| line.contains("gather")).count();
            assert_eq!(words.contains(" gather"), gathers > 0, "{function}");
            let Some((cycles, alone)) = cycles(&code) else {
                testkit::skip("words", "llvm-mca is not installed");
                continue;
            };
            let waits = cycles > 1.4 * alone;
            match function.as_str() {
                "chain" | "list" | "hash" | "one" | "eight" => {
                    assert!(waits, "{function}: {cycles} {alone}")
                }
                "vectorised" | "gather" | "divide" => {
                    assert!(!waits, "{function}: {cycles} {alone}")
                }
                _ => {}
            }
        }
    }
}

/// A loop's description names each called function whose name is known, unless the call goes
/// through a variable or an argument.
#[test]
fn callees_are_named_however_the_code_reaches_them() {
    let expected = [
        ("known", vec!["2 calls of expf", "1 call of logf"]),
        ("crowded", vec!["1 call of expf"]),
        ("given", vec!["1 indirect call"]),
        ("changed", vec!["1 indirect call"]),
        ("inside", vec!["1 call of half"]),
    ];
    // With these flags, calls go through stubs of the linker, through addresses in the linker's
    // table (GOT), or to addresses that the instructions contain.
    let ways: [&[&str]; 3] = [&["-fPIC"], &["-fPIC", "-fno-plt"], &["-fno-pic", "-mcmodel=large"]];
    let compilers = compilers("callees").into_iter().filter(|compiler| !compiler.is_arm);
    let (mut registers, mut stubs) = (0, 0);
    for compiler in compilers {
        for flags in ways {
            let (object, table) =
                compiler.instrumented_with("callees.c", "-O2", Mode::Timed, flags);
            let loops = table.entries.iter().filter(|entry| entry.depth.is_some());
            let ids: Vec<(u32, String)> = loops.map(|e| (e.id, e.function.clone())).collect();
            let linked = ["now", "lazy", "ibtplt"].into_iter().filter(|_| flags[0] == "-fPIC");
            let libraries = linked.map(|flag| compiler.linked(&object, flag));
            for file in std::iter::once(object.clone()).chain(libraries) {
                let disassembled = compiler.disassembled(&file);
                let said = said(&compiler, &file, &ids);
                for (function, expected) in &expected {
                    let (words, l) = &said[*function];
                    let calls: Vec<&str> = words
                        .split([',', ';'])
                        .map(str::trim)
                        .filter(|part| part.contains("call"))
                        .collect();
                    assert_eq!(calls, *expected, "{function}: {} {words}", file.display());
                    let code = listed(&disassembled, l);
                    let judged: Vec<&String> =
                        code.iter().filter(|line| line.contains("call")).collect();
                    let number = |part: &&str| part.split(' ').next().unwrap().parse::<usize>();
                    let sum: usize = expected.iter().map(|part| number(part).unwrap()).sum();
                    assert_eq!(judged.len(), sum, "{function}: {judged:?}");
                    if *function == "known" {
                        registers += judged.iter().filter(|line| line.contains("*%r")).count();
                        stubs += judged.iter().filter(|line| !line.contains('*')).count();
                    }
                }
            }
        }
    }
    if registers + stubs > 0 {
        assert!(registers > 0 && stubs > 0, "{registers} {stubs}");
    }
}
