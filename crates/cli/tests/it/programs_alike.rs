//! Programs of every kind, with and without `counterpoint run`: they print the same on both
//! streams, and end in the same way. Programs that this machine does not have are skipped with a
//! message.
//!
//! The list is printed (`cargo nextest run --success-output=final programs_alike`): what each
//! program is, how it ended, and what could not be recorded.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{counterpoint, skip};

/// One program of the list.
struct Program {
    name: &'static str,
    /// Commands that must exist.
    needs: &'static [&'static str],
    /// How it is started: by `sh -c` if it contains a character that is special to a shell,
    /// otherwise by `counterpoint run` itself. `@` is a directory of programs that were compiled
    /// for this test.
    line: &'static str,
}

const fn program(
    name: &'static str,
    needs: &'static [&'static str],
    line: &'static str,
) -> Program {
    Program { name, needs, line }
}

/// Each is started in a separate directory with a file `words` of 1,000 lines.
const PROGRAMS: &[Program] = &[
    // Shells and their tools.
    program("true", &["true"], "true"),
    program("false", &["false"], "false"),
    program(
        "sh",
        &["sh"],
        "for i in 1 2 3; do (echo $i; exit $i) || echo failed; done | cat; exit 4",
    ),
    program(
        "bash",
        &["bash"],
        "bash -c 'a=(1 2 3); echo ${a[@]} $(echo sub) <(true | wc -c); exit 7' | sed 's:/dev/fd/[0-9]*:fd:'",
    ),
    program("awk", &["awk"], "awk '{ n += length($0) } END { print n, NR }' words"),
    program("sed", &["sed"], "sed -n -e 's/word/term/;20,25p' words"),
    program("sort", &["sort"], "sort --parallel=2 -r -S 1M words | head -5"),
    program("grep", &["grep"], "grep -c 7 words"),
    program("find", &["find"], "find . -type f -name w* -exec wc -l {} +"),
    program("xargs", &["xargs"], "head -20 words | xargs -n 3 -P 1 echo"),
    program(
        "tar",
        &["tar"],
        "tar -cf - --sort=name --mtime=@0 --owner=0 --group=0 words | tar -tvf -",
    ),
    program("gzip", &["gzip"], "gzip -n -9 < words | gzip -dc | cksum"),
    program("xz", &["xz"], "xz -T2 -c words | xz -dc | cksum"),
    program("bzip2", &["bzip2"], "bzip2 -c words | bzip2 -dc | cksum"),
    program("timeout", &["timeout"], "timeout -s KILL 0.2 sleep 10"),
    program(
        "setsid, nohup, nice",
        &["setsid", "nohup", "nice"],
        "setsid -w nohup nice -n 5 echo detached",
    ),
    program("less", &["less"], "less words | tail -1"),
    program("vim", &["vim"], "vim -es -u NONE -c '%s/word/x/' -c '3,5p' -c 'q!' words; echo $?"),
    program("tmux", &["tmux"], "tmux -V"),
    program(
        "tmux session",
        &["tmux"],
        "export TMUX_TMPDIR=$PWD; tmux -f /dev/null new-session -d 'echo inside > seen'; n=0; while ! [ -s seen ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n+1)); done; cat seen",
    ),
    // Version control, builds, compilers.
    program(
        "git",
        &["git"],
        "git init -q . && git add words && GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z git -c user.name=a -c user.email=a@b commit -q -m first && git log --format='%h %s' && git gc -q && git fsck",
    ),
    program(
        "make",
        &["make", "cc"],
        "printf 'all: a b\\na b:\\n\\t@echo made $@\\n' > Makefile; make -s -j2 a b | sort",
    ),
    program("cmake", &["cmake"], "cmake -E sha256sum words"),
    program("gcc", &["gcc"], "echo 'int main(void){return 12;}' > a.c && gcc -O2 -o a a.c && ./a"),
    program(
        "g++",
        &["g++"],
        "echo '#include <iostream>\nint main(){try{throw 5;}catch(int i){std::cout<<i<<std::endl;return i;}}' > a.cc && g++ -o a a.cc && ./a",
    ),
    program(
        "clang",
        &["@clang"],
        "echo 'int main(void){return 13;}' > a.c && @clang -O2 -o a a.c && ./a",
    ),
    program(
        "rustc",
        &["rustc"],
        "echo 'fn main(){let t=std::thread::spawn(||3);println!(\"{}\",t.join().unwrap());panic!(\"said\")}' > a.rs && rustc -O a.rs && ./a 2> /dev/null",
    ),
    program("cargo", &["cargo"], "cargo --version"),
    program("go", &["go"], "go version"),
    program("go, built program", &["go"], "@/gohello"),
    program("go, with C", &["go"], "@/gocgo"),
    program("java", &["java"], "java -version"),
    program(
        "javac",
        &["javac", "java"],
        "echo 'public class A { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> System.out.println(\"thread\")); t.start(); t.join(); System.exit(3); } }' > A.java && javac A.java && java -Xmx64m A",
    ),
    // Languages.
    program(
        "python3",
        &["python3"],
        "python3 -c 'import subprocess, sys; print(subprocess.check_output([\"echo\", \"sub\"])); sys.exit(9)'",
    ),
    program(
        "python3 multiprocessing",
        &["python3"],
        "python3 -c 'import multiprocessing as m\nif __name__ == \"__main__\":\n with m.get_context(\"fork\").Pool(3) as p: print(p.map(abs, range(-9, 0)))'",
    ),
    program(
        "perl",
        &["perl"],
        "perl -e '$p = fork; if (!$p) { exec \"sh\", \"-c\", \"exit 6\" } waitpid $p, 0; print $? >> 8, \"\\n\"; exit 2'",
    ),
    program(
        "ruby",
        &["ruby"],
        "ruby -e 'puts `echo sub`; t = Thread.new { puts :thread }; t.join; exit 5'",
    ),
    program(
        "lua",
        &["lua5.4"],
        "lua5.4 -e 'print(io.popen(\"echo sub\"):read(\"a\")); os.exit(3)'",
    ),
    program(
        "php",
        &["php"],
        "php -r 'echo shell_exec(\"echo sub\"), array_sum(range(1, 100)), \"\\n\"; exit(4);'",
    ),
    program(
        "node",
        &["node"],
        "node -e 'const c = require(\"child_process\"); console.log(c.execSync(\"echo sub\").toString()); process.exitCode = 3'",
    ),
    program(
        "node workers",
        &["node"],
        "node -e 'const { Worker } = require(\"worker_threads\"); new Worker(\"console.log(1 + 1)\", { eval: true }).on(\"exit\", c => process.exit(c + 2))'",
    ),
    program("npm", &["npm"], "npm --version"),
    // Clients of servers, and large libraries.
    program(
        "sqlite3",
        &["sqlite3"],
        "sqlite3 :memory: 'create table t(a); insert into t values (1),(2); select sum(a) from t;'",
    ),
    program("openssl", &["openssl"], "openssl dgst -sha256 words"),
    program("ssh", &["ssh"], "ssh -V"),
    program(
        "ssh-keygen",
        &["ssh-keygen"],
        "ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -y -f key | cut -d' ' -f1",
    ),
    program("curl", &["curl"], "curl -s file://$PWD/words | cksum; curl --version | head -1"),
    program("psql", &["psql"], "psql --version"),
    program("docker", &["docker"], "docker --version"),
    program("chromium", &["chromium"], "chromium --version 2> /dev/null"),
    program(
        "chromium, a page",
        &["chromium"],
        "chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/c --dump-dom 'data:text/html,<p id=a></p><script>a.textContent=6*7</script>' 2> /dev/null",
    ),
    // Debuggers and tracers.
    program(
        "gdb",
        &["gdb"],
        // gdb says which thread has hit it if there are several.
        "gdb -nx -batch -ex 'break churn' -ex run -ex 'bt 1' -ex kill --args @/kinds alloc 2> /dev/null | sed 's/^Thread 1 .* hit //' | grep -v -e Thread -e process -e libthread",
    ),
    program(
        "gdb, to the end",
        &["gdb"],
        "gdb -nx -batch -ex run -ex 'print $_exitcode' --args @/kinds fork 2> /dev/null | grep -E -e '^fork' -e '^.1 ='",
    ),
    program("strace", &["strace"], "strace -f -o /dev/null @/kinds fork"),
    program("ltrace", &["ltrace"], "ltrace -o /dev/null @/kinds alloc"),
    program(
        "valgrind",
        &["valgrind"],
        "valgrind -q --error-exitcode=99 --leak-check=full --log-file=/dev/null @/kinds fork",
    ),
    program(
        "valgrind, threads",
        &["valgrind"],
        "valgrind -q --tool=helgrind --error-exitcode=99 --log-file=/dev/null @/kinds alloc",
    ),
    program("rr", &["rr"], "_RR_TRACE_DIR=$PWD rr record -n @/kinds alloc 2> /dev/null"),
    // Allocators: preloaded before and after our library, and linked.
    program(
        "jemalloc, preloaded",
        &["@jemalloc"],
        "LD_PRELOAD=$LD_PRELOAD:@jemalloc @/kinds threads",
    ),
    program("jemalloc, before", &["@jemalloc"], "LD_PRELOAD=@jemalloc:$LD_PRELOAD @/kinds threads"),
    program(
        "jemalloc, python",
        &["@jemalloc", "python3"],
        "LD_PRELOAD=@jemalloc:$LD_PRELOAD python3 -c 'print(sum(len(str(i)) for i in range(100000)))'",
    ),
    program("jemalloc, linked", &["@/jemalloc"], "@/jemalloc threads"),
    program("tcmalloc", &["@tcmalloc"], "LD_PRELOAD=$LD_PRELOAD:@tcmalloc @/kinds threads"),
    program("tcmalloc, before", &["@tcmalloc"], "LD_PRELOAD=@tcmalloc:$LD_PRELOAD @/kinds threads"),
    program("mimalloc", &["@mimalloc"], "LD_PRELOAD=$LD_PRELOAD:@mimalloc @/kinds threads"),
    program("mimalloc, before", &["@mimalloc"], "LD_PRELOAD=@mimalloc:$LD_PRELOAD @/kinds fork"),
    // Kinds of binaries.
    program("position-independent", &["@/kinds"], "@/kinds threads"),
    program("at a fixed address", &["@/fixed"], "@/fixed threads"),
    program("static", &["@/static"], "@/static threads"),
    program(
        "static, from a shell",
        &["@/static"],
        "@/static fork; @/static close > /dev/null; echo $?",
    ),
    program("static, relocatable", &["@/static-pie"], "@/static-pie threads"),
    program("musl", &["@/musl"], "@/musl threads"),
    program("musl, from a shell", &["@/musl"], "@/musl fork; echo $?; exec @/musl alloc"),
    program("musl, static", &["@/musl-static"], "@/musl-static fork"),
    program("busybox", &["busybox"], "busybox sh -c 'busybox seq 5 | busybox tac; exit 3'"),
    program("32-bit", &["@/narrow"], "@/narrow alloc"),
    program("32-bit, from a shell", &["@/narrow"], "@/narrow fork; echo $?; @/kinds alloc"),
    program("stripped", &["@/stripped"], "@/stripped fork"),
    program(
        "by its dynamic linker",
        &["/lib64/ld-linux-x86-64.so.2"],
        "/lib64/ld-linux-x86-64.so.2 @/kinds fork",
    ),
    // Programs that change their own state.
    program("closes every descriptor", &["@/kinds"], "@/kinds close"),
    program("strict seccomp", &["@/kinds"], "@/kinds strict"),
    program("limits", &["@/kinds"], "@/kinds limits"),
    program("clears its environment", &["@/kinds"], "@/kinds clear"),
    program("signals, killed", &["@/kinds"], "@/kinds signals"),
    program("reads its input", &["@/kinds"], "@/kinds stdio < words"),
    program("AddressSanitizer", &["@/asan"], "@/asan threads"),
    program("AddressSanitizer, forks", &["@/asan"], "@/asan fork"),
    program("AddressSanitizer, from a shell", &["@/asan"], "@/asan alloc; echo $?"),
    program("ThreadSanitizer", &["@/tsan"], "@/tsan alloc"),
    program("UndefinedBehaviorSanitizer", &["@/ubsan"], "@/ubsan threads"),
    program("MemorySanitizer", &["@/msan"], "@/msan threads"),
];

