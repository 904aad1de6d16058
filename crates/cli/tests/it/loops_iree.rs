//! Tests `counterpoint loops compile-iree` with IREE's unchanged compiler. The modules run in
//! IREE's stock runtimes and in our own loader (`tests/programs/iree_elf.c`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

use crate::stacks_export::folded;
use crate::support::{Expected, Iree, Programs, Recorded, counterpoint, plain, skip};

/// A product of two matrices of 64 × 64 numbers.
const MATMUL: &str = "func.func @mm(%lhs: tensor<64x64xf32>, %rhs: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %result = linalg.matmul ins(%lhs, %rhs: tensor<64x64xf32>, tensor<64x64xf32>) outs(%f: tensor<64x64xf32>) -> tensor<64x64xf32>
  return %result: tensor<64x64xf32>
}
";

/// For this CPU, the compiler makes 8 workgroups (`hal.return %c8, %c1, %c1`). A workgroup computes
/// 8 rows and 64 columns in 64 / 8 = 8 steps of 8 columns (the loop `bb1`). A step has 64 / 8 = 8
/// inner steps of 8 terms (the loop `bb2`).
const CPU: &str = "--iree-llvmcpu-target-cpu=x86-64-v3";
const WORKGROUPS: u64 = 8;
/// The numbers computed on paper: the function or loop, its hits (executions), its iterations, and
/// its hits in each workgroup.
const PAPER: [(&str, u64, Option<u64>, f64); 3] =
    [("function", 8, None, 1.0), ("bb1", 8, Some(64), 1.0), ("bb2", 64, Some(512), 8.0)];

struct Setup {
    counterpoint: PathBuf,
    iree: Iree,
    scratch: Scratch,
}

