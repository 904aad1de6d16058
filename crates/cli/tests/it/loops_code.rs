//! Tests `loops report --asm` and `--source` for a program that clang compiled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

use crate::support::{counterpoint, skip};

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// A program whose loops are instrumented so that each execution of a loop is timed.
struct Kernels {
    counterpoint: PathBuf,
    program: PathBuf,
    scratch: Scratch,
}

impl Kernels {
    fn new(test: &str, link: &[&str]) -> Option<Self> {
        let counterpoint = counterpoint(test)?;
        let clang = ["clang-22", "clang-19"]
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok());
        let Some(clang) = clang else {
            skip("loops_code", &format!("{test} found neither clang-22 nor clang-19"));
            return None;
        };
        let scratch = Scratch::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/loops");
        let [text, instrumented, program] =
            ["k.ll", "k.lwp.ll", "kernels"].map(|name| scratch.join(name));
        let compile = ["-O1", "-S", "-emit-llvm", "-o"];
        output(Command::new(clang).args(compile).arg(&text).arg(folder.join("kernels.c")));
        output(
            Command::new(&counterpoint)
                .args(["loops", "instrument", "--min-height", "0", "--mode", "timed"])
                .arg(&text)
                .arg("-o")
                .arg(&instrumented),
        );
        let again = ["-O1", "-Xclang", "-disable-llvm-passes", "-o"];
        output(Command::new(clang).args(again).arg(&program).args(link).arg(&instrumented));
        Some(Self { counterpoint, program, scratch })
    }

    fn record(&self, name: &str, options: &[&str]) -> PathBuf {
        let profile = self.scratch.join(name);
        output(
            Command::new(&self.counterpoint)
                .args(["run", "--loops", "-e", "none"])
                .args(options)
                .arg("-o")
                .arg(&profile)
                .arg("--")
                .arg(&self.program)
                .args(["16", "24"]),
        );
        profile
    }
}

fn report(profile: &Path, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    let output = output(command.args(["loops", "report"]).args(options).arg(profile));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the report's data about the only instrumented module of the profile.
fn module(profile: &Path, options: &[&str]) -> Value {
    let text = report(profile, &[&["--format", "json"], options].concat());
    let mut document: Value = serde_json::from_str(&text).unwrap();
    let modules = document["modules"].as_array_mut().unwrap();
    assert_eq!(modules.len(), 1);
    modules.remove(0)
}

fn row<'a>(module: &'a Value, function: &str, depth: Option<u64>) -> &'a Value {
    let rows = module["rows"].as_array().unwrap();
    let is = |row: &&Value| row["function"] == function && row["depth"].as_u64() == depth;
    rows.iter().find(is).unwrap()
}

/// Counts the loops in the machine code of the function `matmul_ijk`, of its outermost loop and of
/// its middle loop. At -O1, the machine code has one loop for each loop of the source, so the
/// counts are 3, 3 and 2.
fn machine_loops(module: &Value) -> Vec<usize> {
    let count =
        |depth| row(module, "matmul_ijk", depth)["code"]["machine_loops"].as_array().unwrap().len();
    [None, Some(0), Some(1)].map(count).to_vec()
}

/// Returns the addresses of the instructions in a range, as `objdump` finds them.
fn judged(program: &Path, start: u64, end: u64) -> Vec<u64> {
    let range = [format!("--start-address={start}"), format!("--stop-address={end}")];
    let listed =
        output(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).args(range).arg(program));
    let text = String::from_utf8(listed.stdout).unwrap();
    let address = |line: &str| {
        let (address, _) = line.split_once(":\t")?;
        u64::from_str_radix(address.trim(), 16).ok()
    };
    text.lines().filter_map(address).collect()
}

