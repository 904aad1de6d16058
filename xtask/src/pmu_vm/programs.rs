//! Compiles C programs for the guest, and finds the libraries that they load there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use abi::loops::Mode;
use anyhow::{Context, Result, bail, ensure};
use ir::choice::{Functions, Options};

use crate::elf::Elf;
use crate::layout::Layout;
use crate::process::quiet;
use crate::setup::{self, List};

/// The guest's dynamic loader, which looks for libraries in the folder [`LIBRARIES`].
const LOADER: &str = "ld-linux-aarch64.so.1";
pub const LIBRARIES: &str = "lib/aarch64-linux-gnu";

pub struct C {
    /// Compiled programs and libraries. Each entry has the path in the guest and the file on the
    /// host.
    pub files: Vec<(String, PathBuf)>,
    /// A file with the expected number of instructions per iteration of the loop in `bin/sum`: its
    /// path in the guest, and its path on the host.
    pub data: (String, PathBuf),
    /// The folder that contains `libpmu_vm_reader.a`, with which the guest's main program is
    /// linked.
    pub folder: PathBuf,
}

/// Builds the C programs and libraries for the guest. `root` is the folder with Debian's unpacked
/// arm64 packages.
pub fn build(layout: &Layout, root: &Path) -> Result<C> {
    let folder = super::home(layout).join("c");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let [include, lib] = ["usr/include", "usr/lib/aarch64-linux-gnu"]
        .map(|below| root.join(below).to_string_lossy().into_owned());
    let papi = folder.join("papi");
    let arguments = ["-target", "aarch64-linux-gnu.2.28", "-I", &include, "-L", &lib, "-lpapi"];
    compile(layout, "tests/pmu-vm/c/papi.c", &arguments, &papi)?;

    let object = folder.join("reader.o");
    let arguments = ["-target", "aarch64-linux-musl", "-c"];
    if compile(layout, "tests/pmu-vm/c/reader.c", &arguments, &object)? {
        let archive = folder.join("libpmu_vm_reader.a");
        let mut command = zig(layout, "ar")?;
        command.arg("rcs").args([archive, object]);
        quiet(&mut command, "make an archive of reader.o")?;
    }

    // A program, and a library like those that IREE's compiler makes, whose functions the program
    // calls.
    let gnu = ["-target", "aarch64-linux-gnu.2.28"];
    let host = folder.join("host");
    let flags = ["-Wno-unused-parameter", "-ldl", "-lpthread"];
    compile(layout, "tests/programs/host.c", &[&gnu[..], &flags].concat(), &host)?;
    let library = folder.join("library.so");
    let flags = ["-shared", "-fPIC"];
    compile(layout, "tests/programs/library.c", &[&gnu[..], &flags].concat(), &library)?;
    // Another such program and library, with functions that execute known numbers of instructions.
    let [known, known_library] = ["known", "known.so"].map(|name| folder.join(name));
    let source = "tests/pmu-vm/c/known.c";
    let flags = ["-Wno-unused-function", "-ldl"];
    compile(layout, source, &[&gnu[..], &flags].concat(), &known)?;
    let flags = ["-DLIBRARY", "-Wno-unused-function", "-shared", "-fPIC"];
    compile(layout, source, &[&gnu[..], &flags].concat(), &known_library)?;
    // A program whose loops are instrumented by hand, compiled for three modes of instrumentation.
    let mut loops = Vec::new();
    for mode in ["0", "1", "3"] {
        let program = folder.join(format!("loops{mode}"));
        let mode_flag = format!("-DMODE={mode}");
        let flags = ["-rdynamic", "-ldl", "-lpthread", &mode_flag];
        compile(layout, "tests/programs/loops_host.c", &[&gnu[..], &flags].concat(), &program)?;
        loops.push((format!("bin/loops{mode}"), program));
    }
    let (sum, expected) = instrumented(layout, &folder, &gnu)?;
    loops.push(("bin/sum".into(), sum));
    let mut files = vec![
        ("bin/papi".into(), papi),
        ("bin/host".into(), host),
        ("lib/library.so".into(), library),
        ("bin/known".into(), known),
        ("lib/known.so".into(), known_library),
    ];
    files.append(&mut loops);
    Ok(C { files, data: ("etc/sum.instructions".into(), expected), folder })
}

