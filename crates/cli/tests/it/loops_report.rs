//! Tests how the loops of a C program are instrumented in clang's LLVM IR, recorded, and reported.
//! The expected counts follow from the source (`tests/programs/loops/siblings.c`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

use crate::stacks_export::folded;
use crate::support::trace_processor::TraceProcessor;
use crate::support::{counterpoint, skip};

/// The lines of the inner loops in `siblings.c`, and how often a loop's body runs in a hit (one
/// execution of the whole loop).
const SIBLINGS: [(u64, u64); 4] = [(26, 50), (27, 60), (28, 70), (29, 80)];
const ROUNDS: u64 = 300;

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Returns clang 15 or newer: the LLVM IR of older versions cannot be instrumented.
fn clang(test: &str) -> Option<PathBuf> {
    let found = testkit::c::clang(15);
    if found.is_none() {
        skip("loops_report", &format!("{test} found no clang of LLVM 15 or later"));
    }
    found
}

/// The program `siblings.c`, instrumented in one mode of `loops instrument`.
struct Instrumented {
    counterpoint: PathBuf,
    program: PathBuf,
    scratch: Scratch,
}

impl Instrumented {
    fn new(test: &str, mode: &str) -> Option<Self> {
        let counterpoint = counterpoint(test)?;
        let clang = clang(test)?;
        let scratch = Scratch::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = source.join("../../tests/programs/loops/siblings.c").canonicalize().unwrap();
        let [text, instrumented, program] =
            ["s.ll", "s.lwp.ll", "s"].map(|name| scratch.join(name));
        let compile = ["-O1", "-g", "-S", "-emit-llvm", "-o"];
        output(Command::new(&clang).args(compile).arg(&text).arg(&source));
        output(
            Command::new(&counterpoint)
                .args(["loops", "instrument", "--min-height", "0", "--mode", mode])
                .arg(&text)
                .arg("-o")
                .arg(&instrumented),
        );
        let again = ["-O1", "-Xclang", "-disable-llvm-passes", "-o"];
        output(Command::new(&clang).args(again).arg(&program).arg(&instrumented));
        Some(Self { counterpoint, program, scratch })
    }

    /// Records a run in which the inner loop with the number `slow` waits, and returns the rows of
    /// the report on its loops.
    fn rows(&self, slow: usize) -> Vec<Value> {
        let profile = self.scratch.join(&format!("{slow}.cpt"));
        let arguments = [slow.to_string(), ROUNDS.to_string()];
        let alone = output(Command::new(&self.program).args(&arguments));
        let recorded = output(
            Command::new(&self.counterpoint)
                .args(["run", "--loops", "-e", "none", "-o"])
                .arg(&profile)
                .arg("--")
                .arg(&self.program)
                .args(&arguments),
        );
        assert_eq!(recorded.stdout, alone.stdout);
        let report = output(
            Command::new(env!("CARGO_BIN_EXE_counterpoint"))
                .args(["loops", "report", "--format", "json"])
                .arg(&profile),
        );
        let document: Value = serde_json::from_slice(&report.stdout).unwrap();
        let modules = document["modules"].as_array().unwrap();
        assert_eq!(modules.len(), 1);
        // Without recorded calls, the folded stacks have all time of loops below `(loops in no
        // recorded call)`.
        let own = modules[0]["rows"].as_array().unwrap().iter();
        let own: f64 = own.filter_map(self_ns).sum();
        let (in_no_call, all) = folded(&profile, "(loops in no recorded call)");
        assert!(in_no_call == all && (all as f64 - own).abs() < 1.0, "{all} {own}");
        modules[0]["rows"].as_array().unwrap().clone()
    }
}

/// Returns a row's self time without the cost of recording or, if this cost is not known, the
/// measured self time.
fn self_ns(row: &Value) -> Option<f64> {
    let times = if row["compensated"].is_null() { &row["raw"] } else { &row["compensated"] };
    times["self"]["ns"].as_f64()
}

fn of_line(rows: &[Value], line: u64) -> &Value {
    let found: Vec<&Value> =
        rows.iter().filter(|row| row["kind"] == "loop" && row["line"] == line).collect();
    assert_eq!(found.len(), 1, "line {line}: {found:?}");
    found[0]
}

