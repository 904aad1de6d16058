//! Tests texts that were written by hand for one case each, and files that are not LLVM IR.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use ir::instrument::{Instrumented, instrument};
use support::{Llvm, without_llvm};
use testkit::Scratch;

const X86: &str = "target triple = \"x86_64-linux-gnu\"\n";

fn all(mode: Mode) -> Options<'static> {
    let (max_depth, min_height) = (Some(99), Some(0));
    Options { mode, max_depth, min_height, functions: Functions::All, ..Options::default() }
}

fn done(text: &str, options: &Options) -> Instrumented {
    instrument(format!("{X86}{text}").as_bytes(), options).unwrap()
}

fn why(text: impl AsRef<[u8]>) -> String {
    instrument(text.as_ref(), &Options::default()).unwrap_err().to_string()
}

#[test]
fn what_is_not_a_text_is_said() {
    let function = "define void @f() {\n  ret void\n}\n";
    for (text, expected) in [
        (b"BC\xC0\xDE\x35\x14".to_vec(), "this is LLVM bitcode, not the text of LLVM IR"),
        (b"\xDE\xC0\x17\x0B".to_vec(), "this is LLVM bitcode"),
        (b"\x7FELF\x02\x01".to_vec(), "this is an ELF file"),
        (Vec::new(), "this is an empty file"),
        (b"a\0b".to_vec(), "this is a binary file"),
        (b"int main() { return 0; }\n".to_vec(), "line 1 is \"int main() { return 0; }\""),
        (b"module {\n  func.func @f() {}\n}\n".to_vec(), "line 1 is \"module {\""),
        (
            b"define void @f() {\n  ret void\n".to_vec(),
            "inside of a function that begins in line 1",
        ),
        (b"\n@x = global [2 x i8] c\"ab\n".to_vec(), "inside of a string that begins in line 2"),
        (b"@x = global [2 x i8\n".to_vec(), "inside of brackets that begins in line 1"),
        (b"/* a\n".to_vec(), "inside of a comment that begins in line 1"),
        (b"@x = global i32 0\n}\n".to_vec(), "line 2: '}' closes nothing"),
        (b"define void @f(i8* %p) {\n  ret void\n}\n".to_vec(), "line 1: pointers with a type"),
        (
            b"define void @f()\n\ndeclare void @g()\n".to_vec(),
            "line 1: this definition has no body",
        ),
        (b"define void {\n}\n".to_vec(), "line 1: this definition has no name"),
        (function.into(), "the text names no target"),
        (format!("target triple = \"i686-linux-gnu\"\n{function}").into(), "target i686-linux-gnu"),
        (
            format!("target triple = \"x86_64-linux-gnux32\"\n{function}").into(),
            "target x86_64-linux-gnux32",
        ),
        (
            format!("{X86}{function}@llvm.global_ctors = appending global i32 7\n").into(),
            "line 5: @llvm.global_ctors is not a list",
        ),
    ] {
        let shown = String::from_utf8_lossy(&text).into_owned();
        let why = why(text);
        assert!(why.contains(expected), "{shown}: {why}");
    }
    let once = done(function, &all(Mode::Sampled)).text;
    assert!(why(&once).starts_with("the text is already instrumented"), "{}", why(&once));
    let options = Options { target: Some("aarch64-linux-gnu"), ..all(Mode::Timed) };
    let text = instrument(function.as_bytes(), &options).unwrap().text;
    assert!(String::from_utf8(text).unwrap().contains("mrs $0, cntvct_el0"));
}

/// LLVM's `opt`, if it is installed, must refuse the same texts.
#[test]
fn a_malformed_branch_is_an_error() {
    let llvm = Llvm::with(&["opt"]);
    for (branch, why) in [
        ("br label %nowhere", "there is no block %nowhere"),
        ("br label", "it has 0 targets"),
        ("br i1 %c, label %a", "it has 1 target"),
        ("br i1 %c, label %a, label", "it has 1 target"),
        ("br label %a, label %b", "it has 2 targets"),
        ("br label %entry", "it goes to the entry block"),
        ("switch i1 %c, [ i1 0, label %b ]", "it has 1 target"),
        ("switch i1 %c, label [ i1 0, label %b ]", "it has 1 target"),
    ] {
        let text = format!(
            "{X86}define void @f(i1 %c) {{\nentry:\n  br label %a\na:\n  {branch}\nb:\n  br label %a\n}}\n"
        );
        let done = instrument(text.as_bytes(), &all(Mode::Timed)).map(|_| ());
        let error = done.expect_err(branch);
        let expected = format!("line 6: this jump of @f is malformed: {why}");
        assert_eq!(error.to_string().replace("of f is", "of @f is"), expected, "{branch}");
        if let Some(llvm) = llvm {
            let scratch = Scratch::new();
            let path = scratch.join("f.ll");
            std::fs::write(&path, text).unwrap();
            assert!(llvm.verify(&path).is_err(), "{branch}");
        }
    }
}

/// Returns texts that LLVM must accept before and after instrumentation.
fn cases() -> Vec<(&'static str, &'static str)> {
    let cases = include_str!("texts.ll").split("; case: ").skip(1);
    cases.map(|case| case.split_once('\n').unwrap()).collect()
}