#[test]
fn the_code_of_a_program_s_file_is_shown() {
    let Some(kernels) = Kernels::new("the_code_of_a_program_s_file_is_shown", &["-Wl,--build-id"])
    else {
        return;
    };
    let profile = kernels.record("a.cpt", &[]);
    let found = module(&profile, &["--asm", "--source"]);
    assert_eq!(
        (&found["code"]["kept"], &found["code"]["machine"]),
        (&false.into(), &"x86-64".into())
    );
    assert_eq!(machine_loops(&found), [3, 3, 2]);
    for row in found["rows"].as_array().unwrap() {
        let code = &row["code"];
        assert_eq!(code["problem"], Value::Null, "{row}");
        assert_eq!(code["function"], row["function"]);
        let mut count = 0;
        for range in code["ranges"].as_array().unwrap() {
            let [start, end] = ["start", "end"].map(|at| range[at].as_u64().unwrap());
            let offset = range["start_offset"].as_u64().unwrap();
            assert_eq!(start - offset, code["function_address"].as_u64().unwrap());
            count += judged(&kernels.program, start, end).len() as u64;
        }
        let counts = &code["instructions"];
        let sum = counts["all"].as_u64().unwrap() + counts["hooks"].as_u64().unwrap();
        assert_eq!(sum, count, "{row}");
    }
    // The source lines in the report are those of `k.ll`, the LLVM IR that was instrumented.
    let text = fs::read_to_string(kernels.scratch.join("k.ll")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let kept = found["texts"][0]["lines"].as_array().unwrap();
    assert!(kept.len() > 100);
    for line in kept {
        let number = line["line"].as_u64().unwrap() as usize;
        assert_eq!(line["text"], lines[number - 1]);
    }
    let place = &row(&found, "matmul_ijk", Some(0))["places"][0];
    assert_eq!(place["language"], "llvm");
}

#[test]
fn text_and_code_of_a_loop_stand_side_by_side() {
    let Some(kernels) = Kernels::new("text_and_code_of_a_loop_stand_side_by_side", &[]) else {
        return;
    };
    let profile = kernels.record("a.cpt", &[]);
    let wide = ["--asm", "--source", "--only", "matmul_ijk*", "--width", "160"];
    let shown = report(&profile, &wide);
    let titles = shown
        .lines()
        .filter(|line| line.contains("(llvm)") && line.contains("machine code: matmul_ijk+"));
    // The function and each of its three loops have one title, over their LLVM IR and machine code.
    assert_eq!(titles.count(), 4, "{shown}");
    let both = |line: &&str| line.contains("getelementptr") && line.contains(" │ ");
    assert!(shown.lines().any(|line| both(&line)), "{shown}");
    assert!(shown.lines().any(|line| line.contains("mulsd")), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 160), "{shown}");
    // The code of the function and of each loop is also described in words.
    let words =
        shown.lines().filter(|line| line.starts_with("code: scalar, one dependent chain of"));
    assert_eq!(words.count(), 4, "{shown}");
    let rows = module(&profile, &["--asm"]);
    let words = &row(&rows, "matmul_ijk", Some(2))["code"]["words"];
    assert!(words.as_str().unwrap().contains("arithmetic instructions use vectors of"), "{words}");
    let shown = report(&profile, &["--asm", "--source", "--only", "matmul_ijk*", "--width", "80"]);
    assert!(!shown.lines().any(|line| line.contains("(llvm)") && line.contains("machine code")));
    // The innermost loop is executed 16 × 24 = 384 times, which the margin shows.
    let shown = report(&profile, &["--source"]);
    let inner = module(&profile, &[]);
    let id = row(&inner, "matmul_ijk", Some(2))["id"].as_u64().unwrap();
    let margin = shown
        .lines()
        .find(|line| line.trim_start().starts_with(&format!("{id}  ")) && line.contains(" │ "));
    assert!(margin.unwrap().contains(" 384 "), "{margin:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    let nothing = command.args(["loops", "report", "--asm", "--only", "nothing"]).arg(&profile);
    let nothing = nothing.output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no function or loop has this name"));
}

/// The program has no symbols and no build id.
#[test]
fn a_stripped_program_is_understood() {
    let Some(kernels) =
        Kernels::new("a_stripped_program_is_understood", &["-s", "-Wl,--build-id=none"])
    else {
        return;
    };
    let profile = kernels.record("a.cpt", &[]);
    let moved = kernels.scratch.join("moved.cpt");
    fs::rename(&profile, &moved).unwrap();
    let found = module(&moved, &["--asm"]);
    assert_eq!(machine_loops(&found), [3, 3, 2]);
    let function = row(&found, "matmul_ijk", None);
    assert_eq!(function["code"]["function"], Value::Null);
    assert_eq!(found["code"]["build_id"], Value::Null);
    // Without a build id, a file with another modification time may be another build.
    output(Command::new("touch").arg(&kernels.program));
    let found = module(&moved, &["--asm"]);
    let problem = found["code_problem"].as_str().unwrap();
    assert!(
        problem.contains("has changed since the program ran (its size and time differs)"),
        "{problem}"
    );
}

/// An HTML page shows machine code from the program's file only with `--code` or `--objects`, and
/// otherwise says why it shows none.
#[test]
fn a_page_opens_files_only_on_request() {
    let test = "a_page_opens_files_only_on_request";
    let Some(kernels) = Kernels::new(test, &["-Wl,--build-id"]) else { return };
    let profile = kernels.record("p.cpt", &[]);
    let file = kernels.scratch.join("p.html");
    let listing = |options: &[&str]| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        output(command.arg("report").arg(&profile).arg("--html").arg(&file).args(options));
        let page = fs::read_to_string(&file).unwrap();
        let head: Value = serde_json::from_slice(&crate::page_data::block(&page, "head")).unwrap();
        let listings = head["listings"].as_array().unwrap();
        listings.iter().find(|one| one["label"] == "matmul_ijk").unwrap().clone()
    };
    let machine = |listing: &Value| {
        let columns = listing["columns"].as_array().unwrap();
        columns.iter().any(|one| one["title"].as_str().unwrap().starts_with("machine code"))
    };
    let directory = kernels.program.parent().unwrap().to_str().unwrap();
    let unasked = listing(&[]);
    assert!(!machine(&unasked), "{unasked}");
    let words = unasked["words"].to_string();
    assert!(words.contains("machine code is not shown") && words.contains("--code"), "{words}");
    let asked = listing(&["--code"]);
    assert!(machine(&asked), "{asked}");
    assert_eq!(listing(&["--objects", directory]), asked);
    // Everybody can write to the profile now, so it counts as somebody else's.
    fs::set_permissions(&profile, fs::Permissions::from_mode(0o777)).unwrap();
    for options in [&[][..], &["--code"]] {
        let foreign = listing(options);
        assert!(!machine(&foreign), "{foreign}");
        let words = foreign["words"].to_string();
        assert!(words.contains("somebody else made the profile"), "{words}");
    }
    assert_eq!(listing(&["--objects", directory]), asked);
}

