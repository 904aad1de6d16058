//! Helpers for tests that run programs under the `counterpoint` of a built `dist/`, and read the
//! recorded profiles.
//!
//! `cargo xtask test` sets environment variables with the paths that these tests need.
//! `COUNTERPOINT_DIST` is always set; `COUNTERPOINT_VENV` and `COUNTERPOINT_FIXTURES` are set if
//! downloads are allowed. If a variable is missing, a test that needs it is skipped with a message.

#![allow(dead_code, reason = "each test program uses its part")]

pub mod memory;
pub mod trace_processor;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};

use profile::Profile;
use serde_json::Value;
pub use testkit::skip;

/// Returns the path in an environment variable. Without this variable, skips the test and returns
/// `None`.
fn need(test: &str, variable: &str) -> Option<PathBuf> {
    if let Some(value) = std::env::var_os(variable) {
        return Some(value.into());
    }
    skip(test, &format!("{variable} is not set (cargo xtask test sets it)"));
    None
}

/// The program for tests that start it hundreds of times. This is the program in `dist/`, if that
/// was built: a release build shows a small profile in a fifth of a debug build's time.
pub static OFTEN_STARTED: LazyLock<PathBuf> = LazyLock::new(|| {
    let built =
        std::env::var_os("COUNTERPOINT_DIST").map(|dist| Path::new(&dist).join("bin/counterpoint"));
    built.unwrap_or_else(|| env!("CARGO_BIN_EXE_counterpoint").into())
});

/// Returns the path of `counterpoint-query`; `None` if the test was skipped.
pub fn query_engine(test: &str) -> Option<PathBuf> {
    need(test, "COUNTERPOINT_QUERY")
}

/// Returns the virtual environment with IREE 3.7.0, whose executable libraries have version 5.
pub fn venv_v5(test: &str) -> Option<PathBuf> {
    need(test, "COUNTERPOINT_VENV_V5")
}

/// Returns the Python of an environment with PyTorch 2.15.
pub fn torch(test: &str) -> Option<PathBuf> {
    Some(need(test, "COUNTERPOINT_VENV_TORCH")?.join("bin/python"))
}

/// Returns the Python of an environment with PyTorch 2.12.
pub fn torch_212(test: &str) -> Option<PathBuf> {
    Some(need(test, "COUNTERPOINT_VENV_TORCH_212")?.join("bin/python"))
}

/// If `COUNTERPOINT_TORCH_SHIMS` names a folder, makes the command use the cache of shims (small
/// compiled libraries) there, which all tests share.
pub fn with_shared_shims(command: &mut Command) -> &mut Command {
    match std::env::var_os("COUNTERPOINT_TORCH_SHIMS") {
        Some(folder) => command.env("XDG_CACHE_HOME", Path::new(&folder).join("cache")),
        None => command,
    }
}

/// Returns the Python of an environment with HolisticTraceAnalysis.
pub fn hta(test: &str) -> Option<PathBuf> {
    Some(need(test, "COUNTERPOINT_VENV_HTA")?.join("bin/python"))
}

pub fn tvm(test: &str) -> Option<PathBuf> {
    let venv = std::env::var_os("COUNTERPOINT_VENV_TVM");
    if venv.is_none() {
        skip(test, "no TVM (COUNTERPOINT_VENV_TVM is not set)");
    }
    Some(PathBuf::from(venv?).join("bin/python"))
}

/// Returns the program in the built `dist/`.
pub fn counterpoint(test: &str) -> Option<PathBuf> {
    Some(need(test, "COUNTERPOINT_DIST")?.join("bin/counterpoint"))
}

/// Returns a `counterpoint` whose recording library panics on demand.
pub fn injecting(test: &str) -> Option<PathBuf> {
    Some(need(test, "COUNTERPOINT_INJECT_DIST")?.join("bin/counterpoint"))
}

/// The environment with IREE's published wheels, and the folder of compiled fixtures (IREE
/// modules).
pub struct Iree {
    pub venv: PathBuf,
    pub fixtures: PathBuf,
}

impl Iree {
    pub fn new(test: &str) -> Option<Self> {
        Some(Self {
            venv: need(test, "COUNTERPOINT_VENV")?,
            fixtures: need(test, "COUNTERPOINT_FIXTURES")?,
        })
    }