#[test]
fn hand_made_texts_are_still_texts() {
    let Some(llvm) = Llvm::with(&["opt"]) else { return without_llvm("opt of LLVM 15 or later") };
    let scratch = Scratch::new();
    let path = scratch.join("case.ll");
    for (name, text) in cases() {
        std::fs::write(&path, format!("{X86}{text}")).unwrap();
        assert_eq!(llvm.verify(&path), Ok(()), "before: {name}");
        for mode in Mode::ALL {
            std::fs::write(&path, done(text, &all(mode)).text).unwrap();
            assert_eq!(llvm.verify(&path), Ok(()), "{mode:?}: {name}");
        }
    }
}

#[test]
fn false_attributes_are_taken_away_and_true_ones_stay() {
    let (_, text) = cases()[3];
    let done = String::from_utf8(done(text, &all(Mode::Count)).text).unwrap();
    let line = |start: &str| done.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert_eq!(line("declare double @sin"), "declare double @sin(double) #2");
    assert_eq!(line("define i32 @f"), "define i32 @f(i32 %x) #3 {");
    assert_eq!(line("define i32 @g").trim_end_matches([' ', '{']), "define i32 @g(ptr %fp)");
    for (call, group) in
        [("  %a = call", "#4"), ("  %b = call", "#4"), ("  %c = call", "#2"), ("  %d = call", "#4")]
    {
        assert!(line(call).ends_with(group), "{}", line(call));
    }
    assert!(line("attributes #3").contains("nounwind willreturn"), "{}", line("attributes #3"));
    assert!(line("attributes #3").contains("\"frame-pointer\"=\"all\""));
    assert!(!line("attributes #3").contains("memory") && !line("attributes #4").contains("memory"));
}

#[test]
fn what_is_skipped_is_in_the_table() {
    let skipped = |case: usize| -> Vec<(String, Option<String>, String)> {
        let done = done(cases()[case].1, &all(Mode::Sampled));
        done.table.skipped.into_iter().map(|s| (s.function, s.label, s.why)).collect()
    };
    let function = |name: &str, why: &str| (name.to_owned(), None, why.to_owned());
    assert_eq!(
        skipped(5),
        [
            function("n", "it is naked"),
            function("e", "its body is only for inlining"),
            function("g", "its calling convention leaves no room for other calls"),
            function("w", "it has a garbage collector"),
        ]
    );
    let [first, ..] = &skipped(2)[..] else { panic!("nothing skipped") };
    assert_eq!((first.0.as_str(), first.1.as_deref()), ("f", Some("a")));
    assert!(first.2.contains("indirect jump"), "{first:?}");
}

#[test]
fn a_single_loop_is_taken_and_innermost_ones_are_not() {
    let text = "define void @f(i1 %c) {
entry:
  br label %a
a:
  br i1 %c, label %a, label %b
b:
  br label %inner
inner:
  br i1 %c, label %inner, label %latch
latch:
  br i1 %c, label %b, label %out
out:
  ret void
}
define void @none() {
  ret void
}
";
    let labels = |options: &Options| -> Vec<String> {
        let entries = done(text, options).table.entries;
        entries.into_iter().map(|e| e.label.unwrap_or(e.function)).collect()
    };
    let options = Options::default;
    assert_eq!(labels(&options()), ["f", "a", "b"]);
    assert_eq!(labels(&Options { min_height: Some(1), ..options() }), ["f", "b"]);
    assert_eq!(labels(&Options { min_height: Some(0), ..options() }), ["f", "a", "b", "inner"]);
    assert_eq!(labels(&Options { max_depth: Some(0), ..options() }), ["f", "a", "b"]);
    assert_eq!(
        labels(&Options { siblings: true, min_height: Some(0), ..options() }),
        ["f", "a", "b"]
    );
    assert_eq!(labels(&Options { functions: Functions::None, ..options() }), ["a", "b"]);
    assert_eq!(
        labels(&Options { functions: Functions::All, ..options() }),
        ["f", "a", "b", "none"]
    );
    let filter = |name: &str| name == "none";
    assert_eq!(labels(&Options { filter: Some(&filter), ..all(Mode::Count) }), ["none"]);
}

#[test]
fn a_hundred_thousand_loops_in_a_row_and_inside_of_each_other() {
    use std::fmt::Write;
    let n = 100_000;
    let mut row = String::from("define void @f(i1 %c) {\nentry:\n  br label %h0\n");
    let mut nest = row.clone();
    for i in 0..n {
        let _ = writeln!(row, "h{i}:\n  br i1 %c, label %h{i}, label %h{}", i + 1);
        let _ = writeln!(nest, "h{i}:\n  br i1 %c, label %h{}, label %out", i + 1);
    }
    let _ = writeln!(row, "h{n}:\n  ret void\n}}");
    let _ = writeln!(nest, "h{n}:\n  br label %l{}", n - 1);
    for i in (0..n).rev() {
        let out = if i == 0 { "out".to_owned() } else { format!("l{}", i - 1) };
        let _ = writeln!(nest, "l{i}:\n  br i1 %c, label %h{i}, label %{out}");
    }
    nest.push_str("out:\n  ret void\n}\n");
    let options = Options { mode: Mode::Count, max_depth: Some(0), ..Options::default() };
    assert_eq!(done(&row, &options).counts.instrumented_loops, n);
    let found = done(&nest, &options);
    assert_eq!((found.counts.loops, found.counts.instrumented_loops), (n, 1));
    assert_eq!(found.table.entries[1].height as usize, n - 1);
}