/// Builds a program with an instrumented loop. Returns the program, and a file with the number of
/// instructions that the loop's machine code executes per iteration.
fn instrumented(layout: &Layout, folder: &Path, gnu: &[&str]) -> Result<(PathBuf, PathBuf)> {
    let [text, changed, program, expected] =
        ["sum.ll", "sum.lwp.ll", "sum", "sum.instructions"].map(|name| folder.join(name));
    let source = "tests/programs/loops/sum.c";
    compile(
        layout,
        source,
        &[
            gnu,
            &[
                "-S",
                "-emit-llvm",
                "-g0",
                "-fno-sanitize=all",
                "-fno-unroll-loops",
                "-fno-vectorize",
                "-Wno-unused-command-line-argument",
            ],
        ]
        .concat(),
        &text,
    )?;
    let options = Options {
        mode: Mode::Timed,
        max_depth: None,
        min_height: Some(0),
        siblings: false,
        functions: Functions::None,
        filter: Some(&|name| name == "sum"),
        schedule: None,
        target: None,
        source,
    };
    let bytes = std::fs::read(&text).with_context(|| format!("read {}", text.display()))?;
    let done = ir::instrument::instrument(&bytes, &options)
        .with_context(|| format!("instrument {}", text.display()))?;
    std::fs::write(&changed, &done.text).with_context(|| format!("write {}", changed.display()))?;
    let flags = ["-O2", "-Xclang", "-disable-llvm-passes", "-Wno-everything", "-rdynamic", "-ldl"];
    let mut command = zig(layout, "cc")?;
    command.args(gnu).args(flags).arg(&changed).arg("-o").arg(&program);
    quiet(&mut command, "compile sum.lwp.ll")?;
    let bytes = std::fs::read(&program).with_context(|| format!("read {}", program.display()))?;
    let image = code::Image::elf(&bytes)?;
    let module = image.modules().pop().context("sum has no descriptor")?;
    let wanted = code::Wanted { descriptor: module.address, ids: module.ids, mode: Mode::Timed };
    let regions = code::regions(&image, &wanted)?;
    let loops = &regions.found.get(&0).context("sum's loop has no code")?.loops;
    let [only] = loops.as_slice() else { bail!("sum has {} machine loops", loops.len()) };
    ensure!(only.straight, "sum's loop has branches");
    std::fs::write(&expected, only.counts.instructions.to_string())?;
    Ok((program, expected))
}

/// Returns a command for a tool of zig. zig contains clang, and C libraries with start files for
/// both targets used here.
fn zig(layout: &Layout, tool: &str) -> Result<Command> {
    setup::install(layout, &[List::Build])?;
    let mut command = Command::new(layout.venv_bin("python"));
    command.args(["-m", "ziglang", tool]);
    Ok(command)
}

/// Compiles `source`, unless `to` is newer. Returns whether it was compiled.
fn compile(layout: &Layout, source: &str, arguments: &[&str], to: &Path) -> Result<bool> {
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let source = layout.root.join(source);
    if changed(to) > changed(&source) {
        return Ok(false);
    }
    let mut command = zig(layout, "cc")?;
    command.args(["-O2", "-Wall", "-Wextra", "-Werror"]);
    command.arg(&source).args(arguments).arg("-o").arg(to);
    quiet(&mut command, &format!("compile {}", layout.show(&source)))?;
    Ok(true)
}

/// Returns the files that the dynamically linked `programs` need in the guest: the programs, the
/// loader, and libraries from the packages below `root`.
pub fn with_libraries(
    root: &Path,
    programs: Vec<(String, PathBuf)>,
) -> Result<Vec<(String, PathBuf)>> {
    let mut seen = BTreeSet::from([LOADER.to_owned()]);
    let mut files = vec![(format!("lib/{LOADER}"), library(root, LOADER)?)];
    let mut open: Vec<PathBuf> = programs.iter().map(|(_, file)| file.clone()).collect();
    files.extend(programs);
    while let Some(file) = open.pop() {
        for name in Elf::read(&file)?.needed {
            if seen.insert(name.clone()) {
                let library = library(root, &name)?;
                files.push((format!("{LIBRARIES}/{name}"), library.clone()));
                open.push(library);
            }
        }
    }
    Ok(files)
}

fn library(root: &Path, name: &str) -> Result<PathBuf> {
    let places = ["lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"];
    places
        .iter()
        .map(|place| root.join(place).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is in none of the guest's packages"))
}