/// A clang of any version.
const CLANG: &str = "@clang";

/// Allocators to preload, by their names in the list.
const ALLOCATORS: &[(&str, &[&str])] = &[
    ("@jemalloc", &["libjemalloc.so.2"]),
    ("@tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"]),
    ("@mimalloc", &["libmimalloc.so.2", "libmimalloc.so.2.0"]),
];

/// How `kinds.c` is compiled for the list.
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

/// Compiles the programs of the list. A program that cannot be compiled does not exist.
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

/// Whether the thing exists that a program of the list needs.
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

/// What a name of the list that begins with `@` stands for.
fn found(name: &str) -> Option<PathBuf> {
    if name == CLANG {
        return testkit::c::compiler("clang");
    }
    let (_, files) = ALLOCATORS.iter().find(|(known, _)| *known == name)?;
    let places = directory_of_libraries();
    files.iter().find_map(|file| places.iter().map(|at| at.join(file)).find(|at| at.exists()))
}

/// The command line with the paths of what was built and installed.
fn written_out(line: &str, built: &Path) -> String {
    let mut line = line.replace("@/", &format!("{}/", built.display()));
    for name in ALLOCATORS.iter().map(|(name, _)| *name).chain([CLANG]) {
        if let Some(at) = found(name) {
            line = line.replace(name, &at.display().to_string());
        }
    }
    line
}

