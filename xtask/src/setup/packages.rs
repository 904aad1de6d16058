//! Installs Debian's packages for virtual environments, tests, benchmarks and checks of hardware.
//!
//! Missing packages are installed if xtask runs as root and the machine has apt. Before that, apt
//! updates its lists of packages, because the lists of a new machine are empty or old. apt must not
//! remove any package, so a package that conflicts with an installed one stays missing. First,
//! xtask calls apt once for all missing packages. If this call fails, xtask calls apt once for each
//! purpose. At the end, one line names the packages that are still missing. The tests that need
//! them are skipped.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use crate::process::{duration, exists, say};

/// Packages for one purpose, and the signs by which installed packages are recognised.
pub struct Need {
    /// The purpose, which completes the words "they are for" in the message about missing packages.
    what_for: &'static str,
    packages: &'static [&'static str],
    signs: &'static [Sign],
}

/// Something that exists if a package is installed. Programs are only looked for, and not started,
/// because a browser needs a second to print its version.
enum Sign {
    /// A program in `PATH`.
    Program(&'static str),
    /// A library that the dynamic linker knows.
    Library(&'static str),
    File(&'static str),
}

use Sign::{File, Library, Program};

const fn need(
    what_for: &'static str,
    packages: &'static [&'static str],
    signs: &'static [Sign],
) -> Need {
    Need { what_for, packages, signs }
}

/// There is no sign for this package: only an attempt to make a virtual environment shows that
/// Debian's `python3` lacks `ensurepip`.
pub const VENV: &[Need] = &[need("virtual environments", &["python3-venv"], &[])];

/// For packages of npm.
pub const NODE: &[Need] = &[need(
    "Perfetto's trace processor and the page",
    &["nodejs", "npm"],
    &[Program("node"), Program("npm")],
)];

/// LLVM 19 provides the runtime of XRay for `bench loops`, and the runtimes of the sanitizers.
/// rustc and TVM use LLVM 22.
pub const LLVM: &[Need] = &[
    need(
        "loops that clang 19 compiles, XRay and sanitizers",
        &["clang-19", "llvm-19", "libclang-rt-19-dev"],
        &[Program("clang-19"), Program("opt-19"), File("/usr/lib/llvm-19/lib/clang/19/lib/linux")],
    ),
    need(
        "loops that clang 22 compiles, and those of rustc and TVM",
        &["clang-22", "llvm-22", "libclang-rt-22-dev"],
        &[Program("clang-22"), Program("opt-22"), File("/usr/lib/llvm-22/lib/clang/22/lib/linux")],
    ),
];

/// PoCL is an implementation of OpenCL that runs on the CPU.
pub const OPENCL: &[Need] = &[need(
    "the plugin for OpenCL",
    &["pocl-opencl-icd", "ocl-icd-opencl-dev", "opencl-headers", "clinfo"],
    &[
        File("/etc/OpenCL/vendors/pocl.icd"),
        File("/usr/include/CL/cl_layer.h"),
        Library("libOpenCL.so.1"),
        Program("clinfo"),
    ],
)];

/// For comparisons of our counts with those of other programs, on machines with a PMU.
pub const PMU: &[Need] = &[
    need("comparisons with perf", &["linux-perf"], &[Program("perf")]),
    need(
        "comparisons with PAPI",
        &["libpapi-dev"],
        &[File("/usr/include/papi.h"), Library("libpapi.so")],
    ),
];

/// For `bench roofs`.
pub const ROOFS: &[Need] =
    &[need("roofs that another program measures", &["likwid"], &[Program("likwid-bench")])];

/// For `bench diff`.
pub const DIFF: &[Need] =
    &[need("another comparison of two programs", &["hyperfine"], &[Program("hyperfine")])];

pub const TESTS: &[Need] = &[
    need("comparisons with libpfm4", &["libpfm4"], &[Library("libpfm.so.4")]),
    // Two kinds of programs into which our library cannot be loaded: 32-bit programs, and programs
    // for musl.
    #[cfg(target_arch = "x86_64")]
    need("32-bit programs", &["gcc-multilib"], &[File("/usr/lib32/crt1.o")]),
    need("programs for musl", &["musl-tools"], &[Program("musl-gcc")]),
    need("programs in C++", &["g++"], &[Program("g++")]),
    // Tests run most of the following programs under `counterpoint run`, where they must work as
    // they do without it.
    need("gdb under run", &["gdb"], &[Program("gdb")]),
    need("valgrind under run", &["valgrind"], &[Program("valgrind")]),
    need("strace under run", &["strace"], &[Program("strace")]),
    need("ltrace under run", &["ltrace"], &[Program("ltrace")]),
    need("rr under run", &["rr"], &[Program("rr")]),
    need("jemalloc under run", &["libjemalloc-dev"], &[File("/usr/include/jemalloc/jemalloc.h")]),
    need("tcmalloc under run", &["libtcmalloc-minimal4"], &[Library("libtcmalloc_minimal.so.4")]),
    need("mimalloc under run", &["libmimalloc2.0"], &[Library("libmimalloc.so.2")]),
    need("go under run", &["golang-go"], &[Program("go")]),
    need("ruby under run", &["ruby"], &[Program("ruby")]),
    need("lua under run", &["lua5.4"], &[Program("lua5.4")]),
    need("php under run", &["php-cli"], &[Program("php")]),
    need("cmake under run, and plugins built with it", &["cmake"], &[Program("cmake")]),
    need("plugins built with pkg-config", &["pkg-config"], &[Program("pkg-config")]),
    need("busybox under run", &["busybox"], &[Program("busybox")]),
    need(
        "chromium under run, and the page of report --html",
        &["chromium"],
        &[Program("chromium")],
    ),
    need("the page of report --html in Firefox", &["firefox-esr"], &[Program("firefox-esr")]),
    need("java under run", &["default-jdk-headless"], &[Program("java"), Program("javac")]),
    need("sqlite3 under run", &["sqlite3"], &[Program("sqlite3")]),
    need("psql under run", &["postgresql-client"], &[Program("psql")]),
    need("tmux under run", &["tmux"], &[Program("tmux")]),
    need("vim under run", &["vim"], &[Program("vim")]),
    need("less under run", &["less"], &[Program("less")]),
    need("ssh under run", &["openssh-client"], &[Program("ssh")]),
    need("curl under run", &["curl"], &[Program("curl")]),
    need("xz and bzip2 under run", &["xz-utils", "bzip2"], &[Program("xz"), Program("bzip2")]),
    need("programs with more rights", &["libcap2-bin"], &[Program("setcap")]),
];

impl Need {
    fn shows(&self) -> bool {
        self.signs.iter().all(Sign::is_there)
    }

    /// Returns whether all signs exist, or false if there are no signs.
    fn is_there(&self) -> bool {
        !self.signs.is_empty() && self.shows()
    }
}

impl Sign {
    fn is_there(&self) -> bool {
        match self {
            Program(name) => in_path(name),
            File(path) => Path::new(path).exists(),
            Library(name) => {
                let listed = Command::new("/sbin/ldconfig").arg("-p").output();
                listed.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(name))
            }
        }
    }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Installs the missing packages of `groups`. If some cannot be installed, prints one line that
/// names them.
pub fn install(groups: &[&'static [Need]]) {
    let missing = || -> Vec<&'static Need> {
        groups.iter().copied().flatten().filter(|need| !need.is_there()).collect()
    };
    if missing().is_empty() {
        return;
    }
    // If two threads called apt at the same time, one call would fail. While this thread waited,
    // another one may have installed the packages.
    static APT: Mutex<()> = Mutex::new(());
    let _one = APT.lock();
    let wanted = missing();
    if wanted.is_empty() {
        return;
    }
    if let Some(why) = cannot_install() {
        return report(&wanted, why);
    }
    let names = packages(&wanted);
    say(format_args!("install the packages {} …", names.join(" ")));
    let start = Instant::now();
    apt(&["update"]);
    let all = install_now(&names);
    let mut failed = wanted;
    failed.retain(|need| !((all || install_now(need.packages)) && need.shows()));
    say(format_args!("install packages: {}", duration(start.elapsed())));
    report(&failed, "apt-get cannot install them, or they have changed");
}

fn packages(needs: &[&Need]) -> Vec<&'static str> {
    needs.iter().flat_map(|need| need.packages).copied().collect()
}

fn cannot_install() -> Option<&'static str> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("only root can install them");
    }
    (!exists("apt-get", &["--version"])).then_some("there is no apt-get")
}

fn report(missing: &[&Need], why: &str) {
    if missing.is_empty() {
        return;
    }
    let purposes: Vec<&str> = missing.iter().map(|need| need.what_for).collect();
    say(format_args!(
        "missing packages: {} ({why}); they are for {}",
        packages(missing).join(" "),
        purposes.join(", ")
    ));
}

fn install_now(packages: &[&str]) -> bool {
    let options = ["install", "-y", "--no-install-recommends", "--no-remove"];
    apt(&[&options, packages].concat())
}

fn apt(arguments: &[&str]) -> bool {
    let mut apt = Command::new("apt-get");
    // apt waits for at most 300 seconds if another program is installing packages.
    apt.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=300"]);
    apt.args(arguments).output().is_ok_and(|out| out.status.success())
}