fn setup(test: &str) -> Option<Setup> {
    if cfg!(not(target_arch = "x86_64")) {
        skip(test, "the numbers are those of a CPU of x86-64");
        return None;
    }
    Some(Setup {
        counterpoint: counterpoint(test)?,
        iree: Iree::new(test)?,
        scratch: Scratch::new(),
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ok(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    output
}

impl Setup {
    fn compile(&self, model: &Path, output: &Path, options: &[&str], flags: &[&str]) -> Command {
        let mut command = Command::new(&self.counterpoint);
        command.args(["loops", "compile-iree"]).arg(model).arg("-o").arg(output).args(options);
        command.arg("--").args(flags);
        command.env("IREE_COMPILE", self.iree.tool("iree-compile"));
        command
    }

    /// Compiles [`MATMUL`] with instrumented loops, and returns the path of the module.
    fn matmul(&self, name: &str, options: &[&str], flags: &[&str]) -> PathBuf {
        let model = self.scratch.join("mm.mlir");
        std::fs::write(&model, MATMUL).unwrap();
        let output = self.scratch.join(&format!("{name}.vmfb"));
        let all = ["--max-depth", "9", "--min-height", "0"];
        let flags = [&[CPU], flags].concat();
        ok(&mut self.compile(&model, &output, &[&all, options].concat(), &flags));
        output
    }

    /// Compiles `model` without instrumentation, and returns the path of the module.
    fn stock(&self, model: &Path, name: &str, flags: &[&str]) -> PathBuf {
        let output = self.scratch.join(&format!("{name}.vmfb"));
        let cpu = "--iree-hal-local-target-device-backends=llvm-cpu";
        ok(Command::new(self.iree.tool("iree-compile"))
            .arg(model)
            .args(["--iree-hal-target-device=local", cpu])
            .args(flags)
            .arg("-o")
            .arg(&output));
        output
    }

    /// Returns compiler options that make the module's executables shared objects instead of
    /// embedded ELF files.
    fn system(&self) -> Vec<String> {
        let tools = self.iree.venv.join("lib");
        let tools = std::fs::read_dir(tools).unwrap().next().unwrap().unwrap().path();
        let linker = tools.join("site-packages/iree/compiler/_mlir_libs/iree-lld");
        vec![
            "--iree-llvmcpu-link-embedded=false".to_owned(),
            format!("--iree-llvmcpu-system-linker-path={} -flavor gnu", linker.display()),
        ]
    }

    fn loops(&self, profile: &Path) -> Value {
        let mut report = Command::new(&self.counterpoint);
        report.args(["loops", "report", "--format", "json"]).arg(profile);
        serde_json::from_slice(&ok(&mut report).stdout).unwrap()
    }
}

/// Returns the rows of the only module in a report on loops.
fn rows(document: &Value) -> &Vec<Value> {
    assert_eq!(document["modules"].as_array().unwrap().len(), 1, "{document}");
    document["modules"][0]["rows"].as_array().unwrap()
}

/// Checks that the numbers in a report on loops are those of [`PAPER`], multiplied by `times`.
fn as_on_paper(document: &Value, times: u64, what: &str) {
    let rows = rows(document);
    assert_eq!(rows.len(), PAPER.len(), "{what}");
    for (row, (name, hits, iterations, _)) in rows.iter().zip(PAPER) {
        let is_function = row["kind"] == "function";
        let label = if is_function { "function" } else { row["label"].as_str().unwrap() };
        assert_eq!((label, row["hits"].as_u64()), (name, Some(times * hits)), "{what}: {row}");
        let expected = iterations.map(|n| times * n);
        assert_eq!(row["iterations"].as_u64(), expected, "{what}: {row}");
        // All hits of a loop have the same number of iterations.
        if let Some(each) = iterations.map(|n| n / hits)
            && document["modules"][0]["mode"] == "sampled"
        {
            let trips = &row["trips"];
            assert_eq!((&trips["least"], &trips["most"]), (&each.into(), &each.into()), "{what}");
        }
    }
}

fn run_module(iree: &Iree, module: &Path, device: &str) -> Command {
    let mut command = Command::new(iree.tool("iree-run-module"));
    command.arg(format!("--module={}", module.display())).arg(format!("--device={device}"));
    command
}

/// The test covers every mode, the devices `local-sync` and `local-task`, and, in mode timed,
/// executables that are shared objects.
#[test]
fn hits_are_extents_times_tiles_times_workgroups() {
    let Some(setup) = setup("loops of IREE: hits") else { return };
    let inputs = ["--function=mm", "--input=64x64xf32=2", "--input=64x64xf32=0.125"];
    let system = setup.system();
    let system: Vec<&str> = system.iter().map(String::as_str).collect();
    let model = setup.scratch.join("mm.mlir");
    std::fs::write(&model, MATMUL).unwrap();
    let stock = setup.stock(&model, "stock", &[CPU]);
    let expected =
        plain(run_module(&setup.iree, &stock, "local-sync").args(inputs), setup.scratch.path());
    assert!(String::from_utf8_lossy(&expected.stdout).contains("16 16 16"), "{expected:?}");
    for (mode, kind) in
        [("sampled", ""), ("timed", ""), ("count", ""), ("log", ""), ("timed", "system")]
    {
        let flags = if kind.is_empty() { &[][..] } else { &system[..] };
        let module = setup.matmul(&format!("{mode}{kind}"), &["--mode", mode], flags);
        for device in ["local-sync", "local-task"] {
            let what = format!("{mode} {kind} {device}");
            let mut command = run_module(&setup.iree, &module, device);
            command.args(inputs);
            let alone = plain(&mut command, setup.scratch.path());
            assert_eq!(alone.stdout, expected.stdout, "{what}");
            let without = Recorded::run(&setup.counterpoint, "none", &mut command);
            assert_eq!(without.output.stdout, expected.stdout, "{what}");
            assert!(without.profile().loops().unwrap().modules.is_empty(), "{what}");
            let run = Recorded::run_with(
                &setup.counterpoint,
                "none",
                &["--loops=log=1000"],
                &mut command,
            );
            assert_eq!(run.output.stdout, expected.stdout, "{what}: {}", run.stderr());
            assert!(run.losses().is_empty(), "{what}: {:?}", run.losses());
            let document = setup.loops(&run.path());
            as_on_paper(&document, 1, &what);
            for (row, (.., each)) in rows(&document).iter().zip(PAPER) {
                let dispatch = &row["dispatch"];
                assert_eq!(dispatch["workgroups"].as_u64(), Some(WORKGROUPS), "{what}: {row}");
                assert_eq!(dispatch["dispatches"].as_u64(), Some(1), "{what}");
                assert_eq!(dispatch["hits_per_workgroup"].as_f64(), Some(each), "{what}");
                assert_eq!(dispatch["share"].is_null(), mode == "count", "{what}: {row}");
            }
            let function = &rows(&document)[0];
            assert_eq!(function["function"], "mm_dispatch_0_matmul_64x64x64_f32");
            assert_eq!(rows(&document)[1]["line"], 5, "the line of linalg.matmul");
        }
    }
}

#[test]
fn a_dispatch_has_its_loops_below_it() {
    let Some(setup) = setup("loops of IREE: report") else { return };
    let module = setup.matmul("timed", &["--mode", "timed"], &[]);
    let mut command = run_module(&setup.iree, &module, "local-task");
    command.args(["--function=mm", "--input=64x64xf32=2", "--input=64x64xf32=3"]);
    let run = Recorded::run_with(&setup.counterpoint, "none", &["--loops"], &mut command);
    // With `--raw`, the report shows the times of loops and dispatches as they were recorded.
    let report = run.report(&["--raw"]);
    let dispatch = &report["loops"]["in_dispatches"][0];
    assert_eq!(dispatch["name"], "mm_dispatch_0_matmul_64x64x64_f32");
    assert_eq!(dispatch["workgroups"].as_u64(), Some(WORKGROUPS));
    let total = dispatch["total_ns"].as_f64().unwrap();
    assert_eq!(Some(total), report["rows"][0]["total_ns"].as_f64());
    let rows = dispatch["rows"].as_array().unwrap();
    assert_eq!(rows.len(), PAPER.len());
    for (row, (_, hits, _, each)) in rows.iter().zip(PAPER) {
        assert_eq!(row["hits"].as_u64(), Some(hits));
        assert_eq!(row["hits_per_workgroup"].as_f64(), Some(each));
        let (share, inclusive) = (row["share"].as_f64(), row["inclusive_ns"].as_f64());
        assert!((share.unwrap() - inclusive.unwrap() / total).abs() < 1e-9, "{row}");
    }
    // An inner loop takes less time than the loop around it.
    let raw = setup.loops(&run.path());
    let ticks: Vec<u64> =
        self::rows(&raw).iter().map(|row| row["measured_ticks"].as_u64().unwrap()).collect();
    assert!(ticks[0] > ticks[1] && ticks[1] > ticks[2], "{ticks:?}");
    let mut text = Command::new(&setup.counterpoint);
    let text = ok(text.args(["report", "--width", "200"]).arg(run.path()));
    let text = String::from_utf8(text.stdout).unwrap();
    let lines: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("dispatch / loop")).collect();
    assert!(lines[0].contains("per workgroup") && lines[0].contains("of dispatch"), "{text}");
    assert!(lines[1].starts_with("mm_dispatch_0_matmul_64x64x64_f32  "), "{text}");
    assert!(lines[2].starts_with("  bb1") && lines[3].starts_with("    bb2"), "{text}");
    // A loop's time is a part of its dispatch's time. The folded stacks add up to the time in all
    // calls.
    let whole = run.report(&["--tree"])["self_ns"].as_f64().unwrap().round() as u64;
    let (inner, all) = folded(&run.path(), "bb2");
    let (outer, _) = folded(&run.path(), "bb1");
    let (dispatch, _) = folded(&run.path(), "mm_dispatch_0_matmul_64x64x64_f32");
    assert_eq!(all, whole);
    assert!(0 < inner && inner < outer && outer < dispatch && dispatch <= all, "{inner} {outer}");
}

/// Each logged hit has the dispatch and the workgroup in which it happened.
#[test]
fn logged_hits_have_workgroups() {
    let Some(setup) = setup("loops of IREE: workgroups") else { return };
    let module = setup.matmul("log", &["--mode", "log"], &[]);
    let mut command = run_module(&setup.iree, &module, "local-task");
    command.args(["--function=mm", "--input=64x64xf32=2", "--input=64x64xf32=3"]);
    let options = ["--loops=log=1000"];
    let run = Recorded::run_with(&setup.counterpoint, "none", &options, &mut command);
    if run.profile().manifest.clock != profile::Clock::Tsc {
        return skip("loops of IREE: workgroups", "the time-stamp counter cannot be used here");
    }
    let mut export = Command::new(&setup.counterpoint);
    export.args(["export", "--what", "loop-events", "--format", "json"]).arg(run.path());
    let document: Value = serde_json::from_slice(&ok(&mut export).stdout).unwrap();
    let mut begun: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for event in document["events"].as_array().unwrap() {
        assert_eq!(event["dispatch"], "mm_dispatch_0_matmul_64x64x64_f32", "{event}");
        let at = |axis: &str| event[axis].as_u64().unwrap();
        assert_eq!((at("workgroup_y"), at("workgroup_z")), (0, 0));
        if event["end"] == false {
            *begun.entry((at("workgroup_x"), at("id"))).or_default() += 1;
        }
    }
    let each = [1, 1, 8];
    let paper = (0..WORKGROUPS).flat_map(|x| (0..).zip(each).map(move |(id, n)| ((x, id), n)));
    assert_eq!(begun, paper.collect());
}

/// For each dispatch function, the number of hits equals the number of workgroup calls that IREE's
/// own profiler counts.
#[test]
fn all_workloads_compute_the_same() {
    let Some(setup) = setup("loops of IREE: workloads") else { return };
    let v4 = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default().contains("avx512f");
    let (variant, cpu) = if v4 { ("v4", "x86-64-v4") } else { ("v3", "x86-64-v3") };
    for fixture in ["matmul", "mmst", "mlp", "attn", "tinyloop", "transformer_block"] {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/iree");
        let model = model.join(format!("{fixture}.mlir")).canonicalize().unwrap();
        let expected = Expected::of_variant(fixture, variant);
        let cpu = format!("--iree-llvmcpu-target-cpu={cpu}");
        let mut flags = vec![cpu.as_str()];
        if fixture == "transformer_block" {
            flags.push("--iree-input-type=torch");
        }
        let module = setup.scratch.join(&format!("{fixture}.vmfb"));
        let options = ["--max-depth", "9", "--min-height", "0", "--functions"];
        ok(&mut setup.compile(&model, &module, &options, &flags));
        for device in ["local-sync", "local-task"] {
            let what = format!("{fixture} {device}");
            let bits = |module: &Path, name: &str, run: &dyn Fn(&mut Command) -> Output| {
                let file = setup.scratch.join(name);
                let _ = std::fs::remove_file(&file);
                let mut command = run_module(&setup.iree, module, device);
                command.args(expected.arguments());
                command.arg(format!("--output=@{}", file.display()));
                let output = run(&mut command);
                assert!(output.status.success(), "{what}: {}", said(&output));
                std::fs::read(file).unwrap()
            };
            let alone = |command: &mut Command| plain(command, setup.scratch.path());
            let stock = bits(&setup.iree.module(fixture, false), "stock.bin", &alone);
            assert!(stock.len() >= 16, "{what}");
            assert!(bits(&module, "alone.bin", &alone) == stock, "{what}: other bits, alone");
            let run = std::cell::RefCell::new(None);
            let recorded = |command: &mut Command| {
                let with = ["--loops"];
                let found =
                    Recorded::run_with(&setup.counterpoint, "page-faults:u", &with, command);
                let output = found.output.clone();
                *run.borrow_mut() = Some(found);
                output
            };
            assert!(bits(&module, "run.bin", &recorded) == stock, "{what}: other bits, recorded");
            let run = run.into_inner().unwrap();
            assert!(run.losses().is_empty(), "{what}: {:?}", run.losses());
            assert_eq!(run.ops(), expected.ops, "{what}");
            let document = setup.loops(&run.path());
            let mut functions: BTreeMap<String, u64> = BTreeMap::new();
            for module in document["modules"].as_array().unwrap() {
                for row in module["rows"].as_array().unwrap() {
                    if row["kind"] == "function" {
                        let name = row["function"].as_str().unwrap().to_owned();
                        *functions.entry(name).or_default() += row["hits"].as_u64().unwrap();
                    }
                }
            }
            let calls = expected.ops.iter().map(|(name, (calls, _))| (name.clone(), *calls));
            assert_eq!(functions, calls.collect(), "{what}");
        }
    }
}

/// The program `iree_elf` is our own loader of executables, and not a part of IREE.
#[test]
fn executables_come_and_go() {
    let Some(setup) = setup("loops of IREE: loader") else { return };
    let host = Programs::get().other("iree_elf");
    let module = setup.matmul("timed", &["--mode", "timed"], &[]);
    let stock = setup.stock(&setup.scratch.join("mm.mlir"), "stock", &[CPU]);
    let workgroups = WORKGROUPS.to_string();
    let command = |module: &Path, how: &str| {
        let mut command = Command::new(&host);
        command.arg(module).args([&workgroups, how]);
        command
    };
    let once = ok(&mut command(&stock, "elf")).stdout;
    for (how, times, registered) in [
        ("elf", 1, 1),
        ("readonly", 1, 1),
        ("twice", 2, 1),
        ("again", 20, 1),
        ("fork", 3, 2),
        ("shared", 0, 0),
    ] {
        let printed = once.repeat(times.max(1));
        assert_eq!(ok(&mut command(&module, how)).stdout, printed, "{how}");
        let mut command = command(&module, how);
        let run = Recorded::run_with(&setup.counterpoint, "none", &["--loops"], &mut command);
        assert_eq!(run.output.stdout, printed, "{how}: {}", run.stderr());
        if how == "shared" {
            assert_eq!(run.losses(), [("loop_module_refused".to_owned(), 1)].into());
            assert!(run.profile().loops().unwrap().rows.is_empty());
            continue;
        }
        assert!(run.losses().is_empty(), "{how}: {:?}", run.losses());
        as_on_paper(&setup.loops(&run.path()), times as u64, how);
        let known = run.profile().loops().unwrap().modules;
        assert_eq!(known.len(), registered, "{how}: a module that is loaded again is the same one");
    }
    let path = setup.scratch.join("late.cpt");
    let mut prepare = Command::new(&setup.counterpoint);
    let prepared =
        ok(prepare.args(["session", "prepare", "--loops", "-e", "none", "-o"]).arg(&path));
    let text: Value = serde_json::from_slice(&prepared.stdout).unwrap();
    let library = setup.counterpoint.parent().unwrap().join("../lib/libcounterpoint.so");
    let mut late = command(&module, "late");
    late.arg(text["run_file"].as_str().unwrap()).arg(library);
    let hash = String::from_utf8(once).unwrap();
    let printed = ok(&mut late).stdout;
    assert_eq!(String::from_utf8(printed).unwrap(), format!("{hash}0\n{hash}0\n{hash}"));
    ok(Command::new(&setup.counterpoint).args(["session", "finish"]).arg(&path));
    as_on_paper(&setup.loops(&path), 1, "late");
}

/// Twenty times, a Python process loads two copies of a module, runs both, and unloads them.
#[test]
fn python_loads_and_unloads() {
    let Some(setup) = setup("loops of IREE: python") else { return };
    const SCRIPT: &str = include_str!("loops_iree.py");
    let module = setup.matmul("sampled", &[], &[]);
    for device in ["local-sync", "local-task"] {
        let mut command = Command::new(setup.iree.tool("python"));
        // The script gets the same module twice, and has both copies loaded at the same time.
        command.args(["-c", SCRIPT, device]).arg(&module).arg(&module);
        let run = Recorded::run_with(&setup.counterpoint, "none", &["--loops"], &mut command);
        let alone = plain(&mut command, setup.scratch.path());
        assert!(alone.status.success(), "{}", said(&alone));
        assert_eq!(run.output.stdout, alone.stdout, "{}", run.stderr());
        assert!(run.losses().is_empty(), "{:?}", run.losses());
        as_on_paper(&setup.loops(&run.path()), 40, device);
        assert_eq!(run.profile().loops().unwrap().modules.len(), 1);
    }
}

/// The same function has equal hits when it is instrumented as MLIR and when it is instrumented as
/// LLVM IR.
#[test]
fn mlir_and_llvm_ir_agree() {
    let Some(setup) = setup("loops of IREE: LLVM IR") else { return };
    let clang = Command::new("clang-22").arg("--version").output();
    if !clang.is_ok_and(|found| found.status.success()) {
        return skip("loops and LLVM", "mlir_and_llvm_ir_agree found no clang-22");
    }
    let dump = setup.scratch.join("dump");
    let flag = format!("--iree-hal-dump-executable-intermediates-to={}", dump.display());
    let module = setup.matmul("timed", &["--mode", "timed"], &[]);
    let stock = setup.stock(&setup.scratch.join("mm.mlir"), "stock", &[CPU, &flag]);
    let files = std::fs::read_dir(&dump).unwrap().map(|entry| entry.unwrap().path());
    let text = files.into_iter().find(|p| p.to_str().unwrap().ends_with(".codegen.ll")).unwrap();
    let (instrumented, object) = (setup.scratch.join("mm.lwp.ll"), setup.scratch.join("mm.so"));
    ok(Command::new(&setup.counterpoint)
        .args(["loops", "instrument", "--max-depth", "9", "--min-height", "0", "--mode", "timed"])
        .arg(text)
        .arg("-o")
        .arg(&instrumented));
    ok(Command::new("clang-22")
        .args(["-O2", "-march=x86-64-v3", "-shared", "-fPIC", "-Wno-override-module", "-o"])
        .arg(&object)
        .arg(&instrumented));
    let host = Programs::get().other("iree_elf");
    let hits = |file: &Path, how: &str| {
        let mut command = Command::new(&host);
        command.arg(file).args([&WORKGROUPS.to_string(), how]);
        let run = Recorded::run_with(&setup.counterpoint, "none", &["--loops"], &mut command);
        let printed = run.output.stdout.clone();
        let document = setup.loops(&run.path());
        let of = |row: &Value| (row["depth"].as_u64(), row["hits"].as_u64().unwrap());
        (printed, rows(&document).iter().map(of).collect::<Vec<_>>())
    };
    let (product, mlir) = hits(&module, "elf");
    let (_, llvm) = hits(&object, "so");
    let paper: Vec<(Option<u64>, u64)> = [None, Some(0), Some(1)]
        .into_iter()
        .zip(PAPER)
        .map(|(depth, (_, n, ..))| (depth, n))
        .collect();
    assert_eq!(mlir, paper);
    assert_eq!(llvm, paper);
    let mut alone = Command::new(&host);
    alone.arg(&stock).args([&WORKGROUPS.to_string(), "elf"]);
    assert_eq!(ok(&mut alone).stdout, product);
}

#[test]
fn the_module_has_its_text_and_tables_beside_it() {
    let Some(setup) = setup("loops of IREE: files") else { return };
    let model = setup.scratch.join("mm.mlir");
    std::fs::write(&model, MATMUL).unwrap();
    let output = setup.scratch.join("out.vmfb");
    let done = ok(&mut setup.compile(&model, &output, &["--max-depth", "0"], &[CPU]));
    let line = format!(
        "counterpoint: instrumented 1 function and 1 loop (sampled) in {}; left out: 1 loop by depth or height\n",
        output.display()
    );
    assert!(said(&done).ends_with(&line), "{}", said(&done));
    let table = std::fs::read_to_string(setup.scratch.join("out.loops.json")).unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    let text = setup.scratch.join("out.loops.mlir");
    assert_eq!(table["source"], text.to_str().unwrap());
    let text = std::fs::read_to_string(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let first = table["entries"][1]["text"][0].as_u64().unwrap() as usize;
    assert!(lines[first - 1].trim_start().starts_with("^bb1(%"), "{}", lines[first - 1]);
    let function = table["entries"][0]["text"][0].as_u64().unwrap() as usize;
    assert!(lines[function - 1].contains("llvm.func @mm_dispatch_0"), "{}", lines[function - 1]);
    assert!(!text.contains("counterpoint"));
    // `loops report` accepts `out.loops.json` in place of the table in the module.
    let mut command = run_module(&setup.iree, &output, "local-sync");
    command.args(["--function=mm", "--input=64x64xf32=2", "--input=64x64xf32=3"]);
    let run = Recorded::run_with(&setup.counterpoint, "none", &["--loops"], &mut command);
    let mut report = Command::new(&setup.counterpoint);
    report.args(["loops", "report", "--format", "json", "--table"]);
    let report = ok(report.arg(setup.scratch.join("out.loops.json")).arg(run.path()));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["modules"][0]["table"], "file");
    assert_eq!(report["modules"][0]["rows"][0]["hits"].as_u64(), Some(WORKGROUPS));
}

/// Each error message tells why the command failed, and the command leaves no output.
#[test]
fn failures_say_why_and_leave_nothing() {
    let Some(setup) = setup("loops of IREE: failures") else { return };
    let model = setup.scratch.join("mm.mlir");
    std::fs::write(&model, MATMUL).unwrap();
    let broken = setup.scratch.join("broken.mlir");
    std::fs::write(&broken, &MATMUL[..200]).unwrap();
    let output = setup.scratch.join("out.vmfb");
    let real = setup.iree.tool("iree-compile");
    let real = real.to_str().unwrap();
    let missing = setup.scratch.join("missing.mlir");
    let quiet = setup.scratch.join("quiet");
    std::fs::write(&quiet, "#!/bin/sh\nexit 0\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&quiet, std::fs::Permissions::from_mode(0o755)).unwrap();
    let quiet = quiet.to_str().unwrap();
    for (compiler, input, flags, why) in [
        (
            "no-such-compiler",
            &model,
            &[][..],
            "IREE_COMPILE=no-such-compiler: no such program in PATH",
        ),
        ("/no/such", &model, &[], "/no/such: compile "),
        (quiet, &model, &[], "it succeeded, but wrote nothing to its standard output"),
        (real, &missing, &[], "missing.mlir: No such file or directory"),
        (
            real,
            &broken,
            &[],
            "broken.mlir to executable-targets: exit status 1 (its messages are above)",
        ),
        (real, &model, &["--no-such-flag"], "mm.mlir to executable-targets: exit status 1"),
        (
            real,
            &model,
            &["-o", "x"],
            "iree-compile flag -o cannot be used: the output is given before --",
        ),
        (
            real,
            &model,
            &["--compile-to=vm"],
            "iree-compile flag --compile-to=vm cannot be used: it selects the steps",
        ),
        (real, &model, &["--help"], "iree-compile flag --help cannot be used: it compiles nothing"),
        (
            real,
            &model,
            &["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=vmvx"],
            "there is no function of the llvm dialect in it (llvm.func in a builtin.module)",
        ),
    ] {
        let mut command = setup.compile(input, &output, &[], flags);
        let failed = command.env("IREE_COMPILE", compiler).output().unwrap();
        assert_eq!(failed.status.code(), Some(2), "{why}: {}", said(&failed));
        assert!(said(&failed).contains(why), "{why}: {}", said(&failed));
    }
    let mut same = setup.compile(&model, &model, &[], &[]);
    let same = same.output().unwrap();
    assert!(said(&same).contains("it is the same file as"), "{}", said(&same));
    assert_eq!(std::fs::read_to_string(&model).unwrap(), MATMUL);
    let mut nowhere = setup.compile(&model, &output, &[], &[]);
    nowhere.env_clear().env("PATH", "/nonexistent");
    let nowhere = nowhere.output().unwrap();
    assert!(
        said(&nowhere).contains("iree-compile was not found: not in PATH"),
        "{}",
        said(&nowhere)
    );
    assert!(said(&nowhere).contains("hint: pip install iree-base-compiler"), "{}", said(&nowhere));
    let left: Vec<_> = std::fs::read_dir(setup.scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("out") || name.starts_with(".counterpoint"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