fn delay_is_where_it_is(test: &str, mode: &str) {
    let Some(program) = Instrumented::new(test, mode) else { return };
    for (slow, (slow_line, _)) in SIBLINGS.into_iter().enumerate() {
        let rows = program.rows(slow);
        let outer = of_line(&rows, 25);
        assert_eq!(outer["hits"], 1);
        let own = |row: &Value| self_ns(row).unwrap_or_else(|| panic!("no self time: {row}"));
        let waits = own(of_line(&rows, slow_line));
        for (n, (line, iterations)) in SIBLINGS.into_iter().enumerate() {
            let row = of_line(&rows, line);
            assert_eq!((&row["hits"], &row["parent"]), (&ROUNDS.into(), &outer["id"]));
            // In mode sampled, iterations are counted in timed hits only. Their mean is exact,
            // because all hits of a loop have the same number of iterations.
            assert_eq!(row["iterations_per_hit"], iterations as f64, "{row}");
            assert!(mode == "sampled" || row["iterations"] == ROUNDS * iterations, "{row}");
            // If the thread loses its CPU in a loop that does not wait, this adds only
            // milliseconds.
            if n != slow {
                assert!(own(row) * 10.0 < waits, "{mode}, {slow} waits {waits}: {row}");
            }
        }
        // The self time of the outer loop does not contain the waits of the inner loop. In mode
        // sampled, this is not checked: if the thread loses its CPU in a hit that is not timed, the
        // outer loop gets that time.
        assert!(mode == "sampled" || own(outer) * 10.0 < waits, "{mode}, {slow}: {outer}");
    }
}

#[test]
fn a_delay_shows_up_in_its_loop_timed() {
    delay_is_where_it_is("a_delay_shows_up_in_its_loop_timed", "timed");
}

#[test]
fn a_delay_shows_up_in_its_loop_sampled() {
    delay_is_where_it_is("a_delay_shows_up_in_its_loop_sampled", "sampled");
}

/// In mode timed, the times of the inner loops and the outer loop's self time add up exactly to the
/// outer loop's time.
#[test]
fn children_and_self_are_the_parent() {
    let test = "children_and_self_are_the_parent";
    let Some(program) = Instrumented::new(test, "timed") else { return };
    let rows = program.rows(1);
    let outer = of_line(&rows, 25);
    let number = |value: &Value| value.as_f64().unwrap();
    let children: f64 =
        SIBLINGS.iter().map(|(line, _)| number(&of_line(&rows, *line)["measured_ticks"])).sum();
    assert_eq!(number(&outer["child_ticks"]), children);
    let own = number(&outer["raw"]["self"]["ticks"]);
    assert_eq!(children + own, number(&outer["measured_ticks"]));
}

#[test]
fn mode_log_has_offsets_and_slices() {
    let test = "mode_log_has_offsets_and_slices";
    let Some(program) = Instrumented::new(test, "log") else { return };
    program.rows(0);
    let profile = program.scratch.join("0.cpt");
    let view = |args: &[&str]| {
        let command = &mut Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        String::from_utf8(output(command.args(args).arg(&profile)).stdout).unwrap()
    };
    let table = view(&["loops", "report", "--format", "lwp-csv"]);
    let mut lines = table.lines();
    let head = "Function Name,Loop/Function ID,Loop Depth,Start Offset,End Offset,Processor Cycles";
    assert_eq!(lines.next(), Some(head));
    let mut places = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let offset =
            |cell: &str| u64::from_str_radix(cell.strip_prefix("0x").unwrap(), 16).unwrap();
        let (begin, end) = (offset(cells[3]), offset(cells[4]));
        assert!(begin < end, "{line}");
        assert!(cells[5].parse::<u64>().unwrap() > 0, "{line}");
        if cells[0] == "work" {
            places.push((cells[2].to_owned(), begin, end));
        }
    }
    // In the machine code, the outer loop contains the four inner loops, which follow one another.
    assert_eq!(places.iter().map(|p| p.0.as_str()).collect::<String>(), "-01111");
    assert!(places.windows(2).all(|pair| pair[0].1 < pair[1].1), "{places:x?}");
    assert!(places[2..].iter().all(|p| p.2 < places[1].2 && places[1].2 < places[0].2));
    assert!(places[2..].windows(2).all(|pair| pair[0].2 < pair[1].1), "{places:x?}");
    // The trace has one hit of the outer loop, and the first 100 hits of each of the four inner
    // loops.
    let trace: Value = serde_json::from_str(&view(&["trace", "export", "-o", "-"])).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices: Vec<&Value> = events.iter().filter(|event| event["cat"] == "loop").collect();
    let named = |name: &str| slices.iter().filter(|slice| slice["name"] == name).count();
    let names: Vec<&str> = slices.iter().map(|slice| slice["name"].as_str().unwrap()).collect();
    assert_eq!(named("work"), 1, "{names:?}");
    let siblings = names.iter().filter(|name| name.starts_with("work:")).count();
    assert_eq!(siblings, 1 + 4 * 100);
    assert_eq!(trace["counterpoint_end"]["loops"]["modules"], 1);
}