    /// Each fixture is compiled for a few target CPUs. Returns the file for the best target CPU
    /// that this machine supports.
    pub fn module(&self, name: &str, system_library: bool) -> PathBuf {
        let kind = if system_library { ".system" } else { "" };
        self.fixtures.join(format!("{name}.{}{kind}.vmfb", variant()))
    }

    pub fn tool(&self, name: &str) -> PathBuf {
        self.venv.join("bin").join(name)
    }

    /// Returns a tool that was built with Tracy. The wheel of IREE's runtime contains it, but
    /// installs no script for it in `bin`.
    pub fn tracy_tool(&self, name: &str) -> PathBuf {
        let lib = std::fs::read_dir(self.venv.join("lib")).unwrap().next().unwrap().unwrap();
        lib.path().join("site-packages/iree/_runtime_libs_tracy").join(name)
    }
}

/// A fixture (an IREE module) with its arguments and expected counts from
/// `fixtures/iree/expected.json`. The counts come from IREE's own profiler.
pub struct Expected {
    pub function: String,
    pub inputs: Vec<String>,
    /// The numbers of workgroup calls and of dispatches of each function in the fixture's
    /// executable.
    pub ops: BTreeMap<String, (u64, u64)>,
}

impl Expected {
    pub fn of(fixture: &str) -> Self {
        Self::of_variant(fixture, variant())
    }

    /// Reads the expected counts of a fixture. `variant` is a target CPU: `v4`, `v3` or `generic`.
    pub fn of_variant(fixture: &str, variant: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/iree/expected.json");
        let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let fixture = &all["fixtures"][fixture];
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        let ops = fixture["variants"][variant]["exports"].as_array().unwrap().iter().map(|e| {
            let number = |key: &str| e[key].as_u64().unwrap();
            (text(&e["name"]), (number("workgroup_calls"), number("dispatches")))
        });
        Self {
            function: text(&fixture["function"]),
            inputs: fixture["inputs"].as_array().unwrap().iter().map(text).collect(),
            ops: ops.collect(),
        }
    }

    /// Returns the arguments for IREE's tools: `--function=… --input=…`.
    pub fn arguments(&self) -> Vec<String> {
        let inputs = self.inputs.iter().map(|input| format!("--input={input}"));
        std::iter::once(format!("--function={}", self.function)).chain(inputs).collect()
    }
}

/// Returns the best target CPU that this machine supports.
fn variant() -> &'static str {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match (cfg!(target_arch = "x86_64"), cpu.contains("avx512f")) {
        (true, true) => "v4",
        (true, false) => "v3",
        (false, _) => "generic",
    }
}

/// The C programs and libraries that are compiled once for all tests.
pub struct Programs {
    pub host: PathBuf,
    /// This program contains IREE's own call hook.
    pub hook_host: PathBuf,
    /// This program would notice if Counterpoint started a helper process.
    pub watchful: PathBuf,
    /// This program loads several copies of Counterpoint's library.
    pub two: PathBuf,
    /// This program has a signal handler that forks again and again.
    pub storm: PathBuf,
    /// This program uses most entry points of Counterpoint's library.
    pub entries: PathBuf,
    pub library: PathBuf,
    pub library_v5: PathBuf,
    directory: PathBuf,
}

/// Compiles a program or a library, and returns its path. `None` if the compiler does not exist.
fn compile(
    directory: &Path,
    compiler: &str,
    source: &str,
    name: &str,
    flags: &[&str],
) -> Option<PathBuf> {
    let program = directory.join(name);
    if program.exists() {
        return Some(program);
    }
    // Tests run at the same time. Each test compiles to a file of its own and then renames this
    // file to the common name.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mine = directory.join(format!("{name}.{}.{number}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&mine);
    let output = command.arg(sources().join(source)).args(flags).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&mine, &program).unwrap();
    Some(program)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs")
}

/// Returns the directory for compiled programs. Its name contains a hash of the sources, so that
/// changed sources are compiled again.
fn built() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    let loops = sources().join("loops");
    for directory in [sources(), loops, sources().join("../../include/counterpoint"), support()] {
        let files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
        files.sort();
        for file in files {
            (file.file_name(), fs::read(&file).unwrap()).hash(&mut hasher);
        }
    }
    let name = format!("programs-{:016x}", hasher.finish());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Returns the directory of this module. Its files are part of the hash, because they contain the