/// Somebody else may have made a profile that everybody can write to. So Counterpoint reads the
/// files that such a profile names only below directories that the user names with `--objects`.
#[test]
fn files_that_somebody_else_names_are_not_opened() {
    let test = "files_that_somebody_else_names_are_not_opened";
    let Some(kernels) = Kernels::new(test, &["-Wl,--build-id"]) else { return };
    let profile = kernels.record("foreign.cpt", &[]);
    let own = module(&profile, &["--asm"]);
    fs::set_permissions(&profile, fs::Permissions::from_mode(0o777)).unwrap();
    let foreign = module(&profile, &["--asm"]);
    let problem = foreign["code_problem"].as_str().unwrap();
    assert!(problem.contains("somebody else made the profile"), "{problem}");
    assert!(problem.contains("--objects DIR"), "{problem}");
    let directory = kernels.program.parent().unwrap().to_str().unwrap();
    let found = module(&profile, &["--asm", "--objects", directory]);
    assert_eq!((&found["code"], &found["rows"]), (&own["code"], &own["rows"]));
    assert_ne!(found["code"], Value::Null);
}

#[test]
fn a_file_that_changed_is_not_taken_for_the_old_one() {
    let test = "a_file_that_changed_is_not_taken_for_the_old_one";
    let Some(kernels) = Kernels::new(test, &["-Wl,--build-id"]) else { return };
    let plain = kernels.record("plain.cpt", &[]);
    let kept = kernels.record("kept.cpt", &["--keep-code"]);
    let same = module(&plain, &["--asm"]);
    fs::remove_file(&kernels.program).unwrap();
    fs::copy("/bin/true", &kernels.program).unwrap();
    let changed = module(&plain, &["--asm"]);
    let problem = changed["code_problem"].as_str().unwrap();
    assert!(problem.contains("has changed since the program ran"), "{problem}");
    assert!(problem.contains("--keep-code"), "{problem}");
    let shown = report(&plain, &["--asm"]);
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("note: machine code is not shown"), "{shown}");
    fs::remove_file(&kernels.program).unwrap();
    let gone = module(&plain, &["--asm"]);
    assert!(gone["code_problem"].as_str().unwrap().contains("No such file"), "{gone}");
    // With `--keep-code`, the profile contains the code that ran, so the report shows it without
    // the program's file.
    let moved = kernels.scratch.join("moved.cpt");
    fs::rename(&kept, &moved).unwrap();
    let found = module(&moved, &["--asm"]);
    assert_eq!(found["code"]["kept"], true);
    for (own, other) in
        found["rows"].as_array().unwrap().iter().zip(same["rows"].as_array().unwrap())
    {
        assert_eq!(own["code"], other["code"]);
    }
}

/// The program's file is deleted before the program starts, so `--keep-code` must copy the code
/// from memory.
#[test]
fn code_of_a_deleted_program_is_kept_from_memory() {
    let test = "code_of_a_deleted_program_is_kept_from_memory";
    let Some(kernels) = Kernels::new(test, &["-Wl,--build-id"]) else { return };
    let expected = module(&kernels.record("file.cpt", &[]), &["--asm"]);
    let profile = kernels.scratch.join("deleted.cpt");
    let gone = kernels.scratch.join("gone");
    fs::copy(&kernels.program, &gone).unwrap();
    let script = format!("exec 9<{0}; rm {0}; exec /proc/self/fd/9 16 24", gone.display());
    output(
        Command::new(&kernels.counterpoint)
            .args(["run", "--loops", "--keep-code", "-e", "none", "-o"])
            .arg(&profile)
            .args(["--", "sh", "-c", &script]),
    );
    let found = module(&profile, &["--asm"]);
    assert_eq!(found["code"]["kept"], true, "{found}");
    assert_eq!(machine_loops(&found), [3, 3, 2]);
    let rows = |module: &Value| module["rows"].as_array().unwrap().clone();
    for (own, other) in rows(&found).iter().zip(rows(&expected)) {
        assert_eq!(own["code"]["ranges"][0]["start"], other["code"]["ranges"][0]["start"]);
        assert_eq!(own["code"]["instructions"], other["code"]["instructions"]);
    }
}