/// The program and its arguments, or a shell that reads the line.
fn words(line: &str) -> Vec<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || " _./=:,+-".contains(c);
    match line.chars().all(plain) && !line.starts_with("LD_PRELOAD") {
        true => line.split(' ').map(str::to_owned).collect(),
        false => ["sh", "-c", line].map(str::to_owned).to_vec(),
    }
}

/// Runs the command in an empty directory that has the same path each time.
fn run(command: &mut Command, scratch: &Path) -> Output {
    let place = scratch.join("here");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    let words: String = (0..1000).map(|i| format!("word {}\n", i * 7919 % 1000)).collect();
    fs::write(place.join("words"), words).unwrap();
    command.current_dir(&place).stdin(Stdio::null());
    command.env("HOME", &place).env("TMPDIR", &place).env("LC_ALL", "C");
    // Rust's compilers are found through these variables.
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

/// The ways to record.
const WAYS: &[&[&str]] = &[
    &["-e", "none"],
    &["-e", "page-faults", "--budget", "2%"],
    &["-e", "none", "--loops"],
    &["-e", "none", "--plugin", "telemetry"],
];

/// Each program runs once without us, and once in each way. Two threads take the programs one after the
/// other: most of them wait for most of their time.
#[test]
fn programs_of_every_kind_run_as_without_us() {
    let Some(counterpoint) = counterpoint("programs of every kind") else { return };
    let scratch = testkit::Scratch::new();
    let built = scratch.join("built");
    fs::create_dir(&built).unwrap();
    build(&built);
    let (there, missing): (Vec<&Program>, Vec<&Program>) = PROGRAMS
        .iter()
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

/// Runs the program without us and in each way. Returns a text for each way in which it differs.
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

/// What the program wrote, without the lines that `counterpoint run` adds at the end.
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