/// compiler's flags.
fn support() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support")
}

impl Programs {
    /// Compiles `NAME.c`, which only some tests use, and returns the path of the program.
    pub fn other(&self, name: &str) -> PathBuf {
        let flags = ["-std=gnu11", "-rdynamic", "-ldl", "-lpthread"];
        compile(&self.directory, "cc", &format!("{name}.c"), name, &flags)
            .expect("a C compiler: Rust links with it")
    }

    /// Compiles a shared library, and returns its path.
    pub fn shared(&self, source: &str, name: &str, flags: &[&str]) -> PathBuf {
        let flags = [&["-std=gnu11", "-shared", "-fPIC"], flags, &["-ldl"]].concat();
        compile(&self.directory, "cc", source, name, &flags)
            .expect("a C compiler: Rust links with it")
    }

    /// Compiles `loops_host.c` and returns its path.
    pub fn loops(&self, name: &str, flags: &[&str]) -> PathBuf {
        let flags = [&["-std=gnu11", "-rdynamic"], flags, &["-ldl", "-lpthread"]].concat();
        compile(&self.directory, "cc", "loops_host.c", name, &flags)
            .expect("a C compiler: Rust links with it")
    }

    /// Compiles `NAME.cc`, or skips the test and returns `None` if there is no C++ compiler.
    pub fn cpp(&self, test: &str, name: &str) -> Option<PathBuf> {
        // The C headers initialise structures with {0}, which `-Wmissing-field-initializers` would
        // report.
        let flags = ["-std=c++17", "-Wno-missing-field-initializers", "-ldl", "-lpthread"];
        let program = compile(&self.directory, "c++", &format!("{name}.cc"), name, &flags);
        if program.is_none() {
            skip(test, "no C++ compiler (c++)");
        }
        program
    }

    pub fn get() -> &'static Self {
        static PROGRAMS: OnceLock<Programs> = OnceLock::new();
        PROGRAMS.get_or_init(|| {
            let directory = built();
            let compile = |source: &str, name: &str, flags: &[&str]| {
                let flags = [&["-std=gnu11"], flags].concat();
                compile(&directory, "cc", source, name, &flags)
                    .expect("a C compiler: Rust links with it")
            };
            Self {
                host: compile("host.c", "host", &["-ldl", "-lpthread", "-lrt"]),
                watchful: compile("watchful.c", "watchful", &["-ldl", "-lpthread"]),
                two: compile("two.c", "two", &["-ldl"]),
                storm: compile("storm.c", "storm", &["-ldl"]),
                entries: compile("entries.c", "entries", &["-ldl", "-lpthread"]),
                hook_host: compile("hook_host.c", "hook_host", &["-ldl", "-lpthread"]),
                library: compile("library.c", "library.so", &["-shared", "-fPIC"]),
                library_v5: compile(
                    "library.c",
                    "library5.so",
                    &["-shared", "-fPIC", "-DABI_VERSION=5", "-DLIBRARY_NAME=\"five_linked\""],
                ),
                directory,
            }
        })
    }
}

/// A profile that was just recorded, with the output of `counterpoint run`.
pub struct Recorded {
    pub directory: testkit::Scratch,
    pub output: Output,
    pub program: PathBuf,
}

impl Recorded {
    pub fn run(program: &Path, events: &str, command: &mut Command) -> Self {
        Self::run_with(program, events, &[], command)
    }

