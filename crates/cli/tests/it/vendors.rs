//! Tests the files that authors of plugins get. The examples are built with a copy of `dist/`,
//! without the source tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Scratch;

use crate::support::counterpoint;

/// Copies those folders of `dist/` that authors of plugins need. The library is left out, because
/// plugins are not linked with Counterpoint.
fn copied(program: &Path, scratch: &Scratch) -> PathBuf {
    let dist = program.parent().and_then(Path::parent).expect("dist");
    let to = scratch.join("a copy of dist");
    std::fs::create_dir_all(to.join("lib")).expect("makes a folder");
    for part in ["include", "share", "lib/pkgconfig", "lib/cmake"] {
        let done = Command::new("cp").arg("-r").arg(dist.join(part)).arg(to.join(part)).status();
        assert!(done.is_ok_and(|status| status.success()), "{part}");
    }
    to
}

fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn conforms(program: &Path, plugin: &Path) {
    let checked = must(Command::new(program).args(["plugin", "check"]).arg(plugin));
    assert!(checked.contains("conforms to Kineto's profiler plugin interface"), "{checked}");
}

fn example(dist: &Path, name: &str) -> PathBuf {
    dist.join("share/counterpoint/examples").join(name)
}

fn compile(compiler: &str, flags: &[String], source: &Path, to: &Path) {
    let standard = if compiler == "gcc" { "-std=gnu11" } else { "-std=c++17" };
    let mut command = Command::new(compiler);
    command.args([standard, "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]);
    must(command.args(flags).arg(source).arg("-o").arg(to).arg("-lpthread"));
}

const SOURCES: [(&str, &str); 2] = [("gcc", "plugin-c/clock.c"), ("g++", "plugin-cpp/queue.cpp")];

#[test]
fn the_examples_build_with_pkg_config() {
    let test = "examples with pkg-config";
    let Some(program) = counterpoint(test) else { return };
    if !has("pkg-config") {
        return testkit::skip(test, "no pkg-config");
    }
    let scratch = Scratch::new();
    let dist = copied(&program, &scratch);
    // The archive with the headers is also a package for pkg-config.
    let archives = std::fs::read_dir(dist.join("share/counterpoint")).expect("a folder");
    let archive = archives
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|end| end == "gz"))
        .expect("the headers");
    let alone = scratch.join("headers");
    std::fs::create_dir(&alone).expect("makes a folder");
    must(
        Command::new("tar")
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(&alone)
            .arg("--strip-components=1"),
    );
    for (place, root) in [("dist", &dist), ("headers", &alone)] {
        let mut config = Command::new("pkg-config");
        config.args(["--cflags", "--libs", "counterpoint-plugin"]);
        config.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
        // pkg-config quotes a path with a space as for a shell.
        let flags = must(&mut config).replace("\\ ", "\u{0}");
        let flags: Vec<String> =
            flags.split_whitespace().map(|flag| flag.replace('\u{0}', " ")).collect();
        assert!(flags.iter().any(|flag| flag.starts_with("-I")), "{flags:?}");
        for (compiler, source) in SOURCES {
            if !has(compiler) {
                testkit::skip(test, &format!("no {compiler}"));
                continue;
            }
            let plugin = scratch.join(&format!("{place}-{compiler}.so"));
            compile(compiler, &flags, &example(&dist, source), &plugin);
            conforms(&program, &plugin);
        }
    }
}

#[test]
fn the_examples_build_with_cmake() {
    let test = "examples with CMake";
    let Some(program) = counterpoint(test) else { return };
    if !has("cmake") || !has("make") {
        return testkit::skip(test, "no CMake");
    }
    let scratch = Scratch::new();
    let dist = copied(&program, &scratch);
    for (name, plugin) in [("plugin-c", "clock.so"), ("plugin-cpp", "queue.so")] {
        let build = scratch.join(name);
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(example(&dist, name)).arg("-B").arg(&build);
        must(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", dist.display())));
        must(Command::new("cmake").arg("--build").arg(&build));
        conforms(&program, &build.join(plugin));
    }
    // CMake must refuse a version of the package that does not exist.
    let project = scratch.join("later");
    std::fs::create_dir(&project).expect("makes a folder");
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(later C)\n\
                find_package(counterpoint-plugin 9.9 REQUIRED)\n";
    std::fs::write(project.join("CMakeLists.txt"), text).expect("writes");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&project).arg("-B").arg(scratch.join("later-build"));
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", dist.display()));
    assert!(!configure.output().expect("CMake starts").status.success());
}

#[test]
fn the_example_in_rust_builds_from_the_published_crates() {
    let test = "the example in Rust";
    let Some(program) = counterpoint(test) else { return };
    let scratch = Scratch::new();
    let dist = copied(&program, &scratch);
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--offline", "--quiet"]).current_dir(example(&dist, "plugin-rust"));
    must(build.env("CARGO_TARGET_DIR", scratch.join("target")));
    conforms(&program, &scratch.join("target/debug/libexample_plugin.so"));
    // As in a registry, the crates depend on each other by version and not by path.
    let crates = dist.join("share/counterpoint/crates");
    let manifest = std::fs::read_to_string(crates.join("counterpoint-plugin/Cargo.toml"));
    let manifest = manifest.expect("a manifest");
    assert!(manifest.contains("package = \"counterpoint-abi\""), "{manifest}");
    assert!(!manifest.contains("path = \"../"), "{manifest}");
    for licence in ["LICENSE-APACHE", "LICENSE-MIT", "docs/plugins.md", "docs/plugins-vendors.md"] {
        assert!(dist.join("share/doc/counterpoint").join(licence).is_file(), "{licence}");
    }
}
