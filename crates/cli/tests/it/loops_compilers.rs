//! Tests `counterpoint cc`, `c++` and `rustc` in the place of compilers, in builds with make, CMake
//! and cargo. The loops of the built programs must be executed as often as was computed on paper.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use testkit::Scratch;

use crate::support::{counterpoint, skip};

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn ok(command: &mut Command) -> Output {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

fn tools(test: &str) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let program = counterpoint(test)?;
    let (clang, plus) = (testkit::c::clang(15), testkit::c::compiler("clang++"));
    match (clang, plus) {
        (Some(clang), Some(plus)) => Some((program, clang, plus)),
        _ => {
            skip(test, "no clang of LLVM 15 or later");
            None
        }
    }
}

fn has(test: &str, program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skip(test, &format!("no {program}"));
    }
    found
}

/// Returns `(function, depth of the loop, hits)` for each function and loop with hits, sorted. A
/// hit is one execution of a function or of a whole loop.
fn hits(
    program: &Path,
    recorded: &Path,
    folder: &Path,
    prints: &str,
) -> Vec<(String, Option<u64>, u64)> {
    let alone = ok(&mut Command::new(recorded));
    assert_eq!(String::from_utf8_lossy(&alone.stdout), prints);
    let profile = folder.join("p.cpt");
    let mut command = Command::new(program);
    command.args(["run", "--loops", "-e", "none", "-o"]).arg(&profile).arg("--").arg(recorded);
    assert_eq!(ok(&mut command).stdout, alone.stdout);
    let mut command = Command::new(program);
    command.args(["loops", "report", "--format", "json"]).arg(&profile);
    let document: Value = serde_json::from_slice(&ok(&mut command).stdout).unwrap();
    let mut all = Vec::new();
    for module in document["modules"].as_array().unwrap() {
        for row in module["rows"].as_array().unwrap() {
            let hits = row["hits"].as_u64().unwrap();
            let function = row["function"].as_str().unwrap().to_owned();
            all.push((function, row["depth"].as_u64(), hits));
        }
    }
    all.retain(|(_, _, hits)| *hits > 0);
    all.sort();
    all
}

/// Returns the source of a function that adds up `a[i] * a[j]` for all `j` < `i` < `n`. Its outer
/// loop is instrumented.
fn kernel(number: u64) -> String {
    format!(
        "double kernel{number}(const double *a, int n) {{\n  double sum = 0;\n  for (int i = 0; i < n; i++)\n    \
         for (int j = 0; j < i; j++)\n      sum += a[i] * a[j];\n  return sum;\n}}\n"
    )
}