    pub fn run_with(program: &Path, events: &str, options: &[&str], command: &mut Command) -> Self {
        let directory = testkit::Scratch::new();
        let mut run = Command::new(program);
        run.args(["run", "-e", events]).args(options).arg("-o").arg(directory.join("p.cpt"));
        run.arg("--");
        run.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => run.env(name, value),
                None => run.env_remove(name),
            };
        }
        if let Some(at) = command.get_current_dir() {
            run.current_dir(at);
        }
        let output = run.env("TMPDIR", directory.path()).output().unwrap();
        Self { directory, output, program: program.to_owned() }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join("p.cpt")
    }

    pub fn profile(&self) -> Profile {
        Profile::open(&self.path()).unwrap_or_else(|e| panic!("{e}; {:?}", self.output))
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub fn report(&self, options: &[&str]) -> Value {
        let mut report = Command::new(&self.program);
        report.arg("report").arg(self.path()).args(["--format", "json"]).args(options);
        let output = report.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the numbers of calls and of dispatches of each op.
    pub fn ops(&self) -> BTreeMap<String, (u64, u64)> {
        let report = self.report(&[]);
        let rows = report["rows"].as_array().unwrap();
        rows.iter()
            .map(|row| {
                let name = row["op"].as_str().unwrap().to_owned();
                (name, (row["calls"].as_u64().unwrap(), row["dispatches"].as_u64().unwrap()))
            })
            .collect()
    }

    /// Returns the rows of `counterpoint export`, each as a map from column names to fields.
    pub fn calls(&self) -> Vec<BTreeMap<String, String>> {
        let mut export = Command::new(&self.program);
        export.arg("export").arg(self.path()).args(["--format", "csv"]);
        let output = export.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        lines
            .map(|line| {
                header.iter().map(|h| h.to_string()).zip(line.split(',').map(str::to_owned))
            })
            .map(Iterator::collect)
            .collect()
    }

    pub fn losses(&self) -> BTreeMap<String, u64> {
        self.profile().all_losses().into_iter().map(|l| (l.name, l.count)).collect()
    }

    /// Returns the number of calls of each process, from the smallest number to the largest.
    pub fn calls_per_process(&self) -> Vec<u64> {
        let profile = self.profile();
        let mut calls: Vec<u64> = profile
            .processes
            .iter()
            .map(|p| p.threads.iter().flat_map(|t| t.headers()).map(|h| u64::from(h.calls)).sum())
            .collect();
        calls.sort_unstable();
        calls
    }
}

/// Checks that the program prints the same to stdout and ends in the same way as without
/// Counterpoint, and that its profile has the given calls and losses. `calls` are the sorted
/// numbers of calls of the program's processes. In the expected losses, `None` accepts any number
/// above 0.
pub fn same_as_without(
    program: &Path,
    what: &str,
    make: impl Fn() -> Command,
    calls: &[u64],
    losses: &[(&str, Option<u64>)],
) -> Recorded {
    let with = Recorded::run(program, "page-faults:u,task-clock:u", &mut make());
    let without = plain(&mut make(), with.directory.path());
    assert_eq!(with.output.status.code(), without.status.code(), "{what}: {}", with.stderr());
    assert_eq!(with.output.status.signal(), without.status.signal(), "{what}");
    assert_eq!(with.output.stdout, without.stdout, "{what}");
    assert_eq!(with.calls_per_process(), *calls, "{what}");
    let found = with.losses();
    let expected: BTreeMap<String, u64> = losses
        .iter()
        .map(|(name, count)| {
            let any = || found.get(*name).copied().unwrap_or(0);
            ((*name).to_owned(), count.unwrap_or_else(any))
        })
        .collect();
    assert_eq!(found, expected, "{what}");
    // On standard error, Counterpoint writes one line after the program's own output.
    let words = String::from_utf8_lossy(&without.stderr).into_owned();
    let ours = with.stderr();
    let rest = ours.strip_prefix(&words).unwrap_or_else(|| panic!("{what}: {ours}"));
    assert_eq!(rest.lines().count(), 1, "{what}: {rest}");
    assert!(rest.starts_with("counterpoint: "), "{what}: {rest}");
    with
}

/// Returns the variables that `counterpoint env` prints for a new profile.
pub fn environment(program: &Path, events: &str, path: &Path) -> Vec<(String, String)> {
    let mut env = Command::new(program);
    let output = env.args(["env", "-e", events, "-o"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let variable = |line: &str| {
        let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
        // The values are quoted for a shell. For paths of tests, it is enough to remove the quotes.
        (name.to_owned(), value.trim_matches('\'').to_owned())
    };
    lines.lines().map(variable).collect()
}

/// Runs the command without Counterpoint, for comparison.
pub fn plain(command: &mut Command, scratch: &Path) -> Output {
    command.env("TMPDIR", scratch).output().unwrap()
}
