//! Runs the shell commands in the examples of README.md, docs/ and the Python package's README.
//!
//! A fenced block of README.md, docs/ or the Python package's README states its language:
//!
//! | block | contents |
//! |---|---|
//! | `sh` | command lines, run here in the order of the page, in one directory per page |
//! | `console` | the same, in lines that begin with `$ `; the output is for the reader |
//! | `python` | run by `tests/python/tvm/test_docs.py` and the tests that it names |
//! | `rust` | run by `crates/measure/tests/documented.rs` |
//! | `text` | not an example |
//!
//! A comment immediately before a block gives instructions to these tests. Readers of the page do
//! not see it:
//!
//! | comment | meaning |
//! |---|---|
//! | `<!-- needs: IREE PMU -->` | skip the block, with a message, if something is missing (`IREE`, `TVM`, `PMU`) |
//! | `<!-- not run: WHY -->` | never run the block |
//! | `<!-- before: COMMAND -->` | run this before the block's own lines |
//! | `<!-- file: NAME -->` | the block is the content of a file that later blocks use |
//!
//! The directory in which a page's blocks run contains the files that pages assume: `dist/` and, if
//! there is IREE, `mlp.vmfb` and `PROGRAM`, which runs this module.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Iree, counterpoint, skip, tvm};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages() -> Vec<PathBuf> {
    let root = root();
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|p| p.extension() == Some("md".as_ref())).collect();
    pages.extend([root.join("README.md"), root.join("bindings/python/README.md")]);
    pages.sort();
    pages
}

/// A fenced block with the comments before it.
#[derive(Debug, Default)]
struct Block {
    line: usize,
    language: String,
    text: String,
    needs: Vec<String>,
    before: Vec<String>,
    not_run: Option<String>,
    file: Option<String>,
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut next = Block::default();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let comment = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        match (inside, line.strip_prefix("```"), comment.and_then(|c| c.split_once(": "))) {
            (true, Some(_), _) => {
                blocks.push(std::mem::take(&mut next));
                inside = false;
            }
            (true, None, _) => next.text += &format!("{line}\n"),
            (false, Some(language), _) => {
                (next.line, next.language, inside) = (number, language.to_owned(), true);
            }
            (false, None, Some(("needs", all))) => {
                next.needs = all.split(' ').map(str::to_owned).collect();
            }
            (false, None, Some(("before", command))) => next.before.push(command.to_owned()),
            (false, None, Some(("not run", why))) => next.not_run = Some(why.to_owned()),
            (false, None, Some(("file", name))) => next.file = Some(name.to_owned()),
            (false, None, _) => next = Block::default(),
        }
    }
    assert!(!inside, "{}: a block that does not end", page.display());
    blocks
}

impl Block {
    fn commands(&self) -> Option<String> {
        match self.language.as_str() {
            "sh" => Some(self.text.clone()),
            "console" => {
                let lines = self.text.lines().filter_map(|line| line.strip_prefix("$ "));
                Some(lines.map(|line| format!("{line}\n")).collect())
            }
            _ => None,
        }
    }
}

/// These tests could overlook a block whose language they do not know.
#[test]
fn every_block_says_what_it_is() {
    let known = ["sh", "console", "python", "rust", "text"];
    for page in pages() {
        for block in blocks(&page) {
            let at = format!("{}:{}", page.display(), block.line);
            assert!(known.contains(&block.language.as_str()), "{at}: {:?}", block.language);
            let commands = ["counterpoint ", "$ ", "cargo ", "iree-", "python ", "pip "];
            let looks = block.text.lines().any(|l| commands.iter().any(|c| l.starts_with(c)));
            assert!(!looks || block.commands().is_some(), "{at}: commands that are not run");
            for need in &block.needs {
                assert!(["IREE", "TVM", "PMU"].contains(&need.as_str()), "{at}: {need}");
            }
        }
    }
}

/// The directory in which the examples of a page run.
struct Place {
    directory: testkit::Scratch,
    path: String,
}