#[test]
fn twenty_files_and_a_makefile() {
    let test = "loops_compilers make";
    let Some((program, clang, _)) = tools(test) else { return };
    if !has(test, "make") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path();
    let (mut main, mut sum) = (String::from("#include <stdio.h>\n"), String::new());
    for number in 1..20 {
        fs::write(folder.join(format!("k{number}.c")), kernel(number)).unwrap();
        main += &format!("double kernel{number}(const double *, int);\n");
        sum += &format!("  for (int r = 0; r < {number}; r++) s += kernel{number}(a, 4);\n");
    }
    main += "int main(void) {\n  double a[4] = {1, 1, 1, 1}, s = 0;\n";
    main += &format!("{sum}  printf(\"%g\\n\", s);\n  return 0;\n}}\n");
    fs::write(folder.join("main.c"), main).unwrap();
    let makefile = "OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))\n\
        CFLAGS = -O2 -Wall -Werror -MMD -fno-vectorize -fno-unroll-loops\n\
        prog: $(OBJECTS)\n\t$(CC) -o $@ $^ -lm\n-include $(OBJECTS:.o=.d)\n";
    fs::write(folder.join("Makefile"), makefile).unwrap();
    let variable = format!("CC={} cc", program.display());
    let mut make = Command::new("make");
    make.arg("-C").arg(folder).arg(variable).env("COUNTERPOINT_CC", clang);
    let made = ok(&mut make);
    assert_eq!(String::from_utf8_lossy(&made.stderr), "");
    // The file of dependencies that `-MMD` asks for names the object and its source, as without
    // instrumentation.
    let dependencies = fs::read_to_string(folder.join("k1.d")).unwrap();
    assert!(dependencies.starts_with("k1.o: k1.c"), "{dependencies}");
    // A call of a kernel adds up 0 + 1 + 2 + 3 = 6 products. Kernel k is called k times.
    let found = hits(&program, &folder.join("prog"), folder, "1140\n");
    for number in 1..20 {
        let name = format!("kernel{number}");
        let of: Vec<_> = found.iter().filter(|(function, ..)| *function == name).collect();
        let expected = [(name.clone(), None, number), (name.clone(), Some(0), number)];
        assert_eq!(of, expected.iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_project_of_cmake() {
    let test = "loops_compilers cmake";
    let Some((program, clang, plus)) = tools(test) else { return };
    if !has(test, "cmake") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path();
    let lists = "cmake_minimum_required(VERSION 3.16)\nproject(prog C CXX)\n\
        add_library(kernel STATIC kernel.cpp)\nadd_executable(prog main.c)\n\
        target_link_libraries(prog kernel)\n";
    fs::write(folder.join("CMakeLists.txt"), lists).unwrap();
    let cpp = "#include <vector>\ntemplate <typename T> [[gnu::noinline]] T product(const std::vector<T> &a, int n) {\n  \
        T s = 0;\n  for (int i = 0; i < n; i++)\n    for (auto x : a) s += x * i;\n  return s;\n}\n\
        extern \"C\" double kernel(int n) { std::vector<double> a(n, 1.0); return product(a, n); }\n";
    fs::write(folder.join("kernel.cpp"), cpp).unwrap();
    let main = "#include <stdio.h>\ndouble kernel(int);\nint main(void) { printf(\"%g\\n\", kernel(10) + \
        kernel(10)); return 0; }\n";
    fs::write(folder.join("main.c"), main).unwrap();
    let build = folder.join("build");
    let of = |name: &str| format!("{} {name}", program.display());
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(folder).arg("-B").arg(&build).arg("-DCMAKE_BUILD_TYPE=Release");
    configure.env("CC", of("cc")).env("CXX", of("c++"));
    ok(configure.env("COUNTERPOINT_CC", &clang).env("COUNTERPOINT_CXX", &plus));
    let mut make = Command::new("cmake");
    ok(make.arg("--build").arg(&build).env("COUNTERPOINT_CC", clang).env("COUNTERPOINT_CXX", plus));
    // The program prints 2 × (0 + … + 9) × 10.
    let found = hits(&program, &build.join("prog"), folder, "900\n");
    let product: Vec<_> = found.iter().filter(|(name, ..)| name.contains("product")).collect();
    assert!(product.iter().any(|(_, depth, hits)| depth.is_none() && *hits == 2), "{found:?}");
    assert!(product.iter().any(|(_, depth, hits)| *depth == Some(0) && *hits == 2), "{found:?}");
}

#[test]
fn a_program_of_cargo() {
    let test = "loops_compilers cargo";
    let Some(program) = counterpoint(test) else { return };
    if !has(test, "cargo") || !has(test, "ar") {
        return;
    }
    let about = ok(Command::new("rustc").arg("-vV"));
    let about = String::from_utf8_lossy(&about.stdout).into_owned();
    let llvm = about.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let llvm: u32 = llvm.unwrap().split('.').next().unwrap().parse().unwrap();
    let Some(clang) = testkit::c::clang(llvm) else {
        skip(test, "no clang whose LLVM is as new as that of rustc");
        return;
    };
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::create_dir(folder.join("src")).unwrap();
    let manifest =
        "[package]\nname = \"prog\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // The linker gets the object of `lib.rs` in an archive.
    let of = |name: &str, public: &str| {
        format!(
            "#[inline(never)]\n{public}fn {name}(a: &[f64]) -> f64 {{\n    let mut s = 0.0;\n    for i in 0..a.len() \
             {{\n        for j in 0..i {{\n            s += a[i] * a[j];\n        }}\n    }}\n    s\n}}\n"
        )
    };
    fs::write(folder.join("src/lib.rs"), of("inside", "pub ")).unwrap();
    let main = "fn main() {\n    let a = vec![1.0; 5];\n    \
        println!(\"{} {}\", prog::inside(&a), rows(&a) + rows(&a[1..]));\n}\n";
    fs::write(folder.join("src/main.rs"), of("rows", "") + main).unwrap();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--offline", "--quiet"]).current_dir(folder);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", &program).env("COUNTERPOINT_CC", &clang);
    cargo.env("CARGO_TARGET_DIR", folder.join("target")).env_remove("RUSTC_WRAPPER");
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTC");
    let built = ok(&mut cargo);
    assert_eq!(String::from_utf8_lossy(&built.stderr), "");
    let found = hits(&program, &folder.join("target/release/prog"), folder, "10 16\n");
    for (name, expected) in [("inside", 1), ("rows", 2)] {
        let of = |depth: Option<u64>| {
            let named =
                found.iter().filter(|(function, of, _)| function.contains(name) && *of == depth);
            named.map(|(.., hits)| *hits).collect::<Vec<_>>()
        };
        assert_eq!([of(None), of(Some(0))], [vec![expected], vec![expected]], "{found:?}");
    }
}

/// Returns the outputs of clang and of `counterpoint cc`.
fn both(program: &Path, clang: &Path, folder: &Path, words: &[&str]) -> [Output; 2] {
    let alone = run(Command::new(clang).args(words).current_dir(folder));
    let mut ours = Command::new(program);
    ours.arg("cc").args(words).current_dir(folder).env("COUNTERPOINT_CC", clang);
    // `counterpoint cc` runs last: both write the same files.
    [alone, run(&mut ours)]
}

#[test]
fn what_clang_says_and_does_stays() {
    let test = "loops_compilers clang";
    let Some((program, clang, _)) = tools(test) else { return };
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::write(folder.join("a.c"), kernel(1)).unwrap();
    fs::write(folder.join("bad.c"), "int f(void) { return x; }\n").unwrap();
    fs::write(folder.join("warned.c"), "int f(void) { int unused; return 1; }\n").unwrap();
    fs::write(folder.join("undefined.c"), "int g(void);\nint main(void) { return g(); }\n")
        .unwrap();
    fs::write(folder.join("arguments"), "-O2 -c\n\"a.c\" -o from-file.o").unwrap();
    // With these arguments, clang compiles nothing, prints a warning, or finds an error;
    // `counterpoint cc` must do and print the same.
    for words in [
        &["-E", "a.c"][..],
        &["-M", "a.c"],
        &["-MM", "-MT", "x", "a.c"],
        &["-c", "bad.c"],
        &["-c", "missing.c"],
        &["-c", "-Wall", "-Werror", "warned.c"],
        &["-c", "-Wall", "warned.c"],
        &["-fsyntax-only", "-Wall", "warned.c"],
        &["-c", "a.c", "missing.c"],
        &["a.c", "missing.o"],
        &["-c", "a.c", "bad.c", "warned.c", "-Wall"],
        &["-c", "a.c", "bad.c", "-o", "x.o"],
        &["--version"],
        &["-print-prog-name=ld"],
        &["--color=always"],
        &[],
    ] {
        let [clang, ours] = both(&program, &clang, folder, words);
        let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said(&ours), said(&clang), "{words:?}");
        assert_eq!(
            (ours.status.code(), ours.stdout),
            (clang.status.code(), clang.stdout),
            "{words:?}"
        );
    }
    // For these commands, `counterpoint cc` prints one line that says why it did not instrument the
    // output.
    for (words, made, why) in [
        (&["-S", "-O2", "a.c"][..], "a.s", "it asks for assembly"),
        (&["-c", "-O2", "-flto", "a.c", "-o", "lto.o"], "lto.o", "-flto leaves"),
        (&["-c", "-O2", "-emit-llvm", "a.c"], "a.bc", "it asks for LLVM's own format"),
    ] {
        let [_, ours] = both(&program, &clang, folder, words);
        let said = String::from_utf8_lossy(&ours.stderr).into_owned();
        assert!(said.starts_with(&format!("counterpoint: not instrumented: a.c: {why}")), "{said}");
        assert_eq!((said.lines().count(), ours.status.code()), (1, Some(0)), "{said}");
        assert!(!has_descriptor(&folder.join(made)), "{words:?}");
        assert!(folder.join(made).is_file(), "{words:?}");
    }
    left_to_clang(&program, &clang, folder);
    // `counterpoint cc` instruments what these commands compile, and prints no message.
    let preprocessed = both(&program, &clang, folder, &["-E", "a.c", "-o", "a.i"]);
    assert!(preprocessed.iter().all(|output| output.status.success()));
    fs::write(
        folder.join("main.c"),
        "double kernel1(const double *, int);\nint main(void) { double a[3] = \
        {1, 1, 1}; return (int)kernel1(a, 3); }\n",
    )
    .unwrap();
    for (words, made) in [
        (&["@arguments"][..], "from-file.o"),
        (&["-c", "-O2", "a.i", "-o", "i.o"], "i.o"),
        (&["-O2", "-Wall", "-Werror", "-I.", "main.c", "a.c", "-lm", "-o", "prog"], "prog"),
    ] {
        let [_, ours] = both(&program, &clang, folder, words);
        assert_eq!(String::from_utf8_lossy(&ours.stderr), "", "{words:?}");
        assert!(has_descriptor(&folder.join(made)), "{words:?}");
    }
    // The exit status of `prog` is the number of products that `kernel1` adds up: 0 + 1 + 2.
    assert_eq!(run(&mut Command::new(folder.join("prog"))).status.code(), Some(3));
    let [clang_failed, ours] = both(&program, &clang, folder, &["undefined.c", "-o", "x"]);
    assert_eq!(ours.status.code(), clang_failed.status.code());
    assert!(String::from_utf8_lossy(&ours.stderr).contains("undefined reference to `g'"));
    let with_wrong_options = |compiler: &Path, words: &[&str]| {
        let mut wrong = Command::new(&program);
        wrong.arg("cc").args(words).current_dir(folder).env("COUNTERPOINT_CC", compiler);
        let wrong = run(wrong.env("COUNTERPOINT_LOOPS", "--mode often"));
        (wrong.status.code(), String::from_utf8_lossy(&wrong.stderr).into_owned())
    };
    // A wrong option in `COUNTERPOINT_LOOPS` is an error, even if `counterpoint cc` would not
    // instrument what the command compiles.
    let other = folder.join("no-clang");
    fs::write(&other, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    for (compiler, words) in [
        (&*clang, &["-c", "a.c"][..]),
        (&*clang, &["-c", "-no-such-option", "a.c"]),
        (&*clang, &["a.c", "main.c", "-o", "wrong"]),
        (&*other, &["-c", "a.c"]),
    ] {
        let (status, said) = with_wrong_options(compiler, words);
        assert_eq!(status, Some(1), "{words:?}: {said}");
        assert!(said.contains("COUNTERPOINT_LOOPS=--mode often: invalid value 'often'"), "{said}");
    }
    // For commands that compile nothing, `counterpoint cc` does not read `COUNTERPOINT_LOOPS`.
    for words in [&["--version"][..], &["i.o", "-shared", "-o", "linked.so"]] {
        assert_eq!(with_wrong_options(&clang, words).0, Some(0), "{words:?}");
    }
}

/// For these commands, which have unusual options or files, `counterpoint cc` instruments nothing,
/// and clang executes them unchanged.
fn left_to_clang(program: &Path, clang: &Path, folder: &Path) {
    fs::create_dir(folder.join("folder")).unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.join("null")).unwrap();
    fs::write(folder.join("marked"), "\u{feff}-c a.c -o marked.o").unwrap();
    let frame = "void use(char *);\nvoid f(void) { char b[5000]; use(b); }\n";
    fs::write(folder.join("frame.c"), frame).unwrap();
    let inline = "void f(void) { int unused; __asm__(\"no such\"); }\n";
    fs::write(folder.join("inline.c"), inline).unwrap();
    for (words, why) in [
        (&["-c", "a.c", "-o", "null"][..], "the output is not a regular file"),
        (&["-c", "a.c", "-o", ""], "the output has no name"),
        (&["-c", "a.c", "-o"], "what -o does"),
        (&["-c", "a.c", "missing.o"], "it has files for the linker"),
        (&["a.c", "folder"], "an input is not a regular file"),
        (&["-c", "-x", "c", "/dev/stdin", "-o", "in.o"], "an input is not a regular file"),
        (&["-c", "-x", "c", "/proc/self/fd/0", "-o", "in.o"], "an input is not a regular file"),
        (&["-c", "-include", "/dev/stdin", "a.c"], "an input is not a regular file"),
        (&["-c", "-no-such-option", "a.c"], "what -no-such-option does"),
        (&["-c", "-Wp,-MD,w.d", "a.c"], "what -Wp,-MD,w.d does"),
        (&["-c", "-Xclang", "-fsyntax-only", "a.c"], "what -Xclang -fsyntax-only does"),
        (&["-c", "-iwithsysroot", "a.c", "a.c"], "what -iwithsysroot does"),
        (&["-c", "--driver-mode=cl", "a.c"], "what --driver-mode=cl does"),
    ] {
        let [clang, ours] = both(program, clang, folder, words);
        let said = String::from_utf8_lossy(&ours.stderr).into_owned();
        let (line, rest) = said.split_once('\n').unwrap();
        assert!(line.starts_with("counterpoint: not instrumented: "), "{words:?}: {said}");
        assert!(line.contains(why), "{words:?}: {said}");
        assert_eq!(rest, String::from_utf8_lossy(&clang.stderr), "{words:?}");
        assert_eq!((ours.status, ours.stdout), (clang.status, clang.stdout), "{words:?}");
    }
    assert!(folder.join("null").is_symlink());
    let dependencies = fs::read_to_string(folder.join("w.d")).unwrap();
    assert!(dependencies.starts_with("a.o: a.c"), "{dependencies}");
    // Clang finds these problems in the second step of `counterpoint cc`, which makes an object
    // from LLVM IR. Each message is printed once.
    for words in [
        &["-O2", "-c", "frame.c", "-Wframe-larger-than=100", "-Werror"][..],
        &["-O2", "-c", "frame.c", "-Wframe-larger-than=100"],
        &["-O2", "-c", "frame.c", "-Wframe-larger-than=100", "-Wno-such-warning"],
        &["-c", "inline.c", "-Wall"],
    ] {
        let [clang, ours] = both(program, clang, folder, words);
        let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text(&ours).ends_with(&text(&clang)), "{words:?}: {}", text(&ours));
        let own = |line: &&str| !line.starts_with("counterpoint: not instrumented: ");
        let (said, alone) = (text(&ours), text(&clang));
        assert!(said.lines().filter(own).eq(alone.lines()), "{words:?}: {said}");
        assert_eq!(ours.status.code(), clang.status.code(), "{words:?}");
    }
    let [clang_alone, ours] = both(program, clang, folder, &["@marked"]);
    assert_eq!((ours.status, ours.stderr), (clang_alone.status, clang_alone.stderr));
    // If the source has an error, the object of an earlier build is removed.
    fs::write(folder.join("bad.o"), "old").unwrap();
    let mut command = Command::new(program);
    command.args(["cc", "-c", "bad.c"]).current_dir(folder).env("COUNTERPOINT_CC", clang);
    assert!(!run(&mut command).status.success());
    assert!(!folder.join("bad.o").exists());
    // An error in `counterpoint.toml` causes one line on stderr, and the file is compiled and
    // instrumented nevertheless.
    let project = folder.join("folder");
    fs::write(project.join("counterpoint.toml"), "no-such-key = 1\n").unwrap();
    let mut command = Command::new(program);
    command.args(["cc", "-O2", "-c", "../a.c"]).current_dir(&project);
    let made = ok(command.env("COUNTERPOINT_CC", clang));
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(said.contains("counterpoint.toml:1: ") && said.lines().count() == 1, "{said}");
    assert!(has_descriptor(&project.join("a.o")));
}

