//! Tests instrumented programs, with the runtime `tests/programs/loops/runtime.c`. The instrumented
//! programs must print the same as without instrumentation, and count as many hits as a count by
//! hand.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use support::bench::{Bench, all};
use support::ran::{Row, instrumented, runtime, watched};
use support::{Llvm, Made, by_rustc, programs, run, without_llvm};
use testkit::Scratch;

/// Returns the instrumentation options with which the output must be the same as without
/// instrumentation.
fn many() -> Vec<Options<'static>> {
    let [sampled, timed, count, log] = Mode::ALL.map(all);
    let depth = |max_depth, functions, options| Options { max_depth, functions, ..options };
    vec![
        Options::default(),
        depth(Some(0), Functions::None, all(Mode::Timed)),
        depth(Some(1), Functions::WithLoops, all(Mode::Count)),
        depth(Some(2), Functions::None, all(Mode::Sampled)),
        sampled,
        timed,
        count,
        log,
    ]
}

/// Compares a program's output with and without instrumentation.
fn same(bench: &Bench, file: &str, arguments: &[&str]) {
    for (text, compile) in
        [(bench.text(file, &["-O0"]), "-O2"), (bench.text(file, &["-O3"]), "-O1")]
    {
        let plain = run(Command::new(bench.link(&text, &[compile])).args(arguments));
        let plain = String::from_utf8(plain.stdout).unwrap();
        for options in many() {
            let what = format!("{} {:?} {:?}", text.display(), options.mode, options.max_depth);
            let ran = bench.watch(&text, &options, &[compile], arguments);
            assert_eq!(ran.output, plain, "{what}");
            assert_eq!(ran.registered, "registered 1 unregistered 1", "{what}");
            let path = text.with_extension("lwp.ll");
            assert_eq!(bench.llvm.verify(&path), Ok(()), "{what}");
            // The program must also run without a runtime.
            let program = path.with_extension("out");
            let alone = run(Command::new(program).args(arguments));
            assert_eq!(String::from_utf8(alone.stdout).unwrap(), plain, "{what}");
        }
    }
}

#[test]
fn kernels_print_the_same() {
    let Some(bench) = Bench::new() else { return };
    same(&bench, "kernels.c", &["12", "9"]);
}

#[test]
fn exceptions_and_threads_print_the_same() {
    let Some(bench) = Bench::new() else { return };
    same(&bench, "exceptions.cpp", &["17"]);
}

