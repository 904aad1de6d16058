//! Tests programs of many kinds, with and without `counterpoint run`. Programs that this machine
//! does not have are skipped with a message.
//!
//! The test prints a list. For each program and each way to record, it says whether anything
//! differed, how the program ended, and what could not be recorded. The command
//! `cargo nextest run --success-output=final programs_alike` shows the list.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{counterpoint, skip};

struct Program {
    name: &'static str,
    needs: Vec<&'static str>,
    /// The command line, which `sh -c` runs if it is not plain ([`words`]). `@/` stands for the
    /// directory of the programs that were compiled for this test, and a name that begins with `@`
    /// for an installed file.
    line: &'static str,
}

/// Returns the programs that `programs_alike.txt` lists. Each program is started in a new directory
/// with a file `words` of 1,000 lines.
fn programs() -> Vec<Program> {
    let text = include_str!("programs_alike.txt");
    let blocks = text.split("\n\n").map(|block| {
        // Lines before the program's name that begin with `#` are comments.
        let lines = block.split_inclusive('\n').take_while(|line| line.starts_with('#'));
        block[lines.map(str::len).sum()..].trim_end()
    });
    let of_block = |block: &'static str| {
        let (head, line) = block.split_once('\n').unwrap();
        let (name, needs) = head.split_once(": ").unwrap();
        Program { name, needs: needs.split(' ').collect(), line }
    };
    blocks.filter(|block| !block.is_empty()).map(of_block).collect()
}

/// This name stands for a clang of any version.
const CLANG: &str = "@clang";

/// The allocators that some command lines of `programs_alike.txt` preload. Each entry has the
/// allocator's name in these command lines, and the possible names of its file.
const ALLOCATORS: &[(&str, &[&str])] = &[
    ("@jemalloc", &["libjemalloc.so.2"]),
    ("@tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"]),
    ("@mimalloc", &["libmimalloc.so.2", "libmimalloc.so.2.0"]),
];

/// The programs that are compiled from `kinds.c`, with their compilers and flags.
const BUILDS: &[(&str, &str, &[&str])] = &[
    ("kinds", "cc", &["-O1", "-g", "-fPIE", "-pie"]),
    ("fixed", "cc", &["-O1", "-no-pie", "-fno-pie"]),
    ("static", "cc", &["-O1", "-static"]),
    ("static-pie", "cc", &["-O1", "-static-pie"]),
    ("musl", "musl-gcc", &["-O1"]),
    ("musl-static", "musl-gcc", &["-O1", "-static"]),
    ("narrow", "cc", &["-O1", "-m32"]),
    ("stripped", "cc", &["-O1", "-s"]),
    ("jemalloc", "cc", &["-O1", "-Wl,--no-as-needed", "-ljemalloc"]),
    ("asan", "gcc", &["-O1", "-fsanitize=address"]),
    ("tsan", "gcc", &["-O1", "-fsanitize=thread"]),
    ("ubsan", "gcc", &["-O1", "-fsanitize=undefined"]),
    ("msan", "clang", &["-O1", "-fsanitize=memory"]),
];

const GO_HELLO: &str = "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"os/exec\"\n)\n\nfunc main() {\n\
    \tdone := make(chan int)\n\tfor i := 0; i < 10; i++ {\n\t\tgo func(i int) { done <- i }(i)\n\t}\n\
    \tsum := 0\n\tfor i := 0; i < 10; i++ {\n\t\tsum += <-done\n\t}\n\
    \tout, err := exec.Command(\"echo\", \"child\").CombinedOutput()\n\
    \tfmt.Println(sum, string(out), err)\n\tos.Exit(6)\n}\n";

fn directory_of_libraries() -> Vec<PathBuf> {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .map(PathBuf::from)
        .to_vec()
}

/// Compiles the programs of [`BUILDS`] and two programs in Go. Those that cannot be compiled are
/// skipped later.
fn build(directory: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/kinds.c");
    for (name, compiler, flags) in BUILDS {
        let Some(compiler) = testkit::c::compiler(compiler) else { continue };
        let mut cc = Command::new(compiler);
        cc.args(["-std=gnu11", "-o"]).arg(directory.join(name)).arg(&source).args(*flags);
        let _ = cc.arg("-lpthread").output();
    }
    for (name, text) in [
        ("gohello", GO_HELLO.to_owned()),
        ("gocgo", GO_HELLO.replacen("import (", "import \"C\"\n\nimport (", 1)),
    ] {
        let file = directory.join(format!("{name}.go"));
        fs::write(&file, text).unwrap();
        let mut go = Command::new("go");
        go.arg("build").arg("-o").arg(directory.join(name)).arg(&file);
        let _ = go.env("GOCACHE", directory.join("go-cache")).env("GO111MODULE", "off").output();
    }
}

fn is_there(need: &str, built: &Path) -> bool {
    if let Some(name) = need.strip_prefix("@/") {
        return built.join(name).is_file();
    }
    if need.starts_with('@') {
        return found(need).is_some();
    }
    if need.starts_with('/') {
        return Path::new(need).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(need).is_file())
}