#[test]
fn a_signal_ends_the_compiler_and_removes_what_is_in_between() {
    let test = "loops_compilers signal";
    let Some((program, _, _)) = tools(test) else { return };
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::write(folder.join("a.c"), kernel(1)).unwrap();
    let temporary = folder.join("temporary");
    fs::create_dir(&temporary).unwrap();
    let compiler = folder.join("clang");
    fs::write(&compiler, "#!/bin/sh\necho $$ > pid.new\nmv pid.new pid\nexec sleep 600\n").unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.args(["cc", "a.c", "-o", "prog"]).current_dir(folder);
    command.env("COUNTERPOINT_CC", &compiler).env("TMPDIR", &temporary);
    let mut ours = command.spawn().unwrap();
    let pid = loop {
        if let Ok(pid) = fs::read_to_string(folder.join("pid")) {
            break pid;
        }
        assert_eq!(ours.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1);
    ok(Command::new("kill").arg("-TERM").arg(ours.id().to_string()));
    assert_eq!(ours.wait().unwrap().signal(), Some(15));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}

#[test]
fn rustc_without_emit_links() {
    let test = "loops_compilers rustc";
    let Some(program) = counterpoint(test) else { return };
    if !has(test, "rustc") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path();
    fs::write(folder.join("a.rs"), "fn main() { println!(\"{}\", 6 * 7); }\n").unwrap();
    let mut command = Command::new(program);
    command.args(["rustc", "a.rs", "-O", "--crate-name", "x"]).current_dir(folder);
    ok(&mut command);
    assert_eq!(ok(&mut Command::new(folder.join("x"))).stdout, b"42\n");
}

/// Returns whether a file contains the descriptor of an instrumented module.
fn has_descriptor(file: &Path) -> bool {
    fs::read(file).unwrap().windows(8).any(|bytes| bytes == b"CPLOOPS1")
}