impl Place {
    fn new(program: &Path, iree: Option<&Iree>, tvm: Option<&Path>) -> Self {
        let directory = testkit::Scratch::new();
        let dist = program.parent().and_then(Path::parent).unwrap();
        symlink(dist, directory.join("dist")).unwrap();
        let mut path = vec![directory.path().to_owned(), dist.join("bin")];
        path.extend(tvm.and_then(Path::parent).map(Path::to_owned));
        if let Some(iree) = iree {
            symlink(iree.module("mlp", false), directory.join("mlp.vmfb")).unwrap();
            path.push(iree.tool(""));
            let line = "exec iree-run-module --module=mlp.vmfb --device=local-task --function=mlp \
                        --input=64x784xf32=1\n";
            let script = directory.join("PROGRAM");
            std::fs::write(&script, format!("#!/bin/sh\n{line}")).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let path = std::env::join_paths(path).unwrap().into_string().unwrap();
        Self { directory, path }
    }

    fn run(&self, at: &str, commands: &str) {
        let output = Command::new("bash")
            .args(["-e", "-u", "-o", "pipefail", "-c", commands])
            .current_dir(self.directory.path())
            .env("PATH", &self.path)
            .env("TMPDIR", self.directory.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{at}:\n{commands}\n{output:?}");
    }
}

fn has_pmu() -> bool {
    !machine::Machine::here().core_pmus().is_empty()
}

#[test]
fn every_command_line_runs() {
    const TEST: &str = "documented";
    let Some(program) = counterpoint(TEST) else { return };
    let (iree, tvm) = (Iree::new(TEST), tvm(TEST));
    let mut ran = 0;
    for page in pages() {
        let place = Place::new(&program, iree.as_ref(), tvm.as_deref());
        for block in blocks(&page) {
            let at = format!("{}:{}", page.strip_prefix(root()).unwrap().display(), block.line);
            if let Some(name) = &block.file {
                std::fs::write(place.directory.join(name), &block.text).unwrap();
            }
            let Some(commands) = block.commands() else { continue };
            let missing = block.needs.iter().find(|need| match need.as_str() {
                "IREE" => iree.is_none(),
                "TVM" => tvm.is_none(),
                _ => !has_pmu(),
            });
            match (missing, &block.not_run) {
                (_, Some(why)) => eprintln!("{at} is not run: {why}"),
                (Some(need), None) => {
                    skip(TEST, &format!("{at} needs {need}"));
                }
                (None, None) => {
                    block.before.iter().for_each(|command| place.run(&at, command));
                    place.run(&at, &commands);
                    ran += 1;
                }
            }
        }
    }
    assert!(ran >= 4 || iree.is_none() || tvm.is_none(), "only {ran} blocks were run");
}

#[test]
fn commands_in_running_text_exist() {
    let mut helps: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut help = |words: &[&str]| {
        let ask = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
            let output = command.args(words).arg("--help").output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        helps.entry(words.join(" ")).or_insert_with(ask).clone()
    };
    let mut looked_at = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for span in text.split('`').skip(1).step_by(2) {
            let Some(rest) = span.strip_prefix("counterpoint ") else { continue };
            // The words after `--` belong to another program.
            let own = rest.split(" -- ").next().unwrap_or_default();
            let words: Vec<&str> =
                own.split_whitespace().skip_while(|word| *word == "help").collect();
            let Some(&first) = words.first().filter(|w| w.starts_with(|c: char| c.is_lowercase()))
            else {
                continue;
            };
            let at = format!("{}: `{span}`", page.display());
            let text = help(&[first]).unwrap_or_else(|| panic!("{at}: no such command"));
            // `query` has subcommands, but can also be used with options only.
            let nested = words.get(1).filter(|word| !word.starts_with('-'));
            let nested = nested.filter(|_| text.contains("Commands:"));
            let text = match nested {
                Some(second) => help(&[first, second]).unwrap_or_else(|| panic!("{at}: {second}")),
                None => text,
            };
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let option = option.split(['=', '[', '\\', '|']).next().unwrap();
                assert!(option == "--help" || text.contains(option), "{at}: {option}");
            }
            looked_at += 1;
        }
    }
    assert!(looked_at > 20, "{looked_at}");
}

/// Returns the lines of code in the comment at the top of a C header. These lines are indented by
/// five spaces.
fn in_comments(header: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("include/counterpoint").join(header)).unwrap();
    let comment = text.split("*/").next().unwrap();
    let lines = comment.lines().filter_map(|line| line.strip_prefix(" *     "));
    lines.map(str::to_owned).collect()
}

/// The test compiles the examples of the two C headers as parts of one program.
#[test]
fn examples_of_the_headers_run() {
    const TEST: &str = "documented-headers";
    let Some(program) = counterpoint(TEST) else { return };
    let mut collector = in_comments("collector.h");
    let add = collector.pop().unwrap();
    let agent = in_comments("agent.h");
    let [find] = agent.as_slice() else { panic!("{agent:?}") };
    // Readers must write the parts around the examples themselves.
    let source = format!(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include \"counterpoint/agent.h\"\n\
         #include \"counterpoint/collector.h\"\n\
         static void* begin(counterpoint_device_t device) {{ static int state; (void)device; return &state; }}\n\
         static int hits(void* state) {{ return state != 0; }}\n\
         {}\n\
         int main(void) {{\n{find}\nif (!agent) return 3;\n{add}\nreturn number < 0 ? 4 : 0;\n}}\n",
        collector.join("\n")
    );
    let scratch = testkit::Scratch::new();
    std::fs::write(scratch.join("example.c"), &source).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-I"])
        .arg(root().join("include"))
        .args(["-o", "example", "example.c", "-ldl"])
        .current_dir(scratch.path())
        .output();
    let Ok(compiled) = compiled else { return skip(TEST, "no C compiler") };
    assert!(compiled.status.success(), "{source}\n{compiled:?}");
    let library = program.parent().and_then(Path::parent).unwrap().join("lib/libcounterpoint.so");
    let status = Command::new(scratch.join("example")).env("LD_PRELOAD", library).status().unwrap();
    assert_eq!(status.code(), Some(0), "{source}");
}
