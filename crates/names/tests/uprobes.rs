//! Tests which instruction the name of a uprobe stands for, in libraries that the tests compile.
//! The expected offsets come from `nm` and `readelf`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::Random;

use counters::{Plan, ReadStatus, Readings, ThreadCounters};
use machine::Machine;
use model::Source;
use names::{NameError, Resolver};
use testkit::counting::*;

/// The directory with the files of one test.
struct Workshop(PathBuf);

impl Workshop {
    /// Returns `None` if there is no C compiler, which is reported as a skip.
    fn new(name: &str) -> Option<Self> {
        if Command::new("cc").arg("--version").output().is_err() {
            skip("no C compiler");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("uprobes-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Some(Self(dir))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, program: &str, words: &[&str]) -> String {
        let output = Command::new(program).args(words).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "{program} {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn library(&self, name: &str, sources: &[(&str, &str)], options: &[&str]) -> PathBuf {
        let files: Vec<&str> = sources.iter().map(|(name, _)| *name).collect();
        sources.iter().for_each(|(name, text)| drop(self.write(name, text)));
        let words = [&["-O2", "-shared", "-fPIC", "-o", name], files.as_slice(), options].concat();
        self.run("cc", &words);
        self.0.join(name)
    }

    /// Returns the offset of a symbol in the file, from nm and readelf.
    fn offset(&self, file: &Path, symbol: &str) -> u64 {
        let symbols = self.run("nm", &[file.to_str().unwrap()]);
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {symbol}")));
        let address = line.unwrap_or_else(|| panic!("{symbol}: {symbols}"));
        let address = hex(address.split_whitespace().next().unwrap());
        let segments = self.run("readelf", &["-lW", file.to_str().unwrap()]);
        let loads = segments.lines().filter(|line| line.trim_start().starts_with("LOAD"));
        loads
            .map(|line| line.split_whitespace().skip(1).take(5).map(hex).collect::<Vec<_>>())
            .find(|f| f[1] <= address && address < f[1] + f[3])
            .map(|f| address - f[1] + f[0])
            .unwrap()
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// Makes the files of a machine with a uprobe PMU, even if the real kernel has none.
fn tree() -> Tree {
    let tree = Tree::new("uprobe-pmu");
    tree.file("sys/bus/event_source/devices/uprobe/type", "8\n");
    tree
}

fn cause(error: &NameError) -> String {
    error.cause.as_ref().map_or_else(String::new, |cause| format!("{cause:?}"))
}

/// Returns the offset of the uprobe in its file, or the error and its cause.
fn place_at(machine: &Machine, text: &str) -> Result<u64, String> {
    match Resolver::new(machine).resolve(text).map(|mut c| c.remove(0).source) {
        Ok(Source::Perf(attr)) => Ok(attr.config2),
        Ok(Source::Sim(_)) => Err("simulated".into()),
        Err(e) => Err(format!("{} | {}", e.what(), cause(&e))),
    }
}

fn place(text: &str) -> Result<u64, String> {
    place_at(&Machine::at(&tree().root), text)
}

fn refused(text: String) -> String {
    place(&text).expect_err(&text)
}

/// Returns the counts while `body` runs. `None` if counting is not possible here, which is reported
/// as a skip.
fn counted(list: &str, body: impl FnOnce()) -> Option<Vec<Option<u64>>> {
    let machine = Machine::here();
    let plan = match Resolver::new(&machine).resolve(list) {
        Ok(counters) => Plan::new(counters).unwrap(),
        Err(error) if error.to_string().contains("no uprobe PMU") => {
            skip(&error.to_string());
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut open = ThreadCounters::closed();
    if let Err(failure) = open.open(&plan) {
        skip(&format!("{list}: {failure}"));
        return None;
    }
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    assert_eq!(open.read(&mut begin), ReadStatus::Complete);
    body();
    assert_eq!(open.read(&mut end), ReadStatus::Complete);
    open.close();
    Some((0..plan.counters().len()).map(|i| end.since(&begin, i)).collect())
}

fn loaded(path: &Path, function: &str) -> extern "C" fn(i32) -> i32 {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let name = CString::new(function).unwrap();
    // SAFETY: `path` and `name` are C strings. The tests here compile the libraries, whose
    // functions have this type.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null());
        let found = libc::dlsym(handle, name.as_ptr());
        assert!(!found.is_null());
        std::mem::transmute::<*mut c_void, extern "C" fn(i32) -> i32>(found)
    }
}

fn loaded_file(name: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut words = maps.lines().filter_map(|line| line.split_whitespace().last());
    words.find(|word| word.ends_with(name)).map(str::to_owned)
}

/// libm has an old `expf`, and a new one for which each process chooses an implementation. Neither
/// the old function nor the choosing code is counted.
#[test]
fn expf_counts_what_programs_call() {
    let Some(shop) = Workshop::new("expf") else { return };
    let Some(libc) = loaded_file("/libc.so.6") else { return skip("no glibc") };
    let libm = libc.replace("/libc.so.6", "/libm.so.6");
    let source = "#include <math.h>\nint calls(int n) { volatile float x = 0; \
                  for (int i = 0; i < n; i++) x += expf(i * 1e-3f); return n; }\n";
    let calls = loaded(&shop.library("libcalls.so", &[("c.c", source)], &["-lm"]), "calls");
    let list = format!("uprobe:{libm}:expf,uretprobe:{libm}:expf");
    if let Some(counts) = counted(&list, || assert_eq!(calls(500), 500)) {
        assert_eq!(counts, [Some(500), Some(500)]);
    }
    let versions = shop.run("readelf", &["-sW", &libm]);
    if versions.contains("expf@GLIBC_2.2.5") && versions.contains("expf@@GLIBC_2.27") {
        let list = format!("uprobe:{libm}:expf@GLIBC_2.27,uprobe:{libm}:expf@GLIBC_2.2.5");
        if let Some(counts) = counted(&list, || assert_eq!(calls(500), 500)) {
            assert_eq!(counts, [Some(500), Some(0)]);
        }
    }
}

/// The code of an indirect function, which chooses an implementation, is refused by name and by its
/// offset in the file. An offset into an indirect function is refused, too.
#[test]
fn choosing_code_is_no_function() {
    let Some(shop) = Workshop::new("indirect") else { return };
    let source = "static int one(int x) { return x + 1; }\n\
                  int _chosen_one(int x) { return one(x); }\n\
                  static int (*choose(void))(int) { return _chosen_one; }\n\
                  int chosen(int) __attribute__((ifunc(\"choose\")));\n";
    let library = shop.library("libifunc.so", &[("i.c", source)], &[]);
    let file = library.display();
    let error = refused(format!("uprobe:{file}:chosen"));
    assert!(error.contains("\"chosen\": an indirect function"), "{error}");
    let error = refused(format!("uprobe:{file}:chosen+4"));
    assert!(error.contains("an offset into a function of which each process chooses"), "{error}");
    let offset = shop.offset(&library, "chosen");
    for offset in [offset, offset + 4] {
        let error = refused(format!("uprobe:{file}:{offset:#x}"));
        assert!(error.contains("the code that chooses an implementation of chosen"), "{error}");
        assert!(error.contains(&format!("| ChoosingCode(\"uprobe:{file}:chosen\")")), "{error}");
    }
    let implementation = shop.offset(&library, "_chosen_one");
    assert_eq!(place(&format!("uprobe:{file}:_chosen_one")), Ok(implementation));
}

const VERSIONS: &str = "int old(void) { return 1; }\nint new(void) { return 2; }\n\
    int gone(void) { return 3; }\nint gone2(void) { return 4; }\nint last(void) { return 5; }\n\
    __asm__(\".symver old,f@V1\\n.symver new,f@@V2\\n.symver gone,g@V1\\n.symver gone2,g@V2\\n\
    .symver last,h@V1\");\n";

/// A name stands for its default version, also in stripped files.
#[test]
fn versions_of_a_name() {
    let Some(shop) = Workshop::new("versions") else { return };
    shop.write("map", "V1 { global: f; g; h; local: *; };\nV2 { global: f; g; } V1;\n");
    let options = ["-Wl,--version-script=map", "-Wl,-soname,libversions.so"];
    let library = shop.library("libversions.so", &[("v.c", VERSIONS)], &options);
    let [old, new] = ["old", "new"].map(|name| shop.offset(&library, name));
    let last = shop.offset(&library, "last");
    let stripped = shop.0.join("stripped.so");
    shop.run("strip", &["-o", stripped.to_str().unwrap(), library.to_str().unwrap()]);
    for file in [&library, &stripped] {
        let of = |symbol: &str| place(&format!("uprobe:{}:{symbol}", file.display()));
        assert_eq!(of("f"), Ok(new));
        assert_eq!(of("f@V2"), Ok(new));
        assert_eq!(of("f@@V2"), Ok(new));
        assert_eq!(of("f@V1"), Ok(old));
        // The only version of `h` is not the default, but the name cannot stand for anything else.
        assert_eq!(of("h"), Ok(last));
        let error = of("f@V3").unwrap_err();
        assert!(error.contains(r#"no such version of f | Versions(["f@V1", "f@V2"])"#), "{error}");
        let error = of("g").unwrap_err();
        assert!(error.contains("2 versions, none of which is the default"), "{error}");
        assert!(error.contains(r#"| NoDefaultVersion(["g@V1", "g@V2"])"#), "{error}");
    }
}

/// Two source files have a local function `helper`.
#[test]
fn one_name_in_several_places() {
    let Some(shop) = Workshop::new("static") else { return };
    let of = |n: i32| {
        format!(
            "__attribute__((noinline)) static int helper(volatile int *x) {{ return *x + {n}; }}\n\
             int call{n}(int n) {{ volatile int x = n, s = 0; for (int i = 0; i < n; i++) \
             s += helper(&x); return n; }}\n\
             extern __typeof__(call{n}) alias{n} __attribute__((weak, alias(\"call{n}\")));\n"
        )
    };
    let library =
        shop.library("libstatic.so", &[("one.c", &of(1)), ("two.c", &of(2))], &["-fno-inline"]);
    let file = library.display();
    let error = refused(format!("uprobe:{file}:helper"));
    assert!(error.contains("\"helper\": 2 functions of that name"), "{error}");
    let symbols = shop.run("nm", &[library.to_str().unwrap()]);
    let mut places: Vec<u64> = symbols
        .lines()
        .filter(|line| line.ends_with(" t helper"))
        .map(|line| hex(line.split_whitespace().next().unwrap()))
        .collect();
    places.sort_unstable();
    let [first, second] = places[..] else { panic!("{symbols}") };
    let named = [format!("{first:#x} (one.c)"), format!("{second:#x} (two.c)")];
    let swapped = [format!("{first:#x} (two.c)"), format!("{second:#x} (one.c)")];
    assert!([named, swapped].iter().any(|n| error.ends_with(&format!("Places({n:?})"))), "{error}");
    // An offset chooses one of the two functions.
    let one = if error.contains(&format!("{first:#x} (one.c)")) { first } else { second };
    let call = loaded(&library, "call1");
    if let Some(counts) = counted(&format!("uprobe:{file}:{one:#x}"), || assert_eq!(call(321), 321))
    {
        assert_eq!(counts, [Some(321)]);
    }
    // Two symbols with the same address are one function.
    assert_eq!(place(&format!("uprobe:{file}:alias1")), place(&format!("uprobe:{file}:call1")));
}

#[test]
fn what_is_no_code() {
    let Some(shop) = Workshop::new("nocode") else { return };
    let source = "#include <math.h>\nfloat calls(float x) { return expf(x); }\n\
        __asm__(\".data\\n.globl indata\\n.type indata,@function\\nindata: .long 0\\n.size indata,4\\n\
        .globl fixed\\n.type fixed,@function\\n.set fixed,0x40\\n.text\");\n";
    let library = shop.library("libnocode.so", &[("n.c", source)], &["-lm"]);
    let file = library.display();
    let error = refused(format!("uprobe:{file}:indata"));
    assert!(error.contains("\"indata\": its address is not in the code of the file"), "{error}");
    let error = refused(format!("uprobe:{file}:fixed"));
    assert!(error.contains("no function of"), "{error}");
    // The library calls `expf`, but libm defines it.
    let error = refused(format!("uprobe:{file}:expf"));
    assert!(error.contains(&format!("| Imported(\"{file}\")")), "{error}");
    // These offsets are too large for an address.
    let error = refused(format!("uprobe:{file}:calls+{}", u64::MAX));
    assert!(error.contains("the function has "), "{error}");
    let error = refused(format!("uprobe:{file}:{}", u64::MAX));
    assert!(error.contains("the file has no code there"), "{error}");
}

/// The separate file with symbols is found by the library's build id.
#[test]
fn separate_symbols() {
    let Some(shop) = Workshop::new("separate") else { return };
    let source = "__attribute__((noinline)) static int hidden(volatile int *x) { return *x; }\n\
                  int calls(int n) { volatile int x = n; return hidden(&x); }\n";
    let library = shop.library("libseparate.so", &[("s.c", source)], &["-Wl,--build-id"]);
    let expected = shop.offset(&library, "hidden");
    let file = library.to_str().unwrap();
    let notes = shop.run("readelf", &["-nW", file]);
    let id = notes.split("Build ID:").nth(1).unwrap().split_whitespace().next().unwrap();
    let tree = tree();
    let place = |tree: &Tree| place_at(&Machine::at(&tree.root), &format!("uprobe:{file}:hidden"));
    assert_eq!(place(&tree), Ok(expected));
    let debug = tree.root.join(format!("usr/lib/debug/.build-id/{}", &id[..2]));
    std::fs::create_dir_all(&debug).unwrap();
    let debug = debug.join(format!("{}.debug", &id[2..]));
    shop.run("objcopy", &["--only-keep-debug", file, debug.to_str().unwrap()]);
    shop.run("strip", &[file]);
    assert_eq!(place(&tree), Ok(expected));
    std::fs::remove_file(debug).unwrap();
    assert!(place(&tree).unwrap_err().contains("no function of"));
}

/// Tests return probes at entries of functions and elsewhere, by name and by offset, with and
/// without symbols.
#[test]
fn return_probes_are_at_entries() {
    let Some(shop) = Workshop::new("returns") else { return };
    // The compiler puts the unlikely code into `split.cold`. The function `split` jumps there after
    // it has pushed registers on the stack.
    let source = "#include <stdlib.h>\n#include <stdio.h>\n\
        int calls(int n) { volatile int s = 0; for (volatile int i = 0; i < n; i++) s += i; return n; }\n\
        __attribute__((cold, noinline, noreturn)) void fail(int a, int b) { printf(\"%d%d\", a, b); abort(); }\n\
        int split(int n, int *p, int *q) { int a = calls(n), b = calls(n + 1);\n\
        if (__builtin_expect(a + b == -77, 0)) { *p = b; *q = a; fail(a * b, *p); } return a + b + *p; }\n\
        int main(void) { int x = 1; return split(3, &x, &x); }\n";
    shop.write("r.c", source);
    shop.run("cc", &["-O2", "-fno-inline", "-freorder-blocks-and-partition", "-o", "prog", "r.c"]);
    let program = shop.0.join("prog");
    let entry = shop.offset(&program, "calls");
    let cold = shop.run("nm", &["prog"]).contains("split.cold");
    assert_eq!(place(&format!("uprobe:{}:calls+4", program.display())), Ok(entry + 4));
    shop.run("strip", &["-o", "bare", "prog"]);
    let start = shop.offset(&program, "_start");
    let mut inside = vec![entry + 1, entry + 4, start];
    let refuse = |text: String, expected: &str| {
        let error = refused(text);
        assert!(error.contains(expected), "{error}");
        assert!(
            error.contains("| Instead(\"uretprobe:") || error.ends_with("| NotAnEntry"),
            "{error}"
        );
    };
    let file = program.display();
    assert_eq!(place(&format!("uretprobe:{file}:calls")), Ok(entry));
    assert_eq!(place(&format!("uretprobe:{file}:calls+0")), Ok(entry));
    refuse(format!("uretprobe:{file}:calls+4"), "a return probe in the middle of a function");
    refuse(format!("uretprobe:{file}:_start"), "the first instruction of a program");
    if cold {
        refuse(format!("uretprobe:{file}:split.cold"), "the return address is not where it is");
        inside.push(shop.offset(&program, "split.cold"));
    }
    for name in ["prog", "bare"] {
        let file = shop.0.join(name);
        let at = |offset: u64| format!("uretprobe:{}:{offset:#x}", file.display());
        assert_eq!(place(&at(entry)), Ok(entry), "{name}");
        inside.iter().for_each(|&offset| drop(refused(at(offset))));
    }
}

/// Shows why return probes in the middle of functions are refused: the kernel opens them, and they
/// destroy the program's stack. If this test fails, the kernel may have begun to refuse such probes
/// itself.
#[test]
fn the_kernel_would_let_it_happen() {
    let Some(shop) = Workshop::new("harm") else { return };
    // At the label `inside`, two words are on the stack. A return probe there replaces the word
    // that was pushed last, which is a saved register.
    if !cfg!(target_arch = "x86_64") {
        return skip("written for x86-64");
    }
    let source = "#include <stdint.h>\nint victim(int);\n\
        __asm__(\".globl victim\\n.type victim,@function\\nvictim: movl $7,%eax\\npush %rax\\n\
        .globl inside\\ninside: nop\\npop %rax\\nret\\n.size victim,.-victim\");\n\
        int calls(int n) { return victim(n); }\n";
    let library = shop.library("libvictim.so", &[("h.c", source)], &[]);
    let calls = loaded(&library, "calls");
    assert_eq!(calls(0), 7);
    let inside = shop.offset(&library, "inside");
    let Ok(number) = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type") else {
        return skip("no uprobe PMU");
    };
    let attr = model::PerfAttr {
        kind: number.trim().parse().unwrap(),
        config: 1,
        config2: inside,
        path: CString::new(library.to_str().unwrap()).ok(),
        ..model::PerfAttr::default()
    };
    let code = in_child(|| {
        let Ok(fd) = counters::perf::open(&attr, counters::Target::CALLING_THREAD, -1) else {
            return 77;
        };
        let got = calls(0);
        // SAFETY: `fd` was opened above, and nobody uses it after this.
        unsafe { libc::close(fd) };
        i32::from(got == 7)
    });
    match code {
        77 => skip("no uprobe may be opened here"),
        code => assert_eq!(code, 0, "the register survived"),
    }
    assert!(place(&format!("uretprobe:{}:victim+6", library.display())).is_err());
    assert!(place(&format!("uretprobe:{}:{inside:#x}", library.display())).is_err());
}

/// The kernel refuses to probe some instructions, with an internal error number (524).
#[test]
fn an_instruction_that_cannot_be_probed() {
    let Some(shop) = Workshop::new("refused") else { return };
    if !cfg!(target_arch = "x86_64") {
        return skip("written for x86-64");
    }
    // 0x06 (push es) does not exist in 64-bit mode; nothing runs it.
    let source = "__asm__(\".globl odd\\n.type odd,@function\\nodd: nop\\n.byte 0x06\\nret\\n.size odd,.-odd\");\n\
                  int calls(int n) { return n; }\n";
    let library = shop.library("libodd.so", &[("o.c", source)], &[]);
    // The kernel checks the instruction only if a process has mapped the library.
    loaded(&library, "calls");
    let machine = Machine::here();
    let list = format!("uprobe:{}:odd+1", library.display());
    let Ok(counters) = Resolver::new(&machine).resolve(&list) else { return skip("no uprobe PMU") };
    let report = machine::check::check(&counters, &machine);
    let Some(problem) = report.problem() else { panic!("it opens") };
    if problem.error.is_none_or(|e| e.errno != 524) {
        return skip(&problem.message);
    }
    let expected = "ENOTSUPP (the kernel cannot put a probe on this instruction)";
    assert!(problem.message.ends_with(expected), "{}", problem.message);
    assert_eq!(problem.cause, machine::check::Cause::NotProbeable);
}

#[test]
fn damaged_files_are_errors() {
    let Some(shop) = Workshop::new("damaged") else { return };
    shop.write("map", "V1 { global: *; };\n");
    let source = "int inner(int n) { return n * 3; }\nint calls(int n) { return inner(n) + 1; }\n";
    let library =
        shop.library("libdamaged.so", &[("d.c", source)], &["-Wl,--version-script=map", "-s"]);
    let whole = std::fs::read(&library).unwrap();
    let tree = tree();
    let resolver = Resolver::new(&Machine::at(&tree.root));
    let file = shop.0.join("mutant.so");
    let texts = ["uprobe:FILE:calls@V1", "uretprobe:FILE:calls", "uretprobe:FILE:0x1100"]
        .map(|text| text.replace("FILE", file.to_str().unwrap()));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut next = |below| random.place(below);
    let (mut found, mut refused) = (0, 0);
    for round in 0..1000 {
        let mut bytes = whole.clone();
        for _ in 0..=next(3) {
            // Only bytes other than zero are changed, because many zeros are padding.
            let used = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at);
            let used: Vec<usize> = used.collect();
            let at = used[next(used.len())];
            bytes[at] = [0, 0xff, 0x80, next(256) as u8][next(4)];
        }
        if round % 4 == 0 {
            bytes.truncate(next(bytes.len()));
        }
        std::fs::write(&file, &bytes).unwrap();
        for text in &texts {
            match resolver.resolve(text) {
                Ok(_) => found += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(found > 50 && refused > 50, "{found} {refused}");
}
