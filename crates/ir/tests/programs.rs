//! Instrumented programs: they print what they printed before, in every mode and at every depth,
//! and loops are entered and run as often as somebody counts by hand. The runtime is
//! `tests/programs/loops/runtime.c`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use support::ran::{Ran, Row, instrumented, runtime, watched};
use support::{Llvm, Made, by_rustc, programs, run, without_llvm};
use testkit::Scratch;

/// Everything of a module.
fn all(mode: Mode) -> Options<'static> {
    let (max_depth, min_height) = (Some(99), Some(0));
    Options { mode, max_depth, min_height, functions: Functions::All, ..Options::default() }
}

/// The options whose outputs are compared.
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

/// A compiler, with everything that a program in C or C++ needs.
struct Bench {
    llvm: Llvm,
    scratch: Scratch,
    runtime: PathBuf,
}

impl Bench {
    fn new() -> Option<Self> {
        let Some(llvm) = Llvm::with(&["clang", "opt"]) else {
            without_llvm("clang and opt of LLVM 15 or later");
            return None;
        };
        let scratch = Scratch::new();
        let runtime = runtime(llvm, scratch.path());
        Some(Self { llvm, scratch, runtime })
    }

    /// The text of a test program.
    fn text(&self, file: &str, options: &[&str]) -> PathBuf {
        let path = self.scratch.join(&format!("{file}{}.ll", options.concat()));
        let mut clang = self.llvm.command("clang");
        clang.args(["-S", "-emit-llvm", "-ffp-contract=off", "-o"]).arg(&path).args(options);
        run(clang.arg(programs().join(file)));
        path
    }

    /// The program of a text.
    fn link(&self, text: &Path, options: &[&str]) -> PathBuf {
        let path = text.with_extension("out");
        let mut clang = self.llvm.command("clang");
        clang.args(["-ffp-contract=off", "-Wno-override-module"]).args(options).arg("-o");
        run(clang.arg(&path).arg(text).args(["-lstdc++", "-lpthread"]));
        path
    }

    /// Instruments, compiles and runs a text.
    fn watch(&self, text: &Path, options: &Options, compile: &[&str], arguments: &[&str]) -> Ran {
        let (path, table) = instrumented(text, options);
        let program = self.link(&path, compile);
        watched(table, &self.runtime, Command::new(program).args(arguments))
    }

    /// Compares what a program prints with and without instrumentation.
    fn same(&self, file: &str, arguments: &[&str]) {
        for (text, compile) in
            [(self.text(file, &["-O0"]), "-O2"), (self.text(file, &["-O3"]), "-O1")]
        {
            let plain = run(Command::new(self.link(&text, &[compile])).args(arguments));
            let plain = String::from_utf8(plain.stdout).unwrap();
            for options in many() {
                let what = format!("{} {:?} {:?}", text.display(), options.mode, options.max_depth);
                let ran = self.watch(&text, &options, &[compile], arguments);
                assert_eq!(ran.output, plain, "{what}");
                assert_eq!(ran.registered, "registered 1 unregistered 1", "{what}");
                let path = text.with_extension("lwp.ll");
                assert_eq!(self.llvm.verify(&path), Ok(()), "{what}");
                // Without a runtime.
                let program = path.with_extension("out");
                let alone = run(Command::new(program).args(arguments));
                assert_eq!(String::from_utf8(alone.stdout).unwrap(), plain, "{what}");
            }
        }
    }
}

#[test]
fn kernels_print_the_same() {
    let Some(bench) = Bench::new() else { return };
    bench.same("kernels.c", &["12", "9"]);
}

#[test]
fn exceptions_and_threads_print_the_same() {
    let Some(bench) = Bench::new() else { return };
    bench.same("exceptions.cpp", &["17"]);
}

/// How often each loop of `kernels.c` is entered, by its function, depth, and place among the
/// loops of that depth.
fn entered(n: u64, m: u64) -> Vec<(&'static str, Option<(u32, usize)>, u64)> {
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
        // One row of three is outside at the top and at the bottom.
        ("convolve", d, (3 * n - 2) * m),
        ("softmax", Some((1, 0)), n),
        ("softmax", Some((1, 1)), n),
        ("softmax", Some((1, 2)), n),
        ("reduce", Some((0, 1)), 1),
        ("interpret", None, 2),
        ("interpret", a, 2),
        // The first call looks until i = n - 1, the second one finds nothing.
        ("find", b, 2 * n),
        // 1 + 3 + 9 + 27 + 81 calls, of which the last 81 have no loop.
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
    // 17 calls, of which 5, 10 and 15 throw; then 0 to 4 three times each, and 5 once.
    check("_Z5parsei", None, 33, 29);
    check("_Z13caught_insidei", Some((0, 0)), 1, 1);
    check("_Z14caught_outsidei", None, 1, 1);
    check("_Z14caught_outsidei", Some((0, 0)), 1, 0);
    check("_Z14caught_outsidei", Some((1, 0)), 6, 5);
    check("_Z6jumpedi", Some((0, 0)), 1, 0);
    check("_Z6jumpedi", None, 1, 1);
    check("_Z4jumpi", None, 3, 2);
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
            // Gaps are 1 to 128: at least every 128th is timed.
            let random = row.begun - 100;
            assert!(random >= (row.hits - 100) / 128 && row.begun <= row.hits, "{row:?}");
            assert_eq!(row.first_ended, if random > 0 { 100 } else { 0 }, "{row:?}");
            assert!(row.first_ticks <= row.ticks && row.first_squares <= row.squares, "{row:?}");
        }
        if row.hits > 2000 {
            // The mean gap is 64.5; this is six standard deviations of the mean wide.
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
    // A shared object that is loaded later, and unloaded.
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
    // rustc links; this puts our object in the place of the program's.
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