/// Perfetto's trace processor reads times of Chrome's JSON as doubles, which are wrong by up to 1
/// ns. That can move a hit of some nanoseconds out of the hit around it, so this test uses the
/// format `pftrace`.
#[test]
fn perfetto_nests_the_hits() {
    let test = "perfetto_nests_the_hits";
    let Some(program) = Instrumented::new(test, "log") else { return };
    let Some(mut oracle) = TraceProcessor::start(test) else { return };
    program.rows(3);
    let profile = program.scratch.join("3.cpt");
    let file = program.scratch.join("t.pftrace");
    let command = &mut Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    output(command.args(["trace", "export"]).arg(&profile).arg("-o").arg(&file));
    let slices = oracle.timeline(&file).slices;
    let depths = |wanted: &dyn Fn(&str) -> bool| -> Vec<i64> {
        let found = slices.iter().filter(|slice| wanted(&slice.name));
        let mut depths: Vec<i64> = found.map(|slice| slice.depth).collect();
        depths.sort_unstable();
        depths
    };
    assert_eq!(depths(&|name| name == "work"), [0]);
    assert_eq!(depths(&|name| name.starts_with("work:")), [vec![1], vec![2; 4 * 100]].concat());
    assert_eq!(depths(&|name| name == "wait"), vec![3; 100]);
    assert!(slices.iter().all(|slice| slice.category == "loop"));
    let facts = "select str_value from metadata where name like '%counterpoint%'";
    let facts: Vec<String> =
        oracle.query(facts).iter().filter_map(|row| Some(row[0].as_str()?.to_owned())).collect();
    assert!(facts.iter().any(|facts| facts.contains("most_expensive")), "{facts:?}");
}

/// pyarrow reads the Parquet.
#[test]
fn parquet_says_what_csv_says() {
    const COMPARE: &str = include_str!("loops_report.py");
    let test = "parquet_says_what_csv_says";
    let Some(python) = testkit::python::with(test, "pyarrow") else { return };
    let Some(program) = Instrumented::new(test, "log") else { return };
    program.rows(1);
    let profile = program.scratch.join("1.cpt");
    let kinds = [
        ("loops", "counterpoint.loop_rows/1", "8"),
        ("loop-events", "counterpoint.loop_events/1", "1000"),
    ];
    for (what, schema, least) in kinds {
        let export = |format: &str| {
            let to = program.scratch.join(&format!("{what}.{format}"));
            let command = &mut Command::new(env!("CARGO_BIN_EXE_counterpoint"));
            command.args(["export", "--what", what, "--format", format, "-o"]).arg(&to);
            output(command.arg(&profile));
            to
        };
        let files = [export("parquet"), export("csv")];
        output(Command::new(&python).args(["-c", COMPARE]).args(files).args([schema, least]));
    }
}

#[test]
fn other_views_know_loops() {
    let test = "other_views_know_loops";
    let Some(program) = Instrumented::new(test, "sampled") else { return };
    let rows = program.rows(2);
    let profile = program.scratch.join("2.cpt");
    let view = |args: &[&str]| {
        let command = &mut Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        let output = output(command.args(args).arg(&profile));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let hits: u64 = rows.iter().map(|row| row["hits"].as_u64().unwrap()).sum();
    let report: Value = serde_json::from_str(&view(&["report", "--format", "json"]).0).unwrap();
    assert_eq!(report["loops"]["hits"], hits);
    assert_eq!(report["loops"]["most_expensive"].as_array().unwrap().len(), 5);
    let (text, _) = view(&["report", "--width", "100"]);
    // Only loops were recorded, so `report` prints what `loops report` prints.
    assert_eq!(text, view(&["loops", "report", "--width", "100"]).0);
    let by_loop = ["report", "--by", "loop", "--format"];
    for format in ["json", "csv"] {
        let whole = view(&["loops", "report", "--format", format]).0;
        assert_eq!(view(&[&by_loop[..], &[format]].concat()).0, whole);
    }
    assert!(text.contains("work") && text.lines().all(|l| l.chars().count() <= 100), "{text}");
    let stats: Value = serde_json::from_str(&view(&["stats", "--format", "json"]).0).unwrap();
    assert_eq!(stats["loops"].as_array().unwrap().len(), rows.len());
    assert!(view(&["stats"]).0.contains("standard deviation"));
    let (csv, _) = view(&["export", "--format", "csv", "--what", "loops"]);
    assert_eq!(csv.lines().count(), 1 + rows.len(), "{csv}");
    let (json, _) = view(&["export", "--format", "json", "--what", "loops", "--filter", "work:*"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "counterpoint.loop_rows/1");
    assert_eq!(json["rows"].as_array().unwrap().len(), 5);
    let (_, said) = view(&["trace", "export", "-o", "-"]);
    assert!(said.contains("only mode log records single hits"), "{said}");
    let told = view(&["recover"]).1;
    assert!(told.contains("hits of loops and functions in 1 instrumented module"), "{told}");
    assert!(
        told.contains("; next: counterpoint loops report ") && !told.contains("no calls"),
        "{told}"
    );
    // For a table of another module, the error message names the table's module and the profile's
    // module.
    let other = program.scratch.join("s.lwp.loops.json");
    let mut table: Value = serde_json::from_slice(&std::fs::read(&other).unwrap()).unwrap();
    let identity = table["module"].as_str().unwrap().to_owned();
    table["module"] = "00ff".into();
    std::fs::write(&other, table.to_string()).unwrap();
    let command = &mut Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    let refused =
        command.args(["loops", "report", "--table"]).arg(&other).arg(&profile).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("module 00ff") && said.contains(&identity), "{said}");
}