/// Returns the installed file for which a name such as `@jemalloc` stands.
fn found(name: &str) -> Option<PathBuf> {
    if name == CLANG {
        return testkit::c::compiler("clang");
    }
    let (_, files) = ALLOCATORS.iter().find(|(known, _)| *known == name)?;
    let places = directory_of_libraries();
    files.iter().find_map(|file| places.iter().map(|at| at.join(file)).find(|at| at.exists()))
}

fn written_out(line: &str, built: &Path) -> String {
    let mut line = line.replace("@/", &format!("{}/", built.display()));
    for name in ALLOCATORS.iter().map(|(name, _)| *name).chain([CLANG]) {
        if let Some(at) = found(name) {
            line = line.replace(name, &at.display().to_string());
        }
    }
    line
}

/// Splits a plain command line into words, and leaves any other line to a shell.
fn words(line: &str) -> Vec<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || " _./=:,+-".contains(c);
    match line.chars().all(plain) && !line.starts_with("LD_PRELOAD") {
        true => line.split(' ').map(str::to_owned).collect(),
        false => ["sh", "-c", line].map(str::to_owned).to_vec(),
    }
}

/// Runs a command in a new directory, which has the same path each time.
fn run(command: &mut Command, scratch: &Path) -> Output {
    let place = scratch.join("here");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    let words: String = (0..1000).map(|i| format!("word {}\n", i * 7919 % 1000)).collect();
    fs::write(place.join("words"), words).unwrap();
    command.current_dir(&place).stdin(Stdio::null());
    command.env("HOME", &place).env("TMPDIR", &place).env("LC_ALL", "C");
    // By default, Rust's tools look for their compilers below `HOME`, which has just been changed.
    for (name, below) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        if let Some(home) = std::env::var_os("HOME").filter(|_| std::env::var_os(name).is_none()) {
            command.env(name, Path::new(&home).join(below));
        }
    }
    command.output().unwrap()
}

fn ended(output: &Output) -> String {
    match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    }
}

const WAYS: &[&[&str]] = &[
    &["-e", "none"],
    &["-e", "page-faults", "--budget", "2%"],
    &["-e", "none", "--loops"],
    &["-e", "none", "--plugin", "telemetry"],
];

/// Two programs run at a time, because most of them mainly wait.
#[test]
fn programs_of_every_kind_run_as_without_us() {
    let Some(counterpoint) = counterpoint("programs of every kind") else { return };
    let scratch = testkit::Scratch::new();
    let built = scratch.join("built");
    fs::create_dir(&built).unwrap();
    build(&built);
    let (there, missing): (Vec<Program>, Vec<Program>) = programs()
        .into_iter()
        .partition(|program| program.needs.iter().all(|need| is_there(need, &built)));
    for program in missing {
        let need = program.needs.iter().find(|need| !is_there(need, &built)).unwrap();
        skip(&format!("programs of every kind, {}", program.name), &format!("no {need}"));
    }
    let next = AtomicUsize::new(0);
    let work = |place: &str| {
        let place = scratch.join(place);
        fs::create_dir(&place).unwrap();
        let mut differ = Vec::new();
        while let Some(program) = there.get(next.fetch_add(1, Relaxed)) {
            let words = words(&written_out(program.line, &built));
            differ.extend(differences(&counterpoint, program.name, &words, &place));
        }
        differ
    };
    let differ: Vec<String> = std::thread::scope(|scope| {
        let threads = ["one", "two"].map(|place| scope.spawn(move || work(place)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    println!("{} programs tried, {} differ", there.len(), differ.len());
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Runs a program without Counterpoint, and with it in each of [`WAYS`]. Returns a text for each
/// way that changes the result.
fn differences(counterpoint: &Path, name: &str, words: &[String], place: &Path) -> Vec<String> {
    let bare = run(Command::new(&words[0]).args(&words[1..]), place);
    let mut differ = Vec::new();
    for way in WAYS {
        let profile = place.join("p.cpt");
        let _ = fs::remove_dir_all(&profile);
        let mut command = Command::new(counterpoint);
        command.arg("run").args(*way).arg("-o").arg(&profile).arg("--").args(words);
        let with = run(&mut command, place);
        let same = ended(&with) == ended(&bare)
            && with.stdout == bare.stdout
            && theirs(&with.stderr) == theirs(&bare.stderr);
        let verdict = if same { "same" } else { "DIFFERS" };
        let way = way.join(" ");
        println!("{verdict:<8} {name:<32} {way:<28} {:<12} {}", ended(&bare), losses(&profile));
        if !same {
            differ.push(format!("{name} ({way}): without {bare:?}\nwith {with:?}"));
        }
    }
    differ
}

/// Returns what the program itself wrote to stderr, without the lines that `counterpoint run` adds
/// at the end.
fn theirs(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr).into_owned();
    let mut lines: Vec<&str> = text.lines().collect();
    while lines.last().is_some_and(|line| line.starts_with("counterpoint: ") || line.is_empty()) {
        lines.pop();
    }
    lines.join("\n")
}

fn losses(profile: &Path) -> String {
    let opened = match profile::Profile::open(profile) {
        Ok(opened) => opened,
        Err(error) => return error.to_string(),
    };
    let losses = opened.all_losses();
    let losses: Vec<String> = losses.iter().map(|l| format!("{} {}", l.count, l.name)).collect();
    if losses.is_empty() { "–".to_owned() } else { losses.join(", ") }
}