/// A function, the depth and index of one of its loops (or `None` for the function itself), and the
/// number of hits.
type Entered = (&'static str, Option<(u32, usize)>, u64);

/// Returns how often loops and functions of `kernels.c` are entered when its arguments are `n` and
/// `m`. A loop's index is its position among the function's loops of the same depth.
fn entered(n: u64, m: u64) -> Vec<Entered> {
    let (a, b, c, d) = (Some((0, 0)), Some((1, 0)), Some((2, 0)), Some((3, 0)));
    vec![
        ("matmul_ijk", None, 1),
        ("matmul_ijk", a, 1),
        ("matmul_ijk", b, n),
        ("matmul_ijk", c, n * m),
        ("matmul_ikj", b, n),
        ("matmul_ikj", c, n * n),
        ("convolve", b, n),
        ("convolve", c, n * m),
        // At the top and at the bottom of the image, one of the three rows is outside.
        ("convolve", d, (3 * n - 2) * m),
        ("softmax", Some((1, 0)), n),
        ("softmax", Some((1, 1)), n),
        ("softmax", Some((1, 2)), n),
        ("reduce", Some((0, 1)), 1),
        ("interpret", None, 2),
        ("interpret", a, 2),
        // The first call of `find` searches until i = n - 1, and the second one finds nothing.
        ("find", b, 2 * n),
        // `tree` is called 1 + 3 + 9 + 27 + 81 times, and the last 81 calls do not enter its loop.
        ("tree", None, 121),
        ("tree", a, 40),
        ("collatz", None, 2),
        ("collatz", a, 2),
        ("odd", a, 2),
        ("print", a, 5),
    ]
}

#[test]
fn hits_are_the_trip_counts_of_the_arguments() {
    let Some(bench) = Bench::new() else { return };
    let text = bench.text("kernels.c", &["-O0", "-g"]);
    for mode in Mode::ALL {
        let program = if mode == Mode::Count { "-O0" } else { "-O2" };
        for (n, m, compile) in [(12, 9, program), (20, 5, program)] {
            let arguments = [n.to_string(), m.to_string()];
            let arguments = arguments.each_ref().map(String::as_str);
            let ran = bench.watch(&text, &all(mode), &[compile], &arguments);
            for (function, place, hits) in entered(n, m) {
                let found = ran.sum(function, place, |row| row.hits);
                assert_eq!(found, hits, "{function} {place:?} {mode:?} {compile}");
                if mode == Mode::Log {
                    let logged = [0, 1].map(|i| ran.sum(function, place, |row| row.logged[i]));
                    assert_eq!(logged, [hits; 2], "{function} {place:?}");
                }
            }
            let odd: Vec<_> = ran.table.skipped.iter().filter(|s| s.function == "odd").collect();
            assert_eq!(odd.len(), 1, "the cycle with two entries: {:?}", ran.table.skipped);
            assert_eq!(ran.rehearsal, (mode != Mode::Log).then_some([1000, 0]));
        }
    }
}

#[test]
fn iterations_are_the_trip_counts_of_the_arguments() {
    let Some(bench) = Bench::new() else { return };
    let options = ["-O1", "-g", "-fno-unroll-loops", "-fno-vectorize"];
    let text = bench.text("kernels.c", &options);
    let (n, m) = (12, 9);
    for mode in [Mode::Count, Mode::Timed] {
        let ran = bench.watch(&text, &all(mode), &["-O1"], &["12", "9"]);
        for (function, depth, hits, iterations) in [
            ("matmul_ijk", 0, 1, n),
            ("matmul_ijk", 1, n, n * m),
            ("matmul_ijk", 2, n * m, n * m * n),
            ("matmul_ikj", 2, n * n, n * n * m),
            ("convolve", 1, n, n * m),
            ("reduce", 0, 1, n * m),
        ] {
            let place = Some((depth, 0));
            assert_eq!(ran.sum(function, place, |row| row.iterated), hits, "{function} {depth}");
            let found = ran.sum(function, place, |row| row.iterations);
            assert_eq!(found, iterations, "{function} {depth} {mode:?}");
        }
    }
}

#[test]
fn a_hit_that_an_exception_leaves_has_begun_and_not_ended() {
    let Some(bench) = Bench::new() else { return };
    let text = bench.text("exceptions.cpp", &["-O0"]);
    let ran = bench.watch(&text, &all(Mode::Timed), &["-O0"], &["17"]);
    let check = |function, place, hits: u64, ended: u64| {
        let found = [
            ran.sum(function, place, |row| row.hits),
            ran.sum(function, place, |row| row.begun),
            ran.sum(function, place, |row| row.ended),
        ];
        assert_eq!(found, [hits, hits, ended], "{function} {place:?}");
    };
    // `caught_inside` calls `parse` with 0 to 16; the calls with 5, 10 and 15 throw. Then
    // `caught_outside` calls `parse` three times each with 0 to 4, and once with 5, which throws.
    check("_Z5parsei", None, 33, 29);
    check("_Z13caught_insidei", Some((0, 0)), 1, 1);
    check("_Z14caught_outsidei", None, 1, 1);
    check("_Z14caught_outsidei", Some((0, 0)), 1, 0);
    check("_Z14caught_outsidei", Some((1, 0)), 6, 5);
    check("_Z4jumpi", None, 3, 2);
    // `jumped` calls `setjmp`.
    assert!(ran.rows_of(|entry| entry.function == "_Z6jumpedi").is_empty());
}

#[test]
fn each_thread_has_its_own_numbers() {
    let Some(bench) = Bench::new() else { return };
    let text = bench.text("exceptions.cpp", &["-O0"]);
    let ran = bench.watch(&text, &all(Mode::Timed), &["-O1"], &["17"]);
    let of = |depth| {
        let rows = ran.rows_of(|e| e.function.starts_with("_Z4work") && e.depth == depth);
        let mut hits: Vec<u64> = rows.iter().map(|row| row.hits).filter(|n| *n > 0).collect();
        hits.sort_unstable();
        hits
    };
    assert_eq!(of(None), [1, 1]);
    assert_eq!(of(Some(0)), [1, 1]);
    assert_eq!(of(Some(1)), [17, 34]);
}

#[test]
fn children_and_self_are_the_parent_exactly() {
    let Some(bench) = Bench::new() else { return };
    for (level, compile) in [("-O0", "-O2"), ("-O3", "-O1")] {
        let text = bench.text("kernels.c", &[level]);
        let ran = bench.watch(&text, &all(Mode::Timed), &[compile], &["12", "9"]);
        let mut parents = 0;
        for entry in &ran.table.entries {
            let id = u64::from(entry.id);
            let own = ran.rows_of(|e| e.id == entry.id)[0];
            let children: Vec<Row> = ran.rows_of(|e| e.parent == Some(entry.id));
            let inside: u64 = children.iter().map(|row| row.ticks).sum();
            assert_eq!(own.child_ticks, inside, "{id} {entry:?}");
            assert!(own.child_ticks <= own.ticks, "{own:?}");
            assert_eq!(own.begun, own.hits, "{own:?}");
            let mean = u128::from(own.ticks) * u128::from(own.ticks);
            assert!(own.squares * u128::from(own.ended.max(1)) >= mean, "{own:?}");
            parents += usize::from(!children.is_empty());
        }
        assert!(parents > 10, "{parents}");
    }
}

#[test]
fn sampled_hits_are_the_first_and_then_random_ones() {
    let Some(bench) = Bench::new() else { return };
    let text = bench.text("kernels.c", &["-O1", "-fno-unroll-loops"]);
    let (path, table) = instrumented(&text, &all(Mode::Sampled));
    let program = bench.link(&path, &["-O1"]);
    let ran = watched(
        table,
        &bench.runtime,
        Command::new(program).args(["60", "50"]).env("LOOPS_COUNTERS", "1"),
    );
    let mut many = 0;
    for row in &ran.rows {
        let entry = &ran.table.entries[row.id as usize];
        assert_eq!(row.begun, row.ended, "{entry:?}");
        if row.hits <= 100 {
            assert_eq!((row.begun, row.first_ended), (row.hits, 0), "{entry:?}");
        } else {
            // After the first 100 hits, a gap of 1 to 128 hits lies between one timed hit and the
            // next.
            let random = row.begun - 100;
            assert!(random >= (row.hits - 100) / 128 && row.begun <= row.hits, "{row:?}");
            assert_eq!(row.first_ended, if random > 0 { 100 } else { 0 }, "{row:?}");
            assert!(row.first_ticks <= row.ticks && row.first_squares <= row.squares, "{row:?}");
        }
        if row.hits > 2000 {
            // The mean gap must differ from the expected 64.5 by less than six standard deviations
            // of the mean.
            let gaps = (row.hits - 100) as f64 / (row.begun - 100) as f64;
            let wide = 6.0 * 37.0 / ((row.begun - 100) as f64).sqrt();
            assert!((gaps - 64.5).abs() < wide, "{gaps} {row:?}");
            many += 1;
        }
        let counted = entry.depth.is_none_or(|depth| depth <= 1);
        let expected = if counted { [row.begun; 2] } else { [0; 2] };
        assert_eq!(row.counted, expected, "counters at depth 0 and 1 only: {entry:?}");
    }
    assert!(many >= 3, "{many}");
}

#[test]
fn it_works_in_programs_at_fixed_addresses_and_in_shared_objects() {
    let Some(bench) = Bench::new() else { return };
    let text = bench.text("kernels.c", &["-O1", "-fno-pie"]);
    let ran = bench.watch(&text, &all(Mode::Count), &["-no-pie"], &["12", "9"]);
    assert_eq!(ran.sum("matmul_ijk", Some((1, 0)), |row| row.hits), 12);
    // Here, the program is a shared object, which is loaded at run time and unloaded.
    let text = bench.text("kernels.c", &["-O1", "-fPIC", "-Dmain=run"]);
    let (path, table) = instrumented(&text, &all(Mode::Count));
    let object = path.with_extension("so");
    let mut clang = bench.llvm.command("clang");
    run(clang.args(["-shared", "-fPIC", "-Wno-override-module", "-o"]).arg(&object).arg(&path));
    let loader = bench.scratch.join("loader.c");
    let source = "#include <dlfcn.h>
        int main(int argc, char** argv) {
          void* object = dlopen(argv[1], RTLD_NOW);
          if (!object) return 1;
          int result = ((int (*)(int, char**))dlsym(object, \"run\"))(argc - 1, argv + 1);
          return result | dlclose(object);
        }";
    std::fs::write(&loader, source).unwrap();
    let program = bench.scratch.join("loader");
    let mut clang = bench.llvm.command("clang");
    run(clang.arg("-o").arg(&program).arg(&loader));
    let mut command = Command::new(&program);
    let ran = watched(table, &bench.runtime, command.arg(&object).args(["12", "9"]));
    assert_eq!(ran.sum("matmul_ijk", Some((1, 0)), |row| row.hits), 12);
    assert_eq!(ran.registered, "registered 1 unregistered 1");
}

#[test]
fn programs_of_rustc_print_the_same() {
    let scratch = Scratch::new();
    let Some(made) = by_rustc(&scratch) else { return without_llvm("rustc") };
    let version = made[0].version;
    let Some(llvm) = Llvm::at_least(version, &["clang", "opt"]) else {
        return without_llvm(&format!("clang and opt of LLVM {version} or later"));
    };
    let runtime = runtime(llvm, scratch.path());
    // rustc calls this script as its linker. It replaces the program's object file by the
    // instrumented one.
    let linker = scratch.join("linker.sh");
    let script = "#!/bin/bash
        objects=()
        for word in \"$@\"; do
          case \"$word\" in
            *program*cgu.0.rcgu.o) objects+=(\"$OBJECT\");;
            *) objects+=(\"$word\");;
          esac
        done
        exec cc \"${objects[@]}\"\n";
    std::fs::write(&linker, script).unwrap();
    run(Command::new("chmod").arg("+x").arg(&linker));
    for Made { name, path, .. } in &made {
        let level = if name.contains("O3") { "3" } else { "0" };
        let compile = |object: Option<&Path>, to: &Path| {
            let mut rustc = Command::new("rustc");
            rustc.args(["--edition", "2024", "--crate-name", "program", "-Ccodegen-units=1"]);
            rustc.arg(format!("-Copt-level={level}")).arg("-o").arg(to);
            if let Some(object) = object {
                rustc.arg("-C").arg(format!("linker={}", linker.display())).env("OBJECT", object);
            }
            run(rustc.arg(programs().join("iterators.rs")));
        };
        let plain = path.with_extension("plain");
        compile(None, &plain);
        let expected = run(Command::new(&plain).arg("20")).stdout;
        for mode in [Mode::Sampled, Mode::Timed] {
            let (text, table) = instrumented(path, &all(mode));
            let object = text.with_extension("o");
            let mut clang = llvm.command("clang");
            clang.args(["-O2", "-Wno-override-module", "-c", "-o"]).arg(&object);
            run(clang.arg(&text));
            let program = text.with_extension("out");
            compile(Some(&object), &program);
            let ran = watched(table, &runtime, Command::new(&program).arg("20"));
            assert_eq!(ran.output.as_bytes(), expected, "{name} {mode:?}");
            assert_eq!(ran.registered, "registered 1 unregistered 1", "{name} {mode:?}");
            let squares = ran.rows_of(|e| e.function.contains("squares") && e.depth == Some(0));
            let hits: u64 = squares.iter().map(|row| row.hits).sum();
            assert_eq!(hits, 1, "{name} {mode:?}");
        }
    }
}

/// Returns, for each function, the numbers of packed arithmetic instructions in its innermost
/// loops, in ascending order. Functions and loops without such instructions are left out.
fn vector_loops(object: &Path) -> BTreeMap<String, Vec<usize>> {
    let mut objdump = Command::new("objdump");
    let output = run(objdump.args(["-d", "--no-show-raw-insn"]).arg(object)).stdout;
    let text = String::from_utf8(output).unwrap();
    let mut all = BTreeMap::new();
    for function in text.split("\n\n") {
        let Some((head, code)) = function.trim_start().split_once(">:\n") else { continue };
        let Some((_, name)) = head.split_once('<') else { continue };
        let code: Vec<(u64, &str)> = code
            .lines()
            .filter_map(|line| line.trim_start().split_once(":\t"))
            .filter_map(|(at, what)| Some((u64::from_str_radix(at, 16).ok()?, what)))
            .collect();
        let back = |(at, what): &(u64, &str)| {
            let (jump, to) = what.strip_prefix('j')?.split_once(' ')?;
            let to = u64::from_str_radix(to.trim_start().split(' ').next()?, 16).ok()?;
            (jump != "mp" && to <= *at).then_some((to, *at))
        };
        let loops: BTreeSet<(u64, u64)> = code.iter().filter_map(back).collect();
        let holds = |outer: (u64, u64), inner: (u64, u64)| {
            outer != inner && outer.0 <= inner.0 && inner.1 <= outer.1
        };
        let innermost = loops.iter().filter(|l| !loops.iter().any(|inner| holds(**l, *inner)));
        let packed = |what: &str| {
            let word = what.split(' ').next().unwrap().trim_start_matches('v');
            let float = ["add", "sub", "mul", "div", "max", "min"]
                .iter()
                .any(|op| [format!("{op}pd"), format!("{op}ps")].iter().any(|full| full == word));
            float || ["padd", "psub", "pmul"].iter().any(|op| word.starts_with(op))
        };
        let mut counts: Vec<usize> = innermost
            .map(|(from, to)| {
                code.iter().filter(|(at, what)| from <= at && at <= to && packed(what)).count()
            })
            .filter(|count| *count > 0)
            .collect();
        counts.sort_unstable();
        if !counts.is_empty() {
            all.insert(name.to_owned(), counts);
        }
    }
    all
}

#[test]
fn vector_loops_are_those_of_the_uninstrumented_build() {
    let Some(bench) = Bench::new() else { return };
    if Command::new("objdump").arg("--version").output().is_err() {
        return testkit::skip_this("objdump is not installed");
    }
    if !cfg!(target_arch = "x86_64") {
        return testkit::skip_this("it knows the instructions of x86-64");
    }
    let text = bench.text("kernels.c", &["-O3", "-fno-slp-vectorize"]);
    // The text is already optimised, so clang must not optimise it again.
    let compile = ["-O2", "-Xclang", "-disable-llvm-passes", "-c"];
    let plain = vector_loops(&bench.link(&text, &compile));
    assert!(plain.values().map(Vec::len).sum::<usize>() >= 4, "{plain:?}");
    for options in [Options::default(), all(Mode::Sampled), all(Mode::Timed), all(Mode::Count)] {
        let (path, _) = instrumented(&text, &options);
        let found = vector_loops(&bench.link(&path, &compile));
        assert_eq!(found, plain, "{:?} {:?}", options.mode, options.max_depth);
    }
}

#[test]
fn code_for_aarch64_compiles() {
    let Some(bench) = Bench::new() else { return };
    let target = ["-O2", "--target=aarch64-linux-gnu", "-ffreestanding", "-S", "-emit-llvm"];
    let source = bench.scratch.join("kernel.c");
    std::fs::write(
        &source,
        "void f(int n, float* x) { for (int i = 0; i < n; i++) for (int j = 0; j < i; j++) \
         x[i] += x[j] * 2; }\n",
    )
    .unwrap();
    let text = bench.scratch.join("kernel.ll");
    let mut clang = bench.llvm.command("clang");
    run(clang.args(target).arg("-o").arg(&text).arg(&source));
    for mode in Mode::ALL {
        let (path, _) = instrumented(&text, &all(mode));
        assert_eq!(bench.llvm.verify(&path), Ok(()), "{mode:?}");
        let assembly = path.with_extension("s");
        let mut clang = bench.llvm.command("clang");
        run(clang
            .args(["-O2", "-S", "--target=aarch64-linux-gnu", "-o"])
            .arg(&assembly)
            .arg(&path));
        let assembly = std::fs::read_to_string(&assembly).unwrap().to_lowercase();
        let timed = matches!(mode, Mode::Sampled | Mode::Timed);
        assert_eq!(assembly.contains("cntvct_el0"), timed, "{mode:?}");
    }
}

/// Returns the number of the `nth` line (from 0) that contains `text`, counted from the first line
/// that contains `after`.
fn line_of(source: &str, after: &str, text: &str, nth: usize) -> Option<u32> {
    let from = source.lines().position(|line| line.contains(after))?;
    let mut lines = source.lines().enumerate().skip(from).filter(|(_, line)| line.contains(text));
    lines.nth(nth).map(|(number, _)| number as u32 + 1)
}

#[test]
fn places_and_variables_are_those_of_the_source() {
    let Some(bench) = Bench::new() else { return };
    let source = std::fs::read_to_string(programs().join("kernels.c")).unwrap();
    for level in ["-O0", "-O1"] {
        let text = bench.text("kernels.c", &[level, "-g", "-fno-unroll-loops"]);
        let table = instrumented(&text, &all(Mode::Count)).1;
        let functions = ["matmul_ijk", "matmul_ikj", "interpret"];
        for (function, variables) in
            functions.into_iter().zip([&["i", "j", "k"][..], &["i", "k", "j"], &["i"]])
        {
            let loops: Vec<_> = table
                .entries
                .iter()
                .filter(|e| e.function == function && e.depth.is_some())
                .collect();
            let found: Vec<_> = loops.iter().map(|e| e.variable.as_deref().unwrap()).collect();
            assert_eq!(found, variables, "{function} {level}");
            for (entry, variable) in loops.iter().zip(variables) {
                let line =
                    line_of(&source, &format!(" {function}("), &format!("for (int {variable} "), 0);
                assert_eq!(entry.line, line, "{function} {variable} {level}");
                assert!(entry.file.as_deref().unwrap().ends_with("kernels.c"), "{entry:?}");
            }
        }
        let producer = table.producer.unwrap();
        assert!(producer.contains("clang version"), "{producer}");
    }
    // In Rust, the table places a loop over a range at the program's `for`, not in the standard
    // library.
    let scratch = Scratch::new();
    let Some(made) = by_rustc(&scratch) else { return without_llvm("rustc") };
    let source = std::fs::read_to_string(programs().join("iterators.rs")).unwrap();
    for made in made.iter().filter(|made| made.name.contains("-g")) {
        let table = instrumented(&made.path, &all(Mode::Count)).1;
        let outer =
            table.entries.iter().find(|e| e.function.contains("squares") && e.depth == Some(0));
        assert_eq!(
            outer.unwrap().line,
            line_of(&source, "fn squares", "for i in", 0),
            "{}",
            made.name
        );
    }
}

#[test]
fn trip_counts_are_those_of_the_source() {
    let Some(bench) = Bench::new() else { return };
    let source = bench.scratch.join("trips.c");
    // The inline assembly in `stays` keeps the compiler from replacing a loop by a computation. If
    // the text determines a loop's number of iterations, the function's name ends with the number.
    // A called function may throw or not return, so the number is not known for a loop that calls
    // one.
    let stays = "__asm__ volatile(\"\" : : \"r\"(n));";
    let loops = [
        ("up7", "for (int i = 0; i < 7; i++)"),
        ("by3_4", "for (int i = 1; i <= 12; i += 3)"),
        ("down9", "for (int i = 9; i > 0; i--)"),
        ("long5", "for (unsigned long i = 100; i != 90; i -= 2)"),
        ("none", "for (int i = 0; i < n; i++)"),
        ("early", "for (int i = 0; i < 7 && !v; i++)"),
        ("outer6", "for (int i = 0; i < 6; i++) for (int j = 0; j < 3 && !v; j++)"),
        ("calls", "for (int i = 0; i < 7; i++) if (i != 3) g(i); else"),
        (
            "calls_inside",
            "for (int i = 0; i < 6; i++) for (int j = 0; j < n; j++) if (j) g(j); else",
        ),
    ];
    let mut text = "int g(int);\nextern volatile int v;\n".to_owned();
    for (name, head) in loops {
        text += &format!("void {name}(int n) {{ {head} {stays} g(0); }}\n");
    }
    std::fs::write(&source, text).unwrap();
    for level in ["-O1", "-O2"] {
        let path = bench.scratch.join("trips.ll");
        let mut clang = bench.llvm.command("clang");
        clang.args(["-S", "-emit-llvm", "-fno-unroll-loops", level, "-o"]).arg(&path);
        run(clang.arg(&source));
        let table = instrumented(&path, &all(Mode::Count)).1;
        let trips = |name: &str| -> Vec<Option<u64>> {
            let own = table.entries.iter().filter(|e| e.function == name && e.depth.is_some());
            own.map(|e| e.trip_count).collect()
        };
        for (name, expected) in [("up7", 7), ("by3_4", 4), ("down9", 9), ("long5", 5)] {
            assert_eq!(trips(name), [Some(expected)], "{name} {level}");
        }
        assert_eq!(trips("outer6"), [Some(6), None], "{level}");
        assert_eq!(trips("none"), [None], "{level}");
        assert_eq!(trips("early"), [None], "{level}");
        assert_eq!(trips("calls"), [None], "{level}");
        assert_eq!(trips("calls_inside"), [None, None], "{level}");
    }
}