#[test]
fn code_that_has_no_room_is_a_loss() {
    let Some(kernels) = Kernels::new("code_that_has_no_room_is_a_loss", &[]) else { return };
    let profile = kernels.scratch.join("full.cpt");
    // The program's file becomes larger than the limit on file sizes with which the program runs.
    // The appended bytes are not loaded when the program starts, because no ELF segment contains
    // them. `ulimit -f` counts blocks of 512 or 1,024 bytes, depending on the shell.
    let mut program = fs::File::options().append(true).open(&kernels.program).unwrap();
    std::io::Write::write_all(&mut program, &vec![0; 5 << 20]).unwrap();
    drop(program);
    let script = format!("ulimit -f 4096; exec {} 16 24", kernels.program.display());
    output(
        Command::new(&kernels.counterpoint)
            .args(["run", "--loops", "--keep-code", "-e", "none", "-o"])
            .arg(&profile)
            .args(["--", "sh", "-c", &script]),
    );
    let text = report(&profile, &["--format", "json"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    let lost = document["losses"].as_array().unwrap();
    assert!(lost.iter().any(|loss| loss["name"] == "code_not_kept"), "{lost:?}");
    assert_eq!(machine_loops(&module(&profile, &["--asm"])), [3, 3, 2]);
}

/// The listings of functions in an HTML page have the times of loops in their margins.
#[test]
fn the_page_lists_the_code_of_functions() {
    let Some(kernels) = Kernels::new("the_page_lists_the_code_of_functions", &["-Wl,--build-id"])
    else {
        return;
    };
    let profile = kernels.record("a.cpt", &["--keep-code"]);
    let file = kernels.scratch.join("a.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    output(command.arg("report").arg(&profile).arg("--html").arg(&file));
    let page = fs::read_to_string(file).unwrap();
    let head: Value = serde_json::from_slice(&crate::page_data::block(&page, "head")).unwrap();
    let listings = head["listings"].as_array().unwrap();
    let listing = listings.iter().find(|one| one["label"] == "matmul_ijk").unwrap();
    let tables = head["tables"].as_array().unwrap();
    let table = tables.iter().find(|one| one["id"] == listing["table"]).unwrap();
    assert_eq!(table["sort"], "inclusive_ns");
    let names = table["columns"].as_array().unwrap();
    let at = names.iter().position(|column| column["name"] == table["sort"]).unwrap();
    let rows = table["rows"].as_array().unwrap().iter().zip(table["parents"].as_array().unwrap());
    let roots = rows.filter(|(_, parent)| **parent == -1);
    let times: Vec<f64> = roots.map(|(row, _)| row[at][1].as_f64().unwrap()).collect();
    assert!(times.len() > 1 && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert_eq!(listing["loops"].as_array().unwrap().len(), 3, "{}", listing["loops"]);
    let text = report(&profile, &["--asm", "--source", "--only", "matmul_ijk"]);
    let columns = listing["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 2, "LLVM IR and machine code");
    let tree = report(&profile, &["--width", "400"]);
    for column in columns {
        let lines = column["lines"].as_array().unwrap();
        assert!(lines.len() > 20, "{lines:?}");
        let mut loops = std::collections::BTreeSet::new();
        for line in lines {
            let [number, code] = ["number", "text"].map(|key| line[key].as_str().unwrap());
            let code = code.trim_start_matches("· ");
            let is_it = |printed: &str| printed.contains(number) && printed.ends_with(code);
            assert!(text.lines().any(|printed| is_it(printed.trim_end())), "{line} in\n{text}");
            loops.insert(line["loop"].as_i64().unwrap());
            if let Some((time, share)) = line["margin"].as_str().unwrap().split_once(", ") {
                assert!(share.ends_with(" %"), "{line}");
                assert!(tree.contains(time), "{time} is not in\n{tree}");
            }
        }
        assert_eq!(loops.into_iter().collect::<Vec<_>>(), [-1, 0, 1, 2], "{}", column["title"]);
        let margins = lines.iter().filter(|line| line["margin"] != "");
        assert!(margins.count() >= 2, "{}", column["title"]);
    }
}
