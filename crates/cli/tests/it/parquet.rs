//! Tests `export --format parquet`. pyarrow reads the files.

use std::path::Path;
use std::process::Command;

use testkit::{CallScript, Golden, Item, ProfileScript};

use crate::support::{Programs, Recorded, counterpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

const COMPARE: &str = include_str!("parquet.py");

#[test]
fn pyarrow_reads_the_same_as_csv() {
    let Some(python) = testkit::python::with("parquet", "pyarrow") else { return };
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    script.counter("b", 1);
    let process = script.process(7);
    process.library("m,\"x\"", &["f", "g"]);
    let thread = process.thread("worker ∞");
    // `export` writes rows in batches of at most 65,536, so these rows need two batches.
    for i in 0..70_100u64 {
        if i % 1_000 == 999 {
            thread.then(Item::NextPage(10 * i, 0, 0));
        }
        let call = CallScript::new((i % 3) as u32, 10 * i, i % 7).group(5, &[u64::MAX - i]);
        thread.call(if i % 5 == 0 { call.unread() } else { call.group(5, &[i]) });
    }
    let (scratch, dir) = script.written();
    let export = |format: &str| {
        let to = scratch.join(&format!("calls.{format}"));
        let mut command = Command::new(PROGRAM);
        command.arg("export").arg(&dir).args(["--format", format, "-o"]).arg(&to);
        assert!(command.status().unwrap().success());
        to
    };
    let mut compare = Command::new(python);
    compare.args(["-c", COMPARE]).arg(export("parquet")).arg(export("csv"));
    assert!(compare.status().unwrap().success());
}

const COMPARE_WEIGHTS: &str = include_str!("parquet_weights.py");

/// The columns `weight`, `skipped` and `counter_weight` must be the same as in the CSV.
#[test]
fn pyarrow_reads_the_weights_of_a_run_with_a_budget() {
    let Some(python) = testkit::python::with("parquet weights", "pyarrow") else { return };
    let Some(program) = counterpoint("parquet weights") else { return };
    let programs = Programs::get();
    let mut host = Command::new(&programs.host);
    host.arg(&programs.library).args(["calls", "200000"]);
    let recorded = Recorded::run_with(&program, "page-faults:u", &["--budget=50%"], &mut host);
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    let export = |format: &str| {
        let to = recorded.directory.join(&format!("calls.{format}"));
        let mut command = Command::new(PROGRAM);
        command.arg("export").arg(recorded.path()).args(["--format", format, "-o"]).arg(&to);
        assert!(command.status().unwrap().success());
        to
    };
    let mut compare = Command::new(python);
    compare.args(["-c", COMPARE_WEIGHTS]).arg(export("parquet")).arg(export("csv"));
    let output = compare.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (timed, skipped) = text.trim().split_once(' ').unwrap();
    let [timed, skipped] = [timed, skipped].map(|word| word.parse::<u64>().unwrap());
    let profile = recorded.profile();
    let counted = &profile.counted()[0];
    assert_eq!((counted.calls, counted.timed), (200_000, timed));
    assert!(timed + skipped <= 200_000, "{timed} timed calls, {skipped} only counted");
}

/// A file begins and ends with the magic number of the format.
#[test]
fn parquet_needs_a_file_and_writes_it_completely() {
    let (scratch, dir) = ProfileScript::monotonic().written();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/report");
    let golden = Golden::new(PROGRAM, golden);
    let dir = dir.to_str().unwrap();
    golden.check("export-parquet-stdout", 2, &["export", dir, "--format", "parquet"]);
    let to = scratch.join("x.parquet");
    let args = ["export", dir, "--format", "parquet", "-o", to.to_str().unwrap()];
    assert_eq!(golden.run(&args).code, Some(0));
    let bytes = std::fs::read(to).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}
