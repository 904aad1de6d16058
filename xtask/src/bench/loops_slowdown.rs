//! `loops-slowdown`: measures how much instrumentation slows down a whole kernel, and how close the
//! outer loop's time in the report is to its time without instrumentation. The kernels are those of
//! `tests/programs/loops_matmul.c`. The benchmark also measures the speed of the instrumenter.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::output;
use crate::setup::packages;

const CLANG: &str = "clang-19";
/// The name of each kernel, and its targets: the slowdown if loops of depth 0 and 1 are
/// instrumented, the slowdown for depth 2, and the outer loop's time in the report divided by its
/// true time.
const KERNELS: [(&str, f64, f64, f64); 4] = [
    ("dot_256", 1.02, 1.15, 1.10),
    ("ikj_256", 1.02, 1.15, 1.10),
    ("dot_512", 1.02, 1.06, 1.05),
    ("ikj_512", 1.02, 1.06, 1.05),
];
/// The number of lines of LLVM IR that the instrumenter gets.
const LINES: usize = 1_000_000;
/// A Python program that prints the mean inclusive time of each outermost loop, by function.
const OUTER: &str = "\
import json, sys
report = json.load(sys.stdin)
for row in report['modules'][0]['rows']:
    if row['depth'] == 0 and row['hits'] and row['function'] != 'main':
        print(row['function'], row['compensated']['mean']['ns'], 'ns')
";

fn clang(arguments: &[&str], source: &Path, to: &Path) -> Result<()> {
    let mut clang = Command::new(CLANG);
    clang.arg("-O2").args(arguments).arg(source).arg("-o").arg(to);
    output(&mut clang, &format!("compile {}", source.display()))?;
    Ok(())
}

/// Repeats the functions of `text`, except `main`, under different names, to about [`LINES`] lines.
fn repeated(text: &str) -> Result<String> {
    let first = text.find("define internal").context("the text has no functions")?;
    let end = text.rfind("\n}\n").context("the text has no functions")? + 3;
    let (head, functions, tail) = (&text[..first], &text[first..end], &text[end..]);
    let main = functions.find("define dso_local noundef i32 @main").unwrap_or(functions.len());
    let kernels = &functions[..main];
    let mut all = format!("{head}{functions}");
    let (mut lines, mut copy) = (all.lines().count(), 0);
    let each = kernels.lines().count();
    ensure!(each > 50, "the text has too few lines");
    while lines < LINES {
        copy += 1;
        let renamed = kernels.replace("@dot_", &format!("@dot{copy}_"));
        let renamed = renamed.replace("@ikj_", &format!("@ikj{copy}_"));
        write!(all, "{renamed}")?;
        lines += each;
    }
    all.push_str(tail);
    Ok(all)
}

pub fn prepare(layout: &Layout) -> Result<Plan> {
    packages::install(&[packages::LLVM]);
    let program = dist::given(layout)?.program();
    let scratch = layout.bench()?;
    let text = scratch.join("matmul.ll");
    let source = layout.root.join("tests/programs/loops_matmul.c");
    clang(&["-S", "-emit-llvm"], &source, &text)?;
    // The address of a loop's code changes its speed by up to a tenth, and any change of the
    // program moves the loops. So the compiler aligns all loops.
    let late = ["-Xclang", "-disable-llvm-passes", "-falign-loops=64"];
    let plain = scratch.join("matmul-plain");
    clang(&late, &text, &plain)?;
    let built = |name: &str, options: &[&str]| -> Result<PathBuf> {
        let rewritten = scratch.join(format!("matmul-{name}.lwp.ll"));
        let mut instrument = Command::new(&program);
        instrument.args(["loops", "instrument"]).args(options).arg(&text).arg("-o").arg(&rewritten);
        output(&mut instrument, &format!("instrument {}", text.display()))?;
        let binary = scratch.join(format!("matmul-{name}"));
        clang(&late, &rewritten, &binary)?;
        Ok(binary)
    };
    let outer = built("depth1", &["--max-depth", "1"])?;
    let all = built("depth2", &["--max-depth", "2", "--min-height", "0"])?;
    let long = scratch.join("million.ll");
    let lines = repeated(&std::fs::read_to_string(&text)?)?;
    let count = lines.lines().count();
    std::fs::write(&long, lines)?;
    let table = scratch.join("million.loops.json");

    let profile = scratch.join("matmul.cpt");
    let recorded = |program: &Path, profile: &Path, binary: &Path| {
        let mut command = Command::new(program);
        command.args(["run", "--loops", "-e", "none", "-o"]).arg(profile).arg("--").arg(binary);
        command
    };
    let (again, place) = (program.clone(), profile.clone());
    let (third, its_place) = (program.clone(), scratch.join("matmul-depth1.cpt"));
    let (reporter, of_profile) = (program.clone(), profile);
    let cases = vec![
        Case::new("plain", Observe::Lines, move || Command::new(&plain)),
        Case::new("depth1", Observe::Lines, move || recorded(&third, &its_place, &outer)),
        Case::new("depth2", Observe::Lines, move || recorded(&again, &place, &all)),
        // This case reads the profile of the case `depth2`, so it comes after that case.
        Case::new("report", Observe::Lines, move || {
            let mut command = Command::new("sh");
            let script = "\"$1\" loops report \"$2\" --format json | python3 -c \"$3\"";
            command.args(["-c", script, "sh"]).arg(&reporter).arg(&of_profile).arg(OUTER);
            command
        }),
        Case::new("instrument", Observe::Process, move || {
            let mut command = Command::new("sh");
            let script = "exec \"$1\" loops instrument \"$2\" -o - --table \"$3\" >/dev/null";
            command.args(["-c", script, "sh"]).arg(&program).arg(&long).arg(&table);
            command
        }),
    ];
    let mut figures = Vec::new();
    for (kernel, depth1, depth2, report) in KERNELS {
        let ratio = |name: &str, case: &'static str, at_most: f64| {
            Figure::ratio(
                format!("{kernel}: {name}"),
                "x",
                Of::new(case, kernel),
                Of::new("plain", kernel),
                Some(at_most),
            )
        };
        figures.push(ratio("depth 0 and 1, sampled", "depth1", depth1));
        figures.push(ratio("depth 0 to 2, sampled", "depth2", depth2));
        figures.push(ratio("outer loop in the report", "report", report));
    }
    figures.push(Figure::value(
        "instrumenting a million lines",
        "ms",
        Of::new("instrument", "wall"),
        Some(1000.0),
    ));
    Ok(Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "times are processor time of the thread, means over the calls of one process".into(),
            "outer loop in the report: its compensated mean inclusive time at depth 0 to 2, which should be 1; 0.90 to 1.10 at 256 and 0.95 to 1.05 at 512 are the targets".into(),
            "all loops are aligned to 64 bytes: without that, the place of a loop in the code changes ikj_512 by a tenth, in either direction".into(),
            format!("the text for the instrumenter has {count} lines, and is written to /dev/null"),
        ],
    })
}
